"""Sparse sampling (Kearns, Mansour and Ng 1999): a tree of sampled futures, as large as actions and horizon make it.

A sparse sampling algorithm for near-optimal planning in large Markov decision processes, IJCAI, Figure 1. It plans with a
generative model: a simulator that can be set to any state. Here nothing can be set to a state; but where transitions are
deterministic, playing the same actions again leads back to it. So a node of the tree is an action sequence, its C samples
are C episodes that end there, and the C futures of a pair are one and the same. The number of states does not matter, and
the number of nodes, K + K^2 + ... + K^H, is the price.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from richobs import LearnedPolicy, OpenLoop, Outcome, Problem, Settings
from richobs.core.errors import EpisodeLimit
from richobs.core.events import Callback
from richobs.core.queries import Engine, LevelSteps, Query
from richobs.core.types import Floats, Path
from richobs.learners.base import Need, PlanRow, Promise, ShortPlan, Traits, deterministic_transitions, unit_rewards
from richobs_lab.rivals.base import BEST_SEQUENCE, Rival, near_optimal
from richobs_lab.rivals.rival_events import Rounds, tell_nobody
from richobs_lab.rivals.rmax import enough_visits

MOST_NODES = 100_000


def n_nodes(horizon: int, n_actions: int) -> int:
    """Returns the number of action sequences of 1 to H actions."""
    return sum(n_actions**length for length in range(1, horizon + 1))


def printed_samples(horizon: int, n_actions: int, epsilon: float) -> int:
    """Returns C as the paper prints it, with H for 1/(1 - gamma), V_max = R_max = 1.

    C = (V_max/lambda)^2 (2 H log(K H V_max^2 / lambda^2) + log(R_max / lambda)), lambda = epsilon (1 - gamma)^2 / 4
    (Section 3, quoted from memory).
    """
    small = epsilon / (4 * horizon**2)
    return math.ceil((2 * horizon * math.log(n_actions * horizon / small**2) + math.log(1 / small)) / small**2)


def sparse_sampling(
    engine: Engine, horizon: int, n_actions: int, samples: int, *, notify: Callback = tell_nobody
) -> tuple[Path, float, str | None]:
    """Samples every node of the tree and returns the best path, its estimated value, and what stopped it early.

    Args:
        engine: plays; where its ledger allows no more episodes, nodes that were not sampled are worth 0.
        horizon: H.
        n_actions: K.
        samples: C.
        notify: told about rounds.
    """
    rounds = Rounds(engine, notify)
    means: list[Floats] = [
        np.zeros((n_actions,) * (length + 1)) for length in range(horizon)
    ]  # reward of a last action
    sampled, stopped = 0, None

    def words() -> str:
        return f"sampled {sampled:,} of {n_nodes(horizon, n_actions):,} nodes of the tree"

    try:
        for level in range(horizon):
            for path in np.ndindex(means[level].shape):
                wanted = (LevelSteps(level, moves=False),)
                answer = engine.ask(Query(OpenLoop(path), samples, "sample", levels=level + 1, steps=wanted))
                earned = float(answer.steps[0].rewards.sum())
                means[level][path] = earned / samples
                sampled += 1
                rounds.add(samples, earned, words)
        rounds.close(words())
    except EpisodeLimit as limit:
        stopped = str(limit)
    later = np.zeros((n_actions,) * horizon)
    for level in reversed(range(horizon)):
        later = means[level] + (later if level == horizon - 1 else later.max(axis=-1))
        means[level] = later  # from now on Q of the node
    best: Path = ()
    for level in range(horizon):
        best = (*best, int(means[level][best].argmax()))
    return best, float(means[0].max()), stopped


@dataclass(frozen=True)
class SparseSamplingTuning:
    """The numbers of sparse sampling that can be chosen."""

    samples: Literal["auto", "printed"] = "auto"
    """Samples of a node: auto takes Hoeffding's, epsilon/(2H) for every mean reward; printed the paper's C."""


def _too_many(problem: Problem, settings: Settings) -> str | None:
    # Logarithms first: K^H may have more digits than can be computed.
    if problem.horizon * math.log(problem.n_actions) <= math.log(MOST_NODES) and (
        n_nodes(problem.horizon, problem.n_actions) <= MOST_NODES
    ):
        return None
    return f"{problem.name} has {problem.n_actions}^{problem.horizon} action sequences."


class SparseSampling(Rival):
    """Sparse sampling as a learner."""

    name = "sparse-sampling"
    about = "Sparse sampling: goes back to every node of the tree of actions and samples what each action earns."
    cites = "Kearns, Mansour and Ng 1999, Figure 1"
    given = ("deterministic transitions, so that it can go back to a state", "horizon")
    needs = (
        unit_rewards,
        deterministic_transitions,
        Need(f"a tree of at most {MOST_NODES:,} nodes", _too_many),
    )
    promises = Promise(
        "When the tree is complete: with probability 1 - delta the policy, an action sequence, has a value within epsilon "
        "of V*.",
        (
            "the same actions lead to the same hidden state",
            "the best action depends on the state alone; otherwise the best action sequence takes the place of the best "
            "policy",
        ),
    )
    costs = "(K + ... + K^H) C episodes with C of order H^2/epsilon^2, whatever the number of states."
    Tuning = SparseSamplingTuning
    traits = Traits(near_best_sequence=True, counts=True)

    def samples(self, problem: Problem, settings: Settings) -> int:
        """Returns C."""
        H, K = problem.horizon, problem.n_actions
        if self.tuning(settings).samples == "printed":
            return max(printed_samples(H, K, settings.epsilon), self._enough(problem, settings))
        return self._enough(problem, settings)

    def _enough(self, problem: Problem, settings: Settings) -> int:
        nodes = n_nodes(problem.horizon, problem.n_actions)
        return enough_visits(nodes, problem.horizon, settings.epsilon, settings.delta)

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns nodes, samples and episodes."""
        nodes, samples = n_nodes(problem.horizon, problem.n_actions), self.samples(problem, settings)
        lines = (
            PlanRow("sparse sampling", "nodes", nodes, "nodes", "K + ... + K^H"),
            PlanRow("sparse sampling", "C", samples, "samples", "of every node"),
        )
        return ShortPlan("sparse sampling", nodes * samples, lines)

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Learns."""
        H, K = problem.horizon, problem.n_actions
        path, value, stopped = sparse_sampling(engine, H, K, self.samples(problem, settings), notify=notify)
        provided = "the same actions lead to the same hidden state"
        wording = near_optimal(settings, engine.ledger, BEST_SEQUENCE, provided)
        return self.answer(
            LearnedPolicy.open_loop(path, K),
            settings,
            "the episodes allowed were spent before every node of the tree was sampled.",
            finished=stopped is None,
            wording=wording,
            remarks=() if stopped is None else (stopped,),
            value_hat=value,
        )

"""PCID (Du, Krishnamurthy, Jiang, Agarwal, Dudik and Langford 2019): policy cover via inductive decoding.

Provably efficient RL with rich observations via latent state decoding, ICML. Level by level it predicts from what is seen
now which (decoded state, action) came before, takes clusters of these predictions for states, and learns for each a policy
that reaches it. Lines of the algorithms are cited from memory. Shapes: S learned states of a level, K actions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from richobs import Episodes, LearnedPolicy, Outcome, Problem, Settings, Switch, Uniform
from richobs.core.errors import EpisodeLimit
from richobs.core.events import Callback
from richobs.core.queries import Engine
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints
from richobs.learners.base import PlanRow, Promise, ShortPlan
from richobs_lab.rivals.base import require_at_least
from richobs_lab.rivals.decoding import (
    STATES_KNOWN,
    Decoder,
    DecodingRival,
    Regression,
    fit,
    k_means,
    n_states_of,
    play,
    policy_of,
    shares,
    steps_at,
    tell,
)
from richobs_lab.rivals.rival_events import tell_nobody

EACH = 35  # episodes of a level for each pair of state and action, where nothing else is said


@dataclass(eq=False)
class DecodedModel:
    """What is known of the process in terms of learned states, level by level."""

    n_actions: int
    decoders: list[Decoder] = field(default_factory=lambda: [Decoder()])  # of levels 0, 1, ...; level 0 has one state
    transitions: list[Floats] = field(default_factory=list)  # per level [S, K, S'] probabilities; 0 where never tried
    rewards: list[Floats] = field(default_factory=list)  # per level [S, K] means; 0 where never tried

    def values(self, goal: Sequence[Floats]) -> tuple[list[Ints], float]:
        """Plans in the learned model, from the last level back.

        Args:
            goal: per level `[S, K]` what is earned there.

        Returns:
            Per level `[S]` the best action, ties to the smallest, and what the plan is worth from the start.
        """
        actions: list[Ints] = []
        later = np.zeros(0)
        for level in reversed(range(len(goal))):
            q = goal[level] + (self.transitions[level] @ later if level + 1 < len(goal) else 0.0)
            actions.insert(0, q.argmax(axis=1))
            later = q.max(axis=1)
        return actions, float(later[0])

    def reach(self, state: int) -> list[Ints]:
        """Returns per level `[S]` the actions that most probably lead to `state` of the newest level (Algorithm 3)."""
        here = len(self.transitions)  # the level of the state
        nothing = [np.zeros(t.shape[:2]) for t in self.transitions[:-1]]
        return self.values([*nothing, self.transitions[here - 1][:, :, state]])[0]

    def policy(self, actions: Sequence[Ints], horizon: int) -> LearnedPolicy:
        """Returns the policy that decodes the state and takes the action listed for it."""
        K = self.n_actions
        levels = [decoder.acting(a, K) for decoder, a in zip(self.decoders, actions, strict=False)]
        return policy_of(levels, horizon, K)


@dataclass(frozen=True)
class PcidTuning:
    """The numbers of PCID that can be chosen."""

    samples: int = 0
    """Episodes of each level; 0 means 35 for every pair of state and action. The authors tuned it for each horizon."""
    states: int = 0
    """Number of states of a level at most; 0 means the number that the problem states."""
    decoder: Regression = "least-squares"
    """How what came before is predicted: least-squares, logistic, or network (one hidden layer)."""
    units: int = 32
    """Hidden units of the network."""
    least: int = 0
    """Observations that a cluster must have, else fewer are made; 0 means half the share of a pair of state and action."""

    def __post_init__(self) -> None:
        require_at_least(0, samples=self.samples, states=self.states, least=self.least)
        require_at_least(1, units=self.units)


def pcid(
    engine: Engine,
    horizon: int,
    n_actions: int,
    n_states: int,
    samples: int,
    *,
    seed: int = 0,
    tuning: PcidTuning | None = None,
    notify: Callback = tell_nobody,
) -> tuple[DecodedModel, bool]:
    """Learns decoders, transitions and rewards of every level (Algorithm 1).

    The same episodes serve for regression, clusters and transition probabilities, as in the authors' experiments.

    Args:
        engine: plays; where its ledger allows no more episodes, what is known so far is the answer.
        horizon: number of levels H.
        n_actions: K.
        n_states: states of a level at most.
        samples: episodes of each level.
        seed: of starts of clusters and networks.
        tuning: of regression and clusters.
        notify: told about every level.

    Returns:
        The model, and whether it covers all levels.
    """
    tuning = tuning or PcidTuning()
    least = tuning.least or max(1, samples // (2 * n_states * n_actions))
    model = DecodedModel(n_actions)
    cover = [policy_of([], horizon, n_actions)]  # line 4: at level 0 nothing has to be reached
    for level in range(horizon):  # line 5; the paper's h is level + 2
        # Line 6: roll in with each policy of the cover equally often, then act at random.
        try:
            parts = [
                play(engine, Switch(policy, level, Uniform(n_actions)), n, f"level {level}")
                for policy, n in zip(cover, shares(samples, len(cover)), strict=True)
            ]
        except EpisodeLimit:
            return model, False
        batch = steps_at(level, Episodes.concatenate(parts))
        n, before = len(batch.actions), model.decoders[level].states(batch.x)
        pair = before * n_actions + batch.actions  # line 7
        n_pairs = model.decoders[level].n_states * n_actions
        tried = np.maximum(np.bincount(pair, minlength=n_pairs), 1)
        paid = np.bincount(pair, weights=batch.rewards, minlength=n_pairs) / tried
        model.rewards.append(paid.reshape(-1, n_actions))
        if batch.next_x is None:
            tell(notify, engine, n, batch.earned, f"rewards of {n_pairs:,} pairs of state and action at level {level}")
            break
        rng = keyed_generator(seed, "pcid", level)
        g = fit(batch.next_x, pair, n_pairs, tuning.decoder, tuning.units, rng)  # line 8
        model.decoders.append(Decoder(g, k_means(g(batch.next_x), n_states, least, rng)))  # lines 9 to 11
        after, S = model.decoders[-1].states(batch.next_x), model.decoders[-1].n_states
        moves = np.bincount(pair * S + after, minlength=n_pairs * S).reshape(-1, n_actions, S)
        model.transitions.append(moves / tried.reshape(-1, n_actions, 1))  # lines 12 and 13
        cover = [model.policy(model.reach(state), horizon) for state in range(S)]  # lines 14 to 17
        tell(notify, engine, n, batch.earned, f"decoded {S} state{'' if S == 1 else 's'} of level {level + 1}")
    return model, True


class Pcid(DecodingRival):
    """PCID as a learner."""

    name = "pcid"
    about = "PCID: decodes states level by level from what came before, and learns a policy that reaches each."
    cites = "Du, Krishnamurthy, Jiang, Agarwal, Dudik and Langford 2019, Algorithms 1 to 3"
    given = ("horizon", "number of states", "tuned sample size")
    needs = (STATES_KNOWN,)
    promises = Promise(
        "With the paper's sample sizes, a cover of policies that reach every state about as well as possible; with a tuned "
        "sample size nothing.",
        (
            "each observation tells its state",
            "episodes start in one state, and rewards depend on state and action alone",
            "states differ in what comes before them, and the regression can express that",
        ),
    )
    costs = "H times the tuned sample size; by default 35 H S K episodes for S states of a level and K actions."
    Tuning = PcidTuning
    theorem = "the theorem on PCID asks for other sample sizes than the tuned one that was played"

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the episodes that it will play."""
        tuning: PcidTuning = self.tuning(settings)
        S = n_states_of(problem, tuning.states)
        each = tuning.samples or EACH * S * problem.n_actions
        lines = (
            PlanRow("PCID", "samples", each, "episodes", f"of each level: tuned, or {EACH} S K"),
            PlanRow("PCID", "states", S, "", "of a level at most"),
        )
        return ShortPlan("PCID", each * problem.horizon, lines)

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Learns."""
        each, S = (int(row.value) for row in self.plan(problem, settings).lines)
        model, finished = pcid(
            engine,
            problem.horizon,
            problem.n_actions,
            S,
            each,
            seed=settings.seed,
            tuning=self.tuning(settings),
            notify=notify,
        )
        actions, worth = model.values(model.rewards) if model.rewards else ([], 0.0)
        policy = model.policy(actions, problem.horizon)
        return self.decoded(policy, settings, finished=finished, value_hat=worth if finished else None)

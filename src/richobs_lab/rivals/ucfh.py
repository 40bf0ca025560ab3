"""UCFH (Dann and Brunskill 2015): optimistic planning with Bernstein's intervals for transitions, a plan per phase.

Sample complexity of episodic fixed-horizon reinforcement learning, NeurIPS 28, Algorithm 1. All but a bounded number of its
episodes are near-optimal, and nobody is told which: it has no stopping rule. From memory: delta_1 = delta / (2 U_max C) with
C the largest number of successors, U_max = P log2(S H / w_min), w_min = epsilon / (4 H S), P pairs; a transition probability
lies within the smaller of sqrt(L / (2n)) and sqrt(2 p (1-p) L / n) + 7 L / (3 (n-1)), L = log(6 / delta_1).

Departures: pairs are (level, state, action), because transitions may depend on the level; rewards are not known there, so
Hoeffding's interval of the same L is added; totals lie in [0, 1], which cuts all values; a phase ends when the visits of a
pair on the way have doubled, without the paper's least and largest numbers of visits. Shapes: X states, K actions.
"""

import math
from dataclasses import dataclass

import numpy as np

from richobs import Outcome, Problem, Settings, TabularProcess
from richobs.core.events import Callback
from richobs.core.queries import Engine, Tally
from richobs.core.types import Floats
from richobs.learners.base import PlanRow, Promise, ShortPlan, Traits, unit_rewards
from richobs_lab.rivals.base import Rival, plan_of_episodes, require_at_least
from richobs_lab.rivals.rival_events import Rounds, tell_nobody
from richobs_lab.rivals.tabular import (
    PROCESS,
    STATES_SEEN,
    EmpiricalModel,
    Learned,
    best_actions,
    greedy_policy,
    n_pairs,
    play_batches,
    process_of,
)


def log_term(process: TabularProcess, epsilon: float, delta: float) -> float:
    """Returns L = log(6 / delta_1)."""
    pairs, H = n_pairs(process), process.horizon
    S, C = max(len(rows) for rows in process.observations), max((t.shape[2] for t in process.transitions), default=1)
    w_min = epsilon / (4 * H * S)
    return math.log(6 * 2 * pairs * math.log2(S * H / w_min) * C / delta)


def optimistic_mean(low: Floats, high: Floats, values: Floats) -> Floats:
    """Returns `[...]` the largest p @ values of a law p between `low` and `high`: mass goes to the best states first.

    Args:
        low: `[..., X]` least probabilities, which sum to 1 at most.
        high: `[..., X]` largest probabilities, which sum to 1 at least.
        values: `[X]`.
    """
    order = np.argsort(-values, kind="stable")
    room = (high - low)[..., order]
    free = 1 - low.sum(axis=-1, keepdims=True)
    extra = np.clip(free - (room.cumsum(axis=-1) - room), 0.0, room)
    return np.asarray((low[..., order] + extra) @ values[order])


def optimistic_values(model: EmpiricalModel, logarithm: float) -> tuple[Floats, ...]:
    """Returns per level `[X, K]` upper bounds on Q*; 1 where nothing was seen."""
    values: list[Floats] = []
    for level in reversed(range(len(model.visits))):
        visits = model.visits[level]
        n = np.maximum(visits, 1)
        q = model.rewards[level] / n + np.sqrt(logarithm / (2 * n))
        if values:
            p, n_p = model.moves[level] / n[:, :, None], n[:, :, None]
            hoeffding = np.sqrt(logarithm / (2 * n_p))
            bernstein = np.sqrt(2 * p * (1 - p) * logarithm / n_p) + 7 * logarithm / (3 * np.maximum(n_p - 1, 1))
            width = np.minimum(hoeffding, bernstein)
            q = q + optimistic_mean(np.maximum(p - width, 0), np.minimum(p + width, 1), values[0].max(axis=1))
        values.insert(0, np.where(visits > 0, np.minimum(q, 1.0), 1.0))
    return tuple(values)


def ucfh(
    engine: Engine, process: TabularProcess, logarithm: float, episodes: int, *, notify: Callback = tell_nobody
) -> Learned:
    """Plays phase after phase the policy of the upper bounds.

    Args:
        engine: plays the process; where its ledger allows no more episodes, the bounds so far are the answer.
        process: numbers the states, all of which are seen.
        logarithm: L.
        episodes: to play.
        notify: told about rounds.
    """
    model = EmpiricalModel(process)
    values = optimistic_values(model, logarithm)

    def size(played: int) -> int:
        return min(max(1, model.next_batch(best_actions(values), model.visits)), episodes - played)

    def take(tally: Tally, played: int) -> None:
        nonlocal values
        model.add(tally)
        values = optimistic_values(model, logarithm)

    def words() -> str:
        tried = sum(int((v > 0).sum()) for v in model.visits)
        return f"tried {tried:,} of {n_pairs(process):,} pairs of state and action"

    rounds = Rounds(engine, notify, lambda: greedy_policy(process, values))
    end = play_batches(engine, process, rounds, size, lambda: values, take, words)
    return Learned(best_actions(values), values, end.episodes, end.finished)


@dataclass(frozen=True)
class UcfhTuning:
    """The numbers of UCFH that can be chosen."""

    episodes: int = 10_000
    """Episodes to play: the method has no stopping rule."""

    def __post_init__(self) -> None:
        require_at_least(1, episodes=self.episodes)


class Ucfh(Rival):
    """UCFH as a learner."""

    name = "ucfh"
    about = "UCFH: plans optimistically with Bernstein's intervals for transitions, anew when visits have doubled."
    cites = "Dann and Brunskill 2015, Algorithm 1"
    given = ("list of observations", "observations that are the states", "horizon", "number of episodes")
    needs = (unit_rewards, PROCESS, STATES_SEEN)
    promises = Promise(
        "All but a bounded number of its episodes are near-optimal, of order S^2 A H^2/epsilon^2 log(1/delta); nothing is "
        "promised of the policy that it returns.",
        ("what is seen is the state",),
    )
    costs = "As many episodes as it is told to play (tuning `episodes`)."
    Tuning = UcfhTuning
    traits = Traits(claims=False, counts=True)

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the episodes that it will play, and L."""
        episodes = self.tuning(settings).episodes
        L = log_term(process_of(problem), settings.epsilon, settings.delta)
        return plan_of_episodes("UCFH", episodes, PlanRow("UCFH", "L", L, "", "log(6 / delta_1)"))

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Learns."""
        process = process_of(problem)
        L = log_term(process, settings.epsilon, settings.delta)
        learned = ucfh(engine, process, L, self.tuning(settings).episodes, notify=notify)
        why = "UCFH bounds how many of its episodes are bad, and nobody is told which."
        return self.answer(greedy_policy(process, learned.values), settings, why)

"""E3, explicit explore or exploit (Kearns and Singh 2002): visit what is not known while that is likely, then exploit.

Near-optimal reinforcement learning in polynomial time, Machine Learning 49. Finite-horizon form: a state is (level, state).
A state is known once every action was taken m times there. At every start it plans twice in the model of the known states:
how likely can a state that is not known be reached, and how much can be earned without one. It explores while the first is
above a threshold; after that the second plan is near-optimal (their explore-or-exploit lemma), and it stops.

The paper gives m up to constants, O((N T / epsilon)^4 log(1/delta)). Here m is that of R-max, which has the same notion of
known: Hoeffding's where transitions are deterministic, K_1 as printed there, for epsilon/2, where they are random. Balanced
wandering takes the least tried action; here for m visits in a row, so that they are one query.
"""

import math
from typing import NamedTuple

import numpy as np

from richobs import Problem, Settings, TabularProcess
from richobs.core.events import Callback
from richobs.core.queries import Engine, Tally
from richobs.core.types import Floats
from richobs.learners.base import PlanRow, ShortPlan
from richobs_lab.rivals.rival_events import Rounds, tell_nobody
from richobs_lab.rivals.rmax import enough_visits, printed_visits
from richobs_lab.rivals.tabular import (
    EmpiricalModel,
    Learned,
    TabularRival,
    best_actions,
    greedy_policy,
    n_pairs,
    play_batches,
    process_of,
)


class TwoPlans(NamedTuple):
    """What can be done in the model of the known states."""

    exploit: tuple[Floats, ...]  # per level [X, K] what is earned before a state that is not known
    explore: tuple[Floats, ...]  # per level [X, K] how likely a state that is not known is reached; untried first there
    chance: float  # of reaching one from the start
    worth: float  # of exploiting from the start


def two_plans(model: EmpiricalModel, m: int) -> TwoPlans:
    """Plans to exploit and to explore.

    Args:
        model: what was counted.
        m: visits of every action that make a state known.
    """
    exploit: list[Floats] = []
    explore: list[Floats] = []
    earned: Floats = np.zeros(0)
    reached: Floats = np.zeros(0)
    for level in reversed(range(len(model.visits))):
        visits = model.visits[level]
        known = visits.min(axis=1) >= m
        n = np.maximum(visits, 1)
        gain, way = model.rewards[level] / n, np.zeros_like(visits)
        if exploit:
            gain, way = gain + model.moves[level] @ earned / n, model.moves[level] @ reached / n
        exploit.insert(0, np.where(known[:, None], gain, 0.0))
        explore.insert(0, np.where(known[:, None], way, -visits))  # balanced wandering: the least tried action
        earned = np.where(known, gain.max(axis=1), 0.0)
        reached = np.where(known, way.max(axis=1), 1.0)
    begun = model.visits[0].sum(axis=1)
    if not begun.any():
        return TwoPlans(tuple(exploit), tuple(explore), 1.0, 0.0)
    start = begun / begun.sum()
    return TwoPlans(tuple(exploit), tuple(explore), float(start @ reached), float(start @ earned))


def e3(engine: Engine, process: TabularProcess, m: int, threshold: float, *, notify: Callback = tell_nobody) -> Learned:
    """Explores until a state that is not known is hardly ever reached.

    Args:
        engine: plays the process; where its ledger allows no more episodes, what is known so far is the answer.
        process: numbers the states, all of which are seen.
        m: visits of every action that make a state known.
        threshold: probability of reaching a state that is not known, at or below which it stops.
        notify: told about rounds.
    """
    model = EmpiricalModel(process)
    plans = two_plans(model, m)

    def size(played: int) -> int:
        if plans.chance <= threshold:
            return 0
        wanted = [np.where(v.min(axis=1, keepdims=True) >= m, 0.0, np.maximum(m - v, 0)) for v in model.visits]
        return max(1, model.next_batch(best_actions(plans.explore), wanted))

    def take(tally: Tally, played: int) -> None:
        nonlocal plans
        model.add(tally)
        plans = two_plans(model, m)

    def words() -> str:
        known = sum(int((v.min(axis=1) >= m).sum()) for v in model.visits)
        return f"{known:,} of {n_pairs(process) // process.n_actions:,} states are known"

    rounds = Rounds(engine, notify, lambda: greedy_policy(process, plans.exploit))
    end = play_batches(engine, process, rounds, size, lambda: plans.explore, take, words)
    value = plans.worth if end.finished else None
    return Learned(best_actions(plans.exploit), plans.exploit, end.episodes, end.finished, value, end.remarks)


class E3(TabularRival):
    """E3 as a learner."""

    name = "e3"
    about = "E3: explores while a state that is not known is likely to be reached, and then exploits what is known."
    cites = "Kearns and Singh 2002"
    costs = "At most (level, state, action) triples times m where transitions are deterministic; m as for R-max."
    unfinished = "the episodes allowed were spent while states that are not known were likely to be reached."

    def visits(self, problem: Problem, settings: Settings) -> int:
        """Returns m."""
        process = process_of(problem)
        H, K, pairs = process.horizon, process.n_actions, n_pairs(process)
        if process.is_deterministic:
            return enough_visits(pairs, H, settings.epsilon, settings.delta)
        return printed_visits(pairs // K, K, H, settings.epsilon / 2, settings.delta)

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns m, and the episodes if every pair needs its own."""
        process = process_of(problem)
        m, pairs = self.visits(problem, settings), n_pairs(process)
        lines = (
            PlanRow("E3", "pairs", pairs, "pairs", "(level, state, action)"),
            PlanRow("E3", "m", m, "visits", "of every action before a state is known"),
            PlanRow("E3", "threshold", settings.epsilon / 4, "", "probability of an unknown state: epsilon / 4"),
        )
        return ShortPlan("E3", math.ceil(pairs * m) if process.is_deterministic else None, lines)

    def learn(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Learned:
        """Explores until a state that is not known is reached with probability epsilon / 4 at most."""
        return e3(engine, process_of(problem), self.visits(problem, settings), settings.epsilon / 4, notify=notify)

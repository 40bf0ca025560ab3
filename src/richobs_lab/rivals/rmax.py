"""R-max (Brafman and Tennenholtz 2002): what is not known yet is assumed to be as good as can be.

R-max - a general polynomial time algorithm for near-optimal reinforcement learning, JMLR 3. Finite-horizon form: a pair is
(level, state, action), and an unknown one is worth 1, the most that an episode can earn.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from richobs import Problem, Settings, TabularProcess
from richobs.core.events import Callback
from richobs.core.queries import Engine, Tally
from richobs.learners.base import PlanRow, ShortPlan
from richobs_lab.rivals.rival_events import Rounds, tell_nobody
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


def printed_visits(n_states: int, n_actions: int, horizon: int, epsilon: float, delta: float) -> int:
    """Returns K_1, the visits that make a pair known, as the paper prints it (its N, k, T and R_max = 1)."""
    cubic = math.ceil((4 * n_states * horizon / epsilon) ** 3)
    return max(cubic, math.ceil(-6 * math.log(delta / (6 * n_states * n_actions**2)) ** 3)) + 1


def enough_visits(n_pairs: int, horizon: int, epsilon: float, delta: float, top: float = 1.0) -> int:
    """Returns visits that suffice where transitions are deterministic: Hoeffding's, epsilon/(2H) for every mean reward.

    Args:
        n_pairs: (level, state, action) triples.
        horizon: H.
        epsilon: largest allowed gap between the policy's value and V*.
        delta: probability that the gap is larger.
        top: the largest reward of a step.
    """
    return math.ceil(top**2 * math.log(2 * n_pairs / delta) / (2 * (epsilon / (2 * horizon)) ** 2))


def rmax(engine: Engine, process: TabularProcess, visits: int, *, notify: Callback = tell_nobody) -> Learned:
    """Plays the policy that is optimal for what is known until it meets nothing unknown.

    Between two changes of what is known the policy is fixed, so its episodes are asked for in one batch. Where transitions
    are random and a state turns up for the first time in such a batch, a pair may get more than `visits`.

    Args:
        engine: plays the process; where its ledger allows no more episodes, what is known so far is the answer.
        process: numbers the states, all of which are seen.
        visits: of a pair before it is known.
        notify: told about rounds.
    """
    model = EmpiricalModel(process)
    values = model.values(visits, unknown=1.0)

    def size(played: int) -> int:
        return model.next_batch(best_actions(values), [np.maximum(visits - v, 0) for v in model.visits])

    def take(tally: Tally, played: int) -> None:
        nonlocal values
        model.add(tally)
        values = model.values(visits, unknown=1.0)

    def words() -> str:
        known = sum(int((v >= visits).sum()) for v in model.visits)
        return f"{known:,} of {n_pairs(process):,} pairs of state and action are known"

    rounds = Rounds(engine, notify, lambda: greedy_policy(process, values))
    end = play_batches(engine, process, rounds, size, lambda: values, take, words)
    value = model.start_value(values) if end.finished else None
    return Learned(best_actions(values), values, end.episodes, end.finished, value, end.remarks)


@dataclass(frozen=True)
class RmaxTuning:
    """The numbers of R-max that can be chosen."""

    visits: Literal["auto", "printed"] = "auto"
    """Visits that make a pair known: auto takes Hoeffding's where transitions are deterministic, printed the paper's K_1."""


class Rmax(TabularRival):
    """R-max as a learner."""

    name = "rmax"
    about = "R-max: plans in a model of what was seen often enough and takes everything else for perfect."
    cites = "Brafman and Tennenholtz 2002"
    costs = (
        "At most (level, state, action) triples times visits: H^2/epsilon^2 visits where transitions are deterministic, "
        "(S H/epsilon)^3 where they are random."
    )
    Tuning = RmaxTuning
    unfinished = "the episodes allowed were spent before every pair on the policy's way was known."

    def visits(self, problem: Problem, settings: Settings) -> int:
        """Returns the visits that make a pair known."""
        process = process_of(problem)
        H, K, pairs = process.horizon, process.n_actions, n_pairs(process)
        if self.tuning(settings).visits == "auto" and process.is_deterministic:
            return enough_visits(pairs, H, settings.epsilon, settings.delta)
        return printed_visits(pairs // K, K, H, settings.epsilon, settings.delta)

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the visits, and the episodes if every pair needs its own."""
        process = process_of(problem)
        visits, pairs = self.visits(problem, settings), n_pairs(process)
        lines = (
            PlanRow("R-max", "pairs", pairs, "pairs", "(level, state, action)"),
            PlanRow("R-max", "visits", visits, "visits", "of a pair before it is known"),
        )
        return ShortPlan("R-max", pairs * visits if process.is_deterministic else None, lines)

    def learn(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Learned:
        """Plays with as many visits as `visits` says."""
        return rmax(engine, process_of(problem), self.visits(problem, settings), notify=notify)

"""Delayed Q-learning (Strehl, Li, Wiewiora, Langford and Littman 2006): change a value after m visits, and only by enough.

PAC model-free reinforcement learning, ICML. Finite-horizon form: a pair is (level, state, action), 1/(1 - gamma) becomes H
where it counts steps, and values lie in [0, 1] because totals do.
"""

import math

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


def delayed_q_visits(n_pairs: int, horizon: int, epsilon: float, delta: float) -> tuple[int, float]:
    """Returns m and epsilon_1: m = log(3 P (1 + P / epsilon_1) / delta) / (2 epsilon_1^2), epsilon_1 = epsilon / (9 H).

    The paper's m with P for S A, its kappa = 1 / ((1 - gamma) epsilon_1) with V_max = 1, and its epsilon_1 with H for
    1/(1 - gamma).
    """
    epsilon_1 = epsilon / (9 * horizon)
    return math.ceil(math.log(3 * n_pairs * (1 + n_pairs / epsilon_1) / delta) / (2 * epsilon_1**2)), epsilon_1


def delayed_q(
    engine: Engine, process: TabularProcess, m: int, epsilon_1: float, *, notify: Callback = tell_nobody
) -> Learned:
    """Plays greedily in optimistic values until no pair on the way wants to learn any more.

    Values only change when a pair has been visited m times since its last attempt, so the episodes up to there are asked for
    in one batch. Changes wait for the end of the batch. Where transitions are random and a state turns up for the first time
    in such a batch, an attempt may average more than m visits.

    Args:
        engine: plays the process; where its ledger allows no more episodes, the values so far are the answer.
        process: numbers the states, all of which are seen.
        m: visits per attempted update.
        epsilon_1: a value changes if it falls by 2 epsilon_1 at least; epsilon_1 is added to what was seen.
        notify: told about rounds.
    """
    H, K, sizes = process.horizon, process.n_actions, [len(rows) for rows in process.observations]
    model = EmpiricalModel(process)
    q = [np.ones((s, K)) for s in sizes]
    target = [np.zeros((s, K)) for s in sizes]  # AU: sum of r + max_a q(s', a) in the attempt that runs
    count = [np.zeros((s, K)) for s in sizes]  # l: visits in that attempt
    begun = [np.zeros((s, K)) for s in sizes]  # b: when it began; the clock counts episodes
    learning = [np.ones((s, K), dtype=bool) for s in sizes]  # LEARN
    changed = 0  # t*: when a value last changed

    def size(played: int) -> int:
        for level in range(H):
            learning[level] |= begun[level] <= changed
        return model.next_batch(best_actions(q), [np.where(k, m - c, 0) for k, c in zip(learning, count, strict=True)])

    def take(tally: Tally, played: int) -> None:
        nonlocal changed
        clock = played - int(tally.visits[0].sum()) + 1
        model.add(tally)
        worth = [values.max(axis=1) for values in q]
        for level in range(H):
            visits = tally.visits[level]
            future = tally.moves[level] @ worth[level + 1] if level < H - 1 else 0.0
            fresh = learning[level] & (visits > 0)
            begun[level][fresh & (count[level] == 0)] = clock
            target[level] += np.where(fresh, tally.rewards[level] + future, 0.0)
            count[level] += np.where(fresh, visits, 0)
        last_change = changed
        for level in range(H):
            due = count[level] >= m
            mean = target[level] / np.maximum(count[level], 1)
            falls = due & (q[level] - mean >= 2 * epsilon_1)
            q[level] = np.where(falls, mean + epsilon_1, q[level])
            if falls.any():
                changed = played
            learning[level] &= ~(due & ~falls & (begun[level] > last_change))
            target[level][due] = 0.0
            count[level][due] = 0

    def words() -> str:
        return f"{sum(int(k.sum()) for k in learning):,} of {n_pairs(process):,} pairs of state and action still learn"

    rounds = Rounds(engine, notify, lambda: greedy_policy(process, q))
    end = play_batches(engine, process, rounds, size, lambda: q, take, words)
    return Learned(best_actions(q), tuple(q), end.episodes, end.finished, remarks=end.remarks)


class DelayedQ(TabularRival):
    """Delayed Q-learning as a learner."""

    name = "delayed-q"
    about = "Delayed Q-learning: lowers an optimistic value after m visits, and only by enough."
    cites = "Strehl, Li, Wiewiora, Langford and Littman 2006"
    costs = (
        "At most P (1 + 9 P H / epsilon) attempts of m visits, P the number of (level, state, action) triples and m of "
        "order H^2/epsilon^2."
    )
    unfinished = "the episodes allowed were spent while pairs on the policy's way still learned."

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns m and epsilon_1."""
        process = process_of(problem)
        pairs = n_pairs(process)
        m, epsilon_1 = delayed_q_visits(pairs, process.horizon, settings.epsilon, settings.delta)
        lines = (
            PlanRow("delayed Q-learning", "pairs", pairs, "pairs", "(level, state, action)"),
            PlanRow("delayed Q-learning", "m", m, "visits", "per attempted update"),
            PlanRow("delayed Q-learning", "epsilon_1", epsilon_1, "", "epsilon / (9 H)"),
        )
        # Every episode visits a pair that learns where transitions are deterministic.
        most = m * pairs * math.ceil(1 + pairs / epsilon_1) if process.is_deterministic else None
        return ShortPlan("delayed Q-learning", most, lines)

    def learn(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Learned:
        """Plays with m and epsilon_1 of the plan."""
        process = process_of(problem)
        m, epsilon_1 = delayed_q_visits(n_pairs(process), process.horizon, settings.epsilon, settings.delta)
        return delayed_q(engine, process, m, epsilon_1, notify=notify)

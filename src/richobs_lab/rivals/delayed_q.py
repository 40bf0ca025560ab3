"""Delayed Q-learning (Strehl, Li, Wiewiora, Langford and Littman 2006): change a value after m visits, and only by enough.

PAC model-free reinforcement learning, ICML. Finite-horizon form: a pair is (level, state, action), 1/(1 - gamma) becomes H
where it counts steps, and values lie in [0, 1] because totals do.
"""

import math

import numpy as np

from richobs import Learner, Outcome, Problem, Settings, TabularProcess
from richobs.core.errors import EpisodeLimit
from richobs.core.events import Callback
from richobs.core.queries import Engine
from richobs.learners.base import PlanRow, Promise, ShortPlan, Traits, unit_rewards
from richobs_lab.rivals.rival_events import Rounds, tell_nobody
from richobs_lab.rivals.tabular import (
    PROCESS,
    STATES_SEEN,
    EmpiricalModel,
    Learned,
    ask_tally,
    best_actions,
    earned_in,
    greedy_policy,
    n_pairs,
    process_of,
    require_states,
    tabular_outcome,
)


def delayed_q_visits(n_pairs: int, horizon: int, epsilon: float, delta: float) -> tuple[int, float]:
    """Returns m and epsilon_1: m = log(3 P (1 + P / epsilon_1) / delta) / (2 epsilon_1^2), epsilon_1 = epsilon / (9 H).

    The paper's m with P for S A, its kappa = 1 / ((1 - gamma) epsilon_1) with V_max = 1, and its epsilon_1 with H for
    1/(1 - gamma).
    """
    epsilon_1 = epsilon / (9 * horizon)
    return math.ceil(math.log(3 * n_pairs * (1 + n_pairs / epsilon_1) / delta) / (2 * epsilon_1**2)), epsilon_1


def delayed_q(
    engine: Engine,
    process: TabularProcess,
    m: int,
    epsilon_1: float,
    *,
    max_rounds: int = 1_000_000,
    notify: Callback = tell_nobody,
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
        max_rounds: batches played at most.
        notify: told about rounds.
    """
    require_states(process)
    H, K, sizes = process.horizon, process.n_actions, [len(rows) for rows in process.observations]
    rounds, model = Rounds(engine, notify, lambda: greedy_policy(process, q)), EmpiricalModel(process)
    q = [np.ones((s, K)) for s in sizes]
    target = [np.zeros((s, K)) for s in sizes]  # AU: sum of r + max_a q(s', a) in the attempt that runs
    count = [np.zeros((s, K)) for s in sizes]  # l: visits in that attempt
    begun = [np.zeros((s, K)) for s in sizes]  # b: when it began
    learning = [np.ones((s, K), dtype=bool) for s in sizes]  # LEARN
    played = 0  # the clock counts episodes
    changed = 0  # t*: when a value last changed

    def words() -> str:
        return f"{sum(int(k.sum()) for k in learning):,} of {n_pairs(process):,} pairs of state and action still learn"

    finished, remarks = False, ("The most batches that are played were reached.",)
    for _ in range(max_rounds):
        for level in range(H):
            learning[level] |= begun[level] <= changed
        n = model.next_batch(best_actions(q), [np.where(k, m - c, 0) for k, c in zip(learning, count, strict=True)])
        finished = n == 0
        if finished:
            break
        try:
            tally = ask_tally(engine, process, q, n)
        except EpisodeLimit as limit:
            remarks = (str(limit),)
            break
        clock = played + 1
        played += n
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
        rounds.add(n, earned_in(tally), words)
    if finished:
        rounds.close(words())
    return Learned(best_actions(q), tuple(q), played, finished, remarks=() if finished else remarks)


class DelayedQ(Learner):
    """Delayed Q-learning as a learner."""

    name = "delayed-q"
    about = "Delayed Q-learning: lowers an optimistic value after m visits, and only by enough."
    cites = "Strehl, Li, Wiewiora, Langford and Littman 2006"
    given = ("list of observations", "observations that are the states", "horizon")
    needs = (unit_rewards, PROCESS, STATES_SEEN)
    promises = Promise(
        "When it stops by its own rule: with probability 1 - delta the policy's value is within epsilon of V*.",
        ("what is seen is the state",),
    )
    costs = (
        "At most P (1 + 9 P H / epsilon) attempts of m visits, P the number of (level, state, action) triples and m of "
        "order H^2/epsilon^2."
    )
    traits = Traits(counts=True)

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

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Learns."""
        process = process_of(problem)
        m, epsilon_1 = delayed_q_visits(n_pairs(process), process.horizon, settings.epsilon, settings.delta)
        learned = delayed_q(engine, process, m, epsilon_1, notify=notify)
        unfinished = "the episodes allowed were spent while pairs on the policy's way still learned."
        return tabular_outcome(self.name, process, learned, settings, engine.ledger, unfinished)

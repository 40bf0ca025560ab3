"""Delayed Q-learning (Strehl, Li, Wiewiora, Langford and Littman 2006): change a value after m visits, and only by enough.

PAC model-free reinforcement learning, ICML. Finite-horizon form: a pair is (level, state, action), 1/(1 - gamma) becomes H
where it counts steps, and values lie in [0, 1] because totals do.
"""

import math

import numpy as np

from richobs.baselines.observed import Counts, Learned, ObservedStates, greedy


def delayed_q_visits(n_pairs: int, horizon: int, epsilon: float, delta: float) -> tuple[int, float]:
    """Returns m and epsilon_1: m = log(3 P (1 + P / epsilon_1) / delta) / (2 epsilon_1^2), epsilon_1 = epsilon / (9 H).

    The paper's m with P for S A, its kappa = 1 / ((1 - gamma) epsilon_1) with V_max = 1, and its epsilon_1 with H for
    1/(1 - gamma).
    """
    epsilon_1 = epsilon / (9 * horizon)
    return math.ceil(math.log(3 * n_pairs * (1 + n_pairs / epsilon_1) / delta) / (2 * epsilon_1**2)), epsilon_1


def delayed_q(
    game: ObservedStates, m: int, epsilon_1: float, rng: np.random.Generator, *, max_rounds: int = 1_000_000
) -> Learned:
    """Plays greedily in optimistic values until no pair on the way wants to learn any more.

    Values only change when a pair has been visited m times since its last attempt, so the episodes up to there are played
    as counts. Changes wait for the end of the episode. Where transitions are random and a state turns up for the first
    time in such a batch, an attempt may average more than m visits.

    Args:
        game: the process, states seen.
        m: visits per attempted update.
        epsilon_1: a value changes if it falls by 2 epsilon_1 at least; epsilon_1 is added to what was seen.
        rng: of the episodes.
        max_rounds: batches played at most.
    """
    K, sizes = game.n_actions, game.sizes
    q = [np.ones((s, K)) for s in sizes]
    target = [np.zeros((s, K)) for s in sizes]  # AU: sum of r + max_a q(s', a) in the attempt that runs
    count = [np.zeros((s, K)) for s in sizes]  # l: visits in that attempt
    begun = [np.zeros((s, K)) for s in sizes]  # b: when it began
    learning = [np.ones((s, K), dtype=bool) for s in sizes]  # LEARN
    counts = Counts(sizes, K)
    changed = 0  # t*: when a value last changed; the clock counts episodes
    for _ in range(max_rounds):
        for level in range(game.horizon):
            learning[level] |= begun[level] <= changed
        policy = greedy(q)
        n = counts.next_batch(policy, [np.where(k, m - c, 0) for k, c in zip(learning, count, strict=True)])
        if n == 0:
            return Learned(policy, tuple(q), game.episodes, True)
        clock = game.episodes + 1
        tally = game.play(policy, n, rng)
        counts.add(tally)
        worth = [values.max(axis=1) for values in q]
        for level in range(game.horizon):
            visits = tally.visits[level]
            future = tally.moves[level] @ worth[level + 1] if level < game.horizon - 1 else 0.0
            fresh = learning[level] & (visits > 0)
            begun[level][fresh & (count[level] == 0)] = clock
            target[level] += np.where(fresh, tally.rewards[level] + future, 0.0)
            count[level] += np.where(fresh, visits, 0)
        last_change = changed
        for level in range(game.horizon):
            due = count[level] >= m
            mean = target[level] / np.maximum(count[level], 1)
            falls = due & (q[level] - mean >= 2 * epsilon_1)
            q[level] = np.where(falls, mean + epsilon_1, q[level])
            if falls.any():
                changed = game.episodes
            learning[level] &= ~(due & ~falls & (begun[level] > last_change))
            target[level][due] = 0.0
            count[level][due] = 0
    return Learned(greedy(q), tuple(q), game.episodes, False)

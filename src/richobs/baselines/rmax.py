"""R-max (Brafman and Tennenholtz 2002): what is not known yet is assumed to be as good as can be.

R-max - a general polynomial time algorithm for near-optimal reinforcement learning, JMLR 3. Finite-horizon form: a pair is
(level, state, action), and an unknown one is worth 1, the most that an episode can earn.
"""

import math

import numpy as np

from richobs.baselines.observed import Counts, Learned, ObservedStates, greedy


def printed_visits(n_states: int, n_actions: int, horizon: int, epsilon: float, delta: float) -> int:
    """Returns K_1, the visits that make a pair known, as the paper prints it (its N, k, T and R_max = 1)."""
    cubic = math.ceil((4 * n_states * horizon / epsilon) ** 3)
    return max(cubic, math.ceil(-6 * math.log(delta / (6 * n_states * n_actions**2)) ** 3)) + 1


def enough_visits(n_pairs: int, horizon: int, epsilon: float, delta: float, top: float = 1.0) -> int:
    """Returns visits that suffice where transitions are deterministic: Hoeffding's, epsilon/(2H) for every mean reward.

    Args:
        n_pairs: (level, state, action) triples.
        horizon: H.
        epsilon: how far from optimal the policy may be.
        delta: how often it may be farther.
        top: the largest reward of a step.
    """
    return math.ceil(top**2 * math.log(2 * n_pairs / delta) / (2 * (epsilon / (2 * horizon)) ** 2))


def rmax(game: ObservedStates, visits: int, rng: np.random.Generator, *, max_rounds: int = 1_000_000) -> Learned:
    """Plays the policy that is optimal for what is known until it meets nothing unknown.

    Between two changes of what is known the policy is fixed, so its episodes are played as counts. Where transitions are
    random and a state turns up for the first time in such a batch, a pair may get more than `visits`.

    Args:
        game: the process, states seen.
        visits: of a pair before it is known.
        rng: of the episodes.
        max_rounds: batches played at most.
    """
    counts = Counts(game.sizes, game.n_actions)
    values = tuple(counts.values(visits, unknown=1.0))
    for _ in range(max_rounds):
        policy = greedy(values)
        n = counts.next_batch(policy, [np.maximum(visits - v, 0) for v in counts.visits])
        if n == 0:
            return Learned(policy, values, game.episodes, True)
        counts.add(game.play(policy, n, rng))
        values = tuple(counts.values(visits, unknown=1.0))
    return Learned(greedy(values), values, game.episodes, False)

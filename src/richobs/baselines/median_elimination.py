"""Median elimination (Even-Dar, Mannor and Mansour 2006, Algorithm 3): O(n / epsilon^2 log(1/delta)) pulls.

Action elimination and stopping conditions for the multi-armed bandit and reinforcement learning problems, JMLR 7.
"""

import math

import numpy as np

from richobs.baselines.arms import Arms, Choice, Scores


def median_elimination(
    arms: Arms, epsilon: float, delta: float, rng: np.random.Generator, *, budget: int | None = None
) -> Choice:
    """Returns an epsilon-optimal arm with probability at least 1 - delta.

    Round l pulls every survivor 4 / epsilon_l^2 log(3 / delta_l) times, afresh, and keeps the better half; epsilon_1 =
    epsilon/4, delta_1 = delta/2, then 3/4 and 1/2 of them. Printed, arms below the median go; here exactly half of them
    do, also among ties, so that every round ends with fewer arms.

    Args:
        arms: n of them.
        epsilon: how far from the best the answer may be.
        delta: how often it may be farther.
        rng: of pulls and ties.
        budget: most pulls; when it is spent the best mean of the round is returned.
    """
    alive = np.arange(arms.n_arms)
    epsilon_l, delta_l = epsilon / 4, delta / 2
    pulls = 0
    while len(alive) > 1:
        scores = Scores(arms, None if budget is None else budget - pulls, rng)
        enough = scores.pull(alive, math.ceil(4 / epsilon_l**2 * math.log(3 / delta_l)))
        pulls += int(scores.pulls.sum())
        if not enough:
            return scores.best(alive, finished=False)._replace(pulls=pulls)
        shuffled = rng.permutation(alive)
        order = np.argsort(-scores.means(shuffled), kind="stable")
        alive = np.sort(shuffled[order[: -(-len(alive) // 2)]])
        epsilon_l, delta_l = 3 / 4 * epsilon_l, delta_l / 2
    return Choice(int(alive[0]), pulls, True)

"""Successive elimination (Even-Dar, Mannor and Mansour 2006, Algorithm 2, unknown biases).

Action elimination and stopping conditions for the multi-armed bandit and reinforcement learning problems, JMLR 7.
"""

import math

import numpy as np

from richobs.baselines.arms import Arms, Choice, Scores

C = 4.0  # by Hoeffding the bounds fail with probability at most delta pi^2 / (3 C): any C >= 3.29 does


def successive_elimination(arms: Arms, delta: float, rng: np.random.Generator, *, budget: int | None = None) -> Choice:
    """Returns the best arm with probability at least 1 - delta.

    In round t every surviving arm is pulled once, and those whose mean is below the best one by 2 alpha_t or more are
    dropped, alpha_t = sqrt(log(C n t^2 / delta) / t).

    Args:
        arms: n of them.
        delta: how often the answer may be wrong.
        rng: of pulls and ties.
        budget: most pulls; when it is spent the best mean of the survivors is returned.
    """
    scores = Scores(arms, budget, rng)
    alive = np.arange(arms.n_arms)
    t = 0
    while len(alive) > 1:
        t += 1
        if not scores.pull(alive):
            return scores.best(alive, finished=False)
        means = scores.means(alive)
        alpha = math.sqrt(math.log(C * arms.n_arms * t**2 / delta) / t)
        alive = alive[means.max() - means < 2 * alpha]
    return scores.best(alive, finished=True)

"""Uniform allocation: pull every arm equally often (the naive algorithm of Even-Dar, Mannor and Mansour 2006, Section 3)."""

import math

import numpy as np

from richobs.baselines.arms import Arms, Choice, Scores


def naive_pulls(n_arms: int, epsilon: float, delta: float) -> int:
    """Returns how often each arm is pulled so that the best mean is epsilon-optimal with probability 1 - delta."""
    return math.ceil(4 / epsilon**2 * math.log(2 * n_arms / delta))


def uniform_allocation(arms: Arms, budget: int, rng: np.random.Generator) -> Choice:
    """Spends `budget` pulls equally (what is left of a round goes to random arms) and returns the best mean.

    With `n_arms * naive_pulls(...)` pulls the answer is epsilon-optimal with probability at least 1 - delta.
    """
    scores = Scores(arms, budget, rng)
    everyone = np.arange(arms.n_arms)
    scores.pull(everyone, -(-budget // arms.n_arms))
    return scores.best(everyone, finished=True)

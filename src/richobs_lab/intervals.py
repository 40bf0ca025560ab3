"""Exact intervals for probabilities that were measured by counting."""

import math
from collections.abc import Callable

import numpy as np


def binomial_interval(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Returns the exact (Clopper-Pearson) two-sided interval for a probability."""
    tail = (1 - confidence) / 2

    outcomes = np.arange(trials + 1)
    factorials = np.array([math.lgamma(i + 1) for i in range(trials + 1)])  # logarithms
    choose = factorials[-1] - factorials - factorials[::-1]

    def at_most(p: float, k: int) -> float:
        logs = choose + outcomes * math.log(p) + (trials - outcomes) * math.log1p(-p)
        return float(np.exp(logs[: k + 1]).sum())

    def solve(below: Callable[[float], bool]) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if below(middle) else (low, middle)
        return (low + high) / 2

    lower = 0.0 if successes == 0 else solve(lambda p: 1 - at_most(p, successes - 1) < tail)
    upper = 1.0 if successes == trials else solve(lambda p: at_most(p, successes) > tail)
    return lower, upper

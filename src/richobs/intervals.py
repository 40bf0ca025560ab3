"""Exact intervals for probabilities that were measured by counting."""

import math
from collections.abc import Callable


def binomial_interval(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Returns the exact (Clopper-Pearson) two-sided interval for a probability."""
    tail = (1 - confidence) / 2

    def at_most(p: float, k: int) -> float:
        choose = [math.lgamma(trials + 1) - math.lgamma(i + 1) - math.lgamma(trials - i + 1) for i in range(k + 1)]
        logs = [c + i * math.log(p) + (trials - i) * math.log1p(-p) for i, c in enumerate(choose)]
        return math.fsum(map(math.exp, logs))

    def solve(below: Callable[[float], bool]) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if below(middle) else (low, middle)
        return (low + high) / 2

    lower = 0.0 if successes == 0 else solve(lambda p: 1 - at_most(p, successes - 1) < tail)
    upper = 1.0 if successes == trials else solve(lambda p: at_most(p, successes) > tail)
    return lower, upper

"""Chernoff's bound for means of variables in [0, 1]: the divergence inverted, always on the safe side."""

import numpy as np

from richobs.core.types import Floats

HALVINGS = 36  # of an interval, to invert a divergence: 10^-11, always on the safe side
ROUNDING = 1e-14  # by which float64 may misjudge a divergence
FINE = 1e-10  # budgets below it are inverted by Pinsker's inequality, because rounding would decide


def kl_upper(mean: Floats, budget: Floats | float) -> Floats:
    """Returns the largest q with kl(mean, q) <= budget, for means in [0, 1] of variables in [0, 1] (by bisection).

    kl(p, q) = p log(p/q) + (1-p) log((1-p)/(1-q)). Chernoff: the true mean exceeds it with probability at most
    exp(-n budget), for any law on [0, 1].
    """
    given = np.clip(np.asarray(mean, dtype=np.float64), 0.0, 1.0)
    p, place = given, None
    if np.ndim(budget) == 0:
        p, place = np.unique(given, return_inverse=True)  # many functions share a mean
    with np.errstate(divide="ignore", invalid="ignore"):  # at the ends, where 0 log 0 is 0
        entropy = np.where(p > 0, p * np.log(p), 0.0) + np.where(p < 1, (1 - p) * np.log1p(-p), 0.0)
        low, high = p.copy(), np.ones_like(p)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            inside = entropy - p * np.log(middle) - (1 - p) * np.log1p(-middle) <= budget + ROUNDING
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
        pinsker = np.minimum(p + np.sqrt(np.asarray(budget) / 2), 1.0)  # kl(p, q) >= 2 (p - q)^2
        high = np.where(np.asarray(budget) < FINE, pinsker, high)
    return high if place is None else high[place].reshape(given.shape)  # on the safe side of the root

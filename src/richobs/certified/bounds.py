"""The statistics of certified LSVEE: radii, slacks, lower bounds, and how delta is spent. Pure functions of arrays.

Numbers in brackets are those of `docs/certified.md`. Every bound here need hold for one fixed function, f* = Q*, or one
fixed policy, so the size of the class never enters.
"""

import math
from dataclasses import dataclass

import numpy as np

from richobs.problem import Floats, Ints

HALVINGS = 36  # of an interval, to invert a divergence: 10^-11, always on the safe side
SERIES = 2.1098  # sum over j >= 1 of 1 / ((j + 1) log(j + 1)^2), rounded up


@dataclass
class Budget:
    """Shares of delta, one per claim: the j-th gets delta / (SERIES (j + 1) log(j + 1)^2) [D].

    Sums to at most delta over any number of claims, so no bound on their number is needed.
    """

    delta: float
    claims: int = 0

    def spend(self) -> float:
        """Returns the share of the next claim."""
        self.claims += 1
        return self.delta / (SERIES * (self.claims + 1) * math.log(self.claims + 1) ** 2)


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
            inside = entropy - p * np.log(middle) - (1 - p) * np.log1p(-middle) <= budget
            low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return high if place is None else high[place].reshape(given.shape)  # on the safe side of the root


def value_radius(mean: Floats, variance: Floats, n: Ints | int, low: Floats, high: Floats, delta: float) -> Floats:
    """Returns `[N]` e with |mean - true mean| <= e for a fixed function, with probability 1 - delta [E2].

    The smaller of a two-sided Chernoff (kl) bound and a two-sided empirical Bernstein bound (Maurer and Pontil 2009, Theorem
    4), half of delta each. At a mean on the edge of its range the first is about width log(4/delta)/n.

    Args:
        mean: `[N]` sample means.
        variance: `[N]` sample variances with divisor n.
        n: sample size, or `[N]` one for each; fixed before the sample is read; at least 2.
        low: `[N]` smallest value that each function takes.
        high: `[N]` largest value.
        delta: probability with which it may fail.
    """
    width = high - low
    scale = np.where(width > 0, width, 1.0)
    p = (mean - low) / scale
    rate = math.log(4 / delta) / n
    sides = np.stack([p, 1 - p])
    chernoff = (kl_upper(sides, rate) - sides).max(axis=0) * width
    share = math.log(8 / delta)
    bernstein = np.sqrt(2 * variance * share / (n - 1)) + 7 * width * share / (3 * (n - 1))
    return np.minimum(np.minimum(chernoff, bernstein), width)


def elimination_slack(e: Floats, n: Ints | int, b: float, delta: float) -> Floats:
    """Returns `[N]` how much larger than a reference's the risk of f* may be, with probability 1 - delta [Lemma 1].

    slack(e) = e^2 + e sqrt(2 c L / n) + (c/2 + (1 + e)^2 / 3) L / n with c = (2b + e)^2 + 1 and L = log(1/delta). The
    reference must be fixed before the batch is read.

    Args:
        e: `[N]` radius of the child's estimate for each function; 0 at the last level.
        n: size of the batch, or `[N]` one for each.
        b: largest value in the class.
        delta: probability with which it may fail.
    """
    L = -math.log(delta)
    c = (2 * b + e) ** 2 + 1
    return e**2 + e * np.sqrt(2 * c * L / n) + (c / 2 + (1 + e) ** 2 / 3) * L / n


def residual_radius(n: int, b: float, delta: float) -> float:
    """Returns how far the mean of f*(x, a) - r may be from its expectation, with probability 1 - delta [Lemma 2]."""
    return (1 + b) * math.sqrt(math.log(2 / delta) / (2 * n))


def return_lower_bound(mean: float, n: int, delta: float) -> float:
    """Returns W with V(pi) >= W from n returns in [0, 1], with probability 1 - delta [E3]."""
    return 1.0 - float(kl_upper(np.array(1 - mean), -math.log(delta) / n))


def mean_upper_bound(mean: Floats, n: int, low: Floats, high: Floats, delta: float) -> Floats:
    """Returns `[N]` an upper bound on the mean of a fixed function's values, with probability 1 - delta [E2]."""
    width = high - low
    p = (mean - low) / np.where(width > 0, width, 1.0)
    return low + width * kl_upper(p, -math.log(delta) / n)

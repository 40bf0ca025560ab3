"""The statistics of a certified search: radii, slacks, upper and lower bounds. Pure functions of arrays and shares.

Numbers in brackets are those of `docs/certified.md`. Every bound here is needed for one fixed function, f* = Q*, or one
fixed policy only, so the size of the class never enters. Each bound spends the share of delta that it is given.
"""

import math

import numpy as np

from richobs.core.types import Floats, Ints
from richobs.stats.shares import Spendable

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


def value_radius(
    mean: Floats,
    variance: Floats,
    n: Ints | int,
    low: Floats,
    high: Floats,
    share: Spendable,
    *,
    rounding: float = 0.0,
) -> Floats:
    """Returns `[N]` e with |mean - true mean| <= e for a fixed function; it fails with at most the share's probability [E2].

    The smaller of a two-sided Chernoff (kl) bound and a two-sided empirical Bernstein bound (Maurer and Pontil 2009, Theorem
    4), half of the share each. At a mean on the edge of its range the first is about width log(4/delta)/n.

    Args:
        mean: `[N]` sample means.
        variance: `[N]` sample variances with divisor n.
        n: sample size, or `[N]` one for each; fixed before the sample is read; at least 2.
        low: `[N]` smallest value that each function takes.
        high: `[N]` largest value.
        share: probability with which it may fail.
        rounding: how far mean and variance may be from those of exact arithmetic. Each side of the Chernoff bound starts
            from the mean that is worst for it: a small change of a mean near the edge of its range may change the bound by
            more.
    """
    delta = share.spend()
    variance = variance + rounding
    width = high - low
    scale = np.where(width > 0, width, 1.0)
    p = (mean - low) / scale
    rate = math.log(4 / delta) / n
    sides = np.stack([p, 1 - p]) + rounding / scale
    chernoff = (kl_upper(sides, rate) - sides).max(axis=0) * width
    logarithm = math.log(8 / delta)
    bernstein = np.sqrt(2 * variance * logarithm / (n - 1)) + 7 * width * logarithm / (3 * (n - 1))
    return np.minimum(np.minimum(chernoff, bernstein), width) + rounding


def elimination_slack(e: Floats, n: Ints | int, share: Spendable) -> Floats:
    """Returns `[N]` how much larger than a reference's the risk of f* may be, but for the share [Lemma 1].

    slack(e) = (e + sqrt(L / (2n)))^2 with L = log(1/delta). The reference must be fixed before the batch is read, and
    rewards must lie in an interval of length 1.

    Args:
        e: `[N]` radius of the child's estimate for each function; 0 at the last level.
        n: size of the batch, or `[N]` one for each.
        share: probability with which it may fail.
    """
    L = -math.log(share.spend())
    return (e + np.sqrt(L / (2 * n))) ** 2


def residual_radius(n: int, b: float, share: Spendable) -> float:
    """Returns the largest distance of the mean of f*(x, a) - r from its expectation [Lemma 2].

    Args:
        n: size of the batch.
        b: largest value in the class.
        share: probability with which it may fail.
    """
    return (1 + b) * math.sqrt(math.log(2 / share.spend()) / (2 * n))


def return_lower_bound(mean: float, n: int, share: Spendable) -> float:
    """Returns W with V(pi) >= W from the mean of n returns in [0, 1]; it fails with at most the share's probability [E3]."""
    return 1.0 - float(kl_upper(np.array(1 - mean), -math.log(share.spend()) / n))


def mean_upper_bound(mean: Floats, n: int, low: Floats, high: Floats, share: Spendable) -> Floats:
    """Returns `[N]` an upper bound on the mean of a fixed function's values [E2].

    Args:
        mean: `[N]` sample means.
        n: sample size, fixed before the sample is read.
        low: `[N]` smallest value that each function takes.
        high: `[N]` largest value.
        share: probability with which it may fail.
    """
    width = high - low
    p = (mean - low) / np.where(width > 0, width, 1.0)
    return low + width * kl_upper(p, -math.log(share.spend()) / n)

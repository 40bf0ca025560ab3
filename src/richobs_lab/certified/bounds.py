"""The statistics of a certified search: radii, slacks, upper and lower bounds. Pure functions of arrays and shares.

Numbers in brackets are those of `docs/certified.md`. Every bound here is needed for one fixed function, f* = Q*, or one
fixed policy only, so the size of the class never enters. Each bound spends the share of delta that it is given.
"""

import math

import numpy as np

from richobs.core.types import Floats, Ints
from richobs.stats.bets import kl_upper
from richobs.stats.shares import Spendable


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

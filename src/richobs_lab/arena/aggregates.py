"""Many runs in few numbers: interquartile means, stratified bootstrap, performance profiles, and exponents of growth.

The way of rliable (Agarwal, Schwarzer, Castro, Courville and Bellemare 2021, Deep reinforcement learning at the edge of the
statistical precipice, NeurIPS). Runs are resampled within strata, which are the tasks. Infinity stands for a run that
never got there: the interquartile mean is then infinite as soon as more than a quarter of the runs did not.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from richobs import InvalidInput
from richobs.core.types import Floats

RESAMPLES = 2_000
CONFIDENCE = 0.95

Strata = Sequence[Floats]  # one array of runs for each task


class Estimate(NamedTuple):
    """A statistic of a sample, and the percentile interval of its bootstrap."""

    value: float
    low: float
    high: float


def interquartile_mean(sample: Floats) -> float:
    """Returns the mean of the middle half: a quarter of the values, rounded down, is left out at each end.

    Args:
        sample: `[n]`; values may be infinite.
    """
    ordered = np.sort(np.asarray(sample, dtype=np.float64))
    if not len(ordered):
        raise InvalidInput("an interquartile mean needs at least one value; there are none.")
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def interquartile_estimate(
    sample: Floats, rng: np.random.Generator, *, resamples: int = RESAMPLES, confidence: float = CONFIDENCE
) -> Estimate:
    """Returns the interquartile mean of one task's runs with its bootstrap interval.

    Args:
        sample: `[n]`; values may be infinite.
        rng: draws the resamples.
        resamples: how many.
        confidence: share of the resamples that the interval holds.
    """
    value, n = interquartile_mean(sample), len(sample)
    drawn = np.sort(np.asarray(sample, dtype=np.float64)[rng.integers(n, size=(resamples, n))], axis=1)
    cut = n // 4
    return Estimate(value, *_interval(drawn[:, cut : n - cut].mean(axis=1), confidence))


def _interval(drawn: Floats, confidence: float) -> tuple[float, float]:
    """Returns the values between which a share of those drawn lies; each is one of them, so infinities do no harm."""
    ordered, tail = np.sort(drawn), (1 - confidence) / 2
    last = len(ordered) - 1
    return float(ordered[math.floor(tail * last)]), float(ordered[math.ceil((1 - tail) * last)])


def bootstrap(
    strata: Strata,
    statistic: Callable[[Strata], float],
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Returns a statistic with its interval by the stratified bootstrap: runs are drawn again within each stratum.

    Args:
        strata: the runs of each task, `[n]` each; the numbers of runs may differ.
        statistic: of strata with the same numbers of runs.
        rng: draws the resamples.
        resamples: how many.
        confidence: share of the resamples that the interval holds.
    """
    if not strata or any(not len(runs) for runs in strata):
        raise InvalidInput("a stratified bootstrap needs at least one run of every task.")
    drawn = np.array(
        [statistic([runs[rng.integers(len(runs), size=len(runs))] for runs in strata]) for _ in range(resamples)]
    )
    return Estimate(statistic(strata), *_interval(drawn[~np.isnan(drawn)], confidence))


def profile(strata: Strata, thresholds: Floats) -> Floats:
    """Returns `[T]` the share of runs with a value of at most each threshold, every task with the same weight.

    Of costs, such as episodes until solved: the curve of a better learner lies higher.

    Args:
        strata: the costs of each task's runs, `[n]` each.
        thresholds: `[T]`.
    """
    return np.mean([(runs[None, :] <= thresholds[:, None]).mean(axis=1) for runs in strata], axis=0)


def profile_band(
    strata: Strata,
    thresholds: Floats,
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> tuple[Floats, Floats]:
    """Returns `[T]` and `[T]` the pointwise band of a performance profile, by the stratified bootstrap.

    Args:
        strata: the costs of each task's runs, `[n]` each.
        thresholds: `[T]`.
        rng: draws the resamples.
        resamples: how many.
        confidence: share of the resamples that the band holds at each threshold.
    """
    drawn = [
        profile([runs[rng.integers(len(runs), size=len(runs))] for runs in strata], thresholds)
        for _ in range(resamples)
    ]
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=0)
    return low, high


def growth_exponent(sizes: Sequence[float], strata: Strata) -> float:
    """Returns p of the power law c size^p that fits best: the slope of log IQM against log size, by least squares.

    Args:
        sizes: at least two different ones, such as horizons.
        strata: the costs of the runs of each size, `[n]` each; sizes with an infinite interquartile mean are left out.

    Returns:
        NaN where fewer than two sizes have a finite interquartile mean.
    """
    points = [(math.log(size), interquartile_mean(runs)) for size, runs in zip(sizes, strata, strict=True)]
    kept = [(x, math.log(mean)) for x, mean in points if 0 < mean < math.inf]
    if len({x for x, _ in kept}) < 2:
        return math.nan
    x, y = np.array(kept).T
    x = x - x.mean()
    return float((x @ y) / (x @ x))

"""Intervals for a mean that hold at all sample sizes at once: a confidence sequence, by betting.

Pure statistics. Labels in brackets are those of `docs/policy-value.md`. All that is kept of n observations in [0, 1] are
sums, which add up over batches: neither memory nor the time of a look grows with n. Shapes: n observations, S shifts.
"""

import math
from dataclasses import dataclass

import numpy as np

from richobs.core.errors import InvalidInput
from richobs.core.types import Floats
from richobs.stats.bets import death, mixed
from richobs.stats.shares import Share, Supposed

DIFFERENCE_SHIFT = 2.0**-5  # the first shift where the mean of differences is asked for, which is seldom near an end
SMALLEST_SHIFT = 2.0**-8  # a shift s bets 1/(m + s) against a mean m: far below m that is the largest bet there is
PARTS, CUTS = 64, 9  # an interval is cut into so many parts, so often: 64^9 = 2^54
LARGER = 4096  # times as large as in [0, 1] may be the variance that weighted observations are bet on with
MOST_EPISODES = 10**15  # up to which a number of observations is planned


def shifts_for(limit: int, amount: float, smallest: float = SMALLEST_SHIFT) -> Floats:
    """Returns `[S]` the shifts that serve up to `limit` observations, each twice the one before [V1].

    A law with variance v is bet against best with about sqrt(2 log(1/amount) / (n v)), which is the reciprocal of the shift.
    It is smallest at the last n and at the largest variance, 1/4.

    Args:
        limit: number of observations up to which the intervals should be narrow; they hold beyond it too.
        amount: probability that is spent on one side.
        smallest: the first shift; small ones serve means near 0 and 1.
    """
    largest = math.sqrt(limit / (8 * -math.log(amount)))
    doublings = max(1, math.ceil(math.log2(largest / smallest)))
    return np.ldexp(smallest, np.arange(doublings + 1))


@dataclass(frozen=True, eq=False)
class LogSums:
    """What is kept of n observations x in [0, 1]: sums, which add up over batches [V1]."""

    n: int
    total: float  # of x
    logs: Floats  # [2, S] sums of log(x + s), and of log(1 - x + s), for each shift s

    @classmethod
    def of(cls, x: Floats, shifts: Floats) -> "LogSums":
        """Returns the sums of the observations `x` `[n]`.

        Raises:
            InvalidInput: an observation is not a number in [0, 1].
        """
        if not ((x >= 0) & (x <= 1)).all():  # NaN included
            raise InvalidInput(f"observations must lie in [0, 1]; got {x[~((x >= 0) & (x <= 1))][0]}.")
        values, counts = np.unique(x, return_counts=True)  # returns are often few numbers
        both = np.stack([values, 1 - values])
        return cls(len(x), float(x.sum()), np.einsum("dvs,v->ds", np.log(both[:, :, None] + shifts), counts))

    @classmethod
    def at_both_ends(cls, n: int, mean: float, shifts: Floats) -> "LogSums":
        """Returns the sums of n observations that are 0 or 1: the smallest sums that a mean allows [V3]."""
        ends = np.stack([np.log1p(shifts), np.log(shifts)])
        return cls(n, n * mean, n * (mean * ends + (1 - mean) * ends[::-1]))

    def __add__(self, other: "LogSums") -> "LogSums":
        """Returns the sums of both samples."""
        return LogSums(self.n + other.n, self.total + other.total, self.logs + other.logs)


def least_mean(logs: Floats, n: int, shifts: Floats, threshold: float) -> float:
    """Returns the largest m in [0, 1] whose account has reached `threshold`: the mean is at least m [V1].

    The account of m is the average over shifts s of the product of (x_i + s)/(m + s). It falls with m, so the largest m is
    found by cutting an interval into parts again and again.

    Args:
        logs: `[S]` sums of log(x_i + s).
        n: number of observations.
        shifts: `[S]` the shifts s.
        threshold: `death(share)` of the share with which the statement may fail, over all times.
    """
    needed = math.log(threshold)
    low, high = 0.0, 1.0
    for _ in range(CUTS):
        grid = np.linspace(low, high, PARTS + 1)
        refuted = mixed(logs - n * np.log(grid[1:-1, None] + shifts)) >= needed
        k = int(np.append(refuted, False).argmin())  # the first that is not
        low, high = float(grid[k]), float(grid[k + 1])
    return low


class ConfidenceSequence:
    """Lower and upper bounds on the mean of observations in [0, 1], which hold at all times but for two shares [V1].

    The bounds are those of all looks together: a bound that was once stated is never taken back. If `lower` exceeds `upper`,
    the observations contradict what is assumed, or the small probability of failure was met.
    """

    def __init__(self, limit: int, lower: Share, upper: Share, *, smallest: float = SMALLEST_SHIFT):
        """Opens the accounts; both shares are spent.

        Args:
            limit: number of observations that the bets are made for.
            lower: probability with which the mean may ever lie below the lower bound.
            upper: probability with which the mean may ever lie above the upper bound.
            smallest: the first shift.
        """
        self._shifts = shifts_for(limit, min(lower.amount, upper.amount), smallest)
        self._thresholds = (death(lower), death(upper))
        self._sums = LogSums(0, 0.0, np.zeros((2, len(self._shifts))))
        self.lower, self.upper = 0.0, 1.0

    @property
    def n(self) -> int:
        """Observations so far."""
        return self._sums.n

    @property
    def mean(self) -> float:
        """Their mean; NaN before the first."""
        return self._sums.total / self.n if self.n else math.nan

    def add(self, x: Floats) -> None:
        """Takes the next observations, `[n]` numbers in [0, 1], and looks at all of them."""
        self._sums += LogSums.of(x, self._shifts)
        below, above = _bounds(self._sums, self._shifts, self._thresholds)
        self.lower, self.upper = max(self.lower, below), min(self.upper, above)


class WeightedSequence:
    """Bounds on the mean of logged episodes with weights, which hold at all times but for two shares [V7].

    The observations of each side are nonnegative and may be arbitrarily large; given the past their means are m and 1 - m.
    Where several observations of one side have the same mean, each gets an equal part of the money.
    """

    def __init__(self, limit: int, lower: Share, upper: Share):
        """Opens the accounts; both shares are spent."""
        self._shifts = shifts_for(limit * LARGER, min(lower.amount, upper.amount))
        self._thresholds = [death(share) for share in (lower, upper)]
        self._logs: list[Floats | float] = [0.0, 0.0]  # per side [k * S] sums of log(y + s)
        self.n, self.lower, self.upper = 0, 0.0, 1.0

    def add(self, below: Floats, above: Floats) -> None:
        """Takes observations `[k, n]` of mean m, and others of mean 1 - m, and looks at all of them."""
        for y in (below, above):
            if not ((y >= 0) & np.isfinite(y)).all():
                raise InvalidInput(
                    f"weighted observations must be finite and at least 0; got {np.min(y)}, {np.max(y)}."
                )
        self.n += below.shape[1]
        bounds = []
        for side, y in enumerate((below, above)):
            self._logs[side] = self._logs[side] + np.log(y[:, :, None] + self._shifts).sum(axis=1).ravel()
            shifts = np.tile(self._shifts, len(y))
            bounds.append(least_mean(np.asarray(self._logs[side]), self.n, shifts, self._thresholds[side]))
        self.lower, self.upper = max(self.lower, bounds[0]), min(self.upper, 1 - bounds[1])


class QuantileSequence:
    """Lower and upper bounds on a quantile of observations of any size, which hold at all times but for two shares [V10].

    The p-quantile q is the smallest number that an observation does not exceed with probability p or more. Of n observations
    too few lie above q, or below q, with a small probability; order statistics bound q then, whatever the law is.
    """

    def __init__(self, limit: int, p: float, lower: Share, upper: Share):
        """Opens the accounts; both shares are spent.

        Args:
            limit: number of observations that the bets are made for.
            p: which quantile, in (0, 1).
            lower: probability with which the quantile may ever lie below the lower bound.
            upper: probability with which it may ever lie above the upper bound.
        """
        self._shifts = shifts_for(limit, min(lower.amount, upper.amount))
        self._p, self._needed = p, (math.log(death(lower)), math.log(death(upper)))
        self._sorted: Floats = np.zeros(0)
        self.lower, self.upper = -math.inf, math.inf

    @property
    def n(self) -> int:
        """Observations so far."""
        return len(self._sorted)

    @property
    def mean(self) -> float:
        """The quantile of the observations, an estimate; NaN before the first."""
        return float(self._sorted[max(math.ceil(self._p * self.n), 1) - 1]) if self.n else math.nan

    def add(self, x: Floats) -> None:
        """Takes the next observations, `[n]` finite numbers, and looks at all of them."""
        if not np.isfinite(x).all():
            raise InvalidInput(f"observations must be finite numbers; got {x[~np.isfinite(x)][0]}.")
        self._sorted = np.sort(np.concatenate([self._sorted, x]))
        below, above = self._most(self._p, self._needed[1]), self._most(1 - self._p, self._needed[0])
        if below < self.n:  # at most `below` observations are smaller than q
            self.upper = min(self.upper, float(self._sorted[below]))
        if above < self.n:  # at most `above` are larger
            self.lower = max(self.lower, float(self._sorted[self.n - 1 - above]))

    def _most(self, m: float, needed: float) -> int:
        """Returns the largest number of ones among n whose account against "the mean is at most m" is below its limit."""
        low, high = 0, self.n + 1
        while high - low > 1:
            k = (low + high) // 2
            logs = k * np.log1p(self._shifts) + (self.n - k) * np.log(self._shifts) - self.n * np.log(m + self._shifts)
            low, high = (k, high) if mixed(logs) < needed else (low, k)
        return low


def _bounds(sums: LogSums, shifts: Floats, thresholds: tuple[float, float]) -> tuple[float, float]:
    """Returns the lower and the upper bound on the mean; the upper is the lower one of 1 - x."""
    below, above = (least_mean(logs, sums.n, shifts, t) for logs, t in zip(sums.logs, thresholds, strict=True))
    return below, 1 - above


def enough_for(width: float, amount: float) -> int:
    """Returns a number of observations after which the interval is narrower than `width` whatever they are [V3].

    Of all samples with one mean, those with values 0 and 1 alone have the widest interval, and of these a mean of 1/2.

    Args:
        width: of the interval, in (0, 1).
        amount: probability that is spent on each side.
    """
    thresholds = (death(Supposed(amount)), death(Supposed(amount)))

    def suffices(n: int) -> bool:
        shifts = shifts_for(n, amount)
        below, above = _bounds(LogSums.at_both_ends(n, 0.5, shifts), shifts, thresholds)
        return above - below <= width

    high = 1
    while not suffices(high):
        high *= 2
        if high > MOST_EPISODES:
            raise InvalidInput(
                f"an interval of width {width:g} of the range takes more than {MOST_EPISODES:g} episodes."
            )
    low = high // 2
    while high - low > max(1, high // 1000):
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high

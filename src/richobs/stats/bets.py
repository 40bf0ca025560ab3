"""The statistics of a betting search: bets that Q* cannot win, and bounds on means that hold at any time.

Pure functions of arrays and shares. Labels in brackets are those of `docs/betting.md`. The wealth of an account is a
nonnegative martingale that starts with at most 1 where the hypothesis it bets against is true, so by Ville's inequality it
ever reaches 1/d with probability at most d. Shapes: R kinds of f_h, C kinds of max_a f_{h+1}, n samples, L bets.
"""

import math
import sys
from typing import NamedTuple

import numpy as np

from richobs.core.types import Floats, Ints, Mask
from richobs.stats.grouping import equal_rows
from richobs.stats.shares import Spendable

CAP = 0.9  # largest share of its limit that a bet takes: no factor falls below 1 - CAP
FLOOR = 0.02  # f and 1 - f count as at least this in the limits: no bet exceeds CAP / FLOOR
ZETA = 2e-7  # declared error of E[y] - f for Q*: what rounding to single precision may add to rewards and values
GUARD = 1e-6  # relative excess over 1/d that a wealth must show, against rounding of products and logarithms
ALL_MONEY = 0.7  # more than `money` of all batches together
LEAST_VARIANCE = 1e-8  # of a forecast, so that no bet divides by 0
FEW_VALUES = 12  # distinct values of f up to which the growth is a matrix product per value
FEW_BETS = 1 << 11  # of all pairs on all samples up to which they are computed one by one
SOME_ROWS = 32  # of f in which its distinct values are looked for first
BLOCK = 1 << 16  # pairs whose bets are computed at once
MOST_GROWTH = 600.0  # logarithm of the most that a wealth grows in one batch, so that float64 can hold it
FRACTIONS = (  # bets against a mean loss as shares of the largest, and the money on each
    (0.95, 0.8),
    (0.75, 0.1),
    (0.5, 0.05),
    (0.25, 0.025),
    (0.1, 0.025),
)
SECTIONS = 13  # of an interval into 16, to find the largest mean that is refuted
SIXTEENTHS = np.arange(16) / 16
KL_STEPS = 6  # of Newton's method, to invert a divergence: three leave at most 1% of the distance, and each squares it
NUDGE = 1e-6  # relative, by which its first point is too high
ROUNDING = 1e-14  # by which float64 may misjudge a divergence


def money(t: int) -> float:
    """Returns what is put into an account before its t-th batch, t from 1; all of it sums to less than ALL_MONEY [B1].

    1/2 at first, then 1/(3.3 t^2): 0.5 + (pi^2/6 - 1)/3.3 < 0.7.
    """
    return 0.5 if t == 1 else 1 / (3.3 * t * t)


def death(share: Spendable) -> float:
    """Returns the wealth at which an account's hypothesis is refuted: 1/d, a little more against rounding (Ville)."""
    return (1 + GUARD) / share.spend()


def refutation(share: Spendable) -> float:
    """Returns the wealth at which a pair is refuted: 1/d times all the money that is ever put in, rounded up [B1]."""
    return ALL_MONEY * death(share)


def stakes(forecast: Floats, variance: Floats, f: Floats, tolerance: float = 0.0) -> Floats:
    """Returns the bets on y - f: of the largest bet 1/f the share g d/(s^2 + g d), at most CAP, with d = g - f > 0 [B1].

    Of all laws of y >= 0 with mean g and variance s^2, the one on two points, one of them 0, lets a bet grow least, and this
    bet grows most under that law. Where d < 0 the same is said of 1 - y. With a tolerance d is what exceeds it: the rest
    of a bet would be paid for and win nothing [T1].

    For y in [0, 1] every bet in [-1/(1 - f), 1/f] leaves 1 + bet (y - f) >= 0. The arguments are of shapes that fit each
    other, and fixed before y is read.

    Args:
        forecast: g, what y is expected to be, in [0, 1].
        variance: s^2 of that forecast, above 0.
        f: the mean that is bet against, in [0, 1].
        tolerance: how far E[y] may be from f without f being refuted.
    """
    d = forecast - f
    up = d > 0
    if tolerance:
        d = np.copysign(np.maximum(np.abs(d) - tolerance, 0.0), d)
    edge = d * np.where(up, forecast, forecast - 1)
    low, high = limits(f)
    return np.minimum(edge / (CAP * (variance + edge)), 1.0) * np.where(up, high, low)


def limits(f: Floats) -> tuple[Floats, Floats]:
    """Returns the smallest and the largest bet against a mean: CAP of what may be bet, where f and 1 - f are floored."""
    return -CAP / np.maximum(1 - f, FLOOR), CAP / np.maximum(f, FLOOR)


def log_factors(stake: Floats, y: Floats, f: Floats, tolerance: float = 0.0) -> Floats:
    """Returns the logarithm of a bet's factor: 1 + stake (y - f) over 1 + |stake| ZETA and 1 + |stake| tolerance [B1], [T1].

    The product of the two is at least 1 + |stake| (ZETA + tolerance), which is the largest mean.
    """
    logs = np.log1p(stake * (y - f)) - np.log1p(np.abs(stake) * ZETA)
    return logs - np.log1p(np.abs(stake) * tolerance) if tolerance else logs


def growth(f: Floats, y: Floats, forecast: Floats, variance: Floats, tolerance: float = 0.0) -> Floats:
    """Returns `[R, C]` the logarithm of what a batch multiplies the wealth of every pair by [B1].

    Args:
        f: `[R, n]` values f_h(x, a) of every row, in [0, 1].
        y: `[C, n]` r + max_a f_{h+1}(x', a) of every column, in [0, 1].
        forecast: `[C, n]` what y was expected to be, fixed before the batch.
        variance: `[C, n]` s^2 of that forecast, fixed before the batch.
        tolerance: how far E[y] may be from f without f being refuted.
    """
    return growth_and_losses(f, y, forecast, variance, tolerance)[0]


def growth_and_losses(
    f: Floats, y: Floats, forecast: Floats, variance: Floats, tolerance: float = 0.0
) -> tuple[Floats, Floats]:
    """Returns what `growth` does, and `[R, C]` the sums of (f - y)^2; where f takes few values, by one product for each."""
    spread = np.maximum(variance, LEAST_VARIANCE)
    if len(f) * y.size <= FEW_BETS:
        every = f[:, None]
        logs = log_factors(stakes(forecast, spread, every, tolerance), y, every, tolerance)
        return np.add.reduce(logs, axis=2), np.add.reduce((every - y) ** 2, axis=2)
    values = np.unique(f[:: max(1, len(f) // SOME_ROWS)])
    masks = [f == v for v in values] if len(values) <= FEW_VALUES else []
    if sum(map(np.count_nonzero, masks)) < f.size:  # other rows have other values
        values = np.unique(f)
        masks = [f == v for v in values] if len(values) <= FEW_VALUES else []
    if masks:
        parts = [
            np.concatenate([_at(v, y, forecast, spread, tolerance), (v - y) ** 2]) for v in values
        ]  # [2 C, n] each
        both = np.broadcast_to(parts[0].sum(axis=1), (len(f), len(parts[0]))).copy()
        for mask, part in zip(masks[1:], parts[1:], strict=True):
            both += mask.astype(np.float64) @ (part - parts[0]).T
        return both[:, : len(y)], np.maximum(both[:, len(y) :], 0.0)
    result = np.empty((len(f), len(y)))
    step = max(1, BLOCK // max(1, len(y)))
    alike = _alike(np.concatenate([f, forecast, spread]), y)
    for first in range(0, len(f), step):
        result[first : first + step] = _product(f[first : first + step], y, forecast, spread, alike, tolerance)
    return result, square_losses(f, y)


def square_losses(f: Floats, y: Floats) -> Floats:
    """Returns `[R, C]` the sums of (f - y)^2 of rows f `[R, n]` and y `[C, n]`."""
    sums = f @ (-2 * y).T
    sums += np.einsum("rn,rn->r", f, f)[:, None]
    sums += (y**2).sum(axis=1)
    return np.maximum(sums, 0.0, out=sums)


def _at(value: float, y: Floats, forecast: Floats, spread: Floats, tolerance: float) -> Floats:
    """Returns `[C, n]` the logarithm of every factor where f is `value`."""
    f = np.full_like(y, value)
    return log_factors(stakes(forecast, spread, f, tolerance), y, f, tolerance)


def _alike(known: Floats, y: Floats) -> list[list[tuple[int, int]]]:
    """Groups samples whose bets are equal, and in each group those with equal y: one of these, and how many there are.

    Args:
        known: `[k, n]` all that the bets on a sample depend on.
        y: `[C, n]` what is bet on.
    """
    bet, outcome = (equal_rows(np.ascontiguousarray(rows.T)) for rows in (known, np.concatenate([known, y])))
    groups: list[list[tuple[int, int]]] = [[] for _ in bet[0]]
    for place, count in zip(outcome[0].tolist(), np.bincount(outcome[1]).tolist(), strict=True):
        groups[bet[1][place]].append((place, count))
    return groups


def _product(
    f: Floats,
    y: Floats,
    forecast: Floats,
    variance: Floats,
    alike: list[list[tuple[int, int]]],
    tolerance: float = 0.0,
) -> Floats:
    """Returns `[r, C]` the growth of a block of rows; logarithms are taken of eight or nine factors at once.

    A bet is computed once for all samples of a group of `alike`, and a factor once for those that have the same y.
    """
    shape = (len(f), len(y))
    total, staked = np.zeros(shape), np.zeros(shape)
    product, factors = np.ones(shape), 0
    d, bet = np.empty(shape), np.empty(shape)
    low, high = limits(f)
    for group in alike:
        i, n = group[0][0], sum(count for _, count in group)
        np.subtract(forecast[None, :, i], f[:, i, None], out=d)
        up = d > 0
        if tolerance:
            np.copysign(np.maximum(np.abs(d) - tolerance, 0.0), d, out=d)
        d *= np.where(up, forecast[None, :, i], forecast[None, :, i] - 1)
        np.add(d, variance[None, :, i], out=bet)
        bet *= CAP
        np.divide(d, bet, out=bet)
        np.minimum(bet, 1.0, out=bet)
        bet *= np.where(up, high[:, i, None], low[:, i, None])
        for place, count in group:
            np.subtract(y[:, place], f[:, i, None], out=d)
            d *= bet
            d += 1
            if count > 2:  # one logarithm takes as long as a few products
                total += count * np.log(d)
                continue
            for _ in range(count):
                product *= d
            factors += count
            if factors >= 8:
                total += np.log(product)
                product.fill(1)
                factors = 0
        staked += np.multiply(np.abs(bet, out=bet), n, out=d)
        if tolerance:
            total -= n * np.log1p(np.multiply(bet, tolerance, out=d))
    if factors:
        total += np.log(product)
    return total - ZETA * staked  # log(1 + z) <= z, and 1 + a + b <= (1 + a) (1 + b)


def grown(wealth: Floats, change: Floats, t: int, row: Ints | None = None) -> Floats:
    """Returns the wealth after the t-th batch: (wealth + money put in before) times the batch's product [B1].

    Args:
        wealth: of every pair after the batch before.
        change: logarithm of the product, as `growth` returns it.
        t: number of the batch, from 1.
        row: which row of the change each row of the wealth has; by default its own.
    """
    factor = np.minimum(change, MOST_GROWTH)
    np.exp(factor, out=factor)
    after = wealth + money(t)
    after *= factor if row is None else factor.take(row, axis=0)
    return after


def growth_rounding(n: int) -> float:
    """Returns how far rounding may move the logarithm of a wealth in a batch of n samples, computed in float64 [B1].

    The bets are what was computed, so their own rounding is no error. With u = 2^-53, y - f and its product with the bet are
    off by 2u of the product z, and z >= -CAP, so a factor 1 + z is off by at most 2u z / (1 + z) + u <= 19u of itself, and
    the product of factors by u more for each. A logarithm of eight factors is at most 31 and off by at most two units in its
    last place, 124u. A sum of at most 3.9n is rounded twice for every eight samples. exp, money and wealth add less than
    10u. All this is less than u (n^2 + 50n + 200), in any order of the eight and with or without fused multiplications.
    Dividing each factor by 1 + tolerance |bet|, which is at most 46, less than doubles that.

    Args:
        n: samples of the batch.
    """
    return 2.0**-53 * (n * n + 50 * n + 200)


def surely(limit: float, rounding: float) -> float:
    """Returns the computed wealth at which the exact one has reached `limit`, if their logarithms differ by `rounding`."""
    return limit * math.exp(rounding)


def log_of(wealth: float) -> float:
    """Returns the logarithm of a wealth, and that of the smallest number that float64 holds where there is none."""
    return math.log(max(float(wealth), sys.float_info.min))


def average_bets(smallest: float) -> Floats:
    """Returns `[L]` constant bets of both signs, +-1/2, +-1/4, ... down to `smallest` or just below [B2]."""
    sizes = 0.5 ** np.arange(1, max(1, math.ceil(-math.log2(smallest))) + 1)
    return np.concatenate([sizes, -sizes])


def average_growth(errors: Floats, bets: Floats, tolerance: float = 0.0) -> Floats:
    """Returns `[L]` the logarithm of what errors y - f in [-1, 1], `[n]`, multiply the wealth of each bet by [B2], [T1]."""
    return (np.log1p(bets[:, None] * errors) - np.log1p(np.abs(bets)[:, None] * (ZETA + tolerance))).sum(axis=1)


def mixed(log_wealth: Floats) -> Floats:
    """Returns the logarithm of the mean over the last axis, of wealth given by logarithms."""
    top = np.maximum.reduce(log_wealth, axis=-1, keepdims=True)
    return top[..., 0] + np.log(np.add.reduce(np.exp(log_wealth - top), axis=-1) / log_wealth.shape[-1])


class Agreement(NamedTuple):
    """Bets against E[D] >= epsilon, for losses D = G + J of gaps G in [0, gaps] and values J in [0, jump] at stops [B3.2].

    Where several thresholds decide what is a gap and what is a stop, each has its own D and its own bets, and the money is
    shared among them. Shapes: A bets in all.
    """

    epsilon: float  # the mean that is refuted
    theta: Floats  # [A] largest gap of one level that does not stop the episode
    gaps: Floats  # [A] largest sum of gaps before a stop
    jump: float  # largest value at a stop
    bets: Floats  # [A] lambda, in (0, 1/(gaps + jump - epsilon))
    weights: Floats  # [A] share of the money on each; they sum to 1

    @classmethod
    def of(cls, epsilon: float, jump: float, horizon: int) -> "Agreement":
        """Returns the bets for a mean, a largest value and a number of levels."""
        scales = (1 / (4 * horizon), 1 / (4 * math.sqrt(horizon)), 1 / 4)
        pairs = [(theta, fraction) for theta in zip(scales, (0.8, 0.1, 0.1), strict=True) for fraction in FRACTIONS]
        theta = epsilon * np.array([scale for (scale, _), _ in pairs])
        gaps = horizon * theta
        bets = np.array([fraction for _, (fraction, _) in pairs]) / np.maximum(gaps + jump - epsilon, epsilon)
        weights = np.array([first * second for (_, first), (_, second) in pairs])
        return cls(epsilon, theta, gaps, jump, bets, weights)

    @property
    def per_episode(self) -> Floats:
        """`[A]` what an episode without a loss adds to the logarithm of the wealth."""
        return np.log1p(self.bets * self.epsilon)

    @property
    def per_gap(self) -> Floats:
        """`[A]` what a unit of gaps takes away: the slope of the chord of log(1 + bet (epsilon - D)) on [0, gaps]."""
        return (self.per_episode - np.log1p(self.bets * (self.epsilon - self.gaps))) / self.gaps

    @property
    def per_jump(self) -> Floats:
        """`[A]` what a unit lost at a stop takes away: the slope of the chord on [gaps, gaps + jump]."""
        all_lost = np.log1p(self.bets * (self.epsilon - self.gaps - self.jump))
        return (np.log1p(self.bets * (self.epsilon - self.gaps)) - all_lost) / self.jump

    def log_wealth(self, n: int, taken: Floats) -> float:
        """Returns a lower bound on the logarithm of the wealth after n episodes.

        log(1 + bet (epsilon - G - J)) is concave, so it is at least the linear function of (G, J) that is at most it at the
        four corners of their range, and the sum over episodes depends on the sums of G and of J alone.

        Args:
            n: episodes.
            taken: `[A]` at least `per_gap` times the sum of G plus `per_jump` times the sum of J.
        """
        logs = np.log(self.weights) + float(n) * self.per_episode - taken
        top = logs.max()
        return float(top + np.log(np.exp(logs - top).sum()))


class Shortfall(NamedTuple):
    """Bets against E[D] >= epsilon for D = V_f(x_0) - R, what a function promises less what is earned [T7].

    Every function has its own bets, since its own values bound its D. Shapes: N functions, A bets each.
    """

    epsilon: float  # the mean that is refuted
    bets: Floats  # [N, A] in (0, 1/(largest - epsilon))
    weights: Floats  # [A] share of the money on each; they sum to 1

    @classmethod
    def of(cls, epsilon: float, largest: Floats) -> "Shortfall":
        """Returns the bets for a mean and `[N]` the largest D of every function."""
        fractions, weights = np.array(FRACTIONS).T
        return cls(epsilon, fractions / np.maximum(largest - epsilon, epsilon)[:, None], weights)

    def growth(self, members: Ints, lack: Floats) -> Floats:
        """Returns `[m, A]` the logarithm of what D `[m, n]` of some functions multiplies the wealth of each bet by."""
        return np.stack([np.log1p(bet[:, None] * (self.epsilon - lack)).sum(axis=1) for bet in self.bets[members].T], 1)


def lower_bound_of_mean(returns: Floats, smallest: float, threshold: float, times: Floats | None = None) -> float:
    """Returns W: the mean of returns in [0, 1] is at least W, at any time, but for a share of delta [B3.1].

    The account for a mean m mixes all bets in `smallest` * 2^k that are at most CAP/m. A larger m takes bets away and makes
    every factor 1 + bet (return - m) smaller, so its wealth falls with m, and the largest refuted m is found by cutting an
    interval.

    Args:
        returns: `[n]` all returns of one policy so far.
        smallest: smallest bet, also the smallest mean that can be refuted.
        threshold: `death(share)` of the share with which it may fail, over all times.
        times: `[n]` how often each return was earned; once by default.
    """
    needed = math.log(threshold)
    values, same = np.unique(np.clip(returns, 0.0, 1.0), return_inverse=True)
    counts = np.bincount(same, weights=times)
    bets = smallest * 2.0 ** np.arange(max(1, math.ceil(math.log2(CAP / smallest**2))))

    def refuted(means: Floats) -> Mask:
        allowed = bets <= CAP / means[:, None]  # [k, L]
        stakes = bets * allowed
        logs: Floats = np.log1p(stakes[:, :, None] * (values - means[:, None, None])) @ counts
        logs[~allowed] = -np.inf
        return mixed(logs) >= needed

    if not refuted(np.array([smallest]))[0]:
        return 0.0
    low, high = smallest, 1.0
    for _ in range(SECTIONS):
        points = [*(SIXTEENTHS * (high - low) + low).tolist(), high]
        last = [*refuted(np.array(points[1:-1])).tolist(), False].index(False)
        low, high = points[last], points[last + 1]
    return low


def upper_bound_of_mean(mean: Floats, variance: Floats, n: int, low: Floats, high: Floats, share: Spendable) -> Floats:
    """Returns `[N]` an upper bound on the mean of one fixed function's values, but for the share [U].

    The smaller of a Chernoff (kl) bound and an empirical Bernstein bound (Maurer and Pontil 2009, Theorem 4), half of the
    share each. At a mean on the edge of the range the first is about width log(2/d)/n.

    Args:
        mean: `[N]` sample means.
        variance: `[N]` sample variances with divisor n.
        n: sample size, fixed before the sample is read; at least 2.
        low: `[N]` smallest value that each function takes.
        high: `[N]` largest value.
        share: probability with which it may fail.
    """
    d = share.spend() / 2
    width = high - low
    p = (mean - low) / np.where(width > 0, width, 1.0)
    chernoff = low + width * kl_upper(p, -math.log(d) / n)
    logarithm = math.log(2 / d)
    bernstein = mean + np.sqrt(2 * variance * logarithm / (n - 1)) + 7 * width * logarithm / (3 * (n - 1))
    return np.minimum(np.minimum(chernoff, bernstein), high)


def kl_upper(mean: Floats, budget: Floats | float) -> Floats:
    """Returns the largest q with kl(mean, q) <= budget, or little more, for means in [0, 1] of variables in [0, 1].

    kl(p, q) = p log(p/q) + (1-p) log((1-p)/(1-q)). Chernoff: the true mean exceeds it with probability at most
    exp(-n budget), for any law on [0, 1]. By Newton's method: kl is convex in q, so steps from above stay above. kl(p, q) is
    the integral of (t-p) / (t(1-t)) from p to q, and t(1-t) is at most 1/4, at most 1-p and at most q there. Each of these
    gives a point above to start from. So does leaving out p log(1/q), which is the nearest where q is near 1.
    """
    given = np.clip(np.asarray(mean, dtype=np.float64), 0.0, 1.0)
    p, place = given, None
    if np.ndim(budget) == 0:
        p, place = np.unique(given, return_inverse=True)  # many functions share a mean
    with np.errstate(divide="ignore", invalid="ignore"):  # at the ends, where 0 log 0 is 0
        entropy = np.where(p > 0, p * np.log(p), 0.0) + np.where(p < 1, (1 - p) * np.log1p(-p), 0.0)
        more = np.asarray(budget) * (1 + NUDGE)  # so that rounding leaves the start above
        start = np.fmin(
            p + np.sqrt(more * np.minimum(0.5, 2 * (1 - p))), p + more + np.sqrt(more) * np.sqrt(more + 2 * p)
        )
        start = np.fmin(start, -np.expm1((entropy - budget) / (1 - p) - NUDGE))
        q = high = np.minimum(np.nextafter(start, 2.0), 1.0)
        for _ in range(KL_STEPS):
            excess = entropy - p * np.log(q) - (1 - p) * np.log1p(-q) - (budget + 2 * ROUNDING)
            is_above = excess > -ROUNDING
            high = np.where(is_above, q, high)
            q = np.where(is_above, q - excess * q * (1 - q) / (q - p), q)
    return high if place is None else high[place].reshape(given.shape)

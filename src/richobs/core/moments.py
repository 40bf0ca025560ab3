"""What n samples are summed up to: `Moments`, all that LSVEE asks at a node, and `Steps`, counts of what was seen and done.

Both form commutative monoids: `a + b` is of both samples, so chunks, processes and machines differ only in who computes the
terms of one sum. Shapes: n samples, N functions, K actions, m distinct rows of a batch, X distinct observations of a level,
X' of the next.

Departs from [KAL16]: sums are carried as means and centred variances instead of raw power sums. At small epsilon the
printed thresholds fall below what an expanded square can resolve in float64; centred terms are all non-negative, so a
risk is right to a few units in its last place.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from richobs.core.errors import PrecisionError
from richobs.core.types import Floats, Ints, Mask, Observations

PRECISION = 100  # a threshold must exceed the rounding of what it is compared with by this factor
ROUNDINGS = 64  # numbers of an answer may be off by this many times the rounding of moments: bounds are made of several
UNIT_ROUNDOFF = 2.0**-53  # of float64: a result of one operation is exact but for this share of it


@dataclass(frozen=True, eq=False)
class Batch:
    """n samples at one node, grouped into rows with equal observations (or one row per sample)."""

    n: int
    actions: tuple[int, ...]  # [K] how many samples took each action; all 0 where no action was taken
    x: Observations  # [m, ...] one observation per row
    weight: Floats  # [m] share of the n samples in each row
    pair: Floats  # [m, K] share of action a's samples in each row; a column sums to 1, or is 0 where a was not taken
    r_mean: Floats  # [m, K] mean reward in the row under each action
    r_var: Floats  # [m, K] variance of the reward there

    @classmethod
    def of_observations(cls, x: Observations, n_actions: int) -> "Batch":
        """Returns the batch of observations `[n, ...]` without actions."""
        rows, row = _grouped(x)
        none = np.zeros((len(rows), n_actions))
        return cls(len(x), (0,) * n_actions, rows, np.bincount(row) / len(x), none, none, none)

    @classmethod
    def of_steps(cls, x: Observations, actions: Ints, rewards: Floats, n_actions: int) -> "Batch":
        """Returns the batch of samples (x, a, r), `[n]` of each."""
        rows, row = _grouped(x)
        shape = (len(rows), n_actions)
        cell = row * n_actions + actions
        counts = np.bincount(cell, minlength=len(rows) * n_actions)  # [m K]
        some = np.maximum(counts, 1)
        r_mean = np.bincount(cell, weights=rewards, minlength=len(counts)) / some
        r_var = np.bincount(cell, weights=(rewards - r_mean[cell]) ** 2, minlength=len(counts)) / some
        table = counts.reshape(shape)
        taken = table.sum(axis=0)
        return cls(
            n=len(x),
            actions=tuple(taken.tolist()),
            x=rows,
            weight=table.sum(axis=1) / len(x),
            pair=table / np.maximum(taken, 1),
            r_mean=r_mean.reshape(shape),
            r_var=r_var.reshape(shape),
        )


def _grouped(x: Observations) -> tuple[Observations, Ints]:
    """Returns the distinct observations and which of them each sample is; vectors are left as they are."""
    return distinct(x) if x.ndim == 1 and x.dtype.kind in "iu" else (x, np.arange(len(x)))


@dataclass(frozen=True, eq=False)
class Moments:
    """Means and variances over n samples, per function.

    With u = f(x, a) - r: under action a its mean is `u_mean[:, a]` and its variance `u_var[:, a]`. The value of f at x is
    max_a f(x, a).
    """

    n: int
    actions: tuple[int, ...]  # [K] samples per action
    v_mean: Floats  # [N] mean value: the estimate of V^f(p, pi_f)
    v_var: Floats  # [N] variance of the value (divisor n)
    u_mean: Floats  # [N, K]
    u_var: Floats  # [N, K] (divisor: the action's count)
    rounding: float = 0.0  # every mean and variance is within it of exact arithmetic; 0: NumPy, which is taken as exact
    mean_rounding: float | None = None  # every mean is within it, at most `rounding`; None: nothing better is known

    @classmethod
    def empty(cls, n_functions: int, n_actions: int) -> "Moments":
        """Returns the moments of no samples, the neutral element."""
        each, pairs = np.zeros(n_functions), np.zeros((n_functions, n_actions))
        return cls(0, (0,) * n_actions, each, each, pairs, pairs)

    @classmethod
    def of(cls, values: Floats, batch: Batch) -> "Moments":
        """Returns the moments of a batch, for functions whose values `[N, m, K]` on its rows are given."""
        best = values.max(axis=2)
        v_mean = best @ batch.weight
        v_var = (best - v_mean[:, None]) ** 2 @ batch.weight
        u_mean, u_var = np.zeros((2, len(values), len(batch.actions)))
        for a in range(len(batch.actions)):
            rows = np.flatnonzero(batch.pair[:, a])
            share = batch.pair[rows, a]
            u = values[:, rows, a] - batch.r_mean[rows, a]
            u_mean[:, a] = u @ share
            u_var[:, a] = (u - u_mean[:, a, None]) ** 2 @ share + batch.r_var[rows, a] @ share
        return cls(batch.n, batch.actions, v_mean, v_var, u_mean, u_var)

    @classmethod
    def concatenate(cls, parts: list["Moments"]) -> "Moments":
        """Returns moments over several groups of functions, all of the same samples, as one."""
        first = parts[0]
        fields = ("v_mean", "v_var", "u_mean", "u_var")
        v_mean, v_var, u_mean, u_var = (np.concatenate([getattr(p, f) for p in parts]) for f in fields)
        rounding = max(p.rounding for p in parts)
        of_means = max(p.rounding_of_means for p in parts)
        return cls(first.n, first.actions, v_mean, v_var, u_mean, u_var, rounding, of_means)

    def __add__(self, other: "Moments") -> "Moments":
        n = self.n + other.n
        counts = tuple(a + b for a, b in zip(self.actions, other.actions, strict=True))
        w = other.n / n if n else 0.0
        wa = np.array([b / c if c else 0.0 for b, c in zip(other.actions, counts, strict=True)])
        v_mean, v_var = _merged(self.v_mean, self.v_var, other.v_mean, other.v_var, np.float64(w))
        u_mean, u_var = _merged(self.u_mean, self.u_var, other.u_mean, other.u_var, wa)
        weights = [w, *(float(b) for b, c in zip(wa, counts, strict=True) if c)]
        return Moments(n, counts, v_mean, v_var, u_mean, u_var, *self._rounding_with(other, weights))

    @property
    def rounding_of_means(self) -> float:
        """Every mean is within it of exact arithmetic."""
        return self.rounding if self.mean_rounding is None else self.mean_rounding

    def _rounding_with(self, other: "Moments", weights: list[float]) -> tuple[float, float]:
        """Returns the rounding of a sum, and that of its means.

        Let the means of the parts be known up to m and m', their variances up to r and r', and let w be the share of the
        second part's samples. Write u = 2^-53. Let S bound all means and standard deviations of both parts, as computed, and
        let g be the largest gap between two means, which is at most 2S.

        1. In exact arithmetic the merged mean is (1 - w) mean + w mean', so it is known up to (1 - w) m + w m'.
        2. In exact arithmetic the merged variance is (1 - w) var + w var' + w (1 - w) gap^2. The gap is known up to
           d = m + m', so its square is known up to d (2g + d), and the variance up to
           (1 - w) r + w r' + w (1 - w) d (2g + d).
        3. The computed mean + w gap is off by 3u w g <= 6u S for w, the gap and their product, and by u S for the sum. With
           terms in u^2 that is less than 8u S.
        4. The computed variance is off by 2u S^2 for each of its first two terms: w and 1 - w are off by at most u. The
           square of the gap is off by 3u of itself, and w (1 - w) <= 1/4 by at most 2u, so the third term is off by at most
           3u g^2 <= 12u S^2. Both sums round by at most u 2S^2 each. That is 20u S^2, less than 32u S^2 with terms in u^2.

        Nothing multiplies what was there before: roundings of parts are averaged with the weights of the samples, and a
        merge adds what 2, 3 and 4 say. The values, and the residuals of every action, have weights of their own. An average
        is linear in w, so the largest is at the smallest or the largest weight. The last factor covers the rounding of the
        bound itself.

        Args:
            other: the second part.
            weights: its share of the samples, and of those of each action that was taken.
        """
        if max(self.rounding, other.rounding) == 0.0:
            return 0.0, 0.0
        ends = (min(weights), max(weights))
        split = max(w * (1 - w) for w in weights)
        m, m_other = self.rounding_of_means, other.rounding_of_means
        means = ((self.v_mean, other.v_mean), (self.u_mean, other.u_mean))
        gap = max(float(np.abs(a - b).max(initial=0.0)) for a, b in means)
        largest_mean = max(float(np.abs(a).max(initial=0.0)) for pair in means for a in pair)
        variances = (self.v_var, other.v_var, self.u_var, other.u_var)
        size = max(largest_mean, float(np.sqrt(max(a.max(initial=0.0) for a in variances))))
        of_means = max((1 - w) * m + w * m_other for w in ends) + 8 * UNIT_ROUNDOFF * size
        of_variances = max((1 - w) * self.rounding + w * other.rounding for w in ends)
        of_variances += split * (m + m_other) * (2 * gap + m + m_other) + 32 * UNIT_ROUNDOFF * size**2
        more = 1 + 16 * UNIT_ROUNDOFF
        return more * max(of_means, of_variances), more * of_means

    @property
    def shares(self) -> Floats:
        """`[K]` share of the samples that took each action."""
        return np.array([a / self.n for a in self.actions])


def _merged(mean: Floats, var: Floats, mean2: Floats, var2: Floats, w: Floats | np.float64) -> tuple[Floats, Floats]:
    """Returns mean and variance of a mixture with weight `w` on the second part."""
    gap = mean2 - mean
    return mean + w * gap, (1 - w) * var + w * var2 + w * (1 - w) * gap**2


def moments_of_cases(share: Any, value: Any, gain: Any = 0.0, centre: Any = 0.0, spread: Any = 0.0) -> tuple[Any, Any]:
    """Returns `[N]` mean and variance of u = value - r for functions that distinguish few cases of a sample.

    Arrays of NumPy or tensors of PyTorch. The rounding error of a variance is about 1e-15.

    Args:
        share: `[C, N]` share of the samples in each case.
        value: `[C, N]` the value there.
        gain: `[C, N]` sum of (r - `centre`) over the samples in each case, each with its share; 0 where no reward counts.
        centre: mean of r.
        spread: variance of r.
    """
    mean = (share * value).sum(0) - centre
    about = value - centre - mean  # u about its mean is about - (r - centre)
    return mean, (share * about**2 - 2 * about * gain).sum(0) + spread


def check_rounding(rounding: float, threshold: float) -> None:
    """Refuses moments that are not known precisely enough for a threshold of a learner that allows for no rounding.

    Raises:
        PrecisionError: rounding is more than a hundredth of the threshold.
    """
    if PRECISION * rounding > threshold:
        raise PrecisionError(
            f"moments from a device are known up to {rounding:.2g}, and a threshold here is {threshold:.3g}: less "
            f"than {PRECISION} times that. Rounding would decide which functions survive. Leave `device` out, use a larger "
            "epsilon, or use learner='betting', which allows for rounding in its bets."
        )


def check_answers(rounding: float, epsilon: float) -> None:
    """Refuses moments so rough that the numbers of an answer could be off by more than a hundredth of epsilon.

    Raises:
        PrecisionError: `ROUNDINGS` times the rounding is more than that.
    """
    if PRECISION * ROUNDINGS * rounding > epsilon:
        raise PrecisionError(
            f"moments from a device are known up to {rounding:.2g}, so bounds may be off by {ROUNDINGS} times that: "
            f"more than a hundredth of epsilon = {epsilon:g}. The rounding grows with the largest value that the class "
            "declares. Declare a narrower `value_range`, leave `device` out, or use a larger epsilon."
        )


@dataclass(frozen=True, eq=False)
class Steps:
    """How often n episodes did what at one level; observations are listed once.

    Counts are whole numbers, kept as floats because they may pass 2^63. Next observations are listed pair by pair: only
    pairs that occurred have an entry, so observations that never repeat take no more room than the episodes themselves.
    """

    n: int
    x: Observations  # [X, ...] the observations that were made
    visits: Floats  # [X, K] how often each action was taken there
    rewards: Floats  # [X, K] sum of what it earned
    next_x: Observations  # [X', ...] the observations that followed; none where they are not wanted
    pair: Ints  # [entries] where and what: x * K + action
    next: Ints  # [entries] which next observation
    moves: Floats  # [entries] how often

    @classmethod
    def of(
        cls,
        x: Observations,
        actions: Ints,
        rewards: Floats,
        next_x: Observations | None,
        n_actions: int,
        over: tuple[Mask, Mask] | None = None,
    ) -> "Steps":
        """Counts n samples, `[n]` of each. Episodes that are over count in n, and nowhere else.

        Args:
            x: `[n, ...]` what was seen.
            actions: what was done.
            rewards: what that earned.
            next_x: `[n, ...]` what was seen next; None where it is not wanted.
            n_actions: K.
            over: which episodes had ended before this level, and which before the next; None where none ends early.
        """
        n = len(x)
        goes_on = np.ones(n, dtype=bool)
        if over is not None:
            here = ~over[0]
            goes_on = ~over[1][here]
            x, actions, rewards = x[here], actions[here], rewards[here]
            next_x = None if next_x is None else next_x[here]
        rows, row = distinct(x)
        pair = row * n_actions + actions
        shape = (len(rows), n_actions)
        visits = np.bincount(pair, minlength=len(rows) * n_actions).astype(np.float64).reshape(shape)
        earned = np.bincount(pair, weights=rewards, minlength=len(rows) * n_actions).astype(np.float64).reshape(shape)
        if next_x is None:
            return cls(n, rows, visits, earned, x[:0], *no_moves())
        columns, column = distinct(next_x[goes_on])
        moves = counted_pairs(pair[goes_on], column, np.ones(len(column)), len(columns))
        return cls(n, rows, visits, earned, columns, *moves)

    def __add__(self, other: "Steps") -> "Steps":
        K = self.visits.shape[1]
        rows, row = distinct(np.concatenate([self.x, other.x]))
        columns, column = distinct(np.concatenate([self.next_x, other.next_x]))
        visits, rewards = np.zeros((2, len(rows), K))
        for part, place in ((self, row[: len(self.x)]), (other, row[len(self.x) :])):
            visits[place] += part.visits  # the observations of one part are distinct, so no place occurs twice
            rewards[place] += part.rewards
        pairs, nexts = [], []
        for part, first, first_next in ((self, 0, 0), (other, len(self.x), len(self.next_x))):
            pairs.append(row[first + part.pair // K] * K + part.pair % K)
            nexts.append(column[first_next + part.next])
        moves = np.concatenate([self.moves, other.moves])
        entries = counted_pairs(np.concatenate(pairs), np.concatenate(nexts), moves, len(columns))
        return Steps(self.n + other.n, rows, visits, rewards, columns, *entries)


def no_moves() -> tuple[Ints, Ints, Floats]:
    """Returns the entries of next observations that nobody wants."""
    return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)


def counted_pairs(pair: Ints, column: Ints, count: Floats, n_columns: int) -> tuple[Ints, Ints, Floats]:
    """Adds up the counts of equal (pair, column); returns both and the sum, in order."""
    if not len(pair):
        return no_moves()
    keys, place = np.unique(pair * n_columns + column, return_inverse=True)
    return keys // n_columns, keys % n_columns, np.bincount(place, weights=count).astype(np.float64)


def distinct(x: Observations) -> tuple[Observations, Ints]:
    """Returns the distinct observations, and `[n]` which of them each is; equal means equal byte by byte."""
    if x.ndim == 1 and x.dtype.kind in "iu":
        rows, row = np.unique(x, return_inverse=True)
        return rows, row
    plain = np.ascontiguousarray(x).reshape(len(x), math.prod(x.shape[1:]))  # also where there are no rows
    if plain.shape[1] == 0:  # observations that hold nothing are all equal
        return x[:1], np.zeros(len(x), dtype=np.int64)
    keys = plain.view(np.dtype((np.void, plain.dtype.itemsize * plain.shape[1])))[:, 0]
    _, first, row = np.unique(keys, return_index=True, return_inverse=True)
    return x[first], row

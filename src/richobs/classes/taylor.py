"""Taylor models: functions of z in a unit box or ball, to second order, with a remainder that surely holds the rest.

A `Taylor` says f(z) = c + g.z + z'm z + rest, |rest| <= r, for all |z_i| <= 1 (a box) or all |z| <= 1 (a ball). A parameter
of the cell {centre +- width} is c = centre, g_i = width_i. Every operation keeps this true, in float64 too: each adds
ROUNDING times the size of its result to r. docs/models.md, [F2], has the proofs. Shapes: d parameters, q = d(d+1)/2
products z_i z_j with i <= j, and any shape [...] of functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import ArrayLike

from richobs.core.types import Floats, Ints

ROUNDING = 2.0**-48  # of the size of a result: more than the roundings of its c, g, m and r in one operation
SQRT_3 = math.sqrt(3.0)
PEAK = 1 / math.sqrt(2 * math.pi)  # of the normal density


@cache
def pairs(d: int) -> tuple[tuple[int, int], ...]:
    """Returns the q products z_i z_j, i <= j, in the order of `Taylor.m`."""
    return tuple(combinations_with_replacement(range(d), 2))


@dataclass(frozen=True, eq=False)
class Taylor:
    """Functions of z, shapes [...] of them."""

    c: Floats  # [...]
    g: Floats  # [d, ...]
    m: Floats  # [q, ...]
    r: Floats  # [...]
    ball: bool = False  # whether z lies in a ball; else in a box

    @classmethod
    def constant(cls, value: ArrayLike, d: int, ball: bool = False) -> Taylor:
        """Returns constant functions `[...]` of d coordinates."""
        c = np.asarray(value, dtype=np.float64)
        return cls(c, np.zeros((d, *c.shape)), np.zeros((len(pairs(d)), *c.shape)), np.zeros(c.shape), ball)

    @classmethod
    def cells(cls, centre: Floats, width: Floats) -> Taylor:
        """Returns the d parameters `[d, C]` on C cells, each centre +- width, `[d, C]`."""
        d, n = centre.shape
        flat = cls.constant(centre, d)
        slope = np.zeros((d, d, n))
        slope[np.arange(d), np.arange(d)] = width
        return cls(flat.c, slope, flat.m, ROUNDING * (np.abs(centre) + width))

    @classmethod
    def ellipsoid(cls, centre: Floats, axes: Floats) -> Taylor:
        """Returns the d parameters `[d, 1]` on the ellipsoid {centre + axes z : |z| <= 1}, axes `[d, d]`."""
        flat = cls.constant(centre[:, None], len(centre), ball=True)
        size = np.abs(centre) + np.abs(axes).sum(axis=1)
        return cls(flat.c, axes.T[:, :, None].copy(), flat.m, ROUNDING * size[:, None], True)

    def __getitem__(self, index: Ints | int | slice) -> Taylor:
        """Returns some of the functions, chosen along the first axis of [...]."""
        return Taylor(self.c[index], self.g[:, index], self.m[:, index], self.r[index], self.ball)

    @property
    def linear(self) -> Floats:
        """`[...]` the largest |g.z|."""
        return linear_size(self.g, self.ball)

    @property
    def quadratic(self) -> Floats:
        """`[...]` at least the largest |z'm z|."""
        return quadratic_size(self.m, self.ball)

    @property
    def size(self) -> Floats:
        """`[...]` what the roundings of an operation with these functions are relative to."""
        return np.abs(self.c) + self.linear + self.quadratic

    @property
    def low(self) -> Floats:
        """`[...]` at most the smallest value."""
        return -(-self).high

    @property
    def high(self) -> Floats:
        """`[...]` at least the largest value: exact in each coordinate of a box, products of two by their size."""
        if self.ball:
            return self.c + self.linear + self.quadratic + self.r
        g, m = np.abs(self.g), self.m
        own = np.array([i == j for i, j in pairs(len(g))], dtype=bool)
        square, rest = m[own], np.abs(m[~own]).sum(axis=0)
        inside = (square < 0) & (g < -2 * square)  # the vertex of g z + m z^2 lies in [-1, 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            top = np.where(inside, -(g * g) / (4 * square), g + square)
        return self.c + top.sum(axis=0) + rest + self.r

    def __neg__(self) -> Taylor:
        return Taylor(-self.c, -self.g, -self.m, self.r, self.ball)

    def __add__(self, other: Taylor | float) -> Taylor:
        if not isinstance(other, Taylor):
            return _safe(self.c + other, self.g, self.m, self.r, self.ball, self.size)
        sum_ = (self.c + other.c, self.g + other.g, self.m + other.m, self.r + other.r)
        return _safe(*sum_, self.ball, self.size + other.size)

    def __sub__(self, other: Taylor | float) -> Taylor:
        return self + (-other)

    def __mul__(self, other: Taylor | float) -> Taylor:
        if not isinstance(other, Taylor):
            times = (other * self.c, other * self.g, other * self.m, abs(other) * self.r)
            return _safe(*times, self.ball, abs(other) * self.size)
        f, h = self, other
        c, g, m = f.c * h.c, f.c * h.g + h.c * f.g, f.c * h.m + h.c * f.m + products(f.g, h.g)
        fl, fq, hl, hq = f.linear, f.quadratic, h.linear, h.quadratic
        with np.errstate(invalid="ignore"):
            dropped = fl * hq + fq * hl + fq * hq
            rest = f.r * (np.abs(h.c) + hl + hq) + h.r * (np.abs(f.c) + fl + fq) + f.r * h.r
            size = f.size * h.size
        return _safe(c, g, m, dropped + rest, self.ball, size)

    def of(self, value: Floats, first: Floats, second: Floats, third: Floats, more: float = 0.0) -> Taylor:
        """Returns phi(f) for a function phi of one number.

        Args:
            value: `[...]` phi at c.
            first: phi' at c.
            second: phi'' at c.
            third: at least the largest |phi'''| between c and any value of f; infinite where phi is not smooth there.
            more: largest number in the sum that `value` was computed by, where that exceeds it.
        """
        linear, quadratic, r = self.linear, self.quadratic, self.r
        size = linear + quadratic + r  # of y = f - c
        square = 2 * linear * quadratic + quadratic**2 + 2 * (linear + quadratic) * r + r * r  # y^2 - (g.z)^2
        with np.errstate(invalid="ignore", over="ignore"):
            rest = np.abs(first) * r + np.abs(second) / 2 * square + third / 6 * size**3
            whole = more + np.abs(value) + np.abs(first) * size + np.abs(second) * size**2
        m = first * self.m + second / 2 * products(self.g, self.g)
        return _safe(value, first * self.g, m, rest, self.ball, whole)

    def hull(self, low: Floats, high: Floats) -> Taylor:
        """Returns functions of which only ranges are known, in the place of these."""
        c, r = (low + high) / 2, (high - low) / 2
        return _safe(c, np.zeros_like(self.g), np.zeros_like(self.m), r, self.ball, np.abs(low) + np.abs(high))

    def where(self, chosen: np.ndarray, other: Taylor) -> Taylor:
        """Returns these functions where `chosen` `[...]`, and others elsewhere."""
        c, r = np.where(chosen, self.c, other.c), np.where(chosen, self.r, other.r)
        return Taylor(c, np.where(chosen, self.g, other.g), np.where(chosen, self.m, other.m), r, self.ball)


def linear_size(g: Floats, ball: bool) -> Floats:
    """Returns `[...]` the largest |g.z| of linear forms `[d, ...]`."""
    return np.sqrt((g * g).sum(axis=0)) if ball else np.abs(g).sum(axis=0)


def quadratic_size(m: Floats, ball: bool) -> Floats:
    """Returns `[...]` at least the largest |z'm z| of quadratic forms `[q, ...]`: the Frobenius norm in a ball."""
    if not ball:
        return np.abs(m).sum(axis=0)
    d = round((math.sqrt(8 * len(m) + 1) - 1) / 2)
    weight = np.array([1.0 if i == j else 0.5 for i, j in pairs(d)])
    return np.sqrt(np.tensordot(weight, m * m, axes=1))


def quadratic_above(m: Floats, ball: bool) -> Floats:
    """Returns `[...]` at least the largest z'm z of quadratic forms `[q, ...]`."""
    if ball:
        return quadratic_size(m, ball)
    d = round((math.sqrt(8 * len(m) + 1) - 1) / 2)
    return np.asarray(sum(np.maximum(x, 0.0) if i == j else np.abs(x) for x, (i, j) in zip(m, pairs(d), strict=True)))


def products(f: Floats, h: Floats) -> Floats:
    """Returns `[q, ...]` the quadratic form (f.z)(h.z) of two linear ones `[d, ...]`."""
    return np.stack([f[i] * h[i] if i == j else f[i] * h[j] + f[j] * h[i] for i, j in pairs(len(f))])


def _safe(c: Floats, g: Floats, m: Floats, r: Floats, ball: bool, size: Floats) -> Taylor:
    """Returns functions with the rounding of the operation in r; where a number is not finite, nothing is known of them."""
    with np.errstate(invalid="ignore", over="ignore"):
        r = r + ROUNDING * (size + r)
    bad = ~np.isfinite(r)
    if not bad.any():
        return Taylor(c, g, m, r, ball)
    r = np.where(bad, np.inf, r)
    return Taylor(np.where(bad, 0.0, c), np.where(bad, 0.0, g), np.where(bad, 0.0, m), r, ball)


# Functions of one number: each takes Taylor models, or plain numbers at which it is only evaluated.


def exp(f: Taylor) -> Taylor:
    """Returns e^f."""
    with np.errstate(over="ignore"):
        value = np.exp(f.c)
        return f.of(value, value, value, np.exp(f.high))


def log(f: Taylor) -> Taylor:
    """Returns the natural logarithm; nothing is known of it where f may be 0 or less."""
    low, c = f.low, np.where(f.c > 0, f.c, 1.0)
    third = np.where(low > 0, 2 / np.where(low > 0, low, 1.0) ** 3, np.inf)
    return f.of(np.log(c), 1 / c, -1 / (c * c), third)


def power(f: Taylor, p: float) -> Taylor:
    """Returns f^p; for a p that is not 0, 1, 2, ... nothing is known of it where f may be 0 or less."""
    low, high = f.low, f.high
    factor = abs(p * (p - 1) * (p - 2))
    if p == int(p) and p >= 0:
        c, largest = f.c, np.maximum(np.abs(low), np.abs(high))
        third = factor * largest ** (p - 3) if factor else np.zeros_like(f.c)
        slopes = [a * c**b if a else np.zeros_like(c) for a, b in ((p, p - 1), (p * (p - 1), p - 2))]
        return f.of(c**p, slopes[0], slopes[1], third)
    c, safe = np.where(f.c > 0, f.c, 1.0), np.where(low > 0, low, 1.0)
    third = factor * np.maximum(safe ** (p - 3), np.where(low > 0, high, 1.0) ** (p - 3))
    return f.of(c**p, p * c ** (p - 1), p * (p - 1) * c ** (p - 2), np.where(low > 0, third, np.inf))


def sqrt(f: Taylor) -> Taylor:
    """Returns the square root; where f may be 0 only its range is kept, and a negative f counts as 0."""
    low, high = np.sqrt(np.maximum(f.low, 0.0)), np.sqrt(np.maximum(f.high, 0.0))
    return power(f, 0.5).where(f.low > 0, f.hull(low, high))


def larger(f: Taylor, h: Taylor) -> Taylor:
    """Returns max(f, h); where neither is the larger one everywhere, only its range is kept."""
    gap = f - h
    hull = f.hull(np.maximum(f.low, h.low), np.maximum(f.high, h.high))
    return f.where(gap.low >= 0, h.where(gap.high <= 0, hull))


_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def normal(x: Floats) -> Floats:
    """Returns the distribution function of the standard normal law."""
    return np.asarray(0.5 * _erfc(-np.asarray(x) / math.sqrt(2)))


def phi(f: Taylor) -> Taylor:
    """Returns the standard normal distribution function of f."""
    density = PEAK * np.exp(-f.c * f.c / 2)
    low, high = f.low, f.high
    ends = np.stack([low, high, *(np.clip(x, low, high) for x in (0.0, SQRT_3, -SQRT_3))])  # where |phi'''| is largest
    with np.errstate(invalid="ignore"):
        third = (np.abs(ends * ends - 1) * PEAK * np.exp(-ends * ends / 2)).max(axis=0)
    return f.of(normal(f.c), density, -f.c * density, np.where(np.isfinite(high - low), third, PEAK))


Law = Callable[[Floats, int, int], Floats]  # (parameter, k, r) -> the probability of k, as the r-th derivative has it


def poisson_law(rate: Floats, k: int, r: int = 0) -> Floats:
    """Returns the probability of k by a Poisson law; 0 for a negative k."""
    if k < 0:
        return np.zeros_like(rate)
    with np.errstate(divide="ignore"):
        return np.asarray(np.exp((k * np.log(rate) if k else 0.0) - rate - math.lgamma(k + 1)))


def binomial_law(n: int) -> Law:
    """Returns the law of the number of successes in n - r trials, times n (n - 1) ... (n - r + 1)."""

    def law(p: Floats, k: int, r: int = 0) -> Floats:
        trials = n - r
        if not 0 <= k <= trials:
            return np.zeros_like(p)
        return np.asarray(math.perm(n, r) * math.comb(trials, k) * p**k * (1 - p) ** (trials - k))

    return law


def chance(
    f: Taylor, k: int, law: Law, peak: Callable[[int, int], float], tail: bool = False, most: float = math.inf
) -> Taylor:
    """Returns the probability of k, or of k and all larger numbers, by a law whose parameter is f.

    The derivative of the probability of k is that of k - 1 less that of k, and the derivative of the tail from k is the
    probability of k - 1. So every derivative is a difference of probabilities, whose largest values bound the third one.

    Args:
        f: the rate of a Poisson law, or the probability of a binomial one; other values of it do not count.
        k: the number.
        law: its probability.
        peak: where the probability of (k, r) is largest; it rises before that and falls after it.
        tail: add all larger numbers.
        most: largest parameter; nothing is known where the middle of f lies above it.
    """
    c = np.maximum(f.c, 0.0)
    low, high = np.maximum(f.low, 0.0), np.maximum(f.high, 0.0)

    def terms(r: int, at: Callable[[int], Floats]) -> list[Floats]:
        """Returns the terms of the r-th derivative; `at(j)` says with which parameter that of j is evaluated."""
        n, first = (r - 1, k - 1) if tail else (r, k)
        return [(-1) ** (n - j) * math.comb(n, j) * law(at(first - j), first - j, r) for j in range(n + 1)]

    def derivative(r: int) -> Floats:
        return np.asarray(sum(terms(r, lambda j: c), np.zeros_like(c)))

    third = np.asarray(sum((np.abs(t) for t in terms(3, lambda j: np.clip(peak(j, 3), low, high))), np.zeros_like(c)))
    third = np.where((f.c >= 0) & (f.c <= most) & np.isfinite(high), third, np.inf)
    value = 1 - sum((law(c, j, 0) for j in range(k)), np.zeros_like(c)) if tail else derivative(0)
    return f.of(value, derivative(1), derivative(2), third, 1.0 if tail else 0.0)


def poisson(f: Taylor, k: int, tail: bool = False) -> Taylor:
    """Returns the probability of k by a Poisson law of rate f, or of k and all larger numbers."""
    return chance(f, k, poisson_law, lambda j, r: float(max(j, 0)), tail)


def binomial(f: Taylor, k: int, n: int) -> Taylor:
    """Returns the probability of k successes in n trials, each of probability f."""
    return chance(f, k, binomial_law(n), lambda j, r: min(max(j, 0) / max(n - r, 1), 1.0), most=1.0)


def reciprocal(f: Taylor) -> Taylor:
    """Returns 1 / f; nothing is known of it where f may be 0."""
    return power(f, -1.0).where(f.low > 0, -power(-f, -1.0))

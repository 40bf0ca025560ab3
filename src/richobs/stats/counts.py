"""Multinomial counts for any number of trials, at a cost that does not depend on it.

NumPy's binomial sampler accepts or rejects with terms of size n rounded in float64: it is right to about 2e-7 at n = 2^31
and useless beyond 2^53. Larger n are split exactly. Of n uniform numbers, the i-th smallest is Beta(i, n + 1 - i); once it
is drawn, those below and those above it are uniform again. Taking i = np brings it so close to p that about sqrt(n)
numbers are left in doubt, and three or four such steps leave few enough for a direct draw.

What is exact: the law of the counts, up to 1e-9 in total variation per draw (a Poisson count stands in for a binomial one
whose success probability is below 1e-9) and up to the rounding of probabilities to float64, which at n = 10^21 moves a
count by a few millionths of its standard deviation. Sums of counts are exact integers.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from richobs.core.types import Floats

Counts = NDArray[Any]  # integers: int64, or Python's own (dtype object) where they may exceed it

DIRECT = 2**31  # trials that NumPy's own sampler handles
RARE = 1e-9  # success probability below which a Poisson count is as good
MANY = 1e6  # expected successes up to which NumPy's Poisson sampler is right to 1e-9


def binomial(n: Counts, p: Floats, rng: np.random.Generator) -> Counts:
    """Returns successes among `n` trials of probability `p`, elementwise for equal shapes."""
    n, p = np.asarray(n), np.asarray(p, dtype=np.float64)
    if n.dtype != object and (n.size == 0 or n.max() <= DIRECT):
        return rng.binomial(n.astype(np.int64), p)
    shape = n.shape
    n, p = n.ravel().copy(), np.clip(p, 0.0, 1.0).ravel().copy()
    result = np.zeros_like(n)
    sign = np.ones(len(n), dtype=np.int64)  # -1 where failures are being counted instead
    open_ = np.arange(len(n))
    while len(open_):
        flip = p[open_] > 0.5
        turned = open_[flip]
        result[turned] += sign[turned] * n[turned]
        sign[turned] *= -1
        p[turned] = 1 - p[turned]
        trials, chance = n[open_].astype(np.float64), p[open_]
        direct = trials <= DIRECT
        rare = ~direct & (chance <= RARE) & (trials * chance <= MANY)
        for mine, draw in ((direct, _direct), (rare, _poisson)):
            which = open_[mine]
            if len(which):
                result[which] += sign[which] * draw(n[which], p[which], rng)
        open_ = open_[~(direct | rare)]
        if len(open_):
            _split(open_, n, p, sign, result, rng)
    return result.reshape(shape)


def _direct(n: Counts, p: Floats, rng: np.random.Generator) -> Counts:
    return rng.binomial(n.astype(np.int64), p)


def _poisson(n: Counts, p: Floats, rng: np.random.Generator) -> Counts:
    return rng.poisson(n.astype(np.float64) * p)


def _split(
    open_: NDArray[np.int64], n: Counts, p: Floats, sign: Counts, result: Counts, rng: np.random.Generator
) -> None:
    """Draws the i-th smallest of n uniform numbers, i about np, and keeps only the trials it leaves in doubt."""
    trials = n[open_]
    i = np.array(
        [min(max(int(q * t), 1), int(t)) for q, t in zip(p[open_].tolist(), trials, strict=True)], dtype=n.dtype
    )
    pivot = rng.beta(i.astype(np.float64), (trials + 1 - i).astype(np.float64))
    below = pivot <= p[open_]
    low, high = open_[below], open_[~below]
    result[low] += sign[low] * i[below]
    n[low] = trials[below] - i[below]
    p[low] = (p[low] - pivot[below]) / (1 - pivot[below])
    n[high] = i[~below] - 1
    p[high] = p[high] / pivot[~below]


def multinomial(n: Counts, probs: Floats, rng: np.random.Generator) -> Counts:
    """Returns counts `[..., C]` of `n` `[...]` trials over the last axis of `probs` `[..., C]`, by halving the cells."""
    n, probs = np.asarray(n), np.asarray(probs, dtype=np.float64)
    if n.dtype != object and (n.size == 0 or n.max() <= DIRECT):
        return rng.multinomial(n.astype(np.int64), np.minimum(probs, 1))  # products of laws may round to 1 + 2e-16
    cells = probs.shape[-1]
    depth = max(cells - 1, 0).bit_length()
    padded = np.zeros((*n.shape, 2**depth))
    padded[..., :cells] = probs
    sums = [padded]
    for _ in range(depth):
        sums.append(sums[-1].reshape(*n.shape, -1, 2).sum(axis=-1))
    counts = n[..., None]
    for below, whole in zip(sums[-2::-1], sums[::-1], strict=False):
        left, right = below[..., ::2], below[..., 1::2]
        rarer = np.minimum(left, right)  # of two halves the rarer is drawn: 1 - 1e-17 would round to 1
        drawn = binomial(counts, np.divide(rarer, whole, out=np.zeros_like(left), where=whole > 0), rng)
        first = np.where(left <= right, drawn, counts - drawn)
        counts = np.stack([first, counts - first], axis=-1).reshape(*n.shape, -1)
    return counts[..., :cells]


def as_counts(n: int) -> Counts:
    """Returns `n` as an array that sums of it fit into."""
    return np.array(n, dtype=np.int64 if n < 2**62 else object)

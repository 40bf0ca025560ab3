"""Which things are equal: groups of places with equal keys or equal rows."""

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIRST_ROWS = 16  # that are looked at first, where all may be equal
BLOCK = 1 << 17  # numbers that are hashed at once
SHIFT = np.uint64(32)  # brings the leading bits of a number down, where a product keeps them
MOST_FLAGS = 1 << 24  # keys below this are marked in a table; larger ones are sorted
FLAGS_A_KEY = 64  # and so are few keys: a table of more entries for each of them takes longer than sorting


def row_bytes(rows: NDArray[Any]) -> list[bytes]:
    """Returns the bytes of each row of `[n, ...]`."""
    whole, n = rows.tobytes(), len(rows)
    size = len(whole) // n if n else 0
    return [whole[i * size : (i + 1) * size] for i in range(n)]


def numbered(keys: NDArray[np.int64], below: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the distinct keys in order, and `[n]` which of them each is; all keys lie in [0, below)."""
    if below > min(MOST_FLAGS, FLAGS_A_KEY * len(keys)):
        distinct, place = np.unique(keys, return_inverse=True)
        return distinct, place
    used = np.zeros(below, dtype=bool)
    used[keys] = True
    distinct = used.nonzero()[0]
    place = np.empty(below, dtype=np.int64)
    place[distinct] = np.arange(len(distinct))
    return distinct, place[keys]


def kinds(*columns: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Groups places at which all columns `[n]` agree; returns one place of each group, and `[n]` the group of each."""
    order = np.lexsort(columns)
    starts = np.ones(len(order), dtype=bool)
    starts[1:] = np.logical_or.reduce([c[order[1:]] != c[order[:-1]] for c in columns])
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.cumsum(starts) - 1
    return order[starts], group


def equal_rows(rows: NDArray[np.float64] | NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Groups equal rows of `[m, n]`; returns the place of one of each group, and `[m]` the group of each.

    Rows are of 8 n bytes, or of n bytes where 8 divides n. They are told apart by a hash, and compared with that one. Where
    two different rows have one hash, all are sorted instead; no two rows of 8 bytes have one.
    """
    m, n = rows.shape
    if m == 1 or n == 0:
        return np.zeros(1, dtype=np.int64), np.zeros(m, dtype=np.int64)
    words = (rows if rows.dtype == np.uint8 else rows + 0.0).view(np.uint64)  # -0.0 becomes 0.0
    some = words[:FIRST_ROWS]
    if some.tobytes() == some[0].tobytes() * len(some) and (m <= FIRST_ROWS or (words == words[0]).all()):
        return np.zeros(1, dtype=np.int64), np.zeros(m, dtype=np.int64)
    weights = _weights(words.shape[1])
    step = max(1, BLOCK // n)
    blocks = [slice(i, i + step) for i in range(0, m, step)]
    if len(weights) == 1:
        hashes = ((words ^ (words >> SHIFT)) * weights)[:, 0]
    else:
        hashes = np.concatenate([(words[b] ^ (words[b] >> SHIFT)) @ weights for b in blocks])
    order = hashes.argsort()
    ordered = hashes[order]
    starts, group = np.zeros(m, dtype=bool), np.empty(m, dtype=np.int64)
    np.not_equal(ordered[1:], ordered[:-1], out=starts[1:])
    group[order] = starts.cumsum()
    starts[0] = True
    first = order[starts]
    is_one_to_one = len(weights) == 1 and int(weights[0]) % 2 == 1  # a product with an odd number, after a shift
    same = is_one_to_one or all((words[b] == words[first[group[b]]]).all() for b in blocks)
    return (first, group) if same else kinds(*rows.T)


@functools.cache
def _weights(n: int) -> NDArray[np.uint64]:
    """Returns `[n]` odd numbers that look random."""
    return np.random.default_rng(n).integers(1 << 62, size=n, dtype=np.uint64) * np.uint64(2) + np.uint64(1)

"""Which things are equal: groups of places with equal keys or equal rows."""

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIRST_ROWS = 16  # that are looked at first, where all may be equal
BLOCK = 1 << 17  # numbers that are hashed at once
SHIFT = np.uint64(32)  # brings the leading bits of a number down, where a product keeps them
MOST_FLAGS = 1 << 24  # keys below this are marked in a table; larger ones are sorted
MANY_ROWS = 1 << 10  # from which on hashes are looked up in a table instead of sorted
SLOTS_A_ROW = 8  # of that table
FLAGS_A_KEY = 64  # and so are few keys: a table of more entries for each of them takes longer than sorting


def row_bytes(rows: NDArray[Any]) -> list[bytes]:
    """Returns the bytes of each row of `[n, ...]`."""
    whole, n = rows.tobytes(), len(rows)
    size = len(whole) // n if n else 0
    return [whole[i * size : (i + 1) * size] for i in range(n)]


def numbered(keys: NDArray[np.int64], below: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the distinct keys in order, and `[n]` which of them each is; all keys lie in [0, below)."""
    if are_sparse(keys, below):
        distinct, place = np.unique(keys, return_inverse=True)
        return distinct, place
    used = np.zeros(below, dtype=bool)
    used[keys] = True
    distinct = used.nonzero()[0]
    place = np.empty(below, dtype=np.int64)
    place[distinct] = np.arange(len(distinct))
    return distinct, place[keys]


def equal_keys(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Groups equal keys `[n]`, none below 0; returns the place of one of each group, and `[n]` the group of each."""
    return _equal_hashes(keys.astype(np.uint64) * _weights(1))  # an odd weight: no two keys have one product


def are_sparse(keys: NDArray[np.int64], below: int) -> bool:
    """Whether a table of all possible keys takes longer than looking at those that there are."""
    return below > min(MOST_FLAGS, FLAGS_A_KEY * len(keys))


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
    if words.shape[1] == 1 and m <= MANY_ROWS:
        return _in_order(words[:, 0])
    weights = _weights(words.shape[1])
    step = max(1, BLOCK // n)
    blocks = [slice(i, i + step) for i in range(0, m, step)]
    if len(weights) == 1:
        hashes = ((words ^ (words >> SHIFT)) * weights)[:, 0]
    else:
        hashes = np.concatenate([(words[b] ^ (words[b] >> SHIFT)) @ weights for b in blocks])
    first, group = _equal_hashes(hashes) if m > MANY_ROWS else _in_order(hashes)
    is_one_to_one = len(weights) == 1 and int(weights[0]) % 2 == 1  # a product with an odd number, after a shift
    if is_one_to_one:
        return first, group
    one = first[group]
    others = (one != np.arange(m)).nonzero()[0]
    parts = (others[b] for b in blocks)
    same = all(np.array_equal(words.take(some, axis=0), words.take(one[some], axis=0)) for some in parts)
    return (first, group) if same else kinds(*rows.T)


def _in_order(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Groups equal keys `[m]` by sorting them; returns the place of one of each group, and `[m]` the group of each."""
    order = keys.argsort()
    ordered = keys[order]
    starts, group = np.zeros(len(keys), dtype=bool), np.empty(len(keys), dtype=np.int64)
    np.not_equal(ordered[1:], ordered[:-1], out=starts[1:])
    group[order] = starts.cumsum()
    starts[0] = True
    return order[starts], group


def _equal_hashes(hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """As `_in_order`, faster where there are many: a table holds one place for each value of the leading bits."""
    m = len(hashes)
    bits = max(1, (SLOTS_A_ROW * m).bit_length())
    slot = (hashes >> np.uint64(64 - bits)).astype(np.int64)
    table = np.empty(1 << bits, dtype=np.int32 if m < 1 << 31 else np.int64)
    table[slot] = np.arange(m)
    one = table[slot].astype(np.int64)  # with the same leading bits
    others = (hashes[one] != hashes).nonzero()[0]
    if len(others):  # all rows of a hash that is not in the table
        first, group = _in_order(hashes[others])
        one[others] = others[first[group]]
    return numbered(one, m)


@functools.lru_cache(32)  # few lengths come again and again; long ones would fill the memory
def _weights(n: int) -> NDArray[np.uint64]:
    """Returns `[n]` odd numbers that look random."""
    return np.random.default_rng(n).integers(1 << 62, size=n, dtype=np.uint64) * np.uint64(2) + np.uint64(1)

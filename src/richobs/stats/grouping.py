"""Which things are equal: groups of places with equal keys or equal rows."""

import numpy as np
from numpy.typing import NDArray

MOST_FLAGS = 1 << 24  # keys below this are marked in a table; larger ones are sorted
FLAGS_A_KEY = 64  # and so are few keys: a table of more entries for each of them takes longer than sorting


def numbered(keys: NDArray[np.int64], below: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the distinct keys in order, and `[n]` which of them each is; all keys lie in [0, below)."""
    if below > min(MOST_FLAGS, FLAGS_A_KEY * len(keys)):
        distinct, place = np.unique(keys, return_inverse=True)
        return distinct, place
    used = np.zeros(below, dtype=bool)
    used[keys] = True
    distinct = np.flatnonzero(used)
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

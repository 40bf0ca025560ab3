"""Tables: functions on finitely many observations, listed value by value."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from richobs.codebook import Codebook
from richobs.errors import InvalidInput
from richobs.functions.layered import Listed, checked_members
from richobs.problem import Floats, Ints, Observations


class TableLevel:
    """The functions of one level as a `[N, X, K]` array."""

    def __init__(self, tables: ArrayLike, codebook: Codebook | None = None):
        """Checks and keeps the tables.

        Args:
            tables: `[N, X, K]` values in [0, 1].
            codebook: the X observations; by default an observation is its own number.
        """
        array = np.asarray(tables, dtype=np.float64)
        if array.ndim != 3 or 0 in array.shape:
            raise InvalidInput(f"tables must be [N, X, K] with every size at least 1; got shape {array.shape}.")
        bad = ~((array >= 0) & (array <= 1))  # NaN included
        if bad.any():
            n, x, a = np.unravel_index(int(bad.argmax()), array.shape)
            raise InvalidInput(
                f"function {n} has value {array[n, x, a]} at observation {x}, action {a}; values must lie in [0, 1]."
            )
        if codebook is not None and len(codebook) != array.shape[1]:
            raise InvalidInput(f"the tables have {array.shape[1]} observations and the codebook {len(codebook)}.")
        self.tables = array
        self.codebook = Codebook(np.arange(array.shape[1])) if codebook is None else codebook

    @property
    def size(self) -> int:
        """Number of functions."""
        return self.tables.shape[0]

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        return self.tables.shape[2]

    def values(self, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all functions, or of those listed in `members`."""
        rows = self.codebook.encode(x)
        return (self.tables if members is None else self.tables[checked_members(members, self.size)])[:, rows]

    def top_bounds(self) -> tuple[Floats, Floats]:
        """Returns `[N]` the smallest and the largest value that max_a f(x, a) takes."""
        top = self.tables.max(axis=2)
        return top.min(axis=1), top.max(axis=1)


class Tables(Listed):
    """N functions given by their tables: function i uses table i at every level."""

    def __init__(
        self,
        tables: Sequence[ArrayLike] | NDArray[Any],
        horizon: int | None = None,
        codebooks: Sequence[Codebook] | None = None,
    ):
        """Checks and keeps the tables.

        Args:
            tables: `[N, X, K]` values in [0, 1], the same at all of `horizon` levels; or one such array per level.
            horizon: number of levels, where one array serves them all.
            codebooks: the observations of each level; by default an observation is its own number.
        """
        if horizon is not None:
            tables = [np.asarray(tables)] * horizon
        levels = []
        for h, t in enumerate(tables):
            if np.ndim(t) != 3:
                raise InvalidInput(
                    f"level {h}: tables must be [N, X, K], got shape {np.shape(t)}. One array for all levels needs "
                    "`horizon`."
                )
            levels.append(TableLevel(t, None if codebooks is None else codebooks[h]))
        super().__init__(levels)


def copies_around(truth: Floats, size: int, rng: np.random.Generator) -> tuple[Floats, int]:
    """Hides a table among permuted and perturbed copies so that the tables alone do not tell which one it is.

    Half of the copies have their observations and actions permuted at random, as the truth itself might have been: any of
    them could be it. The other half are such copies moved by noise. All stay in [0, 1]. Copies may equal the truth where
    it has symmetries (a class with Q* twice is still realizable).

    Args:
        truth: `[X, K]` the table to hide.
        size: how many tables to return, the truth included.
        rng: where the copies come from.

    Returns:
        `[size, X, K]` the tables in random order, and the place of the truth among them.
    """
    if size < 1:
        raise InvalidInput(f"a class needs at least one function; asked for {size}.")
    n_observations, n_actions = truth.shape
    tables = np.repeat(truth[None], size, axis=0)
    for i in range(1, size):
        tables[i] = truth[rng.permutation(n_observations)][:, rng.permutation(n_actions)]
    noisy = slice((size + 1) // 2, None)
    tables[noisy] = np.clip(tables[noisy] + rng.normal(0, 0.2, tables[noisy].shape), 0, 1)
    order = rng.permutation(size)
    return tables[order], int(np.flatnonzero(order == 0)[0])

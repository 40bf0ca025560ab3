"""Tables: functions on finitely many observations, listed value by value."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from richobs.classes.base import Arrays, LevelClass, checked_members
from richobs.classes.codecs import codec
from richobs.classes.layered import Listed
from richobs.core.codebook import Codebook
from richobs.core.errors import InvalidInput
from richobs.core.types import Floats, Ints, Observations


@codec
class TableLevel(LevelClass):
    """The functions of one level as a `[N, X, K]` array."""

    values_are_checked = True

    code = "table"

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
    def observation_ndim(self) -> int:
        """Number of axes of one observation: that of a row of the codebook."""
        return self.codebook.rows.ndim - 1

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        return self.tables.shape[2]

    def values(self, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all functions, or of those listed in `members`."""
        rows = self.codebook.encode(x)
        return (self.tables if members is None else self.tables[checked_members(members, self.size)])[:, rows]

    def value_bounds(self) -> tuple[Floats, Floats]:
        """Returns `[N]` the smallest and `[N]` the largest value that max_a f(x, a) takes."""
        top = self.tables.max(axis=2)
        return top.min(axis=1), top.max(axis=1)

    def singleton(self, member: int, /) -> "TableLevel":
        """Returns the class that holds one of these tables."""
        return TableLevel(self.tables[checked_members(np.array([member]), self.size)], self.codebook)

    def to_arrays(self) -> Arrays:
        """Returns `tables` `[N, X, K]`, and `codebook` `[X, ...]` where an observation is not its own number."""
        return {"tables": self.tables, **({} if self.codebook.is_plain else {"codebook": self.codebook.rows})}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the class that `to_arrays` took apart."""
        return cls(arrays["tables"], Codebook(arrays["codebook"]) if "codebook" in arrays else None)


class Tables(Listed):
    """N functions given by their tables: function i uses table i of every level."""

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

    Half of the copies are the truth with observations and actions permuted at random. The other half are such copies with
    noise added. All values stay in [0, 1]. A copy may equal the truth where the truth has symmetries; a class that holds
    Q* twice is still realizable.

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

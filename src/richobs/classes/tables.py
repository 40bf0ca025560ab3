"""Tables: functions on finitely many observations, listed value by value, and constants, which ignore the observation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from richobs.classes.base import (
    UNIT,
    Arrays,
    LevelClass,
    checked_members,
    codec,
    range_arrays,
    range_from,
    range_words,
)
from richobs.classes.layered import Listed
from richobs.core.arguments import LEVELS, real_array, refuse_unusable, whole_number
from richobs.core.environment import checked_range
from richobs.core.errors import InvalidInput
from richobs.core.functions import reduced
from richobs.core.process import Codebook
from richobs.core.types import Floats, Ints, Observations
from richobs.stats import grouping
from richobs.stats.bets import ZETA

BLOCK = 16_384  # tables that are converted at once
FEW_VALUES = 1 << 12  # members times observations up to which `rows` looks at all of them


@codec
class TableLevel(LevelClass):
    """The functions of one level as a `[N, X, K]` array.

    An array of float32 is kept as it is, which takes half of the memory; `values` returns the same numbers as float64.
    Everything else is kept as float64. An array of either type is not copied, so it must not be changed afterwards.
    """

    values_are_checked = True

    code = "table"

    @refuse_unusable
    def __init__(self, tables: ArrayLike, codebook: Codebook | None = None, *, value_range: tuple[float, float] = UNIT):
        """Checks and keeps the tables.

        Args:
            tables: `[N, X, K]` values in `value_range`.
            codebook: the X observations; by default an observation is its own number.
            value_range: smallest and largest value that a table may hold.
        """
        given = np.asarray(tables)
        array: NDArray[Any] = given if given.dtype == np.float32 else real_array(given)
        if array.ndim != 3 or 0 in array.shape:
            raise InvalidInput(f"tables must be [N, X, K] with every size at least 1; got shape {array.shape}.")
        self.value_range = low, high = checked_range("value_range", value_range)
        if not (float(array.min()) >= low and float(array.max()) <= high):  # NaN included; no array of bits is made
            bad = ~((array.astype(np.float64) >= low) & (array.astype(np.float64) <= high))
            n, x, a = np.unravel_index(int(bad.argmax()), array.shape)
            raise InvalidInput(
                f"function {n} has value {array[n, x, a]} at observation {x}, action {a}; values must lie in "
                f"{range_words(self.value_range)}."
            )
        if codebook is not None and len(codebook) != array.shape[1]:
            raise InvalidInput(f"the tables have {array.shape[1]} observations and the codebook {len(codebook)}.")
        self.tables = array
        self.size, self.n_actions = array.shape[0], array.shape[2]
        self.codebook = Codebook(np.arange(array.shape[1])) if codebook is None else codebook

    @property
    def observation_ndim(self) -> int:
        """Number of axes of one observation: that of a row of the codebook."""
        return self.codebook.rows.ndim - 1

    def values(self, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all functions, or of those listed in `members`."""
        rows, chosen = self.codebook.encode(x), checked_members(members, self.size)
        if len(chosen) <= BLOCK:
            return self._at(chosen, rows).astype(np.float64, copy=False)
        result = np.empty((len(chosen), len(rows), self.n_actions))
        for first in range(0, len(chosen), BLOCK):  # so that no second array of all values is needed
            result[first : first + BLOCK] = self._at(chosen[first : first + BLOCK], rows)
        return result

    def _at(self, members: Ints, rows: Ints) -> NDArray[Any]:
        """Returns `[m, n, K]` the values of members `[m]` at rows `[n]` of the codebook, row by row in memory."""
        if not self.tables.flags.c_contiguous:
            return self.tables[members][:, rows]
        _, X, K = self.tables.shape
        return self.tables.reshape(-1, K).take(rows[:, None] + members * X, axis=0).swapaxes(0, 1)

    def rows(self, x: Observations, members: Ints, actions: Ints | None = None, /) -> tuple[Floats, Ints] | None:
        """Returns `[G, n]` the distinct rows of f(x, a), or of max_a f(x, a), and `[N]` which of them each member has.

        None where there are many values, since equal observations are then looked at once; and where one is not a number in
        the range, because the array was changed: whoever reads `values` is told so.
        """
        if len(members) * len(x) > FEW_VALUES:
            return None
        rows, chosen = self.codebook.encode(x), checked_members(members, self.size)
        if actions is None:
            found = reduced(np.maximum, self._at(chosen, rows))
        else:
            found = self.tables[chosen[:, None], rows, actions]
        found, (low, high) = found.astype(np.float64, copy=False), self.value_range
        if not (found.min(initial=high) >= low and found.max(initial=low) <= high):
            return None
        first, group = grouping.equal_rows(found)
        return found[first], group

    def value_bounds(self) -> tuple[Floats, Floats]:
        """Returns `[N]` the smallest and `[N]` the largest value that max_a f(x, a) takes."""
        top = reduced(np.maximum, self.tables)
        return reduced(np.minimum, top).astype(np.float64), reduced(np.maximum, top).astype(np.float64)

    def singleton(self, member: int, /) -> TableLevel:
        """Returns the class that holds one of these tables."""
        one = checked_members(np.array([member]), self.size)
        return TableLevel(self.tables[one], self.codebook, value_range=self.value_range)

    def to_arrays(self) -> Arrays:
        """Returns `tables` `[N, X, K]`, and where they are not the usual, `codebook` `[X, ...]` and `value_range`."""
        codebook = {} if self.codebook.is_plain else {"codebook": self.codebook.rows}
        return {"tables": self.tables, **codebook, **range_arrays(self.value_range)}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the class that `to_arrays` took apart."""
        codebook = Codebook(arrays["codebook"]) if "codebook" in arrays else None
        return cls(arrays["tables"], codebook, value_range=range_from(arrays))


@codec
class Constants(LevelClass):
    """Functions whose values depend on the action alone; their greedy policies play one action whatever they see."""

    values_are_checked = True

    code = "constant"

    @refuse_unusable
    def __init__(self, table: ArrayLike):
        """Takes `[N, K]` the value of each action under each function, in [0, 1]."""
        self.table = real_array(table)
        if self.table.ndim != 2 or 0 in self.table.shape:
            raise InvalidInput(f"constants must be [N, K] with every size at least 1; got shape {self.table.shape}.")
        bad = ~((self.table >= 0) & (self.table <= 1))  # NaN included
        if bad.any():
            n, a = np.unravel_index(int(bad.argmax()), bad.shape)
            raise InvalidInput(f"function {n} has value {self.table[n, a]} at action {a}; values must lie in [0, 1].")
        self.size, self.n_actions = self.table.shape

    def values(self, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all functions, or of those listed in `members`."""
        return np.repeat(self.table[checked_members(members, self.size)][:, None, :], len(x), axis=1)

    def kinds(self, members: Ints, action: int, /) -> tuple[Ints, Ints]:
        """Groups members that agree on `action` and on max_a f.

        Returns:
            One member of each group, and `[len(members)]` the group of each.
        """
        chosen = self.table[members]
        place, group = grouping.kinds(chosen[:, action], chosen.max(axis=1))
        return members[place], group

    def value_bounds(self) -> tuple[Floats, Floats]:
        """Returns `[N]` max_a f twice: it is the same at every x."""
        best = self.table.max(axis=1)
        return best, best

    def reads(self, member: int, rotation: Floats | None, /) -> tuple[int, ...] | None:
        """Returns (): no coordinate is looked at."""
        return ()

    def singleton(self, member: int, /) -> Constants:
        """Returns the class that holds one of these functions."""
        return Constants(self.table[checked_members(np.array([member]), self.size)])

    def to_arrays(self) -> Arrays:
        """Returns `values` `[N, K]`."""
        return {"values": self.table}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the class that `to_arrays` took apart."""
        return cls(arrays["values"])


class Tables(Listed):
    """N functions given by their tables: function i uses table i of every level."""

    @refuse_unusable
    def __init__(
        self,
        tables: Iterable[ArrayLike] | NDArray[Any],
        horizon: int | None = None,
        codebooks: Sequence[Codebook] | None = None,
        *,
        value_range: tuple[float, float] = UNIT,
        single_precision: bool = False,
    ):
        """Checks and keeps the tables.

        Args:
            tables: `[N, X, K]` values in `value_range`, the same at all of `horizon` levels; or one such array per level.
                Levels may come from a generator, one at a time.
            horizon: number of levels, where one array serves them all.
            codebooks: the observations of each level; by default an observation is its own number.
            value_range: smallest and largest value that a table may hold.
            single_precision: keep float32, half of the memory. It is refused where rounding changes a value by more than
                half of the error that the betting search declares (`richobs.stats.bets.ZETA`). Other learners do not
                account for the rounding.
        """
        if horizon is not None:
            horizon = whole_number("Tables: horizon", horizon, most=LEVELS)
            every: NDArray[Any] = np.asarray(tables)
            tables = [in_single_precision(every) if single_precision else every] * horizon
        levels: list[TableLevel] = []
        for t in tables:
            h = len(levels)
            if np.ndim(t) != 3:
                raise InvalidInput(
                    f"level {h}: tables must be [N, X, K], got shape {np.shape(t)}. One array for all levels needs "
                    "`horizon`."
                )
            kept = in_single_precision(t) if single_precision else t
            levels.append(TableLevel(kept, None if codebooks is None else codebooks[h], value_range=value_range))
            del t, kept  # no float64 of this level may stay while a generator makes the next
        super().__init__(levels)


def in_single_precision(tables: ArrayLike) -> NDArray[np.float32]:
    """Returns tables `[N, ...]` as float32; an array that is float32 already is not copied.

    Raises:
        InvalidInput: rounding changes a value by more than ZETA / 2. A value of Q* and the one that follows it then differ
            by at most ZETA from what they were, which the betting search has declared.
    """
    given = np.asarray(tables)
    if given.dtype == np.float32:
        return given
    result = np.empty(given.shape, dtype=np.float32)
    for first in range(0, len(given), BLOCK):
        part = real_array(given[first : first + BLOCK])
        with np.errstate(over="ignore"):
            result[first : first + BLOCK] = part
        moved = float(np.abs(result[first : first + BLOCK] - part).max(initial=0.0))
        if not moved <= ZETA / 2:  # NaN and infinity included
            raise InvalidInput(
                f"single precision changes a value of these tables by {moved:.2g}, more than {ZETA / 2:g}. Keep them as "
                "float64, or give values in units in which they lie between -1 and 1."
            )
    return result


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

"""Prototypes: functions on vectors that look up the nearest of a few centres in a table."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from richobs.classes.base import Arrays, LevelClass, checked_members, codec
from richobs.core.arguments import real_array, refuse_unusable
from richobs.core.errors import InvalidInput
from richobs.core.types import Floats, Ints, Observations


@codec
class Prototypes(LevelClass):
    """Function m finds the centre of set `which[m]` that is nearest to x and returns that centre's row of its table."""

    values_are_checked = True

    code = "prototypes"

    @refuse_unusable
    def __init__(self, centres: ArrayLike, which: ArrayLike, tables: ArrayLike):
        """Describes the class.

        Args:
            centres: `[C, S, d]` C sets of S centres.
            which: `[N]` the centre set of each function.
            tables: `[N, S, K]` the table of each function, values in [0, 1].
        """
        centres, which, tables = np.asarray(centres), np.asarray(which), np.asarray(tables)
        sizes_fit = centres.ndim == 3 and tables.ndim == 3 and which.shape == tables.shape[:1]
        if not sizes_fit or centres.shape[1] != tables.shape[1]:
            raise InvalidInput(
                f"prototypes need centres [C, S, d], which [N] and tables [N, S, K]; got shapes {centres.shape}, "
                f"{which.shape} and {tables.shape}."
            )
        if which.size and not (which.min() >= 0 and which.max() < len(centres)):
            raise InvalidInput(
                f"there are centre sets 0 to {len(centres) - 1}; `which` names {which.min()} to {which.max()}."
            )
        real_array(centres)  # refuses complex ones
        if not ((real_array(tables) >= 0) & (tables <= 1)).all():
            raise InvalidInput("values must lie in [0, 1]; `tables` holds others.")
        self.centres = centres
        self.which = which
        self.tables = tables
        self.size, self.n_actions = len(tables), tables.shape[2]

    @property
    def observation_ndim(self) -> int:
        """Number of axes of one observation: 1, a vector."""
        return 1

    def values(self, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all functions, or of those listed in `members`."""
        if x.ndim != 2 or x.shape[1] != self.centres.shape[2]:
            raise InvalidInput(f"these functions read vectors of length {self.centres.shape[2]}; got shape {x.shape}.")
        chosen = checked_members(members, self.size)
        sets, inverse = np.unique(self.which[chosen], return_inverse=True)
        nearest = np.empty((len(sets), len(x)), dtype=np.int64)
        for row, centre_set in enumerate(sets):
            nearest[row] = self.nearest(x, int(centre_set))
        return np.take_along_axis(self.tables[chosen], nearest[inverse][:, :, None], axis=1)

    def nearest(self, x: Observations, centre_set: int) -> Ints:
        """Returns `[n]` which centre of a set is nearest to each of the vectors `x` `[n, d]`."""
        return ((x[:, None, :] - self.centres[centre_set][None]) ** 2).sum(axis=2).argmin(axis=1)

    def value_bounds(self) -> tuple[Floats, Floats]:
        """Returns `[N]` the smallest and `[N]` the largest max_a f(x, a) in each table."""
        top = self.tables.max(axis=2)
        return top.min(axis=1), top.max(axis=1)

    def singleton(self, member: int, /) -> Prototypes:
        """Returns the class that holds one of these functions, with its one set of centres."""
        one = checked_members(np.array([member]), self.size)
        return Prototypes(self.centres[self.which[one]], np.zeros(1, dtype=np.int64), self.tables[one])

    def to_arrays(self) -> Arrays:
        """Returns `centres` `[C, S, d]`, `which` `[N]` and `tables` `[N, S, K]`."""
        return {"centres": self.centres, "which": self.which, "tables": self.tables}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the class that `to_arrays` took apart."""
        return cls(arrays["centres"], arrays["which"], arrays["tables"])

"""Prototypes: functions on vectors that look up the nearest of a few centres in a table."""

import numpy as np

from richobs.errors import InvalidInput
from richobs.functions.layered import checked_members
from richobs.problem import Floats, Ints, Observations


class Prototypes:
    """Function m shows x to centre set `which[m]` and returns the row of its table for the nearest centre."""

    def __init__(self, centres: Floats, which: Ints, tables: Floats):
        """Describes the class.

        Args:
            centres: `[C, S, d]` C sets of S centres.
            which: `[N]` the centre set of each function.
            tables: `[N, S, K]` the table of each function, values in [0, 1].
        """
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
        if not ((tables >= 0) & (tables <= 1)).all():
            raise InvalidInput("values must lie in [0, 1]; `tables` holds others.")
        self.centres = centres
        self.which = which
        self.tables = tables

    @property
    def size(self) -> int:
        """Number of functions."""
        return len(self.tables)

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        return self.tables.shape[2]

    def values(self, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all functions, or of those listed in `members`."""
        if x.ndim != 2 or x.shape[1] != self.centres.shape[2]:
            raise InvalidInput(f"these functions read vectors of length {self.centres.shape[2]}; got shape {x.shape}.")
        chosen = checked_members(members, self.size)
        sets, inverse = np.unique(self.which[chosen], return_inverse=True)
        nearest = np.empty((len(sets), len(x)), dtype=np.int64)
        for row, centres in enumerate(self.centres[sets]):
            nearest[row] = ((x[:, None, :] - centres[None]) ** 2).sum(axis=2).argmin(axis=1)
        return np.take_along_axis(self.tables[chosen], nearest[inverse][:, :, None], axis=1)

    def top_bounds(self) -> tuple[Floats, Floats]:
        """Returns `[N]` the smallest and the largest value that max_a f(x, a) takes."""
        top = self.tables.max(axis=2)
        return top.min(axis=1), top.max(axis=1)

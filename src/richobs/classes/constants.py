"""Constants: functions that ignore the observation."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from richobs.classes.base import Arrays, LevelClass, checked_members
from richobs.classes.codecs import codec
from richobs.core.arguments import real_array, refuse_unusable
from richobs.core.errors import InvalidInput
from richobs.core.types import Floats, Ints, Observations
from richobs.stats import grouping


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

    @property
    def size(self) -> int:
        """Number of functions N."""
        return self.table.shape[0]

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        return self.table.shape[1]

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

    def singleton(self, member: int, /) -> "Constants":
        """Returns the class that holds one of these functions."""
        return Constants(self.table[checked_members(np.array([member]), self.size)])

    def to_arrays(self) -> Arrays:
        """Returns `values` `[N, K]`."""
        return {"values": self.table}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the class that `to_arrays` took apart."""
        return cls(arrays["values"])

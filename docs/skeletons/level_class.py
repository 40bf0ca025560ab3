"""Stumps: the functions of one level, to copy when you write your own.

Copy this file, change it, and give the class as levels: `richobs.Layered([Stumps(...), Stumps(...)])` for every choice of
one function per level, `richobs.Listed([...])` for whole functions. Only `size`, `n_actions` and `values` are needed; delete
the rest, or write what is true of your functions. To check the class, add it to EXAMPLES in
`tests/conformance/test_classes.py`.
"""

from typing import Self

import numpy as np

from richobs.classes.base import Arrays, LevelClass, checked_members, codec
from richobs.core.types import Floats, Ints, Observations


@codec  # registers `code`, so that policies can be saved, loaded and identified
class Stumps(LevelClass):
    """Function i looks at coordinate i of a vector: its values are `worth[1]` where x_i > 1/2, else `worth[0]`."""

    code = "stumps"  # names the class in files

    def __init__(self, n_coordinates: int, worth: Floats):
        """Takes the number of coordinates, and `[2, K]` values in [0, 1]."""
        self.n_coordinates = n_coordinates
        self.worth = np.asarray(worth, dtype=np.float64)
        self.size, self.n_actions = n_coordinates, self.worth.shape[1]  # these two and `values` are needed

    def values(self, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` `[n, D]` of all functions, or of those listed in `members`."""
        on = x.T[checked_members(members, self.size)] > 0.5  # [N, n]; refuses indices that do not exist
        return self.worth[on.astype(np.int64)]

    # The rest is optional: each line says more about the functions, and learners make use of it.

    @property
    def observation_ndim(self) -> int:
        """Number of axes of one observation: 1, a vector. A saved policy then also takes a single observation."""
        return 1

    def value_bounds(self) -> tuple[Floats, Floats]:
        """Returns `[N]` the smallest and `[N]` the largest max_a f(x, a): it is known before anything is played."""
        best = self.worth.max(axis=1)
        return np.full(self.size, best.min()), np.full(self.size, best.max())

    def to_arrays(self) -> Arrays:
        """Returns what the class consists of."""
        return {"n_coordinates": np.array(self.n_coordinates), "worth": self.worth}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the class that `to_arrays` took apart."""
        return cls(int(arrays["n_coordinates"]), arrays["worth"])

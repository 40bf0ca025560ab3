"""Clipping: values of fitted functions are cut to their declared range, and how often that happened is counted."""

import numpy as np

from richobs.classes.base import checked_range
from richobs.core.errors import InvalidInput
from richobs.core.types import Floats


class Clipping:
    """Cuts values to a range and counts those that lay outside.

    A function that is Q* has values in the range already, so clipping never changes it.
    """

    def __init__(self, value_range: tuple[float, float]):
        """Takes the smallest and the largest value."""
        self.low, self.high = checked_range(value_range)
        self.n_values = 0  # that were seen
        self.n_clipped = 0  # of them that lay outside

    def __call__(self, values: Floats, name: str) -> Floats:
        """Returns the values, changed in place; `name` says whose they are.

        Raises:
            InvalidInput: one is not a number.
        """
        if not values.size:
            return values
        least, most = values.min(), values.max()  # NaN where one is
        if np.isnan(least):
            raise InvalidInput(f"{name} returned a value that is not a number (NaN).")
        self.n_values += values.size
        if least < self.low or most > self.high:
            self.n_clipped += int(np.count_nonzero((values < self.low) | (values > self.high)))
            np.clip(values, self.low, self.high, out=values)
        return values

    def note(self, n_values: int, n_clipped: int) -> None:
        """Counts values that were cut elsewhere, on a device."""
        self.n_values += n_values
        self.n_clipped += n_clipped

    @property
    def share(self) -> float:
        """The share of all values so far that lay outside the range."""
        return self.n_clipped / max(1, self.n_values)

"""Exponents fitted from measured points, with an interval."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from richobs import InvalidInput

_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)  # Student's 97.5% quantiles, from 1 degree


class Fit(NamedTuple):
    """A slope and its 95% interval, from the points' distances to the line."""

    slope: float
    low: float
    high: float

    def __str__(self) -> str:
        """The slope with its interval."""
        return f"{self.slope:.2f} [{self.low:.2f}, {self.high:.2f}]"


def fit_exponent(x: Sequence[float], y: Sequence[float]) -> Fit:
    """Returns the slope of log y against log x by least squares, with its interval; two points leave it infinite."""
    return fit_slope(np.log(x).tolist(), np.log(y).tolist())


def fit_slope(x: Sequence[float], y: Sequence[float]) -> Fit:
    """Returns the slope of y against x by least squares, with its interval; two points leave it infinite."""
    if len(x) < 2:
        raise InvalidInput(f"a slope needs at least 2 points; got {len(x)}.")
    u, v = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    slope, start = np.polyfit(u, v, 1)
    left = len(u) - 2
    if left == 0:
        return Fit(float(slope), -math.inf, math.inf)
    spread = float(((v - start - slope * u) ** 2).sum()) / left / float(((u - u.mean()) ** 2).sum())
    half = _T[min(left, len(_T)) - 1] * spread**0.5
    return Fit(float(slope), float(slope) - half, float(slope) + half)

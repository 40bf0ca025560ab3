"""Least squares whose error is bounded along one unknown direction [L1] (docs/linear.md).

Pure functions of arrays. Shapes: m samples of a level, X contexts, K actions, d features.
"""

import math
from typing import NamedTuple

import numpy as np

from richobs.core.types import Floats

LARGEST_BET = 0.5  # above it a level's noise is bounded by its range, below it by the squares that were seen
LEAST_EIGENVALUE = 1e-9  # of A relative to its largest; below it a direction counts as never seen
ROUNDING = 1e-9  # relative error of least squares in float64 that bounds allow for


def psi(u: Floats) -> Floats:
    """Returns 2 psi(u) / u^2 for psi(u) = -log(1 - u) - u and u in [0, 1): at least 1, and growing with u [L1]."""
    small = u < 1e-3
    safe = np.where(small, 0.5, u)
    return np.where(small, 1 + 2 * u / 3 + 0.6 * u * u, 2 * (-np.log1p(-safe) - safe) / safe**2)


def sample_weights(reach: Floats, y: Floats, guess: Floats, low: float, high: float, rate: float) -> Floats:
    """Returns `[m]` what each sample adds to the noise: E exp(b (y - E y) - b^2/2 weight) <= 1 for |b| <= rate reach [L1].

    Which of the two bounds a sample gets is fixed before y is drawn: it depends on features and guesses alone.

    Args:
        reach: `[m]` largest |f' A^-1 phi_i| of any mean f of features.
        y: `[m]` answers in [low, high].
        guess: `[m]` forecasts in [low, high], fixed before the phase.
        low: smallest possible answer.
        high: largest possible answer.
        rate: lambda, fixed before the phase.
    """
    bet = rate * reach * np.maximum(high - guess, guess - low)
    seen = bet <= LARGEST_BET
    return np.where(seen, psi(np.where(seen, bet, 0.0)) * (y - guess) ** 2, (high - low) ** 2 / 4)


def inverse_gram(gram: Floats) -> Floats | None:
    """Returns A^-1; None where a direction was not seen, so that nothing can be said of it."""
    values, vectors = np.linalg.eigh(gram)
    if not values[0] > LEAST_EIGENVALUE * values[-1]:
        return None
    return np.asarray((vectors / values) @ vectors.T)



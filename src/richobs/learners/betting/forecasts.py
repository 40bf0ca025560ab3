"""Forecasts of y = r + u(x') before it is seen, from the past; they decide which bets win, never whether a claim is true.

A forecast is the mean of the members of the level and a few constants, weighted by exp(-loss / 2 s^2). The loss is their
squared error against u's y so far, and s^2 the forecast's own mean squared error. Shapes: P priors, M forecasters, C kinds
of u, n samples.
"""

import numpy as np

from richobs.core.types import Floats
from richobs.stats.bets import LEAST_VARIANCE

PRIORS = np.array([0.25, 0.01])  # squared error that a forecast is given before its first sample
CONSTANTS = np.linspace(0.0, 1.0, 9)  # forecasters beside the members
FARTHEST = 60.0  # nats behind the best at which a forecaster's weight is as good as 0


def variances(missed: Floats, seen: int) -> Floats:
    """Returns `[P, C]` s^2: the mean squared error of the forecasts so far, the prior counted as one sample.

    Args:
        missed: `[P, C]` sums of squared errors.
        seen: number of samples.
    """
    return np.maximum((PRIORS[:, None] + missed) / (1 + seen), LEAST_VARIANCE)


def forecasts(loss: Floats, constant_loss: Floats, variance: Floats, counts: Floats, sums: Floats) -> Floats:
    """Returns `[P, C, n]` what y is expected to be.

    Args:
        loss: `[M, C]` squared errors of forecasters so far.
        constant_loss: `[9, C]` those of the constants.
        variance: `[P, C]` s^2.
        counts: `[M]` how many members each forecaster stands for.
        sums: `[M, n]` sum of their values.
    """
    least = np.minimum(loss.min(axis=0), constant_loss.min(axis=0))
    result = np.empty((*variance.shape, sums.shape[1]))
    for k, s in enumerate(variance):
        weight = np.exp(np.maximum((least - loss) / (2 * s), -FARTHEST))
        constant = np.exp(np.maximum((least - constant_loss) / (2 * s), -FARTHEST))
        total = counts @ weight + constant.sum(axis=0)
        result[k] = (weight.T @ sums + (CONSTANTS @ constant)[:, None]) / total[:, None]
    return result

"""Forecasts from what followed the same observation and action before.

A class need not hold E[y | x, a] for its wrong functions, and then no mean of its members forecasts y well. Where
observations come again, what was seen there does. Like all forecasts these decide which bets win, never whether a claim is
true. Shapes: N rows (functions, or columns of pairs), X cells (pairs of an observation and an action that came again), n
samples.
"""

import numpy as np

from richobs.core.types import Floats, Ints, Mask, Observations
from richobs.learners.betting.forecasts import PRIORS
from richobs.stats.bets import LEAST_VARIANCE

MOST_NUMBERS = 4_000_000  # sums that are held at once; cells that would need more are not kept
SHRINK = 1.0  # samples that the forecast of the class counts as, in the mean of a cell
SHRINK_VARIANCE = 2.0  # samples that the overall squared error counts as, in the squared error of a cell
UNSEEN = 0  # place of all pairs without a cell: nothing is ever added there


class Cells:
    """For every row the mean of something at each cell, and the squared error of that mean as a forecast."""

    def __init__(self, rows: int):
        """Starts with nothing seen."""
        self._known: dict[tuple[bytes, int], int] = {}
        self._count = np.zeros(1)
        self._total, self._square = np.zeros((2, rows, 1))
        self._seen = 0
        self._room: int | None = None  # number of cells, where it does not depend on the number of rows
        self.missed = np.zeros(rows)  # [N] squared errors of these forecasts so far
        self.others_missed = np.zeros(rows)  # [N] squared errors of the forecasts that they start from

    def places(self, x: Observations, actions: Ints) -> Ints:
        """Returns `[n]` the cell of each sample. A pair gets one when it is seen again: what never repeats takes no room."""
        result = np.full(len(actions), UNSEEN)
        for i, (row, action) in enumerate(zip(np.asarray(x), actions.tolist(), strict=True)):
            key = (row.tobytes(), action)
            place = self._known.get(key)
            if place is None:
                self._known[key] = UNSEEN
                continue
            if place == UNSEEN:
                place = self._known[key] = self._new()
            result[i] = place
        return result

    def _new(self) -> int:
        """Returns a new cell, or UNSEEN where there is no room."""
        rows, place = self._total.shape
        if place >= (MOST_NUMBERS // rows if self._room is None else self._room):
            return UNSEEN
        self._count = np.append(self._count, 0.0)
        self._total, self._square = (
            np.append(sums, np.zeros((rows, 1)), axis=1) for sums in (self._total, self._square)
        )
        return place

    def limit(self, rows: int | None) -> None:
        """Keeps as many cells as there is room for with so many rows, whatever the rows are; None ends this."""
        self._room = None if rows is None else MOST_NUMBERS // rows

    def forecast(self, place: Ints, start: Floats) -> Floats:
        """Returns `[N, n]` the mean at each sample's cell, with the start `[N, n]` counted as SHRINK samples."""
        return (SHRINK * start + self._total[:, place]) / (SHRINK + self._count[place])

    def variance(self, place: Ints) -> Floats:
        """Returns `[N, n]` the squared error of the forecasts at each sample's cell."""
        overall = (PRIORS[0] + self.missed) / (1 + self._seen)
        own = (SHRINK_VARIANCE * overall[:, None] + self._square[:, place]) / (SHRINK_VARIANCE + self._count[place])
        return np.maximum(own, LEAST_VARIANCE)

    @property
    def serve_better(self) -> Mask:
        """`[N]` whether these forecasts were better so far than those that they start from."""
        return self.missed < self.others_missed

    def add(self, place: Ints, values: Floats, errors: Floats, others_errors: Floats) -> None:
        """Adds samples.

        Args:
            place: `[n]` as `places` gave them.
            values: `[N, n]` what the means are of.
            errors: `[N, n]` of these forecasts.
            others_errors: `[N, n]` of the forecasts that they started from.
        """
        squares = errors**2
        self.missed = self.missed + squares.sum(axis=1)
        self.others_missed = self.others_missed + (others_errors**2).sum(axis=1)
        self._seen += len(place)
        cells, inverse = np.unique(place, return_inverse=True)
        which = np.zeros((len(place), len(cells)))
        which[np.arange(len(place)), inverse] = place != UNSEEN
        self._count[cells] += which.sum(axis=0)
        self._total[:, cells] += values @ which
        self._square[:, cells] += squares @ which

    def take(self, rows: Ints) -> None:
        """Keeps some of the rows, in the order given; a row may be taken twice."""
        self._total, self._square = self._total[rows], self._square[rows]
        self.missed, self.others_missed = self.missed[rows], self.others_missed[rows]

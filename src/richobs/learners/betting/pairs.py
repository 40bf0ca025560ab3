"""The wealth of every pair of neighbouring members at one level [B1], and the forecasts that choose the bets.

A pair is a member f_h of the level and u = max_a f_{h+1} of a member of the next. Members that had equal values on all that
was played so far share a row or a column. Shapes: R rows, C columns, n samples, P priors of the forecast's variance.
"""

import numpy as np

from richobs.core.types import Floats, Ints, Mask, Observations
from richobs.learners.betting.cells import Cells
from richobs.learners.betting.forecasts import CONSTANTS, PRIORS, forecasts, variances
from richobs.learners.betting.reading import Rows
from richobs.stats import bets
from richobs.stats.grouping import numbered


class Pairs:
    """Wealth, losses and deaths of the pairs at one level; at the last level the only column is 0."""

    def __init__(self, rows: int, columns: int, limit: float):
        """Starts with members that nothing has told apart.

        Args:
            rows: number of members of the level.
            columns: number of members of the next level; 1 behind the last.
            limit: wealth at which a pair dies.
        """
        self.row, self.column = np.zeros(rows, dtype=np.int64), np.zeros(columns, dtype=np.int64)
        self.limit = limit
        self.seen = 0  # samples
        self.alive = np.ones((1, 1), dtype=bool)
        self.wealth, self.loss = np.zeros((2, 1, 1))
        self.constant_loss = np.zeros((len(CONSTANTS), 1))
        self.missed = np.zeros((len(PRIORS), 1))  # [P, C] squared errors of the forecasts
        self.cells = Cells(1)  # means of y of every column at what came again

    @property
    def better(self) -> Ints:
        """`[C]` which prior has served each column better."""
        return self.missed.argmin(axis=0)

    def update(self, f: Rows, y: Rows, t: int, x: Observations, actions: Ints) -> int:
        """Settles the bets of a batch and returns how many pairs died.

        Forecasts, variances and bets come from earlier batches; the values f(x, a) of this one choose among them.

        Args:
            f: values of the level's members at what was played.
            y: reward plus the largest value at the next level, for its members.
            t: number of the batch, from 1.
            x: `[n, ...]` what was seen.
            actions: `[n]` what was done.
        """
        n = f.values.shape[1]
        variance = variances(self.missed, self.seen)  # [P, C]
        forecast = self._forecast(f, variance)  # [P, C, n]
        f_row = self._refine_rows(f)
        old_column, y_row = self._refine_columns(y)
        forecast, variance = forecast[:, old_column], variance[:, old_column]
        earned = y.values[y_row]  # [C, n]
        best = self.better
        each = np.arange(len(best))
        start, place = forecast[best, each], self.cells.places(x, actions)
        own = self.cells.forecast(place, start)
        better = self.cells.serve_better[:, None]
        spread = np.where(better, self.cells.variance(place), variance[best, each][:, None])
        change = bets.growth(f.values, earned, np.where(better, own, start), spread)
        self.cells.add(place, earned, earned - own, earned - start)
        self.wealth = np.where(self.alive, bets.grown(self.wealth, change[f_row], t), 0.0)
        squares = (f.values**2).sum(axis=1)[:, None] + (earned**2).sum(axis=1) - 2 * f.values @ earned.T
        self.loss += np.maximum(squares, 0.0)[f_row]
        self.constant_loss += ((earned - CONSTANTS[:, None, None]) ** 2).sum(axis=2)
        self.missed += ((earned - forecast) ** 2).sum(axis=2)
        self.seen += n
        dying = self.alive & (self.wealth >= self.limit)
        self.alive &= ~dying
        self.wealth[dying] = 0.0
        return int(dying.sum())

    def _refine_rows(self, f: Rows) -> Ints:
        """Gives members that this batch tells apart rows of their own; returns the batch's row of each."""
        many = len(f.values)
        keys, self.row = numbered(self.row * many + f.group, len(self.alive) * many)
        old, new = keys // many, keys % many
        if len(old) != len(self.alive) or (old != np.arange(len(old))).any():
            self.alive, self.wealth, self.loss = self.alive[old], self.wealth[old], self.loss[old]
        return new

    def _refine_columns(self, y: Rows) -> tuple[Ints, Ints]:
        """Gives members of the next level columns likewise; returns the old column and the batch's row of each."""
        many = len(y.values)
        keys, self.column = numbered(self.column * many + y.group, self.alive.shape[1] * many)
        old, new = keys // many, keys % many
        if len(old) != self.alive.shape[1] or (old != np.arange(len(old))).any():
            self._take_columns(old)
        return old, new

    def _take_columns(self, old: Ints) -> None:
        self.alive, self.wealth, self.loss = (
            np.ascontiguousarray(a[:, old]) for a in (self.alive, self.wealth, self.loss)
        )
        self.constant_loss, self.missed = self.constant_loss[:, old], self.missed[:, old]
        self.cells.take(old)

    def keep_rows(self, mask: Mask) -> None:
        """Keeps some of the level's members, and the rows that they need."""
        used, self.row = numbered(self.row[mask], len(self.alive))
        if len(used) < len(self.alive):
            self.alive, self.wealth, self.loss = self.alive[used], self.wealth[used], self.loss[used]

    def keep_columns(self, mask: Mask) -> None:
        """Keeps some of the next level's members, and the columns that they need."""
        used, self.column = numbered(self.column[mask], self.alive.shape[1])
        if len(used) < self.alive.shape[1]:
            self._take_columns(used)

    def _forecast(self, f: Rows, variance: Floats) -> Floats:
        """Returns `[P, C, n]` what every column's y is expected to be at what was played."""
        R, G = len(self.alive), len(f.values)
        counts = np.bincount(self.row, minlength=R).astype(np.float64)
        shared = np.bincount(self.row * G + f.group, minlength=R * G).reshape(R, G)
        return forecasts(self.loss, self.constant_loss, variance, counts, shared @ f.values)

    def log_weights(self) -> Floats:
        """Returns `[R, C]` the logarithm of how well a member of each row fits each column; -inf for the dead.

        That is exp(-loss / 2 s^2), normalised for the column and divided by the pair's wealth where this exceeds 1.
        """
        s = variances(self.missed, self.seen)[self.better, np.arange(self.alive.shape[1])]
        counts = np.bincount(self.row, minlength=len(self.alive)).astype(np.float64)
        logs = (self.loss.min(axis=0) - self.loss) / (2 * s)
        logs -= np.log(counts @ np.exp(np.maximum(logs, -700.0)))
        logs -= np.log(np.maximum(self.wealth, 1.0))
        logs[~self.alive] = -np.inf
        return logs

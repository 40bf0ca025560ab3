"""The wealth of every pair of neighbouring members at one level [B1], and the forecasts that choose the bets.

A pair is a member f_h of the level and u = max_a f_{h+1} of a member of the next. Members that had equal values on all that
was played so far share a row or a column. Shapes: R rows, C columns, n samples, P priors of the forecast's variance.
"""

import copy
from abc import ABC, abstractmethod
from typing import Protocol, Self

import numpy as np

from richobs.core.types import Floats, Ints, Mask, Observations
from richobs.learners.betting.cells import Cells
from richobs.learners.betting.forecasts import CONSTANTS, PRIORS, forecasts, variances
from richobs.learners.betting.reading import Known, Rows
from richobs.stats import bets
from richobs.stats.grouping import numbered

DENSE_COUNTS = 1 << 22  # rows times rows of a batch up to which sums over members are a matrix product


class Weights(Protocol):
    """The logarithms of how well a member of each row fits each column; -inf for dead pairs.

    They are in use only until the pairs change.
    """

    def largest(self, by_row: Floats, /) -> Floats:
        """Returns `[C]` the largest sum of `by_row` `[R]` and a weight of the column."""
        ...

    def log_sums(self, by_row: Floats, /) -> Floats:
        """Returns `[C]` the logarithm of the sum over rows of exp(`by_row` + weight)."""
        ...

    def column(self, j: int, /) -> Floats:
        """Returns `[R]` the weights of a column."""
        ...

    def at(self, i: int, j: int, /) -> float:
        """Returns the weight of one pair."""
        ...


class Pairs(ABC):
    """Wealth, losses and deaths of the pairs at one level; at the last level the only column is 0.

    Everything that has a number for every member, row or column is held here. What has one for every pair is held by the
    kinds of pairs: `HostPairs` in NumPy, and `DevicePairs` in PyTorch where there are many.
    """

    def __init__(self, rows: int, columns: int, limit: float):
        """Starts with members that nothing has told apart.

        Args:
            rows: number of members of the level.
            columns: number of members of the next level; 1 behind the last.
            limit: wealth at which a pair dies.
        """
        self.row, self.column = np.zeros(rows, dtype=np.int64), np.zeros(columns, dtype=np.int64)
        self.limit = limit
        self.rounding = 0.0  # how far bets on a device may have moved the logarithm of a wealth from its exact value
        self.seen = 0  # samples
        self.constant_loss = np.zeros((len(CONSTANTS), 1))
        self.missed = np.zeros((len(PRIORS), 1))  # [P, C] squared errors of the forecasts
        self.cells = Cells(1)  # means of y of every column at what came again
        self._counted: tuple[Ints, Floats] | None = None  # rows of members, and how many members each row has

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """R, how many rows there are."""

    @property
    def n_columns(self) -> int:
        """C, how many columns there are."""
        return self.missed.shape[1]

    @property
    def better(self) -> Ints:
        """`[C]` which prior has served each column better."""
        return self.missed.argmin(axis=0)

    @property
    def counts(self) -> Floats:
        """`[R]` how many members each row has."""
        if self._counted is None or self._counted[0] is not self.row:
            self._counted = self.row, np.bincount(self.row, minlength=self.n_rows).astype(np.float64)
        return self._counted[1]

    @property
    def spread(self) -> Floats:
        """`[C]` s^2 of the prior that has served each column better."""
        return variances(self.missed, self.seen)[self.better, np.arange(self.n_columns)]

    def update(self, f: Rows | Known, y: Rows | Known, t: int, x: Observations, actions: Ints) -> int:
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
        forecast = self._forecast(variance, self._sums(f))  # [P, C, n]
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
        died = self._settle_bets(f.values, f_row, earned, np.where(better, own, start), spread, t)
        self.cells.add(place, earned, earned - own, earned - start)
        for k, constant in enumerate(CONSTANTS):
            self.constant_loss[k] += ((earned - constant) ** 2).sum(axis=1)
        self.missed += ((earned - forecast) ** 2).sum(axis=2)
        self.seen += n
        return died

    def size_with(self, f: Rows | Known, y: Rows | Known) -> int:
        """Returns how many pairs there are once a batch has told members apart."""
        rows, columns = self.n_rows, self.n_columns
        if isinstance(f, Rows):
            rows = len(numbered(self.row * len(f.values) + f.group, rows * len(f.values))[0])
        if isinstance(y, Rows):
            columns = len(numbered(self.column * len(y.values) + y.group, columns * len(y.values))[0])
        return rows * columns

    def shown(self) -> Self:
        """Returns these pairs as they are now, for everything but bets: members may be dropped, these pairs keep theirs."""
        same = copy.copy(self)
        same.cells = copy.copy(self.cells)
        return same

    def _sums(self, f: Rows | Known) -> Floats:
        """Returns `[R, n]` the sum of the values of each row's members."""
        R, G = self.n_rows, len(f.values)
        if isinstance(f, Known):
            return self.counts[:, None] * f.values[f.row]
        if R * G <= DENSE_COUNTS:
            shared = np.bincount(self.row * G + f.group, minlength=R * G).reshape(R, G)
            return np.asarray(shared @ f.values)
        sums = [np.bincount(self.row, weights=sample[f.group], minlength=R) for sample in f.values.T]
        return np.stack(sums, axis=1)

    def _refine_rows(self, f: Rows | Known) -> Ints:
        """Gives members that this batch tells apart rows of their own; returns the batch's row of each."""
        if isinstance(f, Known):
            return f.row
        many = len(f.values)
        keys, self.row = numbered(self.row * many + f.group, self.n_rows * many)
        old, new = keys // many, keys % many
        if len(old) != self.n_rows or (old != np.arange(len(old))).any():
            self._take_rows(old)
        return new

    def _refine_columns(self, y: Rows | Known) -> tuple[Ints, Ints]:
        """Gives members of the next level columns likewise; returns the old column and the batch's row of each."""
        if isinstance(y, Known):
            return np.arange(self.n_columns), y.row
        many = len(y.values)
        keys, self.column = numbered(self.column * many + y.group, self.n_columns * many)
        old, new = keys // many, keys % many
        if len(old) != self.n_columns or (old != np.arange(len(old))).any():
            self._take(old)
        return old, new

    def _take(self, old: Ints) -> None:
        self._take_columns(old)
        self.constant_loss, self.missed = self.constant_loss[:, old], self.missed[:, old]
        self.cells.take(old)

    def keep_rows(self, mask: Mask) -> None:
        """Keeps some of the level's members, and the rows that they need."""
        used, self.row = numbered(self.row[mask], self.n_rows)
        if len(used) < self.n_rows:
            self._take_rows(used)

    def keep_columns(self, mask: Mask) -> None:
        """Keeps some of the next level's members, and the columns that they need."""
        used, self.column = numbered(self.column[mask], self.n_columns)
        if len(used) < self.n_columns:
            self._take(used)

    @abstractmethod
    def _take_rows(self, rows: Ints) -> None:
        """Makes the pairs of some rows, in the order given, all pairs; a row may be taken twice."""

    @abstractmethod
    def _take_columns(self, columns: Ints) -> None:
        """Makes the pairs of some columns, in the order given, all pairs; a column may be taken twice."""

    @abstractmethod
    def _forecast(self, variance: Floats, sums: Floats) -> Floats:
        """Returns `[P, C, n]` what every column's y is expected to be.

        Args:
            variance: `[P, C]` s^2.
            sums: `[R, n]` the sum of the values of each row's members.
        """

    @abstractmethod
    def _settle_bets(self, f: Floats, f_row: Ints, earned: Floats, expected: Floats, spread: Floats, t: int) -> int:
        """Lets the wealth of every pair grow by the batch's bets, adds up losses, and returns how many pairs died.

        Args:
            f: `[G, n]` distinct rows of values.
            f_row: `[R]` which of them each row has.
            earned: `[C, n]` y.
            expected: `[C, n]` the forecasts of y.
            spread: `[C, n]` their variances.
            t: number of the batch, from 1.
        """

    @abstractmethod
    def weights(self) -> Weights:
        """Returns how well pairs fit: exp(-loss / 2 s^2), normalised for the column, over the wealth where it exceeds 1."""

    @abstractmethod
    def even_weights(self) -> Weights:
        """Returns the same weight, 1, for every living pair."""

    @abstractmethod
    def living_rows(self) -> Mask:
        """Returns `[R]` which rows have a living pair."""

    @abstractmethod
    def living_columns(self) -> Mask:
        """Returns `[C]` which columns have a living pair."""

    @abstractmethod
    def lives(self, i: int, j: int) -> bool:
        """Whether a pair lives."""

    @abstractmethod
    def wealth_of(self, i: int, j: int) -> float:
        """Returns the wealth of a pair."""

    @abstractmethod
    def kill(self, i: int, j: int) -> None:
        """Drops a pair."""

    @abstractmethod
    def sums_over_living(self, by_row: Floats) -> Floats:
        """Returns `[C]` the sum of `by_row` `[R]` over the rows that each column has a living pair with."""


class HostPairs(Pairs):
    """Pairs in NumPy."""

    def __init__(self, rows: int, columns: int, limit: float):
        """Takes what `Pairs` takes."""
        super().__init__(rows, columns, limit)
        self.alive = np.ones((1, 1), dtype=bool)
        self.wealth, self.loss = np.zeros((2, 1, 1))

    @property
    def n_rows(self) -> int:
        """R, how many rows there are."""
        return len(self.alive)

    def _take_rows(self, rows: Ints) -> None:
        self.alive, self.wealth, self.loss = self.alive[rows], self.wealth[rows], self.loss[rows]

    def _take_columns(self, columns: Ints) -> None:
        self.alive, self.wealth, self.loss = (
            np.ascontiguousarray(a[:, columns]) for a in (self.alive, self.wealth, self.loss)
        )

    def _forecast(self, variance: Floats, sums: Floats) -> Floats:
        return forecasts(self.loss, self.constant_loss, variance, self.counts, sums)

    def _settle_bets(self, f: Floats, f_row: Ints, earned: Floats, expected: Floats, spread: Floats, t: int) -> int:
        change = bets.growth(f, earned, expected, spread)
        self.wealth = np.where(self.alive, bets.grown(self.wealth, change[f_row], t), 0.0)
        squares = (f**2).sum(axis=1)[:, None] + (earned**2).sum(axis=1) - 2 * f @ earned.T
        self.loss += np.maximum(squares, 0.0)[f_row]
        dying = self.alive & (self.wealth >= bets.surely(self.limit, self.rounding))
        self.alive &= ~dying
        self.wealth[dying] = 0.0
        return int(dying.sum())

    def log_weights(self) -> Floats:
        """Returns `[R, C]` the logarithm of how well a member of each row fits each column; -inf for the dead."""
        logs = (self.loss.min(axis=0) - self.loss) / (2 * self.spread)
        logs -= np.log(self.counts @ np.exp(np.maximum(logs, -700.0)))
        logs -= np.log(np.maximum(self.wealth, 1.0))
        logs[~self.alive] = -np.inf
        return logs

    def weights(self) -> Weights:
        """Returns how well pairs fit."""
        return HostWeights(self.log_weights())

    def even_weights(self) -> Weights:
        """Returns the same weight, 1, for every living pair."""
        return HostWeights(np.where(self.alive, 0.0, -np.inf))

    def living_rows(self) -> Mask:
        """Returns `[R]` which rows have a living pair."""
        return np.any(self.alive, axis=1)

    def living_columns(self) -> Mask:
        """Returns `[C]` which columns have a living pair."""
        return np.any(self.alive, axis=0)

    def lives(self, i: int, j: int) -> bool:
        """Whether a pair lives."""
        return bool(self.alive[i, j])

    def wealth_of(self, i: int, j: int) -> float:
        """Returns the wealth of a pair."""
        return float(self.wealth[i, j])

    def kill(self, i: int, j: int) -> None:
        """Drops a pair."""
        self.alive[i, j] = False

    def sums_over_living(self, by_row: Floats) -> Floats:
        """Returns `[C]` the sum of `by_row` `[R]` over the rows that each column has a living pair with."""
        return np.asarray(by_row @ self.alive, dtype=np.float64)


class HostWeights:
    """The logarithms `[R, C]` of how well pairs fit, as one array."""

    def __init__(self, logs: Floats):
        """Takes `[R, C]` the logarithms."""
        self._logs = logs

    def largest(self, by_row: Floats, /) -> Floats:
        """Returns `[C]` the largest sum of `by_row` `[R]` and a weight of the column."""
        rows = np.flatnonzero(by_row > -np.inf)
        return np.asarray((by_row[rows, None] + self._logs[rows]).max(axis=0))

    def log_sums(self, by_row: Floats, /) -> Floats:
        """Returns `[C]` the logarithm of the sum over rows of exp(`by_row` + weight)."""
        rows = np.flatnonzero(by_row > -np.inf)
        terms = by_row[rows, None] + self._logs[rows]
        top = terms.max(axis=0)
        safe = np.where(top > -np.inf, top, 0.0)
        with np.errstate(divide="ignore"):
            return np.asarray(safe + np.log(np.exp(terms - safe).sum(axis=0)))

    def column(self, j: int, /) -> Floats:
        """Returns `[R]` the weights of a column."""
        return self._logs[:, j]

    def at(self, i: int, j: int, /) -> float:
        """Returns the weight of one pair."""
        return float(self._logs[i, j])

"""Survivors of a product class: chains of members, one per level, through living pairs [B1].

A pair is a member f_h of a level and u = max_a f_{h+1} of a member of the next. Members that had equal values on all that
was played so far share a row or a column of the level's pairs. Shapes: m living members of a level, R rows and C columns of
its pairs, n samples, P priors of the forecast's variance.

In a large class most pairs of a level would be refuted through the next level anyway. So such a level waits: its samples are
kept, and their bets are settled when the next level has few kinds of u left. The wealth of a pair is a function of the
samples in their order, so it does not matter when it is computed. docs/betting.md, Waiting, says why no claim depends on it.
"""

import copy
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from typing import NamedTuple, Self

import numpy as np

from richobs.classes.layered import Layered
from richobs.core.errors import BrokenPromise
from richobs.core.functions import FunctionClass
from richobs.core.types import Floats, Ints, Mask, Member
from richobs.device import pairs as device_pairs
from richobs.device import torch_device
from richobs.device.pairs import PairsOnDevice, WeightsOnDevice
from richobs.learners.betting.values import (
    CONSTANTS,
    FARTHEST,
    PRIORS,
    Cells,
    Fit,
    Known,
    Largest,
    Ranges,
    Rows,
    Samples,
    forecasts,
    least,
    taken_values,
    top_values,
    variances,
)
from richobs.stats import bets
from richobs.stats.grouping import are_sparse, equal_keys, numbered
from richobs.stats.shares import Share

MANY_ROWS = 1 << 11  # of a batch from which on bets are computed for rows with a living pair alone
FEW_COUNTS = 1 << 18  # rows times rows of a batch up to which forecasts are made of sums over members
DENSE_COUNTS = 1 << 22  # rows times rows of a batch up to which sums over members are a matrix product
AT_ONCE_LOSSES = 1 << 14  # values of y whose losses against all constants are computed at once
AT_ONCE_PAIRS = 1 << 18  # whose wealth is looked through at once
LARGE_CLASS = 1 << 21  # members times kinds of the next level above which a level may wait
MOST_PAIRS = 1 << 12  # pairs at which such a level begins to wait
BLOCK = 32  # samples from which on batches that waited make one
# While fewer samples wait than this: members times kinds at which waiting ends.
DUE: tuple[tuple[int, float], ...] = ((256, 1 << 20), (1024, 1 << 26))


class PairsInNumpy:
    """Wealth, losses and who lives, for every pair of a level, as arrays `[R, C]`; `PairsOnDevice` holds many pairs."""

    def __init__(self, alive: Mask, wealth: Floats, loss: Floats):
        """Takes the arrays."""
        self.alive, self.wealth, self.loss = alive, wealth, loss

    def arrays(self) -> tuple[Mask, Floats, Floats]:
        """Returns `[R, C]` who lives, wealth and losses."""
        return self.alive, self.wealth, self.loss

    @staticmethod
    def rounding(n: int) -> float:
        """Returns 0: what NumPy rounds is declared with the values."""
        return 0.0

    def take_rows(self, rows: Ints) -> None:
        """Makes the pairs of some rows, in the order given, all pairs; a row may be taken twice."""
        self.alive = self.alive.take(rows, axis=0)
        self.wealth, self.loss = (a.take(rows, axis=0) for a in (self.wealth, self.loss))

    def take_columns(self, columns: Ints) -> None:
        """Makes the pairs of some columns, in the order given, all pairs; a column may be taken twice."""
        self.alive = self.alive.take(columns, axis=1)
        self.wealth, self.loss = (a.take(columns, axis=1) for a in (self.wealth, self.loss))

    def settle(
        self,
        f: Floats,
        f_row: Ints,
        earned: Floats,
        expected: Floats,
        spread: Floats,
        t: int,
        needed: float,
        tolerance: float = 0.0,
    ) -> int:
        """Lets the wealth of every pair grow by the batch's bets, adds up losses, and returns how many pairs died.

        Args:
            f: `[G, n]` distinct rows of values.
            f_row: `[R]` which of them each row has.
            earned: `[C, n]` y.
            expected: `[C, n]` the forecasts of y.
            spread: `[C, n]` their variances.
            t: number of the batch, from 1.
            needed: computed wealth at which a pair dies.
            tolerance: how far E[y] may be from f without the pair being refuted.
        """
        living = self.living_rows().nonzero()[0] if len(f) > MANY_ROWS else f_row
        if 2 * len(living) < len(f_row):  # the others only make forecasts, while a level catches up
            some, row = numbered(f_row[living], len(f))
            change = bets.growth_and_losses(f[some], earned, expected, spread, tolerance)[0]
            self.wealth[living] = bets.grown(self.wealth[living], change, t, row)
            losses = bets.square_losses(f, earned)
            self.loss += losses.take(f_row, axis=0)
        elif len(f) == len(f_row):  # every row has values of its own
            change, losses = bets.growth_and_losses(f[f_row], earned, expected, spread, tolerance)
            self.wealth = bets.grown(self.wealth, change, t)
            self.loss += losses
        else:
            change, losses = bets.growth_and_losses(f, earned, expected, spread, tolerance)
            self.wealth = bets.grown(self.wealth, change, t, f_row)
            self.loss += losses.take(f_row, axis=0)
        self.wealth *= self.alive
        dying = self.wealth >= needed
        died = int(np.count_nonzero(dying))
        if died:
            self.alive &= ~dying
            self.wealth[dying] = 0.0
        return died

    def weights(self, counts: Floats, spread: Floats) -> "WeightsInNumpy":
        """Returns how well pairs fit.

        Args:
            counts: `[R]` how many members each row has.
            spread: `[C]` s^2 of each column.
        """
        logs = least(self.loss) - self.loss
        logs *= 0.5 / spread
        some = np.maximum(logs, -700.0)
        logs -= np.log(counts @ np.exp(some, out=some))
        logs -= np.log(np.maximum(self.wealth, 1.0, out=some), out=some)
        return WeightsInNumpy(np.where(self.alive, logs, -np.inf))

    def living_rows(self) -> Mask:
        """Returns `[R]` which rows have a living pair."""
        if len(self.alive) > MANY_ROWS:  # numpy is slow where many rows are short
            return np.logical_or.reduce(list(self.alive.T))
        return np.logical_or.reduce(self.alive, axis=1)

    def living_columns(self) -> Mask:
        """Returns `[C]` which columns have a living pair."""
        return np.logical_or.reduce(self.alive)

    def sums_over_living(self, by_row: Floats) -> Floats:
        """Returns `[C]` the sum of `by_row` `[R]` over the rows that each column has a living pair with."""
        return np.asarray(by_row @ self.alive, dtype=np.float64)


class WeightsInNumpy:
    """The logarithms `[R, C]` of how well a member of each row fits each column; -inf for dead pairs."""

    def __init__(self, logs: Floats):
        """Takes `[R, C]` the logarithms."""
        self.logs = logs

    def largest(self, by_row: Floats, /) -> Floats:
        """Returns `[C]` the largest sum of `by_row` `[R]` and a weight of the column."""
        return np.maximum.reduce(self._sums(by_row))

    def log_sums(self, by_row: Floats, /) -> Floats:
        """Returns `[C]` the logarithm of the sum over rows of exp(`by_row` + weight)."""
        terms = self._sums(by_row)
        top = np.maximum.reduce(terms)
        terms -= np.where(top > -np.inf, top, 0.0)
        np.exp(np.maximum(terms, -700.0, out=terms), out=terms)  # numbers that vanish take longer, and add nothing
        return top + np.log(np.add.reduce(terms))

    def _sums(self, by_row: Floats) -> Floats:
        """Returns `by_row` plus the weights, without rows of -inf."""
        some = by_row > -np.inf
        whole = np.count_nonzero(some) == len(some)
        return by_row[:, None] + self.logs if whole else by_row[some, None] + self.logs[some]

    def column(self, j: int, /) -> Floats:
        """Returns `[R]` the weights of a column."""
        return self.logs[:, j]

    def at(self, i: int, j: int, /) -> float:
        """Returns the weight of one pair."""
        return float(self.logs[i, j])


ALONE = WeightsInNumpy(np.zeros((1, 1)))


class Groups:
    """Members in groups: those of one group are equal on everything that was played so far."""

    def __init__(self, of: Ints, count: int):
        """Takes `[m]` the group of each member, and the number of groups, none of which is empty."""
        self.of, self.count = of, count

    @cached_property
    def sizes(self) -> Floats:
        """`[count]` how many members each group has."""
        return np.bincount(self.of, minlength=self.count).astype(np.float64)

    @cached_property
    def first(self) -> Ints:
        """`[count]` the place of the first member of each group; 0 of one that has none."""
        place = np.zeros(self.count, dtype=np.int64)
        place[self.of[::-1]] = np.arange(len(self.of))[::-1]
        return place

    def split(self, batch: Rows | Known) -> tuple["Groups", Ints, Ints]:
        """Gives members that a batch tells apart groups of their own.

        Returns:
            The groups, and of each of them the old group and the batch's row.
        """
        if isinstance(batch, Known):
            return self, np.arange(self.count), batch.row
        many = len(batch.values)
        if many == 1:
            return self, np.arange(self.count), np.zeros(self.count, dtype=np.int64)
        if self.count == len(self.of):  # everything was told apart before
            return self, np.arange(self.count), batch.group[self.first]
        if self.count == 1:
            return Groups(batch.group, many), np.zeros(many, dtype=np.int64), np.arange(many)
        if 2 * self.count > len(self.of) > MANY_ROWS:
            shared = (self.sizes > 1)[self.of].nonzero()[0]  # members that may be told apart
            keys, place = numbered(self.of[shared] * many + batch.group[shared], self.count * many)
            parts = np.bincount(keys // many, minlength=self.count)
            rank = np.arange(len(keys)) - (parts.cumsum() - parts)[keys // many]
            parts = np.maximum(parts, 1)
            of = (parts.cumsum() - parts)[self.of]
            of[shared] += rank[place]
            row = np.empty(int(of.max()) + 1, dtype=np.int64)
            row[of] = batch.group
            return Groups(of, len(row)), np.arange(self.count).repeat(parts), row
        both, below = self.of * many + batch.group, self.count * many
        if not are_sparse(both, below):
            keys, of = numbered(both, below)
            return Groups(of, len(keys)), keys // many, keys % many
        place, of = equal_keys(both)
        if len(place) == self.count:  # nothing was told apart
            return self, np.arange(self.count), batch.group[self.first]
        return Groups(of, len(place)), self.of[place], batch.group[place]

    def kept(self, mask: Mask) -> tuple["Groups", Ints]:
        """Returns the groups of some of the members, and the old number of each."""
        used, of = numbered(self.of[mask], self.count)
        return Groups(of, len(used)), used


class Pairs:
    """Wealth, losses and deaths of the pairs at one level, and the forecasts that choose their bets.

    At the last level the only column is 0. Everything that has a number for every member, row or column is held here; what
    has one for every pair is held in NumPy, or on a device where there are many.
    """

    def __init__(self, rows: int, columns: int, limit: float, device: str | None = None, tolerance: float = 0.0):
        """Starts with members that nothing has told apart.

        Args:
            rows: number of members of the level.
            columns: number of members of the next level; 1 behind the last.
            limit: wealth at which a pair dies.
            device: where PyTorch holds the pairs where there are many; None for NumPy.
            tolerance: how far E[y] may be from f without a pair being refuted.

        Raises:
            InvalidInput: PyTorch is not installed, or there is no such device.
        """
        if device is not None:
            torch_device(device)  # refuses one that is not there
        self.rows, self.columns = (Groups(np.zeros(size, dtype=np.int64), 1) for size in (rows, columns))
        self.limit, self.tolerance = limit, tolerance
        self.rounding = 0.0  # how far bets on a device may have moved the logarithm of a wealth from its exact value
        self.seen = 0  # samples
        self.constant_loss = np.zeros((len(CONSTANTS), 1))
        self.missed = np.zeros((len(PRIORS), 1))  # [P, C] squared errors of the forecasts
        self.cells = Cells(1)  # means of y of every column at what came again
        wealth, loss = np.zeros((2, 1, 1))
        self.held: PairsInNumpy | PairsOnDevice = PairsInNumpy(np.ones((1, 1), dtype=bool), wealth, loss)
        self._device = device
        self._move(1)

    @property
    def is_away(self) -> bool:
        """Whether the pairs are on the device."""
        return isinstance(self.held, PairsOnDevice)

    def _move(self, size: int) -> None:
        """Moves the pairs to where so many of them are to be held."""
        if self._device is None:
            return
        if not self.is_away and size >= device_pairs.FEWEST_PAIRS:
            self.held = PairsOnDevice(*self.held.arrays(), self._device)
        elif self.is_away and 4 * size < device_pairs.FEWEST_PAIRS:
            self.held = PairsInNumpy(*self.held.arrays())

    @property
    def is_alone(self) -> bool:
        """Whether nothing has told members apart, or all others are gone: one row and one column are left."""
        return self.rows.count == self.columns.count == 1

    @property
    def better(self) -> Ints:
        """`[C]` which prior has served each column better."""
        return self.missed.argmin(axis=0)

    @property
    def spread(self) -> Floats:
        """`[C]` s^2 of the prior that has served each column better."""
        return variances(self.missed, self.seen)[self.better, np.arange(self.columns.count)]

    def update(self, f: Rows | Known, y: Rows | Known, t: int, keys: Sequence[bytes]) -> int:
        """Settles the bets of a batch and returns how many pairs died.

        Forecasts, variances and bets come from earlier batches; the values f(x, a) of this one choose among them.

        Args:
            f: values of the level's members at what was played.
            y: reward plus the largest value at the next level, for its members.
            t: number of the batch, from 1.
            keys: `[n]` names of what was seen and done.
        """
        n = f.values.shape[1]
        rows, old_row, f_row = self.rows.split(f)
        columns, old_column, y_row = self.columns.split(y)
        variance = variances(self.missed, self.seen)  # [P, C]
        forecast = self._forecast(variance, rows.sizes, old_row, f.values, f_row)  # [P, C, n]
        self._take_rows(rows, old_row)
        if columns.count != self.columns.count:
            forecast, variance = forecast[:, old_column], variance[:, old_column]
        self._take_columns(columns, old_column)
        earned = y.values[y_row]  # [C, n]
        best = self.better
        each = np.arange(len(best))
        start, place = forecast[best, each], self.cells.places(keys)
        missed = np.add.reduce((earned - forecast) ** 2, axis=2)
        expected, spread = start, variance[best, each][:, None].repeat(n, axis=1)
        if self.cells.is_empty:
            self.cells.add_start(n, missed[best, each])
        else:
            own, better = self.cells.forecast(place, start), self.cells.serve_better[:, None]
            expected, spread = np.where(better, own, start), np.where(better, self.cells.variance(place), spread)
            self.cells.add(place, earned, earned - own, earned - start)
            self.cells.count(place)
        self.rounding += self.held.rounding(n) * (2 if self.tolerance else 1)
        needed = bets.surely(self.limit, self.rounding)
        died = self.held.settle(f.values, f_row, earned, expected, spread, t, needed, self.tolerance)
        self.constant_loss += _constant_losses(earned)
        self.missed += missed
        self.seen += n
        return died

    def size_with(self, f: Rows | Known, y: Rows | Known) -> int:
        """Returns how many pairs there are once a batch has told members apart."""
        return self.rows.split(f)[0].count * self.columns.split(y)[0].count

    def shown(self) -> Self:
        """Returns these pairs as they are now, for everything but bets: members may be dropped, these pairs keep theirs."""
        same = copy.copy(self)
        same.cells, same.held = copy.copy(self.cells), copy.copy(self.held)
        return same

    def _sums(self, sizes: Floats, old_row: Ints, values: Floats, f_row: Ints) -> Floats:
        """Returns `[R, n]` the sum of the values of each row's members, given what the rows are split to."""
        R, G = self.rows.count, len(values)
        if len(sizes) == R:
            return sizes[:, None] * values.take(f_row, axis=0)
        if R * G <= DENSE_COUNTS:
            return np.bincount(old_row * G + f_row, weights=sizes, minlength=R * G).reshape(R, G) @ values
        one = np.empty(R, dtype=np.int64)
        one[old_row] = np.arange(len(old_row))  # a part of each row
        more = np.flatnonzero(one[old_row] != np.arange(len(old_row)))
        sums = sizes[one, None] * values.take(f_row[one], axis=0)
        rows, place = np.unique(old_row[more], return_inverse=True)  # few rows are split, and most of them once
        rest = sizes[more, None] * values.take(f_row[more], axis=0)
        sums[rows] += np.stack([np.bincount(place, weights=sample) for sample in rest.T], axis=1)
        return sums

    def _forecast(self, variance: Floats, sizes: Floats, old_row: Ints, values: Floats, f_row: Ints) -> Floats:
        """Returns `[P, C, n]` what every column's y is expected to be, from s^2 `[P, C]` and what the rows are split to."""
        if isinstance(self.held, PairsOnDevice):
            constants, sums = (CONSTANTS, self.constant_loss), self._sums(sizes, old_row, values, f_row)
            return self.held.forecast(constants, variance, self.rows.sizes, sums, FARTHEST)
        known = self.held.loss, self.constant_loss, variance, self.rows.sizes
        if self.rows.count * len(values) > FEW_COUNTS and variance.size < values.shape[1]:
            return forecasts(*known, values, (sizes, old_row, f_row))
        return forecasts(*known, self._sums(sizes, old_row, values, f_row))

    def _take_rows(self, rows: Groups, old: Ints) -> None:
        """Takes new groups of the level's members, and the pairs of their old rows."""
        if rows.count != self.rows.count:
            self._move(rows.count * self.columns.count)
            self.held.take_rows(old)
        self.rows = rows

    def _take_columns(self, columns: Groups, old: Ints) -> None:
        """Takes new groups of the next level's members, and what belongs to their old columns."""
        if columns.count != self.columns.count:
            self._move(self.rows.count * columns.count)
            self.held.take_columns(old)
            self.constant_loss, self.missed = self.constant_loss[:, old], self.missed[:, old]
            self.cells.take(old)
        self.columns = columns

    def keep_rows(self, mask: Mask) -> None:
        """Keeps some of the level's members, and the rows that they need."""
        self._take_rows(*self.rows.kept(mask))

    def keep_columns(self, mask: Mask) -> None:
        """Keeps some of the next level's members, and the columns that they need."""
        self._take_columns(*self.columns.kept(mask))

    def weights(self) -> "Weights":
        """Returns how well pairs fit: exp(-loss / 2 s^2), normalised for the column, over the wealth where it exceeds 1.

        All chains have a pair that is alone: it weighs 1.
        """
        return ALONE if self.is_alone else self.held.weights(self.rows.sizes, self.spread)

    def even_weights(self) -> "Weights":
        """Returns the same weight, 1, for every living pair."""
        return WeightsInNumpy(np.where(self.held.arrays()[0], 0.0, -np.inf))

    def lives(self, i: int, j: int) -> bool:
        """Whether a pair lives."""
        return bool(self.held.alive[i, j])

    def wealth_of(self, i: int, j: int) -> float:
        """Returns the wealth of a pair."""
        return float(self.held.wealth[i, j])

    def kill(self, i: int, j: int) -> None:
        """Drops a pair."""
        self.held.alive[i, j] = False


def _constant_losses(earned: Floats) -> Floats:
    """Returns `[9, C]` the squared errors of the constants against y `[C, n]`."""
    if earned.size > AT_ONCE_LOSSES:
        return np.stack([((earned - constant) ** 2).sum(axis=1) for constant in CONSTANTS])
    return np.add.reduce((earned - CONSTANTS[:, None, None]) ** 2, axis=2)


Weights = WeightsInNumpy | WeightsOnDevice  # the same methods


@dataclass
class Waiting:
    """The samples that wait at a level, and its pairs as they were before them."""

    pairs: Pairs
    rows: Ints  # [m] members of the level that the pairs have rows for
    columns: Ints  # [m'] members of the next level that they have columns for
    first: int  # number of the first batch that waits
    batches: list[Samples]  # in their order
    refuted: set[tuple[int, int]] = field(default_factory=set)  # pairs of members that averages refuted [B2]
    counted: tuple[Ints | None, int] = (None, 0)  # living members of the next level, and how many kinds they make

    def is_due(self, kinds: int) -> bool:
        """Whether the bets are to be settled now: the next level has so few kinds left, or many samples wait."""
        n = sum(len(batch.actions) for batch in self.batches)
        return all(len(self.rows) * kinds <= pairs for samples, pairs in DUE if n < samples)

    def blocks(self) -> Iterator[tuple[int, Samples]]:
        """Yields numbers and samples of blocks: batches put together until there are at least `BLOCK` samples.

        Blocks are numbered on from the first batch that waits, so no number is used twice. What belongs to a block depends
        on the sizes of its batches alone; the last one may be smaller.
        """
        block: list[Samples] = []
        number = self.first
        for batch in self.batches:
            block.append(batch)
            if sum(len(part.actions) for part in block) >= BLOCK:
                yield number, _joined(block)
                number, block = number + 1, []
        if block:
            yield number, _joined(block)


def _joined(block: list[Samples]) -> Samples:
    """Returns several batches as one."""
    *arrays, keys, next_keys = zip(*block, strict=True)
    x, actions, rewards, before, next_x, goes_on = map(np.concatenate, arrays)
    return Samples(x, actions, rewards, before, next_x, goes_on, [*chain(*keys)], [*chain(*next_keys)])


class _Said(NamedTuple):
    """What members say about the samples of a level."""

    samples: Samples
    f: Rows | Known  # values of the level's members at what was played
    y: Rows | Known  # reward plus the largest value at the next level, for its members
    wrong: Mask | None  # [m] members of the next level that predict what cannot be earned, if any do


class ProductSurvivors:
    """What is left of a product class. Every living member and every living pair lies on a surviving chain."""

    def __init__(
        self, functions: FunctionClass, share: Share, ranges: Ranges, device: str | None = None, waits: bool = True
    ):
        """Starts with the whole class.

        Args:
            functions: the class.
            share: probability with which Q* may be dropped by bets; every level gets an equal part.
            ranges: of rewards and values.
            device: where PyTorch holds the pairs; None for NumPy.
            waits: whether levels of a large class may wait.
        """
        H = functions.horizon
        self.functions, self.ranges = functions, ranges
        self._twin = _all_twins(functions)  # per level [N_h] a member that is the same function
        self._members = [np.flatnonzero(twin == np.arange(len(twin))) for twin in self._twin]
        sizes = [len(m) for m in self._members] + [1]
        limits = [bets.refutation(part) for part in share.split(*[1 / H] * H)]
        tolerance = ranges.residual.tolist()
        self._pairs = [Pairs(sizes[h], sizes[h + 1], limits[h], device, tolerance[h]) for h in range(H)]
        self.limit = limits[0]
        self._reached: list[set[bytes]] = [set() for _ in range(H)]  # names of what was seen next in bets of each level
        self._links: list[Links | None] = [None] * H
        self._found: dict[Member, list[int] | None] = {}  # places of members among those that live now
        self._waiting: list[Waiting | None] = [None] * H
        self._may_wait = [
            waits and h < H - 1 and sizes[h] * self._n_kinds(h + 1, self._members[h + 1]) > LARGE_CLASS
            for h in range(H)
        ]

    @property
    def horizon(self) -> int:
        """Number of levels H."""
        return len(self._members)

    @property
    def rounding(self) -> float:
        """How far a device may have moved the logarithm of a pair's wealth from its exact value; 0 for NumPy."""
        return max(pairs.rounding for pairs in self._pairs)

    def living(self, level: int) -> Ints:
        """Returns `[m]` the living members of a level; of equal functions one."""
        return self._members[level]

    @property
    def only(self) -> Member | None:
        """The last surviving function; None where there are several, or where samples wait that may refute the last one."""
        if any(len(m) > 1 for m in self._members) or any(w is not None for w in self._waiting):
            return None
        return tuple(int(m[0]) for m in self._members)

    @property
    def log_bound(self) -> float:
        """Logarithm of the number of chains of living members, whether or not they go together."""
        return sum(math.log(len(m)) for m in self._members)

    @property
    def log_size(self) -> float:
        """Logarithm of the number of surviving functions."""
        counts: Floats = np.ones(len(self._members[0]))
        logs = 0.0
        for pairs in self._pairs:
            by_row = np.bincount(pairs.rows.of, weights=counts, minlength=pairs.rows.count).astype(np.float64)
            counts = pairs.held.sums_over_living(by_row)[pairs.columns.of]
            scale = counts.max()
            logs, counts = logs + math.log(scale), counts / scale
        return logs

    def __contains__(self, member: Member) -> bool:
        places = self._places(member)
        if places is None:
            return False
        for h, waiting in enumerate(self._waiting):
            if waiting is not None and self._pair(places, h) in waiting.refuted:
                return False
        return all(p.lives(i, j) for p, (i, j) in zip(self._pairs, self._edges(places), strict=True))

    def absorb(self, batch: Sequence[Samples], t: int) -> int:
        """Settles the bets of a batch and drops what died; returns how many pairs and members did.

        Members that share a row or a column count as one.

        Args:
            batch: what was played, level by level.
            t: number of the batch, from 1.
        """
        died = 0
        refuted: list[Mask | None] = [None] * self.horizon  # per level [m]
        for h, samples in enumerate(batch):
            if not len(samples.actions):
                continue
            waiting = self._waiting[h]
            if waiting is not None:
                waiting.batches.append(samples)
                continue
            said = self._read(h, samples, self._pairs[h], self._members[h])
            if self._may_wait[h] and self._pairs[h].size_with(said.f, said.y) > MOST_PAIRS:
                self._put_off(h, samples, t)
                continue
            if said.wrong is not None:
                refuted[h + 1] = said.wrong
            died += self._bet(h, said, self._pairs[h], t)
        for h, wrong in enumerate(refuted):
            if wrong is not None:
                died += int(wrong.sum())
                self._keep(h, ~wrong)
        if died:
            self.settle()
        for h in reversed(range(self.horizon)):
            if self._is_due(h):
                died += self.catch_up(h)
        return died

    def _read(self, h: int, samples: Samples, pairs: Pairs, members: Ints) -> _Said:
        """Returns what members of a level, and the living ones of the next, say about samples, on the scale of bets.

        Where members were told apart by all of these samples before, one member of each row, or column, speaks for it.
        """
        known = _all_known(samples.keys, pairs.cells.known)
        some = members[pairs.rows.first] if known else members
        values = taken_values(self.functions, h, some, samples.x, samples.actions)
        f = (Known if known else Rows)(self.ranges.unit(h, values.values), values.group)
        if h == self.horizon - 1:
            paid = Rows(self.ranges.unit(h, samples.rewards[None]), np.zeros(1, dtype=np.int64))
            return _Said(samples, f, paid, None)
        following = self._members[h + 1]
        known = _all_known(samples.next_keys, self._reached[h])
        some = following[pairs.columns.first] if known else following
        top = top_values(self.functions, h + 1, some, samples.next_x)
        if len(samples.next_x) == len(samples.rewards):
            earned = samples.rewards + top.values
        else:
            earned = samples.rewards[None].repeat(len(top.values), axis=0)
            earned[:, samples.goes_on] += top.values
        # Totals have a range, so no value lies outside of what can still be earned: this costs nothing of delta.
        wrong = self.ranges.impossible(earned + samples.before, h)
        group = top.group[pairs.columns.of] if known else top.group  # [m]
        y = (Known if known else Rows)(self.ranges.unit(h, earned), top.group)
        return _Said(samples, f, y, wrong[group] if np.count_nonzero(wrong) else None)

    def _bet(self, h: int, said: _Said, pairs: Pairs, t: int) -> int:
        """Settles the bets of a level on samples and returns how many pairs died."""
        self._reached[h].update(said.samples.next_keys)
        return pairs.update(said.f, said.y, t, said.samples.keys)

    def _put_off(self, h: int, samples: Samples, t: int) -> None:
        """Lets the samples of a level wait, from these on; a level does so once at most."""
        pairs = self._pairs[h]
        self._waiting[h] = Waiting(pairs, self._members[h], self._members[h + 1], t, [samples])
        self._may_wait[h] = False
        self._pairs[h] = pairs.shown()

    def _is_due(self, h: int) -> bool:
        """Whether the samples that wait at a level may be bet on now."""
        waiting = self._waiting[h]
        if waiting is not None and waiting.counted[0] is not self._members[h + 1]:
            waiting.counted = self._members[h + 1], self._n_kinds(h + 1, self._members[h + 1])
        return waiting is not None and waiting.is_due(waiting.counted[1])

    def _n_kinds(self, h: int, members: Ints) -> int:
        """Returns at least as many as there are different max_a f of members."""
        return len(self.functions.kinds(h, members, 0)[0])

    def catch_up(self, h: int) -> int:
        """Settles the bets on all samples that wait at a level; returns how many pairs died.

        Forecasts take the members that lived when the level began to wait: nothing that was seen later chooses among
        them. Only columns that are still alive are looked at; the bets of a column do not depend on other columns.
        """
        waiting, self._waiting[h] = self._waiting[h], None
        if waiting is None:
            return 0
        pairs, died = waiting.pairs, 0
        pairs.keep_columns(np.isin(waiting.columns, self._members[h + 1], assume_unique=True))
        pairs.cells.limit(len(waiting.columns))
        refuted = np.zeros(len(self._members[h + 1]), dtype=bool)
        for t, samples in waiting.blocks():
            said = self._read(h, samples, pairs, waiting.rows)
            if said.wrong is not None:
                refuted |= said.wrong
            died += self._bet(h, said, pairs, t)
        pairs.cells.limit(None)
        pairs.keep_rows(np.isin(waiting.rows, self._members[h], assume_unique=True))
        self._pairs[h] = pairs
        for f, following in waiting.refuted:
            i, j = _place(self._members[h], f), _place(self._members[h + 1], following)
            if i is not None and j is not None:
                pairs.kill(int(pairs.rows.of[i]), int(pairs.columns.of[j]))
        self._keep(h + 1, ~refuted)
        self.settle()
        return died + int(refuted.sum())

    def log_wealth(self, member: Member) -> tuple[float, ...]:
        """Returns the logarithms of the bets won against a survivor's pairs, level by level."""
        edges = zip(self._pairs, self._edges(self._living_places(member)), strict=True)
        return tuple(bets.log_of(pairs.wealth_of(*edge)) for pairs, edge in edges)

    def least_wealth(self) -> float:
        """Returns the wealth against the survivor that bets won least against: that of its level at which they won most.

        A level that waits counts as it was when it began to wait.
        """
        least = np.zeros(1)  # [m] of the chains from each member on
        for pairs in reversed(self._pairs):
            alive, wealth, _ = pairs.held.arrays()
            following = np.full(pairs.columns.count, np.inf)
            np.minimum.at(following, pairs.columns.of, least)
            of_row = np.empty(pairs.rows.count)
            step = max(1, AT_ONCE_PAIRS // pairs.columns.count)
            for rows in (slice(first, first + step) for first in range(0, len(of_row), step)):
                some = np.where(alive[rows], np.maximum(wealth[rows], following), np.inf)
                np.minimum.reduce(some, axis=1, out=of_row[rows])
            least = of_row[pairs.rows.of]
        return float(least.min())

    def root(self, member: Member) -> int:
        """Returns the place of a survivor's root among the living members of level 0."""
        return self._living_places(member)[0]

    def kill(self, member: Member, level: int) -> None:
        """Drops a function's pair at a level, and all pairs that are equal to it on everything played so far [B2]."""
        places, waiting = self._living_places(member), self._waiting[level]
        if waiting is not None:  # its rows and columns do not say yet which pairs are equal
            waiting.refuted.add(self._pair(places, level))
            return
        i, j = self._edges(places)[level]
        self._pairs[level].kill(i, j)
        self.settle()

    def _pair(self, places: Sequence[int], level: int) -> tuple[int, int]:
        """Returns the members of a chain at a level, which is not the last, and at the next."""
        return int(self._members[level][places[level]]), int(self._members[level + 1][places[level + 1]])

    def settle(self) -> None:
        """Drops members that lie on no surviving chain: one pass backwards, one forwards.

        A member removed for lack of a partner had no living pairs left, so its removal affects no other member of the pass.

        Raises:
            BrokenPromise: no function is left.
        """
        for h in reversed(range(self.horizon)):
            pairs = self._pairs[h]
            rows = pairs.held.living_rows()
            if not rows.all():
                self._keep(h, rows[pairs.rows.of])
        for h in range(self.horizon - 1):
            pairs = self._pairs[h]
            columns = pairs.held.living_columns()
            if not columns.all():
                self._keep(h + 1, columns[pairs.columns.of])

    def _keep(self, h: int, mask: Mask) -> None:
        if mask.all():
            return
        if not mask.any():
            raise BrokenPromise(
                f"no function of level {h} is consistent with what was seen: {self.ranges.broken} With all assumptions true "
                "this happens with probability at most delta."
            )
        self._members[h] = self._members[h][mask]
        self._found.clear()
        self._pairs[h].keep_rows(mask)
        if h:
            self._pairs[h - 1].keep_columns(mask)

    def _places(self, member: Member) -> list[int] | None:
        """Returns the place of a function's members among the living, or None where one is dead."""
        if member not in self._found:
            chain = (member,) if isinstance(member, int) else member
            places = [_place(m, int(twin[i])) for twin, m, i in zip(self._twin, self._members, chain, strict=True)]
            living = [place for place in places if place is not None]
            self._found[member] = living if len(living) == len(places) else None
        return self._found[member]

    def _living_places(self, member: Member) -> list[int]:
        """Returns the place of a survivor's members among the living."""
        places = self._places(member)
        assert places is not None, "it survives"
        return places

    def _edges(self, places: Sequence[int]) -> list[tuple[int, int]]:
        """Returns row and column of a chain's pair at every level."""
        ends = [int(p.rows.of[i]) for p, i in zip(self._pairs, places, strict=True)]
        nexts = [int(p.columns.of[j]) for p, j in zip(self._pairs, [*places[1:], 0], strict=True)]
        return list(zip(ends, nexts, strict=True))

    def fit(self, first: Mask) -> Fit:
        """Returns how well chains fit that begin at living members `first` `[m]` of level 0.

        The weight of a chain is the product of the weights of its pairs. At a level that waits all living pairs weigh the
        same.
        """
        both = zip(self._pairs, self._waiting, strict=True)
        weights = [p.weights() if w is None else p.even_weights() for p, w in both]
        begins = np.where(first, 0.0, -np.inf)
        return Fit(partial(self._behind, weights, begins), partial(self._draw, weights, begins))

    def _behind(self, weights: Sequence[Weights], begins: Floats, member: Member) -> float:
        """Returns by how many nats the best chain fits better than a given survivor."""
        best = begins  # of the members of level 0, then of the columns of the level before
        for h, pairs in enumerate(self._pairs):
            if pairs.is_alone:
                best = best.max(keepdims=True)
                continue
            by_row = np.full(pairs.rows.count, -np.inf)
            if h == 0:
                np.maximum.at(by_row, pairs.rows.of, best)
            else:
                links = self._links_of(h)
                np.maximum.at(by_row, links.row, best[links.column])
            best = weights[h].largest(by_row)
        edges = self._edges(self._living_places(member))
        return float(best.max()) - sum(w.at(*edge) for w, edge in zip(weights, edges, strict=True))

    def _draw(self, weights: Sequence[Weights], begins: Floats, rng: np.random.Generator) -> Member:
        """Returns a chain at random in proportion to its weight: sums forwards, then draws backwards.

        At a level that waits the member with the number of the one that was drawn for the next level is taken, where it can
        be: levels that are alike number their functions alike.
        """
        sums = [begins]  # of the members of level 0, then of the columns of each level
        for h, pairs in enumerate(self._pairs):
            if pairs.is_alone:  # one number, which changes no proportion
                sums.append(np.zeros(1))
                continue
            if h == 0:
                by_row = _log_sums(pairs.rows.of, begins, pairs.rows.count)
            else:
                links = self._links_of(h)
                by_row = _log_sums(links.row, sums[-1][links.column] + links.log_members, pairs.rows.count)
            sums.append(weights[h].log_sums(by_row))
        place, chain = 0, list[int]()
        for h in reversed(range(self.horizon)):
            pairs, members, waiting = self._pairs[h], self._members[h], self._waiting[h]
            fits = weights[h].column(int(pairs.columns.of[place]))
            if h == 0:
                logs = begins + fits[pairs.rows.of]
                chances = np.exp(logs - logs.max())
            else:
                links = self._links_of(h)
                logs = sums[h][links.column] + fits[links.row]
                chances = np.exp(logs - logs.max())[links.place]
            place = _drawn(chances, rng)
            if waiting is not None and (chain[-1], chain[-1]) not in waiting.refuted:
                same = _place(members, chain[-1])
                place = same if same is not None and chances[same] > 0 else place
            chain.append(int(members[place]))
        return tuple(reversed(chain))

    def _links_of(self, h: int) -> "Links":
        """Returns which rows of a level's pairs its members link to which columns of the pairs before; h is at least 1."""
        columns, rows, known = self._pairs[h - 1].columns, self._pairs[h].rows, self._links[h]
        if known is None or known.of[0] is not columns or known.of[1] is not rows:
            keys, place = numbered(columns.of * rows.count + rows.of, columns.count * rows.count)
            known = Links((columns, rows), keys // rows.count, keys % rows.count, np.log(np.bincount(place)), place)
            self._links[h] = known
        return known

    def largest(self, values: Mapping[int, Floats]) -> Largest:
        """Returns the sum over levels of the largest value `[A, m]` of a living member: no chain has a larger one."""
        parts = {h: level.max(axis=-1) for h, level in values.items()}
        members = {h: self._members[h][level.argmax(axis=-1)] for h, level in values.items()}
        return Largest(np.sum(list(parts.values()), axis=0), parts, members)


class Links(NamedTuple):
    """Which rows of a level's pairs the level's members link to which columns of the pairs before. Shapes: A links."""

    of: tuple[Groups, Groups]  # the columns before and the rows that they were computed of
    column: Ints  # [A] of the pairs before
    row: Ints  # [A]
    log_members: Floats  # [A] logarithm of how many members make each link
    place: Ints  # [m] the link that each member makes


def _all_known(keys: Sequence[bytes], known: Container[bytes]) -> bool:
    """Whether members were told apart by all of these before."""
    return all(key in known for key in keys)


def _place(members: Ints, member: int) -> int | None:
    """Returns the place of a member among members in order; None where it is not one of them."""
    place = int(members.searchsorted(member))
    return place if place < len(members) and members[place] == member else None


def _drawn(chances: Floats, rng: np.random.Generator) -> int:
    """Returns a place at random in proportion to its chance."""
    sums = chances.cumsum()
    return int(np.searchsorted(sums / sums[-1], rng.random(), side="right"))


def _log_sums(group: Ints, logs: Floats, groups: int) -> Floats:
    """Returns `[groups]` the logarithm of the sum of exp(logs) in each group."""
    top = np.full(groups, -np.inf)
    np.maximum.at(top, group, logs)
    safe = np.where(top > -np.inf, top, 0.0)
    with np.errstate(divide="ignore"):
        return safe + np.log(np.bincount(group, weights=np.exp(logs - safe[group]), minlength=groups))


def _all_twins(functions: FunctionClass) -> list[Ints]:
    """Returns the twins of every level; levels that are one object have the same ones."""
    if not isinstance(functions, Layered):
        return [_twins(functions, h) for h in range(functions.horizon)]
    places: dict[int, int] = {}  # levels may have an == of their own: only the same object is the same level
    first = [places.setdefault(id(level), h) for h, level in enumerate(functions.levels)]
    twins = {h: _twins(functions, h) for h in sorted(set(first))}
    return [twins[h] for h in first]


def _twins(functions: FunctionClass, level: int) -> Ints:
    """Returns `[N]` for every member the first that the class says is the same function."""
    members = np.arange(functions.level_size(level))
    group = np.zeros(len(members), dtype=np.int64)
    for action in range(functions.n_actions):
        reps, part = functions.kinds(level, members, action)
        _, group = numbered(group * len(reps) + part, (int(group.max()) + 1) * len(reps))
    first = np.empty(int(group.max()) + 1, dtype=np.int64)
    first[group[::-1]] = members[::-1]
    return first[group]

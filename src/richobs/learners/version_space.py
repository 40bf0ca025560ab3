"""What has not been eliminated: a mask over listed functions, or a chain of bipartite graphs over a product class.

Elimination at level h couples f_h and f_{h+1} alone, and a value at a node of level h depends on f_h alone. All that is
done to the survivors of a product class is exact, at a cost of sum_h |F_h||F_{h+1}|. Shapes: N_h members of level h.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from richobs.core.errors import PrecisionError
from richobs.core.functions import FunctionClass
from richobs.core.types import Floats, Ints, Mask, Member

ULPS = 100  # a threshold must exceed the rounding of what it is compared with by this factor
BLOCK = 4_000_000  # entries of a matrix over pairs that are held at once


class Elimination(NamedTuple):
    """What an elimination did."""

    least: float  # smallest error or risk among the survivors before
    cutoff: float  # largest that survives
    log_size_before: float
    log_size_after: float


class PairError(NamedTuple):
    """An average over samples of one level, of which every function has one: it depends on f_h and f_{h+1} alone.

    error(f) = gain[f_h] - reach[row[f_h]] @ future[f_{h+1}]. Shapes: I kinds of members of the level, C next observations.
    """

    level: int
    gain: Floats  # [N_h]
    row: Ints  # [N_h] kind of each member
    reach: Floats  # [I, C] weight of each next observation
    future: Floats | None  # [N_{h+1}, C] value there; None at the last level, where error = gain


class ListedSpace:
    """Survivors as a mask over N listed functions."""

    def __init__(self, size: int):
        self._alive = np.ones(size, dtype=bool)

    @property
    def log_size(self) -> float:
        """Natural logarithm of the number of survivors."""
        return math.log(int(self._alive.sum())) if self._alive.any() else -math.inf

    def alive(self, level: int, /) -> Mask:
        """Returns `[N]` which functions survive, the same at every level."""
        return self._alive.copy()

    def keep_within(self, error: PairError, bound: float, /) -> Elimination:
        """Drops every function whose |error| exceeds `bound`."""
        check_resolution(error, bound)
        before = self.log_size
        alive = np.flatnonzero(self._alive)
        errors = error.gain[alive]
        if error.future is not None:
            errors = errors - np.einsum("nc,nc->n", error.reach[error.row[alive]], error.future[alive])
        self._alive[alive[np.abs(errors) > bound]] = False
        return Elimination(float(np.abs(errors).min()), bound, before, self.log_size)

    def optimistic(self, value: Floats, /) -> Member | None:
        """Returns the first survivor whose `value` `[N]` is largest, or None."""
        return int(np.where(self._alive, value, -np.inf).argmax()) if self._alive.any() else None


@dataclass
class Edges:
    """Which members of one level go with which of the next, as packed bits. Members that no test told apart share a row."""

    row: NDArray[np.int32]  # [N_h] which row each member has; -1 where it was dead already
    column: NDArray[np.int32]  # [N_{h+1}] which column
    n_columns: int
    words: NDArray[np.uint64]  # [rows, ceil(n_columns / 64)]

    def block(self, rows: slice | NDArray[np.integer]) -> Mask:
        """Returns `[rows, n_columns]` some rows of the matrix, unpacked."""
        return np.unpackbits(self.words[rows].view(np.uint8), axis=1, count=self.n_columns).view(bool)

    def supported(self, next_alive: Mask) -> Mask:
        """Returns `[rows]` which rows have a partner among the living members `[N_{h+1}]` of the next level."""
        live = np.zeros((1, self.n_columns), dtype=bool)
        live[0, self.column[next_alive]] = True
        return np.bitwise_or.reduce(self.words & packed(live), axis=1) != 0

    def reached(self, alive: Mask) -> Mask:
        """Returns `[n_columns]` which columns have a partner among the living members `[N_h]` of the level."""
        live = np.zeros(len(self.words), dtype=bool)
        live[self.row[alive]] = True
        union = np.bitwise_or.reduce(self.words[live], axis=0)
        return np.unpackbits(union.view(np.uint8), count=self.n_columns).view(bool)


def packed(mask: Mask) -> NDArray[np.uint64]:
    """Returns `[rows, words]` the bits of a mask `[rows, columns]`, 64 a word."""
    packed = np.packbits(mask, axis=1)
    return np.ascontiguousarray(np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8)))).view(np.uint64)


def places(size: int, members: Ints, places: Ints | None = None) -> NDArray[np.int32]:
    """Returns `[size]` the place of each member, by default its rank among `members`, and -1 for others."""
    result = np.full(size, -1, dtype=np.int32)
    result[members] = np.arange(len(members)) if places is None else places
    return result


class LayeredSpace:
    """Survivors of a product class as a chain of bipartite graphs, kept arc-consistent.

    Every remaining member and every remaining edge lies on a surviving function. Two levels between which nothing was ever
    eliminated have no edge matrix: any two remaining members go together. Members that no test has told apart share a row.
    """

    def __init__(self, sizes: list[int]):
        """Takes the number of members of each level."""
        self._alive = [np.ones(size, dtype=bool) for size in sizes]
        self._living = list(sizes)  # how many are alive
        self._edges: list[Edges | None] = [None] * (len(sizes) - 1)
        self._log_size: float | None = None

    @property
    def horizon(self) -> int:
        """Number of levels."""
        return len(self._alive)

    @property
    def log_size(self) -> float:
        """Natural logarithm of the number of surviving functions, by counting paths backwards through the chain."""
        if self._log_size is None:
            counts = self._alive[-1].astype(float)  # [N_h] continuations of each member, scaled
            logs = 0.0
            for h in reversed(range(self.horizon - 1)):
                scale = counts.max()
                logs += math.log(scale) if scale else -math.inf
                counts = self._sum_over_next(h, counts / max(scale, 1e-300))
            self._log_size = logs + math.log(counts.sum()) if counts.any() else -math.inf
        return self._log_size

    def alive(self, level: int, /) -> Mask:
        """Returns `[N_h]` which members of `level` are part of a surviving function."""
        return self._alive[level].copy()

    def keep_within(self, error: PairError, bound: float, /) -> Elimination:
        """Drops every pair (f_h, f_{h+1}) whose |error| exceeds `bound`; at the last level every such f_h.

        At least one function must survive before; perhaps none does afterwards.
        """
        check_resolution(error, bound)
        before, h = self.log_size, error.level
        rows = np.flatnonzero(self._alive[h])
        if error.future is None:
            errors = np.abs(error.gain[rows])
            least = float(errors.min())
            self._drop(h, rows[errors > bound])
        else:
            columns = np.flatnonzero(self._alive[h + 1])
            ahead = error.reach @ error.future[columns].T  # [I, columns]

            def block(b: slice) -> Floats:
                return np.abs(error.gain[rows[b], None] - ahead[error.row[rows[b]]])

            errors_of = held(block, len(rows), len(columns))
            least = self._least(h, rows, columns, errors_of)
            self._keep_pairs(h, rows, columns, lambda b: errors_of(b) <= bound)
        return Elimination(least, bound, before, self.log_size)

    def optimistic(self, value: Floats, /) -> Member | None:
        """Returns the first chain whose member at level 0 survives with the largest `value` `[N_0]`, or None."""
        if not self._alive[0].any():
            return None
        chain = [int(np.where(self._alive[0], value, -np.inf).argmax())]
        for h in range(1, self.horizon):
            members = np.flatnonzero(self._alive[h])
            chain.append(int(members[self._pairs(h - 1, np.array([chain[-1]]), members)[0].argmax()]))
        return tuple(chain)

    def _pairs(self, h: int, rows: Ints, columns: Ints) -> Mask:
        """Returns `[rows, columns]` which of these living members of levels h and h+1 go together."""
        edges = self._edges[h]
        if edges is None:
            return np.ones((len(rows), len(columns)), dtype=bool)
        return edges.block(edges.row[rows])[:, edges.column[columns]]

    def _least(self, h: int, rows: Ints, columns: Ints, numbers: Callable[[slice], Floats]) -> float:
        """Returns the smallest number of a pair that goes together, given the numbers of a block of rows."""
        return min(
            float(np.min(numbers(b), where=self._pairs(h, rows[b], columns), initial=np.inf))
            for b in blocks(len(rows), len(columns))
        )

    def _keep_pairs(self, h: int, rows: Ints, columns: Ints, fits: Callable[[slice], Mask]) -> None:
        """Drops the pairs of levels h and h+1 that do not fit, given which pairs of a block of rows do."""
        kept, everything = [], True
        for b in blocks(len(rows), len(columns)):
            keep = self._pairs(h, rows[b], columns) & fits(b)
            everything &= bool(keep.all())
            kept.append(packed(keep))
        if not everything:
            row, column = places(len(self._alive[h]), rows), places(len(self._alive[h + 1]), columns)
            self._edges[h] = Edges(row, column, len(columns), np.concatenate(kept))
            self._settle(h)

    def _sum_over_next(self, h: int, weights: Floats) -> Floats:
        """Returns `[N_h]` for each living member of level h the sum of `weights` `[N_{h+1}]` over its partners."""
        edges, columns = self._edges[h], np.flatnonzero(self._alive[h + 1])
        if edges is None:  # any two go together
            return np.where(self._alive[h], weights[columns].sum(), 0.0)
        by_column = np.bincount(edges.column[columns], weights=weights[columns], minlength=edges.n_columns)
        by_row = np.concatenate([edges.block(b) @ by_column for b in blocks(len(edges.words), edges.n_columns)])
        return np.where(self._alive[h], by_row[edges.row], 0.0)

    def _drop(self, h: int, members: Ints) -> int:
        """Drops members of a level, and members that have no partner without them; returns how many were listed."""
        if len(members):
            self._alive[h][members] = False
            self._settle(h)
        return len(members)

    def _settle(self, h: int) -> None:
        """Drops members that lie on no surviving function any more, after a change at level h or between h and h + 1.

        Going backwards a member needs a partner at the next level, going forwards one at the level before. A pass ends
        where it drops nothing. A member removed for lack of a partner had no edges left, so its removal affects no other
        member: one pass in each direction suffices.
        """
        self._log_size = None
        self._living[h] = int(self._alive[h].sum())
        for g in reversed(range(min(h + 1, self.horizon - 1))):
            edges = self._edges[g]
            if edges is None:
                supported = np.full(len(self._alive[g]), self._living[g + 1] > 0)
            else:
                supported = edges.supported(self._alive[g + 1])[edges.row]
            if not self._keep(g, supported) and g < h:
                break
        for g in range(h, self.horizon - 1):
            edges = self._edges[g]
            if edges is None:
                reached = np.full(len(self._alive[g + 1]), self._living[g] > 0)
            else:
                reached = edges.reached(self._alive[g])[edges.column]
            if not self._keep(g + 1, reached) and g > h:
                break

    def _keep(self, level: int, mask: Mask) -> bool:
        """Drops the members of a level outside `mask`; returns whether there were any."""
        before = self._living[level]
        self._alive[level] &= mask
        self._living[level] = int(self._alive[level].sum())
        return self._living[level] < before


def blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yields slices of rows that keep `BLOCK` entries at once."""
    step = max(1, BLOCK // max(1, columns))
    for first in range(0, rows, step):
        yield slice(first, min(first + step, rows))


def held(numbers: Callable[[slice], Floats], rows: int, columns: int) -> Callable[[slice], Floats]:
    """Returns a function of blocks that computes its numbers once where one block holds all of them."""
    every = list(blocks(rows, columns))
    if len(every) > 1:
        return numbers
    whole = numbers(every[0])
    return lambda b: whole


VersionSpace = LayeredSpace | ListedSpace


def version_space(functions: FunctionClass) -> VersionSpace:
    """Returns the space of all functions of a class, in the form that fits it."""
    if functions.is_product:
        return LayeredSpace([functions.level_size(h) for h in range(functions.horizon)])
    return ListedSpace(functions.level_size(0))


def check_resolution(error: PairError, bound: float) -> None:
    """Refuses a bound on errors that are not known precisely enough.

    Raises:
        PrecisionError: rounding of the errors could decide about survival.
    """
    largest = max(1.0, float(np.abs(error.gain).max()))
    if bound < ULPS * np.spacing(largest):
        raise PrecisionError(
            f"an error of {largest:.3g} is only known to about {np.spacing(largest):.1g} in float64, and the threshold is "
            f"{bound:.3g}: less than {ULPS} times that. Rounding would decide which functions survive. Use a larger epsilon "
            "or a shorter horizon."
        )

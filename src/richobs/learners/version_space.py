"""What has not been eliminated: a mask over listed functions, or a chain of bipartite graphs over a product class.

Elimination at level h couples f_h and f_{h+1} alone, and a value at a node of level h depends on f_h alone. All that LSVEE
and OLIVE do to the survivors of a product class is exact, at a cost of sum_h |F_h||F_{h+1}|. Shapes: N_h members of level h,
K actions.
"""

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from richobs.core.errors import InvalidInput, PrecisionError
from richobs.core.functions import FunctionClass
from richobs.core.types import Floats, Ints, Mask, Member

ULPS = 100  # a threshold must exceed the rounding of the risk it is added to by this factor
BLOCK = 4_000_000  # entries of a risk matrix that are held at once


class NodeRisk(NamedTuple):
    """What the squared TD error of every function at a node is made of ([KAL16] Eq. 4, centred).

    risk(f) = noise[f_h] + sum_a share[a] (gain[f_h, a] - future[f_{h+1}, a])^2.
    """

    level: int
    noise: Floats  # [N_h] mean over actions of the variance of f - r
    gain: Floats  # [N_h, K] mean of f(x, a) - r
    future: Floats | None  # [N_{h+1}, K] estimated value of the child behind each action; None at the last level
    share: Floats  # [K] how often each action was taken


class Elimination(NamedTuple):
    """What an elimination did."""

    least: float  # smallest risk among the survivors before
    cutoff: float  # largest risk that survives
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

    def eliminate(self, risk: NodeRisk, slack: float, /) -> Elimination:
        """Drops every function whose risk exceeds the smallest by more than `slack`."""
        before = self.log_size
        miss = risk.gain if risk.future is None else risk.gain - risk.future
        risks = risk.noise + (miss**2) @ risk.share
        least = float(risks[self._alive].min())
        cutoff = largest_surviving_risk(least, slack)
        self._alive = self._alive & (risks <= cutoff)
        return Elimination(least, cutoff, before, self.log_size)

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

    def pick(self, excluded: Collection[Member] = (), /) -> Member | None:
        """Returns the first survivor that is not excluded, or None."""
        return next((int(i) for i in np.flatnonzero(self._alive) if int(i) not in excluded), None)

    def optimistic(self, value: Floats, /) -> Member | None:
        """Returns the first survivor whose `value` `[N]` is largest, or None."""
        return int(np.where(self._alive, value, -np.inf).argmax()) if self._alive.any() else None

    def __contains__(self, member: Member, /) -> bool:
        if not isinstance(member, int) or not 0 <= member < len(self._alive):
            raise InvalidInput(
                f"a function of this class is an index from 0 to {len(self._alive) - 1}; got {member!r}."
            )
        return bool(self._alive[member])


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

    def eliminate(self, risk: NodeRisk, slack: float, /) -> Elimination:
        """Drops every pair (f_h, f_{h+1}) whose risk exceeds the smallest by more than `slack`; at the end every f_h."""
        before, h = self.log_size, risk.level
        rows = np.flatnonzero(self._alive[h])
        if risk.future is None:
            risks = risk.noise[rows] + (risk.gain[rows] ** 2) @ risk.share
            least = float(risks.min())
            cutoff = largest_surviving_risk(least, slack)
            self._drop(h, rows[risks > cutoff])
        else:
            columns = np.flatnonzero(self._alive[h + 1])
            risks_of = _held(_Risks(risk, rows, columns).block, len(rows), len(columns))
            least = self._least(h, rows, columns, risks_of)
            cutoff = largest_surviving_risk(least, slack)
            self._keep_pairs(h, rows, columns, lambda b: risks_of(b) <= cutoff)
        return Elimination(least, cutoff, before, self.log_size)

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

            errors_of = _held(block, len(rows), len(columns))
            least = self._least(h, rows, columns, errors_of)
            self._keep_pairs(h, rows, columns, lambda b: errors_of(b) <= bound)
        return Elimination(least, bound, before, self.log_size)

    def pick(self, excluded: Collection[Member] = (), /) -> Member | None:
        """Returns the lexicographically first surviving chain that is not excluded, or None."""
        return next((chain for chain in self._chains() if chain not in excluded), None)

    def optimistic(self, value: Floats, /) -> Member | None:
        """Returns the first chain whose member at level 0 survives with the largest `value` `[N_0]`, or None."""
        if not self._alive[0].any():
            return None
        chain = [int(np.where(self._alive[0], value, -np.inf).argmax())]
        for h in range(1, self.horizon):
            members = np.flatnonzero(self._alive[h])
            chain.append(int(members[self._pairs(h - 1, np.array([chain[-1]]), members)[0].argmax()]))
        return tuple(chain)

    def __contains__(self, member: Member, /) -> bool:
        chain = (member,) if isinstance(member, int) else tuple(member)
        if len(chain) != self.horizon:
            raise InvalidInput(f"a function of this class is one index per level, {self.horizon} in all; got {chain}.")
        for level, (alive, i) in enumerate(zip(self._alive, chain, strict=True)):
            if not 0 <= i < len(alive):
                raise InvalidInput(f"level {level} has members 0 to {len(alive) - 1}; got {i}.")
            if not alive[i]:
                return False
        pairs = zip(range(self.horizon - 1), chain, chain[1:], strict=False)
        return all(bool(self._pairs(h, np.array([i]), np.array([j]))[0, 0]) for h, i, j in pairs)

    def _chains(self) -> Iterator[tuple[int, ...]]:
        """Yields surviving chains in lexicographic order; arc consistency means that no prefix is a dead end."""
        open_: list[tuple[int, ...]] = [()]
        while open_:
            prefix = open_.pop()
            h = len(prefix)
            if h == self.horizon:
                yield prefix
                continue
            members = np.flatnonzero(self._alive[h])
            if h:
                members = members[self._pairs(h - 1, np.array([prefix[-1]]), members)[0]]
            open_.extend((*prefix, int(i)) for i in members[::-1])

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


class _Risks:
    """The risks of all pairs of living members at a node: one matrix product of inner size K, made block by block.

    Gains and futures are centred at the average future first. Near the smallest risk both are then as small as the
    survivors' disagreement, and expanding the square costs nothing in precision.
    """

    def __init__(self, risk: NodeRisk, rows: Ints, columns: Ints):
        future = np.zeros((1, len(risk.share))) if risk.future is None else risk.future[columns]
        centre = future.mean(axis=0)
        self._gain = risk.gain[rows] - centre
        self._future = future - centre
        self._own = risk.noise[rows] + self._gain**2 @ risk.share
        self._others = self._future**2 @ risk.share
        self._weighted = -2 * self._future * risk.share

    def block(self, rows: slice) -> Floats:
        """Returns `[rows, columns]` risks."""
        product = self._gain[rows] @ self._weighted.T
        product += self._own[rows, None]
        product += self._others
        return product


def blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yields slices of rows that keep `BLOCK` entries at once."""
    step = max(1, BLOCK // max(1, columns))
    for first in range(0, rows, step):
        yield slice(first, min(first + step, rows))


def _held(numbers: Callable[[slice], Floats], rows: int, columns: int) -> Callable[[slice], Floats]:
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


def largest_surviving_risk(least: float, slack: float) -> float:
    """Returns the largest risk that survives.

    Raises:
        PrecisionError: rounding of the risk could decide about survival.
    """
    if slack < ULPS * np.spacing(max(least, 0.0)):
        raise PrecisionError(
            f"a risk of {least:.3g} is only known to about {np.spacing(least):.1g} in float64, and the threshold adds "
            f"{slack:.3g} to it: less than {ULPS} times that. Rounding would decide which functions survive. Use a larger "
            "epsilon or a shorter horizon."
        )
    return least + slack

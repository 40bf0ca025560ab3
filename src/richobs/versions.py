"""What has not been eliminated: a mask over listed functions, or a chain of bipartite graphs over a product class.

Elimination at level h couples f_h and f_{h+1} alone, and a value at a node of level h depends on f_h alone. So the
survivors of a product class are the paths through a chain of graphs, one between each pair of neighbouring levels, and all
that LSVEE does to them is exact at a cost of sum_h |F_h||F_{h+1}|. Shapes: N functions (per level), K actions.
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from richobs.errors import InvalidInput, PrecisionError
from richobs.problem import Floats, FunctionClass, Ints, Mask, Member

ULPS = 100  # a threshold must exceed the rounding of the risk it is added to by this factor
BLOCK = 4_000_000  # entries of a risk matrix that are held at once
MOST_PAIRS = 256_000_000  # pairs of members between two levels that are told apart by `restrict`; 32 MB of bits


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


class ActionRisk(NamedTuple):
    """The squared TD error of every living function at a node under one action: noise[i] + (gain[i] - future[j])^2.

    Arrays run over the living members of the node's level (i) and of the next (j), in order.
    """

    level: int
    noise: Floats  # [I] variance of f - r
    gain: Floats  # [I] mean of f - r
    future: Floats  # [J] estimated value of the child; one 0 at the last level


class VersionSpace(Protocol):
    """The surviving functions of a class."""

    @property
    def log_size(self) -> float:
        """Natural logarithm of the number of survivors."""
        ...

    @property
    def log_bound(self) -> float:
        """An upper bound on `log_size` that is cheap to tell."""
        ...

    @property
    def fingerprint(self) -> tuple[int, ...]:
        """Numbers that change whenever something is dropped, cheap to tell."""
        ...

    def alive(self, level: int, /) -> Mask:
        """Returns `[N_h]` which members of `level` are part of a surviving function."""
        ...

    def eliminate(self, risk: NodeRisk, slack: float, /) -> Elimination:
        """Drops every function whose risk exceeds the smallest by more than `slack`."""
        ...

    def pick(self, excluded: Collection[Member] = (), /) -> Member | None:
        """Returns the first survivor in lexicographic order that is not excluded, or None."""
        ...

    def least(self, risk: ActionRisk, /) -> tuple[float, int, int]:
        """Returns the smallest risk of a survivor, and its places i and j in `risk`."""
        ...

    def restrict(self, risk: ActionRisk, cutoff: Floats, reach: Floats, /) -> None:
        """Drops functions with risk above `cutoff` `[J]` or |gain - future| above `reach` `[J]`.

        It may keep some of them where the class is large: what it drops always deserves it.
        """
        ...

    def draw(self, first: Mask, rng: np.random.Generator, /) -> Member:
        """Returns a survivor at random whose member at level 0 is among `first` `[N_0]`."""
        ...

    def __contains__(self, member: Member, /) -> bool:
        """Whether a function survives."""
        ...


def value_range(space: VersionSpace, level: int, v_hat: Floats) -> tuple[float, float]:
    """Returns the smallest and largest of `v_hat` `[N_h]` among the survivors."""
    surviving = v_hat[space.alive(level)]
    return float(surviving.min()), float(surviving.max())


def version_space(functions: FunctionClass) -> "LayeredSpace | ListedSpace":
    """Returns the space of all functions of a class, in the form that fits it."""
    if functions.is_product:
        return LayeredSpace([functions.level_size(h) for h in range(functions.horizon)])
    return ListedSpace(functions.level_size(0))


class ListedSpace:
    """Survivors as a mask over N listed functions."""

    def __init__(self, size: int):
        self._alive = np.ones(size, dtype=bool)

    @property
    def log_size(self) -> float:
        """Natural logarithm of the number of survivors."""
        return math.log(int(self._alive.sum())) if self._alive.any() else -math.inf

    @property
    def log_bound(self) -> float:
        """The same, which is cheap to tell here."""
        return self.log_size

    @property
    def fingerprint(self) -> tuple[int, ...]:
        """The number of survivors."""
        return (int(self._alive.sum()),)

    def alive(self, level: int, /) -> Mask:
        """Returns `[N]` which functions survive, the same at every level."""
        return self._alive.copy()

    def eliminate(self, risk: NodeRisk, slack: float, /) -> Elimination:
        """Drops every function whose risk exceeds the smallest by more than `slack`."""
        before = self.log_size
        miss = risk.gain if risk.future is None else risk.gain - risk.future
        risks = risk.noise + (miss**2) @ risk.share
        least = float(risks[self._alive].min())
        cutoff = _cutoff(least, slack)
        self._alive = self._alive & (risks <= cutoff)
        return Elimination(least, cutoff, before, self.log_size)

    def pick(self, excluded: Collection[Member] = (), /) -> Member | None:
        """Returns the first survivor that is not excluded, or None."""
        return next((int(i) for i in np.flatnonzero(self._alive) if int(i) not in excluded), None)

    def least(self, risk: ActionRisk, /) -> tuple[float, int, int]:
        """Returns the smallest risk of a survivor, and its place."""
        risks = risk.noise + (risk.gain - risk.future) ** 2
        i = int(risks.argmin())
        return float(risks[i]), i, i if len(risk.future) > 1 else 0

    def restrict(self, risk: ActionRisk, cutoff: Floats, reach: Floats, /) -> None:
        """Drops functions with risk above `cutoff` or |gain - future| above `reach`."""
        miss = np.abs(risk.gain - risk.future)
        keep = (risk.noise + miss**2 <= cutoff) & (miss <= reach)
        self._alive[np.flatnonzero(self._alive)[~keep]] = False

    def draw(self, first: Mask, rng: np.random.Generator, /) -> Member:
        """Returns a survivor at random among `first`."""
        return int(rng.choice(np.flatnonzero(self._alive & first)))

    def __contains__(self, member: Member, /) -> bool:
        if not isinstance(member, int) or not 0 <= member < len(self._alive):
            raise InvalidInput(
                f"a function of this class is an index from 0 to {len(self._alive) - 1}; got {member!r}."
            )
        return bool(self._alive[member])


@dataclass
class _Edges:
    """Which members of one level go with which of the next: packed bits over the members alive when it was made."""

    rows: Ints  # members of the level
    columns: Ints  # members of the next
    bits: NDArray[np.uint8]  # [len(rows), ceil(len(columns) / 8)]

    def block(self, rows: slice | Ints) -> Mask:
        """Returns some rows of the matrix, unpacked."""
        return np.unpackbits(self.bits[rows], axis=1, count=len(self.columns)).view(bool)


class LayeredSpace:
    """Survivors of a product class as a chain of bipartite graphs, kept arc-consistent.

    Every remaining member and every remaining edge lies on a surviving function. Two levels between which nothing was ever
    eliminated have no edge matrix: any two remaining members go together.
    """

    def __init__(self, sizes: list[int]):
        """Takes the number of members of each level."""
        self._alive = [np.ones(size, dtype=bool) for size in sizes]
        self._edges: list[_Edges | None] = [None] * (len(sizes) - 1)
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

    @property
    def log_bound(self) -> float:
        """Logarithm of the number of chains of living members, whether or not they go together."""
        return sum(math.log(n) if (n := int(alive.sum())) else -math.inf for alive in self._alive)

    @property
    def fingerprint(self) -> tuple[int, ...]:
        """How many members live, and how many bits are set between them."""
        members = [int(alive.sum()) for alive in self._alive]
        return (*members, *(0 if e is None else int(np.bitwise_count(e.bits).sum()) for e in self._edges))

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
            cutoff = _cutoff(least, slack)
            self._alive[h][rows[risks > cutoff]] = False
        else:
            columns = np.flatnonzero(self._alive[h + 1])
            blocks = list(_blocks(len(rows), len(columns)))
            products = _Risks(risk, rows, columns)
            held = products.block(blocks[0]) if len(blocks) == 1 else None  # else made twice: never more than a block

            def risks_of(b: slice) -> Floats:
                return products.block(b) if held is None else held

            least = min(
                float(np.min(risks_of(b), where=self._pairs(h, rows[b], columns), initial=np.inf)) for b in blocks
            )
            cutoff = _cutoff(least, slack)
            kept, everything = [], True
            for b in blocks:
                keep = self._pairs(h, rows[b], columns) & (risks_of(b) <= cutoff)
                everything &= bool(keep.all())
                kept.append(np.packbits(keep, axis=1))
            if not everything:
                self._edges[h] = _Edges(rows, columns, np.concatenate(kept))
        self._make_consistent()
        return Elimination(least, cutoff, before, self.log_size)

    def pick(self, excluded: Collection[Member] = (), /) -> Member | None:
        """Returns the lexicographically first surviving chain that is not excluded, or None."""
        return next((chain for chain in self._chains() if chain not in excluded), None)

    def least(self, risk: ActionRisk, /) -> tuple[float, int, int]:
        """Returns the smallest risk of two living members, whether or not they still go together, and their places."""
        order = np.argsort(risk.future, kind="stable")
        right = np.searchsorted(risk.future[order], risk.gain).clip(1 if len(order) > 1 else 0, len(order) - 1)
        left = np.maximum(right - 1, 0)
        nearer = np.abs(risk.future[order[left]] - risk.gain) <= np.abs(risk.future[order[right]] - risk.gain)
        column = order[np.where(nearer, left, right)]
        risks = risk.noise + (risk.gain - risk.future[column]) ** 2
        i = int(risks.argmin())
        return float(risks[i]), i, int(column[i])

    def restrict(self, risk: ActionRisk, cutoff: Floats, reach: Floats, /) -> None:
        """Drops members no partner of which fits, and, where there are few enough pairs to list, pairs that do not fit."""
        h = risk.level
        ours, row = np.unique(np.column_stack([risk.noise, risk.gain]), axis=0, return_inverse=True)
        theirs, column = np.unique(np.column_stack([risk.future, cutoff, reach]), axis=0, return_inverse=True)
        row, column = row.ravel(), column.ravel()
        miss = np.abs(ours[:, 1, None] - theirs[None, :, 0])
        fits = (ours[:, 0, None] + miss**2 <= theirs[None, :, 1]) & (miss <= theirs[None, :, 2])
        rows = np.flatnonzero(self._alive[h])
        if h == self.horizon - 1:
            self._alive[h][rows[~fits[row, 0]]] = False
        else:
            columns = np.flatnonzero(self._alive[h + 1])
            live_rows, live_columns = fits.any(axis=1), fits.any(axis=0)
            self._alive[h][rows[~live_rows[row]]] = False
            self._alive[h + 1][columns[~live_columns[column]]] = False
            partial = not fits[np.ix_(live_rows, live_columns)].all()
            here, there = live_rows[row], live_columns[column]
            rows, columns, row, column = rows[here], columns[there], row[here], column[there]
            if partial and (len(rows) * len(columns) <= MOST_PAIRS or self._edges[h] is not None):
                edges = self._edges[h]
                if edges is not None and 2 * len(columns) < len(edges.columns):  # compact: many have died
                    parts = [
                        np.packbits(self._pairs(h, rows[b], columns), axis=1) for b in _blocks(len(rows), len(columns))
                    ]
                    edges = _Edges(rows, columns, np.concatenate(parts))
                base = columns if edges is None else edges.columns
                table = np.zeros((len(fits), len(base)), dtype=bool)
                table[:, np.searchsorted(base, columns)] = fits[:, column]
                bits = np.packbits(table, axis=1)[row]  # a row of bits for each kind of member, handed out
                if edges is not None:
                    bits &= edges.bits[np.searchsorted(edges.rows, rows)]
                self._edges[h] = _Edges(rows, base, bits)
        self._make_consistent()

    def draw(self, first: Mask, rng: np.random.Generator, /) -> Member:
        """Returns a survivor at random, level by level, whose member at level 0 is among `first`."""
        chain: list[int] = []
        for h, alive in enumerate(self._alive):
            members = np.flatnonzero(alive & first) if h == 0 else np.flatnonzero(alive)
            if h:
                members = members[self._pairs(h - 1, np.array([chain[-1]]), members)[0]]
            chain.append(int(rng.choice(members)))
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
        block = edges.block(np.searchsorted(edges.rows, rows))
        return block[:, np.searchsorted(edges.columns, columns)]

    def _sum_over_next(self, h: int, weights: Floats) -> Floats:
        """Returns `[N_h]` for each living member of level h the sum of `weights` `[N_{h+1}]` over its partners."""
        if self._edges[h] is None:  # any two go together
            return np.where(self._alive[h], weights[self._alive[h + 1]].sum(), 0.0)
        rows, columns = np.flatnonzero(self._alive[h]), np.flatnonzero(self._alive[h + 1])
        total = np.zeros(len(self._alive[h]))
        for b in _blocks(len(rows), len(columns)):
            total[rows[b]] = self._pairs(h, rows[b], columns) @ weights[columns]
        return total

    def _make_consistent(self) -> None:
        """Drops members that lie on no surviving function: one pass backwards, one forwards, which suffices on a chain."""
        self._log_size = None
        for h in reversed(range(self.horizon - 1)):
            edges = self._edges[h]
            if edges is None:
                self._alive[h] &= self._alive[h + 1].any()
                continue
            partners = np.packbits(self._alive[h + 1][edges.columns])
            has_one = np.zeros_like(self._alive[h])
            has_one[edges.rows] = (edges.bits & partners).any(axis=1)
            self._alive[h] &= has_one
        for h in range(self.horizon - 1):
            edges = self._edges[h]
            if edges is None:
                self._alive[h + 1] &= self._alive[h].any()
                continue
            reached = np.bitwise_or.reduce(edges.bits[self._alive[h][edges.rows]], axis=0)
            has_one = np.zeros_like(self._alive[h + 1])
            has_one[edges.columns] = np.unpackbits(reached, count=len(edges.columns)).view(bool)
            self._alive[h + 1] &= has_one


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


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yields slices of rows that keep `BLOCK` entries at once."""
    step = max(1, BLOCK // max(1, columns))
    for first in range(0, rows, step):
        yield slice(first, min(first + step, rows))


def _cutoff(least: float, slack: float) -> float:
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

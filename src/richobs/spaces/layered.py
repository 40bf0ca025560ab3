"""Survivors of a product class: a chain of bipartite graphs, one between each pair of neighbouring levels.

All that LSVEE does to the survivors is exact at a cost of sum_h |F_h||F_{h+1}|. Shapes: N_h members of level h, K actions.
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from richobs.core.errors import InvalidInput
from richobs.core.types import Floats, Ints, Mask, Member
from richobs.spaces.base import ActionRisk, Elimination, NodeRisk, PairError, check_resolution, largest_surviving_risk
from richobs.stats.grouping import kinds, numbered

BLOCK = 4_000_000  # entries of a risk matrix that are held at once
MOST_PAIRS = 256_000_000  # kinds of pairs between two levels that are told apart by `restrict`; 32 MB of bits


@dataclass
class _Edges:
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
        return np.bitwise_or.reduce(self.words & _packed(live), axis=1) != 0

    def reached(self, alive: Mask) -> Mask:
        """Returns `[n_columns]` which columns have a partner among the living members `[N_h]` of the level."""
        live = np.zeros(len(self.words), dtype=bool)
        live[self.row[alive]] = True
        union = np.bitwise_or.reduce(self.words[live], axis=0)
        return np.unpackbits(union.view(np.uint8), count=self.n_columns).view(bool)


def _packed(mask: Mask) -> NDArray[np.uint64]:
    """Returns `[rows, words]` the bits of a mask `[rows, columns]`, 64 a word."""
    packed = np.packbits(mask, axis=1)
    return np.ascontiguousarray(np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8)))).view(np.uint64)


def _places(size: int, members: Ints, places: Ints | None = None) -> NDArray[np.int32]:
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
        return sum(math.log(n) if n else -math.inf for n in self._living)

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
            cutoff = largest_surviving_risk(least, slack)
            kept, everything = [], True
            for b in blocks:
                keep = self._pairs(h, rows[b], columns) & (risks_of(b) <= cutoff)
                everything &= bool(keep.all())
                kept.append(_packed(keep))
            if not everything:
                row, column = _places(len(self._alive[h]), rows), _places(len(self._alive[h + 1]), columns)
                self._edges[h] = _Edges(row, column, len(columns), np.concatenate(kept))
        self._settle(h)
        return Elimination(least, cutoff, before, self.log_size)

    def keep_within(self, error: PairError, bound: float, /) -> Elimination:
        """Drops every pair (f_h, f_{h+1}) whose |error| exceeds `bound`; at the last level every such f_h."""
        check_resolution(error, bound)
        before, h = self.log_size, error.level
        rows = np.flatnonzero(self._alive[h])
        if error.future is None:
            errors = np.abs(error.gain[rows])
            least = float(errors.min())
            self._alive[h][rows[errors > bound]] = False
            self._settle(h)
            return Elimination(least, bound, before, self.log_size)
        columns = np.flatnonzero(self._alive[h + 1])
        ahead = error.reach @ error.future[columns].T  # [I, columns]
        least, kept, everything = np.inf, [], True
        for b in _blocks(len(rows), len(columns)):
            pairs = self._pairs(h, rows[b], columns)
            errors = np.abs(error.gain[rows[b], None] - ahead[error.row[rows[b]]])
            least = min(least, float(np.min(errors, where=pairs, initial=np.inf)))
            keep = pairs & (errors <= bound)
            everything &= bool(keep.all())
            kept.append(_packed(keep))
        if not everything:
            row, column = _places(len(self._alive[h]), rows), _places(len(self._alive[h + 1]), columns)
            self._edges[h] = _Edges(row, column, len(columns), np.concatenate(kept))
            self._settle(h)
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

    def least(self, risk: ActionRisk, /) -> tuple[float, int, int]:
        """Returns the smallest risk of two kinds of members, whether or not they still go together, and these kinds."""
        order = np.argsort(risk.future, kind="stable")
        right = np.searchsorted(risk.future[order], risk.gain).clip(1 if len(order) > 1 else 0, len(order) - 1)
        left = np.maximum(right - 1, 0)
        nearer = np.abs(risk.future[order[left]] - risk.gain) <= np.abs(risk.future[order[right]] - risk.gain)
        column = order[np.where(nearer, left, right)]
        risks = risk.noise + (risk.gain - risk.future[column]) ** 2
        i = int(risks.argmin())
        return float(risks[i]), i, int(column[i])

    def restrict(self, risk: ActionRisk, cutoff: Floats, reach: Floats, /) -> bool:
        """Drops pairs that do not fit; where there are too many kinds of pairs to list, members no partner of which fits.

        Returns whether anything was dropped.
        """
        h = risk.level
        ours, row = kinds(risk.noise, risk.gain)
        theirs, column = kinds(risk.future, cutoff, reach)
        miss = np.abs(risk.gain[ours][:, None] - risk.future[theirs])
        fits = (risk.noise[ours][:, None] + miss**2 <= cutoff[theirs]) & (miss <= reach[theirs])
        rows, row = np.flatnonzero(self._alive[h]), row[risk.row]
        if h == self.horizon - 1:
            return self._drop(h, rows[~fits[row, 0]]) > 0
        columns, column = np.flatnonzero(self._alive[h + 1]), column[risk.column]
        edges = self._edges[h]
        r = _Refined.of(None if edges is None else edges.row[rows], row)
        c = _Refined.of(None if edges is None else edges.column[columns], column)
        if len(r.new) * len(c.new) > MOST_PAIRS:
            without_partner = ~fits[:, np.unique(column)].any(axis=1), ~fits[np.unique(row)].any(axis=0)
            dropped = self._drop(h, rows[without_partner[0][row]])
            dropped += self._drop(h + 1, columns[without_partner[1][column]])
            return dropped > 0
        dropped, parts = False, []
        for b in _blocks(len(r.new), len(c.new)):
            keep = fits[r.new[b]][:, c.new]
            if edges is None:
                dropped |= not bool(keep.all())
            else:
                were = edges.block(r.old[b])[:, c.old]
                dropped |= bool((were & ~keep).any())
                keep &= were
            parts.append(_packed(keep))
        if dropped:
            row_of = _places(len(self._alive[h]), rows, r.place)
            column_of = _places(len(self._alive[h + 1]), columns, c.place)
            self._edges[h] = _Edges(row_of, column_of, len(c.new), np.concatenate(parts))
            self._settle(h)
        return dropped

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
        return edges.block(edges.row[rows])[:, edges.column[columns]]

    def _sum_over_next(self, h: int, weights: Floats) -> Floats:
        """Returns `[N_h]` for each living member of level h the sum of `weights` `[N_{h+1}]` over its partners."""
        edges, columns = self._edges[h], np.flatnonzero(self._alive[h + 1])
        if edges is None:  # any two go together
            return np.where(self._alive[h], weights[columns].sum(), 0.0)
        by_column = np.bincount(edges.column[columns], weights=weights[columns], minlength=edges.n_columns)
        blocks = _blocks(len(edges.words), edges.n_columns)
        by_row = np.concatenate([edges.block(b) @ by_column for b in blocks])
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


class _Refined(NamedTuple):
    """Classes of members that neither an old partition nor a new one tells apart."""

    place: Ints  # class of each member
    old: Ints  # [classes] the old class that each lies in
    new: Ints  # [classes] the new one

    @classmethod
    def of(cls, old: NDArray[np.int32] | None, new: Ints) -> "_Refined":
        many = int(new.max()) + 1
        if old is None:
            keys, place = numbered(new, many)
        else:
            keys, place = numbered(old.astype(np.int64) * many + new, (int(old.max()) + 1) * many)
        return cls(place, keys // many, keys % many)


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

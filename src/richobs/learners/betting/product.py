"""Survivors of a product class: chains of members, one per level, through living pairs [B1].

Shapes: m living members of a level, R rows and C columns of its pairs.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from richobs.classes.layered import Layered
from richobs.core.errors import BrokenPromise
from richobs.core.functions import FunctionClass
from richobs.core.types import Floats, Ints, Mask, Member
from richobs.learners.betting.pairs import HostPairs, Pairs, Weights
from richobs.learners.betting.ranges import Ranges
from richobs.learners.betting.reading import Known, Largest, Rows, Seen, Steps, taken_values, top_values
from richobs.stats import bets
from richobs.stats.grouping import numbered
from richobs.stats.shares import Share


class ProductSurvivors:
    """What is left of a product class. Every living member and every living pair lies on a surviving chain."""

    def __init__(self, functions: FunctionClass, share: Share, ranges: Ranges, device: str | None = None):
        """Starts with the whole class.

        Args:
            functions: the class.
            share: probability with which Q* may be dropped by bets; every level gets an equal part.
            ranges: of rewards and values.
            device: where PyTorch holds the pairs; None for NumPy.
        """
        H = functions.horizon
        self.functions, self.ranges = functions, ranges
        self._twin = _all_twins(functions)  # per level [N_h] a member that is the same function
        self._members = [np.flatnonzero(twin == np.arange(len(twin))) for twin in self._twin]
        sizes = [len(m) for m in self._members] + [1]
        limits = [bets.death(part) for part in share.split(*[1 / H] * H)]
        self._pairs = [_pairs(sizes[h], sizes[h + 1], limits[h], device) for h in range(H)]
        self.limit = limits[0]
        self._taken, self._reached = [Seen() for _ in range(H)], [Seen() for _ in range(H)]
        self._links = [_Links() for _ in range(H)]

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
        """The last surviving function; None where there are several."""
        if any(len(m) > 1 for m in self._members):
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
            by_row = np.bincount(pairs.row, weights=counts, minlength=pairs.n_rows).astype(np.float64)
            counts = pairs.sums_over_living(by_row)[pairs.column]
            scale = counts.max()
            logs, counts = logs + math.log(scale), counts / scale
        return logs

    def __contains__(self, member: Member) -> bool:
        places = self._places(member)
        if places is None:
            return False
        return all(p.lives(i, j) for p, (i, j) in zip(self._pairs, self._edges(places), strict=True))

    def absorb(self, steps: Sequence[Steps], t: int) -> int:
        """Settles the bets of a batch and drops what died; returns how many pairs and members did.

        Members that share a row or a column count as one.

        Args:
            steps: what was played, level by level.
            t: number of the batch, from 1.
        """
        died = 0
        refuted: list[Mask | None] = [None] * self.horizon  # per level [m]
        for h, step in enumerate(steps):
            if not len(step.actions):
                continue
            f, (y, wrong) = self._values(h, step), self._earned(h, step)
            if wrong is not None:
                refuted[h + 1] = wrong
            died += self._pairs[h].update(f, y, t, step.x, step.actions)
        for h, wrong in enumerate(refuted):
            if wrong is not None:
                died += int(wrong.sum())
                self._keep(h, ~wrong)
        self.settle()
        return died

    def _values(self, h: int, step: Steps) -> Rows | Known:
        """Returns f(x, a) of the level's members on the scale of bets.

        Where members were told apart by all of the batch before, one member of each row speaks for it.
        """
        members, row = self._members[h], self._pairs[h].row
        known = self._taken[h].add(step.x, step.actions)
        some = members[self._links[h].one_of_row(row)] if known else members
        f = taken_values(self.functions, h, some, step.x, step.actions)
        return (Known if known else Rows)(self.ranges.unit(h, f.values), f.group)

    def _earned(self, h: int, step: Steps) -> tuple[Rows | Known, Mask | None]:
        """Returns y for the members of the next level, and `[m]` which of them predict what cannot be earned, if any do."""
        if h == self.horizon - 1:
            return Rows(self.ranges.unit(h, step.rewards[None]), np.zeros(1, dtype=np.int64)), None
        members, column = self._members[h + 1], self._pairs[h].column
        known = self._reached[h].add(step.next_x[step.goes_on])
        some = members[self._links[h + 1].one_of_column(column)] if known else members
        top = top_values(self.functions, h + 1, some, step.next_x[step.goes_on])
        y = np.tile(step.rewards, (len(top.values), 1))
        y[:, step.goes_on] += top.values
        # Totals have a range, so no value lies outside of what can still be earned: this costs nothing of delta.
        wrong = self.ranges.impossible(y + step.before)
        y = self.ranges.unit(h, y)
        if known:
            return Known(y, top.group), wrong[top.group][column] if wrong.any() else None
        return Rows(y, top.group), wrong[top.group] if wrong.any() else None

    def log_wealth(self, member: Member) -> tuple[float, ...]:
        """Returns the logarithms of the bets won against a survivor's pairs, level by level."""
        places = self._places(member)
        assert places is not None, "it survives"
        edges = zip(self._pairs, self._edges(places), strict=True)
        return tuple(bets.log_of(pairs.wealth_of(*edge)) for pairs, edge in edges)

    def root(self, member: Member) -> int:
        """Returns the place of a survivor's root among the living members of level 0."""
        places = self._places(member)
        assert places is not None, "it survives"
        return places[0]

    def kill(self, member: Member, level: int) -> None:
        """Drops a function's pair at a level, and all pairs that are equal to it on everything played so far [B2]."""
        places = self._places(member)
        assert places is not None, "a candidate is alive"
        i, j = self._edges(places)[level]
        self._pairs[level].kill(i, j)
        self.settle()

    def settle(self) -> None:
        """Drops members that lie on no surviving chain: one pass backwards, one forwards.

        A member removed for lack of a partner had no living pairs left, so its removal affects no other member of the pass.

        Raises:
            BrokenPromise: no function is left.
        """
        for h in reversed(range(self.horizon)):
            rows = self._pairs[h].living_rows()
            if not rows.all():
                self._keep(h, rows[self._pairs[h].row])
        for h in range(self.horizon - 1):
            columns = self._pairs[h].living_columns()
            if not columns.all():
                self._keep(h + 1, columns[self._pairs[h].column])

    def _keep(self, h: int, mask: Mask) -> None:
        if mask.all():
            return
        if not mask.any():
            raise BrokenPromise(
                f"no function of level {h} is consistent with what was seen: Q* is not in the class, or the value of an "
                "observation depends on what was seen before it. With all assumptions true this happens with probability at "
                "most delta."
            )
        self._members[h] = self._members[h][mask]
        self._pairs[h].keep_rows(mask)
        if h:
            self._pairs[h - 1].keep_columns(mask)

    def _places(self, member: Member) -> list[int] | None:
        """Returns the place of a function's members among the living, or None where one is dead."""
        chain = (member,) if isinstance(member, int) else member
        places = []
        for twin, members, i in zip(self._twin, self._members, chain, strict=True):
            place = int(np.searchsorted(members, twin[i]))
            if place == len(members) or members[place] != twin[i]:
                return None
            places.append(place)
        return places

    def _edges(self, places: Sequence[int]) -> list[tuple[int, int]]:
        """Returns row and column of a chain's pair at every level."""
        ends = [int(p.row[i]) for p, i in zip(self._pairs, places, strict=True)]
        nexts = [int(p.column[j]) for p, j in zip(self._pairs, [*places[1:], 0], strict=True)]
        return list(zip(ends, nexts, strict=True))

    def fit(self, first: Mask) -> "ProductFit":
        """Returns how well the chains fit that begin at living members `first` `[m]` of level 0."""
        return ProductFit(self, [p.weights() for p in self._pairs], first)

    def links(self, h: int) -> "Links":
        """Returns which rows of a level's pairs its members link to which columns of the pairs before; h is at least 1."""
        return self._links[h].between(self._pairs[h - 1].column, self._pairs[h].row)

    def largest(self, values: Mapping[int, Floats]) -> Largest:
        """Returns the sum over levels of the largest value `[A, m]` of a living member: no chain has a larger one."""
        parts = {h: level.max(axis=-1) for h, level in values.items()}
        members = {h: self._members[h][level.argmax(axis=-1)] for h, level in values.items()}
        return Largest(np.sum(list(parts.values()), axis=0), parts, members)


class ProductFit:
    """How well the surviving chains fit what was seen: the product of the weights of their pairs."""

    def __init__(self, space: ProductSurvivors, weights: Sequence[Weights], first: Mask):
        """Takes the survivors, the weights of each level's pairs, and `[m]` where a chain may begin."""
        self._space = space
        self._weights = weights
        self._first = np.where(first, 0.0, -np.inf)

    def behind(self, member: Member) -> float:
        """Returns by how many nats the best chain fits better than a given survivor."""
        best = self._first  # of the members of level 0, then of the columns of the level before
        for h, (pairs, weights) in enumerate(zip(self._space._pairs, self._weights, strict=True)):
            by_row = np.full(pairs.n_rows, -np.inf)
            if h == 0:
                np.maximum.at(by_row, pairs.row, best)
            else:
                links = self._space.links(h)
                np.maximum.at(by_row, links.row, best[links.column])
            best = weights.largest(by_row)
        places = self._space._places(member)
        assert places is not None, "it survives"
        own = sum(w.at(*edge) for w, edge in zip(self._weights, self._space._edges(places), strict=True))
        return float(best.max()) - own

    def draw(self, rng: np.random.Generator) -> Member:
        """Returns a chain at random in proportion to its weight: sums forwards, then draws backwards."""
        space, sums = self._space, [self._first]  # of the members of level 0, then of the columns of each level
        for h, (pairs, weights) in enumerate(zip(space._pairs, self._weights, strict=True)):
            if h == 0:
                by_row = _log_sums(pairs.row, sums[0], pairs.n_rows)
            else:
                links = space.links(h)
                by_row = _log_sums(links.row, sums[-1][links.column] + np.log(links.members), pairs.n_rows)
            sums.append(weights.log_sums(by_row))
        place, chain = 0, []
        for h in reversed(range(space.horizon)):
            pairs = space._pairs[h]
            fits = self._weights[h].column(int(pairs.column[place]))
            if h == 0:
                logs = sums[0] + fits[pairs.row]
                chances = np.exp(logs - logs.max())
            else:
                links = space.links(h)
                logs = sums[h][links.column] + fits[links.row]
                chances = np.exp(logs - logs.max())[links.place]
            place = _drawn(chances, rng)
            chain.append(int(space.living(h)[place]))
        return tuple(reversed(chain))


class Links(NamedTuple):
    """Which rows of a level's pairs the level's members link to which columns of the pairs before. Shapes: A links."""

    column: Ints  # [A] of the pairs before
    row: Ints  # [A]
    members: Floats  # [A] how many members make each link
    place: Ints  # [m] the link that each member makes


class _Links:
    """The links of one level and a member of each row and column, computed again only where members were told apart."""

    def __init__(self) -> None:
        self._links: tuple[Ints, Ints, Links] | None = None  # of which columns and rows of members
        self._of_rows: tuple[Ints, Ints] | None = None
        self._of_columns: tuple[Ints, Ints] | None = None

    def between(self, column: Ints, row: Ints) -> Links:
        """Returns the links of members with these columns `[m]` and rows `[m]`."""
        if self._links is None or self._links[0] is not column or self._links[1] is not row:
            many = int(row.max()) + 1
            keys, place = numbered(column * many + row, (int(column.max()) + 1) * many)
            members = np.bincount(place).astype(np.float64)
            self._links = column, row, Links(keys // many, keys % many, members, place)
        return self._links[2]

    def one_of_row(self, row: Ints) -> Ints:
        """Returns `[R]` the place of a member of each row."""
        if self._of_rows is None or self._of_rows[0] is not row:
            self._of_rows = row, _one_of(row)
        return self._of_rows[1]

    def one_of_column(self, column: Ints) -> Ints:
        """Returns `[C]` the place of a member of each column of the pairs before."""
        if self._of_columns is None or self._of_columns[0] is not column:
            self._of_columns = column, _one_of(column)
        return self._of_columns[1]


def _one_of(group: Ints) -> Ints:
    """Returns the first place of each group."""
    one = np.empty(int(group.max()) + 1, dtype=np.int64)
    one[group[::-1]] = np.arange(len(group))[::-1]
    return one


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


def _pairs(rows: int, columns: int, limit: float, device: str | None) -> Pairs:
    """Returns the pairs of a level, in NumPy or on a device."""
    if device is None:
        return HostPairs(rows, columns, limit)
    from richobs.learners.betting.device_pairs import DevicePairs

    return DevicePairs(rows, columns, limit, device)


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

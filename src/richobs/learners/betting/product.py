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
from richobs.learners.betting.waiting import Waiting, begins, may_wait
from richobs.stats import bets
from richobs.stats.grouping import numbered
from richobs.stats.shares import Share


class _Batch(NamedTuple):
    """What members say about the samples of a level."""

    step: Steps
    f: Rows | Known  # values of the level's members at what was played
    y: Rows | Known  # reward plus the largest value at the next level, for its members
    wrong: Mask | None  # [m] members of the next level that predict what cannot be earned, if any do
    taken: set[bytes]  # digests of what was played
    reached: set[bytes]  # and of what was seen next


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
        self._waiting: list[Waiting | None] = [None] * H
        self._may_wait = [
            h < H - 1 and may_wait(sizes[h], self._n_kinds(h + 1, self._members[h + 1])) for h in range(H)
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
            by_row = np.bincount(pairs.row, weights=counts, minlength=pairs.n_rows).astype(np.float64)
            counts = pairs.sums_over_living(by_row)[pairs.column]
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
            waiting = self._waiting[h]
            if waiting is not None:
                waiting.steps.append(step)
                continue
            batch = self._read(h, step, self._pairs[h], self._members[h])
            if self._may_wait[h] and begins(self._pairs[h].size_with(batch.f, batch.y)):
                self._put_off(h, step, t)
                continue
            if batch.wrong is not None:
                refuted[h + 1] = batch.wrong
            died += self._bet(h, batch, self._pairs[h], t)
        for h, wrong in enumerate(refuted):
            if wrong is not None:
                died += int(wrong.sum())
                self._keep(h, ~wrong)
        self.settle()
        for h in reversed(range(self.horizon)):
            if self._is_due(h):
                died += self.catch_up(h)
        return died

    def _read(self, h: int, step: Steps, pairs: Pairs, members: Ints) -> "_Batch":
        """Returns what members of a level, and the living ones of the next, say about samples, on the scale of bets.

        Where members were told apart by all of these samples before, one member of each row, or column, speaks for it.
        """
        taken = self._taken[h].keys(step.x, step.actions)
        known = self._taken[h].has(taken)
        some = members[self._links[h].one_of_row(pairs.row)] if known else members
        values = taken_values(self.functions, h, some, step.x, step.actions)
        f = (Known if known else Rows)(self.ranges.unit(h, values.values), values.group)
        if h == self.horizon - 1:
            paid = Rows(self.ranges.unit(h, step.rewards[None]), np.zeros(1, dtype=np.int64))
            return _Batch(step, f, paid, None, taken, set())
        following = self._members[h + 1]
        reached = self._reached[h].keys(step.next_x[step.goes_on])
        known = self._reached[h].has(reached)
        some = following[self._links[h + 1].one_of_column(pairs.column)] if known else following
        top = top_values(self.functions, h + 1, some, step.next_x[step.goes_on])
        earned = np.tile(step.rewards, (len(top.values), 1))
        earned[:, step.goes_on] += top.values
        # Totals have a range, so no value lies outside of what can still be earned: this costs nothing of delta.
        wrong = self.ranges.impossible(earned + step.before)
        group = top.group[pairs.column] if known else top.group  # [m]
        y = (Known if known else Rows)(self.ranges.unit(h, earned), top.group)
        return _Batch(step, f, y, wrong[group] if wrong.any() else None, taken, reached)

    def _bet(self, h: int, batch: "_Batch", pairs: Pairs, t: int) -> int:
        """Settles the bets of a level on samples and returns how many pairs died."""
        self._taken[h].add(batch.taken)
        self._reached[h].add(batch.reached)
        return pairs.update(batch.f, batch.y, t, batch.step.x, batch.step.actions)

    def _put_off(self, h: int, step: Steps, t: int) -> None:
        """Lets the samples of a level wait, from these on; a level does so once at most."""
        pairs = self._pairs[h]
        self._waiting[h] = Waiting(pairs, self._members[h], self._members[h + 1], t, [step])
        self._may_wait[h] = False
        self._pairs[h] = pairs.shown()

    def _is_due(self, h: int) -> bool:
        """Whether the samples that wait at a level may be bet on now."""
        waiting = self._waiting[h]
        return waiting is not None and waiting.is_due(self._n_kinds(h + 1, self._members[h + 1]))

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
        for t, step in waiting.blocks():
            batch = self._read(h, step, pairs, waiting.rows)
            if batch.wrong is not None:
                refuted |= batch.wrong
            died += self._bet(h, batch, pairs, t)
        pairs.cells.limit(None)
        pairs.keep_rows(np.isin(waiting.rows, self._members[h], assume_unique=True))
        self._pairs[h] = pairs
        for f, following in waiting.refuted:
            i, j = _place(self._members[h], f), _place(self._members[h + 1], following)
            if i is not None and j is not None:
                pairs.kill(int(pairs.row[i]), int(pairs.column[j]))
        self._keep(h + 1, ~refuted)
        self.settle()
        return died + int(refuted.sum())

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
        places, waiting = self._places(member), self._waiting[level]
        assert places is not None, "a candidate is alive"
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
            place = _place(members, int(twin[i]))
            if place is None:
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
        both = zip(self._pairs, self._waiting, strict=True)
        return ProductFit(self, [p.weights() if w is None else p.even_weights() for p, w in both], first)

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
        """Returns a chain at random in proportion to its weight: sums forwards, then draws backwards.

        At a level that waits all living pairs weigh the same. There the member with the number of the one that was drawn
        for the next level is taken, where it can be: levels that are alike number their functions alike.
        """
        space, sums = self._space, [self._first]  # of the members of level 0, then of the columns of each level
        for h, (pairs, weights) in enumerate(zip(space._pairs, self._weights, strict=True)):
            if h == 0:
                by_row = _log_sums(pairs.row, sums[0], pairs.n_rows)
            else:
                links = space.links(h)
                by_row = _log_sums(links.row, sums[-1][links.column] + np.log(links.members), pairs.n_rows)
            sums.append(weights.log_sums(by_row))
        place, chain = 0, list[int]()
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
            waiting = space._waiting[h]
            if waiting is not None and (chain[-1], chain[-1]) not in waiting.refuted:
                same = _place(space.living(h), chain[-1])
                place = same if same is not None and chances[same] > 0 else place
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


def _place(members: Ints, member: int) -> int | None:
    """Returns the place of a member among members in order; None where it is not one of them."""
    place = int(np.searchsorted(members, member))
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

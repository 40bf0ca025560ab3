"""Survivors of a product class: chains of members, one per level, through living pairs [B1].

Shapes: m living members of a level, R rows and C columns of its pairs.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from richobs.core.errors import BrokenPromise
from richobs.core.functions import FunctionClass
from richobs.core.types import Floats, Ints, Mask, Member
from richobs.learners.betting.pairs import Pairs
from richobs.learners.betting.ranges import Ranges
from richobs.learners.betting.reading import Largest, Rows, Steps, taken_values, top_values
from richobs.stats import bets
from richobs.stats.grouping import numbered
from richobs.stats.shares import Share


class ProductSurvivors:
    """What is left of a product class. Every living member and every living pair lies on a surviving chain."""

    def __init__(self, functions: FunctionClass, share: Share, ranges: Ranges):
        """Starts with the whole class.

        Args:
            functions: the class.
            share: probability with which Q* may be dropped by bets; every level gets an equal part.
            ranges: of rewards and values.
        """
        H = functions.horizon
        self.functions, self.ranges = functions, ranges
        self._twin = [_twins(functions, h) for h in range(H)]  # [N_h] a member that is the same function
        self._members = [np.unique(twin) for twin in self._twin]
        sizes = [len(m) for m in self._members] + [1]
        limits = [bets.death(part) for part in share.split(*[1 / H] * H)]
        self._pairs = [Pairs(sizes[h], sizes[h + 1], limits[h]) for h in range(H)]
        self.limit = limits[0]

    @property
    def horizon(self) -> int:
        """Number of levels H."""
        return len(self._members)

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
            by_row = np.bincount(pairs.row, weights=counts, minlength=len(pairs.alive)).astype(np.float64)
            counts = np.asarray(by_row @ pairs.alive, dtype=np.float64)[pairs.column]
            scale = counts.max()
            logs, counts = logs + math.log(scale), counts / scale
        return logs

    def __contains__(self, member: Member) -> bool:
        places = self._places(member)
        if places is None:
            return False
        return all(bool(p.alive[i, j]) for p, (i, j) in zip(self._pairs, self._edges(places), strict=True))

    def absorb(self, steps: Sequence[Steps], t: int) -> int:
        """Settles the bets of a batch and drops what died; returns how many pairs and members did.

        Members that share a row or a column count as one.

        Args:
            steps: what was played, level by level.
            t: number of the batch, from 1.
        """
        H, died = self.horizon, 0
        refuted = [np.zeros(len(m), dtype=bool) for m in self._members]
        for h, step in enumerate(steps):
            if not len(step.actions):
                continue
            f = taken_values(self.functions, h, self._members[h], step.x, step.actions)
            if h == H - 1:
                y = Rows(step.rewards[None], np.zeros(1, dtype=np.int64))
            else:
                top = top_values(self.functions, h + 1, self._members[h + 1], step.next_x[step.goes_on])
                y = Rows(np.tile(step.rewards, (len(top.values), 1)), top.group)
                y.values[:, step.goes_on] += top.values
                # Totals have a range, so no value lies outside of what can still be earned: this costs nothing of delta.
                refuted[h + 1] = self.ranges.impossible(y.values + step.before)[top.group]
            f, y = (Rows(self.ranges.unit(h, rows.values), rows.group) for rows in (f, y))
            died += self._pairs[h].update(f, y, t, step.x, step.actions)
        for h, wrong in enumerate(refuted):
            died += int(wrong.sum())
            self._keep(h, ~wrong)
        self.settle()
        return died

    def log_wealth(self, member: Member) -> tuple[float, ...]:
        """Returns the logarithms of the bets won against a survivor's pairs, level by level."""
        places = self._places(member)
        assert places is not None, "it survives"
        edges = zip(self._pairs, self._edges(places), strict=True)
        return tuple(bets.log_of(pairs.wealth[edge]) for pairs, edge in edges)

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
        self._pairs[level].alive[i, j] = False
        self.settle()

    def settle(self) -> None:
        """Drops members that lie on no surviving chain: one pass backwards, one forwards.

        A member removed for lack of a partner had no living pairs left, so its removal affects no other member of the pass.

        Raises:
            BrokenPromise: no function is left.
        """
        for h in reversed(range(self.horizon)):
            self._keep(h, np.any(self._pairs[h].alive, axis=1)[self._pairs[h].row])
        for h in range(self.horizon - 1):
            self._keep(h + 1, np.any(self._pairs[h].alive, axis=0)[self._pairs[h].column])

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
        return ProductFit(self, [p.log_weights() for p in self._pairs], first)

    def largest(self, values: Mapping[int, Floats]) -> Largest:
        """Returns the sum over levels of the largest value `[A, m]` of a living member: no chain has a larger one."""
        parts = {h: level.max(axis=-1) for h, level in values.items()}
        members = {h: self._members[h][level.argmax(axis=-1)] for h, level in values.items()}
        return Largest(np.sum(list(parts.values()), axis=0), parts, members)


class ProductFit:
    """How well the surviving chains fit what was seen: the product of the weights of their pairs."""

    def __init__(self, space: ProductSurvivors, logs: Sequence[Floats], first: Mask):
        """Takes the survivors, `[R, C]` logarithms of weights per level, and `[m]` where a chain may begin."""
        self._space = space
        self._logs = logs
        self._first = first

    def behind(self, member: Member) -> float:
        """Returns by how many nats the best chain fits better than a given survivor."""
        best = np.where(self._first, 0.0, -np.inf)
        for pairs, logs in zip(self._space._pairs, self._logs, strict=True):
            by_row = np.full(len(logs), -np.inf)
            np.maximum.at(by_row, pairs.row, best)
            rows = np.flatnonzero(by_row > -np.inf)
            best = (by_row[rows, None] + logs[rows]).max(axis=0)[pairs.column]
        places = self._space._places(member)
        assert places is not None, "it survives"
        own = sum(float(logs[i, j]) for logs, (i, j) in zip(self._logs, self._space._edges(places), strict=True))
        return float(best.max()) - own

    def draw(self, rng: np.random.Generator) -> Member:
        """Returns a chain at random in proportion to its weight: sums forwards, then draws backwards."""
        space, sums = self._space, [np.where(self._first, 0.0, -np.inf)]
        for pairs, logs in zip(space._pairs, self._logs, strict=True):
            by_row = _log_sums(pairs.row, sums[-1], len(logs))
            rows = np.flatnonzero(by_row > -np.inf)
            terms = by_row[rows, None] + logs[rows]
            top = terms.max(axis=0)
            safe = np.where(top > -np.inf, top, 0.0)
            with np.errstate(divide="ignore"):
                sums.append((safe + np.log(np.exp(terms - safe).sum(axis=0)))[pairs.column])
        place, chain = 0, []
        for h in reversed(range(space.horizon)):
            pairs = space._pairs[h]
            weights = sums[h] + self._logs[h][pairs.row, pairs.column[place]]
            chances = np.exp(weights - weights.max())
            place = int(rng.choice(len(chances), p=chances / chances.sum()))
            chain.append(int(space.living(h)[place]))
        return tuple(reversed(chain))


def _log_sums(group: Ints, logs: Floats, groups: int) -> Floats:
    """Returns `[groups]` the logarithm of the sum of exp(logs) in each group."""
    top = np.full(groups, -np.inf)
    np.maximum.at(top, group, logs)
    safe = np.where(top > -np.inf, top, 0.0)
    with np.errstate(divide="ignore"):
        return safe + np.log(np.bincount(group, weights=np.exp(logs - safe[group]), minlength=groups))


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

"""The survivors of a certified search: version spaces that a test of one action at one node restricts.

Shapes: I kinds of members of a level, J kinds of the next.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from richobs import FunctionClass
from richobs.core.types import Floats, Ints, Mask, Member
from richobs.learners.version_space import Edges, blocks, packed, places
from richobs.stats.grouping import kinds, numbered
from richobs_lab.lsvee.spaces import LayeredTdSpace, ListedTdSpace

MOST_PAIRS = 256_000_000  # kinds of pairs between two levels that are told apart by `restrict`; 32 MB of bits


class ActionRisk(NamedTuple):
    """The squared TD error at a node under one action, noise[i] + (gain[i] - future[j])^2, over kinds of members.

    Members of one kind behave alike under the action: kind i of the node's level, kind j of the next.
    """

    level: int
    noise: Floats  # [I] variance of f - r
    gain: Floats  # [I] mean of f - r
    future: Floats  # [J] estimated value of the child; one 0 at the last level
    row: Ints  # kind i of every living member of the level, in order
    column: (
        Ints  # kind j of every living member of the next level; at the last level empty, or 0 for every listed function
    )


class ListedSurvivors(ListedTdSpace):
    """Survivors of a listed class."""

    @property
    def log_bound(self) -> float:
        """The same as `log_size`, which is cheap to compute here."""
        return self.log_size

    def least(self, risk: ActionRisk, /) -> tuple[float, int, int]:
        """Returns the smallest risk of a survivor, and its kinds."""
        risks = risk.noise[risk.row] + (risk.gain[risk.row] - risk.future[risk.column]) ** 2
        best = int(risks.argmin())
        return float(risks[best]), int(risk.row[best]), int(risk.column[best])

    def restrict(self, risk: ActionRisk, cutoff: Floats, reach: Floats, /) -> bool:
        """Drops functions with risk above `cutoff` or |gain - future| above `reach`; returns whether any were."""
        miss = np.abs(risk.gain[risk.row] - risk.future[risk.column])
        keep = (risk.noise[risk.row] + miss**2 <= cutoff[risk.column]) & (miss <= reach[risk.column])
        self._alive[np.flatnonzero(self._alive)[~keep]] = False
        return not bool(keep.all())

    def draw(self, first: Mask, rng: np.random.Generator, /) -> Member:
        """Returns a survivor at random among `first`."""
        return int(rng.choice(np.flatnonzero(self._alive & first)))


class LayeredSurvivors(LayeredTdSpace):
    """Survivors of a product class."""

    @property
    def log_bound(self) -> float:
        """Logarithm of the number of chains of living members, whether or not they go together."""
        return sum(math.log(n) if n else -math.inf for n in self._living)

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
        r = Refined.of(None if edges is None else edges.row[rows], row)
        c = Refined.of(None if edges is None else edges.column[columns], column)
        if len(r.new) * len(c.new) > MOST_PAIRS:
            without_partner = ~fits[:, np.unique(column)].any(axis=1), ~fits[np.unique(row)].any(axis=0)
            dropped = self._drop(h, rows[without_partner[0][row]])
            dropped += self._drop(h + 1, columns[without_partner[1][column]])
            return dropped > 0
        dropped, parts = False, []
        for b in blocks(len(r.new), len(c.new)):
            keep = fits[r.new[b]][:, c.new]
            if edges is None:
                dropped |= not bool(keep.all())
            else:
                were = edges.block(r.old[b])[:, c.old]
                dropped |= bool((were & ~keep).any())
                keep &= were
            parts.append(packed(keep))
        if dropped:
            row_of = places(len(self._alive[h]), rows, r.place)
            column_of = places(len(self._alive[h + 1]), columns, c.place)
            self._edges[h] = Edges(row_of, column_of, len(c.new), np.concatenate(parts))
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


Survivors = LayeredSurvivors | ListedSurvivors


def survivors(functions: FunctionClass) -> Survivors:
    """Returns all functions of a class, in the form that fits it."""
    if functions.is_product:
        return LayeredSurvivors([functions.level_size(h) for h in range(functions.horizon)])
    return ListedSurvivors(functions.level_size(0))


class Refined(NamedTuple):
    """Classes of members that neither an old partition nor a new one tells apart."""

    place: Ints  # class of each member
    old: Ints  # [classes] the old class that each lies in
    new: Ints  # [classes] the new one

    @classmethod
    def of(cls, old: NDArray[np.int32] | None, new: Ints) -> "Refined":
        """Returns the classes of two partitions; None: the old one tells nobody apart."""
        many = int(new.max()) + 1
        if old is None:
            keys, place = numbered(new, many)
        else:
            keys, place = numbered(old.astype(np.int64) * many + new, (int(old.max()) + 1) * many)
        return cls(place, keys // many, keys % many)

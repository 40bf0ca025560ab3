"""What LSVEE does to a version space: TD-Elim drops by risk, on-demand exploration takes the first survivor.

Shapes: N_h members of level h, K actions.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from richobs import FunctionClass, InvalidInput
from richobs.core.errors import PrecisionError
from richobs.core.types import Floats, Ints, Member
from richobs.learners.version_space import ULPS, Elimination, LayeredSpace, ListedSpace, held


class NodeRisk(NamedTuple):
    """What the squared TD error of every function at a node is made of ([KAL16] Eq. 4, centred).

    risk(f) = noise[f_h] + sum_a share[a] (gain[f_h, a] - future[f_{h+1}, a])^2.
    """

    level: int
    noise: Floats  # [N_h] mean over actions of the variance of f - r
    gain: Floats  # [N_h, K] mean of f(x, a) - r
    future: Floats | None  # [N_{h+1}, K] estimated value of the child behind each action; None at the last level
    share: Floats  # [K] how often each action was taken


class ListedTdSpace(ListedSpace):
    """Survivors of a listed class, by TD-Elim."""

    def eliminate(self, risk: NodeRisk, slack: float, /) -> Elimination:
        """Drops every function whose risk exceeds the smallest by more than `slack`."""
        before = self.log_size
        miss = risk.gain if risk.future is None else risk.gain - risk.future
        risks = risk.noise + (miss**2) @ risk.share
        least = float(risks[self._alive].min())
        cutoff = largest_surviving_risk(least, slack)
        self._alive = self._alive & (risks <= cutoff)
        return Elimination(least, cutoff, before, self.log_size)

    def pick(self, excluded: Collection[Member] = (), /) -> Member | None:
        """Returns the first survivor that is not excluded, or None."""
        return next((int(i) for i in np.flatnonzero(self._alive) if int(i) not in excluded), None)

    def __contains__(self, member: Member, /) -> bool:
        if not isinstance(member, int) or not 0 <= member < len(self._alive):
            raise InvalidInput(
                f"a function of this class is an index from 0 to {len(self._alive) - 1}; got {member!r}."
            )
        return bool(self._alive[member])


class LayeredTdSpace(LayeredSpace):
    """Survivors of a product class, by TD-Elim."""

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
            risks_of = held(_Risks(risk, rows, columns).block, len(rows), len(columns))
            least = self._least(h, rows, columns, risks_of)
            cutoff = largest_surviving_risk(least, slack)
            self._keep_pairs(h, rows, columns, lambda b: risks_of(b) <= cutoff)
        return Elimination(least, cutoff, before, self.log_size)

    def pick(self, excluded: Collection[Member] = (), /) -> Member | None:
        """Returns the lexicographically first surviving chain that is not excluded, or None."""
        return next((chain for chain in self._chains() if chain not in excluded), None)

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


TdSpace = LayeredTdSpace | ListedTdSpace


def td_space(functions: FunctionClass) -> TdSpace:
    """Returns all functions of a class, in the form that fits it."""
    if functions.is_product:
        return LayeredTdSpace([functions.level_size(h) for h in range(functions.horizon)])
    return ListedTdSpace(functions.level_size(0))


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

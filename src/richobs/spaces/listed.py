"""Survivors of a listed class: a mask over N functions."""

import math
from collections.abc import Collection

import numpy as np

from richobs.core.errors import InvalidInput
from richobs.core.types import Floats, Mask, Member
from richobs.spaces.base import ActionRisk, Elimination, NodeRisk, PairError, check_resolution, largest_surviving_risk


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
        """The same as `log_size`, which is cheap to compute here."""
        return self.log_size

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

    def __contains__(self, member: Member, /) -> bool:
        if not isinstance(member, int) or not 0 <= member < len(self._alive):
            raise InvalidInput(
                f"a function of this class is an index from 0 to {len(self._alive) - 1}; got {member!r}."
            )
        return bool(self._alive[member])

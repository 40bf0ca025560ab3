"""What a version space is: the surviving functions of a class, and what a learner may ask of them.

Elimination at level h couples f_h and f_{h+1} alone, and a value at a node of level h depends on f_h alone. Shapes: N
functions (per level), K actions.
"""

from collections.abc import Collection
from typing import NamedTuple, Protocol

import numpy as np

from richobs.core.errors import PrecisionError
from richobs.core.types import Floats, Ints, Mask, Member

ULPS = 100  # a threshold must exceed the rounding of the risk it is added to by this factor


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


class PairError(NamedTuple):
    """An average over samples of one level, of which every function has one: it depends on f_h and f_{h+1} alone.

    error(f) = gain[f_h] - reach[row[f_h]] @ future[f_{h+1}]. Shapes: I kinds of members of the level, C next observations.
    """

    level: int
    gain: Floats  # [N_h]
    row: Ints  # [N_h] kind of each member
    reach: Floats  # [I, C] weight of each next observation
    future: Floats | None  # [N_{h+1}, C] value there; None at the last level, where error = gain


class VersionSpace(Protocol):
    """The surviving functions of a class."""

    @property
    def log_size(self) -> float:
        """Natural logarithm of the number of survivors."""
        ...

    @property
    def log_bound(self) -> float:
        """An upper bound on `log_size` that is cheap to compute."""
        ...

    def alive(self, level: int, /) -> Mask:
        """Returns `[N_h]` which members of `level` are part of a surviving function."""
        ...

    def eliminate(self, risk: NodeRisk, slack: float, /) -> Elimination:
        """Drops every function whose risk exceeds the smallest by more than `slack`."""
        ...

    def keep_within(self, error: PairError, bound: float, /) -> Elimination:
        """Drops every function whose |error| exceeds `bound`; `least` is the smallest |error| among the survivors before.

        At least one function must survive before; perhaps none does afterwards.
        """
        ...

    def pick(self, excluded: Collection[Member] = (), /) -> Member | None:
        """Returns the first survivor in lexicographic order that is not excluded, or None."""
        ...

    def optimistic(self, value: Floats, /) -> Member | None:
        """Returns the survivor whose `value` `[N_0]` is largest, of several the first in lexicographic order, or None."""
        ...

    def least(self, risk: ActionRisk, /) -> tuple[float, int, int]:
        """Returns the smallest risk of a survivor, and its kinds i and j in `risk`."""
        ...

    def restrict(self, risk: ActionRisk, cutoff: Floats, reach: Floats, /) -> bool:
        """Drops functions with risk above `cutoff` `[J]` or |gain - future| above `reach` `[J]`; returns whether any were.

        It may keep functions that fail the test where the class is large, but never removes one that passes.
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

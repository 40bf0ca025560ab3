"""What a betting search asks of the surviving functions, whatever the class."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from richobs.core.functions import FunctionClass
from richobs.core.types import Floats, Ints, Mask, Member
from richobs.learners.betting.listed import ListedSurvivors
from richobs.learners.betting.product import ProductSurvivors
from richobs.learners.betting.ranges import Ranges
from richobs.learners.betting.reading import Largest, Steps
from richobs.stats.shares import Share


class Fit(Protocol):
    """How well survivors fit what was seen."""

    def behind(self, member: Member) -> float:
        """Returns by how many nats the best survivor fits better than a given one."""
        ...

    def draw(self, rng: np.random.Generator) -> Member:
        """Returns a survivor at random, in proportion to its weight."""
        ...


class Survivors(Protocol):
    """The functions that no bet has refuted."""

    @property
    def limit(self) -> float:
        """Wealth at which a pair, or a listed function, dies."""
        ...

    @property
    def rounding(self) -> float:
        """How far a device may have moved the logarithm of a wealth; deaths allow for it. 0 for NumPy."""
        ...

    @property
    def log_size(self) -> float:
        """Logarithm of the number of survivors; of functions that the class says are equal one counts."""
        ...

    @property
    def log_bound(self) -> float:
        """An upper bound on `log_size` that is cheap to tell."""
        ...

    @property
    def only(self) -> Member | None:
        """The last survivor; None where there are several."""
        ...

    def living(self, level: int) -> Ints:
        """Returns `[m]` the members of a level that are part of a survivor, in order; of equal functions one."""
        ...

    def log_wealth(self, member: Member) -> tuple[float, ...]:
        """Returns the logarithms of the bets won against a survivor's pairs, level by level; one for a listed function."""
        ...

    def root(self, member: Member) -> int:
        """Returns the place of a survivor's root among the living members of level 0."""
        ...

    def absorb(self, steps: Sequence[Steps], t: int) -> int:
        """Settles the bets of the t-th batch, drops what died, and returns how much did."""
        ...

    def kill(self, member: Member, level: int) -> None:
        """Drops a survivor's pair at a level."""
        ...

    def fit(self, first: Mask) -> Fit:
        """Returns how well the survivors fit that begin at living members `first` `[m]` of level 0."""
        ...

    def largest(self, values: Mapping[int, Floats]) -> Largest:
        """Returns at least the largest sum over some levels of values `[A, m]` of a survivor's members."""
        ...

    def __contains__(self, member: Member) -> bool:
        """Whether a function survives."""
        ...


def survivors(functions: FunctionClass, share: Share, ranges: Ranges, device: str | None = None) -> Survivors:
    """Returns the whole class as survivors, in the form that fits it.

    Args:
        functions: the class.
        share: probability with which bets may refute Q*.
        ranges: of rewards and values.
        device: where PyTorch holds the pairs of a product class; None for NumPy. A listed class has no pairs.
    """
    if functions.is_product:
        return ProductSurvivors(functions, share, ranges, device)
    return ListedSurvivors(functions, share, ranges)

"""What a class of value functions is to everybody who uses one. Shapes: N members of a level, n samples, K actions.

`richobs.classes` holds the base classes from which every class gets all of this by writing `size`, `n_actions` and `values`.
"""

from typing import Protocol

from richobs.core.moments import Batch, Moments
from richobs.core.types import Floats, Ints, Member, Observations


class ValueFunction(Protocol):
    """One predictor f of long-term reward."""

    def values(self, level: int, x: Observations, /) -> Floats:
        """Returns `[n, K]` f(x, a) for each of the n observations and each action."""
        ...


class FunctionClass(Protocol):
    """A class F of value functions, given level by level ([KAL16] Assumption 2).

    Where `is_product` holds, a function is any choice of one member per level and `Member` is a tuple; otherwise
    member i of one level belongs with member i of every other, and `Member` is i.
    """

    @property
    def horizon(self) -> int:
        """Number of levels H."""
        ...

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        ...

    @property
    def is_product(self) -> bool:
        """Whether members are chosen independently at each level."""
        ...

    @property
    def log_size(self) -> float:
        """Natural logarithm of the number of functions; the number itself overflows."""
        ...

    @property
    def digest(self) -> str | None:
        """SHA-256 of what the class consists of; None where it is made of Python code."""
        ...

    def level_size(self, level: int, /) -> int:
        """Returns how many members there are at `level`."""
        ...

    def values(self, level: int, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all members at `level`, or of those listed in `members`."""
        ...

    def moments(self, level: int, batch: Batch, members: Ints | None = None, /) -> Moments:
        """Returns the moments of a batch at `level`, of all members or of those listed."""
        ...

    def kinds(self, level: int, members: Ints, action: int, /) -> tuple[Ints, Ints]:
        """Groups members that agree on `action` and on max_a f at every observation.

        Returns:
            One member of each group, and `[len(members)]` the group of each.
        """
        ...

    def value_bounds(self, level: int, /) -> tuple[Floats, Floats]:
        """Returns `[N]` the smallest and the largest value that max_a f(x, a) takes for the members of `level`."""
        ...

    def member(self, member: Member, /) -> ValueFunction:
        """Returns one function of the class."""
        ...

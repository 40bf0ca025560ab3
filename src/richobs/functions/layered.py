"""Product classes F = F_1 x ... x F_H: one class per level, the product never listed."""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from richobs.errors import InvalidInput
from richobs.problem import Floats, Ints, Member, Observations


class LevelClass(Protocol):
    """The functions available at one level."""

    @property
    def size(self) -> int:
        """Number of functions."""
        ...

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        ...

    def values(self, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all functions, or of those listed in `members`."""
        ...


class Layered:
    """Any choice of one function per level is a function of the class; it has prod_h |F_h| of them."""

    is_product = True

    def __init__(self, levels: Sequence[LevelClass]):
        """Takes the classes of levels 0 to H-1, in order."""
        if not levels:
            raise InvalidInput("a layered class needs one class per level; the list is empty.")
        self.levels = tuple(levels)
        for level, c in enumerate(self.levels):
            if c.size < 1:
                raise InvalidInput(f"the class of level {level} is empty; every level needs at least one function.")
            if c.n_actions != self.n_actions:
                raise InvalidInput(
                    f"the class of level {level} has {c.n_actions} actions and that of level 0 has {self.n_actions}."
                )

    def __repr__(self) -> str:
        return f"Layered({self.horizon} levels, 10^{self.log_size / math.log(10):.1f} functions)"

    @property
    def horizon(self) -> int:
        """Number of levels H."""
        return len(self.levels)

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        return self.levels[0].n_actions

    @property
    def log_size(self) -> float:
        """Natural logarithm of the number of functions."""
        return sum(math.log(c.size) for c in self.levels)

    def level_size(self, level: int, /) -> int:
        """Returns how many functions `level` has."""
        return self.levels[level].size

    def values(self, level: int, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of the functions of `level`."""
        return self.levels[level].values(x, members)

    def member(self, member: Member, /) -> "LayeredFunction":
        """Returns the function that uses `member[h]` at level h."""
        chain = (member,) if isinstance(member, int) else tuple(int(i) for i in member)
        if len(chain) != self.horizon:
            raise InvalidInput(
                f"a function of this class is one index per level, {self.horizon} in all; got {len(chain)}: {chain}."
            )
        for level, i in enumerate(chain):
            if not 0 <= i < self.level_size(level):
                raise InvalidInput(f"level {level} has functions 0 to {self.level_size(level) - 1}; got {i}.")
        return LayeredFunction(self, chain)


class LayeredFunction:
    """One function of a layered class."""

    def __init__(self, functions: Layered, chain: tuple[int, ...]):
        self.functions = functions
        self.chain = chain

    def values(self, level: int, x: Observations, /) -> Floats:
        """Returns `[n, K]` f(x, a)."""
        return self.functions.values(level, x, np.array([self.chain[level]]))[0]

    def reads(self, level: int, /) -> tuple[int, ...] | None:
        """Returns the coordinates that f looks at, each only through "above 1/2"; None where that cannot be said."""
        reads = getattr(self.functions.levels[level], "reads", None)
        return None if reads is None else reads(self.chain[level])

"""Classes given level by level: products F = F_1 x ... x F_H that are never listed, and lists of whole functions."""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from richobs.errors import InvalidInput
from richobs.problem import Floats, Ints, Member, Observations


def checked_members(members: Ints | None, size: int) -> Ints:
    """Returns `members` (all where None) once each is known to be an index from 0 to `size - 1`."""
    if members is None:
        return np.arange(size)
    index = np.asarray(members)
    if index.size and (index.dtype.kind not in "iu" or index.min() < 0 or index.max() >= size):
        raise InvalidInput(f"this class has functions 0 to {size - 1}; asked for {index.min()} to {index.max()}.")
    return index.astype(np.int64, copy=False)


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


def top_bounds(level_class: LevelClass) -> tuple[Floats, Floats]:
    """Returns `[N]` the smallest and the largest value that max_a f(x, a) takes; 0 and 1 where a class cannot say."""
    known = getattr(level_class, "top_bounds", None)
    return known() if known is not None else (np.zeros(level_class.size), np.ones(level_class.size))


class _ByLevel:
    """What product and listed classes share: one class of members per level."""

    is_product: bool

    def __init__(self, levels: Sequence[LevelClass]):
        """Takes the classes of levels 0 to H-1, in order."""
        if not levels:
            raise InvalidInput("a class needs the functions of at least one level; the list is empty.")
        self.levels = tuple(levels)
        for level, c in enumerate(self.levels):
            if c.size < 1:
                raise InvalidInput(f"the class of level {level} is empty; every level needs at least one function.")
            if c.n_actions != self.n_actions:
                raise InvalidInput(
                    f"the class of level {level} has {c.n_actions} actions and that of level 0 has {self.n_actions}."
                )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.horizon} levels, 10^{self.log_size / math.log(10):.1f} functions)"

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
        return sum(math.log(c.size) for c in (self.levels if self.is_product else self.levels[:1]))

    def level_size(self, level: int, /) -> int:
        """Returns how many members `level` has."""
        return self.levels[level].size

    def values(self, level: int, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of the members of `level`."""
        return self.levels[level].values(x, members)

    def alike(self, level: int, members: Ints, action: int, /) -> tuple[Ints, Ints]:
        """Groups members of `level` known to agree on `action` and on the largest value; by default each is its own."""
        known = getattr(self.levels[level], "alike", None)
        return known(members, action) if known is not None else (members, np.arange(len(members)))

    def top_bounds(self, level: int, /) -> tuple[Floats, Floats]:
        """Returns `[N]` the smallest and the largest value that max_a f(x, a) takes for the members of `level`."""
        return top_bounds(self.levels[level])


class Layered(_ByLevel):
    """Any choice of one function per level is a function of the class; it has prod_h |F_h| of them."""

    is_product = True

    def member(self, member: Member, /) -> "LevelwiseFunction":
        """Returns the function that uses `member[h]` at level h."""
        chain = tuple(int(i) for i in np.atleast_1d(member))
        if len(chain) != self.horizon:
            raise InvalidInput(
                f"a function of this class is one index per level, {self.horizon} in all; got {len(chain)}: {chain}."
            )
        for level, i in enumerate(chain):
            if not 0 <= i < self.level_size(level):
                raise InvalidInput(f"level {level} has functions 0 to {self.level_size(level) - 1}; got {i}.")
        return LevelwiseFunction(self.levels, chain)


class Listed(_ByLevel):
    """A list of N functions, member i of one level going with member i of every other."""

    is_product = False

    def __init__(self, levels: Sequence[LevelClass]):
        """Takes the members of levels 0 to H-1, N of them at each."""
        super().__init__(levels)
        sizes = [c.size for c in self.levels]
        if len(set(sizes)) > 1:
            raise InvalidInput(f"listed functions have as many members at every level; got {sizes}.")

    def member(self, member: Member, /) -> "LevelwiseFunction":
        """Returns function number `member`."""
        if np.ndim(member) != 0 or not 0 <= int(np.asarray(member)) < self.levels[0].size:
            raise InvalidInput(f"this class has functions 0 to {self.levels[0].size - 1}; got {member!r}.")
        return LevelwiseFunction(self.levels, (int(np.asarray(member)),) * self.horizon)


def listed_product(functions: Layered, *, at_most: int = 1_000_000) -> Listed:
    """Lists a product class, chain by chain in lexicographic order; for classes small enough to check others against."""
    size = math.prod(c.size for c in functions.levels)
    if size > at_most:
        raise InvalidInput(f"the product has {size:.3g} functions, too many to list; at most {at_most:,} are.")
    chains = np.indices([c.size for c in functions.levels]).reshape(functions.horizon, -1)
    return Listed([Chosen(c, chain) for c, chain in zip(functions.levels, chains, strict=True)])


class Chosen:
    """Some functions of a level class, in a given order, repeats allowed."""

    def __init__(self, level_class: LevelClass, members: Ints):
        self.level_class = level_class
        self.members = members

    @property
    def size(self) -> int:
        """Number of functions."""
        return len(self.members)

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        return self.level_class.n_actions

    def values(self, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all functions, or of those listed in `members`."""
        return self.level_class.values(x, self.members[checked_members(members, self.size)])

    def top_bounds(self) -> tuple[Floats, Floats]:
        """Returns `[N]` the smallest and the largest value that max_a f(x, a) takes."""
        low, high = top_bounds(self.level_class)
        return low[self.members], high[self.members]

    def reads(self, member: int, rotation: Floats | None) -> tuple[int, ...] | None:
        """Returns the coordinates that one function looks at, as far as its class says."""
        reads = getattr(self.level_class, "reads", None)
        return None if reads is None else reads(int(self.members[member]), rotation)


class LevelwiseFunction:
    """One function of a class given level by level."""

    def __init__(self, levels: Sequence[LevelClass], chain: tuple[int, ...]):
        self.levels = tuple(levels)
        self.chain = chain  # which member it uses at each level

    def values(self, level: int, x: Observations, /) -> Floats:
        """Returns `[n, K]` f(x, a)."""
        return self.levels[level].values(x, np.array([self.chain[level]]))[0]

    def reads(self, level: int, rotation: Floats | None, /) -> tuple[int, ...] | None:
        """Returns the coordinates that f looks at, each only through "above 1/2"; None where that cannot be said.

        Args:
            level: where f is asked.
            rotation: what turns the coordinates meant here into observations.
        """
        reads = getattr(self.levels[level], "reads", None)
        return None if reads is None else reads(self.chain[level], rotation)

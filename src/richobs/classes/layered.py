"""Classes given level by level: products F = F_1 x ... x F_H that are never listed, and lists of whole functions.

Shapes: H levels, N members of a level, n observations, K actions.
"""

import math
import os
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from richobs.classes.base import (
    Chosen,
    LevelClass,
    digest_of,
    from_arrays,
    read_parts,
    to_arrays,
    write_parts,
)
from richobs.core.arguments import refuse_unusable, whole_number
from richobs.core.environment import checked_range
from richobs.core.errors import InvalidFile, InvalidInput
from richobs.core.moments import Batch, Moments
from richobs.core.types import Floats, Ints, Member, Observations

FORMAT = "richobs-functions"


class ByLevel:
    """What product and listed classes share: one class of members per level."""

    is_product: ClassVar[bool]
    """Whether members are chosen independently at each level."""

    @refuse_unusable
    def __init__(self, levels: Sequence[LevelClass]):
        """Takes the classes of levels 0 to H-1, in order."""
        if not levels:
            raise InvalidInput("a class needs the functions of at least one level; the list is empty.")
        self.levels = tuple(levels)
        self.horizon, self.n_actions = len(self.levels), 0
        for level, c in enumerate(self.levels):
            if not isinstance(c, LevelClass):
                raise InvalidInput(
                    f"level {level} is a {type(c).__name__}; the functions of a level are a richobs.classes.LevelClass. "
                    "Make yours a subclass of it, as docs/skeletons/level_class.py does."
                )
            if whole_number(f"the size of the class of level {level}", c.size) < 1:
                raise InvalidInput(f"the class of level {level} is empty; every level needs at least one function.")
            checked_range("value_range", c.value_range)
            K = whole_number(f"n_actions of the class of level {level}", c.n_actions, least=1)
            self.n_actions = self.n_actions or K
            if self.n_actions != K:
                raise InvalidInput(
                    f"the class of level {level} has {c.n_actions} actions and that of level 0 has {self.n_actions}."
                )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.horizon} levels, 10^{self.log_size / math.log(10):.1f} functions)"

    @property
    def log_size(self) -> float:
        """Natural logarithm of the number of functions."""
        return sum(math.log(c.size) for c in (self.levels if self.is_product else self.levels[:1]))

    @property
    def digest(self) -> str | None:
        """SHA-256 of what the class consists of; None where a level is Python code."""
        try:
            parts = [to_arrays(c) for c in self.levels]
        except InvalidInput:
            return None
        return digest_of([("product" if self.is_product else "list", {"levels": np.array(self.horizon)}), *parts])

    def save(self, file: str | os.PathLike[str], /) -> None:
        """Writes the class to a `.npz` file: plain arrays and a JSON header, no pickle.

        Raises:
            InvalidInput: a level is Python code.
        """
        write_parts(file, FORMAT, [to_arrays(c) for c in self.levels], {"is_product": self.is_product})

    def __init_subclass__(cls, **options: Any) -> None:
        """Lets a subclass with values of its own be read by these, not by the rows that its levels know."""
        super().__init_subclass__(**options)
        if "values" in vars(cls) and "rows" not in vars(cls):
            setattr(cls, "rows", _no_rows)  # noqa: B010  # as a plain assignment it is an error of types

    def level_size(self, level: int, /) -> int:
        """Returns how many members `level` has."""
        return int(self.levels[level].size)

    def values(self, level: int, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all members of `level`, or of those listed in `members`."""
        return self.levels[level].checked_values(x, members)

    def moments(self, level: int, batch: Batch, members: Ints | None = None, /) -> Moments:
        """Returns the moments of a batch at `level`, of all members or of those listed."""
        return self.levels[level].moments(batch, members)

    def kinds(self, level: int, members: Ints, action: int, /) -> tuple[Ints, Ints]:
        """Groups members of `level` that are known to agree on `action` and on max_a f at every observation.

        Returns:
            One member of each group, and `[len(members)]` the group of each.
        """
        return self.levels[level].kinds(members, action)

    def rows(
        self, level: int, x: Observations, members: Ints, actions: Ints | None = None, /
    ) -> tuple[Floats, Ints] | None:
        """Returns distinct rows of values at the actions taken, or of the largest, and which row each member has.

        None where the class of the level knows no faster way than to read `values`.
        """
        return self.levels[level].rows(x, members, actions)

    def value_bounds(self, level: int, /) -> tuple[Floats, Floats]:
        """Returns `[N]` a lower and `[N]` an upper bound on max_a f(x, a) over all x, for the members of `level`."""
        return self.levels[level].value_bounds()

    def value_range(self, level: int, /) -> tuple[float, float]:
        """Returns the smallest and the largest value that the members of `level` may take, as declared."""
        return checked_range("value_range", self.levels[level].value_range)


def _no_rows(
    self: ByLevel, level: int, x: Observations, members: Ints, actions: Ints | None = None, /
) -> tuple[Floats, Ints] | None:
    """Says that the values must be read."""
    return None


def read_levels(file: str | os.PathLike[str], *, is_product: bool) -> list[LevelClass]:
    """Returns the levels of a class that `ByLevel.save` wrote.

    Raises:
        InvalidFile: the file is damaged, or holds a list where a product is wanted, or the other way round.
    """
    header, parts = read_parts(file, FORMAT)
    if header.get("is_product") is not is_product:
        kinds = ("richobs.Listed", "richobs.Layered")
        raise InvalidFile(
            f"{file} does not hold a {kinds[is_product]} class; {kinds[not is_product]}.load reads others."
        )
    if not parts:
        raise InvalidFile(f"{file} holds a class without levels.")
    return [from_arrays(kind, arrays) for kind, arrays in parts]


class Layered(ByLevel):
    """Any choice of one function per level is a function of the class; it has prod_h |F_h| of them."""

    is_product = True

    @classmethod
    def load(cls, file: str | os.PathLike[str], /) -> "Layered":
        """Returns the product class that `save` wrote.

        Raises:
            InvalidFile: the file is damaged or holds something else.
        """
        return Layered(read_levels(file, is_product=True))

    def member(self, member: Member, /) -> "LevelwiseFunction":
        """Returns the function that uses `member[h]` at level h."""
        index = np.atleast_1d(member)
        chain = tuple(int(i) for i in index)
        if len(chain) != self.horizon:
            raise InvalidInput(
                f"a function of this class is one index per level, {self.horizon} in all; got {len(chain)}: {chain}."
            )
        for level, i in enumerate(chain):
            if index.dtype.kind not in "iu" or not 0 <= i < self.level_size(level):
                raise InvalidInput(
                    f"level {level} has functions 0 to {self.level_size(level) - 1}; got {index[level]}."
                )
        return LevelwiseFunction(self.levels, chain)


class Listed(ByLevel):
    """A list of N functions: member i of one level belongs with member i of every other."""

    is_product = False

    @refuse_unusable
    def __init__(self, levels: Sequence[LevelClass]):
        """Takes the members of levels 0 to H-1, N of them at each."""
        super().__init__(levels)
        sizes = [self.level_size(level) for level in range(self.horizon)]
        if len(set(sizes)) > 1:
            raise InvalidInput(f"listed functions have as many members at every level; got {sizes}.")

    @classmethod
    def load(cls, file: str | os.PathLike[str], /) -> "Listed":
        """Returns the listed class that `save` wrote.

        Raises:
            InvalidFile: the file is damaged or holds something else.
        """
        return Listed(read_levels(file, is_product=False))

    def member(self, member: Member, /) -> "LevelwiseFunction":
        """Returns function number `member`."""
        index = np.asarray(member)
        if index.ndim != 0 or index.dtype.kind not in "iu" or not 0 <= int(index) < self.level_size(0):
            raise InvalidInput(f"this class has functions 0 to {self.level_size(0) - 1}; got {member!r}.")
        return LevelwiseFunction(self.levels, (int(index),) * self.horizon)


def listed_product(functions: Layered, *, at_most: int = 1_000_000) -> Listed:
    """Lists a product class, chain by chain in lexicographic order; for classes small enough to check others against."""
    sizes = [functions.level_size(level) for level in range(functions.horizon)]
    size = math.prod(sizes)
    if size > at_most:
        raise InvalidInput(f"the product has {size:.3g} functions, too many to list; at most {at_most:,} are.")
    chains = np.indices(sizes).reshape(functions.horizon, -1)
    return Listed([Chosen(c, chain) for c, chain in zip(functions.levels, chains, strict=True)])


class LevelwiseFunction:
    """One function of a class given level by level."""

    def __init__(self, levels: Sequence[LevelClass], chain: tuple[int, ...]):
        """Takes the classes of levels 0 to H-1, and which member of each the function uses."""
        self.levels = tuple(levels)
        self.chain = chain

    def values(self, level: int, x: Observations, /) -> Floats:
        """Returns `[n, K]` f(x, a)."""
        try:
            chosen, member = self.levels[level], self.chain[level]
            len(x)
        except (TypeError, IndexError):
            raise InvalidInput(
                f"a function of {len(self.levels)} levels takes a level from 0 on and an array of observations; got level "
                f"{level!r:.40} and {type(x).__name__}."
            ) from None
        return chosen.checked_values(x, np.array([member]))[0]

    def reads(self, level: int, rotation: Floats | None, /) -> tuple[int, ...] | None:
        """Returns the coordinates that f looks at, each only through "above 1/2"; None where that cannot be said.

        Args:
            level: where f is asked.
            rotation: matrix that turns the coordinates meant here into observations; None where they are equal.
        """
        return self.levels[level].reads(self.chain[level], rotation)

"""The functions of one level: what every class of them offers, with defaults for all but three names.

Shapes: N functions of the level, n observations, K actions.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from richobs.core.environment import checked_range as pair_of_ends
from richobs.core.errors import InvalidInput
from richobs.core.moments import Batch, Moments
from richobs.core.types import Floats, Ints, Observations

AT_ONCE_VALUES = 8_000_000  # values of functions that `LevelClass.moments` holds in memory at once
MOST_BOUNDED = 10**9  # functions of a level whose values can be bounded one by one: 16 GB

UNIT = (0.0, 1.0)  # range of values where nothing else is declared

Arrays = dict[str, NDArray[Any]]  # what a class consists of, by name


def checked_members(members: Ints | None, size: int) -> Ints:
    """Returns `members` (all where None) once each is known to be an index from 0 to `size - 1`."""
    if members is None:
        return np.arange(size)
    index = np.asarray(members)
    if index.size and (index.dtype.kind not in "iu" or index.min() < 0 or index.max() >= size):
        raise InvalidInput(f"this class has functions 0 to {size - 1}; asked for {index.min()} to {index.max()}.")
    return index.astype(np.int64, copy=False)


def checked_range(value_range: tuple[float, float] | Sequence[float]) -> tuple[float, float]:
    """Returns a declared range of values as two numbers.

    Raises:
        InvalidInput: it is not (low, high), two finite numbers in this order.
    """
    return pair_of_ends("value_range", value_range)


def range_words(value_range: tuple[float, float]) -> str:
    """Returns a range of values in words for messages, such as "[0, 1]"."""
    return f"[{value_range[0]:g}, {value_range[1]:g}]"


def range_arrays(value_range: tuple[float, float]) -> Arrays:
    """Returns the range as an array to be written; nothing for UNIT, as files had it before ranges were declared."""
    return {} if value_range == UNIT else {"value_range": np.array(value_range)}


def range_from(arrays: Arrays) -> tuple[float, float]:
    """Returns the range that `range_arrays` wrote."""
    return checked_range(np.asarray(arrays.get("value_range", UNIT), dtype=np.float64).ravel().tolist())


class LevelClass(ABC):
    """The functions available at one level. A subclass writes `size`, `n_actions` and `values`; the rest has defaults.

    Each default is correct for every class. Override one where the class knows more: learners then need less time or
    fewer episodes, and a class with a `code` can be saved and identified. A subclass that replaces the `values` of its
    parent gets the defaults again, because what the parent says about its values need not hold for the new ones.
    """

    code: ClassVar[str | None] = None
    """Name of the class in files; None where it is Python code, which is not written. It is never inherited."""

    values_are_checked: ClassVar[bool] = False
    """Whether `values` is known to return [N, n, K] numbers in `value_range`; else every answer is checked."""

    value_range: tuple[float, float] = UNIT
    """Smallest and largest value that a function of the class may take, in the units of the rewards. A class whose values
    lie elsewhere declares its own, as a class attribute or in its constructor."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Gives a subclass the defaults in place of what it must not inherit."""
        super().__init_subclass__(**options)
        own = vars(cls)
        unsafe = ["code", "singleton", "to_arrays", "from_arrays"]  # else it could be saved as its parent
        parent = next(c for c in cls.__mro__[1:] if "values" in vars(c))
        if "values" in own and parent is not LevelClass:
            unsafe += ["kinds", "value_bounds", "moments", "reads", "observation_ndim", "values_are_checked"]
        for name in unsafe:
            if name not in own:
                setattr(cls, name, vars(LevelClass)[name])

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of functions N."""

    @property
    @abstractmethod
    def n_actions(self) -> int:
        """Number of actions K."""

    @abstractmethod
    def values(self, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x`, all in `value_range`, of all functions or of those in `members`.

        Args:
            x: `[n, ...]` observations.
            members: indices of functions, in any order, repeats allowed.
        """

    def checked_values(self, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns what `values` does, once it is known to be `[N, n, K]` numbers in `value_range`.

        Raises:
            InvalidInput: it is something else.
        """
        if self.values_are_checked:
            return self.values(x, members)
        values = np.asarray(self.values(x, members))
        shape = (self.size if members is None else len(members), len(x), self.n_actions)
        name = f"{type(self).__name__}.values"
        if values.shape != shape or values.dtype.kind not in "fiub":
            raise InvalidInput(
                f"{name} must return numbers [N, n, K] = {shape}; it returned {values.dtype} of shape {values.shape}."
            )
        low, high = self.value_range
        if values.size and not (values.min() >= low and values.max() <= high):  # NaN included
            raise InvalidInput(
                f"{name} returned {values.min()} to {values.max()}; values must lie in {range_words(self.value_range)}. "
                "A class with other values declares its `value_range`."
            )
        return values.astype(np.float64, copy=False)

    @property
    def observation_ndim(self) -> int | None:
        """Number of axes of one observation (0 for a number, 1 for a vector); None where the class does not know."""
        return None

    def kinds(self, members: Ints, action: int, /) -> tuple[Ints, Ints]:
        """Groups members that agree on `action` and on max_a f at every observation; by default each is a group.

        Members of one group are tested once. It is correct to keep equal members apart, never to group different ones.

        Returns:
            One member of each group, and `[len(members)]` the group of each.
        """
        return members, np.arange(len(members))

    def value_bounds(self) -> tuple[Floats, Floats]:
        """Returns `[N]` a lower and `[N]` an upper bound on max_a f(x, a) over all x; by default `value_range`."""
        if self.size > MOST_BOUNDED:
            raise InvalidInput(
                f"a {type(self).__name__} of {self.size:,} functions needs a `value_bounds` of its own: the default lists a "
                f"bound for each of at most {MOST_BOUNDED:,} functions."
            )
        low, high = self.value_range
        return np.full(self.size, low), np.full(self.size, high)

    def moments(self, batch: Batch, members: Ints | None = None, /) -> Moments:
        """Returns the moments of a batch, of all functions or of those listed.

        By default they come from `values`, for a part of the functions at a time where all would take more than
        AT_ONCE_VALUES numbers.
        """
        size = self.size if members is None else len(members)
        step = max(1, AT_ONCE_VALUES // max(1, len(batch.x) * int(self.n_actions)))
        if step >= size:
            return Moments.of(self.checked_values(batch.x, members), batch)
        members = np.arange(size) if members is None else members
        parts = [members[i : i + step] for i in range(0, size, step)]
        return Moments.concatenate([Moments.of(self.checked_values(batch.x, part), batch) for part in parts])

    def reads(self, member: int, rotation: Floats | None, /) -> tuple[int, ...] | None:
        """Returns the coordinates that one function looks at, each only through "above 1/2".

        By default None: that cannot be said. With an answer, a world of independent on/off coordinates computes the
        value of the function's policy exactly.

        Args:
            member: the function.
            rotation: matrix that turns the coordinates meant here into observations; None where they are equal.
        """
        return None

    def singleton(self, member: int, /) -> "LevelClass":
        """Returns the class that holds one function of this one, stored with as few numbers as possible."""
        return Chosen(self, np.array([member]))

    def to_arrays(self) -> Arrays:
        """Returns the arrays that the class consists of; written by classes that have a `code`.

        Raises:
            InvalidInput: it is Python code.
        """
        raise InvalidInput(
            f"functions of kind {type(self).__name__} are Python code and cannot be written as arrays; keep the code, "
            "and pass the class again where it is needed."
        )

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the class that `to_arrays` took apart; written by classes that have a `code`."""
        raise InvalidInput(f"{cls.__name__} cannot be built from arrays; it has no `from_arrays`.")


@final
class Chosen(LevelClass):
    """Some functions of a level class, in a given order, repeats allowed.

    It has no code of its own: `richobs.classes.codecs` writes it as the other class and a list of members.
    """

    level_class: LevelClass
    members: Ints

    def __init__(self, level_class: LevelClass, members: Ints):
        """Takes the class, and `[N]` which of its functions are meant."""
        self.members = checked_members(members, level_class.size)
        if self.members.ndim != 1:
            raise InvalidInput(
                f"the functions of a class are listed as [N]; got an array of shape {self.members.shape}."
            )
        self.level_class = level_class
        if isinstance(level_class, Chosen):  # some of some functions are some functions
            self.members, self.level_class = level_class.members[self.members], level_class.level_class
        self.value_range = self.level_class.value_range

    @property
    def size(self) -> int:
        """Number of functions N."""
        return len(self.members)

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        return self.level_class.n_actions

    def checked_values(self, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns what `values` does; the class that they are chosen from checks it."""
        return self.level_class.checked_values(x, self.members[checked_members(members, self.size)])

    def values(self, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all functions, or of those listed in `members`."""
        return self.level_class.values(x, self.members[checked_members(members, self.size)])

    @property
    def observation_ndim(self) -> int | None:
        """Number of axes of one observation; None where the other class does not know."""
        return self.level_class.observation_ndim

    def value_bounds(self) -> tuple[Floats, Floats]:
        """Returns `[N]` a lower and `[N]` an upper bound on max_a f(x, a) over all x."""
        low, high = self.level_class.value_bounds()
        return low[self.members], high[self.members]

    def reads(self, member: int, rotation: Floats | None, /) -> tuple[int, ...] | None:
        """Returns the coordinates that one function looks at, as far as the other class says."""
        return self.level_class.reads(int(self.members[member]), rotation)

    def singleton(self, member: int, /) -> LevelClass:
        """Returns the class that holds one of these functions."""
        (place,) = checked_members(np.array([member]), self.size)
        return self.level_class.singleton(int(self.members[place]))

"""The functions of one level: what every class of them offers, with defaults for all but three names.

Classes are plain arrays in files, so that policies can be saved and classes identified without pickle. Shapes: N functions
of the level, n observations, K actions.
"""

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from richobs.core.arguments import file_path
from richobs.core.environment import checked_range
from richobs.core.errors import InvalidFile, InvalidInput
from richobs.core.files import open_arrays, write_atomically
from richobs.core.moments import Batch, Moments
from richobs.core.registry import Registry
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


def range_words(value_range: tuple[float, float]) -> str:
    """Returns a range of values in words for messages, such as "[0, 1]"."""
    return f"[{value_range[0]:g}, {value_range[1]:g}]"


def range_arrays(value_range: tuple[float, float]) -> Arrays:
    """Returns the range as an array to be written; nothing for UNIT, as files had it before ranges were declared."""
    return {} if value_range == UNIT else {"value_range": np.array(value_range)}


def range_from(arrays: Arrays) -> tuple[float, float]:
    """Returns the range that `range_arrays` wrote."""
    return checked_range("value_range", np.asarray(arrays.get("value_range", UNIT), dtype=np.float64).ravel())


class LevelClass(ABC):
    """The functions available at one level. A subclass sets `size` and `n_actions` and writes `values`.

    The rest has defaults, each of which is correct for every class. Override one where the class knows more: learners then
    need less time or fewer episodes, and a class with a `code` can be saved and identified. A subclass that replaces the
    `values` of its parent gets the defaults again, because what the parent says about its values need not hold for the new
    ones.
    """

    size: int
    """Number of functions N."""

    n_actions: int
    """Number of actions K."""

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
            unsafe += ["kinds", "rows", "value_bounds", "moments", "reads", "observation_ndim", "values_are_checked"]
        for name in unsafe:
            if name not in own:
                setattr(cls, name, vars(LevelClass)[name])

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

    def rows(self, x: Observations, members: Ints, actions: Ints | None = None, /) -> tuple[Floats, Ints] | None:
        """Returns the values at the actions `[n]` that were taken, or the largest ones; by default None: read `values`.

        Override it where the class knows a faster way to tell members apart.

        Returns:
            `[G, n]` distinct rows of values in `value_range`, each of some member, and `[len(members)]` which one each has.
        """
        return None

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

    It has no code of its own: `to_arrays` below writes it as the other class and a list of members.
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
        self.size, self.n_actions = len(self.members), self.level_class.n_actions
        self.value_range = self.level_class.value_range

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


class Clipping:
    """Cuts values to a range and counts those that lay outside.

    A function that is Q* has values in the range already, so clipping never changes it.
    """

    def __init__(self, value_range: tuple[float, float]):
        """Takes the smallest and the largest value."""
        self.low, self.high = checked_range("value_range", value_range)
        self.n_values = 0  # that were seen
        self.n_clipped = 0  # of them that lay outside

    def __call__(self, values: Floats, name: str) -> Floats:
        """Returns the values, changed in place; `name` says whose they are.

        Raises:
            InvalidInput: one is not a number.
        """
        if not values.size:
            return values
        least, most = values.min(), values.max()  # NaN where one is
        if np.isnan(least):
            raise InvalidInput(f"{name} returned a value that is not a number (NaN).")
        self.n_values += values.size
        if least < self.low or most > self.high:
            self.n_clipped += int(np.count_nonzero((values < self.low) | (values > self.high)))
            np.clip(values, self.low, self.high, out=values)
        return values

    def note(self, n_values: int, n_clipped: int) -> None:
        """Counts values that were cut elsewhere, on a device."""
        self.n_values += n_values
        self.n_clipped += n_clipped

    @property
    def share(self) -> float:
        """The share of all values so far that lay outside the range."""
        return self.n_clipped / max(1, self.n_values)


CODECS: dict[str, type[LevelClass]] = {}  # code -> class; filled by `@codec` where the class is written
ADDED = Registry("richobs.classes", {})  # code -> where another package writes its class; importing it fills the table
CHOSEN = "chosen "  # a kind that begins with this word is some members of the class that the rest names

Written = TypeVar("Written", bound=type[LevelClass])
T = TypeVar("T")


def codec(level_class: Written) -> Written:
    """Registers a class that can be written, under its `code`. Use it as a decorator.

    Raises:
        InvalidInput: the class lacks a `code`, `to_arrays` or `from_arrays`, or another class has the same code.
    """
    name, code = level_class.__name__, level_class.code
    if not code or any(mark.isspace() for mark in code):
        raise InvalidInput(f"{name} needs a `code`, one word that names it in files; it has {code!r}.")
    for method in ("to_arrays", "from_arrays"):
        if vars(level_class)[method] is vars(LevelClass)[method]:
            raise InvalidInput(f"{name} has the code {code!r} but no `{method}` of its own.")
    other = CODECS.get(code, level_class)
    if (other.__module__, other.__qualname__) != (level_class.__module__, level_class.__qualname__):
        raise InvalidInput(f"{name} has the code {code!r}, which belongs to {other.__name__}; choose another.")
    CODECS[code] = level_class
    return level_class


def to_arrays(level_class: LevelClass) -> tuple[str, Arrays]:
    """Returns the kind of a level class and the arrays it is made of.

    Raises:
        InvalidInput: it is made of Python code.
    """
    if isinstance(level_class, Chosen):
        kind, arrays = to_arrays(level_class.level_class)
        return CHOSEN + kind, {**arrays, "members": level_class.members}
    arrays = level_class.to_arrays()
    code = level_class.code
    if code is None or code not in CODECS:
        raise InvalidInput(
            f"{type(level_class).__name__} is not registered: give it a `code` and put @codec before it."
        )
    return code, arrays


def from_arrays(kind: str, arrays: Arrays) -> LevelClass:
    """Returns the level class that `to_arrays` took apart.

    Raises:
        InvalidFile: the kind is not known, or the arrays do not make such a class.
    """
    code = kind.removeprefix(CHOSEN)
    if code not in CODECS and code in ADDED:
        ADDED.load(code)
    if code not in CODECS:
        raise InvalidFile(
            f"there is no kind of function class called {code[:40]!r}; there are {', '.join(CODECS)}. Import the module "
            "that registers it."
        )
    try:
        whole = CODECS[code].from_arrays(arrays)
        if kind == code:
            return whole
        return Chosen(whole, checked_members(np.atleast_1d(arrays["members"]), whole.size))
    except (KeyError, InvalidInput) as error:
        raise InvalidFile(f"the arrays of a {kind} class are damaged: {error}") from error


def write_parts(
    file: str | os.PathLike[str],
    format: str,
    parts: Sequence[tuple[str, Arrays]],
    more: Mapping[str, Any] | None = None,
) -> None:
    """Writes kinds and arrays to a `.npz` file: plain arrays and a JSON header, no pickle.

    Args:
        file: where to.
        format: what the file holds, in a word.
        parts: kind and arrays of each part, as `to_arrays` returns them.
        more: further plain values for the header.
    """
    header = {"format": format, "version": 1, "kinds": [kind for kind, _ in parts], **(more or {})}
    arrays: dict[str, Any] = {f"{h}/{name}": a for h, (_, part) in enumerate(parts) for name, a in part.items()}
    with write_atomically(file_path(file)) as stream:
        np.savez(stream, header=np.array(json.dumps(header)), **arrays)


def read_parts(file: str | os.PathLike[str], format: str) -> tuple[dict[str, Any], list[tuple[str, Arrays]]]:
    """Returns the header, and kind and arrays of each part, that `write_parts` wrote.

    Raises:
        InvalidFile: the file is damaged or holds something else.
    """
    try:
        with open_arrays(file_path(file)) as stored:
            header = json.loads(str(stored.read("header")))
            if header["format"] != format or header["version"] != 1:
                raise InvalidFile(f"its header says {str(header)[:200]}; version 1 is read alone")
            kinds = [str(kind) for kind in list(header["kinds"])]
            parts: list[tuple[str, Arrays]] = [(kind, {}) for kind in kinds]
            places = {str(h): part for h, (_, part) in enumerate(parts)}
            for full_name in (each for each in stored.sizes if each != "header"):
                level, _, name = full_name.partition("/")
                if level not in places or not name:
                    raise InvalidFile(f"it holds an array {full_name[:40]!r}, which belongs to none of its parts")
                places[level][name] = stored.read(full_name)
        return header, parts
    except FileNotFoundError:
        raise
    except Exception as error:  # whatever else a damaged or hostile file leads to
        raise InvalidFile(f"{file} is not a {format} file that richobs wrote: {error}") from error


def read_whole(file: str | os.PathLike[str], format: str, build: Callable[[list[tuple[str, Arrays]]], T]) -> T:
    """Returns what `build` makes of the parts of a file.

    Raises:
        InvalidFile: the file is damaged or holds something else.
    """
    _, parts = read_parts(file, format)
    try:
        return build(parts)
    except Exception as error:  # whatever else a damaged or hostile file leads to
        raise InvalidFile(f"{file} is not a {format} file that richobs wrote: {error}") from error


def digest_of(levels: Sequence[tuple[str, Arrays]]) -> str:
    """Returns a SHA-256 over kinds, names, types, shapes and contents of every array, in order."""
    sha = hashlib.sha256()
    for kind, arrays in levels:
        for name in sorted(arrays):
            array = np.ascontiguousarray(arrays[name])
            sha.update(json.dumps([kind, name, array.dtype.str, array.shape]).encode())
            sha.update(array.reshape(-1).view(np.uint8).data)  # the bytes themselves, not a copy of them
    return sha.hexdigest()

"""What is measured of an episode besides its total: a function of the whole episode, told by name and digest [V9]."""

import builtins
import dis
import functools
import hashlib
import math
import operator
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

import numpy as np

from richobs.core.arguments import real_number
from richobs.core.environment import Episodes
from richobs.core.errors import InvalidInput
from richobs.core.types import Floats

TWICE = 8  # episodes that are measured twice, to notice a measure that is no function of the episode
PLAIN = (type(None), type(...), bool, int, float, complex, str, bytes)
KNOWN = {  # modules whose functions are told by their names: what they return depends on their arguments alone
    *("bisect", "builtins", "cmath", "collections", "functools", "heapq", "itertools", "math", "numpy", "operator"),
    "statistics",
}
OUTSIDE = {  # names of functions in them that read something else, or more than their arguments
    *("__import__", "compile", "eval", "exec", "globals", "input", "locals", "open", "vars"),
    *("fromfile", "genfromtxt", "load", "loadtxt", "memmap", "random"),
}
Arrays = np.ndarray | np.generic
P = ParamSpec("P")
R = TypeVar("R")
Given = Callable[["Episode"], Any]


@dataclass(frozen=True, eq=False)
class Episode:
    """One episode, as a measure gets it; arrays cannot be written to.

    Whoever reads `last` or `terminated` of an episode that was played elsewhere than in one environment of Gymnasium gets
    `InvalidInput`: environments of richobs and vector environments do not tell them.
    """

    observations: Sequence[Any]  # [T] what was seen before each action
    actions: Sequence[Any]  # [T]
    rewards: Floats  # [T]
    total: float  # of the rewards, as the environment adds them up
    last: Any = field(default=None, repr=False)  # what was seen after the last action
    terminated: bool | None = field(default=None, repr=False)  # what Gymnasium said at the end; False: it was truncated

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if value is None and name in ("last", "terminated"):  # as a value, None would count as False
            raise InvalidInput(
                f"a measure reads `{name}`, which only a single Gymnasium environment tells of an episode. Give that "
                "environment to certify_policy, or a measure that reads something else."
            )
        return value

    @property
    def length(self) -> int:
        """Number of steps T."""
        return len(self.rewards)


def made_episode(
    steps: Sequence[tuple[Any, Any, float]], total: float, last: Any = None, *, terminated: bool | None = None
) -> Episode:
    """Returns the episode of steps (what was seen, action, reward)."""
    seen, actions, rewards = zip(*steps, strict=True)
    return Episode(seen, actions, copied(np.array(rewards, dtype=np.float64)), float(total), last, terminated)


def copied(given: Any) -> Any:
    """Returns a copy of arrays, which cannot be written to; anything else as it is."""
    if isinstance(given, Mapping):
        return {name: copied(part) for name, part in given.items()}
    if isinstance(given, tuple):
        return tuple(map(copied, given))
    if not isinstance(given, np.ndarray):
        return given
    copy = given.copy()
    copy.setflags(write=False)
    return copy


def episodes_of(played: Episodes) -> Iterator[Episode]:
    """Yields the episodes of an environment of richobs, each up to its end."""
    for i, total in enumerate(played.returns):
        over = [h for h, ended in enumerate(played.ended) if ended[i]]
        levels = range(over[0] if over else played.levels)
        parts = [(played.observations[h][i], played.actions[h][i], float(played.rewards[h][i])) for h in levels]
        yield made_episode([(copied(x), copied(a), r) for x, a, r in parts], total)


class Measure:
    """A measure that was given, checked while it is used."""

    def __init__(self, given: Given, *, is_event: bool = False):
        """Takes a function of an `Episode`.

        Args:
            given: the function.
            is_event: whether it may return nothing but True or False, 1 or 0.

        Raises:
            InvalidInput: it cannot be called.
        """
        if not callable(given) or isinstance(given, type):
            raise InvalidInput(f"measure is a function of an episode that returns a number; got {given!r:.80}.")
        self._given, self._left, self._is_event = given, TWICE, is_event
        self.name = str(getattr(given, "__name__", type(given).__name__)).strip("<>")
        self.unknown: list[str] = []
        self.digest = _digest(_parts(given, self.unknown, ()))
        self.name += f", which reads {', '.join(dict.fromkeys(self.unknown))}" if self.unknown else ""

    @property
    def words(self) -> str:
        """Which measure it is, in words."""
        return measure_words(self.name, self.digest)

    def __call__(self, episode: Episode) -> float:
        """Returns what the measure says of an episode.

        Raises:
            InvalidInput: it is no number, or another one the second time.
        """
        value = self._value(episode)
        if self._left:
            self._left -= 1
            if (again := self._value(episode)) != value:
                raise InvalidInput(
                    f"the measure {self.name!r} says {value:.12g} and then {again:.12g} of the same episode. It must be a "
                    "function of the episode alone: no random numbers, and nothing kept between calls."
                )
        return value

    def _value(self, episode: Episode) -> float:
        value = self._given(episode)
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value.item()
        number = real_number(
            f"what the measure {self.name!r} returns", float(value) if isinstance(value, bool | np.bool_) else value
        )
        if not math.isfinite(number):
            raise InvalidInput(f"the measure {self.name!r} returns {number}; a finite number is needed.")
        if self._is_event and number not in (0, 1):
            raise InvalidInput(
                f"the measure {self.name!r} returns {number:.6g}, and no interval is valid without the range of its values: "
                "give reward_range=(smallest, largest). Only a measure that is True or False, 1 or 0, needs none."
            )
        return float(number)


def measure_words(name: str, digest: str) -> str:
    """Returns which measure it is, in words."""
    return f"the measure {name!r} (SHA-256 {digest[:16]})"


def totals_alone(judged: Callable[P, R]) -> Callable[P, R]:
    """Makes a function that judges by totals say so where a measure or a quantile is asked for."""

    @functools.wraps(judged)
    def checked(*given: P.args, **named: P.kwargs) -> R:
        if named.keys() & {"measure", "quantile"}:
            raise InvalidInput(
                f"{judged.__name__} has neither measure= nor quantile=: it judges by totals alone. Play an environment "
                "whose reward is the measure, or give its values to compare_returns; certify_policy has both."
            )
        return judged(*given, **named)

    return checked


def _digest(parts: Iterator[bytes]) -> str:
    """Returns the SHA-256 of some parts."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()


def _parts(given: Any, unknown: list[str], within: tuple[Any, ...]) -> Iterator[bytes]:
    """Yields what a function consists of: its compiled code, and every value that it reads.

    Types are exact: an instance of a subclass may have methods of its own, and counts as unknown.

    Args:
        given: the function, or a value that one reads.
        unknown: gets the names of what the bytes do not tell whole.
        within: the functions on the way here.
    """
    kind = type(given)
    yield kind.__name__.encode()
    if kind in PLAIN:
        yield repr(given).encode()
    elif isinstance(given, Arrays) and kind in (np.ndarray, given.dtype.type) and given.dtype.kind in "biufcSUmM":
        yield f"{given.dtype.str} {given.shape} {given.strides}".encode()
        yield given.tobytes()
    elif kind in (tuple, list):
        yield str(len(given)).encode()
        for item in given:
            yield from _parts(item, unknown, within)
    elif kind in (set, frozenset):  # their order depends on the process
        yield "".join(sorted(_digest(_parts(item, unknown, within)) for item in given)).encode()
    elif kind is dict:
        yield from _parts(list(given.items()), unknown, within)
    elif kind is slice:
        yield from _parts([given.start, given.stop, given.step], unknown, within)
    elif kind is functools.partial:
        yield from _parts([given.func, given.args, given.keywords, given.__dict__], unknown, within)
    elif kind is types.CodeType:
        yield given.co_code + given.co_exceptiontable
        names = (given.co_names, given.co_varnames, given.co_freevars, given.co_cellvars)
        counts = (given.co_flags, given.co_argcount, given.co_posonlyargcount, given.co_kwonlyargcount)
        yield from _parts([*names, *counts, *given.co_consts], unknown, within)
    elif kind is types.FunctionType and given in within:  # it calls itself
        yield str(within.index(given)).encode()
    elif (name := _known_name(given)) is not None:
        yield name.encode()
    elif kind is types.FunctionType:
        yield from _function(given, unknown, (*within, given))
    else:
        unknown.append(str(getattr(given, "__qualname__", getattr(given, "__name__", kind.__qualname__))))


def _known_name(given: Any) -> str | None:
    """Returns the name of a module of KNOWN, or of what is found in one under its own name; None for everything else."""
    is_module = type(given) is types.ModuleType
    home = str(given.__name__ if is_module else getattr(given, "__module__", ""))
    name = "" if is_module else str(getattr(given, "__qualname__", ""))
    home = home.removeprefix("_")  # functools.reduce says that it is of _functools
    module, root = sys.modules.get(home), home.partition(".")[0]
    file = getattr(module, "__file__", None)  # one of another place has only the name in common
    place = os.path.dirname(str((np if root == "numpy" else os).__file__)) + os.sep
    real = home in sys.builtin_module_names if file is None else os.path.abspath(file).startswith(place)
    if module is None or root not in KNOWN or not real or name in OUTSIDE:
        return None
    try:
        return f"{home} {name}" if (module if is_module else operator.attrgetter(name)(module)) is given else None
    except AttributeError:
        return None


def _function(given: types.FunctionType, unknown: list[str], within: tuple[Any, ...]) -> Iterator[bytes]:
    """Yields the code of a function and what it reads; what it imports is unknown."""
    cells = dict(zip(given.__code__.co_freevars, given.__closure__ or (), strict=True))
    read = {name: cell.cell_contents for name, cell in cells.items()}
    for code in _codes(given.__code__):
        unknown.extend(sorted(OUTSIDE & {*code.co_names}))
        for one in dis.get_instructions(code):
            if one.opname == "IMPORT_NAME":
                unknown.append(str(one.argval))
            elif "GLOBAL" in one.opname or one.opname == "LOAD_NAME":
                read[f"global {one.argval}"] = given.__globals__.get(one.argval, getattr(builtins, one.argval, None))
    held = [given.__code__, given.__defaults__, given.__kwdefaults__, given.__dict__, sorted(read)]
    yield from _parts([*held, *(read[name] for name in sorted(read))], unknown, within)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yields a compiled function and those inside it: comprehensions and functions of its own."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)

"""What is measured of an episode besides its total: a function of the whole episode, told by name and digest [V9]."""

import dis
import functools
import hashlib
import math
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from richobs.core.arguments import real_number
from richobs.core.environment import Episodes
from richobs.core.errors import InvalidInput
from richobs.core.types import Floats

TWICE = 8  # episodes that are measured twice, to notice a measure that is no function of the episode
PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic)
KNOWN = {*sys.stdlib_module_names, "builtins", "numpy", "gymnasium"}  # packages whose functions are told by their names
LOADS = ("LOAD_GLOBAL", "LOAD_NAME")  # instructions that read a variable of a module
Given = Callable[["Episode"], Any]


@dataclass(frozen=True)
class Episode:
    """One episode, as a measure gets it; arrays cannot be written to."""

    observations: Sequence[Any]  # [T] what was seen before each action
    actions: Sequence[Any]  # [T]
    rewards: Floats  # [T]
    total: float  # of the rewards, as the environment adds them up
    last: Any = None  # what was seen after the last action; None where that is not told
    terminated: bool | None = None  # whether it ended before time was up; None where a vector environment does not tell

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


def episodes_of(played: Episodes, horizon: int) -> Iterator[Episode]:
    """Yields the episodes of an environment of richobs, each up to its end."""
    for i, total in enumerate(played.returns):
        over = [h for h, ended in enumerate(played.ended) if ended[i]]
        levels = range(over[0] if over else played.levels)
        parts = [(played.observations[h][i], played.actions[h][i], float(played.rewards[h][i])) for h in levels]
        yield made_episode([(copied(x), copied(a), r) for x, a, r in parts], total, terminated=len(levels) < horizon)


class Measure:
    """A measure that was given, checked while it is used."""

    def __init__(self, given: Given, name: str | None = None):
        """Takes a function of an `Episode`.

        Raises:
            InvalidInput: it cannot be called.
        """
        if not callable(given) or isinstance(given, type):
            raise InvalidInput(f"measure is a function of an episode that returns a number; got {given!r:.80}.")
        self._given, self._left = given, TWICE
        self.name = name or str(getattr(given, "__name__", type(given).__name__)).strip("<>")
        self.unknown: list[str] = []
        found = hashlib.sha256()
        for part in _parts(given, self.unknown, ()):
            found.update(len(part).to_bytes(8, "big") + part)
        self.digest = found.hexdigest()
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
            f"what the measure {self.name!r} returns", float(value) if isinstance(value, bool) else value
        )
        if not math.isfinite(number):
            raise InvalidInput(f"the measure {self.name!r} returns {number}; a finite number is needed.")
        return float(number)


def measure_words(name: str, digest: str) -> str:
    """Returns which measure it is, in words."""
    return f"the measure {name!r} (SHA-256 {digest[:16]})"


def _parts(given: Any, unknown: list[str], within: tuple[Any, ...]) -> Iterator[bytes]:
    """Yields what a function consists of: its compiled code, and every value that it reads.

    Args:
        given: the function, or a value that one reads.
        unknown: gets the names of what the bytes do not tell whole.
        within: the functions on the way here.
    """
    known = str(getattr(given, "__module__", "")).partition(".")[0] in KNOWN
    if isinstance(given, PLAIN):
        yield f"{type(given).__name__} {given!r}".encode()
    elif isinstance(given, np.ndarray) and not given.dtype.hasobject:
        yield f"{given.dtype.str} {given.shape}".encode()
        yield np.ascontiguousarray(given).tobytes()
    elif isinstance(given, tuple | list):
        yield f"{type(given).__name__} {len(given)}".encode()
        for item in given:
            yield from _parts(item, unknown, within)
    elif isinstance(given, dict):
        yield from _parts(["dict", *given.items()], unknown, within)
    elif isinstance(given, functools.partial):
        yield from _parts(["partial", given.func, given.args, given.keywords], unknown, within)
    elif isinstance(given, types.FunctionType) and not known:
        if given in within:  # it calls itself
            yield f"function {within.index(given)}".encode()
        else:
            yield from _function(given, unknown, (*within, given))
    else:
        name = str(getattr(given, "__qualname__", getattr(given, "__name__", type(given).__qualname__)))
        yield f"{type(given).__name__} {getattr(given, '__module__', '')} {name}".encode()
        is_module = isinstance(given, types.ModuleType)
        if (name.partition(".")[0] not in KNOWN) if is_module else not (known and hasattr(given, "__name__")):
            unknown.append(name)


def _function(given: types.FunctionType, unknown: list[str], within: tuple[Any, ...]) -> Iterator[bytes]:
    """Yields the code of a function and what it reads."""
    codes = list(_codes(given.__code__))
    for code in codes:
        yield code.co_code
        constants = [one for one in code.co_consts if not isinstance(one, types.CodeType)]
        yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, constants)).encode()
    cells = dict(zip(given.__code__.co_freevars, given.__closure__ or (), strict=True))
    read = {name: cell.cell_contents for name, cell in cells.items()}
    loaded = {one.argval for code in codes for one in dis.get_instructions(code) if one.opname in LOADS}
    read |= {f"global {name}": given.__globals__[name] for name in loaded if name in given.__globals__}
    yield from _parts([given.__defaults__, given.__kwdefaults__, *sorted(read)], unknown, within)
    for name in sorted(read):
        yield from _parts(read[name], unknown, within)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yields a compiled function and those inside it: comprehensions and functions of its own."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)

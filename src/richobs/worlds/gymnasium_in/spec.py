"""What is declared about a Gymnasium environment, and the line that says it all.

The line, `gym:FrozenLake-v1?horizon=12&reward_range=0,1`, is the id of a problem: `richobs.make` builds the problem again
from it. Reading an id imports nothing; building a problem from it imports the modules that it names.
"""

import ast
import dataclasses
import functools
import importlib
import json
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

import gymnasium
import numpy as np

from richobs.core.arguments import LEVELS, whole_number
from richobs.core.environment import checked_range
from richobs.core.errors import InvalidInput

Vector = int | Literal["native"] | None
Range = tuple[float, float]

PREFIX = "gym:"
PLAIN = ":,./[](){}\"'*+@!"  # characters of a value that need no escape
OTHER_LANGUAGES = {"true": "True", "false": "False", "null": "None", "none": "None"}


@dataclasses.dataclass(frozen=True)
class GymnasiumSpec:
    """What is declared about a Gymnasium environment, as for `from_gymnasium`."""

    env: Any  # an id of Gymnasium, an environment, or a callable that makes one
    horizon: int | None = None
    reward_range: Range | None = None
    step_range: Range | None = None
    seed: int | None = None
    observation: Any = None  # a function of one observation, or `module:name` of one
    end_observation: Any = None
    deterministic: bool | None = None
    vector: Vector = None
    functions: str | None = None  # `module:name` of a function that takes the environment and returns the class
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # arguments of the environment

    @classmethod
    def read(cls, id: str, more: Mapping[str, Any] | None = None) -> Self:
        """Returns the spec that an id describes, with what else is given; nothing is imported.

        Args:
            id: `gym:`, an id of Gymnasium, and behind a question mark pairs name=value, joined by `&`. Names that are not
                those of a spec are arguments of the environment.
            more: further values by name, which may not repeat what the id says; None gives nothing.

        Raises:
            InvalidInput: it does not read so.
        """
        name, _, rest = id.removeprefix(PREFIX).partition("?")
        if not name:
            raise InvalidInput(
                f"{id!r} names no environment: after `gym:` comes an id of Gymnasium, as in gym:FrozenLake-v1."
            )
        given: dict[str, Any] = {}
        for pair in rest.split("&") if rest else []:
            key, equals, text = (urllib.parse.unquote(part) for part in pair.partition("="))
            if not equals or not key:
                raise InvalidInput(f"id {id!r}: {pair!r} should read name=value.")
            if key in given:
                raise InvalidInput(f"id {id!r} gives {key} twice.")
            given[key] = read_value(key, text)
        also = {key: value for key, value in (more or {}).items() if value is not None}
        if repeated := sorted(given.keys() & also.keys()):
            raise InvalidInput(f"{', '.join(repeated)}: given in the id {id!r} and again.")
        given |= also
        own = {key: given.pop(key) for key in OWN if key in given}
        return cls(urllib.parse.unquote(name), **own, kwargs=given)

    @property
    def id(self) -> str:
        """The spec as one line, which `read` takes; what is None or False is left out.

        Raises:
            InvalidInput: the environment was not made from an id, or a value cannot be written down.
        """
        if not isinstance(self.env, str):
            raise InvalidInput(
                f"{self.name} was not made from an id of Gymnasium, so it cannot be written down. Register it "
                "(gymnasium.register) and give its id."
            )
        if taken := sorted(self.kwargs.keys() & set(OWN)):
            raise InvalidInput(
                f"the argument {taken[0]!r} of the environment has the name of an argument of from_gymnasium: register the "
                "environment under an id of its own that has this argument set (gymnasium.register)."
            )
        pairs = {key: getattr(self, key) for key in OWN}
        if callable(self.observation):
            pairs["observation"] = importable_name(self.observation, "observation=")
        if self.end_observation is not None:
            pairs["end_observation"] = np.asarray(self.end_observation).tolist()
        pairs = {key: value for key, value in pairs.items() if value is not None and value is not False}
        pairs |= dict(sorted(self.kwargs.items()))
        words = [f"{_escaped(key)}={_escaped(write_value(key, value))}" for key, value in pairs.items()]
        return PREFIX + "?".join([_escaped(self.name), *(["&".join(words)] if words else [])])

    @property
    def name(self) -> str:
        """The id, the maker's name, or the environment's own words for itself."""
        if isinstance(self.env, str):
            return self.env.removeprefix(PREFIX)
        return str(self.env) if isinstance(self.env, gymnasium.Env) else qualified_name(self.env)

    @property
    def levels(self) -> int:
        """The horizon, checked."""
        return whole("horizon", self.horizon, 1, LEVELS)

    def checked(self) -> Self:
        """Returns the same spec once every entry is known to be of its kind; an observation function is imported."""
        observation = self.observation
        if isinstance(observation, str):
            observation = find_named(observation, "observation=")
        if self.deterministic is not None and not isinstance(self.deterministic, bool | np.bool):
            raise InvalidInput(f"deterministic must be True or False; got {self.deterministic!r:.80}.")
        if observation is not None and not callable(observation):
            raise InvalidInput(f"observation must be a function of one observation; got {observation!r:.80}.")
        return dataclasses.replace(
            self,
            env=self.name if isinstance(self.env, str) else self.env,
            horizon=self.levels,
            reward_range=None if self.reward_range is None else checked_range("reward_range", self.reward_range),
            step_range=None if self.step_range is None else checked_range("step_range", self.step_range),
            seed=None if self.seed is None else whole("seed", self.seed, 0),
            observation=observation,
            deterministic=bool(self.deterministic),
        )


# Entries in the order in which an id has them.
OWN = tuple(f.name for f in dataclasses.fields(GymnasiumSpec) if f.name not in ("env", "kwargs"))


def whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Returns a whole number of at least `least` and at most `most`."""
    if isinstance(value, bool):
        raise InvalidInput(f"{name} must be a whole number, at least {least}; got {value}.")
    return whole_number(name, value, least, most)


def read_value(name: str, text: str) -> Any:
    """Returns the value that a text stands for: a number, True, False, None, a list and so on, or the text itself.

    Raises:
        InvalidInput: it is `true`, `false`, `none` or `null`, which could mean two things.
    """
    if text in OTHER_LANGUAGES:
        raise InvalidInput(f"{name}={text}: write {name}={OTHER_LANGUAGES[text]}, or {name}='{text}' for the text.")
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def write_value(name: str, value: Any) -> str:
    """Returns the text that `read_value` takes for a value.

    Raises:
        InvalidInput: there is none.
    """
    if name in ("reward_range", "step_range"):
        return ",".join(_number(v) for v in checked_range(name, value))
    if isinstance(value, str) and value not in OTHER_LANGUAGES and read_value(name, value) == value:
        return value
    text = repr(value)
    again = read_value(name, text)
    if type(again) is not type(value) or again != value:
        raise InvalidInput(
            f"{name} is a {type(value).__name__}, {text}; only numbers, texts, True, False, None, and lists, tuples or "
            "dictionaries of them can be written down in an id."
        )
    return text


def _number(value: float) -> str:
    """Returns a number of a range, a whole one without a point."""
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def _escaped(text: str) -> str:
    try:
        return urllib.parse.quote(text, safe=PLAIN)
    except UnicodeEncodeError:
        raise InvalidInput(
            f"{text!a} holds characters that are no text, so it cannot be written down in an id."
        ) from None


def qualified_name(function: Callable[..., Any]) -> str:
    """Returns `module:name` of a function or class; of a `functools.partial` also its arguments."""
    if isinstance(function, functools.partial):
        inner = [qualified_name(function.func), *map(plain_text, function.args)]
        return f"partial({', '.join(inner + [f'{k}={plain_text(v)}' for k, v in sorted(function.keywords.items())])})"
    named = function if isinstance(function, type) or hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"


def plain_text(value: Any) -> str:
    """Returns a value as text that is the same in every process: JSON, and the type's name of what JSON cannot hold."""

    def other(part: Any) -> str:
        return qualified_name(part) if callable(part) else f"a {qualified_name(type(part))}"

    return json.dumps(value, default=other, sort_keys=True)


def find_named(name: str, what: str) -> Any:
    """Imports what `module:name` names.

    Args:
        name: a module and the name of something in it, for instance `mypackage.candidates:make`.
        what: what it is for, in a message.

    Raises:
        InvalidInput: there is no such module, or nothing of that name in it.
    """
    module, colon, inside = name.partition(":")
    try:
        if not (module and colon and inside):
            raise ImportError("it should read module:name")
        found = importlib.import_module(module)
        for part in inside.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"{what} {name!r} cannot be imported: {error}.") from error
    return found


def importable_name(function: Callable[..., Any], what: str) -> str:
    """Returns `module:name` of a function that another process can import by it.

    Raises:
        InvalidInput: the function is no importable one: a lambda, one defined inside another, or a partial.
    """
    name = qualified_name(function)
    importable = "<" not in name and not isinstance(function, functools.partial) and not name.startswith("__main__:")
    if not importable or find_named(name, what) is not function:
        raise InvalidInput(
            f"{what} {name!r} cannot be written down: only a function that a module defines by name can be imported again. "
            "Define it in a module of its own."
        )
    return name

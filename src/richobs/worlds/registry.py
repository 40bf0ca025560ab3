"""The registry of worlds: builds the problem that an id names.

A world is one file with a frozen dataclass `Config` and a function `build(config) -> Problem`; its line in `WORLDS` makes
it known everywhere. The fields of `Config` are int, float, bool or a `Literal` of text, each with a default and a sentence
under it, which is also the help text of the command line.
"""

import dataclasses
import math
import operator
import sys
import typing
from functools import lru_cache
from typing import Any, TypeGuard

import gymnasium

from richobs.core.arguments import did_you_mean
from richobs.core.errors import InvalidInput, UnknownWorld
from richobs.core.problem import Problem
from richobs.core.registry import Registry
from richobs.worlds.gymnasium_in.environment import problem_from_spec
from richobs.worlds.gymnasium_in.spec import PREFIX, GymnasiumSpec

WORLDS = Registry(  # world -> the module that defines it
    "richobs.worlds", {"bandit": "richobs.worlds.bandit", "mdp": "richobs.worlds.mdp", "lock": "richobs.worlds.lock"}
)

KINDS: dict[Any, str] = {int: "a whole number", float: "a finite number", bool: "True or False"}


def is_gymnasium_id(id: str | None) -> TypeGuard[str]:
    """Whether an id names a Gymnasium environment."""
    return isinstance(id, str) and id.startswith(PREFIX)


def config_class(world: str) -> type[Any]:
    """Returns the dataclass of a world's parameters."""
    if world not in WORLDS:
        raise UnknownWorld(
            f"there is no world {world!r}; there are {', '.join(WORLDS)} (see `richobs worlds`).{_hint(world)}"
        )
    return typing.cast("type[Any]", WORLDS.load(world).Config)


def _hint(world: str) -> str:
    """Returns what somebody who asked for an unknown world may have meant: an environment of Gymnasium, or another name."""
    if world in gymnasium.registry:
        return f" Gymnasium has an environment of that name: write gym:{world}, or use richobs.from_gymnasium."
    return did_you_mean(world, WORLDS)


def configure(id: str, **params: Any) -> Any:
    """Returns the config that an id and parameters describe.

    Args:
        id: a world (`lock`), a world and its horizon (`lock/10`), or a full id (`lock/10,noise_bits=4,seed=3`).
        **params: the world's parameters by name; they may not repeat what the id says.
    """
    if not isinstance(id, str):
        raise InvalidInput(f"an id is a text such as 'lock/10' (see `richobs worlds`); got {id!r}.")
    head, *pairs = id.split(",")
    world, slash, horizon = head.partition("/")
    config = config_class(world)
    given: dict[str, Any] = {"horizon": horizon} if slash else {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidInput(f"id {id!r}: {pair!r} should read name=value.")
        if name in given:
            raise InvalidInput(f"id {id!r} gives {name} twice.")
        given[name] = value
    if repeated := sorted(given.keys() & params.keys()):
        raise InvalidInput(f"{', '.join(repeated)}: given in the id {id!r} and again as a parameter.")
    kinds = typing.get_type_hints(config)
    if unknown := sorted((given.keys() | params.keys()) - kinds.keys()):
        raise InvalidInput(
            f"world {world!r} has no parameter {unknown[0]!r}; it has {', '.join(kinds)}.{did_you_mean(unknown[0], kinds)}"
        )
    return config(**{name: _convert(world, name, kinds[name], v) for name, v in {**given, **params}.items()})


def full_id(config: Any) -> str:
    """Returns the id that describes `config` completely; parameters at their defaults are left out."""
    parts = [world for world, module in WORLDS.items() if module == type(config).__module__]
    if not parts:
        raise UnknownWorld(f"{type(config).__name__} is not the Config of a registered world.")
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        if f.name == "horizon":
            parts[0] += f"/{value}"
        elif value != f.default:
            parts.append(f"{f.name}={value}")
    return ",".join(parts)


def build(config: Any) -> Problem:
    """Returns a new problem from a world's config, with its full id."""
    full = full_id(config)  # refuses a config of no world
    problem: Problem = sys.modules[type(config).__module__].build(config)  # the world's file, where its Config is too
    return problem.named(full)


def make(id: str, **params: Any) -> Problem:
    """Builds the problem that `id` names, for instance `make("lock/10", noise_bits=4)`.

    An id that begins with `gym:` names a Gymnasium environment, and building it imports the modules that the id names (see
    docs/gymnasium.md).

    Args:
        id: as for `configure`; `richobs worlds` lists the worlds and their parameters.
        **params: the world's parameters by name; of a Gymnasium environment those of `from_gymnasium`, and `functions`,
            `module:name` of a function that takes the environment and returns the class.
    """
    if is_gymnasium_id(id):
        spec = GymnasiumSpec.read(id, params)
        own = spec.id  # refuses what cannot be written down before anything is made
        return problem_from_spec(spec).named(own)
    return build(configure(id, **params))


@lru_cache(maxsize=64)
def shared_problem(config: Any) -> Problem:
    """Returns a problem that all callers with the same config share; they may only read it.

    Thousands of Gymnasium copies of a world then hold one simulator.
    """
    return build(config)


def _convert(world: str, name: str, kind: Any, value: Any) -> Any:
    """Returns `value` as the type that the config's field declares; ids carry text."""
    options = typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
    if not options and kind not in KINDS:
        raise InvalidInput(
            f"world {world!r}: {name} has type {kind}; a Config holds int, float, bool and Literals of text alone."
        )
    try:
        if kind is bool:
            if str(value) not in ("True", "False"):
                raise ValueError
            return str(value) == "True"
        if kind is int:
            return int(value if isinstance(value, str) else operator.index(value))
        if kind is float:
            number = float(value)
            if not math.isfinite(number):
                raise ValueError
            return number
        if value not in options:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        wanted = f"one of {', '.join(map(str, options))}" if options else KINDS[kind]
        raise InvalidInput(f"world {world!r}: {name} must be {wanted}; got {value!r}.") from None
    return value

"""One registry of worlds: ids in, problems out.

A world is one file with a frozen dataclass `Config` (one sentence per field: it is the command line too) and a function
`build(config) -> Problem`; its line in `WORLDS` makes it known everywhere.
"""

import dataclasses
import importlib
import math
import operator
import typing
from functools import lru_cache
from typing import Any

from richobs.envs.world import Problem
from richobs.errors import InvalidInput, UnknownWorld

WORLDS: dict[str, str] = {  # world -> the module that defines it
    "bandit": "richobs.envs.bandit",
    "mdp": "richobs.envs.mdp",
    "deep-sea": "richobs.envs.deep_sea",
    "disjoint": "richobs.envs.disjoint",
    "lock": "richobs.envs.lock",
    "diabolical": "richobs.envs.diabolical",
    "lower-bound": "richobs.envs.lower_bound",
    "random": "richobs.envs.random",
}


def config_class(world: str) -> type[Any]:
    """Returns the dataclass of a world's parameters."""
    if world not in WORLDS:
        raise UnknownWorld(f"there is no world {world!r}; there are {', '.join(WORLDS)} (see `richobs worlds`).")
    return typing.cast("type[Any]", importlib.import_module(WORLDS[world]).Config)


def world_of(config: Any) -> str:
    """Returns the name of the world that a config belongs to."""
    for world, module in WORLDS.items():
        if type(config).__module__ == module:
            return world
    raise UnknownWorld(f"{type(config).__name__} is not the Config of a registered world.")


def configure(id: str, **params: Any) -> Any:
    """Returns the config that an id and parameters describe.

    Args:
        id: a world (`lock`), a world and its horizon (`lock/10`), or a full id (`lock/10,noise_bits=4,seed=3`).
        **params: the world's parameters by name; they may not repeat what the id says.
    """
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
        raise InvalidInput(f"world {world!r} has no parameter {unknown[0]!r}; it has {', '.join(kinds)}.")
    return config(**{name: _convert(world, name, kinds[name], v) for name, v in {**given, **params}.items()})


def full_id(config: Any) -> str:
    """Returns the id that describes `config` completely; parameters at their defaults are left out."""
    parts = [world_of(config)]
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        if f.name == "horizon":
            parts[0] += f"/{value}"
        elif value != f.default:
            parts.append(f"{f.name}={value}")
    return ",".join(parts)


def build(config: Any) -> Problem:
    """Returns a new problem from a world's config."""
    problem: Problem = importlib.import_module(WORLDS[world_of(config)]).build(config)
    return dataclasses.replace(problem, id=full_id(config))


def make(id: str, **params: Any) -> Problem:
    """Builds the problem that `id` names, for instance `make("lock/10", noise_bits=4)`.

    Args:
        id: as for `configure`; `richobs worlds` lists the worlds and their parameters.
        **params: the world's parameters by name.
    """
    return build(configure(id, **params))


@lru_cache(maxsize=64)
def shared_problem(config: Any) -> Problem:
    """Returns one problem per config, for uses that only read it (thousands of Gymnasium copies of a world)."""
    return build(config)


def _convert(world: str, name: str, kind: Any, value: Any) -> Any:
    """Returns `value` as the type that the config's field declares; ids carry text."""
    options = typing.get_args(kind)
    try:
        if kind is bool:
            if str(value) not in ("True", "False"):
                raise ValueError
            return str(value) == "True"
        if kind is int:
            return int(value) if isinstance(value, str) else operator.index(value)
        if kind is float:
            number = float(value)
            if not math.isfinite(number):
                raise ValueError
            return number
        if value not in options:
            raise ValueError
    except (TypeError, ValueError):
        kinds = {int: "a whole number", float: "a finite number", bool: "True or False"}
        wanted = f"one of {', '.join(map(str, options))}" if options else kinds[kind]
        raise InvalidInput(f"world {world!r}: {name} must be {wanted}; got {value!r}.") from None
    return value

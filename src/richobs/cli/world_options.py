"""Worlds on the command line: each is a sub-command whose options are the fields of its Config."""

import dataclasses
import functools
import inspect
import operator
import typing
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from richobs.cli.gymnasium_options import WORLD, GymnasiumOptions
from richobs.core.environment import Environment
from richobs.core.problem import Problem
from richobs.core.settings import Settings, field_docs
from richobs.worlds.registry import WORLDS, config_class, make

TAKEN = {f.name for f in dataclasses.fields(Settings)}  # options of a run; a world's own are then called world_...


def option_name(field_name: str) -> str:
    """Returns what a world's parameter is called among the options."""
    return f"world_{field_name}" if field_name in TAKEN else field_name


def option(field_name: str) -> str:
    """Returns the command-line option of a world's parameter."""
    return "--" + option_name(field_name).replace("_", "-")


def about(world: str) -> str:
    """Returns a world in one sentence."""
    return (inspect.getdoc(config_class(world)) or "").partition("\n")[0]


def build(options: Any) -> Problem:
    """Returns the problem that the options of a world describe."""
    if isinstance(options, GymnasiumOptions):
        return options.build()
    names = [f.name for f in dataclasses.fields(config_class(options.world_name))]
    return make(options.world_name, **{name: getattr(options, option_name(name)) for name in names})


def build_playable(options: Any) -> Problem | Environment:
    """Returns what can be played: a problem, or an environment of Gymnasium without a class."""
    return options.build_environment() if isinstance(options, GymnasiumOptions) else build(options)


def _options_of(world: str) -> type[Any]:
    """Returns a world's Config as a sub-command: the same fields and help texts, but for names that runs use too."""
    config = config_class(world)
    docs, kinds = field_docs(config), typing.get_type_hints(config)
    fields = [
        (
            option_name(f.name),
            Annotated[kinds[f.name], tyro.conf.arg(help=docs.get(f.name, ""))],
            dataclasses.field(default=f.default),
        )
        for f in dataclasses.fields(config)
    ]
    names = {"__doc__": inspect.getdoc(config), "world_name": world}
    return dataclasses.make_dataclass(config.__name__, fields, frozen=True, namespace=names)


WORLD_OPTIONS: dict[str, type[Any]] = {world: _options_of(world) for world, _ in WORLDS.loadable()}
WORLD_OPTIONS[WORLD] = GymnasiumOptions

if TYPE_CHECKING:
    World = Any
else:
    World = functools.reduce(
        operator.or_,
        (Annotated[o, tyro.conf.subcommand(w, prefix_name=False)] for w, o in WORLD_OPTIONS.items()),
    )

"""Gymnasium environments on the command line: `gym:FrozenLake-v1 --horizon 12 --functions mypkg.candidates:make`.

Options and the id say the same things in two ways: `gym:FrozenLake-v1?horizon=12&functions=mypkg.candidates:make`.
"""

import contextlib
import dataclasses
import os
import pathlib
import sys
from typing import Any, ClassVar

import tyro

from richobs.core.environment import Environment
from richobs.core.errors import InvalidInput
from richobs.core.problem import Problem
from richobs.worlds.gymnasium_ids import OWN, PREFIX, is_gymnasium_id, read_value, write_id
from richobs.worlds.registry import gymnasium_environment, gymnasium_spec, make

WORLD = "gym"  # what the sub-command is called
TRUST = "RICHOBS_TRUST"  # the environment variable that stands for --trust


@dataclasses.dataclass(frozen=True)
class GymnasiumOptions:
    """An environment of Gymnasium, given as gym:ID, with a class of your own (docs/gymnasium.md)."""

    world_name: ClassVar[str] = WORLD

    environment: tyro.conf.Positional[str]
    """Its id, for instance FrozenLake-v1; further arguments may follow, as in FrozenLake-v1?horizon=12."""
    horizon: int | None = None
    """Number of levels H of an episode."""
    functions: str | None = None
    """The class: module:name of a function that takes the environment and returns a function class."""
    env_arg: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """An argument of the environment, as name=value; may be repeated."""
    reward_range: tuple[float, float] | None = None
    """Smallest and largest possible total of an episode."""
    step_range: tuple[float, float] | None = None
    """Smallest and largest possible reward of one step."""
    env_seed: int | None = None
    """Seed of every reset; by default each episode has a fresh one."""
    observation: str | None = None
    """module:name of a function of one observation, whose result is what is seen."""
    deterministic: bool = False
    """Declare that the same actions always show and pay the same: each action sequence is then played once."""

    @property
    def spec(self) -> dict[str, Any]:
        """The spec that the options describe."""
        arguments: dict[str, Any] = {}
        for pair in self.env_arg:
            name, equals, text = pair.partition("=")
            if not equals or not name or name in arguments:
                raise InvalidInput(f"--env-arg {pair}: it should read name=value, each name once.")
            if name in OWN:
                raise InvalidInput(f"--env-arg {pair}: this is an option of its own, or part of the id after a `?`.")
            arguments[name] = read_value(name, text)
        return gymnasium_spec(
            f"{PREFIX}{self.environment}",
            **arguments,
            horizon=self.horizon,
            functions=self.functions,
            reward_range=self.reward_range,
            step_range=self.step_range,
            seed=self.env_seed,
            observation=self.observation,
            deterministic=self.deterministic or None,
        )

    def build(self) -> Problem:
        """Returns the problem; the modules that the options name are imported, also from the working folder."""
        spec = self.spec
        if spec.get("horizon") is None:
            raise InvalidInput(f"gym:{self.environment} needs --horizon, the number of levels of an episode.")
        if spec.get("functions") is None:
            raise InvalidInput(
                f"gym:{self.environment} needs --functions module:name, a function that takes the environment and returns a "
                "class of candidate value functions (docs/gymnasium.md)."
            )
        import_from_here()
        return make(write_id(spec))

    def build_environment(self) -> Environment:
        """Returns the environment alone; no class is needed."""
        spec = self.spec
        if spec.get("horizon") is None:
            raise InvalidInput(f"gym:{self.environment} needs --horizon, the number of levels of an episode.")
        import_from_here()
        return gymnasium_environment(spec)


def make_stored(id: str, file: pathlib.Path, trust: bool) -> Problem:
    """Returns the problem that a file names, if the modules that it names may be imported.

    Args:
        id: as the file has it.
        file: where it stands, for the message.
        trust: whether the caller trusts the file.

    Raises:
        InvalidInput: it names modules, and nobody said that the file can be trusted.
    """
    if is_gymnasium_id(id):
        if not (trust or os.environ.get(TRUST) == "1"):
            raise InvalidInput(
                f"{file} is about {id}. To build this problem, the modules that it names are imported, which runs their "
                f"code. If you trust the file, say --trust (or set {TRUST}=1)."
            )
        import_from_here()
    return make(id)


def trusting(id: str | None) -> str:
    """Returns what a command about a stored run must end with: ` --trust` where it imports modules, else nothing."""
    return " --trust" if is_gymnasium_id(id) else ""


def import_from_here() -> None:
    """Lets modules of the working folder be imported; those that are installed come first."""
    with contextlib.suppress(FileNotFoundError):  # the working folder was deleted: there is nothing to import
        here = os.getcwd()
        if here not in sys.path and "" not in sys.path:
            sys.path.append(here)

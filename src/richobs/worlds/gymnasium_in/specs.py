"""Gymnasium environments and problems from plain values, as a file or a command line holds them.

A spec names modules, and making it imports them: use only specs that you trust.
"""

from collections.abc import Mapping
from typing import Any

from richobs.core.errors import InvalidInput
from richobs.core.problem import Problem
from richobs.worlds.gymnasium_in.environment import GymnasiumEnvironment, from_gymnasium
from richobs.worlds.gymnasium_in.names import find_named

PREFIX = "gym:"  # an id on the command line may begin with it
KEYS = (
    *("id", "kwargs", "horizon", "reward_range", "step_range", "seed"),
    *("observation", "end_observation", "deterministic", "vector"),
)


def environment_from_spec(spec: Mapping[str, Any]) -> GymnasiumEnvironment:
    """Makes the environment that `GymnasiumEnvironment.spec` wrote down.

    Args:
        spec: `id` and `horizon` are needed; `kwargs`, `reward_range`, `step_range`, `seed`, `observation` (`module:name` of
            a function), `end_observation`, `deterministic` and `vector` are as for `from_gymnasium`. The id may begin with
            `gym:`.

    Raises:
        InvalidInput: something is missing, unknown or of the wrong kind.
    """
    if unknown := sorted(spec.keys() - set(KEYS)):
        raise InvalidInput(f"a spec has no entry {unknown[0]!r}; it has {', '.join(KEYS)}.")
    if not isinstance(spec.get("id"), str) or spec.get("horizon") is None:
        raise InvalidInput(f"a spec needs `id`, a text, and `horizon`, a whole number; got {dict(spec)}.")
    rest = {name: spec.get(name) for name in ("reward_range", "step_range", "seed", "end_observation", "vector")}
    kwargs = spec.get("kwargs") or {}
    if taken := sorted(kwargs.keys() & set(KEYS)):
        raise InvalidInput(
            f"the argument {taken[0]!r} of the environment has the name of an argument of from_gymnasium: register the "
            "environment under an id of its own that has this argument set (gymnasium.register)."
        )
    observation = spec.get("observation")
    return from_gymnasium(
        spec["id"].removeprefix(PREFIX),
        horizon=spec["horizon"],
        observation=None if observation is None else find_named(observation, "observation="),
        deterministic=spec.get("deterministic"),
        **rest,
        **kwargs,
    )


def problem_from_spec(spec: Mapping[str, Any]) -> Problem:
    """Makes the problem of a spec: its environment, and the class that a function makes for it.

    Args:
        spec: as for `environment_from_spec`, and `functions`, `module:name` of a function that takes the environment and
            returns a function class.
    """
    name = spec.get("functions")
    if not isinstance(name, str):
        raise InvalidInput(
            "a problem needs `functions`, module:name of a function that takes the environment and returns a function "
            f"class; got {name!r}."
        )
    make = find_named(name, "functions")
    env = environment_from_spec({key: value for key, value in spec.items() if key != "functions"})
    try:
        return Problem(env, make(env))
    except BaseException:
        env.close()
        raise

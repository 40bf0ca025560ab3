"""Checks that the worlds' configs share."""

from typing import Any

from richobs.core.errors import InvalidInput

LARGEST = 40_000_000  # numbers that a world and its class may hold; with what is needed to build them, up to 1 GB
LEVEL = 2_000  # numbers that take as much memory as what every level has besides its arrays


def require_range(config: Any, name: str, low: float | None = None, high: float | None = None) -> None:
    """Raises `InvalidInput` unless `low <= config.name <= high`."""
    value = getattr(config, name)
    below = low is not None and not value >= low  # `not >=` so that NaN is refused too
    above = high is not None and not value <= high
    if below or above:
        if high is None:
            wanted = f"at least {low}"
        elif low is None:
            wanted = f"at most {high}"
        else:
            wanted = f"between {low} and {high}"
        raise InvalidInput(f"{type(config).__module__.rpartition('.')[2]}: {name} must be {wanted}; got {value!r}.")


def require_size(config: Any, levels: int, numbers: int) -> None:
    """Raises `InvalidInput` where a world would be too large to build; an id may come from anybody.

    Args:
        config: of the world.
        levels: how many levels it has.
        numbers: about how many numbers each level holds: transitions, observations, rewards, functions.
    """
    if levels * (numbers + LEVEL) > LARGEST:
        world = type(config).__module__.rpartition(".")[2]
        raise InvalidInput(
            f"{world}: {levels:,} levels of about {numbers:,} numbers each are too many; a world may hold {LARGEST:,}, "
            f"where a level counts {LEVEL:,} more. Ask for fewer levels, states, observations, actions or functions."
        )

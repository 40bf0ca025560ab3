"""Checks that the worlds' configs share."""

from typing import Any

from richobs.core.errors import InvalidInput


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

"""One input that is tried: what is called, with what."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Call(NamedTuple):
    """One input: what is called, with what, in words and as a function."""

    group: str
    about: str
    act: Callable[[], object]


def in_short(value: Any) -> str:
    """Returns a value as text, in few characters and on one line."""
    try:
        text = ascii(value)
    except Exception:  # a number that is too long to write
        text = type(value).__name__
    return " ".join(text.split())[:40]

"""Ids of Gymnasium problems: a spec as one readable line, such as `gym:FrozenLake-v1?horizon=12&reward_range=0,1`.

An id names everything from which `richobs.make` builds the problem again: the environment, its arguments, and the function
that makes the class. Reading an id imports nothing; building a problem from it imports the modules that it names.
"""

import ast
import urllib.parse
from collections.abc import Mapping
from typing import Any, TypeGuard

from richobs.core.environment import checked_range
from richobs.core.errors import InvalidInput

PREFIX = "gym:"
OWN = (  # entries of a spec beside `id` and `kwargs`, in the order in which an id has them
    *("horizon", "reward_range", "step_range", "seed", "observation"),
    *("end_observation", "deterministic", "vector", "functions"),
)
PLAIN = ":,./[](){}\"'*+@!"  # characters of a value that need no escape
OTHER_LANGUAGES = {"true": "True", "false": "False", "null": "None", "none": "None"}


def is_gymnasium_id(id: str | None) -> TypeGuard[str]:
    """Whether an id names a Gymnasium environment."""
    return id is not None and id.startswith(PREFIX)


def read_id(id: str) -> dict[str, Any]:
    """Returns the spec that an id describes, as `problem_from_spec` takes it; nothing is imported.

    Args:
        id: `gym:`, an id of Gymnasium, and behind a question mark pairs name=value, joined by `&`. Names that are not those
            of a spec are arguments of the environment.

    Raises:
        InvalidInput: it does not read so.
    """
    name, _, rest = id.removeprefix(PREFIX).partition("?")
    if not name:
        raise InvalidInput(
            f"{id!r} names no environment: after `gym:` comes an id of Gymnasium, as in gym:FrozenLake-v1."
        )
    pairs: dict[str, Any] = {}
    for pair in rest.split("&") if rest else []:
        key, equals, text = (urllib.parse.unquote(part) for part in pair.partition("="))
        if not equals or not key:
            raise InvalidInput(f"id {id!r}: {pair!r} should read name=value.")
        if key in pairs:
            raise InvalidInput(f"id {id!r} gives {key} twice.")
        pairs[key] = read_value(key, text)
    return spec_of(urllib.parse.unquote(name), pairs)


def spec_of(name: str, pairs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the spec of an environment's id and of values by name; names that a spec has not are its arguments."""
    own = {key: value for key, value in pairs.items() if key in OWN}
    return {"id": name, "kwargs": {key: value for key, value in pairs.items() if key not in OWN}, **own}


def write_id(spec: Mapping[str, Any]) -> str:
    """Returns the id that describes a spec; what is None, False or empty is left out.

    Raises:
        InvalidInput: a value cannot be written down so that it can be read again.
    """
    pairs = {key: spec[key] for key in OWN if spec.get(key) is not None and spec[key] is not False}
    pairs |= dict(sorted((spec.get("kwargs") or {}).items()))
    words = [f"{_escaped(key)}={_escaped(write_value(key, value))}" for key, value in pairs.items()]
    return PREFIX + "?".join([_escaped(str(spec["id"]).removeprefix(PREFIX)), *(["&".join(words)] if words else [])])


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

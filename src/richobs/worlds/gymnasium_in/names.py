"""Functions and values as text, so that an environment can be identified and made again."""

import functools
import importlib
import json
from collections.abc import Callable
from typing import Any

from richobs.core.errors import InvalidInput


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

"""Engines: who draws the episodes that a learner asks for, one kind per file. One line here makes an engine known."""

import importlib

from richobs.core.errors import InvalidInput
from richobs.engines.calls import Calls
from richobs.engines.counted import CountedEngine
from richobs.engines.play import Play
from richobs.engines.stream import StreamEngine

__all__ = ["ENGINES", "Calls", "CountedEngine", "Play", "StreamEngine", "engine_kind"]

ENGINES: dict[str, str] = {  # name -> where it is defined
    "counted": "richobs.engines.counted:CountedEngine",
    "stream": "richobs.engines.stream:StreamEngine",
}


def engine_kind(name: str) -> type[Play]:
    """Returns the class of the engine of that name.

    Raises:
        InvalidInput: there is none.
    """
    if name not in ENGINES:
        raise InvalidInput(f"there is no engine {name!r}; there are 'auto', {', '.join(map(repr, ENGINES))}.")
    module, _, kind = ENGINES[name].partition(":")
    found: type[Play] = getattr(importlib.import_module(module), kind)
    return found

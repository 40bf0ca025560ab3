"""Engines: who plays the episodes that a learner asks for, one kind per file. One line here makes an engine known."""

import importlib

from richobs.core.errors import InvalidInput
from richobs.engines.base import EngineKind
from richobs.engines.counted import CountedEngine
from richobs.engines.paced import PacedEnvironment
from richobs.engines.probes import Probes, fixed_fingerprint
from richobs.engines.recorded import Record, RecordedEngine
from richobs.engines.stream import StreamEngine

__all__ = [
    "ENGINES",
    "CountedEngine",
    "EngineKind",
    "PacedEnvironment",
    "Probes",
    "Record",
    "RecordedEngine",
    "StreamEngine",
    "engine_kind",
    "fixed_fingerprint",
]

ENGINES: dict[str, str] = {  # name -> where it is defined
    "counted": "richobs.engines.counted:CountedEngine",
    "stream": "richobs.engines.stream:StreamEngine",
}


def engine_kind(name: str) -> EngineKind:
    """Returns the class of the engine of that name.

    Raises:
        InvalidInput: there is none.
    """
    if name not in ENGINES:
        raise InvalidInput(f"there is no engine {name!r}; there are 'auto', {', '.join(map(repr, ENGINES))}.")
    module, _, kind = ENGINES[name].partition(":")
    found: EngineKind = getattr(importlib.import_module(module), kind)
    return found

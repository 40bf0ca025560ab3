"""Engines: who draws the episodes that a learner asks for, one kind per file. One line here makes an engine known."""

from richobs.core.registry import Registry
from richobs.engines.calls import Calls
from richobs.engines.play import Play
from richobs.engines.stream import StreamEngine

__all__ = ["ENGINES", "Calls", "Play", "StreamEngine"]

ENGINES = Registry("richobs.engines", {"stream": "richobs.engines.stream:StreamEngine"})

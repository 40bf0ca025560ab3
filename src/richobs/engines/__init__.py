"""Engines: who plays the episodes, one kind per file."""

from richobs.engines.base import Engine, Outcomes
from richobs.engines.counted import CountedEngine
from richobs.engines.ledger import Entry, Ledger
from richobs.engines.recorded import PacedEnvironment, Record, RecordedEngine, at_once
from richobs.engines.stream import StreamEngine

__all__ = [
    "CountedEngine",
    "Engine",
    "Entry",
    "Ledger",
    "Outcomes",
    "PacedEnvironment",
    "Record",
    "RecordedEngine",
    "StreamEngine",
    "at_once",
]

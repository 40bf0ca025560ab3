"""Worlds, one per file: processes that are written down and planned exactly; each is also a Gymnasium environment."""

from richobs.worlds.registry import WORLDS, configure, make
from richobs.worlds.simulator import TabularWorld, World, WorldEnvironment

__all__ = ["WORLDS", "TabularWorld", "World", "WorldEnvironment", "configure", "make"]

"""Worlds, one per file, each also a Gymnasium environment."""

from richobs.envs.registry import WORLDS, configure, make
from richobs.envs.world import PathEnvironment, Problem, TabularWorld, World

__all__ = ["WORLDS", "PathEnvironment", "Problem", "TabularWorld", "World", "configure", "make"]

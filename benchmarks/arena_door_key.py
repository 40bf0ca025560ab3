"""The world `door-key` of the arena: MiniGrid DoorKey-5x5 from images, in one of the layouts of `examples/door_key.py`.

Needs the extra minigrid. `benchmarks/arena.py` adds it to the registry of worlds.
"""

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import richobs
from richobs.core.policies import Policy
from richobs.core.problem import Truth

EXAMPLES = Path(__file__).parents[1] / "examples"


@dataclass(frozen=True)
class Config:
    """DoorKey-5x5: fetch the key, open the door, walk to the goal. The class has the Q functions of four layouts."""

    horizon: int = 14
    """Number of steps; the example has 14."""
    seed: int = 0
    """Chooses which of the layouts is the real one."""


def build(config: Config) -> richobs.Problem:
    """Returns the problem; its optimum is that of the model of the real layout, which is deterministic."""
    sys.path.insert(0, str(EXAMPLES))
    door_key: Any = importlib.import_module("door_key")
    if config.horizon != door_key.H:
        raise richobs.InvalidInput(f"door-key has {door_key.H} levels; got horizon {config.horizon}.")
    real = door_key.LAYOUTS[config.seed % len(door_key.LAYOUTS)]
    env = richobs.from_gymnasium(
        door_key.grid,
        horizon=door_key.H,
        reward_range=(0, 1),
        seed=real,
        deterministic=True,
        end_observation=door_key.grid().reset(seed=real)[0],
    )

    def earned(policy: Policy) -> float:  # one episode tells
        return float(env.play(policy, 1, np.random.default_rng(0)).returns[0])

    best = float(richobs.Simulators([door_key.layout(real)]).optimal_values()[0])
    return richobs.Problem(env, door_key.candidates(), truth=Truth(best, exact_value=earned))

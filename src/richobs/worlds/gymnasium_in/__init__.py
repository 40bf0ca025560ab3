"""Gymnasium environments as environments of richobs: `from_gymnasium`.

Only what an environment publishes is used: its spaces, `reset`, `step`, `close` and its id.
"""

from richobs.worlds.gymnasium_in.environment import (
    GymnasiumEnvironment,
    environment_from_spec,
    from_gymnasium,
    looks_deterministic,
    problem_from_spec,
)
from richobs.worlds.gymnasium_in.spec import GymnasiumSpec

__all__ = [
    "GymnasiumEnvironment",
    "GymnasiumSpec",
    "environment_from_spec",
    "from_gymnasium",
    "looks_deterministic",
    "problem_from_spec",
]

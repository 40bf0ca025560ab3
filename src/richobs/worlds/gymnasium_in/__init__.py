"""Gymnasium environments as environments of richobs: `from_gymnasium`.

Only what an environment publishes is used: its spaces, `reset`, `step`, `close` and its id.
"""

from richobs.worlds.gymnasium_in.determinism import looks_deterministic
from richobs.worlds.gymnasium_in.environment import GymnasiumEnvironment, from_gymnasium
from richobs.worlds.gymnasium_in.specs import environment_from_spec, problem_from_spec

__all__ = [
    "GymnasiumEnvironment",
    "environment_from_spec",
    "from_gymnasium",
    "looks_deterministic",
    "problem_from_spec",
]

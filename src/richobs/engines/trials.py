"""What workers must find as the parent does: values of the class, and what a built-in world plays. Shapes: n episodes.

Trial episodes of a world are simulated here and by each worker; they are no part of a run, and not counted.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from richobs.core.environment import Environment, Episodes, at_once, checked_episodes
from richobs.core.functions import FunctionClass
from richobs.core.policies import Uniform
from richobs.core.randomness import keyed_generator
from richobs.core.recorded import episodes_digest
from richobs.core.types import Observations
from richobs.engines.probes import fingerprint, probes_at

TRIED = 16  # episodes of one trial
PER_CALL = 4  # of them, at most
MEMBERS = 64  # functions of a level whose values are compared, where the class has a digest


def trial_digests(objects: Mapping[str, Any]) -> dict[str, str]:
    """Returns what a worker must find as the parent does, by name: trial episodes, and values of the class at them.

    Args:
        objects: of a spec: the environment `env`, and the class `own` where it can be sent.
    """
    env: Environment = objects["env"]
    played = Episodes.concatenate([_called(env, call) for call in range(-(-TRIED // _call_size(env)))])
    return {"environment": episodes_digest(played), **class_digests((played,), objects)}


def class_digests(seen: Sequence[Episodes], objects: Mapping[str, Any]) -> dict[str, str]:
    """Returns what a worker must find as the parent does, by name: values of the class at what was seen.

    Args:
        seen: episodes.
        objects: of a spec: the class `own`, where it can be sent.
    """
    if "own" not in objects:
        return {}
    return {"class of functions": " ".join(_values_digest(objects["own"], played) for played in seen)}


def _values_digest(functions: FunctionClass, played: Episodes) -> str:
    """Returns the digest of values at what episodes saw: of all members where the class is Python code, else of some."""
    seen = list(_observed(functions, played))
    if functions.digest is None:
        return fingerprint(functions, seen)
    found = hashlib.sha256(functions.digest.encode())
    for level, x in seen:
        size = functions.level_size(level)
        members = np.unique(np.linspace(0, size - 1, min(size, MEMBERS)).astype(np.int64))
        found.update(np.ascontiguousarray(functions.values(level, x, members), dtype=np.float64).tobytes())
    return found.hexdigest()


def _observed(functions: FunctionClass, played: Episodes) -> Iterator[tuple[int, Observations]]:
    """Yields the levels with what was seen there before the end of episodes."""
    for level, seen in enumerate(played.observations):
        x = np.asarray(seen)
        x = x[~np.asarray(played.ended[level])] if played.ended else x
        if len(x):
            yield level, x[: probes_at(functions, level)]


def _call_size(env: Environment) -> int:
    return min(PER_CALL, at_once(env))


def _called(env: Environment, call: int) -> Episodes:
    """Returns the episodes that an environment plays in one call of a trial."""
    policy, rng, n = Uniform(env.n_actions), keyed_generator(0, "replayable", call), _call_size(env)
    return checked_episodes(env.play(policy, n, rng, env.horizon), env, policy, n, env.horizon)

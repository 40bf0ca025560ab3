"""Trial episodes: whether copies of an environment play what it plays itself, here and in workers. Shapes: n episodes.

They are played before anything is sent to workers, and again by each worker. They are no part of a run, and not counted.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from richobs.core.environment import Environment, Episodes, at_once, checked_episodes
from richobs.core.errors import Rejected
from richobs.core.functions import FunctionClass
from richobs.core.policies import Uniform
from richobs.core.randomness import keyed_generator
from richobs.core.recorded import episodes_digest
from richobs.core.types import Observations
from richobs.engines.probes import fingerprint, probes_at

TRIED = 16  # episodes of one trial
PER_CALL = 4  # of them, at most
MEMBERS = 64  # functions of a level whose values are compared, where the class has a digest


def check_replays(env: Environment, copies: Sequence[Environment]) -> None:
    """Refuses an environment whose episodes are not a function of policy and generator.

    The first copy makes some calls one after the other, then the same calls in the opposite order; the second makes them in
    that order only. A generator or a state of the environment's own comes to each call another way each time, so it is
    noticed, unless it does not show in so few episodes.

    Args:
        env: what is copied.
        copies: two of it, not yet played.

    Raises:
        Rejected: the same call gave different episodes.
    """
    one, other = copies
    calls = range(-(-TRIED // _call_size(env)))
    first = {call: _digest(env, one, call) for call in calls}
    for copy in (one, other):
        for call in reversed(calls):
            if _digest(env, copy, call) != first[call]:
                raise Rejected(
                    f"{type(env).__name__} declares `replayable = True`, and copies of it do not play the same episodes "
                    "with the same generator: it has randomness that does not come from `rng`, or keeps something between "
                    "calls. Copies in several workers could all play the same episodes, which must not count as "
                    "independent. Take all randomness from `rng`, or leave `replayable` out; then it is played in this "
                    "process (docs/scale.md)."
                )


def trial_digests(objects: Mapping[str, Any]) -> dict[str, str]:
    """Returns what a worker must find as the parent does, by name: trial episodes, and values of the class at them.

    Args:
        objects: of a spec: the environment `env`, and the class `own` where it can be sent.
    """
    env: Environment = objects["env"]
    played = Episodes.concatenate([_called(env, env, call) for call in range(-(-TRIED // _call_size(env)))])
    found = {"environment": episodes_digest(played)}
    if "own" in objects:
        found["class of functions"] = _values_digest(objects["own"], played)
    return found


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


def _digest(env: Environment, copy: Environment, call: int) -> str:
    return episodes_digest(_called(env, copy, call))


def _called(env: Environment, copy: Environment, call: int) -> Episodes:
    """Returns the episodes that a copy of an environment plays in one call of a trial."""
    policy, rng, n = Uniform(env.n_actions), keyed_generator(0, "replayable", call), _call_size(env)
    return checked_episodes(copy.play(policy, n, rng, env.horizon), env, policy, n, env.horizon)

"""Episodes that somebody played before: joined, identified, and checked before they count."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from richobs.core.environment import COLUMNS, Environment, Episodes, checked_episodes
from richobs.core.errors import InvalidInput, Rejected, RewardOutOfRange
from richobs.core.policies import Uniform

REPEATED = 16  # different episodes from which on two equal parts are one that was given twice


def joined_episodes(given: Any) -> Episodes:
    """Returns one `Episodes` of one or several.

    Raises:
        InvalidInput: something else was given, or nothing.
    """
    parts = [given] if isinstance(given, Episodes) else given
    if not isinstance(parts, Sequence) or not parts or not all(isinstance(part, Episodes) for part in parts):
        raise InvalidInput(
            "recorded episodes are a richobs.Episodes, or a list of them, such as `play` returns and richobs.Episodes.load "
            f"reads; got {type(given).__name__}."
        )
    try:
        joined = Episodes.concatenate(parts)
        digests = [episodes_digest(part) for part in parts] if len(parts) > 1 else []
        counts = Counter(digests)
        twice = [part for part, digest in zip(parts, digests, strict=False) if counts[digest] > 1]
        repeated = max((part.n for part in twice if _count_different(part) >= REPEATED), default=0)
    except (ValueError, TypeError, IndexError) as error:
        raise InvalidInput(f"the recorded episodes do not fit each other: {error}") from error
    if repeated:
        raise InvalidInput(
            f"recorded episodes count once, and a part of {repeated:,} of them is twice in the list. Give each part once."
        )
    return joined


def _count_different(episodes: Episodes) -> int:
    """Returns how many different episodes there are."""
    columns = [np.asarray(column) for name in COLUMNS for column in getattr(episodes, name)]
    return len({b"".join(column[i].tobytes() for column in columns) for i in range(episodes.n)})


def checked_recorded(given: Episodes, env: Environment) -> Episodes:
    """Returns recorded episodes once they are known to fit an environment: all levels, its actions, its range of rewards.

    Raises:
        InvalidInput: they do not fit.
    """
    if not given.levels or not given.n:
        raise InvalidInput("the recorded episodes hold no episode.")
    try:
        return checked_episodes(given, env, Uniform(env.n_actions), given.n, env.horizon)
    except (Rejected, RewardOutOfRange) as error:
        raise InvalidInput(
            f"the recorded episodes are not of this environment, or not whole. Read as its own: {error}"
        ) from error


def check_alike(recorded: Episodes, played: Episodes) -> None:
    """Refuses recorded episodes whose observations have another form than those that were played.

    Raises:
        InvalidInput: another shape, or text instead of numbers.
    """
    for level, (before, now) in enumerate(zip(recorded.observations, played.observations, strict=True)):
        forms = [(x.shape[1:], x.dtype.kind in "fiubc") for x in (before, now)]
        if forms[0] != forms[1]:
            raise InvalidInput(
                f"the recorded episodes are not of this environment: at level {level} an observation there is "
                f"{before.dtype} of shape {before.shape[1:]}, and {now.dtype} of shape {now.shape[1:]} in those played now."
            )


def episodes_digest(episodes: Episodes) -> str:
    """Returns the SHA-256 of all that was seen, done and earned, with types and shapes."""
    digest = hashlib.sha256()
    for name in COLUMNS:
        for column in getattr(episodes, name):
            plain = np.ascontiguousarray(column)
            digest.update(f"{name} {plain.dtype.str} {plain.shape}\n".encode())
            digest.update(plain.tobytes())
    return digest.hexdigest()

"""Episodes that somebody played before: written to a file, read from it, identified, and checked before they count."""

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from richobs.core.arguments import file_path, refuse_unusable
from richobs.core.environment import Environment, Episodes, checked_episodes
from richobs.core.errors import InvalidFile, InvalidInput, Rejected, RewardOutOfRange
from richobs.core.files import expanded_limit, open_arrays, write_atomically
from richobs.core.policies import Uniform

COLUMNS = ("observations", "actions", "rewards", "ended", "propensities")
OPTIONAL = ("ended", "propensities")
REPEATED = 16  # different episodes from which on two equal parts are one that was given twice


def joined_episodes(given: Any) -> Episodes:
    """Returns one `Episodes` of one or several.

    Raises:
        InvalidInput: something else was given, or nothing.
    """
    parts = [given] if isinstance(given, Episodes) else given
    if not isinstance(parts, Sequence) or not parts or not all(isinstance(part, Episodes) for part in parts):
        raise InvalidInput(
            "recorded episodes are a richobs.Episodes, or a list of them, such as `play` returns and richobs.load_episodes "
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


@refuse_unusable
def save_episodes(file: str | os.PathLike[str], episodes: Episodes) -> None:
    """Writes episodes, with propensities where they have them, to a file that `load_episodes` reads; no Python objects."""
    arrays: dict[str, Any] = {}
    for name in COLUMNS:
        for level, column in enumerate(getattr(episodes, name)):
            plain = np.asarray(column)
            if plain.dtype.hasobject:
                raise InvalidInput(f"{name} at level {level} are Python objects, which are not written to files.")
            arrays[f"{name}_{level}"] = plain
    write = np.savez if sum(a.nbytes for a in arrays.values()) > expanded_limit(0) // 2 else np.savez_compressed
    with write_atomically(file_path(file)) as stream:
        write(stream, **arrays)


def load_episodes(file: str | os.PathLike[str]) -> Episodes:
    """Returns the episodes in a file that `save_episodes` wrote.

    The sizes that the file declares are checked before anything is expanded: at most 256 MiB, or 20 times the file.

    Raises:
        InvalidFile: it is damaged, or something else, or it would expand to more.
    """
    try:
        with open_arrays(file_path(file), largest=expanded_limit(os.path.getsize(file))) as stored:
            levels = sum(name.startswith("rewards_") for name in stored.sizes)
            known = {f"{name}_{level}" for name in COLUMNS for level in range(levels)}
            if not levels or stored.sizes.keys() - known:
                raise InvalidFile(f"it has {', '.join(sorted(stored.sizes)[:8])}")
            columns = {
                name: tuple(stored.read(f"{name}_{level}") for level in range(levels))
                for name in COLUMNS
                if name not in OPTIONAL or f"{name}_0" in stored.sizes
            }
    except OSError:
        raise
    except Exception as error:  # whatever a damaged or hostile file leads to
        raise InvalidFile(f"{file} does not hold episodes as richobs.save_episodes writes them: {error}") from error
    return Episodes(**columns)

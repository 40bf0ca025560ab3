"""Probes: observations of a run at which the values of a class are compared, where the class is Python code.

A class of arrays has a digest. One that is Python code is identified by its values: they are computed at observations that
the run has seen, and a run that goes on must find the same values there. Two classes that agree at all probes are not told
apart. Workers must find the same values too, at what the run or a trial has seen. Trial episodes of a world are simulated
here and by each worker; they are no part of a run, and not counted. Shapes: N members of a level, n observations, K actions.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from richobs.classes.base import AT_ONCE_VALUES
from richobs.core.environment import Environment, Episodes, checked_episodes, declared_by
from richobs.core.errors import InvalidFile, InvalidInput
from richobs.core.files import pack, unpack
from richobs.core.functions import FunctionClass, ValueFunction
from richobs.core.policies import Uniform
from richobs.core.problem import Problem, episodes_digest
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Observations

FEWEST, MOST = 8, 256  # probes per level; fewer where their values would be more than AT_ONCE_VALUES numbers
PER_PATH = 32  # probes per sequence of actions that led to the level
LOOKED_AT = 32  # episodes of each play that are looked at

ALONE = 8  # observations of a level at which values are compared with those in a batch
MEMBERS = 16  # functions of a level that are compared there, beside the one that acts
ROUNDING = 1e-6  # by which values may depend on the batch, as a share of their range where that is wider than 1

TRIED = 16  # episodes of one trial
PER_CALL = 4  # of them, at most
SENT_MEMBERS = 64  # functions of a level whose values are compared, where the class has a digest

Probe = tuple[int, Observations, Ints]  # level, [n, ...] observations, [n, level] actions that led to each


class Probes:
    """Gathers distinct observations from the episodes of a run, in the order in which they are played."""

    def __init__(self, functions: FunctionClass, known: Iterable[tuple[int, Observations]] | None = None):
        """Takes the class whose values are compared.

        Args:
            functions: the class.
            known: levels, with observations of each that are known before a run; then none are gathered.
        """
        self._functions = functions
        self._gathered: list[Probe] = []
        self._new = 0  # first of `_gathered` that `take` has not returned
        self._known: list[set[bytes]] = [set() for _ in range(functions.horizon)]
        self._led_by: Counter[tuple[int, ...]] = Counter()
        self.fixed: str | None = None  # the fingerprint, where it is known before a run
        if known is not None:
            self.restore([(level, x, np.zeros((len(x), 0), dtype=np.int64)) for level, x in known])
            self.fixed = self.fingerprint()

    @classmethod
    def of(cls, problem: Problem, *, simulated: bool) -> "Probes":
        """Returns the probes of a run whose class has no digest that identifies it.

        Some are known before a run: the observations that the problem's process lists, or those of a few episodes of a
        simulated environment.

        Args:
            problem: whose class is identified.
            simulated: whether the environment is simulated here, so that playing it costs nothing.
        """
        functions = problem.functions
        if problem.process is not None:
            known = enumerate(problem.process.observations)
            return cls(functions, ((h, seen[: probes_at(functions, h)]) for h, seen in known))
        if not simulated:
            return cls(functions)
        return cls(
            functions,
            _observed(functions, problem.env.play(Uniform(problem.n_actions), MOST, keyed_generator(0, "probes"))),
        )

    def see(self, played: Episodes) -> None:
        """Keeps what is new among the first episodes of a play; what was shown after an episode's end does not count."""
        if self.fixed is not None:
            return
        first = played.part(0, LOOKED_AT)
        paths = first.paths
        for h, seen in enumerate(first.observations):
            limit = probes_at(self._functions, h)
            new: list[int] = []
            for i, x in enumerate(np.asarray(seen)):
                if len(self._known[h]) >= limit:
                    break
                if (content := x.tobytes()) in self._known[h] or (first.ended and first.ended[h][i]):
                    continue
                path = tuple(paths[i, :h].tolist())
                if self._led_by[path] < PER_PATH:
                    self._count(h, content, path)
                    new.append(i)
            if new:
                self._gathered.append((h, np.asarray(seen)[new], paths[new, :h]))

    def _count(self, level: int, content: bytes, path: tuple[int, ...]) -> None:
        self._known[level].add(content)
        self._led_by[path] += 1

    def take(self) -> list[Probe]:
        """Returns what was gathered since the last call."""
        new, self._new = self._gathered[self._new :], len(self._gathered)
        return new

    def restore(self, stored: Sequence[Probe]) -> None:
        """Goes on from probes that an earlier call of the run gathered.

        Raises:
            InvalidFile: they are more than a run gathers.
        """
        for level, seen, paths in stored:
            for x, path in zip(seen, paths, strict=True):
                self._count(level, x.tobytes(), tuple(path.tolist()))
            if len(self._known[level]) > probes_at(self._functions, level):
                raise _too_many(level)
        self._gathered += stored
        self._new = len(self._gathered)

    @property
    def seen(self) -> list[tuple[int, Observations]]:
        """All levels, with `[n, ...]` observations of each that were gathered."""
        parts: dict[int, list[Observations]] = {}
        for level, seen, _ in self._gathered:
            parts.setdefault(level, []).append(seen)
        return [(level, np.concatenate(found)) for level, found in sorted(parts.items())]

    def fingerprint(self, probes: Iterable[Probe] | None = None) -> str:
        """Returns the SHA-256 of some probes, of all by default, and of the values of all members there.

        Raises:
            InvalidFile: they are not of this class's levels, or more than a run gathers.
        """
        chosen = self._gathered if probes is None else list(probes)
        counts: Counter[int] = Counter()
        for level, seen, paths in chosen:
            if type(level) is not int or not 0 <= level < self._functions.horizon or not len(seen) == len(paths):
                raise InvalidFile(f"stored probes are damaged: {len(seen):,} of them are of level {str(level)[:20]}.")
            counts[level] += len(seen)
            if counts[level] > probes_at(self._functions, level):
                raise _too_many(level)
        return fingerprint(self._functions, ((level, seen) for level, seen, _ in chosen))


def _too_many(level: int) -> InvalidFile:
    return InvalidFile(f"stored probes are damaged: there are more of level {level} than a run gathers.")


def probes_at(functions: FunctionClass, level: int) -> int:
    """Returns how many probes a level may have."""
    return int(np.clip(AT_ONCE_VALUES // (functions.level_size(level) * functions.n_actions), FEWEST, MOST))


def fingerprint(functions: FunctionClass, seen: Iterable[tuple[int, Observations]]) -> str:
    """Returns the SHA-256 of observations, and of the values of all members of their levels there.

    Args:
        functions: the class.
        seen: levels, with `[n, ...]` observations of each.
    """
    digest = hashlib.sha256()
    for level, observed in seen:
        x, size = np.ascontiguousarray(observed), functions.level_size(level)
        digest.update(f"{level} {size} {x.dtype.str} {x.shape} {functions.value_range(level)}\n".encode())
        digest.update(x.tobytes())
        step = max(1, AT_ONCE_VALUES // max(1, len(x) * functions.n_actions))
        for first in range(0, size, step):
            members = np.arange(first, min(first + step, size))
            digest.update(np.ascontiguousarray(functions.values(level, x, members), dtype=np.float64).tobytes())
    return digest.hexdigest()


def check_alone(functions: FunctionClass, acting: ValueFunction, seen: Iterable[tuple[int, Observations]]) -> None:
    """Refuses a class whose values of one observation depend on what else is in the batch.

    A run evaluates many observations at once, and its policy may be asked for one: claims would be about another policy.

    Args:
        functions: the class; some members of each level are compared.
        acting: the function whose greedy policy is handed over.
        seen: levels, with `[n, ...]` observations of each.

    Raises:
        InvalidInput: a value differs by more than rounding.
    """
    for level, observed in seen:
        if not len(observed):
            continue
        x = observed[np.arange(ALONE) % len(observed)]
        size = functions.level_size(level)
        members = np.unique(np.linspace(0, size - 1, min(size, MEMBERS)).astype(np.int64))

        def values(rows: Observations, level: int = level, members: Ints = members) -> Floats:
            return np.concatenate([functions.values(level, rows, members), acting.values(level, rows)[None]])

        together = values(x)
        apart = np.abs(together - np.concatenate([values(x[i : i + 1]) for i in range(ALONE)], axis=1))
        low, high = functions.value_range(level)
        if not apart.max() <= ROUNDING * max(1.0, high - low):  # also where a value is NaN
            raise InvalidInput(
                f"a function of level {level} has other values for an observation alone than for the same one among "
                f"{ALONE}: they differ by {apart.max():.3g}. The policy would act otherwise where it is asked for one "
                "observation, and no claim would be about it. A value may depend on its own observation alone: switch "
                "networks to evaluation (batch normalisation, dropout), and do not average over the batch."
            )


def pack_probes(probes: Probes) -> bytes:
    """Returns the probes that are new, and the fingerprint of the class at them, as bytes; none where nothing is new."""
    new = probes.take()
    if not new:
        return b""
    arrays = [a for _, seen, paths in new for a in (seen, paths)]
    return pack([probes.fingerprint(new), [level for level, *_ in new]], arrays)


def restore_probes(probes: Probes, draw: int, body: bytes) -> None:
    """Goes on from the probes of a recorded draw.

    Raises:
        InvalidInput: the class has other values there than it had.
    """
    (known, levels), arrays = unpack(body)
    stored: list[Probe] = list(zip(levels, arrays[::2], arrays[1::2], strict=True))
    if probes.fingerprint(stored) != known:
        raise InvalidInput(
            f"the folder holds a run with another class of functions: at the observations of draw {draw} its functions had "
            "other values than those that are given now, or stood in another order. Give the same class, choose another "
            "folder, or remove that run first (`--overwrite`, or richobs.StoredRun.discard)."
        )
    probes.restore(stored)


def trial_digests(objects: Mapping[str, Any]) -> dict[str, str]:
    """Returns what a worker must find as the parent does, by name: trial episodes, and values of the class at them.

    Args:
        objects: of a spec: the environment `env`, and the class `own` where it can be sent.
    """
    env: Environment = objects["env"]
    policy, n = Uniform(env.n_actions), min(PER_CALL, declared_by(env).at_once)
    calls = [env.play(policy, n, keyed_generator(0, "replayable", k), env.horizon) for k in range(-(-TRIED // n))]
    played = Episodes.concatenate([checked_episodes(call, env, policy, n, env.horizon) for call in calls])
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
    seen = [(level, x) for level, x in _observed(functions, played) if len(x)]
    if functions.digest is None:
        return fingerprint(functions, seen)
    found = hashlib.sha256(functions.digest.encode())
    for level, x in seen:
        size = functions.level_size(level)
        members = np.unique(np.linspace(0, size - 1, min(size, SENT_MEMBERS)).astype(np.int64))
        found.update(np.ascontiguousarray(functions.values(level, x, members), dtype=np.float64).tobytes())
    return found.hexdigest()


def _observed(functions: FunctionClass, played: Episodes) -> Iterator[tuple[int, Observations]]:
    """Yields the levels with what was seen there before the end of episodes."""
    for level, seen in enumerate(played.observations):
        x = np.asarray(seen)
        x = x[~np.asarray(played.ended[level])] if played.ended else x
        yield level, x[: probes_at(functions, level)]

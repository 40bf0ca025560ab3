"""Values of members on what was played, each distinct row once. Shapes: m members, G groups of equal rows, n samples."""

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from richobs.core.environment import Episodes
from richobs.core.errors import InvalidInput
from richobs.core.functions import FunctionClass
from richobs.core.types import Floats, Ints, Mask, Observations
from richobs.stats.bets import ZETA
from richobs.stats.grouping import kinds, numbered

AT_ONCE_VALUES = 1 << 16  # values of functions that are read at once: few enough for a processor's cache

FEW_VALUES = 1 << 12  # members times samples up to which values are read for each member and each sample


class Steps(NamedTuple):
    """What the episodes of a batch did at one level; episodes that were over before are left out."""

    x: Observations  # [n, ...]
    actions: Ints  # [n]
    rewards: Floats  # [n]
    before: Floats  # [n] rewards of the levels before
    next_x: Observations  # [n, ...] what was seen at the next level; empty at the last one
    goes_on: Mask  # [n] whether the episode was still going on there


def steps_of(played: Episodes) -> list[Steps]:
    """Returns what episodes did, level by level."""
    H, n = played.levels, played.n
    over = list(played.ended) if played.ended else [np.zeros(n, dtype=bool)] * H
    before = np.zeros(n)
    steps = []
    for h in range(H):
        here = np.flatnonzero(~over[h])
        last = h == H - 1
        next_x = played.observations[h][:0] if last else played.observations[h + 1][here]
        goes_on = np.zeros(len(here), dtype=bool) if last else ~over[h + 1][here]
        rewards = played.rewards[h][here]
        steps.append(
            Steps(played.observations[h][here], played.actions[h][here], rewards, before[here], next_x, goes_on)
        )
        before = before + played.rewards[h]
    return steps


class Largest(NamedTuple):
    """At least the largest sum over levels of something that survivors' members contribute, with who attains it."""

    total: Floats  # [A]
    parts: Mapping[int, Floats]  # per level [A]
    members: Mapping[int, Ints]  # per level [A]


class Rows(NamedTuple):
    """Members grouped by their values on n samples."""

    values: Floats  # [G, n]
    group: Ints  # [m] which row each member has


class Known(NamedTuple):
    """Values on samples all of which came before: members that share a row of the pairs (or a column) have equal ones."""

    values: Floats  # [G, n] distinct rows
    row: Ints  # [R] which of them each row of the pairs has, or each column


def taken_values(functions: FunctionClass, level: int, members: Ints, x: Observations, actions: Ints) -> Rows:
    """Returns f(x, a) of members at the actions that were taken."""
    if len(members) * len(x) <= FEW_VALUES:
        return _grouped(read(functions, level, x, members, partial(_of_actions, actions)))
    some, place = distinct(x)
    group = np.zeros(len(members), dtype=np.int64)
    parts: list[tuple[Ints, Floats]] = []  # samples, values of the groups of one action
    of_part: list[Ints] = []  # per action [m]
    for action in np.unique(actions):
        mine = np.flatnonzero(actions == action)
        seen, inverse = np.unique(place[mine], return_inverse=True)
        a = int(action)
        reps, rep = functions.kinds(level, members, a)
        values = read(functions, level, x[some[seen]], reps, partial(_of_action, a))
        first, row = kinds(*values.T)
        parts.append((mine, values[first][:, inverse]))
        of_part.append(row[rep])
    for rows, (_, values) in zip(of_part, parts, strict=True):
        _, group = numbered(group * len(values) + rows, (int(group.max(initial=0)) + 1) * len(values))
    result = np.empty((int(group.max(initial=0)) + 1, len(x)))
    one = np.empty(len(result), dtype=np.int64)
    one[group] = np.arange(len(members))  # a member of each group
    for rows, (mine, values) in zip(of_part, parts, strict=True):
        result[:, mine] = values[rows[one]]
    return Rows(result, group)


def _of_action(action: int, values: Floats) -> Floats:
    return values[:, :, action]


def _of_actions(actions: Ints, values: Floats) -> Floats:
    """Returns `[m, n]` the values of an action for each sample, out of values `[m, n, K]`."""
    return values[:, np.arange(len(actions)), actions]


def _largest(values: Floats) -> Floats:
    """Returns `[m, n]` the largest of values `[m, n, K]`."""
    return np.asarray(values.max(axis=2))


def _grouped(values: Floats) -> Rows:
    """Returns the distinct rows of values `[m, n]`."""
    if len(values) == 1:
        return Rows(values, np.zeros(1, dtype=np.int64))
    first, row = kinds(*values.T)
    return Rows(values[first], row)


def top_values(functions: FunctionClass, level: int, members: Ints, x: Observations) -> Rows:
    """Returns max_a f(x, a) of members."""
    if not len(x):
        return Rows(np.zeros((1, 0)), np.zeros(len(members), dtype=np.int64))
    if len(members) * len(x) <= FEW_VALUES:
        return _grouped(read(functions, level, x, members, _largest))
    some, place = distinct(x)
    reps, rep = functions.kinds(level, members, 0)
    values = read(functions, level, x[some], reps, _largest)
    first, row = kinds(*values.T)
    return Rows(values[first][:, place], row[rep])


def read(
    functions: FunctionClass, level: int, x: Observations, members: Ints, pick: Callable[[Floats], Floats]
) -> Floats:
    """Returns `[m, n]` what `pick` takes of the values `[m, n, K]`, a part of the members at a time.

    Raises:
        InvalidInput: a value is not a number in the range that the class declares.
    """
    low, high = functions.value_range(level)
    tolerance = ZETA * max(1.0, high - low)
    step = max(1, AT_ONCE_VALUES // max(1, len(x) * functions.n_actions))
    parts = []
    for first in range(0, len(members), step):
        values = functions.values(level, x, members[first : first + step])
        if not (values.min() >= low - tolerance and values.max() <= high + tolerance):  # also where a value is NaN
            raise InvalidInput(f"a function of level {level} has a value that is not a number in [{low:g}, {high:g}].")
        parts.append(np.asarray(pick(values), dtype=np.float64))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class Seen:
    """Observations that members were told apart by: with an action, or as a whole. It keeps digests of 16 bytes."""

    def __init__(self) -> None:
        """Starts with nothing seen."""
        self._known: set[bytes] = set()

    @staticmethod
    def keys(x: Observations, actions: Ints | None = None) -> set[bytes]:
        """Returns the digests of observations `[n, ...]`, each with its action `[n]` where they are given."""
        salts = np.zeros(len(x), dtype=np.int64) if actions is None else actions.astype(np.int64)
        return {
            hashlib.blake2b(row.tobytes(), digest_size=16, salt=salt.tobytes()).digest()
            for row, salt in zip(np.asarray(x), salts, strict=True)
        }

    def has(self, keys: set[bytes]) -> bool:
        """Whether all of these were added before."""
        return keys <= self._known

    def add(self, keys: set[bytes]) -> None:
        """Adds digests, once members were told apart by what they stand for."""
        self._known |= keys


def distinct(x: Observations) -> tuple[Ints, Ints]:
    """Returns the place of the first of each distinct observation, and `[n]` which of them each is."""
    known: dict[bytes, int] = {}
    place = np.array([known.setdefault(row.tobytes(), len(known)) for row in np.asarray(x)], dtype=np.int64)
    first = np.zeros(len(known), dtype=np.int64)
    first[place[::-1]] = np.arange(len(place))[::-1]
    return first, place

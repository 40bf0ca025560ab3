"""Steps of episodes, as the evidence counts them."""

from typing import NamedTuple

import numpy as np

from richobs.classes.model_arrays import REWARD_TOLERANCE, ModelArrays
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise
from richobs.core.types import Floats

STARTED, MOVED, LAST = 0.0, 1.0, 2.0  # kinds of steps: the first state; a move; a reward at the last level
ENDED = -1.0  # in the place of the next state

Row = tuple[float, ...]  # (kind, state, action)


class Batch(NamedTuple):
    """Different steps of some episodes."""

    steps: list[tuple[float, ...]]  # (kind, state, action, next, reward)
    n: Floats  # [u] how often each was seen


def read_steps(arrays: ModelArrays, rewards: Floats, played: Episodes) -> Batch:
    """Returns the different steps of some episodes.

    Args:
        arrays: of the family.
        rewards: all that it lists, each once.
        played: the episodes.

    Raises:
        BrokenPromise: an observation that no state shows, or a first state that the family holds impossible.
    """
    H = played.levels
    ended = np.stack(played.ended) if len(played.ended) else np.zeros((H, played.n), dtype=bool)
    states = np.full((H, played.n), -1, dtype=np.int64)
    parts = []
    for h in range(H):
        going = np.flatnonzero(~ended[h])
        states[h, going] = arrays.encode(np.asarray(played.observations[h])[going])
        unknown = states[h, going] < 0
        if unknown.any():
            x = np.asarray(played.observations[h])[going][unknown][0]
            raise BrokenPromise(
                f"level {h} showed {np.array2string(np.asarray(x), threshold=8)}, which no state of the family shows."
            )
    zeros = np.zeros(played.n)
    parts.append(np.stack([zeros + STARTED, states[0], zeros, zeros, zeros], axis=1))
    for h in range(H):
        going = np.flatnonzero(~ended[h])
        a, r = (np.asarray(x[h], dtype=np.float64)[going] for x in (played.actions, played.rewards))
        near = rewards[np.abs(rewards - r[:, None]).argmin(axis=1)]
        r = np.where(np.abs(near - r) <= REWARD_TOLERANCE * np.maximum(1.0, np.abs(r)), near, r)  # one reward, one step
        last = h + 1 == H
        after = np.full(len(going), 0.0) if last else np.where(ended[h + 1], ENDED, states[h + 1])[going]
        kind = np.full(len(going), LAST if last else MOVED)
        parts.append(np.stack([kind, states[h, going], a, after, r], axis=1))
    rows, n = np.unique(np.concatenate(parts), axis=0, return_counts=True)
    return Batch([tuple(row) for row in rows.tolist()], n.astype(np.float64))


def outcome_words(step: tuple[float, ...]) -> str:
    """Returns the outcome of a step in words."""
    kind, _, _, after, reward = step
    where = "" if kind == LAST else "the end and " if after == ENDED else f"state {int(after)} and "
    return f"{where}reward {reward:g}"


def step_words(step: tuple[float, ...]) -> str:
    """Returns a step in words."""
    return f"state {int(step[1])}, action {int(step[2])}, then {outcome_words(step)}"

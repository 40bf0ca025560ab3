"""Steps of episodes, as the evidence counts them."""

from typing import NamedTuple

from richobs.core.types import Floats

STARTED, MOVED, LAST = 0.0, 1.0, 2.0  # kinds of steps: the first state; a move; a reward at the last level
ENDED = -1.0  # in the place of the next state

Row = tuple[float, ...]  # (kind, state, action)


class Batch(NamedTuple):
    """Different steps of some episodes."""

    steps: list[tuple[float, ...]]  # (kind, state, action, next, reward)
    n: Floats  # [u] how often each was seen

"""Uniform exploration: play at random, count, and plan as if the counts were the truth (certainty equivalence)."""

from collections.abc import Callable

import numpy as np

from richobs.baselines.lanes import Lanes, Play
from richobs.baselines.observed import Counts
from richobs.problem import Floats, Ints
from richobs.tabular import TabularProcess

CHUNK = 65_536  # episodes played side by side at most


class _Anything:
    """Takes every action with the same probability."""

    def __init__(self, n_actions: int):
        self.q: list[Floats] = []  # it has no values
        self._n_actions = n_actions

    def act(self, level: int, x: Ints, rng: np.random.Generator, /) -> Ints:
        """Returns `[R]` random actions."""
        return rng.integers(self._n_actions, size=len(x))

    def learn(self, play: Play, /) -> None:
        """Learns nothing: the counts are kept by the caller."""


def uniform_exploration(
    process: TabularProcess,
    looks: list[int],
    rng: np.random.Generator,
    good: Callable[[list[Floats]], bool],
) -> int | None:
    """Returns after how many random episodes the plan over (level, observation) is good; None if it never is.

    Args:
        process: played; its observations are treated as states.
        looks: numbers of episodes after which to plan, increasing.
        rng: of everything.
        good: judges the values planned with, per level `[X, K]`; what was never tried is worth 0.
    """
    sizes, K = [e.shape[1] for e in process.emissions], process.n_actions
    counts = Counts(sizes, K)
    played, lanes = 0, Lanes(process, 1)
    for look in looks:
        while played < look:
            n = min(CHUNK, look - played)
            lanes.runs = n
            play = lanes.play(_Anything(K), rng)
            for level, (x, a, r) in enumerate(zip(*play, strict=True)):
                np.add.at(counts.visits[level], (x, a), 1)
                np.add.at(counts.rewards[level], (x, a), r)
                if level < len(sizes) - 1:
                    np.add.at(counts.moves[level], (x, a, play.observations[level + 1]), 1)
            played += n
        if good(counts.values(1, unknown=0.0)):
            return look
    return None

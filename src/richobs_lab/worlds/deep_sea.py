"""The chain `deep-sea`: dive right at every step or lose the treasure (Osband et al. 2019, behaviour suite)."""

from dataclasses import dataclass

import numpy as np

from richobs.core.problem import Problem
from richobs.core.process import Rewards, TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.worlds.simulator import require_range, require_size, tabular_problem


@dataclass(frozen=True)
class Config:
    """A triangular grid, one row deeper each step; which action means "right" is drawn for each cell.

    In the original, swimming right costs 0.01/H. Here left earns 0.01/H instead, which shifts every return by the same
    0.01 and keeps rewards in [0, 1]. The treasure pays 1, so V* = 1, and one wrong step leaves at most 0.01.
    """

    horizon: int = 8
    """Depth of the sea: levels of an episode."""
    class_size: int = 50
    """Number of functions per level, Q* among them."""
    seed: int = 0
    """Chooses which action means right in each cell."""

    def __post_init__(self) -> None:
        for name in ("horizon", "class_size"):
            require_range(self, name, low=1, high=1_000_000)
        require_size(self, self.horizon, self.horizon * (self.horizon + self.class_size))


def build(config: Config) -> Problem:
    """Returns the chain."""
    rng = keyed_generator(config.seed, "deep-sea", "secret")
    H = config.horizon
    moves, pays = [], []
    for level in range(H):
        columns = np.arange(level + 1)
        right = rng.integers(2, size=level + 1)
        goes_right = right[:, None] == np.arange(2)[None]  # [columns, K]
        if level < H - 1:
            moves.append(np.where(goes_right, columns[:, None] + 1, np.maximum(columns[:, None] - 1, 0)))
        pay = np.where(goes_right, 0.0, 0.01 / H)
        if level == H - 1:
            pay[-1, right[-1]] = 1.0
        pays.append(Rewards.deterministic(pay[:, None, :]))
    process = TabularProcess(
        start=np.ones(1),
        transitions=tuple(moves),
        emissions=tuple(np.eye(level + 1) for level in range(H)),
        rewards=tuple(pays),
        labels=tuple(tuple(f"row {level}, column {c}" for c in range(level + 1)) for level in range(H)),
    )
    return tabular_problem(process, config.class_size, rng)

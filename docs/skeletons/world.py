"""A corridor with doors: a world to copy when you write your own.

Copy this file to `src/richobs/worlds/`, change it, add one line to `WORLDS` in `registry.py` there, and a hand-worked test
to `tests/test_worlds.py`. The conformance suite in `tests/conformance/test_worlds.py`, the command line and Gymnasium then
know your world.
"""

from dataclasses import dataclass

import numpy as np

from richobs.core.problem import Problem
from richobs.core.process import Rewards, TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.worlds.simulator import require_range, tabular_problem


@dataclass(frozen=True)
class Config:
    """One door per level is open: walk through all of them. This line is what `richobs worlds` prints."""

    horizon: int = 4
    """Number of doors in a row. (The sentence under a field is its help text.)"""
    n_actions: int = 3
    """Number of doors to choose from."""
    class_size: int = 10
    """Number of functions per level, Q* among them."""
    seed: int = 0
    """Chooses the open doors."""

    def __post_init__(self) -> None:
        """Refuses what cannot be built, with a sentence."""
        for name in ("horizon", "n_actions", "class_size"):
            require_range(self, name, low=1)


def build(config: Config) -> Problem:
    """Returns the corridor. State 0: every door so far was open. State 1: locked out. A fair coin is shown beside it."""
    # The secret comes from a generator of its own: no seed that a user chooses elsewhere gives the same sequence.
    rng = keyed_generator(config.seed, "corridor", "secret")
    H, K = config.horizon, config.n_actions
    doors = rng.integers(K, size=H)
    opens = np.eye(K, dtype=bool)[doors]  # [H, K]

    # Observations 0 and 1 belong to state 0, observations 2 and 3 to state 1.
    emission = np.kron(np.eye(2), np.full((1, 2), 0.5))
    moves = [np.stack([np.where(opens[h], 0, 1), np.ones(K, dtype=int)]) for h in range(H - 1)]
    nothing = Rewards.deterministic(np.zeros((1, 1, K)))
    prize = Rewards.bernoulli(np.stack([0.8 * opens[-1], np.zeros(K)])[:, None, :])
    process = TabularProcess(
        start=np.array([1.0, 0.0]),
        transitions=tuple(moves),
        emissions=(emission,) * H,
        rewards=(nothing,) * (H - 1) + (prize,),
        labels=tuple((f"in{h}", f"out{h}") for h in range(H)),
    )
    return tabular_problem(process, config.class_size, rng)

"""A small-state MDP: the observation is the state, X = S ([KAL16] Section 2.3)."""

import itertools
from dataclasses import dataclass

import numpy as np

from richobs.core.problem import Problem
from richobs.core.process import Rewards, TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.worlds.simulator import require_range, require_size, tabular_problem


@dataclass(frozen=True)
class Config:
    """A random MDP whose states are seen, with a Bernoulli reward of at most 1/H at every level."""

    horizon: int = 5
    """Number of levels."""
    n_states: int = 4
    """Number of states at every level but the first, which has one."""
    n_actions: int = 3
    """Number of actions."""
    stochastic: bool = False
    """Draw the next state at random (this breaks Assumption 3)."""
    class_size: int = 50
    """Number of functions per level, Q* among them."""
    seed: int = 0
    """Chooses transitions and rewards."""

    def __post_init__(self) -> None:
        for name in ("horizon", "n_states", "n_actions", "class_size"):
            require_range(self, name, low=1, high=1_000_000)
        S, K = self.n_states, self.n_actions
        require_size(self, self.horizon, S * S * (K + 1) + S * K * (self.class_size + 4))


def build(config: Config) -> Problem:
    """Returns the MDP."""
    rng = keyed_generator(config.seed, "mdp", "secret")
    H, K = config.horizon, config.n_actions
    sizes = [1] + [config.n_states] * (H - 1)
    moves = []
    for here, there in itertools.pairwise(sizes):
        if config.stochastic:
            moves.append(rng.dirichlet([1.0] * there, (here, K)))
        else:
            moves.append(np.eye(there)[rng.integers(there, size=(here, K))])
    process = TabularProcess(
        start=np.ones(1),
        transitions=tuple(moves),
        emissions=tuple(np.eye(s) for s in sizes),
        rewards=tuple(Rewards.bernoulli(rng.random((s, 1, K)), 1 / H) for s in sizes),
    )
    return tabular_problem(process, config.class_size, rng)

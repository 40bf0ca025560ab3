"""A contextual bandit: one state, one action, the case H = 1 ([KAL16] Section 2.3)."""

from dataclasses import dataclass

import numpy as np

from richobs.core.problem import Problem
from richobs.core.process import Rewards, TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.worlds.simulator import require_range, require_size, tabular_problem


@dataclass(frozen=True)
class Config:
    """A contextual bandit with Bernoulli rewards."""

    n_contexts: int = 10
    """Number of contexts, drawn with unequal probabilities."""
    n_actions: int = 4
    """Number of actions."""
    class_size: int = 50
    """Number of functions in the class, Q* among them."""
    seed: int = 0
    """Chooses the context and reward probabilities."""

    def __post_init__(self) -> None:
        for name in ("n_contexts", "n_actions", "class_size"):
            require_range(self, name, low=1, high=1_000_000)
        require_size(self, 1, self.n_contexts * self.n_actions * (self.class_size + 4))


def build(config: Config) -> Problem:
    """Returns the bandit."""
    rng = keyed_generator(config.seed, "bandit", "secret")
    process = TabularProcess(
        start=np.ones(1),
        transitions=(),
        emissions=(rng.dirichlet([2.0] * config.n_contexts)[None],),
        rewards=(Rewards.bernoulli(rng.random((1, config.n_contexts, config.n_actions))),),
        labels=(("bandit",),),
    )
    return tabular_problem(process, config.class_size, rng)

"""Disjoint observations: each state owns what it shows ([KAL16] Example 1), as numbers or as vectors."""

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from richobs.classes import Layered
from richobs.core.problem import Problem, Truth
from richobs.core.process import Rewards, TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Observations
from richobs.worlds.simulator import (
    TabularWorld,
    WorldEnvironment,
    hidden_tables,
    require_range,
    require_size,
    tabular_problem,
)
from richobs_lab.prototypes import Prototypes

if TYPE_CHECKING:
    import gymnasium


@dataclass(frozen=True)
class Config:
    """Each state owns its observations: an observation identifies the state, but which one is not known."""

    horizon: int = 4
    """Number of levels."""
    n_states: int = 3
    """Number of states at every level but the first, which has one."""
    n_actions: int = 3
    """Number of actions."""
    n_observations: int = 5
    """Observations that each state owns (finite version)."""
    vectors: bool = False
    """Show vectors instead: a centre per state, and noise that never reaches half way to the next centre."""
    dimension: int = 8
    """Length of the vectors."""
    class_size: int = 50
    """Number of functions per level, Q* among them."""
    seed: int = 0
    """Chooses transitions, observations and rewards."""

    def __post_init__(self) -> None:
        for name in ("horizon", "n_states", "n_actions", "n_observations", "dimension", "class_size"):
            require_range(self, name, low=1, high=1_000_000)
        S, K = self.n_states, self.n_actions
        seen = S * (self.dimension if self.vectors else self.n_observations)
        require_size(self, self.horizon, S * S * K + S * seen * (K + 1) + seen * K * (self.class_size + 4))


def build(config: Config) -> Problem:
    """Returns the world, finite or with vectors."""
    rng = keyed_generator(config.seed, "disjoint", "secret")
    H, K = config.horizon, config.n_actions
    sizes = [1] + [config.n_states] * (H - 1)
    owned = 1 if config.vectors else config.n_observations
    emissions = []
    for s in sizes:
        law = np.zeros((s, s * owned))
        owner = rng.permutation(np.arange(s).repeat(owned))  # the number of an observation tells nothing
        for state in range(s):
            law[state, owner == state] = rng.dirichlet([2.0] * owned)
        emissions.append(np.eye(s) if config.vectors else law)
    process = TabularProcess(
        start=np.ones(1),
        transitions=tuple(rng.integers(b, size=(a, K)) for a, b in itertools.pairwise(sizes)),
        emissions=tuple(emissions),
        rewards=tuple(Rewards.bernoulli(rng.random((1, e.shape[1], K)), 1 / H) for e in emissions),
    )
    if not config.vectors:
        return tabular_problem(process, config.class_size, rng)
    return _with_vectors(process, config, rng)


class VectorWorld(TabularWorld):
    """A process whose observation is its state, shown as the state's centre plus noise in a ball."""

    def __init__(self, latent: TabularProcess, centres: list[Floats], radius: float):
        super().__init__(latent)
        self._centres = centres  # per level [S, d]
        self._radius = radius

    def observe(self, level: int, states: Ints, rng: np.random.Generator, /) -> Observations:
        """Returns `[n, d]` centres plus noise drawn uniformly from the ball."""
        centre = self._centres[level][states]
        n, d = centre.shape
        direction = rng.standard_normal((n, d))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        return centre + self._radius * rng.random((n, 1)) ** (1 / d) * direction

    def reward(self, level: int, states: Ints, x: Observations, actions: Ints, rng: np.random.Generator, /) -> Floats:
        """Returns `[n]` rewards, which depend on the state alone."""
        return super().reward(level, states, states, actions, rng)

    def space(self) -> "gymnasium.Space[Any]":
        """Returns a Box that holds every ball."""
        from gymnasium import spaces

        return spaces.Box(-2.0, 2.0, (self._centres[0].shape[1],), np.float64)  # the same whatever the centres are


def _with_vectors(latent: TabularProcess, config: Config, rng: np.random.Generator) -> Problem:
    sizes = [len(e) for e in latent.emissions]
    centres = [rng.uniform(-1, 1, (s, config.dimension)) for s in sizes]
    gaps = [np.linalg.norm(c[:, None] - c[None], axis=2)[~np.eye(len(c), dtype=bool)] for c in centres]
    radius = min(1.0, 0.4 * min((float(g.min()) for g in gaps if g.size), default=1.0))
    world = VectorWorld(latent, centres, radius)
    hidden, places = hidden_tables(latent, config.class_size, rng)
    levels = []
    for level, tables in enumerate(hidden):
        decoys = rng.uniform(-1, 1, (4, *centres[level].shape))
        true_set = int(rng.integers(5))
        which = rng.integers(5, size=config.class_size)
        which[places[level]] = true_set
        levels.append(Prototypes(np.insert(decoys, true_set, centres[level], axis=0), which, tables))
    return Problem(
        env=WorldEnvironment(world),
        functions=Layered(levels),
        n_states=latent.n_states,
        truth=Truth(latent.optimum.value, places, world),
    )

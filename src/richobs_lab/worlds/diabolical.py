"""The diabolical combination lock of Misra et al. 2020 (Kinematic state abstraction and provably efficient RL)."""

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from richobs.classes import Decoders, Layered
from richobs.core.problem import Problem, Truth
from richobs.core.process import Rewards, TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Observations
from richobs.worlds.simulator import (
    TabularWorld,
    WorldEnvironment,
    reads_right,
    require_range,
    require_size,
    value_by_reading,
)

if TYPE_CHECKING:
    import gymnasium

DEAD = 2


@dataclass(frozen=True)
class Config:
    """The diabolical lock of Misra et al. 2020: one live action of K, and a small bonus for giving up.

    Two live states and a dead one per level. The one live action of a live state leads to a live state (which one is part
    of the secret), and at the last level it pays 1; every other action leads to the dead state for good and pays
    `bonus` with probability 1/2. No episode can earn both, so totals lie in [0, 1] without rescaling, and V* = 1.
    """

    horizon: int = 5
    """Number of levels."""
    n_actions: int = 10
    """Number of actions."""
    bonus: float = 0.1
    """What the first step into the dead state pays, with probability 1/2."""
    swap: float = 0.0
    """Probability that start and live moves land in the other live state (0.5 there; above 0 breaks Assumption 3)."""
    sigma: float = 0.0
    """Standard deviation of Gaussian noise on the observation (above 0 breaks Assumption 1 in the letter)."""
    seed: int = 0
    """Chooses the live actions and which live state they lead to."""

    def __post_init__(self) -> None:
        require_range(self, "horizon", low=1, high=500)  # every level has a rotation of about H^2 numbers, H^3 in all
        require_range(self, "n_actions", low=2, high=1_000_000)
        require_size(self, self.horizon, self.n_actions**2)
        for name in ("bonus", "swap"):
            require_range(self, name, low=0.0, high=1.0)
        require_range(self, "sigma", low=0.0)


def hadamard(at_least: int) -> Floats:
    """Returns Sylvester's Hadamard matrix of the smallest size 2^k >= `at_least`, scaled to be a rotation."""
    matrix = np.ones((1, 1))
    while len(matrix) < at_least:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / math.sqrt(len(matrix))


def two_hot(level: int, horizon: int) -> Floats:
    """Returns `[3, 3 + H]` the coordinates of the three states at `level`."""
    return np.column_stack([np.eye(3), np.tile(np.arange(horizon) == level, (3, 1))])


class DiabolicalWorld(TabularWorld):
    """The latent lock, shown as a rotated two-hot vector (state, level)."""

    def __init__(self, latent: TabularProcess, sigma: float):
        super().__init__(latent)
        self.rotation = hadamard(3 + latent.horizon)
        self._sigma = sigma
        self.books = [self.rotate(two_hot(level, latent.horizon)) for level in range(latent.horizon)]  # [3, D] each

    def rotate(self, coordinates: Floats) -> Observations:
        """Returns `[n, D]` the vectors that show the given coordinates, the missing ones being 0."""
        return coordinates @ self.rotation[:, : coordinates.shape[1]].T

    def observe(self, level: int, states: Ints, rng: np.random.Generator, /) -> Observations:
        """Returns `[n, D]`; the noise is added before the rotation, which leaves its law as it was."""
        x = self.books[level][states]
        return x + self._sigma * rng.standard_normal(x.shape) if self._sigma > 0 else x

    def reward(self, level: int, states: Ints, x: Observations, actions: Ints, rng: np.random.Generator, /) -> Floats:
        """Returns `[n]` rewards, which depend on the state alone."""
        return super().reward(level, states, states, actions, rng)

    def space(self) -> "gymnasium.Space[Any]":
        """Returns a Box ten standard deviations wide around the vectors."""
        from gymnasium import spaces

        wide = 2 / math.sqrt(len(self.rotation)) + 10 * self._sigma
        return spaces.Box(-wide, wide, (len(self.rotation),), np.float64)


def build(config: Config) -> Problem:
    """Returns the lock with the class of all coordinate decoders, (3+H)(2+H)K^2 functions a level."""
    rng = keyed_generator(config.seed, "diabolical", "secret")
    H, K = config.horizon, config.n_actions
    live = rng.integers(K, size=(H, 2))
    leads_to = np.array([rng.permutation(2) for _ in range(H)])
    moves, pays = [], []
    for level in range(H):
        opens = live[level][:, None] == np.arange(K)[None]  # [2, K]
        if level < H - 1:
            t = np.zeros((3, K, 3))
            t[:, :, DEAD] = 1
            for state in (0, 1):
                there = leads_to[level, state]
                t[state, live[level, state]] = 0
                t[state, live[level, state], there] = 1 - config.swap
                t[state, live[level, state], 1 - there] += config.swap
            moves.append(t)
        scale = np.zeros((3, 1, K))
        scale[:2, 0] = config.bonus
        chance = np.full((3, 1, K), 0.5)
        prize = 1.0 if level == H - 1 else 0.0
        scale[:2, 0][opens] = prize
        chance[:2, 0][opens] = 1.0
        pays.append(Rewards.bernoulli(chance, scale))

    def process(observations: tuple[np.ndarray[Any, Any], ...]) -> TabularProcess:
        return TabularProcess(
            start=np.array([1 - config.swap, config.swap, 0]),
            transitions=tuple(moves),
            emissions=(np.eye(3),) * H,
            rewards=tuple(pays),
            observations=observations,
            labels=tuple(tuple(f"{s}{level}" for s in ("live", "other", "dead")) for level in range(H)),
        )

    latent = process(())
    world = DiabolicalWorld(latent, config.sigma)
    listed = process(tuple(world.books)) if config.sigma == 0 else None
    worth = np.where(np.eye(K) == 1, 1.0, config.bonus / 2)
    decoders = Decoders(3 + H, worth, rotation=world.rotation)
    optimal = tuple(decoders.index(0, 1, int(a), int(b)) for a, b in live)

    certain = reads_right(config.sigma)
    on = [np.where(two_hot(level, H) == 1, certain, 1 - certain) for level in range(H)]
    return Problem(
        env=WorldEnvironment(world),
        functions=Layered([decoders] * H),
        process=listed,
        n_states=3,
        truth=Truth(
            latent.optimum.value,
            optimal if config.sigma == 0 else None,
            world,
            partial(value_by_reading, latent=latent, on=on, rotation=world.rotation),
        ),
    )

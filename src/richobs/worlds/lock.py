"""The combination lock of Du et al. 2019 (Provably efficient RL with rich observations via latent state decoding)."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from richobs.classes import Decoders, Layered
from richobs.core.errors import InvalidInput
from richobs.core.policies import Policy
from richobs.core.problem import Problem, Truth
from richobs.core.process import Rewards, TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Observations
from richobs.worlds.simulator import (
    WorldEnvironment,
    all_patterns,
    reads_right,
    require_range,
    require_size,
    tabular_problem,
    value_by_reading,
)

if TYPE_CHECKING:
    import gymnasium

A, B, C = 0, 1, 2  # live, live, dead
MAX_LISTED_BITS = 10  # 3 * 2^10 observations a level are listed; more are not
PRIZE = 0.5  # probability that the open lock pays 1


@dataclass(frozen=True)
class Config:
    """The combination lock of Du et al. 2019: two of K actions keep you alive, and only the last step pays.

    In state A action a_h leads to A and a_h + 1 to B, in B action b_h leads to B and b_h + 1 to A (mod K). These actions
    are called live; all others lead to C for good. At the last level live actions pay 1 with probability 1/2. So V* is
    1/2, or 1/2 * (1 - fail)^(H-1) where live actions can fail.
    """

    horizon: int = 5
    """Number of levels."""
    n_actions: int = 4
    """Number of actions; with 2 no action is dead."""
    noise_bits: int = 5
    """Fair coins in the observation, behind the three bits that tell the state."""
    swap: float = 0.0
    """Probability that a live action leads to the other live state (Du et al. use 0.5; this breaks Assumption 3)."""
    fail: float = 0.0
    """Probability that a live action leads to C all the same (Du et al. use 0.1; this breaks Assumption 3)."""
    noise: Literal["bits", "gaussian"] = "bits"
    """What is seen: the bits, or the bits plus Gaussian noise (which breaks Assumption 1 in the letter)."""
    sigma: float = 0.1
    """Standard deviation of the Gaussian noise."""
    functions: Literal["decoders", "tables"] = "decoders"
    """The class: every bit decoder, or tables that hide Q* (where the observations can be listed)."""
    class_size: int = 200
    """Number of tables per level, Q* among them."""
    seed: int = 0
    """Chooses the combination."""

    def __post_init__(self) -> None:
        require_range(self, "horizon", low=1, high=1_000_000)
        require_range(self, "n_actions", low=2, high=1_000_000)
        require_range(self, "noise_bits", low=0, high=10_000)
        require_size(self, self.horizon, self.n_actions**2)
        for name in ("swap", "fail"):
            require_range(self, name, low=0.0, high=1.0)
        require_range(self, "sigma", low=1e-6)
        require_range(self, "class_size", low=1, high=1_000_000)
        if self.functions == "tables" and (self.noise != "bits" or self.noise_bits > MAX_LISTED_BITS):
            raise InvalidInput(
                f"lock: tables need observations that can be listed, bits with at most {MAX_LISTED_BITS} noise bits; got "
                f"{self.noise_bits} and noise {self.noise!r}."
            )
        if self.functions == "tables":
            require_size(self, self.horizon, 2 ** (self.noise_bits + 3) * self.n_actions * (self.class_size + 4))


class LockWorld:
    """The lock's simulator."""

    reward_range = (0.0, 1.0)

    def __init__(self, config: Config):
        rng = keyed_generator(config.seed, "lock", "secret")
        self.horizon, self.n_actions = config.horizon, config.n_actions
        sure = (0.0, 1.0)
        self.is_deterministic = config.horizon == 1 or config.fail == 1 or (config.swap in sure and config.fail == 0)
        self._config = config
        self._code = rng.integers(self.n_actions, size=(self.horizon, 2))  # a_h and b_h
        stay = np.eye(self.n_actions, dtype=bool)[self._code]  # [H, 2, K] the action that keeps the state
        cross = np.roll(stay, 1, axis=2)  # the next action crosses over
        self._live = np.concatenate([stay | cross, np.zeros((self.horizon, 1, self.n_actions), dtype=bool)], axis=1)
        self._next = np.full((self.horizon, 3, self.n_actions), C)
        for state in (A, B):
            self._next[:, state][stay[:, state]] = state
            self._next[:, state][cross[:, state]] = 1 - state
        width = 3 + config.noise_bits
        self._row_bytes = (width + 7) // 8
        self._width = width

    def start(self, n: int, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` state A."""
        return np.full(n, A)

    def observe(self, level: int, states: Ints, rng: np.random.Generator, /) -> Observations:
        """Returns `[n, 3 + noise_bits]` indicator bits of the state, then coins; plus Gaussian noise if asked for."""
        n = len(states)
        words = rng.integers(0, 2**64 - 1, -(-n * self._row_bytes // 8), dtype=np.uint64, endpoint=True)
        coins = words.view(np.uint8)[: n * self._row_bytes].reshape(n, self._row_bytes)
        coins[:, 0] &= 0b00011111
        coins[:, 0] |= _LEADING_BITS.take(states)
        bits = np.unpackbits(coins).view(np.int8).reshape(n, -1)[:, : self._width]
        if self._config.noise == "bits":
            return bits
        return bits + np.float32(self._config.sigma) * rng.standard_normal(bits.shape, dtype=np.float32)

    def reward(self, level: int, states: Ints, x: Observations, actions: Ints, rng: np.random.Generator, /) -> Floats:
        """Returns `[n]` a fair coin for live actions at the last level, 0 everywhere else."""
        if level < self.horizon - 1:
            return np.zeros(len(states))
        return (self._live[level, states, actions] & (rng.random(len(states)) < PRIZE)).astype(np.float64)

    def move(self, level: int, states: Ints, actions: Ints, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` the states at `level + 1`."""
        there = self._next[level, states, actions]
        if self._config.swap > 0:
            swapped = (there != C) & (rng.random(len(states)) < self._config.swap)
            there = np.where(swapped, 1 - there, there)
        if self._config.fail > 0:
            there = np.where(rng.random(len(states)) < self._config.fail, C, there)
        return there

    def labels(self, level: int, /) -> tuple[str, ...]:
        """Returns A, B and C."""
        return ("A", "B", "C")

    def space(self) -> "gymnasium.Space[Any]":
        """Returns bits, or a Box ten standard deviations wide around them."""
        from gymnasium import spaces

        if self._config.noise == "bits":
            return spaces.MultiBinary(self._width)
        wide = 10 * self._config.sigma
        return spaces.Box(-wide, 1 + wide, (self._width,), np.float32)

    def process(self, observations: np.ndarray[Any, Any], emission: Floats) -> TabularProcess:
        """Returns the lock with every level showing `observations` `[X, ...]` with `emission` `[3, X]`."""
        H, K = self.horizon, self.n_actions
        swap, fail = self._config.swap, self._config.fail
        moves = []
        for level in range(H - 1):
            t = np.eye(3)[self._next[level]]  # [3, K, 3]
            swapped = (1 - swap) * t + swap * t[:, :, [B, A, C]]
            moves.append((1 - fail) * swapped + fail * np.eye(3)[C])
        nothing = Rewards.deterministic(np.zeros((1, 1, K)))
        prize = Rewards.bernoulli(PRIZE * self._live[-1][:, None, :])
        return TabularProcess(
            start=np.eye(3)[A],
            transitions=tuple(moves),
            emissions=(emission,) * H,
            rewards=(nothing,) * (H - 1) + (prize,),
            observations=(observations,) * H,
            labels=tuple(tuple(f"{s}{level}" for s in "ABC") for level in range(H)),
        )

    def listed(self) -> TabularProcess:
        """Returns the lock with every observation, the indicator bits of a state with every pattern of coins."""
        coins = all_patterns(self._config.noise_bits)
        blocks = [np.column_stack([np.tile(_INDICATOR[s], (len(coins), 1)), coins]) for s in (A, B, C)]
        emission = np.kron(np.eye(3), np.full((1, len(coins)), 1 / len(coins)))
        return self.process(np.concatenate(blocks), emission)

    def decoders(self) -> list[Decoders]:
        """Returns the bit decoders of every level.

        A live action is worth 1/2 at the last level and (1 - fail) times as much at each level before.
        """
        K = self.n_actions
        alive = np.eye(K) + np.roll(np.eye(K), 1, axis=1)  # [K, K] choice a makes a and a+1 live
        worth = PRIZE * np.minimum(alive, 1)
        last = Decoders(self._width, worth)
        if self._config.fail == 0:
            return [last] * self.horizon  # one object, so that what it remembers of its members is kept once
        shrunk = [(1 - self._config.fail) ** (self.horizon - 1 - level) * worth for level in range(self.horizon - 1)]
        return [*(Decoders(self._width, w) for w in shrunk), last]

    def truth(self, decoders: Sequence[Decoders]) -> Truth:
        """Returns V* and, where the bits are seen, the decoder that is Q* at each level: bit 0 is A, bit 1 is B."""
        best, optimal = PRIZE * (1 - self._config.fail) ** (self.horizon - 1), None
        if self._config.noise == "bits":
            optimal = tuple(d.index(A, B, int(a), int(b)) for d, (a, b) in zip(decoders, self._code, strict=True))
        return Truth(best, optimal, self, self.exact_value)

    def exact_value(self, policy: Policy) -> float | None:
        """Returns V(policy) of a policy that reads few coordinates; None of any other."""
        certain = reads_right(self._config.sigma if self._config.noise == "gaussian" else 0.0)
        on = np.full((3, self._width), 0.5)  # probability that a coordinate exceeds 1/2 in each state
        on[:, :3] = np.where(np.eye(3) == 1, certain, 1 - certain)
        return value_by_reading(policy, self.process(np.arange(3), np.eye(3)), [on] * self.horizon, None)


_INDICATOR = np.eye(3, dtype=np.int8)
_LEADING_BITS = np.packbits(_INDICATOR, axis=1).ravel()  # the indicator bits as the top of a byte


def build(config: Config) -> Problem:
    """Returns the lock with the class of all bit decoders, (3+d)(2+d)K^2 functions a level."""
    world = LockWorld(config)
    if config.functions == "tables":
        rng = keyed_generator(config.seed, "lock", "tables")
        return dataclasses.replace(tabular_problem(world.listed(), config.class_size, rng, world), n_states=3)
    is_listed = config.noise == "bits" and config.noise_bits <= MAX_LISTED_BITS
    decoders = world.decoders()
    return Problem(
        env=WorldEnvironment(world),
        functions=Layered(decoders),
        process=world.listed if is_listed else None,
        n_states=3,
        truth=partial(world.truth, decoders),
    )

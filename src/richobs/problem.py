"""What a learner may see: an environment it can play, policies it can try, classes of value functions it may hold.

Protocols, not base classes: anything with these methods fits. Nothing here knows a latent state. Shapes: n episodes,
H levels, K actions, N functions. Levels count from 0, and the node at a path lies at level `len(path)`.
"""

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from richobs.errors import InvalidInput, InvalidPath

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Observations = NDArray[Any]  # [n, ...] one row per episode; integers, bits or vectors, as the world has it
Path = tuple[int, ...]
Member = int | tuple[int, ...]  # one function of a class: an index, or one index per level of a product class


class Policy(Protocol):
    """A reactive policy: the action depends on the level and the observation, on nothing else."""

    def actions(self, level: int, x: Observations, /) -> Ints:
        """Returns `[n]` the action for each of the n observations `x`, all made at `level`."""
        ...


class ValueFunction(Protocol):
    """One predictor f of long-term reward."""

    def values(self, level: int, x: Observations, /) -> Floats:
        """Returns `[n, K]` f(x, a) for each of the n observations and each action."""
        ...


class FunctionClass(Protocol):
    """A class F of value functions, given level by level ([KAL16] Assumption 2).

    Where `is_product` holds, a function is any choice of one member per level and `Member` is a tuple; otherwise
    member i of one level belongs with member i of every other, and `Member` is i.
    """

    @property
    def horizon(self) -> int:
        """Number of levels H."""
        ...

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        ...

    @property
    def is_product(self) -> bool:
        """Whether members are chosen independently at each level."""
        ...

    @property
    def log_size(self) -> float:
        """Natural logarithm of the number of functions; the number itself overflows."""
        ...

    def level_size(self, level: int, /) -> int:
        """Returns how many members there are at `level`."""
        ...

    def values(self, level: int, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all members at `level`, or of those listed in `members`."""
        ...

    def alike(self, level: int, members: Ints, action: int, /) -> tuple[Ints, Ints]:
        """Returns one member of each group that agrees on `action` and on max_a f everywhere, and each one's group."""
        ...

    def top_bounds(self, level: int, /) -> tuple[Floats, Floats]:
        """Returns `[N]` the smallest and the largest value that max_a f(x, a) takes for the members of `level`."""
        ...

    def member(self, member: Member, /) -> ValueFunction:
        """Returns one function of the class."""
        ...


class GreedyPolicy:
    """pi_f: the action that f likes best; ties go to the smallest action ([KAL16] Assumption 2)."""

    def __init__(self, f: ValueFunction):
        self.f = f

    def actions(self, level: int, x: Observations, /) -> Ints:
        """Returns `[n]` argmax_a f(x, a)."""
        return np.asarray(self.f.values(level, x).argmax(axis=1), dtype=np.int64)


class Steps(NamedTuple):
    """What n episodes saw at one node."""

    observations: Observations  # [n, ...] x
    actions: Ints  # [n] a, as they were asked for
    rewards: Floats  # [n] r(a)


class Rollouts(NamedTuple):
    """What n episodes of a policy came to."""

    returns: Floats  # [n] sum of the rewards
    paths: Ints  # [n, H] the actions taken


class Episodes(NamedTuple):
    """Whole records of n episodes that played one action sequence."""

    observations: tuple[Observations, ...]  # per level [n, ...]
    rewards: Floats  # [n, levels]


class Environment(Protocol):
    """A contextual decision process that can be played ([KAL16] Section 2).

    Every method plays whole episodes from the start, n of them at once, and adds n to `episodes`. All randomness
    comes from the `rng` passed in.
    """

    horizon: int
    n_actions: int
    reward_range: tuple[float, float]  # what an episode's rewards sum to, surely
    episodes: int  # played so far

    def draw(self, path: Path, n: int, rng: np.random.Generator) -> Observations:
        """Returns `[n, ...]` observations at the node at `path`."""
        ...

    def step(self, path: Path, actions: Ints, rng: np.random.Generator) -> Steps:
        """Goes to the node at `path` once per entry of `actions` `[n]` and takes that action there."""
        ...

    def rollout(self, policy: Policy, n: int, rng: np.random.Generator) -> Rollouts:
        """Plays `policy` from start to end, n times."""
        ...

    def play(self, path: Path, n: int, rng: np.random.Generator) -> Episodes:
        """Plays the action sequence `path` n times and returns what was seen at each level on the way."""
        ...


def checked_path(path: Sequence[int], horizon: int, n_actions: int, *, room: int = 0) -> Path:
    """Returns `path` as a tuple of ints.

    Args:
        path: the actions from the root.
        horizon: levels of the environment.
        n_actions: actions of the environment.
        room: how many more actions must fit behind the path.

    Raises:
        InvalidPath: it is longer than `horizon - room`, or holds an action that does not exist.
    """
    actions = tuple(int(a) for a in path)
    if len(actions) > horizon - room:
        raise InvalidPath(
            f"path {actions} has {len(actions)} actions; this environment has {horizon} levels, so a path here "
            f"holds at most {horizon - room}."
        )
    for level, a in enumerate(actions):
        if not 0 <= a < n_actions:
            raise InvalidPath(
                f"path {actions} takes action {a} at level {level}; this environment has actions 0 to {n_actions - 1}."
            )
    return actions


SMALLEST = 1e-9  # epsilon and delta below it are refused: float64 could not hold what follows from them


def check_accuracy(epsilon: Any, delta: Any) -> None:
    """Raises `InvalidInput` unless both are numbers in [SMALLEST, 1)."""
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if not isinstance(value, numbers.Real) or not SMALLEST <= float(value) < 1:
            raise InvalidInput(f"{name} must lie between {SMALLEST:g} and 1; got {value!r}.")


@dataclass(frozen=True)
class ValueReport:
    """The value of a policy: exact, or an estimate that says so and carries its interval."""

    value: float
    low: float
    high: float
    confidence: float = 1.0  # probability with which [low, high] holds the true value
    episodes: int = 0  # rollouts the estimate rests on; 0 where the value is exact

    @classmethod
    def known(cls, value: float) -> "ValueReport":
        """Returns the report of a value computed exactly."""
        return cls(value, value, value)

    @classmethod
    def estimated(cls, returns: Floats, reward_range: tuple[float, float], confidence: float) -> "ValueReport":
        """Returns the mean of `returns` `[n]` with Hoeffding's two-sided interval for the mean, cut to the range."""
        if not 0 < confidence < 1:
            raise InvalidInput(f"confidence must lie strictly between 0 and 1; got {confidence}.")
        low, high = reward_range
        n = len(returns)
        mean = float(returns.mean())
        radius = (high - low) * math.sqrt(math.log(2 / (1 - confidence)) / (2 * n))
        return cls(mean, max(low, mean - radius), min(high, mean + radius), confidence, n)

    @property
    def exact(self) -> bool:
        """Whether the value was computed rather than estimated."""
        return self.episodes == 0

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        if self.exact:
            return f"{self.value:.6g} (exact)"
        return (
            f"{self.value:.4f}, an estimate from {self.episodes:,} episodes: in [{self.low:.4f}, {self.high:.4f}] "
            f"with probability {self.confidence:g}"
        )

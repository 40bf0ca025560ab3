"""What a world is, and how one becomes an environment that can be played.

A world is a latent simulator: four vectorised methods that know the states. `WorldEnvironment` turns any world into
the `Environment` that learners see, and `richobs.worlds.gymnasium_out` into Gymnasium environments. Shapes: n episodes
side by side.
"""

import itertools
import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from richobs.classes.layered import Layered, LevelwiseFunction
from richobs.classes.learned_policy import LearnedPolicy
from richobs.classes.tables import TableLevel, copies_around
from richobs.core.environment import Episodes
from richobs.core.errors import InvalidInput
from richobs.core.policies import Greedy, Policy, checked_actions
from richobs.core.problem import Problem, Truth
from richobs.core.process import TabularProcess
from richobs.core.types import Floats, Ints, Observations

if TYPE_CHECKING:
    import gymnasium

LARGEST = 40_000_000  # numbers that a world and its class may hold; with what is needed to build them, up to 1 GB
LEVEL = 2_000  # numbers that take as much memory as what every level has besides its arrays


class World(Protocol):
    """The latent simulator: n copies at once, states as integers per level.

    It holds the world's secret; learners get a `WorldEnvironment` around it instead.
    """

    horizon: int  # number of levels H
    n_actions: int  # number of actions K
    is_deterministic: bool  # whether start and transitions are point masses ([KAL16] Assumption 3)
    reward_range: tuple[float, float]  # smallest and largest total of an episode's rewards

    def start(self, n: int, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` first states."""

    def observe(self, level: int, states: Ints, rng: np.random.Generator, /) -> Observations:
        """Returns `[n, ...]` what the states show."""

    def reward(self, level: int, states: Ints, x: Observations, actions: Ints, rng: np.random.Generator, /) -> Floats:
        """Returns `[n]` what the actions earn."""

    def move(self, level: int, states: Ints, actions: Ints, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` the states at `level + 1`."""

    def labels(self, level: int, /) -> tuple[str, ...]:
        """Returns the names of the states of `level`, for pictures."""

    def space(self) -> "gymnasium.Space[Any]":
        """Returns the Gymnasium space of one observation."""


class TabularWorld:
    """The world of a process written down in full."""

    reward_range = (0.0, 1.0)

    def __init__(self, process: TabularProcess):
        self.process = process
        self.horizon = process.horizon
        self.n_actions = process.n_actions
        self.is_deterministic = process.is_deterministic
        self._emit = [_Categorical(e) for e in process.emissions]
        self._start = _Categorical(process.start[None])
        self._next = [_Categorical(t.reshape(-1, t.shape[2])) for t in process.transitions]

    @cached_property
    def _pay(self) -> list["_Categorical"]:
        return [_Categorical(r.probs.reshape(-1, r.probs.shape[-1])) for r in self.process.rewards]

    def start(self, n: int, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` first states."""
        return self._start.sample(np.zeros(n, dtype=np.int64), rng)

    def observe(self, level: int, states: Ints, rng: np.random.Generator, /) -> Observations:
        """Returns `[n, ...]` entries of the process's codebook."""
        return self.process.observations[level][self._emit[level].sample(states, rng)]

    def reward(self, level: int, states: Ints, x: Observations, actions: Ints, rng: np.random.Generator, /) -> Floats:
        """Returns `[n]` rewards, each from the law of its (state, observation, action)."""
        index = self.process.encode(level, x)
        rewards = self.process.rewards[level]
        _, n_observations, n_actions, points = rewards.probs.shape
        row = (states * n_observations + index) * n_actions + actions
        point = self._pay[level].sample(row, rng) if points > 1 else 0
        return rewards.values[states, index, actions, point]

    def move(self, level: int, states: Ints, actions: Ints, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` the states at `level + 1`."""
        return self._next[level].sample(states * self.n_actions + actions, rng)

    def labels(self, level: int, /) -> tuple[str, ...]:
        """Returns the names of the states of `level`."""
        return self.process.labels[level]

    def space(self) -> "gymnasium.Space[Any]":
        """Returns a `Discrete` as large as the level with the most observations, or the Box around the codebook."""
        from gymnasium import spaces

        books = self.process.observations
        if all(b.ndim == 1 and b.dtype.kind in "iu" for b in books):
            return spaces.Discrete(max(int(b.max()) for b in books) + 1)
        low = np.min([np.minimum(b.min(axis=0), 0) for b in books], axis=0)  # 0 is shown after the last action
        high = np.max([np.maximum(b.max(axis=0), 0) for b in books], axis=0)
        return spaces.Box(low, high, dtype=books[0].dtype.type)


class _Categorical:
    """Distributions over X outcomes, one per row of `[rows, X]`, sampled many at once."""

    def __init__(self, probs: Floats):
        self._size = probs.shape[1]
        self._last = self._size - 1 - (probs[:, ::-1] > 0).argmax(axis=1)  # [rows] the last possible outcome
        self._certain = probs.argmax(axis=1)
        self._fixed = bool((probs.max(axis=1) == 1).all())
        if not self._fixed:
            cumulative = np.minimum(np.cumsum(probs, axis=1), 1.0)
            self._steps = (cumulative + np.arange(len(probs))[:, None]).ravel()

    def sample(self, rows: Ints, rng: np.random.Generator) -> Ints:
        """Returns `[n]` one column per entry of `rows`; draws nothing where every row is a point mass."""
        if self._fixed:
            return self._certain[rows]
        drawn = np.searchsorted(self._steps, rng.random(len(rows)) + rows, side="right") - rows * self._size
        return np.minimum(drawn, self._last[rows])


class WorldEnvironment:
    """A world as learners see it: policies go in, observations, actions and rewards come out."""

    def __init__(self, world: World):
        """Takes the simulator, which stays private."""
        self._world = world
        self.horizon = world.horizon
        self.n_actions = world.n_actions
        self.reward_range = world.reward_range

    def __repr__(self) -> str:
        facts = f"horizon={self.horizon}, n_actions={self.n_actions}, reward_range={self.reward_range}"
        return f"{type(self).__name__}({facts})"

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        """Plays n episodes from the start; the policy is asked once per level, with the episodes in the same order.

        Draws are made in a fixed order: the start, then at each level observations, actions, rewards and the move.
        Episodes that stop early have therefore made the same draws as whole ones until then.

        Args:
            policy: what to do.
            n: number of episodes.
            rng: where all randomness comes from, the policy's included.
            levels: stop after so many levels; by default after all.
        """
        if n < 1:
            raise InvalidInput(f"an environment plays at least one episode; asked for {n}.")
        last = self.horizon if levels is None else levels
        if not 1 <= last <= self.horizon:
            raise InvalidInput(f"this environment plays 1 to {self.horizon} levels; asked for {last}.")
        seen: list[Observations] = []
        taken: list[Ints] = []
        paid: list[Floats] = []
        states = self._world.start(n, rng)
        for level in range(last):
            if level:
                states = self._world.move(level - 1, states, taken[-1], rng)
            x = self._world.observe(level, states, rng)
            actions = checked_actions(policy, level, x, self.n_actions, rng)
            paid.append(self._world.reward(level, states, x, actions, rng))
            seen.append(x)
            taken.append(actions)
        return Episodes(tuple(seen), tuple(taken), tuple(paid))


def hidden_tables(
    process: TabularProcess, class_size: int, rng: np.random.Generator
) -> tuple[list[Floats], tuple[int, ...]]:
    """Hides Q* among `class_size` tables per level.

    Returns:
        Per level `[N, X, K]` the tables, and per level the place of Q* among them.
    """
    hidden = [copies_around(np.clip(table, 0, 1), class_size, rng) for table in process.q_tables]
    return [tables for tables, _ in hidden], tuple(place for _, place in hidden)


def table_problem(
    process: TabularProcess, levels: Sequence[Floats], places: tuple[int, ...] | None, world: World | None = None
) -> Problem:
    """Returns the problem of a process with a class of tables.

    Args:
        process: the process.
        levels: per level `[N, X, K]` the tables.
        places: per level the table that is Q*; None where Q* is not in the class.
        world: a simulator of the process; by default one that draws from its arrays.
    """
    world = TabularWorld(process) if world is None else world
    return Problem(
        env=WorldEnvironment(world),
        functions=Layered([TableLevel(t, book) for t, book in zip(levels, process.codebooks, strict=True)]),
        process=process,
        n_states=process.n_states,
        truth=Truth(process.optimum.value, places, world),
    )


def tabular_problem(
    process: TabularProcess, class_size: int, rng: np.random.Generator, world: World | None = None
) -> Problem:
    """Returns the problem of a process that satisfies Assumption 1, with a class of tables that hides its Q*.

    Args:
        process: the process.
        class_size: number of tables per level, Q* among them.
        rng: chooses the other tables and the place of Q*.
        world: a simulator of the process; by default one that draws from its arrays.
    """
    return table_problem(process, *hidden_tables(process, class_size, rng), world)


def all_patterns(n_bits: int) -> NDArray[np.int8]:
    """Returns `[2^n_bits, n_bits]` every pattern of so many bits."""
    return np.array(list(itertools.product((0, 1), repeat=n_bits)), dtype=np.int8).reshape(2**n_bits, n_bits)


def reads_right(sigma: float) -> float:
    """Returns the probability that a bit plus N(0, sigma^2) lies on its own side of 1/2."""
    return 0.5 * (1 + math.erf(0.5 / sigma / math.sqrt(2))) if sigma > 0 else 1.0


def value_by_reading(
    policy: Policy, latent: TabularProcess, on: Sequence[Floats], rotation: Floats | None
) -> float | None:
    """Returns V(policy) exactly in a world of independent on/off coordinates, from the few that the policy reads.

    Args:
        policy: the greedy policy of a function that reads few coordinates, each only through "above 1/2".
        latent: the process with observation = state; rewards may not depend on the observation.
        on: per level `[S, D]` probability that coordinate i reads as on in state s, independently of the others.
        rotation: what turns coordinates into observations; None where they are the observations.

    Returns:
        None for any other policy: what it looks at is not known.
    """
    # A subclass may act in another way than its f, so the types are compared exactly.
    if not (isinstance(policy, Greedy) and type(policy) in (Greedy, LearnedPolicy)):
        return None
    f = policy.f
    if not isinstance(f, LevelwiseFunction):
        return None
    choices: list[Floats] = []  # per level [S, K] probability of each action
    for level in range(latent.horizon):
        coordinates = f.reads(level, rotation)
        if coordinates is None:
            return None
        patterns = all_patterns(len(coordinates))
        shown = np.zeros((len(patterns), on[level].shape[1]))
        shown[:, coordinates] = patterns
        actions = policy.actions(level, shown if rotation is None else shown @ rotation[:, : shown.shape[1]].T)
        odds = on[level][:, None, list(coordinates)]  # [S, 1, read]
        weights = np.where(patterns[None] == 1, odds, 1 - odds).prod(axis=2)  # [S, patterns]
        choices.append(weights @ np.eye(latent.n_actions)[actions])
    value = np.zeros(0)
    for level in reversed(range(latent.horizon)):
        worth = np.einsum("sx,sxk->sk", latent.emissions[level], latent.rewards[level].mean)
        if level < latent.horizon - 1:
            worth = worth + latent.transitions[level] @ value
        value = (choices[level] * worth).sum(axis=1)
    return float(latent.start @ value)


def require_range(config: Any, name: str, low: float | None = None, high: float | None = None) -> None:
    """Raises `InvalidInput` unless `low <= config.name <= high`."""
    value = getattr(config, name)
    below = low is not None and not value >= low  # `not >=` so that NaN is refused too
    above = high is not None and not value <= high
    if below or above:
        if high is None:
            wanted = f"at least {low}"
        elif low is None:
            wanted = f"at most {high}"
        else:
            wanted = f"between {low} and {high}"
        raise InvalidInput(f"{type(config).__module__.rpartition('.')[2]}: {name} must be {wanted}; got {value!r}.")


def require_size(config: Any, levels: int, numbers: int) -> None:
    """Raises `InvalidInput` where a world would be too large to build; an id may come from anybody.

    Args:
        config: of the world.
        levels: how many levels it has.
        numbers: about how many numbers each level holds: transitions, observations, rewards, functions.
    """
    if levels * (numbers + LEVEL) > LARGEST:
        world = type(config).__module__.rpartition(".")[2]
        raise InvalidInput(
            f"{world}: {levels:,} levels of about {numbers:,} numbers each are too many; a world may hold {LARGEST:,}, "
            f"where a level counts {LEVEL:,} more. Ask for fewer levels, states, observations, actions or functions."
        )

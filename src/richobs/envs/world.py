"""What a world is, and how one becomes an environment that can be played.

A world is its latent simulator: four vectorised methods that know the states. `PathEnvironment` turns any world into
the `Environment` that learners see, and `richobs.envs.gym` into Gymnasium environments. Shapes: n episodes side by side.
"""

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from richobs.errors import AssumptionViolated, InvalidInput
from richobs.functions import Layered, LevelwiseFunction, TableLevel, copies_around
from richobs.problem import (
    Environment,
    Episodes,
    Floats,
    FunctionClass,
    GreedyPolicy,
    Ints,
    Member,
    Observations,
    Path,
    Policy,
    Rollouts,
    Steps,
    ValueReport,
    checked_path,
)
from richobs.randomness import keyed_generator
from richobs.tabular import TabularProcess

if TYPE_CHECKING:
    import gymnasium


class World(Protocol):
    """The latent simulator: n copies at once, states as integers per level.

    It holds the world's secret; learners get a `PathEnvironment` around it instead.
    """

    horizon: int
    n_actions: int
    is_deterministic: bool  # start and transitions are (Assumption 3); then paths and states correspond
    reward_range: tuple[float, float]

    def start(self, n: int, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` first states."""
        ...

    def observe(self, level: int, states: Ints, rng: np.random.Generator, /) -> Observations:
        """Returns `[n, ...]` what the states show."""
        ...

    def reward(self, level: int, states: Ints, x: Observations, actions: Ints, rng: np.random.Generator, /) -> Floats:
        """Returns `[n]` what the actions earn."""
        ...

    def move(self, level: int, states: Ints, actions: Ints, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` the states at `level + 1`."""
        ...

    def labels(self, level: int, /) -> tuple[str, ...]:
        """Returns the names of the states of `level`, for pictures."""
        ...

    def space(self) -> "gymnasium.Space[Any]":
        """Returns the Gymnasium space of one observation."""
        ...


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
    """Rows of probabilities `[rows, X]` to sample from, many at once."""

    def __init__(self, probs: Floats):
        self._size = probs.shape[1]
        self._last = self._size - 1 - (probs[:, ::-1] > 0).argmax(axis=1)  # where rounding may not run past
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


class PathEnvironment:
    """A world as learners see it: paths in, observations and rewards out, every episode counted."""

    def __init__(self, world: World):
        self._world = world
        self.horizon = world.horizon
        self.n_actions = world.n_actions
        self.reward_range = world.reward_range
        self.episodes = 0
        self._known: dict[Path, int] = {}  # path -> state, filled in where transitions are deterministic
        self._lock = threading.Lock()  # engines may play from several threads

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def __repr__(self) -> str:
        return f"PathEnvironment(horizon={self.horizon}, n_actions={self.n_actions}, episodes={self.episodes})"

    def draw(self, path: Path, n: int, rng: np.random.Generator) -> Observations:
        """Returns `[n, ...]` observations at the node at `path`."""
        path = self._node(path)
        self._count(n)
        return self._world.observe(len(path), self._arrive(path, n, rng), rng)

    def step(self, path: Path, actions: Ints, rng: np.random.Generator) -> Steps:
        """Goes to the node at `path` once per entry of `actions` `[n]` and takes that action there."""
        path = self._node(path)
        actions = self._checked_actions(actions, len(path))
        self._count(len(actions))
        states = self._arrive(path, len(actions), rng)
        x = self._world.observe(len(path), states, rng)
        return Steps(x, actions, self._world.reward(len(path), states, x, actions, rng))

    def rollout(self, policy: Policy, n: int, rng: np.random.Generator) -> Rollouts:
        """Plays `policy` from start to end, n times; it is asked once per level, rows in the same order."""
        self._count(n)
        states = self._world.start(n, rng)
        returns = np.zeros(n)
        paths = np.empty((n, self.horizon), dtype=np.int64)
        for level in range(self.horizon):
            x = self._world.observe(level, states, rng)
            actions = self._checked_actions(policy.actions(level, x), level)
            if len(actions) != n:
                raise InvalidInput(f"{type(policy).__name__} returned {len(actions)} actions for {n} observations.")
            returns += self._world.reward(level, states, x, actions, rng)
            paths[:, level] = actions
            if level < self.horizon - 1:
                states = self._world.move(level, states, actions, rng)
        return Rollouts(returns, paths)

    def play(self, path: Path, n: int, rng: np.random.Generator) -> Episodes:
        """Plays the action sequence `path` n times and returns what was seen at each level on the way."""
        path = checked_path(path, self.horizon, self.n_actions)
        self._count(n)
        states = self._world.start(n, rng)
        seen = []
        rewards = np.empty((n, len(path)))
        for level, action in enumerate(path):
            if level:
                states = self._world.move(level - 1, states, np.full(n, path[level - 1]), rng)
            seen.append(self._world.observe(level, states, rng))
            rewards[:, level] = self._world.reward(level, states, seen[-1], np.full(n, action), rng)
        return Episodes(tuple(seen), rewards)

    def _node(self, path: Path) -> Path:
        """Returns `path` once it is known to lead to a node where an action can be taken."""
        if isinstance(path, tuple) and path in self._known:
            return path
        return checked_path(path, self.horizon, self.n_actions, room=1)

    def _arrive(self, path: Path, n: int, rng: np.random.Generator) -> Ints:
        """Returns `[n]` the states in which n episodes find themselves after `path`."""
        if not self._world.is_deterministic:
            states = self._world.start(n, rng)
            for level, action in enumerate(path):
                states = self._world.move(level, states, np.full(n, action), rng)
            return states
        if path not in self._known:
            spare = keyed_generator(0, "certain")  # nothing random is decided, and the caller's draws may not shift
            if path:
                parent = self._arrive(path[:-1], 1, spare)
                self._known[path] = int(self._world.move(len(path) - 1, parent, np.array([path[-1]]), spare)[0])
            else:
                self._known[path] = int(self._world.start(1, spare)[0])
        return np.full(n, self._known[path])

    def _count(self, n: int) -> None:
        if n < 1:
            raise InvalidInput(f"an environment plays at least one episode; asked for {n}.")
        with self._lock:
            self.episodes += int(n)

    def _checked_actions(self, actions: Any, level: int) -> Ints:
        array = np.asarray(actions)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise InvalidInput(
                f"actions must be [n] integers; got {array.dtype} of shape {array.shape} at level {level}."
            )
        if array.size and not (array.min() >= 0 and array.max() < self.n_actions):
            wrong = array[(array < 0) | (array >= self.n_actions)][0]
            raise InvalidInput(
                f"action {wrong} at level {level}; this environment has actions 0 to {self.n_actions - 1}."
            )
        return array.astype(np.int64, copy=False)


@dataclass(frozen=True, eq=False)
class Problem:
    """A world ready to be learned, together with the truth that learners must not see.

    `env` and `functions` are a learner's whole input; everything below them is for checking the answer.
    """

    id: str  # `richobs.make(problem.id)` builds the same problem again
    env: Environment
    functions: FunctionClass
    n_states: int  # bound M on the latent states per level
    optimal_value: float = field(repr=False)  # V* (Eq. 1), exact; where noise hides states an upper bound only
    process: TabularProcess | None = field(repr=False)  # None where the observations are too many to list
    world: World = field(repr=False)  # the simulator, secret included
    optimal_function: Member | None = field(default=None, repr=False)  # Q* in `functions`; None where it is not
    _exact_value: Callable[[Policy], float | None] | None = field(default=None, repr=False)  # where not listed

    def value(self, policy: Policy, *, episodes: int = 200_000, confidence: float = 0.99, seed: int = 0) -> ValueReport:
        """Returns V(policy): exact where it can be computed, otherwise an estimate that says so.

        Exact where the process is listed, or where the policy says that it reads few enough bits to enumerate.

        Args:
            policy: what to value.
            episodes: how many rollouts an estimate takes; they do not count on `env`.
            confidence: probability with which the estimate's interval is to hold.
            seed: of the rollouts.
        """
        if self.process is not None:
            return ValueReport.known(self.process.value(policy))
        exact = self._exact_value(policy) if self._exact_value is not None else None
        if exact is not None:
            return ValueReport.known(exact)
        rng = keyed_generator(seed, self.id, "value")
        returns = PathEnvironment(self.world).rollout(policy, episodes, rng).returns
        return ValueReport.estimated(returns, self.world.reward_range, confidence)

    def optimal_policy(self) -> Policy:
        """Returns a policy that earns V*, from the truth (nothing is learned).

        Raises:
            AssumptionViolated: no reactive policy is known to.
        """
        if self.optimal_function is not None:
            return GreedyPolicy(self.functions.member(self.optimal_function))
        if self.process is not None:
            return self.process.optimal_policy()
        raise AssumptionViolated(
            f"{self.id}: noise of unbounded support shows every observation in every state, so no function of the "
            "observation is Q*, and the best reactive policy is not known in closed form."
        )

    @property
    def horizon(self) -> int:
        """Number of levels H."""
        return self.env.horizon

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        return self.env.n_actions


def hidden_tables(
    process: TabularProcess, class_size: int, rng: np.random.Generator
) -> tuple[list[Floats], tuple[int, ...]]:
    """Hides Q* among `class_size` tables a level: per level `[N, X, K]`, and the places where it is."""
    hidden = [copies_around(np.clip(table, 0, 1), class_size, rng) for table in process.q_tables]
    return [tables for tables, _ in hidden], tuple(place for _, place in hidden)


def table_problem(process: TabularProcess, levels: Sequence[Floats], truth: tuple[int, ...] | None) -> Problem:
    """Returns the problem of a process with the class whose tables are `[N, X, K]` per level; `truth` is Q* in it."""
    world = TabularWorld(process)
    return Problem(
        id="",
        env=PathEnvironment(world),
        functions=Layered([TableLevel(t, book) for t, book in zip(levels, process.codebooks, strict=True)]),
        n_states=process.n_states,
        optimal_value=process.optimum.value,
        process=process,
        world=world,
        optimal_function=truth,
    )


def tabular_problem(process: TabularProcess, class_size: int, rng: np.random.Generator) -> Problem:
    """Returns the problem of a process that satisfies Assumption 1, with the class that hides its Q*."""
    return table_problem(process, *hidden_tables(process, class_size, rng))


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
        policy: the greedy policy of a decoder, which looks at few coordinates, each only through "above 1/2".
        latent: the process with observation = state; rewards may not depend on the observation.
        on: per level `[S, D]` probability that coordinate i reads as on in state s, independently of the others.
        rotation: what turns coordinates into observations; None where they are the observations.

    Returns:
        None for any other policy: what it looks at is not known.
    """
    f = getattr(policy, "f", None)
    if type(policy) not in (GreedyPolicy, *GreedyPolicy.__subclasses__()) or not isinstance(f, LevelwiseFunction):
        return None
    choices: list[Floats] = []  # per level [S, K] how often each action is taken
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

"""R independent copies of a process side by side, for learners that change after every episode.

Each lane is a run of its own with its own table; playing them together only shares the overhead of Python. A learner sees
levels, observations and rewards, never a state.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from richobs.problem import Floats, Ints, Observations
from richobs.tabular import TabularProcess


class Play(NamedTuple):
    """One episode in every lane."""

    observations: tuple[Ints, ...]  # per level [R], as indices of the process's list
    actions: tuple[Ints, ...]  # per level [R]
    rewards: tuple[Floats, ...]  # per level [R]


class Learner(Protocol):
    """R tables that learn from whole episodes."""

    q: list[Floats]  # per level [R, X, K]

    def act(self, level: int, x: Ints, rng: np.random.Generator, /) -> Ints:
        """Returns `[R]` the action of each lane."""
        ...

    def learn(self, play: Play, /) -> None:
        """Takes one episode of every lane in."""
        ...


class Lanes:
    """The copies."""

    def __init__(self, process: TabularProcess, runs: int):
        self.process, self.runs = process, runs
        self.horizon, self.n_actions = process.horizon, process.n_actions
        self.sizes = tuple(e.shape[1] for e in process.emissions)  # observations per level
        self.episodes = 0  # in each lane
        self._start = _Law(process.start)
        self._emit = [_Law(e) for e in process.emissions]
        self._move = [_Law(t) for t in process.transitions]
        self._pay = [_Law(r.probs) for r in process.rewards]

    def play(self, learner: Learner, rng: np.random.Generator) -> Play:
        """Plays one episode in every lane; the learner only acts."""
        self.episodes += 1
        state = self._start.draw((), self.runs, rng)
        seen, acted, paid = [], [], []
        for level in range(self.horizon):
            x = self._emit[level].draw((state,), self.runs, rng)
            a = learner.act(level, x, rng)
            point = self._pay[level].draw((state, x, a), self.runs, rng)
            seen.append(x)
            acted.append(a)
            paid.append(self.process.rewards[level].values[state, x, a, point])
            if level < self.horizon - 1:
                state = self._move[level].draw((state, a), self.runs, rng)
        return Play(tuple(seen), tuple(acted), tuple(paid))

    def values(self, learner: Learner) -> Floats:
        """Returns `[R]` what the greedy policy of each lane earns, exactly."""
        return greedy_values(self.process, learner.q)


class TablePolicy:
    """A policy given as one table of actions per level."""

    def __init__(self, process: TabularProcess, tables: Iterable[Ints]):
        self.process, self.tables = process, tuple(tables)  # per level [X]

    def actions(self, level: int, x: Observations, /) -> Ints:
        """Returns `[n]` the actions for the observations."""
        return np.asarray(self.tables[level])[self.process.encode(level, x)]


def train(lanes: Lanes, learner: Learner, episodes: int, rng: np.random.Generator) -> None:
    """Plays and learns `episodes` more in every lane."""
    for _ in range(episodes):
        learner.learn(lanes.play(learner, rng))


def greedy_values(process: TabularProcess, q: Sequence[Floats]) -> Floats:
    """Returns `[R]` what the greedy policies of R tables earn, exactly; ties are broken at random, which leaves luck out.

    Args:
        process: the truth.
        q: per level `[R, X, K]`.
    """
    worth = np.zeros((len(q[0]), 1))
    for level in reversed(range(process.horizon)):
        best = q[level] == q[level].max(axis=2, keepdims=True)
        picks = best / best.sum(axis=2, keepdims=True)  # [R, X, K]
        emission = process.emissions[level]
        now = np.einsum("sx,sxk,rxk->rs", emission, process.rewards[level].mean, picks)
        if level < process.horizon - 1:
            later = np.einsum("skt,rt->rsk", process.transitions[level], worth)
            now = now + np.einsum("rsk,rsk->rs", np.einsum("sx,rxk->rsk", emission, picks), later)
        worth = now
    return worth @ process.start


def random_argmax(values: Floats, rng: np.random.Generator) -> Ints:
    """Returns `[n]` where each row of `values` `[n, K]` is largest; ties are broken at random."""
    best = values == values.max(axis=1, keepdims=True)
    return (best * (rng.random(values.shape) + 1)).argmax(axis=1)


class _Law:
    """Laws over the last axis, drawn for many rows at once; nothing is drawn where all are certain."""

    def __init__(self, probs: Floats):
        self._certain = probs.argmax(axis=-1) if (probs.max(axis=-1) == 1).all() else None
        self._steps = probs.cumsum(axis=-1)[..., :-1]

    def draw(self, rows: tuple[Ints, ...], n: int, rng: np.random.Generator) -> Ints:
        """Returns `[n]` one draw for each row."""
        if self._certain is not None:
            return np.broadcast_to(self._certain[rows], (n,))
        return (self._steps[rows] <= rng.random(n)[:, None]).sum(axis=1)

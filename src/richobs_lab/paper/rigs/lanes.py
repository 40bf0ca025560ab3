"""R independent runs side by side, for statements about learners that change after every episode.

Each lane is a run of its own with its own table; playing them together only shares the overhead of Python. All of them are
episodes of one call to the simulator: a policy is asked once per level with the episodes in the same order, so lane i is
episode i.
"""

from collections.abc import Sequence

import numpy as np

from richobs import Environment, Episodes, Policy, TabularProcess
from richobs.core.types import Floats, Ints, Observations, Path
from richobs.worlds.simulator import TabularWorld, WorldEnvironment
from richobs_lab.rivals.arms import Pulled
from richobs_lab.rivals.tabular import TableLearner, tied_law


class Lanes:
    """R copies of a process."""

    def __init__(self, process: TabularProcess, runs: int):
        self.process, self.runs = process, runs
        self.episodes = 0  # in each lane
        self._env = WorldEnvironment(TabularWorld(process))

    def play(self, policy: Policy, rng: np.random.Generator) -> Episodes:
        """Plays one episode in every lane."""
        self.episodes += 1
        return self._env.play(policy, self.runs, rng)

    def values(self, tables: TableLearner) -> Floats:
        """Returns `[R]` what the greedy policy of each lane earns, exactly."""
        return greedy_values(self.process, tables.q)


def train(lanes: Lanes, tables: TableLearner, episodes: int, rng: np.random.Generator) -> None:
    """Plays and learns `episodes` more in every lane."""
    for _ in range(episodes):
        tables.learn(lanes.play(tables.policy, rng))


def greedy_values(process: TabularProcess, q: Sequence[Floats]) -> Floats:
    """Returns `[R]` what the greedy policies of R tables earn, exactly; ties are broken at random, which leaves luck out.

    Args:
        process: the truth.
        q: per level `[R, X, K]`.
    """
    worth = np.zeros((len(q[0]), 1))
    for level in reversed(range(process.horizon)):
        picks = tied_law(q[level])  # [R, X, K]
        emission = process.emissions[level]
        now = np.einsum("sx,sxk,rxk->rs", emission, process.rewards[level].mean, picks)
        if level < process.horizon - 1:
            later = np.einsum("skt,rt->rsk", process.transitions[level], worth)
            now = now + np.einsum("rsk,rsk->rs", np.einsum("sx,rxk->rsk", emission, picks), later)
        worth = now
    return worth @ process.start


class SideBySideArms:
    """The K^H action sequences of an environment as arms; all pulls of a round are one call to the simulator."""

    def __init__(self, env: Environment):
        self.env = env
        self.n_arms = env.n_actions**env.horizon

    def pull(self, which: Ints, times: int, rng: np.random.Generator, /) -> Pulled:
        """Plays the action sequence of each arm so many times."""
        rows = np.repeat(self._actions(which), times, axis=0)
        returns = self.env.play(_Rows(rows), len(rows), rng).returns
        return Pulled(np.full(len(which), times), returns.reshape(len(which), times).sum(axis=1))

    def path(self, arm: int) -> Path:
        """Returns the action sequence of an arm; arms are numbered in lexicographic order."""
        return tuple(int(a) for a in self._actions(np.array([arm]))[0])

    def _actions(self, arms: Ints) -> Ints:
        """Returns `[n, H]` the actions of each arm."""
        digits = np.unravel_index(arms, (self.env.n_actions,) * self.env.horizon)
        return np.stack(digits, axis=1).astype(np.int64)


class _Rows:
    """Plays row i of `paths` `[n, H]` in episode i, whatever is seen."""

    def __init__(self, paths: Ints):
        self.paths = paths

    def actions(self, level: int, x: Observations, rng: np.random.Generator | None = None, /) -> Ints:
        """Returns `[n]` the actions of `level`."""
        return self.paths[:, level]

"""Arms to pull: what best-arm methods see, and the bandit that an environment is when only action sequences matter."""

from typing import NamedTuple, Protocol

import numpy as np

from richobs.problem import Environment, Floats, Ints, Observations, Path


class Arms(Protocol):
    """Arms with rewards in [0, 1]."""

    n_arms: int

    def pull(self, arms: Ints, rng: np.random.Generator, /) -> Floats:
        """Returns `[n]` one reward for each entry of `arms` `[n]`."""
        ...


class Choice(NamedTuple):
    """What a best-arm method answers."""

    arm: int
    pulls: int
    finished: bool  # by its own rule, rather than because the budget was spent


class PathArms:
    """The K^H action sequences of an environment as arms: the bandit of [KAL16] Appendix A, "The construction"."""

    def __init__(self, env: Environment):
        self.env = env
        self.n_arms = env.n_actions**env.horizon

    def pull(self, arms: Ints, rng: np.random.Generator, /) -> Floats:
        """Returns `[n]` the total reward of one episode for each entry of `arms` `[n]`."""
        return self.env.rollout(_Rows(self._digits(arms)), len(arms), rng).returns

    def path(self, arm: int) -> Path:
        """Returns the action sequence of an arm."""
        return tuple(int(a) for a in self._digits(np.array([arm]))[0])

    def _digits(self, arms: Ints) -> Ints:
        """Returns `[n, H]` the actions of each arm, lexicographic order."""
        digits = np.unravel_index(arms, (self.env.n_actions,) * self.env.horizon)
        return np.stack(digits, axis=1).astype(np.int64)


class _Rows:
    """Plays row i of `paths` `[n, H]` in episode i, whatever is seen."""

    def __init__(self, paths: Ints):
        self.paths = paths

    def actions(self, level: int, x: Observations, /) -> Ints:
        """Returns `[n]` the actions of `level`."""
        return self.paths[:, level]


class Scores:
    """Pulls and rewards of every arm so far, within a budget."""

    def __init__(self, arms: Arms, budget: int | None, rng: np.random.Generator):
        self.arms, self.rng = arms, rng
        self.left = budget
        self.pulls = np.zeros(arms.n_arms, dtype=np.int64)
        self.sums = np.zeros(arms.n_arms)

    def pull(self, which: Ints, times: int = 1) -> bool:
        """Pulls each arm of `which` so often; returns False if the budget only lasted for a random part of that."""
        wanted = np.repeat(which, times)
        enough = self.left is None or len(wanted) <= self.left
        if not enough:  # whole rounds first, then a random part of one
            rounds, rest = divmod(self.left or 0, len(which))
            wanted = np.concatenate([np.repeat(which, rounds), self.rng.permutation(which)[:rest]])
        if self.left is not None:
            self.left -= len(wanted)
        if len(wanted):
            np.add.at(self.sums, wanted, self.arms.pull(wanted, self.rng))
            np.add.at(self.pulls, wanted, 1)
        return enough

    def means(self, which: Ints) -> Floats:
        """Returns `[n]` the mean reward of each arm of `which`; minus infinity where it was never pulled."""
        pulls = self.pulls[which]
        return np.where(pulls > 0, self.sums[which] / np.maximum(pulls, 1), -np.inf)

    def best(self, which: Ints, *, finished: bool) -> Choice:
        """Returns the arm of `which` with the highest mean; ties are broken at random."""
        means = self.means(which)
        return Choice(int(self.rng.choice(which[means == means.max()])), int(self.pulls.sum()), finished)

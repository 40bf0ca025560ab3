"""Q-learning (Watkins 1989) with epsilon-greedy exploration: the undirected exploration most often used."""

import numpy as np

from richobs.baselines.lanes import Lanes, Play, random_argmax
from richobs.problem import Floats, Ints


class EpsilonGreedy:
    """Tables over (level, observation) that start at 0; a random action with probability `explore`, ties at random.

    Steps are 1/visits. An episode is replayed from its end, so that one success reaches the root at once: more than plain
    Q-learning does, and as much as undirected exploration can hope for. It promises nothing beyond the limit.
    """

    def __init__(self, lanes: Lanes, explore: float = 0.1):
        self.explore = explore
        self.q = [np.zeros((lanes.runs, size, lanes.n_actions)) for size in lanes.sizes]
        self._visits = [np.zeros_like(q) for q in self.q]
        self._lane = np.arange(lanes.runs)

    def act(self, level: int, x: Ints, rng: np.random.Generator, /) -> Ints:
        """Returns `[R]` greedy actions, some replaced by random ones."""
        greedy = random_argmax(self.q[level][self._lane, x], rng)
        anything = rng.integers(self.q[level].shape[2], size=len(x))
        return np.where(rng.random(len(x)) < self.explore, anything, greedy)

    def learn(self, play: Play, /) -> None:
        """Moves the value of every step towards reward plus best next value, last step first."""
        future: Floats | float = 0.0
        for level in reversed(range(len(self.q))):
            x, a = play.observations[level], play.actions[level]
            at = (self._lane, x, a)
            self._visits[level][at] += 1
            self.q[level][at] += (play.rewards[level] + future - self.q[level][at]) / self._visits[level][at]
            future = self.q[level][self._lane, x].max(axis=1)

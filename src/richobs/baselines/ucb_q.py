"""Q-learning with upper confidence bounds (Jin, Allen-Zhu, Bubeck and Jordan 2018, Algorithm 1, UCB-Hoeffding).

Is Q-learning provably efficient?, NeurIPS. There every reward lies in [0, 1] and values reach H; here totals do, so values
and bonuses are divided by H: b_t = c sqrt(H iota / t).
"""

import math

import numpy as np

from richobs.baselines.lanes import Lanes, Play, random_argmax
from richobs.problem import Floats, Ints

PROVEN = 2.0  # c: Azuma-Hoeffding over weights whose squares sum to at most 2H/t asks for 2 sqrt(H iota / t)


class UcbQ:
    """Tables over (level, observation) that start at 1; greedy in them, with step (H + 1) / (H + t) and a bonus b_t."""

    def __init__(self, lanes: Lanes, episodes: int, delta: float, c: float = PROVEN):
        """Makes the tables.

        Args:
            lanes: where it plays.
            episodes: that will be played; iota = log(S A T / delta) with T = episodes H.
            delta: how often the bounds may fail.
            c: scale of the bonus; below `PROVEN` nothing is proven.
        """
        self._lane, self._horizon = np.arange(lanes.runs), lanes.horizon
        self.q = [np.ones((lanes.runs, size, lanes.n_actions)) for size in lanes.sizes]
        self._value = [np.ones(q.shape[:2]) for q in self.q]
        self._visits = [np.zeros_like(q) for q in self.q]
        iota = math.log(max(lanes.sizes) * lanes.n_actions * episodes * lanes.horizon / delta)
        self._bonus = c * math.sqrt(lanes.horizon * iota)

    def act(self, level: int, x: Ints, rng: np.random.Generator, /) -> Ints:
        """Returns `[R]` the actions of the largest upper bounds."""
        return random_argmax(self.q[level][self._lane, x], rng)

    def learn(self, play: Play, /) -> None:
        """Moves every step's bound towards reward plus next value plus bonus, first step first, as printed."""
        H = self._horizon
        for level in range(H):
            x = play.observations[level]
            at = (self._lane, x, play.actions[level])
            self._visits[level][at] += 1
            t = self._visits[level][at]
            future: Floats | float = (
                self._value[level + 1][self._lane, play.observations[level + 1]] if level < H - 1 else 0.0
            )
            step = (H + 1) / (H + t)
            goal = play.rewards[level] + future + self._bonus / np.sqrt(t)
            self.q[level][at] = (1 - step) * self.q[level][at] + step * goal
            self._value[level][self._lane, x] = np.minimum(1.0, self.q[level][self._lane, x].max(axis=1))

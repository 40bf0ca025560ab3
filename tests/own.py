"""Somebody's environments, which richobs does not simulate, and the problem that one of them makes."""

import numpy as np

import richobs
from richobs.classes import Layered, TableLevel


class Own:
    """Somebody's environment: the action that equals the first observation mostly leads to where action 1 mostly pays."""

    declared = richobs.Declared(at_once=3)
    horizon, n_actions, reward_range = 2, 2, (0.0, 1.0)

    def play(self, policy, n, rng, levels=None):
        """Plays n episodes."""
        x = rng.integers(0, 2, n)
        first = policy.actions(0, x, rng)
        then = (rng.random(n) < np.where(first == x, 0.8, 0.2)).astype(np.int64)
        last = policy.actions(1, then, rng)
        paid = (then == 1) & (last == 1) & (rng.random(n) < 0.9)
        columns = [x, then], [first, last], [np.zeros(n), paid.astype(float)]
        return richobs.Episodes(*(column[:levels] for column in columns))


class Arms:
    """One level, one observation: action a pays the larger of two rewards with chance [a]; one number of `rng` decides."""

    horizon = 1

    def __init__(self, *chances, pays=(0.0, 1.0), **declared):
        self.chances, self.n_actions, self.reward_range, self.played = np.array(chances), len(chances), pays, 0
        self.declared = richobs.Declared(**{"identity": f"arms {chances}", **declared})

    def play(self, policy, n, rng, levels=None):
        """Plays n episodes."""
        self.played += n
        u, x = rng.random(n), np.zeros(n, dtype=np.int64)
        actions = policy.actions(0, x, rng)
        low, high = self.reward_range
        return richobs.Episodes([x], [actions], [np.where(u < self.chances[actions], high, low)])


ROOTS = [[[0.72, 0.18], [0.18, 0.72]], [[0.82, 0.1], [0.2, 0.8]], [[0.18, 0.8], [0.6, 0.7]]]
ENDS = [[[0.0, 0.0], [0.0, 0.9]], [[0.1, 0.2], [0.9, 0.0]], [[0.15, 0.1], [0.1, 0.98]]]
FUNCTIONS = Layered([TableLevel(ROOTS), TableLevel(ENDS)])  # the first one is Q* of that environment


def problem_of(world):
    """Returns the problem of that name."""
    return richobs.Problem(Own(), FUNCTIONS) if world == "own" else richobs.make(world)

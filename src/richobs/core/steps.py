"""Steps: what n episodes saw, did, earned and saw next at one level, as counts that add up.

Shapes: n episodes, X distinct observations of the level, X' distinct observations of the next, K actions.
"""

import math
from dataclasses import dataclass

import numpy as np

from richobs.core.types import Floats, Ints, Mask, Observations


@dataclass(frozen=True, eq=False)
class Steps:
    """How often n episodes did what at one level; observations are listed once.

    Counts are whole numbers, kept as floats because they may pass 2^63. Next observations are listed pair by pair: only
    pairs that occurred have an entry, so observations that never repeat take no more room than the episodes themselves.
    """

    n: int
    x: Observations  # [X, ...] the observations that were made
    visits: Floats  # [X, K] how often each action was taken there
    rewards: Floats  # [X, K] sum of what it earned
    next_x: Observations  # [X', ...] the observations that followed; none where they are not wanted
    pair: Ints  # [entries] where and what: x * K + action
    next: Ints  # [entries] which next observation
    moves: Floats  # [entries] how often

    @classmethod
    def of(
        cls,
        x: Observations,
        actions: Ints,
        rewards: Floats,
        next_x: Observations | None,
        n_actions: int,
        over: tuple[Mask, Mask] | None = None,
    ) -> "Steps":
        """Counts n samples, `[n]` of each. Episodes that are over count in n, and nowhere else.

        Args:
            x: `[n, ...]` what was seen.
            actions: what was done.
            rewards: what that earned.
            next_x: `[n, ...]` what was seen next; None where it is not wanted.
            n_actions: K.
            over: which episodes had ended before this level, and which before the next; None where none ends early.
        """
        n = len(x)
        goes_on = np.ones(n, dtype=bool)
        if over is not None:
            here = ~over[0]
            goes_on = ~over[1][here]
            x, actions, rewards = x[here], actions[here], rewards[here]
            next_x = None if next_x is None else next_x[here]
        rows, row = distinct(x)
        pair = row * n_actions + actions
        shape = (len(rows), n_actions)
        visits = np.bincount(pair, minlength=len(rows) * n_actions).astype(np.float64).reshape(shape)
        earned = np.bincount(pair, weights=rewards, minlength=len(rows) * n_actions).astype(np.float64).reshape(shape)
        if next_x is None:
            return cls(n, rows, visits, earned, x[:0], *no_moves())
        columns, column = distinct(next_x[goes_on])
        moves = counted_pairs(pair[goes_on], column, np.ones(len(column)), len(columns))
        return cls(n, rows, visits, earned, columns, *moves)

    def __add__(self, other: "Steps") -> "Steps":
        K = self.visits.shape[1]
        rows, row = distinct(np.concatenate([self.x, other.x]))
        columns, column = distinct(np.concatenate([self.next_x, other.next_x]))
        visits, rewards = np.zeros((2, len(rows), K))
        for part, place in ((self, row[: len(self.x)]), (other, row[len(self.x) :])):
            visits[place] += part.visits  # the observations of one part are distinct, so no place occurs twice
            rewards[place] += part.rewards
        pairs, nexts = [], []
        for part, first, first_next in ((self, 0, 0), (other, len(self.x), len(self.next_x))):
            pairs.append(row[first + part.pair // K] * K + part.pair % K)
            nexts.append(column[first_next + part.next])
        moves = np.concatenate([self.moves, other.moves])
        entries = counted_pairs(np.concatenate(pairs), np.concatenate(nexts), moves, len(columns))
        return Steps(self.n + other.n, rows, visits, rewards, columns, *entries)


def no_moves() -> tuple[Ints, Ints, Floats]:
    """Returns the entries of next observations that nobody wants."""
    return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)


def counted_pairs(pair: Ints, column: Ints, count: Floats, n_columns: int) -> tuple[Ints, Ints, Floats]:
    """Adds up the counts of equal (pair, column); returns both and the sum, in order."""
    if not len(pair):
        return no_moves()
    keys, place = np.unique(pair * n_columns + column, return_inverse=True)
    return keys // n_columns, keys % n_columns, np.bincount(place, weights=count).astype(np.float64)


def distinct(x: Observations) -> tuple[Observations, Ints]:
    """Returns the distinct observations, and `[n]` which of them each is; equal means equal byte by byte."""
    if x.ndim == 1 and x.dtype.kind in "iu":
        rows, row = np.unique(x, return_inverse=True)
        return rows, row
    plain = np.ascontiguousarray(x).reshape(len(x), math.prod(x.shape[1:]))  # also where there are no rows
    if plain.shape[1] == 0:  # observations that hold nothing are all equal
        return x[:1], np.zeros(len(x), dtype=np.int64)
    keys = plain.view(np.dtype((np.void, plain.dtype.itemsize * plain.shape[1])))[:, 0]
    _, first, row = np.unique(keys, return_index=True, return_inverse=True)
    return x[first], row

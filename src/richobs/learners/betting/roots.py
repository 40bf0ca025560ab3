"""What survivors promise at the root, and U: an upper bound on V* from every episode's first observation [U].

Shapes: N_0 members of level 0, m of them alive.
"""

import math
from typing import NamedTuple

import numpy as np

from richobs.core.functions import FunctionClass
from richobs.core.outcome import UPPER
from richobs.core.types import Floats, Ints, Observations
from richobs.learners.betting.ranges import Ranges
from richobs.learners.betting.reading import top_values
from richobs.stats import bets
from richobs.stats.shares import Series, Share

FIRST_LOOK = 32  # first observations before the first look
NEXT_LOOK = 1.5  # sizes of looks grow by this factor


class Top(NamedTuple):
    """The root with the largest upper bound."""

    member: int
    looked: int  # first observations at the last look; 0 before the first
    mean: float  # of its values at all first observations so far
    variance: float


class Roots:
    """Means of max_a f_0(x_0, a) and upper bounds on them, for the living members of level 0.

    First observations have one law whatever is played, so all episodes count. Looks are taken after numbers of observations
    that were fixed before anything was played, in the middle of a batch where need be.
    """

    def __init__(self, functions: FunctionClass, share: Share, ranges: Ranges):
        """Starts with the ranges that the class declares.

        Args:
            functions: the class.
            share: probability with which the bound of Q* may fail at any look.
            ranges: of rewards and values.
        """
        self._rounding = bets.ZETA * functions.horizon * ranges.scale
        self._functions = functions
        self._looks = Series(share)
        self._low, self._high = functions.value_bounds(0)
        self._sum, self._squares = np.zeros((2, len(self._high)))
        self._due, self._looked = FIRST_LOOK, 0
        self.upper = np.minimum(self._high, ranges.most)  # [N_0]
        self.n = 0

    def promise(self, members: Ints) -> Floats:
        """Returns `[m]` what members seem to be worth at the root."""
        mean = self._sum[members] / self.n if self.n else self.upper[members]
        return np.minimum(mean, self.upper[members])

    def largest(self, members: Ints) -> float:
        """Returns U: the most that one of the members, Q* among them, may be worth at the root."""
        return float(self.upper[members].max()) + self._rounding

    def top(self, members: Ints) -> "Top":
        """Returns the member that U comes from, and its values at what was seen."""
        member = int(members[self.upper[members].argmax()])
        mean = float(self._sum[member] / max(self.n, 1))
        variance = max(float(self._squares[member] / max(self.n, 1)) - mean**2, 0.0)
        return Top(member, self._looked, mean, variance)

    def absorb(self, x: Observations, members: Ints) -> None:
        """Adds first observations `[n, ...]`, and takes a look where one is due; only living members matter."""
        while len(x):
            part, x = x[: self._due - self.n], x[self._due - self.n :]
            top = top_values(self._functions, 0, members, part)
            self._sum[members] += top.values.sum(axis=1)[top.group]
            self._squares[members] += (top.values**2).sum(axis=1)[top.group]
            self.n += len(part)
            if self.n == self._due:
                self._due = math.ceil(NEXT_LOOK * self._due)
                self._look(members)

    def _look(self, members: Ints) -> None:
        share, self._looked = self._looks.next(), self.n
        mean = self._sum[members] / self.n
        variance = np.maximum(self._squares[members] / self.n - mean**2, 0.0)
        bound = bets.upper_bound_of_mean(mean, variance, self.n, self._low[members], self._high[members], share)
        self.upper[members] = np.minimum(self.upper[members], bound)
        share.claim(UPPER, (), self.n, self.largest(members))

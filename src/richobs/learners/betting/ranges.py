"""Ranges of rewards and values, in the problem's own units, and the scale on which bets are made.

At a level bets see f and y = r + max_a f_{h+1}(x', a) as numbers in [0, 1]: values less the smallest y that is possible
there, divided by the width of its range. The range of a level comes from the rewards of one step and the values of the next
level, so one large loss that good policies avoid does not make all other differences tiny. Shapes: H levels.
"""

from dataclasses import dataclass

import numpy as np

from richobs.core.environment import Environment, step_range
from richobs.core.functions import FunctionClass
from richobs.core.policies import TIE
from richobs.core.types import Floats, Mask
from richobs.stats.bets import ZETA

SURELY = 1e-6  # share of the range by which rounding may push the rewards so far plus a value of Q* out of it


@dataclass(frozen=True)
class Ranges:
    """What is surely true of rewards, totals, y and values under Q*."""

    least: float  # smallest total of an episode
    most: float  # largest total
    low: Floats  # [H] smallest y; never above 0
    width: Floats  # [H] of the range of y
    rest: Floats  # [H] the least that any policy earns from a level on, in expectation; never above 0
    jump: float  # largest value less `rest`
    slack: float  # how far rounding may push the rewards so far plus a value of Q* out of the range of totals
    ties: float = 0.0  # what a greedy policy may lose because nearly equal actions count as equal

    @classmethod
    def of(cls, env: Environment, functions: FunctionClass) -> "Ranges":
        """Returns the ranges that an environment declares and a class implies.

        For Q*, y is at least the smallest reward plus the smallest value of the next level (0 where the episode ends), and
        at least what the smallest total leaves after the largest possible rewards before. The same holds from above. Every
        range is widened to hold 0, and to be no narrower than what is added up in it is large, so that rounding errors are
        small beside its width.

        """
        H = functions.horizon
        lowest, highest = step_range(env)
        least, most = (float(v) for v in env.reward_range)
        bounds = [functions.value_bounds(h) for h in range(H)]
        bottom = np.array([float(b[0].min()) for b in bounds] + [0.0])
        top = np.array([float(b[1].max()) for b in bounds] + [0.0])
        levels = np.arange(H)
        before_least = np.maximum(levels * min(lowest, 0.0), least - (H - levels) * max(highest, 0.0))
        before_most = np.minimum(levels * max(highest, 0.0), most - (H - levels) * min(lowest, 0.0))
        low = np.maximum(lowest + np.minimum(bottom[1:], 0.0), least - before_most)
        high = np.minimum(highest + np.maximum(top[1:], 0.0), most - before_least)
        low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
        size = max(abs(lowest), abs(highest))
        high = np.maximum(high, low + np.maximum(size, np.maximum(np.abs(bottom), np.abs(top))[1:]))
        rest = np.minimum(np.maximum((H - levels) * min(lowest, 0.0), least - before_most), 0.0)
        # Rewards of one sign are rounded relative to a sum that the totals bound; others may cancel.
        scale = max(most - least, float((high - low).max()))
        slack = SURELY * max(scale, H * size if lowest < 0 else 0.0) + H * ZETA * scale
        return cls(least, most, low, high - low, rest, float((top[:-1] - rest).max()), slack, lost_to_ties(functions))

    @classmethod
    def plain(cls, functions: FunctionClass) -> "Ranges":
        """Returns the ranges of nonnegative rewards whose totals are at most 1."""
        H = functions.horizon
        top = max(float(functions.value_bounds(h)[1].max()) for h in range(H))
        return cls(0.0, 1.0, np.zeros(H), np.ones(H), np.zeros(H), top, SURELY + H * ZETA, lost_to_ties(functions))

    @property
    def span(self) -> float:
        """Width of the range of totals."""
        return self.most - self.least

    @property
    def scale(self) -> float:
        """The largest width of a level's range, or of the totals: declared rounding errors are shares of it."""
        return max(float(self.width.max()), self.span)

    @property
    def rounded(self) -> float:
        """What rounding may hide of a policy's loss: every value of Q* is off by a small part of ZETA of the range."""
        return 2 * len(self.width) * ZETA * self.scale

    @property
    def hidden(self) -> float:
        """What the greedy policy of Q* may lose: to rounding, and to ties. Agreement counts ties among the gaps."""
        return self.rounded + self.ties

    def unit(self, level: int, values: Floats) -> Floats:
        """Returns values of f or y at a level on the scale of bets; those outside of the range are cut to it."""
        return np.clip((values - self.low[level]) / self.width[level], 0.0, 1.0)

    def impossible(self, totals: Floats) -> Mask:
        """Returns `[m]` which rows of expected totals `[m, n]`, rewards so far and what is predicted, leave their range."""
        return np.any((totals > self.most + self.slack) | (totals < self.least - self.slack), axis=1)

    def unit_totals(self, totals: Floats) -> Floats:
        """Returns totals of episodes as numbers in [0, 1]."""
        return np.clip((totals - self.least) / self.span, 0.0, 1.0)


def lost_to_ties(functions: FunctionClass) -> float:
    """Returns what all levels may lose because `greedy_actions` takes a smaller action that is worse by at most TIE."""
    largest = [max(1.0, *map(abs, functions.value_range(h))) for h in range(functions.horizon)]
    return float(TIE * (functions.n_actions - 1) * sum(largest))

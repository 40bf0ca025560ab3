"""What a betting search may need: what similar worlds needed, the least by agreement, and what surely suffices."""

import bisect
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from richobs.core.problem import Problem
from richobs.core.settings import Settings
from richobs.learners.base import PlanRow
from richobs.learners.betting.state import SHARES
from richobs.learners.similar import Measured, similar_rows
from richobs.stats import bets
from richobs.stats.shares import SERIES


@dataclass(frozen=True)
class BettingPlan:
    """What similar worlds needed, the least that agreement can take, and what surely suffices where that is known."""

    max_episodes: int | None  # with probability 1 - delta; None where nothing is guaranteed
    least: int  # episodes of one candidate with which all survivors can agree
    similar: tuple[Measured, ...]  # the nearest first
    title = "betting: a search that fixes no size in advance"

    def rows(self) -> Iterator[PlanRow]:
        """Yields the plan line by line."""
        yield from similar_rows(self.similar)
        where = "docs/betting.md, B3.2: all survivors agree with the first candidate at once"
        yield PlanRow("at the least", "by agreement", self.least, "episodes", where)
        if self.max_episodes is not None:
            yield PlanRow("worst case", "surely enough", self.max_episodes, "episodes", "docs/betting.md, Theorem 5")

    def as_json(self) -> dict[str, Any]:
        """Returns the plan as plain values."""
        return {
            "max_episodes": self.max_episodes,
            "least_by_agreement": self.least,
            "similar": [m._asdict() for m in self.similar],
        }


def least_by_agreement(problem: Problem, settings: Settings) -> int:
    """Returns the fewest episodes with which all survivors can agree with the first candidate that has accounts [B3.2]."""
    H = problem.horizon
    largest = max(float(problem.functions.value_bounds(h)[1].max()) for h in range(H))
    bet = bets.Agreement.of(settings.epsilon - 2 * H * bets.ZETA, float(np.clip(largest, settings.epsilon, 1.0)), H)
    needed = math.log(SERIES * 2 * math.log(2) ** 2 / (SHARES["agreement"] * settings.delta))

    def is_enough(n: int) -> bool:
        return bet.log_wealth(n, np.zeros(len(bet.bets))) >= needed

    most = 1
    while not is_enough(most):  # wealth that loses nothing grows with every episode
        most *= 2
    return bisect.bisect_left(range(most + 1), True, lo=most // 2, key=is_enough)

"""What a certified search may need: what surely suffices, and what similar worlds needed."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple

from richobs.core.problem import Problem
from richobs.learners.base import PlanRow

MEASURED = "measured.json"  # written by benchmarks/certified.py


class Measured(NamedTuple):
    """What certified runs on one world needed (`benchmarks/certified.py`)."""

    world: str
    horizon: int
    n_actions: int
    log_size: float
    epsilon: float
    delta: float
    runs: int
    episodes: tuple[int, int, int]  # least, median, most

    def distance(self, problem: Problem, epsilon: float) -> float:
        """Returns how far this world is from a problem: in levels, actions, log of the class and epsilon, each by ratio."""
        size = max(1.0, problem.functions.log_size)
        ratios = (
            self.horizon / problem.env.horizon,
            self.n_actions / problem.env.n_actions,
            max(1.0, self.log_size) / size,
            self.epsilon / epsilon,
        )
        return math.sqrt(sum(math.log(ratio) ** 2 for ratio in ratios))


@dataclass(frozen=True)
class CertifiedPlan:
    """What surely suffices, and what similar worlds needed."""

    max_episodes: int | None  # with probability 1 - delta; None where n_states is unknown or nothing is guaranteed
    similar: tuple[Measured, ...]  # the nearest first
    title = "certified: a search that fixes no size in advance"

    def rows(self) -> Iterator[PlanRow]:
        """Yields the plan line by line."""
        section = "similar worlds needed"
        for m in self.similar:
            least, median, most = m.episodes
            about = f"epsilon {m.epsilon:g}, 10^{m.log_size / math.log(10):.0f} functions, median of {m.runs} runs"
            yield PlanRow(section, m.world, median, f"episodes ({least:,} to {most:,})", about)
        if self.max_episodes is not None:
            yield PlanRow("worst case", "surely enough", self.max_episodes, "episodes", "docs/certified.md, Theorem 2")

    def as_json(self) -> dict[str, Any]:
        """Returns the plan as plain values."""
        return {"max_episodes": self.max_episodes, "similar": [m._asdict() for m in self.similar]}


def similar_worlds(problem: Problem, epsilon: float, at_most: int = 3) -> tuple[Measured, ...]:
    """Returns what was measured on the worlds that are most like a problem, the nearest first."""
    text = resources.files("richobs.learners.certified").joinpath(MEASURED).read_text(encoding="utf-8")
    known = [Measured(**{**row, "episodes": tuple(row["episodes"])}) for row in json.loads(text)]
    return tuple(sorted(known, key=lambda m: m.distance(problem, epsilon))[:at_most])

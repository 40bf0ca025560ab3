"""What a learner needed on worlds that were measured, and which of these are most like a problem."""

import json
import math
import pathlib
from collections.abc import Iterable, Iterator
from importlib import resources
from typing import NamedTuple

from richobs.core.problem import Problem
from richobs.learners.base import PlanRow

MEASURED = "measured.json"  # beside the learner's code, written by its benchmark


class Measured(NamedTuple):
    """What runs of one learner on one world needed."""

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


def measured(problem: Problem, world: str, epsilon: float, delta: float, episodes: Iterable[int]) -> Measured:
    """Returns what runs on a world needed, as a row for `write_measured`.

    Args:
        problem: the world, built.
        world: its name, without the seed of its secret.
        epsilon: that was asked for.
        delta: that was asked for.
        episodes: of every run.
    """
    ordered = sorted(episodes)
    n = len(ordered)
    median = (ordered[(n - 1) // 2] + ordered[n // 2]) // 2
    size = round(problem.functions.log_size, 2)
    spread = (ordered[0], median, ordered[-1])
    return Measured(world, problem.horizon, problem.n_actions, size, epsilon, delta, n, spread)


def write_measured(rows: Iterable[Measured], path: pathlib.Path) -> None:
    """Writes what was measured, a line for each world; a row that occurs twice is written once."""
    lines = dict.fromkeys(f"  {json.dumps(row._asdict())}" for row in rows)
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def read_measured(package: str) -> list[Measured]:
    """Returns what was measured of the learner in a package such as "richobs.learners.betting"."""
    text = resources.files(package).joinpath(MEASURED).read_text(encoding="utf-8")
    return [Measured(**{**row, "episodes": tuple(row["episodes"])}) for row in json.loads(text)]


def similar_worlds(package: str, problem: Problem, epsilon: float, at_most: int = 3) -> tuple[Measured, ...]:
    """Returns what was measured on the worlds that are most like a problem, the nearest first.

    Args:
        package: of the learner.
        problem: what to compare with.
        epsilon: that is asked for.
        at_most: how many worlds.
    """
    return tuple(sorted(read_measured(package), key=lambda m: m.distance(problem, epsilon))[:at_most])


def similar_rows(similar: Iterable[Measured]) -> Iterator[PlanRow]:
    """Yields a line of a plan for each of some worlds."""
    for m in similar:
        least, median, most = m.episodes
        about = f"epsilon {m.epsilon:g}, 10^{m.log_size / math.log(10):.0f} functions, median of {m.runs} runs"
        yield PlanRow("similar worlds needed", m.world, median, f"episodes ({least:,} to {most:,})", about)

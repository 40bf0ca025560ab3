"""How fast the paper's algorithm runs at its own constants.

Run with `python benchmarks/lsvee.py`. One core: pin BLAS to one thread to compare, for instance with OMP_NUM_THREADS=1.
"""

import os
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import richobs
from measure import cpu_seconds, publish
from richobs.classes import TableLevel
from richobs.core.errors import PrecisionError
from richobs.core.settings import Settings
from richobs_lab.lsvee import Lsvee
from transcription import Transcription


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Returns the wall-clock seconds of one call, and its result."""
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def near_optimal(problem: richobs.Problem, outcome: richobs.Outcome) -> str:
    gap = problem.optimal_value - problem.value(outcome.policy).value
    return f"{outcome.episodes:.2e} episodes, {gap:.2g} below optimal"


def learn(horizon: int, class_size: int, epsilon: float, repeats: Any = "skip") -> tuple[str, float, str, str]:
    problem = richobs.make("lock", horizon=horizon, noise_bits=2, functions="tables", class_size=class_size)
    name = f"lock/{horizon}, {class_size} tables a level, epsilon {epsilon:g}" + (
        ", verbatim" if repeats != "skip" else ""
    )
    asked: dict[str, Any] = {"epsilon": epsilon, "delta": 0.1, "learner": "lsvee", "tuning": {"repeats": repeats}}
    try:
        seconds, outcome = timed(lambda: richobs.learn(problem, **asked, progress=False))
    except PrecisionError as refused:
        return name, float("nan"), "s", f"refused: {str(refused).partition('.')[0]}..."
    return name, seconds, "s", near_optimal(problem, outcome)


def look_up(table: Any, level: int, x: Any) -> Any:
    return table[x]


def against_transcription() -> list[tuple[str, float, str, str]]:
    """The plain transcription at H = 1, where its samples fit into memory."""
    problem = richobs.make("bandit", n_contexts=5, n_actions=2, class_size=16)
    constants = Lsvee().constants(problem, Settings(epsilon=0.99, delta=0.5))
    asked: dict[str, Any] = {"epsilon": 0.99, "delta": 0.5, "learner": "lsvee", "progress": False}
    assert isinstance(problem.functions, richobs.Layered)
    (level,) = problem.functions.levels
    assert isinstance(level, TableLevel)
    tables = level.tables
    plain = [partial(look_up, t) for t in tables]
    slow, name = timed(lambda: Transcription(problem.env, plain, constants, np.random.default_rng(0)).run())
    fast = cpu_seconds(lambda: richobs.learn(problem, **asked), repeats=3)
    stream, outcome = timed(lambda: richobs.learn(problem, **asked, engine="stream"))
    sizes = f"bandit, 16 functions, {constants.search.n_train:,} samples"
    for found in (richobs.LearnedPolicy(problem.functions, (name,)), outcome.policy):
        assert problem.optimal_value - 0.99 <= problem.value(found).value
    return [
        (f"plain transcription: {sizes}", slow, "s", ""),
        ("  counted engine, same problem", fast, "s", ""),
        ("  streaming engine, same problem", stream, "s", ""),
        ("  transcription / counted", slow / fast, "ratio", ""),
        ("  transcription / streaming", slow / stream, "ratio", ""),
    ]


def main() -> None:
    rows = [learn(10, 200, 0.1), learn(20, 200, 0.1)]
    for horizon in (10, 20):
        times = {e: min(learn(horizon, 200, e)[1] for _ in range(3)) for e in (0.1, 0.01)}
        rows.append(
            (
                f"  lock/{horizon}: time at epsilon 0.01 / at 0.1",
                times[0.01] / times[0.1],
                "ratio (goal: at most 1.3)",
                "",
            )
        )
    rows += [learn(10, 200, 0.001), learn(20, 200, 0.001), learn(20, 5000, 0.1)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 if sys.platform == "darwin" else 1024) / 1024
    rows.append(("  peak memory so far", peak, "GiB (goal: under 4)", ""))
    rows.append(learn(5, 200, 0.1, repeats="verbatim"))
    rows += against_transcription()
    publish(
        "lsvee",
        "LSVEE at the paper's constants, delta = 0.1, one core",
        ("what", "value", "unit", "result"),
        rows,
        "Goals: lock/10 under 2 s, lock/20 under 10 s, 5,000 tables a level (10^74 functions) under 60 s.",
    )


if __name__ == "__main__":
    main()

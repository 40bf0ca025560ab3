"""How many episodes a certificate takes: locks by horizon, and other worlds.

Run with `python benchmarks/certified.py [SEEDS]` (default 20). Every run is checked against the truth.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import math
import statistics
import sys
import time

import richobs
from measure import publish

EPSILON, DELTA = 0.1, 0.05
LOCKS = {5: 12_000, 10: 25_000, 20: 60_000}  # horizon, with as many noise bits -> most episodes allowed
OTHERS = [
    "lock/40,noise_bits=10",
    "diabolical/5",
    "diabolical/10",
    "random/4",
    "mdp",
    "disjoint",
    "disjoint,vectors=True",
]


def row(world: str, seeds: int, goal: str) -> tuple[str, str, str, str, float, str, str]:
    """Runs a world with several seeds; returns its line of the table."""
    episodes, seconds, right = [], [], 0
    size = richobs.make(world).functions.log_size / math.log(10)
    for seed in range(seeds):
        problem = richobs.make(f"{world},seed={seed}")
        begin = time.perf_counter()
        outcome = richobs.learn(problem, epsilon=EPSILON, delta=DELTA, seed=seed)
        seconds.append(time.perf_counter() - begin)
        value = problem.value(outcome.policy)
        true = problem.optimal_value <= outcome.upper + 1e-12 and value.high >= outcome.lower  # type: ignore[operator]
        right += true and problem.optimal_value - value.high <= EPSILON
        episodes.append(outcome.episodes)
    middle = statistics.median(episodes)
    spread = f"{min(episodes):,} to {max(episodes):,}"
    return world, f"10^{size:.0f}", f"{middle:,.0f}", spread, statistics.median(seconds), goal, f"{right} of {seeds}"


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    rows = [row(f"lock/{h},noise_bits={h}", seeds, f"{goal:,}") for h, goal in LOCKS.items()]
    rows += [row(world, max(1, seeds // 4), "") for world in OTHERS]
    publish(
        "certified",
        f"Episodes to a certificate with epsilon = {EPSILON}, delta = {DELTA}; the world's secret changes with the seed",
        ("world", "functions", "median episodes", "range", "median s", "goal", "true and epsilon-optimal"),
        rows,
        "Streaming engine, one core.",
    )


if __name__ == "__main__":
    main()

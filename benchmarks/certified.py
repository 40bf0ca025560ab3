"""How many episodes a certificate takes: locks by horizon, and other worlds.

Run with `python benchmarks/certified.py [SEEDS]` (default 20; some minutes on two cores). Every run is checked against the
truth, and the world's secret changes with the seed.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import math
import multiprocessing
import statistics
import sys
import time
from typing import NamedTuple

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


class Run(NamedTuple):
    """One certified run."""

    world: str
    episodes: int
    seconds: float
    right: bool  # both bounds hold, and the policy is epsilon-optimal


def one_run(task: tuple[str, int]) -> Run:
    world, seed = task
    problem = richobs.make(f"{world},seed={seed}")
    begin = time.perf_counter()
    outcome = richobs.learn(problem, epsilon=EPSILON, delta=DELTA, seed=seed)
    seconds = time.perf_counter() - begin
    assert outcome.upper is not None
    assert outcome.lower is not None
    value = problem.value(outcome.policy)
    bounds_hold = problem.optimal_value <= outcome.upper + 1e-12 and value.high >= outcome.lower
    return Run(world, outcome.episodes, seconds, bounds_hold and problem.optimal_value - value.high <= EPSILON)


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    worlds = {f"lock/{h},noise_bits={h}": seeds for h in LOCKS} | dict.fromkeys(OTHERS, max(1, seeds // 10))
    goals = {f"lock/{h},noise_bits={h}": f"{goal:,}" for h, goal in LOCKS.items()}
    with multiprocessing.Pool(2) as pool:
        runs = pool.map(one_run, [(world, seed) for world, n in worlds.items() for seed in range(n)], chunksize=1)
    rows = []
    for world in worlds:
        mine = [r for r in runs if r.world == world]
        episodes = [r.episodes for r in mine]
        rows.append(
            (
                world,
                f"10^{richobs.make(world).functions.log_size / math.log(10):.0f}",
                f"{statistics.median(episodes):,.0f}",
                f"{min(episodes):,} to {max(episodes):,}",
                goals.get(world, ""),
                statistics.median(r.seconds for r in mine),
                f"{sum(r.right for r in mine)} of {len(mine)}",
            )
        )
    publish(
        "certified",
        f"Episodes to a certificate with epsilon = {EPSILON}, delta = {DELTA}",
        ("world", "functions", "median episodes", "range", "goal", "median s", "right"),
        rows,
        "Streaming engine, one core per run. Right: both bounds hold and the policy is epsilon-optimal.",
    )


if __name__ == "__main__":
    main()

"""How many episodes a certificate of the betting search takes, beside the most that the project allows itself.

Run with `python benchmarks/betting.py --seeds 20 --workers 2` (about five minutes on two cores). The world's secret changes
with the seed, and every answer is checked against the truth. It writes `benchmarks/results/betting.json`.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import multiprocessing
import statistics
import sys
import time
from collections import Counter
from typing import NamedTuple

import richobs
from measure import publish
from richobs.core.settings import Settings
from richobs.learners import LEARNERS
from richobs.runs.session import run

DELTA = 0.05
LIMIT = 200_000  # episodes; a run that spends them counts with them, and as open


class Case(NamedTuple):
    """One world at one epsilon."""

    world: str
    epsilon: float = 0.1
    goal: int | None = None  # median of episodes, at most
    seeds: float = 1.0  # share of the seeds that are asked for


CASES = [
    Case("lock/5,noise_bits=5", goal=250),
    Case("lock/10,noise_bits=10", goal=300),
    Case("lock/20,noise_bits=20", goal=400),
    Case("lock/40,noise_bits=10", goal=600, seeds=0.5),
    Case("lock/80,noise_bits=10", goal=1000, seeds=0.2),
    Case("lock/5,noise_bits=5,swap=0.5,fail=0.1", goal=350),
    Case("lock/10,noise_bits=10,swap=0.5,fail=0.1", goal=500),
    Case("lock/10,noise_bits=10", 0.03),
    Case("lock/10,noise_bits=10", 0.01),
    Case("lock/5,noise=gaussian"),
    Case("diabolical/5"),
    Case("diabolical/10", goal=600),
    Case("diabolical/20", goal=2800, seeds=0.2),
    Case("random/4", goal=350),
    Case("random/4,class_size=1000", goal=500),
    Case("random/8"),
    Case("mdp", goal=350),
    Case("mdp,class_size=1000", goal=500),
    Case("disjoint", goal=350),
    Case("deep-sea/8"),
    Case("bandit"),
]


class Run(NamedTuple):
    """One run."""

    episodes: int
    seconds: float
    right: bool  # the policy is as close to V* as claimed, and both bounds hold
    by: str  # what certified it


def one_run(task: tuple[str, float, int]) -> Run:
    world, epsilon, seed = task
    LEARNERS.setdefault("betting", "richobs.learners.betting:Betting")
    problem = richobs.make(f"{world},seed={seed}")
    settings = Settings(epsilon=epsilon, delta=DELTA, learner="betting", seed=seed, max_episodes=LIMIT)
    begin = time.process_time()
    outcome = run(problem, settings)
    seconds = time.process_time() - begin
    assert outcome.upper is not None
    assert outcome.lower is not None
    value = problem.value(outcome.policy)
    near = problem.optimal_value - value.high <= outcome.epsilon
    right = near and problem.optimal_value <= outcome.upper + 1e-9 and value.high >= outcome.lower
    return Run(outcome.episodes, seconds, right, outcome.constants.closed_by)


def main() -> None:
    parser = argparse.ArgumentParser(description="Episodes and CPU seconds of the betting search.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--worlds", nargs="*", help="only cases whose world begins with one of these")
    given = parser.parse_args()
    cases = [c for c in CASES if not given.worlds or c.world.startswith(tuple(given.worlds))]
    rows = []
    with multiprocessing.Pool(given.workers) as pool:
        for case in cases:
            seeds = max(1, round(case.seeds * given.seeds))
            runs = pool.map(one_run, [(case.world, case.epsilon, seed) for seed in range(seeds)], chunksize=1)
            episodes = [r.episodes for r in runs]
            ways = ", ".join(f"{by} {n}" for by, n in Counter(r.by for r in runs).most_common())
            rows.append(
                (
                    case.world,
                    case.epsilon,
                    f"{statistics.median(episodes):,.0f}",
                    f"{min(episodes):,} to {max(episodes):,}",
                    "" if case.goal is None else f"{case.goal:,}",
                    round(statistics.median(r.seconds for r in runs), 3),
                    f"{sum(r.right for r in runs)} of {len(runs)}",
                    ways,
                )
            )
            print(*rows[-1], sep=" | ", file=sys.stderr)
    publish(
        "betting",
        f"Episodes to a certificate by betting, delta = {DELTA}",
        ("world", "epsilon", "median episodes", "range", "goal", "median CPU s", "right", "certified by"),
        rows,
        "Streaming engine, one thread a run. Right: the gap is as small as claimed, and both bounds hold.",
    )


if __name__ == "__main__":
    main()

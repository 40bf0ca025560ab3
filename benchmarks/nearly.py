"""What happens where the class holds the truth only nearly, told so and not told? Claims are checked exactly.

Run with `nice python benchmarks/nearly.py` (about half an hour on one core; `--runs 20` for a look). Two kinds of problems:

- *tables*: random processes of 4 levels, 4 states and 3 actions. The class is a list of 200 functions. One of them is within
  eta of Q*, each of its values off by at most eta; the others are off by up to 0.05 to 0.5.
- *lake*: slippery FrozenLake, 4x4, 12 moves, with the Q functions of a grid of slips that misses the real one.
  eta is how far the nearest of them is from Q*; `models` has the models themselves, and alpha is their total variation.

Each is run with the tolerance that is true, and with none. Results go to `benchmarks/results/nearly.json`.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import functools
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import richobs
from measure import publish
from richobs.classes import Listed, TableLevel
from richobs.core.errors import BrokenPromise
from richobs.core.process import Rewards, TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.worlds.simulator import TabularWorld, WorldEnvironment
from richobs_lab.intervals import binomial_interval

LIMIT = 20_000  # episodes
ROUNDING = 1e-9
COLUMNS = (
    *("problem", "off by", "tolerance told", "epsilon", "delta", "runs", "median episodes", "claims false"),
    *("false, 95% (exact binomial)", "noticed", "wider than epsilon", "closed by", "CPU s"),
)


class Case(NamedTuple):
    """A problem, and what is true of a policy in it."""

    env: Any
    functions: Any
    best: float  # V*
    value: Callable[[Any], float]  # of a policy


def tables(seed: int, eta: float) -> Case:
    """Returns a random process and a list of 200 functions, one of them within eta of Q*."""
    rng = keyed_generator(seed, "nearly")
    H, S, K, N = 4, 4, 3, 200
    moves = rng.dirichlet([0.5] * S, size=(S, K))
    pays = Rewards.bernoulli(rng.random((S, 1, K)), 1 / H)
    process = TabularProcess.from_flat(H, rng.dirichlet([1.0] * S), moves, np.eye(S), pays)
    size = np.exp(rng.uniform(np.log(0.05), np.log(0.5), size=(N, 1, 1)))
    near = int(rng.integers(N))
    size[near] = eta
    levels = [
        TableLevel(np.clip(q + size * rng.uniform(-1, 1, size=(N, *q.shape)), 0, 1), book)
        for q, book in zip(process.q_tables, process.codebooks, strict=True)
    ]
    return Case(WorldEnvironment(TabularWorld(process)), Listed(levels), process.optimum.value, process.value)


def measured(
    name: str, make: Callable[[int, float], Case], off: float, told: float, runs: int, **asked: Any
) -> tuple[Any, ...]:
    """Returns what became of the runs of one cell."""
    begin = time.process_time()
    spent, false, noticed, wide, ways = [], 0, 0, 0, Counter[str]()
    for seed in range(runs):
        case = make(seed, off)
        try:
            found = richobs.learn(
                case.env, case.functions, seed=seed, tolerance=told, max_episodes=LIMIT, progress=False, **asked
            )
        except BrokenPromise:
            noticed += 1
            continue
        value = case.value(found.policy)
        true = case.best - value <= found.epsilon + ROUNDING
        if found.upper is not None and found.lower is not None:
            true = true and case.best <= found.upper + ROUNDING and value >= found.lower - ROUNDING
        false += not true
        wide += found.epsilon > asked["epsilon"]
        ways[found.reason.name] += 1
        spent.append(found.episodes)
    low, high = binomial_interval(false, runs, 0.95)
    median = float(np.median(spent)) if spent else None
    row = (
        name,
        off,
        told,
        asked["epsilon"],
        asked["delta"],
        runs,
        median,
        false,
        f"[{low:.3f}, {high:.3f}]",
        noticed,
        wide,
    )
    how = ", ".join(f"{way} {n}" for way, n in ways.most_common())
    result = (*row, how, round(time.process_time() - begin, 1))
    print(*result, sep="; ", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Claims where the class holds the truth only nearly.")
    parser.add_argument("--runs", type=int, default=200, help="of each cell")
    parser.add_argument("--only", default="", help="kinds whose name begins with this")
    given = parser.parse_args()
    rows = []
    for off in (0.0, 0.01, 0.02, 0.05):
        cell = functools.partial(measured, "tables", tables, off, runs=given.runs, epsilon=0.15, delta=0.1)
        rows += [cell(told=told) for told in sorted({0.0, off})]
    publish("nearly", "Classes that hold the truth nearly: claims with and without the tolerance", COLUMNS, rows, "")


if __name__ == "__main__":
    main()

"""What happens where the class holds the truth only nearly, told so and not told? Claims are checked exactly.

Run with `nice python benchmarks/nearly.py` (about an hour on one core; `--runs 20` for a look, `--only lake` for some rows).

- *tables*: random processes of 4 levels, 4 states and 3 actions. The class is a list of 200 functions. One of them is within
  eta of Q*, its values off by up to eta, in one direction; the others are the Q* of other such processes.
- *lake*: slippery FrozenLake, 4x4, 12 moves, with a grid of slips that misses the real one by a quarter to half of its step.
  For `betting` the tolerance is how far the nearest Q function is from Q*, for `models` the total variation of laws.

Each is run with the tolerance that is true, and with none. Results go to `benchmarks/results/nearly.json`.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import functools
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import richobs
from measure import RESULTS, publish
from richobs.classes import Listed, TableLevel
from richobs.core.errors import BrokenPromise
from richobs.core.process import Rewards, TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats
from richobs.worlds.simulator import TabularWorld, WorldEnvironment
from richobs_lab.intervals import binomial_interval
from richobs_lab.worlds.frozen_lake import neighbours
from richobs_lab.worlds.model_environment import ModelEnvironment

LIMIT = 20_000  # episodes
ROUNDING = 1e-9
FILE = RESULTS / "nearly.json"
COLUMNS = (
    *("problem", "learner", "off by", "told", "epsilon", "delta", "runs", "median episodes", "claims false"),
    *("false, 95% (exact binomial)", "noticed", "wider than epsilon", "median epsilon claimed", "closed by", "CPU s"),
)
HOLES = (5, 7, 11, 12)
MOVES = 12


class Case(NamedTuple):
    """A problem, what is true of a policy in it, and how far the class is from the truth."""

    env: Any
    functions: Any
    best: float  # V*
    value: Callable[[Any], float]  # of a policy
    off: float


def random_process(rng: np.random.Generator) -> TabularProcess:
    """Returns a process of 4 levels, 4 states that are seen, and 3 actions."""
    moves = rng.dirichlet([0.5] * 4, size=(4, 3))
    pays = Rewards.bernoulli(rng.random((4, 1, 3)), 1 / 4)
    return TabularProcess.from_flat(4, rng.dirichlet([1.0] * 4), moves, np.eye(4), pays)


def tables(off: float, seed: int) -> Case:
    """Returns a random process and 200 functions, the first within `off` of Q*."""
    rng = keyed_generator(seed, "nearly")
    process, sign = random_process(rng), rng.choice([-1, 1])
    others = [random_process(rng).q_tables for _ in range(199)]
    levels = []
    for h, (q, book) in enumerate(zip(process.q_tables, process.codebooks, strict=True)):
        near = q + sign * rng.uniform(0, off, size=q.shape)
        levels.append(TableLevel(np.clip([near, *(other[h] for other in others)], 0, 1), book))
    return Case(WorldEnvironment(TabularWorld(process)), Listed(levels), process.optimum.value, process.value, off)


def lakes(slips: Floats) -> richobs.Simulators:
    """Returns the models of a lake in which a move goes to either side with the chance of each of `slips`."""
    to = np.stack([np.roll(neighbours(16), -turn, axis=1) for turn in (-1, 0, 1)])[:, None]  # [3, 1, C, K]
    shape, goal = (3, len(slips), 16, 4), to == 15
    chance = np.broadcast_to(np.stack([slips, 1 - 2 * slips, slips])[:, :, None, None], shape)
    ends = goal | np.isin(to, HOLES)
    return richobs.Simulators.of_outcomes(chance, to, goal.astype(float), ends, MOVES, start=np.eye(16)[0])


def lake(step: float, learner: str, seed: int) -> Case:
    """Returns a lake and a grid of slips, `step` apart, that misses the real one."""
    rng = keyed_generator(seed, "lake")
    slip = float(rng.uniform(0.1, 0.3))
    away = step * rng.uniform(0.25, 0.5)
    grid = slip + away + step * np.arange(-8, 8)
    grid = grid[(grid > 0.01) & (grid < 0.45)]
    real, functions = lakes(np.array([slip])), lakes(grid.astype(np.float64))
    x = functions.models.codebook.rows
    each = [np.abs(functions.values(h, x) - real.values(h, x)).max(axis=(1, 2)) for h in range(MOVES)]  # [N] per level
    off = float(np.max(each, axis=0).min()) if learner == "betting" else 2 * float(np.abs(grid - slip).min())
    env, best = ModelEnvironment(real, 0, (0.0, 1.0)), float(real.optimal_values()[0])
    return Case(env, functions, best, lambda policy: float(real.policy_values(policy)[0]), off + ROUNDING)


def measured(name: str, make: Callable[[int], Case], told: bool, runs: int, **asked: Any) -> tuple[Any, ...]:
    """Returns what became of the runs of one cell."""
    begin = time.process_time()
    found: list[tuple[int, float]] = []  # episodes, epsilon
    false, noticed, off, ways = 0, 0, [], Counter[str]()
    for seed in range(runs):
        case = make(seed)
        off.append(case.off)
        try:
            outcome = richobs.learn(
                *(case.env, case.functions),
                seed=seed,
                tolerance=case.off if told else 0.0,
                max_episodes=LIMIT,
                progress=False,
                **asked,
            )
        except BrokenPromise:
            noticed += 1
            continue
        value = case.value(outcome.policy)
        assert outcome.upper is not None
        assert outcome.lower is not None
        true = case.best - value <= outcome.epsilon + ROUNDING
        false += not (true and case.best <= outcome.upper + ROUNDING and value >= outcome.lower - ROUNDING)
        found.append((outcome.episodes, outcome.epsilon))
        ways[outcome.reason.name] += 1
    low, high = binomial_interval(false, runs, 0.95)
    middle = [float(m) for m in np.median(found, axis=0)] if found else [None, None]
    wide = sum(epsilon > asked["epsilon"] for _, epsilon in found)
    row = (
        *(name, asked.get("learner", "betting"), round(float(np.median(off)), 4), "yes" if told else "no"),
        *(asked["epsilon"], asked["delta"], runs, middle[0], false, f"[{low:.3f}, {high:.3f}]", noticed, wide),
        *(middle[1], ", ".join(f"{way} {n}" for way, n in ways.most_common()), round(time.process_time() - begin, 1)),
    )
    print(*row, sep="; ", flush=True)
    return row


def cells() -> list[tuple[str, Callable[[int], Case], bool, dict[str, Any]]]:
    """Returns name, problem, whether the tolerance is told, and what is asked for, of every row."""
    rows: list[tuple[str, Callable[[int], Case], bool, dict[str, Any]]] = []
    for off in (0.0, 0.01, 0.02, 0.05):
        for told in (False, True) if off else (False,):
            asked: dict[str, Any] = {"epsilon": 0.15, "delta": 0.1}
            rows.append((f"tables, {off:g}", functools.partial(tables, off), told, asked))
    for learner, epsilon in (("betting", 0.15), ("models", 0.1)):
        for step in (0.02, 0.06):
            for told in (False, True):
                asked = {"epsilon": epsilon, "delta": 0.1, "learner": learner}
                rows.append((f"lake, {step:g}", functools.partial(lake, step, learner), told, asked))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Claims where the class holds the truth only nearly.")
    parser.add_argument("--runs", type=int, default=200, help="of each row")
    parser.add_argument(
        "--only", default="", help="measure only rows whose name begins so, a regular expression; other rows stay"
    )
    given = parser.parse_args()
    stored = json.loads(FILE.read_text())["rows"] if FILE.exists() else []
    known = {(row["problem"], row["learner"], row["told"]): tuple(row[c] for c in COLUMNS) for row in stored}
    for name, make, told, asked in cells():
        if re.match(given.only, name):
            row = measured(name, make, told, given.runs, **asked)
            known[name, row[1], row[3]] = row
    publish(
        "nearly",
        "Classes that hold the truth only nearly: claims with the tolerance and without",
        COLUMNS,
        list(known.values()),
        "A claim is false where V*, the policy's value or their difference is not what it says. Off by: distance of the "
        "nearest function from Q*, or of the nearest law in total variation (models).",
    )


if __name__ == "__main__":
    main()

"""How many episodes does a search among models take on a slippery lake, and how often is anything it claims false?

Run with `python benchmarks/models.py --workers 2` (about ten minutes on two cores). The lake is FrozenLake 4x4 with 30
moves, as Gymnasium plays it: an arrival at the goal pays 1, and a hole or the goal ends the episode. Candidates are other
maps with other probabilities of slipping. Soundness is also measured with random models that differ a little in every
probability. Every seed draws other candidates, and every claim is checked exactly.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import functools
import multiprocessing
import time
from typing import Any, NamedTuple

import numpy as np

from measure import publish
from richobs.classes.learned_policy import LearnedPolicy
from richobs.classes.simulators import Simulators
from richobs.core.errors import BrokenPromise
from richobs.core.events import nobody
from richobs.core.ledger import Ledger
from richobs.core.problem import Problem
from richobs.core.randomness import keyed_generator
from richobs.engines import StreamEngine
from richobs.learners.models.search import ModelSearch, Tuning, run
from richobs_lab.intervals import binomial_interval
from richobs_lab.worlds.frozen_lake import N_ACTIONS, Config, Lakes, candidate_lakes, neighbours
from richobs_lab.worlds.model_environment import model_problem

HORIZON = 30
TURNS = (-1, 0, 1)  # to the left of the direction, in it, to the right of it
TOLERANCE = 1e-9


class Case(NamedTuple):
    """Candidates, and what is asked."""

    words: str
    config: dict[str, Any]  # of the world frozen-lake
    epsilon: float
    delta: float = 0.05
    share: float = 1.0  # of the runs of other cases: planning 10,000 maps takes long


RANDOM = {"candidates": "random", "slip_unknown": True}
NEAR = {"candidates": "near", "slip_unknown": True}
COST = (
    Case("1,000 random maps, slip 1/3 +- 0.15", {**RANDOM, "n_maps": 1000}, 0.02),
    Case("1,000 maps with a hole moved, slip 1/3 +- 0.05", {**NEAR, "n_maps": 1000, "slip_range": 0.05}, 0.02),
    Case("1,000 maps with a hole moved, slip 1/3 +- 0.15", {**NEAR, "n_maps": 1000}, 0.02),
    Case("10,000 random maps, slip 1/3 +- 0.15", {**RANDOM, "n_maps": 10_000}, 0.02, share=0.2),
)
SOUNDNESS = (
    *(
        Case("40 maps with a hole moved, slip 1/3 +- 0.05", {**NEAR, "n_maps": 40, "slip_range": 0.05}, 0.005, delta)
        for delta in (0.5, 0.2)
    ),
    *(Case("10 random models of 4 states, horizon 3", {"n_random": 10}, 0.005, delta) for delta in (0.5, 0.2, 0.05)),
)
LIMIT = 200  # episodes of a soundness run; one that spends them still makes a claim


class Ran(NamedTuple):
    """What one run did."""

    episodes: int
    left: int  # living models
    dropped: bool  # whether the true model was refuted
    false: bool  # whether anything claimed is false
    seconds: float  # of CPU time, without planning the candidates


def family_of(lakes: Lakes) -> Simulators:
    """Returns the class of all lakes, as Gymnasium plays them."""
    n, cells = lakes.holes.shape
    beside = neighbours(cells)
    chance = np.stack([lakes.slips, 1 - 2 * lakes.slips, lakes.slips])  # [3, N]
    to = np.stack([np.roll(beside, -turn, axis=1) for turn in TURNS])  # [3, C, K]
    shape = (len(TURNS), n, cells, N_ACTIONS)
    goal = np.broadcast_to(to[:, None] == cells - 1, shape)
    hole = np.moveaxis(lakes.holes[:, to], 0, 1)  # [3, N, C, K]
    probability = np.broadcast_to(chance[:, :, None, None], shape)
    start = np.eye(cells)[0]
    return Simulators.of_outcomes(probability, to[:, None], goal.astype(float), goal | hole, HORIZON, start=start)


def random_models(n: int, rng: np.random.Generator) -> Simulators:
    """Returns n models of 4 states and 2 actions that differ a little in every probability."""
    law = 0.7 * rng.dirichlet([1.0] * 4, size=(4, 2)) + 0.3 * rng.dirichlet([0.5] * 4, size=(n, 4, 2))
    pay = np.array([0.0, 0.1, 0.5, 1.0]) / 3
    return Simulators.of_arrays(law, np.broadcast_to(pay, (4, 2, 4)), 3)


def problem_of(seed: int, chosen: dict[str, Any], any_truth: bool) -> Problem:
    """Returns a lake with its candidates; the true one is the standard map, or any of them."""
    rng = keyed_generator(seed, "benchmark of models")
    if "n_random" in chosen:
        functions = random_models(int(chosen["n_random"]), rng)
        return model_problem(functions, int(functions.place[rng.integers(len(functions.place))]))
    lakes, place = candidate_lakes(Config(horizon=HORIZON, seed=seed, **chosen), rng)
    functions = family_of(lakes)
    truth = int(rng.integers(len(lakes.slips))) if any_truth else place
    return model_problem(functions, int(functions.place[truth]))


def one_run(case: Case, any_truth: bool, seed: int) -> Ran:
    """Runs a search and checks what it claims."""
    problem = problem_of(seed, case.config, any_truth)
    functions = problem.functions
    assert isinstance(functions, Simulators)
    begin = time.process_time()
    engine = StreamEngine(problem.env, functions, seed=seed, ledger=Ledger(LIMIT if any_truth else None))
    search = ModelSearch(engine, functions, (0.0, 1.0), (0.0, 1.0), case.epsilon, case.delta, seed, nobody, Tuning())
    try:
        found = run(search)
    except BrokenPromise:  # the true model was refuted, and the others hold what happened impossible
        return Ran(engine.ledger.total, 0, True, False, time.process_time() - begin)
    seconds = time.process_time() - begin
    best, value = problem.optimal_value, float(problem.value(LearnedPolicy(functions, found.member)))
    claimed = max(case.epsilon, search.gap(found))
    false = best - value > claimed or best > search.upper + TOLERANCE or value < search.lower - TOLERANCE
    dropped = problem.optimal_function not in search.living.models
    return Ran(engine.ledger.total, len(search.living.models), dropped, false, seconds)


def measured(pool: Any, case: Case, any_truth: bool, runs: int) -> list[Ran]:
    """Returns what many runs did."""
    return list(pool.imap_unordered(functools.partial(one_run, case, any_truth), range(runs), chunksize=1))


def main() -> None:
    parser = argparse.ArgumentParser(description="Episodes and false claims of the search among models.")
    parser.add_argument("--runs", type=int, default=100, help="runs of each case, a fifth with 10,000 maps")
    parser.add_argument("--soundness-runs", type=int, default=500, help="runs of each soundness case")
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    rows = []
    with multiprocessing.Pool(given.workers) as pool:
        cases = [(case, False, given.runs) for case in COST] + [(c, True, given.soundness_runs) for c in SOUNDNESS]
        for case, any_truth, most in cases:
            runs = max(1, round(case.share * most))
            ran = measured(pool, case, any_truth, runs)
            episodes = np.array([r.episodes for r in ran])
            false, dropped = sum(r.false for r in ran), sum(r.dropped for r in ran)
            low, high = binomial_interval(dropped, runs, 0.99)
            rows.append(
                (
                    case.words,
                    case.epsilon,
                    case.delta,
                    runs,
                    float(np.median(episodes)),
                    float(np.quantile(episodes, 0.9)),
                    int(episodes.max()),
                    float(np.median([r.left for r in ran])),
                    dropped,
                    f"[{low:.4f}, {high:.4f}]",
                    false,
                    float(np.mean([r.seconds for r in ran])),
                )
            )
            print(rows[-1], flush=True)
    columns = ("candidates", "epsilon", "delta", "runs", "median episodes", "90%", "most", "median models left")
    publish(
        "models",
        "Search among models, FrozenLake 4x4: episodes, and how often the true model was dropped or a claim was false",
        (*columns, "true model dropped", "99% interval of its share (exact binomial)", "false claims", "CPU seconds"),
        rows,
        "The share of runs in which the true model is dropped may be at most delta. In the rows with 40 and 10 models any "
        f"of them is the true one, and {LIMIT} episodes are allowed. CPU seconds do not include planning the candidates.",
    )


if __name__ == "__main__":
    main()

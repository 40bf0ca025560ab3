"""Are the claims of the betting search true as often as they say? Many runs over random processes and classes.

Run with `python benchmarks/betting_soundness.py --runs 20000 --workers 2` (about ten minutes on two cores). Processes are
deterministic or random, classes products or lists, with copies, perturbed copies and near copies of Q*; delta is large, so
that claims that fail too often would show. In one run of five rewards have any sign and unit and episodes may end early, and
one run of four also reads recorded episodes. Whatever is claimed is checked exactly: that Q* survives, U, W of every
candidate that was looked at, and the gap between V* and the policy's value.

With `--waiting` the levels of product classes wait (docs/betting.md, Waiting) at small random thresholds, where by default
only those of large classes do; lists never wait. Its results are in `betting_soundness_waiting.json`.

With `--keep FILE` counts are added to those that the file holds, and the table shows all of them: `--runs 500 --first-seed
1000` goes on where the first thousand ended. The table is then `..._kept.json`. Keep one file for each version of the
search.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import dataclasses
import functools
import json
import math
import multiprocessing
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import richobs
from measure import publish
from richobs.classes import Layered, Listed, TableLevel
from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.errors import BrokenPromise
from richobs.core.events import nobody
from richobs.core.ledger import Ledger
from richobs.core.policies import Uniform
from richobs.core.problem import Problem, Truth
from richobs.core.process import Rewards, TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.core.types import Member
from richobs.engines import StreamEngine
from richobs.learners.betting import Tuning, survivors_product
from richobs.learners.betting.search import BettingSearch, run
from richobs.learners.betting.values import Ranges
from richobs.worlds.simulator import table_problem
from richobs_lab.intervals import binomial_interval

sys.path.append(str(Path(__file__).parents[1]))
from tests.signed import SignedProcess

DELTAS = (0.5, 0.3, 0.1, 0.05, 0.01)
LIMIT = 600  # episodes; a run that spends them still makes claims
TOLERANCE = 1e-9


def random_process(rng: np.random.Generator) -> TabularProcess:
    """Returns a process with random transitions whose states own their observations; some rewards are rare."""
    H, S, K = int(rng.integers(1, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    X = S + int(rng.integers(0, 3))
    owner = np.concatenate([np.arange(S), rng.integers(S, size=X - S)])
    emission = np.where(owner == np.arange(S)[:, None], rng.gamma(2.0, size=(S, X)), 0.0)
    emission /= emission.sum(axis=1, keepdims=True)
    sharpness = float(rng.choice([0.2, 1.0, 5.0]))
    moves = rng.dirichlet([sharpness] * S, size=(S, K)) if S > 1 else np.ones((1, K, 1))
    mean = rng.random((S, 1, K)) if rng.random() < 0.5 else rng.choice([0.01, 0.03, 0.5, 0.97, 1.0], size=(S, 1, K))
    return TabularProcess.from_flat(H, rng.dirichlet([1.0] * S), moves, emission, Rewards.bernoulli(mean, 1 / H))


def tables_around(truth: np.ndarray[Any, Any], size: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Returns `[size, X, K]` Q* in a random place among permuted, perturbed and near copies."""
    tables = np.repeat(truth[None], size, axis=0)
    for i in range(1, size):
        kind = rng.integers(3)
        if kind == 0:
            tables[i] = truth[rng.permutation(len(truth))][:, rng.permutation(truth.shape[1])]
        else:
            tables[i] = np.clip(truth + rng.normal(0, 0.2 if kind == 1 else 0.03, truth.shape), 0, 1)
    return tables


def problem_of(seed: int, rng: np.random.Generator) -> tuple[str, Problem]:
    """Returns a random problem with its kind in words."""
    if rng.random() < 0.2:
        return signed_problem(rng)
    if rng.random() < 0.3:
        config: dict[str, Any] = {
            "horizon": int(rng.integers(1, 5)),
            "n_states": int(rng.integers(1, 5)),
            "n_actions": int(rng.integers(1, 4)),
            "n_observations": int(rng.integers(0, 5)),
            "overlap": float(rng.choice([0.0, 0.5, 1.0])),
        }
        process = richobs.make("random", seed=seed, **config).process
        assert process is not None
        kind = "deterministic"
    else:
        process, kind = random_process(rng), "random"
    size = int(rng.integers(2, 25))
    levels = [tables_around(np.clip(q, 0, 1), size, rng) for q in process.q_tables]
    if rng.random() < 0.5:
        problem = table_problem(process, levels, (0,) * process.horizon)
        return f"{kind}, product", problem
    mixed = [np.concatenate([t[:1], t[rng.integers(size, size=size)]]) for t in levels]
    listed = Listed([TableLevel(t, book) for t, book in zip(mixed, process.codebooks, strict=True)])
    plain = table_problem(process, mixed, None)
    truth = Truth(process.optimum.value, 0, None)
    return f"{kind}, listed", dataclasses.replace(plain, functions=listed, truth=truth)


def signed_problem(rng: np.random.Generator) -> tuple[str, Problem]:
    """Returns a problem whose rewards have any sign and unit, and whose episodes may end early."""
    env = SignedProcess.random(rng)
    low, high = env.reward_range
    size = int(rng.integers(2, 25))
    levels = []
    for q in env.q:
        tables = low + (high - low) * tables_around((q - low) / (high - low), size, rng)
        tables[0] = q
        levels.append(TableLevel(tables, value_range=(float(tables.min()), float(tables.max()))))
    is_product = rng.random() < 0.5
    functions = (Layered if is_product else Listed)(levels)
    truth = Truth(env.optimum, (0,) * env.horizon if is_product else 0, None)
    return f"signed rewards, {'product' if is_product else 'listed'}", Problem(env, functions, truth=truth)


def value_of(problem: Problem, member: Member) -> float:
    """Returns the exact value of a function's greedy policy."""
    policy = LearnedPolicy(problem.functions, member)
    if isinstance(problem.env, SignedProcess):
        return problem.env.value(policy)
    assert problem.process is not None
    return problem.process.value(policy)


def false_claim(problem: Problem, search: BettingSearch) -> str:
    """Returns what was claimed falsely, or ""."""
    assert problem.optimal_function is not None
    tolerance = TOLERANCE * search.ranges.scale
    try:
        found = run(search)
    except BrokenPromise:
        return "a promise was reported broken"
    best = problem.optimal_value
    if problem.optimal_function not in search.survivors:
        return "Q* was refuted"
    if best > search.upper + tolerance:
        return "V* exceeds U"
    for candidate in search.opened:
        assert candidate.accounts is not None
        if candidate.accounts.lower > value_of(problem, candidate.member) + tolerance:
            return "a policy is worse than W"
    if best - value_of(problem, found.member) > max(found.gap, 0.0) + tolerance:
        return f"false claim by {found.by}"
    return ""


def let_levels_wait(rng: np.random.Generator) -> None:
    """Sets, for this process, thresholds at which levels of small classes wait too."""
    survivors_product.LARGE_CLASS = 0
    survivors_product.MOST_PAIRS = int(rng.choice([1, 1, 4, 16]))
    survivors_product.BLOCK = int(rng.choice([1, 5, 32]))
    enough = int(rng.choice([20, 60, 200]))
    survivors_product.DUE = ((enough, int(rng.choice([0, 10, 40, 150]))), (10 * enough, math.inf))


def one_run(seed: int, waits: bool = False) -> tuple[float, str, str]:
    """Returns delta, the kind of problem, and what was false, or ""."""
    rng = keyed_generator(seed, "betting soundness")
    if waits:
        let_levels_wait(keyed_generator(seed, "waiting"))
    kind, problem = problem_of(seed, rng)
    delta, epsilon = float(rng.choice(DELTAS)), float(rng.choice([0.05, 0.1, 0.2, 0.4]))
    first = int(rng.integers(1, 9))
    tuning = Tuning(
        first=first,
        largest=first + int(rng.integers(0, 17)),
        doubt=float(rng.choice([0.0, 2.0])),
        idle=("explore", "follow")[int(rng.integers(2))],
    )
    engine = StreamEngine(problem.env, problem.functions, seed=seed, ledger=Ledger(LIMIT))
    ranges = Ranges.of(problem.env, problem.functions)
    recorded = None
    if rng.random() < 0.25:
        recorded = problem.env.play(Uniform(problem.n_actions), int(rng.integers(1, 100)), rng)
    search = BettingSearch(
        engine, problem.functions, epsilon * ranges.span, delta, seed, nobody, tuning, recorded, ranges
    )
    return delta, kind, false_claim(problem, search)


def main() -> None:
    parser = argparse.ArgumentParser(description="False claims of the betting search over random problems.")
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--waiting", action="store_true", help="let levels of small product classes wait too")
    parser.add_argument("--keep", type=Path, help="file of counts, to which those of this run are added")
    given = parser.parse_args()
    wrong: dict[tuple[float, str], Counter[str]] = {}
    if given.keep is not None and given.keep.exists():
        for delta, kind, counts in json.loads(given.keep.read_text()):
            wrong[delta, kind] = Counter(counts)
    seeds = range(given.first_seed, given.first_seed + given.runs)
    with multiprocessing.Pool(given.workers) as pool:
        for delta, kind, what in pool.imap_unordered(
            functools.partial(one_run, waits=given.waiting), seeds, chunksize=20
        ):
            wrong.setdefault((delta, kind), Counter())[what] += 1
    if given.keep is not None:
        given.keep.write_text(json.dumps([[*key, counts] for key, counts in wrong.items()]))
    rows = []
    kinds = sorted({kind for _, kind in wrong})
    for delta in DELTAS:
        for kind in [*kinds, "all"]:
            mine = [c for (d, k), c in wrong.items() if d == delta and kind in (k, "all")]
            counted = sum(mine, Counter())
            runs, fine = counted.total(), counted.pop("", 0)
            if not runs:
                continue
            low, high = binomial_interval(runs - fine, runs, 0.99)
            detail = ", ".join(f"{what}: {n}" for what, n in sorted(counted.items())) or "nothing"
            rows.append((delta, kind, runs, runs - fine, f"[{low:.5f}, {high:.5f}]", detail))
    publish(
        "betting_soundness" + "_waiting" * given.waiting + "_kept" * (given.keep is not None),
        "Betting searches over random problems"
        + (", levels wait" if given.waiting else "")
        + ": how often anything claimed was false",
        ("delta", "problems", "runs", "false", "99% interval (exact binomial)", "what"),
        rows,
        "The share of runs in which anything claimed was false may be at most delta.",
    )


if __name__ == "__main__":
    main()

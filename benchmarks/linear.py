"""How many episodes does a certificate of linear values take, and how often is anything it claims false?

Run with `python benchmarks/linear.py` (about 20 minutes on one core; `--only cost` takes 3). Problems are random linear MDPs
with 3 actions and rewards of 0 or 1/H a level, drawn anew for every seed; V* and every policy's value are computed exactly.
Soundness is measured on linear MDPs, with a feature for each context and action, where only Q* is linear, and where nothing
is; the last two break what the claim rests on, so their runs may be stopped or false.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import hashlib
import json
import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np

import richobs
from measure import RESULTS, publish
from richobs import Episodes, Linear, Problem, TabularProcess
from richobs.core.errors import BrokenPromise
from richobs.core.randomness import keyed_generator
from richobs.core.types import Ints
from richobs_lab.intervals import binomial_interval
from richobs_lab.rivals.bpi_ucrl import plan_bounds
from richobs_lab.rivals.tabular import EmpiricalModel
from richobs_lab.worlds.linear_mdp import Kind, linear_problem, nearly_tolerance

LIMIT = 3_000_000
TOLERANCE = 1e-9


class Cell(NamedTuple):
    """A kind of problem, and what is asked."""

    horizon: int
    dim: int
    epsilon: float
    n_contexts: int = 20
    before: int | None = None  # what the prototype of the method took


COST = (
    *(Cell(3, 8, epsilon, before=n) for epsilon, n in ((0.2, 6_914), (0.1, 15_492), (0.05, 57_495))),
    *(Cell(8, 8, epsilon, before=n) for epsilon, n in ((0.2, 4_410), (0.1, 7_059), (0.05, 26_175))),
    *(Cell(20, 16, epsilon, before=n) for epsilon, n in ((0.2, 4_410), (0.1, 10_860), (0.05, 26_175))),
    Cell(8, 4, 0.1, before=4_179),
    Cell(8, 16, 0.1, before=13_706),
    Cell(20, 8, 0.1, before=3_216),
    Cell(3, 8, 0.1, n_contexts=80),
    Cell(3, 8, 0.1, n_contexts=320),
)
KINDS = ("linear", "one-hot", "nearly", "q-star", "broken")
SOUNDNESS: tuple[tuple[Kind, float], ...] = tuple((kind, delta) for kind in KINDS for delta in (0.5, 0.3, 0.1))
AT_ONCE = 25  # runs of a cell before the next one


def cost(seeds: int) -> None:
    """Measures episodes, and the exponents with which they grow."""
    rows: list[list[Any]] = []
    medians: dict[Cell, float] = {}
    for cell in COST:
        taken, losses, false, begin = [], [], 0, time.process_time()
        for seed in range(seeds):
            problem = linear_problem(horizon=cell.horizon, dim=cell.dim, n_contexts=cell.n_contexts, seed=seed)
            outcome = richobs.learn(problem, epsilon=cell.epsilon, seed=seed, max_episodes=LIMIT, progress=False)
            taken.append(outcome.episodes)
            losses.append(problem.optimal_value - problem.value(outcome.policy))
            false += is_false(problem, outcome)
        medians[cell] = float(np.median(taken))
        spent = (time.process_time() - begin) / seeds
        rows.append(
            [
                *(cell.horizon, cell.dim, cell.n_contexts, cell.epsilon, int(medians[cell]), max(taken), cell.before),
                *(false, round(max(losses), 4), round(spent, 2), seeds),
            ]
        )
    note = "Episodes of all phases, median and largest; before: the prototype. " + exponents(medians)
    columns = ["H", "d", "contexts", "epsilon", "episodes", "most", "before", "false", "largest loss", "CPU s", "runs"]
    publish("linear", "Certificates of linear values", columns, rows, note)


def exponents(medians: dict[Cell, float]) -> str:
    """Returns, in words, the powers with which episodes grow in what a cell is changed by."""
    pairs = {
        "1/epsilon": (Cell(3, 8, 0.2, before=6_914), Cell(3, 8, 0.05, before=57_495), 4),
        "d": (Cell(8, 4, 0.1, before=4_179), Cell(8, 16, 0.1, before=13_706), 4),
        "H": (Cell(3, 8, 0.1, before=15_492), Cell(20, 8, 0.1, before=3_216), 20 / 3),
        "contexts": (Cell(3, 8, 0.1, before=15_492), Cell(3, 8, 0.1, n_contexts=320), 16),
    }
    powers = {name: math.log(medians[b] / medians[a]) / math.log(times) for name, (a, b, times) in pairs.items()}
    return "Growth: " + ", ".join(f"{name}^{power:.2f}" for name, power in powers.items()) + "."


def is_false(problem: richobs.Problem, outcome: richobs.Outcome) -> bool:
    """Whether anything that an outcome claims is false."""
    value = float(problem.value(outcome.policy))
    if not outcome.guaranteed:
        return False
    assert outcome.upper is not None
    assert outcome.lower is not None
    far = problem.optimal_value - value > outcome.epsilon + TOLERANCE
    return far or outcome.upper < problem.optimal_value - TOLERANCE or outcome.lower > value + TOLERANCE


def soundness(runs: int, minutes: float) -> None:
    """Counts false claims; goes on from what is stored if that was counted with the same code."""
    code = code_digest()
    counts = {cell: np.zeros(4, dtype=int) for cell in SOUNDNESS}  # runs, false, stopped, without a claim
    stored = RESULTS / "linear_soundness.json"
    for row in json.loads(stored.read_text())["rows"] if stored.exists() else []:
        if row.get("code") == code:
            counts[row["problems"], row["delta"]][:] = [row[name] for name in COUNTED]
    until = time.monotonic() + 60 * minutes
    while any(count[0] < runs for count in counts.values()) and time.monotonic() < until:
        for cell, count in counts.items():
            first = int(count[0])
            for seed in range(first, min(runs, first + AT_ONCE)):
                count += _judged(*cell, seed)
    rows = [
        [kind, delta, *map(int, count), round(binomial_interval(int(count[1]), int(count[0]), 0.95)[1], 4), code]
        for (kind, delta), count in counts.items()
        if count[0]
    ]
    columns = ["problems", "delta", *COUNTED, "at most (95%)", "code"]
    note = (
        f"H 2 and 3, d 3 (one-hot: 4), epsilon 0.15, at most 20,000 episodes. nearly: {OFF:g} of each law is not linear, "
        "and the tolerance says so. q-star and broken break what the claim rests on. code: digest of the learner's files."
    )
    publish("linear_soundness", "False claims of linear values", columns, rows, note)


OFF = 0.02
COUNTED = ("runs", "false", "stopped", "without a claim")


def _judged(kind: Kind, delta: float, seed: int) -> list[int]:
    """Returns what one run adds to the counts."""
    shape = {"n_contexts": 2, "n_actions": 2} if kind == "one-hot" else {"n_contexts": 8, "n_actions": 2}
    horizon = 2 + seed % 2
    problem = linear_problem(kind, horizon=horizon, dim=3, seed=seed, off=OFF, **shape)
    tolerance = nearly_tolerance(horizon, OFF) if kind == "nearly" else ()
    asked: dict[str, Any] = {"epsilon": 0.15, "delta": delta, "seed": seed, "tolerance": tolerance}
    try:
        outcome = richobs.learn(problem, progress=False, max_episodes=20_000, **asked)
    except BrokenPromise:
        return [1, 0, 1, 0]
    return [1, is_false(problem, outcome), 0, not outcome.guaranteed]


def code_digest() -> str:
    """Returns a digest of the files of the learner `linear`."""
    folder = Path(richobs.__file__).parent / "learners" / "linear"
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))).hexdigest()[:12]


def beside(seeds: int) -> None:
    """Plays the same problems with LSVI-UCB and with BPI-UCRL, which counts and knows no features."""
    rows: list[list[Any]] = []
    for cell in (Cell(3, 8, 0.1), Cell(8, 8, 0.1)):
        for name, rival in (("LSVI-UCB", lsvi_ucb), ("BPI-UCRL", bpi_ucrl)):
            good, said = [], []
            for seed in range(seeds):
                problem = linear_problem(horizon=cell.horizon, dim=cell.dim, n_contexts=cell.n_contexts, seed=seed)
                first, claimed = rival(problem, cell.epsilon, 0.05, keyed_generator(seed, "beside"))
                good.append(first)
                said.append(claimed)
            rows.append([name, cell.horizon, cell.dim, cell.epsilon, int(np.median(good)), *_said(said), seeds])
            print(rows[-1], flush=True)
    columns = ["method", "H", "d", "epsilon", "good from", "certified", "bound at the end", "runs"]
    note = (
        f"Good from: episodes after which the greedy policy stays within epsilon of V* (nobody knows then), {MOST:,} at the "
        "most. LSVI-UCB (Jin et al. 2020), beta = d sqrt(log(2 d T/delta)) for totals in [0, 1], claims nothing of a policy."
    )
    publish("linear_beside", "LSVI-UCB and BPI-UCRL on the same problems", columns, rows, note)


def _said(bounds: list[float | None]) -> tuple[int, float | None]:
    known = [bound for bound in bounds if bound is not None]
    return sum(bound <= 0.1 for bound in known), round(float(np.median(known)), 3) if known else None


MOST = 30_000  # episodes of a rival


class Actions:
    """A policy that looks its action up."""

    def __init__(self, tables: list[Ints]):
        self.tables = tables

    def actions(self, level: int, x: Ints, rng: np.random.Generator) -> Ints:
        """Returns `[n]` the actions."""
        return self.tables[level][x]


def lsvi_ucb(problem: Problem, epsilon: float, delta: float, rng: np.random.Generator) -> tuple[int, float | None]:
    """Returns from which episode on the greedy policy is good; it certifies nothing."""
    env, functions = problem.env, problem.functions
    assert isinstance(functions, Linear)
    H, d = env.horizon, functions.dim
    phi = [functions.phi(h, np.arange(20)) for h in range(H)]
    beta = d * math.sqrt(math.log(2 * d * MOST / delta))
    seen: list[Episodes] = []
    n = good = 0
    while n < MOST:
        batch = max(16, n // 8)
        plans: list[list[Ints]] = []
        for bonus in (beta, 0.0):
            v, tables = np.zeros(20), []
            for h in reversed(range(H)):
                rows, y = np.zeros((0, d)), np.zeros(0)
                if seen:
                    x, a, r = (
                        np.concatenate([getattr(e, c)[h] for e in seen]) for c in ("observations", "actions", "rewards")
                    )
                    after = v[np.concatenate([e.observations[h + 1] for e in seen])] if h + 1 < H else 0.0
                    rows, y = phi[h][x, a], r + after
                inverse = np.linalg.inv(rows.T @ rows + np.eye(d))
                q = phi[h] @ (inverse @ (rows.T @ y))
                q = q + bonus * np.sqrt(((phi[h] @ inverse) * phi[h]).sum(axis=2))
                v = np.minimum(q.max(axis=1), (H - h) / H)
                tables.append(q.argmax(axis=1))
            plans.append(tables[::-1])
        if problem.optimal_value - problem.value(Actions(plans[1])) > epsilon:
            good = n + batch
        seen.append(env.play(Actions(plans[0]), batch, rng))
        n += batch
    return min(good, MOST), None


def bpi_ucrl(problem: Problem, epsilon: float, delta: float, rng: np.random.Generator) -> tuple[int, float | None]:
    """Returns from which episode on its policy is good, and what it certifies at the end."""
    env = problem.env
    H, K = env.horizon, env.n_actions
    shape = SimpleNamespace(observations=[np.arange(20)] * H, n_actions=K)
    model = EmpiricalModel(cast("TabularProcess", shape))
    n = good = 0
    gap = 1.0
    while n < MOST and gap > epsilon:
        batch = max(64, n // 8)
        bounds = plan_bounds(model, delta)
        gap = bounds.best - bounds.sure
        if problem.optimal_value - problem.value(Actions([q.argmax(axis=1) for q in bounds.lower])) > epsilon:
            good = n + batch
        played = env.play(Actions([q.argmax(axis=1) for q in bounds.upper]), batch, rng)
        for h in range(H):
            x, a = played.observations[h], played.actions[h]
            np.add.at(model.visits[h], (x, a), 1)
            np.add.at(model.rewards[h], (x, a), played.rewards[h])
            if h + 1 < H:
                np.add.at(model.moves[h], (x, a, played.observations[h + 1]), 1)
        n += batch
    return min(good, MOST), gap


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("cost", "soundness", "beside"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="of soundness; the next call goes on from there"
    )
    asked = parser.parse_args()
    parts = {"cost": lambda: cost(asked.seeds), "beside": lambda: beside(asked.seeds)}
    parts["soundness"] = lambda: soundness(asked.runs, asked.minutes)
    for part in parts if asked.only is None else [asked.only]:
        parts[part]()

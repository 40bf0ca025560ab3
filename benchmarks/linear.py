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
import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from unittest import mock

import gymnasium
import numpy as np

import richobs
from measure import RESULTS, publish
from richobs import Linear, Problem, TabularProcess
from richobs.core.environment import step_range
from richobs.core.errors import BrokenPromise
from richobs.core.policies import action_law
from richobs.core.problem import Truth
from richobs.core.process import Codebook
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints
from richobs.engines.independence import NOTICED
from richobs.learners.linear import search
from richobs.learners.linear.data import Data
from richobs.learners.linear.fits import quadratic
from richobs.learners.linear.planning import Aim, Plan, design, expected_grams, planned
from richobs_lab.intervals import binomial_interval
from richobs_lab.rivals.bpi_ucrl import plan_bounds
from richobs_lab.rivals.tabular import EmpiricalModel
from richobs_lab.worlds.linear_mdp import FiniteEnvironment, Kind, linear_problem, nearly_tolerance

EXAMPLES = Path(__file__).parents[1] / "examples"
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
KINDS = ("linear", "unlisted", "one-hot", "nearly", "q-star", "broken")
SOUNDNESS = tuple((kind, delta) for kind in KINDS for delta in (0.5, 0.3, 0.1))
AT_ONCE = 5  # runs of a cell before the next one


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
    counts = {cell: np.zeros(len(COUNTED), dtype=int) for cell in SOUNDNESS}
    stored = RESULTS / "linear_soundness.json"
    for row in json.loads(stored.read_text())["rows"] if stored.exists() else []:
        if row.get("code") == code:
            counts[row["problems"], row["delta"]][:] = [row[name] for name in COUNTED]
    until = time.monotonic() + 60 * minutes
    while any(count[0] < runs for count in counts.values()) and time.monotonic() < until:
        for cell, count in counts.items():
            first = int(count[0])
            if time.monotonic() > until:
                break
            for seed in range(first, min(runs, first + AT_ONCE)):
                count += _judged(*cell, seed)
    rows = [
        [kind, delta, *map(int, count), round(binomial_interval(int(count[1]), int(count[0]), 0.95)[1], 4), code]
        for (kind, delta), count in counts.items()
        if count[0]
    ]
    columns = ["problems", "delta", *COUNTED, "at most (95%)", "code"]
    note = (
        f"H 2 and 3, d 3 (one-hot: 4), epsilon 0.15, at most 20,000 episodes. unlisted: linear MDPs of which is known only "
        f"that features are probabilities. nearly: {OFF:g} of each law is not linear, and the tolerance says so. q-star and "
        "broken break what the claim rests on. stopped: because means are not linear. not independent: stopped by a check "
        "of episodes. F too wide: claims with a left-over function wider than the tolerance of nearly allows for. code: "
        "digest of the learner's files."
    )
    publish("linear_soundness", "False claims of linear values", columns, rows, note)


OFF = 0.02
COUNTED = ("runs", "false", "stopped", "not independent", "without a claim", "F too wide")


def _judged(kind: str, delta: float, seed: int) -> list[int]:
    """Returns what one run adds to the counts."""
    n_contexts = 2 if kind == "one-hot" else 8
    horizon = 2 + seed % 2
    shape: dict[str, Any] = {"horizon": horizon, "dim": 3, "seed": seed, "n_contexts": n_contexts, "n_actions": 2}
    if kind == "unlisted":
        problem = linear_problem("linear", known="probabilities", **shape)
    else:
        problem = linear_problem(cast("Kind", kind), off=OFF, **shape)
    tolerance = nearly_tolerance(horizon, OFF) if kind == "nearly" else ()
    asked: dict[str, Any] = {"epsilon": 0.15, "delta": delta, "seed": seed, "tolerance": tolerance}
    try:
        outcome = richobs.learn(problem, progress=False, max_episodes=20_000, **asked)
    except BrokenPromise as stopped:
        dependent = NOTICED in str(stopped)
        return [1, 0, not dependent, dependent, 0, 0]
    if not outcome.guaranteed:
        return [1, 0, 0, 0, 1, 0]
    widths = [high - low for low, high in outcome.constants.f_range[1:]]
    wide = any(OFF * width / 2 > zeta for width, zeta in zip(widths, tolerance, strict=False))
    return [1, is_false(problem, outcome), 0, 0, 0, wide]


def code_digest() -> str:
    """Returns a digest of the files of the learner `linear`."""
    folder = Path(richobs.__file__).parent / "learners" / "linear"
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))).hexdigest()[:12]


def price(seeds: int) -> None:
    """Measures what a tolerance costs: episodes, and by how much the bound grows with it."""
    rows: list[list[Any]] = []
    kinds: list[tuple[Kind, int, int]] = [("linear", H, d) for H, d in ((3, 4), (3, 8), (3, 16), (8, 8))]
    for kind, H, d in [*kinds, ("one-hot", 2, 6)]:
        contexts, K = (3, 2) if kind == "one-hot" else (20, 3)
        for zeta in (0.0, 0.001, 0.004):
            taken, slopes, wider = [], [], 0
            for seed in range(seeds):
                problem = linear_problem(kind, horizon=H, dim=d, seed=seed, n_contexts=contexts, n_actions=K)
                outcome = richobs.learn(problem, epsilon=0.15, seed=seed, tolerance=zeta, progress=False)
                taken.append(outcome.episodes)
                wider += outcome.epsilon > 0.15
                rows_of = [row for row in outcome.tolerance_curve.rows if outcome.epsilon < row.epsilon < 1]
                if len(rows_of) > 1:
                    a, b = rows_of[:2]
                    slopes.append((b.epsilon - a.epsilon) / (b.tolerance - a.tolerance))
            slope = float(np.median(slopes)) if slopes else math.nan
            rows.append(
                [kind, H, d, zeta, int(np.median(taken)), wider, round(slope / H, 2), round(math.sqrt(d), 2), seeds]
            )
            print(rows[-1], flush=True)
    columns = ["problems", "H", "d", "tolerance", "episodes", "wider", "bound per H zeta", "sqrt(d)", "runs"]
    note = (
        "Epsilon 0.15. wider: runs that ended with a wider epsilon. bound per H zeta: by how much the bound grows with the "
        "tolerance in the curve of a run, divided by H; the known worst case is of order sqrt(d)."
    )
    publish("linear_tolerance", "What a tolerance costs", columns, rows, note)


def designs(seeds: int) -> None:
    """Compares policies that phases B and C could play beside the greedy and the random one, on seeds of its own."""
    cells: tuple[tuple[Kind, int, int, float], ...] = (
        *(("linear", H, d, 0.1) for H, d in ((3, 8), (8, 8), (20, 16))),
        ("one-hot", 3, 9, 0.15),
    )
    rows: list[list[Any]] = []
    for kind, H, d, epsilon in cells:
        contexts = 3 if kind == "one-hot" else 20
        problems = [
            linear_problem(kind, horizon=H, dim=d, n_contexts=contexts, seed=seed) for seed in range(200, 200 + seeds)
        ]
        for name, choose in DESIGNS.items():
            with mock.patch.object(search, "design", choose):
                ran = [
                    richobs.learn(problem, epsilon=epsilon, seed=seed, max_episodes=LIMIT, progress=False)
                    for seed, problem in enumerate(problems)
                ]
            taken = [outcome.episodes for outcome in ran]
            wider = sum(outcome.epsilon > epsilon for outcome in ran)
            rows.append(
                [kind, H, d, epsilon, name, int(np.median(taken)), int(np.mean(taken)), max(taken), wider, seeds]
            )
            print(rows[-1], flush=True)
    columns = ["problems", "H", "d", "epsilon", "beside pi and random", "median", "mean", "most", "wider", "runs"]
    note = (
        "Episodes. Problems have seeds from 200 on; nothing was chosen by them. 4 of Frank-Wolfe is what the learner plays. "
        "optimistic: the plan plus one standard error. good paths: Frank-Wolfe with what actions lose in the plan."
    )
    publish("linear_designs", "What phases B and C play", columns, rows, note)


def optimistic(data: Data, plan: Plan, law: Sequence[Floats], steps: int) -> list[Aim]:
    """Returns the plan that adds one standard error to every value; its root is made linear at the mean."""
    hopeful = planned(data, bonus=1.0)
    typical = [
        float(np.sqrt(quadratic(level.phi, extra)).mean())
        for level, extra in zip(data.levels, hopeful.bonus, strict=True)
    ]
    square = [extra / max(size, 1e-12) for extra, size in zip(hopeful.bonus, typical, strict=True)]
    return [Aim(hopeful.w, square)]


def good_paths(data: Data, plan: Plan, law: Sequence[Floats], steps: int) -> list[Aim]:
    """Returns steps of Frank-Wolfe whose reward is what is uncertain, less what an action loses in the plan."""
    found: list[Aim] = []
    sums = [level.gram() / data.n for level in data.levels]
    for _ in range(steps):
        square = [
            noise * np.linalg.inv(a + 1e-3 * np.trace(a) / len(a) * np.eye(len(a)))
            for noise, a in zip(plan.noise, sums, strict=True)
        ]
        w = list(plan.w)
        best: Floats = np.zeros(0)
        for h in reversed(range(len(data.levels))):
            phi, v = data.levels[h].phi, (data.levels[h].phi @ plan.w[h]).max(axis=1)
            w[h] = plan.w[h] + (law[h] @ best if h < len(law) else 0.0)
            best = (quadratic(phi, square[h]) + phi @ w[h]).max(axis=1) - v
        found.append(Aim(w, square))
        sums = [a + b for a, b in zip(sums, expected_grams(data, law, found[-1]), strict=True)]
    return found


DESIGNS: dict[str, Callable[..., list[Aim]]] = {
    **{f"{n} of Frank-Wolfe": (lambda data, plan, law, steps, n=n: design(data, plan, law, n)) for n in (0, 2, 4, 8)},
    "optimistic": optimistic,
    "good paths": good_paths,
}


def beside(seeds: int) -> None:
    """Compares with LSVI-UCB, and with BPI-UCRL, which counts and knows no features, on the same problems."""
    columns = [
        "problem",
        "method",
        "epsilon",
        "good from",
        "episodes",
        "certified",
        "bound at the end",
        "false",
        "runs",
    ]
    note = (
        "Good from: episodes after which the policy that is shown stays within epsilon of V* (nobody knows then); linear "
        "shows none before its first attempt has ended. "
        "LSVI-UCB (Jin et al. 2020, c = 1) claims nothing of a policy. Where it lands: features are the probabilities of "
        "the cells that an action may lead to, so that means are linear. How far it leans: a feature for each of five "
        "intervals and action, of which means are not functions, so that no claim needs to be true; values of policies are "
        "means of 100 episodes. "
        "A command that is ended early stores the problems that it finished."
    )
    rows: list[list[Any]] = []
    problems: tuple[tuple[str, Callable[[int], Problem], float, int], ...] = (
        ("linear MDP, H 3, d 8", lambda seed: linear_problem(horizon=3, dim=8, seed=seed), 0.1, 30_000),
        ("linear MDP, H 8, d 8", lambda seed: linear_problem(horizon=8, dim=8, seed=seed), 0.1, 30_000),
        ("FrozenLake 3x3, one-hot", lambda _: lake(landing=False), 0.2, 10_000),
        ("FrozenLake 3x3, where it lands", lambda _: lake(landing=True), 0.2, 30_000),
        ("CliffWalking, where it lands", lambda _: cliff(), 40.0, 10_000),
        ("CartPole, how far it leans", lambda _: cart(), 4.0, 5_000),
    )
    for name, made, epsilon, most in problems:
        for method in ("linear", "lsvi-ucb", "bpi-ucrl"):
            ran = [_compared(method, made(seed), epsilon, most, seed) for seed in range(seeds)]
            good, spent, said, false = zip(*ran, strict=True)
            known = [bound for bound in said if bound is not None]
            bound = round(float(np.median(known)), 3) if known else None
            sure = sum(bound <= epsilon for bound in known)
            rows.append(
                [name, method, epsilon, int(np.median(good)), int(np.median(spent)), sure, bound, sum(false), seeds]
            )
            print(rows[-1], flush=True)
        publish("linear_beside", "LSVI-UCB and BPI-UCRL on the same problems", columns, rows, note)


def fourier(seeds: int) -> None:
    """Counts whether runs notice that values of CartPole are not linear in random Fourier features."""
    rows: list[list[Any]] = []
    for dim in (4, 16):
        stopped = silent = wide = false = 0
        for seed in range(seeds):
            env = richobs.from_gymnasium("CartPole-v1", horizon=CART_STEPS, step_range=(0, 1))
            functions = Linear(Fourier(dim, seed), horizon=CART_STEPS, dim=2 * dim, n_actions=2, norm=1.0, may_end=True)
            try:
                outcome = richobs.learn(env, functions, epsilon=4, seed=seed, max_episodes=8_000, progress=False)
            except BrokenPromise:
                stopped += 1
                continue
            silent += not outcome.guaranteed
            wide += outcome.guaranteed
            false += outcome.guaranteed and outcome.upper is not None and outcome.upper < CART_STEPS
        rows.append([2 * dim, stopped, silent, wide, false, seeds])
        print(rows[-1], flush=True)
    columns = ["d", "stopped", "without a claim", "with a claim", "U below V*", "runs"]
    note = f"CartPole cut at {CART_STEPS} steps, V* = {CART_STEPS}, epsilon 4, at most 8,000 episodes; contexts not listed."
    publish("linear_fourier", "Random Fourier features of CartPole", columns, rows, note)


CART_STEPS = 20


def pixels(seeds: int) -> None:
    """Certifies features of a network that was trained on a first phase (`examples/pixels.py`); everything is exact."""
    sys.path.insert(0, str(EXAMPLES))
    robot: Any = importlib.import_module("pixels")
    rows: list[list[Any]] = []
    for power, tolerance, listed in (
        (robot.SHARP, 0.001, True),
        (robot.SHARP, 0.001, False),
        (1.0, 0.25, True),
        (1.0, 0.0, True),
    ):
        for seed in range(seeds):
            truth, off = pixels_truth(robot, functions := robot.candidates(seed, power, listed))
            problem, begin = Problem(robot.Robot(), functions, truth=truth), time.process_time()
            asked: dict[str, Any] = {"epsilon": 0.1, "seed": seed, "tolerance": tolerance, "max_episodes": 200_000}
            outcome = richobs.learn(problem, progress=False, **asked)
            claimed = round(outcome.epsilon, 4) if outcome.guaranteed else None
            loss = round(problem.optimal_value - problem.value(outcome.policy), 4)
            false, spent = is_false(problem, outcome), round(time.process_time() - begin, 1)
            widest = max(round(high - low, 3) for low, high in outcome.constants.f_range) if claimed else None
            pictures = "listed" if listed else "not listed"
            rows.append(
                [power, pictures, seed, round(off, 5), tolerance, claimed, loss, false, widest, outcome.episodes, spent]
            )
            print(rows[-1], flush=True)
    columns = ["power", "pictures", "seed", "share off", "tolerance", "claimed", "true loss", "false", "widest F"]
    columns += ["episodes", "CPU s"]
    note = (
        "Epsilon 0.1, at most 200,000 episodes, and 4,000 before them for the training. share off: the largest total "
        "variation between a law of the next cell and its fit by least squares that is linear in the features; a function "
        "as wide as 1 has means within it of linear. power 1: the network's probabilities as trained. not listed: bounds "
        "over all features that are probabilities. widest F: of all levels, the largest left-over less the smallest."
    )
    publish("linear_pixels", "Features of a network, from pixels", columns, rows, note)


def pixels_truth(robot: Any, functions: Linear) -> tuple[Truth, float]:
    """Returns what policies of pictures are worth, exactly, and which share of a law is not linear in the features."""
    lands = robot.FAILS / 16 + (1 - robot.FAILS) * np.eye(16)[robot.LANDS]  # [S, K, S]
    law, pictures = np.repeat(lands, 16, axis=0), robot.PICTURES.reshape(-1, 8, 8)  # [X, K, S], [X, 8, 8]
    H, X = functions.horizon, len(pictures)
    finite = FiniteEnvironment(np.full(X, 1 / X), [law[:, :, 15]] * H, [np.repeat(law, 16, axis=2) / 16] * H)
    phi = functions.phi(0, pictures).reshape(-1, functions.dim)
    linear = phi @ np.linalg.lstsq(phi, law.reshape(-1, 16), rcond=None)[0]
    off = float(np.abs(linear - law.reshape(-1, 16)).sum(axis=1).max() / 2)

    def value(policy: richobs.Policy) -> float:
        tables = [policy.actions(h, pictures, keyed_generator(0, "unused")) for h in range(H)]
        return finite.value(Actions([Codebook(np.arange(X))] * H, tables))

    return Truth(finite.value(None), world=None, exact_value=value), off


class Fourier:
    """Random Fourier features of CartPole's state, for each action its own; no longer than 1."""

    def __init__(self, dim: int, seed: int):
        rng = keyed_generator(seed, "fourier")
        self.w, self.b = rng.normal(size=(4, dim)), rng.uniform(0, 2 * math.pi, size=dim)

    def __call__(self, level: int, x: Floats) -> Floats:
        wave = np.cos(np.asarray(x) / [1.0, 1.5, 0.1, 1.5] @ self.w + self.b) / math.sqrt(len(self.b))
        return np.einsum("nd,ab->nabd", wave, np.eye(2)).reshape(len(wave), 2, 2 * len(self.b))  # none may be alive


def lake(landing: bool) -> Problem:
    """Returns FrozenLake on 3 x 3 cells with features of cell and action, or of where an action may lead."""
    maps: dict[str, Any] = {"desc": ["SFF", "FHF", "FFG"]}
    env = richobs.from_gymnasium("FrozenLake-v1", horizon=8, reward_range=(0, 1), step_range=(0, 1), **maps)
    return gym_problem("FrozenLake-v1", maps, env, landing)


def cliff() -> Problem:
    """Returns four steps of slippery CliffWalking with features of where an action may lead."""
    env = richobs.from_gymnasium("CliffWalking-v1", horizon=4, step_range=(-100, -1), is_slippery=True)
    return gym_problem("CliffWalking-v1", {"is_slippery": True}, env, landing=True)


def cart() -> Problem:
    """Returns 20 steps of CartPole, of which is seen in which of five intervals angle + 0.3 rate lies; V* is 20."""
    env = richobs.from_gymnasium("CartPole-v1", horizon=CART_STEPS, step_range=(0, 1), observation=leaning)
    phi = np.eye(10).reshape(5, 2, 10)
    reached = [np.arange(1, 4), *[np.arange(5)] * (CART_STEPS - 1)]  # the outer two need a push
    functions = Linear(lambda level, x: phi[x], horizon=CART_STEPS, dim=10, n_actions=2, contexts=reached, may_end=True)

    def value(policy: richobs.Policy) -> float:
        return float(env.play(policy, 100, keyed_generator(0, "value")).returns.mean())

    return Problem(env, functions, truth=Truth(float(CART_STEPS), world=None, exact_value=value))


def leaning(x: Floats) -> int:
    """Returns in which of five intervals a state of CartPole leans."""
    return int(np.digitize(x[2] + 0.3 * x[3], [-0.12, -0.03, 0.03, 0.12]))


def gym_problem(name: str, arguments: dict[str, Any], env: richobs.Environment, landing: bool) -> Problem:
    """Returns a problem of Gymnasium's toys, whose table of laws gives contexts and truth; the learner sees neither."""
    inside: Any = gymnasium.make(name, **arguments).unwrapped
    law, S, K, H = inside.P, len(inside.P), env.n_actions, env.horizon
    keys = sorted({(int(to), float(r), bool(over)) for s in law for a in law[s] for _, to, r, over in law[s][a]})
    leads = np.zeros((S, K, len(keys)))
    for s, a in np.ndindex(S, K):
        for p, to, r, over in law[s][a]:
            leads[s, a, keys.index((int(to), float(r), bool(over)))] += p
    phi = leads if landing else np.eye(S * K).reshape(S, K, S * K)
    reached = [np.array([36 if name.startswith("Cliff") else 0])]
    for _ in range(H - 1):
        after = {keys[i][0] for i in np.flatnonzero(leads[reached[-1]].sum(axis=(0, 1))) if not keys[i][2]}
        reached.append(np.array(sorted(after)))
    pays = np.array([r for _, r, _ in keys])
    on, to = np.array([not over for *_, over in keys]), np.array([to for to, *_ in keys])

    def value(policy: richobs.Policy | None) -> float:
        v = np.zeros(S)
        for h in reversed(range(H)):
            q, at = leads @ (pays + on * v[to]), reached[h]
            v = np.zeros(S)
            v[at] = q[at].max(axis=1) if policy is None else (q[at] * action_law(policy, h, at, K)).sum(axis=1)
        return float(v[reached[0][0]])

    functions = Linear(
        lambda level, x: phi[x], horizon=H, dim=phi.shape[2], n_actions=K, contexts=reached, may_end=bool((~on).any())
    )
    return Problem(env, functions, truth=Truth(value(None), world=None, exact_value=value))


def _compared(
    method: str, problem: Problem, epsilon: float, most: int, seed: int
) -> tuple[int, int, float | None, bool]:
    """Returns from which episode on the policy is good, how many were played, what is claimed, and whether that is false."""
    if method == "bpi-ucrl":
        good, spent, gap = bpi_ucrl(problem, epsilon, 0.05, most, keyed_generator(seed, "beside"))
        return good, spent, gap, False
    good = 0

    def watch(progress: richobs.Progress) -> None:
        nonlocal good
        if progress.policy is None or problem.optimal_value - problem.value(progress.policy()) > epsilon:
            good = progress.episodes

    tuning = {"episodes": most} if method == "lsvi-ucb" else {}
    asked: dict[str, Any] = {"learner": method, "epsilon": epsilon, "seed": seed, "tuning": tuning}
    outcome = richobs.learn(problem, callback=watch, max_episodes=most, progress=False, **asked)
    claimed = outcome.epsilon if outcome.guaranteed else None
    return min(good, outcome.episodes), outcome.episodes, claimed, is_false(problem, outcome)


class Actions:
    """A policy that looks its action up."""

    def __init__(self, books: Sequence[Codebook], tables: list[Ints]):
        self.books, self.tables = books, tables

    def actions(self, level: int, x: Ints, rng: np.random.Generator) -> Ints:
        """Returns `[n]` the actions."""
        return self.tables[level][self.books[level].encode(x)]


def bpi_ucrl(
    problem: Problem, epsilon: float, delta: float, most: int, rng: np.random.Generator
) -> tuple[int, int, float]:
    """Returns from which episode on its policy is good, how many were played, and what it certifies at the end."""
    env, functions = problem.env, problem.functions
    assert isinstance(functions, Linear)
    books = functions.contexts
    assert books is not None
    H, K, (low, high), (least, _) = env.horizon, env.n_actions, env.reward_range, step_range(env)
    sizes = [len(book.rows) + 1 for book in books]  # and one for what is over
    shape = SimpleNamespace(observations=[np.arange(size) for size in sizes], n_actions=K)
    model = EmpiricalModel(cast("TabularProcess", shape))
    n = good = 0
    gap = high - low
    while n < most and gap > epsilon:
        batch = max(64, n // 8)
        bounds = plan_bounds(model, delta)
        gap = (bounds.best - bounds.sure) * (high - low)
        best, played_by = ([q.argmax(axis=1) for q in side] for side in (bounds.lower, bounds.upper))
        if problem.optimal_value - problem.value(Actions(books, best)) > epsilon:
            good = n + batch
        played = env.play(Actions(books, played_by), batch, rng)
        x = [np.full(batch, size - 1) for size in sizes]
        for h in range(H):
            live = ~played.ended[h] if played.ended else np.ones(batch, dtype=bool)
            x[h][live] = books[h].encode(played.observations[h][live])
        for h in range(H):
            at = x[h], np.where(x[h] < sizes[h] - 1, played.actions[h], 0)
            np.add.at(model.visits[h], at, 1)
            np.add.at(model.rewards[h], at, np.where(x[h] < sizes[h] - 1, played.rewards[h] - least, 0) / (high - low))
            if h + 1 < H:
                np.add.at(model.moves[h], (*at, x[h + 1]), 1)
        n += batch
    return min(good, n), n, gap


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("cost", "soundness", "designs", "beside", "price", "fourier", "pixels"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="of soundness; the next call goes on from there"
    )
    asked = parser.parse_args()
    parts = {part.__name__: partial(part, asked.seeds) for part in (cost, designs, beside, price, fourier, pixels)}
    parts["soundness"] = partial(soundness, asked.runs, asked.minutes)
    for part in parts if asked.only is None else [asked.only]:
        parts[part]()

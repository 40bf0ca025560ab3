"""Problems that people bring: what does each example cost, and is what it claims true?

Run with `python benchmarks/real.py` (about 15 minutes on one core). The problems are those of `examples/`, played by
Gymnasium, MiniGrid, ale-py, bsuite and Stable-Baselines3; a problem whose package is missing is left out. Every claim is
compared with the truth: the optimal value and the value of the returned policy in the real system, by exact planning. Of
CartPole no exact value is known; there the truth is an interval from 200 fresh episodes.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import ast
import importlib
import importlib.util
import json
import math
import sys
import time
import tokenize
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np

from measure import RESULTS, publish
from richobs import FunctionClass, Model, Outcome, Policy, PolicyReport, Simulators, certify_policy, learn
from richobs.classes.layered import ByLevel

EXAMPLES = Path(__file__).parents[1] / "examples"
TOLERANCE = 1e-9
FRESH = 200  # episodes of CartPole that a claim is compared with
COLUMNS = (
    "problem",
    "class",
    "lines of code",
    "assumed",
    "epsilon",
    "runs",
    "episodes (median)",
    "CPU seconds",
    "certified interval (first run)",
    "exact optimum",
    "value of the policy",
    "wrong",
)


class Case(NamedTuple):
    """An example, and what is asked of it."""

    problem: str  # in words
    example: str  # its file
    needs: tuple[str, ...]  # packages beside those of richobs
    epsilon: float
    runs: int
    assume: Literal["values", "model"]
    options: tuple[tuple[str, Any], ...] = ()  # of its environment


SIMULATED = (("vector", None),)  # one process plays
ALL: tuple[Case, ...] = (
    Case("FrozenLake, not slippery, any holes", "frozen_lake", (), 0.1, 20, "values"),
    Case("FrozenLake, not slippery, any holes", "frozen_lake", (), 0.1, 20, "model"),
    Case("FrozenLake, slippery, map and slip unknown", "slippery_lake", (), 0.1, 5, "values"),
    Case("FrozenLake, slippery, map and slip unknown", "slippery_lake", (), 0.02, 20, "model"),
    Case("CliffWalking, cliff unknown", "cliff_walking", (), 1.0, 10, "values"),
    Case("CliffWalking, cliff unknown", "cliff_walking", (), 1.0, 20, "model"),
    Case("Taxi in the rain, landmarks unknown", "taxi", (), 1.0, 5, "values"),
    Case("Taxi in the rain, landmarks unknown", "taxi", (), 1.0, 20, "model"),
    Case("repair of a machine (own simulator)", "slow_simulator", (), 1.0, 10, "values", SIMULATED),
    Case("repair of a machine (own simulator)", "slow_simulator", (), 0.1, 20, "model", SIMULATED),
    Case("DoorKey-5x5 from RGB images", "door_key", ("minigrid",), 0.01, 10, "values"),
    Case("DoorKey-5x5 from RGB images", "door_key", ("minigrid",), 0.01, 10, "model"),
    Case("deep sea of bsuite, 10 deep", "deep_sea", ("bsuite", "shimmy"), 0.1, 20, "values"),
    Case("Freeway from RAM, mode and wiring unknown", "freeway", ("ale_py",), 0.1, 10, "values"),
    Case("Freeway from RAM, mode and wiring unknown", "freeway", ("ale_py",), 0.1, 10, "model"),
)
SEEDED = ("slippery_lake", "cliff_walking")  # candidates are drawn anew in every run
DETERMINISTIC = ("door_key", "freeway")
CERTIFIED = {"cart_pole": ("torch", "stable_baselines3"), "certify_sb3": ("stable_baselines3",)}


class Truth(NamedTuple):
    """What is really so."""

    optimum: float
    value: Callable[[Policy], float]


def code_lines(file: Path) -> int:
    """Returns how many lines of a file hold code, without comments, docstrings and what makes pictures."""
    text = file.read_text()
    tree = ast.parse(text)
    left_out: set[int] = set()
    for node in ast.walk(tree):
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_picture = isinstance(node, ast.If | ast.Import) and "pictures" in ast.unparse(node)
        if isinstance(node, ast.stmt) and (is_docstring or is_picture):
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    with file.open("rb") as stream:
        tokens = [t for t in tokenize.tokenize(stream.readline) if t.type not in (*skipped, tokenize.ENCODING)]
    return len({line for t in tokens for line in range(t.start[0], t.end[0] + 1)} - left_out)


def truth_of(example: ModuleType, env: Any) -> Truth:
    """Returns what the real system of an example is worth, by planning in its own rules."""
    import gymnasium

    def earned(policy: Policy) -> float:
        return float(env.play(policy, 1, np.random.default_rng(0)).returns[0])

    if example.__name__ == "deep_sea":  # bsuite documents the optimum
        return Truth(1 - example.COST, earned)
    made: dict[str, Callable[[], Model]] = {
        "frozen_lake": lambda: of_gymnasium("FrozenLake-v1", is_slippery=False),
        "slippery_lake": lambda: of_gymnasium("FrozenLake-v1"),
        "cliff_walking": lambda: of_gymnasium("CliffWalking-v1"),
        "taxi": lambda: of_gymnasium("Taxi-v4", is_rainy=True),
        "slow_simulator": lambda: example.model(example.REAL),
        "door_key": lambda: example.layout(example.REAL),
        "freeway": lambda: Model.by_replay(
            lambda: example.game(example.REAL, example.WIRING), example.HORIZON, markov=True
        ),
    }

    def of_gymnasium(name: str, **options: Any) -> Model:
        return Model.of_gymnasium(gymnasium.make(name, **options), example.HORIZON)

    real = Simulators([made[example.__name__]()])
    optimum = float(real.optimal_values()[0])
    if example.__name__ in DETERMINISTIC:  # one episode tells a value, and does not depend on how the model was made
        return Truth(optimum, earned)
    return Truth(optimum, lambda policy: float(real.policy_values(policy)[0]))


def is_wrong(outcome: Outcome, truth: Truth) -> bool:
    """Returns whether anything that was claimed is false."""
    value = truth.value(outcome.policy)
    assert outcome.lower is not None
    assert outcome.upper is not None
    return (
        value < outcome.lower - TOLERANCE
        or truth.optimum > outcome.upper + TOLERANCE
        or truth.optimum - value > outcome.epsilon + TOLERANCE
        or not outcome.guaranteed
    )


def size_words(functions: FunctionClass) -> str:
    """Returns what a class is and how large."""
    if isinstance(functions, Simulators):
        merged = f", {functions.n_models:,} differ" if functions.n_merged else ""
        return f"{len(functions.place):,} models{merged}"
    assert isinstance(functions, ByLevel)
    return f"product of 10^{functions.log_size / math.log(10):.0f} tables"


def measured(case: Case) -> tuple[Any, ...]:
    """Runs an example with several seeds, and returns its row."""
    example = importlib.import_module(case.example)
    if case.example == "slow_simulator":
        vars(example)["SECONDS"] = 0  # what is slow there is a call of sleep
    env = example.environment(**dict(case.options))
    truth = truth_of(example, env)
    functions: FunctionClass | None = None
    outcomes: list[Outcome] = []
    planning: list[float] = []
    learning: list[float] = []
    for seed in range(case.runs):
        begin = time.process_time()
        if functions is None or case.example in SEEDED:
            functions = example.candidates(**({"seed": seed} if case.example in SEEDED else {}))
            planning.append(time.process_time() - begin)
        begin = time.process_time()
        assert functions is not None
        outcomes.append(learn(env, functions, epsilon=case.epsilon, assume=case.assume, seed=seed, progress=False))
        learning.append(time.process_time() - begin)
    assert functions is not None
    first, wrong = outcomes[0], sum(is_wrong(outcome, truth) for outcome in outcomes)
    return (
        case.problem,
        size_words(functions),
        code_lines(EXAMPLES / f"{case.example}.py"),
        case.assume,
        case.epsilon,
        case.runs,
        float(np.median([outcome.episodes for outcome in outcomes])),
        round(float(np.median(planning) + np.median(learning)), 2),
        f"[{first.lower:.4g}, {first.upper:.4g}]",
        round(truth.optimum, 4),
        round(truth.value(first.policy), 4),
        wrong,
    )


def certified_rows(name: str) -> list[tuple[Any, ...]]:
    """Trains with Stable-Baselines3, certifies, and compares with fresh episodes."""
    example = importlib.import_module(name)
    lines = code_lines(EXAMPLES / f"{name}.py")
    begin = time.process_time()
    if name == "cart_pole":
        from richobs import LearnedPolicy, Networks

        env, size = example.environment(), 8
        functions = Networks(example.networks(size), example.HORIZON, 2, value_range=example.VALUES)
        reports: Sequence[PolicyReport] = example.certified(functions, env)
        episodes = sum(report.episodes for report in reports)
        policies: Sequence[Any] = [LearnedPolicy(functions, i) for i in range(size)]
        words, kind = "CartPole, Q networks of a training", f"{size} networks"
    else:
        model, check = example.train()
        env, reports, policies = example.environment(), check.reports[-1:], [model]
        episodes = sum(report.episodes for report in check.reports)
        words, kind = "CartPole, PPO trained until certified", "1 policy"
    spent = time.process_time() - begin
    fresh = [
        certify_policy(env, p, epsilon=400, max_episodes=FRESH, batch=FRESH, seed=99, reward_range=(1, 500))
        for p in policies
    ]
    best = int(np.argmax([report.lower for report in reports]))
    wrong = sum(not (r.lower <= f.upper and f.lower <= r.upper) for r, f in zip(reports, fresh, strict=True))
    return [
        (
            words,
            kind,
            lines,
            "nothing",
            "-",
            1,
            float(episodes),
            round(spent, 1),
            f"[{reports[best].lower:.4g}, {reports[best].upper:.4g}]",
            "at most 500",
            f"{fresh[best].mean:.1f} in {FRESH:,} episodes",
            wrong,
        )
    ]


def cell(value: Any) -> str:
    """Returns a value as it stands in the table of docs/gallery.md."""
    return f"{value:,.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def markdown(rows: Sequence[Sequence[Any]]) -> str:
    """Returns the table of docs/gallery.md."""
    lines = [COLUMNS, ["---"] * len(COLUMNS), *([cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def stored() -> list[tuple[Any, ...]]:
    """Returns the rows that were written last."""
    file = RESULTS / "real.json"
    return [tuple(row.values()) for row in json.loads(file.read_text())["rows"]] if file.exists() else []


def is_there(packages: Sequence[str], name: str) -> bool:
    """Returns whether packages are installed; says so where one is not."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        print(f"{name}: left out, because {', '.join(missing)} is not installed.")
    return not missing


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost and truth of the claims of all examples.")
    parser.add_argument(
        "--only", help="measure the examples whose name contains this, and keep the other rows as they are"
    )
    parser.add_argument("--runs", type=int, help="runs of each row at most, for a trial: nothing is written")
    given = parser.parse_args()
    sys.path.insert(0, str(EXAMPLES))
    rows: list[tuple[Any, ...]] = []

    def keep(row: tuple[Any, ...]) -> None:
        rows.append(row)
        print(row, flush=True)

    for case in ALL:
        if (given.only or "") in case.example and is_there(case.needs, case.example):
            keep(measured(case._replace(runs=min(case.runs, given.runs or case.runs))))
    for name, packages in CERTIFIED.items():
        if (given.only or "") in name and is_there(packages, name):
            for row in certified_rows(name):
                keep(row)
    order = [(case.problem, case.assume) for case in ALL]
    if given.only is not None:
        rows += [row for row in stored() if (row[0], row[3]) not in {(new[0], new[3]) for new in rows}]
    rows.sort(key=lambda row: order.index((row[0], row[3])) if (row[0], row[3]) in order else len(order))
    if given.runs is None:
        print(markdown(rows))
        publish(
            "real",
            "Problems that people bring: cost, certified intervals, and whether they are right",
            COLUMNS,
            rows,
            "delta is 0.05. CPU seconds of one run are those of planning the candidates (or of training) and of learning, "
            "without imports. "
            "The interval is [W, U]: the policy earns at least W, and no policy earns more than U. A run is wrong if any "
            "statement of its claim is false.",
        )


if __name__ == "__main__":
    main()

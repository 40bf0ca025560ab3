"""Episodes, CPU seconds and false claims of a search in families with unknown numbers, beside grids of models.

Run with `python benchmarks/families.py --cost` (the bars of each problem), `--grid`, `--more`, `--near`, `--laws`,
`--groups`, `--growth` and `--soundness`. Each writes one file in benchmarks/results. A run draws its true parameters from
the inner 60% of the box, and every claim is checked exactly. Epsilon is in units of the range of values: the largest V* less
the smallest value of a policy, over a grid of the box.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import functools
import itertools
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from measure import RESULTS, publish
from richobs import Family, Model, Rewards, Simulators, TabularProcess
from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.environment import implied_step_range
from richobs.core.errors import BrokenPromise
from richobs.core.events import nobody
from richobs.core.ledger import Ledger
from richobs.core.problem import Problem
from richobs.core.randomness import keyed_generator
from richobs.engines import StreamEngine
from richobs.learners.families.cells import Tables
from richobs.learners.families.laws import LawSearch, run_laws
from richobs.learners.families.search import FamilySearch, Tuning, outcome, run, widened
from richobs.learners.models.search import ModelSearch
from richobs.learners.models.search import Tuning as ModelTuning
from richobs.learners.models.search import run as run_models
from richobs.worlds.simulator import table_problem
from richobs_lab.counted import CountedEngine
from richobs_lab.rivals.bpi_ucrl import bpi_ucrl
from richobs_lab.worlds.model_environment import model_problem

FOUR = ("SFFF", "FHFH", "FFFH", "HFFG")
EIGHT = ("SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG")
TURNS = (-1, 0, 1)  # to the left of the direction, in it, to the right of it
INNER = 0.6  # of the box, in which the true parameters lie


def neighbour(size: int, cell: int, action: int) -> int:
    """Returns the cell to which a move leads: 0 left, 1 down, 2 right, 3 up."""
    row, column = divmod(cell, size)
    down, right = ((0, -1), (1, 0), (0, 1), (-1, 0))[action % 4]
    return min(max(row + down, 0), size - 1) * size + min(max(column + right, 0), size - 1)


def lake(rows: Sequence[str], chances: Callable[[Any, int], Sequence[Any]]) -> Callable[[Any], Any]:
    """Returns the outcomes of a frozen lake; `chances(theta, action)` are those of the three turns."""

    def make(theta: Any) -> Any:
        cells, size = "".join(theta.get("map", rows)), len(rows)

        def outcome(chance: Any, to: int) -> tuple[Any, int, float, bool]:
            return chance, to, float(cells[to] == "G"), cells[to] in "HG"

        return [
            [
                [outcome(p, neighbour(size, s, a + turn)) for p, turn in zip(chances(theta, a), TURNS, strict=True)]
                for a in range(4)
            ]
            for s in range(size * size)
        ]

    return make


def slip(theta: Any, action: int) -> tuple[Any, Any, Any]:
    """One number: slips to either side."""
    p = theta["slip"]
    return p / 2, 1 - p, p / 2


def two_slips(theta: Any, action: int) -> tuple[Any, Any, Any]:
    """Two numbers: slips to the left and to the right."""
    return theta["left"], 1 - theta["left"] - theta["right"], theta["right"]


def own_slips(theta: Any, action: int) -> tuple[Any, Any, Any]:
    """Four numbers: a slip for every action."""
    p = theta[f"slip{action}"]
    return p / 2, 1 - p, p / 2


def own_slips_and_right(theta: Any, action: int) -> tuple[Any, Any, Any]:
    """Five numbers: a slip to the left for every action, and one to the right."""
    p = theta[f"slip{action}"]
    return p, 1 - p - theta["right"], theta["right"]


def inventory(rate_of: Callable[[Any, int], Any], shelves: int = 10) -> Callable[[Any], Any]:
    """Returns the outcomes of a store: parts cost 1, sell for 3, and cost 0.1 to keep overnight.

    Sales are seen, demand beyond the stock is not: it costs nothing.
    """
    orders = (0, 2, 4, 6)

    def make(theta: Any) -> Any:
        table: list[list[list[tuple[Any, int, float, bool]]]] = []
        for stock in range(shelves + 1):
            table.append([])
            for order in orders:
                held = min(stock + order, shelves)
                law = Family.poisson(rate_of(theta, stock), held)
                paid = 1.0 * (held - stock)
                table[-1].append(
                    [(p, held - sold, 3.0 * sold - paid - 0.1 * (held - sold), False) for sold, p in enumerate(law)]
                )
        return table

    return make


def river(theta: Any, n: int = 6) -> list[list[list[tuple[Any, int, float, bool]]]]:
    """Returns the outcomes of river swim: the current is unknown."""
    forward, back = theta["forward"], theta["back"]
    table: list[list[list[tuple[Any, int, float, bool]]]] = []
    for s in range(n):
        down = [(1.0, max(s - 1, 0), 0.05 if s == 0 else 0.0, False)]
        up = [
            (forward, min(s + 1, n - 1), float(s == n - 1), False),
            (back, max(s - 1, 0), 0.0, False),
            (1 - forward - back, s, 0.0, False),
        ]
        table.append([down, up])
    return table


def swim(n: int) -> Callable[[], Family]:
    """Returns river swim with n states, and 4n levels."""
    return lambda: Family(lambda t: river(t, n), {"forward": (0.1, 0.6), "back": (0.02, 0.3)}, horizon=4 * n)


def pendulum(theta: Any, angles: int = 9, speeds: int = 7) -> list[list[list[tuple[Any, int, float, bool]]]]:
    """Returns the outcomes of a pendulum that hangs and is to swing up; its gravity, and noise of its speed, are unknown.

    State: one of the angles of a circle (0 is upright) and a speed, which is how many angles it moves in a step. A push
    costs a tenth of what a step upright pays, and is too weak to lift the pendulum at once.
    """
    grid, noise, most = np.linspace(-2.4, 2.4, speeds), theta.get("noise", 0.7), speeds // 2
    edges = (grid[1:] + grid[:-1]) / 2
    table: list[list[list[tuple[Any, int, float, bool]]]] = []
    for at, (place, speed) in itertools.product(range(angles), enumerate(grid.tolist())):
        table.append([])
        angle, to = 2 * np.pi * at / angles, (at + place - most) % angles
        for push in (-1.0, 0.0, 1.0):
            mean = 0.95 * speed + 0.35 * theta["gravity"] * float(np.sin(angle)) + 0.4 * push
            below = [0.0, *(Family.phi((edge - mean) / noise) for edge in edges), 1.0]
            reward = ((float(np.cos(angle)) + 1) / 2 - 0.1 * abs(push)) / 12
            table[-1].append([(below[j + 1] - below[j], to * speeds + j, reward, False) for j in range(speeds)])
    return table


def cartpole(theta: Any, exact: bool = False) -> list[list[list[tuple[Any, int, float, bool]]]]:
    """Returns the outcomes of a pole on a cart, moved every tenth of a second, on a grid of angles and angular speeds.

    After each move angle and speed are rounded at random to the grid: that is the declared discretisation. Gravity is
    unknown. The family has the first terms of sine and cosine, Gymnasium's CartPole (`exact`) all of them. The episode ends
    where the pole leaves the grid.
    """
    angles, speeds, time_, spread = np.linspace(-0.2, 0.2, 7), np.linspace(-1.5, 1.5, 5), 0.1, 0.35
    edges = (speeds[1:] + speeds[:-1]) / 2
    table: list[list[list[tuple[Any, int, float, bool]]]] = []
    for angle, speed in itertools.product(angles.tolist(), speeds.tolist()):
        table.append([])
        at = int(np.rint((angle + time_ * speed - angles[0]) / (angles[1] - angles[0])))
        for force in (-3.0, 0.0, 3.0):
            sin, cos = (np.sin(angle), np.cos(angle)) if exact else (angle - angle**3 / 6, 1 - angle**2 / 2)
            sin, cos = float(sin), float(cos)
            push = (force + 0.05 * speed**2 * sin) / 1.1
            mean = speed + time_ * (theta["gravity"] * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
            below = [0.0, *(Family.phi((edge - mean) / spread) for edge in edges), 1.0]
            outcomes = []
            for moved, part in ((-1, 0.2), (0, 0.6), (1, 0.2)):
                inside = 0 <= at + moved < len(angles)
                to = (at + moved) * len(speeds) if inside else 0
                laws = [part * (below[j + 1] - below[j]) for j in range(len(speeds))] if inside else [part]
                outcomes += [(p, to + j, 1 / 20 if inside else 0.0, not inside) for j, p in enumerate(laws)]
            ended = [p for p, *_, done in outcomes if done]
            kept = [outcome for outcome in outcomes if not outcome[3]]
            table[-1].append(kept + ([(sum(ended), 0, 0.0, True)] if ended else []))
    return table


def random_maps(n: int, rng: np.random.Generator) -> list[tuple[str, ...]]:
    """Returns the standard map, and others with four holes in other places."""
    maps: list[tuple[str, ...]] = [FOUR]
    while len(maps) < n:
        holes = set((1 + rng.choice(14, size=4, replace=False)).tolist())
        cells = "".join("S" if c == 0 else "G" if c == 15 else "H" if c in holes else "F" for c in range(16))
        made = tuple(cells[i : i + 4] for i in range(0, 16, 4))
        if made not in maps:
            maps.append(made)
    return maps


class Case(NamedTuple):
    """A family, and what is asked."""

    name: str
    family: Callable[[], Family]
    epsilons: tuple[float, ...] = (0.1, 0.05, 0.02, 0.01, 0.005)
    bars: tuple[int, ...] = ()
    seconds: float = 0.0  # at most


def _slips(rows: Sequence[str], horizon: int) -> Callable[[], Family]:
    return lambda: Family(lake(rows, slip), {"slip": (0, 1)}, horizon=horizon)


def _two(rows: Sequence[str], horizon: int) -> Callable[[], Family]:
    box = {"left": (0, 0.5), "right": (0, 0.5)}
    return lambda: Family(lake(rows, two_slips), box, horizon=horizon)


COST = (
    Case("lake 4x4, slip", _slips(FOUR, 30), bars=(6, 10, 25, 90, 400), seconds=0.5),
    Case("lake 8x8, slip", _slips(EIGHT, 100), bars=(4, 6, 15, 30, 70), seconds=2),
    Case("lake 4x4, left and right slip", _two(FOUR, 30), bars=(12, 25, 95, 270, 1100), seconds=1),
    Case("lake 8x8, left and right slip", _two(EIGHT, 100), bars=(14, 25, 70, 150, 380), seconds=5),
    Case(
        "inventory, one rate",
        lambda: Family(inventory(lambda t, s: t["rate"]), {"rate": (1, 9)}, horizon=20, start=5),
        bars=(2, 2, 5, 12, 25),
        seconds=1,
    ),
    Case(
        "inventory, two rates",
        lambda: Family(
            inventory(lambda t, s: t["low"] if s < 5 else t["high"]),
            {"low": (1, 9), "high": (1, 9)},
            horizon=20,
            start=5,
        ),
        bars=(3, 6, 13, 26, 60),
        seconds=6,
    ),
)
MORE = (
    Case(
        "lake 4x4, a slip for each action",
        lambda: Family(lake(FOUR, own_slips), {f"slip{a}": (0, 1) for a in range(4)}, horizon=30),
        (0.1, 0.05),
    ),
    Case(
        "river swim, forward and back",
        lambda: Family(river, {"forward": (0.1, 0.6), "back": (0.02, 0.3)}, horizon=20),
        (0.1, 0.05, 0.02),
    ),
    Case(
        "pendulum 9x7 swings up, gravity",
        lambda: Family(pendulum, {"gravity": (0, 4)}, horizon=12, start=31),
        (0.1, 0.05, 0.02, 0.01),
    ),
    Case(
        "pendulum 9x7 swings up, gravity and noise",
        lambda: Family(pendulum, {"gravity": (0, 4), "noise": (0.5, 1.5)}, horizon=12, start=31),
        (0.1, 0.05, 0.02, 0.01),
    ),
    Case(
        "1,000 maps and slip, lake 4x4",
        lambda: Family(
            lake(FOUR, slip), {"map": random_maps(1000, np.random.default_rng(0)), "slip": (0, 1)}, horizon=30
        ),
        (0.1, 0.02),
    ),
    Case(
        "1,000 ways to read the observation and slip, lake 4x4",
        lambda: Family(
            lake(FOUR, slip),
            {
                "shown": [
                    list(range(16)),
                    *np.random.default_rng(1).permuted(np.tile(range(16), (999, 1)), axis=1).tolist(),
                ],
                "slip": (0, 1),
            },
            horizon=30,
            observations=lambda given: np.array(given["shown"]),
        ),
        (0.1, 0.02),
    ),
    Case(
        "lake 4x4, a slip for each action and one to the right",
        lambda: Family(
            lake(FOUR, own_slips_and_right), {**{f"slip{a}": (0, 0.6) for a in range(4)}, "right": (0, 0.4)}, horizon=30
        ),
        (0.1, 0.05),
    ),
)


def mixture(d: int) -> Callable[[], Family]:
    """Returns a small family: random laws of three outcomes, mixed in unknown proportions."""
    rng = np.random.default_rng(d)
    to, pay = rng.integers(3, size=(3, 2, 3)), rng.random((3, 2, 3)).round(2)
    laws = rng.dirichlet(np.ones(3), size=(d + 1, 3, 2))

    def make(theta: Any) -> Any:
        parts = [theta[f"x{i}"] / d for i in range(d)]
        parts.append(1 - sum(parts[1:], parts[0]))
        return [
            [
                [
                    (
                        sum(x * float(laws[i, s, a, b]) for i, x in enumerate(parts)),
                        int(to[s, a, b]),
                        float(pay[s, a, b]),
                        False,
                    )
                    for b in range(3)
                ]
                for a in range(2)
            ]
            for s in range(3)
        ]

    return lambda: Family(make, {f"x{i}": (0, 1) for i in range(d)}, horizon=5)


SOUND = (
    Case("mixtures of two laws", mixture(1), (0.003,)),
    Case("mixtures of three laws", mixture(2), (0.003,)),
    Case("lake 4x4, slip", _slips(FOUR, 12), (0.003,)),
    Case(
        "river swim, forward and back",
        lambda: Family(river, {"forward": (0.1, 0.6), "back": (0.02, 0.3)}, horizon=12),
        (0.003,),
    ),
)
DELTAS = (0.5, 0.3, 0.1)
CART_TOLERANCE = 0.001  # more than the distance between both equations
NEAR_LIMIT = 200  # episodes of a run near the family
LIMIT = 60  # episodes of a soundness run; one that spends them still makes a claim


class Ran(NamedTuple):
    """What one run did."""

    shown: int  # episodes after which it could have claimed
    episodes: int
    claimed: bool
    false: bool  # whether anything claimed is false
    excluded: bool  # whether the true parameters ever did not live
    seconds: float


def value_range(family: Family) -> float:
    """Returns the largest V* less the smallest value of any policy, over nine points of each interval."""
    axes = [np.linspace(low, high, 9) for low, high in zip(family.low, family.high, strict=True)]
    points = np.stack([x.ravel() for x in np.meshgrid(*axes[:2])])
    if len(axes) > 2:
        points = np.random.default_rng(0).uniform(family.low[:, None], family.high[:, None], (len(axes), 81))
    tables, law = Tables(family, 0), np.maximum(family.program.at(points), 0.0)
    best = tables.plan(law)[0].max()
    tables.reward = -tables.reward
    return float(best + tables.plan(law)[0].max())


@functools.cache
def family_of(case: Case) -> tuple[Family, float]:
    """Returns the family of a case, and its range of values."""
    family = case.family()
    return family, value_range(family)


def truth_of(family: Family, seed: int, name: str) -> tuple[dict[str, Any], Problem]:
    """Returns true parameters from the inner part of the box, and the problem of playing with them."""
    rng = keyed_generator(seed, "benchmark of families", name)
    middle, half = (family.low + family.high) / 2, INNER * (family.high - family.low) / 2
    theta: dict[str, Any] = dict(zip(family.names, rng.uniform(middle - half, middle + half).tolist(), strict=True))
    theta |= {name: items[int(rng.integers(len(items)))] for name, items in family.lists.items()}
    return theta, model_problem(Simulators([family.at(theta)]), 0, family.reward_range)


def one_run(case: Case, epsilon: float, delta: float, seed: int, limit: int | None = None) -> Ran:
    """Runs a search in a family and checks what it claims."""
    family, span = family_of(case)
    theta, problem = truth_of(family, seed, case.name)
    begin = time.process_time()
    engine = StreamEngine(problem.env, family, seed=seed, ledger=Ledger(limit))
    point = np.array([theta[name] for name in family.names])
    law = np.maximum(family.program.at(point[:, None]), 0.0)
    places = [items.index(theta[name]) for name, items in family.lists.items()]
    structure, excluded = places[0] if places else 0, False

    def watch(progress: Any) -> None:
        nonlocal excluded
        seen = search.seen
        excluded |= not (seen.possible[structure] and seen.evidence(structure).log_likelihood(law)[0] > seen.threshold)

    totals, steps = family.reward_range, implied_step_range(family.reward_range)
    search = FamilySearch(engine, family, totals, steps, epsilon * span, delta, seed, watch, Tuning())
    try:
        chosen, certified = run(search)
    except BrokenPromise:  # the true parameters were refuted, and so were all others
        return Ran(0, engine.ledger.total, False, False, True, time.process_time() - begin)
    covered = search.covered if certified else widened(search, chosen)[0]
    seconds = time.process_time() - begin
    tables = search.tables(structure)
    best, value = tables.plan(law)[0][0], tables.values(law, chosen.actions)[0]
    false = covered is not None and bool(best - value > max(epsilon * span, covered.regret) or best > covered.upper)
    false |= certified and bool(value < search.lower)
    shown = search.shown_at if search.shown_at is not None else engine.ledger.total
    return Ran(shown, engine.ledger.total, certified, false, excluded, seconds)


def grid_run(case: Case, epsilon: float, delta: float, seed: int, points: int) -> Ran:
    """Runs the search among models on a grid that does not hold the truth, and checks what it claims."""
    family, span = family_of(case)
    _, problem = truth_of(family, seed, case.name)
    each = round(points ** (1 / len(family.names)))
    axes = [np.linspace(low, high, each) for low, high in zip(family.low, family.high, strict=True)]
    thetas = [dict(zip(family.names, map(float, at), strict=True)) for at in itertools.product(*axes)]
    begin = time.process_time()
    functions = Simulators.grid(family.at, thetas)
    engine = StreamEngine(problem.env, functions, seed=seed, ledger=Ledger(None))
    totals, steps = family.reward_range, implied_step_range(family.reward_range)
    search = ModelSearch(engine, functions, totals, steps, epsilon * span, delta, seed, nobody, ModelTuning())
    try:
        found = run_models(search)
    except BrokenPromise:
        return Ran(0, engine.ledger.total, False, False, True, time.process_time() - begin)
    seconds = time.process_time() - begin
    loss = problem.optimal_value - float(problem.value(LearnedPolicy(functions, found.member)))
    total = engine.ledger.total
    return Ran(total, total, True, loss > epsilon * span, False, seconds)


def publish_with_others(name: str, title: str, columns: Sequence[str], rows: Sequence[Any], note: str) -> None:
    """Publishes rows together with those of other cases that are stored: `--only` measures one case at a time."""
    keys = [column for column in ("family", "epsilon", "delta", "distance", "tolerance") if column in columns]
    new = {tuple(row[columns.index(key)] for key in keys): tuple(row) for row in rows}
    file = RESULTS / f"{name}.json"
    stored = json.loads(file.read_text())["rows"] if file.exists() else []
    known = {tuple(row[key] for key in keys): tuple(row[column] for column in columns) for row in stored}
    publish(name, title, columns, list({**known, **new}.values()), note)


def cost(cases: Sequence[Case], runs: int, only: Sequence[float] | None, name: str, title: str) -> None:
    """Measures episodes and CPU seconds of every case."""
    rows = []
    for case in cases:
        for i, epsilon in enumerate(case.epsilons):
            if only and epsilon not in only:
                continue
            ran = [one_run(case, epsilon, 0.05, seed) for seed in range(runs)]
            shown, played = (np.array([getattr(r, field) for r in ran]) for field in ("shown", "episodes"))
            bar = case.bars[i] if case.bars else None
            rows.append(
                (
                    case.name,
                    epsilon,
                    runs,
                    float(np.median(shown)),
                    bar,
                    int(shown.max()),
                    float(np.median(played)),
                    sum(not r.claimed for r in ran),
                    sum(r.false for r in ran),
                    float(np.median([r.seconds for r in ran])),
                    case.seconds or None,
                )
            )
            print(rows[-1], flush=True)
    columns = (
        "family",
        "epsilon",
        "runs",
        "median episodes until a claim was possible",
        "bar",
        "most",
        "median episodes played",
    )
    publish_with_others(
        name,
        title,
        (*columns, "without a claim", "false claims", "median CPU seconds", "at most"),
        rows,
        "Delta 0.05. A claim needs 16 episodes of its policy besides, which the median of episodes played includes.",
    )


def random_table(states: int, actions: int, horizon: int, seed: int) -> tuple[Any, Any, Any]:
    """Returns outcomes [s][a]: every state may follow, with a reward of 0 or 1/H; laws `[S, K, S]` and means `[S, K]`."""
    rng = keyed_generator(seed, "unknown laws", states, actions)
    means, law = rng.random((states, actions)), rng.dirichlet(np.ones(states), size=(states, actions))
    own = [(x, r, False) for x in range(states) for r in (0.0, 1 / horizon)]
    return [[own] * actions] * states, law, means


def laws_run(
    listed: Any, law: Any, means: Any, horizon: int, epsilon: float, seed: int, by_level: bool
) -> tuple[int, int, bool]:
    """Returns episodes until a claim was possible, episodes played, and whether the claim is false.

    By level nothing ties the laws of different levels: states are (level, state), as BPI-UCRL sees them.
    """
    S, K = law.shape[:2]
    if by_level:
        last = (horizon - 1) * S
        listed = [
            [[(0 if h * S == last else (h + 1) * S + x, r, h * S == last) for x, r, _ in row] for row in rows]
            for h in range(horizon)
            for rows in listed
        ]
        listed = [[row if s < last else row[:2] for row in rows] for s, rows in enumerate(listed)]
    family = Family.by_law(listed, horizon=horizon)
    truth = {}
    for i, name in enumerate(family.names):
        m = means[i // K % S, i % K]
        own = [1.0] if family.sizes[i] == 2 else law[i // K % S, i % K]
        truth[name] = [p * x for p in own for x in (1 - m, m)]
    known = model_problem(Simulators([family.at(truth)]), 0, family.reward_range)
    engine = StreamEngine(known.env, family, seed=seed, ledger=Ledger(None))
    steps = implied_step_range(family.reward_range)
    search = LawSearch(engine, family, family.reward_range, steps, epsilon, 0.05, seed, nobody, Tuning())
    found = run_laws(search)
    false = known.optimal_value - float(known.value(found.policy)) > found.epsilon or (
        found.upper is not None and known.optimal_value > found.upper
    )
    return search.shown_at or 0, engine.ledger.total, false


def bpi_run(law: Any, means: Any, horizon: int, epsilon: float, seed: int) -> int:
    """Returns the episodes of BPI-UCRL on the same process."""
    present = [1] + [len(law)] * (horizon - 1)  # states of each level: all episodes begin in state 0
    process = TabularProcess(
        np.ones(1),
        tuple(law[:n] for n in present[:-1]),
        tuple(np.eye(n) for n in present),
        tuple(
            Rewards.bernoulli(np.broadcast_to(means[:n, None], (n, n, means.shape[1])), 1 / horizon) for n in present
        ),
    )
    tables = [np.zeros((1, *shape.shape[:1], process.n_actions)) for shape in process.observations]
    functions = table_problem(process, tables, None).functions
    return bpi_ucrl(
        CountedEngine(process, functions, seed=seed, ledger=Ledger(None)), process, epsilon=epsilon, delta=0.05
    )[0].episodes


def beside_bpi(runs: int, only: str) -> None:
    """Measures tables of which every law is unknown, beside BPI-UCRL."""
    rows = []
    for (S, K, H), epsilon in itertools.product(((3, 2, 3), (4, 2, 5), (5, 3, 5)), (0.2, 0.1)):
        if only not in f"S={S}, K={K}, H={H}":
            continue
        own, levels, other, false = [], [], [], 0
        for seed in range(runs):
            listed, law, means = random_table(S, K, H, seed)
            found = [laws_run(listed, law, means, H, epsilon, seed, by_level) for by_level in (False, True)]
            own.append(found[0][1])
            levels.append(found[1][1])
            false += found[0][2] + found[1][2]
            other.append(bpi_run(law, means, H, epsilon, seed))
        ratios = [float(np.median(np.array(other) / np.array(x))) for x in (own, levels)]
        medians = [float(np.median(x)) for x in (own, levels, other)]
        rows.append((f"S={S}, K={K}, H={H}", epsilon, runs, *medians, *ratios, false))
        print(rows[-1], flush=True)
    publish_with_others(
        "families_laws",
        "Tables of which every law is unknown: the search in families by law, and BPI-UCRL",
        (
            "family",
            "epsilon",
            "runs",
            "median episodes, one law a state and action",
            "the same, laws of each level apart",
            "BPI-UCRL",
            "ratio",
            "ratio, laws of each level apart",
            "false claims",
        ),
        rows,
        "Delta 0.05; rewards are 0 or 1/H. BPI-UCRL is told states and levels; the family is told besides what may follow, "
        "and in the first column that laws do not depend on the level. Episodes include those that confirm the policy.",
    )


def cart_problem(family: Family, theta: dict[str, Any]) -> tuple[Problem, float]:
    """Returns CartPole with the full equations on the family's grid, and its distance from the family's laws."""
    listed = Family(lambda t: cartpole(t, exact=True), {"gravity": (5, 15)}, horizon=20, start=17)
    real, near = listed.at(theta), family.at(theta)
    apart = float(np.abs(real.probability - near.probability).sum(axis=-1).max() / 2)
    return model_problem(Simulators([real]), 0, family.reward_range), apart


def bent_problem(family: Family, theta: dict[str, Any], by: float) -> Problem:
    """Returns a system bent against the family's best policy.

    At its actions `by` of the mass moves from the best outcome to the worst, at all others from the worst to the best.
    """
    model = family.at(theta)
    q = Simulators([model]).values(0, np.arange(model.n_states))[0]  # [S, K]
    later = np.where(model.done, 0.0, q.max(axis=1)[model.next]) + model.reward
    probability = model.probability.copy()
    for s, a in itertools.product(range(model.n_states), range(model.n_actions)):
        real = np.flatnonzero(model.probability[s, a] > 0)
        ends = [int(real[later[s, a, real].argmax()]), int(real[later[s, a, real].argmin()])]
        give, take = ends if a == q[s].argmax() else ends[::-1]
        moved = min(by, probability[s, a, give])
        probability[s, a, give] -= moved
        probability[s, a, take] += moved
    real_model = Model(model.horizon, model.start, probability, model.next, model.reward, model.done)
    return model_problem(Simulators([real_model]), 0, family.reward_range)


def near(runs: int, only: str) -> None:
    """Counts false claims where the real system is only near the family, with a tolerance and without."""
    lake_family, _ = family_of(SOUND[2])
    cart = Family(cartpole, {"gravity": (5, 15)}, horizon=20, start=17)
    rows = []
    cells: list[tuple[str, float | None, bool]] = [
        *(("lake 4x4, slip, bent", by, used) for by in (0.003, 0.01, 0.03) for used in (False, True)),
        *(("CartPole 7x5, gravity", None, used) for used in (False, True)),
    ]
    for name, by, used in [cell for cell in cells if only in cell[0]]:
        false, claims, epsilons, episodes, seconds, apart = 0, 0, [], [], [], 0.0
        family = cart if by is None else lake_family
        for seed in range(runs):
            theta, _ = truth_of(family, seed, "near")
            problem, off = cart_problem(family, theta) if by is None else (bent_problem(family, theta, by), by)
            apart, begin = max(apart, off), time.process_time()
            engine = StreamEngine(problem.env, family, seed=seed, ledger=Ledger(NEAR_LIMIT))
            totals, steps = family.reward_range, implied_step_range(family.reward_range)
            alpha = 0.0 if not used else by or CART_TOLERANCE
            epsilon = 0.02 if by is None else 0.003
            search = FamilySearch(engine, family, totals, steps, epsilon, 0.5, seed, nobody, Tuning(), alpha=alpha)
            try:
                found = outcome(search, *run(search))
            except BrokenPromise:
                continue
            seconds.append(time.process_time() - begin)
            loss = problem.optimal_value - float(problem.value(found.policy))
            claims += found.guaranteed
            above = found.upper is not None and problem.optimal_value > found.upper
            false += found.guaranteed and (loss > found.epsilon or above)
            epsilons.append(found.epsilon)
            episodes.append(engine.ledger.total)
        medians = [float(np.median(x)) for x in (epsilons, episodes, seconds)]
        rows.append((name, apart, alpha, runs, claims, false, *medians))
        print(rows[-1], flush=True)
    publish_with_others(
        "families_near",
        "Claims about systems that are only near the family, with the tolerance and without",
        (
            "family",
            "distance",
            "tolerance",
            "runs",
            "claims",
            "false claims",
            "median epsilon",
            "median episodes",
            "median CPU seconds",
        ),
        rows,
        "Lake: horizon 12, epsilon 0.003 asked. CartPole: horizon 20, epsilon 0.02 asked; the family has two terms of sine "
        f"and cosine. Delta 0.5, at most {NEAR_LIMIT} episodes. False: the loss exceeds epsilon, or V* exceeds U.",
    )


def coins(apart: float, seed: int) -> tuple[str, int, bool]:
    """Returns how a run ends, after how many steps of both, and whether its claim is false, where two actions share a law.

    They pay with probabilities 0.5 +- apart / 2; a third action pays with probability 0.5 by a law of its own.
    """
    coin = [(0, 0.2, False), (0, 0.0, False)]
    family = Family.by_law({"both": {(0, 0): coin, (0, 1): coin}, "own": {(0, 2): coin}}, horizon=5)
    real = Family.by_law([[coin] * 3], horizon=5)
    chances = (0.5 + apart / 2, 0.5 - apart / 2, 0.5)
    problem = model_problem(
        Simulators([real.at({n: [p, 1 - p] for n, p in zip(real.names, chances, strict=True)})]), 0, real.reward_range
    )
    engine = StreamEngine(problem.env, family, seed=seed, ledger=Ledger(None))
    steps = implied_step_range(family.reward_range)
    search = LawSearch(engine, family, family.reward_range, steps, 0.05, 0.05, seed, nobody, Tuning())
    try:
        found = run_laws(search)
    except BrokenPromise:
        return "noticed", int(search.members[:2].sum()), False
    loss = problem.optimal_value - float(problem.value(found.policy))
    return "claimed", int(search.members[:2].sum()), loss > found.epsilon


def groups(runs: int) -> None:
    """Counts what is noticed where the members of a group do not have one law."""
    rows = []
    for apart in (0.0, 0.1, 0.2, 0.4, 0.8):
        ran = [coins(apart, seed) for seed in range(runs)]
        noticed = [n for end, n, _ in ran if end == "noticed"]
        median = float(np.median(noticed)) if noticed else None
        rows.append((apart, runs, len(noticed), median, sum(false for *_, false in ran)))
        print(rows[-1], flush=True)
    publish(
        "families_groups",
        "Two actions that are said to share a law, and do not",
        ("total variation", "runs", "noticed", "median steps of both until then", "false claims"),
        rows,
        "Horizon 5, epsilon 0.05, delta 0.05. Both pay with probability 1/2 plus or minus half of the distance; a third "
        "action has a law of its own.",
    )


def growth(runs: int) -> None:
    """Measures how episodes and CPU seconds grow with 1/epsilon, parameters and states, with exponents."""
    sides = (4, 8, 12, 16)
    swims = [Case(f"river swim with {n} states", swim(n), (0.01,)) for n in sides]
    lakes = [(1, COST[0]), (2, COST[2]), (4, MORE[0]), (5, MORE[-1])]
    sweeps: list[tuple[str, list[tuple[Case, float, float]]]] = [
        ("1/epsilon", [(COST[0], e, 1 / e) for e in COST[0].epsilons]),
        ("1/epsilon", [(COST[2], e, 1 / e) for e in COST[2].epsilons]),
        ("parameters", [(case, 0.05, d) for d, case in lakes]),
        ("states", [(case, 0.01, n) for n, case in zip(sides, swims, strict=True)]),
    ]
    rows = []
    for what, cells in sweeps:
        shown, seconds = [], []
        for case, epsilon, _ in cells:
            ran = [one_run(case, epsilon, 0.05, seed) for seed in range(runs)]
            shown.append(max(1.0, float(np.median([r.shown for r in ran]))))
            seconds.append(float(np.median([r.seconds for r in ran])))
        x = np.log([size for *_, size in cells])
        exponents = [float(np.polyfit(x, np.log(y), 1)[0]) for y in (shown, seconds)]
        sizes = ", ".join(f"{size:g}" for *_, size in cells)
        told = [", ".join(f"{v:.3g}" for v in y) for y in (shown, seconds)]
        names = [case.name for case, *_ in cells]
        name = names[0] if len(set(names)) == 1 else f"{names[0]} to {names[-1]}"
        rows.append((name, what, sizes, runs, told[0], exponents[0], told[1], exponents[1]))
        print(rows[-1], flush=True)
    publish(
        "families_growth",
        "How the search in families grows",
        (
            "families",
            "grows in",
            "values",
            "runs each",
            "median episodes",
            "exponent",
            "median CPU seconds",
            "exponent ",
        ),
        rows,
        "Delta 0.05; episodes until a claim was possible. Exponents are least squares of logarithms. Lakes with more "
        "parameters at epsilon 0.05, river swim at 0.01 of the range of values.",
    )


def grids(cases: Sequence[Case], runs: int, points: int) -> None:
    """Measures the search among models on grids."""
    rows = []
    for case in cases:
        for epsilon in case.epsilons[:3]:
            ran = [grid_run(case, epsilon, 0.05, seed, points) for seed in range(runs)]
            episodes = [r.episodes for r in ran]
            seconds = float(np.median([r.seconds for r in ran]))
            broken = sum(r.excluded for r in ran)
            rows.append(
                (case.name, epsilon, runs, float(np.median(episodes)), sum(r.false for r in ran), broken, seconds)
            )
            print(rows[-1], flush=True)
    publish_with_others(
        "families_grid",
        f"The learner 'models' on a grid of about {points:,} models that misses the truth",
        ("family", "epsilon", "runs", "median episodes", "false claims", "stopped", "median CPU seconds"),
        rows,
        "Delta 0.05. CPU seconds include planning the grid.",
    )


def soundness(cases: Sequence[Case], runs: int, minutes: float) -> None:
    """Counts false claims where claims are hard; runs that are stored are not repeated."""
    columns = ("family", "epsilon", "delta", "runs", "certified", "false claims", "true parameters excluded")
    file, end = RESULTS / "families_soundness.json", time.process_time() + 60 * minutes
    stored = json.loads(file.read_text())["rows"] if file.exists() else []
    counts = {tuple(row[c] for c in columns[:3]): [row[c] for c in columns[3:]] for row in stored}
    cells = [((case.name, case.epsilons[0], delta), case) for case, delta in itertools.product(cases, DELTAS)]
    while time.process_time() < end and any(counts.get(key, [0])[0] < runs for key, _ in cells):
        for key, case in cells:
            done = counts.setdefault(key, [0, 0, 0, 0])
            for seed in range(done[0], min(runs, done[0] + 20)):
                r = one_run(case, key[1], key[2], seed, LIMIT)
                done[:] = [n + int(x) for n, x in zip(done, (True, r.claimed, r.false, r.excluded), strict=True)]
            print(key, done, flush=True)
        publish(
            "families_soundness",
            "False claims of the search in families, where claims are hard",
            columns,
            [(*key, *done) for key, done in counts.items()],
            f"At most {LIMIT} episodes a run; one that spends them claims a wider epsilon, which is checked too. The share "
            "of runs in which the true parameters are ever excluded may be at most delta.",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Episodes and false claims of the search in families.")
    for part in ("cost", "more", "grid", "soundness", "laws", "near", "groups", "growth"):
        parser.add_argument(f"--{part}", action="store_true")
    parser.add_argument("--runs", type=int, default=20, help="runs of each cell")
    parser.add_argument("--soundness-runs", type=int, default=600, help="runs of each soundness cell")
    parser.add_argument("--minutes", type=float, default=1e9, help="CPU minutes after which soundness runs pause")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--epsilons", type=float, nargs="*", help="only these")
    given = parser.parse_args()
    chosen = [[case for case in cases if given.only in case.name] for cases in (COST, MORE, SOUND)]
    if given.cost:
        cost(
            chosen[0], given.runs, given.epsilons, "families", "Episodes of the search in families with unknown numbers"
        )
    if given.more:
        cost(chosen[1], given.runs, given.epsilons, "families_more", "Episodes of the search in other families")
    if given.grid:
        grids([case for case in (COST[0], COST[2], MORE[0]) if given.only in case.name], given.runs, 1001)
    if given.near:
        near(given.runs, given.only)
    if given.groups:
        groups(given.runs)
    if given.growth:
        growth(given.runs)
    if given.laws:
        beside_bpi(given.runs, given.only)
    if given.soundness:
        soundness(chosen[2], given.soundness_runs, given.minutes)


if __name__ == "__main__":
    main()

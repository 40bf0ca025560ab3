"""What happens where the class holds the truth only nearly, told so and not told? Claims are checked exactly.

Run with `nice python benchmarks/nearly.py` (about an hour on one core; `--runs 20` for a look, `--only lake` for some rows).

- *tables*: random processes of 4 levels, 4 states and 3 actions. The class is a list of 200 functions. One of them is within
  eta of Q*, its values off by up to eta, in one direction; the others are the Q* of other such processes.
- *lake*: slippery FrozenLake, 4x4, 12 moves, with a grid of slips that misses the real one by a quarter to half of its step.
  For `betting` the tolerance is how far the nearest Q function is from Q*, for `models` the total variation of laws.

- *cart pole*: 60 steps that pay 1 each until the pole falls, at a gravity between 8 and 12. The class is what somebody has
  who plans for eight gravities on a grid of 7,875 cells: none of its functions is Q*. V* is 60; a policy's value is the mean
  of 4,000 episodes, and a claim counts as false beyond three standard errors of it. The tolerance is how far the nearest
  function is from 60 less the level at what a good policy sees.

Each is run with the tolerance that is true, and with none. Results go to `benchmarks/results/nearly.json`.

`--true 50` asks instead what it costs that claims are tested before they are made, in worlds whose classes hold Q*: 50 seeds
each, with doubt and without. Results go to `benchmarks/results/doubt.json`.
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
from unittest import mock

import numpy as np

import richobs
from measure import RESULTS, publish
from richobs.classes import Listed, TableLevel
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise
from richobs.core.outcome import StopReason
from richobs.core.process import Rewards, TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Mask
from richobs.learners.betting.certify import doubted
from richobs.learners.stopping import LEAST
from richobs.worlds.simulator import TabularWorld, WorldEnvironment
from richobs_lab.intervals import binomial_interval
from richobs_lab.worlds.frozen_lake import neighbours
from richobs_lab.worlds.model_environment import ModelEnvironment

LIMIT = 20_000  # episodes
ROUNDING = 1e-9
FILE = RESULTS / "nearly.json"
COLUMNS = (
    *(
        "problem",
        "learner",
        "off by",
        "told",
        "epsilon",
        "delta",
        "first seed",
        "runs",
        "median episodes",
        "claims false",
    ),
    *("false, 95% (exact binomial)", "noticed", "wider than epsilon", "median epsilon claimed", "closed by", "CPU s"),
)
HOLES = (5, 7, 11, 12)
MOVES = 12
STEPS = 60  # of a cart pole
EDGES = np.array([2.4, 3.0, 0.2095, 3.5])  # of position, speed, angle and its speed; the pole falls at two of them
SHAPE = np.array([7, 9, 25, 5])  # cells of each
TRUE = ("lock/5", "lock/5,swap=0.5", "random/5", "random/5,stochastic=True", "frozen-lake")  # Q* is in their classes
RUNS = {"cart pole": 20}  # at the most, of what takes long


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


class CartPole:
    """Poles on carts, as Gymnasium has them, with a gravity of one's own."""

    horizon, n_actions, reward_range = STEPS, 2, (0.0, float(STEPS))
    declared = richobs.Declared(at_once=4_096, step_range=(0.0, 1.0))

    def __init__(self, gravity: float):
        self.gravity = gravity

    def step(self, x: Floats, actions: Ints) -> tuple[Floats, Mask]:
        """Returns `[n, 4]` positions, speeds, angles and their speeds after a step, and `[n]` whether the pole fell."""
        force, (_, speed, angle, turn) = np.where(actions == 1, 10.0, -10.0), x.T
        push = (force + 0.05 * turn**2 * np.sin(angle)) / 1.1
        bend = self.gravity * np.sin(angle) - np.cos(angle) * push
        bend = bend / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
        pull = push - 0.05 * bend * np.cos(angle) / 1.1
        after = x + 0.02 * np.stack([speed, pull, turn, bend], axis=1)
        return after, (np.abs(after[:, 0]) > EDGES[0]) | (np.abs(after[:, 2]) > EDGES[2])

    def play(self, policy: Any, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        """Plays n episodes."""
        x, over = rng.uniform(-0.05, 0.05, (n, 4)), np.zeros(n, dtype=bool)
        played: list[tuple[Floats, Ints, Floats, Mask]] = []
        for level in range(STEPS if levels is None else levels):
            actions = np.zeros(n, dtype=np.int64)
            if not over.all():
                actions[~over] = policy.actions(level, x[~over], rng)
            played.append((x, actions, (~over).astype(np.float64), over))
            after, fell = self.step(x, actions)
            x, over = np.where(over[:, None], x, after), over | fell
        seen, taken, paid, ended = zip(*played, strict=True)
        return Episodes(seen, taken, paid, ended)


class Upright:
    """A policy that holds the pole: it pushes to where the pole leans and turns."""

    def actions(self, level: int, x: Floats, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` the actions."""
        return (x @ np.array([0.1, 0.3, 3.0, 1.0]) > 0).astype(np.int64)


def cells_of(x: Floats) -> Ints:
    """Returns `[n]` the cell of each state."""
    shares = (x / EDGES + 1) / 2 * SHAPE
    return np.ravel_multi_index(tuple(np.clip(shares, 0, SHAPE - 1).astype(int).T), tuple(SHAPE))


@functools.cache
def planned(gravity: float) -> Floats:
    """Returns `[H, cells, 2]` values by dynamic programming on cells, each moved from four points in it."""
    middle = np.stack(np.unravel_index(np.arange(SHAPE.prod()), tuple(SHAPE)), axis=1)
    rng, pole = keyed_generator(0, "points"), CartPole(gravity)
    points = [(middle + rng.random(middle.shape)) / SHAPE * 2 - 1 for _ in range(4)]
    moves = [[pole.step(p * EDGES, np.full(len(p), a)) for p in points] for a in range(2)]
    value = np.zeros(len(middle))
    levels: list[Floats] = []
    for _ in range(STEPS):
        goes_on = [np.mean([np.where(fell, 0.0, value[cells_of(x)]) for x, fell in move], axis=0) for move in moves]
        levels.insert(0, 1 + np.stack(goes_on, axis=1))
        value = levels[0].max(axis=1)
    return np.stack(levels)


def planned_values(gravity: float, level: int, x: Floats) -> Floats:
    """Returns `[n, 2]` what planning on cells says."""
    return planned(gravity)[level, cells_of(np.asarray(x))]


def cart_pole(seed: int) -> Case:
    """Returns a cart pole of unknown gravity, and functions planned on cells for eight gravities."""
    rng = keyed_generator(seed, "cart pole")
    env = CartPole(float(rng.uniform(8, 12)))
    played = env.play(Upright(), 200, rng)
    gravities = [7.0, 8.0, 9.0, 9.8, 10.5, 11.0, 12.0, 13.0]
    assert played.returns.min() == STEPS
    seen = [np.stack([planned_values(g, h, x) for h, x in enumerate(played.observations)]) for g in gravities]
    left = STEPS - np.arange(STEPS)[:, None, None]
    off = min(float(np.abs(values - left).max()) for values in seen)
    functions = richobs.Callables(
        [functools.partial(planned_values, g) for g in gravities], STEPS, 2, value_range=(0.0, float(STEPS))
    )

    def value(policy: Any) -> float:
        returns = env.play(policy, 4_000, keyed_generator(seed, "judged")).returns
        return float(returns.mean() + 3 * returns.std() / 4_000**0.5)

    return Case(env, functions, float(STEPS), value, off)


def measured(
    name: str, make: Callable[[int], Case], told: bool, first: int, runs: int, **asked: Any
) -> tuple[Any, ...]:
    """Returns what became of the runs of one cell, whose seeds are `first` and those after it."""
    begin = time.process_time()
    found: list[tuple[int, float]] = []  # episodes, epsilon
    false, noticed, off, ways = 0, 0, [], Counter[str]()
    for seed in range(first, first + runs):
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
        *(asked["epsilon"], asked["delta"], first, runs, middle[0], false, f"[{low:.3f}, {high:.3f}]", noticed, wide),
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
    rows += [("cart pole", cart_pole, told, {"epsilon": 3.0, "delta": 0.05}) for told in (False, True)]
    for learner, epsilon in (("betting", 0.15), ("models", 0.1)):
        for step in (0.02, 0.06):
            for told in (False, True):
                asked = {"epsilon": epsilon, "delta": 0.1, "learner": learner}
                rows.append((f"lake, {step:g}", functools.partial(lake, step, learner), told, asked))
    return rows


def true_class(world: str, runs: int, first: int, delta: float = 0.05) -> tuple[Any, ...]:
    """Returns what claims that are tested cost in a world whose class holds Q*: the same seeds, with doubt and without."""
    begin = time.process_time()
    found: list[list[Any]] = [[], []]  # with doubt, without: outcomes, or what was said to be broken
    false = [0, 0]
    for seed in range(first, first + runs):
        problem = richobs.make(world, seed=seed)
        for way, tested in enumerate((doubted, lambda *_: None)):
            with mock.patch("richobs.learners.betting.search.doubted", tested):
                asked: dict[str, Any] = {"epsilon": 0.1, "delta": delta, "max_episodes": LIMIT, "progress": False}
                try:
                    outcome = richobs.learn(problem, seed=seed, **asked)
                except BrokenPromise as broken:
                    found[way].append(str(broken))
                    continue
            found[way].append(outcome)
            process, best = problem.process, problem.optimal_value
            assert process is not None
            assert best is not None
            assert outcome.lower is not None
            assert outcome.upper is not None
            value = process.value(outcome.policy)
            true = best - value <= outcome.epsilon + ROUNDING and value >= outcome.lower - ROUNDING
            false[way] += not (true and best <= outcome.upper + ROUNDING)
    both = [pair for pair in zip(*found, strict=True) if not any(isinstance(side, str) for side in pair)]
    now, before = np.median([(one.episodes, max(other.episodes, LEAST)) for one, other in both], axis=0)
    stopped = [[words for words in side if isinstance(words, str)] for side in found]
    alarms = sum(words.startswith("the policy earned") for words in stopped[0])  # the bound at delta / 10, and no other
    wider = sum(one.reason is StopReason.DOUBTED for one, _ in both)
    low, high = binomial_interval(alarms, runs, 0.95)
    row = (
        *(world, 0.1, delta, first, runs, float(now), float(before), round(float(now / before), 3), alarms),
        *(f"[{low:.3f}, {high:.3f}]", delta / 10, wider, *map(len, stopped), *false),
        round(time.process_time() - begin, 1),
    )
    print(*row, sep="; ", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description="Claims where the class holds the truth only nearly.")
    parser.add_argument("--runs", type=int, default=200, help="of each row")
    parser.add_argument("--first", type=int, default=0, help="first seed of each row")
    parser.add_argument("--only", default="", help="regular expression: measure only rows whose name begins so")
    parser.add_argument("--true", type=int, default=0, help="instead: seeds of each world whose class holds Q*")
    parser.add_argument("--told", choices=("yes", "no"), help="measure only rows with the tolerance told, or not")
    given = parser.parse_args()
    if given.true:
        publish(
            "doubt",
            "Claims that are tested before they are made: what that costs where Q* is in the class",
            (
                *(
                    "world",
                    "epsilon",
                    "delta",
                    "first seed",
                    "runs",
                    "median episodes",
                    "median without doubt (16 at least)",
                    "ratio",
                ),
                *("false alarms", "false alarms, 95% (exact binomial)", "allowed", "claims made wider"),
                *("stopped", "stopped without doubt", "claims false", "claims false without doubt", "CPU s"),
            ),
            [true_class(world, given.true, given.first) for world in TRUE if re.match(given.only, world)],
            "The same seeds with doubt and without. False alarm: a bound at delta/10 says that a policy earns more than U. "
            "Stopped: BrokenPromise of any kind, which delta allows; with doubt it may replace a false claim.",
        )
        return
    stored = json.loads(FILE.read_text())["rows"] if FILE.exists() else []
    known = {(row["problem"], row["learner"], row["told"]): tuple(row.get(c, 0) for c in COLUMNS) for row in stored}
    for name, make, told, asked in cells():
        if re.match(given.only, name) and (not given.told or told == (given.told == "yes")):
            row = measured(name, make, told, given.first, min(given.runs, RUNS.get(name, given.runs)), **asked)
            known[name, row[1], row[3]] = row
            publish(
                "nearly",
                "Classes that hold the truth only nearly: claims with the tolerance and without",
                COLUMNS,
                list(known.values()),
                "A claim is false where V*, the policy's value or their difference is not what it says. Off by: distance of "
                "the nearest function from Q*, or of the nearest law in total variation (models).",
            )


if __name__ == "__main__":
    main()

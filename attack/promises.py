"""Are claims true as often as they say, also where an assumption is false? Random small problems, checked exactly.

Run with `python -m attack.promises --n 2000 --seed 0` from the repository. Half of the problems keep what the learner
assumes: there the share of runs with a false claim may be at most delta. The other half violate one assumption each: there
it is counted how often that is noticed, and how often a false claim is made all the same. A lower bound W that rests on
independent episodes and declared ranges alone is a promise there too, where these are kept. The problems are those of the
benchmarks of soundness and of violations. A claim is false where the policy is worse than it says, below V* (the gap) or by
its lower bound (W), or where V* exceeds its upper bound (U).
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import resource
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import richobs
from attack.common import arguments, as_records, show, write_results
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise, EpisodeLimit, Rejected
from richobs.core.outcome import Outcome
from richobs.core.policies import Policy
from richobs.core.problem import Problem
from richobs.core.randomness import keyed_generator
from richobs_lab.intervals import binomial_interval

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from tests.signed import SignedProcess

import betting_soundness
import models
import violations

DELTAS = (0.3, 0.1, 0.05)
TOLERANCE = 1e-9
FEW = 600  # episodes of a run that keeps its assumptions; one that spends them still makes claims
MANY = 20_000  # of one that violates them
CONFIDENCE = 0.99
NOTICED, NO_CLAIM, TRUE = "noticed", "no claim", ""
COLUMNS = (
    "assumptions",
    "problems",
    "learner",
    "delta",
    "runs",
    "noticed",
    "no claim",
    "true",
    "FALSE",
    "99% interval",
    "what",
)


class Case(NamedTuple):
    """One problem, and what its claims are judged by after the run."""

    problem: Problem
    asked: dict[str, Any]  # settings
    best: Callable[[], float]  # V*
    value: Callable[[Policy], float]  # of a policy


class Kind(NamedTuple):
    """A kind of problem for one learner."""

    words: str
    learner: str
    kept: bool  # whether the learner's assumptions are true
    make: Callable[[int, np.random.Generator], Case]
    share: int = 1  # of the runs, relative to other kinds of the same half
    floor: bool = (
        False  # whether W is promised all the same: episodes are independent, and rewards in the declared range
    )


class Twins(violations.Own):
    """An environment whose episodes come in equal pairs, so that they are not independent."""

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        """Plays half as many episodes, and gives each twice."""
        half = self.env.play(policy, (n + 1) // 2, rng, levels)

        def twice(columns: Sequence[np.ndarray[Any, Any]]) -> tuple[np.ndarray[Any, Any], ...]:
            return tuple(np.repeat(column, 2, axis=0)[:n] for column in columns)

        return Episodes(twice(half.observations), twice(half.actions), twice(half.rewards), twice(half.ended))


def exactly(problem: Problem, asked: dict[str, Any]) -> Case:
    """Returns a problem that is judged by its own process."""
    return Case(problem, asked, lambda: problem.optimal_value, lambda policy: float(problem.value(policy)))


def for_betting(seed: int, rng: np.random.Generator) -> Case:
    """Random transitions or not, products or lists, rewards of any sign; Q* is in the class."""
    problem = betting_soundness.problem_of(seed, rng)[1]
    low, high = problem.env.reward_range
    asked = {"epsilon": float(rng.choice([0.05, 0.1, 0.2, 0.4])) * (high - low)}
    env = problem.env
    if isinstance(env, SignedProcess):
        return Case(problem, asked, lambda: env.optimum, env.value)
    return exactly(problem, asked)


def for_certified(seed: int, rng: np.random.Generator) -> Case:
    """Deterministic transitions; Q* is in the class."""
    problem = richobs.make("random", seed=seed, **violations.shape(rng))
    return exactly(problem, {"epsilon": float(rng.choice([0.2, 0.35, 0.5])), "engine": "stream"})


def for_models(seed: int, rng: np.random.Generator) -> Case:
    """Models that differ a little; the real system is one of them."""
    return exactly(models.problem_of(seed, {"n_random": int(rng.integers(2, 12))}, True), {"epsilon": 0.005})


def for_olive(seed: int, rng: np.random.Generator) -> Case:
    """Random transitions among a few states; Q* is in the class."""
    problem = richobs.make("mdp", horizon=2, n_states=3, n_actions=2, class_size=12, stochastic=True, seed=seed)
    return exactly(problem, {"epsilon": 0.2, "max_episodes": None})


def no_model(seed: int, rng: np.random.Generator) -> Case:
    """The real system is none of the models, but resembles them."""
    real = models.problem_of(seed, {"n_random": 1}, True)
    return exactly(real, {"epsilon": 0.05})._replace(
        problem=Problem(violations.Own(real.env), models.random_models(8, keyed_generator(seed, "other models")))
    )


def missing_for_olive(seed: int, rng: np.random.Generator) -> Case:
    """Q* is missing at one level of a product."""
    problem = richobs.make("random", seed=seed, violate="realizable", **violations.shape(rng))
    return exactly(problem, {"epsilon": 0.2, "max_episodes": None})


def rank_for_olive(seed: int, rng: np.random.Generator) -> Case:
    """There are three states a level, and one is declared."""
    case = for_olive(seed, rng)
    return case._replace(asked={**case.asked, "n_states": 1})


def twins(seed: int, rng: np.random.Generator) -> Case:
    """Every episode comes twice."""
    problem = richobs.make("random", seed=seed, **violations.shape(rng))
    return exactly(problem, {})._replace(problem=Problem(Twins(problem.env), problem.functions))


def violating(kind: violations.Kind) -> Callable[[int, np.random.Generator], Case]:
    """Returns what makes a problem of a kind of the benchmark of violations."""

    def make(seed: int, rng: np.random.Generator) -> Case:
        case = kind.make(seed, rng)
        problem = Problem(case.env, case.functions)
        return Case(problem, {}, lambda: case.judge().optimum.value, lambda policy: case.judge().value(policy))

    return make


SAMPLING = (
    violations.overpaying,
    violations.drifting,
    violations.repeating,
)  # nothing is promised where these are false
KINDS = (
    Kind("random problems", "betting", True, for_betting, 4),
    Kind("random deterministic problems", "certified", True, for_certified, 3),
    Kind("random models", "models", True, for_models, 3),
    Kind("random MDPs", "olive", True, for_olive, 2),
    *(
        Kind(kind.words, learner, learner not in kind.needed_by, violating(kind), floor=kind.make not in SAMPLING)
        for kind in violations.KINDS
        if kind.make is not violations.lake  # a minute of CPU time
        for learner in violations.LEARNERS
    ),
    *(Kind("every episode comes twice", learner, False, twins) for learner in violations.LEARNERS),
    Kind("the real system is none of the models", "models", False, no_model),
    Kind("Q* missing at one level, product", "olive", False, missing_for_olive),
    Kind("three states, one declared", "olive", False, rank_for_olive),
)


def false_part(outcome: Outcome, best: float, value: float, scale: float) -> str:
    """Returns what an outcome claims falsely, or "".

    Args:
        outcome: what was claimed.
        best: V*.
        value: of the outcome's policy.
        scale: width of the range of totals.
    """
    slack = TOLERANCE * scale
    parts = {
        "gap": outcome.guaranteed and best - value > outcome.epsilon + slack,
        "U": outcome.upper is not None and best > outcome.upper + slack,
        "W": outcome.lower is not None and value < outcome.lower - slack,
    }
    return " and ".join(name for name, wrong in parts.items() if wrong)


def verdict(kind: Kind, delta: float, seed: int) -> str:
    """Runs one problem and returns what became of it: `TRUE`, `NOTICED`, `NO_CLAIM`, or what was false."""
    case = kind.make(seed, keyed_generator(seed, "promises", kind.words, kind.learner))
    asked = {"epsilon": 0.1, "max_episodes": FEW if kind.kept else MANY, **case.asked}
    try:
        outcome = richobs.learn(case.problem, learner=kind.learner, delta=delta, seed=seed, progress=False, **asked)
    except (BrokenPromise, Rejected):
        return "an assumption that is true was said to be false" if kind.kept else NOTICED
    except EpisodeLimit:
        return NO_CLAIM
    low, high = case.problem.env.reward_range
    wrong = false_part(outcome, case.best(), case.value(outcome.policy), high - low)
    return wrong or (TRUE if outcome.guaranteed or outcome.upper is not None else NO_CLAIM)


@dataclass
class Row:
    """The runs of one kind at one delta."""

    kind: Kind
    delta: float
    found: Counter[str] = field(default_factory=Counter)

    @property
    def wrong(self) -> int:
        """How many runs claimed something false."""
        return self.found.total() - self.found[TRUE] - self.found[NOTICED] - self.found[NO_CLAIM]

    @property
    def interval(self) -> tuple[float, float]:
        """Exact interval for the probability of a false claim."""
        return binomial_interval(self.wrong, self.found.total(), CONFIDENCE)

    @property
    def wrong_floors(self) -> int:
        """How many of these had a false lower bound."""
        return sum(number for what, number in self.found.items() if "W" in what.split(" and "))

    @property
    def breaks_its_promise(self) -> bool:
        """Whether what is promised is false more often than delta, and chance does not explain it."""
        if not (self.kind.kept or self.kind.floor):
            return False
        wrong = self.wrong if self.kind.kept else self.wrong_floors
        return binomial_interval(wrong, self.found.total(), CONFIDENCE)[0] > self.delta

    def plain(self) -> tuple[Any, ...]:
        """Returns the row of the table."""
        what = ", ".join(f"{w}: {n}" for w, n in sorted(self.found.items()) if w not in (TRUE, NOTICED, NO_CLAIM))
        low, high = self.interval
        numbers = (self.found.total(), self.found[NOTICED], self.found[NO_CLAIM], self.found[TRUE], self.wrong)
        assumptions = "kept" if self.kind.kept else "violated, W promised" if self.kind.floor else "violated"
        return (assumptions, self.kind.words, self.kind.learner, self.delta, *numbers, f"[{low:.4f}, {high:.4f}]", what)


def schedule(n: int, seed: int) -> list[tuple[Kind, float, int]]:
    """Returns n runs, kind and delta and seed, half of them with assumptions that are kept."""
    runs: list[tuple[Kind, float, int]] = []
    for kept, number in ((True, n - n // 2), (False, n // 2)):
        kinds = [kind for kind in KINDS if kind.kept is kept for _ in range(kind.share)]
        deltas = DELTAS if kept else DELTAS[-1:]
        first = seed * n
        runs += [(kinds[i % len(kinds)], deltas[i // len(kinds) % len(deltas)], first + i) for i in range(number)]
    return runs


def measured(n: int, seed: int) -> list[Row]:
    """Runs n problems and returns what became of them, by kind and delta."""
    rows: dict[tuple[str, str, float], Row] = {}
    for kind, delta, number in schedule(n, seed):
        row = rows.setdefault((kind.words, kind.learner, delta), Row(kind, delta))
        row.found[verdict(kind, delta, number)] += 1
    for row in list(rows.values()):  # all of a learner's problems together, where they are of several kinds
        if row.kind.kept:
            everything = Kind("all", row.kind.learner, True, row.kind.make)
            together = rows.setdefault(("all", row.kind.learner, row.delta), Row(everything, row.delta))
            together.found += row.found
    return sorted(rows.values(), key=lambda row: (not row.kind.kept, row.kind.learner, row.kind.words, -row.delta))


def main() -> int:
    """Runs the attack, prints the table, writes the results, and returns 1 where a promise was broken."""
    given = arguments(
        "Counts false claims over random problems, with and without violated assumptions.", 2_000
    ).parse_args()
    rows = measured(given.n, given.seed)
    plain = [row.plain() for row in rows]
    broken = [row for row in rows if row.breaks_its_promise]
    spent = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    show(
        "Claims over random problems: how many are false",
        COLUMNS,
        plain,
        "With assumptions kept, at most delta may be.",
    )
    counts = {}
    for name, kept in (("kept", True), ("violated", False)):
        mine = [row for row in rows if row.kind.kept is kept and row.kind.words != "all"]
        counts[f"{name}_runs"] = sum(row.found.total() for row in mine)
        counts[f"{name}_false"] = sum(row.wrong for row in mine)
        counts[f"{name}_noticed"] = sum(row.found[NOTICED] for row in mine)
    content = {
        "command": f"python -m attack.promises --n {given.n} --seed {given.seed}",
        "cases": given.n,
        **counts,
        "failures": len(broken),
        "cpu_seconds": round(spent, 1),
        "rows": as_records(COLUMNS, plain),
    }
    print(f"written to {write_results('promises', content, given.results)}; {spent:.0f} CPU seconds")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

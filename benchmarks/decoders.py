"""PCID, PPE and HOMER on both locks: episodes until solved, beside what their authors' published code needs.

Run with: python benchmarks/decoders.py [seeds]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import math
import statistics
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple

import richobs
from measure import publish
from richobs.core.outcome import Outcome
from richobs.core.problem import Problem
from richobs_lab.rivals.rival_events import RoundPlayed

ROLLOUTS = 5_000  # of a policy whose value cannot be computed
SOLVED = 0.9  # part of V* that a policy must earn
PUBLISHED = {
    ("lock", "pcid", 5): 3_500,
    ("lock", "pcid", 10): 5_700,
    ("lock", "pcid", 20): 15_700,
    ("lock", "pcid", 50): 49_400,
    ("diabolical", "ppe", 5): 25_000,
}
LEAST = "least=30"  # observations of a cluster in the authors' code, whatever the sample size
AUTHORS = {5: 400, 10: 300, 20: 400, 50: 500}  # episodes of a level that the published figures of PCID imply
LINES = (
    "For each horizon PCID has four lines: the sample size that the published figure implies, with the authors' least size "
    "of a cluster; the defaults; the smallest size of 100, 200, ... that solves nine of ten seeds with the authors' least "
    "size; and of 20, 40, ... with the default one. The authors of PCID count episodes until the running mean of returns "
    "exceeds V*/2; those of PPE play 5,000 episodes a level, whose sum is compared with the episodes of the run."
)


class Trial(NamedTuple):
    """One run."""

    solved: bool
    episodes: int  # of the run
    until_half: float  # episodes until the running mean of returns exceeds V*/2, where the learned policy is played on
    cpu: float


def until_half(outcome: Outcome, value: float, optimum: float) -> float:
    """Returns the episodes until the mean return of all episodes exceeds V*/2, the policy earning what it is worth.

    This is what the authors of PCID measure. Infinite where the policy is worth less than that.
    """
    rounds = [event for event in outcome.trace if isinstance(event, RoundPlayed)]
    earned, n, half = sum(e.n * e.mean for e in rounds), sum(e.n for e in rounds), optimum / 2
    return n + max(0.0, half * n - earned) / (value - half) if value > half else math.inf


def trial(problem: Problem, learner: str, tuning: tuple[str, ...], seed: int) -> Trial:
    """Runs a learner once."""
    began = time.process_time()
    outcome = richobs.learn(problem, learner=learner, tuning=tuning, seed=seed, progress=False)
    cpu = time.process_time() - began
    value = float(problem.value(outcome.policy, episodes=ROLLOUTS, seed=seed))
    best = problem.optimal_value
    return Trial(value >= SOLVED * best, outcome.episodes, until_half(outcome, value, best), cpu)


def trials(world: str, learner: str, tuning: tuple[str, ...], seeds: int) -> list[Trial]:
    """Runs a learner with every seed, which also chooses the world's secret."""
    return [trial(richobs.make(world, seed=s), learner, tuning, s) for s in range(seeds)]


def row(world: str, horizon: int, learner: str, tuning: tuple[str, ...], runs: list[Trial]) -> tuple[object, ...]:
    """Returns one line of the table: medians over the runs."""
    half = statistics.median(t.until_half for t in runs)
    measured = half if learner == "pcid" else statistics.median(t.episodes for t in runs)
    known = PUBLISHED.get((world.split("/")[0], learner, horizon))
    return (
        world,
        learner,
        " ".join(tuning) or "as by default",
        f"{sum(t.solved for t in runs)} of {len(runs)}",
        statistics.median(t.episodes for t in runs),
        round(half) if math.isfinite(half) else None,
        known,
        None if known is None or not math.isfinite(measured) else round(measured / known, 2),
        round(statistics.median(t.cpu for t in runs), 3),
    )


def tuned(world: str, sizes: Iterable[int], more: tuple[str, ...], seeds: int) -> tuple[tuple[str, ...], list[Trial]]:
    """Returns the first of the sample sizes with which PCID solves nine of ten seeds, and its runs."""
    tuning, runs = more, list[Trial]()
    for size in sizes:
        tuning = (f"samples={size}", *more)
        runs = trials(world, "pcid", tuning, seeds)
        if sum(t.solved for t in runs) >= 0.9 * seeds:
            break
    return tuning, runs


def main() -> None:
    """Measures, prints and writes the table."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    rows: list[tuple[object, ...]] = []
    for H in (5, 10, 20, 50):
        world = f"lock/{H},noise_bits={H}"
        fixed: tuple[tuple[str, ...], ...] = ((f"samples={AUTHORS[H]}", LEAST), ())
        rows += [row(world, H, "pcid", tuning, trials(world, "pcid", tuning, seeds)) for tuning in fixed]
        rows += [
            row(world, H, "pcid", *tuned(world, range(100, 1001, 100), (LEAST,), seeds)),
            row(world, H, "pcid", *tuned(world, range(20, 401, 20), (), seeds)),
        ]
        print(*rows[-4:], sep="\n", flush=True)
    for H in (5, 10, 20):
        world = f"lock/{H},noise_bits={H}"
        for learner, tuning in (("ppe", ()), ("homer", ()), ("homer", ("planner=greedy",))):
            rows.append(row(world, H, learner, tuning, trials(world, learner, tuning, seeds)))
            print(rows[-1], flush=True)
    for world in ("diabolical/5", "diabolical/5,sigma=0.1"):
        for learner, tuning in (("pcid", ()), ("ppe", ()), ("ppe", ("samples=100",)), ("homer", ())):
            rows.append(row(world, 5, learner, tuning, trials(world, learner, tuning, seeds)))
            print(rows[-1], flush=True)
    publish(
        "decoders",
        "PCID, PPE and HOMER: episodes until solved",
        (
            "world",
            "learner",
            "sample size",
            "solved",
            "episodes",
            "until mean > V*/2",
            "published",
            "measured / published",
            "CPU seconds",
        ),
        rows,
        f"Medians over {seeds} seeds, each with a secret of its own; solved: the policy earns 90 % of V*. {LINES}",
    )


if __name__ == "__main__":
    main()

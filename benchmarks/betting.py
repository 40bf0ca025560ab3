"""How many episodes a certificate of the betting search takes, beside the most that the project allows itself.

Run with `python benchmarks/betting.py --seeds 20 --workers 1 --learner certified`. The world's secret changes with the
seed, and every answer is checked against the truth. Every finished case is written to `benchmarks/results/betting.json` at
once, and to the learner's `measured.json`, from which `richobs plan` tells what similar worlds needed. With `--keep FILE`
finished runs are kept there too: a benchmark that was killed goes on when it is started again, and its table shows all kept
runs. The column "right" says how many runs a line rests on. `--kept` makes the table of kept runs alone. Without `--learner`
the other learner's columns stay as they are stored.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import multiprocessing
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import richobs
from measure import RESULTS, publish, write
from richobs.core.errors import BrokenPromise
from richobs.core.settings import Settings
from richobs.learners.base import Measured, write_measured
from richobs.runs.session import run

DELTA = 0.05
STOPPED = "stopped"  # how a run ended that reported a broken promise
LIMIT = 200_000  # episodes; a run that spends them counts with them, and as open
MEASURED = Path(__file__).parents[1] / "src" / "richobs" / "learners" / "betting" / "measured.json"
COLUMNS = (
    "sweep",
    "world",
    "epsilon",
    "tuning",
    "median episodes",
    "range",
    "goal",
    "median CPU s",
    "peak MiB",
    "right",
    "certified by",
    "compared episodes",
    "compared range",
    "compared right",
)


class Case(NamedTuple):
    """One world at one epsilon."""

    sweep: str
    world: str
    epsilon: float = 0.1
    goal: int | None = None  # median of episodes, at most
    seeds: float = 1.0  # share of the seeds that are asked for
    compared: bool = False  # whether the other learner is run too
    tuning: tuple[str, ...] = ()


NEAR = "random/5,rewards=bernoulli"  # with near=...: every function is within this of Q* everywhere
TWINS = f"{NEAR},near=0.1,n_actions=4,twin_gap=0.02"  # with two nearly equal actions for each one
LAKE = "frozen-lake/30"
CLOSE_MAPS = f"{LAKE},n_maps=1000,candidates=near,slip_unknown=True,slip_range=0.05"
EPSILONS = (0.4, 0.2, 0.1, 0.05, 0.02, 0.01)

CASES = [
    Case("bars", "lock/5,noise_bits=5", goal=250),
    Case("bars", "lock/10,noise_bits=10", goal=300),
    Case("bars", "lock/20,noise_bits=20", goal=400),
    Case("bars", "lock/50,noise_bits=50", seeds=0.25),
    Case("bars", "lock/40,noise_bits=10", goal=600, seeds=0.5),
    Case("bars", "lock/80,noise_bits=10", goal=1000, seeds=0.2),
    Case("bars", "lock/5,noise_bits=5,swap=0.5,fail=0.1", goal=350),
    Case("bars", "lock/10,noise_bits=10,swap=0.5,fail=0.1", goal=500),
    Case("bars", "lock/10,noise_bits=10", 0.03),
    Case("bars", "lock/10,noise_bits=10", 0.01),
    Case("bars", "lock/5,noise=gaussian"),
    Case("bars", "diabolical/5"),
    Case("bars", "diabolical/10", goal=600),
    Case("bars", "random/4", goal=350),
    Case("bars", "random/4,class_size=1000", goal=500),
    Case("bars", "random/8"),
    Case("bars", "mdp", goal=350),
    Case("bars", "mdp,class_size=1000", goal=500),
    Case("bars", "disjoint", goal=350),
    Case("bars", "deep-sea/8"),
    Case("bars", "bandit"),
    *(Case("growth in epsilon", "lock/10,noise_bits=10", e, compared=True) for e in EPSILONS),
    *(Case("growth in epsilon", f"{NEAR},near=0.1,class_size=50", e, compared=True) for e in EPSILONS),
    *(Case("growth in epsilon", f"{TWINS},class_size=50", e, compared=True) for e in EPSILONS),
    *(
        Case("growth in closeness", f"{NEAR},near={n},class_size=50", compared=True)
        for n in (0.4, 0.2, 0.1, 0.05, 0.02)
    ),
    Case("bars", f"{LAKE},n_maps=1000", goal=450, seeds=5.0),
    Case("bars", "diabolical/20", goal=2800),
    *(Case("1,000 close tables", f"{NEAR},near={n},class_size=1000", seeds=0.5) for n in (0.2, 0.1, 0.05)),
    *(Case("1,000 close tables", f"{NEAR},near={n},class_size=1000", 0.05, seeds=0.25) for n in (0.2, 0.1, 0.05)),
    Case("many near-optimal policies", f"{TWINS},class_size=1000", seeds=0.5),
    *(Case("close maps", CLOSE_MAPS, e) for e in (0.1, 0.05)),
    Case("bars", f"{LAKE},n_maps=10000,slip_unknown=True", goal=600),
    Case("bars", "diabolical/50", goal=7691, seeds=0.1),
    Case("tuning", "lock/20,noise_bits=20", tuning=("wait=never",)),
    Case("tuning", CLOSE_MAPS, tuning=("first=16", "largest=16")),
    Case("tuning", f"{LAKE},n_maps=1000", tuning=("first=16", "largest=16")),
]
CENTRED = [  # Q* is the mean of the class
    Case("1,000 close tables", f"{NEAR},near={n},centred=True,class_size=1000", seeds=0.5) for n in (0.2, 0.1, 0.05)
]


class Task(NamedTuple):
    """One run to be made."""

    world: str
    epsilon: float
    seed: int
    learner: str
    tuning: tuple[str, ...] = ()


class Run(NamedTuple):
    """One run."""

    episodes: int
    seconds: float  # of CPU
    memory: float  # MiB, the most that the process held
    right: bool  # the policy is as close to V* as claimed, and both bounds hold
    by: str  # what certified it
    horizon: int
    n_actions: int
    log_size: float  # of the class


def one_run(task: Task) -> Run:
    """Makes one run, in a process of its own so that its memory is known."""
    problem = richobs.make(f"{task.world},seed={task.seed}")
    settings = Settings(
        epsilon=task.epsilon,
        delta=DELTA,
        learner=task.learner,
        seed=task.seed,
        max_episodes=LIMIT,
        engine="stream",
        tuning=task.tuning,
    )
    begin = time.process_time()
    try:
        outcome = run(problem, settings)
    except BrokenPromise:  # bets refuted Q*, which delta allows: nothing is claimed
        return Run(0, 0.0, 0.0, False, STOPPED, problem.horizon, problem.n_actions, problem.functions.log_size)
    seconds = time.process_time() - begin
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert outcome.upper is not None
    assert outcome.lower is not None
    value = problem.value(outcome.policy)
    near = problem.optimal_value - value.high <= outcome.epsilon
    right = near and problem.optimal_value <= outcome.upper + 1e-9 and value.high >= outcome.lower
    by = outcome.constants.closed_by if task.learner == "betting" else "certificate"
    return Run(
        outcome.episodes,
        seconds,
        memory,
        bool(right),
        "open" if outcome.epsilon > task.epsilon and by != "doubted" else by,
        problem.horizon,
        problem.n_actions,
        problem.functions.log_size,
    )


class Runs:
    """Runs by task; those in a file are not made again."""

    def __init__(self, keep: Path | None, workers: int):
        """Reads the runs that were finished before, where a file is given."""
        self._keep, self._workers = keep, workers
        self._known: dict[Task, Run] = {}
        if keep is not None and keep.exists():
            for line in keep.read_text().splitlines():
                task, made = json.loads(line)
                self._known[Task(*task)._replace(tuning=tuple(task[-1]))] = Run(*made)

    def known(self, tasks: list[Task]) -> list[Run]:
        """Returns the runs of some tasks, as far as they are finished."""
        return [self._known[task] for task in tasks if task in self._known]

    def make(self, tasks: list[Task]) -> None:
        """Makes the runs of some tasks that are missing."""
        missing = [task for task in tasks if task not in self._known]
        for task, made in zip(missing, self._made(missing), strict=True):
            self._known[task] = made
            if self._keep is not None:
                with self._keep.open("a") as file:
                    file.write(json.dumps([task, made]) + "\n")

    def _made(self, tasks: list[Task]) -> Iterator[Run]:
        if tasks:
            with multiprocessing.get_context("fork").Pool(self._workers, maxtasksperchild=1) as pool:
                yield from pool.imap(one_run, tasks, chunksize=1)


def ended(runs: list[Run]) -> list[Run]:
    """Returns the runs that were not stopped."""
    return [r for r in runs if r.by != STOPPED]


def median_and_range(runs: list[Run]) -> tuple[str, str, str]:
    """Returns median and range of the episodes of the runs that ended, and how many answers of all are right."""
    episodes = [r.episodes for r in ended(runs)]
    return (
        f"{statistics.median(episodes):,.0f}",
        f"{min(episodes):,} to {max(episodes):,}",
        f"{sum(r.right for r in runs)} of {len(runs)}",
    )


def compared_columns(others: list[Run]) -> tuple[str, ...]:
    """Returns what the table says of the other learner."""
    if not others:
        return ("", "", "")
    median, reach, right = median_and_range(others)
    is_open = sum(r.by == "open" for r in others)
    return median, reach, right + (f", {is_open} open" if is_open else "")


def stored_columns(name: str) -> dict[tuple[str, str, float], tuple[str, ...]]:
    """Returns what the stored table says of the other learner, by case."""
    rows = json.loads((RESULTS / f"{name}.json").read_text())["rows"] if (RESULTS / f"{name}.json").exists() else []
    return {(row["sweep"], row["world"], row["epsilon"]): tuple(row[column] for column in COLUMNS[-3:]) for row in rows}


def row_of(case: Case, runs: list[Run], compared: tuple[str, ...]) -> tuple[object, ...]:
    """Returns a case's line of the table."""
    median, reach, right = median_and_range(runs)
    return (
        case.sweep,
        case.world,
        case.epsilon,
        " ".join(case.tuning),
        median,
        reach,
        "" if case.goal is None else f"{case.goal:,}",
        round(statistics.median(r.seconds for r in ended(runs)), 3),
        round(max(r.memory for r in runs)),
        right,
        ", ".join(f"{by} {n}" for by, n in Counter(r.by for r in runs).most_common()),
        *compared,
    )


def remember(results: dict[Case, list[Run]]) -> None:
    """Writes what `richobs plan` tells of similar worlds."""
    rows: dict[tuple[str, float], Measured] = {}
    for case, runs in results.items():
        if case.tuning:
            continue
        episodes = sorted(r.episodes for r in ended(runs))
        reach = (episodes[0], int(statistics.median(episodes)), episodes[-1])
        size = round(runs[0].log_size, 2)
        row = Measured(case.world, runs[0].horizon, runs[0].n_actions, size, case.epsilon, DELTA, len(episodes), reach)
        rows[case.world, case.epsilon] = row
    write_measured(rows.values(), MEASURED)


def tasks_of(case: Case, seeds: int, learner: str) -> list[Task]:
    """Returns the runs of a case."""
    seeds = max(1, round(case.seeds * seeds))
    return [Task(case.world, case.epsilon, seed, learner, case.tuning) for seed in range(seeds)]


def main() -> None:
    """Makes all runs, case by case."""
    parser = argparse.ArgumentParser(description="Episodes and CPU seconds of the betting search.")
    parser.add_argument("--seeds", type=int, default=20, help="seeds of a case; some cases take a share or a multiple")
    parser.add_argument("--workers", type=int, default=2, help="runs at a time")
    parser.add_argument("--worlds", nargs="*", help="only print cases whose world begins with one of these")
    parser.add_argument("--learner", help="run this learner beside it where growth is measured, e.g. certified")
    parser.add_argument("--keep", type=Path, help="file of finished runs, one a line; those in it are not made again")
    parser.add_argument("--kept", action="store_true", help="make the table of what is kept, and no run")
    parser.add_argument(
        "--centred", action="store_true", help="only close tables around Q* itself: betting_centred.json"
    )
    given = parser.parse_args()
    cases, name = (CENTRED, "betting_centred") if given.centred else (CASES, "betting")
    runs = Runs(given.keep, given.workers)
    title = f"Episodes to a certificate by betting, delta = {DELTA}"
    note = (
        "Streaming engine, one thread a run. Right: the gap is as small as claimed, and both bounds hold. Open: not "
        f"certified within {LIMIT:,} episodes. Doubted: the claim may be wider than epsilon. Stopped: an assumption was "
        "reported broken, though all are true. "
        f"Compared: the learner {given.learner or 'certified, four seeds, run by an earlier version'}, same limit."
    )
    stored = {} if given.learner else stored_columns(name)

    def row(case: Case) -> tuple[object, ...]:
        others = runs.known(tasks_of(case, given.seeds, given.learner)) if case.compared and given.learner else []
        compared = stored.get((case.sweep, case.world, case.epsilon)) or compared_columns(others)
        return row_of(case, runs.known(tasks_of(case, given.seeds, "betting")), compared)

    def finished() -> dict[Case, list[Run]]:
        found = {case: runs.known(tasks_of(case, given.seeds, "betting")) for case in cases}
        return {case: made for case, made in found.items() if made}

    for learner in {"betting", given.learner or "betting"} if not given.kept else ():
        one_run(Task("bandit", 0.4, 0, learner))  # imports everything once, at no run's expense
    for case in cases:
        if given.kept or (given.worlds and not case.world.startswith(tuple(given.worlds))):
            continue
        runs.make(tasks_of(case, given.seeds, "betting"))
        if case.compared and given.learner:
            runs.make(tasks_of(case, given.seeds, given.learner))
        print(*row(case), sep=" | ", file=sys.stderr, flush=True)
        if not given.worlds:
            write(name, title, COLUMNS, [row(c) for c in finished()], note)
            if not given.centred:
                remember(finished())
    if not given.worlds:
        publish(name, title, COLUMNS, [row(case) for case in finished()], note)
        if not given.centred:
            remember(finished())


if __name__ == "__main__":
    main()

"""Kills, power cuts and full disks: a run that is disturbed ends with the same bytes as one that is not.

Run with `python -m attack.kills --n 1000 --seed 0` from the repository. Four parts:

1. random moments: short runs get SIGKILL, SIGTERM or SIGINT at a random moment, are started again or resumed, are killed
   again, until they end; a few of them in a fresh interpreter, which is also killed while it imports;
2. every file-system call: the process dies in place of its k-th write, fsync, rename and so on, for every k; then the same
   with writes that are half done, and with a second kill while it recovers;
3. power cuts: after every call, what POSIX lets a power cut leave of the files is built anew and resumed;
4. full disks: from the k-th call on everything that needs room fails, for every k, or the k-th call alone does, or half of
   it is written. The run is refused in a sentence; once there is room it goes on.

Certificate, policy and page are compared with those of an undisturbed run, names of files too. An environment of one's own
logs its calls, and no call whose answer was kept may be made again. Parts 2 to 4 need Linux and a C compiler.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import contextlib
import dataclasses
import functools
import io
import itertools
import multiprocessing
import resource
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attack import shim
from attack.common import arguments, as_records, show, write_results
from attack.killed import (
    PLAYS,
    RUN,
    SHORT,
    TARGETS,
    Fate,
    Recovery,
    Target,
    Undisturbed,
    attempt,
    emptied,
    load_everything,
    plays,
    prepare,
    undisturbed,
)
from attack.powercuts import Disk, build, digest, is_built, states
from richobs.core.randomness import keyed_generator

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
FRESH = 41  # one run of so many is started in a fresh interpreter
AGAIN = 0.4  # probability that a run that goes on is killed again
MOST = 8  # kills of one run
PARTS = ("moments", "calls", "cuts", "disks")
COLUMNS = (
    "part",
    "run",
    "cases",
    "kills or refusals",
    *(fate.value for fate in Fate),
    "calls played again by a power cut",
)


@dataclasses.dataclass(eq=False)
class Row:
    """What became of one part of the attack on one target."""

    part: str
    target: str
    cases: int = 0
    kills: int = 0
    fates: Counter[Fate] = dataclasses.field(default_factory=Counter)
    again: list[int] = dataclasses.field(default_factory=list)  # calls that a power cut made necessary again, per case
    troubles: list[str] = dataclasses.field(default_factory=list)

    def add(self, recovery: Recovery, fate: Fate, kills: int, what: str) -> None:
        """Takes the end of one case."""
        self.cases += 1
        self.kills += kills
        self.fates[fate] += 1
        if not fate.is_good:
            self.troubles.append(f"{self.part}, {self.target}, {what}: {fate}: {recovery.trouble}")
            print(self.troubles[-1], flush=True)

    def plain(self) -> tuple[Any, ...]:
        """Returns the row of the table."""
        again = f"{np.mean(self.again):.1f} of {max(self.again)} at most" if self.again else ""
        return (self.part, self.target, self.cases, self.kills, *(self.fates[fate] for fate in Fate), again)


def at_random_moments(target: Target, scratch: Path, wanted: Undisturbed, n: int, seed: int) -> list[Row]:
    """Kills a run at random moments, again and again until n kills are done, and returns what became of it."""
    rng, row, case = (
        keyed_generator(seed, "kills at random moments", target.name),
        Row("random moments", target.name),
        0,
    )
    while row.kills < n:
        fresh = case % FRESH == FRESH - 1 and not target.is_own
        seconds = _fresh_seconds(target, scratch / "fresh") if fresh else wanted.seconds
        recovery, kills = Recovery(target, emptied(scratch / "random"), wanted), 0
        while kills == 0 or (kills < MOST and rng.random() < AGAIN):
            by = SIGNALS[int(rng.integers(len(SIGNALS)))]
            resumes = kills > 0 and bool(rng.random() < 0.5)
            moment = float(rng.uniform(0, 1.1 * seconds))
            recovery.attempt(resumes, kill_after=moment, with_signal=by, fresh=fresh)
            kills += recovery.killed
            if recovery.trouble or not recovery.killed:
                break
        fate = recovery.finish(bool(rng.random() < 0.5))
        row.add(recovery, fate, kills, f"case {case} of seed {seed}{', fresh interpreter' if fresh else ''}")
        case += 1
    return [row]


def _fresh_seconds(target: Target, place: Path) -> float:
    """Returns how long a run takes in a fresh interpreter."""
    ended = attempt(emptied(place), target.learn_fresh)
    if ended.status:
        raise RuntimeError(f"{target.name} does not run undisturbed: {ended.output}")
    return ended.seconds


def at_every_call(target: Target, scratch: Path, wanted: Undisturbed, every: int, seed: int) -> list[Row]:
    """Kills a run in place of each of its file-system calls, and returns what became of it.

    Args:
        target: which run.
        scratch: a folder.
        wanted: what it gives undisturbed.
        every: 1 for every call, 25 for every 25th.
        seed: chooses where the recovery is killed.
    """
    total = _number_of_calls(target, prepare(target, scratch / "call"))
    whole, torn = Row("every call", target.name), Row("every call, half done, and again", target.name)
    rng = keyed_generator(seed, "kills at calls", target.name)
    for k in range(1, total + 1, every):
        for row in (whole, torn):
            recovery = Recovery(target, prepare(target, scratch / "call"), wanted)
            below, half = recovery.place / RUN, row is torn
            recovery.attempt(False, armed=functools.partial(shim.arm, below, kill_at=k, torn=half))
            kills = int(recovery.killed)
            if half and not recovery.trouble:
                j = int(rng.integers(1, 100))
                by_resume = bool(rng.random() < 0.5)
                recovery.attempt(by_resume, armed=functools.partial(shim.arm, below, kill_at=j, torn=half))
                kills += recovery.killed
            row.add(recovery, recovery.finish(bool(rng.random() < 0.5)), kills, f"call {k} of {total}")
    return [whole, torn]


def on_full_disks(target: Target, scratch: Path, wanted: Undisturbed, every: int, seed: int) -> list[Row]:
    """Refuses room to a run from each of its file-system calls on, and returns what became of it once there is room.

    Args:
        target: which run.
        scratch: a folder.
        wanted: what it gives undisturbed.
        every: 1 for every call, 25 for every 25th.
        seed: chooses how it goes on.
    """
    total = _number_of_calls(target, prepare(target, scratch / "full"))
    rng = keyed_generator(seed, "full disks", target.name)
    rows = {
        Row("full from a call on", target.name): (shim.How.FULL, False),
        Row("full from half a write on", target.name): (shim.How.FULL, True),
        Row("one call fails", target.name): (shim.How.FAILS_ONCE, False),
    }
    for k in range(1, total + 1, every):
        for row, (how, torn) in rows.items():
            recovery = Recovery(target, prepare(target, scratch / "full"), wanted)
            armed = functools.partial(shim.arm, recovery.place / RUN, kill_at=k, torn=torn, how=how)
            recovery.attempt(False, armed=armed, may_be_refused=True)
            if not recovery.trouble:  # still full, or another process fills it
                recovery.attempt(bool(rng.random() < 0.5), armed=armed, may_be_refused=True)
            row.add(recovery, recovery.finish(bool(rng.random() < 0.5)), recovery.refusals, f"call {k} of {total}")
    return list(rows)


def _number_of_calls(target: Target, place: Path) -> int:
    """Returns how many file-system calls a run makes in its folder."""

    def work() -> int:
        shim.arm(place / RUN)
        status = target.learn()
        print(f"\n{shim.counted()}")
        return status

    return int(attempt(place, work).output.split()[-1])


def by_power_cuts(target: Target, scratch: Path, wanted: Undisturbed, orders: int, cuts: int, seed: int) -> list[Row]:
    """Cuts the power after every call of a run, and returns what became of all that may be left.

    Args:
        target: which run.
        scratch: a folder.
        wanted: what it gives undisturbed.
        orders: states per cut, where there are more.
        cuts: moments of the run, spread evenly over its calls; 0 for all.
        seed: chooses the states.
    """
    place, log = prepare(target, scratch / "cut"), scratch / "calls.log"
    whole, disk = Disk.of(place), Disk.of(place)
    log.unlink(missing_ok=True)

    def work() -> int:
        shim.arm(place, log=log)
        return target.learn()

    ended = attempt(place, work)
    calls = shim.read_log(log)
    for call in calls:
        whole.do(call)
    if ended.status or not is_built(whole.left([1.0] * whole.loose), place):
        raise RuntimeError(f"the log of {target.name} does not give its folder again: {ended.output}")
    chosen = set(range(len(calls)) if not cuts else np.linspace(0, len(calls) - 1, cuts).astype(int).tolist())
    row, rng = Row("power cut", target.name), keyed_generator(seed, "power cuts", target.name)
    seen, played = set[str](), 0
    for i, call in enumerate(calls):
        disk.do(call)
        played += call.kind == "w" and call.path.endswith(PLAYS)
        for left in states(disk, orders, rng) if i in chosen else ():
            left.pop(PLAYS, None)  # counted here
            if (known := digest(left)) in seen:
                continue
            seen.add(known)
            recovery = Recovery(target, emptied(scratch / "cut"), wanted)
            build(left, recovery.place)
            fate = recovery.finish(bool(len(seen) % 2))
            row.add(recovery, fate, 1, f"state {len(seen)}, after call {i + 1} of {len(calls)}")
            if target.is_own:
                row.again.append(played + len(plays(recovery.place)) - len(wanted.plays))
    return [row]


class Task(NamedTuple):
    """One part of the attack on one target."""

    attack: Callable[..., list[Row]]
    target: Target
    numbers: tuple[int, ...]  # further arguments


def done(task: Task, scratch: Path) -> list[Row]:
    """Does a task in a folder of its own."""
    place = scratch / f"{task.attack.__name__}-{task.target.name.replace('/', '-')}"
    wanted = undisturbed(task.target, place / "undisturbed")
    rows = task.attack(task.target, place, wanted, *task.numbers)
    shutil.rmtree(place)
    return rows


def tasks(given: argparse.Namespace, without_shim: bool) -> list[Task]:
    """Returns what is to be done."""
    found = []
    if "moments" in given.parts:
        each = -(-given.n // len(TARGETS))
        found += [Task(at_random_moments, target, (each, given.seed)) for target in TARGETS]
    short = [target for target in SHORT if given.only in target.name and not without_shim]
    if "calls" in given.parts:
        found += [Task(at_every_call, target, (given.every, given.seed)) for target in short]
    if "disks" in given.parts:
        found += [Task(on_full_disks, target, (given.every, given.seed)) for target in short]
    if "cuts" in given.parts:
        found += [Task(by_power_cuts, target, (given.orders, given.cuts, given.seed)) for target in short]
    return found


def main() -> int:
    """Runs the attack, prints the table, writes the results, and returns 1 where something failed."""
    parser = arguments(
        "Kills runs at random moments and at every file-system call, cuts the power, fills the disk.", 1_000
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="which parts (default all)")
    parser.add_argument("--only", default="", help="of calls, cuts and disks: only runs whose names contain this")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the work (default 1)")
    parser.add_argument(
        "--every", type=int, default=1, help="of calls and disks: at every k-th file-system call only (default 1)"
    )
    parser.add_argument(
        "--cuts", type=int, default=0, help="moments of power cuts per run (default 0: after every call)"
    )
    parser.add_argument(
        "--orders", type=int, default=20, help="states per power cut, where there are more (default 20)"
    )
    given = parser.parse_args()
    lacking = shim.preload("attack.kills", sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="richobs-kills-") as name:
        scratch = Path(name).resolve()
        with contextlib.redirect_stdout(io.StringIO()):
            load_everything(scratch / "first")
        context = multiprocessing.get_context("fork")
        with context.Pool(given.workers) as pool:
            jobs = [(task, scratch) for task in tasks(given, bool(lacking))]
            rows = list(itertools.chain.from_iterable(pool.starmap(done, jobs, chunksize=1)))
            pool.close()
            pool.join()  # then their CPU time counts here
    spent = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return publish(rows, given, lacking, spent)


def publish(rows: list[Row], given: argparse.Namespace, lacking: str, spent: float) -> int:
    """Prints the table and writes the results; returns 1 where something failed, else 0."""
    plain = [row.plain() for row in rows]
    troubles = [trouble for row in rows for trouble in row.troubles]
    show("Runs that were disturbed: how they ended", COLUMNS, plain, lacking)
    parts = " ".join(given.parts)
    content = {
        "command": f"python -m attack.kills --n {given.n} --seed {given.seed} --orders {given.orders} --parts {parts}",
        "parts": list(given.parts),
        "every": given.every,
        "cuts": given.cuts,
        "cases": sum(row.cases for row in rows),
        "kills": sum(row.kills for row in rows),
        "failures": len(troubles),
        "cpu_seconds": round(spent, 1),
        "not_done": lacking,
        "troubles": troubles,
        "rows": as_records(COLUMNS, plain),
    }
    print(f"written to {write_results('kills', content, given.results)}; {spent:.0f} CPU seconds")
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())

"""Workers that hang, raise, die, answer twice or lose their parent: a run ends with a sentence, and goes on to the same end.

Run with `python -m attack.workers --n 200 --seed 0` from the repository. Each case is one run of an environment of one's own
in a process of its own. At some call something goes wrong, in a worker or in the process that asks. Then

1. the run ends within the limit: by itself, with a sentence, with what the environment raised, or as it was interrupted;
2. no process that played is left 10 seconds later;
3. the same call, without the fault, goes on in the folder to the same certificate and policy as an undisturbed run.
"""

import ctypes
import enum
import logging
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import richobs
from attack.children import CRASHED, INTERRUPTED, in_child
from attack.common import arguments, as_records, say_how_far, show, write_results
from attack.victims import Own
from richobs.core import executors
from richobs.core.errors import RichObsError
from richobs.core.randomness import keyed_generator

OUTLIVES = 10.0  # seconds that a worker may be there after its run
LIMIT = 90.0  # seconds for one run on a busy machine
TIMEOUT = 1.5  # seconds for one call of the environment
LATEST = 12  # call of a process at which something goes wrong, at most
SENTENCE, OWN_ERROR = 20, 21  # exit statuses
COMPARED = ("certificate.json", "policy.npz")
ROOTS = [[[0.72, 0.18], [0.18, 0.72]], [[0.82, 0.1], [0.2, 0.8]], [[0.18, 0.8], [0.6, 0.7]]]
ENDS = [[[0.0, 0.0], [0.0, 0.9]], [[0.1, 0.2], [0.9, 0.0]], [[0.15, 0.1], [0.1, 0.98]]]


class MotorBroke(Exception):
    """What an environment raises."""


class CannotTravel(Exception):
    """What an environment raises and no process can send: it holds a function without a name."""

    def __init__(self) -> None:
        super().__init__(lambda: None)


def _raise(error: Callable[[], BaseException]) -> None:
    raise error()


def _spin() -> None:
    while True:
        pass


def _hang_in_c() -> None:
    while True:
        ctypes.PyDLL(None).sleep(600)  # it holds the interpreter lock


def _press_twice() -> None:
    """Presses Control-C twice, as somebody does whose worker hangs."""
    for _ in range(2):
        os.kill(os.getppid() if multiprocessing.parent_process() else os.getpid(), signal.SIGINT)
        time.sleep(1)
    _hang_in_c()


def _kill_parent() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    _hang_in_c()


FAULTS: dict[str, Callable[[], Any]] = {
    "sleeps for ever": lambda: time.sleep(3600),
    "computes for ever": _spin,
    "hangs in C": _hang_in_c,
    "raises": lambda: _raise(lambda: MotorBroke("the motor broke")),
    "raises what cannot be sent": lambda: _raise(CannotTravel),
    "leaves": lambda: _raise(lambda: SystemExit(3)),
    "runs out of memory": lambda: _raise(MemoryError),
    "stops iterating": lambda: _raise(StopIteration),
    "dies": lambda: os._exit(9),
    "is killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hangs, and Control-C is pressed twice": _press_twice,
    "hangs, and its parent is killed": _kill_parent,
}
IN_PROCESSES = "processes"  # of the run
IN_THREADS = "threads"  # of the run
HERE = "the run itself"
EXECUTORS = {"does every task twice": "twice", "gives its last answer again": "again", "answers nothing": "nothing"}
ENDS_ALL = {"dies", "is killed", "leaves", "hangs, and its parent is killed", "hangs, and Control-C is pressed twice"}
NOT_IN = {  # what would end the process that asks, or cannot be stopped there
    IN_THREADS: {*ENDS_ALL, "computes for ever", "hangs in C"},
    HERE: {*ENDS_ALL, "hangs in C"},
}


class Faulty(Own):
    """An environment in which something goes wrong at one call of a process, as long as a file is there."""

    def __init__(self, place: Path, fault: str, where: str, call: int):
        """Takes what goes wrong.

        Args:
            place: a folder; processes that play leave a file there, and `armed` lies there while something goes wrong.
            fault: what goes wrong.
            where: who plays: `IN_PROCESSES`, `IN_THREADS` or `HERE`.
            call: number of the call at which it does.
        """
        self.place, self.fault, self.where, self.call = place, fault, where, call
        self.declared = richobs.Declared(replayable=True, releases_gil=where == IN_THREADS)
        self.calls = 0

    def play(self, policy: Any, n: int, rng: np.random.Generator, levels: int | None = None) -> richobs.Episodes:
        """Plays n episodes, or goes wrong."""
        is_worker = multiprocessing.parent_process() is not None
        if is_worker:
            (self.place / str(os.getpid())).touch()
        self.calls += 1
        mine = self.fault in FAULTS and is_worker == (self.where == IN_PROCESSES)
        if mine and self.calls >= self.call and (self.place / "armed").exists():
            (self.place / "happened").touch()
            FAULTS[self.fault]()
        return super().play(policy, n, rng, levels)


class Strange(ThreadPoolExecutor):
    """An executor that does not do what it is asked, from some task on."""

    def __init__(self, how: str, place: Path, task: int):
        super().__init__(2)
        self._how, self._place, self._task, self._tasks = how, place, task, 0
        self._last: Future[Any] | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Does a task, or something else."""
        self._tasks += 1
        if self._tasks >= self._task and self._last is not None:
            (self._place / "happened").touch()
            if self._how == "again":
                return self._last
            if self._how == "nothing":
                return super().submit(int)
            super().submit(fn, *args, **kwargs).result()
        self._last = super().submit(fn, *args, **kwargs)
        return self._last


class Case(NamedTuple):
    """One run in which something goes wrong."""

    where: str
    fault: str
    call: int


class Fate(enum.StrEnum):
    """What becomes of a case; those in capitals must not happen."""

    SENTENCE = "a sentence"
    OWN = "what the environment raised"
    INTERRUPTED = "interrupted"
    KILLED = "killed"
    UNNOTICED = "nothing"
    NEVER = "it did not come to that"
    HANGS = "HANGS"
    TRACEBACK = "TRACEBACK"
    LEFT_BEHIND = "LEFT BEHIND"
    DIFFERENT = "DIFFERENT"
    UNUSABLE = "UNUSABLE"

    @property
    def is_good(self) -> bool:
        """Whether it may happen."""
        return not self.value.isupper()


def chosen(seed: int, number: int) -> Case:
    """Returns one case at random."""
    rng = keyed_generator(seed, "attack", "workers", number)
    where = (IN_PROCESSES, IN_THREADS, HERE, "an executor")[int(rng.integers(4))]
    names = list(EXECUTORS) if where == "an executor" else [f for f in FAULTS if f not in NOT_IN.get(where, ())]
    return Case(where, names[int(rng.integers(len(names)))], int(rng.integers(1, LATEST)))


def learned(case: Case, place: Path) -> int:
    """Runs a case in a folder; returns an exit status."""
    logging.disable()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started this in the background
    executors.GRACE = 1.0
    functions = richobs.Layered([richobs.classes.TableLevel(ROOTS), richobs.classes.TableLevel(ENDS)])
    env = Faulty(place, case.fault, case.where, case.call)
    given: Executor | None = None
    if case.where == "an executor" and (place / "armed").exists():
        given = Strange(EXECUTORS[case.fault], place, case.call)
    try:
        richobs.learn(
            env,
            functions,
            epsilon=0.05,
            delta=0.2,
            max_episodes=300,
            timeout=TIMEOUT if (place / "armed").exists() and "hangs, and" not in case.fault else None,
            workers=given or (2 if case.where in (IN_PROCESSES, IN_THREADS) else 1),
            out=place / "run",
            progress=False,
        )
    except RichObsError as error:
        print(f"{type(error).__name__}: {error}")
        return SENTENCE
    except (MotorBroke, CannotTravel, MemoryError, StopIteration, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not isinstance(error.__cause__, StopIteration):
            raise
        print(f"{type(error).__name__}: {error}")
        return OWN_ERROR
    return 0


def attacked(case: Case, place: Path, wanted: dict[str, bytes]) -> tuple[Fate, str, float]:
    """Runs a case, and then the same without the fault.

    Returns:
        What became of it, what was said, and how many seconds the last process that played was there after the run.
    """
    place.mkdir(parents=True)
    (place / "armed").touch()
    ended = in_child(lambda: learned(case, place), limit=LIMIT)
    left, seconds = _outlived(place)
    fate = {
        0: Fate.UNNOTICED,
        SENTENCE: Fate.SENTENCE,
        OWN_ERROR: Fate.OWN,
        INTERRUPTED: Fate.INTERRUPTED,
        CRASHED: Fate.TRACEBACK,
        -signal.SIGKILL: Fate.HANGS if ended.killed else Fate.KILLED,
    }.get(ended.status, Fate.TRACEBACK)
    if fate is Fate.UNNOTICED and not (place / "happened").exists():
        fate = Fate.NEVER
    if left:
        return Fate.LEFT_BEHIND, f"{left} were there after {seconds:.1f} s", seconds
    if not fate.is_good:
        return fate, ended.output[-2000:], seconds
    (place / "armed").unlink()
    again = in_child(lambda: learned(case._replace(where=HERE), place), limit=LIMIT)
    if again.status != 0:
        return Fate.UNUSABLE, again.output[-2000:], seconds
    differs = [name for name, body in wanted.items() if (place / "run" / name).read_bytes() != body]
    return (Fate.DIFFERENT, ", ".join(differs), seconds) if differs else (fate, ended.output[-200:], seconds)


def _outlived(place: Path) -> tuple[list[int], float]:
    """Returns the processes that played and are there after `OUTLIVES` seconds, which are ended, and how long it took."""
    begin, pids = time.monotonic(), [int(file.name) for file in place.iterdir() if file.name.isdigit()]
    while (left := [pid for pid in pids if _is_there(pid)]) and time.monotonic() - begin < OUTLIVES:
        time.sleep(0.02)
    seconds = time.monotonic() - begin
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left, seconds


def _is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def undisturbed(place: Path) -> dict[str, bytes]:
    """Returns the files of a run in which nothing goes wrong."""
    place.mkdir(parents=True)
    ended = in_child(lambda: learned(Case(HERE, "raises", 1), place), limit=LIMIT)
    assert ended.status == 0, ended.output
    return {name: (place / "run" / name).read_bytes() for name in COMPARED}


def attack(n: int, seed: int, scratch: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Runs n cases; returns a row for each place and fault, and what must not happen and did."""
    wanted = undisturbed(scratch / "undisturbed")
    found: dict[tuple[str, str], Counter[Fate]] = {}
    slowest: dict[tuple[str, str], float] = {}
    troubles = []
    for number in range(n):
        case, place = chosen(seed, number), scratch / str(number)
        fate, said, seconds = attacked(case, place, wanted)
        kind = (case.where, case.fault)
        found.setdefault(kind, Counter())[fate] += 1
        slowest[kind] = max(slowest.get(kind, 0.0), seconds)
        if not fate.is_good:
            troubles.append(f"case {number}, {case}: {fate.value}: {said}")
        shutil.rmtree(place, ignore_errors=True)
        say_how_far(number + 1, n, len(troubles))
    columns = ["where", "what went wrong", "cases", *(fate.value for fate in Fate), "most s that a worker outlived"]
    rows = [
        [*kind, sum(fates.values()), *(fates[fate] for fate in Fate), round(slowest[kind], 2)]
        for kind, fates in sorted(found.items())
    ]
    return as_records(columns, rows), troubles


def main() -> int:
    """Runs the attack, prints the table, writes the results, and returns 1 where something failed."""
    given = arguments("Lets workers hang, raise, die and answer twice, and kills their parents.", 200).parse_args()
    with tempfile.TemporaryDirectory(prefix="richobs-workers-") as scratch:
        rows, troubles = attack(given.n, given.seed, Path(scratch).resolve())
    show("Workers that do not do what they should: how runs ended", list(rows[0]), [list(row.values()) for row in rows])
    content = {
        "command": f"python -m attack.workers --n {given.n} --seed {given.seed}",
        "cases": given.n,
        "failures": len(troubles),
        "troubles": troubles,
        "rows": rows,
    }
    for trouble in troubles:
        print(trouble)
    print(f"written to {write_results('workers', content, given.results)}")
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())

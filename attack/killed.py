"""The runs that are killed, how they go on afterwards, and what became of them."""

import dataclasses
import enum
import hashlib
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

import richobs
from attack.children import INTERRUPTED, Ended, in_child
from richobs.classes import Callables, Layered, TableLevel
from richobs.cli import main
from richobs.core.environment import Episodes
from richobs.core.errors import RichObsError
from richobs.core.functions import FunctionClass
from richobs.core.policies import Policy
from richobs.core.types import Floats, Observations
from richobs.runs.store import CERTIFICATE, CONFIG, POLICY, REPORT, StoredRun
from richobs.show import write_report

RUN = "run"  # name of the run's folder; it stands on the page
PLAYS = "plays.log"  # beside it: one line for every call of an environment of one's own
RESULTS = (CERTIFICATE, POLICY, REPORT)
REFUSED = 2  # exit status of a command that could not be done
LIMIT = 60.0  # seconds of one attempt
IN_MAIN = re.compile(r'cli/main\.py", line \d+, in main')  # in tracebacks of commands, not of Python while it imports


class Fate(enum.StrEnum):
    """What became of a run that was killed; only the first is good, and the second where nothing had been stored."""

    IDENTICAL = "identical"
    NO_RUN_YET = "identical, after `resume` said that there is no run yet"
    UNUSABLE = "UNUSABLE"
    DIFFERENT = "DIFFERENT"
    LEFTOVERS = "LEFTOVERS"
    PLAYED_TWICE = "PLAYED TWICE"

    @property
    def is_good(self) -> bool:
        """Whether the run ended as if it had not been killed."""
        return self in (Fate.IDENTICAL, Fate.NO_RUN_YET)


class Logged:
    """Somebody's environment: the action that equals the first observation mostly leads to where action 1 mostly pays.

    Every call appends a line to a file and waits until it is on disk, before its answer is given.
    """

    declared = richobs.Declared(at_once=3)
    horizon, n_actions, reward_range = 2, 2, (0.0, 1.0)

    def __init__(self, file: Path):
        """Takes the file."""
        self._file = file

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        """Plays n episodes."""
        state = hashlib.sha256(json.dumps(rng.bit_generator.state, sort_keys=True, default=str).encode()).hexdigest()
        x = rng.integers(0, 2, n)
        first = policy.actions(0, x, rng)
        then = (rng.random(n) < np.where(first == x, 0.8, 0.2)).astype(np.int64)
        last = policy.actions(1, then, rng)
        paid = (then == 1) & (last == 1) & (rng.random(n) < 0.9)
        file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, f"{state} {n}\n".encode())
        os.fsync(file)
        os.close(file)
        return richobs.Episodes([x, then], [first, last], [np.zeros(n), paid.astype(float)])


def tables() -> FunctionClass:
    """Returns a class of tables that holds the Q* of `Logged`."""
    roots = [[[0.72, 0.18], [0.18, 0.72]], [[0.82, 0.1], [0.2, 0.8]], [[0.18, 0.8], [0.6, 0.7]]]
    ends = [[[0.0, 0.0], [0.0, 0.9]], [[0.1, 0.2], [0.9, 0.0]], [[0.15, 0.1], [0.1, 0.98]]]
    return Layered([TableLevel(roots), TableLevel(ends)])


def python_functions() -> FunctionClass:
    """Returns some of these functions as Python code, which has no digest and cannot be saved."""

    def right(level: int, x: Observations) -> Floats:
        return np.array([[[0.72, 0.18], [0.18, 0.72]], [[0.0, 0.0], [0.0, 0.9]]][level])[np.asarray(x)]

    def wrong(level: int, x: Observations) -> Floats:
        return np.array([[[0.18, 0.8], [0.6, 0.7]], [[0.1, 0.2], [0.9, 0.0]]][level])[np.asarray(x)]

    return Callables([wrong, right], 2, 2)


@dataclasses.dataclass(frozen=True)
class Target:
    """A short run that is killed. It runs in a folder `run` of the current folder."""

    name: str
    arguments: tuple[str, ...] = ()  # of `richobs learn`
    functions: Callable[[], FunctionClass] | None = None  # of an environment of one's own, which Python plays
    more: tuple[str, ...] = ()  # arguments that `richobs resume` needs too
    before: tuple[str, ...] = ()  # arguments of `richobs learn` for a run that is in the folder at first

    @property
    def is_own(self) -> bool:
        """Whether it plays an environment of one's own, which logs its calls."""
        return self.functions is not None

    def learn(self) -> int:
        """Starts the run, or goes on with it, and returns the exit status."""
        if self.functions is None:
            return main(["learn", *self.arguments, *self.more, "--out", RUN, "--quiet"])
        try:
            env = Logged(Path.cwd() / PLAYS)
            richobs.learn(env, self.functions(), epsilon=0.35, max_episodes=200, seed=1, out=RUN, progress=False)
            write_report([StoredRun.read(RUN)], Path(RUN) / REPORT, figures=False)
        except (RichObsError, OSError) as error:  # as the command line does
            print(f"richobs: {error}")
            return REFUSED
        return 0

    def learn_fresh(self) -> int:
        """Starts the run in a fresh interpreter, which takes the place of this process."""
        self._in_fresh("learn", *self.arguments, *self.more, "--out", RUN, "--quiet")

    def resume_fresh(self) -> int:
        """Goes on with the run in a fresh interpreter, which takes the place of this process."""
        self._in_fresh("resume", RUN, *self.more, "--quiet")

    def _in_fresh(self, *command: str) -> NoReturn:
        os.execv(sys.executable, [sys.executable, "-m", "richobs", *command])

    def resume(self) -> int:
        """Goes on with the run, and returns the exit status."""
        return self.learn() if self.is_own else main(["resume", RUN, *self.more, "--quiet"])


TARGETS = (
    Target("lock/3", ("lock/3",)),
    Target("lock/5", ("lock/5",)),
    Target("lock/4, certified", ("lock/4", "--learner", "certified")),
    Target("bandit, listed", ("bandit",)),
    Target("own environment, tables", functions=tables),
    Target("own environment, Python functions", functions=python_functions),
)
FEW, MORE = ("--max-episodes", "40"), ("--max-episodes", "400")
SHORT = (  # killed at every call
    Target("lock/2", ("lock/2",)),
    TARGETS[4],
    TARGETS[5],
    Target("lock/2, goes on with more episodes", ("lock/2",), more=MORE, before=("lock/2", *FEW)),
    Target("lock/2, --overwrite", ("lock/2", "--overwrite"), before=("lock/2",)),
)


@dataclasses.dataclass(frozen=True)
class Undisturbed:
    """What a run gives that nobody disturbs."""

    seconds: float
    files: dict[str, bytes]  # results by name
    names: frozenset[str]  # of all files in the folder
    plays: tuple[str, ...]  # lines of the log of calls


def attempt(
    place: Path, work: Callable[[], int], *, kill_after: float | None = None, with_signal: int = signal.SIGKILL
) -> Ended:
    """Does work in a child whose current folder is `place`."""

    def there() -> int:
        os.chdir(place)
        return work()

    return in_child(there, limit=LIMIT, kill_after=kill_after, with_signal=with_signal)


def undisturbed(target: Target, place: Path) -> Undisturbed:
    """Runs a target in a folder, which is made, and returns what it gives."""
    prepare(target, place)
    ended = attempt(place, target.learn)
    if ended.status:
        raise RuntimeError(f"{target.name} does not run undisturbed: {ended.output}")
    return Undisturbed(ended.seconds, results(place), names(place), plays(place))


def prepare(target: Target, place: Path) -> Path:
    """Returns a folder that holds what there is before a target starts: nothing, or another run."""
    emptied(place)
    if target.before:
        kept = place.with_name("before")
        if not kept.exists():
            kept.mkdir()
            ended = attempt(kept, Target("before", target.before).learn)
            if ended.status:
                raise RuntimeError(f"what is there before {target.name} does not run: {ended.output}")
        shutil.copytree(kept, place, dirs_exist_ok=True)
    return place


def results(place: Path) -> dict[str, bytes]:
    """Returns the files that a run gives."""
    return {name: (place / RUN / name).read_bytes() for name in RESULTS if (place / RUN / name).exists()}


def names(place: Path) -> frozenset[str]:
    """Returns the names of all files in a run's folder."""
    return frozenset(os.listdir(place / RUN))


def plays(place: Path) -> tuple[str, ...]:
    """Returns the lines of the log of calls."""
    file = place / PLAYS
    return tuple(file.read_text().splitlines()) if file.exists() else ()


@dataclasses.dataclass
class Recovery:
    """A run that is started until it ends, and what is seen meanwhile."""

    target: Target
    place: Path
    wanted: Undisturbed
    refused: bool = False  # whether `resume` said that there is no run, before anything was stored
    trouble: str = ""  # what made it unusable
    twice: int = 0  # calls that were played again though a later one had been made
    killed: bool = False  # whether the last attempt was
    refusals: int = 0  # attempts that ended in a sentence, where that was expected

    def attempt(
        self,
        by_resume: bool,
        *,
        kill_after: float | None = None,
        with_signal: int = signal.SIGKILL,
        fresh: bool = False,
        armed: Callable[[], None] | None = None,
        may_be_refused: bool = False,
    ) -> bool:
        """Starts the run once, and returns whether there was one to start; notes what must not happen.

        Args:
            by_resume: whether with `resume` instead of the same command again.
            kill_after: seconds until it is sent a signal.
            with_signal: which one.
            fresh: whether in a fresh interpreter.
            armed: called in the child before the run begins; it may let it kill itself, or fill the disk.
            may_be_refused: whether it may end in a sentence.
        """
        stored, known = (self.place / RUN / CONFIG).exists(), plays(self.place)
        command = self.target.resume if by_resume else self.target.learn
        if fresh:
            command = self.target.resume_fresh if by_resume else self.target.learn_fresh

        def work() -> int:
            if armed is not None:
                armed()
            return command()

        ended = attempt(self.place, work, kill_after=kill_after, with_signal=with_signal)
        self._count(known)
        by_signal = ended.status in (-with_signal, INTERRUPTED) and (ended.killed or armed is not None)
        self.killed = ended.killed or by_signal
        importing = fresh and ended.status == -signal.SIGINT and not IN_MAIN.search(ended.output)
        if ("Traceback" in ended.output or "Exception ignored" in ended.output) and not importing:
            self.trouble = f"a traceback: {ended.output[-2_000:]}"
        elif ended.status == REFUSED and by_resume and not stored and "there is no run" in ended.output:
            self.refused = True
            return False
        elif ended.status == REFUSED and may_be_refused and "richobs: " in ended.output:
            self.refusals += 1
        elif ended.status and not by_signal:
            self.trouble = f"status {ended.status} by {'resume' if by_resume else 'learn'}: {ended.output[-2_000:]}"
        return True

    def _count(self, known: Sequence[str]) -> None:
        """Counts calls that were played again; only the last one may be, whose answer may not have been kept."""
        new = plays(self.place)[len(known) :]
        again = [i for i, line in enumerate(new) if line in known or line in new[:i]]
        self.twice += sum(not (i == 0 and known and new[0] == known[-1]) for i in again)

    def finish(self, by_resume: bool) -> Fate:
        """Lets the run end undisturbed, and returns what became of it."""
        if not self.trouble and not self.attempt(by_resume):
            self.attempt(False)
        return self.fate()

    def fate(self) -> Fate:
        """Returns what became of the run, which has ended."""
        if self.trouble:
            return Fate.UNUSABLE
        found = results(self.place)
        if found != self.wanted.files:
            self.trouble = f"not the same: {[n for n in RESULTS if found.get(n) != self.wanted.files.get(n)]}"
            return Fate.DIFFERENT
        if names(self.place) != self.wanted.names:
            self.trouble = f"other files: {sorted(names(self.place) ^ self.wanted.names)}"
            return Fate.LEFTOVERS
        if self.twice:
            self.trouble = f"{self.twice} calls were played again though their answers were kept"
            return Fate.PLAYED_TWICE
        return Fate.NO_RUN_YET if self.refused else Fate.IDENTICAL


def emptied(place: Path) -> Path:
    """Returns a folder that is there and empty."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return place


def load_everything(place: Path) -> None:
    """Runs once in this process, so that no child has anything left to import."""
    here = Path.cwd()
    os.chdir(emptied(place))
    try:
        for target in reversed(TARGETS):
            shutil.rmtree(RUN, ignore_errors=True)
            target.learn()
        TARGETS[0].resume()
    finally:
        os.chdir(here)

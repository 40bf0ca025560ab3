"""The arena: learners against each other on the same worlds, counted the same way.

arena.json       who met whom, what each was given, and who cannot play where
sweep.json       the list of runs, as `richobs_lab.sweep` keeps it
results.jsonl    one line for each attempt at a run
RUN/arena.json   what came of one run, as a judge saw it who knows V*

A run has a seed that also chooses the secret of its world. A judge looks at the policy with which a learner would answer
whenever the learner tells how far it is, and at the last one. What the judge does is not charged to the learner.
"""

import contextlib
import dataclasses
import gc
import json
import math
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path as FilePath
from types import FrameType
from typing import Any

from richobs import (
    LEARNERS,
    InvalidInput,
    LearnedPolicy,
    Learner,
    Outcome,
    Policy,
    Problem,
    Progress,
    RichObsError,
    RunStopped,
    Settings,
    ValueReport,
    make,
)
from richobs.core.arguments import file_path, real_number, whole_number
from richobs.core.files import is_there, read_json, reading, write_atomically
from richobs.core.problem import checked_accuracy
from richobs.core.settings import LARGEST_COUNT, read_record
from richobs.learners import learner
from richobs.runs import session
from richobs.runs.prepare import prepare
from richobs.worlds.registry import configure, full_id, is_gymnasium_id
from richobs_lab.sweep.runs import (
    MAX_RUNS,
    Cell,
    CellResult,
    Sweep,
    counted_seeds,
    cpu_clock,
    error_words,
    file_digest,
    folder_name,
    run_cells,
)

FORMAT, VERSION = "richobs-arena", 1
ARENA = "arena.json"
BUDGET, SEEDS = 200_000, 20
LOOK, LAST = 1_000, 5_000  # episodes that estimate a value which cannot be computed: of a look, and of the answer
NEXT_CHECK = 0.05  # CPU seconds between two checks of the time while the judge looks
TOLERANCE = 1e-9  # by how much rounding may move a value that is computed
HORIZONS = (5, 10, 20, 50)

FAMILIES: dict[str, tuple[str, ...]] = {  # worlds that differ by horizon only
    "lock-bernoulli": tuple(f"lock/{h},noise_bits={h}" for h in HORIZONS),
    "lock-gaussian": tuple(f"lock/{h},noise_bits={h},noise=gaussian" for h in HORIZONS),
    "lock-stochastic": tuple(f"lock/{h},noise_bits={h},swap=0.5" for h in HORIZONS),
    "lock-failing": tuple(f"lock/{h},noise_bits={h},swap=0.5,fail=0.1" for h in (5, 10)),  # beyond, V* is below epsilon
    "diabolical-noisy": tuple(f"diabolical/{h},sigma=0.1" for h in (5, 10)),
    "random": ("random/4",),
    "mdp": ("mdp/5",),
    "mdp-stochastic": ("mdp/5,stochastic=True",),
    "deep-sea": tuple(f"deep-sea/{h}" for h in (8, 16)),
    "frozen-lake": ("frozen-lake",),
    "bandit": ("bandit",),
}


Tuned = Callable[[Problem, int], tuple[str, ...]]


def _fixed(*pairs: str) -> Tuned:
    return lambda problem, budget: pairs


@dataclass(frozen=True)
class Contestant:
    """A learner, and the rule that tunes it."""

    name: str
    learner: str
    rule: str = ""  # how it is tuned, in words; empty where it is not
    tuning: Tuned = field(default_factory=_fixed)  # for a problem and a budget

    def given(self) -> tuple[str, ...]:
        """Returns what it is told and need not learn, each in words, its tuning last."""
        told = learner(self.learner).given
        return (*told, self.rule) if self.rule else told


def _pcid_small(problem: Problem, budget: int) -> tuple[str, ...]:
    pairs = (problem.n_states or 1) * problem.n_actions
    return (f"samples={math.ceil((30 + 2 * problem.horizon) * pairs / 12)}",)


RULES: dict[str, Contestant] = {  # those whose tuning is chosen here; others have their defaults, or play the budget
    "homer": Contestant(
        "homer",
        "homer",
        "tuned: 200 episodes of a level for each pair of state and action, and no episodes of their own to reach a state",
        _fixed("planner=greedy"),
    ),
    "latent-q": Contestant(
        "latent-q",
        "latent-q",
        "no stopping rule: plays 500 H episodes",
        lambda problem, budget: (f"episodes={min(budget, 500 * problem.horizon)}",),
    ),
    "pcid": Contestant(
        "pcid", "pcid", "tuned: 35 episodes of a level for each pair of state and action, about the authors' size"
    ),
    "pcid-small": Contestant(
        "pcid-small",
        "pcid",
        "tuned on the lock: (30 + 2 H)/12 episodes of a level for each pair, about the least that solves nine of ten seeds",
        _pcid_small,
    ),
    "ppe": Contestant("ppe", "ppe", "tuned: 250 episodes of each action sequence, as the authors have"),
}


def contestant(text: str) -> Contestant:
    """Returns the contestant that a text names: one of `RULES`, a learner, or a learner and its tuning after spaces.

    Raises:
        InvalidInput: there is no such learner.
    """
    name, *pairs = text.split()
    if not pairs and name in RULES:
        return RULES[name]
    found = learner(name)
    if pairs:
        return Contestant(" ".join([found.name, *pairs]), found.name, f"tuned: {', '.join(pairs)}", _fixed(*pairs))
    if has_no_end(found):
        play = "no stopping rule: plays the budget"
        return Contestant(found.name, found.name, play, lambda problem, budget: (f"episodes={budget}",))
    return Contestant(found.name, found.name)


def has_no_end(found: Learner) -> bool:
    """Whether a learner has no stopping rule, and plays as many episodes as its tuning says."""
    return any(f.name == "episodes" for f in dataclasses.fields(found.Tuning))


def contestants() -> tuple[str, ...]:
    """Returns the names of all contestants: every learner, and those that enter twice."""
    return tuple(dict.fromkeys([*LEARNERS, *RULES]))


@dataclass(frozen=True)
class Arena:
    """The runs of an arena: which learner played which world, and how each run ended."""

    epsilon: float
    delta: float
    budget: int
    given: Mapping[str, tuple[str, ...]]  # by contestant: what it is told, each in words
    silent: frozenset[str]  # contestants that never claim anything
    absent: tuple[tuple[str, int, str, str], ...]  # (family, horizon, contestant, why it cannot play there)
    runs: tuple["ArenaRun", ...] = ()

    def as_plain(self) -> dict[str, Any]:
        """Returns it in plain values, the runs as rows below their names."""
        names = [f.name for f in dataclasses.fields(ArenaRun)]
        return {
            "format": FORMAT,
            "version": VERSION,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "budget": self.budget,
            "given": {name: list(told) for name, told in self.given.items()},
            "silent": sorted(self.silent),
            "absent": [list(row) for row in self.absent],
            "columns": names,
            "runs": [[getattr(run, name) for name in names] for run in self.runs],
        }

    @classmethod
    def read_record(cls, values: Mapping[str, Any]) -> "Arena":
        """Returns the arena that `as_plain` took apart.

        Raises:
            LookupError, TypeError, ValueError, AttributeError: it is none.
        """
        if (values["format"], values["version"]) != (FORMAT, VERSION):
            raise ValueError(f"format {values['format']!r}, version {values['version']!r}")
        runs = tuple(ArenaRun.read_record(dict(zip(values["columns"], row, strict=True))) for row in values["runs"])
        given = {str(name): tuple(map(str, told)) for name, told in values["given"].items()}
        absent = tuple((str(f), int(h), str(c), str(why)) for f, h, c, why in values["absent"])
        epsilon, delta = checked_accuracy(values["epsilon"], values["delta"], math.inf)
        budget = whole_number("budget", values["budget"])
        return cls(epsilon, delta, budget, given, frozenset(map(str, values["silent"])), absent, runs)

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> "Arena":
        """Returns the arena in a file.

        Raises:
            InvalidFile: there is none.
        """
        place = file_path(file)
        with reading(place):
            return cls.read_record(read_json(place))

    def merged(self, *others: "Arena") -> "Arena":
        """Returns this arena with the runs of others, which asked for the same accuracy.

        Of two runs of a contestant on the same world with the same seed, the one that was allowed more episodes counts.
        """
        everyone = (self, *others)
        if len({(a.epsilon, a.delta) for a in everyone}) > 1:
            raise InvalidInput("arenas can be joined where they asked for the same epsilon and delta; these did not.")
        by_budget = sorted((r for a in reversed(everyone) for r in a.runs), key=lambda r: r.budget or math.inf)
        largest = {(r.contestant, r.world, r.seed): r for r in by_budget}  # the last one stays
        runs = {key: largest[key] for a in everyone for r in a.runs for key in [(r.contestant, r.world, r.seed)]}
        met = {(r.family, r.horizon, r.contestant) for r in runs.values()}
        absent = {row[:3]: row for a in everyone for row in a.absent if row[:3] not in met}
        return Arena(
            self.epsilon,
            self.delta,
            max(a.budget for a in everyone),
            {name: told for a in reversed(everyone) for name, told in a.given.items()},
            frozenset().union(*(a.silent for a in everyone)),
            tuple(absent.values()),
            tuple(runs.values()),
        )


@dataclass(frozen=True)
class ArenaRun:
    """What came of one run, as the judge saw it."""

    contestant: str
    family: str
    horizon: int
    world: str  # the full id
    seed: int
    budget: int | None  # episodes that were allowed; None where they are drawn as counts, without a limit
    fate: str  # one of FATES
    message: str = ""  # why it stopped, where it stopped with an error
    episodes: int = 0  # of the whole run
    solved: int | None = None  # episodes after which the policy is epsilon-optimal until the end; None where it is not
    over_time: bool = False  # whether policies before the end were looked at; otherwise `solved` is the whole run
    said: int | None = None  # episodes after which it claimed what was asked; None where it did not
    is_false: bool | None = None  # whether a claim is false; None where nothing is claimed, or nobody can tell
    gap: float | None = None  # V* less the value of the answer
    exact: bool = False  # whether that is computed rather than estimated
    cpu_seconds: float = 0.0  # of the learner and of playing, without the judge
    memory: int = 0  # bytes of the process at its peak, the interpreter included
    seconds: float | None = None  # CPU seconds that were allowed; None for any number

    @classmethod
    def read_record(cls, values: Any) -> "ArenaRun":
        """Returns the run that was written as an object of its fields.

        Raises:
            TypeError: it is none.
        """
        run = read_record(cls, values)
        if run.fate not in FATES:
            raise TypeError(f"there is no fate {run.fate!r:.80}")
        return run


SAID, SOLVED, UNKNOWN = "solved, and said so", "solved", "ended, and nobody can judge it"
FALSE, NOTHING, SILENT = "failed and claimed falsely", "failed and claimed nothing", "failed silently"
STOPPED, LATE = "stopped with an error", "out of time"
FATES = (SAID, SOLVED, UNKNOWN, FALSE, NOTHING, SILENT, STOPPED, LATE)


@dataclass(frozen=True)
class Contest:
    """What is to be run: the arena without runs, and the cells."""

    arena: Arena
    cells: tuple[Cell, ...]


def plan_arena(
    worlds: Sequence[str] = (),
    learners: Sequence[str] = (),
    *,
    seeds: Iterable[int] = range(SEEDS),
    budget: int = BUDGET,
    epsilon: float = 0.1,
    delta: float = 0.05,
    max_runs: int = MAX_RUNS,
) -> Contest:
    """Returns who meets whom. Every learner is checked against every world once; nothing is played.

    Args:
        worlds: names of `FAMILIES` or ids of worlds; by default all families.
        learners: contestants, as for `contestant`; by default all.
        seeds: of the runs and of the secrets of their worlds.
        budget: episodes that a run may play. Runs that are drawn as counts have no limit.
        epsilon: largest allowed gap between the policy's value and V*.
        delta: probability that a claim is false.
        max_runs: more are refused, before they are listed.

    Raises:
        InvalidInput: there is no such world or learner, or a number that cannot be.
    """
    budget = whole_number("budget", budget, least=1, most=LARGEST_COUNT)
    for texts in (worlds, learners):
        if (
            isinstance(texts, str)
            or not isinstance(texts, Sequence)
            or not all(isinstance(text, str) for text in texts)
        ):
            raise InvalidInput(f"worlds and learners of an arena are lists of texts; got {texts!r:.80}.")
    entered = [contestant(text) for text in (learners or contestants())]
    asked = Settings(epsilon=epsilon, delta=delta)
    asked.check()
    seeds = counted_seeds(seeds, len(_worlds(worlds)) * len(entered), max_runs)
    cells: list[Cell] = []
    absent: list[tuple[str, int, str, str]] = []
    for family, world in _worlds(worlds):
        try:
            problem = make(world)
        except (RichObsError, ImportError) as error:
            absent += [(family, 0, c.name, str(error)) for c in entered]
            continue
        ids = {seed: _with_seed(world, seed) for seed in seeds}
        for c in entered:
            settings = dataclasses.replace(asked, learner=c.learner, tuning=c.tuning(problem, budget))
            try:
                prepared = prepare(problem, settings)
            except RichObsError as error:
                absent.append((family, problem.horizon, c.name, str(error)))
                continue
            settings = prepared.asked
            if prepared.engine != "counted":
                settings = dataclasses.replace(settings, max_episodes=budget)
            told = (("world", family), ("horizon", problem.horizon), ("learner", c.name))
            for seed, own in ids.items():
                cells.append(Cell(folder_name(told, seed), own, dataclasses.replace(settings, seed=seed), told))
    cells.sort(key=lambda cell: cell.settings.seed)  # a contest that is stopped has fewer seeds, not fewer worlds
    given = {c.name: c.given() for c in entered}
    silent = frozenset(c.name for c in entered if not learner(c.learner).traits.claims)
    return Contest(Arena(asked.epsilon, asked.delta, budget, given, silent, tuple(absent)), tuple(cells))


def families_of(texts: Sequence[str] = ()) -> dict[str, list[str]]:
    """Returns by family the ids of all worlds that texts name: families or ids; by default all families."""
    found: dict[str, list[str]] = {}
    for family, world in _worlds(texts):
        found.setdefault(family, []).append(world)
    return found


def _worlds(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Returns (family, id) of every world that texts name, each once."""
    found: dict[str, str] = {}
    for text in texts or FAMILIES:
        for world in FAMILIES.get(text, (text,)):
            known = next((family for family, its in FAMILIES.items() if world in its), None)
            found.setdefault(world, text if text in FAMILIES else known or _family(world))
    return [(family, world) for world, family in found.items()]


def _family(world: str) -> str:
    """Returns what worlds have in common that differ by horizon only: the id without it."""
    if is_gymnasium_id(world):
        return world
    head, comma, rest = world.partition(",")
    return f"{head.partition('/')[0]}{comma}{rest}"


def _with_seed(world: str, seed: int) -> str:
    """Returns the full id of a world with the secret of a seed; a Gymnasium environment has none."""
    return world if is_gymnasium_id(world) or ",seed=" in world else full_id(configure(world, seed=seed))


class _OutOfTime(RunStopped):
    """A run took more CPU seconds than are allowed."""


class Judge:
    """Looks at a learner's policies and notes since when they are epsilon-optimal."""

    def __init__(self, problem: Problem, epsilon: float, clock: Callable[[], float], seconds: float | None = None):
        """Begins a run.

        Args:
            problem: whose V* the judge knows, where it is known.
            epsilon: largest gap of a policy that counts as solved.
            clock: CPU seconds.
            seconds: CPU seconds that the run may take; it is stopped when it next tells how far it is.
        """
        self.problem, self.epsilon, self.spent = problem, epsilon, 0.0
        self.since: int | None = None  # episodes after which all policies so far are good
        self.last: ValueReport | None = None  # what the last policy that was looked at is worth
        self.looks = 0
        self._clock, self._begin, self._seconds = clock, clock(), seconds
        self._looks_since: float | None = None  # when the look began that is not finished
        self._known: dict[str, ValueReport] = {}

    def look(self, progress: Progress) -> None:
        """Looks at the policy with which the learner would answer now.

        Raises:
            RunStopped: the run took too long.
        """
        self._looks_since = begin = self._clock()
        if progress.policy is not None and self.problem.knows_optimum:
            self.looks += 1
            self.last = self.value(progress.policy(), LOOK)
            if not self.is_good(self.last):
                self.since = None
            elif self.since is None:
                self.since = progress.episodes
        self.spent += self._clock() - begin
        self._looks_since = None
        self.check_time()

    def check_time(self) -> float:
        """Returns the CPU seconds that are left, infinitely many where they are not limited.

        Raises:
            RunStopped: none are left, and the judge is not looking.
        """
        if self._seconds is None:
            return math.inf
        left = self._seconds - self.cpu_seconds
        if left < 0 and self._looks_since is None:
            raise _OutOfTime(self.late_words)
        return left

    def is_late(self, cpu_seconds: float) -> bool:
        """Whether a run that ended after so many CPU seconds was stopped because it took too long."""
        return self._seconds is not None and cpu_seconds > self._seconds

    @property
    def late_words(self) -> str:
        """That the run took too long, in words."""
        return f"the run took more than {self._seconds:g} CPU seconds."

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of the run so far, without those of the judge."""
        now = self._clock() if self._looks_since is None else self._looks_since
        return now - self._begin - self.spent

    def value(self, policy: Policy, episodes: int) -> ValueReport:
        """Returns what a policy is worth; the same policy is valued once."""
        key = f"{policy.digest} {episodes}" if isinstance(policy, LearnedPolicy) else ""
        if not key or key not in self._known:
            self._known[key] = self.problem.value(policy, episodes=episodes)
        return self._known[key]

    def is_good(self, value: ValueReport) -> bool:
        """Whether a value is within epsilon of V*."""
        return float(value) >= self.problem.optimal_value - self.epsilon - TOLERANCE

    def cut_off(self, run: ArenaRun, chosen: Learner) -> ArenaRun:
        """Returns a run that was stopped because it took too long.

        Of a learner that has no stopping rule the last policy that was looked at counts, as it does where the episodes are
        spent; of any other learner a run without an answer is not solved.

        Args:
            run: what it is about, with its episodes.
            chosen: the learner.
        """
        run = dataclasses.replace(run, fate=LATE, over_time=self.looks > 0)
        if not has_no_end(chosen) or self.last is None:
            return run
        fate = LATE if self.since is None else SOLVED
        gap = self.problem.optimal_value - float(self.last)
        return dataclasses.replace(run, fate=fate, solved=self.since, gap=gap, exact=self.last.exact)

    def verdict(self, run: ArenaRun, outcome: Outcome, chosen: Learner) -> ArenaRun:
        """Returns a run with what is known once it ended.

        Args:
            run: what it is about.
            outcome: what the learner answered.
            chosen: the learner.
        """
        said = outcome.guaranteed and outcome.epsilon <= self.epsilon
        run = dataclasses.replace(
            run,
            episodes=outcome.episodes,
            over_time=self.looks > 0,
            said=outcome.episodes if said else None,
        )
        if not self.problem.knows_optimum:
            return dataclasses.replace(run, fate=UNKNOWN)
        value = self.value(outcome.policy, LAST)
        best, good = self.problem.optimal_value, self.is_good(value)
        is_false = best - value.high > outcome.epsilon + TOLERANCE if outcome.guaranteed else None
        if (
            is_false and chosen.traits.near_best_sequence
        ):  # true of the best action sequence, perhaps; it says nothing of V*
            said, is_false = False, None
            run = dataclasses.replace(run, said=None)
        if good:
            fate = SAID if said else SOLVED
        elif is_false:
            fate = FALSE
        else:
            fate = NOTHING if chosen.traits.claims or outcome.remarks else SILENT
        since = self.since if self.looks and self.since is not None else outcome.episodes
        return dataclasses.replace(
            run,
            fate=fate,
            solved=since if good else None,
            is_false=is_false,
            gap=best - float(value),
            exact=value.exact,
        )


@contextlib.contextmanager
def _watched(judge: Judge, seconds: float | None) -> Iterator[None]:
    """Stops what takes more CPU seconds, also between two looks; only the main thread of a process can be stopped so."""
    if seconds is None or threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_PROF, max(judge.check_time(), NEXT_CHECK))  # the judge's seconds are not counted

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def run_contest(cell: Cell, folder: str, seconds: float | None = None) -> CellResult:
    """Runs one cell and keeps what the judge saw in its folder; a run that stops with an error is a result too.

    Args:
        cell: what to run.
        folder: gets `arena.json`.
        seconds: CPU seconds that it may take, without those of the judge; None for any number.
    """
    told = dict(cell.varied)
    about = (told["learner"], told["world"], told["horizon"], cell.world, cell.settings.seed)
    begun = ArenaRun(*about, cell.settings.max_episodes, STOPPED)
    problem, chosen = make(cell.world), learner(cell.settings.learner)  # built and imported before the clock starts
    with contextlib.suppress(RichObsError):  # a learner may import what it needs here; a refusal is met again below
        prepare(problem, cell.settings)
    _forget_peak()
    begin = time.monotonic()
    judge = Judge(problem, cell.settings.epsilon, cpu_clock(), seconds)
    try:
        with _watched(judge, seconds):
            outcome = session.run(problem, cell.settings, callback=judge.look)
        cpu, peak = judge.cpu_seconds, _peak()
        run = judge.verdict(begun, outcome, chosen)
    except Exception as error:
        cpu, peak = judge.cpu_seconds, _peak()
        spent = error.ledger.total if isinstance(error, RunStopped) and error.ledger is not None else 0
        run = dataclasses.replace(begun, message=error_words(error), episodes=spent)
        if judge.is_late(cpu):  # also where a library caught what stopped the run, and raised an error of its own
            run = judge.cut_off(dataclasses.replace(run, message=judge.late_words), chosen)
    run = dataclasses.replace(run, cpu_seconds=cpu, memory=peak, seconds=seconds)
    place = FilePath(folder)
    place.mkdir(parents=True, exist_ok=True)
    with write_atomically(place / ARENA) as stream:
        stream.write((json.dumps(dataclasses.asdict(run), indent=1) + "\n").encode())
    return CellResult(
        cell.run,
        "finished",
        run.message,
        run.episodes,
        as_asked=run.said is not None,
        cpu_seconds=cpu,
        seconds=time.monotonic() - begin,
        certificate=file_digest(place / ARENA),
    )


def run_arena(
    contest: Contest, folder: str | os.PathLike[str], *, seconds: float | None = None, **options: Any
) -> Arena:
    """Runs what is missing of a contest in a folder, and returns everything that came of it.

    Args:
        contest: what to run; a folder that holds another one is refused.
        folder: of the arena.
        seconds: CPU seconds that a run may take, without those of the judge; None for any number.
        **options: as for `richobs_lab.sweep.runs.run_cells`: `workers`, `executor`, `watch`.

    Raises:
        InvalidInput: the seconds are no number above 0.
    """
    if seconds is not None and not real_number("seconds", seconds) > 0:
        raise InvalidInput(f"a run takes CPU seconds, so more than 0 must be allowed; got {seconds!r}.")
    place = file_path(folder, "an arena's folder")
    work = partial(run_contest, seconds=None if seconds in (None, math.inf) else float(seconds))
    try:
        run_cells(contest.cells, place, work=work, kept=ARENA, fresh=True, **options)
    except KeyboardInterrupt:
        keep_arena(read_runs(contest, place), place)
        raise
    done = read_runs(contest, place)
    keep_arena(done, place)
    return done


def keep_arena(arena: Arena, folder: FilePath) -> None:
    """Writes an arena into its folder."""
    with write_atomically(folder / ARENA) as stream:
        stream.write((json.dumps(arena.as_plain()) + "\n").encode())


def read_runs(contest: Contest, folder: str | os.PathLike[str]) -> Arena:
    """Returns a contest's arena with the runs that ended so far, as their folders have them.

    Raises:
        InvalidFile: what a run left is damaged.
    """
    place = FilePath(folder)
    ended = Sweep.read(place).results
    found = []
    for cell in contest.cells:
        if cell.run not in ended or ended[cell.run].state != "finished":
            continue
        file = place / cell.run / ARENA
        with reading(file):
            if not is_there(file):
                raise ValueError("there is no file")
            found.append(ArenaRun.read_record(read_json(file)))
    return dataclasses.replace(contest.arena, runs=tuple(found))


def _forget_peak() -> None:
    """Lets the peak of this process's memory begin anew, where the system can: building the world is not the learner's."""
    gc.collect()
    try:
        FilePath("/proc/self/clear_refs").write_text("5")
    except OSError:  # the peak is then that of the process since it began
        return


def _peak() -> int:
    """Returns the bytes of memory that this process had at its peak."""
    try:
        status = FilePath("/proc/self/status").read_text()
        return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

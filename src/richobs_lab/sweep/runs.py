"""Many runs: settings times seeds as data, each run a task in a folder of its own, and what came of them read back.

sweep.json     the list of cells: which world, which settings, which folder
results.jsonl  one line for each attempt at a cell, once it ended
sweep.lock     held by the process that runs the sweep
RUN/           the run of a cell, as `runs.store` keeps it

A cell is run by a top-level function of the cell and a folder, so any executor can do it. What is finished is not run again,
and a run that was killed goes on where it stopped. A line of results that a full disk or a kill cut off counts as not
written: its cell goes on with what its folder holds.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
import multiprocessing
import os
import platform
import re
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing.context import BaseContext
from pathlib import Path as FilePath
from typing import Any, Literal, NamedTuple

from richobs import Certificate
from richobs.core.arguments import absolute_path, checked_workers, file_path, whole_number
from richobs.core.errors import InvalidFile, InvalidInput, RichObsError
from richobs.core.executors import (
    GUARD,
    Workers,
    begin_worker,
    interruptions_held_back,
    leave_unguarded_script,
    usable_cpus,
)
from richobs.core.files import (
    LARGEST_JSON,
    MOST_VALUES,
    held,
    is_there,
    make_folder,
    parse_json,
    read_json,
    reading,
    remove_abandoned,
    write_atomically,
)
from richobs.core.settings import Settings, read_record
from richobs.learners import learner
from richobs.runs import session
from richobs.runs.store import CERTIFICATE, LOCK
from richobs.worlds.registry import config_class, configure, full_id, is_gymnasium_id, make
from richobs_lab.processes import LOOK, interruptions_noted, one_thread_each

FORMAT, VERSION = "richobs-sweep", 1
SWEEP, RESULTS, SWEEP_LOCK = "sweep.json", "results.jsonl", "sweep.lock"
FIXED = frozenset({"seed", "workers"})  # settings of a run that a sweep chooses itself
LONGEST = 150  # characters of a folder's name
LONGEST_MESSAGE = 2_000  # characters of why a cell failed
LONGEST_LINE = 2**16  # bytes of a line of results
LARGEST_RESULTS = 2**28  # bytes of all lines
MAX_RUNS = 20_000  # of a sweep or an arena, unless told otherwise
MOST_RUNS = 100_000  # of any: so many cells fit into `sweep.json`
BEAT = 10.0  # seconds after which it is told how far a sweep is, also where nothing ended

Work = Callable[["Cell", str], "CellResult"]
Sent = tuple["CellResult", Mapping[str, bytes] | None]  # what a task returns: the result, and files to be kept


@dataclass(frozen=True)
class Cell:
    """One run of a sweep, as data."""

    run: str  # the name of its folder
    world: str  # a full id such as "lock/10,noise_bits=4"
    settings: Settings
    varied: tuple[tuple[str, Any], ...]  # what distinguishes it from other cells but for the seed: (name, value)

    @property
    def setting(self) -> str:
        """What it has in common with the cells that differ by seed only, in words."""
        return ", ".join(f"{name} {value}" for name, value in self.varied) or self.world

    def as_plain(self) -> dict[str, Any]:
        """Returns the cell in plain values."""
        return {
            "run": self.run,
            "world": self.world,
            "settings": self.settings.as_plain(),
            "varied": [list(pair) for pair in self.varied],
        }

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> "Cell":
        """Returns the cell that `as_plain` took apart.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        run, world, settings = values["run"], values["world"], values["settings"]
        if not isinstance(run, str) or not isinstance(world, str) or not _is_name(run):
            raise ValueError(f"{run!r:.80} names no folder beside {SWEEP}")
        if not isinstance(settings, dict):
            raise TypeError(f"the settings of {run} are a {type(settings).__name__}")
        varied = tuple((str(name), value) for name, value in values["varied"])
        return cls(run, world, read_record(Settings, settings), varied)


@dataclass(frozen=True)
class CellResult:
    """What came of one cell."""

    run: str
    state: Literal["finished", "failed"]
    message: str = ""  # why it failed
    episodes: int = 0
    guaranteed: bool = False  # whether the certificate claims anything of the policy
    epsilon: float | None = None  # the gap that is claimed
    as_asked: bool = False  # whether that is no wider than what was asked
    lower: float | None = None  # the policy's value is at least this, where the learner bounds it
    upper: float | None = None  # V* is at most this, likewise
    cpu_seconds: float = 0.0  # of all attempts that ended
    seconds: float = 0.0  # by the clock, likewise
    certificate: str = ""  # SHA-256 of the certificate's file, or of what else the work keeps

    @property
    def line(self) -> bytes:
        """The result as a line of `results.jsonl`."""
        told = dataclasses.replace(self, message=self.message[:LONGEST_MESSAGE])
        return (json.dumps(dataclasses.asdict(told)) + "\n").encode()


class SweepProgress(NamedTuple):
    """How far a sweep is."""

    total: int
    finished: int
    failed: int
    running: int
    last: CellResult | None = None  # the one that just ended


Watch = Callable[[SweepProgress], None]


def seed_list(text: str) -> Iterator[int]:
    """Returns the seeds that a text names: `20` and `0:20` are those from 0 to 19, `3,7` are two, and `7,` is one.

    Raises:
        InvalidInput: the text names none.
    """
    seeds: list[range] = []
    for part in text.removesuffix(",").split(","):
        first, colon, end = part.partition(":")
        if text == part and not colon:
            first, colon, end = "0", ":", part
        try:
            seeds.append(range(int(first), int(end) if colon else int(first) + 1))
        except ValueError:
            raise InvalidInput(
                f"seeds are written as 20 or 0:20 (from 0 to 19) or as 3,7,9; {part!r:.80} in {text!r:.80} is neither."
            ) from None
    if not any(seeds):
        raise InvalidInput(f"a sweep needs at least one seed; {text!r:.80} names none.")
    return itertools.chain.from_iterable(seeds)


def counted_seeds(seeds: Iterable[int], settings: int, max_runs: int) -> list[int]:
    """Returns the seeds of every setting, after counting the runs: more seeds than are needed to refuse are not made.

    Args:
        seeds: of the runs, as many as there are; perhaps without an end.
        settings: number of settings that each seed is run with.
        max_runs: number of runs that are allowed, at most MOST_RUNS.

    Raises:
        InvalidInput: there are more runs, or no seed.
    """
    most = whole_number("max_runs", max_runs, least=1, most=MOST_RUNS)
    try:
        chosen = [whole_number("a seed", seed, least=None) for seed in itertools.islice(seeds, most + 1)]
    except TypeError:
        raise InvalidInput(f"seeds are whole numbers, or a text such as 0:20; got {seeds!r:.80}.") from None
    if not chosen:
        raise InvalidInput("at least one seed is needed; there are none.")
    if len(chosen) * settings > most:
        at_least = "at least " if len(chosen) > most else ""
        several = "s" if settings > 1 else ""
        raise InvalidInput(
            f"{settings:,} setting{several} with {at_least}{len(chosen):,} seeds are {at_least}{settings * len(chosen):,} "
            f"runs; {most:,} are allowed. Ask for fewer, or raise max_runs (--max-runs), to at most {MOST_RUNS:,}; further "
            "runs need another folder."
        )
    return chosen


def plan_cells(
    world: str, seeds: Iterable[int], varied: Mapping[str, Sequence[Any]], *, max_runs: int = MAX_RUNS
) -> list[Cell]:
    """Returns the cells of a sweep: every combination of values, each with every seed. Nothing is built or played.

    Args:
        world: an id, such as `lock` or `lock/5,noise_bits=4`.
        seeds: of the runs.
        varied: values by name. A name is a setting of the run (`epsilon`, `learner`) or a parameter of the world
            (`horizon`); a world's parameter with the name of a setting is written `world_seed`.
        max_runs: more are refused, before they are listed.

    Raises:
        InvalidInput: a name or a value that does not exist, or no cell, or one twice, or too many.
    """
    if not isinstance(world, str):
        raise InvalidInput(f"a sweep needs the id of a world, such as 'lock/5'; got {world!r:.80}.")
    for name, values in varied.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
            raise InvalidInput(f"a sweep needs a list of at least one value of {name}; got {values!r:.80}.")
    seeds = counted_seeds(seeds, math.prod(len(values) for values in varied.values()), max_runs)
    settings_of_runs = {f.name for f in dataclasses.fields(Settings)} - FIXED
    cells: list[Cell] = []
    for values in itertools.product(*varied.values()):
        chosen = dict(zip(varied, values, strict=True))
        asked = {name: value for name, value in chosen.items() if name in settings_of_runs}
        rest = {name: value for name, value in chosen.items() if name not in settings_of_runs}
        full, parameters = _world_with(world, rest)
        told = tuple((n, _plain({**chosen, **parameters}[n])) for n in chosen if len(varied[n]) > 1)
        for seed in seeds:
            settings = Settings(seed=seed, **asked)
            settings.check()
            settings = dataclasses.replace(settings, learner=learner(settings.learner).name)
            cells.append(Cell(folder_name(told, seed), full, settings, told))
    runs = [(cell.world, cell.settings) for cell in cells]
    if len(set(runs)) < len(runs):
        raise InvalidInput("a sweep runs every cell once; a value or a seed is given twice.")
    if len({cell.run for cell in cells}) < len(cells):  # values that differ only by characters that folders lack
        cells = [dataclasses.replace(cell, run=f"{i:06}-{cell.run}") for i, cell in enumerate(cells)]
    return cells


def _world_with(world: str, parameters: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the full id of a world with parameters, and the parameters as the types that the world declares."""
    if is_gymnasium_id(world):
        if parameters:
            raise InvalidInput(
                f"{', '.join(parameters)}: a sweep over a Gymnasium environment varies settings of the run; write the "
                "environment's arguments into its id."
            )
        return world, {}
    names = {f.name for f in dataclasses.fields(config_class(world.partition(",")[0].partition("/")[0]))}
    of_runs = {f.name for f in dataclasses.fields(Settings)}
    own = {
        n.removeprefix("world_") if n.removeprefix("world_") in names & of_runs else n: v for n, v in parameters.items()
    }
    if unknown := [n for n, its_name in zip(parameters, own, strict=True) if n in FIXED or its_name not in names]:
        raise InvalidInput(
            f"neither a run nor the world {world!r} has {unknown[0]!r}; the world has {', '.join(names)}. Seeds are given "
            "by `seeds`, and `workers` is the number of runs at the same time."
        )
    config = configure(world, **own)
    return full_id(config), {n: getattr(config, own_name) for n, own_name in zip(parameters, own, strict=True)}


def folder_name(told: Sequence[tuple[str, Any]], seed: int) -> str:
    """Returns a folder's name for a cell, with nothing in it that a file system lacks."""
    name = re.sub(r"[^A-Za-z0-9._=,+-]+", "-", ",".join([*(f"{n}={v}" for n, v in told), f"seed={seed}"]))
    if len(name) <= LONGEST:
        return name
    return f"{name[:LONGEST]}-{hashlib.sha256(repr((told, seed)).encode()).hexdigest()[:12]}"


def _plain(value: Any) -> Any:
    """Returns a value as JSON holds it."""
    return list(value) if isinstance(value, tuple) else getattr(value, "item", lambda: value)()


def _is_name(run: str) -> bool:
    """Whether a text is the name of one folder, and no way to another place."""
    return re.fullmatch(r"[A-Za-z0-9_=+-][A-Za-z0-9._=,+-]{0,200}", run) is not None


def run_cell(cell: Cell, folder: str) -> CellResult:
    """Runs one cell in its folder, going on where it stopped, and returns what came of it, also where the run fails."""
    clock = cpu_clock()
    cpu, begin = clock(), time.monotonic()
    try:
        session.run(make(cell.world), cell.settings, out=folder)
        result = _certified(cell, FilePath(folder) / CERTIFICATE)
    except Exception as error:  # ours, or of an environment or a class that is somebody else's
        result = CellResult(cell.run, "failed", error_words(error))
    return dataclasses.replace(result, cpu_seconds=clock() - cpu, seconds=time.monotonic() - begin)


def cpu_clock() -> Callable[[], float]:
    """Returns a clock of CPU seconds: of the process, or of the thread where it is not the main one."""
    return time.process_time if threading.current_thread() is threading.main_thread() else time.thread_time


def _certified(cell: Cell, file: FilePath) -> CellResult:
    """Returns what the certificate in a file says about its cell."""
    found = Certificate.load(file).content["result"]
    claimed = float(found["epsilon"]) if found["guaranteed"] else None
    return CellResult(
        run=cell.run,
        state="finished",
        episodes=int(found["episodes"]),
        guaranteed=bool(found["guaranteed"]),
        epsilon=claimed,
        as_asked=claimed is not None and claimed <= cell.settings.epsilon,
        lower=found["lower"],
        upper=found["upper"],
        certificate=file_digest(file),
    )


@dataclass(frozen=True)
class Sweep:
    """A sweep as it is stored in its folder: the cells, and the results of those that ended."""

    folder: FilePath
    cells: tuple[Cell, ...]
    results: Mapping[str, CellResult]  # by the name of the run

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> "Sweep":
        """Returns the sweep in a folder, also while another process runs it.

        Raises:
            InvalidFile: there is none, or it is damaged.
        """
        place = FilePath(folder)
        with reading(place / SWEEP):
            if not is_there(place / SWEEP):
                raise InvalidFile(f"there is no sweep in {place}: it has no {SWEEP}.")
            content = read_json(place / SWEEP)
            if (content["format"], content["version"]) != (FORMAT, VERSION):
                raise ValueError(f"format {content['format']!r}, version {content['version']!r}")
            cells = tuple(Cell.from_plain(values) for values in content["cells"])
        return cls(place, cells, _read_results(place, {cell.run for cell in cells}))

    def of_setting(self) -> dict[tuple[tuple[str, Any], ...], list[Cell]]:
        """Returns the cells by what was varied, seeds apart, in the order of the sweep."""
        found: dict[str, list[Cell]] = {}
        for cell in self.cells:
            found.setdefault(json.dumps(cell.varied), []).append(cell)
        return {cells[0].varied: cells for cells in found.values()}


def run_cells(
    cells: Sequence[Cell],
    folder: str | os.PathLike[str],
    *,
    workers: int | None = None,
    executor: Executor | None = None,
    work: Work = run_cell,
    kept: str = CERTIFICATE,
    fresh: bool = False,
    watch: Watch = lambda progress: None,
) -> Sweep:
    """Runs cells, each in its own folder under `folder`; what is finished there is not run again.

    Args:
        cells: what to run; a folder that holds another list is refused.
        folder: of the sweep.
        workers: processes that run cells, one at a time each; by default as many as there are CPUs.
        executor: runs the cells instead. Where its workers are on other machines, or do not see the folder, they send the
            finished run back.
        work: runs one cell in a folder: a top-level function, which can be sent to another process.
        kept: the file that `work` leaves in the folder of a finished run, and whose digest is in the result.
        fresh: give every cell a process of its own, so that none inherits the memory of another; an executor that is given
            decides this itself.
        watch: told how far the sweep is whenever that changes, and at least every `BEAT` seconds.

    Raises:
        InvalidFile: something in the folder is a link, or damaged.
        InvalidInput: the folder holds another sweep.
        OSError: the folder cannot be written.
        StoreError: another process runs the sweep in this folder.
    """
    width = None if workers is None else checked_workers(workers)
    Workers(executor=executor)  # refuses what is no executor
    if executor is None:
        leave_unguarded_script()
    place = absolute_path(file_path(folder, "a sweep's folder"))
    _check_place(place, cells)
    make_folder(place)
    with held(place / SWEEP_LOCK):
        task = partial(_run_from, work, str(place), platform.node(), _keep_plan(place, cells))
        results = _read_results(place, {cell.run for cell in cells})
        finished = {cell.run: _finished(place, cell, results.get(cell.run), kept) for cell in cells}
        missing = [cell for cell in cells if finished[cell.run] is None]
        results |= {run: result for run, result in finished.items() if result is not None}
        _keep_results(place, results)
        state = Counter({"finished": len(cells) - len(missing)})

        def tell(running: int, last: CellResult | None = None) -> None:
            watch(SweepProgress(len(cells), state["finished"], state["failed"], running, last))

        tell(0)
        width = min(width or usable_cpus(), max(1, len(missing)))
        modules = [__name__, getattr(work, "func", work).__module__] if fresh else None
        with contextlib.closing(_Sender(task, width, executor, modules)) as sender:
            for running, answer in _ended(missing, sender):
                if answer is None:
                    tell(running)
                    continue
                result, files = answer
                if files is not None:
                    _unpack(place / result.run, files)
                with (place / RESULTS).open("ab") as stream:
                    stream.write(result.line)
                state[result.state] += 1
                tell(running, result)
        return Sweep.read(place)


def _run_from(work: Work, home: str, host: str, token: str, cell: Cell) -> Sent:
    """Runs a cell, wherever this is; returns the result, and the run's files where they must be sent home.

    The folder is used directly only on the same machine: the record of a run is an SQLite database, which does not work
    reliably on file systems that several machines share.

    Args:
        work: runs one cell in a folder.
        home: the sweep's folder, on the machine that asks.
        host: that machine.
        token: SHA-256 of the sweep's list of cells.
        cell: what to run.
    """
    plan = FilePath(home) / SWEEP
    if platform.node() == host and plan.exists() and file_digest(plan) == token:
        return work(cell, str(FilePath(home) / cell.run)), None
    with tempfile.TemporaryDirectory(prefix="richobs-") as scratch:
        folder = FilePath(scratch) / cell.run
        result = work(cell, str(folder))
        files = sorted(folder.iterdir()) if folder.exists() else []
        sent = (file for file in files if file.is_file() and not file.name.startswith(LOCK))
        return result, {file.name: file.read_bytes() for file in sent}


class _Sender:
    """Sends cells to an executor that was given, or to a pool of processes of its own, which is renewed where it breaks."""

    def __init__(
        self, task: Callable[[Cell], Sent], workers: int, executor: Executor | None, modules: list[str] | None
    ):
        """Takes what is done with a cell, and who does it.

        Args:
            task: runs a cell.
            workers: processes of the own pool.
            executor: used instead of an own pool, where it is given.
            modules: where every cell gets a process of its own: what that process imports.
        """
        self._task, self._given, self._modules = task, executor, modules
        self._pool: ProcessPoolExecutor | None = None
        self._before = set(multiprocessing.active_children())
        self.width: int | None = None if executor is not None else workers  # cells at the same time

    def send(self, cell: Cell) -> Future[Sent]:
        """Sends one cell."""
        if self._given is not None:
            return self._given.submit(self._task, cell)
        with one_thread_each(), interruptions_held_back():
            if self._pool is not None:
                with contextlib.suppress(BrokenProcessPool):  # a process died that had nothing to do
                    return self._pool.submit(self._task, cell)
                self.renew()
            self._pool = self._new_pool()
            return self._pool.submit(self._task, cell)

    def _new_pool(self) -> ProcessPoolExecutor:
        context: BaseContext = multiprocessing.get_context("spawn")
        if self._modules is not None and sys.platform == "linux":  # it has them imported, and forks in milliseconds
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(self._modules)
        each = None if self._modules is None else 1
        return ProcessPoolExecutor(self.width, context, begin_worker, max_tasks_per_child=each)

    def renew(self) -> None:
        """Gives a broken pool up; the next cell gets a new one."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def close(self) -> None:
        """Ends the own pool at once, also in the middle of a cell: what a run has stored is kept."""
        if self._pool is not None:
            self.renew()
            for child in set(multiprocessing.active_children()) - self._before:
                child.terminate()


def _ended(cells: Sequence[Cell], sender: _Sender) -> Iterator[tuple[int, Sent | None]]:
    """Yields how many cells are running, and what came of one that ended; None where only that number changed.

    The number is told at least every `BEAT` seconds. Where a process of the own pool dies, every cell that was running then
    is run again alone, so that the one which takes its process down is found, and only that one fails.
    """
    waiting, suspects = deque(cells), deque[Cell]()
    sent: dict[Future[Sent], Cell] = {}
    told, last = 0, time.monotonic()
    with interruptions_noted() as interrupted:
        try:
            while waiting or suspects or sent:
                alone = bool(suspects)
                while (queue := suspects or waiting) and len(sent) < (1 if alone else sender.width or len(cells)):
                    cell = queue.popleft()
                    sent[sender.send(cell)] = cell
                running = len(sent) if sender.width is not None else sum(future.running() for future in sent)
                if running != told or time.monotonic() - last >= BEAT:
                    told, last = running, time.monotonic()
                    yield running, None
                done, _ = wait(sent, timeout=LOOK, return_when=FIRST_COMPLETED)
                if interrupted.is_set():
                    raise KeyboardInterrupt
                was_alone = len(sent) == 1
                if sender.width is not None and any(_broke(future) for future in done):
                    done, _ = wait(sent)  # the others broke with it, or were finished before
                    sender.renew()
                for future in [future for future in sent if future in done]:  # in the order of cells
                    cell = sent.pop(future)
                    told = max(0, told - 1)
                    if sender.width is not None and _broke(future) and not was_alone:
                        suspects.append(cell)
                    else:
                        yield told, _answer(cell, future)
        except BaseException:
            for future in sent:
                future.cancel()
            raise


def _broke(future: Future[Sent]) -> bool:
    return not future.cancelled() and isinstance(future.exception(), BrokenProcessPool)


def _answer(cell: Cell, future: Future[Sent]) -> Sent:
    """Returns what a task answered; one that has no answer is a cell that failed."""
    try:
        return future.result()
    except CancelledError:
        message = "the executor cancelled it."
    except BrokenProcessPool:
        message = (
            "the process that ran it died, perhaps for want of memory. What it stored is kept; the same sweep goes on. "
            + GUARD
        )
    except Exception as error:
        message = error_words(error)
    return CellResult(cell.run, "failed", message), None


def error_words(error: Exception) -> str:
    """Returns an error in words; one that is not ours with the name of its kind."""
    return str(error) if isinstance(error, RichObsError) else f"{type(error).__name__}: {error}"


def _unpack(folder: FilePath, files: Mapping[str, bytes]) -> None:
    """Writes the files of a run that another machine sent, instead of what the folder held."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        if not _is_name(name):
            raise InvalidFile(f"a worker sent a file with the name {name!r}, which no run has.")
        with write_atomically(folder / name) as stream:
            stream.write(content)


def _check_place(place: FilePath, cells: Sequence[Cell]) -> None:
    """Refuses a folder that is no sweep's, before anything is written into it.

    Raises:
        InvalidFile: a link stands in the place of a run's folder, and the run would be written elsewhere.
        InvalidInput: the folder holds something else.
    """
    if not is_there(place / SWEEP) and place.exists():
        for begun in place.glob(f".{SWEEP}.*"):
            remove_abandoned(begun)  # by a process that was killed before it had written the list of cells
        if any(entry.name != SWEEP_LOCK and not entry.name.startswith(f".{SWEEP}.") for entry in place.iterdir()):
            raise InvalidInput(f"{place} holds something else than a sweep. Choose another folder.")
    for cell in cells:
        if (place / cell.run).is_symlink():
            raise InvalidFile(f"{place / cell.run} is a link; a run is kept in a folder of its own.")


def _keep_plan(place: FilePath, cells: Sequence[Cell]) -> str:
    """Writes the list of cells, or checks that the folder holds the same; returns its digest."""
    file = place / SWEEP
    if is_there(file):
        if list(Sweep.read(place).cells) != [Cell.from_plain(json.loads(json.dumps(c.as_plain()))) for c in cells]:
            raise InvalidInput(
                f"{place} holds another sweep, with other cells. Choose another folder, or ask for the same sweep."
            )
        return file_digest(file)
    content = {"format": FORMAT, "version": VERSION, "cells": [cell.as_plain() for cell in cells]}
    text = (json.dumps(content, indent=1) + "\n").encode()
    if len(text) > LARGEST_JSON or text.count(b",") >= MOST_VALUES:
        raise InvalidInput(f"{len(cells):,} runs are more than {SWEEP} can hold. Several folders can share them.")
    with write_atomically(file) as stream:
        stream.write(text)
    return file_digest(file)


def _read_results(place: FilePath, runs: set[str]) -> dict[str, CellResult]:
    """Returns the last result of every run that ended, with the seconds of all attempts.

    A line that is no JSON was cut off, alone or with the next one behind it, and is left out.

    Raises:
        InvalidFile: the file is a link, or too large, or a line is something else than a result.
    """
    found: dict[str, CellResult] = {}
    file = place / RESULTS
    if not is_there(file):
        return found
    if file.stat().st_size > LARGEST_RESULTS:
        raise InvalidFile(f"{file} has more than {LARGEST_RESULTS:,} bytes, more than the results of a sweep take.")
    with file.open("rb") as stream:
        for i, line in enumerate(iter(lambda: stream.readline(LONGEST_LINE + 1), b""), start=1):
            with reading(f"{file}, line {i},"):
                if len(line) > LONGEST_LINE:
                    raise ValueError(f"it has more than {LONGEST_LINE:,} bytes")
                try:
                    content = parse_json(line)
                except ValueError:
                    continue
                result = read_record(CellResult, content)
            if result.run in runs:
                before = found.get(result.run, CellResult(result.run, "failed"))
                cpu, clock = before.cpu_seconds + result.cpu_seconds, before.seconds + result.seconds
                found[result.run] = dataclasses.replace(result, cpu_seconds=cpu, seconds=clock)
    return found


def _keep_results(place: FilePath, results: Mapping[str, CellResult]) -> None:
    """Writes what was read as one line for each run, where the file has others: no line is torn, and none too many."""
    file, text = place / RESULTS, b"".join(result.line for result in results.values())
    if is_there(file) and file.read_bytes() != text:
        with write_atomically(file) as stream:
            stream.write(text)


def _finished(place: FilePath, cell: Cell, result: CellResult | None, kept: str) -> CellResult | None:
    """Returns the result of a cell that is finished, as its certificate has it; None where the cell must be run."""
    if result is None or result.state != "finished":
        return None
    file = place / cell.run / kept
    if not is_there(file) or file_digest(file) != result.certificate:
        return None
    if kept != CERTIFICATE:
        return result
    return dataclasses.replace(_certified(cell, file), cpu_seconds=result.cpu_seconds, seconds=result.seconds)


def file_digest(file: FilePath) -> str:
    """Returns the SHA-256 of a file.

    Raises:
        InvalidFile: it has more bytes than a file of JSON may have.
    """
    with file.open("rb") as stream:
        if os.fstat(stream.fileno()).st_size > LARGEST_JSON:
            raise InvalidFile(f"{file} has more than {LARGEST_JSON:,} bytes.")
        return hashlib.file_digest(stream, "sha256").hexdigest()

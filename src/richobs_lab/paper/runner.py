"""Runs statements: shares their pieces among processes, stores each as it ends, then concludes, draws and writes the page.

What is written depends on the pieces alone, never on who measured them or in which order: results are read back from the
store in the order of the pieces.
"""

import importlib
import json
import multiprocessing
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from richobs import RichObsError
from richobs.core.errors import InvalidFile
from richobs.core.executors import begin_worker, interruptions_held_back
from richobs.core.files import is_there, read_json, write_atomically
from richobs.core.version import __version__
from richobs_lab.paper import STATEMENTS, load
from richobs_lab.paper.base import Conclusion, Plain, Scale, Statement
from richobs_lab.paper.figures import save_figure
from richobs_lab.paper.page import render
from richobs_lab.paper.sources import source_digest
from richobs_lab.paper.store import Store, canonical
from richobs_lab.processes import LOOK, interruptions_noted, one_thread_each


class PieceFailed(RichObsError):
    """A piece whose measurement raised an error or took its process down."""


@dataclass(frozen=True)
class Step:
    """How far a statement is; `report` once it is done."""

    statement: str
    done: int
    total: int
    report: "StatementReport | None" = None


@dataclass(frozen=True)
class StatementReport:
    """What came of one statement; equal for equal pieces, whoever measured them."""

    name: str
    title: str
    says: str
    scale: Scale
    source: str  # digest of what it ran
    conclusion: Conclusion
    richobs: str = __version__

    def as_json(self) -> Plain:
        """Returns the report as plain values, with what follows from them: verdicts and tightness."""
        plain = asdict(self)
        for check, c in zip(plain["conclusion"]["checks"], self.conclusion.checks, strict=True):
            check["judgement"] = c.judgement
        whole = self.conclusion
        return {**plain, "holds": whole.holds, "verdict": whole.verdict, "tightness": whole.tightness}


Watch = Callable[[Step], None]


def evaluate(statement: Statement, scale: Scale) -> tuple[list[Plain], list[Plain], Conclusion]:
    """Measures a statement here and now, nothing stored; returns pieces, results and the conclusion."""
    pieces = statement.pieces(scale)
    results = [json.loads(canonical(statement.measure(piece))) for piece in pieces]
    return pieces, results, statement.conclude(pieces, results)


def run(
    names: Sequence[str], *, scale: Scale, out: Path, workers: int = 2, watch: Watch = lambda step: None
) -> list[StatementReport]:
    """Runs statements and writes their figures, results and the page.

    Args:
        names: of statements; none means all. Order and repetition do not matter.
        scale: "full", or "fast" for what the tests run.
        out: folder for everything that is written; what it holds already is not measured again.
        workers: processes that measure.
        watch: told whenever a piece or a statement is done.
    """
    chosen = set(names) or set(STATEMENTS)
    statements = {name: load(name) for name in sorted(chosen, key=[*STATEMENTS, *names].index)}  # refuses unknown names
    pieces = {name: statement.pieces(scale) for name, statement in statements.items()}
    sources = {name: source_digest(STATEMENTS[name]) for name in statements}
    reports: dict[str, StatementReport] = {}
    with Store(out) as store:
        found = {name: [store.find(name, piece, sources[name]) for piece in pieces[name]] for name in statements}
        missing = [(name, i) for name, results in found.items() for i, r in enumerate(results) if r is None]
        left = {name: sum(r is None for r in results) for name, results in found.items()}

        def advance(name: str) -> None:
            """Tells how far a statement is, and concludes once all of its pieces are measured."""
            total = len(pieces[name])
            watch(Step(name, total - left[name], total))
            if left[name] == 0:
                reports[name] = _report(statements[name], scale, pieces[name], store, sources[name], out)
                watch(Step(name, total, total, reports[name]))

        for name in statements:
            advance(name)
        with closing(_measured(missing, pieces, workers)) as measured:  # an interruption ends the processes at once
            for name, i, result in measured:
                store.add(name, pieces[name][i], sources[name], result)
                left[name] -= 1
                advance(name)
    _write(out / "index.html", render(_all_reports(out, scale), scale))
    return [reports[name] for name in statements]


def _measured(
    missing: Sequence[tuple[str, int]], pieces: dict[str, list[Plain]], workers: int
) -> Generator[tuple[str, int, str], None, None]:
    """Yields (statement, number of the piece, result) as processes finish them, in any order.

    Raises:
        PieceFailed: a measurement failed; every piece that was finished by then has been yielded before.
    """
    if not missing:
        return
    before = set(multiprocessing.active_children())
    with one_thread_each(), interruptions_noted() as interrupted:
        pool = ProcessPoolExecutor(
            min(workers, len(missing)), mp_context=multiprocessing.get_context("spawn"), initializer=begin_worker
        )
        try:
            with interruptions_held_back():
                waiting: dict[Future[str], tuple[str, int]] = {
                    pool.submit(_measure, STATEMENTS[name], pieces[name][i]): (name, i) for name, i in missing
                }
            ended: SimpleQueue[Future[str]] = SimpleQueue()  # no look at thousands of pieces each time that one ends
            for future in waiting:
                future.add_done_callback(ended.put)
            while waiting:
                done = _ended_now(ended)
                if interrupted.is_set():
                    raise KeyboardInterrupt
                failed = [future for future in done if future.exception() is not None]
                for future in (f for f in done if f.exception() is None):
                    name, i = waiting.pop(future)
                    yield name, i, future.result()
                if failed:
                    name, i = waiting[failed[0]]
                    error = failed[0].exception()
                    assert error is not None
                    raise _failure(error, f"{name}: measuring {canonical(pieces[name][i])} failed.") from error
        except BaseException:  # an interruption too: pieces in progress are given up, so that the end is prompt
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            raise
        pool.shutdown()


def _ended_now(ended: "SimpleQueue[Future[str]]") -> list[Future[str]]:
    """Returns the pieces that have ended and were not returned before; waits a moment where there are none."""
    done: list[Future[str]] = []
    try:
        done.append(ended.get(timeout=LOOK))
        while True:
            done.append(ended.get_nowait())
    except Empty:
        return done


def _failure(error: BaseException, what: str) -> PieceFailed:
    """Returns what is raised for a piece that could not be measured."""
    if isinstance(error, BrokenProcessPool):
        return PieceFailed(
            "a process that was measuring died, perhaps for want of memory. What was finished is stored; the same command "
            "goes on from there, and fewer --workers need less."
        )
    return PieceFailed(f"{what} {type(error).__name__}: {error}")


def _measure(module: str, piece: Plain) -> str:
    """Measures one piece in a worker."""
    result: Plain = importlib.import_module(module).measure(piece)
    return canonical(result)


def _report(
    statement: Statement, scale: Scale, pieces: list[Plain], store: Store, source: str, out: Path
) -> StatementReport:
    """Concludes from what is stored, and writes results and figure."""
    if source_digest(STATEMENTS[statement.NAME]) != source:
        raise PieceFailed(f"{statement.NAME}: source files changed while it was measured. Run the command again.")
    results = [r for r in (store.find(statement.NAME, piece, source) for piece in pieces) if r is not None]
    conclusion = statement.conclude(pieces, results)
    report = StatementReport(statement.NAME, statement.TITLE, statement.SAYS, scale, source, conclusion)
    panels = save_figure(statement, pieces, results, conclusion.sample, out)
    measured = [{"piece": piece, "result": result} for piece, result in zip(pieces, results, strict=True)]
    text = json.dumps({**report.as_json(), "panels": panels, "measured": measured}, indent=1, allow_nan=False)
    _write(out / f"{statement.NAME}.json", text + "\n")
    return report


def _all_reports(out: Path, scale: Scale) -> list[tuple[Plain, str]]:
    """Returns what the folder holds of every statement at this scale, with its drawing; none that other source ran."""
    result = []
    for name, module in STATEMENTS.items():
        file, drawing = out / f"{name}.json", out / f"{name}.svg"
        if is_there(file) and is_there(drawing):
            try:
                report = read_json(file)
                if (report["scale"], report.get("source")) == (scale, source_digest(module)):
                    result.append((report, drawing.read_text()))
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise InvalidFile(f"{file} or {drawing.name} is damaged ({error!r:.200}). Move them away.") from error
    return result


def _write(target: Path, text: str) -> None:
    with write_atomically(target) as stream:
        stream.write(text.encode())

"""A run on disk: one folder, written as the run goes, readable at any time, and resumed to the same bytes.

config.json       what is run: world, settings, class, versions
run.sqlite        every draw and every decision, committed before the next begins
certificate.json  what was found, once it was
policy.npz        the policy
recorded.npz      episodes that were played before the run, where it was given some
verification.json what `richobs verify` is said to have found, if it was asked
report.html       the page about it
"""

import contextlib
import dataclasses
import datetime
import functools
import json
import math
import os
import platform
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.arguments import absolute_path, file_path
from richobs.core.environment import Environment, Episodes, declared_by, real_episodes
from richobs.core.errors import BrokenPromise, InvalidFile, InvalidInput, RichObsError, StoreError
from richobs.core.events import Callback, Progress, from_plain, to_plain
from richobs.core.files import (
    held,
    is_held,
    is_there,
    make_folder,
    parse_json,
    read_json,
    reading,
    remove_abandoned,
    sync_folder,
    unfold,
    write_atomically,
)
from richobs.core.ledger import Ledger
from richobs.core.outcome import ToleranceCurve, ToleranceRow
from richobs.core.policies import SavablePolicy
from richobs.core.problem import Problem, episodes_digest
from richobs.core.settings import MAY_CHANGE, Settings, read_record
from richobs.core.version import __version__
from richobs.engines.independence import NOTICED
from richobs.engines.play import Words
from richobs.engines.probes import Probes, restore_probes
from richobs.learners import Finding, learner
from richobs.learners.base import first_difference
from richobs.runs.certificate import Certificate, Verification
from richobs.runs.database import (
    LOG,
    OTHERS,
    ROWS,
    LinkedRows,
    beside,
    bounded,
    make_database,
    opened,
    opened_by_reader,
    refuse_strangers,
    remove_unfinished,
    sha256,
)

FORMAT = "richobs-run"
VERSION = 5
CONFIG, DATABASE, LOCK = "config.json", "run.sqlite", "run.lock"
CERTIFICATE, POLICY, VERIFICATION, REPORT = "certificate.json", "policy.npz", "verification.json", "report.html"
RECORDED, CURVE = "recorded.npz", "tolerance_curve.json"
FILES = (CONFIG, DATABASE, f"{DATABASE}-wal", LOCK, CERTIFICATE, POLICY, RECORDED, VERIFICATION, CURVE)  # that are read
MOST_ROWS = 1_000_000  # draws of a run, and its events
MOST_CALLS = 100_000_000  # of one draw
FOLDED = ("draw", "event")  # kinds of rows that hold what is new in their text since the row before
LEFTOVERS = re.compile(
    r"\.(config\.json|certificate\.json|policy\.npz|recorded\.npz|verification\.json|tolerance_curve\.json|report\.html)\.\w{8}"
)
STATES = ("finished", "unfinished", "stopped")
MOST_LEVELS, MOST_ACTIONS = 100_000, 1_000_000  # of a run that is kept
MOST_FOLDERS = 50_000  # that are looked through for runs
LONGEST_MESSAGE = 10_000  # characters of the error that stopped a run
LARGEST_CONFIG = 2**20  # bytes of config.json, verification.json and tolerance_curve.json
EVENT_TOLERANCE = 1e-6  # by which numbers of recorded decisions may differ where a device computes them again elsewhere
PATIENCE = 30.0  # seconds for which a reader tries again, where what it reads changes meanwhile
PAUSE = 0.05  # seconds between two attempts

_json = functools.partial(json.dumps, separators=(",", ":"))  # without spaces


@dataclass(frozen=True)
class StoredRun:
    """A run as it is stored in its folder."""

    folder: FilePath
    world: str | None  # id such as "lock/10,seed=3"; None for an environment of the user's own
    settings: Settings
    horizon: int
    n_actions: int
    log_size: float  # natural logarithm of the size of the class
    state: str  # "finished", "running", "unfinished" (killed or interrupted) or "stopped" (by an error)
    message: str  # the error that stopped it, else ""
    steps: tuple[Progress, ...]  # every test so far
    ledger: Ledger  # every episode so far
    certificate: Certificate | None = None  # once it is finished
    verification: Verification | None = None  # what verification.json says; who may write the folder can write it
    curve: ToleranceCurve | None = None  # what tolerance_curve.json says, where it was asked for; likewise
    n_states: int | None = None  # hidden states a level, where that is known
    started: float = 0.0  # seconds since 1970
    last: float = 0.0  # when something was stored last

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> "StoredRun":
        """Returns the run in a folder, also while another process writes it.

        Raises:
            InvalidFile: there is no run there, or it is damaged.
        """
        place, until = folder_path(folder), time.monotonic() + PATIENCE
        while True:
            before = _times(place)
            try:
                return _read_run(place)
            except RichObsError:
                if _times(place) == before or time.monotonic() > until:
                    raise
            time.sleep(PAUSE)  # it was read while it changed, and may have been half one run and half another

    @staticmethod
    def discard(folder: str | os.PathLike[str]) -> None:
        """Removes the files of a run from a folder, and nothing else.

        Raises:
            StoreError: another process is running in it.
        """
        place = folder_path(folder)
        with held(place / LOCK), _writing(place):
            _sweep(place)
            files = (beside(place / DATABASE, end) for end in ("", LOG, *OTHERS))
            results = (place / name for name in (CERTIFICATE, POLICY, RECORDED, VERIFICATION, CURVE, REPORT))
            for file in (*files, *results):
                file.unlink(missing_ok=True)
            sync_folder(place)  # no database without its configuration, also where this is killed
            (place / CONFIG).unlink(missing_ok=True)


def _times(place: FilePath) -> list[tuple[int, ...] | None]:
    """Returns what tells whether a run's files changed: they are written anew, or grow, in every step of a run."""
    found: list[tuple[int, ...] | None] = []
    for name in FILES:
        try:
            about = os.lstat(place / name)
            found.append((about.st_ino, about.st_size, about.st_mtime_ns))
        except OSError:
            found.append(None)
    return found


def _read_run(place: FilePath) -> StoredRun:
    """Returns the run in a folder, where nobody changes it meanwhile."""
    config = _read_config(place)
    learner(config["settings"]["learner"])  # its kinds of events are known from here on
    with reading(f"the run in {place}", passes=RichObsError):
        for name in FILES:
            is_there(place / name)
        is_running = is_held(place / LOCK)
        found = _read_as_reader(place, config)
        if found.state == "finished":
            found = _with_certificate(found)
        if is_running and found.state != "finished":  # who holds a finished run has not changed it yet
            found = dataclasses.replace(found, state="running", message="")
        n_states = found.settings.n_states
        return dataclasses.replace(found, n_states=config["environment"]["n_states"] if n_states is None else n_states)


def _with_certificate(found: StoredRun) -> StoredRun:
    """Returns a run that says it is finished, with its certificate; unfinished where that is not there."""
    file, digest = found.folder / CERTIFICATE, found.message
    if not is_there(file):
        return dataclasses.replace(found, state="unfinished", message="")
    certificate = Certificate.load(file)
    if certificate.digest != digest:
        raise InvalidFile(
            f"{file} is not the certificate that the run wrote. `richobs verify` says where it differs. Remove it, and "
            "`richobs resume` writes the run's own again."
        )
    found.ledger.skip(int(certificate.content["result"]["skipped"]))
    checked, curve = _read_verification(found.folder, certificate), _read_curve(found.folder, certificate)
    return dataclasses.replace(found, message="", certificate=certificate, verification=checked, curve=curve)


def _read_as_reader(place: FilePath, config: dict[str, Any]) -> StoredRun:
    """Returns what the database says, also while another process writes it."""
    with reading(place / DATABASE, passes=RichObsError):
        try:
            with opened_by_reader(place / DATABASE, ROWS) as db:
                found = _read_rows(_rows(db, place, config), place, config)
        except FileNotFoundError:  # killed before it was made
            found = {"state": "unfinished", "message": "", "steps": (), "ledger": Ledger()}
    about, settings = config["environment"], read_record(Settings, config["settings"])
    sizes = (about["horizon"], about["n_actions"], config["functions"]["log_size"])
    return StoredRun(place, about["id"], settings, *sizes, **found)


def _rows(db: sqlite3.Connection, place: FilePath, config: dict[str, Any]) -> LinkedRows:
    """Returns the rows of a run's database; their links begin with all of the configuration that may not change."""
    settings = {name: value for name, value in config["settings"].items() if name not in MAY_CHANGE}
    fixed = [config["version"], config["environment"], config["functions"], settings]
    start = sha256(json.dumps(fixed, sort_keys=True).encode())
    most = {"draw": MOST_ROWS, "probes": MOST_ROWS, "event": MOST_ROWS, "end": MOST_ROWS, "call": MOST_CALLS}
    longest = 100_000 + 1_000 * int(
        config["environment"]["horizon"]
    )  # a query or an event has a few words for each level
    return LinkedRows(db, place / DATABASE, start, most, longest)


def _read_rows(
    rows: LinkedRows, place: FilePath, config: dict[str, Any], probes: Probes | None = None
) -> dict[str, Any]:
    """Returns what the database says, by fields of `StoredRun`, once its rows are known to be those that were written.

    The message of a finished run is the digest of its certificate, of a stopped one why it was stopped.

    Args:
        rows: of the database.
        place: the folder.
        config: what identifies the run.
        probes: where the class is Python code: goes on from the stored ones.
    """
    with reading(place / DATABASE, passes=RichObsError), bounded(rows.db, place / DATABASE):
        rows.db.execute("BEGIN")  # one state of the database, whatever is written meanwhile
        rows.check()
        if probes is not None:
            for row in rows.each("probes"):
                restore_probes(probes, int(row.text), rows.body("probes", row))
        ledger, about = Ledger(), config["environment"]
        for text in rows.texts("draw"):
            path, n, purpose, phase, *_ = parse_json(text)
            _check_path(path, about)
            if not (isinstance(purpose, str) and isinstance(phase, str) and type(n) is int and n > 0):
                raise ValueError(f"a draw asks for {text[:80]}")
            ledger.charge(phase, purpose, tuple(path), n)
        steps = tuple(_progress(body, about) for body in rows.texts("event"))
        first, last = rows.db.execute("SELECT min(at), max(at) FROM rows WHERE kind = 'draw'").fetchone()
        end = next(rows.each("end", "ORDER BY k DESC LIMIT 1"), None)
        state, message = ("unfinished", "") if end is None else parse_json(end.text)
        if state not in STATES or not isinstance(message, str):
            raise ValueError(f"it ended {str(state)[:40]!r}")
        rows.db.execute("COMMIT")
    times = {"started": first or 0.0, "last": last or 0.0}
    return {"state": state, "message": message, "steps": steps, "ledger": ledger, **times}


def folder_path(folder: object) -> FilePath:
    """Returns a folder's path.

    Raises:
        InvalidInput: it is not the name of one.
    """
    return file_path(folder, "a run's folder")


def find_runs(folder: str | os.PathLike[str]) -> list[FilePath]:
    """Returns the run folders in and below a folder, in alphabetical order.

    Raises:
        InvalidInput: there are too many folders to look through.
    """
    found = []
    for looked_at, (here, _, files) in enumerate(os.walk(folder_path(folder))):
        if looked_at == MOST_FOLDERS:
            raise InvalidInput(
                f"{folder} has more than {MOST_FOLDERS:,} folders below it. Name the folder that keeps the runs."
            )
        if CONFIG in files and _is_run(FilePath(here) / CONFIG):
            found.append(FilePath(here))
    return sorted(found)


def _is_run(config: FilePath) -> bool:
    """Whether a config.json is that of a run, or of something beside which a run's database lies."""
    if (config.parent / DATABASE).exists():
        return True
    try:
        return bool(read_json(config, LARGEST_CONFIG)["format"] == FORMAT)
    except (ValueError, TypeError, KeyError, OSError):
        return False


def keep_verification(folder: str | os.PathLike[str], checked: Verification) -> None:
    """Writes what became of checking a run's certificate, and of which certificate."""
    _write_json(folder_path(folder) / VERIFICATION, dataclasses.asdict(checked))


def keep_curve(folder: str | os.PathLike[str], digest: str, curve: ToleranceCurve) -> ToleranceCurve:
    """Writes a tolerance curve beside the certificate with this digest, unless that is gone; returns the curve."""
    place = folder_path(folder)
    if curve.rows and (place / CERTIFICATE).exists():
        rows = [[v if math.isfinite(v) else None for v in row] for row in curve.rows]
        with _writing(place):
            _write_json(place / CURVE, {"certificate": digest, "together": curve.together, "rows": rows})
    return curve


def _write_json(file: FilePath, content: dict[str, Any]) -> None:
    with write_atomically(file) as stream:
        stream.write((json.dumps(content, indent=2) + "\n").encode())


def recorded_beside(file: str | os.PathLike[str]) -> Episodes | None:
    """Returns the recorded episodes that a run was given, from the folder of one of its files; None where it had none."""
    recorded = FilePath(file).with_name(RECORDED)
    return Episodes.load(recorded) if recorded.exists() else None


def describe(
    problem: Problem, settings: Settings, at_once: int | None, fingerprint: str | None = None
) -> dict[str, Any]:
    """Returns what identifies a run, in plain values.

    Args:
        problem: what is learned.
        settings: what is asked for.
        at_once: episodes per call of an environment that is not simulated here; None where it is.
        fingerprint: of a class that is Python code, where its probes are known before the run.
    """
    functions = problem.functions
    for what, n, most in (("levels", problem.horizon, MOST_LEVELS), ("actions", problem.n_actions, MOST_ACTIONS)):
        if n > most:
            raise InvalidInput(
                f"a run that is kept in a folder has at most {most:,} {what}, and this problem has {n:,}. Run without a "
                "folder."
            )
    content = {
        "format": FORMAT,
        "version": VERSION,
        "environment": {
            "id": problem.id,
            "horizon": problem.horizon,
            "n_actions": problem.n_actions,
            "n_states": problem.n_states,
            "at_once": at_once,
            "replayable": None if at_once is None else declared_by(problem.env).may_be_copied,
            "recorded": None if problem.recorded is None else episodes_digest(problem.recorded),
            "identity": problem.identity,
        },
        "functions": {"log_size": functions.log_size, "digest": functions.digest, "fingerprint": fingerprint},
        "settings": settings.as_plain(),
        "made_with": {"richobs": __version__, "numpy": np.__version__, "python": platform.python_version()},
    }
    return dict(json.loads(json.dumps(content)))


class RunFolder:
    """A run's folder, held by this process: the record that engines and environments write to."""

    def __init__(self, place: FilePath, rows: LinkedRows, config: dict[str, Any], *, changed: bool, finished: bool):
        """Takes a folder that this process holds.

        Args:
            place: where it is.
            rows: of its database, which were checked.
            config: what identifies the run.
            changed: whether another configuration is written down.
            finished: whether the run has ended with a certificate.
        """
        self._place, self._rows = place, rows
        self._changed = config if changed else None  # the configuration, where another one is written down
        self._finished = finished  # it stays so until there is something new
        self._on_device = config["settings"].get("device") is not None
        self._probes = b""  # of the draw that is kept next
        self._query = ""  # the text of the last draw that was read; they are read in order
        self._events = 0  # so far, in this process
        self._decided: list[str] = []  # since the last draw
        self._played: Callable[[], int] | None = None  # how many episodes were really played, where that is counted
        self._counted = 0  # of these, in the rows or before the run was opened

    @classmethod
    @contextlib.contextmanager
    def opened(
        cls, folder: str | os.PathLike[str], config: dict[str, Any], probes: Probes | None = None
    ) -> Iterator["RunFolder"]:
        """Holds the folder, made if it is not there; refuses one that is held, damaged, or holds another run.

        Args:
            folder: where the run is kept.
            config: what identifies the run.
            probes: where the class is Python code and its probes are gathered: goes on from the stored ones.
        """
        place = absolute_path(folder_path(folder))  # wherever the process goes meanwhile
        with _writing(place):
            make_folder(place)
        with contextlib.ExitStack() as stack:
            stack.enter_context(held(place / LOCK))
            with reading(f"the run in {place}", passes=RichObsError):
                refuse_strangers(place / DATABASE)
                there = {name for name in FILES if is_there(place / name)}
            known = _read_config(place) if CONFIG in there else None
            if known is not None:
                _check_same(place, known, config)
            elif DATABASE in there:
                raise InvalidFile(f"{place} holds a {DATABASE} and no {CONFIG}: the run cannot be identified.")
            if DATABASE in there:
                rows, finished = _opened_rows(stack, place, config, probes)
            with _writing(place):
                _sweep(place)
                if known is None:
                    _write_json(place / CONFIG, config)
                if DATABASE not in there:
                    make_database(place / DATABASE, ROWS)
            if DATABASE not in there:
                rows, finished = _opened_rows(stack, place, config, probes)
            changed = known is not None and known["settings"] != config["settings"]
            run = cls(place, rows, config, changed=changed, finished=finished)
            if not finished:
                run.end("unfinished", "")
                run._keep_config()
            yield run

    def _go_on(self) -> None:
        """Notes that a finished run is not finished any more: something new is about to be played or written."""
        if self._finished:
            self._finished = False
            self.end("unfinished", "")
            self._keep_config()

    def _keep_config(self) -> None:
        """Writes the configuration down, where settings that may change have changed."""
        if self._changed is not None:
            with _writing(self._place):
                _write_json(self._place / CONFIG, self._changed)
            self._changed = None

    def keep_recorded(self, episodes: Episodes) -> None:
        """Writes down the episodes that the run was given, so that it can go on without them being given again."""
        if not (self._place / RECORDED).exists():
            with _writing(self._place):
                episodes.save(self._place / RECORDED)

    def _keep(self, kind: str, text: str, body: bytes = b"", *, real: int = 0) -> None:
        """Writes a row, within a transaction, with the episodes that were really played since the last one."""
        played = 0 if self._played is None else self._played()
        self._rows.append(kind, text, body, real=real + played - self._counted, folded=kind in FOLDED)
        self._counted = played

    def draw(self, k: int, /) -> tuple[Words, bytes] | None:
        """Returns the k-th query and its answer, or None where there is none yet."""
        self._flush()  # decisions are kept before the next draw begins
        with reading(f"the run in {self._place}", passes=RichObsError):
            row = self._rows.get("draw", "k", k)
            if row is not None:
                text = self._query = unfold(row.text, self._query, self._rows.longest)
                return parse_json(text), self._rows.body("draw", row)
        self._go_on()
        return None

    def keep_draw(self, k: int, query: Words, answer: bytes, /) -> None:
        """Writes the k-th draw down for good, and forgets the calls that it was made of."""
        probes, self._probes = self._probes, b""
        text = _json(query)
        self._rows.check_room("draw", k, len(answer) + len(probes), len(text))
        self._go_on()
        with _writing(self._place), self._rows.transaction():
            if probes:
                self._keep("probes", str(k), probes)
            self._keep("draw", text, answer, real=self._rows.clear("call"))

    def keep_probes(self, probes: bytes, /) -> None:
        """Takes the probes of the draw that is kept next, where the class is Python code."""
        self._probes = probes

    def call(self, key: str, /) -> bytes | None:
        """Returns what a call of the draw in progress gave; None where it was not made yet."""
        with reading(f"the run in {self._place}", passes=RichObsError):
            row = self._rows.get("call", "text", key)
            return None if row is None else self._rows.body("call", row)

    def check_calls(self, calls: int, /) -> None:
        """Refuses more calls of one draw than can be kept, before any is made."""
        if calls > MOST_CALLS:
            raise StoreError(
                f"the folder {self._place} cannot keep the {calls:,} calls that one draw needs: a run keeps {MOST_CALLS:,}. "
                "Play more episodes at once (`at_once` of the environment), or run without a folder. Nothing of that draw "
                "was played, and what was stored stays as it is."
            )

    def keep_call(self, key: str, answer: bytes, /) -> None:
        """Writes a call of the draw in progress down."""
        self._go_on()
        with _writing(self._place), self._rows.transaction():
            self._keep("call", key, answer)

    def count_real_episodes(self, env: Environment) -> None:
        """Keeps from now on how many episodes a deterministic environment really played."""
        self._played = lambda: real_episodes(env) or 0
        self._counted = self._played()

    def real_episodes(self) -> int | None:
        """Returns how many episodes were really played in all calls of the run; None where that is not counted."""
        if self._played is None:
            return None
        with reading(f"the run in {self._place}", passes=RichObsError):
            kept = self._rows.db.execute("SELECT sum(real) FROM rows").fetchone()[0]
            return int(kept) + self._played() - self._counted

    def listener(self, callback: Callback | None) -> Callback:
        """Returns a callback that keeps every decision, those between two draws at once."""
        with reading(f"the run in {self._place}", passes=RichObsError):
            known = list(self._rows.texts("event"))

        def listen(progress: Progress) -> None:
            k, self._events = self._events, self._events + 1
            body = _json([to_plain(progress.event), progress.episodes, progress.upper, progress.lower])
            if k >= len(known):
                self._rows.check_room("event", k, text=len(body))
                self._go_on()
                self._decided.append(body)
            elif known[k] != body and not (self._on_device and _nearly_equal(known[k], body)):
                raise InvalidFile(
                    f"decision {k} of the run in {self._place} was {known[k]}, and is {body} now: it was made by other code "
                    "or on another machine. Start anew in another folder."
                )
            if callback is not None:
                callback(progress)

        return listen

    def _flush(self) -> None:
        if self._decided:
            with _writing(self._place), self._rows.transaction():
                for text in self._decided:
                    self._keep("event", text)
            self._decided.clear()

    def finish(self, policy: SavablePolicy, certificate: Certificate) -> str:
        """Writes policy and certificate, unless both are there already and belong together.

        Returns the digest of the certificate that is there then.
        """
        file, there = self._place / CERTIFICATE, None
        with contextlib.suppress(OSError, InvalidFile):
            there = Certificate.load(file).content if file.exists() else None
        fits = there is not None and {**there, "versions": 0} == {**certificate.content, "versions": 0}
        if not (fits and self._finished and _is_policy(self._place / POLICY, certificate)):
            self._go_on()  # until the files belong together
            with _writing(self._place):
                file.unlink(missing_ok=True)
                with contextlib.suppress(InvalidInput):  # functions that are Python code cannot be written
                    policy.save(self._place / POLICY)
                certificate.save(file)
                self.end("finished", certificate.digest)
                there = None
        self._keep_config()
        return certificate.digest if there is None else Certificate(there).digest

    def end(self, state: str, message: str) -> None:
        """Notes how the run ended, and waits until that is on disk: a certificate is believed where this names it."""
        self._flush()
        self._rows.db.execute("PRAGMA synchronous = FULL")
        with _writing(self._place), self._rows.transaction():
            self._keep("end", _json([state, message[:LONGEST_MESSAGE]]))
        self._rows.db.execute("PRAGMA synchronous = NORMAL")


def _opened_rows(
    stack: contextlib.ExitStack, place: FilePath, config: dict[str, Any], probes: Probes | None
) -> tuple[LinkedRows, bool]:
    """Opens a run's database, whose folder this process holds, until the stack is closed; reads and checks its rows.

    What a killed process left is recovered. Returns the rows, and whether the run is finished.
    """
    with _writing(place):
        db = stack.enter_context(opened(place / DATABASE, ROWS, write=True))
        db.execute("PRAGMA synchronous = NORMAL")  # a power cut may cost the last draws, a killed process nothing
    rows = _rows(db, place, config)
    found = _read_rows(rows, place, config, probes)
    state, message, spent = found["state"], found["message"], found["ledger"].total
    if state == "stopped" and NOTICED in message:  # a watch that begins anew would not see what it saw
        raise BrokenPromise(f"{message} The run in {place} was stopped for this: start anew in another folder.")
    allowed = config["settings"]["max_episodes"]
    if allowed is not None and spent > allowed:
        raise InvalidInput(
            f"the run in {place} has spent {spent:,} episodes already, more than the {allowed:,} allowed now. Allow at "
            "least as many, or choose another folder."
        )
    return rows, state == "finished"


def _check_same(place: FilePath, there: dict[str, Any], here: dict[str, Any]) -> None:
    """Refuses a folder whose run is not the one that is asked for."""
    for name in ("richobs", "numpy"):
        old, new = there["made_with"].get(name), here["made_with"][name]
        if old != new:
            raise InvalidFile(
                f"the run in {place} was made with {name} {old}, and this is {new}, which may draw other numbers. Go on "
                "with that version, or start anew in another folder."
            )
    for part in ("environment", "functions", "settings"):
        for name in {**there[part], **here[part]}:  # `identity` repeats other facts and comes last
            old, new = there[part].get(name), here[part].get(name)
            if old != new and not (part == "settings" and name in MAY_CHANGE):
                raise InvalidInput(
                    f"the folder {place} holds another run: its {part} has {name} = {old!r}, and {new!r} is asked for. "
                    "Choose another folder, or remove that run first (`--overwrite`, or richobs.StoredRun.discard)."
                )


def _read_config(place: FilePath) -> dict[str, Any]:
    file = place / CONFIG
    with reading(file):
        if not file.exists():
            raise InvalidFile(f"there is no run in {place}: it has no {CONFIG}.")
        content = dict(read_json(file, LARGEST_CONFIG))
        if content["format"] != FORMAT:
            raise InvalidFile(f"{file} is not the configuration of a run.")
        made_with, about = content["made_with"], content["environment"]
        if content["version"] != VERSION:
            raise InvalidFile(
                f"the run in {place} has format {content['version']!r}, written by richobs {made_with['richobs']}; richobs "
                f"{__version__} reads format {VERSION} alone. Read it with the richobs that wrote it, or run again in "
                "another folder."
            )
        if read_record(Settings, content["settings"]).as_plain().keys() != content["settings"].keys():
            raise InvalidFile(f"{file} is damaged: a setting is missing.")
        log_size = content["functions"]["log_size"]
        sizes = ((about["horizon"], MOST_LEVELS), (about["n_actions"], MOST_ACTIONS))
        plain = isinstance(about["id"], str | None) and isinstance(about["n_states"], int | None)
        plain = plain and isinstance(made_with["richobs"], str)
        plain = plain and type(log_size) in (int, float) and 0 <= log_size < math.inf
        if not plain or not all(type(size) is int and 1 <= size <= most for size, most in sizes):
            raise InvalidFile(f"{file} is damaged: its environment is {str(about)[:200]}.")
        return content


def _read_verification(place: FilePath, certificate: Certificate) -> Verification | None:
    """Returns what a file says of the certificate that is there now: anybody who may write the folder can write it."""
    file = place / VERIFICATION
    with reading(file, "Remove it, and verify the certificate again."):
        if not file.exists():
            return None
        content = read_json(file, LARGEST_CONFIG)
        if content["certificate"] != certificate.digest:
            return None
        datetime.date.fromisoformat(content["at"])
        findings = tuple(Finding(**found) for found in content["findings"])
        typed = all((type(f.what), type(f.agrees), type(f.detail)) == (str, bool, str) for f in findings)
        if not findings or not typed or not re.fullmatch(r"[\w.+-]{1,40}", content["version"]):
            raise ValueError("it needs findings, each with two texts and true or false, and the version that made them")
        return Verification(findings, certificate.digest, content["at"], content["version"])


def _read_curve(place: FilePath, certificate: Certificate) -> ToleranceCurve | None:
    """Returns the tolerance curve of the certificate that is there now, where it was asked for."""
    file = place / CURVE
    with reading(file, "Remove it, and ask for the curve again."):
        if not file.exists():
            return None
        content = read_json(file, LARGEST_CONFIG)
        if certificate.digest != content["certificate"]:
            return None
        rows = tuple(ToleranceRow(t, e, u, math.nan if left is None else left) for t, e, u, left in content["rows"])
        numbers = all(type(v) is float and abs(v) < math.inf for row in content["rows"] for v in row if v is not None)
        if not rows or not numbers or any(None in row for row in rows) or type(content["together"]) is not bool:
            raise ValueError("it needs rows of four numbers, and whether they hold together")
        return ToleranceCurve(rows, certificate.content["result"]["epsilon"], together=content["together"])


def _sweep(place: FilePath) -> None:
    """Removes what a killed process left half written; the folder is held, but a report may be written all the same."""
    beside(place / DATABASE, "-shm").unlink(missing_ok=True)  # of a former version
    remove_unfinished(place)
    for left in place.iterdir():
        if LEFTOVERS.fullmatch(left.name) and not left.is_symlink():
            remove_abandoned(left)


def _check_path(path: object, about: dict[str, Any]) -> None:
    """Raises where something is not a sequence of actions of the environment, at most one for each level."""
    if not isinstance(path, list | tuple) or len(path) > about["horizon"]:
        raise ValueError(f"a path has more than the {about['horizon']} actions that an episode has")
    if not all(type(a) is int and 0 <= a < about["n_actions"] for a in path):
        raise ValueError(f"a path is {str(path)[:80]}, and there are {about['n_actions']} actions")


def _is_policy(file: FilePath, certificate: Certificate) -> bool:
    """Whether a file holds the policy that a certificate is about, or there is none that could be written."""
    digest = certificate.content["policy"]["digest"]
    with contextlib.suppress(OSError, InvalidFile):
        return digest is None or LearnedPolicy.load(file).digest == digest
    return False


def _nearly_equal(known: str, body: str) -> bool:
    """Whether two texts of decisions differ by rounding alone."""
    return first_difference(parse_json(body), parse_json(known), "decision", EVENT_TOLERANCE) is None


def _progress(body: str, about: dict[str, Any]) -> Progress:
    """Returns what the text of a stored decision says, once it is known to be possible."""
    event, episodes, upper, lower = parse_json(body)
    if not (type(episodes) is int and episodes >= 0):
        raise ValueError(f"an event came after {str(episodes)[:40]} episodes")
    if not all(bound is None or (type(bound) in (int, float) and math.isfinite(bound)) for bound in (upper, lower)):
        raise ValueError("a bound is no finite number")
    happened = from_plain(event)
    _check_path(happened.path, about)
    return Progress(happened, episodes, upper, lower)


@contextlib.contextmanager
def _writing(place: FilePath) -> Iterator[None]:
    """Turns what goes wrong with disk and database into a sentence."""
    with reading(place / DATABASE, passes=RichObsError):
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:
            raise StoreError(
                f"the run in {place} cannot be written ({error}). What was stored stays as it is."
            ) from error

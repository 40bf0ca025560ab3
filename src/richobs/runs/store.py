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
import hashlib
import json
import math
import os
import platform
import re
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import numpy as np

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.arguments import absolute_path, file_path
from richobs.core.environment import Environment, Episodes, declared_by, real_episodes
from richobs.core.errors import InvalidFile, InvalidInput, RichObsError, StoreError
from richobs.core.events import Callback, Progress, from_plain, to_plain
from richobs.core.files import (
    is_there,
    make_folder,
    parse_json,
    read_json,
    remove_abandoned,
    sync_folder,
    write_atomically,
)
from richobs.core.ledger import Ledger
from richobs.core.locks import held, is_held
from richobs.core.packing import fold, unfold
from richobs.core.policies import SavablePolicy
from richobs.core.problem import Problem
from richobs.core.recorded import episodes_digest, load_episodes, save_episodes
from richobs.core.settings import MAY_CHANGE, Settings
from richobs.core.version import __version__
from richobs.engines.play import Words
from richobs.engines.probes import Probes, restore_probes
from richobs.learners import Finding, learner
from richobs.learners.base import first_difference
from richobs.learners.lsvee import PaperConstants, SamplePlan
from richobs.runs.certificate import Certificate, Verification
from richobs.runs.database import (
    LARGEST_BODY,
    bounded,
    log_of,
    make_database,
    opened,
    opened_by_reader,
    others_of,
    refuse_strangers,
    remove_unfinished,
)
from richobs.runs.prepare import paper_epsilon

FORMAT = "richobs-run"
VERSION = 4
CONFIG, DATABASE, LOCK = "config.json", "run.sqlite", "run.lock"
CERTIFICATE, POLICY, VERIFICATION, REPORT = "certificate.json", "policy.npz", "verification.json", "report.html"
RECORDED = "recorded.npz"
FILES = (CONFIG, DATABASE, f"{DATABASE}-wal", LOCK, CERTIFICATE, POLICY, RECORDED, VERIFICATION)  # that are read
SCHEMA = """
CREATE TABLE draws (k INTEGER PRIMARY KEY, query BLOB, answer BLOB, checksum TEXT, probes BLOB, at REAL, link TEXT);
CREATE TABLE calls (k INTEGER PRIMARY KEY, key TEXT UNIQUE, answer BLOB, checksum TEXT, link TEXT);
CREATE TABLE events (k INTEGER PRIMARY KEY, body BLOB, link TEXT);
CREATE TABLE ends (k INTEGER PRIMARY KEY, state TEXT, message TEXT, at REAL, link TEXT);
CREATE TABLE real (k INTEGER PRIMARY KEY, episodes INTEGER);
CREATE TABLE heads (name TEXT PRIMARY KEY, link TEXT);
CREATE TABLE pieces (owner TEXT, place INTEGER, body BLOB, PRIMARY KEY (owner, place));
"""
CHAINED = {  # what a resume trusts: each row's link is the SHA-256 of the link before it and of these columns
    "draws": "k, query, checksum, probes, at",
    "calls": "k, key, checksum",
    "events": "k, body",
    "ends": "k, state, message, at",
}
FOLDED = {"draws": "query", "events": "body"}  # texts of which each row holds what is new since the row before
LEFTOVERS = re.compile(
    r"\.(config\.json|certificate\.json|policy\.npz|recorded\.npz|verification\.json|report\.html)\.\w{8}"
)
STATES = ("finished", "unfinished", "stopped")
MOST_LEVELS, MOST_ACTIONS = 100_000, 1_000_000  # of a run that is kept
MOST_FOLDERS = 50_000  # that are looked through for runs
MOST_ROWS = 1_000_000  # draws of a run, and its events
MOST_CALLS = 100_000_000  # of one draw
PIECE = LARGEST_BODY // 4  # bytes of an answer in one row; the rest is kept in pieces
LARGEST_ANSWER = 64 * PIECE  # bytes of what one draw or call gave
LONGEST_MESSAGE = 10_000  # characters of the error that stopped a run
LARGEST_CONFIG = 2**20  # bytes of config.json and verification.json
EVENT_TOLERANCE = 1e-6  # by which numbers of recorded decisions may differ where a device computes them again elsewhere
SHA256_BYTES = 32
PATIENCE = 30.0  # seconds for which a reader tries again, where what it reads changes meanwhile
PAUSE = 0.05  # seconds between two attempts
LATEST = 1e11  # seconds since 1970 of a draw, so that they are a date


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
    certificate: Certificate | None  # once it is finished
    verification: Verification | None  # what verification.json says; anybody who may write the folder can write it
    plan: SamplePlan | None  # the paper's sizes, where n_states is known
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
                return cls._read(place)
            except RichObsError:
                if _times(place) == before or time.monotonic() > until:
                    raise
            time.sleep(PAUSE)  # it was read while it changed, and may have been half one run and half another

    @classmethod
    def _read(cls, place: FilePath) -> "StoredRun":
        """Returns the run in a folder, where nobody changes it meanwhile."""
        config = _read_config(place)
        settings, about = Settings.from_plain(config["settings"]), config["environment"]
        learner(settings.learner)  # its kinds of events are known from here on
        with _readable(place):
            for name in FILES:
                is_there(place / name)
            runs = is_held(place / LOCK)
            stored = _read_as_reader(place, config)
            certificate = None
            if stored.state == "finished" and is_there(place / CERTIFICATE):
                certificate = Certificate.load(place / CERTIFICATE)
                if certificate.digest != stored.message:
                    raise InvalidFile(
                        f"{place / CERTIFICATE} is not the certificate that the run wrote. `richobs verify` says where it "
                        "differs. Remove it, and `richobs resume` writes the run's own again."
                    )
                stored.ledger.skip(int(certificate.content["result"]["skipped"]))
        state = stored.state if stored.state != "finished" or certificate is not None else "unfinished"
        if runs and state != "finished":  # who holds a finished run has not changed it yet
            state = "running"
        sizes = {
            "horizon": about["horizon"],
            "n_actions": about["n_actions"],
            "log_size": config["functions"]["log_size"],
        }
        n_states = settings.n_states if settings.n_states is not None else about["n_states"]
        planned = None
        epsilon = config.get("paper_epsilon", settings.epsilon)
        if n_states is not None and epsilon is not None:
            with _readable(place):
                planned = SamplePlan(
                    PaperConstants.of(n_states=n_states, epsilon=epsilon, delta=settings.delta, **sizes)
                )
        return cls(
            folder=place,
            world=about["id"],
            settings=settings,
            **sizes,
            state=state,
            message=stored.message if state == "stopped" else "",
            steps=stored.steps,
            ledger=stored.ledger,
            certificate=certificate if state == "finished" else None,
            verification=_read_verification(place, certificate) if state == "finished" else None,
            plan=planned,
            started=stored.started,
            last=stored.last,
        )


class _Stored(NamedTuple):
    """What a database says of a run."""

    state: str
    message: str
    steps: tuple[Progress, ...]
    ledger: Ledger
    started: float
    last: float


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


def _read_as_reader(place: FilePath, config: dict[str, Any]) -> _Stored:
    """Returns what the database says, also while another process writes it."""
    try:
        with opened_by_reader(place / DATABASE, SCHEMA) as db:
            return _read_database(db, place, config)
    except FileNotFoundError:  # killed before it was made
        return _Stored("unfinished", "", (), Ledger(), 0.0, 0.0)
    except sqlite3.Error as error:
        raise InvalidFile(f"{place / DATABASE} is damaged: {_short(error)}. Nothing was overwritten.") from error


def _read_database(
    db: sqlite3.Connection, place: FilePath, config: dict[str, Any], probes: Probes | None = None
) -> _Stored:
    """Returns what the database says, once its rows are known to be those that were written.

    Args:
        db: the database.
        place: the folder.
        config: what identifies the run; the links of its rows begin with it.
        probes: where the class is Python code: goes on from the stored ones.
    """
    with bounded(db, place / DATABASE):
        db.execute("BEGIN")  # one state of the database, whatever is written meanwhile
        _check_amounts(db, place, longest_text(config))
        _check_links(db, place, config)
        if probes is not None:
            for k, body in db.execute("SELECT k, probes FROM draws WHERE length(probes) > 0 ORDER BY k"):
                restore_probes(probes, k, _whole(db, place, f"probes {k}", body))
        ledger, about, longest = Ledger(), config["environment"], longest_text(config)
        for text in _unfolded(db, "draws", longest):
            path, n, purpose, phase, *_ = parse_json(text)
            _check_path(path, about)
            if not (isinstance(purpose, str) and isinstance(phase, str) and type(n) is int and n > 0):
                raise ValueError(f"a draw asks for {text[:80]}")
            ledger.charge(phase, purpose, tuple(path), n)
        steps = tuple(_progress(body, about) for body in _unfolded(db, "events", longest))
        first, last = db.execute("SELECT min(at), max(at) FROM draws").fetchone()
        end = db.execute("SELECT state, message FROM ends ORDER BY k DESC LIMIT 1").fetchone()
    state, message = end or ("unfinished", "")
    if state not in STATES or not isinstance(message, str):
        raise ValueError(f"it ended {str(state)[:40]!r}")
    if not all(at is None or (isinstance(at, float) and 0 <= at <= LATEST) for at in (first, last)):
        raise ValueError(f"its draws are of {str(first)[:40]} to {str(last)[:40]}")
    return _Stored(state, message, steps, ledger, first or 0.0, last or 0.0)


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
    place = folder_path(folder)
    with write_atomically(place / VERIFICATION) as stream:
        stream.write((json.dumps(dataclasses.asdict(checked), indent=2) + "\n").encode())


def discard(folder: str | os.PathLike[str]) -> None:
    """Removes the files of a run from a folder, and nothing else.

    Raises:
        StoreError: another process is running in it.
    """
    place = folder_path(folder)
    with held(place / LOCK):
        _sweep(place)
        database = place / DATABASE
        results = (place / name for name in (CERTIFICATE, POLICY, RECORDED, VERIFICATION, REPORT))
        with _as_sentence(place):
            for file in (database, log_of(database), *others_of(database), *results):
                file.unlink(missing_ok=True)
            sync_folder(place)  # no database without its configuration, also where this is killed
            (place / CONFIG).unlink(missing_ok=True)


def recorded_beside(file: str | os.PathLike[str]) -> Episodes | None:
    """Returns the recorded episodes that a run was given, from the folder of one of its files; None where it had none."""
    recorded = FilePath(file).with_name(RECORDED)
    return load_episodes(recorded) if recorded.exists() else None


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
        **({} if (epsilon := paper_epsilon(problem, settings)) == settings.epsilon else {"paper_epsilon": epsilon}),
        "made_with": {"richobs": __version__, "numpy": np.__version__, "python": platform.python_version()},
    }
    return dict(json.loads(json.dumps(content)))


class RunFolder:
    """A run's folder, held by this process: the record that engines and environments write to."""

    def __init__(self, place: FilePath, db: sqlite3.Connection, config: dict[str, Any], *, changed: bool = False):
        self._place = place
        self._changed = config if changed else None  # the configuration, where another one is written down
        start = _start(config)
        self._longest_text = longest_text(config)
        self._on_device = config["settings"].get("device") is not None
        self._db = db
        self._start = start  # what the links of all rows begin with
        self._heads = {name: _head(db, name, start) for name in CHAINED}
        self._probes = b""  # of the draw that is kept next
        self._queries: list[Any] = [-1, ""]  # the last draw that was read or kept, and the text of its query
        self._last_event = ""  # the text of the last event that was kept
        self._lock = threading.Lock()  # environments are played by several threads
        self._events = 0  # so far, in this process
        self._decided: list[tuple[int, str]] = []  # since the last draw
        self._called = True  # whether calls of a draw may be there: those of an interrupted one, at first
        self._real: tuple[Environment, int, int] | None = None  # whose real episodes count, its first, the row
        self._finished = self.ended()  # it stays so until there is something new

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
        with _as_sentence(place):
            make_folder(place)
        with held(place / LOCK):
            with _readable(place):
                refuse_strangers(place / DATABASE)
                there = {name for name in FILES if is_there(place / name)}
            known = CONFIG in there
            if known:
                _check_same(place, _read_config(place), config)
            elif DATABASE in there:
                raise InvalidFile(f"{place} holds a {DATABASE} and no {CONFIG}: the run cannot be identified.")
            same = known and _read_config(place)["settings"] == config["settings"]
            if DATABASE in there:
                with _connected(place) as db, _readable(place):
                    spent = _read_database(db, place, config, probes).ledger.total
                allowed = config["settings"]["max_episodes"]
                if allowed is not None and spent > allowed:
                    raise InvalidInput(
                        f"the run in {place} has spent {spent:,} episodes already, more than the {allowed:,} allowed now. "
                        "Allow at least as many, or choose another folder."
                    )
            with _as_sentence(place):
                _sweep(place)
                if not known:
                    _write_config(place, config)
                if DATABASE not in there:
                    make_database(place / DATABASE, SCHEMA)
            with _connected(place) as db:
                opened = cls(place, db, config, changed=known and not same)
                if not opened.ended():
                    opened.end("unfinished", "")
                    opened._keep_config()
                yield opened

    def _go_on(self) -> None:
        """Notes that a finished run is not finished any more: something new is about to be played or written."""
        if self._finished:
            self._finished = False
            self.end("unfinished", "")
            self._keep_config()

    def _keep_config(self) -> None:
        """Writes the configuration down, where settings that may change have changed."""
        if self._changed is not None:
            with _as_sentence(self._place):
                _write_config(self._place, self._changed)
            self._changed = None

    def keep_recorded(self, episodes: Episodes) -> None:
        """Writes down the episodes that the run was given, so that it can go on without them being given again."""
        if not (self._place / RECORDED).exists():
            with _as_sentence(self._place):
                save_episodes(self._place / RECORDED, episodes)

    def draw(self, k: int, /) -> tuple[Words, bytes] | None:
        """Returns the k-th query and its answer, or None where there is none yet."""
        self._flush()  # decisions are kept before the next draw begins
        row = self._one("SELECT query, answer, checksum FROM draws WHERE k = ?", k)
        if row is None:
            self._go_on()
            return None
        answer = self._joined(f"draw {k}", row[1])
        self._check(answer, row[2], f"draw {k}")
        with _readable(self._place):
            text = unfold(row[0], self._query_before(k), self._longest_text)
            self._queries[:] = [k, text]
            return parse_json(text), answer

    def _query_before(self, k: int) -> str:
        """Returns the text of the query before the k-th, with which that is folded; draws are asked for in order."""
        at, text = self._queries
        if at != k - 1:
            raise InvalidFile(
                f"draw {k} of the run in {self._place} does not follow draw {at}. Nothing was overwritten."
            )
        return text

    def keep_draw(self, k: int, query: Words, answer: bytes, /) -> None:
        """Writes the k-th draw down for good, and forgets the calls that it was made of."""
        probes, self._probes = self._probes, b""
        text = _json(query)
        self._check_room(k, len(answer) + len(probes), len(text))
        folded = fold(text, self._query_before(k))
        self._go_on()
        with self._transaction():
            kept = self._split(f"probes {k}", probes)
            trusted = (k, folded, _sha256(answer), kept, _now())
            link = self._append("draws", trusted)
            self._db.execute(
                "INSERT INTO draws VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*trusted[:2], self._split(f"draw {k}", answer), *trusted[2:], link),
            )
            if self._called:
                self._db.execute("DELETE FROM calls")
                self._db.execute("DELETE FROM pieces WHERE owner GLOB 'call *'")
                self._set_head("calls", _first_link(self._start, "calls"))
                self._called = False
            self._keep_real()
        self._queries[:] = [k, text]

    def keep_probes(self, probes: bytes, /) -> None:
        """Takes the probes of the draw that is kept next, where the class is Python code."""
        self._probes = probes

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Holds the lock; all that is written inside is written, or nothing is."""
        with self._lock, _as_sentence(self._place):
            before = dict(self._heads)
            try:
                with self._db:
                    self._db.execute("BEGIN IMMEDIATE")
                    yield
            except BaseException:
                self._heads = before
                raise

    def _append(self, table: str, row: Iterable[object]) -> str:
        """Returns the link of the next row of a table, which becomes its last one."""
        link = _link(self._heads[table], row)
        self._set_head(table, link)
        return link

    def _set_head(self, table: str, link: str) -> None:
        self._heads[table] = link
        self._db.execute("INSERT OR REPLACE INTO heads VALUES (?, ?)", (table, link))

    def call(self, key: str, /) -> bytes | None:
        """Returns what a call of the draw in progress gave; None where it was not made yet."""
        row = self._one("SELECT k, answer, checksum FROM calls WHERE key = ?", key)
        if row is None:
            return None
        body = self._joined(f"call {row[0]}", row[1])
        self._check(body, row[2], "a call")
        return body

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
        with self._transaction():
            self._called = True
            k = self._db.execute("SELECT coalesce(max(k), -1) + 1 FROM calls").fetchone()[0]
            self._check_room(k, len(answer), most=MOST_CALLS)
            checksum = _sha256(answer)
            link = self._append("calls", (k, key, checksum))
            self._db.execute(
                "INSERT INTO calls VALUES (?, ?, ?, ?, ?)", (k, key, self._split(f"call {k}", answer), checksum, link)
            )
            self._keep_real()

    def count_real_episodes(self, env: Environment) -> None:
        """Keeps from now on how many episodes a deterministic environment really played; each call of a run adds a row."""
        played = real_episodes(env)
        if played is not None:
            with self._transaction():
                row = self._db.execute("INSERT INTO real (episodes) VALUES (0)").lastrowid
                assert row is not None, "a row was inserted"
                self._real = (env, played, row)
                self._keep_real()

    def real_episodes(self) -> int | None:
        """Returns how many episodes were really played in all calls of the run; None where all were."""
        if self._real is None:
            return None
        with self._transaction():
            self._keep_real()
            return int(self._db.execute("SELECT sum(episodes) FROM real").fetchone()[0])

    def _keep_real(self) -> None:
        """Writes down how many episodes were really played since the run was opened; within a transaction."""
        if self._real is not None:
            env, first, row = self._real
            played = real_episodes(env)
            self._db.execute("UPDATE real SET episodes = ? WHERE k = ?", (0 if played is None else played - first, row))
            self._set_head("real", _real_link(self._db, self._start))

    def _split(self, owner: str, body: bytes) -> bytes:
        """Returns what a row holds of a body; the rest of a large one is kept in pieces, within a transaction.

        The row of a large one ends with the SHA-256 of the rest, so that its link covers all of it.
        """
        if len(body) <= PIECE:
            return body
        first = PIECE - SHA256_BYTES
        rest = memoryview(body)[first:]
        self._db.execute("DELETE FROM pieces WHERE owner = ?", (owner,))
        for place, start in enumerate(range(0, len(rest), PIECE)):
            piece = rest[start : start + PIECE]
            self._db.execute("INSERT INTO pieces VALUES (?, ?, ?)", (owner, place, piece))
        return body[:first] + hashlib.sha256(rest).digest()

    def _joined(self, owner: str, row: Any) -> bytes:
        """Returns the body that `_split` was given."""
        with self._lock, _readable(self._place):
            return _whole(self._db, self._place, owner, row)

    def _check_room(self, k: int, size: int = 0, text: int = 0, *, most: int | None = None) -> None:
        """Refuses what could not be read again: the k-th row of its kind, with bytes and characters of these numbers."""
        most = MOST_ROWS if most is None else most
        if k >= most or size > LARGEST_ANSWER or text > self._longest_text:
            raise StoreError(
                f"the folder {self._place} cannot keep row {k + 1:,} with {size:,} bytes and {text:,} characters: a run "
                f"keeps {most:,} rows of {LARGEST_ANSWER:,} bytes and {self._longest_text:,} characters. Play fewer "
                "episodes at once (`at_once` of the environment), or run without a folder. What was stored stays as it is."
            )

    def _one(self, query: str, value: int | str) -> Any:
        with self._lock, _readable(self._place):
            return self._db.execute(query, (value,)).fetchone()

    def listener(self, callback: Callback | None) -> Callback:
        """Returns a callback that keeps every decision, those between two draws at once."""
        with _readable(self._place):
            known = list(_unfolded(self._db, "events", self._longest_text))
        self._last_event = known[-1] if known else ""

        def listen(progress: Progress) -> None:
            k, self._events = self._events, self._events + 1
            body = _plain(progress)
            if k >= len(known):
                self._check_room(k, text=len(body))
                self._go_on()
                self._decided.append((k, body))
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
            texts = [self._last_event, *(text for _, text in self._decided)]
            with self._transaction():
                for (k, text), before in zip(self._decided, texts, strict=False):
                    row = (k, fold(text, before))
                    self._db.execute("INSERT INTO events VALUES (?, ?, ?)", (*row, self._append("events", row)))
            self._decided.clear()
            self._last_event = texts[-1]

    def ended(self) -> bool:
        """Whether the run has finished."""
        row = self._db.execute("SELECT state FROM ends ORDER BY k DESC LIMIT 1").fetchone()
        return row is not None and row[0] == "finished"

    def finish(self, policy: SavablePolicy, certificate: Certificate) -> None:
        """Writes policy and certificate, unless both are there already and belong together."""
        file, there = self._place / CERTIFICATE, None
        with contextlib.suppress(OSError, InvalidFile):
            there = Certificate.load(file).content
        fits = there is not None and {**there, "versions": 0} == {**certificate.content, "versions": 0}
        if not (fits and self.ended() and _is_policy(self._place / POLICY, certificate)):
            self._go_on()  # until the files belong together
            with _as_sentence(self._place):
                file.unlink(missing_ok=True)
                with contextlib.suppress(InvalidInput):  # functions that are Python code cannot be written
                    policy.save(self._place / POLICY)
                certificate.save(file)
                self.end("finished", certificate.digest)
        self._keep_config()

    def end(self, state: str, message: str) -> None:
        """Notes how the run ended, and waits until that is on disk: a certificate is believed where this names it."""
        self._flush()
        self._db.execute("PRAGMA synchronous = FULL")
        with self._transaction():
            k = self._db.execute("SELECT count(*) FROM ends").fetchone()[0]
            row = (k, state, message[:LONGEST_MESSAGE], _now())
            self._db.execute("INSERT INTO ends VALUES (?, ?, ?, ?, ?)", (*row, self._append("ends", row)))
        self._db.execute("PRAGMA synchronous = NORMAL")

    def _check(self, body: bytes, checksum: str, what: str) -> None:
        if not isinstance(body, bytes) or _sha256(body) != checksum:
            raise InvalidFile(f"{self._place / DATABASE} is damaged: {what} does not match its checksum.")


def _write_config(place: FilePath, config: dict[str, Any]) -> None:
    with write_atomically(place / CONFIG) as stream:
        stream.write((json.dumps(config, indent=2) + "\n").encode())


def _whole(db: sqlite3.Connection, place: FilePath, owner: str, row: Any) -> bytes:
    """Returns a body of which a row holds the beginning, and pieces the rest where it is large.

    Raises:
        InvalidFile: the pieces are not those that the row was written with, or too many.
    """
    count, size = db.execute("SELECT count(*), sum(length(body)) FROM pieces WHERE owner = ?", (owner,)).fetchone()
    if not count:
        whole: bytes = row
        return whole
    if isinstance(row, bytes) and size <= LARGEST_ANSWER:
        found = db.execute("SELECT body FROM pieces WHERE owner = ? ORDER BY place", (owner,)).fetchall()
        if all(isinstance(piece, bytes) for (piece,) in found):
            rest = b"".join(piece for (piece,) in found)
            if hashlib.sha256(rest).digest() == row[-SHA256_BYTES:]:
                return row[:-SHA256_BYTES] + rest
    raise InvalidFile(f"{place / DATABASE} is damaged: {owner} does not match its checksum.")


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
                    "Choose another folder, or remove that run first (`--overwrite`, or richobs.discard)."
                )


def _read_config(place: FilePath) -> dict[str, Any]:
    file = place / CONFIG
    try:
        content = read_json(file, LARGEST_CONFIG)
        if content["format"] != FORMAT:
            raise InvalidFile(f"{file} is not the configuration of a run.")
        if content["version"] != VERSION:
            raise InvalidFile(
                f"the run in {place} has format {content['version']!r}, written by richobs "
                f"{content['made_with']['richobs']}; richobs {__version__} reads format {VERSION} alone. Read it with the "
                "richobs that wrote it, or run again in another folder."
            )
        Settings.from_plain(content["settings"])
        about = content["environment"]
        plain = isinstance(about["id"], str | None) and isinstance(about["n_states"], int | None)
        plain = plain and isinstance(content["made_with"]["richobs"], str)
        log_size = content["functions"]["log_size"]
        plain = plain and type(log_size) in (int, float) and 0 <= log_size < math.inf
        if not plain or not _is_size(about["horizon"], MOST_LEVELS) or not _is_size(about["n_actions"], MOST_ACTIONS):
            raise InvalidFile(f"{file} is damaged: its environment is {str(about)[:200]}.")
        return dict(content)
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidFile(f"there is no run in {place}: it has no {CONFIG}.") from None
    except OSError as error:
        raise InvalidFile(f"{file} cannot be read: {error}.") from error
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise InvalidFile(f"{file} is damaged: {_short(error)}") from error


def _is_size(value: object, most: int) -> bool:
    """Whether something is a number of levels or actions."""
    return type(value) is int and 1 <= value <= most


def _read_verification(place: FilePath, certificate: Certificate | None) -> Verification | None:
    """Returns what a file says of the certificate that is there now: anybody who may write the folder can write it."""
    file = place / VERIFICATION
    try:
        if certificate is None or not file.exists():
            return None
        content = read_json(file, LARGEST_CONFIG)
        if content["certificate"] != certificate.digest:
            return None
        at, version = content["at"], content["version"]
        datetime.date.fromisoformat(at)
        findings = tuple(Finding(**found) for found in content["findings"])
        typed = all((type(f.what), type(f.agrees), type(f.detail)) == (str, bool, str) for f in findings)
        if not findings or not typed or not re.fullmatch(r"[\w.+-]{1,40}", version):
            raise ValueError("it needs findings, each with two texts and true or false, and the version that made them")
        return Verification(findings, certificate=certificate.digest, at=at, version=version)
    except (ValueError, TypeError, LookupError, OSError) as error:
        raise InvalidFile(
            f"{file} is not what `richobs verify` writes: {_short(error)}. Remove it, and verify the certificate again."
        ) from error


def _sweep(place: FilePath) -> None:
    """Removes what a killed process left half written; the folder is held, but a report may be written all the same."""
    others_of(place / DATABASE)[0].unlink(missing_ok=True)  # of a former version
    remove_unfinished(place)
    for left in place.iterdir():
        if LEFTOVERS.fullmatch(left.name) and not left.is_symlink():
            remove_abandoned(left)


def _now() -> float:
    """Returns the seconds since 1970, as near to what the clock says as a run can keep: clocks are wrong now and then."""
    return min(max(time.time(), 0.0), LATEST)


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _start(config: dict[str, Any]) -> str:
    """Returns what the links of a run's rows begin with: the SHA-256 of all of its configuration that may not change."""
    settings = {name: value for name, value in config["settings"].items() if name not in MAY_CHANGE}
    fixed = [config["version"], config["environment"], config["functions"], settings]
    return _sha256(json.dumps(fixed, sort_keys=True).encode())


def _first_link(start: str, table: str) -> str:
    return _link(start, (table,))


def _link(before: str, row: Iterable[object]) -> str:
    """Returns the link of a row: the SHA-256 of the link before it, and of what the row holds."""
    plain = [_sha256(value) if isinstance(value, bytes) else value for value in row]
    return _sha256(repr((before, *plain)).encode())


def _real_link(db: sqlite3.Connection, start: str) -> str:
    """Returns the link of all rows that count real episodes; they change, so they have one together."""
    return _link(_first_link(start, "real"), db.execute("SELECT k, episodes FROM real ORDER BY k"))


def _head(db: sqlite3.Connection, table: str, start: str) -> str:
    """Returns the link of the last row of a table."""
    row = db.execute("SELECT link FROM heads WHERE name = ?", (table,)).fetchone()
    return _first_link(start, table) if row is None else row[0]


def _unfolded(db: sqlite3.Connection, table: str, longest: int) -> Iterator[str]:
    """Yields the texts of a table's rows in order: the queries of draws, or the bodies of events."""
    before = ""
    for (body,) in db.execute(f"SELECT {FOLDED[table]} FROM {table} ORDER BY k"):
        before = unfold(body, before, longest)
        yield before


def longest_text(config: dict[str, Any]) -> int:
    """Returns how many characters a query or an event of a run may have: a few words for each of its levels."""
    return 100_000 + 1_000 * int(config["environment"]["horizon"])


def _check_amounts(db: sqlite3.Connection, place: FilePath, longest: int) -> None:
    """Refuses a database with more or longer rows than a run writes, before they are read."""
    for table in (*CHAINED, "real", "pieces"):
        rows = db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        most = MOST_CALLS if table in ("calls", "pieces") else MOST_ROWS
        if rows > most:
            raise _broken(place, f"it has {rows:,} {table}, and a run keeps at most {most:,}")
    for table, column in (("draws", "query"), ("events", "body"), ("calls", "key"), ("ends", "message")):
        found = db.execute(f"SELECT max(length({column})) FROM {table}").fetchone()[0]
        if (found or 0) > longest:
            raise _broken(
                place, f"a {column} in {table} has {found:,} characters, and a run writes at most {longest:,}"
            )


def _check_path(path: object, about: dict[str, Any]) -> None:
    """Raises where something is not a sequence of actions of the environment, at most one for each level."""
    if not isinstance(path, list | tuple) or len(path) > about["horizon"]:
        raise ValueError(f"a path has more than the {about['horizon']} actions that an episode has")
    if not all(type(a) is int and 0 <= a < about["n_actions"] for a in path):
        raise ValueError(f"a path is {str(path)[:80]}, and there are {about['n_actions']} actions")


def _check_links(db: sqlite3.Connection, place: FilePath, config: dict[str, Any]) -> None:
    """Refuses a database in which a row was altered, removed, inserted or moved."""
    start = _start(config)
    for table, columns in CHAINED.items():
        link = _first_link(start, table)
        for *row, stored in db.execute(f"SELECT {columns}, link FROM {table} ORDER BY k"):
            link = _link(link, row)
            if link != stored:
                raise _broken(place, f"{table[:-1]} {row[0]} does not follow from what stands before it")
        if link != _head(db, table, start):
            raise _broken(place, f"the last of its {table} are missing")
    known = db.execute("SELECT link FROM heads WHERE name = 'real'").fetchone()
    counted = db.execute("SELECT count(*) FROM real").fetchone()[0]
    if known[0] != _real_link(db, start) if known is not None else counted:
        raise _broken(place, "its count of real episodes is not the one that was written")


def _broken(place: FilePath, what: str) -> InvalidFile:
    return InvalidFile(
        f"{place / DATABASE} is damaged: {what}. Something in it or in {CONFIG} was altered, removed or inserted. Nothing "
        "was overwritten."
    )


def _is_policy(file: FilePath, certificate: Certificate) -> bool:
    """Whether a file holds the policy that a certificate is about, or there is none that could be written."""
    digest = certificate.content["policy"]["digest"]
    with contextlib.suppress(OSError, InvalidFile):
        return digest is None or LearnedPolicy.load(file).digest == digest
    return False


def _nearly_equal(known: str, body: str) -> bool:
    """Whether two texts of decisions differ by rounding alone."""
    return first_difference(parse_json(body), parse_json(known), "decision", EVENT_TOLERANCE) is None


def _plain(progress: Progress) -> str:
    return _json([to_plain(progress.event), progress.episodes, progress.upper, progress.lower])


def _json(content: Any) -> str:
    """Returns plain values as JSON without spaces."""
    return json.dumps(content, separators=(",", ":"))


def _progress(body: str, about: dict[str, Any]) -> Progress:
    event, episodes, upper, lower = parse_json(body)
    if not (type(episodes) is int and episodes >= 0):
        raise ValueError(f"an event came after {str(episodes)[:40]} episodes")
    if not all(bound is None or (type(bound) in (int, float) and math.isfinite(bound)) for bound in (upper, lower)):
        raise ValueError("a bound is no finite number")
    happened = from_plain(event)
    _check_path(happened.path, about)
    return Progress(happened, episodes, upper, lower)


@contextlib.contextmanager
def _as_sentence(place: FilePath) -> Iterator[None]:
    """Turns what goes wrong with disk and database into a sentence."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise StoreError(
                f"the run in {place} cannot be written ({error}). What was stored stays as it is."
            ) from error
        raise InvalidFile(f"{place / DATABASE} is damaged: {error}. Nothing was overwritten.") from error
    except RichObsError:
        raise
    except OSError as error:
        raise StoreError(f"the folder {place} cannot be written: {error}. What was stored stays as it is.") from error


@contextlib.contextmanager
def _readable(place: FilePath) -> Iterator[None]:
    """Turns what goes wrong with reading a run's files into a sentence."""
    try:
        yield
    except RichObsError:
        raise
    except (sqlite3.Error, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, OSError) as error:
        raise InvalidFile(f"the run in {place} is damaged ({_short(error)}). Nothing was overwritten.") from error


def _short(error: Exception) -> str:
    """Returns an error in at most 300 characters; a damaged file may put anything into one."""
    text = repr(error)
    return text if len(text) <= 300 else f"{text[:300]}..."


@contextlib.contextmanager
def _connected(place: FilePath) -> Iterator[sqlite3.Connection]:
    """Opens a run's database, whose folder this process holds; what a killed process left is recovered."""
    with contextlib.ExitStack() as stack:
        with _as_sentence(place):
            db = stack.enter_context(opened(place / DATABASE, SCHEMA, write=True))
            # A power cut may cost the last draws, a killed process nothing.
            db.execute("PRAGMA synchronous = NORMAL")
        yield db

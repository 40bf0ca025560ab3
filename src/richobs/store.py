"""A run on disk: one folder, written as the run goes, readable at any time, and resumed to the same bytes.

config.json       what is run: world, settings, class, versions
run.sqlite        every draw and every decision, committed before the next begins
certificate.json  what was found, once it was
policy.npz        the policy
verification.json what `richobs verify` said of it, if it was asked
report.html       the page about it
"""

import contextlib
import dataclasses
import json
import os
import platform
import sqlite3
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from richobs.certificate import Certificate, Finding, Verification, certify
from richobs.engines import Engine, Ledger, RecordedEngine, RecordedEnvironment
from richobs.engines.recorded import Request
from richobs.envs.world import PathEnvironment
from richobs.errors import InvalidFile, InvalidInput, RichObsError, RunStopped, StoreError
from richobs.files import write_atomically
from richobs.learning import Learnable, Settings, run
from richobs.outcome import Callback, Event, Outcome, Progress
from richobs.planning import SamplePlan, plan
from richobs.policy import class_digest
from richobs.version import __version__

FORMAT = "richobs-run"
VERSION = 1
MAY_CHANGE = {"max_episodes", "workers"}  # settings that a run can go on with; they do not change what was drawn
CONFIG, DATABASE, LOCK = "config.json", "run.sqlite", "run.lock"
CERTIFICATE, POLICY, VERIFICATION, REPORT = "certificate.json", "policy.npz", "verification.json", "report.html"
SCHEMA = """
CREATE TABLE IF NOT EXISTS draws (k INTEGER PRIMARY KEY, request TEXT, answer BLOB, checksum INTEGER, at REAL);
CREATE TABLE IF NOT EXISTS calls (key TEXT PRIMARY KEY, answer BLOB, state TEXT, checksum INTEGER);
CREATE TABLE IF NOT EXISTS events (k INTEGER PRIMARY KEY, body TEXT);
CREATE TABLE IF NOT EXISTS ends (k INTEGER PRIMARY KEY, state TEXT, message TEXT, at REAL);
"""


@dataclass(frozen=True)
class StoredRun:
    """A run as its folder tells it."""

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
    verification: Verification | None  # what `richobs verify` found last
    plan: SamplePlan | None  # the paper's sizes, where n_states is known
    started: float = 0.0  # seconds since 1970
    last: float = 0.0  # when something was stored last

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> "StoredRun":
        """Returns the run in a folder, also while another process writes it.

        Raises:
            InvalidFile: there is no run there, or it is damaged.
        """
        place = FilePath(folder)
        config = _read_config(place)
        settings, about = Settings(**config["settings"]), config["environment"]
        with _connected(place, write=False) as db:
            ledger = Ledger()
            for (text,) in db.execute("SELECT request FROM draws ORDER BY k"):
                _, path, n, _, phase, purpose = json.loads(text)
                ledger.charge(phase, purpose, tuple(path), n)
            steps = tuple(_progress(body) for (body,) in db.execute("SELECT body FROM events ORDER BY k"))
            times = db.execute("SELECT min(at), max(at) FROM draws").fetchone()
            end = db.execute("SELECT state, message FROM ends ORDER BY k DESC LIMIT 1").fetchone()
        state, message = end or ("unfinished", "")
        if _is_held(place):
            state, message = "running", ""
        sizes = {
            "horizon": about["horizon"],
            "n_actions": about["n_actions"],
            "log_size": config["functions"]["log_size"],
        }
        n_states = settings.n_states if settings.n_states is not None else about["n_states"]
        planned = None
        if n_states is not None:
            planned = plan(n_states=n_states, epsilon=settings.epsilon, delta=settings.delta, **sizes)
        certificate = Certificate.load(place / CERTIFICATE) if state == "finished" else None
        ledger.skip(0 if certificate is None else int(certificate.content["result"]["skipped"]))
        return cls(
            folder=place,
            world=about["id"],
            settings=settings,
            **sizes,
            state=state,
            message=message,
            steps=steps,
            ledger=ledger,
            certificate=certificate,
            verification=_read_verification(place, certificate),
            plan=planned,
            started=times[0] or 0.0,
            last=times[1] or 0.0,
        )


def find_runs(folder: str | os.PathLike[str]) -> list[FilePath]:
    """Returns the run folders in and below a folder, in alphabetical order."""
    return sorted(p.parent for p in FilePath(folder).rglob(CONFIG) if (p.parent / DATABASE).exists())


def run_in(
    folder: str | os.PathLike[str], problem: Learnable, settings: Settings, callback: Callback | None = None
) -> Outcome:
    """Runs what `settings` ask for and keeps it in a folder; goes on where an earlier call on that folder stopped.

    A folder that holds the same run, finished, gives its outcome again and plays nothing. The number of workers may differ
    from call to call, and so may `max_episodes`: a run that spent what it was allowed goes on with more.

    Raises:
        InvalidInput: the folder holds a run with another configuration; nothing in it was changed.
        InvalidFile: something in it is damaged, or was made by another version; nothing in it was changed.
        StoreError: the folder cannot be written (read-only, disk full), or another process is running in it.
    """
    place = FilePath(folder)
    with _Folder.opened(place, _config(problem, settings)) as record:
        try:
            outcome = run(_remembering(problem, record), settings, record.listener(callback), record.engine)
        except RunStopped as stopped:
            record.end("stopped", str(stopped))
            raise
        certificate = certify(outcome, problem)
        if record.ended() and _same_text(place / CERTIFICATE, certificate.to_json()):
            return outcome  # finished before; not a byte is touched
        with contextlib.suppress(InvalidInput):  # functions that are Python code cannot be written
            outcome.policy.save(place / POLICY)
        certificate.save(place / CERTIFICATE)
        record.end("finished", "")
        return outcome


def keep_verification(folder: str | os.PathLike[str], checked: Verification) -> None:
    """Writes what became of checking a run's certificate, and of which certificate."""
    place = FilePath(folder)
    content = {
        "certificate": _checksum(place / CERTIFICATE),
        "findings": [dataclasses.asdict(f) for f in checked.findings],
    }
    with write_atomically(place / VERIFICATION) as stream:
        stream.write((json.dumps(content, indent=2) + "\n").encode())


def discard(folder: str | os.PathLike[str]) -> None:
    """Removes the files of a run from a folder, and nothing else.

    Raises:
        StoreError: another process is running in it.
    """
    place = FilePath(folder)
    with _held(place):
        for name in (CONFIG, DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", CERTIFICATE, POLICY, VERIFICATION, REPORT):
            (place / name).unlink(missing_ok=True)


def _config(problem: Learnable, settings: Settings) -> dict[str, Any]:
    """Returns what identifies a run."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "environment": {
            "id": getattr(problem, "id", None),
            "horizon": problem.env.horizon,
            "n_actions": problem.env.n_actions,
            "n_states": problem.n_states,
        },
        "functions": {"log_size": problem.functions.log_size, "digest": class_digest(problem.functions)},
        "settings": dataclasses.asdict(settings),
        "made_with": {"richobs": __version__, "numpy": np.__version__, "python": platform.python_version()},
    }
    return dict(json.loads(json.dumps(content)))


def _remembering(problem: Learnable, record: "_Folder") -> Learnable:
    """Returns the problem with an environment none of whose episodes is played twice, unless it is one we simulate."""
    if getattr(problem, "id", None) is not None or isinstance(problem.env, PathEnvironment):
        return problem
    return _Remembering(RecordedEnvironment(problem.env, record), problem.functions, problem.process, problem.n_states)


@dataclass(frozen=True)
class _Remembering:
    """A problem whose environment is recorded."""

    env: RecordedEnvironment
    functions: Any
    process: Any
    n_states: Any


class _Folder:
    """A run's folder, held by this process: the record that engines and environments write to."""

    def __init__(self, place: FilePath, db: sqlite3.Connection):
        self._place = place
        self._db = db
        self._events = 0  # told so far, in this process

    @classmethod
    @contextlib.contextmanager
    def opened(cls, place: FilePath, config: dict[str, Any]) -> Iterator["_Folder"]:
        """Holds the folder, made if it is not there; refuses one that is held, damaged, or holds another run."""
        with _told(place):
            place.mkdir(parents=True, exist_ok=True)
        with _held(place):
            fresh = not (place / CONFIG).exists()
            if fresh and (place / DATABASE).exists():
                raise InvalidFile(f"{place} holds a {DATABASE} and no {CONFIG}: the run cannot be identified.")
            if not fresh:
                _check_same(place, _read_config(place), config)
            with _connected(place, write=True) as db:
                if fresh or _read_config(place)["settings"] != config["settings"]:
                    with _told(place), write_atomically(place / CONFIG) as stream:
                        stream.write((json.dumps(config, indent=2) + "\n").encode())
                yield cls(place, db)

    def engine(self, engine: Engine) -> Engine:
        """Returns an engine that records what another draws."""
        return RecordedEngine(engine, self)

    def draw(self, k: int, /) -> tuple[Request, bytes] | None:
        """Returns the k-th request and its answer, or None where there is none yet."""
        row = self._db.execute("SELECT request, answer, checksum FROM draws WHERE k = ?", (k,)).fetchone()
        if row is None:
            return None
        self._check(row[1], row[2], f"draw {k}")
        return json.loads(row[0]), row[1]

    def keep_draw(self, k: int, request: Request, answer: bytes, /) -> None:
        """Writes the k-th draw down for good, and forgets the calls that it was made of."""
        row = (k, json.dumps(request), answer, zlib.crc32(answer), time.time())
        with _told(self._place), self._db:
            self._db.execute("INSERT INTO draws VALUES (?, ?, ?, ?, ?)", row)
            self._db.execute("DELETE FROM calls")

    def call(self, key: str, /) -> tuple[bytes, str] | None:
        """Returns what a call of the draw in progress gave, and the generator's state after it."""
        row = self._db.execute("SELECT answer, checksum, state FROM calls WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        self._check(row[0], row[1], "a call")
        return row[0], row[2]

    def keep_call(self, key: str, answer: bytes, state: str, /) -> None:
        """Writes a call of the draw in progress down."""
        with _told(self._place), self._db:
            self._db.execute("INSERT INTO calls VALUES (?, ?, ?, ?)", (key, answer, state, zlib.crc32(answer)))

    def listener(self, callback: Callback | None) -> Callback:
        """Returns a callback that keeps every decision before it is passed on."""
        known = [body for (body,) in self._db.execute("SELECT body FROM events ORDER BY k")]

        def listen(progress: Progress) -> None:
            k, self._events = self._events, self._events + 1
            body = _plain(progress)
            if k >= len(known):
                with _told(self._place), self._db:
                    self._db.execute("INSERT INTO events VALUES (?, ?)", (k, body))
            elif known[k] != body:
                raise InvalidFile(
                    f"decision {k} of the run in {self._place} was {known[k]}, and is {body} now: it was made by other code "
                    "or on another machine. Start anew in another folder."
                )
            if callback is not None:
                callback(progress)

        return listen

    def ended(self) -> bool:
        """Whether the run has finished before."""
        return self._db.execute("SELECT 1 FROM ends WHERE state = 'finished'").fetchone() is not None

    def end(self, state: str, message: str) -> None:
        """Notes how the run ended."""
        with _told(self._place), self._db:
            row = (state, message, time.time())
            self._db.execute("INSERT INTO ends (state, message, at) VALUES (?, ?, ?)", row)

    def _check(self, body: bytes, checksum: int, what: str) -> None:
        if not isinstance(body, bytes) or zlib.crc32(body) != checksum:
            raise InvalidFile(f"{self._place / DATABASE} is damaged: {what} does not match its checksum.")


def _check_same(place: FilePath, there: dict[str, Any], here: dict[str, Any]) -> None:
    """Refuses a folder whose run is not the one that is asked for."""
    for name, version in there["made_with"].items():
        if name != "python" and version != here["made_with"][name]:
            raise InvalidFile(
                f"the run in {place} was made with {name} {version}, and this is {here['made_with'][name]}, which may draw "
                "other numbers. Go on with that version, or start anew in another folder."
            )
    for part in ("environment", "functions", "settings"):
        for name in there[part].keys() | here[part].keys():
            old, new = there[part].get(name), here[part].get(name)
            if old != new and not (part == "settings" and name in MAY_CHANGE):
                raise InvalidInput(
                    f"the folder {place} holds another run: its {part} has {name} = {old!r}, and {new!r} is asked for. "
                    "Choose another folder (--out), or remove that run (--overwrite)."
                )


def _read_config(place: FilePath) -> dict[str, Any]:
    file = place / CONFIG
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["format"] != FORMAT or content["version"] != VERSION:
            raise InvalidFile(f"{file} is not a {FORMAT} of version {VERSION}.")
        Settings(**content["settings"])
        about = content["environment"]
        wanted = (about["id"], about["horizon"], about["n_actions"], about["n_states"], content["made_with"]["richobs"])
        if not (isinstance(wanted[1], int) and isinstance(wanted[2], int) and content["functions"]["log_size"] >= 0):
            raise InvalidFile(f"{file} is damaged: its environment is {about!r}.")
        return dict(content)
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidFile(f"there is no run in {place}: it has no {CONFIG}.") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidFile(f"{file} is damaged: {error!r}") from error


def _read_verification(place: FilePath, certificate: Certificate | None) -> Verification | None:
    """Returns what was found of the certificate that is there now, if it was checked."""
    if certificate is None or not (place / VERIFICATION).exists():
        return None
    try:
        content = json.loads((place / VERIFICATION).read_text(encoding="utf-8"))
        if content["certificate"] != _checksum(place / CERTIFICATE):
            return None
        return Verification(tuple(Finding(**f) for f in content["findings"]))
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidFile(f"{place / VERIFICATION} is damaged: {error!r}") from error


def _same_text(file: FilePath, text: str) -> bool:
    return file.exists() and file.read_text(encoding="utf-8") == text


def _checksum(file: FilePath) -> int:
    return zlib.crc32(file.read_bytes())


def _plain(progress: Progress) -> str:
    return json.dumps([[*vars(progress.event).values()], progress.episodes, progress.upper, progress.lower])


def _progress(body: str) -> Progress:
    (kind, phase, path, *rest), episodes, upper, lower = json.loads(body)
    return Progress(Event(kind, phase, tuple(path), *rest), episodes, upper, lower)


@contextlib.contextmanager
def _told(place: FilePath) -> Iterator[None]:
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
def _connected(place: FilePath, *, write: bool) -> Iterator[sqlite3.Connection]:
    """Opens a run's database; a reader sees whole transactions only, and may read while another process writes."""
    file = place / DATABASE
    with _told(place):
        if not write and not file.exists():
            raise InvalidFile(f"there is no run in {place}: it has no {DATABASE}.")
        how = "mode=rwc" if write else "mode=ro" if os.access(place, os.W_OK) else "immutable=1"
        db = sqlite3.connect(f"{file.absolute().as_uri()}?{how}", timeout=60, uri=True)
    try:
        with _told(place):
            broken = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            if broken != "ok":
                raise InvalidFile(f"{file} is damaged: {broken}. Nothing was overwritten.")
            if write:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute(
                    "PRAGMA synchronous = NORMAL"
                )  # safe against a killed process; a power cut may cost the last draws
                db.executescript(SCHEMA)
        yield db
        if write:
            with contextlib.suppress(sqlite3.Error):  # one plain file, unless someone is reading
                db.execute("PRAGMA journal_mode = DELETE")
    finally:
        db.close()


@contextlib.contextmanager
def _held(place: FilePath) -> Iterator[None]:
    """Holds the folder's lock, which ends with the process however that ends."""
    with _told(place):
        lock = sqlite3.connect(place / LOCK, timeout=0, isolation_level=None)
    try:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise StoreError(f"the folder {place} cannot be written: {error}.") from error
            raise StoreError(f"another process is running in {place}. Wait for it, or choose another folder.") from None
        yield
    finally:
        lock.close()


def _is_held(place: FilePath) -> bool:
    """Whether a process is running in a folder."""
    if not (place / LOCK).exists() or not os.access(place / LOCK, os.W_OK):
        return False
    try:
        with _held(place):
            return False
    except StoreError:
        return True

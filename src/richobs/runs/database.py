"""A database file from anybody: opened so that nothing in it is carried out, and refused unless its tables are exactly ours.

The order follows SQLite's advice for files that may be hostile (sqlite.org/security.html): limits first, then the schema
is compared, then the pages are checked, and only then anything is read.

`LinkedRows` keeps numbered rows of several kinds in one. The link of a row is the SHA-256 of its content and of the link
before it, so a row that was altered, removed, inserted or moved is noticed. The links are no signature.
"""

import functools
import hashlib
import os
import re
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from richobs.core.errors import InvalidFile, StoreError
from richobs.core.files import fold, is_there, sync_folder, unfold

LOG, JOURNAL, OTHERS = "-wal", "-journal", ("-shm", "-journal")  # how files beside a database end
UNFINISHED = ".new-"  # how the folder is called in which a database is made
LARGEST_BODY = 256 * 2**20  # bytes of one value in a row
STEPS, STEPS_PER_BYTE = 10_000_000, 20  # of SQLite's virtual machine, that reading a database may take
AT_ONCE = 100_000  # steps between two looks at their number
PIECE = LARGEST_BODY // 4  # bytes of what a row carries that are kept together; the rest follows in further pieces
LARGEST_ANSWER = 64 * PIECE  # bytes of what one row carries
LATEST = 1e11  # seconds since 1970 of a row, so that they are a date
ROWS = """
CREATE TABLE rows (kind TEXT, k INTEGER, text BLOB, checksum TEXT, real INTEGER, at REAL, link TEXT, PRIMARY KEY (kind, k));
CREATE TABLE pieces (kind TEXT, k INTEGER, place INTEGER, body BLOB, PRIMARY KEY (kind, k, place));
CREATE TABLE heads (kind TEXT PRIMARY KEY, link TEXT);
CREATE INDEX calls ON rows (text) WHERE kind = 'call';
"""
LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: LARGEST_BODY + 2**20,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 10_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 50,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 50,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 2,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 50,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}


@contextmanager
def opened(
    database: FilePath, schema: str, *, write: bool = False, immutable: bool = False
) -> Iterator[sqlite3.Connection]:
    """Opens a database in WAL mode that nobody else has open, and refuses one that is not exactly of a schema.

    Before SQLite looks at anything else, it plays back a rollback journal beside a database, and then removes the files
    that the journal names, wherever they are; it also follows links. So links and journals are refused: a database of ours
    is in WAL mode and never has a journal.

    Args:
        database: its file. Who calls holds a lock, or has it as a private copy, or declares it immutable.
        schema: the statements with which we make one.
        write: whether rows may be written.
        immutable: nothing is written, nor looked at beside the file: it has no log.

    Raises:
        InvalidFile: links or journals, other tables, indexes, triggers or views, or broken pages.
        StoreError: it is to be written, and the file has a second name, under which it would change too.
    """
    refuse_strangers(database)
    if write and any(os.lstat(file).st_nlink > 1 for file in (database, beside(database, LOG)) if is_there(file)):
        raise StoreError(
            f"{database}, or its log, has a second name (a hard link): what is written here would change there too. Copy "
            "the folder, and go on in the copy."
        )
    options = "mode=ro&immutable=1" if immutable else "mode=rw"
    db = sqlite3.connect(
        f"{database.absolute().as_uri()}?{options}", uri=True, isolation_level=None, check_same_thread=False
    )
    with closing(db):
        db.execute("PRAGMA locking_mode = EXCLUSIVE")  # no shared memory, no -shm beside it
        with bounded(db, database):
            restrict(db)
            check_database(db, database, schema)
            if write and db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                raise InvalidFile(f"{database} is damaged: it is not in WAL mode. Nothing was overwritten.")
        if not write:
            db.execute("PRAGMA query_only = ON")
        yield db


@contextmanager
def opened_by_reader(database: FilePath, schema: str) -> Iterator[sqlite3.Connection]:
    """Opens a database that another process may be writing; nothing in its folder is written.

    Where there is a log, both are copied to a private folder, and read there. SQLite is never let near a database that
    another process writes: its own locks end when that process copies its folder. What is read while it changes may be
    damaged; who reads has to look whether something changed, and then to read again.

    Raises:
        FileNotFoundError: it is not there.
        InvalidFile: as `opened`.
        StoreError: there is no room for a copy.
    """
    refuse_strangers(database)
    log = beside(database, LOG)
    if not (is_there(log) and log.stat().st_size):
        database.stat()
        with opened(database, schema, immutable=True) as db:
            yield db
        return
    with tempfile.TemporaryDirectory(prefix="richobs-") as private:
        copy = FilePath(private) / database.name
        size, free = database.stat().st_size + log.stat().st_size, shutil.disk_usage(private).free
        if size > free:
            raise StoreError(
                f"{database} has a log, so it is read as a copy, and the temporary folder has {free:,} bytes of room for "
                f"{size:,}. Set TMPDIR to a folder with more."
            )
        shutil.copyfile(database, copy)  # first: whatever of the log is in it, the copy of the log has too
        shutil.copyfile(log, beside(copy, LOG))
        with opened(copy, schema) as db:
            yield db


def make_database(database: FilePath, schema: str) -> None:
    """Makes a database, whole or not at all; who calls holds a lock.

    All of it is in the file before that gets its name. Made in WAL mode, it would be in the log at first, and what goes
    wrong when the log is copied into the file as it is closed (a full disk) is not told.
    """
    with tempfile.TemporaryDirectory(dir=database.parent, prefix=UNFINISHED) as folder:
        new = FilePath(folder) / database.name
        with closing(sqlite3.connect(new, isolation_level=None)) as db:
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
            db.executescript(f"BEGIN; {schema} COMMIT;")
            if db.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":  # for the life of the run
                raise StoreError(f"{database} cannot be made: SQLite has no WAL mode here. Choose another disk.")
        for file in (beside(database, end) for end in (LOG, *OTHERS)):  # of a database that is not there any more
            file.unlink(missing_ok=True)
        sync_folder(database.parent)  # no log of another database beside the new one, also after a power cut
        os.replace(new, database)
        sync_folder(database.parent)


def remove_unfinished(folder: FilePath) -> None:
    """Removes databases that a killed process had begun to make; who calls holds a lock."""
    for left in folder.iterdir():
        if re.fullmatch(rf"{re.escape(UNFINISHED)}\w{{8}}", left.name) and left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)


def beside(database: FilePath, end: str) -> FilePath:
    """Returns a file that SQLite may have beside a database: its log, or what ours has not (OTHERS)."""
    return database.with_name(database.name + end)


def refuse_strangers(database: FilePath) -> None:
    """Refuses links and the like in the place of a database and its log, and a rollback journal beside it.

    Raises:
        InvalidFile: there is such a thing. No process of ours makes one.
    """
    is_there(database)
    is_there(beside(database, LOG))
    journal = beside(database, JOURNAL)
    if os.path.lexists(journal):
        raise InvalidFile(
            f"{journal} is not a file of ours, whose databases have no rollback journal: SQLite would carry out what it "
            "says, on files anywhere. Nothing was read or overwritten."
        )


def restrict(db: sqlite3.Connection) -> None:
    """Sets limits, and turns off what a database can do besides holding rows."""
    for limit, most in LIMITS.items():
        db.setlimit(limit, most)
    if sys.version_info >= (3, 12):
        db.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
        for feature in (
            sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER,
            sqlite3.SQLITE_DBCONFIG_ENABLE_VIEW,
            sqlite3.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION,
            sqlite3.SQLITE_DBCONFIG_TRUSTED_SCHEMA,
        ):
            db.setconfig(feature, False)
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
        db.execute(f"PRAGMA {pragma}")


@contextmanager
def bounded(db: sqlite3.Connection, database: FilePath) -> Iterator[None]:
    """Stops statements that take more steps than reading a database of this size can take.

    Raises:
        InvalidFile: they took more.
    """
    size = 0
    for file in (database, beside(database, LOG)):
        with suppress(FileNotFoundError):
            size += file.stat().st_size
    left = [(STEPS + STEPS_PER_BYTE * size) // AT_ONCE]

    def look() -> int:
        left[0] -= 1
        return int(left[0] < 0)

    db.set_progress_handler(look, AT_ONCE)
    try:
        yield
    except sqlite3.OperationalError as error:
        if left[0] >= 0:
            raise
        raise InvalidFile(
            f"{database} is damaged: reading it takes more steps than a database of {size:,} bytes can need. Nothing was "
            "overwritten."
        ) from error
    finally:
        db.set_progress_handler(None, 0)


def check_database(db: sqlite3.Connection, database: FilePath, schema: str) -> None:
    """Refuses a database that is not exactly of a schema, before any of its rows is read, and one with broken pages.

    Args:
        db: the restricted connection; nothing was read through it before.
        database: its file, for the sentence.
        schema: the statements with which we make one.

    Raises:
        InvalidFile: it has other tables, indexes, triggers or views, or is damaged.
    """
    known = _objects(schema)
    columns = "type, substr(name, 1, 100), substr(tbl_name, 1, 100), substr(sql, 1, 2000)"
    found = db.execute(f"SELECT {columns} FROM sqlite_master").fetchmany(len(known) + 20)
    if sorted(map(repr, found)) != sorted(map(repr, known)):
        strange = next((row for row in found if row not in known), ("nothing", "besides", "", ""))
        missing = next((row[1] for row in known if row not in found), None)
        lacks = "" if missing is None else f", and lacks {missing}"
        raise InvalidFile(
            f"{database} is damaged, or no database of ours: it has the {strange[0]} {str(strange[1])[:40]!r}{lacks}. "
            "Nothing was read or overwritten."
        )
    broken = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if broken != "ok":
        raise InvalidFile(f"{database} is damaged: {str(broken)[:200]}. Nothing was overwritten.")


@functools.cache
def _objects(schema: str) -> list[tuple[str, str, str, str | None]]:
    """Returns what a database of a schema lists: type, name, table and SQL of everything in it."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(schema)
        return [tuple(row) for row in db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")]


class Row(NamedTuple):
    """What a row holds, and its link."""

    k: int  # its number among the rows of its kind
    text: Any  # bytes where it is folded, else a text
    checksum: str  # SHA-256 of the bytes that it carries
    real: int  # episodes that were really played since the row before it, whatever its kind
    at: float  # seconds since 1970
    link: str  # SHA-256 of the link before it, and of all this

    def follows(self, before: str) -> "Row":
        """Returns the row with the link that it has after another row."""
        return self._replace(link=sha256(repr((before, *self[:-1])).encode()))


class LinkedRows:
    """Rows of several kinds in a database, each kind numbered from 0; all that is written is linked."""

    def __init__(self, db: sqlite3.Connection, file: FilePath, start: str, most: Mapping[str, int], longest: int):
        """Takes an open database.

        Args:
            db: made with `ROWS`.
            file: of the database, for the sentences.
            start: what the links of all kinds begin with.
            most: how many rows of each kind there may be.
            longest: characters that the text of a row may have.
        """
        self.db, self.longest, self._file, self._most = db, longest, file, most
        self._lock = threading.RLock()  # environments are played by several threads
        self._before = {
            kind: Row(-1, "", kind, 0, 0.0, "").follows(start) for kind in most
        }  # the first row of each kind
        self._last = dict(self._before)  # of each kind, its text as it was before it was folded

    def check(self) -> None:
        """Raises InvalidFile where rows are too many or too long, or were altered, removed, inserted or moved."""
        sizes = "SELECT kind, count(*), max(length(text)) FROM rows GROUP BY kind LIMIT 20"
        for kind, n, longest in self.db.execute(sizes).fetchall():
            most = self._most.get(kind, 0)
            if n > most:
                raise self._broken(f"it has {n:,} rows of kind {str(kind)[:40]!r}, and a run keeps at most {most:,}")
            if (longest or 0) > self.longest:
                raise self._broken(
                    f"a row of kind {kind} has {longest:,} characters, and a run writes at most {self.longest:,}"
                )
        heads = dict(self.db.execute("SELECT kind, link FROM heads").fetchmany(20))
        for kind, last in self._before.items():
            for row in self.each(kind):
                if row != row.follows(last.link) or row.k != last.k + 1:
                    raise self._broken(f"{kind} {str(row.k)[:40]} does not follow from what stands before it")
                if (type(row.k), type(row.real), type(row.at)) != (int, int, float) or not 0 <= row.at <= LATEST:
                    raise self._broken(f"{kind} {row.k} is of {str(row.at)[:40]}, after {str(row.real)[:40]} episodes")
                last = row
            if last.link != heads.get(kind, self._before[kind].link):
                raise self._broken(f"the last rows of kind {kind} are missing")
            self._last[kind] = last

    def each(self, kind: str, which: str = "ORDER BY k", *values: int | str) -> Iterator[Row]:
        """Yields the rows of a kind in order, or those that a condition in SQL selects."""
        found = self.db.execute(f"SELECT {', '.join(Row._fields)} FROM rows WHERE kind = '{kind}' {which}", values)
        return map(Row._make, found)

    def count(self, kind: str) -> int:
        """Returns how many rows of a kind there are."""
        return self._last[kind].k + 1

    def texts(self, kind: str) -> Iterator[str]:
        """Yields the texts of a kind, each of which was folded with the one before it."""
        before = ""
        for row in self.each(kind):
            before = unfold(row.text, before, self.longest)
            yield before
        self._last[kind] = self._last[kind]._replace(text=before)

    def get(self, kind: str, column: str, value: int | str) -> Row | None:
        """Returns the row of a kind with a value in a column; None where there is none."""
        with self._lock:
            return next(self.each(kind, f"AND {column} = ?", value), None)

    def body(self, kind: str, row: Row) -> bytes:
        """Returns the bytes that a row carries.

        Raises:
            InvalidFile: they are not those that it was written with, or too many.
        """
        with self._lock:
            own = (kind, row.k)
            size = "SELECT coalesce(sum(length(body)), 0) FROM pieces WHERE kind = ? AND k = ?"
            if self.db.execute(size, own).fetchone()[0] <= LARGEST_ANSWER:
                found = self.db.execute(
                    "SELECT body FROM pieces WHERE kind = ? AND k = ? ORDER BY place", own
                ).fetchall()
                whole = b"".join(piece for (piece,) in found if isinstance(piece, bytes))
                if sha256(whole) == row.checksum and all(isinstance(piece, bytes) for (piece,) in found):
                    return whole
        raise InvalidFile(f"{self._file} is damaged: {kind} {row.k} does not match its checksum.")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Holds the lock; all that is written inside is written, or nothing is."""
        with self._lock:
            before = dict(self._last)
            try:
                with self.db:
                    self.db.execute("BEGIN IMMEDIATE")
                    yield
            except BaseException:
                self._last = before
                raise

    def append(self, kind: str, text: str, body: bytes = b"", *, real: int = 0, folded: bool = False) -> None:
        """Writes the next row of a kind, within a transaction.

        Args:
            kind: one of those that the database keeps.
            text: what the row says.
            body: bytes that it carries.
            real: episodes that were really played since the row before it.
            folded: keep only what is new in the text, compared with the row before it.
        """
        last = self._last[kind]
        k = last.k + 1
        self.check_room(kind, k, len(body), len(text))
        at = min(max(time.time(), 0.0), LATEST)  # clocks are wrong now and then
        row = Row(k, fold(text, last.text) if folded else text, sha256(body), real, at, "").follows(last.link)
        self.db.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)", (kind, *row))
        for place, start in enumerate(range(0, len(body), PIECE)):
            piece = memoryview(body)[start : start + PIECE]
            self.db.execute("INSERT INTO pieces VALUES (?, ?, ?, ?)", (kind, k, place, piece))
        self._set_last(kind, row._replace(text=text))

    def clear(self, kind: str) -> int:
        """Removes all rows of a kind, within a transaction; returns the real episodes that they counted."""
        if self._last[kind].k < 0:
            return 0
        real = self.db.execute("SELECT sum(real) FROM rows WHERE kind = ?", (kind,)).fetchone()[0]
        for table in ("rows", "pieces"):
            self.db.execute(f"DELETE FROM {table} WHERE kind = ?", (kind,))
        self._set_last(kind, self._before[kind])
        return int(real)

    def _set_last(self, kind: str, row: Row) -> None:
        self._last[kind] = row
        self.db.execute("INSERT OR REPLACE INTO heads VALUES (?, ?)", (kind, row.link))

    def check_room(self, kind: str, k: int, size: int = 0, text: int = 0) -> None:
        """Raises StoreError for a row that could not be read again: its number, bytes and characters are too large."""
        most = self._most[kind]
        if k >= most or size > LARGEST_ANSWER or text > self.longest:
            raise StoreError(
                f"the folder {self._file.parent} cannot keep row {k + 1:,} with {size:,} bytes and {text:,} characters: a "
                f"run keeps {most:,} rows of {LARGEST_ANSWER:,} bytes and {self.longest:,} characters. Play fewer "
                "episodes at once (`at_once` of the environment), or run without a folder. What was stored stays as it is."
            )

    def _broken(self, what: str) -> InvalidFile:
        return InvalidFile(
            f"{self._file} is damaged: {what}. Something in it or in the configuration beside it was altered, removed or "
            "inserted. Nothing was overwritten."
        )


def sha256(body: bytes) -> str:
    """Returns the SHA-256 of bytes, as text."""
    return hashlib.sha256(body).hexdigest()

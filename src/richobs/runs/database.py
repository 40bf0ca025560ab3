"""A database file from anybody: opened so that nothing in it is carried out, and refused unless its tables are exactly ours.

The order follows SQLite's advice for files that may be hostile (sqlite.org/security.html): limits first, then the schema
is compared, then the pages are checked, and only then anything is read.
"""

import functools
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path as FilePath

from richobs.core.errors import InvalidFile
from richobs.core.files import is_regular

LARGEST_BODY = 256 * 2**20  # bytes of one value in a row
STEPS, STEPS_PER_BYTE = 10_000_000, 20  # of SQLite's virtual machine, that reading a database may take
AT_ONCE = 100_000  # steps between two looks at their number
JOURNAL_MAGIC = (
    b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"  # how a rollback journal begins, and ends where it names another file
)
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


def refuse_journal_of_others(database: FilePath) -> None:
    """Refuses a journal beside a database that names another file: SQLite would remove that file once it is done.

    Raises:
        InvalidFile: there is one, or a pipe or folder stands in the place of a file. No process of ours writes that.
    """
    journal = database.with_name(database.name + "-journal")
    for file in (database, journal, database.with_name(database.name + "-wal")):
        with suppress(FileNotFoundError):  # the last process that uses a database removes what is beside it
            if not is_regular(file):
                raise InvalidFile(f"{file} is damaged: it is not a file. Nothing was overwritten.")
    try:
        with open(journal, "rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - len(JOURNAL_MAGIC)))
            last = stream.read()
    except FileNotFoundError:
        return
    if last == JOURNAL_MAGIC and size > len(JOURNAL_MAGIC):
        raise InvalidFile(f"{journal} names a file beside those of the run: no run writes that. Nothing was read.")


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
    for file in (database, database.with_name(database.name + "-wal")):
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
            f"{database} is damaged, or not the database of a run: it has the {strange[0]} {str(strange[1])[:40]!r}{lacks}. "
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

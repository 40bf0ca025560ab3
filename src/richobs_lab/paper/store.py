"""What was measured, on disk: every finished piece is committed at once, and one process at a time may write.

A piece is known by its statement, its plain values and the digest of the source that it runs, so an interrupted run goes on
where it was, nothing is measured twice, and what other code measured is never used.
"""

import hashlib
import json
import sqlite3
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from richobs.core.errors import InvalidFile, StoreError
from richobs.core.files import held, is_there, make_folder
from richobs.runs.database import make_database, opened, remove_unfinished
from richobs_lab.paper.base import Plain

DATABASE, LOCK = "paper.sqlite", "paper.lock"
SCHEMA = (
    "CREATE TABLE measured (statement TEXT, piece TEXT, source TEXT, result TEXT NOT NULL, "
    "digest TEXT NOT NULL, PRIMARY KEY (statement, piece, source));"
)


def canonical(value: Any) -> str:
    """Returns plain values as JSON, always in the same words; refuses what JSON does not have (NaN, NumPy's numbers)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(*texts: str) -> str:
    return hashlib.blake2b(repr(texts).encode(), digest_size=16).hexdigest()


class Store:
    """The measurements of one folder; a context manager that holds the folder's lock while it is open."""

    def __init__(self, folder: Path):
        """Opens or makes `folder/paper.sqlite`.

        Raises:
            InvalidFile: it is damaged, or not a file of this command.
            StoreError: another process is running there, or the folder cannot be written.
        """
        self.file = folder / DATABASE
        with ExitStack() as stack:
            try:
                make_folder(folder)
                stack.enter_context(held(folder / LOCK))
                remove_unfinished(folder)
                if not is_there(self.file):
                    make_database(self.file, SCHEMA)
                self._db = stack.enter_context(opened(self.file, SCHEMA, write=True))
                self._db.execute("PRAGMA synchronous = FULL")
            except (OSError, sqlite3.OperationalError) as error:
                raise StoreError(f"the folder {folder} cannot be written: {error}. What was stored stays.") from error
            except (sqlite3.DatabaseError, InvalidFile) as error:
                raise self._damaged(error) from error
            self._opened = stack.pop_all()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def find(self, statement: str, piece: Plain, source: str) -> Plain | None:
        """Returns what was measured of a piece by that source (`sources.source_digest`), or None."""
        key = (statement, canonical(piece), source)
        try:
            row = self._db.execute(
                "SELECT result, digest FROM measured WHERE statement = ? AND piece = ? AND source = ?", key
            ).fetchone()
            if row is None:
                return None
            if row[1] != _digest(*key, row[0]):
                raise ValueError(f"what is stored of {key[1]} was changed")
            return dict(json.loads(row[0]))
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            raise self._damaged(error) from error

    def add(self, statement: str, piece: Plain, source: str, result: str) -> None:
        """Commits what was measured of a piece by that source, as canonical JSON."""
        key = (statement, canonical(piece), source)
        try:
            self._db.execute(
                "INSERT OR REPLACE INTO measured VALUES (?, ?, ?, ?, ?)", (*key, result, _digest(*key, result))
            )
        except sqlite3.Error as error:
            raise StoreError(f"{self.file} cannot be written: {error}. What was stored stays as it is.") from error

    def _damaged(self, error: Exception) -> InvalidFile:
        return InvalidFile(
            f"{self.file} is damaged or is no file of `richobs paper` ({error}). Move it away to measure again, or choose "
            "another --out."
        )

"""What was measured, on disk: every finished piece is committed at once, and one process at a time may write.

A piece is known by its statement, its plain values and the digest of the source that it runs, so an interrupted run goes on
where it was, nothing is measured twice, and what other code measured is never used.
"""

import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

from richobs import InvalidFile, InvalidInput
from richobs_lab.paper.base import Plain

APPLICATION = 0x52424F50  # SQLite's mark of whose file it is: "RBOP"
LAYOUT = 2


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
            InvalidInput: another process is writing there.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "paper.sqlite"
        self._db = sqlite3.connect(self.file, timeout=0, isolation_level=None)
        try:
            self._open()
        except sqlite3.OperationalError as error:
            self._db.close()
            if "locked" not in str(error):
                raise InvalidFile(f"{self.file} cannot be used: {error}.") from error
            raise InvalidInput(
                f"another process, perhaps another `richobs paper`, is using {self.file}. Wait until it is done, or choose "
                "another --out."
            ) from error
        except (sqlite3.DatabaseError, InvalidFile) as error:
            self._db.close()
            raise self._damaged(error) from error

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

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
        self._db.execute(
            "INSERT OR REPLACE INTO measured VALUES (?, ?, ?, ?, ?)", (*key, result, _digest(*key, result))
        )

    def _open(self) -> None:
        # The lock is taken with the first transaction and held until the connection closes, or the process dies.
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("BEGIN EXCLUSIVE")
        (mark,) = self._db.execute("PRAGMA application_id").fetchone()
        (layout,) = self._db.execute("PRAGMA user_version").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (mark, layout) == (APPLICATION, 1):  # it does not say which source measured, so nothing of it can be used
            self._db.execute("DROP TABLE measured")
            mark = tables = 0
        if mark == 0 and tables == 0:
            self._db.execute(
                "CREATE TABLE measured (statement TEXT, piece TEXT, source TEXT, result TEXT NOT NULL, "
                "digest TEXT NOT NULL, PRIMARY KEY (statement, piece, source))"
            )
            self._db.execute(f"PRAGMA application_id = {APPLICATION}")
            self._db.execute(f"PRAGMA user_version = {LAYOUT}")
        elif (mark, layout) != (APPLICATION, LAYOUT):
            raise InvalidFile("it belongs to another program, or to another version of this one")
        self._db.execute("COMMIT")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        faults = [row[0] for row in self._db.execute("PRAGMA quick_check")]
        if faults != ["ok"]:
            raise InvalidFile("; ".join(map(str, faults)))

    def _damaged(self, error: Exception) -> InvalidFile:
        return InvalidFile(
            f"{self.file} is damaged or is no file of `richobs paper` ({error}). Move it away to measure again, or choose "
            "another --out."
        )

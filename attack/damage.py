"""Files with one thing changed: a byte of any file, or a field of a JSON file or of a row of the database.

A forger may compute again whatever needs no secret: the digest that a verdict names, and the links from row to row.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import pathlib
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from attack.victims import Files, Victim
from richobs.core.files import fold, unfold
from richobs.runs import store
from richobs.runs.certificate import Certificate
from richobs.runs.store import CERTIFICATE, CONFIG, DATABASE, POLICY, RECORDED, REPORT, VERIFICATION

RAW = "@raw@"  # stands for a text that JSON's writer would not write
MADE_ANEW = 1_000  # bytes of a file that is made anew from others, which are damaged
MOST_ROWS = 20_000  # of a table whose links are computed again
MOST_STEPS = 200  # times 100,000 of SQLite's virtual machine, that computing them again may take
LONGEST = 2**26  # bytes of a text in a row
DEEP = "[" * 100_000 + "]" * 100_000
SEEN_BY = {  # the actions that can notice a change of a file; the first of them most often
    CERTIFICATE: ("verify", "show", "verify", "report", "verify", "resume", "load"),
    CONFIG: ("show", "resume", "runs", "report"),
    POLICY: ("load", "verify", "resume"),
    RECORDED: ("load", "verify", "resume"),
    VERIFICATION: ("show", "report"),
    REPORT: ("report", "resume"),
}
SEES_DATABASE = ("resume", "show", "resume", "report", "runs")
TABLES = ("heads", "pieces", "rows")
Alter = Callable[[Files], Files]


@dataclasses.dataclass(frozen=True)
class Case:
    """One change of a run's files, and what is done with them then."""

    group: str
    about: str  # what was changed, in words
    victim: str
    alter: Alter
    actions: tuple[str, ...]
    is_forged: bool = False  # whether what needs no secret was computed again
    arrange: Callable[[pathlib.Path], None] | None = None  # changes the folder itself: links and the like


def sampled(rng: np.random.Generator, cases: Sequence[Case], n: int) -> list[Case]:
    """Returns n of the cases, spread evenly over them; all where there are fewer."""
    if n >= len(cases):
        return list(cases)
    places = (np.arange(n) + rng.random()) * len(cases) / n
    return [cases[int(place)] for place in places]


def damaged_bytes(victims: Sequence[Victim], rng: np.random.Generator, n: int) -> list[Case]:
    """Returns n cases of one byte flipped, removed or doubled, or of a file cut short, spread evenly over all files.

    Of files that nobody reads back, or that are made anew from others, only some bytes count.
    """
    places: list[tuple[Victim, str, int]] = []
    for victim in victims:
        for name, body in victim.files.items():
            few = name == REPORT or name.endswith("-shm")
            step = max(1, len(body) // MADE_ANEW) if few else 1
            places += [(victim, name, at) for at in range(0, len(body), step)]
    chosen = (np.arange(n) + rng.random()) * len(places) / max(n, 1)
    cases = []
    for i, place in enumerate(chosen):
        victim, name, at = places[int(place)]
        how = ("flipped", "removed", "doubled", "cut")[i % 4]
        actions = SEEN_BY.get(name, SEES_DATABASE)
        change = _byte_changed(name, at, how, 1 << int(rng.integers(8)))
        action = actions[(i // 4) % len(actions)]
        cases.append(Case("bytes", f"{name}: byte {at} {how}", victim.name, change, (action,)))
    return cases


def _byte_changed(name: str, at: int, how: str, bit: int) -> Alter:
    def alter(files: Files) -> Files:
        body = files[name]
        changed = {
            "flipped": body[:at] + bytes([body[at] ^ bit]) + body[at + 1 :],
            "removed": body[:at] + body[at + 1 :],
            "doubled": body[: at + 1] + body[at:],
            "cut": body[:at],
        }[how]
        return {**files, name: changed}

    return alter


def parts(content: Any, before: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yields the path of every part of plain values; of a list the first and the last entry."""
    pairs: list[tuple[str | int, Any]]
    if isinstance(content, dict):
        pairs = list(content.items())
    else:
        pairs = [(i, content[i]) for i in sorted({0, len(content) - 1}) if content]
    for key, value in pairs:
        yield (*before, key)
        if isinstance(value, dict | list):
            yield from parts(value, (*before, key))


def other_values(value: Any) -> Iterator[tuple[str, str]]:
    """Yields other values in a value's place, as a name and the text that a file then has there."""
    if isinstance(value, bool):
        yield "the opposite", json.dumps(not value)
    elif isinstance(value, int):
        for name, other in (("one more", value + 1), ("one less", value - 1), ("negated", -value - 7)):
            yield name, json.dumps(other)
        yield "as a float", json.dumps(float(value) if abs(value) < 2**53 else 0.5)
    elif isinstance(value, float):
        yield "an ulp more", json.dumps(math.nextafter(value, math.inf))
        yield "an ulp less", json.dumps(math.nextafter(value, -math.inf))
        yield "twice", json.dumps(2 * value)
    elif isinstance(value, str):
        yield "another text", json.dumps(value + "x")
        yield "a shorter text", json.dumps(value[:-1])
    plain = ("null", "[]", "{}", '"x"', "0", "0.25", "-1", "true", "NaN", "-Infinity", "1e999", '"\\u001b[2J\\ud800"')
    yield from ((text, text) for text in plain)
    yield "10^400", "1" + "0" * 400
    yield "5,000 digits", "9" * 5_000
    yield "nested 100,000 deep", DEEP
    yield "a long list", json.dumps([0] * 20_000)


def json_changes(body: bytes) -> list[tuple[str, Callable[[], bytes]]]:
    """Returns a JSON text with each of its parts altered, removed, or given twice: what is done, and what makes the text."""
    content = json.loads(body)
    found: list[tuple[str, Callable[[], bytes]]] = []
    for path in parts(content):
        value = _at(content, path)
        where = ".".join(map(str, path))
        for name, text in other_values(value):
            if text != json.dumps(value):
                found.append((f"{where}: {name}", functools.partial(_written, content, path, RAW, text)))
        if isinstance(path[-1], str):
            twice = f"{json.dumps(value)}, {json.dumps(path[-1])}: 0.25"
            found.append((f"{where}: removed", functools.partial(_written, content, path, ..., "")))
            found.append((f"{where}: given twice", functools.partial(_written, content, path, RAW, twice)))
    return found


def _written(content: Any, path: Sequence[str | int], value: Any, raw: str) -> bytes:
    """Returns the text of plain values with another one at a path, where a text stands instead of `RAW`."""
    return json.dumps(_with(content, path, value), indent=2, ensure_ascii=False).replace(f'"{RAW}"', raw).encode()


def _at(content: Any, path: Sequence[str | int]) -> Any:
    for key in path:
        content = content[key]
    return content


def _with(content: Any, path: Sequence[str | int], value: Any) -> Any:
    """Returns a copy with another value at a path; without it where the value is `...`."""
    result = json.loads(json.dumps(content))
    place = _at(result, path[:-1])
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return result


def altered_fields(victims: Sequence[Victim], rng: np.random.Generator, n: int) -> list[Case]:
    """Returns n cases of one altered field of a JSON file; of a certificate also with the verdict made to fit it."""
    cases = []
    for victim in victims:
        for name, most in ((CERTIFICATE, ("verify",)), (CONFIG, ("show",)), (VERIFICATION, ("show",))):
            if name not in victim.files:
                continue
            for i, (about, body) in enumerate(json_changes(victim.files[name])):
                also = SEEN_BY[name][i % len(SEEN_BY[name])]
                actions = tuple(dict.fromkeys((*most, also)))
                forged = name == CERTIFICATE and i % 2 == 1
                change = _file_put(name, body, make_fit=forged)
                cases.append(Case("fields", f"{name}: {about}", victim.name, change, actions, forged))
    return sampled(rng, cases, n)


def _file_put(name: str, body: Callable[[], bytes], *, make_fit: bool) -> Alter:
    def alter(files: Files) -> Files:
        changed = {**files, name: body()}
        return fitted(changed) if make_fit else changed

    return alter


def fitted(files: Files) -> Files:
    """Returns the files with a verdict and an end of the run that name the certificate there, where it can be read."""
    try:
        text = Certificate(json.loads(files[CERTIFICATE])).to_json()
    except (ValueError, RecursionError):
        return files
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    end = "UPDATE rows SET text = ? WHERE kind = 'end' AND k = (SELECT max(k) FROM rows WHERE kind = 'end')"
    changed = database_changed(_sql(end, json.dumps(["finished", digest])), relink=True)(files)
    if VERIFICATION in changed:
        verdict = {**json.loads(changed[VERIFICATION]), "certificate": digest}
        changed = {**changed, VERIFICATION: json.dumps(verdict).encode()}
    return changed


ROW_VALUES: tuple[tuple[str, Any], ...] = (
    *(("null", None), ("zero", 0), ("minus one", -1), ("2^63 - 1", 2**63 - 1), ("a half", 0.5), ("infinity", math.inf)),
    *(("text", "x"), ("empty", ""), ("bytes", b"\xff\0"), ("nested", DEEP), ("escapes", "\x1b[2J\u202e")),
    *(("a long text", "9" * 1_000_000), ("a path of 200,000", json.dumps([[0] * 200_000, 1, "search", "x", 0]))),
)


def altered_rows(victims: Sequence[Victim], rng: np.random.Generator, n: int) -> list[Case]:
    """Returns n cases of one altered, removed or copied row of a database, as it is or with all links made to fit."""
    cases = []
    for victim in victims:
        for about, change in _row_changes(victim.files):
            for forged in (False, True):
                actions = ("resume, then verify", "show", "report") if forged else ("resume", "show")
                words = f"{DATABASE}: {about}" + (", links made to fit" if forged else "")
                alter = database_changed(change, relink=forged)
                cases.append(Case("rows", words, victim.name, alter, actions, forged))
    return sampled(rng, cases, n)


def _row_changes(files: Files) -> Iterator[tuple[str, Callable[[sqlite3.Connection], None]]]:
    """Yields changes of the first, a middle and the last row of each kind in each table."""
    with opened(files) as db:
        groups = [(t, kind) for t in TABLES for (kind,) in db.execute(f"SELECT DISTINCT kind FROM {t} ORDER BY kind")]
        for table, kind in groups:
            keys = [key for (key,) in db.execute(f"SELECT rowid FROM {table} WHERE kind = ? ORDER BY rowid", (kind,))]
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            for key in sorted({*keys[:1], *keys[-1:], *keys[len(keys) // 2 :][:1]}):
                row = dict(
                    zip(columns, db.execute(f"SELECT * FROM {table} WHERE rowid = ?", (key,)).fetchone(), strict=True)
                )
                where = f"{kind} in {table}, {key}"
                yield f"{where} removed", _sql(f"DELETE FROM {table} WHERE rowid = ?", key)
                yield f"{where} moved", _sql(f"UPDATE OR REPLACE {table} SET rowid = rowid + 1 WHERE rowid = ?", key)
                for column in row:
                    put = f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?"
                    for name, value in ROW_VALUES:
                        if column != "k" or type(value) is int:
                            yield f"{where}.{column}: {name}", _sql(put, value, key)
                if table == "rows" and kind in store.FOLDED:
                    for name, body in json_changes(texts(db, kind)[keys.index(key)].encode()):
                        yield f"{where}.text: {name}", _text_put(kind, keys.index(key), body)


def _sql(statement: str, *values: Any) -> Callable[[sqlite3.Connection], None]:
    def change(db: sqlite3.Connection) -> None:
        db.execute(statement, values)

    return change


def texts(db: sqlite3.Connection, kind: str) -> list[str]:
    """Returns the texts of a kind of rows, each of which holds what is new since the row before."""
    found: list[str] = []
    for (body,) in db.execute("SELECT text FROM rows WHERE kind = ? ORDER BY k", (kind,)):
        found.append(unfold(body, found[-1] if found else "", LONGEST))
    return found


def put_texts(db: sqlite3.Connection, kind: str, changed: Sequence[str]) -> None:
    """Writes these texts back."""
    keys = [key for (key,) in db.execute("SELECT k FROM rows WHERE kind = ? ORDER BY k", (kind,))]
    before = ""
    for key, text in zip(keys, changed, strict=True):
        db.execute("UPDATE rows SET text = ? WHERE kind = ? AND k = ?", (fold(text, before), kind, key))
        before = text


def _text_put(kind: str, at: int, body: Callable[[], bytes]) -> Callable[[sqlite3.Connection], None]:
    def change(db: sqlite3.Connection) -> None:
        found = texts(db, kind)
        put_texts(db, kind, [*found[:at], body().decode(), *found[at + 1 :]])

    return change


@contextlib.contextmanager
def opened(files: Files) -> Iterator[sqlite3.Connection]:
    """Opens a copy of a run's database, to be read or changed."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        for name, body in files.items():
            if name in (DATABASE, f"{DATABASE}-wal"):
                (place / name).write_bytes(body)
        db = sqlite3.connect(place / DATABASE, isolation_level=None)
        try:
            yield db
        finally:
            db.close()


def database_changed(change: Callable[[sqlite3.Connection], None], *, relink: bool) -> Alter:
    """Returns an alteration of a database by SQL; with `relink`, the links from row to row are made to fit."""

    def alter(files: Files) -> Files:
        with opened(files) as db:
            change(db)
            if relink:
                steps = iter(range(MOST_STEPS))
                db.set_progress_handler(lambda: next(steps, None) is None, 100_000)  # a trigger may never end
                with contextlib.suppress(sqlite3.Error, TypeError):
                    relinked(db, json.loads(files[CONFIG]))
                db.set_progress_handler(None, 0)
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            file = db.execute("PRAGMA database_list").fetchone()[2]
            body = pathlib.Path(file).read_bytes()
        kept = {name: old for name, old in files.items() if not name.startswith(f"{DATABASE}-")}
        return {**kept, DATABASE: body}

    return alter


def relinked(db: sqlite3.Connection, config: dict[str, Any]) -> None:
    """Computes checksums and links of all rows again, as somebody does who may write the folder and has read the source.

    What has very many rows, or endlessly many, is left as it is.
    """
    if db.execute(f"SELECT 1 FROM rows LIMIT 1 OFFSET {MOST_ROWS}").fetchone() is not None:
        return
    for kind, key in db.execute("SELECT kind, k FROM rows").fetchall():
        pieces = db.execute("SELECT body FROM pieces WHERE kind = ? AND k = ? ORDER BY place", (kind, key)).fetchall()
        if all(isinstance(piece, bytes) for (piece,) in pieces):
            checksum = hashlib.sha256(b"".join(piece for (piece,) in pieces)).hexdigest()
            db.execute("UPDATE rows SET checksum = ? WHERE kind = ? AND k = ?", (checksum, kind, key))
    rows = store._rows(db, pathlib.Path(), config)
    for kind, last in rows._before.items():
        for row in list(rows.each(kind)):
            last = row.follows(last.link)
            db.execute("UPDATE rows SET link = ? WHERE kind = ? AND k = ?", (last.link, kind, row.k))
        db.execute("INSERT OR REPLACE INTO heads VALUES (?, ?)", (kind, last.link))

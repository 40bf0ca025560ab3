"""Files that somebody made to do harm: archives, databases, certificates and links."""

import functools
import io
import json
import os
import pathlib
import pickle
import sqlite3
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from attack.damage import Alter, Case, database_changed, put_texts, texts
from attack.victims import Files, Victim
from richobs.core.files import pack
from richobs.runs.store import CERTIFICATE, CONFIG, DATABASE, LOCK, POLICY, RECORDED, VERIFICATION

MARKER = "code-was-run"  # a file beside the run's folder, which only hostile code writes
LARGE = 2**31  # bytes that a bomb expands to
SLOW = 2**25  # the same, for kinds of compression that take long
ZEROS = b"\0" * 2**20
EVERYTHING = ("verify", "show", "runs", "report", "report with figures", "resume", "load")


def cases(victims: Sequence[Victim]) -> list[Case]:
    """Returns all hostile files."""
    by_name = {victim.name: victim for victim in victims}
    found = [
        *_archives(by_name["recorded"]),
        *_databases(by_name["betting"]),
        *_databases(by_name["own unfinished"]),
        *_certificates(by_name["betting"]),
        *_links(by_name["recorded"]),
    ]
    return [case for case in found if case.victim in by_name]


class _Hostile:
    """Writes the marker when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (MARKER,)


def _npy(descr: str, shape: str, data: bytes = b"", *, order: str = "False", extra: str = "") -> bytes:
    """Returns an array's file with a header of one's own."""
    header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, {extra}}}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) % 2**16) + header + data


def _zip(members: Iterable[tuple[str, bytes]], how: int = zipfile.ZIP_STORED) -> bytes:
    """Returns an archive."""
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", how) as archive:
        warnings.simplefilter("ignore", UserWarning)  # a name may come twice here
        for name, body in members:
            archive.writestr(zipfile.ZipInfo(name), body, how)
    return stream.getvalue()


def _members(body: bytes) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


@functools.cache
def _bomb(how: int, size: int = LARGE) -> bytes:
    """Returns an archive of one array that expands to `size` bytes."""
    stream = io.BytesIO()
    with (
        zipfile.ZipFile(stream, "w", how, compresslevel=1) as archive,
        archive.open("0/values.npy", "w", force_zip64=True) as member,
    ):
        member.write(_npy("'<f8'", f"({size // 8},)"))
        for _ in range(size // len(ZEROS)):
            member.write(ZEROS)
    return stream.getvalue()


def _understated(body: bytes, size: int) -> bytes:
    """Returns an archive whose directory says that its last member expands to `size` bytes."""
    at = body.rindex(b"PK\x01\x02")
    return body[: at + 24] + struct.pack("<I", size) + body[at + 28 :]


def _archives(victim: Victim) -> list[Case]:
    """Archives in the place of the policy, and of the recorded episodes."""
    seen = ("load", "verify", "resume")
    return [
        Case("archives", f"{name}: {about}", victim.name, _put(name, make), seen, True)
        for name in (POLICY, RECORDED)
        for about, make in _archive_kinds(_members(victim.files[name]))
    ]


def _archive_kinds(own: list[tuple[str, bytes]]) -> list[tuple[str, Callable[[], bytes]]]:
    """Returns archives of all kinds, each with what is wrong with it, from the members of a good one."""
    first, body = own[0]
    objects = pickle.dumps(np.array([_Hostile()], dtype=object))
    with_object = _npy("'|O'", "(1,)", pickle.dumps(_Hostile()))
    deep = "(" * 4_000 + ")" * 4_000
    kinds: list[tuple[str, Callable[[], bytes]]] = [
        ("a deflate bomb", lambda: _bomb(zipfile.ZIP_DEFLATED)),
        ("a bzip2 bomb", lambda: _bomb(zipfile.ZIP_BZIP2, SLOW)),
        ("an lzma bomb", lambda: _bomb(zipfile.ZIP_LZMA, SLOW)),
        ("a deflate bomb that says it is small", lambda: _understated(_bomb(zipfile.ZIP_DEFLATED), 64)),
        ("nothing", lambda: b""),
        ("a pickle", lambda: objects),
        ("an array without an archive", lambda: body),
        ("text", lambda: b"PK\x03\x04" + b"x" * 4_000),
        ("an empty archive", lambda: _zip([])),
        ("20,000 members", lambda: _zip([*own, *((f"{i}/values.npy", body) for i in range(20_000))])),
        ("20,000 members of one name", lambda: _zip([(first, body)] * 20_000)),
        ("an archive within", lambda: _zip([(first, _zip(own))])),
        ("garbage in front", lambda: b"#!/bin/sh\n" * 100 + _zip(own)),
        ("encrypted", lambda: _flagged(_zip(own))),
        ("compressed by itself", lambda: _zip(own, zipfile.ZIP_DEFLATED)),
    ]
    names = ("/etc/richobs.npy", "../../richobs.npy", "a\\b.npy", "\x1b[2J.npy", "x" * 60_000 + ".npy", "")
    kinds += [(f"a member named {name[:20]!r}", functools.partial(_zip, [*own, (name, body)])) for name in names]
    headers = {
        "Python objects": with_object,
        "an object dtype without data": _npy("'|O'", "(1000000,)"),
        "a huge shape": _npy("'<f8'", "(1000000000000,)", b"\0" * 64),
        "an overflowing shape": _npy("'<f8'", "(4294967296, 4294967296)", b"\0" * 64),
        "a negative shape": _npy("'<f8'", "(-1,)", b"\0" * 64),
        "zeros in a shape": _npy("'<f8'", "(0, 1000000000000000000, 1000000000000000000)"),
        "a shape of 10^400": _npy("'<f8'", f"({10**400},)"),
        "a shape of 60 axes": _npy("'<f8'", f"({'1, ' * 60})", b"\0" * 8),
        "a shape that is True": _npy("'<f8'", "(True,)", b"\0" * 8),
        "a dtype of nothing": _npy("'|V0'", "(1000000000000,)"),
        "a dtype of fields": _npy("[('a', '<f8'), ('b', '|O')]", "(1,)", b"\0" * 16),
        "a dtype of subarrays": _npy("('<f8', (100000, 100000))", "(1,)", b"\0" * 64),
        "complex numbers": _npy("'<c16'", "(4,)", b"\0" * 64),
        "not numbers": _npy("'<f8'", "(2,)", struct.pack("<2d", float("nan"), float("inf"))),
        "characters": _npy("'<U1000000000'", "(1,)"),
        "dates": _npy("'<M8[s]'", "(1,)", b"\0" * 8),
        "another byte order": _npy("'>f8'", "(2,)", b"\0" * 16),
        "columns first": _npy("'<f8'", "(2, 2)", b"\0" * 32, order="True"),
        "a nested header": _npy("'<f8'", deep),
        "code in the header": _npy("__import__('os').mkdir('" + MARKER + "')", "(1,)"),
        "a key too many": _npy("'<f8'", "(1,)", b"\0" * 8, extra="'x': 1"),
        "a short body": _npy("'<f8'", "(100,)", b"\0" * 8),
        "a long body": _npy("'<f8'", "(1,)", b"\0" * 8_000),
        "version 9": b"\x93NUMPY\x09\x00" + body[8:],
        "no header": b"",
        "half a header": body[:20],
    }
    for about, array in headers.items():
        for i in (0, len(own) - 1):
            changed = [*own[:i], (own[i][0], array), *own[i + 1 :]]
            kinds.append((f"{about} as {own[i][0]}", functools.partial(_zip, changed)))
    return kinds


def _flagged(body: bytes) -> bytes:
    """Returns an archive whose first member is marked as encrypted."""
    at = body.index(b"PK\x01\x02")
    return body[:6] + b"\x01\x00" + body[8 : at + 8] + b"\x01\x00" + body[at + 10 :]


def _put(name: str, make: Callable[[], bytes]) -> Alter:
    def alter(files: Files) -> Files:
        return {**files, name: make()}

    return alter


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT"
MILLION = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 1000000)"
LAST_END = "kind = 'end' AND k = (SELECT max(k) FROM rows WHERE kind = 'end')"


def _many_rows(kind: str) -> str:
    """Returns SQL that adds a million rows of a kind."""
    text = "(SELECT text FROM rows WHERE kind = 'event' LIMIT 1)"
    return f"INSERT INTO rows {MILLION} SELECT '{kind}', x + 100000, {text}, '', 0, 0.0, '' FROM c"


SCHEMAS = {  # what somebody may add to a database, as SQL
    "a trigger on rows": f"CREATE TRIGGER t AFTER INSERT ON rows BEGIN INSERT INTO pieces(k) {ENDLESS} x FROM c; END",
    "a trigger on heads": f"CREATE TRIGGER t BEFORE INSERT ON heads BEGIN INSERT INTO pieces(k) {ENDLESS} x FROM c; END",
    "a trigger that changes rows": (
        "CREATE TRIGGER t AFTER INSERT ON rows BEGIN UPDATE rows SET text = 'x'; DELETE FROM pieces; END"
    ),
    "rows as an endless view": (
        "ALTER TABLE rows RENAME TO r; CREATE VIEW rows(kind, k, text, checksum, real, at, link) AS "
        f"{ENDLESS} 'draw', x, 'x', 'x', 0, 0.0, 'x' FROM c"
    ),
    "pieces as an endless view": (
        f"ALTER TABLE pieces RENAME TO p; CREATE VIEW pieces(kind, k, place, body) AS {ENDLESS} 'draw', 0, x, x'00' FROM c"
    ),
    "heads as a view": "ALTER TABLE heads RENAME TO h; CREATE VIEW heads AS SELECT * FROM h",
    "another view": f"CREATE VIEW v AS {ENDLESS} x FROM c",
    "another table": "CREATE TABLE more (x); INSERT INTO more VALUES (1)",
    "1,000 more tables": ";".join(f"CREATE TABLE more{i} (x)" for i in range(1_000)),
    "another index": "CREATE INDEX i ON rows (hex(text))",
    "another column": "ALTER TABLE rows ADD COLUMN more TEXT DEFAULT 'x'",
    "a column that is computed": "ALTER TABLE rows ADD COLUMN more TEXT AS (hex(zeroblob(100000000))) VIRTUAL",
    "heads with a column that is computed": (
        "DROP TABLE heads; CREATE TABLE heads (kind TEXT PRIMARY KEY, link TEXT AS (hex(zeroblob(400000000)))); "
        "INSERT INTO heads(kind) VALUES ('draw')"
    ),
    "pieces without its column": "DROP TABLE pieces; CREATE TABLE pieces (kind TEXT, k INTEGER, place INTEGER)",
    "no pieces": "DROP TABLE pieces",
    "no heads": "DROP TABLE heads",
    "no rows": "DELETE FROM rows; DELETE FROM heads; DELETE FROM pieces",
    "a check that takes long": (
        "DROP TABLE heads; "
        "CREATE TABLE heads (kind TEXT PRIMARY KEY, link TEXT CHECK (length(hex(zeroblob(300000000))) > 0))"
    ),
    **{f"1,000,000 rows of kind {kind}": _many_rows(kind) for kind in ("draw", "event", "end", "call", "probes", "x")},
    "large counts": "UPDATE rows SET real = 9223372036854775807",
    "a text of 200 MB": "UPDATE rows SET text = hex(zeroblob(100000000)) WHERE kind = 'event' AND k = 0",
    "an answer of 200 MB": "UPDATE pieces SET body = zeroblob(200000000) WHERE kind = 'draw' AND k = 0",
    "probes of 200 MB": "UPDATE pieces SET body = zeroblob(200000000) WHERE kind = 'probes' AND k = 0",
    "1,000,000 pieces": f"INSERT INTO pieces {MILLION} SELECT 'draw', 0, x + 1000, x'' FROM c",
    "a message of 100 MB": f"UPDATE rows SET text = '[\"stopped\",\"' || hex(zeroblob(50000000)) || '\"]' WHERE {LAST_END}",
    "a message with escapes": (
        f"UPDATE rows SET text = '[\"stopped\",\"\\u001b[2J[/red]' || char(8238) || '\"]' WHERE {LAST_END}"
    ),
    "a state of its own": f'UPDATE rows SET text = \'["verified by everybody","x"]\' WHERE {LAST_END}',
    "an end that is no JSON": f"UPDATE rows SET text = 'finished' WHERE {LAST_END}",
    "another time": "UPDATE rows SET at = 1e300",
    "infinite times": "UPDATE rows SET at = 9e999",
    "times before 1970": "UPDATE rows SET at = -1e12",
    "times that are text": "UPDATE rows SET at = 'yesterday'",
    "UTF-16": "PRAGMA encoding = 'UTF-16'",
    "another user version": "PRAGMA user_version = 7; PRAGMA application_id = 99",
}


def _databases(victim: Victim) -> list[Case]:
    """Databases with more in them than ours, or with bodies that expand."""
    seen: tuple[str, ...] = ("show", "runs", "report", "resume, then verify")
    found = []
    for about, script in SCHEMAS.items():
        for relink in (False, True):
            alter = database_changed(functools.partial(_scripted, script=script), relink=relink)
            words = f"{DATABASE}: {about}" + (", links made to fit" if relink else "")
            found.append(Case("databases", words, victim.name, alter, seen, True))
    for kind in ("draw", "probes", "call"):
        for about, make in _bodies().items():
            alter = database_changed(functools.partial(_with_body, kind=kind, make=make), relink=True)
            words = f"{DATABASE}: what a {kind} carries is {about}"
            found.append(Case("databases", words, victim.name, alter, ("resume, then verify", "report"), True))
    path = json.dumps([0] * 200_000)
    queries = {
        "a path of 200,000 actions": f'[{path}, 1, "search", "x", 0]',
        "a path of large actions": '[[9223372036854775807, -1], 1, "search", "x", 0]',
        "a path of texts": '[["\\u001b[2J"], 1, "search", "x", 0]',
        "10^400 episodes": f'[[0], {10**400}, "search", "x", 0]',
        "NaN episodes": '[[0], NaN, "search", "x", 0]',
        "negative episodes": '[[0], -5, "search", "x", 0]',
        "a nested query": "[" * 100_000,
        "an object": "{}",
    }
    for about, text in queries.items():
        alter = database_changed(functools.partial(_queries_put, text), relink=True)
        found.append(Case("databases", f"{DATABASE}: {about}", victim.name, alter, seen, True))
    bodies: dict[str, Callable[[], bytes]] = {
        "nothing": bytes,
        "noise": lambda: np.random.default_rng(0).bytes(40_000),
        "a header alone": lambda: victim.files[DATABASE][:100],
        "a page size of 65,536": lambda: victim.files[DATABASE][:16] + b"\0\1" + victim.files[DATABASE][18:],
        "2^31 pages": lambda: victim.files[DATABASE][:28] + b"\x7f\xff\xff\xff" + victim.files[DATABASE][32:],
    }
    for about, whole in bodies.items():
        found.append(Case("databases", f"{DATABASE}: {about}", victim.name, _put(DATABASE, whole), seen, True))
        found.append(Case("databases", f"{LOCK}: {about}", victim.name, _put(LOCK, whole), seen, True))
    return found


def _scripted(db: sqlite3.Connection, script: str) -> None:
    db.executescript(script)


def _queries_put(text: str, db: sqlite3.Connection) -> None:
    put_texts(db, "draw", [text] * len(texts(db, "draw")))


def _with_body(db: sqlite3.Connection, kind: str, make: Callable[[], bytes]) -> None:
    db.execute("UPDATE pieces SET body = ? WHERE kind = ?", (make(), kind))


@functools.cache
def _zlib_bomb() -> bytes:
    squeeze = zlib.compressobj(1)
    return b"".join([*(squeeze.compress(ZEROS) for _ in range(LARGE // len(ZEROS))), squeeze.flush()])


def _bodies() -> dict[str, Callable[[], bytes]]:
    """Packed bodies that expand, or that are not what they say."""
    empty = zlib.compress(b"")
    head = {"n": 1, "returns": [1, 0.0, 0.0], "moments": [], "tally": 0, "episodes": 0}

    def body(described: Any, rest: bytes = empty, about: Any = None) -> bytes:
        return json.dumps([head if about is None else about, described]).encode() + b"\n" + rest

    shapes: dict[str, Any] = {
        "a huge shape": [["<f8", [10**12]]],
        "an overflowing shape": [["<f8", [2**32, 2**32]]],
        "a negative shape": [["<f8", [-1]]],
        "an object dtype": [["|O", [1]]],
        "a dtype of fields": [["f8,O", [1]]],
        "200,000 arrays": [["<f8", [0]]] * 200_000,
        "no list": 3,
        "nothing": [],
    }
    return {
        **{about: functools.partial(body, described) for about, described in shapes.items()},
        "a zlib bomb": lambda: body([["<f8", [LARGE // 8]]], _zlib_bomb()),
        "a zlib bomb that says it is small": lambda: body([["<f8", [1]]], _zlib_bomb()),
        "no bytes": bytes,
        "a first line without an end": lambda: b"[" * 5_000_000,
        "a nested first line": lambda: b"[" * 100_000 + b"]" * 100_000 + b"\n",
        "a pickle": lambda: pickle.dumps(_Hostile()),
        "another answer": lambda: pack({**head, "n": 7}, [np.zeros((7, 2), np.int64)]),
        "10^18 episodes": lambda: pack({**head, "n": 10**18}, [np.zeros((0, 2), np.int64)]),
        "many moments": lambda: pack({**head, "moments": [[1, [1] * 1_000_000]]}, [np.zeros(1)] * 5),
        "members of nobody": lambda: pack({**head, "moments": [[1, [1]]]}, [np.zeros((1, 2), np.int64)] * 5),
    }


def _marked(victim: Victim, name: str) -> bytes:
    return b"\xef\xbb\xbf" + victim.files[name]


def _as_utf16(victim: Victim, name: str) -> bytes:
    return victim.files[name].decode().encode("utf-16")


def _certificates(victim: Victim) -> list[Case]:
    """Certificates that name what nobody should build or run."""
    true = json.loads(victim.files[CERTIFICATE])
    worlds = (
        *(
            "random/1000000,n_states=1000000",
            "lock/1000000000000000000000",
            "lock/100000",
            "lock/9000",
            "deep-sea/3000",
        ),
        *(
            "lock/3,noise_bits=10000",
            "lock/3,n_actions=100000",
            "mdp/1000000",
            "mdp/3,n_states=10000",
            "mdp/500,n_states=300",
        ),
        *(
            "lock/3,functions=tables,class_size=1000000",
            "diabolical/1000",
            "lower-bound/500",
            "disjoint/3,n_states=10000",
        ),
        *(
            "random/100,n_observations=100000",
            "random/300,n_states=300",
            "bandit,n_contexts=10000000",
            "frozen-lake/100",
        ),
        *(
            "frozen-lake/10000",
            "lock/200,noise_bits=5000",
            "random/2,n_states=10000",
            "lock/\x1b[2J",
            "",
            "[/red]",
            "lock/2" * 9_999,
        ),
        *(f"gym:CartPole-v1?horizon=3&functions={MARKER.replace('-', '_')}:make", "gym:evil:Evil-v0?horizon=3"),
        *(
            f"lock/2,swap={10**400}",
            "lock/2,seed=99999999999999999999",
            "lock/2,noise_bits=2",
            "lock/2,noise_bits=1,x=1",
        ),
    )
    found = [
        Case(
            "certificates",
            f"{CERTIFICATE}: the world {world[:40]!r}",
            victim.name,
            _world(true, world),
            EVERYTHING[:1],
            True,
        )
        for world in worlds
    ]
    settings: list[tuple[str, Any]] = [
        *(("epsilon", 1e-300), ("epsilon", 1e-6), ("epsilon", 0.001), ("delta", 1e-300), ("delta", 5e-324)),
        *(("n_states", 10**15), ("n_states", 2**63 - 1), ("max_episodes", 10**18), ("max_episodes", 1), ("seed", -1)),
        *(("seed", 10**400), ("seed", 2**64), ("engine", "stream"), ("engine", "counted"), ("threshold", 1e308)),
        *(("threshold", 0.2), ("tuning", ["largest=99999999"]), ("tuning", ["x=1"]), ("tuning", ["largest=4"] * 9_999)),
        *(
            ("learner", name)
            for name in ("lsvee", "certified", "olive", "models", "rmax", "ucb-q", "epsilon-greedy", "x")
        ),
    ]
    for name, value in settings:
        about = f"{CERTIFICATE}: settings.{name} = {str(value)[:20]}"
        found.append(Case("certificates", about, victim.name, _setting(true, name, value), EVERYTHING[:1], True))
    for name in (CERTIFICATE, CONFIG, VERIFICATION):
        texts: dict[str, Callable[[], bytes]] = {
            "nothing": bytes,
            "nested 1,000,000 deep": lambda: b"[" * 1_000_000,
            "nested objects": lambda: b'{"format":' * 500_000,
            "100 MB of spaces": lambda: b" " * 100_000_000,
            "200 MB of zeros": lambda: b"0" * 200_000_000,
            "10,000,000 numbers": lambda: b"[" + b"0," * 10_000_000 + b"0]",
            "5,000,000 keys": lambda: b"{" + b",".join(b'"%d":0' % i for i in range(5_000_000)) + b"}",
            "a byte-order mark": functools.partial(_marked, victim, name),
            "UTF-16": functools.partial(_as_utf16, victim, name),
            "a number": lambda: b"3",
            "null": lambda: b"null",
            "a list": lambda: b"[]",
        }
        for about, make in texts.items():
            found.append(Case("certificates", f"{name}: {about}", victim.name, _put(name, make), EVERYTHING, True))
    return found


def _world(true: dict[str, Any], world: str) -> Alter:
    content = {**true, "environment": {**true["environment"], "id": world, "identity": world}}
    return _put(CERTIFICATE, lambda: json.dumps(content).encode())


def _setting(true: dict[str, Any], name: str, value: Any) -> Alter:
    content = {**true, "settings": {**true["settings"], name: value}}
    if name == "learner":
        content["learner"] = value
    return _put(CERTIFICATE, lambda: json.dumps(content).encode())


def _links(victim: Victim) -> list[Case]:
    """Folders in which a file is something else than a file."""
    found = []
    for name in (CERTIFICATE, CONFIG, POLICY, RECORDED, VERIFICATION, DATABASE, LOCK):
        arrangements: dict[str, Callable[[pathlib.Path], None]] = {
            "a link to nothing": lambda file: file.symlink_to("nothing"),
            "a link to itself": lambda file: file.symlink_to(file.name),
            "a link to endless zeros": lambda file: file.symlink_to("/dev/zero"),
            "a link to a file of the system": lambda file: file.symlink_to("/etc/hostname"),
            "a folder": lambda file: file.mkdir(),
            "a pipe": lambda file: os.mkfifo(file),
            "a file that nobody may read": _closed,
        }
        for about, make in arrangements.items():
            words = f"{name}: {about}"
            arrange = functools.partial(_arranged, name=name, make=make)
            found.append(Case("links", words, victim.name, dict, EVERYTHING, True, arrange))
    for about in ("a deep tree", "a link to the folder itself", "1,000 runs that are none"):
        arrange = functools.partial(_surrounded, about=about)
        found.append(Case("links", about, victim.name, dict, ("runs",), True, arrange))
    return found


def _closed(file: pathlib.Path) -> None:
    file.write_bytes(b"")
    file.chmod(0)


def _arranged(folder: pathlib.Path, name: str, make: Callable[[pathlib.Path], None]) -> None:
    (folder / name).unlink(missing_ok=True)
    make(folder / name)


def _surrounded(folder: pathlib.Path, about: str) -> None:
    if about == "a deep tree":
        (folder / "/".join(["d"] * 300)).mkdir(parents=True)
    elif about == "a link to the folder itself":
        (folder / "again").symlink_to(".")
    else:
        for i in range(1_000):
            (folder / str(i)).mkdir()
            (folder / str(i) / CONFIG).write_text("{}")

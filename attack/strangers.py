"""Folders from strangers: `python -m attack.strangers --n 3000 --seed 0`.

A folder of a run, of `richobs paper` or of a sweep is given, in which links, hard links, pipes, folders, foreign databases
and rollback journals stand in the place of one or several files that richobs opens. Around it lies a tree of precious
files, to which they lead. Every command that opens such a folder is tried. It must answer or refuse in a sentence, and
nothing in the tree may have changed: no name, no content, no time.
"""

import collections
import contextlib
import hashlib
import itertools
import os
import pathlib
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from attack.common import arguments, as_records, say_how_far, write_results
from attack.common import show as show_table
from attack.isolation import Attempt, Kind, attempted, command, is_supported, refused
from attack.victims import WORLD
from richobs.runs.store import CERTIFICATE, CONFIG, DATABASE, LOCK, POLICY, RECORDED, REPORT, VERIFICATION
from richobs_lab.paper import runner
from richobs_lab.paper.store import DATABASE as PAPER
from richobs_lab.paper.store import LOCK as PAPER_LOCK

GIVEN = "given"  # the folder that commands are given
PRECIOUS = "precious"  # the tree beside it
LETTER = "letter.txt"
NEW = "new.txt"  # is not there, and must not be made
STATEMENT = "consensus"
LEARN = ["learn", WORLD, "--epsilon", "0.3", "--quiet", "--out", GIVEN]
SWEEP = ["sweep", WORLD, "--epsilon", "0.3", "--seeds", "0:1", "--workers", "1", "--quiet", "--out", GIVEN]
COMMANDS: dict[str, dict[str, list[str]]] = {  # victim -> name -> command line
    "run": {
        "show": ["show", GIVEN],
        "runs": ["show", "."],
        "report": ["report", GIVEN],
        "resume": ["resume", GIVEN, "--quiet"],
        "resume for more": ["resume", GIVEN, "--quiet", "--max-episodes", "4000"],
        "verify": ["verify", f"{GIVEN}/{CERTIFICATE}", "--quiet"],
        "value": ["value", WORLD, "--policy", f"{GIVEN}/{POLICY}", "--max-episodes", "50", "--quiet"],
        "learn": LEARN,
        "learn --overwrite": [*LEARN, "--overwrite"],
        "sweep": SWEEP,
    },
    "paper": {
        "paper": ["paper", STATEMENT, "--fast", "--quiet", "--out", GIVEN],
        "runs": ["show", "."],
        "learn": LEARN,
    },
    "sweep": {"sweep": SWEEP, "runs": ["show", "."], "report": ["report", GIVEN]},
}
PREPARED = {"run": LEARN, "sweep": SWEEP}  # with which folders are made
BESIDE = ("", "-wal", "-shm", "-journal")
RUN_FILES = (CONFIG, LOCK, f"{LOCK}-journal", CERTIFICATE, POLICY, RECORDED, VERIFICATION, REPORT, "report-run-1.png")
PLACES = {  # where richobs opens or writes something, and where SQLite would
    "run": (*(DATABASE + end for end in BESIDE), *RUN_FILES, ".new-abcd1234", ".config.json.abcd1234"),
    "paper": (*(PAPER + end for end in BESIDE), PAPER_LOCK, f"{STATEMENT}.json", f"{STATEMENT}.svg", "index.html"),
    "sweep": ("sweep.json", "results.jsonl", "sweep.html", "seed=0", f"seed=0/{DATABASE}", f"seed=0/{CONFIG}"),
}
UNTOUCHED = "TOUCHED"
COLUMNS = ("what was put there", "cases", *(kind.value for kind in Kind if kind is not Kind.CHANGED), UNTOUCHED)


class Files(NamedTuple):
    """What an arrangement is made of."""

    around: pathlib.Path  # holds the given folder and the precious tree
    hot: dict[str, tuple[bytes, bytes]]  # by name of a database: its pages within a transaction, and its journal

    @property
    def given(self) -> pathlib.Path:
        """The folder that commands are given."""
        return self.around / GIVEN

    @property
    def precious(self) -> pathlib.Path:
        """The tree that must not change."""
        return self.around / PRECIOUS

    def journal(self, database: str) -> tuple[bytes, bytes]:
        """Returns a database and a rollback journal after whose playback SQLite removes the letter."""
        name = os.fsencode(self.precious / LETTER)
        body, journal = self.hot[database if database in self.hot else DATABASE]
        record = (0x40000000 // 4096 + 1).to_bytes(4, "big") + name + len(name).to_bytes(4, "big")
        return body, journal + record + sum(name).to_bytes(4, "big") + b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"


def _link(to: str) -> Callable[[Files, pathlib.Path], None]:
    def make(files: Files, file: pathlib.Path) -> None:
        file.symlink_to(os.path.relpath(files.precious / to, file.parent))

    return make


def _link_to_own(files: Files, file: pathlib.Path) -> None:
    """A link to what was there, which lies in the precious tree now."""
    file.symlink_to(files.precious / file.name)


def _link_below(files: Files, file: pathlib.Path) -> None:
    """A link into a folder of the given one, beside whose file a journal lies that names a precious file."""
    below = file.parent / "below"
    below.mkdir(exist_ok=True)
    body, journal = files.journal(file.name)
    (below / file.name).write_bytes(body)
    (below / f"{file.name}-journal").write_bytes(journal)
    file.symlink_to(f"below/{file.name}")


def _hard_link(to: str | None) -> Callable[[Files, pathlib.Path], None]:
    def make(files: Files, file: pathlib.Path) -> None:
        source = files.precious / (to or file.name)
        os.link(source if source.is_file() else files.precious / LETTER, file)

    return make


def _hot(files: Files, file: pathlib.Path) -> None:
    """A database in the middle of a transaction, with a journal that names a precious file."""
    name = file.name.removesuffix("-journal")
    body, journal = files.journal(name)
    for part, content in ((name, body), (f"{name}-journal", journal)):
        with contextlib.suppress(FileNotFoundError):
            (file.parent / part).unlink()
        (file.parent / part).write_bytes(content)


def _journal_alone(files: Files, file: pathlib.Path) -> None:
    file.write_bytes(files.journal(DATABASE)[1])


def _foreign(files: Files, file: pathlib.Path) -> None:
    """The database of another program, with a trigger."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("CREATE TABLE rows (a)")
        db.execute("CREATE TRIGGER t AFTER INSERT ON rows BEGIN DELETE FROM rows; END")


def _swapped(files: Files, file: pathlib.Path) -> None:
    """The body of another file of the folder."""
    others = sorted(f for f in files.given.iterdir() if f.is_file() and not f.is_symlink() and f.name != file.name)
    file.write_bytes(others[len(file.name) % len(others)].read_bytes() if others else b"")


KINDS: dict[str, Callable[[Files, pathlib.Path], None]] = {
    "a link to a precious file": _link(LETTER),
    "a link to a precious folder": _link("."),
    "a link to where nothing is": _link(NEW),
    "a link to itself": lambda files, file: file.symlink_to(file.name),
    "a link to the file itself, elsewhere": _link_to_own,
    "a link to a file below, with a journal": _link_below,
    "a hard link to a precious file": _hard_link(LETTER),
    "a hard link to the file itself": _hard_link(None),
    "a pipe": lambda files, file: os.mkfifo(file),
    "a folder": lambda files, file: file.mkdir(),
    "a database and a journal that names a precious file": _hot,
    "a journal that names a precious file": _journal_alone,
    "the database of another program": _foreign,
    "the body of another file": _swapped,
    "nothing in it": lambda files, file: file.touch(),
    "nothing there": lambda files, file: None,
}


class Case(NamedTuple):
    """One folder and one command."""

    victim: str
    changes: tuple[tuple[str, str], ...]  # places, and what is put there
    action: str


def cases(n: int, seed: int) -> list[Case]:
    """Returns n cases: one change each, of all that there are, and then two to four at once."""
    rng = np.random.default_rng(seed)
    single = [
        Case(victim, ((place, kind),), action)
        for victim, places in PLACES.items()
        for place, kind, action in itertools.product(places, KINDS, COMMANDS[victim])
    ]
    found = [single[i] for i in rng.permutation(len(single))[: n * 2 // 3]]
    names, kinds = list(PLACES), list(KINDS)
    while len(found) < n:
        victim = names[int(rng.integers(len(names)))]
        places = rng.permutation(PLACES[victim])[: int(rng.integers(2, 5))]
        changes = tuple((str(place), kinds[int(rng.integers(len(kinds)))]) for place in places)
        actions = list(COMMANDS[victim])
        found.append(Case(victim, changes, actions[int(rng.integers(len(actions)))]))
    return found


def build(place: pathlib.Path) -> dict[str, pathlib.Path]:
    """Makes the folders that are given, each whole, and returns them by name."""
    made = {name: place / name / GIVEN for name in COMMANDS}
    here = pathlib.Path.cwd()
    try:
        for name, line in PREPARED.items():
            made[name].parent.mkdir(parents=True)
            os.chdir(made[name].parent)
            if (said := command(line)).status:
                raise RuntimeError(f"{name} does not run: {said.text}")
    finally:
        os.chdir(here)
    if "paper" in made:
        runner.run([STATEMENT], scale="fast", out=made["paper"], workers=1)
    return made


def hot(database: pathlib.Path, statement: str) -> tuple[bytes, bytes]:
    """Returns a database in the middle of a transaction, and its rollback journal."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = pathlib.Path(shutil.copy(database, scratch))
        with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode = DELETE")
            db.execute("PRAGMA cache_size = 1")  # pages are written before the transaction ends
            db.execute("BEGIN IMMEDIATE")
            db.execute(statement)
            return copy.read_bytes(), pathlib.Path(f"{copy}-journal").read_bytes()


@contextlib.contextmanager
def arranged(case: Case, given: pathlib.Path, hot_ones: dict[str, tuple[bytes, bytes]]) -> Iterator[Files]:
    """Lays out a folder with its changes, and the precious tree beside it."""
    with tempfile.TemporaryDirectory(prefix="richobs-strangers-") as name:
        files = Files(pathlib.Path(name).resolve(), hot_ones)
        shutil.copytree(given, files.given)
        shutil.copytree(given, files.precious)
        (files.precious / LETTER).write_text("precious")
        for place, kind in case.changes:
            file = files.given / place
            if not file.parent.is_dir() or file.parent.is_symlink():
                continue  # another change took its folder
            if file.is_dir() and not file.is_symlink():
                shutil.rmtree(file)
            file.unlink(missing_ok=True)
            with contextlib.suppress(FileExistsError):
                KINDS[kind](files, file)
        yield files


def seen(files: Files) -> dict[str, Any]:
    """Returns all that there is around the given folder: names, kinds, modes, times and contents."""
    found: dict[str, Any] = {}
    for here, folders, names in os.walk(files.around):
        inside = pathlib.Path(here)
        if inside == files.around:
            folders.remove(GIVEN)
        for path in (inside, *(inside / name for name in names)):
            about = path.lstat()
            body = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            found[str(path)] = (about.st_mode, about.st_size, about.st_mtime_ns, body)
    return found


def tried(case: Case, given: pathlib.Path, hot_ones: dict[str, tuple[bytes, bytes]]) -> tuple[Attempt, str]:
    """Tries one case, and returns what became of it, and what of the precious tree changed."""
    with arranged(case, given, hot_ones) as files:
        before = seen(files)

        def act() -> str:
            os.chdir(files.around)
            said = command(COMMANDS[case.victim][case.action])
            if said.status not in (0, 1):
                raise refused(said)
            return said.text

        attempt = attempted(act)
        after = seen(files)
        changed = sorted(name for name in {**before, **after} if before.get(name) != after.get(name))
        return attempt, ", ".join(os.path.relpath(name, files.around) for name in changed)


def attack(n: int, seed: int) -> dict[str, Any]:
    """Tries n cases, and returns what became of them, in plain values."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    failed = []
    with tempfile.TemporaryDirectory(prefix="richobs-strangers-") as scratch:
        made = build(pathlib.Path(scratch))
        hot_ones = {
            DATABASE: hot(made["run"] / DATABASE, "UPDATE pieces SET body = zeroblob(20000)"),
            PAPER: hot(made["paper"] / PAPER, "UPDATE measured SET result = hex(zeroblob(2000))"),
        }
        chosen = cases(n, seed)
        for i, case in enumerate(chosen):
            attempt, changed = tried(case, made[case.victim], hot_ones)
            group = case.changes[0][1] if len(case.changes) == 1 else "several of these"
            for row in (group, "all"):
                counts[row]["cases"] += 1
                counts[row][UNTOUCHED if changed else attempt.kind.value] += 1
            if changed or not attempt.kind.is_good:
                failed.append(
                    {**case._asdict(), "kind": attempt.kind.value, "touched": changed, "said": attempt.said[-500:]}
                )
                print(failed[-1], flush=True)
            if i % 100 == 99:
                say_how_far(i + 1, len(chosen), len(failed))
    order = [kind for kind in (*KINDS, "several of these", "all") if kind in counts]
    rows = [[kind, *(counts[kind][column] for column in COLUMNS[1:])] for kind in order]
    return {
        "command": f"python -m attack.strangers --n {n} --seed {seed}",
        "cases": len(chosen),
        "failures": len(failed),
        "failed": failed[:60],
        "table": as_records(COLUMNS, rows),
    }


def main(given: Sequence[str] | None = None) -> int:
    """Attacks, prints the table, writes the results; the exit status is 1 where anything failed."""
    options = arguments("Give commands folders in which links, pipes and journals lie.", 3_000).parse_args(given)
    if not is_supported():
        print("attack.strangers needs forks, RLIMIT_AS and /proc: Linux.")
        return 2
    found = attack(options.n, options.seed)
    show_table("Folders from strangers", COLUMNS, [list(row.values()) for row in found["table"]])
    print(write_results("strangers", found, options.results))
    return 1 if found["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""Mutation tests: small wrong edits of the library, each with the test that must notice it.

    python -m tests.mutants [--jobs N] [--only TEXT] [--sample N] [--json FILE]

`mutants.toml` lists the edits. Each is applied in a scratch copy of the repository, and the tests that it names are run
there. The command fails where a mutant survives, where its text does not occur exactly once, or where a named test is
red without any mutant.
"""

import argparse
import compileall
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = Path(__file__).with_suffix(".toml")
LONGEST = 600  # seconds after which a run of tests counts as one that does not end
GREEN, RED = 0, 1  # exit codes of pytest; every other one means that the tests did not run
CONFTEST = """import pathlib

import richobs

here = pathlib.Path(__file__).resolve().parent
assert pathlib.Path(richobs.__file__).resolve().is_relative_to(here / "src"), richobs.__file__
"""


@dataclass(frozen=True)
class Mutant:
    """A wrong edit of one file."""

    file: str  # below src/richobs, or below src where it begins with richobs_lab/
    old: str  # exact text; it occurs once
    new: str
    test: tuple[str, ...]  # pytest node ids, at least one of which must go red
    why: str  # what is wrong with the edited library

    @property
    def room(self) -> str:
        """The folder that the file lies in."""
        return str(Path(self.file).parent)

    def path(self, root: Path) -> Path:
        """Returns where the file lies in a copy of the repository."""
        return root / "src" / (self.file if self.file.startswith("richobs_lab/") else f"richobs/{self.file}")

    def problem(self, root: Path = ROOT) -> str | None:
        """Returns why the edit cannot be made, or None."""
        file = self.path(root)
        if not file.exists():
            return f"there is no file {self.file}"
        text = file.read_text(encoding="utf-8")
        if (times := text.count(self.old)) != 1:
            return f"its text occurs {times} times in {self.file}"
        if self.old == self.new:
            return "it changes nothing"
        compile(text.replace(self.old, self.new), self.file, "exec")
        return None


@dataclass(frozen=True)
class Verdict:
    """What became of one mutant."""

    mutant: Mutant
    killed_by: str  # node id; "" where no test went red
    seconds: float
    complaint: str = ""  # why it does not count as killed, or ""


def mutants(table: Path = TABLE) -> list[Mutant]:
    """Returns the mutants of a table, in order."""
    entries = tomllib.loads(table.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**entry, "test": tuple(entry["test"])}) for entry in entries]


def spread(given: list[Mutant], n: int) -> list[Mutant]:
    """Returns n mutants, taken from the rooms in turn: the first of each, then the second of each, and so on."""
    rooms: dict[str, list[Mutant]] = {}
    for mutant in given:
        rooms.setdefault(mutant.room, []).append(mutant)
    longest = max(map(len, rooms.values()), default=0)
    in_turn = [room[i] for i in range(longest) for room in rooms.values() if i < len(room)]
    return in_turn[:n]


def make_copy(folder: Path) -> Path:
    """Copies what tests need into a folder, compiled, with a check that the copy is what they import.

    What is compiled already is copied too; it stays valid, because files keep their times.
    """
    for name in ("src", "tests", "docs/skeletons"):
        shutil.copytree(ROOT / name, folder / name)
    for file in (*(ROOT / "docs").glob("*.md"), ROOT / "pyproject.toml"):
        shutil.copy2(file, folder / file.relative_to(ROOT))
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    compileall.compile_dir(folder / "src", quiet=2)
    return folder


def run_tests(copy: Path, tests: Iterable[str]) -> tuple[int, str]:
    """Runs tests in a copy until one fails; returns pytest's exit code and what it printed."""
    env = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
    env = {name: value for name, value in env.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=line", "-m", "", *tests]
    try:
        done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, timeout=LONGEST, check=False)
    except subprocess.TimeoutExpired:
        return -1, f"the tests did not end within {LONGEST} seconds"
    return done.returncode, done.stdout + done.stderr


@contextmanager
def applied(mutant: Mutant, copy: Path) -> Iterator[None]:
    """Makes the edit in a copy, and takes it back afterwards."""
    file = mutant.path(copy)
    text = file.read_bytes()
    compiled = Path(cache_from_source(str(file)))
    try:
        compiled.unlink()  # an edit of equal length within a second would not be noticed
        file.write_bytes(text.decode().replace(mutant.old, mutant.new).encode())
        yield
    finally:
        file.write_bytes(text)
        compileall.compile_file(file, quiet=2, force=True)


def judge(mutant: Mutant, copy: Path) -> Verdict:
    """Applies a mutant in a copy, runs its tests there, and takes the edit back."""
    if complaint := mutant.problem(copy):
        return Verdict(mutant, "", 0.0, complaint)
    begin = time.monotonic()
    with applied(mutant, copy):
        code, printed = run_tests(copy, mutant.test)
    seconds = round(time.monotonic() - begin, 1)
    if code == GREEN:
        return Verdict(mutant, "", seconds, "SURVIVED")
    failed = re.search(r"^(?:FAILED|ERROR) (tests/\S+?::.*?)(?: - |$)", printed, re.MULTILINE)
    if code != RED or failed is None:
        return Verdict(mutant, "", seconds, "its tests did not run: " + " ".join(printed.split())[-300:])
    return Verdict(mutant, failed[1], seconds)


def make_copies(folder: Path, jobs: int) -> "queue.Queue[Path]":
    """Returns `jobs` copies of what tests need; times of files are copied too, so compiled files stay valid."""
    copies: queue.Queue[Path] = queue.Queue()
    copies.put(make_copy(folder / "0"))
    for i in range(1, jobs):
        copies.put(Path(shutil.copytree(folder / "0", folder / str(i))))
    return copies


def judged(given: list[Mutant], jobs: int, folder: Path) -> Iterator[Verdict]:
    """Yields the verdict on every mutant, in order; `jobs` of them run at a time, each in a copy of its own."""
    copies = make_copies(folder, jobs)

    def one(mutant: Mutant) -> Verdict:
        copy = copies.get()
        try:
            return judge(mutant, copy)
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(one, given)


def red_without_mutants(given: list[Mutant], copy: Path) -> str | None:
    """Returns what pytest says of the named tests in a copy without any mutant, where they are not all green."""
    code, printed = run_tests(copy, sorted({test for mutant in given for test in mutant.test}))
    return None if code == GREEN else printed


def main() -> int:
    """Runs the table and prints it; returns 1 where something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1, help="mutants that run at a time")
    parser.add_argument("--only", default="", help="only mutants whose file, test or reason contains this text")
    parser.add_argument("--sample", type=int, help="only so many, taken from the rooms in turn")
    parser.add_argument("--json", type=Path, help="file for the table")
    asked = parser.parse_args()
    given = [m for m in mutants() if asked.only in " ".join((m.file, m.why, *m.test))]
    if asked.sample is not None:
        given = spread(given, asked.sample)
    if not given:
        print("no mutant was chosen")
        return 1
    verdicts = []
    with tempfile.TemporaryDirectory() as place:
        if printed := red_without_mutants(given, make_copy(Path(place) / "green")):
            print(f"a named test is red without any mutant:\n{printed}")
            return 1
        for verdict in judged(given, asked.jobs, Path(place)):
            verdicts.append(verdict)
            mutant = verdict.mutant
            print(f"{mutant.file}: {mutant.why}\n    {verdict.complaint or verdict.killed_by}  {verdict.seconds:.1f} s")
            sys.stdout.flush()
    alive = [v for v in verdicts if v.complaint]
    print(f"{len(verdicts) - len(alive)} of {len(verdicts)} mutants were killed")
    if asked.json is not None:
        rows = [
            {"file": v.mutant.file, "why": v.mutant.why, "killed_by": v.killed_by, "seconds": v.seconds}
            for v in verdicts
        ]
        table = {"mutants": len(verdicts), "killed": len(verdicts) - len(alive), "rows": rows}
        asked.json.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
    return 1 if alive else 0


if __name__ == "__main__":
    raise SystemExit(main())

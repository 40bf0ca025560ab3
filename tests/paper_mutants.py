"""The kill table of the paper's statements: wrong factors in LSVEE's boxes and constants, and which statements notice them.

    python -m tests.paper_mutants [--jobs N] [--only TEXT] [--every] [--minutes N]

`paper_mutants.toml` lists the edits; those that the paper allows must not be noticed. Each is applied in a scratch copy of
the repository, and the statements that import the edited file are run there at the fast scale: a check that fails, or a
measurement that raises an error, kills the mutant. The first statement that kills ends it, unless --every asks for all. The
table is written after every mutant to src/richobs_lab/paper/kills.json. A row of it is not run again while the source of a
statement that killed the mutant, or of all that did not, is still the same. Statements that killed a mutant before are asked
first, then quick ones.
"""

import argparse
import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutants import Mutant, applied, make_copies

from richobs_lab.paper import STATEMENTS
from richobs_lab.paper.sources import SOURCE, source_digest, source_files

TABLE = Path(__file__).with_suffix(".toml")
RESULT = SOURCE / "richobs_lab" / "paper" / "kills.json"
LONGEST = 1800  # seconds after which a mutant's statements count as ones that do not end
PROGRAM = """
import json, sys, time
import richobs
assert richobs.__file__.startswith(sys.argv[1]), richobs.__file__
from richobs_lab.paper import load, runner
every = sys.argv[2] == "every"
for name in sys.argv[3:]:
    begin = time.process_time()
    try:
        _, _, conclusion = runner.evaluate(load(name), "fast")
        failed = "; ".join(c.what for c in conclusion.checks if not c.holds)
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"
    print(json.dumps([name, failed[:300], round(time.process_time() - begin, 1)]), flush=True)
    if failed and not every:
        break
"""


@dataclass(frozen=True)
class Row:
    """A mutant and what it is worth."""

    mutant: Mutant
    reason: str  # why no statement kills it; "" where one must
    allowed: bool = False  # the paper allows it, so no statement may kill it

    @property
    def key(self) -> str:
        """What the edit is, whatever it is called."""
        edit = repr((self.mutant.file, self.mutant.old, self.mutant.new))
        return hashlib.blake2b(edit.encode(), digest_size=8).hexdigest()

    @property
    def statements(self) -> list[str]:
        """The statements that import the edited file."""
        return [name for name in STATEMENTS if self.mutant.path(SOURCE.parent) in _files_of(name)]


@functools.cache
def _files_of(statement: str) -> frozenset[Path]:
    return frozenset(source_files(STATEMENTS[statement]).values())


@functools.cache
def _digest_of(statement: str) -> str:
    return source_digest(STATEMENTS[statement])


def rows(table: Path = TABLE) -> list[Row]:
    """Returns the rows of the table, in order."""
    entries = tomllib.loads(table.read_text(encoding="utf-8"))["mutant"]
    return [
        Row(Mutant(e["file"], e["old"], e["new"], (), e["why"]), e.get("reason", ""), e.get("allowed", False))
        for e in entries
    ]


def evaluated(copy: Path, statements: list[str], *, every: bool) -> list[tuple[str, str, float]]:
    """Returns (statement, what failed, CPU seconds) of statements run in a copy, up to the first that fails or all."""
    env = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, str(copy / "src"), "every" if every else "first", *statements]
    try:
        done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, timeout=LONGEST, check=False)
        printed, died = done.stdout, done.returncode != 0
        said = done.stderr.strip().splitlines()[-1:] or ["the process died"]
    except subprocess.TimeoutExpired as error:
        printed = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        died, said = True, [f"did not end within {LONGEST} seconds"]
    found = [tuple(json.loads(line)) for line in printed.splitlines() if line.startswith("[")]
    if died and len(found) < len(statements):
        found.append((statements[len(found)], said[0][:300], 0.0))
    return [(str(name), str(failed), float(seconds)) for name, failed, seconds in found]


def judge(row: Row, copy: Path, order: list[str], *, every: bool) -> dict[str, Any]:
    """Returns what became of a mutant, as the table holds it."""
    if complaint := row.mutant.problem(copy):
        raise SystemExit(f"{row.mutant.why}: {complaint}")
    begin = time.monotonic()
    statements = [name for name in order if name in row.statements]
    with applied(row.mutant, copy):
        found = evaluated(copy, statements, every=every)
    return {
        "key": row.key,
        "file": row.mutant.file,
        "why": row.mutant.why,
        "killed_by": {name: failed for name, failed, _ in found if failed},
        "survived": [name for name, failed, _ in found if not failed],
        "reason": row.reason,
        "sources": {name: _digest_of(name) for name, _, _ in found},
        "seconds": round(time.monotonic() - begin, 1),
    }


def still_true(row: dict[str, Any]) -> bool:
    """Whether what a table says of a mutant is what the statements of today would say."""
    same = {name for name, digest in row["sources"].items() if digest == _digest_of(name)}
    return bool(same & set(row["killed_by"])) or (not row["killed_by"] and same == set(row["sources"]))


def main() -> int:
    """Runs the table and prints it; returns 1 where a mutant survives without a reason."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.paper_mutants", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--jobs", type=int, default=1, help="mutants that run at a time")
    parser.add_argument("--only", default="", help="only mutants whose file or reason contains this text")
    parser.add_argument("--every", action="store_true", help="run every statement, not only up to the first that kills")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no mutant later than that")
    parser.add_argument("--out", type=Path, default=RESULT, help="file for the table")
    asked = parser.parse_args()
    listed = rows()
    kept = json.loads(asked.out.read_text())["rows"] if asked.out.exists() else []
    done = {r["key"]: r for r in kept if still_true(r)}
    killers = {r["key"]: set(r["killed_by"]) for r in kept}
    begin = time.monotonic()

    def table() -> list[dict[str, Any]]:
        return [done[r.key] | {"reason": r.reason, "why": r.mutant.why} for r in listed if r.key in done]

    def write() -> None:
        asked.out.write_text(json.dumps({"rows": table()}, indent=1) + "\n", encoding="utf-8")

    with tempfile.TemporaryDirectory() as place:
        digests = {name: _digest_of(name) for name in STATEMENTS}
        copies = make_copies(Path(place), asked.jobs)
        if any(source_digest(module) != digests[name] for name, module in STATEMENTS.items()):
            raise SystemExit("source files changed while they were copied; run the command again")
        green = evaluated(Path(place) / "0", list(STATEMENTS), every=True)
        print("CPU seconds without a mutant:", {name: seconds for name, _, seconds in green}, flush=True)
        if red := {name: failed for name, failed, _ in green if failed}:
            print(f"these fail without any mutant and are left out: {json.dumps(red, indent=1)}", flush=True)
        order = [name for name, failed, _ in sorted(green, key=lambda row: row[2]) if not failed]

        def one(row: Row) -> dict[str, Any] | None:
            if time.monotonic() - begin > 60 * asked.minutes:
                return None
            copy = copies.get()
            try:
                known = killers.get(row.key, set())
                return judge(row, copy, sorted(order, key=lambda name: name not in known), every=asked.every)
            finally:
                copies.put(copy)

        wanted = [r for r in listed if r.key not in done and asked.only in f"{r.mutant.file} {r.mutant.why}"]
        with ThreadPoolExecutor(asked.jobs) as pool:
            for future in as_completed([pool.submit(one, row) for row in wanted]):
                verdict = future.result()
                if verdict is not None:
                    done[str(verdict["key"])] = verdict
                    write()
                    words = ", ".join(verdict["killed_by"]) or "SURVIVED"
                    print(f"{verdict['why']}: {words}  {verdict['seconds']} s", flush=True)
    write()
    alive = [r["why"] for r in table() if not r["killed_by"] and not r["reason"]]
    left = len(listed) - len(done)
    print(f"{sum(bool(r['killed_by']) for r in table())} of {len(done)} mutants killed, {left} not run")
    print("\n".join(["survived:", *alive] if alive else []))
    allowed = {r.key for r in listed if r.allowed}
    wrong = [r["why"] for r in table() if r["killed_by"] and r["key"] in allowed]
    print("\n".join(["killed, although the paper allows it:", *wrong] if wrong else []))
    return 1 if red or alive or left or wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

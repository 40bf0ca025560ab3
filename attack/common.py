"""What the attacks share: arguments, a table on the terminal, results on disk."""

import argparse
import datetime
import json
import platform
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import richobs

RESULTS = Path(__file__).parent / "results"


def arguments(about: str, n: int) -> argparse.ArgumentParser:
    """Returns a parser that knows how many cases there are, the seed, and where results go.

    Args:
        about: what the attack does, in a sentence.
        n: number of cases where none is given.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--n", type=int, default=n, help=f"number of cases (default {n:,})")
    parser.add_argument("--seed", type=int, default=0, help="seed of every random choice (default 0)")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder that the results are written to (default attack/results)"
    )
    return parser


def say_how_far(done: int, total: int, failures: int) -> None:
    """Prints how many cases are done and how many failed: over the last line on a terminal, a line each elsewhere."""
    end = "\r" if sys.stderr.isatty() else "\n"
    print(f"{done:,} of {total:,}, {failures:,} failures", end=end, file=sys.stderr, flush=True)


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "") -> None:
    """Prints rows as a table."""
    table = Table(title=title, title_justify="left", caption=note or None, caption_justify="left")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(
            *(f"{v:,.3g}" if isinstance(v, float) else f"{v:,}" if isinstance(v, int) else str(v) for v in row)
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def as_records(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Returns rows as dictionaries, for a results file."""
    return [dict(zip(columns, row, strict=True)) for row in rows]


def code() -> str:
    """Returns which code is attacked: the commit, with a word where the package was changed since; "" outside of git."""

    def told(*command: str) -> str:
        done = subprocess.run(["git", *command], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    commit = told("rev-parse", "--short=10", "HEAD")
    changed = told("status", "--porcelain", "--", "../src", "../attack/*.py")
    return f"{commit} with changes" if commit and changed else commit


def write_results(name: str, content: Mapping[str, Any], folder: Path = RESULTS) -> Path:
    """Writes an attack's results to `FOLDER/NAME.json`, with commit, versions and day, and returns the file's path.

    Args:
        name: of the attack: "kills", "files", "inputs", "promises", "workers".
        content: plain values; `failures` should be there, the number of cases that must not happen.
        folder: where to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = {
        "attack": name,
        **content,
        "richobs": richobs.__version__,
        "code": code(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "sqlite": sqlite3.sqlite_version,
        "machine": f"{platform.system()} {platform.machine()}",
    }
    target = folder / f"{name}.json"
    target.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    return target

"""What the benchmarks share: CPU time of the best of several runs, a table on the terminal, JSON on disk."""

import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import richobs

RESULTS = Path(__file__).parent / "results"


def cpu_seconds(work: Callable[[], object], repeats: int = 5, at_least: float = 0.2) -> float:
    """Returns the CPU seconds of one call of `work`: the best of `repeats`, each lasting `at_least` seconds."""
    work()
    calls, best = 1, float("inf")
    for _ in range(repeats):
        while True:
            begin = time.process_time()
            for _ in range(calls):
                work()
            spent = time.process_time() - begin
            if spent >= at_least:
                break
            calls = max(calls + 1, int(calls * 1.2 * at_least / max(spent, 1e-4)))
        best = min(best, spent / calls)
    return best


def publish(name: str, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str) -> None:
    """Prints the rows as a table and writes them to `benchmarks/results/NAME.json`."""
    table = Table(title=title, title_justify="left", caption=note, caption_justify="left")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*(f"{v:,.3g}" if isinstance(v, float) else str(v) for v in row))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    target = write(name, title, columns, rows, note)
    print(f"written to {target.relative_to(Path(__file__).parents[1])}")


def write(name: str, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str) -> Path:
    """Writes the rows to `benchmarks/results/NAME.json` and returns its path."""
    RESULTS.mkdir(exist_ok=True)
    result = {
        "title": title,
        "note": note,
        "rows": [dict(zip(columns, row, strict=True)) for row in rows],
        "richobs": richobs.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    target = RESULTS / f"{name}.json"
    target.write_text(json.dumps(result, indent=2) + "\n")
    return target

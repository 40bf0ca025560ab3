"""Sweeps: every combination of settings with every seed, each a run that is stored and goes on where it stopped."""

import contextlib
import os
import pathlib
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np

from richobs import RichObsError, StoredRun
from richobs.core.arguments import file_path
from richobs.runs.store import REPORT
from richobs.show.page import write_report
from richobs.show.terminal import is_interactive
from richobs_lab.sweep.page import sweep_watched, write_sweep
from richobs_lab.sweep.runs import MAX_RUNS, Cell, CellResult, Sweep, plan_cells, run_cell, run_cells, seed_list

__all__ = ["Sweep", "sweep"]


def sweep(
    world: str,
    *,
    out: str | os.PathLike[str],
    seeds: Iterable[int] | str = range(10),
    workers: int | Executor | None = None,
    progress: bool | None = None,
    max_runs: int = MAX_RUNS,
    **varied: Any,
) -> Sweep:
    """Runs a world with every combination of settings and every seed, and writes a page about all runs.

    Each run is kept in its own folder under `out`. The same call goes on with what a killed one has left, and a run that
    failed is a row with its sentence.

    Args:
        world: an id, such as `lock` or `lock/5,noise_bits=4`.
        out: the sweep's folder; it gets `sweep.json`, `results.jsonl`, `sweep.html` and a folder for each run.
        seeds: of the runs, as numbers or as text such as "0:20".
        workers: processes, one run each at a time, by default as many as there are CPUs; or any
            `concurrent.futures.Executor` that does the runs, for instance `richobs.ray.RayExecutor`.
        progress: show how far it is; by default in a terminal or a notebook.
        max_runs: more runs are refused before they are listed; it may be raised to 100,000.
        **varied: a value, or a list of values, for each setting of a run (`epsilon=[0.1, 0.05]`, `learner="lsvee"`) and each
            parameter of the world (`horizon=[5, 10]`); a world's parameter with the name of a setting is `world_seed`.

    Raises:
        InvalidInput: a name or a value that does not exist, or the folder holds another sweep.
    """
    chosen = seed_list(seeds) if isinstance(seeds, str) else seeds
    place = file_path(out, "a sweep's folder")
    cells = plan_cells(world, chosen, {name: _as_list(values) for name, values in varied.items()}, max_runs=max_runs)
    shown = is_interactive() if progress is None else progress
    with sweep_watched(world, quiet=not shown) as watch:
        who = {"executor": workers} if hasattr(workers, "submit") else {"workers": workers}
        return sweep_cells(cells, place, **who, watch=watch)


def sweep_cells(cells: Sequence[Cell], out: str | os.PathLike[str], **options: Any) -> Sweep:
    """Runs cells as `run_cells` does, with a page about each run and one about all.

    Args:
        cells: what to run.
        out: the sweep's folder.
        **options: as for `run_cells`.
    """
    try:
        done = run_cells(cells, out, work=run_cell_with_page, **options)
    except KeyboardInterrupt as stopped:
        write_sweep(Sweep.read(out))
        stopped.add_note(f"What was done is kept in {os.fspath(out)}; the same call goes on from there.")
        raise stopped.with_traceback(None) from None
    write_sweep(done)
    return done


def run_cell_with_page(cell: Cell, folder: str) -> CellResult:
    """Runs one cell in its folder and writes the page about it."""
    result = run_cell(cell, folder)
    with contextlib.suppress(RichObsError):  # a run that failed before it began has nothing to show
        write_report([StoredRun.read(folder)], pathlib.Path(folder) / REPORT, figures=False)
    return result


def _as_list(values: Any) -> Sequence[Any]:
    """Returns one value, or several, as a list; a tuning given as a dictionary is one value."""
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return values.tolist()
    return values if isinstance(values, list | tuple | range) else [values]

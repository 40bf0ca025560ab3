"""Who does the work of a command: this machine, or a Ray cluster."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any

from rich.text import Text

from richobs.runs.sweep import MAX_RUNS
from richobs.show.summary import plain_console
from richobs.show.sweep import sweep_watched

LOCAL = "local"  # what `--ray` without an address means


@dataclasses.dataclass(frozen=True)
class WorkOptions:
    """Who does the work."""

    ray: str | None = None
    """Let Ray work: `--ray` here, `--ray auto` or `--ray HOST:PORT` on a cluster (extra `ray`). A world is no address."""

    @contextlib.contextmanager
    def executor(self) -> Iterator[Executor | None]:
        """Yields the executor that was asked for, connected while the block lasts; None where none was."""
        if self.ray is None:
            yield None
            return
        from richobs.ray import RayExecutor  # needed here only

        with RayExecutor(None if self.ray == LOCAL else self.ray) as executor:
            yield executor


@dataclasses.dataclass(frozen=True)
class ManyRunsOptions(WorkOptions):
    """Who does the runs, how many there may be, where they are kept, and what is printed."""

    workers: int | None = None
    """Processes, one run each at a time; by default as many as there are CPUs."""
    max_runs: int = MAX_RUNS
    """Refuse more runs than this."""
    out: pathlib.Path | None = None
    """Folder of all runs; by default one under `runs/` named after them. What is finished there is not run again."""
    quiet: bool = False
    """Print nothing while it runs, and only the table at the end."""
    json: bool = False
    """Print JSON instead of a table."""

    @contextlib.contextmanager
    def running(self, name: str, folder: pathlib.Path) -> Iterator[dict[str, Any]]:
        """Yields what `run_cells` is given to do the runs; says where they are kept if they are interrupted."""
        try:
            with self.executor() as executor, sweep_watched(name, quiet=self.quiet or self.json) as watch:
                yield {"workers": self.workers, "executor": executor, "watch": watch}
        except KeyboardInterrupt:
            stopped = f"stopped; what was done is kept in {folder}, and the same command goes on."
            plain_console(stderr=True).print(Text(stopped))
            raise

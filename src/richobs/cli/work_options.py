"""Who does the work of a command: this machine, or a Ray cluster."""

import contextlib
import dataclasses
from collections.abc import Iterator
from concurrent.futures import Executor

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

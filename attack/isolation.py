"""One attempt in a process of its own, under a memory limit and a time limit, and what became of it.

The process is a fork of this one, so that nothing is imported again. It may take `MEMORY` bytes of address space more than
it has when it begins (`RLIMIT_AS`), and `SECONDS` seconds of CPU time (`RLIMIT_CPU`). What only waits is killed after
`PATIENCE` seconds of the clock, which is longer, because a machine may have other work.
"""

import contextlib
import enum
import io
import json
import os
import pathlib
import resource
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from richobs.cli import main
from richobs.core.errors import RichObsError

MEMORY = 2**30  # bytes of address space above what the process has when it begins
HIDDEN = 0.9  # share of this memory from which on an attempt counts as one that had too little
SECONDS = 20  # of CPU time
PATIENCE = 60.0  # of the clock
PAGE = resource.getpagesize()
OUT_OF_MEMORY = ("MemoryError", "Unable to allocate", "out of memory", "Cannot allocate memory")


class Kind(enum.StrEnum):
    """What becomes of an attempt; only the first two are good."""

    REFUSED = "refused in a sentence"
    UNCHANGED = "accepted, nothing that is claimed changed"
    CHANGED = "ACCEPTED WITH ANOTHER CLAIM"
    TRACEBACK = "TRACEBACK"
    MEMORY = "MEMORY"
    TIME = "TIME"
    CODE_RUN = "CODE RUN"

    @property
    def is_good(self) -> bool:
        """Whether richobs did what it should."""
        return self in (Kind.REFUSED, Kind.UNCHANGED)


class Attempt(NamedTuple):
    """What became of one attempt."""

    kind: Kind
    said: str  # the sentence, or the traceback
    memory: int = 0  # bytes of address space that it took above what it had at first
    seconds: float = 0.0  # of CPU time


class Changed(Exception):
    """Raised by a check within an attempt: what was accepted claims something else."""


def attempted(
    act: Callable[[], str],
    *,
    seconds: int = SECONDS,
    patience: float = PATIENCE,
    memory: int = MEMORY,
    marker: pathlib.Path | None = None,
) -> Attempt:
    """Does something in a fork of this process.

    Args:
        act: what to do; returns what it said. It raises `RichObsError` to refuse, and `Changed` where something was accepted
            that claims something else.
        seconds: of CPU time; then it is killed.
        patience: seconds of the clock; then it is killed.
        memory: bytes of address space above what this process has.
        marker: a file that only hostile code writes.
    """
    reader, writer = os.pipe()
    began = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of NumPy's library wait, and are not needed
        child = os.fork()
    if child == 0:
        os.close(reader)
        _answer_and_exit(act, writer, memory, seconds)
    os.close(writer)
    try:
        body = _read_until(reader, began + patience)
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status, used = os.wait4(child, 0)
    took = used.ru_utime + used.ru_stime
    if marker is not None and marker.exists():
        marker.unlink()
        return Attempt(Kind.CODE_RUN, f"{marker.name} was written", 0, took)
    if body is None:
        return Attempt(Kind.TIME, f"killed after {patience:g} seconds of the clock", 0, took)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return Attempt(Kind.TIME, f"killed after {seconds:g} seconds of CPU time", 0, took)
    try:
        kind, said, peak = json.loads(body)
    except ValueError:
        return Attempt(Kind.TRACEBACK, f"the process died with status {status}", 0, took)
    return Attempt(Kind(kind), said, peak, took)


def _read_until(reader: int, deadline: float) -> bytes | None:
    """Returns all that comes through a pipe until it is closed; None where that takes too long."""
    parts: list[bytes] = []
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            return None
        part = os.read(reader, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)


def _answer_and_exit(act: Callable[[], str], writer: int, memory: int, seconds: int) -> None:
    """Does it under the limit, writes what became of it, and ends the process without cleaning up."""
    try:
        quiet = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(quiet, descriptor)
        first = address_space()
        resource.setrlimit(resource.RLIMIT_AS, (first + memory, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        kind, said = _classified(act)
        if most_address_space() - first > HIDDEN * memory:  # an error was caught, and told as another one
            kind = Kind.MEMORY
        with contextlib.suppress(OSError):
            os.write(writer, json.dumps([kind.value, said[-2000:], most_address_space() - first]).encode())
    finally:
        os._exit(0)


def _classified(act: Callable[[], str]) -> tuple[Kind, str]:
    """Returns what became of it, and what was said."""
    try:
        said, kind = act(), Kind.UNCHANGED
    except Changed as error:
        return Kind.CHANGED, str(error)
    except RichObsError as error:
        said, kind = f"{type(error).__name__}: {error}", Kind.REFUSED
    except OSError as error:
        if error.filename is None:  # else the system says that there is no such file, or that it cannot be read
            return Kind.TRACEBACK, where(error)
        said, kind = str(error), Kind.REFUSED
    except MemoryError as error:
        return Kind.MEMORY, where(error)
    except KeyboardInterrupt:
        return Kind.REFUSED, "interrupted"
    except BaseException as error:  # a traceback is what is looked for
        return Kind.TRACEBACK, where(error)
    if any(word in said for word in OUT_OF_MEMORY):
        return Kind.MEMORY, said
    return kind, said


def where(error: BaseException) -> str:
    """Returns an error with the last places of the code that it passed."""
    places = traceback.extract_tb(error.__traceback__)[-4:]
    steps = " < ".join(f"{pathlib.Path(p.filename).name}:{p.lineno} {p.name}" for p in reversed(places))
    return f"{type(error).__name__}: {str(error)[:300]} [{steps}]"


def address_space() -> int:
    """Returns the bytes of address space that this process has."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * PAGE


def most_address_space() -> int:
    """Returns the most bytes of address space that this process ever had."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmPeak")).split()[1]) * 1024


class Said(NamedTuple):
    """What a command line answered."""

    status: int
    text: str


def command(arguments: Sequence[str]) -> Said:
    """Runs a command line of richobs here, and returns its exit status and what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            status: Any = main(list(arguments))
        except SystemExit as stop:  # the parser's own refusals
            status = stop.code
    return Said(status if isinstance(status, int) else 2, out.getvalue())


def refused(said: Said) -> RichObsError:
    """Returns the refusal of a command line as an error."""
    return RichObsError(said.text.strip() or f"exit status {said.status} without a word")


def is_supported() -> bool:
    """Whether attempts can be made here: it takes forks, limits and /proc."""
    return sys.platform == "linux"

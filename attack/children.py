"""Forked children that are killed: each shares the imports of this process, and is sent a signal while it works."""

import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from typing import NamedTuple, NoReturn

CRASHED = 70  # exit status of a child whose work ended with an exception
INTERRUPTED = 130  # of one that was interrupted, as of the command line


class Ended(NamedTuple):
    """How a child ended."""

    status: int  # its exit status, or minus the number of the signal that ended it
    output: str  # what it wrote to stdout and stderr
    seconds: float  # from its start until its end
    killed: bool  # whether the parent sent a signal while it was alive


def in_child(
    work: Callable[[], int | None],
    *,
    limit: float = 20.0,
    kill_after: float | None = None,
    with_signal: int = signal.SIGKILL,
) -> Ended:
    """Does work in a forked child, which shares all imports of this process and nothing that it changes.

    Args:
        work: returns the exit status; None is 0. An exception is printed, and ends the child with status `CRASHED`.
        limit: seconds after which the child is killed with SIGKILL.
        kill_after: seconds after which the child is sent `with_signal`; it may end by itself before.
        with_signal: which signal.
    """
    with tempfile.TemporaryFile() as output:
        begin = time.monotonic()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # until the child can take it
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of idle threads, which no child needs
            child = os.fork()
        if child == 0:
            _work_and_exit(work, output.fileno())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        killed = False
        status = None if kill_after is None else _wait(child, begin + min(kill_after, limit))
        if status is None and kill_after is not None:
            os.kill(child, with_signal)
            killed = True
        if status is None:
            status = _wait(child, begin + limit)
        if status is None:
            os.kill(child, signal.SIGKILL)
            killed = True
            status = os.waitpid(child, 0)[1]
        seconds = time.monotonic() - begin
        output.seek(0)
        return Ended(os.waitstatus_to_exitcode(status), output.read().decode(errors="replace"), seconds, killed)


def _wait(child: int, until: float) -> int | None:
    """Returns the status of a child once it ended, or None where it still lives at that time."""
    pause = 0.0005
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        left = until - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(pause, left))
        pause = min(2 * pause, 0.01)


def _work_and_exit(work: Callable[[], int | None], output: int) -> NoReturn:
    """Ends the child with the status of its work; nothing of the parent is run or flushed."""
    status = CRASHED
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        status = work() or 0
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

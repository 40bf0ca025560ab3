"""Processes that work for another one: how they begin and end, and how Control-C reaches the one that started them."""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from richobs.core.errors import CallTooLong

PR_SET_PDEATHSIG = 1  # of prctl(2): the signal that a process gets when the one that started it is gone
LOOK = 0.2  # seconds between two looks for an interruption
WORKER = "RICHOBS_WORKER"  # set in the environment of worker processes
GUARD = (
    "A script that uses workers must call richobs behind `if __name__ == '__main__':`, because every worker imports it."
)
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # workers are processes already


@contextmanager
def interruptions_noted() -> Iterator[threading.Event]:
    """Yields an event that Control-C sets, instead of raising in the middle of a lock that threads of a pool need."""
    noted = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only the main thread is interrupted
        yield noted
        return
    before = signal.signal(signal.SIGINT, lambda *_: noted.set())
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def interruptions_held_back() -> Iterator[None]:
    """Lets Control-C wait while workers are started: they inherit that, so none dies of it before `begin_worker`.

    What is started meanwhile knows from its environment that it is a worker.
    """
    os.environ[WORKER] = "1"
    try:
        with _interruptions_blocked():
            yield
    finally:
        os.environ.pop(WORKER, None)


@contextmanager
def _interruptions_blocked() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def leave_unguarded_script() -> None:
    """Ends this process where it is a worker that imports its script, and the script has called richobs with workers again.

    That is a script without `if __name__ == '__main__':`. The process that asked for workers raises an error, and the first
    of these workers prints a sentence.

    Raises:
        SystemExit: it is such a worker.
    """
    script = sys.modules.get("__mp_main__")  # what a worker imports its script as; afterwards it is `__main__` too
    if WORKER in os.environ and script is not None and script is not sys.modules["__main__"]:
        first = multiprocessing.current_process().name.endswith("-1")
        raise SystemExit(f"richobs: {GUARD}" if first else 1)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Gives processes started meanwhile one thread each: sums are then the same for any number of workers."""
    kept = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def begin_worker() -> None:
    """Leaves interruptions to the process that started this worker, and ends the worker when that process is gone.

    A thread waits for that. It cannot run while a call holds the interpreter lock; on Linux the kernel ends the worker then.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=watch, daemon=True).start()


def can_limit() -> bool:
    """Whether `time_limit` works here: where there are alarms, in the main thread."""
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Ends what is done meanwhile after so many seconds, where `can_limit`; code that is not Python ends when it returns.

    Raises:
        CallTooLong: it took longer.
    """
    if seconds is None or not can_limit():
        yield
        return

    def ring(*_: object) -> None:
        raise CallTooLong.after(seconds)

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)  # again, where an environment goes on after an exception
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

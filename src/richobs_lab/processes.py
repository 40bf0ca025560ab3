"""Processes that do many runs or pieces of work: interruptions that wait for a good moment, and one thread each."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from richobs.core.executors import ONE_THREAD

LOOK = 0.2  # seconds between two looks for an interruption


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

"""Who does the work of a run: this process, threads, a pool of processes, or any `concurrent.futures.Executor`.

Work is a list of tasks. A task is a call of an importable function: what it computes depends on its arguments alone, so it
does not matter who computes it, when, or how often. What all tasks of a run need (environment, class of functions) is a
`Spec`. It is pickled once, named by its digest, and kept by each worker process; a worker that does not have it says so, and
gets the task again with the spec. Before a worker process uses a spec, it computes what the parent has computed too, and
refuses where it finds something else. Answers are taken in the order of tasks, and few tasks are under way at a time.

Pickles pass between a run and workers that it started or was given, never through a file: what was stored or came from
somebody else is not unpickled anywhere. The last functions say how processes that work for another one begin and end, and
how Control-C reaches the one that started them.
"""

import collections
import ctypes
import hashlib
import io
import itertools
import logging
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import FrameType, TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from richobs.core.arguments import checked_workers
from richobs.core.errors import CallTooLong, InvalidInput, WorkerFailed
from richobs.core.version import __version__

AHEAD = 4  # tasks under way for each worker: the number of episodes of a query may be astronomical
GUESSED = 16  # workers that an executor is taken to have where it does not say how many
KEPT = 4  # specs that a worker process keeps
GRACE = 30.0  # seconds beyond the limit of a call that a worker has to start, or to end the call itself

PR_SET_PDEATHSIG = 1  # of prctl(2): the signal that a process gets when the one that started it is gone
WORKER = "RICHOBS_WORKER"  # set in the environment of worker processes
GUARD = (
    "A script that uses workers must call richobs behind `if __name__ == '__main__':`, because every worker imports it."
)
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # workers are processes already

T = TypeVar("T")
LOG = logging.getLogger("richobs")
VERSIONS = f"richobs {__version__} and NumPy {np.__version__}"  # other versions may draw other numbers


Check = Callable[[Mapping[str, Any]], Mapping[str, str]]


class Spec:
    """What all tasks of a run need, pickled once and named by its digest."""

    def __init__(self, own: Mapping[str, object], shared: Mapping[str, object]):
        """Pickles the objects.

        Args:
            own: by name, what every thread of a worker process has a copy of.
            shared: by name, what the threads of a worker process share.

        Raises:
            Exception: something cannot be pickled; which exception it is depends on the object.
        """
        self._objects = {**own, **shared}
        self._names = {id(value): name for name, value in self._objects.items()}
        self._own = pickle.dumps(dict(own), pickle.HIGHEST_PROTOCOL)
        self._shared = pickle.dumps(dict(shared), pickle.HIGHEST_PROTOCOL)
        self._seal(None)

    def expect(self, check: "Check") -> None:
        """Lets every worker process compute what the objects here give now, before it does a task.

        A worker imports modules anew. Where one has a setting that was changed in this process after its import, objects
        there compute something else, although their pickled bytes are the same.

        Args:
            check: an importable function of the objects by name; it returns texts by what they are about.
        """
        self._seal((check, dict(check(self._objects))))

    @property
    def expects(self) -> bool:
        """Whether a worker must show, before its first task, that it computes the same as the parent."""
        return self._expected is not None

    def _seal(self, expected: "tuple[Check, dict[str, str]] | None") -> None:
        self._expected = expected
        self.body = pickle.dumps((VERSIONS, self._own, self._shared, pickle.dumps(expected)))
        self.digest = hashlib.sha256(self.body).hexdigest()  # what is expected belongs to it: a worker may be old

    def copy(self, name: str) -> Any:
        """Returns a new copy of one of the objects that every thread has for itself, as a worker would make it."""
        return pickle.loads(self._own)[name]

    def task(self, function: Callable[..., T], *args: object) -> bytes:
        """Returns a call of an importable function as bytes; objects of the spec are named in it, not pickled again.

        Raises:
            Exception: an argument cannot be pickled.
        """
        stream = io.BytesIO()
        _Pickler(stream, self._names).dump((function, args))
        return stream.getvalue()


class _Pickler(pickle.Pickler):
    """Writes a name where an object of the spec stands."""

    def __init__(self, stream: io.BytesIO, names: Mapping[int, str]):
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self._names = names

    def persistent_id(self, obj: object) -> str | None:
        return self._names.get(id(obj))


class _Unpickler(pickle.Unpickler):
    """Reads an object of the spec where its name stands."""

    def __init__(self, body: bytes, objects: Mapping[str, object]):
        super().__init__(io.BytesIO(body))
        self._objects = objects

    def persistent_load(self, pid: Any) -> object:
        return self._objects[pid]


class Told(NamedTuple):
    """What a worker says of a task."""

    state: str  # DONE, UNKNOWN: the worker does not have the spec, or FAILED
    value: Any  # what the function returned, or the exception that it raised
    task: tuple[str, int]  # which one: digest of its body, and its item


DONE, UNKNOWN, FAILED = "done", "unknown", "failed"


class _Kept(NamedTuple):
    """A spec in a worker process."""

    own: bytes
    shared: dict[str, object]


_specs: "collections.OrderedDict[str, _Kept]" = collections.OrderedDict()  # the last few of this process
_specs_lock = threading.Lock()
_copies = threading.local()  # each thread's own copies, by digest


def do_task(digest: str, spec: bytes | None, body: bytes, item: int) -> Told:
    """Does one task in a worker.

    Args:
        digest: of the spec.
        spec: the spec itself, where the worker may not have it yet.
        body: the function and its first arguments, as `Spec.task` wrote them.
        item: the last argument of the function.
    """
    task = _name(body, item)
    try:
        objects = _objects(digest, spec)
        if objects is None:
            return Told(UNKNOWN, None, task)
        function, args = _Unpickler(body, objects).load()
    except WorkerFailed as error:
        return Told(FAILED, error, task)
    except Exception as error:
        return Told(FAILED, WorkerFailed(_cannot_read(error)), task)
    try:
        return Told(DONE, function(*args, item), task)
    except Exception as error:
        return Told(FAILED, _portable(error), task)
    except BaseException as error:  # it would end the process that asks, without a word
        return Told(FAILED, WorkerFailed(f"a worker's task raised {error!r}. Nothing of it counts."), task)


def _name(body: bytes, item: int) -> tuple[str, int]:
    """Returns what a task is called: an answer to another one must not count twice."""
    return hashlib.sha256(body).hexdigest(), item


def _cannot_read(error: Exception) -> str:
    return (
        f"a worker cannot read its task: {type(error).__name__}: {error}. Environment and class must be defined in modules "
        "that the workers can import too, in the same versions. workers=1 without an executor computes all in this process; "
        "a stored run goes on from what it has."
    )


def _objects(digest: str, spec: bytes | None) -> dict[str, object] | None:
    """Returns the objects of a spec for this thread; None where this process does not have it."""
    with _specs_lock:
        if digest not in _specs:
            if spec is None:
                return None
            versions, own, shared, expected = pickle.loads(spec)
            if versions != VERSIONS:
                raise ImportError(f"it has {VERSIONS}; the run has {versions}")
            loaded = _Kept(own, pickle.loads(shared))
            _check_expected(loaded, pickle.loads(expected))
            _specs[digest] = loaded
        _specs.move_to_end(digest)
        while len(_specs) > KEPT:
            _specs.popitem(last=False)
        kept = _specs[digest]
    known: collections.OrderedDict[str, dict[str, object]] = _copies.__dict__.setdefault(
        "known", collections.OrderedDict()
    )
    if digest not in known:
        known[digest] = pickle.loads(kept.own)
    known.move_to_end(digest)
    while len(known) > KEPT:
        known.popitem(last=False)
    return {**kept.shared, **known[digest]}


def _check_expected(kept: _Kept, expected: tuple[Check, dict[str, str]] | None) -> None:
    """Refuses a spec whose objects compute something else in this process than in the parent.

    Raises:
        WorkerFailed: they do.
    """
    if expected is None:
        return
    check, known = expected
    try:
        found = check({**kept.shared, **pickle.loads(kept.own)})
    except Exception as error:
        raise WorkerFailed(
            f"a worker cannot play what this process plays: {type(error).__name__}: {error} was raised there. {_REMEDY}"
        ) from error
    differs = [name for name, value in known.items() if found.get(name) != value]
    if differs:
        raise WorkerFailed(
            f"a worker has another {differs[0]} than this process: trial episodes, or values at what they show, are not the "
            f"same there. {_REMEDY}"
        )


_REMEDY = (
    "Workers import modules anew, so a setting of a module or class that was changed after its import has its first value "
    "there; and another machine may compute other numbers. Hand such settings to the objects themselves, or set them where "
    "the module is imported. workers=1 without an executor computes all in this process; a stored run goes on from what it "
    "has."
)


def _portable(error: Exception) -> Exception:
    """Returns an exception that can be sent back, with where it was raised as a note."""
    where = "".join(traceback.format_exception(error))
    try:
        error.add_note(f"Raised in a worker:\n{where}")
        again = pickle.loads(pickle.dumps(error))
        if type(again) is type(error):
            return error
    except Exception:
        LOG.debug("an exception of a task cannot be pickled", exc_info=True)
    return WorkerFailed(f"a task raised an exception that cannot be sent back: {where}")


class Threads(Executor):
    """Threads that this process does not wait for when it ends, as it would for those of `ThreadPoolExecutor`."""

    def __init__(self, n: int):
        """Takes how many threads there are at most; each is started with a task."""
        self._max_workers = n
        self._tasks = queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None]()
        self._threads: list[threading.Thread] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Has a thread make a call."""
        future: Future[T] = Future()
        self._tasks.put((future, partial(fn, **kwargs), args))
        if len(self._threads) < self._max_workers:
            self._threads.append(threading.Thread(target=self._work, name="richobs", daemon=True))
            self._threads[-1].start()
        return future

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            future, fn, args = task
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args))
                except BaseException as error:
                    future.set_exception(error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the threads once they have made their calls; calls that nobody has begun are left out where that is asked."""
        while cancel_futures and not self._tasks.empty():
            if (task := self._tasks.get()) is not None:
                task[0].cancel()
        for _ in self._threads:
            self._tasks.put(None)
        while wait and self._threads:
            self._threads.pop().join()


def usable_cpus() -> int:
    """Returns how many CPUs this process may use; a container may have fewer than its machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """Who does the tasks of one run: an executor that was given, or a pool that is made when it is first needed."""

    def __init__(self, n: int = 1, executor: Executor | None = None, timeout: float | None = None):
        """Takes how many workers there are.

        Args:
            n: size of the pool; 1: this process does everything.
            executor: does the tasks instead; it is not shut down.
            timeout: seconds that one task may take; None for any number. Workers started here that take longer are ended.

        Raises:
            InvalidInput: there is less than one worker, or the executor is none.
        """
        checked_workers(n)
        given: object = executor
        if given is not None and not isinstance(given, Executor):
            raise InvalidInput(
                "executor must be a concurrent.futures.Executor, such as ProcessPoolExecutor(4) or client.get_executor() of "
                f"Dask; got {type(given).__name__}."
            )
        if n > 1 and executor is None:
            leave_unguarded_script()
        self._n, self.executor, self.timeout = n, executor, timeout
        self._pools: dict[str, Executor] = {}  # by what they are
        self._handler: Any = None  # of interruptions, before
        self._carried: collections.Counter[str] = collections.Counter()  # tasks that carried a spec, by digest
        self._said: set[str] = set()

    @property
    def are_many(self) -> bool:
        """Whether anybody but this process and its one thread works."""
        return self._n > 1 or self.executor is not None

    def say(self, sentence: str) -> None:
        """Tells the user something about who works, once: it is logged as a warning of the logger "richobs"."""
        if sentence not in self._said:
            self._said.add(sentence)
            LOG.warning(sentence)

    def beside(self, function: Callable[..., T], *args: object) -> "Future[T]":
        """Makes a call in one thread of this process, while others work."""
        return self._pool("beside").submit(function, *args)

    def in_threads(self, function: Callable[[int], T], items: Iterable[int]) -> Iterator[T]:
        """Yields what a function of this process returns for each item, in order; threads share the items."""
        pool = self._pool("threads")
        yield from _in_order(
            lambda item: pool.submit(function, item), lambda future, _: future.result(), items, self._n
        )

    def send(self, spec: Spec, body: bytes, items: Iterable[int], *, threads: bool = False) -> Iterator[Any]:
        """Yields what a task returns for each item, in order; workers share the items.

        Args:
            spec: what all tasks need.
            body: the task, as `spec.task` wrote it.
            items: the last argument of each task.
            threads: where no executor was given, threads of this process are the workers, not processes.

        Raises:
            WorkerFailed: a worker was lost, or cannot read the task; or what the task raised.
        """
        pool = self.executor or self._pool("threads" if threads else "processes")
        width: int = getattr(pool, "_max_workers", GUESSED)  # the standard pools have it

        def submit(item: int, whole: bool = False) -> "Future[Told]":
            carries = whole or self._carried[spec.digest] < width
            self._carried[spec.digest] += carries
            try:
                with interruptions_held_back():  # a worker may be started
                    return pool.submit(do_task, spec.digest, spec.body if carries else None, body, item)
            except Exception as error:
                raise self._lost(error) from error

        def value(future: "Future[Told]", item: int) -> Any:
            told = self._told(future, _name(body, item))
            if told.state == UNKNOWN:
                told = self._told(submit(item, whole=True), _name(body, item))
                self._carried[spec.digest] = 0  # a worker came later: the next tasks carry the spec again, one for each
            if told.state == FAILED:
                raise told.value
            return told.value

        yield from _in_order(submit, value, items, width)

    def _told(self, future: "Future[Told]", task: tuple[str, int]) -> Told:
        """Returns what a worker said; what a task raises is said too, so whatever is raised here is about the worker."""
        try:
            told: object = self.awaited(future)
        except CallTooLong:
            raise
        except (Exception, CancelledError) as error:
            raise self._lost(error) from error
        if not isinstance(told, Told) or told.task != task:
            raise WorkerFailed(
                "a worker answered something else than it was asked: the answer to another task, or none of this version of "
                "richobs. Nothing of it counts; a stored run goes on from what it has."
            )
        return told

    def awaited(self, future: "Future[T]") -> T:
        """Returns what a future of an own pool answers; where it takes too long, the processes are ended.

        An executor that was given may have other work, so its answer is awaited for ever.

        Raises:
            CallTooLong: it did not answer within the limit.
        """
        limit = None if self.timeout is None or self.executor is not None else self.timeout + GRACE
        try:
            return future.result(limit)
        except TimeoutError:
            if future.done():  # the call itself raised it
                raise
            self.end()
            raise CallTooLong.after(self.timeout) from None

    def _lost(self, error: Exception) -> WorkerFailed:
        """Returns the error for a worker that did not answer."""
        return WorkerFailed(
            f"a worker was lost, or its executor takes no more tasks ({type(error).__name__}: {error}). Nothing of the lost "
            "task counts. If the run has a folder, all that was recorded is kept there: the same call, or `richobs resume`, "
            f"goes on from it to the same result. workers=1 without an executor computes all in this process."
            + (f" {GUARD}" if self.executor is None else "")
        )

    def _pool(self, kind: str) -> Executor:
        """Returns the pool of "threads" or "processes", or the one thread "beside"; made now if it is not there."""
        if kind not in self._pools:
            if kind == "processes":
                spawn = multiprocessing.get_context("spawn")
                self._pools[kind] = ProcessPoolExecutor(self._n, mp_context=spawn, initializer=begin_worker)
            else:
                self._pools[kind] = Threads(1 if kind == "beside" else self._n)
        return self._pools[kind]

    def close(self) -> None:
        """Ends the pools that were made here, once they have done what they are doing."""
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)
        self._pools.clear()

    def end(self) -> None:
        """Ends the pools that were made here in the middle of what they are doing; threads are left to themselves."""
        self._kill()
        while self._pools:
            _, pool = self._pools.popitem()
            pool.shutdown(wait=False, cancel_futures=True)

    def _kill(self) -> None:
        """Kills the processes of the pool; no lock is taken, so an interruption may do it wherever it comes."""
        processes = getattr(self._pools.get("processes"), "_processes", None) or {}
        for process in list(processes.values()):
            process.kill()

    def __enter__(self) -> Self:
        """Lets the second interruption, and every one after it, kill the processes of the pool, wherever this process is."""
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(before):
            came = itertools.count(1)

            def interrupted(number: int, frame: FrameType | None) -> None:
                if next(came) > 1:
                    self._kill()
                before(number, frame)

            self._handler = before
            signal.signal(signal.SIGINT, interrupted)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the pools: a first interruption asks, anything else that went wrong ends them at once."""
        try:
            if self._pools and isinstance(error, KeyboardInterrupt):
                self.say("interrupted; calls in progress end first. Interrupt again to end them at once.")
            if self._pools and isinstance(error, KeyboardInterrupt | None):
                self.close()
        finally:
            if self._pools:
                self.end()
            if self._handler is not None:
                signal.signal(signal.SIGINT, self._handler)


def _in_order(
    submit: Callable[[int], "Future[Any]"], value: Callable[["Future[Any]", int], T], items: Iterable[int], width: int
) -> Iterator[T]:
    """Yields the value of each item in order, while at most `AHEAD * width` are under way."""
    waiting: collections.deque[tuple[int, Future[Any]]] = collections.deque()
    try:
        for item in items:
            if len(waiting) >= AHEAD * width:
                first, future = waiting.popleft()
                yield value(future, first)
            waiting.append((item, submit(item)))
        while waiting:
            first, future = waiting.popleft()
            yield value(future, first)
    finally:
        for _, future in waiting:
            future.cancel()


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


class _Runs:
    """How many runs of this process hold BLAS at one thread, and what gives the threads back."""

    lock = threading.Lock()
    count = 0
    give_back: Callable[[], None]


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Lets BLAS use one thread while any run lasts, and as many as before afterwards, unless a variable says how many.

    Products of a run are small: threads that share them cost more than they save. And the last bits of a product depend on
    how it is shared, so results would depend on the number of CPUs.
    """
    if any(os.environ.get(name) for name in ONE_THREAD):
        yield
        return
    from threadpoolctl import threadpool_limits  # here, because most processes that import richobs do not learn

    with _Runs.lock:
        if not _Runs.count:
            _Runs.give_back = threadpool_limits(limits=1, user_api="blas").restore_original_limits
        _Runs.count += 1
    try:
        yield
    finally:
        with _Runs.lock:
            _Runs.count -= 1
            if not _Runs.count:
                _Runs.give_back()


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

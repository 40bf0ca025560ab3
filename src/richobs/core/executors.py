"""Who does the work of a run: this process, threads, a pool of processes, or any `concurrent.futures.Executor`.

Work is a list of tasks. A task is a call of an importable function: what it computes depends on its arguments alone, so it
does not matter who computes it, when, or how often. What all tasks of a run need (environment, class of functions) is a
`Spec`. It is pickled once, named by its digest, and kept by each worker process; a worker that does not have it says so, and
gets the task again with the spec. Before a worker process uses a spec, it computes what the parent has computed too, and
refuses where it finds something else. Answers are taken in the order of tasks, and few tasks are under way at a time.

Pickles pass between a run and workers that it started or was given, never through a file: what was stored or came from
somebody else is not unpickled anywhere.
"""

import collections
import hashlib
import io
import logging
import multiprocessing
import pickle
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from richobs.core.errors import InvalidInput, WorkerFailed
from richobs.core.processes import GUARD, begin_worker, interruptions_held_back, leave_unguarded_script
from richobs.core.version import __version__

AHEAD = 4  # tasks under way for each worker: the number of episodes of a query may be astronomical
GUESSED = 16  # workers that an executor is taken to have where it does not say how many
KEPT = 4  # specs that a worker process keeps

T = TypeVar("T")
LOG = logging.getLogger("richobs")
VERSIONS = f"richobs {__version__} and NumPy {np.__version__}"  # other versions may draw other numbers


class SubmitsOnce(Protocol):
    """An executor that can be asked not to do a task a second time, whatever is lost.

    `submit` of such an executor may do a task again after a worker is lost. Everything that richobs sends may be done
    again, because it only sends environments that are replayable; so it calls `submit`.
    """

    def submit_once(self, fn: Callable[..., Any], /, *args: Any) -> "Future[Any]":
        """Does as `submit`, and never tries again: a lost answer is an exception of the future."""
        ...


@runtime_checkable
class _Counted(Protocol):
    """An executor that says how many workers it has, as the standard pools do."""

    _max_workers: int


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

    def _seal(self, expected: "tuple[Check, dict[str, str]] | None") -> None:
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
    try:
        objects = _objects(digest, spec)
        if objects is None:
            return Told(UNKNOWN, None)
        function, args = _Unpickler(body, objects).load()
    except WorkerFailed as error:
        return Told(FAILED, error)
    except Exception as error:
        return Told(FAILED, WorkerFailed(_cannot_read(error)))
    try:
        return Told(DONE, function(*args, item))
    except Exception as error:
        return Told(FAILED, _portable(error))


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


class Workers:
    """Who does the tasks of one run: an executor that was given, or a pool that is made when it is first needed."""

    def __init__(self, n: int = 1, executor: Executor | None = None):
        """Takes how many workers there are.

        Args:
            n: size of the pool; 1: this process does everything.
            executor: does the tasks instead; it is not shut down.

        Raises:
            InvalidInput: there is less than one worker, or the executor is none.
        """
        if n < 1:
            raise InvalidInput(f"workers must be at least 1; got {n}.")
        given: object = executor
        if given is not None and not isinstance(given, Executor):
            raise InvalidInput(
                "executor must be a concurrent.futures.Executor, such as ProcessPoolExecutor(4) or client.get_executor() of "
                f"Dask; got {type(given).__name__}."
            )
        if n > 1 and executor is None:
            leave_unguarded_script()
        self._n, self.executor = n, executor
        self._pools: dict[bool, Executor] = {}  # of threads, of processes
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

    def in_threads(self, function: Callable[[int], T], items: Iterable[int]) -> Iterator[T]:
        """Yields what a function of this process returns for each item, in order; threads share the items."""
        pool = self._pool(threads=True)
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
        pool = self.executor or self._pool(threads=threads)
        width = pool._max_workers if isinstance(pool, _Counted) else GUESSED

        def submit(item: int, whole: bool = False) -> "Future[Told]":
            carries = whole or self._carried[spec.digest] < width
            self._carried[spec.digest] += carries
            try:
                with interruptions_held_back():  # a worker may be started
                    return pool.submit(do_task, spec.digest, spec.body if carries else None, body, item)
            except Exception as error:
                raise self._lost(error) from error

        def value(future: "Future[Told]", item: int) -> Any:
            told = self._told(future)
            if told.state == UNKNOWN:
                told = self._told(submit(item, whole=True))
            if told.state == FAILED:
                raise told.value
            return told.value

        yield from _in_order(submit, value, items, width)

    def _told(self, future: "Future[Told]") -> Told:
        """Returns what a worker said; what a task raises is said too, so whatever is raised here is about the worker."""
        try:
            return future.result()
        except Exception as error:
            raise self._lost(error) from error

    def _lost(self, error: Exception) -> WorkerFailed:
        """Returns the error for a worker that did not answer."""
        return WorkerFailed(
            f"a worker was lost, or its executor takes no more tasks ({type(error).__name__}: {error}). Nothing of the lost "
            "task counts. If the run has a folder, all that was recorded is kept there: the same call, or `richobs resume`, "
            f"goes on from it to the same result. workers=1 without an executor computes all in this process."
            + (f" {GUARD}" if self.executor is None else "")
        )

    def _pool(self, *, threads: bool) -> Executor:
        """Returns the pool of threads or of processes, made now if it is not there."""
        if threads not in self._pools:
            if threads:
                self._pools[threads] = ThreadPoolExecutor(self._n, thread_name_prefix="richobs")
            else:
                spawn = multiprocessing.get_context("spawn")
                self._pools[threads] = ProcessPoolExecutor(self._n, mp_context=spawn, initializer=begin_worker)
        return self._pools[threads]

    def close(self) -> None:
        """Ends the pools that were made here, once what they are doing is done."""
        while self._pools:
            _, pool = self._pools.popitem()
            pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _in_order(
    submit: Callable[[int], "Future[Any]"],
    value: Callable[["Future[Any]", int], T],
    items: Iterable[int],
    width: int,
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

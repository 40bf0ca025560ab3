"""Ray: an executor whose workers are actors of a Ray cluster, on this machine or on many.

`RayExecutor` is a `concurrent.futures.Executor`, so `richobs.learn(..., workers=RayExecutor("auto"))` plays the episodes of
a run on a cluster. It needs the extra `ray` (`pip install 'richobs[ray]'`), which is imported only when an executor is
made. See docs/scale.md.
"""

import contextlib
import ipaddress
import logging
import os
import platform
import queue
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from richobs.core.errors import InvalidInput, RichObsError
from richobs.core.version import __version__

P = ParamSpec("P")
T = TypeVar("T")

LOOK = 0.5  # seconds between two looks at the size of the cluster
PATIENCE = 30.0  # seconds without any worker until a line says so
STARTS = 3  # workers in a row that may fail to start
LARGE = 100_000  # bytes of an argument from which it is stored once
KEPT = 4  # arguments that are kept in Ray's object store
CONNECT = 5.0  # seconds for the first answer of a cluster's address


class WorkerLost(RichObsError, BrokenExecutor):
    """A task without an answer: its worker ended, and the task may not be tried again, or was tried often enough."""


@dataclass(eq=False)
class _Task:
    """One call that was submitted."""

    future: "Future[Any]"
    call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
    once: bool
    tries: int = 0


@dataclass(eq=False)
class _Actor:
    """One actor of the pool, and what it does."""

    handle: Any
    task: _Task | None = None
    ready: bool = False  # it answered, and is able to work
    asked: bool = False  # it was asked whether it is able to work
    since: float = field(default_factory=time.monotonic)  # when it was asked last


@dataclass(frozen=True)
class _Answered:
    """An actor's answer: to the question whether it is able to work, or the result of its task."""

    actor: _Actor
    task: _Task | None
    answer: "Future[Any]"


@dataclass(frozen=True)
class _Close:
    """The wish to end: `kill` ends tasks in progress too."""

    cancel: bool
    kill: bool


class RayExecutor(Executor):
    """Runs calls on the actors of a Ray cluster.

    Futures are those of `concurrent.futures`: they can be cancelled until an actor has begun, and raise what the call
    raised. Each actor takes one CPU and does one call at a time. Nodes that join the cluster are used. Where an actor is
    lost (its node died, or it ran out of memory), its call is made again elsewhere if it came by `submit`, and never if it
    came by `submit_once`; a call that is not made again fails with `WorkerLost`. So a call of `submit` is made at least
    once, and one of `submit_once` at most once.

    Arguments of a call that are `bytes` of some size are put into Ray's object store once, and not once for each call.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        actors: int | None = None,
        max_restarts: int = -1,
        max_task_retries: int = 3,
    ):
        """Connects to a cluster, or starts Ray on this machine, and begins to start actors.

        A connection that this process has to Ray already is used as it is, and left open at the end.

        Args:
            address: of the cluster: `auto` for the one that this machine belongs to, or `host:port`. None starts Ray on this
                machine, which other machines cannot reach, and ends it at `shutdown`.
            actors: how many; by default as many as the cluster has CPUs, and more when nodes join.
            max_restarts: how often Ray starts an actor again; -1: as often as needed.
            max_task_retries: how often a call of `submit` is made again after its actor was lost.

        Raises:
            InvalidInput: Ray is not installed, or there is no cluster at the address.
        """
        if actors is not None and actors < 1:
            raise InvalidInput(f"RayExecutor needs at least one actor; got {actors}.")
        if max_task_retries < 0 or max_restarts < -1:
            raise InvalidInput(
                "max_task_retries must be at least 0 and max_restarts at least -1; got "
                f"{max_task_retries} and {max_restarts}."
            )
        self._ray, self._owns_connection = _connected(address, actors)
        self._actor_count, self._max_task_retries = actors, max_task_retries
        self._make = self._ray.remote(num_cpus=1, max_restarts=max_restarts, max_task_retries=0)(_Worker)
        self._inbox: queue.SimpleQueue[_Task | _Answered | _Close] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._broken: WorkerLost | None = None
        self._actors: list[_Actor] = []
        self._waiting: deque[_Task] = deque()
        self._large: deque[tuple[bytes, Any]] = deque(maxlen=KEPT)  # arguments in Ray's object store
        self._failures, self._looked = 0, -LOOK
        self._begin, self._patient = time.monotonic(), True
        self._grow()
        self._thread = threading.Thread(target=self._serve, name="richobs-ray", daemon=True)
        self._thread.start()

    @property
    def _max_workers(self) -> int:
        """How many calls can be made at the same time now, by the name that the standard pools have for it."""
        return max(1, len(self._actors))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Sends a call that may be made more than once: another actor makes it again where one is lost."""
        return self._submitted(_Task(Future(), (fn, args, kwargs), once=False))

    def submit_once(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Sends a call that is made at most once; where its actor is lost, the future raises `WorkerLost`."""
        return self._submitted(_Task(Future(), (fn, args, kwargs), once=True))

    def _submitted(self, task: _Task) -> "Future[Any]":
        with self._lock:
            if self._broken is not None:
                raise WorkerLost(str(self._broken))
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._inbox.put(task)
        return task.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Lets what was submitted finish, then ends the actors.

        Args:
            wait: return only then.
            cancel_futures: cancel what has not begun.
        """
        self._end(_Close(cancel_futures, kill=False), wait)

    def abandon(self) -> None:
        """Ends now: cancels what has not begun, and ends actors in the middle of their calls, which fail."""
        self._end(_Close(cancel=True, kill=True), wait=True)

    def _end(self, wish: _Close, wait: bool) -> None:
        with self._lock:
            self._closed = True
            self._inbox.put(wish)
        if wait:
            self._thread.join()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends: once everything is done, or at once where an error (or Control-C) ended the block."""
        if kind is None:
            self.shutdown()
        else:
            self.abandon()

    # The rest runs in one thread, which alone touches actors and tasks. Ray's own threads only put answers into the inbox.

    def _serve(self) -> None:
        closing: _Close | None = None
        try:
            while closing is None or (not closing.kill and self._is_busy()):
                try:
                    message = self._inbox.get(timeout=LOOK)
                except queue.Empty:
                    message = None
                if isinstance(message, _Task):
                    self._waiting.append(message)
                elif isinstance(message, _Answered):
                    self._take(message)
                elif isinstance(message, _Close):
                    closing = message
                    while message.cancel and self._waiting:
                        self._cancel(self._waiting.popleft())
                self._grow()
                self._assign()
        except Exception as error:  # Ray itself failed, for instance because the whole cluster is gone
            self._break(f"Ray failed: {type(error).__name__}: {error}")
        finally:
            self._release()

    def _is_busy(self) -> bool:
        return bool(self._waiting) or any(actor.task is not None for actor in self._actors)

    def _grow(self) -> None:
        """Starts actors that are missing, and asks those again that did not answer."""
        now = time.monotonic()
        if now - self._looked < LOOK:
            return
        self._looked = now
        wanted = self._actor_count
        if wanted is None:
            wanted = max(1, int(self._ray.cluster_resources().get("CPU", 0)))
        while len(self._actors) < wanted and self._broken is None:
            actor = _Actor(self._make.remote())
            self._actors.append(actor)
            self._ask(actor)
        for actor in self._actors:
            if not actor.ready and not actor.asked and now - actor.since >= LOOK:
                self._ask(actor)
        if any(actor.ready for actor in self._actors):
            self._begin, self._patient = now, True
        elif self._patient and self._waiting and now - self._begin > PATIENCE:
            self._patient = False
            logging.getLogger("richobs").warning(
                "no Ray worker has been able to start for %d seconds: the cluster has no free CPU. The run waits.",
                PATIENCE,
            )

    def _ask(self, actor: _Actor) -> None:
        """Asks an actor whether it is able to work."""
        actor.asked, actor.since = True, time.monotonic()
        self._send(actor, None, actor.handle.versions.remote())

    def _assign(self) -> None:
        """Gives waiting tasks to actors that have none."""
        for actor in self._actors:
            while actor.ready and actor.task is None and self._waiting:
                task = self._waiting.popleft()
                if task.tries == 0 and not task.future.set_running_or_notify_cancel():
                    continue
                task.tries += 1
                try:
                    fn, args, kwargs = task.call
                    reference = actor.handle.work.remote(fn, kwargs, *map(self._stored, args))
                except Exception as error:  # the call cannot be pickled
                    task.future.set_exception(error)
                    continue
                actor.task = task
                self._send(actor, task, reference)

    def _stored(self, argument: Any) -> Any:
        """Returns what is sent for an argument: large bytes are stored once, and only a reference to them is sent."""
        if not isinstance(argument, bytes) or len(argument) < LARGE:
            return argument
        for kept, reference in self._large:
            if kept is argument:
                return reference
        reference = self._ray.put(argument)
        self._large.append((argument, reference))
        return reference

    def _send(self, actor: _Actor, task: _Task | None, reference: Any) -> None:
        """Has the answer to a call put into the inbox."""
        reference.future().add_done_callback(lambda answer: self._inbox.put(_Answered(actor, task, answer)))

    def _take(self, message: _Answered) -> None:
        """Takes an answer: of a task, or of an actor that was asked whether it is able to work."""
        actor, task, error = message.actor, message.task, message.answer.exception()
        if task is None:
            actor.asked = False
            self._take_readiness(actor, error, None if error is not None else message.answer.result())
            return
        actor.task = None
        errors = self._ray.exceptions
        if error is None:
            task.future.set_result(message.answer.result())
        elif isinstance(error, errors.RayTaskError):
            task.future.set_exception(_original(error, error.cause))
        elif not isinstance(error, errors.RayError):
            task.future.set_exception(error)
        else:
            actor.ready = False
            self._ask(actor)
            self._lose(task, error)

    def _take_readiness(self, actor: _Actor, error: BaseException | None, versions: Any) -> None:
        if error is None and versions == _versions():
            actor.ready = True
            self._failures = 0
            return
        if isinstance(error, self._ray.exceptions.ActorUnavailableError):
            return  # it is being started again, and will be asked again
        self._actors.remove(actor)
        self._kill(actor)
        self._failures += 1
        if self._failures >= STARTS and not any(other.ready for other in self._actors):
            if error is None:
                why = f"a node has {_version_words(versions)}, and this process {_version_words(_versions())}"
            else:
                why = f"{type(error).__name__}: {error}"
            self._break(
                f"no worker could start on the Ray cluster: {why}. Every node needs the same versions of Python, NumPy and "
                "richobs as this process."
            )

    def _lose(self, task: _Task, error: BaseException) -> None:
        """Gives a task whose actor was lost to another one, where that is allowed."""
        if not task.once and task.tries <= self._max_task_retries:
            self._waiting.appendleft(task)
            return
        why = "it may be made only once" if task.once else f"it was made {task.tries} times"
        first = (str(error).strip().splitlines() or [""])[0]
        task.future.set_exception(
            WorkerLost(
                f"a Ray worker was lost in the middle of a call, which is not made again: {why}. Ray says: {first}"
            )
        )

    def _break(self, why: str) -> None:
        """Fails everything that waits, and whatever is submitted from now on."""
        with self._lock:
            self._broken = WorkerLost(why)
        while self._waiting:
            task = self._waiting.popleft()
            if task.tries or task.future.set_running_or_notify_cancel():
                task.future.set_exception(WorkerLost(why))

    def _cancel(self, task: _Task) -> None:
        if task.tries:  # it began once, so it cannot be cancelled
            task.future.set_exception(WorkerLost("the executor was shut down before a lost call could be made again."))
        elif task.future.cancel():
            task.future.set_running_or_notify_cancel()

    def _release(self) -> None:
        """Ends the actors, and answers whoever still waits."""
        with self._lock:
            self._closed = True
        for actor in self._actors:
            self._kill(actor)
            if actor.task is not None:
                actor.task.future.set_exception(WorkerLost("the executor was ended in the middle of this call."))
                actor.task = None
        while not self._inbox.empty():
            message = self._inbox.get()
            if isinstance(message, _Task):
                self._waiting.append(message)
        while self._waiting:
            self._cancel(self._waiting.popleft())
        if self._owns_connection:
            self._ray.shutdown()

    def _kill(self, actor: _Actor) -> None:
        try:
            self._ray.kill(actor.handle)
        except Exception as error:
            logging.getLogger("richobs").debug("an actor could not be ended: %s", error)


class _Worker:
    """What runs inside an actor."""

    def versions(self) -> tuple[str, ...]:
        """Returns the versions that must agree with those of the process that sends calls."""
        return _versions()

    def work(self, fn: Callable[..., Any], kwargs: dict[str, Any], *args: Any) -> Any:
        """Makes one call."""
        return fn(*args, **kwargs)


def _versions() -> tuple[str, ...]:
    """Returns the versions of richobs, Python and NumPy: with others, results could differ."""
    import numpy as np

    return __version__, ".".join(platform.python_version_tuple()[:2]), np.__version__


def _version_words(versions: tuple[str, ...]) -> str:
    return "richobs {}, Python {} and NumPy {}".format(*versions)


def _original(error: BaseException, cause: object) -> BaseException:
    """Returns the error that a call raised, with Ray's account of where as its cause."""
    if not isinstance(cause, BaseException):
        return error
    cause.__cause__ = RuntimeError(f"on a Ray worker:\n{error}")
    return cause


def _connected(address: str | None, actors: int | None) -> tuple[Any, bool]:
    """Returns Ray, connected, and whether the connection was made here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody unless the user wants that
    log = logging.getLogger("ray")
    is_chosen = log.level != logging.NOTSET or "ray" in sys.modules  # the level of its messages, by the user
    try:
        import ray
    except ImportError as error:
        raise InvalidInput(
            f"RayExecutor needs Ray, and it cannot be imported ({error}). Install it: pip install 'richobs[ray]'."
        ) from error
    if not is_chosen:
        log.setLevel(logging.ERROR)
    if ray.is_initialized():
        return ray, False
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
    if address is None:
        with _on_the_loopback(ray):
            ray.init(address="local", num_cpus=actors, include_dashboard=False, **quiet)
        where = ray.util.get_node_ip_address()
        if not ipaddress.ip_address(where).is_loopback:
            logging.getLogger("richobs").warning(
                "this version of Ray (%s) listens at %s, not at the loopback alone: other machines can reach it.",
                ray.__version__,
                where,
            )
        return ray, True
    if address.startswith("ray://"):
        raise InvalidInput(
            f"RayExecutor must run on a machine that belongs to the cluster; {address!r} is the address of a remote client. "
            "Log in to a node of the cluster and use 'auto', or submit the command as a Ray job."
        )
    if address != "auto":
        _check_address(address)
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise InvalidInput(
            f"there is no Ray cluster at {address!r} ({first}). Start one with `ray start --head`, or leave the address "
            "out: then Ray runs on this machine alone."
        ) from error
    return ray, True


@contextlib.contextmanager
def _on_the_loopback(ray: Any) -> Iterator[None]:
    """Lets Ray that is started meanwhile listen at the loopback alone, as it does on macOS and Windows.

    Ray takes an address of this machine in the network for `_node_ip_address="127.0.0.1"`, so that does not help.
    """
    name, constants = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", ray._private.ray_constants
    before = os.environ.get(name), getattr(constants, "ENABLE_RAY_CLUSTER", None)
    os.environ[name], constants.ENABLE_RAY_CLUSTER = "0", False  # for what is started, and for this process
    try:
        yield
    finally:
        os.environ.pop(name)
        if before[0] is not None:
            os.environ[name] = before[0]
        constants.ENABLE_RAY_CLUSTER = before[1]


def _check_address(address: str) -> None:
    """Refuses an address where nobody answers: Ray itself would try for a long time."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise InvalidInput(f"the address of a Ray cluster is 'auto' or 'host:port'; got {address!r}.")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT):
            pass
    except (OSError, OverflowError) as error:
        raise InvalidInput(
            f"there is no Ray cluster at {address!r} ({error}). `ray status` on a node of the cluster shows whether it "
            "runs; leave the address out, and Ray runs on this machine alone."
        ) from error

"""How a run speeds up with workers, what a task costs in each executor, and where speed-up ends on a large cluster.

Run with `python benchmarks/scale.py [speed] [overhead] [model]` (all three by default, about four minutes, most of them
sleeping). It needs the extras `ray` and `dask`, and loky: `pip install 'richobs[ray,dask]' loky`. What is not installed is
left out. It writes `benchmarks/results/scale.json` and `docs/figures/scale.png`; parts that are not run keep their numbers.

speed: one request of 512 episodes of an environment that sleeps 50 ms an episode, shared by 1, 2, 4, 8 workers. overhead:
tasks that do nothing. model: the scheduler of richobs (`core/executors.py`) over a cluster in virtual time, with the
measured costs of a task.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import contextlib
import heapq
import importlib.util
import json
import multiprocessing
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

import richobs
from measure import RESULTS
from richobs.classes import Layered, TableLevel
from richobs.core.executors import Spec, Workers
from richobs.core.policies import Policy, Uniform
from richobs.engines import Calls

TARGET = Path(__file__).parents[1] / "docs" / "figures" / "scale.png"
WORKERS = (1, 2, 4, 8)
EPISODE = 0.05  # seconds
REQUEST = 512  # episodes
TASKS = 2_000
CLUSTER = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_000, 2_000, 5_000, 10_000)  # workers of the model
LATENCY = 0.0005  # seconds from one machine of a cluster to another, one way: a usual data centre
LARGE_REQUEST = 1_000_000  # episodes
RUNS, RUN = 100_000, 60.0  # a large sweep: runs, and seconds of each


class Sleeper:
    """A chain of two levels with random rewards, in which every episode takes a while."""

    declared = richobs.Declared(replayable=True)
    horizon, n_actions, reward_range = 2, 2, (0.0, 1.0)

    def __init__(self, seconds: float):
        self.seconds = seconds

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> richobs.Episodes:
        """Sleeps for the time of n episodes, and returns them."""
        time.sleep(self.seconds * n)
        x = rng.integers(0, 2, n)
        first = policy.actions(0, x, rng)
        then = (rng.random(n) < np.where(first == x, 0.8, 0.2)).astype(np.int64)
        last = policy.actions(1, then, rng)
        paid = ((then == 1) & (last == 1) & (rng.random(n) < 0.9)).astype(np.float64)
        return richobs.Episodes([x, then][:levels], [first, last][:levels], [np.zeros(n), paid][:levels])


FUNCTIONS = Layered(
    [
        TableLevel([[[0.72, 0.18], [0.18, 0.72]], [[0.82, 0.1], [0.2, 0.8]], [[0.18, 0.8], [0.6, 0.7]]]),
        TableLevel([[[0.0, 0.0], [0.0, 0.9]], [[0.1, 0.2], [0.9, 0.0]], [[0.15, 0.1], [0.1, 0.98]]]),
    ]
)


def nothing(item: int) -> int:
    """Does nothing: a task that costs what every task costs."""
    return item


@contextlib.contextmanager
def processes(n: int) -> Iterator[Executor]:
    """A pool of n processes, as `workers=n` makes it."""
    with ProcessPoolExecutor(n, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


@contextlib.contextmanager
def on_ray(n: int) -> Iterator[Executor]:
    """Ray on this machine with n actors."""
    from richobs.ray import RayExecutor

    with RayExecutor(actors=n) as pool:
        yield pool


@contextlib.contextmanager
def on_dask(n: int) -> Iterator[Executor]:
    """Dask on this machine with n processes."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=n, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        yield client.get_executor()


@contextlib.contextmanager
def on_loky(n: int) -> Iterator[Executor]:
    """Loky's pool of n processes."""
    from loky import ProcessPoolExecutor as Loky

    pool: Executor = Loky(n)
    yield pool
    pool.shutdown()


MADE: dict[str, tuple[str, Callable[[int], contextlib.AbstractContextManager[Executor]]]] = {
    "threads": ("concurrent", lambda n: ThreadPoolExecutor(n)),
    "processes": ("concurrent", processes),
    "loky": ("loky", on_loky),
    "Dask": ("distributed", on_dask),
    "Ray": ("ray", on_ray),
}


def installed() -> list[str]:
    return [name for name, (module, _) in MADE.items() if importlib.util.find_spec(module) is not None]


def warm(pool: Executor, n: int) -> None:
    """Waits until all n workers have started and imported what they need."""
    for _ in range(2):
        for future in [pool.submit(time.sleep, 0.3) for _ in range(n)]:
            future.result()


def seconds_of_request(workers: Workers) -> float:
    """Returns how long one request takes; a small one goes before, so that workers know the environment."""
    env = Calls(Sleeper(EPISODE), functions=FUNCTIONS, workers=workers)
    env.play(Uniform(2), 16, np.random.default_rng(1))
    begin = time.monotonic()
    played = env.play(Uniform(2), REQUEST, np.random.default_rng(2))
    spent = time.monotonic() - begin
    assert played.n == REQUEST
    return spent


def speed() -> list[dict[str, Any]]:
    """Measures a request with 1, 2, 4, 8 workers, in processes and in Ray."""
    alone = seconds_of_request(Workers())
    rows = []
    for name in [name for name in ("processes", "Ray") if name in installed()]:
        for n in WORKERS:
            if n == 1:
                spent = alone
            else:
                with MADE[name][1](n) as pool:
                    warm(pool, n)
                    spent = seconds_of_request(Workers(executor=pool))
            rows.append({"executor": name, "workers": n, "seconds": spent, "share of linear": alone / spent / n})
    return rows


def overhead() -> list[dict[str, Any]]:
    """Measures tasks that do nothing: by the clock, in CPU time of the parent, and one after the other."""
    rows = []
    for name in installed():
        with MADE[name][1](2) as pool:
            warm(pool, 2)
            workers = Workers(executor=pool)
            spec = Spec({"env": Sleeper(0.0)}, {"functions": FUNCTIONS})
            body = spec.task(nothing)
            list(workers.send(spec, body, range(200)))
            clock, cpu = time.monotonic(), time.process_time()
            list(workers.send(spec, body, range(TASKS)))
            clock, cpu = time.monotonic() - clock, time.process_time() - cpu
            trips = []
            for _ in range(200):
                begin = time.monotonic()
                list(workers.send(spec, body, range(1)))
                trips.append(time.monotonic() - begin)
        rows.append(
            {
                "executor": name,
                "microseconds per task": 1e6 * clock / TASKS,
                "CPU of the parent": 1e6 * cpu / TASKS,
                "there and back": 1e6 * statistics.median(trips),
            }
        )
    return rows


class VirtualFuture(Future[Any]):
    """A future whose result takes virtual time."""

    def __init__(self, cluster: "VirtualCluster", done_at: float, value: Any):
        super().__init__()
        self._cluster, self._done_at = cluster, done_at
        self.set_running_or_notify_cancel()
        self.set_result(value)

    def result(self, timeout: float | None = None) -> Any:
        """Returns the result once the virtual clock of the parent has reached it."""
        self._cluster.collect(self._done_at)
        return super().result(timeout)


class VirtualCluster(Executor):
    """An executor of many workers in virtual time: it does tasks here and now, and computes when they would be done.

    The parent needs some of its own time to send a task and to take its answer. Messages need a latency each way. A worker
    does one task at a time; a task goes to the worker that is free first.
    """

    def __init__(self, workers: int, *, task: float, parent: float, latency: float):
        """Takes what tasks cost, in seconds.

        Args:
            workers: how many there are.
            task: what a worker needs for one task.
            parent: what the parent needs for one task: half to send it, half to take the answer.
            latency: of a message, one way.
        """
        self._max_workers = workers
        self._task, self._parent, self._latency = task, parent, latency
        self._free = [0.0] * workers
        self.clock = 0.0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Does a task, and notes when it would be done."""
        self.clock += self._parent / 2
        done = max(heapq.heappop(self._free), self.clock + self._latency) + self._task
        heapq.heappush(self._free, done)
        return VirtualFuture(self, done + self._latency, fn(*args, **kwargs))

    def collect(self, done_at: float) -> None:
        """Lets the parent wait until an answer is there, and take it."""
        self.clock = max(self.clock, done_at) + self._parent / 2


def virtual_seconds(requests: Sequence[tuple[int, float]], workers: int, parent: float) -> float:
    """Returns the virtual time of requests one after the other, each a number of tasks and the seconds of one task."""
    spec = Spec({}, {})
    body = spec.task(nothing)
    total = 0.0
    for tasks, seconds in requests:
        cluster = VirtualCluster(workers, task=seconds, parent=parent, latency=LATENCY)
        for _ in Workers(executor=cluster).send(spec, body, range(tasks)):
            pass
        total += cluster.clock
    return total


def asked_by_a_run() -> list[int]:
    """Returns how many episodes each request of a run of the default learner asks for."""
    asked: list[int] = []

    class Noting(Sleeper):
        """Notes what is asked for; it is not replayable, so every request is made in calls of `at_once`."""

        declared = richobs.Declared(at_once=1_000_000)

        def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> richobs.Episodes:
            """Notes the number and plays."""
            asked.append(n)
            return super().play(policy, n, rng, levels)

    richobs.learn(Noting(0.0), FUNCTIONS, epsilon=0.05, delta=0.05, progress=False)
    return asked


def calls(n: int, at_once: int = richobs.Declared.at_once) -> tuple[int, float]:
    """Returns how many calls of a replayable environment a request has, and the seconds of one."""
    size = richobs.Declared(replayable=True, at_once=at_once).call_size(n)
    return -(-n // size), size * EPISODE


def model(parent: float) -> list[dict[str, Any]]:
    """Computes the speed-up of some kinds of work for clusters of many sizes."""
    run = [calls(n) for n in asked_by_a_run()]
    kinds = {
        "one run, requests of the default learner": run,
        f"one request of {REQUEST} episodes": [calls(REQUEST)],
        f"one request of {REQUEST} episodes, at_once = 1": [calls(REQUEST, 1)],
        f"one request of {LARGE_REQUEST:,} episodes": [calls(LARGE_REQUEST)],
        f"a sweep of {RUNS:,} runs of a minute": [(RUNS, RUN)],
    }
    rows = []
    for name, requests in kinds.items():
        alone = sum(tasks * seconds for tasks, seconds in requests)
        most = max(tasks for tasks, _ in requests)
        limit = max(seconds for _, seconds in requests) / parent
        for n in CLUSTER:
            spent = virtual_seconds(requests, n, parent)
            rows.append(
                {
                    "work": name,
                    "workers": n,
                    "speed-up": alone / spent,
                    "largest number of tasks at once": most,
                    "seconds of a task / seconds of the parent for it": limit,
                }
            )
    return rows


def draw(found: dict[str, Any]) -> None:
    """Draws measured speed-up, and the model."""
    figure = Figure(figsize=(9.6, 3.9), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.35))
    colours = ("#0072b2", "#d55e00", "#009e73", "#9b3f76", "#8a6a00")  # safe for colour-blind readers
    left.plot(WORKERS, WORKERS, color="#999999", linestyle=":", linewidth=1, label="linear")
    for name, colour, marker in (("processes", colours[0], "o"), ("Ray", colours[1], "s")):
        rows = [row for row in found["speed"] if row["executor"] == name]
        gained = [row["workers"] * row["share of linear"] for row in rows]
        left.plot([row["workers"] for row in rows], gained, marker=marker, color=colour, markersize=4, label=name)
    left.set(xscale="log", yscale="log", xlabel="workers", ylabel="speed-up")
    left.set_xticks(WORKERS, [str(n) for n in WORKERS])
    left.set_yticks(WORKERS, [str(n) for n in WORKERS])
    left.minorticks_off()
    left.set_title(f"measured: {REQUEST} episodes of 50 ms", fontsize=9, loc="left")
    right.plot(CLUSTER, CLUSTER, color="#999999", linestyle=":", linewidth=1, label="linear")
    works = list(dict.fromkeys(row["work"] for row in found["model"]))
    for name, colour, marker in zip(reversed(works), colours, "osD^v", strict=True):
        rows = [row for row in found["model"] if row["work"] == name]
        gained = [row["speed-up"] for row in rows]
        right.plot([row["workers"] for row in rows], gained, marker=marker, color=colour, markersize=3, label=name)
    right.set(xscale="log", yscale="log", xlabel="workers", ylabel="speed-up")
    right.set_title(
        f"model of a cluster: {1e6 * found['parent']:.0f} µs of parent time per task", fontsize=9, loc="left"
    )
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=7, loc="upper left")
        axes.tick_params(labelsize=8)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.savefig(TARGET, metadata={"Software": None})


def show(title: str, rows: Sequence[dict[str, Any]]) -> None:
    table = Table(title=title, title_justify="left")
    for column in rows[0]:
        table.add_column(column)
    for row in rows:
        table.add_row(*(f"{v:,.4g}" if isinstance(v, float) else str(v) for v in row.values()))
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def main() -> None:
    wanted = sys.argv[1:] or ["speed", "overhead", "model"]
    file = RESULTS / "scale.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    found |= {
        "title": "Speed-up with workers, overhead of tasks, and a model of a large cluster",
        "note": f"speed: one request of {REQUEST} episodes that sleep {EPISODE} s each, workers warmed up. overhead: "
        f"{TASKS:,} tasks that do nothing, two workers, microseconds. model: virtual time, CPU time of the parent per task "
        f"as measured with Ray, {1e6 * LATENCY:.0f} microseconds of latency each way.",
        "richobs": richobs.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
    }
    if "speed" in wanted:
        found["speed"] = speed()
        show("One request", found["speed"])
    if "overhead" in wanted:
        found["overhead"] = overhead()
        show("Tasks that do nothing, microseconds", found["overhead"])
    if "model" in wanted:
        parents = {row["executor"]: row["CPU of the parent"] * 1e-6 for row in found["overhead"]}
        found["parent"] = parents.get("Ray", parents["processes"])
        found["model"] = model(found["parent"])
        show("Model of a cluster", found["model"])
        draw(found)
    file.write_text(json.dumps(found, indent=2) + "\n")
    print(f"written to {file.relative_to(Path(__file__).parents[1])}")


if __name__ == "__main__":
    import scale  # workers of loky, Dask and Ray import what they do by the name of its module

    scale.main()

"""The betting search's pairs on a GPU beside NumPy: bets a second, whole runs, and where the GPU begins to pay.

Run with `python benchmarks/gpu_pairs.py` where PyTorch finds a GPU; with `--device cpu --small` the same code runs
anywhere in a minute. A bet is one pair of members and one sample. "bets" is the wealth of all pairs alone; "batch" is all
that the search does with a batch at one level: forecasts, bets, losses, deaths, survivors, and which chain fits best.
Whole runs are made in NumPy and on the device with the same seed; the column "same" says whether all batches were the same.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import richobs
from measure import RESULTS, publish
from richobs.core.outcome import Outcome
from richobs.core.settings import Settings
from richobs.device import pairs as device_pairs
from richobs.device import pytorch, torch_device
from richobs.learners.betting.survivors_product import Pairs
from richobs.learners.betting.values import Rows
from richobs.runs.session import run
from richobs.stats.grouping import row_bytes

COLUMNS = ("what", "size", "NumPy s", "device s", "times faster", "device bets/s", "same")
LIMIT = 1e6  # wealth at which a pair dies
LARGEST_ON_HOST = 4_000_000  # pairs that NumPy is timed with
SAMPLES = 16
SIZES = (100, 300, 1_000, 3_000, 10_000, 20_000)
TABLES = "random/5,rewards=bernoulli,near=0.2,class_size="
RUNS = {
    "1,000 tables a level": (f"{TABLES}1000", 20_000),
    "3,000 tables a level": (f"{TABLES}3000", 20_000),
    "diabolical/50, up to 276,000 functions a level": ("diabolical/50", 20_000),
    "10,000 tables a level": (f"{TABLES}10000", 20_000),
    "30,000 tables a level": (f"{TABLES}30000", 20_000),
}
NOT_ON_HOST = frozenset({"10,000 tables a level", "30,000 tables a level"})  # many minutes in NumPy
SMALL_RUNS = {"diabolical/5": ("diabolical/5", 2_000), "100 tables a level": (f"{TABLES}100", 2_000)}


def some_rows(size: int, rng: np.random.Generator) -> Rows:
    """Returns `[size, SAMPLES]` values that tell all members apart."""
    return Rows(rng.random((size, SAMPLES)), np.arange(size))


def seconds(work: Callable[[], object], wait: Callable[[], object], repeats: int) -> float:
    """Returns the wall-clock seconds of one call: the best of `repeats`, after two that are not timed."""
    best = float("inf")
    for i in range(repeats + 2):
        wait()
        begin = time.perf_counter()
        work()
        wait()
        if i >= 2:
            best = min(best, time.perf_counter() - begin)
    return best


class Batch:
    """One level with `size` members before and after it, all told apart, and a batch to settle."""

    def __init__(self, pairs: Pairs, size: int):
        """Takes pairs that have seen nothing."""
        self.rng, self.pairs, self.t = np.random.default_rng(0), pairs, 1
        self.f, self.y = some_rows(size, self.rng), some_rows(size, self.rng)
        pairs.update(self.f, self.y, 1, self._keys())

    def _keys(self) -> list[bytes]:
        """Returns names of observations that were not seen before."""
        return row_bytes(self.rng.random((SAMPLES, 4)))

    def bets(self) -> None:
        """Settles the bets of a batch."""
        y = self.y.values
        self.pairs.held.settle(self.f.values, np.arange(len(y)), y, y[:, ::-1], np.full_like(y, 0.1), 2, LIMIT)

    def whole(self) -> None:
        """Does all that the search does with a batch at one level."""
        self.t += 1
        self.pairs.update(self.f, self.y, self.t, self._keys())
        self.pairs.held.living_rows(), self.pairs.held.living_columns()
        self.pairs.weights().largest(np.zeros(self.pairs.rows.count))


def throughput(size: int, device: str, repeats: int) -> list[tuple[object, ...]]:
    """Returns two lines of the table: the bets alone, and the whole batch."""
    torch = pytorch("this benchmark")
    wait = torch.cuda.synchronize if device != "cpu" else (lambda: None)
    fewest, device_pairs.FEWEST_PAIRS = device_pairs.FEWEST_PAIRS, 0  # otherwise few pairs are left to NumPy
    there = Batch(Pairs(size, size, LIMIT, device), size)
    device_pairs.FEWEST_PAIRS = fewest
    here = Batch(Pairs(size, size, LIMIT), size) if size * size <= LARGEST_ON_HOST else None
    lines: list[tuple[object, ...]] = []
    for name in ("bets", "batch"):
        mine: Callable[[], object] = there.bets if name == "bets" else there.whole
        fast = seconds(mine, wait, repeats)
        slow: float | str = ""
        if here is not None:
            slow = seconds(here.bets if name == "bets" else here.whole, lambda: None, 1 if size > 500 else repeats)
        faster: float | str = "" if isinstance(slow, str) else slow / fast
        lines.append((name, f"{size:,} x {size:,}", slow, fast, faster, size * size * SAMPLES / fast, ""))
        print(*lines[-1], flush=True)
    return lines


def one_run(world: str, episodes: int, device: str | None) -> tuple[float, Outcome]:
    """Returns the wall-clock seconds of a whole run, and what it answered."""
    problem = richobs.make(f"{world},seed=0")
    settings = Settings(epsilon=0.1, seed=0, engine="stream", max_episodes=episodes, device=device)
    begin = time.perf_counter()
    outcome = run(problem, settings)
    return time.perf_counter() - begin, outcome


def decisions(outcome: Outcome) -> Any:
    """Returns what a run decided: every batch with its candidate and deaths, and what the claim rests on."""
    return outcome.constants.batches, outcome.reason, outcome.policy.member


def whole_run(name: str, device: str, runs: dict[str, tuple[str, int]]) -> tuple[object, ...]:
    """Returns the line of a run."""
    fast, there = one_run(*runs[name], device)
    size = f"{there.episodes:,} episodes"
    print(f"{name}: {fast:.2f} s on {device}, {size}, {there.reason.name}", flush=True)
    if name in NOT_ON_HOST:
        return (name, size, "", fast, "", "", "")
    slow, here = one_run(*runs[name], None)
    same = "yes" if decisions(here) == decisions(there) else "no"
    print(f"{name}: {slow:.2f} s in NumPy, same decisions: {same}", flush=True)
    return (name, size, slow, fast, slow / fast, "", same)


def merged(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Returns the lines of the last table with these in the place of lines of the same name and size, or behind them."""
    new = {row[:2]: row for row in rows}
    old = [tuple(row[c] for c in COLUMNS) for row in json.loads((RESULTS / "gpu_pairs.json").read_text())["rows"]]
    known = {row[:2] for row in old}
    return [new.get(row[:2], row) for row in old] + [row for key, row in new.items() if key not in known]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="where PyTorch computes: cuda, or cpu")
    parser.add_argument("--small", action="store_true", help="sizes that take a minute on a CPU")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="measure lines with this in their name or size, and keep the others")
    options = parser.parse_args()
    torch_device(options.device)
    torch = pytorch("this benchmark")
    runs = SMALL_RUNS if options.small else RUNS
    rows: list[tuple[object, ...]] = []
    for size in SIZES[:3] if options.small else SIZES:
        if options.only in f"{size:,} x {size:,}":
            rows += throughput(size, options.device, options.repeats)
    rows += [whole_run(name, options.device, runs) for name in runs if options.only in name]
    if options.only:
        rows = merged(rows)
    where = torch.cuda.get_device_name(options.device) if options.device != "cpu" else "PyTorch's CPU device"
    note = f"{SAMPLES} samples a batch; device: {where}, PyTorch {torch.__version__}; NumPy on the same machine, two threads"
    publish("gpu_pairs", "The pairs of a betting search on a device", COLUMNS, rows, note)


if __name__ == "__main__":
    main()

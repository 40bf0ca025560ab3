"""Classes on a GPU: evaluations a second with all moments, certified runs with large classes, and where it pays.

Run with `python benchmarks/gpu.py [rates] [crossover] [networks] [linear]` where PyTorch finds a GPU (the extra `gpu`; four
minutes for all, most of them for NumPy and for the same runs on two CPU cores). Without one it runs at small size on
PyTorch's CPU device and writes nothing. An evaluation is one value f(x, a). Results are in `benchmarks/results/gpu.json`,
under "classes". `python benchmarks/gpu.py truth` needs no GPU: it computes the exact values of the policies of stored runs
again, and writes there whether their claims hold.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")

import contextlib
import functools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import richobs
from richobs.classes.decoders import Decoders
from richobs.classes.layered import ByLevel, Listed
from richobs.classes.learned_policy import LearnedPolicy
from richobs.classes.linear import LinearLevel
from richobs.classes.networks import PARAMETER, NetworkLevel, describe
from richobs.core.moments import Batch, Moments
from richobs.core.policies import Policy
from richobs.device import has_device, pytorch
from richobs_lab.device.classes import LinearOnDevice, OnDevice, has_linear_kernel, in_blocks, linear_blocks
from richobs_lab.device.levels import DeviceBatch, DeviceMemory

RESULTS = Path(__file__).parent / "results" / "gpu.json"
D, K = 32, 4
HORIZON, EPSILON = 3, 0.2  # of certified runs


def seconds(work: Callable[[], object], torch: Any, repeats: int = 5) -> float:
    """Returns the wall-clock seconds of one call, the best of `repeats` after one that is not counted; 0: of that one."""
    best = float("inf")
    for i in range(repeats + 1):
        begin = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        if i or not repeats:
            best = min(best, time.perf_counter() - begin)
    return best


def linear_level(n_functions: int, seed: int = 0) -> LinearLevel:
    parameters = np.random.default_rng(seed).normal(0, 0.1, (n_functions, K, D)).astype(np.float32)
    return LinearLevel("identity", parameters)


def samples(memory: DeviceMemory, m: int) -> DeviceBatch:
    """Returns m samples with uniform actions."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (m, D))
    return DeviceBatch.of(Batch.of_steps(x, rng.integers(K, size=m), rng.random(m), K), memory)


def naive(theta: Any, x: Any, batch: DeviceBatch, dtype: Any) -> tuple[Any, ...]:
    """Moments as one writes them down in PyTorch: all values first, sums of squares afterwards."""
    values = (theta.reshape(-1, D) @ x.T).reshape(-1, K, len(x)).clamp(0, 1)
    best = values.amax(dim=1)
    found = [best.mean(dim=1), best.var(dim=1)]
    for t in batch.taken:
        u = values[:, t.action, t.rows] - t.r_mean.to(dtype)
        found += [u.mean(dim=1), u.var(dim=1)]
    return tuple(found)


def rates(device: str, m: int) -> list[dict[str, Any]]:
    """Evaluations a second of 1024 linear functions in 32 dimensions."""
    memory = DeviceMemory(device)
    torch, n = memory.torch, 1024
    level, batch = LinearOnDevice(linear_level(n), memory), samples(memory, m)
    rows = []

    def row(what: str, work: Callable[[], object], evaluations: float = float(n) * m * K) -> None:
        spent = seconds(work, torch)
        rows.append({"what": what, "evaluations/s": evaluations / spent, "seconds": spent})
        print(f"  {what:58s} {evaluations / spent:9.3g} evaluations/s", flush=True)

    print(f"{n} linear functions, {D} dimensions, {K} actions, {m:,} samples, on {device}")
    row("richobs: all moments, float64, fetched", lambda: level.moments(batch))
    if has_linear_kernel(memory, D):
        blocks = in_blocks(level.prepared(batch), batch.taken, K, torch)
        theta = level.transposed(D)
        row("  of which the fused kernel", lambda: linear_blocks(theta, blocks, (0.0, 1.0), torch))
        few = samples(memory, m // 16)
        plain = super(LinearOnDevice, level).moments
        row("richobs: without the kernel (plain PyTorch)", lambda: plain(few), float(n) * (m // 16) * K)
    few = samples(memory, max(1, m // 16))
    x = memory.doubles(few.x)
    for dtype in (torch.float64, torch.float32):
        theta_ = level.theta.to(dtype)
        row(
            f"naive PyTorch, {dtype}".replace("torch.", ""),
            functools.partial(naive, theta_, x.to(dtype), few, dtype),
            float(n) * len(few.x) * K,
        )
    for dtype in (torch.float64, torch.float32):
        a, b = level.theta.reshape(-1, D).to(dtype), x.to(dtype).T.contiguous()
        product = functools.partial(torch.matmul, a, b)
        row(f"matrix product alone, {dtype}, stored".replace("torch.", ""), product, float(n) * len(few.x) * K)
    return rows


def lock_linear(n_functions: int, horizon: int = HORIZON) -> richobs.Problem:
    """Returns the lock with linear functions of its bits: Q* is one; the others read other bits or open other actions."""
    problem = richobs.make(f"lock/{horizon}")
    rng = np.random.default_rng(1)
    levels, width = [], 8
    for h in range(horizon):
        parameters = np.zeros((n_functions, K, width), dtype=np.float32)
        every = np.arange(n_functions)
        first, second = rng.integers(width, size=(2, n_functions))
        a, b = rng.integers(K, size=(2, n_functions))
        _plant(problem, h, first, second, a, b)
        for bit, live in ((first, a), (second, b)):
            for action in (live, (live + 1) % K):
                parameters[every, action, bit] = 0.5
        noisy = every % 2 == 1
        parameters[noisy] += rng.normal(0, 0.05, (int(noisy.sum()), K, width)).astype(np.float32)
        levels.append(LinearLevel("identity", parameters, level=h))
    return richobs.Problem(problem.env, Listed(levels), n_states=3)


def _plant(problem: richobs.Problem, h: int, *columns: Any) -> None:
    """Writes the bits and actions of Q* into member 0."""
    assert problem.truth is not None
    assert isinstance(problem.functions, ByLevel)
    optimal = problem.truth.optimal_function
    assert isinstance(optimal, tuple)
    level = problem.functions.levels[h]
    assert isinstance(level, Decoders)
    for column, value in zip(columns, level.parameters(np.array([optimal[h]])), strict=True):
        column[0] = value[0]


def lock_networks(n_functions: int, horizon: int = HORIZON, hidden: int = 16) -> richobs.Problem:
    """Returns the lock with networks of one hidden layer; two hidden units of Q* copy the two bits of the state."""
    nn = pytorch("this benchmark").nn
    problem = richobs.make(f"lock/{horizon}")
    rng = np.random.default_rng(2)
    width = 8
    text = describe(nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, K)))
    levels = []
    for h in range(horizon):
        weight = rng.normal(0, 0.05, (n_functions, hidden, width)).astype(np.float32)
        out = rng.normal(0, 0.05, (n_functions, K, hidden)).astype(np.float32)
        first, second = rng.integers(width, size=(2, n_functions))
        a, b = rng.integers(K, size=(2, n_functions))
        _plant(problem, h, first, second, a, b)
        every = np.arange(n_functions)
        for unit, bit, live in ((0, first, a), (1, second, b)):
            weight[:, unit] = 0.0
            weight[every, unit, bit] = 1.0
            out[:, :, unit] = 0.0
            for action in (live, (live + 1) % K):
                out[every, action, unit] = 0.5
        out[0, :, 2:] = 0.0
        numbers = {"0.weight": weight, "0.bias": np.zeros((n_functions, hidden), np.float32), "2.weight": out}
        numbers["2.bias"] = np.zeros((n_functions, K), np.float32)
        facts = {"architecture": np.array(text), "n_actions": np.array(K), "as_floats": np.array(True)}
        levels.append(NetworkLevel.from_arrays({**facts, **{PARAMETER + name: a for name, a in numbers.items()}}))
    return richobs.Problem(problem.env, Listed(levels), n_states=3)


class Clock:
    """Times the evaluation part of runs: from a batch to its moments."""

    def __init__(self) -> None:
        self.spent, self.values = 0.0, 0

    def timed(self, own: Callable[..., Moments], sizes: Callable[..., int]) -> Callable[..., Moments]:
        def moments(*args: Any) -> Moments:
            begin = time.perf_counter()
            found = own(*args)
            self.spent += time.perf_counter() - begin
            self.values += sizes(*args) * K
            return found

        return moments


def truth(policy: Policy, lower: float | None, upper: float | None, epsilon: float) -> dict[str, Any]:
    """Returns the exact value of a policy in the lock, and whether a claim about it holds."""
    lock = richobs.make(f"lock/{HORIZON}")
    value, best = float(lock.value(policy)), lock.optimal_value
    assert lower is not None, "certified has both bounds"
    assert upper is not None, "certified has both bounds"
    return {
        "true value": value,
        "optimal value": best,
        "claim holds": lower <= value >= best - epsilon and best <= upper,
    }


def timed_run(problem: richobs.Problem, device: str | None) -> dict[str, Any]:
    """Runs `certified` and returns wall-clock, the evaluation part of it, and what was found."""
    clock = Clock()

    def sizes(functions: Any, level: int, batch: Any, members: Any = None) -> int:
        return len(batch.weight) * (functions.level_size(level) if members is None else len(members))

    with contextlib.ExitStack() as stack:
        owner: Any = ByLevel if device is None else OnDevice
        stack.enter_context(mock.patch.object(owner, "moments", clock.timed(owner.moments, sizes)))
        begin = time.perf_counter()
        outcome = richobs.learn(problem, learner="certified", epsilon=EPSILON, device=device, progress=False)
        spent = time.perf_counter() - begin
    return {
        "device": device or "NumPy",
        "seconds": spent,
        "evaluation seconds": clock.spent,
        "evaluations": clock.values,
        "episodes": outcome.episodes,
        "member": outcome.policy.member,
        "lower": outcome.lower,
        "upper": outcome.upper,
        "rounding": outcome.rounding,
        **truth(outcome.policy, outcome.lower, outcome.upper, outcome.epsilon),
    }


def check_stored() -> None:
    """Writes the exact values of the policies of stored runs, and whether the claims about them hold."""
    known = json.loads(RESULTS.read_text())
    for part, build in (("networks", lock_networks), ("linear", lock_linear)):
        rows = known["classes"][part]
        functions = build(int(rows[0]["class"].split()[0].replace(",", ""))).functions
        for row in rows:
            found = truth(LearnedPolicy(functions, row["member"]), row["lower"], row["upper"], EPSILON)
            row.update(found)
            print(f"{row['class']} on {row['device']}, member {row['member']}: {found}")
    RESULTS.write_text(json.dumps(known, indent=2) + "\n")


def runs(what: str, build: Callable[[], richobs.Problem], devices: list[str | None]) -> list[dict[str, Any]]:
    """The same certified run on several devices."""
    rows = []
    print(f"certified run, {what}")
    for device in devices:
        if device not in (None, "cpu"):
            timed_run(build(), device)  # the first starts the device and compiles
        rows.append({"class": what, **timed_run(build(), device)})
        r = rows[-1]
        speed = r["evaluations"] / r["evaluation seconds"]
        print(
            f"  {r['device']:6s} {r['seconds']:8.2f} s, evaluation {r['evaluation seconds']:8.3f} s ({speed:.2g} values/s), "
            f"{r['episodes']:,} episodes, member {r['member']}, [{r['lower']:.4f}, {r['upper']:.4f}], "
            f"true value {r['true value']:.4f}, the claim {'holds' if r['claim holds'] else 'IS FALSE'}",
            flush=True,
        )
    return rows


def crossover(device: str, sizes: list[int], batches: list[int]) -> list[dict[str, Any]]:
    """Seconds of moments on the device, batch sent and moments fetched, against NumPy."""
    rng, rows = np.random.default_rng(0), []
    torch = pytorch("this benchmark")
    print(f"moments of linear functions, seconds on {device} and in NumPy")
    for n in sizes:
        functions = Listed([linear_level(n)])
        there = OnDevice(functions, device)
        for m in batches:
            if n * m > 2 * 10**8:  # NumPy would take minutes
                continue
            x = rng.normal(size=(m, D))
            batch = Batch.of_steps(x, rng.integers(K, size=m), rng.random(m), K)
            a = seconds(functools.partial(there.moments, 0, batch), torch, 3)
            b = seconds(functools.partial(functions.moments, 0, batch), torch, 0 if n * m > 10**7 else 1)
            rows.append({"functions": n, "samples": m, "device seconds": a, "numpy seconds": b, "faster": b / a})
            print(f"  N = {n:>9,}  m = {m:>6,}  {a:9.2e}  {b:9.2e}  {b / a:8.2f} times", flush=True)
    return rows


def main() -> None:
    torch = pytorch("this benchmark")
    if sys.argv[1:] == ["truth"]:
        check_stored()
        return
    torch.set_num_threads(2)
    on_gpu = has_device("cuda")
    device, name = ("cuda", torch.cuda.get_device_name()) if on_gpu else ("cpu", "CPU")
    n_linear, n_networks = (1_000_000, 100_000) if on_gpu else (2_000, 200)
    sizes, batches = ([100, 1_000, 10_000, 100_000], [64, 1_024, 16_384]) if on_gpu else ([100, 1_000], [64, 1_024])
    devices: list[str | None] = [device, "cpu"] if on_gpu else [None, "cpu"]
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "rates": lambda: rates(device, 2**20 if on_gpu else 2**12),
        "crossover": lambda: crossover(device, sizes, batches),
        "networks": lambda: runs(f"{n_networks:,} networks", lambda: lock_networks(n_networks), devices),
        "linear": lambda: runs(f"{n_linear:,} linear functions", lambda: lock_linear(n_linear), devices),
    }
    wanted = sys.argv[1:] or list(parts)
    found = {part: parts[part]() for part in wanted}
    if on_gpu:
        known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        facts = {"device": name, "torch": torch.__version__, "numpy": np.__version__}
        RESULTS.write_text(
            json.dumps({**known, "classes": {**known.get("classes", {}), **facts, **found}}, indent=2) + "\n"
        )
        print(f"written to {RESULTS.name}")


if __name__ == "__main__":
    main()

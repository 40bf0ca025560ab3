"""How many episodes a certificate takes, and how that grows with the horizon, with epsilon and with the noise bits.

Run with `python benchmarks/certified.py [SHARE]`: with 1, the default, it takes half an hour on two cores; with 0.1 a
tenth of the seeds. Every run is checked against the truth, and the world's secret changes with the seed. It writes
`benchmarks/results/certified.json`, the figure `docs/figures/growth.png`, and what `richobs plan` tells of similar worlds.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import math
import multiprocessing
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import richobs
from measure import publish
from richobs.learners.base import MEASURED, measured, write_measured

DELTA = 0.05
ROOT = Path(__file__).parents[1]


class Case(NamedTuple):
    """One point of a sweep."""

    sweep: str
    world: str
    epsilon: float
    seeds: int
    x: float = 0.0  # where it stands in the sweep
    goal: int | None = None  # most episodes allowed


CASES = [
    *(Case("lock, noise bits = H", f"lock/{h},noise_bits={h}", 0.1, 20, h, g) for h, g in ((5, 12_000), (10, 25_000))),
    Case("lock, noise bits = H", "lock/20,noise_bits=20", 0.1, 20, 20, 60_000),
    *(Case("lock by horizon", f"lock/{h},noise_bits=10", 0.1, 20, h) for h in (5, 10, 20)),
    *(Case("lock by horizon", f"lock/{h},noise_bits=10", 0.1, 8, h) for h in (40, 80)),
    *(Case("lock by epsilon", "lock/10,noise_bits=10", e, 20, e) for e in (0.4, 0.2, 0.1, 0.05, 0.02, 0.01)),
    *(Case("lock by noise bits", f"lock/10,noise_bits={d}", 0.1, 20, d) for d in (0, 5, 10, 20, 40)),
    *(Case("diabolical by horizon", f"diabolical/{h}", 0.1, n, h) for h, n in ((5, 20), (10, 20), (20, 8), (30, 4))),
    Case("diabolical by horizon", "diabolical/50", 0.1, 2, 50),
    *(
        Case("others", world, 0.1, 20)
        for world in ("bandit", "mdp", "deep-sea", "disjoint", "disjoint,vectors=True", "random/4", "random/8")
    ),
]


class Run(NamedTuple):
    """One certified run."""

    episodes: int
    seconds: float
    right: bool  # both bounds hold, and the policy is epsilon-optimal
    purposes: dict[str, int]  # where the episodes went


def one_run(task: tuple[str, float, int]) -> Run:
    world, epsilon, seed = task
    problem = richobs.make(f"{world},seed={seed}")
    begin = time.process_time()
    outcome = richobs.learn(problem, learner="certified", epsilon=epsilon, delta=DELTA, seed=seed, progress=False)
    seconds = time.process_time() - begin
    assert outcome.upper is not None
    assert outcome.lower is not None
    value = problem.value(outcome.policy)
    bounds_hold = problem.optimal_value <= outcome.upper + 1e-12 and value.high >= outcome.lower
    purposes = {purpose: n for (_, purpose), (_, n) in outcome.ledger.by("phase", "purpose").items()}
    right = bounds_hold and problem.optimal_value - value.high <= epsilon
    return Run(outcome.episodes, seconds, right, purposes)


def exponent(cases: list[Case], medians: list[float]) -> float:
    """Returns the slope of a straight line through the points on log scales."""
    return float(np.polyfit(np.log([c.x for c in cases]), np.log(medians), 1)[0])


def sweep_rows(case: Case, runs: list[Run]) -> tuple[object, ...]:
    episodes = [r.episodes for r in runs]
    spent = {p: sum(r.purposes.get(p, 0) for r in runs) / sum(episodes) for p in ("trial", "pilot", "batch")}
    return (
        case.sweep,
        case.world,
        f"10^{richobs.make(case.world).functions.log_size / math.log(10):.0f}",
        case.epsilon,
        f"{statistics.median(episodes):,.0f}",
        f"{min(episodes):,} to {max(episodes):,}",
        "" if case.goal is None else f"{case.goal:,}",
        statistics.median(r.seconds for r in runs),
        f"{sum(r.right for r in runs)} of {len(runs)}",
        f"{spent['trial']:.0%} / {spent['pilot']:.0%} / {spent['batch']:.0%} / {1 - sum(spent.values()):.0%}",
    )


def panel(axes: Axes, cases: list[Case], runs: list[list[Run]], label: str, fit: bool) -> None:
    episodes = [[r.episodes for r in mine] for mine in runs]
    medians = [statistics.median(e) for e in episodes]
    xs = [c.x for c in cases]
    axes.vlines(xs, [min(e) for e in episodes], [max(e) for e in episodes], color="#999999", linewidth=1.5)
    axes.plot(xs, medians, "o-", color="#0072b2", markersize=4)
    title = label
    if fit:
        axes.set_xscale("log")
        axes.set_xticks(xs, [f"{x:g}" for x in xs])
        axes.minorticks_off()
        title += f": exponent {exponent(cases, medians):.2f}"
    axes.set_yscale("log")
    axes.set_title(title, fontsize=9, loc="left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def draw(results: dict[Case, list[Run]]) -> None:
    figure = Figure(figsize=(9.6, 6.0), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    panels = {
        "lock by horizon": ("lock, 10 noise bits: levels H", True),
        "lock by epsilon": ("lock/10, 10 noise bits: epsilon", True),
        "lock by noise bits": ("lock/10: noise bits", False),
        "diabolical by horizon": ("diabolical: levels H", True),
    }
    for axes, (sweep, (label, fit)) in zip(figure.subplots(2, 2).flat, panels.items(), strict=True):
        cases = [c for c in results if c.sweep == sweep]
        panel(axes, cases, [results[c] for c in cases], label, fit)
        axes.set_ylabel("episodes", fontsize=8)
        axes.tick_params(labelsize=8)
    seeds = sorted({len(r) for c, r in results.items() if c.sweep in panels})
    figure.suptitle(
        f"Episodes to a certificate (epsilon 0.1 unless said, delta {DELTA}): medians and ranges over "
        f"{seeds[0]} to {seeds[-1]} seeds and secrets",
        fontsize=9,
    )
    target = ROOT / "docs" / "figures" / "growth.png"
    figure.savefig(target)
    print(f"written to {target.relative_to(ROOT)}")


def remember(results: dict[Case, list[Run]]) -> None:
    """Writes what `richobs plan` tells of similar worlds."""
    rows = [
        measured(richobs.make(case.world), case.world, case.epsilon, DELTA, [r.episodes for r in runs])
        for case, runs in results.items()
    ]
    target = ROOT / "src" / "richobs" / "learners" / "certified" / MEASURED
    write_measured(rows, target)
    print(f"written to {target.relative_to(ROOT)}")


def main() -> None:
    share = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    counts = {case: max(1, round(share * case.seeds)) for case in CASES}
    tasks = [(case, (case.world, case.epsilon, seed)) for case, n in counts.items() for seed in range(n)]
    tasks.sort(key=lambda t: -t[0].x if t[0].sweep == "diabolical by horizon" else 0)  # the longest first
    results: dict[Case, list[Run]] = {case: [] for case in CASES}
    with multiprocessing.Pool(2) as pool:
        for (case, _), done in zip(tasks, pool.imap(one_run, [t for _, t in tasks]), strict=True):
            results[case].append(done)
            if len(results[case]) == counts[case]:
                print(f"{case.world}, epsilon {case.epsilon}: {len(results[case])} runs", file=sys.stderr)
    sweeps = {c.sweep: [d for d in CASES if d.sweep == c.sweep] for c in CASES if "by" in c.sweep}
    fits = [
        f"{name} {exponent(cases, [statistics.median(r.episodes for r in results[c]) for c in cases]):.2f}"
        for name, cases in sweeps.items()
        if name != "lock by noise bits"
    ]
    publish(
        "certified",
        f"Episodes to a certificate, delta = {DELTA}",
        (
            "sweep",
            "world",
            "functions",
            "epsilon",
            "median episodes",
            "range",
            "goal",
            "median CPU s",
            "right",
            "trial / pilot / batch / verification",
        ),
        [sweep_rows(case, results[case]) for case in CASES],
        f"Streaming engine. Right: both bounds hold and the policy is epsilon-optimal. Fitted exponents: {', '.join(fits)}.",
    )
    draw(results)
    remember(results)


if __name__ == "__main__":
    main()

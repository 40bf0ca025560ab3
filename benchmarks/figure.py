"""Draws the README's figure: how a run on the lock narrows about 10^30 functions down, episode by episode.

Run with `python benchmarks/figure.py`; it writes `docs/figures/lock.png`.
"""

import math
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import richobs

TARGET = Path(__file__).parents[1] / "docs" / "figures" / "lock.png"
COLOURS = {"consensus": "#56b4e9", "elimination": "#d55e00", "rollout": "#009e73"}  # safe for colour-blind readers


def main() -> None:
    problem = richobs.make("lock/10", noise_bits=5)
    seen: list[richobs.Progress] = []
    outcome = richobs.learn(problem, epsilon=0.1, delta=0.05, seed=0, learner="lsvee", callback=seen.append)
    gap = problem.optimal_value - problem.value(outcome.policy).value
    figure = Figure(figsize=(8.6, 3.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    tests = range(1, len(seen) + 1)
    sizes = [p.event.log_size_after / math.log(10) for p in seen]
    axes.step(tests, sizes, where="post", color="#555555", linewidth=1, zorder=1)
    for kind, colour in COLOURS.items():
        at = [i for i, p in enumerate(seen) if p.event.kind == kind]
        axes.scatter([i + 1 for i in at], [sizes[i] for i in at], s=12, color=colour, label=kind, zorder=2)
    demand = next(i for i, p in enumerate(seen) if p.event.phase == "demand")
    axes.axvline(demand + 0.5, color="#999999", linestyle=":", linewidth=1)
    axes.text(demand, max(sizes), "search ", ha="right", va="top", fontsize=8, color="#555555")
    axes.text(demand + 1, max(sizes), " on demand", ha="left", va="top", fontsize=8, color="#555555")
    axes.set_xlabel("test")
    axes.set_ylabel("surviving functions (log10)")
    axes.set_ylim(0, None)
    axes.legend(frameon=False, fontsize=8, loc="lower left")
    axes.set_title(
        f"LSVEE on {problem.id} at the paper's constants, epsilon 0.1, delta 0.05, seed 0: {outcome.episodes:.1e} episodes, "
        f"policy {gap:.2g} below optimal",
        fontsize=8,
        loc="left",
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(TARGET)
    print(f"written to {TARGET.relative_to(Path(__file__).parents[1])}")


if __name__ == "__main__":
    main()

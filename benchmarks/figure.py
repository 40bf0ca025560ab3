"""Draws the first figure of the site: what the default learner knows of FrozenLake, episode by episode.

Run with `python benchmarks/figure.py`; it writes `docs/figures/lake.png` and prints the claim. `python benchmarks/figure.py
floor` draws `docs/figures/floor.png` instead: episodes on locks (`results/before_betting.json`) beside the fewest that
anybody needs (docs/betting.md, The floor).
"""

import json
import math
import sys
from pathlib import Path

import gymnasium
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import richobs

TARGET = Path(__file__).parents[1] / "docs" / "figures" / "lake.png"
UPPER, LOWER = "#d55e00", "#0072b2"  # safe for colour-blind readers


def floor(horizon: int, epsilon: float = 0.1, delta: float = 0.05, b: float = 0.5, n_actions: int = 4) -> int:
    """Returns the fewest episodes that anybody needs on a lock: to find its path, and then to certify it."""
    certify = math.ceil(math.log(1 / delta) / -math.log(1 - epsilon / b))
    return math.ceil(certify + (n_actions - 2) / 3 * horizon)


def draw_floor() -> None:
    """Draws what the search needs on locks, before and now, beside the floor."""
    rows = json.loads((Path(__file__).parent / "results" / "before_betting.json").read_text())["rows"]
    locks = {H: row for H in (5, 10, 20, 50) for row in rows if row["world"] == f"lock/{H},noise_bits={H}"}
    figure = Figure(figsize=(6.4, 3.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    horizons = list(locks)
    lines = [
        (
            [locks[H]["median episodes before"] for H in horizons],
            "before shares, limits and bets were changed",
            UPPER,
            ":",
        ),
        ([locks[H]["now "] for H in horizons], "betting", LOWER, "-"),
        ([floor(H) for H in horizons], "nobody needs fewer", "black", "--"),
    ]
    for episodes, label, color, style in lines:
        axes.plot(horizons, episodes, style, color=color, marker="o", markersize=3, label=label)
        for H, n in zip(horizons, episodes, strict=True):
            axes.annotate(f"{n:.0f}", (H, n), textcoords="offset points", xytext=(0, 5), fontsize=7, color=color)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(horizons, [str(H) for H in horizons])
    axes.set_xlabel("levels of the lock, and noise bits")
    axes.set_ylabel("median episodes")
    axes.legend(frameon=False, fontsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(TARGET.with_name("floor.png"))
    print({H: floor(H) for H in horizons})


def main() -> None:
    if "floor" in sys.argv:
        draw_floor()
        return
    lake = richobs.from_gymnasium("FrozenLake-v1", horizon=30, reward_range=(0, 1))
    candidates = [gymnasium.make("FrozenLake-v1", success_rate=percent / 100) for percent in range(10, 91, 5)]
    functions = richobs.Simulators(candidates, horizon=30)
    seen: list[richobs.Progress] = []
    outcome = richobs.learn(lake, functions, epsilon=0.1, delta=0.05, seed=0, callback=seen.append)
    known = [(p.episodes, p.lower, p.upper) for p in seen if p.lower is not None and p.upper is not None]
    figure = Figure(figsize=(8.6, 3.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    episodes, lower, upper = zip((0, 0.0, 1.0), *known, strict=True)
    axes.step(episodes, upper, where="post", color=UPPER, linestyle="--", label="no policy earns more")
    axes.step(episodes, lower, where="post", color=LOWER, label="the policy earns at least this")
    axes.fill_between(episodes, lower, upper, step="post", color=LOWER, alpha=0.1, linewidth=0)
    axes.set_xlabel("episodes of the real lake")
    axes.set_ylabel("probability to arrive")
    axes.set_ylim(0, 1)
    axes.legend(frameon=False, fontsize=8)
    axes.set_title(
        f"FrozenLake-v1, {functions.n_models} simulators with different ice, epsilon 0.1, delta 0.05, seed 0: certified "
        f"after {outcome.episodes:,} episodes",
        fontsize=8,
        loc="left",
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(TARGET)
    print(outcome)
    print(f"written to {TARGET.relative_to(Path(__file__).parents[1])}")


if __name__ == "__main__":
    main()

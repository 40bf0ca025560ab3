"""Draws the first figure of the site: what the default learner knows of FrozenLake, episode by episode.

Run with `python benchmarks/figure.py`; it writes `docs/figures/lake.png` and prints the claim.
"""

from pathlib import Path

import gymnasium
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import richobs

TARGET = Path(__file__).parents[1] / "docs" / "figures" / "lake.png"
UPPER, LOWER = "#d55e00", "#0072b2"  # safe for colour-blind readers


def main() -> None:
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

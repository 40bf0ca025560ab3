"""Pictures that the examples make with `--picture`: a grid with what a policy does in it, and one episode step by step."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Circle, Rectangle

import richobs

FOLDER = Path(__file__).parents[1] / "docs" / "figures" / "gallery"
EPISODES = 200  # played for a picture of a grid
COLOURS = {"S": "#cfe8ff", "G": "#bfe6bf", "H": "#4a6a8a", "C": "#8a5a4a"}  # start, goal, hole, cliff


def wanted() -> bool:
    """Returns whether the command line asks for a picture."""
    return "--picture" in sys.argv


def grid(
    name: str, title: str, rows: Sequence[str], arrows: str, env: richobs.Environment, policy: richobs.Policy
) -> None:
    """Plays a policy whose observations are cells of a grid, and draws where it goes and what it does there.

    Args:
        name: of the picture.
        title: above it.
        rows: the grid, one letter per cell.
        arrows: one character per action.
        env: what is played.
        policy: by whom.
    """
    played = env.play(policy, EPISODES, np.random.default_rng(0))
    cells, actions = np.stack(played.observations), np.stack(played.actions)  # [H, n]
    live = ~np.stack(played.ended) if played.ended is not None else np.ones(cells.shape, dtype=bool)
    taken = np.zeros((len(rows) * len(rows[0]), len(arrows)))
    np.add.at(taken, (cells[live], actions[live]), 1)
    visits = taken.sum(axis=1)
    figure, axes = plt.subplots(figsize=(0.62 * len(rows[0]) + 0.6, 0.62 * len(rows) + 0.9))
    for cell, letter in enumerate("".join(rows)):
        row, column = divmod(cell, len(rows[0]))
        axes.add_patch(Rectangle((column, row), 1, 1, fc=COLOURS.get(letter, "white"), ec="#99a"))
        if visits[cell]:
            shade = 0.15 + 0.75 * (visits[cell] / visits.max()) ** 0.5
            axes.add_patch(Circle((column + 0.5, row + 0.5), 0.38, fc="#f0a030", ec="none", alpha=shade))
            arrow = arrows[int(taken[cell].argmax())]
            axes.text(column + 0.5, row + 0.52, arrow, ha="center", va="center", fontsize=15)
        if letter in COLOURS:
            axes.text(column + 0.08, row + 0.1, letter, ha="left", va="top", fontsize=7)
    axes.set(xlim=(0, len(rows[0])), ylim=(len(rows), 0), aspect="equal")
    axes.axis("off")
    _save(figure, name, title)


def episode(
    name: str,
    title: str,
    env: gymnasium.Env[Any, Any],
    policy: richobs.Policy,
    horizon: int,
    actions: Sequence[str],
    observation: Callable[[Any], Any] = np.asarray,
    seed: int = 0,
) -> None:
    """Plays one episode of a Gymnasium environment and draws what it renders, step by step.

    Args:
        name: of the picture.
        title: above it.
        env: made with `render_mode="rgb_array"`.
        policy: by whom it is played.
        horizon: number of steps at most.
        actions: a name for each action.
        observation: what the policy sees of an observation.
        seed: of the reset.
    """
    rng = np.random.default_rng(0)
    seen, _ = env.reset(seed=seed)
    images, captions, total, over = [env.render()], ["start"], 0.0, False
    for level in range(horizon):
        if over:
            break
        action = int(policy.actions(level, np.asarray(observation(seen))[None], rng)[0])
        seen, reward, terminated, truncated, _ = env.step(action)
        total, over = total + float(reward), bool(terminated or truncated)
        images.append(env.render())
        captions.append(f"{actions[action]} ({total:.3g})")
    columns = min(len(images), 7)
    lines = -(-len(images) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(1.5 * columns, 1.7 * lines + 0.4), squeeze=False)
    for place in axes.flat:
        place.axis("off")
    for place, image, caption in zip(axes.flat, images, captions, strict=False):
        place.imshow(image)
        place.set_title(caption, fontsize=8)
    _save(figure, name, title)


def intervals(name: str, title: str, bounds: Sequence[tuple[float, float]], threshold: float, words: str) -> None:
    """Draws intervals side by side, and a threshold across them.

    Args:
        name: of the picture.
        title: above it.
        bounds: lower and upper end of each interval.
        threshold: where the line is drawn.
        words: what an interval belongs to.
    """
    figure, axes = plt.subplots(figsize=(6, 3))
    for i, (low, high) in enumerate(bounds):
        colour = "#2a8a4a" if low >= threshold else "#b04030" if high < threshold else "#888888"
        axes.plot([i, i], [low, high], lw=9, color=colour, solid_capstyle="butt")
    axes.axhline(threshold, color="black", lw=1, ls="--")
    axes.set(xlabel=words, ylabel="total reward", xticks=range(len(bounds)))
    _save(figure, name, title)


def _save(figure: Any, name: str, title: str) -> None:
    """Writes a picture and says where it is."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(FOLDER / f"{name}.png", dpi=120)
    plt.close(figure)
    print(f"picture: docs/figures/gallery/{name}.png")

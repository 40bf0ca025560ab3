"""Pictures of a world and where the agent is: levels as columns, latent states as rows."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Scene(NamedTuple):
    """What a picture shows."""

    title: str
    labels: tuple[tuple[str, ...], ...]  # names of the states per level
    visited: tuple[int, ...]  # states so far, one per level; the agent is in the last
    actions: tuple[int, ...]  # actions so far
    earned: float  # rewards so far

    @property
    def caption(self) -> str:
        """One line: how far the episode is and what it earned."""
        ended = len(self.actions) == len(self.labels)
        where = "ended" if ended else f"level {len(self.visited) - 1} of {len(self.labels) - 1}"
        taken = " ".join(map(str, self.actions[-12:])) or "none yet"
        taken = f"... {taken}" if len(self.actions) > 12 else taken
        return f"{self.title}   {where}   actions: {taken}   earned: {self.earned:g}"


def as_text(scene: Scene) -> str:
    """Draws the scene with characters: `@` the agent, `o` where it has been, `.` other states."""
    rows = max(len(names) for names in scene.labels)
    lines = [scene.caption]
    for row in range(rows):
        cells = []
        for level, names in enumerate(scene.labels):
            cell = "." if row < len(names) else " "
            if level < len(scene.visited) and scene.visited[level] == row:
                cell = "@" if level == len(scene.visited) - 1 else "o"
            cells.append(cell)
        lines.append("  " + " ".join(cells))
    return "\n".join(lines)


def as_pixels(scene: Scene) -> NDArray[np.uint8]:
    """Draws the scene as an RGB array `[height, width, 3]`."""
    figure, axes = _canvas(scene.labels)
    axes.set_title(scene.caption, fontsize=9, loc="left")
    artists = _trail(axes, scene.visited)
    figure.canvas.draw()
    pixels = np.array(figure.canvas.buffer_rgba())[..., :3]
    for artist in artists:
        artist.remove()
    return pixels


@lru_cache(maxsize=16)
def _canvas(labels: tuple[tuple[str, ...], ...]) -> tuple[Any, Any]:
    """Returns the figure with every state drawn in, kept for the next frame of the same world."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    levels, rows = len(labels), max(len(names) for names in labels)
    figure = Figure(figsize=(min(16, max(5.5, 0.75 * levels + 1)), min(12, max(2.2, 0.55 * rows + 1))), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.06, 0.16, 0.92, 0.70))
    axes.set_xlim(-0.6, levels - 0.4)
    axes.set_ylim(rows - 0.4, -0.6)
    axes.set_xlabel("level", fontsize=8)
    axes.set_yticks([])
    axes.set_xticks(range(0, levels, max(1, levels // 20)))
    axes.tick_params(labelsize=7)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    x, y = np.array([(level, s) for level, names in enumerate(labels) for s in range(len(names))]).T
    size = 420 / max(1.0, rows / 6, levels / 14) ** 2
    axes.scatter(x, y, s=size, facecolor="#eef1f4", edgecolor="#8a94a0", linewidth=0.8, zorder=2)
    if rows <= 6 and levels <= 14:
        for level, names in enumerate(labels):
            for s, name in enumerate(names):
                axes.text(level, s, name, fontsize=6.5, ha="center", va="center", color="#39424e", zorder=4)
    return figure, axes


def _trail(axes: Any, visited: Sequence[int]) -> list[Any]:
    """Draws where the agent has been and where it is; returns what to erase afterwards."""
    levels = np.arange(len(visited))
    size = axes.collections[0].get_sizes()[0]
    line = axes.plot(levels, visited, color="#0072b2", linewidth=2.5, zorder=1)
    past = axes.scatter(levels[:-1], visited[:-1], s=size, facecolor="#a6d0ea", edgecolor="#0072b2", zorder=3)
    here = axes.scatter(levels[-1:], visited[-1:], s=1.3 * size, facecolor="#e69f00", edgecolor="#5c4000", zorder=3)
    return [*line, past, here]

"""Line charts as data for the page: a stretched drawing between labels of fixed size, readable at any width."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from richobs.show import words

Points = Sequence[tuple[float, float]]
SCALE = 1000  # the drawing is a square of this size, stretched to what the page has room for
MOST_POINTS = 500


class Tick(NamedTuple):
    """A label on an axis."""

    at: float  # percent of the axis
    label: str


class Line(NamedTuple):
    """One curve."""

    name: str
    style: str  # class in the style sheet
    path: str  # SVG
    start: float  # percent of the height at which it starts, where its name is written


@dataclass(frozen=True)
class Chart:
    """A chart, ready to be drawn."""

    title: str
    x_label: str
    lines: tuple[Line, ...]
    area: str  # SVG path between the curves, or under the only one
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    summary: str  # what it shows, in words


def ticks(low: float, high: float, wanted: int = 4) -> list[float]:
    """Returns round numbers from `low` to `high`, about as many as wanted."""
    span = high - low
    if not span > 0:
        return [low]
    raw = span / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def thinned(points: Points, low: float, high: float) -> Points:
    """Keeps of a step curve only what can be seen: the last value at each of a few hundred places, and every end."""
    if len(points) <= MOST_POINTS:
        return points
    width = (high - low) / MOST_POINTS or 1.0
    kept: dict[int, tuple[float, float]] = {}
    for x, y in points:
        kept[int((x - low) / width)] = (x, y)
    return [points[0], *kept.values()]


def step_chart(
    title: str,
    x_label: str,
    curves: Sequence[tuple[str, str, Points]],
    summary: str,
    *,
    show_x: Callable[[float], str],
    top: float | None = None,
) -> Chart:
    """Returns a chart of step curves that start at x = 0, the y axis at 0.

    Args:
        title: what is drawn, with its unit.
        x_label: of the axis.
        curves: name, style and points (x, y) of each; a value holds until the next point.
        summary: the chart in words.
        show_x: writes a number on the x axis.
        top: of the y axis, where it should not follow the data.
    """
    right = max((points[-1][0] for _, _, points in curves if points), default=0.0) or 1.0
    highest = max((y for _, _, points in curves for _, y in points), default=0.0)
    top = top if top is not None else highest * 1.06 or 1.0

    def at(x: float, y: float) -> str:
        return f"{SCALE * x / right:.1f} {SCALE * (1 - y / top):.1f}"

    drawn, corners = [], []
    for name, style, points in curves:
        seen = thinned(points, 0.0, right)
        if not seen:
            continue
        steps = [at(0.0, seen[0][1])]
        for (_, before), (x, y) in itertools.pairwise(seen):
            steps += [at(x, before), at(x, y)]
        steps.append(at(right, seen[-1][1]))
        corners.append(steps)
        drawn.append(Line(name, style, "M" + "L".join(steps), 100 * seen[0][1] / top))
    area = ""
    if corners:
        floor = [at(0.0, 0.0), at(right, 0.0)]
        area = "M" + "L".join([*corners[0], *reversed(corners[1] if len(corners) > 1 else floor)]) + "Z"
    return Chart(
        title,
        x_label,
        tuple(drawn),
        area,
        tuple(Tick(100 * x / right, show_x(x)) for x in ticks(0.0, right)),
        tuple(Tick(100 * y / top, f"{y:.6g}") for y in ticks(0.0, top)),
        summary,
    )


def episodes_axis(x: float) -> str:
    """Writes a number of episodes on an axis."""
    return f"{x:,.0f}" if x < 10**6 else words.scientific(x)

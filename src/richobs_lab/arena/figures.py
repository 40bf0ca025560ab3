"""The figures of an arena: episodes and CPU seconds against the horizon, and performance profiles."""

import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from richobs.core import words
from richobs.show.figures import COLOURS, MARKERS, lay_out, new_figure, style_axes, write_figure
from richobs_lab.arena.aggregates import Estimate
from richobs_lab.arena.page import CPU, EPISODES, PROFILES, ArenaView, Meeting

MOST_PANELS = 3  # families side by side; more are in the tables
MOST_PROFILES = 12  # contestants that are named in a profile
LETTERS = 10.5  # size of the letters, in points: the figures are made for slides
LABEL_GAP = 1.25  # distance of two labels, in heights of a letter
BEYOND = 20.0  # times what was played at most: what needs more is named above the axes and not drawn


def write_arena_figures(view: ArenaView, folder: pathlib.Path) -> list[pathlib.Path]:
    """Draws the figures as PNG and SVG into a folder; returns the files, none where nothing is solved."""
    drawn: list[tuple[str, Figure]] = []
    if view.families:
        episodes = _against_horizon(view, "episodes until solved for good", lambda m: m.solved)
        seconds = _against_horizon(view, "CPU seconds of the run", lambda m: m.cpu_seconds)
        drawn += [(EPISODES, episodes), (CPU, seconds)]
    if view.worlds and any(m.n_solved for m in view.meetings.values()):
        drawn.append((PROFILES, _profiles(view)))
    for _, figure in drawn:
        lay_out(figure)
    return [write_figure(figure, folder / f"{name}.{kind}", kind) for name, figure in drawn for kind in ("png", "svg")]


def _look(view: ArenaView, name: str) -> dict[str, Any]:
    """Returns colour, marker and line of a contestant, the same in every figure."""
    i = view.contestants.index(name)
    colour, marker = COLOURS[i % len(COLOURS)], MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]
    return {"color": colour, "marker": marker, "linestyle": ("-", "--", ":", "-.")[i // len(COLOURS) % 4]}


class End(NamedTuple):
    """Where a curve ends, and its name."""

    name: str
    x: float
    y: float
    colour: str


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Returns places near those that are wanted, in the same order, at least `gap` apart and within [low, high].

    Where there is too little room, they are evenly spread.

    Args:
        wanted: in increasing order.
        gap: least distance of two places.
        low: the smallest place.
        high: the largest place.
    """
    n = len(wanted)
    if n > 1 and gap * (n - 1) >= high - low:
        return [low + i * (high - low) / (n - 1) for i in range(n)]
    places: list[float] = []
    for i, place in enumerate(wanted):
        top = high - gap * (n - 1 - i)
        places.append(min(max(place, low + gap * i, places[-1] + gap if places else low), top))
    return places


def _style(axes: Axes, title: str) -> None:
    """Gives axes a title and labels that can be read on a slide."""
    style_axes(axes, title)
    axes.set_title(title, fontsize=LETTERS + 1, loc="left")
    axes.tick_params(labelsize=LETTERS)


def _label_ends(axes: Axes, ends: Sequence[End], height: float) -> None:
    """Writes names beside the ends of curves, in their colours, where they do not cover each other.

    Args:
        axes: with the curves; its scales and limits are final.
        ends: of the curves.
        height: of the axes, in inches.
    """
    to_axes = axes.transData + axes.transAxes.inverted()
    at = sorted((float(to_axes.transform((e.x, e.y))[1]), float(to_axes.transform((e.x, e.y))[0]), e) for e in ends)
    gap = LABEL_GAP * LETTERS / 72 / height
    for place, (y, x, end) in zip(spread([y for y, _, _ in at], gap, 0.0, 1.0), at, strict=True):
        axes.annotate(
            end.name,
            (x, y),
            xytext=(1.06, place),
            xycoords="axes fraction",
            textcoords="axes fraction",
            fontsize=LETTERS,
            color=end.colour,
            va="center",
            arrowprops={
                "arrowstyle": "-",
                "color": end.colour,
                "linewidth": 0.7,
                "linestyle": ":",
                "shrinkA": 0,
                "shrinkB": 4,
            },
        )


def _against_horizon(view: ArenaView, what: str, of: Callable[[Meeting], Estimate]) -> Figure:
    """Draws a cost against H on logarithmic axes, one panel for each family of worlds, with one scale for all."""
    families = list(view.families.items())[:MOST_PANELS]
    height = 4.6
    figure = new_figure(4.4 * len(families) + 0.4, height)
    shown = {
        (family, name): [
            (m.world[1], of(m), m.n_solved == len(m.runs))
            for h in horizons
            for m in [view.meetings.get((name, (family, h)))]
            if m is not None and math.isfinite(m.solved.value) and 0 < of(m).value < math.inf
        ]
        for family, horizons in families
        for name in view.contestants
    }
    played = [
        of(m).value
        for m in view.meetings.values()
        if m.world[0] in dict(families) and all(r.budget is not None for r in m.runs) and of(m).value < math.inf
    ]
    most = BEYOND * max(played, default=math.inf)
    drawn = [e.value for points in shown.values() for _, e, _ in points if e.value <= most]
    low, high = (0.6 * min(drawn), 1.6 * max(drawn)) if drawn else (1.0, 10.0)
    for i, (family, horizons) in enumerate(families):
        axes: Axes = figure.add_subplot(1, len(families), i + 1)
        ends, beyond = [], []
        for name in view.contestants:
            points = shown[family, name]
            if any(e.value > most for _, e, _ in points):
                beyond.append(name)
            points = [point for point in points if point[1].value <= most]
            if not points:
                continue
            look = _look(view, name)
            axes.plot([h for h, _, _ in points], [e.value for _, e, _ in points], linewidth=1.8, markersize=6, **look)
            for h, estimate, _ in points:
                if math.isfinite(estimate.high):
                    axes.plot([h, h], [estimate.low, estimate.high], color=look["color"], linewidth=1.1)
            some = [(h, e.value) for h, e, all_solved in points if not all_solved]
            if some:
                axes.plot(
                    *zip(*some, strict=True), color="white", marker=look["marker"], markersize=3, linestyle="none"
                )
            ends.append(End(name, float(points[-1][0]), points[-1][1].value, look["color"]))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(low, high)
        axes.set_xticks(horizons, [str(h) for h in horizons])
        axes.minorticks_off()
        axes.grid(axis="y", linewidth=0.4, alpha=0.5)
        _style(axes, family)
        axes.set_xlabel("horizon H", fontsize=LETTERS)
        if not i:
            axes.set_ylabel(what, fontsize=LETTERS)
        if beyond:
            told = f"above: {', '.join(beyond)}"
            axes.text(0.02, 0.995, told, transform=axes.transAxes, fontsize=LETTERS - 3, va="top", wrap=True)
        _label_ends(axes, ends, height - 1.0)
    return figure


def _profiles(view: ArenaView) -> Figure:
    """Draws which share of all worlds' runs each contestant solved within how many episodes; the best ones are named."""
    height = 5.0
    figure = new_figure(9.0, height)
    axes = figure.add_subplot()
    finite = [
        float(c) for m in view.meetings.values() for c in m.costs if math.isfinite(c) and m.runs[0].budget is not None
    ]
    thresholds = np.geomspace(5, max(1.2 * max(finite, default=10.0), 16.0), 300)
    curves = {name: view.profile(name, thresholds) for name in view.contestants}
    curves = {name: curve for name, curve in curves.items() if curve[0].max() > 0}
    named = sorted(curves, key=lambda name: -float(curves[name][0].mean()))[:MOST_PROFILES]
    for name, (shares, low, high) in curves.items():
        if name not in named:
            axes.plot(thresholds, shares, linewidth=0.8, color="#b5b9c0")
            continue
        look = _look(view, name)
        axes.fill_between(thresholds, low, high, color=look["color"], alpha=0.12, linewidth=0)
        axes.plot(thresholds, shares, linewidth=1.8, markevery=40, markersize=5, **look)
    axes.set_xscale("log")
    axes.set_xlim(thresholds[0], thresholds[-1])
    axes.set_ylim(0, 1.02)
    axes.grid(linewidth=0.4, alpha=0.5)
    _style(axes, f"Share of the runs on {words.several(len(view.worlds), 'world')} that are solved for good")
    axes.set_xlabel("episodes", fontsize=LETTERS)
    axes.set_ylabel("share of runs", fontsize=LETTERS)
    ends = [End(name, float(thresholds[-1]), float(curves[name][0][-1]), _look(view, name)["color"]) for name in named]
    _label_ends(axes, ends, height - 1.0)
    return figure

"""The figures of an arena: episodes and CPU seconds against the horizon, and performance profiles."""

import math
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from richobs.show import words
from richobs.show.arena import CPU, EPISODES, PROFILES, ArenaView, Meeting
from richobs.show.figures import lay_out, new_figure, style_axes, write_figure
from richobs.show.sweep_figure import COLOURS, MARKERS
from richobs.stats.aggregates import Estimate

MOST_PANELS = 4


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


def _against_horizon(view: ArenaView, what: str, of: Callable[[Meeting], Estimate]) -> Figure:
    """Draws a cost against H on logarithmic axes, one panel for each family of worlds."""
    families = list(view.families.items())[:MOST_PANELS]
    columns = min(2, len(families))
    rows = math.ceil(len(families) / columns)
    figure = new_figure(3.9 * columns + 1.4, 3.0 * rows + 0.3)
    seen: dict[str, Line2D] = {}
    for i, (family, horizons) in enumerate(families):
        axes: Axes = figure.add_subplot(rows, columns, i + 1)
        for name in view.contestants:
            here = [view.meetings[(name, (family, h))] for h in horizons if (name, (family, h)) in view.meetings]
            points = [(m.world[1], of(m), m.n_solved == len(m.runs)) for m in here if math.isfinite(m.solved.value)]
            points = [point for point in points if math.isfinite(point[1].value) and point[1].value > 0]
            if not points:
                continue
            look = _look(view, name)
            (line,) = axes.plot(
                [h for h, _, _ in points], [e.value for _, e, _ in points], linewidth=1.4, markersize=5, **look
            )
            for h, estimate, _ in points:
                if math.isfinite(estimate.high):
                    axes.plot([h, h], [estimate.low, estimate.high], color=look["color"], linewidth=0.9)
            some = [(h, e.value) for h, e, all_solved in points if not all_solved]
            if some:
                axes.plot(
                    *zip(*some, strict=True), color="white", marker=look["marker"], markersize=3, linestyle="none"
                )
            seen.setdefault(name, line)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(horizons, [str(h) for h in horizons])
        axes.minorticks_off()
        axes.grid(axis="y", linewidth=0.4, alpha=0.5)
        style_axes(axes, family)
        axes.set_xlabel("horizon H", fontsize=8)
        axes.set_ylabel(what, fontsize=8)
    figure.legend(
        list(seen.values()), list(seen), fontsize=7.5, frameon=False, loc="outside right center", handlelength=2.6
    )
    return figure


def _profiles(view: ArenaView) -> Figure:
    """Draws which share of all worlds' runs each contestant solved within how many episodes."""
    figure = new_figure(7.2, 3.8)
    axes = figure.add_subplot()
    most = max(float(m.costs[np.isfinite(m.costs)].max(initial=1.0)) for m in view.meetings.values())
    thresholds = np.geomspace(8, max(10.0 * view.arena.budget, 16.0) if most > view.arena.budget else most * 1.2, 300)
    for name in view.contestants:
        shares, low, high = view.profile(name, thresholds)
        if shares.max() <= 0:
            continue
        look = _look(view, name)
        axes.fill_between(thresholds, low, high, color=look["color"], alpha=0.12, linewidth=0)
        axes.plot(thresholds, shares, label=name, linewidth=1.4, markevery=40, markersize=4.5, **look)
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.grid(linewidth=0.4, alpha=0.5)
    style_axes(axes, f"Share of the runs on {words.several(len(view.worlds), 'world')} that are solved for good")
    axes.set_xlabel("episodes", fontsize=8)
    axes.set_ylabel("share of runs", fontsize=8)
    figure.legend(fontsize=7.5, frameon=False, loc="outside right center", handlelength=2.6)
    return figure

"""The figure of a sweep: episodes against what was varied."""

import pathlib
from collections.abc import Sequence
from typing import Any

from richobs.show.figures import COLOURS, MARKERS, lay_out, new_figure, style_axes, write_figure
from richobs_lab.sweep.page import SettingRow


def write_sweep_figure(rows: Sequence[SettingRow], file: pathlib.Path) -> list[pathlib.Path]:
    """Draws episodes against what was varied, as PNG and SVG beside `file`; returns them, none where nothing is finished."""
    done = [row for row in rows if row.finished]
    if not done:
        return []
    axis = _axis(rows)
    values = list(dict.fromkeys(_at(row, axis) for row in rows))
    is_number = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    places = {v: float(v) if is_number else float(i) for i, v in enumerate(values)}
    curves: dict[str, list[SettingRow]] = {}
    for row in done:
        curves.setdefault(", ".join(f"{n} {v}" for n, v in row.varied if n != axis), []).append(row)
    figure = new_figure(7.2, 3.8)
    axes = figure.add_subplot()
    for i, (name, members) in enumerate(curves.items()):
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        if is_number:
            members = sorted(members, key=lambda row: places[_at(row, axis)])
        x = [places[_at(row, axis)] for row in members]
        for row, at in zip(members, x, strict=True):
            runs = [r.episodes for r in row.finished]
            axes.plot([at] * len(runs), runs, marker, color=colour, alpha=0.25, markersize=3.5, linestyle="none")
        middles = [row.episodes[0] for row in members if row.episodes is not None]
        axes.plot(x, middles, marker=marker, color=colour, markersize=5, linewidth=1.4, label=name.replace("$", r"\$"))
    spent = [result.episodes for row in done for result in row.finished]
    if min(spent) > 0 and max(spent) >= 20 * min(spent):  # else powers of ten would hardly mark the axis
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    if is_number and min(places.values()) > 0 and max(places.values()) >= 8 * min(places.values()):
        axes.set_xscale("log")
    axes.set_xticks(list(places.values()), [str(v) for v in values])
    axes.minorticks_off()
    style_axes(axes, "Episodes of each run, and their median")
    axes.set_xlabel(axis or "setting", fontsize=8)
    axes.set_ylabel("episodes", fontsize=8)
    if len(curves) > 1:
        axes.legend(fontsize=7, frameon=False)
    lay_out(figure)
    return [write_figure(figure, file.with_name(f"{file.name}.{kind}"), kind) for kind in ("png", "svg")]


def _axis(rows: Sequence[SettingRow]) -> str:
    """Returns which of the varied names has the axis: the first whose values are numbers, else the first of all."""
    names = [name for name, _ in rows[0].varied]
    for name in names:
        values = [dict(row.varied)[name] for row in rows]
        if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
            return name
    return names[0] if names else ""


def _at(row: SettingRow, axis: str) -> Any:
    """Returns the value that a row has on the axis."""
    value = dict(row.varied).get(axis, "")
    return str(value) if isinstance(value, list | bool) or value is None else value

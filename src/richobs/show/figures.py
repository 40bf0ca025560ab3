"""The figures of pages for papers and slides: PNG and SVG, the same bytes for the same runs."""

import io
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline

from richobs.core import words
from richobs.core.files import write_atomically
from richobs.runs.store import StoredRun
from richobs.show.chart import Series, series
from richobs.show.groups import groups, median
from richobs.show.palette import LIGHT
from richobs.show.tree import COLUMN, ROW, SearchTree, search_tree

BLUE, ORANGE, GREY, INK = (LIGHT[name] for name in ("agreed", "eliminated", "passed", "ink"))


def write_figures(runs: Sequence[StoredRun], page: pathlib.Path) -> list[pathlib.Path]:
    """Writes the figures of every run, and the comparison of several, beside the page; returns their files."""
    written = []
    for name, figure in _figures(runs):  # one at a time: a figure takes megabytes
        lay_out(figure)
        written += [write_figure(figure, page.with_name(f"{page.stem}-{name}.{kind}"), kind) for kind in ("png", "svg")]
    return written


def _figures(runs: Sequence[StoredRun]) -> Iterator[tuple[str, Figure]]:
    """Yields the figures of every run, and the comparison of several, each with its name."""
    for i, run in enumerate(runs, start=1):
        yield f"run-{i}", _progress(run)
        tree = search_tree([p.event for p in run.steps], run.ledger, run.horizon, run.n_actions)
        if not tree.is_bare:
            yield f"tree-{i}", _tree(run, tree)
        if charts := [one for one in series(run.steps) if one.curves]:
            yield f"charts-{i}", _charts(run, charts)
    if len(runs) > 1:
        yield "comparison", _comparison(runs)


def lay_out(figure: Figure) -> None:
    """Lays a figure out once, for all its files."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def write_figure(figure: Figure, file: pathlib.Path, kind: str) -> pathlib.Path:
    """Writes a figure as "png" or "svg", the same bytes for the same figure, and returns the file."""
    stream = io.BytesIO()
    undated = {"Date": None} if kind == "svg" else {"Software": None}  # equal runs give equal files
    with matplotlib.rc_context({"svg.hashsalt": "richobs", "svg.fonttype": "none"}):
        figure.savefig(stream, format=kind, metadata=undated)
    with write_atomically(file) as out:
        out.write(stream.getvalue())
    return file


def new_figure(width: float, height: float) -> Figure:
    """Returns an empty figure of a size in inches."""
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def style_axes(axes: Axes, title: str) -> None:
    """Gives axes a title, small labels, and no frame above and at the right."""
    axes.set_title(title, fontsize=9, loc="left")
    axes.tick_params(labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _title(run: StoredRun) -> str:
    s = run.settings
    name = _literal(run.world or words.OWN)
    asked = f"{name}, learner {_literal(s.learner)}, epsilon {s.epsilon!r}, delta {s.delta!r}, seed {s.seed}"
    return asked if run.state == "finished" else f"{asked} ({_literal(run.state)})"


def _literal(text: str) -> str:
    """Keeps matplotlib from reading a dollar sign as mathematics."""
    return text.replace("$", r"\$")


def _progress(run: StoredRun) -> Figure:
    """Draws survivors and bounds where the learner keeps some, and episodes by purpose."""
    counted = [p for p in run.steps if not math.isnan(p.event.log_size_after)]
    bounded = [p for p in run.steps if p.upper is not None and p.lower is not None]
    panels = 1 + bool(counted) + bool(bounded)
    figure = new_figure(2.8 + 2.9 * panels, 3.4)
    figure.suptitle(_title(run), fontsize=9, x=0.01, ha="left")
    all_axes = iter(figure.subplots(1, panels, squeeze=False)[0])
    if counted:
        axes = next(all_axes)
        episodes = [0.0, *(float(p.episodes) for p in counted)]
        sizes = [run.log_size, *(p.event.log_size_after for p in counted)]
        powers = [max(words.power_of_ten(x), 0.0) for x in sizes]
        axes.step(episodes, powers, where="post", color=BLUE)
        axes.set_ylim(0, None)
        axes.set_xlabel("episodes", fontsize=8)
        style_axes(axes, "surviving functions (log10)")
    if bounded:
        axes = next(all_axes)
        x = [float(p.episodes) for p in bounded]
        upper, lower = [p.upper or 0.0 for p in bounded], [p.lower or 0.0 for p in bounded]
        axes.step(x, upper, where="post", color=ORANGE, linestyle="--", label="V* at most U")
        axes.step(x, lower, where="post", color=BLUE, label="V(policy) at least W")
        axes.fill_between(x, lower, upper, step="post", color=BLUE, alpha=0.1, linewidth=0)
        axes.set_ylim(0, max(upper) * 1.25 or 1.0)
        axes.set_xlabel("episodes", fontsize=8)
        axes.legend(frameon=False, fontsize=8, loc="upper left")
        style_axes(axes, "bounds")
    axes = next(all_axes)
    rows = [(f"{phase}: {purpose}", n, BLUE) for (phase, purpose), (_, n) in run.ledger.by("phase", "purpose").items()]
    rows.append(("all episodes", run.ledger.total, INK))
    rows = [(_literal(name), n, colour) for name, n, colour in rows if n > 0]
    if rows:
        names, counts, colours = zip(*reversed(rows), strict=True)
        axes.barh(names, [float(n) for n in counts], color=colours, height=0.6)
        axes.set_xscale("log")
        axes.set_xlim(min(0.5, *(float(n) for n in counts)), max(counts) * 10.0)
    style_axes(axes, "episodes (logarithmic)")
    return figure


def _charts(run: StoredRun, charts: Sequence[Series]) -> Figure:
    """Draws what events of the run draw: a panel for each chart, candidates as bands, a cross where one was refuted."""
    figure = new_figure(2.8 + 2.9 * len(charts), 3.4)
    figure.suptitle(_title(run), fontsize=9, x=0.01, ha="left")
    for axes, one in zip(figure.subplots(1, len(charts), squeeze=False)[0], charts, strict=True):
        for tenure in one.tenures[::2]:
            axes.axvspan(tenure.begin, tenure.end, color=GREY, alpha=0.12, linewidth=0)
        for i, curve in enumerate(one.curves):
            mix = i / max(len(one.curves) - 1, 1)
            drawn: dict[str, Any] = {"color": _mixed(mix), "linewidth": 1.2}
            drawn |= {"marker": ".", "markersize": 4} if one.kind.by_candidate else {"drawstyle": "steps-post"}
            shown = one.name(i) if i in (0, len(one.curves) - 1) else ""
            for k, part in enumerate(curve):
                name = shown if k == 0 else ""
                axes.plot([x for x, _ in part], [y / math.log(10) for _, y in part], **drawn, label=name or "_")
        if one.limit:
            x, y = [x for x, _ in one.limit], [y / math.log(10) for _, y in one.limit]
            axes.step([0.0, *x], [y[0], *y], where="post", color=INK, linestyle=":", label=one.kind.limit)
        if one.ended:
            x, y = [x for x, _ in one.ended], [y / math.log(10) for _, y in one.ended]
            axes.plot(x, y, "x", color=ORANGE, markersize=6, label="refuted")
        axes.set_xlim(0, max(run.ledger.total, 1))
        axes.set_xlabel("episodes", fontsize=8)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=7)
        style_axes(axes, f"{one.title.lower()} (log10)")
    return figure


def _mixed(share: float) -> str:
    """Returns a colour between blue and orange."""
    ends = ([int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in (BLUE, ORANGE))
    return "#" + "".join(f"{round((1 - share) * a + share * b):02x}" for a, b in zip(*ends, strict=True))


def _tree(run: StoredRun, tree: SearchTree) -> Figure:
    """Draws the search tree, levels from left to right."""
    figure = new_figure(8.6, min(max(0.16 * tree.rows + 1.2, 2.6), 11.0))
    axes = figure.add_subplot()
    vertices: list[tuple[float, float]] = []
    for node in tree.nodes[1:]:
        above = tree.nodes[node.parent]
        bend = above.x + COLUMN / 2
        vertices += [(above.x, above.y), (bend, above.y), (bend, node.y), (node.x, node.y)]
    if vertices:
        codes = [Outline.MOVETO, *[Outline.CURVE4] * 3] * (len(vertices) // 4)
        axes.add_patch(PathPatch(Outline(vertices, codes), fill=False, edgecolor=GREY, linewidth=0.6, alpha=0.6))
    scale = min(1.0, 60 / tree.rows)
    for mark, look, _ in tree.legend:
        at = [node for node in tree.nodes if node.mark == mark]
        axes.scatter(
            [n.x for n in at],
            [n.y for n in at],
            s=[max(36 * scale * n.size**2, 2.0) for n in at],
            color=look.fill,
            marker=look.symbol,
            edgecolors=GREY if look.hollow else look.fill,
            linewidths=0.7,
            label=_literal(mark.words),
            zorder=2,
        )
    axes.set_xlim(-0.3 * COLUMN, tree.width + 0.3 * COLUMN)
    axes.set_ylim(tree.height + ROW, -ROW)
    axes.set_yticks([])
    levels = range(0, tree.width // COLUMN + 1, max(1, tree.width // COLUMN // 12))
    axes.set_xticks([COLUMN * h for h in levels], [str(h) for h in levels])
    axes.set_xlabel("level", fontsize=8)
    style_axes(axes, _title(run))
    axes.spines["left"].set_visible(False)
    figure.legend(frameon=False, fontsize=8, loc="outside lower left", ncols=3)
    return figure


def _comparison(runs: Sequence[StoredRun]) -> Figure:
    """Draws the episodes of all runs, by group, with the medians of the finished ones."""
    found = groups(runs)
    figure = new_figure(8.6, 1.2 + 0.55 * len(found))
    axes = figure.add_subplot()
    for y, group in enumerate(reversed(found)):
        for i in group.runs:
            done = runs[i].state == "finished"
            x = max(runs[i].ledger.total, 1)
            axes.plot([float(x)], [y], "o", color=BLUE, markerfacecolor=BLUE if done else "none", markersize=5)
        ended = [runs[i].ledger.total for i in group.runs if runs[i].state == "finished"]
        if ended:
            m = median(ended)
            axes.barh([y], [float(m.high - m.low)], left=[float(m.low)], height=0.45, color=BLUE, alpha=0.2)
            axes.plot([m.value, m.value], [y - 0.32, y + 0.32], color=INK, linewidth=2)
    axes.set_yticks(range(len(found)), [_literal(group.name) for group in reversed(found)])
    axes.set_xscale("log")
    axes.set_ylim(-0.6, len(found) - 0.4)
    axes.set_xlabel("episodes (dots: runs; line: median; band: its interval from order statistics)", fontsize=8)
    style_axes(axes, f"{words.count(len(runs))} runs")
    return figure


COLOURS = ("#0072b2", "#c44f00", "#00795a", "#9b3f76", "#8a6a00", "#555b66")  # distinct also to colour-blind readers
MARKERS = "osD^vP"

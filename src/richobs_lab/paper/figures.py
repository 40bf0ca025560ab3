"""How the figures of statements look: one style, and a line about the sample printed underneath."""

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from richobs.core.files import write_atomically
from richobs.show.palette import INK, LIGHT
from richobs_lab.intervals import binomial_interval
from richobs_lab.paper.base import Plain, Statement

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

# Letters are thin, so words have darker shades than lines:
NOTE, DARK_GREEN, DARK_RED, DARK_ORANGE = LIGHT["muted"], LIGHT["good"], LIGHT["bad"], "#8a5f00"
STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.6,
    "svg.fonttype": "path",
}
WIDEST = 1600  # pixels of a figure
SIZE = (9.0, 4.2)  # inches, unless the statement sets its own
OVERLAP = 0.3  # share of the smaller of two boxes above which they are one panel: twin axes, not long titles


Box = tuple[float, float, float, float]  # left, top, width and height, as shares of a figure's width and height


def save_figure(
    statement: Statement, pieces: Sequence[Plain], results: Sequence[Plain], sample: str, folder: Path
) -> list[Box]:
    """Draws a statement, writes NAME.png and NAME.svg, and returns where its panels are, for narrow screens."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # The salt makes names inside the SVG the same every time.
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": statement.NAME}):
        figure = Figure(figsize=SIZE, layout="constrained")
        FigureCanvasAgg(figure)
        statement.draw(figure, pieces, results)
        _thin_ticks(figure)
        _print_under(figure, sample)
        dots = min(160.0, WIDEST / figure.get_size_inches()[0])
        figure.set_dpi(dots)  # as the PNG has, so that texts are measured once for layout and drawing
        _lay_out(figure)
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            with write_atomically(folder / f"{statement.NAME}.{kind}") as stream:
                figure.savefig(stream, format=kind, metadata=metadata, dpi=dots)
        return panel_boxes(figure)


def _thin_ticks(figure: "Figure") -> None:
    """Labels logarithmic axes of less than two decades at 1, 2 and 5; by default every label is printed over the next."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        if isinstance(axis.get_major_locator(), LogLocator) and low > 0 and high < 100 * low:
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
            axis.set_minor_formatter(NullFormatter())


def panel_boxes(figure: "Figure") -> list[Box]:
    """Returns the panels of a figure that was drawn, with titles, labels and legends; twin axes are one panel."""
    from matplotlib.transforms import Bbox

    width, height = figure.get_size_inches() * figure.dpi
    found = [a.get_tightbbox() for a in (*figure.legends, *map(_shown, figure.axes)) if a.get_visible()]
    apart: list[Bbox] = []
    for box in (b for b in found if b is not None):
        together = [b for b in apart if _shared(b, box) > OVERLAP]
        apart = [*(b for b in apart if b not in together), Bbox.union([box, *together])]
    # A margin keeps thin lines at the edges; a box may not leave the figure.
    inside = [Bbox.intersection(b.padded(0.05 * figure.dpi), Bbox([[0, 0], [width, height]])) for b in apart]
    boxes = [(b.x0 / width, 1 - b.y1 / height, b.width / width, b.height / height) for b in inside if b is not None]
    places = sorted((round(x, 4), round(y, 4), round(w, 4), round(h, 4)) for x, y, w, h in boxes)
    return sorted(places, key=lambda box: round(box[1], 1))  # rows from above, each from the left


def _shown(axes: "Axes") -> "Artist":
    """Returns what is seen of axes: all, or the legend alone where they are off and only hold a legend."""
    legend = axes.get_legend()
    return axes if axes.axison or legend is None else legend


def _shared(a: "Bbox", b: "Bbox") -> float:
    """Returns how much of the smaller of two boxes lies in the other."""
    wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
    return max(0.0, wide) * max(0.0, high) / min(a.width * a.height, b.width * b.height)


def plot_shares(axes: "Axes", points: Iterable[tuple[float, int, int]], confidence: float, **look: Any) -> None:
    """Plots (x, count, trials) as shares of the trials, with exact binomial intervals."""
    x, counts, trials = zip(*points, strict=True)
    shares = [c / n for c, n in zip(counts, trials, strict=True)]
    ends = [binomial_interval(c, n, confidence) for c, n in zip(counts, trials, strict=True)]
    below = [max(0.0, share - low) for share, (low, _) in zip(shares, ends, strict=True)]
    above = [max(0.0, high - share) for share, (_, high) in zip(shares, ends, strict=True)]
    plain: dict[str, Any] = {"marker": "o", "markersize": 4, "capsize": 2}
    axes.errorbar(x, shares, [below, above], **(plain | look))


def _lay_out(figure: "Figure") -> None:
    """Places the panels once. Both files then have the same layout, and saving does not draw the figure twice for it."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)


def _print_under(figure: "Figure", sample: str) -> None:
    """Prints the line about the sample below everything else."""
    width, height = figure.get_size_inches()
    lines = textwrap.wrap(sample, int(width * 15))
    room = (0.17 * len(lines) + 0.08) / height
    figure.set_layout_engine("constrained", rect=(0, room, 1, 1 - room))
    figure.text(0.012, 0.05 / height, "\n".join(lines), fontsize=8, color=NOTE, va="bottom")

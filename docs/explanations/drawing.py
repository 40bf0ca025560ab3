"""Figures of these pages: drawn by matplotlib when the site is built, once for light and once for dark pages.

A page gives each panel a function that draws on axes, and words that say what the panel shows. Panels stand side by side
where the page is wide, and below each other where it is narrow.
"""

import base64
import html
import io
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes

from richobs.show.figures import new_figure, style_axes
from richobs.show.palette import DARK, LIGHT

ROOT = pathlib.Path(__file__).parents[2]  # of the repository
Colours = Mapping[str, str]  # of one theme, by the names of `richobs.show.palette`
THEMES: dict[str, Colours] = {"only-light": LIGHT, "only-dark": DARK}  # by the class that the site shows or hides


class Panel(NamedTuple):
    """One drawing."""

    draw: Callable[[Axes, Colours], None]  # draws on empty axes, with the colours of a theme
    words: str  # what it shows, for readers who do not see it
    title: str = ""
    width: float = 3.4  # inches; 3.4 fits a phone
    height: float = 2.6


class Strip:
    """Panels that belong together, as the notebook shows them."""

    def __init__(self, *panels: Panel):
        """Takes the panels from left to right."""
        self.panels = panels

    def _repr_html_(self) -> str:
        """The panels as HTML, each once per theme."""
        parts = []
        for panel in self.panels:
            words = html.escape(panel.words, quote=True)
            style = (
                f"width: {96 * panel.width:.0f}px; max-width: 100%; height: auto; margin: 0; padding: 0; background: 0"
            )
            for name, colours in THEMES.items():
                data = base64.b64encode(svg(panel, colours)).decode()
                parts.append(
                    f'<img class="{name}" alt="{words}" src="data:image/svg+xml;base64,{data}" style="{style}">'
                )
        return f'<div style="display: flex; flex-wrap: wrap; gap: 0.8rem 1rem">{"".join(parts)}</div>'

    def __repr__(self) -> str:
        """The words alone."""
        return "\n".join(panel.words for panel in self.panels)


class Table:
    """A table of words, as the notebook shows it."""

    def __init__(self, head: Sequence[str], rows: Sequence[Sequence[str]]):
        """Takes the names of the columns, and the rows."""
        self.head, self.rows = head, rows

    def _repr_html_(self) -> str:
        """The table as HTML, in a box that scrolls where it is too wide."""
        head = "".join(f'<th class="head">{html.escape(cell)}</th>' for cell in self.head)
        rows = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows)
        table = f'<table class="docutils align-default"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
        return f'<div class="table-wrapper docutils container">{table}</div>'

    def __repr__(self) -> str:
        """The cells, separated by tabs."""
        return "\n".join("\t".join(row) for row in (self.head, *self.rows))


def svg(panel: Panel, colours: Colours) -> bytes:
    """Returns a panel as SVG on a transparent ground; the same bytes in every build."""
    ink, muted = colours["ink"], colours["muted"]
    rules: dict[Any, Any] = {
        "svg.hashsalt": "richobs",
        "svg.fonttype": "path",
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": muted,
        "axes.facecolor": "none",
        "xtick.color": muted,
        "ytick.color": muted,
        "xtick.labelcolor": ink,
        "ytick.labelcolor": ink,
        "axes.labelsize": 9,
        "legend.fontsize": 8,
        "legend.frameon": False,
        "font.size": 9,
    }
    with matplotlib.rc_context(rules):
        figure = new_figure(panel.width, panel.height)
        axes = figure.add_subplot()
        panel.draw(axes, colours)
        style_axes(axes, panel.title)
        stream = io.BytesIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    return stream.getvalue()

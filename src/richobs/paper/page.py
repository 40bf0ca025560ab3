"""The page: every statement with what it says, its checks, its table and its figure, in one file that needs no other."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from richobs.core.version import __version__
from richobs.paper.base import Plain, Scale
from richobs.show.palette import theme_rules
from richobs.show.templates import environment
from richobs.show.words import number

ROWS = 60  # of a table that the page shows


def render(reports: Sequence[tuple[Plain, str]], scale: Scale) -> str:
    """Returns the page of reports, each with its drawing as SVG."""
    drawings = [base64.b64encode(svg.encode()).decode() for _, svg in reports]
    return (
        environment(Path(__file__).parent)
        .get_template("page.html")
        .render(
            reports=[report for report, _ in reports],
            drawings=drawings,
            scale=scale,
            version=__version__,
            most=ROWS,
            theme=theme_rules(),
            cell_words=cell_words,
        )
    )


def cell_words(value: Any) -> str:
    """Returns a cell of a table as a person would write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    return "" if value is None else str(value)

"""The page: every statement with what it says, its checks, its table and its figure, in one file without any other."""

import base64
from collections.abc import Sequence
from typing import Any

from richobs.paper.base import Plain, Scale
from richobs.version import __version__

ROWS = 60  # of a table that the page shows


def render(reports: Sequence[tuple[Plain, str]], scale: Scale) -> str:
    """Returns the page of reports, each with its drawing as SVG."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("richobs.paper", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["shown"] = shown
    drawings = [base64.b64encode(svg.encode()).decode() for _, svg in reports]
    return environment.get_template("page.html").render(
        reports=[report for report, _ in reports], drawings=drawings, scale=scale, version=__version__, most=ROWS
    )


def shown(value: Any) -> str:
    """Returns a cell of a table as a person would write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**9 else f"{value:.3e}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)

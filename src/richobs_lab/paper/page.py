"""The page: every statement with its formula, its checks, its table and its figure, in one file that needs no other."""

import base64
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from richobs.core.words import number
from richobs.show.page import rendered
from richobs.show.palette import theme_rules
from richobs_lab.paper import STATEMENTS
from richobs_lab.paper.base import JUDGEMENTS, Judgement, Plain, Scale
from richobs_lab.paper.catalogue import CATALOGUE, LABELS, Entry, entries_of
from richobs_lab.paper.formulas import mathml
from richobs_lab.paper.kills import killed_by, kills
from richobs_lab.paper.sources import source_files

ROWS = 60  # of a table that the page shows
TAKES: dict[Scale, str] = {
    "fast": "about 55 seconds of CPU time in all",
    "full": "about 16 minutes of CPU time in all, which workers share",
}
MARKS: dict[Judgement, str] = {"holds": "✓", "holds as read": "≈", "false as printed": "✗", "check failed": "!"}
PLURALS: dict[Judgement, str] = {
    "holds": "hold",
    "holds as read": "hold as read",
    "false as printed": "are false as printed",
    "check failed": "have a check that failed",
}


def render(reports: Sequence[tuple[Plain, str]], scale: Scale) -> str:
    """Returns the page of reports, each with its drawing as SVG."""
    shown = [_section(report, svg) for report, svg in reports]
    verdicts = {report["name"]: report for report, _ in reports}
    return rendered(
        Path(__file__).parent / "page.html",
        reports=shown,
        contents=[e for e in CATALOGUE if e.statement in verdicts],
        elsewhere=[e for e in CATALOGUE if not e.statement],
        judgement_of=lambda entry: judgement(entry, verdicts[entry.statement]),
        counts=[(j, n) for j in JUDGEMENTS if (n := Counter(r["verdict"] for r, _ in reports)[j])],
        marks=MARKS,
        plurals=PLURALS,
        kills=kills(),
        scale=scale,
        most=ROWS,
        theme=theme_rules(),
        cell_words=cell_words,
        class_of=lambda words: words.replace(" ", "-"),
        mathml=mathml,
        is_numbered=is_numbered,
        takes=TAKES[scale],
        labels=LABELS,
    )


def is_numbered(entry: Entry) -> bool:
    """Whether an entry is a theorem or the like, which readers look for by number, and not an equation or a step."""
    return re.match(r"(Theorem|Lemma|Corollary|Proposition) \d", entry.number) is not None


def checks_of(entry: Entry, report: Plain) -> list[Plain]:
    """Returns the checks of a statement's report that are about an entry."""
    checks: list[Plain] = report["conclusion"]["checks"]
    return [c for c in checks if not entry.checks or c["what"].startswith(entry.checks)]


def judgement(entry: Entry, report: Plain) -> Judgement:
    """Returns the worst judgement of the checks about an entry."""
    return max((c["judgement"] for c in checks_of(entry, report)), key=JUDGEMENTS.index, default="check failed")


def tightness(entry: Entry, report: Plain) -> float | None:
    """Returns the largest share of a bound that a check about an entry found, or None."""
    return max((c["tightness"] for c in checks_of(entry, report) if c["tightness"] is not None), default=None)


def _section(report: Plain, svg: str) -> Plain:
    """Returns a report with what the page adds to it."""
    name = report["name"]
    width, height = _size(svg)
    entries = entries_of(name)
    module = STATEMENTS[name]
    return report | {
        "entries": entries,
        "drawing": base64.b64encode(svg.encode()).decode(),
        "ratio": width / height,
        "killed": killed_by(name),
        "code": list(dict.fromkeys([module, *(c for e in entries for c in e.code)])),
        "tests": list(dict.fromkeys(t for e in entries for t in e.tests)),
        "listing": source_files(module)[module].read_text(encoding="utf-8"),
    }


def _size(svg: str) -> tuple[float, float]:
    """Returns width and height of a drawing."""
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert found is not None, "matplotlib states it"
    return float(found[1]), float(found[2])


def cell_words(value: Any) -> str:
    """Returns a cell of a table as a person would write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    return "" if value is None else str(value)

"""The page: every statement with its formula, its checks, its table and its figure, in one file that needs no other."""

import base64
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from richobs.core.words import number
from richobs.show.page import rendered
from richobs.show.palette import theme_rules
from richobs_lab.paper import STATEMENTS
from richobs_lab.paper.base import JUDGEMENTS, Judgement, Plain, Scale
from richobs_lab.paper.catalogue import CATALOGUE, LABELS, Entry, entries_of
from richobs_lab.paper.formulas import mathml
from richobs_lab.paper.kills import killed_by, killed_of_asked, kills
from richobs_lab.paper.sources import source_files

if TYPE_CHECKING:
    import markupsafe

ROWS = 60  # of a table that the page shows
TAKES: dict[Scale, str] = {
    "fast": "about 40 seconds of CPU time in all",
    "full": "about 16 minutes of CPU time in all, which workers share",
}
MARKS: dict[Judgement, str] = {"holds": "✓", "holds as read": "≈", "false as printed": "✗", "check failed": "!"}
PLURALS: dict[Judgement, str] = {
    "holds": "hold",
    "holds as read": "hold as read",
    "false as printed": "are false as printed",
    "check failed": "have a check that failed",
}


TYPESET: tuple[tuple[str, Any], ...] = (  # what plain text writes -> HTML, in this order
    (r"\bV\*-hat\b", "V\u0302<sup>⋆</sup>"),
    (r"\b([VQf])\*_(\w)\b", r"\1<sup>⋆</sup><sub>\2</sub>"),
    (r"\b([VQf])\*", r"\1<sup>⋆</sup>"),
    (r"\b([A-Z])&#39;_(\w)\b", "\\1\u2032<sub>\\2</sub>"),
    (r"\bO~", "Õ"),
    (r"\bR~", "R\u0303"),
    (r"\bsqrt\b", "√"),
    (r"&lt;=", "≤"),
    (r"&gt;=", "≥"),
    (r"(\d)e([+-]\d+)\b", lambda m: f"{m[1]}·10<sup>{int(m[2])}</sup>"),
    *(
        (rf"\b{word}(?=\b|_)", letter)
        for word, letter in zip(
            ("epsilon", "eps", "delta", "phi", "tau", "eta", "Gamma", "Pi", "pi", "psi", "Omega"),
            "εεδφτηΓΠπψΩ",
            strict=True,
        )
    ),
    (r"\b(log|[A-Za-z\u0391-\u03c9])_([A-Za-z0-9]+)", r"\1<sub>\2</sub>"),
    (r"\^(\([^()]*\)|-?[\w.]*\w(?:<(su[bp])>[^<]*</\2>)?)", r"<sup>\1</sup>"),
    (r"(\d) ?\* ?(\d)", r"\1·\2"),
)


def typeset(text: str) -> "markupsafe.Markup":
    """Returns a text as HTML with all of its mathematics set: K^H, n_2, epsilon, V*-hat, sqrt, <= and 2e+14."""
    import markupsafe

    html = str(markupsafe.escape(text))
    for pattern, made in TYPESET:
        html = re.sub(pattern, made, html)
    return markupsafe.Markup(html)


def sentence(text: str) -> "markupsafe.Markup":
    """Returns a typeset text that ends with one full stop."""
    return typeset(text.rstrip(". ") + ".")


def summary(reports: Sequence[Plain]) -> str:
    """Returns the first sentences of page and map: that the guarantee stands, and how many statements hold, and how."""
    given = {report["name"]: report for report in reports}
    judged = [judgement(e, given[e.statement]) for e in CATALOGUE if is_numbered(e) and e.statement in given]
    counts = Counter(judged)
    found = ", ".join(f"{counts[j]} {PLURALS[j] if counts[j] > 1 else j}" for j in JUDGEMENTS if counts[j])
    stands = (
        "LSVEE's guarantee stands: under Assumptions 1 to 3, with probability at least 1 - delta, its policy is within "
        "epsilon of optimal."
    )
    if not set(counts) <= {"holds", "holds as read"}:
        stands = "Not every check came out as the paper says."
    return f"{stands} Of {len(judged)} theorems, propositions, corollaries and lemmas {found}."


def render(reports: Sequence[tuple[Plain, str]], scale: Scale) -> str:
    """Returns the page of reports, each with its drawing as SVG."""
    shown = [_section(report, svg) for report, svg in reports]
    verdicts = {report["name"]: report for report, _ in reports}
    return rendered(
        Path(__file__).parent / "page.html",
        reports=shown,
        typeset=typeset,
        sentence=sentence,
        summary=summary([report for report, _ in reports]),
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
        "asked": killed_of_asked(name),
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

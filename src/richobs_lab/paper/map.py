"""docs/paper-map.md, made from the catalogue, from the verdicts of a run, and from the kill table.

    python -m richobs_lab.paper.map FOLDER [COMMIT]

reads what `richobs paper --out FOLDER` wrote, keeps its verdicts beside this file, and writes the page anew. COMMIT names
the source that measured them, whose digests the verdicts have. A test compares the page with what this module makes of them.
"""

import functools
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from richobs import InvalidInput
from richobs.core.files import write_atomically
from richobs.core.words import number
from richobs_lab.paper import STATEMENTS, load
from richobs_lab.paper.base import FAR, Plain
from richobs_lab.paper.catalogue import CATALOGUE, LABELS, PARTS, Entry, entries_of
from richobs_lab.paper.kills import killed_of_asked
from richobs_lab.paper.page import judgement, summary, tightness
from richobs_lab.paper.sources import SOURCE

VERDICTS = Path(__file__).with_name("verdicts.json")
PAGE = SOURCE.parent / "docs" / "paper-map.md"
BEGIN = """# From the paper to the code

{summary}

Every numbered statement, assumption and algorithm of [KAL16], every displayed inequality of consequence, and what the text
says beside them: where it lives, the test that would go red without it, and what came of running it. `python -m
richobs_lab.paper.map FOLDER` makes this page from `richobs_lab/paper/catalogue.py`, from the verdicts of `richobs paper
--out FOLDER`, and from the kill table of `python -m tests.paper_mutants`. Each part of the paper has a table of verdicts,
and below it lines, code and tests. What no statement runs has no verdict:
most definitions, assumptions and algorithms, and Eq. (5), Eq. (13) and the crude bound, which tests check.

- Numbers count each kind of statement by itself, in the order of the paper's LaTeX source. Lines are lines of that
  source. The style file that declares the counters is not part of it. Where a copy of the paper counts theorems,
  propositions, corollaries and lemmas together, the LaTeX label beside the line says which one is meant.
- **holds**: as printed, under the paper's own definitions and conventions. **holds as read**: something has to be added that
  is not printed there. That is a convention (delta at most 1/2, a probability given accurate estimates, a bound that holds
  with probability 1 - delta, a problem for each T), a premise (Assumption 1 or 3 for Eq. (1), a learned root for Theorem 6),
  or a repaired constant; `richobs paper` prints it, and the [notes](paper-notes.md) derive it. **false as printed**: false
  under the paper's own definitions and conventions. The rule is the same for all.
- Tightness is the largest share of the bound that was found on any instance, where the bound is at most 1 if it bounds
  something that is; below 1/3, the section after the tables says which step of the proof is loose.
- Mutants, in the last table, are mistakes in the algorithm's boxes and constants: how many a statement noticed of those that
  it was run against. A mutant is run against statements until one notices it, quick ones first, or against more (`--every`).
"""
LOOSE = """## Where no instance comes near

Checks whose tightest instance takes less than a third of the bound, and why.
"""
RUN = """## Statements to run

`richobs paper` measures every statement below, draws its figure and writes one page with all of them to
`runs/paper/index.html`; `richobs paper NAME` does one, `--fast` runs what the tests run. What was measured is kept
for the source that measured it, so an interrupted run goes on where it was. The exit status is 1 if a check fails.
The version of the verdict is "full", or "fast" where the kept verdict is that of `--fast`; beside it is the commit that
was run. What was found wrong or loose is in [Notes on the paper](paper-notes.md).
"""
READINGS = """## Readings

Readings of the algorithm are in [LSVEE](explanations/lsvee.md#readings-of-the-paper). Readings of the model: levels
count from 0; functions and policies see (level, x), so Assumption 1 compares states of one level only, and a process
whose states recur is layered once time is part of the state (`TabularProcess.from_flat` does that, and
`check_assumptions` says which states recurred). States that no action sequence reaches are left out of every check.
"""


@functools.cache
def verdicts() -> dict[str, Plain]:
    """Returns what the last run that was kept said of each statement: scale, source, and its checks with their verdicts."""
    return dict(json.loads(VERDICTS.read_text(encoding="utf-8")))


def verdicts_in(folder: Path, commit: str = "") -> dict[str, Plain]:
    """Returns the verdicts that a folder of `richobs paper` holds, measured at a commit where one is named.

    Raises:
        InvalidInput: it lacks a statement.
    """
    found = {}
    for name in STATEMENTS:
        file = folder / f"{name}.json"
        if not file.exists():
            raise InvalidInput(f"{folder} holds no {name}.json; `richobs paper --out {folder}` writes it.")
        report = json.loads(file.read_text(encoding="utf-8"))
        checks = [
            {key: c[key] for key in ("what", "judgement", "tightness", "loose")} for c in report["conclusion"]["checks"]
        ]
        found[name] = {
            "scale": report["scale"],
            "source": report["source"],
            "commit": commit,
            "verdict": report["verdict"],
            "tightness": report["tightness"],
            "conclusion": {"checks": checks},
        }
    return found


def made(given: dict[str, Plain]) -> str:
    """Returns the page, given the verdicts."""
    reports = [{"name": name, **report} for name, report in given.items()]
    ends = [first for first, _ in PARTS[1:]] + [CATALOGUE[-1].line + 1]
    tables = [
        "\n".join(
            [
                f"## {part}\n",
                _row("statement", "verdict", "tightness", "run by"),
                _row(*["---"] * 4),
                *(_entry_row(entry, given) for entry in CATALOGUE if first <= entry.line < end),
                "\nLine, code and tests:\n",
                *(_places(entry) for entry in CATALOGUE if first <= entry.line < end),
                "",
            ]
        )
        for (first, part), end in zip(PARTS, ends, strict=True)
    ]
    runs = [
        _row("command", "statements", "verdict", "version", "mutants", "figure"),
        _row(*["---"] * 6),
        *(_run_row(name, given[name]) for name in STATEMENTS),
    ]
    loose = [
        _row("statement", "check", "tightness", "why no nearer"),
        _row(*["---"] * 4),
        *(
            _row(f"`{name}`", c["what"].replace("|", "\\|"), number(c["tightness"]), c["loose"])
            for name in STATEMENTS
            for c in given[name]["conclusion"]["checks"]
            if c["tightness"] is not None and c["tightness"] < FAR
        ),
    ]
    begin = BEGIN.format(summary=summary(reports))
    return "\n".join([begin, *tables, LOOSE, "\n".join(loose), "", RUN, "\n".join(runs), "", READINGS])


def _entry_row(entry: Entry, given: dict[str, Plain]) -> str:
    run, verdict, tight = "", "", ""
    if entry.statement:
        report = given[entry.statement]
        share = tightness(entry, report)
        run, verdict = f"`{entry.statement}`", judgement(entry, report)
        tight = "" if share is None else number(share)
    return _row(f"{entry.number}, {entry.title}".replace("|", "\\|"), verdict, tight, run)


def _places(entry: Entry) -> str:
    """Returns where an entry is: in the paper, in the code and in the tests."""
    label = LABELS.get(entry.number)
    where = f"line {entry.line}, `{label}`" if label else f"line {entry.line}"
    return f"- {entry.number} ({where}): {_quoted(entry.code)}; {_quoted(entry.tests)}"


def _run_row(name: str, report: Plain) -> str:
    numbers = ", ".join(dict.fromkeys(e.number for e in entries_of(name))) or load(name).TITLE
    figure = f"[figure](figures/paper/{name}.png)"
    killed = killed_of_asked(name)
    version = f"{report['scale']}, {report['commit']}" if report.get("commit") else report["scale"]
    return _row(f"`richobs paper {name}`", numbers, report["verdict"], version, killed, figure)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def main(folder: Path, commit: str = "") -> None:
    """Keeps the verdicts of a folder and writes the page."""
    found = verdicts_in(folder, commit)
    for file, text in ((VERDICTS, json.dumps(found, indent=1) + "\n"), (PAGE, made(found))):
        with write_atomically(file) as stream:
            stream.write(text.encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])

"""The kill table: wrong factors in LSVEE's boxes and constants, and which statements noticed them.

`python -m tests.paper_mutants` in the repository makes it; it lies beside this file.
"""

import functools
import json
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class Kill:
    """What became of one mutant."""

    why: str  # what is wrong with it
    file: str  # the edited file below src/richobs
    killed_by: dict[str, str]  # statement -> the checks that failed, or the error
    survived: tuple[str, ...]  # statements that did not notice
    reason: str  # where none noticed: why


@functools.cache
def kills() -> tuple[Kill, ...]:
    """Returns the table, in the order of its list; empty where it was never made."""
    if not FILE.exists():
        return ()
    rows = json.loads(FILE.read_text(encoding="utf-8"))["rows"]
    return tuple(Kill(r["why"], r["file"], r["killed_by"], tuple(r["survived"]), r["reason"]) for r in rows)


def killed_by(statement: str) -> tuple[Kill, ...]:
    """Returns the mutants that a statement killed, whoever else did."""
    return tuple(kill for kill in kills() if statement in kill.killed_by)


def killed_of_asked(statement: str) -> str:
    """Returns how many mutants a statement killed of those that it was run against, in words."""
    killed, survived = len(killed_by(statement)), sum(statement in kill.survived for kill in kills())
    return f"{killed} of {killed + survived}"

"""The table of the attacks in docs/reliability.md: `python -m attack.table` writes it from attack/results/*.json.

`python -m attack.table --check` says whether the page has it already.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attack.common import RESULTS

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- attacks: begin -->", "<!-- attacks: end -->"
ATTACKS = {  # in the order of the page, with what is attacked
    "kills": "runs that are killed, lose power, or fill the disk",
    "pairs": "two processes at once",
    "files": "files that were damaged or forged",
    "strangers": "folders from strangers",
    "inputs": "inputs that nobody should give",
    "promises": "claims that must be true",
    "workers": "workers that hang, raise, die or answer twice",
}


def table(folder: Path = RESULTS) -> str:
    """Returns the table in Markdown, from the results of the attacks that are there."""
    lines = ["| attack | command | cases | must not happen | made |", "|---|---|---:|---:|---|"]
    for name, about in ATTACKS.items():
        file = folder / f"{name}.json"
        if not file.exists():
            lines.append(f"| {about} | `python -m attack.{name}` | | | not yet run |")
            continue
        found = json.loads(file.read_text(encoding="utf-8"))
        code = f"commit {found['code']}" if found.get("code") else f"richobs {found['richobs']}"
        made = f"{found['date']}, {code}, Python {found['python']}, SQLite {found['sqlite']}"
        lines.append(
            f"| {about} | `{found.get('command', f'python -m attack.{name}')}` | {_number(found.get('cases'))} | "
            f"{_number(found.get('failures'))} | {made} |"
        )
    for name in ATTACKS:
        file = folder / f"{name}.json"
        if file.exists():
            lines += _details(name, json.loads(file.read_text(encoding="utf-8")))
    return "\n".join(lines)


def _details(name: str, found: dict[str, Any]) -> list[str]:
    """Returns an attack's own table, where its results have one: `table` or `rows`; columns of zeros are named once."""
    rows = found.get("table") or found.get("rows")
    if not rows:
        return []
    zero = [c for c in rows[0] if all(row.get(c) == 0 for row in rows)]
    columns = [c for c in rows[0] if c not in zero]
    head = f"| {' | '.join(columns)} |", "|".join(["", "---", *["---:"] * (len(columns) - 1), ""])
    body = [f"| {' | '.join(_number(row.get(c)) for c in columns)} |" for row in rows]
    never = f" 0 in every row: {', '.join(zero)}." if zero else ""
    return ["", f"`attack.{name}`.{never}", "", *head, *body]


def _number(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def with_table(text: str, made: str) -> str:
    """Returns a page with the table between its markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{after}"


def main(given: Sequence[str] | None = None) -> int:
    """Writes the table into the page, or says whether it is there."""
    parser = argparse.ArgumentParser(description="Write the table of the attacks into docs/reliability.md.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit status 1 where the page has another")
    options = parser.parse_args(given)
    text = PAGE.read_text(encoding="utf-8")
    new = with_table(text, table())
    if options.check:
        print("the page has the table of the results" if new == text else "the page has another table")
        return 0 if new == text else 1
    PAGE.write_text(new, encoding="utf-8")
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())

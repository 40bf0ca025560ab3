"""What several commands print."""

import json
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from richobs.core.problem import Problem
from richobs.show import words
from richobs.worlds.assumptions import AssumptionReport

WIDE = 200  # columns of a table that is not printed on a terminal


def widened(console: Console) -> Console:
    """Returns a console with room for wide tables where the output is not a terminal."""
    if not console.is_terminal:
        console.width = WIDE
    return console


def headline(problem: Problem) -> str:
    """Returns a sentence about a problem, as markup."""
    states = f", at most {problem.n_states} hidden states a level" if problem.n_states is not None else ""
    return (
        f"[bold]{escape(problem.name)}[/]: {problem.horizon} levels, {problem.n_actions} actions{states}, "
        f"a class of {words.functions(problem.functions.log_size)} functions"
    )


def print_findings(console: Console, rows: Sequence[tuple[str, str, str]]) -> None:
    """Prints (name, mark as markup, words) as a table without lines."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, mark, found in rows:
        table.add_row(Text(f"  {name}"), mark, Text(found))
    console.print(table)


def print_assumptions(console: Console, problem: Problem, report: AssumptionReport, as_json: bool) -> int:
    """Prints what was found for each assumption; returns the exit status, 1 if anything fails."""
    if as_json:
        checks = {c.name: {"holds": c.holds, "finding": c.finding} for c in report.checks}
        console.print_json(json.dumps({"id": problem.id, "holds": report.holds, "checks": checks}))
    else:
        console.print(headline(problem))
        marks = {True: "[green]holds[/]", False: "[bold red]fails[/]", None: "[yellow]not judged[/]"}
        print_findings(console, [(c.name, marks[c.holds], c.finding) for c in report.checks])
    return 0 if report.holds else 1

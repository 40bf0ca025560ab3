"""What several commands print."""

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core import words
from richobs.core.problem import Problem
from richobs.runs.store import POLICY, StoredRun
from richobs.show.summary import summary
from richobs.worlds.gymnasium_in.spec import is_gymnasium_id
from richobs.worlds.registry import make

WIDE = 200  # columns of a table that is not printed on a terminal


def widened(console: Console) -> Console:
    """Returns a console with room for wide tables where the output is not a terminal."""
    if not console.is_terminal:
        console.width = WIDE
    return console


class Trimmed:
    """A table or a text without the spaces at the ends of its lines."""

    def __init__(self, content: RenderableType):
        self.content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the lines."""
        for line in console.render_lines(self.content, options, pad=False):
            while line and not line[-1].text.rstrip():
                line.pop()
            if line:
                line[-1] = Segment(line[-1].text.rstrip(), *line[-1][1:])
            yield from line
            yield Segment.line()


def headline(problem: Problem) -> str:
    """Returns a sentence about a problem, as markup."""
    size = words.problem_size(problem.horizon, problem.n_actions, problem.n_states, problem.functions.log_size)
    return f"[bold]{escape(problem.name)}[/]: {size}"


def print_claim(console: Console, claim: Text) -> None:
    """Prints a claim on as many lines as it needs, without breaking a word."""
    console.print(Trimmed(claim), soft_wrap=False)


def print_summary(console: Console, stored: StoredRun) -> None:
    """Prints what is known of a stored run.

    Some learners do not estimate the value of their policy. It is then computed, where the world is written down.
    """
    console.print(Trimmed(summary(stored)))
    if stored.certificate is None or stored.world is None or is_gymnasium_id(stored.world):
        return
    result = stored.certificate.content["result"]
    problem = make(stored.world) if result["value_hat"] is None and result["lower"] is None else None
    if problem is not None and problem.process is not None:
        worth = problem.value(LearnedPolicy.load(stored.folder / POLICY))
        best = f"; V* is {problem.optimal_value:.6g}" if problem.knows_optimum else ""
        console.print(Text(f"\nthe policy's value, computed from the world itself: {worth:.6g}{best}"))


def print_findings(console: Console, rows: Sequence[tuple[str, str, str]]) -> None:
    """Prints (name, mark as markup, words) as a table without lines."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for name, mark, found in rows:
        table.add_row(Text(f"  {name}"), mark, Text(found, overflow="fold"))
    console.print(Trimmed(table))

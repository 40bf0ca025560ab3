"""`richobs paper`: the statements of the paper, run."""

import contextlib
import dataclasses
import json
import math
import pathlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from richobs.core.arguments import checked_workers
from richobs.core.words import number
from richobs.show.summary import plain_console
from richobs.show.terminal import EVERY

if TYPE_CHECKING:
    from richobs_lab.paper import Judgement, Scale, runner


@dataclasses.dataclass(frozen=True)
class PaperCommand:
    """Run statements of the paper: measure, draw, and write a page. What was measured before is not measured again."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Which statements, by name (`richobs paper --help` lists them); none means all."""
    fast: bool = False
    """The small versions that the tests run: about 40 seconds of CPU time in all, instead of about 16 minutes."""
    out: pathlib.Path = pathlib.Path("runs/paper")
    """Folder for figures, results and the page."""
    workers: int = 2
    """Processes that measure; they never change a byte of the results."""
    quiet: bool = False
    """Print nothing while it runs, and only verdicts at the end."""
    json: bool = False
    """Print JSON instead of verdicts."""

    @staticmethod
    def more_help() -> str:
        """Returns every statement with its title, a line each; loads them all."""
        from richobs_lab.paper import STATEMENTS, load

        width = max(map(len, STATEMENTS))
        return "\n".join(["Statements:", *(f"  {name:{width}}  {load(name).TITLE}" for name in STATEMENTS)])

    def run(self, console: Console) -> int:
        """Prints what came of every check; the exit status is 1 if one failed."""
        from richobs_lab.paper import runner  # loads every statement's tools, and is needed here only

        checked_workers(self.workers)
        scale: Scale = "fast" if self.fast else "full"
        try:
            with statements_watched(quiet=self.quiet or self.json) as watch:
                reports = runner.run(self.names, scale=scale, out=self.out, workers=self.workers, watch=watch)
        except KeyboardInterrupt:
            stopped = f"stopped; what was finished is in {self.out}, and the same command goes on."
            plain_console(stderr=True).print(Text(stopped))
            raise
        if self.json:
            console.print_json(json.dumps([r.as_json() for r in reports]))
        else:
            for report in reports:
                verdict = _coloured(report.conclusion.verdict)
                console.print(f"[bold]{escape(report.name)}[/]: {escape(report.title)}: {verdict}")
                for c in report.conclusion.checks:
                    reading = f". Reading: {c.reading.rstrip('.')}" if c.reading else ""
                    tight = "" if c.tightness is None else f". Tightest instance: {number(c.tightness)} of the bound"
                    loose = f". Why no nearer: {c.loose}" if c.loose else ""
                    detail = (
                        "" if self.quiet else f" [dim]({escape(c.detail.rstrip('.') + reading + tight + loose)})[/]"
                    )
                    console.print(f"  {_coloured(c.judgement)}: {escape(c.what)}{detail}")
            console.print(Text(f"\nwrote {self.out / 'index.html'}"))
        return 0 if all(r.conclusion.holds for r in reports) else 1


def _coloured(judgement: "Judgement") -> str:
    """Returns a judgement as markup."""
    colours = {"holds": "green", "holds as read": "cyan", "false as printed": "yellow", "check failed": "bold red"}
    return f"[{colours[judgement]}]{judgement}[/]"


@contextlib.contextmanager
def statements_watched(*, quiet: bool) -> Iterator["runner.Watch"]:
    """Yields what shows how far the statements are: bars with the time left on a terminal, a line now and then elsewhere."""
    console = Console(stderr=True, highlight=False, emoji=False)
    if quiet:
        yield lambda step: None
    elif console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bars:
            rows: dict[str, TaskID] = {}

            def show(step: "runner.Step") -> None:
                if step.statement not in rows:
                    rows[step.statement] = bars.add_task(step.statement, total=step.total)
                bars.update(rows[step.statement], completed=step.done)

            yield show
    else:
        begin = last = time.monotonic()
        first: dict[str, int] = {}  # pieces found done when the run began
        now: dict[str, runner.Step] = {}

        def tell(step: "runner.Step") -> None:
            nonlocal last
            first.setdefault(step.statement, step.done)
            now[step.statement] = step
            clock = time.monotonic()
            if step.report is None and clock - last < EVERY:
                return
            last = clock
            new = sum(s.done - first[n] for n, s in now.items())
            left = sum(s.total - s.done for s in now.values())
            eta = f", about {math.ceil(left * (clock - begin) / new)} s left" if new and left else ""
            console.print(
                f"{step.statement}: {step.done} of {step.total} pieces{' (done)' if step.report else ''}{eta}"
            )

        yield tell

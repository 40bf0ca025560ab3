"""A sweep: how far it is while it runs, and a page, a table and plain values about what came of it."""

import contextlib
import dataclasses
import math
import pathlib
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from richobs.core import words
from richobs.runs.store import REPORT
from richobs.show.page import rendered, write_html
from richobs.show.palette import theme_rules
from richobs_lab.sweep.runs import Cell, CellResult, Sweep, SweepProgress, Watch

if TYPE_CHECKING:
    from rich.table import Table

HERE = pathlib.Path(__file__).parent
PAGE, FIGURE = "sweep.html", "sweep"


class SettingRow:
    """The runs of one setting, which differ by seed only."""

    def __init__(self, cells: Sequence[Cell], results: Sequence[CellResult | None]):
        """Takes the cells, and what came of each; None where its run has not ended."""
        self.cells, self.results = cells, results
        self.name, self.varied = cells[0].setting, cells[0].varied
        self.finished = [r for r in results if r is not None and r.state == "finished"]
        self.failed = [r for r in results if r is not None and r.state == "failed"]
        self.certified = sum(r.as_asked for r in self.finished)
        self.wider = sum(r.guaranteed and not r.as_asked for r in self.finished)  # that certified less than was asked
        spent = [r.episodes for r in self.finished]
        self.episodes = (statistics.median(spent), min(spent), max(spent)) if spent else None  # median, least, most
        self.cpu_seconds = statistics.median(r.cpu_seconds for r in self.finished) if spent else None

    @property
    def verdict(self) -> str:
        """How many runs certified what was asked, in words."""
        told = f"{self.certified:,} of {len(self.cells):,}"
        return f"{told}, {self.wider:,} wider" if self.wider else told

    @property
    def episodes_words(self) -> tuple[str, str]:
        """Median and range of the episodes, in words."""
        if self.episodes is None:
            return words.NONE, words.NONE
        middle, low, high = self.episodes
        return words.count(round(middle)), f"{words.count(low)} to {words.count(high)}"

    def as_plain(self) -> dict[str, Any]:
        """Returns the row in plain values."""
        middle, low, high = self.episodes or (None, None, None)
        return {
            "setting": self.name,
            "varied": dict(self.varied),
            "runs": len(self.cells),
            "finished": len(self.finished),
            "failed": len(self.failed),
            "certified": self.certified,
            "wider": self.wider,
            "episodes": {"median": middle, "least": low, "most": high},
            "cpu_seconds": {"median": self.cpu_seconds, "total": math.fsum(r.cpu_seconds for r in self.finished)},
        }


def setting_rows(sweep: Sweep) -> list[SettingRow]:
    """Returns the runs of a sweep by setting, in its order."""
    return [SettingRow(cells, [sweep.results.get(cell.run) for cell in cells]) for cells in sweep.of_setting().values()]


def sweep_plain(sweep: Sweep) -> dict[str, Any]:
    """Returns what came of a sweep in plain values."""
    return {
        "folder": str(sweep.folder),
        "settings": [row.as_plain() for row in setting_rows(sweep)],
        "runs": [
            {**cell.as_plain(), "result": None if (r := sweep.results.get(cell.run)) is None else dataclasses.asdict(r)}
            for cell in sweep.cells
        ],
    }


def sweep_table(sweep: Sweep) -> "Table":
    """Returns what came of a sweep as a table for a terminal, one line per setting."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for i, column in enumerate(
        ("setting", "runs", "certified", "episodes, median", "range", "CPU s, median", "failed")
    ):
        table.add_column(column, justify="right" if i else "left", overflow="fold")
    for row in setting_rows(sweep):
        cpu = words.NONE if row.cpu_seconds is None else words.value(row.cpu_seconds)
        counts = (f"{len(row.finished):,} of {len(row.cells):,}", row.verdict)
        failed = Text(f"{len(row.failed):,}", style="bold red" if row.failed else "")
        table.add_row(Text(row.name), *counts, *row.episodes_words, cpu, failed)
    return table


def write_sweep(sweep: Sweep) -> list[pathlib.Path]:
    """Writes the page about a sweep into its folder, with its figure beside it; returns the files, the page first."""
    from richobs_lab.sweep.figure import write_sweep_figure  # matplotlib is slow to load, and needed here only

    rows = setting_rows(sweep)
    drawn = write_sweep_figure(rows, sweep.folder / FIGURE)
    figure = next((file.read_text(encoding="utf-8") for file in drawn if file.suffix == ".svg"), "")
    html = rendered(
        HERE / PAGE,
        rows=rows,
        world=_common_world(sweep.cells),
        total=len(sweep.cells),
        finished=sum(len(row.finished) for row in rows),
        failed=sum(len(row.failed) for row in rows),
        cpu_seconds=math.fsum(r.cpu_seconds for r in sweep.results.values()),
        pages={cell.run for cell in sweep.cells if (sweep.folder / cell.run / REPORT).exists()},
        report=REPORT,
        figure=figure[figure.find("<svg") :],
        files=[file.name for file in drawn],
        theme=theme_rules(),
    )
    return [write_html(html, sweep.folder / PAGE), *drawn]


def _common_world(cells: Sequence[Cell]) -> str:
    """Returns what the worlds of all cells have in common: the id, or the name alone."""
    found = {cell.world for cell in cells}
    if len(found) == 1:
        return found.pop()
    return ", ".join(sorted({world.partition("/")[0].partition(",")[0] for world in found}))


@contextlib.contextmanager
def sweep_watched(title: str, *, quiet: bool = False) -> Iterator[Watch]:
    """Yields what shows how far a sweep is: a bar with the time left on a terminal, a line now and then elsewhere."""
    if quiet:
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from richobs.show.terminal import EVERY, can_draw

    console = Console(stderr=True, highlight=False, emoji=False)
    if can_draw(console):
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[told]}"))
        with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bars:
            bar = bars.add_task(title, total=None, told="")

            def draw(progress: SweepProgress) -> None:
                ended = progress.finished + progress.failed
                bars.update(bar, total=progress.total, completed=ended, told=_counts(progress))
                if progress.last is not None and progress.last.state == "failed":
                    console.print(f"{progress.last.run}: {progress.last.message}", markup=False, soft_wrap=True)

            yield draw
        return
    begin, last = time.monotonic(), -math.inf  # the first line is printed at once
    first: int | None = None  # runs that had ended when the sweep began

    def tell(progress: SweepProgress) -> None:
        nonlocal first, last
        ended, now = progress.finished + progress.failed, time.monotonic()
        if first is None:
            first = ended
        has_failed = progress.last is not None and progress.last.state == "failed"
        if now - last < EVERY and ended < progress.total and not has_failed:
            return
        last = now
        left, new = progress.total - ended, ended - first
        eta = f", about {math.ceil(left * (now - begin) / new):,} s left" if new and left else ""
        why = (
            f"; {progress.last.run} failed: {progress.last.message}" if has_failed and progress.last is not None else ""
        )
        console.print(f"{title}: {_counts(progress)}{eta}{why}", markup=False, soft_wrap=True)

    yield tell


def _counts(progress: SweepProgress) -> str:
    told = f"{progress.finished:,} of {progress.total:,} finished, {progress.running:,} running"
    return f"{told}, {progress.failed:,} failed" if progress.failed else told

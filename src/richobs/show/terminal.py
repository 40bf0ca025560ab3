"""A run while it goes, on a terminal and in files for TensorBoard (extra `tensorboard`).

The package rich is slow to load, so it is loaded only where something is shown.
"""

import contextlib
import importlib.util
import math
import os
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from richobs.core import words
from richobs.core.arguments import file_path
from richobs.core.errors import InvalidInput
from richobs.core.events import Callback, Progress, path_words
from richobs.show.tree import Candidates

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.status import Status

EVERY = 10.0  # seconds between plain lines
BAR = 40  # characters
PATIENCE = 1.0  # seconds until somebody who waits is told why
WAITING: list[str] = []  # what is waited for now: something inside it shows nothing of its own


def can_draw(console: "Console") -> bool:
    """Whether a picture can be drawn over and over in one place; a notebook needs ipywidgets for that."""
    return console.is_terminal or (console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None)


class Watch:
    """A run as it goes: keeps the last progress, and draws it when asked."""

    def __init__(self, title: str, log_size: float, expected: int | None, console: "Console", plain: bool):
        """Begins to watch.

        Args:
            title: what runs.
            log_size: natural logarithm of the size of the class.
            expected: the most episodes that it may take, where that is known.
            console: where plain lines are printed.
            plain: whether to print a line now and then instead of being drawn.
        """
        self._title = title
        self._log_size = log_size
        self._expected = expected
        self._console = console
        self._plain = plain
        self._begin = self._printed = time.monotonic()
        self._first: int | None = None  # episodes when this process began, where a run goes on
        self._last: Progress | None = None
        self._survivors = math.nan  # natural logarithm of their number, from the last event that has one
        self._candidates = Candidates()
        self._troubles: list[str] = []

    def __call__(self, progress: Progress) -> None:
        """Takes note of an event; in plain mode, prints a line now and then, and at once where there is trouble."""
        event = progress.event
        if self._first is None:
            self._first = progress.episodes
        self._last = progress
        if not math.isnan(event.log_size_after):
            self._survivors = event.log_size_after
        self._candidates.absorb(progress)
        is_trouble = event.said().is_trouble
        if is_trouble:
            self._troubles.append(event.sentence)
        if self._plain and (is_trouble or time.monotonic() - self._printed >= EVERY):
            self._printed = time.monotonic()
            self._console.print(f"{self._title}: {self._line(progress)}", markup=False, soft_wrap=True)

    def _line(self, p: Progress) -> str:
        parts = [p.event.sentence]
        if self._candidates.current is not None:
            parts.append(f"candidate {self._candidates.current.number}")
        if not math.isnan(self._survivors):
            parts.append(f"survivors {words.functions(self._survivors)}")
        parts.append(f"{words.count(p.episodes)} episodes")
        if p.upper is not None and p.lower is not None:
            parts.append(f"V* at most {words.at_most(p.upper)}, policy at least {words.at_least(p.lower)}")
        return "; ".join(parts)

    def __rich__(self) -> "RenderableType":
        """Returns the live picture."""
        from rich.console import Group
        from rich.text import Text

        from richobs.show.summary import named_rows

        seconds = time.monotonic() - self._begin
        head = Text.assemble((self._title, "bold"), f"  {seconds:,.0f} s")
        p = self._last
        if p is None:
            return Group(head, Text("  starting", style="dim"))
        most = f" of at most {words.count(self._expected)}" if self._expected is not None else ""
        rate = (p.episodes - (self._first or 0)) / max(seconds, 1e-3)
        rows = [
            ("phase", f"{p.event.phase}: {p.event.kind}, {p.event.said().verdict}"),
            ("episodes", f"{words.count(p.episodes)}{most}, {words.count(int(rate))} a second"),
        ]
        candidate = self._candidates.current
        if candidate is not None:
            told = f"{candidate.number}, {words.count(candidate.episodes)} episodes of its own, earned "
            told += f"{words.value(candidate.earned)} of {words.value(candidate.promised)} promised"
            rows.insert(1, ("candidate", told))
            rows.insert(2, ("candidates", self._candidates.fates))
        elif p.event.path or p.event.said().mark is not None:
            rows.insert(1, ("path", path_words(p.event.path)))
        if not math.isnan(self._survivors):
            left = max(0.0, self._survivors) / max(self._log_size, 1e-9)
            kept = f"{words.functions(self._survivors)} of {words.functions(self._log_size)}"
            rows.insert(len(rows) - 1, ("survivors", f"{_bar(0, left)} {kept}"))
        if p.upper is not None and p.lower is not None:
            bar = f"{_bar(p.lower, p.upper)} " if p.lower >= 0 and p.upper <= 1.001 else ""  # totals of another range
            rows.append(
                ("value", f"{bar}policy at least {words.at_least(p.lower)}, V* at most {words.at_most(p.upper)}")
            )
        if self._candidates.outlook:
            rows.append(("outlook", self._candidates.outlook))
        if self._troubles:
            before = f" (and {len(self._troubles) - 1:,} remarks before)" if len(self._troubles) > 1 else ""
            rows.append(("struggling", f"{self._troubles[-1]}{before}"))
        return Group(head, named_rows(rows))


def _bar(low: float, high: float) -> str:
    """Returns the part of [0, 1] between two numbers as a bar."""
    first, last = (round(BAR * min(max(v, 0.0), 1.0)) for v in (low, high))
    return "·" * first + "━" * max(last - first, 0) + "·" * (BAR - max(last, first))


def is_interactive() -> bool:
    """Whether a person may be watching: standard error is a terminal, or this is a notebook."""
    from rich.console import Console

    console = Console(stderr=True)
    return console.is_terminal or console.is_jupyter


@contextlib.contextmanager
def waiting(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yields a function of how much is done and how much there is, which shows it in one line once it takes long."""
    from rich.console import Console

    console, begin = Console(stderr=True, highlight=False, emoji=False), time.monotonic()
    if WAITING or not is_interactive() or not can_draw(console):
        yield lambda done, of: None
        return
    with contextlib.ExitStack() as stack:
        stack.callback(WAITING.clear)
        WAITING.append(what)
        shown: list[Status] = []

        def told(done: int, of: int) -> None:
            if not shown and time.monotonic() - begin > PATIENCE:
                shown.append(stack.enter_context(console.status(what)))
            for status in shown:
                status.update(f"{what}: {done:,} of {of:,}")

        yield told


@contextlib.contextmanager
def watched(title: str, log_size: float, expected: int | None = None, *, quiet: bool = False) -> Iterator[Callback]:
    """Shows a run while the block lasts: live on a terminal or in a notebook, in plain lines elsewhere, or not at all.

    Args:
        title: what runs.
        log_size: natural logarithm of the size of the class.
        expected: the most episodes that it may take, where that is known.
        quiet: show nothing.
    """
    if quiet:
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False, emoji=False)
    drawn = can_draw(console)
    watch = Watch(title, log_size, expected, console, plain=not drawn)
    if not drawn:
        yield watch
        return
    with Live(watch, console=console, refresh_per_second=5, transient=True):
        yield watch


class TensorBoard:
    """A callback for `learn`: survivors and bounds against episodes, as scalars.

    Use it in a `with` block, or call `close` when the run is over.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        """Opens the event files in `folder`."""
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise InvalidInput(
                "writing for TensorBoard needs tensorboardX, which is not installed: pip install 'richobs[tensorboard]'."
            ) from error
        self._writer: Any = SummaryWriter(str(file_path(folder)))

    def __call__(self, progress: Progress) -> None:
        """Writes the numbers of one event; those that it does not have are left out."""
        event, at = progress.event, progress.episodes
        scalars = {"survivors_log10": words.power_of_ten(event.log_size_after)}
        if progress.upper is not None and progress.lower is not None:
            scalars |= {"value/v_star_at_most": progress.upper, "value/policy_at_least": progress.lower}
        said = event.said()
        scalars |= {f"{event.kind}/statistic": said.statistic, f"{event.kind}/threshold": said.threshold}
        for reading in said.readings:
            logs = {f"{reading.chart.name}_log10/{i}": log for i, log in enumerate(reading.logs)}
            logs |= {f"{reading.chart.name}_log10/limit": reading.limit}
            scalars |= {name: words.power_of_ten(log) for name, log in logs.items()}
        for name, value in scalars.items():
            if math.isfinite(value):
                self._writer.add_scalar(name, value, at)

    def close(self) -> None:
        """Writes what is not yet written, and closes the files."""
        self._writer.close()

    def __enter__(self) -> "TensorBoard":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

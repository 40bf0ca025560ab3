"""What people see on a terminal: a run as it goes, and a run that is stored."""

import contextlib
import math
import time
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from richobs.outcome import Callback, Progress
from richobs.paper import runner
from richobs.problem import Path
from richobs.store import StoredRun

EVERY = 10.0  # seconds between plain lines
BAR = 40  # characters


def number(value: float) -> str:
    """Returns a number as a person would write it."""
    if isinstance(value, int):
        return f"{value:,}" if value < 10**9 else f"{value:.3e}"
    return f"{value:.4g}"


def power(log_size: float) -> str:
    """Returns the size of a class, given by its natural logarithm, as a power of ten."""
    return f"10^{log_size / math.log(10):.1f}" if log_size > -math.inf else "0"


def path_text(path: Path, at_most: int = 24) -> str:
    """Returns a path as a person would write it, its middle left out where it is long."""
    if not path:
        return "the root"
    steps = [str(a) for a in path]
    if len(steps) > at_most:
        steps = [*steps[: at_most // 2], f"... ({len(path)} actions) ...", *steps[-at_most // 2 :]]
    return " ".join(steps)


class Watch:
    """A run as it goes: keeps what was told last, and draws it when asked."""

    def __init__(self, title: str, log_size: float, expected: int | None, console: Console, plain: bool):
        self._title = title
        self._log_size = log_size
        self._expected = expected
        self._console = console
        self._plain = plain
        self._begin = self._printed = time.monotonic()
        self._first: int | None = None  # episodes when this process began, where a run goes on
        self._last: Progress | None = None
        self._stages = 0

    def __call__(self, progress: Progress) -> None:
        """Takes note of a test; without a terminal, prints a line now and then."""
        if self._first is None:
            self._first = progress.episodes
        self._last = progress
        event = progress.event
        struggling = event.kind in ("stage", "handover")
        self._stages += event.kind == "stage"
        if self._plain and (struggling or time.monotonic() - self._printed >= EVERY):
            self._printed = time.monotonic()
            self._console.print(f"{self._title}: {self._line(progress)}", markup=False, soft_wrap=True)

    def _line(self, p: Progress) -> str:
        parts = [
            f"{p.event.kind} at {path_text(p.event.path)}: {p.event.verdict}",
            f"survivors {power(p.event.log_size_after)}",
            f"{number(p.episodes)} episodes",
        ]
        if p.event.kind == "stage":
            most = number(int(p.event.threshold))
            parts.insert(1, f"batches of up to {most} episodes from here on, as smaller ones told no survivors apart")
        if p.upper is not None and p.lower is not None:
            parts.append(f"V* at most {p.upper:.4f}, policy at least {p.lower:.4f}")
        return "; ".join(parts)

    def __rich__(self) -> RenderableType:
        """Returns the live picture."""
        seconds = time.monotonic() - self._begin
        head = Text.assemble((self._title, "bold"), f"  {seconds:,.0f} s")
        p = self._last
        if p is None:
            return Group(head, Text("  starting", style="dim"))
        table = Table(box=None, pad_edge=False, show_header=False)
        most = f" of at most {number(self._expected)}" if self._expected is not None else ""
        rate = (p.episodes - (self._first or 0)) / max(seconds, 1e-3)
        left = max(0.0, p.event.log_size_after) / max(self._log_size, 1e-9)
        rows = [
            ("phase", f"{p.event.phase}: {p.event.kind}, {p.event.verdict}"),
            ("path", path_text(p.event.path)),
            ("survivors", f"{_bar(0, left)} {power(p.event.log_size_after)} of {power(self._log_size)}"),
            ("episodes", f"{number(p.episodes)}{most}, {number(int(rate))} a second"),
        ]
        if p.upper is not None and p.lower is not None:
            rows.append(("value", f"{_bar(p.lower, p.upper)} policy at least {p.lower:.4f}, V* at most {p.upper:.4f}"))
        if self._stages:
            rows.append(
                ("struggling", f"batches doubled {self._stages} times, as smaller ones told no survivors apart")
            )
        for name, value in rows:
            table.add_row(f"  {name}", Text(value))
        return Group(head, table)


def _bar(low: float, high: float) -> str:
    """Returns the part of [0, 1] between two numbers as a bar."""
    first, last = (round(BAR * min(max(v, 0.0), 1.0)) for v in (low, high))
    return "·" * first + "━" * max(last - first, 0) + "·" * (BAR - max(last, first))


@contextlib.contextmanager
def watched(title: str, log_size: float, expected: int | None = None, *, quiet: bool = False) -> Iterator[Callback]:
    """Shows a run on the terminal while the block lasts: live, in plain lines where there is no terminal, or not at all.

    Args:
        title: what runs.
        log_size: natural logarithm of the size of the class.
        expected: the most episodes that it may take, where that is known.
        quiet: show nothing.
    """
    if quiet:
        yield lambda progress: None
        return
    console = Console(stderr=True, highlight=False)
    watch = Watch(title, log_size, expected, console, plain=not console.is_terminal)
    if not console.is_terminal:
        yield watch
        return
    with Live(watch, console=console, refresh_per_second=5, transient=True):
        yield watch


@contextlib.contextmanager
def statements_watched(*, quiet: bool) -> Iterator[runner.Watch]:
    """Yields what shows how far the statements are: bars with the time left on a terminal, a line now and then elsewhere."""
    console = Console(stderr=True, highlight=False)
    if quiet:
        yield lambda step: None
    elif console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Bars(*columns, console=console, transient=True) as bars:
            rows: dict[str, TaskID] = {}

            def show(step: runner.Step) -> None:
                if step.statement not in rows:
                    rows[step.statement] = bars.add_task(step.statement, total=step.total)
                bars.update(rows[step.statement], completed=step.done)

            yield show
    else:
        begin = last = time.monotonic()
        first: dict[str, int] = {}  # pieces found done when the run began
        now: dict[str, runner.Step] = {}

        def tell(step: runner.Step) -> None:
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


def summary(run: StoredRun) -> RenderableType:
    """Returns what is known of a stored run, finished or not."""
    rows = [("world", headline(run))]
    if run.certificate is None:
        rows += _so_far(run)
    else:
        rows += _found(run, run.certificate.content)
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in rows:
        table.add_row(f"  {name}", Text(value))
    return Group(table, spending(run))


def headline(run: StoredRun) -> str:
    """Returns a sentence about a run's problem."""
    name = run.world or "an environment of your own"
    states = f", at most {run.plan.constants.n_states} hidden states a level" if run.plan is not None else ""
    return f"{name}: {run.horizon} levels, {run.n_actions} actions{states}, a class of {power(run.log_size)} functions"


def _found(run: StoredRun, content: dict[str, object]) -> list[tuple[str, str]]:
    result = content["result"]
    assert isinstance(result, dict)
    if result["upper"] is None:
        most = f" of at most {number(run.plan.max_episodes)} planned" if run.plan is not None else ""
        rows = [
            ("episodes", f"{number(result['episodes'])}{most}"),
            ("repeats left out", f"{number(result['skipped'])} episodes or more, on paths learned before"),
            ("best value V*", f"{result['v_star_hat']:.6g} (estimate)"),
            ("policy's value", f"{result['value_hat']:.6g} (estimate)"),
        ]
    else:
        claims = content["claims"]
        assert isinstance(claims, list)
        rows = [
            ("episodes", f"{number(result['episodes'])}, {result['rounds']} candidates tried"),
            ("best value V*", f"at most {result['upper']:.6g}"),
            ("policy's value", f"at least {result['lower']:.6g} (estimate {result['value_hat']:.6g})"),
            ("rests on", f"{len(claims)} claims, each with its share of delta in the certificate"),
        ]
    rows += [
        ("survivors", f"{power(result['log_size'])} of {power(run.log_size)} functions"),
        ("stopped because", str(result["reason"])),
    ]
    rows += [("struggled", remark) for remark in result["remarks"]]
    if run.verification is not None:
        wrong = [f.what for f in run.verification.findings if not f.agrees]
        rows.append(("verified", f"differs: {', '.join(wrong)}" if wrong else "yes, everything agrees"))
    return rows


def _so_far(run: StoredRun) -> list[tuple[str, str]]:
    rows = [("state", f"{run.state}: {run.message}" if run.message else run.state)]
    rows.append(("episodes", f"{number(run.ledger.total)} so far, {len(run.steps):,} tests"))
    if run.steps:
        last = run.steps[-1]
        if last.upper is not None and last.lower is not None:
            rows.append(("bounds so far", f"V* at most {last.upper:.6g}, policy at least {last.lower:.6g}"))
        rows.append(("survivors", f"{power(last.event.log_size_after)} of {power(run.log_size)} functions"))
    return rows


def spending(run: StoredRun) -> Table:
    """Returns where the episodes of a run went."""
    table = Table(box=None, pad_edge=False)
    for column in ("  episodes went to", "requests", "episodes", "share"):
        table.add_column(column, justify="left" if column.startswith("  ") else "right")
    for (phase, purpose), (requests, episodes) in run.ledger.by("phase", "purpose").items():
        share = f"{episodes / run.ledger.total:.1%}"
        table.add_row(f"  {phase}: {purpose}", f"{requests:,}", number(episodes), share)
    return table


def listing(runs: list[tuple[str, StoredRun | str]]) -> Table:
    """Returns runs as a table, one line each; a folder that cannot be read has its fault in words."""
    table = Table(box=None, pad_edge=False)
    for column in ("folder", "world", "schedule", "state", "episodes", "policy >=", "V* <=", "last stored"):
        right = column in ("episodes", "policy >=", "V* <=")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for name, run in runs:
        if isinstance(run, str):
            table.add_row(escape(name), Text(run, style="red"))
            continue
        last = run.steps[-1] if run.steps else None
        bounds = [f"{v:.4f}" if v is not None else "" for v in (last and last.lower, last and last.upper)]
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.last)) if run.last else ""
        styles = {"finished": "green", "running": "cyan", "stopped": "red", "unfinished": "yellow"}
        state = Text(run.state, style=styles.get(run.state, ""))
        cells = (run.world or "(own)", run.settings.schedule)
        table.add_row(escape(name), *map(escape, cells), state, number(run.ledger.total), *bounds, when)
    return table

"""The page: what a stored run claims, did and spent, as one HTML file that needs nothing else."""

import functools
import math
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from richobs.errors import InvalidInput
from richobs.files import write_atomically
from richobs.outcome import Event
from richobs.report import words
from richobs.report.chart import Chart, Tick, episodes_axis, step_chart
from richobs.report.seeds import Median, groups, median
from richobs.report.tree import MARKS, OF_POLICIES, REMARKS, SearchTree, search_tree
from richobs.store import StoredRun
from richobs.version import __version__

HERE = pathlib.Path(__file__).parent


def write_report(runs: Sequence[StoredRun], target: pathlib.Path, figures: bool = True) -> list[pathlib.Path]:
    """Writes one self-contained HTML page about some runs, and figures beside it.

    Args:
        runs: what to tell about, in this order.
        target: the page's file; a name without `.html` is a folder, which then gets a `report.html`.
        figures: also write every run's figures, and the comparison of several, as PNG and SVG.

    Returns:
        What was written, the page first.
    """
    if not runs:
        raise InvalidInput("a report needs at least one run.")
    file = target if target.suffix.lower() in (".html", ".htm") else target / "report.html"
    beside: list[pathlib.Path] = []
    if figures:
        from richobs.report.figures import write_figures  # matplotlib is slow to load, and needed here only

        beside = write_figures(runs, file)
    with write_atomically(file) as stream:
        stream.write(page(runs, [f.name for f in beside]).encode())
    return [file, *beside]


def page(runs: Sequence[StoredRun], figures: Sequence[str] = ()) -> str:
    """Returns the page's HTML.

    Args:
        runs: what to tell about.
        figures: names of files beside the page, to link to.
    """
    import jinja2
    import markupsafe

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def raised(text: str) -> str:
        """Raises what stands behind 10^."""
        return markupsafe.Markup(re.sub(r"10\^(-?[\d.]*\d)", r"10<sup>\1</sup>", str(markupsafe.escape(text))))

    environment.filters.update(raised=raised, count=words.count, value=words.value)
    views = [RunView(run, i + 1) for i, run in enumerate(runs)]
    html = environment.get_template("page.html").render(
        runs=views,
        comparison=Comparison(views) if len(views) > 1 else None,
        figures=figures,
        version=__version__,
        style=(HERE / "page.css").read_text(encoding="utf-8"),
        script=(HERE / "page.js").read_text(encoding="utf-8"),
    )
    return html.lstrip() + "\n"


class Fact(NamedTuple):
    """One number behind the claim."""

    name: str
    value: str
    note: str


class Bar(NamedTuple):
    """One row of a chart of bars on a logarithmic scale."""

    name: str
    note: str
    episodes: int
    width: float  # percent
    share: str
    reference: bool  # something to compare with, not something spent


class LevelRow(NamedTuple):
    """What happened at one level."""

    level: int
    visited: int
    possible: int
    tests: int
    dropped: float  # powers of ten by which the class shrank
    episodes: int
    width: float  # percent, of the episodes on a logarithmic scale
    planned: int | None
    planned_at: float  # percent


class ClaimKind(NamedTuple):
    """All claims of one kind."""

    kind: str
    times: int
    share: float


class RunView:
    """What the page says about one run."""

    def __init__(self, run: StoredRun, number: int):
        self.run = run
        self.number = number
        self.id = f"run-{number}"
        self.events: list[Event] = [step.event for step in run.steps]
        self.content: dict[str, Any] | None = run.certificate.content if run.certificate is not None else None
        self.result: dict[str, Any] = self.content["result"] if self.content else {}
        self.tree: SearchTree = search_tree(self.events, run.ledger, run.horizon, run.n_actions)

    @property
    def name(self) -> str:
        """The world, or what stands for it."""
        return self.run.world or "an environment of one's own"

    @property
    def asked(self) -> str:
        """What the run was asked to do, in a line."""
        s = self.run.settings
        return f"{s.schedule} schedule, epsilon {s.epsilon!r}, delta {s.delta!r}, seed {s.seed}"

    @property
    def finished(self) -> bool:
        """Whether there is a claim."""
        return self.run.state == "finished" and self.run.certificate is not None

    @property
    def claim(self) -> str:
        """The claim in words, or why there is none."""
        if self.finished and self.run.certificate is not None:
            return self.run.certificate.claim
        return {
            "running": "No claim yet: this run has not ended.",
            "unfinished": "No claim: this run was interrupted before it ended.",
            "stopped": "No claim: an error ended this run.",
        }.get(self.run.state, f"No claim: this run is {self.run.state}.")

    @property
    def why(self) -> str:
        """What stands under the claim: why the run ended, or what is known so far."""
        if self.finished:
            s = self.run.settings
            why = f"It stopped because {self.result['reason']}."
            if self.upper is not None and self.lower is not None and self.upper - self.lower > s.epsilon:
                why += f" Asked for was {s.epsilon!r}; the claim is the wider one that holds."
            return " ".join([why, *(f"It struggled: {remark}." for remark in self.result["remarks"])])
        why = f"{words.count(self.run.ledger.total)} episodes were spent in {len(self.events):,} tests until then."
        if self.run.message:
            why = f"{self.run.message} {why}"
        if self.upper is not None and self.lower is not None:
            why += (
                f" The bounds so far, which hold with probability 1 - delta provided assumptions 1-3: V* is at most "
                f"{words.value(self.upper)}, the best candidate's value at least {words.value(self.lower)}."
            )
        return why

    @property
    def upper(self) -> float | None:
        """U: the certified one, or where the run stands."""
        if self.finished:
            return self.result["upper"]
        return self.run.steps[-1].upper if self.run.steps else None

    @property
    def lower(self) -> float | None:
        """W: the certified one, or where the run stands."""
        if self.finished:
            return self.result["lower"]
        return self.run.steps[-1].lower if self.run.steps else None

    @property
    def log_size(self) -> float:
        """Natural logarithm of the number of survivors."""
        if self.finished:
            return self.result["log_size"]
        return self.events[-1].log_size_after if self.events else self.run.log_size

    @property
    def facts(self) -> list[Fact]:
        """The numbers behind the claim."""
        run, s = self.run, self.run.settings
        plan = f"; the paper's plan: {words.count(run.plan.max_episodes)}" if run.plan is not None else ""
        facts = [
            Fact("epsilon", repr(s.epsilon), "how far from optimal the policy may be"),
            Fact("delta", repr(s.delta), "how often it may be farther"),
        ]
        if self.upper is not None and self.lower is not None:
            facts += [
                Fact("U ≥ V*", words.value(self.upper), "no policy earns more"),
                Fact("W ≤ V(policy)", words.value(self.lower), "the policy earns as much"),
            ]
        elif self.finished:
            facts += [
                Fact("V* estimate", words.value(self.result["v_star_hat"]), "from the root's own samples"),
                Fact("V(policy) estimate", words.value(self.result["value_hat"]), "from its last rollouts"),
            ]
        facts += [
            Fact("episodes", words.count(run.ledger.total), f"in {len(self.events):,} tests{plan}"),
            Fact("functions", words.functions(run.log_size), f"{words.functions(self.log_size)} survive"),
        ]
        return facts

    @property
    def verified(self) -> str:
        """`yes`, `no`, `never` or `nothing` (there is no certificate)."""
        if self.run.verification is not None:
            return "yes" if self.run.verification.agrees else "no"
        return "never" if self.finished else "nothing"

    @functools.cached_property
    def charts(self) -> list[Chart]:
        """Survivors, and the bounds where the schedule keeps them."""
        steps = self.run.steps
        if not steps:
            return []
        start, end = self.run.log_size / math.log(10), self.log_size / math.log(10)
        sizes = [(0.0, start)] + [(float(p.episodes), max(_power(p.event.log_size_after), 0.0)) for p in steps]
        told = (
            f"From {words.functions(self.run.log_size)} functions to {words.functions(steps[-1].event.log_size_after)} in "
            f"{words.count(self.run.ledger.total)} episodes."
        )
        if self.finished and abs(end - _power(steps[-1].event.log_size_after)) > 0.05:
            told += f" Counted exactly at the end, {words.functions(self.log_size)} survive."
        charts = [
            step_chart("Surviving functions (log10)", "episodes", [("", "a", sizes)], told, show_x=episodes_axis),
        ]
        upper = [(float(p.episodes), p.upper) for p in steps if p.upper is not None]
        lower = [(float(p.episodes), p.lower) for p in steps if p.lower is not None]
        if upper and lower:
            u, w = upper[-1][1], lower[-1][1]
            told = (
                f"At the end V* ≤ {words.value(u)} and V(policy) ≥ {words.value(w)}, {words.value(u - w)} apart; "
                f"{self.run.settings.epsilon!r} was asked for."
            )
            curves = [("V* at most U", "b", upper), ("V(policy) at least W", "c", [(0.0, 0.0), *lower])]
            charts.append(step_chart("The two bounds", "episodes", curves, told, show_x=episodes_axis))
        return charts

    @property
    def spending(self) -> list[Bar]:
        """Episodes by phase and purpose, and what to compare their sum with."""
        total = self.run.ledger.total
        spent = self.run.ledger.by("phase", "purpose")
        rows = [
            (f"{phase}: {purpose}", words.PURPOSES.get(purpose, ""), n, False)
            for (phase, purpose), (_, n) in spent.items()
        ]
        rows.append(("all episodes", "", total, False))
        plan = self.run.plan
        if plan is not None:
            rows.append(("the paper's plan", "worst case at its own sizes", plan.max_episodes, True))
            rows.append(("Theorem 1", "its order, constants left out", math.ceil(plan.theorem_1), True))
        most = max(n for _, _, n, _ in rows)
        return [
            Bar(name, note, n, _log_share(n, most), "" if reference or not total else f"{n / total:.1%}", reference)
            for name, note, n, reference in rows
        ]

    @property
    def saved(self) -> str:
        """How the episodes compare with the plan, in words."""
        total, plan = self.run.ledger.total, self.run.plan
        if plan is None or not total:
            return ""
        ratio = plan.max_episodes / total
        told = f"The paper's plan allows {words.count(plan.max_episodes)} episodes for this problem"
        if ratio >= 2:
            told += f", {words.count(round(ratio))} times as many as were spent"
        return told + "."

    @property
    def levels(self) -> list[LevelRow]:
        """What happened level by level; tests and episodes of whole policies are left out."""
        H, K = self.run.horizon, self.run.n_actions
        visited = [*self.tree.visited(), *([0] * (H + 1))]
        tests, dropped, episodes = [0] * H, [0.0] * H, [0] * H
        for event in self.events:
            # The certified search tests an action at a node: its path ends with that action.
            level = len(event.path) - (event.phase == "certified")
            if event.kind in OF_POLICIES + REMARKS or not 0 <= level < H:
                continue
            tests[level] += 1
            shrunk = (event.log_size_before - event.log_size_after) / math.log(10)
            dropped[level] += shrunk if math.isfinite(shrunk) else 0.0
        for entry in self.run.ledger:
            if entry.purpose in OF_POLICIES:
                continue
            # A path that the certified search plays shows every node that it passes, the paper's only its last one.
            whole = entry.phase == "certified" and entry.path
            seen = range(len(entry.path)) if whole else range(len(entry.path), len(entry.path) + 1)
            for level in seen:
                if level < H:
                    episodes[level] += entry.episodes
        plan = self.run.plan
        planned = None if plan is None else math.ceil(plan.max_episodes / H)
        most = max([1, planned or 0, *episodes])
        return [
            LevelRow(
                level=h,
                visited=visited[h],
                possible=K**h,
                tests=tests[h],
                dropped=dropped[h],
                episodes=episodes[h],
                width=_log_share(episodes[h], most),
                planned=planned,
                planned_at=_log_share(planned or 0, most),
            )
            for h in range(H)
        ]

    @functools.cached_property
    def claims(self) -> list[list[Any]]:
        """Statements that the claim rests on: what, where, episodes, share of delta, number in it."""
        if self.content is None:
            return []
        if self.content["claims"]:
            return [[kind, words.path(path), n, share, value] for kind, path, n, share, value in self.content["claims"]]
        return list(self._paper_claims())

    def _paper_claims(self) -> Iterator[list[Any]]:
        """The events of the paper's union bounds, as far as this run used them (DFS-Learn, Explore-on-Demand)."""
        if self.run.settings.schedule != "paper" or self.run.plan is None:
            return
        c = self.run.plan.constants
        for event in self.events:
            numbers = c.search if event.phase == "search" else c.demand
            where = words.path(event.path)
            if event.kind == "consensus":
                share, what = numbers.delta_consensus, "every survivor's value is estimated up to phi"
                yield [what, where, event.n, share, c.phi]
            elif event.kind == "elimination":
                what = "Q* survives, and survivors are nearly consistent"
                yield [what, where, event.n, numbers.delta_elimination, event.threshold]
            elif event.kind == "rollout":  # a third of delta/2 / (M H) for each of three events of a round
                share = c.delta / (6 * c.max_rounds)
                yield ["the policy's value is estimated up to epsilon/8", where, event.n, share, c.epsilon / 8]
                if event.verdict == "failed":
                    yield ["a failed policy's paths lead to something to learn", where, c.n_2, share, c.epsilon / 8]

    @property
    def claim_kinds(self) -> list[ClaimKind]:
        """The claims summed by kind."""
        sums: dict[str, tuple[int, float]] = {}
        for kind, _, _, share, _ in self.claims:
            n, spent = sums.get(kind, (0, 0.0))
            sums[kind] = (n + 1, spent + share)
        return [ClaimKind(kind, n, spent) for kind, (n, spent) in sums.items()]

    @property
    def spent_delta(self) -> float:
        """The claims' shares of delta, added up."""
        return math.fsum(row[3] for row in self.claims)

    @property
    def skipped(self) -> int:
        """Episodes that the printed algorithm would have spent besides."""
        return self.run.ledger.skipped

    @property
    def data(self) -> dict[str, Any]:
        """What the page's script needs, as plain values."""
        return {
            "actions": self.run.n_actions,
            "meanings": {kind: list(meaning) for kind, meaning in words.MEANINGS.items()},
            "marks": {mark.name: mark.words for mark in MARKS},
            "tests": [
                [
                    i + 1,
                    event.kind,
                    event.phase,
                    words.path(event.path),
                    event.verdict,
                    _plain(event.statistic),
                    _plain(event.threshold),
                    event.n,
                    step.episodes,
                    _plain(_power(event.log_size_before)),
                    _plain(_power(event.log_size_after)),
                ]
                for i, (step, event) in enumerate(zip(self.run.steps, self.events, strict=True))
            ],
            "nodes": [
                [
                    words.path(node.path),
                    node.mark.name,
                    node.x,
                    node.y,
                    node.through,
                    list(node.tests),
                    list(node.unvisited),
                    node.parent,
                ]
                for node in self.tree.nodes
            ],
            "claims": [[i + 1, k, p, n, _plain(s), _plain(v)] for i, (k, p, n, s, v) in enumerate(self.claims)],
        }


class Cell(NamedTuple):
    """One median of a group, written out."""

    median: str
    interval: str


class GroupRow(NamedTuple):
    """One group of runs in the comparison."""

    name: str
    runs: tuple[RunView, ...]
    finished: int
    verified: int
    coverage: str
    cells: tuple[Cell, ...]
    dots: tuple[tuple[float, RunView], ...]  # percent of the axis of episodes
    middle: tuple[float, float, float]  # median, low, high in percent; empty groups have (0, 0, 0)


class Comparison:
    """Several runs side by side."""

    columns = ("episodes", "tests", "claimed within", "survivors, log10")

    def __init__(self, views: Sequence[RunView]):
        spent = [max(v.run.ledger.total, 1) for v in views]
        # One decade at the least, so that equal runs do not fill the axis.
        low, high = math.floor(math.log10(min(spent))), math.ceil(math.log10(max(spent) + 1))
        span = max(high - low, 1)

        def at(n: float) -> float:
            return 100 * (math.log10(max(n, 1)) - low) / span

        step = max(1, math.ceil(span / 6))
        self.ticks = [
            Tick(100 * (p - low) / span, words.scientific(10**p) if p > 3 else f"{10**p:,}")
            for p in range(low, low + span + 1, step)
        ]
        self.rows: list[GroupRow] = []
        for group in groups([v.run for v in views]):
            members = tuple(views[i] for i in group.runs)
            done = [v for v in members if v.finished]
            cells, middle, coverage = tuple(Cell("", "") for _ in self.columns), (0.0, 0.0, 0.0), ""
            if done:
                episodes = median([v.run.ledger.total for v in done])
                cells = (
                    _cell(episodes, lambda x: words.count(round(x))),
                    _cell(median([len(v.events) for v in done]), lambda x: f"{x:g}"),
                    _cell(median([_claimed(v) for v in done]), words.value),
                    _cell(median([_power(v.log_size) for v in done]), lambda x: f"{x:.1f}"),
                )
                middle = (at(episodes.value), at(episodes.low), at(episodes.high))
                coverage = f"{math.floor(1000 * episodes.coverage) / 10:g}%" if episodes.coverage else "one run"
            self.rows.append(
                GroupRow(
                    name=group.name,
                    runs=members,
                    finished=len(done),
                    verified=sum(v.verified == "yes" for v in members),
                    coverage=coverage,
                    cells=cells,
                    dots=tuple((at(v.run.ledger.total), v) for v in members),
                    middle=middle,
                )
            )


def _cell(found: Median, show: Any) -> Cell:
    return Cell(show(found.value), f"{show(found.low)} to {show(found.high)}")


def _claimed(view: RunView) -> float:
    """How far from optimal the policy is claimed to be at the most: U - W, or epsilon where no bounds are kept."""
    if view.upper is not None and view.lower is not None:
        return view.upper - view.lower
    return view.run.settings.epsilon


def _power(log_size: float) -> float:
    """Returns log10 of a number of functions."""
    return log_size / math.log(10)


def _log_share(n: int, most: int) -> float:
    """Returns the length of a bar in percent, on a scale where 1 is a little and `most` is everything."""
    return round(100 * (math.log10(n) + 0.3) / (math.log10(max(most, 1)) + 0.3), 2) if n > 0 else 0.0


def _plain(x: float) -> float | None:
    """Returns six digits of a number as JSON can hold it."""
    return float(f"{x:.6g}") if math.isfinite(x) else None

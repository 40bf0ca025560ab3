"""The page: what a stored run claims, did and spent, as one HTML file that needs nothing else."""

import contextlib
import dataclasses
import functools
import math
import pathlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from richobs.core import words
from richobs.core.errors import InvalidInput
from richobs.core.events import Event, Said
from richobs.core.files import write_atomically
from richobs.core.types import Path
from richobs.core.version import __version__
from richobs.learners import learner
from richobs.runs.store import StoredRun
from richobs.show.chart import Chart, Series, Tick, episodes_axis, line_chart, log_chart, series, step_chart
from richobs.show.groups import groups, median, repeats
from richobs.show.palette import mark_rules, theme_rules
from richobs.show.tree import Candidates, SearchTree, search_tree

if TYPE_CHECKING:
    import jinja2
    import markupsafe

HERE = pathlib.Path(__file__).parent
WRITTEN_OUT = 6  # actions of a path that is no longer written out than its place
INFINITE = 1e308  # stands for an infinity in the page's data, which JSON cannot hold


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
        from richobs.show.figures import write_figures  # matplotlib is slow to load, and needed here only

        beside = write_figures(runs, file)
    return [write_html(page(runs, [f.name for f in beside]), file), *beside]


def write_html(html: str, file: pathlib.Path) -> pathlib.Path:
    """Writes a page, and returns its file."""
    with write_atomically(file) as stream:
        stream.write(html.encode(errors="backslashreplace"))  # the name of a folder may be any bytes
    return file


def page(runs: Sequence[StoredRun], figures: Sequence[str] = ()) -> str:
    """Returns the page's HTML.

    Args:
        runs: what to tell about.
        figures: names of files beside the page, to link to.
    """
    views = [RunView(run, i + 1) for i, run in enumerate(runs)]
    return rendered(
        HERE / "page.html",
        runs=views,
        comparison=Comparison(views) if len(views) > 1 else None,
        figures=figures,
        style=theme_rules() + mark_rules() + (HERE / "page.css").read_text(encoding="utf-8"),
        script=(HERE / "page.js").read_text(encoding="utf-8"),
    )


def rendered(template: pathlib.Path, **values: Any) -> str:
    """Returns a page: a template with values filled in, in which everything is escaped and nothing may be missing."""
    html = _templates(template.parent).get_template(template.name).render(version=__version__, **values)
    return html.lstrip() + "\n"


@functools.cache  # compiling a template takes longer than filling it in
def _templates(folder: pathlib.Path) -> "jinja2.Environment":
    """Returns what loads the templates of a folder, and those beside this file, with filters for numbers and bounds."""
    import jinja2  # slow to load, and needed only where a page is written

    loaded = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, pathlib.Path(__file__).parent]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_compiled(),
    )
    loaded.filters.update(
        raised=raised, count=words.count, value=words.value, at_least=words.at_least, at_most=words.at_most
    )
    loaded.policies["json.dumps_kwargs"] = {"sort_keys": True, "separators": (",", ":")}
    return loaded


def _compiled() -> "jinja2.BytecodeCache | None":
    """Returns where compiled templates are kept between runs: a folder of this user's own; None where there can be none."""
    import jinja2

    class Kept(jinja2.FileSystemBytecodeCache):
        def dump_bytecode(self, bucket: Any) -> None:
            with contextlib.suppress(OSError):  # a full disk: the next run compiles again
                super().dump_bytecode(bucket)

    try:
        return Kept()
    except (OSError, RuntimeError):
        return None


def raised(text: str) -> "markupsafe.Markup":
    """Returns a text as HTML, with what stands behind `10^` raised."""
    import markupsafe

    return markupsafe.Markup(re.sub(r"10\^(-?[\d.]*\d)", r"10<sup>\1</sup>", str(markupsafe.escape(text))))


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


class LevelRow(NamedTuple):
    """What happened at one level."""

    level: int
    visited: int
    possible: str
    tests: int
    dropped: float  # powers of ten by which the class shrank
    episodes: int
    width: float  # percent, of the episodes on a logarithmic scale


class ClaimKind(NamedTuple):
    """All claims of one kind."""

    kind: str
    times: int
    share: float


class RunView:
    """What the page says about one run."""

    def __init__(self, run: StoredRun, number: int):
        self.run, self.number, self.id = run, number, f"run-{number}"
        self.name = run.world or _gymnasium_name(run) or words.OWN
        self.learner = learner(run.settings.learner)
        self.events: list[Event] = [step.event for step in run.steps]
        self.said: list[Said] = [event.said() for event in self.events]
        self.content: dict[str, Any] | None = run.certificate.content if run.certificate is not None else None
        self.result: dict[str, Any] = self.content["result"] if self.content else {}
        self.tree: SearchTree = search_tree(self.events, run.ledger, run.horizon, run.n_actions)
        self.candidates = Candidates.of(run.steps)
        self._series: list[Series] = series(run.steps)
        self.finished = run.state == "finished" and run.certificate is not None
        self.guaranteed = self.finished and bool(self.result["guaranteed"])
        last = run.steps[-1] if run.steps else None
        bounds = (
            self.result if self.finished else {} if last is None else vars(last)
        )  # certified, or where the run stands
        self.upper: float | None = bounds.get("upper")
        self.lower: float | None = bounds.get("lower")
        stated = [] if self.content is None else self.content["claims"]
        self.claims = [[kind, tuple(path), n, share, value] for kind, path, n, share, value in stated]

    @property
    def asked(self) -> str:
        """What the run was asked to do, in a line."""
        s = self.run.settings
        return ", ".join(
            [f"learner {s.learner}", *s.tuning, f"epsilon {s.epsilon!r}, delta {s.delta!r}, seed {s.seed}"]
        )

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
            if self.result["epsilon"] > s.epsilon:
                why += f" Asked for was {s.epsilon!r}; the claim is the wider one that holds."
            return " ".join([why, *(f"It struggled: {remark.rstrip('.')}." for remark in self.result["remarks"])])
        why = f"{words.count(self.run.ledger.total)} episodes were spent in {len(self.events):,} tests until then."
        if self.run.message:
            why = f"{self.run.message} {why}"
        if self.upper is not None and self.lower is not None:
            assumptions = "; ".join(self.learner.promises.assumptions)
            given = f", provided these assumptions: {assumptions}" if assumptions else ""
            why += (
                f" The bounds so far: V* is at most {words.at_most(self.upper)}, and the best candidate's value at least "
                f"{words.at_least(self.lower)}. They hold with probability 1 - delta{given}."
            )
        return why

    @functools.cached_property
    def totals(self) -> tuple[float, float]:
        """The range that an episode's total may have: as the certificate has it, or as bounds so far suggest."""
        if self.content is not None:
            low, high = self.content["environment"]["reward_range"]
            return float(low), float(high)
        bounds = [b for step in self.run.steps for b in (step.lower, step.upper) if b is not None]
        return min([0.0, *bounds]), max([1.0, *bounds])

    def along(self, value: float) -> float:
        """Returns the place of a value in the range of totals, in percent."""
        low, high = self.totals
        return 100 * min(max((value - low) / (high - low), 0.0), 1.0)

    @property
    def log_size(self) -> float:
        """Natural logarithm of the number of survivors; NaN where the learner keeps none."""
        if self.finished:
            size = self.result["log_size"]
            return math.nan if size is None else size
        if not self.events:
            return self.run.log_size
        sizes = (event.log_size_after for event in reversed(self.events))
        return next((size for size in sizes if not math.isnan(size)), math.nan)

    @property
    def facts(self) -> list[Fact]:
        """The numbers behind the claim."""
        run, s = self.run, self.run.settings
        facts = [
            Fact("epsilon", repr(s.epsilon), "largest allowed gap between the policy's value and V*"),
            Fact("delta", repr(s.delta), "probability that the claim is false"),
        ]
        if self.upper is not None and self.lower is not None:
            low, high = self.totals
            most, least = words.at_most(self.upper, self.totals), words.at_least(self.lower, self.totals)
            facts += [Fact("U ≥ V*", most, "no policy earns more" if self.upper < high else "the end of the range")]
            facts += [
                Fact("W ≤ V(policy)", least, "the policy earns as much" if self.lower > low else "the end of the range")
            ]
        elif self.finished:
            for name, key in (("V* estimate", "v_star_hat"), ("V(policy) estimate", "value_hat")):
                if self.result[key] is not None:
                    facts.append(Fact(name, words.value(self.result[key]), "from the run's own episodes"))
        real = self.result["real_episodes"] if self.finished else None  # of a deterministic environment
        played = "" if real is None else f"asked for, {words.count(real)} really played; "
        tests = words.several(len(self.events), "test")
        facts.append(Fact("episodes", words.count(run.ledger.total), f"{played}in {tests}"))
        if self.candidates.known:
            facts.append(
                Fact("candidates", f"{len(self.candidates.known):,}", self.candidates.fates.partition(": ")[2])
            )
        if self.content is not None and self.content.get("units") is not None:
            facts.append(Fact("units", "rescaled", self.content["units"]["words"]))
        if not math.isnan(self.log_size):
            facts.append(Fact("functions", words.functions(run.log_size), f"{words.functions(self.log_size)} survive"))
        return facts

    @property
    def verified(self) -> str:
        """What verification.json says: `yes`, `no`, `never` (there is none) or `nothing` (there is no certificate)."""
        if self.run.verification is not None:
            return "yes" if self.run.verification.agrees else "no"
        return "never" if self.finished else "nothing"

    @functools.cached_property
    def charts(self) -> list[Chart]:
        """Survivors, what events draw of them, and bounds against episodes, each where the learner keeps them."""
        steps = self.run.steps
        sizes = [(float(p.episodes), p.event.log_size_after) for p in steps if not math.isnan(p.event.log_size_after)]
        charts = [self._survivors_chart(sizes)] if sizes else []
        charts += [*self.drawn(by_candidate=False), *_pictures(self.content)]
        upper = [(float(p.episodes), p.upper) for p in steps if p.upper is not None]
        lower = [(float(p.episodes), p.lower) for p in steps if p.lower is not None]
        if upper and lower:
            u, w = upper[-1][1], lower[-1][1]
            summary = (
                f"At the end V* ≤ {words.at_most(u)} and V(policy) ≥ {words.at_least(w)}, {words.at_most(u - w)} apart; "
                f"{self.run.settings.epsilon!r} was asked for."
            )
            curves = [("V* at most U", "b", upper), ("V(policy) at least W", "c", [(0.0, self.totals[0]), *lower])]
            bottom = min(0.0, self.totals[0])
            charts.append(
                step_chart("The two bounds", "episodes", curves, summary, show_x=episodes_axis, bottom=bottom)
            )
        return charts

    def drawn(self, by_candidate: bool) -> list[Chart]:
        """Returns the charts that events draw, of candidates or of everything else."""
        drawn = [one for one in self._series if one.curves and one.kind.by_candidate == by_candidate]
        return [log_chart(one, float(self.run.ledger.total)) for one in drawn]

    def _survivors_chart(self, sizes: Sequence[tuple[float, float]]) -> Chart:
        """Draws (episodes, natural logarithm of the number of survivors)."""
        first, last = self.run.log_size, sizes[-1][1]
        summary = (
            f"From {words.functions(first)} functions to {words.functions(last)} in "
            f"{words.count(self.run.ledger.total)} episodes."
        )
        if self.finished and abs(words.power_of_ten(self.log_size - last)) > 0.05:
            summary += f" Counted exactly at the end, {words.functions(self.log_size)} survive."
        powers = [(x, max(words.power_of_ten(size), 0.0)) for x, size in ((0.0, first), *sizes)]
        title = "Surviving functions (log10)"
        return step_chart(title, "episodes", [("", "a", powers)], summary, show_x=episodes_axis)

    @property
    def tolerance_chart(self) -> Chart | None:
        """The tolerance curve, where it was asked for: steps, because between two rows the wider one holds."""
        if self.run.curve is None:
            return None
        rows, together = self.run.curve.rows, self.run.curve.together
        last = len(rows) - 1
        points = [(max(i - 1.0, 0.0), row.epsilon) for i, row in enumerate(rows)] + [(float(last), rows[-1].epsilon)]
        drawn = step_chart(
            "Claimed epsilon", "tolerance", [("", "a", points)], f"In short, {self.run.curve}.", show_x=str
        )
        hold = (
            "All rows hold at once with probability at least 1 - delta."
            if together
            else "Each row is a statement of its own, with probability at least 1 - delta."
        )
        return dataclasses.replace(
            drawn,
            x_ticks=tuple(Tick(100 * i / (last or 1), f"{rows[i].tolerance:.3g}") for i in range(0, last + 1, 2)),
            about=f"If the truth is within the tolerance of the class, the policy loses at most epsilon. {hold} "
            "Which tolerance is true, the curve does not say.",
            head=("tolerance", "epsilon", "V* at most", "functions left"),
            rows=tuple(
                (
                    *(words.at_least(row.tolerance), words.at_most(row.epsilon), words.at_most(row.upper)),
                    "" if math.isnan(row.log_size) else words.functions(row.log_size),
                )
                for row in rows
            ),
        )

    @property
    def without_bounds(self) -> str:
        """What stands in the place of the bounds, where there are none."""
        if any(step.upper is not None and step.lower is not None for step in self.run.steps):
            return ""
        if self.learner.traits.keeps_bounds:
            return "This run has no bounds yet."
        promise = self.learner.promises.words.rstrip(".")
        return f"The learner {self.learner.name} computes no bounds while it runs. What it promises: {promise}."

    @property
    def spending(self) -> list[Bar]:
        """Episodes by phase and purpose, and their sum."""
        total = self.run.ledger.total
        questions = {event.kind: event.question for event in self.events}
        rows = [
            (f"{phase}: {purpose}", questions.get(purpose, self.learner.traits.purposes.get(purpose, "")), n)
            for (phase, purpose), (_, n) in self.run.ledger.by("phase", "purpose").items()
        ]
        rows.append(("all episodes", "", total))
        most = max(n for _, _, n in rows)
        shares = [f"{n / total:.1%}" if total else "" for _, _, n in rows]
        return [Bar(*row, _log_share(row[2], most), share) for row, share in zip(rows, shares, strict=True)]

    @functools.cached_property
    def levels(self) -> list[LevelRow]:
        """What happened level by level; none where no level was tested on paths of its own. Whole policies are left out."""
        H, K = self.run.horizon, self.run.n_actions
        if self.candidates.known or (self.events and all(said.level is None for said in self.said)):
            return []
        visited = [*self.tree.visited(), *([0] * (H + 1))]
        tests, dropped = [0] * H, [0.0] * H
        for event, said in zip(self.events, self.said, strict=True):
            if said.level is None or not 0 <= said.level < H:
                continue
            tests[said.level] += 1
            shrunk = words.power_of_ten(event.log_size_before - event.log_size_after)
            dropped[said.level] += shrunk if math.isfinite(shrunk) else 0.0
        episodes = self._episodes_by_level()
        most = max([1, *episodes])
        return [
            LevelRow(
                level=h,
                visited=visited[h],
                possible=words.count(K**h) if h * math.log10(K) < 300 else words.functions(h * math.log(K)),
                tests=tests[h],
                dropped=dropped[h],
                episodes=episodes[h],
                width=_log_share(episodes[h], most),
            )
            for h in range(H)
        ]

    def _episodes_by_level(self) -> list[int]:
        """Returns how many episodes were seen at each level.

        Episodes of whole policies are charged to the root under the name of an event that is about no level; they are
        left out.
        """
        episodes = [0] * self.run.horizon
        of_policies = {event.kind for event, said in zip(self.events, self.said, strict=True) if said.level is None}
        for entry in self.run.ledger:
            if not entry.path and entry.purpose in of_policies:
                continue
            end = len(entry.path)
            seen = range(end) if self.learner.traits.levels_share_episodes and entry.path else (end,)
            for level in seen:
                if level < len(episodes):
                    episodes[level] += entry.episodes
        return episodes

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
    def data(self) -> dict[str, Any]:
        """What the page's script shows, as plain values; `_plain` says how numbers are written."""
        texts: dict[tuple[str, str, str], int] = {}  # what tests ask and compare, each once
        marks: dict[tuple[str, str], int] = {}  # how nodes look and what that means, each once
        places = {node.path: i for i, node in enumerate(self.tree.nodes)}
        listed = self.content is None or "paths" not in self.content
        tests = []
        for i, (step, event, said) in enumerate(zip(self.run.steps, self.events, self.said, strict=True)):
            names = (event.question, event.statistic_name, event.threshold_name)
            tests.append(
                [
                    i + 1,
                    event.kind,
                    event.phase,
                    _where(event, said, places),
                    said.verdict,
                    _plain(said.statistic),
                    _plain(said.threshold),
                    event.n,
                    step.episodes,
                    _plain(words.power_of_ten(event.log_size_before)),
                    _plain(words.power_of_ten(event.log_size_after)),
                    said.episodes or words.count(event.n),
                    texts.setdefault(names, len(texts)),
                ]
            )
        return {
            "texts": list(texts),
            "tests": tests,
            "nodes": [
                [
                    node.path[-1] if node.path else -1,
                    marks.setdefault((node.look.name, node.mark.words), len(marks)),
                    round(node.y, 2),
                    node.through,
                    list(node.tests),
                    list(node.unvisited),
                    node.parent,
                ]
                for node in self.tree.nodes
            ],
            "marks": list(marks),
            "candidates": [
                [c.number, c.fate, c.episodes, c.batches, _plain(c.earned), _plain(c.promised), c.why]
                for c in self.candidates.known.values()
            ],
            "claims": [
                [i + 1, k, _place(p, places) if listed else words.NONE, n, _plain(s), _plain(v)]
                for i, (k, p, n, s, v) in enumerate(self.claims)
            ],
        }


class Cell(NamedTuple):
    """One median of a group, written out; empty where no run has such a number."""

    median: str = ""
    interval: str = ""


class GroupRow(NamedTuple):
    """One group of runs in the comparison."""

    name: str
    runs: tuple[RunView, ...]
    finished: int
    verified: int  # of which a verification.json says that everything agreed
    coverage: str
    cells: tuple[Cell, ...]
    dots: tuple[tuple[float, RunView], ...]  # percent of the axis of episodes
    middle: tuple[float, float, float]  # median, low, high in percent; empty groups have (0, 0, 0)
    reasons: tuple[str, ...]  # why its finished runs ended, the most frequent first


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
        self.same_as = repeats([v.run for v in views])
        self.rows: list[GroupRow] = []
        for group in groups([v.run for v in views]):
            members = tuple(views[i] for i in group.runs)
            done = [v for v in members if v.finished]
            middle, coverage = (0.0, 0.0, 0.0), ""
            if done:
                episodes = median([v.run.ledger.total for v in done])
                middle = (at(episodes.value), at(episodes.low), at(episodes.high))
                coverage = f"{math.floor(1000 * episodes.coverage) / 10:g}%" if episodes.coverage else "one run"
            self.rows.append(
                GroupRow(
                    name=group.name,
                    runs=members,
                    finished=len(done),
                    verified=sum(v.verified == "yes" for v in members),
                    coverage=coverage,
                    cells=(
                        _cell([v.run.ledger.total for v in done], lambda x: words.count(round(x))),
                        _cell([len(v.events) for v in done], lambda x: f"{x:g}"),
                        _cell([float(v.result["epsilon"]) for v in done if v.guaranteed], words.at_most),
                        _cell(
                            [words.power_of_ten(v.log_size) for v in done if not math.isnan(v.log_size)],
                            lambda x: f"{x:.1f}",
                        ),
                    ),
                    dots=tuple((at(v.run.ledger.total), v) for v in members),
                    middle=middle,
                    reasons=_reasons(done),
                )
            )


def _gymnasium_name(run: StoredRun) -> str:
    """Returns the id of a Gymnasium environment, without its wrappers, from the certificate; "" where there is none."""
    identity = "" if run.certificate is None else str(run.certificate.content["environment"]["identity"])
    found = re.match(r"gym:(?:<\w+)*<([\w./:-]+)>+", identity)
    return f"{found[1]} of Gymnasium" if found else ""


def _pictures(content: Mapping[str, Any] | None) -> list[Chart]:
    """Returns the charts that a learner put into its certificate; none where they are damaged."""
    listed = [] if content is None else content["constants"].get("pictures", [])
    try:
        return [line_chart(p["title"], p["x"], p["curves"], p["summary"]) for p in listed]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return []


def _cell(sample: Sequence[float], show: Callable[[float], str]) -> Cell:
    if not sample:
        return Cell()
    found = median(sample)
    return Cell(show(found.value), f"{show(found.low)} to {show(found.high)}")


def _reasons(views: Sequence[RunView]) -> tuple[str, ...]:
    """Returns why runs ended, each with how many did, the most frequent first."""
    counts = Counter(str(view.result["reason"]) for view in views)
    return tuple(f"{n:,}: {reason}" for reason, n in counts.most_common())


def _place(path: Path, places: Mapping[Path, int]) -> str | int:
    """Returns a path as its actions, or a long one as the place of its node in the tree, so that it is written once."""
    return places.get(path, words.path(path)) if len(path) > WRITTEN_OUT else words.path(path)


def _where(event: Event, said: Said, places: Mapping[Path, int]) -> str | int:
    """Returns where an event happened: at a path, or at a level of whole policies."""
    if event.path or said.mark is not None:
        return _place(event.path, places)
    return words.NONE if said.level is None else f"level {said.level}"


def _log_share(n: int, most: int) -> float:
    """Returns the length of a bar in percent, on a scale where 1 is a little and `most` is everything."""
    return round(100 * (math.log10(n) + 0.3) / (math.log10(max(most, 1)) + 0.3), 2) if n > 0 else 0.0


def _plain(x: float) -> float | None:
    """Returns six digits of a number as JSON can hold it: None for NaN, plus or minus `INFINITE` for an infinity."""
    if math.isnan(x):
        return None
    return float(f"{x:.6g}") if math.isfinite(x) else math.copysign(INFINITE, x)

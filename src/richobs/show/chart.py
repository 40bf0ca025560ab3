"""Drawings: line charts as data for the page, and judgements as pictures of their own.

A chart is a stretched drawing between labels of fixed size, readable at any width. A picture of a judgement has an interval
against episodes, or the race of several policies as lanes.
"""

import html
import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from richobs.core import words
from richobs.core.events import ChartKind, Progress
from richobs.show.tree import Candidates, Tenure

Points = Sequence[tuple[float, float]]
Drawn = list[tuple[float, float]]  # points that are still added to: episodes, natural logarithm
LOG_10 = math.log(10)
SCALE = 1000  # the drawing is a square of this size, stretched to what the page has room for
MOST_POINTS = 500
MOST_IN_ALL = 8000  # points of all curves of one chart together
MOST_DOTS = 1500
NARROWEST = 0.8  # percent: narrower bands would only be stripes
ROOM = 1.3  # percent that a digit of a band's number takes; the number has no room in a narrower band
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, LANE = 720, 260, 110, 12, 34, 18
STYLE = "max-width:720px;font:14px/1.5 system-ui,sans-serif;color:#1b1b1b;background:#fff;padding:8px;border-radius:6px"
INK, AREA, LINE, GOOD, GREY = "#444", "#9ec5e8", "#1a4f80", "#2a8a4a", "#b4b4b4"
MOST_LANES = 200


@dataclass
class Series:
    """All numbers of one chart."""

    kind: ChartKind
    curves: list[list[Drawn]] = field(default_factory=list)  # per curve, parts between which it is interrupted
    limit: Drawn = field(default_factory=list)
    ended: Drawn = field(default_factory=list)  # where curves ended, at the limit
    tenures: list[Tenure] = field(default_factory=list)  # of candidates, where curves are cut between them

    @property
    def title(self) -> str:
        """What is drawn, and by what its curves are numbered where there are several."""
        return f"{self.kind.title} by {self.kind.curves}" if len(self.curves) > 1 else self.kind.title

    @property
    def largest(self) -> list[Drawn]:
        """The largest value of all curves, with the same parts."""
        return [
            [max(same, key=lambda p: p[1]) for same in zip(*parts, strict=True)]
            for parts in zip(*self.curves, strict=True)
        ]

    def name(self, curve: int) -> str:
        """Returns the name of a curve; empty where there is only one."""
        return f"{self.kind.curves} {curve}" if len(self.curves) > 1 else ""


def series(steps: Iterable[Progress]) -> list[Series]:
    """Returns what the events of a run draw, charts in the order in which they first occur.

    Numbers that are not finite are left out.
    """
    found: dict[str, Series] = {}
    candidates = Candidates()
    last: dict[str, int] = {}  # per chart, the tenure of its last numbers
    for step in steps:
        candidates.absorb(step)
        for reading in step.event.said().readings:
            kind, at = reading.chart, float(step.episodes)
            one = found.setdefault(kind.name, Series(kind, [[] for _ in reading.logs]))
            if math.isfinite(reading.limit):
                one.limit.append((at, reading.limit))
                if not reading.logs:
                    one.ended.append((at, reading.limit))
            if not reading.logs or not all(map(math.isfinite, reading.logs)):
                continue
            one.curves = one.curves or [[] for _ in reading.logs]
            tenure = len(candidates.tenures) if kind.by_candidate else 0
            for curve, log in zip(one.curves, reading.logs, strict=True):
                if last.get(kind.name) != tenure:
                    curve.append([])
                curve[-1].append((at, log))
            last[kind.name] = tenure
    for one in found.values():
        one.tenures = candidates.tenures if one.kind.by_candidate else []
    return list(found.values())


class Tick(NamedTuple):
    """A label on an axis."""

    at: float  # percent of the axis
    label: str


class Line(NamedTuple):
    """One curve."""

    name: str
    style: str  # class in the style sheet
    path: str  # SVG
    start: float  # percent of the height at which it starts, where its name is written
    mix: float | None = None  # percent, from the first of several numbered curves to the last; None for any other curve


class Band(NamedTuple):
    """A part of the chart that belongs together, such as the episodes of one candidate."""

    left: float  # percent
    width: float
    label: str  # empty where there is no room for it


class Cross(NamedTuple):
    """A place where curves ended."""

    x: float  # percent
    y: float


@dataclass(frozen=True)
class Chart:
    """A chart, ready to be drawn."""

    title: str
    x_label: str
    lines: tuple[Line, ...]
    area: str  # SVG path between the curves, or under the only one
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    summary: str  # what it shows, in words
    bands: tuple[Band, ...] = ()
    crosses: tuple[Cross, ...] = ()
    key: tuple[str, str] = ("", "")  # names of the first and the last of several numbered curves
    about: str = ""  # how to read it
    head: tuple[str, ...] = ()  # of a table with the numbers, where there is one
    rows: tuple[tuple[str, ...], ...] = ()


def ticks(low: float, high: float, wanted: int = 4) -> list[float]:
    """Returns round numbers from `low` to `high`, about as many as wanted."""
    span = high - low
    if not span > 0:
        return [low]
    raw = span / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def thinned(points: Points, low: float, high: float) -> Points:
    """Keeps of a step curve only what can be seen: the last value at each of a few hundred places, and every end."""
    if len(points) <= MOST_POINTS:
        return points
    width = (high - low) / MOST_POINTS or 1.0
    kept: dict[int, tuple[float, float]] = {}
    for x, y in points:
        kept[int((x - low) / width)] = (x, y)
    return [points[0], *kept.values()]


def step_chart(
    title: str,
    x_label: str,
    curves: Sequence[tuple[str, str, Points]],
    summary: str,
    *,
    show_x: Callable[[float], str],
    top: float | None = None,
    bottom: float = 0.0,
) -> Chart:
    """Returns a chart of step curves that start at x = 0.

    Args:
        title: what is drawn, with its unit.
        x_label: of the axis.
        curves: name, style and points (x, y) of each; a value holds until the next point.
        summary: the chart in words.
        show_x: writes a number on the x axis.
        top: of the y axis, where it should not follow the data.
        bottom: of the y axis.
    """
    right = max((points[-1][0] for _, _, points in curves if points), default=0.0) or 1.0
    highest = max((y for _, _, points in curves for _, y in points), default=0.0)
    top = top if top is not None else bottom + ((highest - bottom) * 1.06 or 1.0)

    def at(x: float, y: float) -> str:
        return f"{SCALE * x / right:.1f} {SCALE * (1 - share(y)):.1f}"

    def share(y: float) -> float:
        return (y - bottom) / (top - bottom)

    drawn, corners = [], []
    for name, style, points in curves:
        seen = thinned(points, 0.0, right)
        if not seen:
            continue
        steps = [at(0.0, seen[0][1])]
        for (_, before), (x, y) in itertools.pairwise(seen):
            steps += [at(x, before), at(x, y)]
        steps.append(at(right, seen[-1][1]))
        corners.append(steps)
        drawn.append(Line(name, style, "M" + "L".join(steps), 100 * share(seen[0][1])))
    area = ""
    if corners:
        floor = [at(0.0, bottom), at(right, bottom)]
        area = "M" + "L".join([*corners[0], *reversed(corners[1] if len(corners) > 1 else floor)]) + "Z"
    return Chart(
        title,
        x_label,
        tuple(drawn),
        area,
        tuple(Tick(100 * x / right, show_x(x)) for x in ticks(0.0, right)),
        tuple(Tick(100 * share(y), f"{y:.6g}") for y in ticks(bottom, top)),
        summary,
    )


def line_chart(title: str, x_label: str, curves: Sequence[tuple[str, str, Points]], summary: str) -> Chart:
    """Returns a chart of straight lines between points, over the range of these.

    Args:
        title: what is drawn.
        x_label: of the axis.
        curves: name, style and points (x, y) of each.
        summary: the chart in words.
    """
    xs, ys = ([point[k] for _, _, points in curves for point in points] for k in (0, 1))
    left, right, bottom, top = min(xs), max(xs), min(ys), max(ys)
    wide, high = right - left or 1.0, 1.06 * (top - bottom) or 1.0

    def at(x: float, y: float) -> str:
        return f"{SCALE * (x - left) / wide:.1f} {SCALE * (1 - (y - bottom) / high):.1f}"

    lines = [
        Line(name, style, "M" + "L".join(at(x, y) for x, y in points), 100 * (points[0][1] - bottom) / high)
        for name, style, points in curves
    ]
    x_ticks = tuple(Tick(100 * (x - left) / wide, f"{x:.6g}") for x in ticks(left, right))
    y_ticks = tuple(Tick(100 * (y - bottom) / high, f"{y:.6g}") for y in ticks(bottom, top))
    return Chart(title, x_label, tuple(lines), "", x_ticks, y_ticks, summary)


def episodes_axis(x: float) -> str:
    """Writes a number of episodes on an axis."""
    return f"{x:,.0f}" if x < 10**6 else words.scientific(x)


def log_ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Returns log10 of round numbers between two given ones: powers of ten, and numbers between them where these are few."""
    step = next(m * 10**k for k in itertools.count() for m in (1, 2, 5) if (high - low) / (m * 10**k) <= wanted)
    powers = [float(p) for p in range(math.ceil(low / step) * step, math.floor(high) + 1, step)]
    if high - low > 2:
        return powers
    steps = range(math.floor(low), math.floor(high) + 1)
    return [at for p in steps for m in (1, 2, 5) if low <= (at := p + math.log10(m)) <= high]


def log_chart(one: Series, episodes: float) -> Chart:
    """Returns a chart of what events drew, on a logarithmic scale.

    Numbered curves hold their value until the next number. Curves that begin anew with every candidate are joined by
    straight lines, with a dot at every number, a band for every candidate, and a cross where a candidate was refuted.

    Args:
        one: the numbers.
        episodes: of the whole run, where the x axis ends.
    """
    right = max(episodes, 1.0)
    everything = [y for curve in one.curves for part in curve for _, y in part] + [y for _, y in one.limit]
    everything += [0.0] if one.limit else []  # a wealth of 1, from which bets are made
    low, high = (f(everything, default=0.0) / LOG_10 for f in (min, max))
    room = 0.06 * max(high - low, 1.0)
    low, high = low - room, high + room

    def at(x: float, y: float) -> str:
        return f"{SCALE * x / right:.1f} {SCALE * (1 - up(y) / 100):.1f}"

    def up(y: float) -> float:
        return 100 * (y / LOG_10 - low) / (high - low)

    joined, most = one.kind.by_candidate, max(60, MOST_IN_ALL // max(len(one.curves), 1))
    several = len(one.curves) > 1
    looks = [("level", 100 * i / (len(one.curves) - 1)) if several else ("a", None) for i in range(len(one.curves))]
    curves = list(zip(one.curves, looks, strict=True))
    if joined and several:
        curves.append((one.largest, ("largest", None)))
    drawn = [Line("", style, _parts(curve, at, joined, most), 0.0, mix) for curve, (style, mix) in curves]
    if joined:
        few = sum(len(part) for curve in one.curves for part in curve) <= MOST_DOTS
        for curve, (style, mix) in curves if few else curves[-1:]:
            dots = [point for part in curve for point in part]
            every = math.ceil(len(dots) / MOST_DOTS) or 1
            drawn.append(Line("", f"dots {style}", "".join(f"M{at(x, y)}h0" for x, y in dots[::every]), 0.0, mix))
    if one.limit:
        ends = [*one.limit, (right, one.limit[-1][1])]
        name = f"{one.kind.limit} {_number(one.limit[-1][1])}"
        late = min((part[0][0] for part in one.curves[0]), default=0.0) > right / 3  # the left side is empty
        height = up(ends[0 if late else -1][1])
        style = f"limit{'' if late else ' at-right'}{' below' if height > 85 else ''}"
        drawn.append(Line(name, style, _steps([(0.0, ends[0][1]), *ends], at), height))
    bands = [Band(100 * t.begin / right, 100 * (t.end - t.begin) / right, str(t.number)) for t in one.tenures]
    return Chart(
        title=one.title,
        x_label="episodes",
        lines=tuple(drawn),
        area="",
        x_ticks=tuple(Tick(100 * x / right, episodes_axis(x)) for x in ticks(0.0, right)),
        y_ticks=tuple(Tick(up(p * LOG_10), _power(p)) for p in log_ticks(low, high)),
        summary=_summary(one),
        bands=tuple(
            b if b.width >= ROOM * (1 + len(b.label)) else b._replace(label="") for b in bands if b.width >= NARROWEST
        ),
        crosses=tuple(Cross(100 * x / right, up(y)) for x, y in one.ended),
        key=(one.name(0), one.name(len(one.curves) - 1)),
        about=one.kind.about,
        head=(one.kind.curves, "at first", "largest", "at the end") if len(one.curves) > 1 else (),
        rows=tuple(_numbers(i, curve) for i, curve in enumerate(one.curves)) if len(one.curves) > 1 else (),
    )


def _parts(curve: Sequence[Points], at: Callable[[float, float], str], joined: bool, most: int) -> str:
    """Returns a curve as an SVG path, its parts apart; parts of one point are drawn as dots elsewhere."""
    total = sum(map(len, curve))
    kept = [part if total <= most else part[:: math.ceil(total / most)] or part[:1] for part in curve]
    kept = [part if part[-1] == whole[-1] else [*part, whole[-1]] for part, whole in zip(kept, curve, strict=True)]
    if joined:
        return "".join("M" + "L".join(at(x, y) for x, y in part) for part in kept if len(part) > 1)
    return "".join(_steps(part, at) for part in kept)


def _steps(points: Points, at: Callable[[float, float], str]) -> str:
    """Returns a curve that holds its value until the next point, as an SVG path; points that change nothing are left out."""
    corners = [at(*points[0])]
    for (_, before), (x, y) in itertools.pairwise(points):
        if y != before:
            corners += [at(x, before), at(x, y)]
    return "M" + "L".join([*corners, at(*points[-1])])


def _power(p: float) -> str:
    """Writes a number that is given by its logarithm to base 10 on an axis."""
    return f"{10**p:,.6g}" if -3 <= p < 6 else words.scientific(10**p) if abs(p) < 300 else f"10^{p:.0f}"


def _number(log: float) -> str:
    """Writes a number that is given by its natural logarithm."""
    if abs(log) >= 600:
        return f"10^{log / LOG_10:.0f}"
    x = math.exp(log)
    return f"{float(f'{x:.4g}'):,.0f}" if 1000 <= x < 1e6 else words.value(x)


def _numbers(i: int, curve: Sequence[Points]) -> tuple[str, ...]:
    """Returns a row of the table: first, largest and last value of a curve."""
    values = [y for part in curve for _, y in part]
    return (str(i), *map(_number, (values[0], max(values), values[-1])))


def _summary(one: Series) -> str:
    """Returns what the chart shows, in words."""
    values = [y for part in one.largest for _, y in part]
    if not values:
        return ""
    first, last = ([curve[i][i][1] for curve in one.curves] for i in (0, -1))
    spans = [
        _number(min(v)) if _number(min(v)) == _number(max(v)) else f"{_number(min(v))} to {_number(max(v))}"
        for v in (first, last)
    ]
    said = f"At first {spans[0]}, at the end {spans[1]}" if len(values) > 1 else f"At the end {spans[1]}"
    each = f" over {len(one.curves)} {one.kind.curves}s" if len(one.curves) > 1 else ""
    limit = f"; {one.kind.limit} {_number(one.limit[-1][1])}" if one.limit else ""
    return f"{said}{each}{limit}."


class Picture(NamedTuple):
    """A drawing, and what it shows in words."""

    svg: str
    words: str


class Lane(NamedTuple):
    """One policy of a race."""

    name: str
    rounds: int
    mean: float
    state: str  # "chosen", "left" or "dropped"


def _svg(height: float, body: list[str], said: str) -> Picture:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{html.escape(said)}" font-family="system-ui,sans-serif" font-size="12" fill="{INK}">'
    )
    return Picture(head + "".join(body) + "</svg>", said)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _episodes(last: int, y: float, right: float = WIDTH - 20.0, label: str = "episodes") -> list[str]:
    """Returns the horizontal axis."""
    marks = ticks(0, last, 5)
    body = [_text(LEFT + (right - LEFT) * t / last, y, episodes_axis(t), "middle") for t in marks]
    return [*body, _text((LEFT + right) / 2, y + 16, label, "middle")]


def interval_picture(
    looks: Sequence[tuple[int, float, float]], span: tuple[float, float], marks: Sequence[float], subject: str
) -> Picture:
    """Draws how an interval shrinks with the number of episodes.

    Args:
        looks: episodes, lower and upper bound at each look.
        span: of the vertical axis.
        marks: horizontal lines, such as a threshold.
        subject: what the interval is for.
    """
    if not looks:
        return _svg(40, [_text(LEFT, 24, "no episodes yet", "start")], "no episodes yet")
    (low, high), last, bottom = span, looks[-1][0], HEIGHT - BOTTOM

    def at(n: float, v: float) -> tuple[float, float]:
        return LEFT + (WIDTH - 20 - LEFT) * n / last, TOP + (bottom - TOP) * (high - v) / (high - low)

    points = [at(n, upper) for n, _, upper in looks] + [at(n, lower) for n, lower, _ in reversed(looks)]
    corners = [at(0, low), at(0, high)]
    area = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*corners, *points])
    body = [f'<polygon points="{area}" fill="{AREA}" stroke="{LINE}"/>']
    for mark in marks:
        (x, y), (to, _) = at(0, mark), at(last, mark)
        body.append(f'<path d="M{x:.1f} {y:.1f}H{to:.1f}" stroke="{INK}" stroke-dasharray="5 4"/>')
    body += [_text(LEFT - 8, at(0, v)[1] + 4, f"{v:g}", "end") for v in ticks(low, high)]
    said = f"After {last:,} episodes the {subject} lies between {looks[-1][1]:.4g} and {looks[-1][2]:.4g}."
    return _svg(HEIGHT, [*body, *_episodes(last, bottom + 16)], said)


def bounds_picture(span: tuple[float, float], lower: float, upper: float, estimate: float | None) -> Picture:
    """Draws what is known of values in the range of totals: the policy earns at least `lower`, no policy more than `upper`.

    Args:
        span: of totals.
        lower: W.
        upper: U.
        estimate: of the policy's value, a dot; None: there is none.
    """
    (low, high), left, right, y = span, 40.0, WIDTH - 40.0, 34.0

    def at(v: float) -> float:
        return left + (right - left) * (min(max(v, low), high) - low) / (high - low)

    most, least = words.at_most(upper, span), words.at_least(lower, span)
    body = [
        f'<path d="M{left} {y}H{right}" stroke="{GREY}" stroke-width="2"/>',
        f'<rect x="{at(lower):.1f}" y="{y - 7}" width="{max(at(upper) - at(lower), 2):.1f}" height="14" fill="{AREA}" '
        f'stroke="{LINE}"/>',
        *(_text(x, y + 5, f"{end:g}", side) for x, end, side in ((left - 6, low, "end"), (right + 6, high, "start"))),
        _text(at(lower), y - 14, f"policy ≥ {least}", "middle" if 90 < at(lower) < right - 60 else "start"),
        _text(at(upper), y + 24, f"best ≤ {most}", "middle" if at(upper) < right - 60 else "end"),
    ]
    if estimate is not None:
        body.append(f'<circle cx="{at(estimate):.1f}" cy="{y}" r="4" fill="{INK}"><title>estimate</title></circle>')
    return _svg(66, body, f"The policy earns at least {least} and no policy more than {most}, in [{low:g}, {high:g}].")


def lanes_picture(lanes: Sequence[Lane]) -> Picture:
    """Draws a race: one lane per policy, as long as it took part; at most 200, those that came farthest."""
    shown = sorted(lanes, key=lambda lane: (lane.state == "chosen", lane.rounds, lane.mean), reverse=True)[:MOST_LANES]
    last, right = max((lane.rounds for lane in shown), default=0) or 1, WIDTH - 160.0
    colours = {"chosen": GOOD, "left": LINE, "dropped": GREY}
    body = []
    for row, lane in enumerate(shown):
        y, length = TOP + LANE * row, (right - LEFT) * lane.rounds / last
        body.append(
            f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{LANE - 5}" fill="{colours[lane.state]}">'
            f"<title>{html.escape(lane.name)}: {lane.state} after {lane.rounds:,} rounds</title></rect>"
        )
        body.append(_text(LEFT - 6, y + 11, lane.name[:16], "end"))
        body.append(_text(LEFT + length + 6, y + 11, f"{lane.mean:.4g}, {lane.state}", "start"))
    height = TOP + LANE * len(shown)
    chosen = next((lane.name for lane in lanes if lane.state == "chosen"), "nobody yet")
    said = f"{len(lanes)} policies after {last:,} rounds; chosen: {chosen}."
    return _svg(height + BOTTOM + 6, [*body, *_episodes(last, height + 14.0, right, "rounds")], said)


def page(claim: str, picture: Picture, rows: Sequence[tuple[str, str]], *, whole: bool) -> str:
    """Returns a judgement as HTML.

    Args:
        claim: what is guaranteed.
        picture: what happened.
        rows: numbers by name.
        whole: whether it is a page of its own, not a part of another one.
    """
    table = "".join(
        f'<tr><th style="text-align:left;padding-right:12px">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(text)}</td></tr>'
        for name, text in rows
    )
    lines = re.sub(r" (?=\(\d\) )", "<br>", html.escape(claim))  # numbered parts
    part = f'<div style="{STYLE}"><p><b>{lines}</b></p>{picture.svg}<table>{table}</table></div>'
    if not whole:
        return part
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>richobs judgement</title></head><body>{part}</body></html>\n"
    )

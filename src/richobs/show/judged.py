"""Drawings of judgements: an interval against episodes, and the race of several policies as lanes."""

import html
import re
from collections.abc import Sequence
from typing import NamedTuple

from richobs.core import words
from richobs.show.chart import episodes_axis, ticks

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, LANE = 720, 260, 110, 12, 34, 18
STYLE = "max-width:720px;font:14px/1.5 system-ui,sans-serif;color:#1b1b1b;background:#fff;padding:8px;border-radius:6px"
INK, AREA, LINE, GOOD, GREY = "#444", "#9ec5e8", "#1a4f80", "#2a8a4a", "#b4b4b4"
MOST_LANES = 200


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

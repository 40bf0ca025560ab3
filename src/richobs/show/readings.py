"""The numbers that events add to charts of a run, put together: one series for each chart, cut where candidates change."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from richobs.core.events import ChartKind, Progress
from richobs.show.candidates import Candidates, Tenure

Points = list[tuple[float, float]]  # episodes, natural logarithm


@dataclass
class Series:
    """All numbers of one chart."""

    kind: ChartKind
    curves: list[list[Points]] = field(default_factory=list)  # per curve, parts between which it is interrupted
    limit: Points = field(default_factory=list)
    ended: Points = field(default_factory=list)  # where curves ended, at the limit
    tenures: list[Tenure] = field(default_factory=list)  # of candidates, where curves are cut between them

    @property
    def title(self) -> str:
        """What is drawn, and by what its curves are numbered where there are several."""
        return f"{self.kind.title} by {self.kind.curves}" if len(self.curves) > 1 else self.kind.title

    @property
    def largest(self) -> list[Points]:
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
        for reading in step.event.readings:
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

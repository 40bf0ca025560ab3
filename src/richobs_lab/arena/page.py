"""The arena in numbers and words: a table, plain values, and a page with its figures."""

import math
import pathlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from richobs.core import words
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats
from richobs.show.page import rendered, write_html
from richobs.show.palette import theme_rules
from richobs_lab.arena.aggregates import (
    Estimate,
    bootstrap,
    growth_exponent,
    interquartile_estimate,
    interquartile_mean,
    profile,
    profile_band,
)
from richobs_lab.arena.contest import FALSE, LAST, LATE, LOOK, NOTHING, SILENT, SOLVED, STOPPED, Arena, ArenaRun

if TYPE_CHECKING:
    from rich.table import Table

HERE = pathlib.Path(__file__).parent
PAGE, EPISODES, CPU, PROFILES = "arena.html", "arena-episodes", "arena-cpu", "arena-profiles"
MEBIBYTE = 2**20
RESAMPLES = 300  # of the statistics that are computed one resample at a time
FAILURES = {  # fates of runs that did not solve, and how a cell names them
    FALSE: "claimed falsely",
    NOTHING: "claimed nothing",
    SILENT: "silent",
    STOPPED: "stopped with an error",
    LATE: "out of time",
}

World = tuple[str, int]  # family and horizon


@dataclass(frozen=True)
class Meeting:
    """The runs of one contestant on one world, which differ by seed only."""

    contestant: str
    world: World
    runs: tuple[ArenaRun, ...]

    def estimate(self, what: str, sample: Sequence[float]) -> Estimate:
        """Returns the interquartile mean of a sample of these runs with its interval, the same each time."""
        rng = keyed_generator(0, "arena", self.contestant, *self.world, what)
        return interquartile_estimate(np.array(sample, dtype=np.float64), rng)

    @cached_property
    def costs(self) -> Floats:
        """`[n]` episodes until solved for good; infinite where a run is not."""
        return np.array([math.inf if r.solved is None else r.solved for r in self.runs], dtype=np.float64)

    @cached_property
    def solved(self) -> Estimate:
        """Episodes until solved for good."""
        return self.estimate("solved", self.costs.tolist())

    @cached_property
    def said(self) -> Estimate:
        """Episodes until it claimed what was asked."""
        return self.estimate("said", [math.inf if r.said is None else r.said for r in self.runs])

    @cached_property
    def cpu_seconds(self) -> Estimate:
        """CPU seconds of the whole run."""
        return self.estimate("cpu", [r.cpu_seconds for r in self.runs])

    @property
    def memory(self) -> float:
        """Interquartile mean of the mebibytes at the peak."""
        return interquartile_mean(np.array([r.memory for r in self.runs], dtype=np.float64)) / MEBIBYTE

    @property
    def n_solved(self) -> int:
        """Runs that were solved for good."""
        return sum(r.solved is not None for r in self.runs)

    @property
    def n_said(self) -> int:
        """Runs that claimed what was asked."""
        return sum(r.said is not None for r in self.runs)

    @property
    def n_false(self) -> int:
        """Runs whose claim is false."""
        return sum(bool(r.is_false) for r in self.runs)

    @property
    def over_time(self) -> bool:
        """Whether policies before the end were looked at, so that the first good moment is known."""
        return any(r.over_time for r in self.runs)

    @property
    def failures(self) -> str:
        """What came of the runs that did not solve, in words: `2 silent, 1 claimed nothing`; empty where all did."""
        found = Counter(r.fate for r in self.runs)
        told = [f"{found[fate]} {words}" for fate, words in FAILURES.items() if found[fate]]
        if found[LATE] and self.seconds:
            told[-1] += f" ({self.seconds})"
        return ", ".join(told)

    @property
    def seconds(self) -> str:
        """The CPU seconds that a run was allowed, in words; empty where none of these runs was stopped for them."""
        cut = {r.seconds for r in self.runs if r.message and r.seconds is not None and r.fate in (LATE, SOLVED)}
        return f"{' to '.join(f'{limit:g}' for limit in sorted({min(cut), max(cut)}))} CPU s" if cut else ""

    @property
    def ending(self) -> str:
        """How the runs ended, in words: the failures, and how many solved ones were stopped by the limit of time."""
        cut = sum(bool(r.message) and r.fate == SOLVED for r in self.runs)
        stopped = f"{cut} solved, stopped after {self.seconds}" if cut else ""
        return ", ".join(text for text in (self.failures, stopped) if text)

    @property
    def share(self) -> str:
        """How many runs were solved, in words."""
        return f"{self.n_solved} of {len(self.runs)}"

    def as_plain(self) -> dict[str, Any]:
        """Returns it in plain values; None stands for infinity."""

        def plain(estimate: Estimate) -> list[float | None]:
            return [x if math.isfinite(x) else None for x in estimate]

        return {
            "world": self.world[0],
            "horizon": self.world[1],
            "learner": self.contestant,
            "runs": len(self.runs),
            "solved": self.n_solved,
            "solved_at": plain(self.solved),
            "measured": "policies over time" if self.over_time else "the whole run",
            "said": self.n_said,
            "said_at": plain(self.said),
            "false": self.n_false,
            "cpu_seconds": plain(self.cpu_seconds),
            "memory_mib": self.memory,
            "failures": self.failures,
            "ending": self.ending,
        }


def episodes_words(estimate: Estimate) -> str:
    """Returns a number of episodes in words; a dash where more than a quarter of the runs never got there."""
    return words.NONE if not math.isfinite(estimate.value) else words.count(round(estimate.value))


def interval_words(estimate: Estimate) -> str:
    """Returns the interval of a number of episodes in words."""
    low, high = (words.count(round(x)) if math.isfinite(x) else "∞" for x in (estimate.low, estimate.high))
    return f"{low} to {high}"


class ArenaView:
    """An arena as it is shown: who is in which row, which world in which column."""

    def __init__(self, arena: Arena):
        self.arena = arena
        found: dict[tuple[str, World], list[ArenaRun]] = {}
        for run in arena.runs:
            found.setdefault((run.contestant, (run.family, run.horizon)), []).append(run)
        self.meetings = {key: Meeting(*key, tuple(runs)) for key, runs in found.items()}
        families = dict.fromkeys(world[0] for _, world in self.meetings)
        self.worlds: list[World] = [
            (family, h) for family in families for h in sorted({w[1] for _, w in self.meetings if w[0] == family})
        ]
        met = {name for name, _ in self.meetings}
        self.contestants = [name for name in arena.given if name in met]
        self.reasons = {(name, (family, h)): why for family, h, name, why in arena.absent}

    def of_world(self, world: World) -> list[Meeting]:
        """Returns who played on a world, the one that solved it with the fewest episodes first."""
        here = [m for (_, w), m in self.meetings.items() if w == world]
        return sorted(here, key=lambda m: (m.solved.value, -m.n_solved, m.cpu_seconds.value))

    @cached_property
    def families(self) -> dict[str, list[int]]:
        """Families with more than one horizon, and the horizons."""
        found: dict[str, list[int]] = {}
        for family, h in self.worlds:
            found.setdefault(family, []).append(h)
        return {family: hs for family, hs in found.items() if len(hs) > 1}

    @cached_property
    def exponents(self) -> dict[tuple[str, str], Estimate]:
        """By (contestant, family): p of episodes growing as H^p, where two horizons were solved."""
        found = {}
        for family, horizons in self.families.items():
            for name in self.contestants:
                here = [self.meetings[(name, (family, h))] for h in horizons if (name, (family, h)) in self.meetings]
                here = [m for m in here if math.isfinite(m.solved.value)]
                if len(here) < 2:
                    continue
                sizes = [float(m.world[1]) for m in here]
                rng = keyed_generator(0, "arena", "growth", name, family)
                found[name, family] = bootstrap(
                    [m.costs for m in here],
                    partial(growth_exponent, sizes),
                    rng,
                    resamples=RESAMPLES,
                )
        return found

    def profile(self, name: str, thresholds: Floats) -> tuple[Floats, Floats, Floats]:
        """Returns `[T]` the share of runs that a contestant solved within each number of episodes, and its band.

        Every world has the same weight. Worlds that it cannot play count as not solved: otherwise the curves would be about
        different worlds.

        Args:
            name: of the contestant.
            thresholds: `[T]` numbers of episodes.
        """
        met = [self.meetings[name, world].costs for world in self.worlds if (name, world) in self.meetings]
        share, rng = len(met) / len(self.worlds), keyed_generator(0, "arena", "profile", name)
        low, high = profile_band(met, thresholds, rng, resamples=RESAMPLES)
        return share * profile(met, thresholds), share * low, share * high


def arena_plain(arena: Arena) -> dict[str, Any]:
    """Returns what came of an arena in plain values."""
    view = ArenaView(arena)
    return {
        "epsilon": arena.epsilon,
        "delta": arena.delta,
        "budget": arena.budget,
        "given": {name: list(arena.given[name]) for name in view.contestants},
        "results": [m.as_plain() for world in view.worlds for m in view.of_world(world)],
        "growth": [
            {"learner": name, "world": family, "exponent": list(estimate)}
            for (name, family), estimate in view.exponents.items()
        ],
        "absent": [
            {"world": family, "horizon": h, "learner": name, "why": why} for family, h, name, why in arena.absent
        ],
    }


def arena_table(arena: Arena) -> "Table":
    """Returns what came of an arena as a table for a terminal, world by world."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for i, column in enumerate(
        ("world", "learner", "solved", "episodes until solved", "interval", "until said", "false", "CPU s", "MiB")
    ):
        table.add_column(column, justify="right" if i > 1 else "left", overflow="fold")
    table.add_column("how it ended", overflow="fold")
    view = ArenaView(arena)
    for world in view.worlds:
        for i, m in enumerate(view.of_world(world)):
            name = f"{world[0]}, H = {world[1]}" if i == 0 else ""
            mark = "" if m.over_time or math.isinf(m.solved.value) else "*"
            table.add_row(
                Text(name),
                Text(m.contestant),
                m.share,
                f"{episodes_words(m.solved)}{mark}",
                interval_words(m.solved),
                episodes_words(m.said),
                Text(
                    f"{m.n_false} of {m.n_said}" if m.n_said or m.n_false else words.NONE,
                    style="red" if m.n_false else "",
                ),
                words.value(m.cpu_seconds.value),
                f"{m.memory:.0f}",
                Text(m.ending),
            )
    return table


def write_arena(arena: Arena, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes the page about an arena into a folder, with its figures beside it; returns the files, the page first."""
    from richobs_lab.arena.figures import write_arena_figures  # matplotlib is slow to load, and needed here only

    view = ArenaView(arena)
    drawn = write_arena_figures(view, folder)
    pictures = {
        file.stem: text[text.find("<svg") :]
        for file in drawn
        if file.suffix == ".svg"
        for text in [file.read_text(encoding="utf-8")]
    }
    html = rendered(
        HERE / PAGE,
        view=view,
        arena=arena,
        pictures=pictures,
        files=[file.name for file in drawn],
        episodes_words=episodes_words,
        interval_words=interval_words,
        cpu_hours=math.fsum(r.cpu_seconds for r in arena.runs) / 3600,
        names={"episodes": EPISODES, "cpu": CPU, "profiles": PROFILES},
        looks=(LOOK, LAST),
        several=words.several,
        infinity=math.inf,
        theme=theme_rules(),
    )
    return [write_html(html, folder / PAGE), *drawn]

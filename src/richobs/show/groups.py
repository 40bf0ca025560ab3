"""Runs that differ by their seed only are one group, whose median has an interval that presupposes no distribution."""

import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from richobs.core import words
from richobs.core.settings import Settings
from richobs.runs.store import StoredRun

CONFIDENCE = 0.95  # with which the interval of a median covers it


class Median(NamedTuple):
    """A sample's median and an interval for the median of the law it was drawn from."""

    value: float
    low: float
    high: float
    coverage: float  # exact probability with which such an interval covers; below CONFIDENCE for fewer than 6


def median(sample: Sequence[float]) -> Median:
    """Returns the median with the narrowest symmetric pair of order statistics that covers with probability 0.95.

    The k-th smallest and k-th largest of n enclose the law's median with probability at least 1 - 2 P(Bin(n, 1/2) < k),
    whatever the law. With fewer than six values not even smallest and largest reach 0.95; they are
    returned with what they do reach.
    """
    ordered, n = sorted(sample), len(sample)
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    k, tail = 1, 1.0  # tail: number of subsets with fewer than k of the n below the median
    while k < (n + 1) // 2 and 1 - 2 * (tail + math.comb(n, k)) / 2**n >= CONFIDENCE:
        tail += math.comb(n, k)
        k += 1
    return Median(middle, ordered[k - 1], ordered[n - k], max(0.0, 1 - 2 * tail / 2**n))


@dataclass(frozen=True)
class Group:
    """Runs of one problem with the same settings."""

    name: str
    runs: tuple[int, ...]  # places in the list of runs


def groups(runs: Sequence[StoredRun]) -> list[Group]:
    """Puts together what differs by seed only: the run's, or that of the world's secret.

    The same run twice (a built-in world, the same settings) counts once: it is no second sample.
    """
    found: dict[str, list[int]] = {}
    again = repeats(runs)
    for i, run in enumerate(runs):
        if i not in again:
            found.setdefault(_name_without_seed(run), []).append(i)
    return [Group(name, tuple(places)) for name, places in found.items()]


def repeats(runs: Sequence[StoredRun]) -> dict[int, int]:
    """Returns, for each run that is the same as an earlier one, the place of that one."""
    first: dict[tuple[str, Settings, str], int] = {}
    found = {}
    for i, run in enumerate(runs):
        if run.world is None:  # nothing tells whether two environments of one's own are the same
            continue
        place = first.setdefault((run.world, dataclasses.replace(run.settings, workers=1), run.state), i)
        if place != i:
            found[i] = place
    return found


def _name_without_seed(run: StoredRun) -> str:
    """Returns what a run has in common with those that differ from it by seed only, in words."""
    settings, plain = run.settings.as_plain(), Settings().as_plain()
    named = ("seed", "workers", "learner", "epsilon", "delta", "tuning")  # named elsewhere, or without effect
    unusual = [f"{name} {value}" for name, value in settings.items() if name not in named and value != plain[name]]
    world = words.OWN if run.world is None else re.sub(r",seed=[^,]*", "", run.world)
    size = f"H={run.horizon}, K={run.n_actions}, log N={run.log_size:.6g}" if run.world is None else ""
    asked = f"{settings['learner']}, epsilon {settings['epsilon']!r}, delta {settings['delta']!r}"
    return "; ".join(filter(None, [world, size, asked, *settings["tuning"], *unusual]))

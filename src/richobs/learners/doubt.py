"""A claim is tested before it is made: do the episodes of the claimed policy itself speak against it?

Withdrawing a claim, or widening it, costs nothing of delta: only a claim that is made can be false. So the data that a claim
was chosen by may be used again to doubt it. What counts as doubt is a threshold, and no test.
"""

import math
from typing import NamedTuple

from richobs.core.events import Event, Said, event
from richobs.core.types import Floats

LEAST = 16  # episodes of a policy before anything is claimed of it
RETURNS_APART = 2.0  # standard errors that a mean return may be off by chance
ERRORS_APART = 3.0  # standard errors of a level's mean error: there are many levels
RARE = 3.0  # in n samples something is unseen with a chance of 0.05 if its probability is 3/n: it has no standard error
WON = 2.0  # wealth of bets against the claimed function, over all money put in; with Q* it is ever reached with 0.35 at most
FALSE_ALARM = 0.1  # of delta, with which an alarm may be false; a run that ends with one claims nothing


class Doubt(NamedTuple):
    """What speaks against a claim."""

    words: str
    above: float = -math.inf  # what the policy seems to earn at the most, where that exceeds U
    missing: float = 0.0  # by how much less than promised the policy seems to earn
    is_lack: bool = False  # nothing speaks against the claim but that too little was played

    @classmethod
    def lack(cls, n: int, most: float) -> "Doubt":
        """Returns that a policy was played too little: nothing is claimed of it but what is always true."""
        return cls(f"the policy was played in {n:,} episodes, and {LEAST} are needed", most, math.inf, is_lack=True)


def standard_error(values: Floats, counts: Floats) -> tuple[float, float]:
    """Returns the mean of values that came so often each, and its standard error."""
    n = float(counts.sum())
    mean = float(values @ counts) / max(n, 1.0)
    return mean, math.sqrt(max(float((values - mean) ** 2 @ counts), 0.0)) / max(n, 1.0)


def of_returns(
    values: Floats, counts: Floats, *, upper: float, promised: float, allowed: float, range_of: float
) -> Doubt | None:
    """Returns what the returns of a policy say against what is claimed of it; None for nothing.

    Args:
        values: `[k]` distinct returns.
        counts: `[k]` how often each came.
        upper: U, which no policy exceeds.
        promised: what the policy is predicted to earn.
        allowed: how much less it may earn.
        range_of: width of the range of returns.
    """
    mean, error = standard_error(values, counts)
    n = int(counts.sum())
    spread = max(RETURNS_APART * error, RARE * range_of / n)
    if mean - spread > upper:
        words = f"the policy earned {mean:.4g} on average in {n:,} episodes, and V* should be at most {upper:.4g}"
        return Doubt(words, above=mean + spread)
    if promised - (mean + spread) > allowed:
        words = f"the policy earned {mean:.4g} on average in {n:,} episodes, and {promised:.4g} was predicted"
        return Doubt(words, missing=promised - mean)
    return None


@event("search", "doubt", "do the policy's own episodes speak against the claim?", "episodes of the policy", "needed")
class ClaimDoubted(Event):
    """A claim is not made yet: the policy was played too little, or what it earned speaks against the claim."""

    episodes: int  # of the policy
    why: str

    def said(self) -> Said:
        """Returns why."""
        return Said("doubted", f"a claim waits: {self.why}", self.episodes, LEAST)

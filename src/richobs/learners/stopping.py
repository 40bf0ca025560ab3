"""When a search stops: a claim is doubted and waits, epsilon is out of reach and given up, or another algorithm takes over.

Withdrawing a claim, or widening it, costs nothing of delta: only a claim that is made can be false. So the data that a claim
was chosen by may be used again to doubt it. What counts as doubt is a threshold, and no test.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from richobs.core.errors import InvalidInput
from richobs.core.events import Callback, Event, Said, event
from richobs.core.outcome import Outcome
from richobs.core.problem import Problem
from richobs.core.queries import Engine
from richobs.core.settings import Settings
from richobs.core.types import Floats
from richobs.learners import learner

LEAST = 16  # episodes of a policy before anything is claimed of it
RETURNS_APART = 2.0  # standard errors that a mean return may be off by chance
ERRORS_APART = 3.0  # standard errors of a level's mean error: there are many levels
RARE = 3.0  # in n samples something is unseen with a chance of 0.05 if its probability is 3/n: it has no standard error
WON = (
    2.0  # wealth of bets against all that is left, over all money put in; with Q* it is ever reached with 0.35 at most
)
FALSE_ALARM = 0.1  # of delta, with which an alarm may be false; a run that ends with one claims nothing
WORTHWHILE, FEWER = 0.9, 0.5  # a gap, and a number of survivors, is smaller if it is at most this share of that before
PATIENCE = 2  # times the episodes that last made something smaller, after which epsilon is given up
SURELY = 32  # over epsilon^2: printed algorithms that surely end play more, OLIVE for its first estimate alone
FEWEST = 64  # episodes before which nothing is given up


class Doubt(NamedTuple):
    """What speaks against a claim."""

    words: str
    above: float = -math.inf  # what the policy seems to earn at the most, where that exceeds U
    missing: float = 0.0  # by how much less than promised the policy seems to earn
    is_rare: bool = False  # something rare that was not seen yet would explain it
    is_lack: bool = False  # nothing speaks against the claim but that too little was played
    is_of_judge: bool = False  # it is about the function that was played alone, and another one's policy is claimed

    @classmethod
    def lack(cls, n: int, most: float) -> "Doubt":
        """Returns that a policy was played too little: nothing is claimed of it but what is always true."""
        return cls(f"the policy was tested in {n:,} episodes, and {LEAST} are needed", most, math.inf, is_lack=True)


def standard_error(values: Floats, counts: Floats) -> tuple[float, float]:
    """Returns the mean of values that came so often each, and its standard error."""
    n = float(counts.sum())
    mean = float(values @ counts) / max(n, 1.0)
    return mean, math.sqrt(max(float((values - mean) ** 2 @ counts), 0.0)) / max(n, 1.0)


def is_surprising(scores: list[Floats]) -> bool:
    """Returns whether squares in standard errors are too large together, by RETURNS_APART standard errors.

    The cube root of the mean of d of them has mean 1 - 2/(9d) and variance 2/(9d) by chance, nearly (Wilson and Hilferty).
    """
    d = sum(map(len, scores))
    if d == 0:
        return False
    mean, variance = sum(float(some.sum()) for some in scores) / d, 2 / (9 * d)
    return mean ** (1 / 3) > 1 - variance + RETURNS_APART * math.sqrt(variance)


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
    if mean - min(spread, ERRORS_APART * error) > upper:
        words = f"the policy earned {mean:.4g} on average in {n:,} episodes, and V* should be at most {upper:.4g}"
        rare = mean - spread <= upper  # a rare loss that was not seen yet would explain it
        return Doubt(words, above=mean + (RETURNS_APART * error if rare else spread), is_rare=rare)
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


@dataclass
class Patience:
    """Whether more episodes still bring something. A tolerance may keep the claimed gap from epsilon for ever."""

    times: int = PATIENCE
    gap: float = math.inf  # the smallest so far
    log_size: float = math.inf  # of survivors, when the gap or they last became smaller
    improved: int = 0  # episodes by then

    def ends(self, gap: float, spent: int, log_size: float = math.inf) -> bool:
        """Returns whether neither gap nor survivors have long become smaller, after so many episodes in all."""
        if gap <= WORTHWHILE * self.gap or log_size < math.log(FEWER) + self.log_size:
            self.gap, self.log_size, self.improved = min(gap, self.gap), log_size, spent
        return spent >= max(FEWEST, self.times * self.improved)


def check_tolerance(problem: Problem, settings: Settings, about: str) -> None:
    """Raises InvalidInput if a tolerance of values does not fit the levels, or is as large as the range of totals."""
    (low, high), given, H = problem.env.reward_range, settings.tolerance, problem.horizon
    if len(given) not in (0, 1, H):
        raise InvalidInput(
            f"tolerance must be one number, or one for each of {H} levels; got {len(given)}. It is {about}."
        )
    if given and max(given) >= high - low:
        raise InvalidInput(
            f"tolerance is {about}, in the units of the rewards, whose totals lie in [{low:g}, {high:g}] here: it must be "
            f"below {high - low:g}, or it says nothing; got {max(given):g}."
        )


def total_variation(settings: Settings) -> float:
    """Returns the tolerance of a learner whose candidates are laws; 0 where there is none.

    Raises:
        InvalidInput: it is no total variation.
    """
    given = settings.tolerance
    if len(given) > 1 or any(alpha >= 1 for alpha in given):
        raise InvalidInput(
            f"with assume='model' or a family the tolerance is a total variation between laws, one number below 1; got "
            f"{', '.join(f'{alpha:g}' for alpha in given)}."
        )
    return given[0] if given else 0.0


@event("search", "tolerance", "does the tolerance leave something of epsilon?", "least epsilon to hope for", "epsilon")
class ToleranceIsLarge(Event):
    """Before anything is played: the tolerance may keep every run from epsilon."""

    least: float  # what may be lost and cannot be refuted
    epsilon: float

    def said(self) -> Said:
        """Returns what can be hoped for."""
        sentence = (
            f"with this tolerance about {self.least:.3g} may be lost and never be noticed: an epsilon above that can "
            f"be hoped for, and {self.epsilon:g} may stay out of reach"
        )
        return Said("too large", sentence, self.least, self.epsilon, is_trouble=True)


@dataclass(frozen=True)
class Fallback:
    """An algorithm that is known to end; it takes over from a search that has not ended."""

    name: str  # in words, "LSVEE as printed"
    planned: Callable[[], int | None]  # episodes of the search after which it takes over; None: it never does
    learn: Callable[[], Outcome]  # with the share of delta that the search keeps for it
    least: float = 0.0  # it never takes over before so many episodes: nothing is planned until then

    @classmethod
    def to(
        cls,
        words: str,
        problem: Problem,
        engine: Engine,
        asked: Callable[[], Settings | None],
        notify: Callback,
        epsilon: float,
    ) -> "Fallback":
        """Returns the fallback to a printed learner, once a search has spent what that surely needs.

        Args:
            words: its name.
            problem: what is learned.
            engine: who plays.
            asked: returns what it is asked for, `epsilon` and its name among that; None where it cannot serve.
            notify: called after every event.
            epsilon: largest allowed gap between the policy's value and V*.
        """

        def planned() -> int | None:
            given = asked()
            return None if given is None else learner(given.learner).plan(problem, given).max_episodes

        def learn() -> Outcome:
            given = asked()
            assert given is not None, "it is due only where it was planned"
            return learner(given.learner).run(problem, engine, given, notify)

        return cls(words, planned, learn, SURELY / epsilon**2)

    @cached_property
    def after(self) -> float:
        """Episodes of the search after which it takes over."""
        planned = self.planned()
        return math.inf if planned is None else planned

    def is_due(self, spent: int) -> bool:
        """Whether it takes over from a search that has spent so many episodes."""
        return spent >= self.least and spent >= self.after

    def takes_over(self, phase: str, log_size: float, spent: int) -> "HandedOver":
        """Returns the event of taking over from a search that has spent so many episodes."""
        return HandedOver(
            phase=phase,
            log_size_before=log_size,
            log_size_after=log_size,
            to=self.name,
            spent=spent,
            allowed=int(self.after),
        )


@event("search", "handover", "an algorithm that surely ends takes over", "episodes until then", "allowed")
class HandedOver(Event):
    """A search did not end within its allowance, and an algorithm that surely ends takes over."""

    to: str
    spent: int
    allowed: int

    def said(self) -> Said:
        """Returns that it has taken over, because the search struggles."""
        sentence = f"{self.to} takes over after {self.spent:,} episodes without an end"
        return Said("taken over", sentence, self.spent, self.allowed, is_trouble=True)

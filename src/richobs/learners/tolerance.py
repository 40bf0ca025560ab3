"""A class that holds the truth only nearly: what is said of it before a run, and when a run gives epsilon up."""

import math
from dataclasses import dataclass

from richobs.core.errors import InvalidInput
from richobs.core.events import Event, Said, event
from richobs.core.settings import Settings

WORTHWHILE, FEWER = 0.9, 0.5  # a gap, and a number of survivors, is smaller if it is at most this share of that before
PATIENCE = 2  # times the episodes that last made something smaller, after which epsilon is given up
FEWEST = 64  # episodes before which nothing is given up


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
        return Said("too large", sentence, self.least, self.epsilon)

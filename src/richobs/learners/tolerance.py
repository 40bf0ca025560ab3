"""A class that holds the truth only nearly: what is said of it before a run, and when a run gives epsilon up."""

import math
from dataclasses import dataclass

from richobs.core.errors import InvalidInput
from richobs.core.events import Event, Said, event
from richobs.core.settings import Settings

WORTHWHILE = 0.9  # a gap is smaller if it is at most this share of the smallest before
PATIENCE = 2  # times the episodes that last made it smaller, after which it is given up
FEWEST = 64  # episodes before which nothing is given up


@dataclass
class Patience:
    """Whether more episodes still make the claimed gap smaller. A tolerance may keep it from epsilon for ever."""

    times: int = PATIENCE
    least: float = math.inf  # the smallest gap so far
    improved: int = 0  # episodes when it last became smaller

    def ends(self, gap: float, spent: int) -> bool:
        """Returns whether the gap has long not become smaller, after so many episodes in all."""
        if gap <= WORTHWHILE * self.least:
            self.least, self.improved = gap, spent
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
            f"with this tolerance {self.least:.3g} may be lost and never be noticed: an epsilon above {self.least:.3g} can "
            f"be hoped for, and {self.epsilon:g} may stay out of reach"
        )
        return Said("too large", sentence, self.least, self.epsilon)

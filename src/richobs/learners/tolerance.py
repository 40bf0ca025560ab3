"""A class that holds the truth only nearly: what is said of it before a run, and when a run gives epsilon up."""

import math
from dataclasses import dataclass

from richobs.core.events import Event, Said, event

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

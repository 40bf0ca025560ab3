"""What happens in a run of a rival, and how often it is told."""

import math
from collections.abc import Callable

from richobs import Policy, Progress
from richobs.core.events import Callback, Event, Said, event
from richobs.core.queries import Engine

EVERY = 1_000  # episodes after which a round is told at the latest
GROWTH = 1 / 16  # part of all episodes after which one is told earlier
SEARCH = "search"  # the only phase of a rival


@event("rival", "round", "what do the episodes earn while it learns?", "mean return of the round")
class RoundPlayed(Event):
    """A rival played some episodes."""

    episodes: int  # so far, this round included
    mean: float  # return of the round's episodes; NaN where they earned nothing that is known
    what: str  # what happened, in words

    def said(self) -> Said:
        """Returns what was played; a round decides nothing."""
        earned = "" if math.isnan(self.mean) else f", {self.mean:.4f} earned on average"
        sentence = f"{self.episodes:,} episode{'' if self.episodes == 1 else 's'}{earned}: {self.what}"
        return Said("played", sentence, self.mean)


def tell_nobody(progress: Progress, /) -> None:
    """Drops an event; for algorithms that run outside a run."""


class Rounds:
    """Collects episodes and tells about them when their number grew by a sixteenth or passes a multiple of `EVERY`."""

    def __init__(self, engine: Engine, notify: Callback, policy: Callable[[], Policy] | None = None):
        """Begins with no episodes.

        Args:
            engine: its ledger counts the episodes.
            notify: told about rounds.
            policy: makes the policy with which the learner would answer now; None where it only has one at the end.
        """
        self._engine, self._notify, self._policy = engine, notify, policy
        self._n, self._earned = 0, 0.0
        self._next = 1

    def add(self, n: int, earned: float, what: Callable[[], str]) -> None:
        """Takes in more episodes, and tells about all since the last event where it is time.

        Args:
            n: number of episodes.
            earned: the sum of their returns.
            what: says in words what happened; only asked where it is told.
        """
        self._n += n
        self._earned += earned
        if self._engine.ledger.total >= self._next:
            self.tell(what())

    def close(self, what: str) -> None:
        """Tells about the episodes since the last event, where there are any; for the end of a run by its own rule.

        A run whose episodes were spent tells nothing more: with more episodes it goes on, through the same events.
        """
        if self._n:
            self.tell(what)

    def tell(self, what: str) -> None:
        """Tells about all episodes since the last event."""
        total = self._engine.ledger.total
        mean = self._earned / self._n if self._n else math.nan
        told = RoundPlayed(phase=SEARCH, n=self._n, episodes=total, mean=mean, what=what)
        self._n, self._earned = 0, 0.0
        self._next = min(total + max(1, int(total * GROWTH)), (total // EVERY + 1) * EVERY)
        self._notify(Progress(told, total, policy=self._policy))

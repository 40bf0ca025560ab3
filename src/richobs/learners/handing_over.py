"""What takes over from a search that does not end: an algorithm whose number of episodes is known in advance."""

from collections.abc import Callable
from typing import NamedTuple

from richobs.core.events import Callback, Event, Said, event
from richobs.core.outcome import Outcome
from richobs.core.problem import Problem
from richobs.core.queries import Engine
from richobs.core.settings import Settings
from richobs.learners import learner


class Fallback(NamedTuple):
    """An algorithm that is known to end; it takes over from a search that has not ended."""

    name: str  # in words, "LSVEE as printed"
    after: int  # episodes of the search
    learn: Callable[[], Outcome]  # with the share of delta that the search keeps for it

    @classmethod
    def to(cls, words: str, problem: Problem, engine: Engine, asked: Settings, notify: Callback) -> "Fallback | None":
        """Returns the fallback to the learner that `asked` names, once a search has spent what that surely needs.

        None where that is not known in advance.
        """
        other = learner(asked.learner)
        after = other.plan(problem, asked).max_episodes
        return None if after is None else cls(words, after, lambda: other.run(problem, engine, asked, notify))

    def takes_over(self, phase: str, log_size: float, spent: int) -> "HandedOver":
        """Returns the event of taking over from a search that has spent so many episodes."""
        return HandedOver(
            phase=phase,
            log_size_before=log_size,
            log_size_after=log_size,
            to=self.name,
            spent=spent,
            allowed=self.after,
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

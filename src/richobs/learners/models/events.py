"""What happens in a search among models: episodes are played, models refuted, and policies planned in those that live."""

from dataclasses import dataclass
from typing import ClassVar

from richobs.core.events import Event, event
from richobs.core.outcome import number_words


@event("models")
@dataclass(frozen=True, kw_only=True)
class ModelsWeighed(Event):
    """Episodes were weighed by every living model."""

    kind: ClassVar[str] = "weighing"
    question: ClassVar[str] = "which models hold what was seen too unlikely?"
    statistic_name: ClassVar[str] = "models refuted"
    threshold_name: ClassVar[str] = "models before"
    statistic_field: ClassVar[str] = "refuted"
    threshold_field: ClassVar[str] = "before"

    model: int | None  # whose optimal policy was played; None for episodes from before the run
    why: str  # why this one was played
    earned: float  # mean total
    promised: float | None  # the model's V*
    before: int  # living models
    impossible: int  # models refuted because something in the episodes is impossible in them
    outweighed: int  # models refuted because the others give the episodes more probability by a factor of 1/d

    @property
    def refuted(self) -> int:
        """Models refuted."""
        return self.impossible + self.outweighed

    @property
    def verdict(self) -> str:
        """Whether any was refuted."""
        return "refuted" if self.refuted else "none refuted"

    @property
    def sentence(self) -> str:
        """What the episodes did."""
        who = "recorded before" if self.model is None else f"with the policy of model {self.model} ({self.why})"
        left = self.before - self.refuted
        return f"{self.n:,} episodes {who} earned {self.earned:.3g}; {self.refuted:,} models refuted, {left:,} left"


@event("models")
@dataclass(frozen=True, kw_only=True)
class RegretPlanned(Event):
    """The likely models' policies were planned in the living models, and the one that loses least was found."""

    kind: ClassVar[str] = "planning"
    question: ClassVar[str] = "does one policy lose little in every living model?"
    statistic_name: ClassVar[str] = "largest loss in a living model"
    threshold_name: ClassVar[str] = "allowed"
    statistic_field: ClassVar[str] = "regret"
    threshold_field: ClassVar[str] = "epsilon"

    model: int  # whose optimal policy loses least
    worst: int  # the model in which it loses most
    regret: float  # that loss, errors of planning included
    epsilon: float

    @property
    def verdict(self) -> str:
        """Whether it loses at most epsilon."""
        return "certified" if self.regret <= self.epsilon else "loses too much"

    @property
    def sentence(self) -> str:
        """How much is lost, and where."""
        return (
            f"the policy of model {self.model} loses at most {number_words(self.regret, up=True)} in a living model, "
            f"{self.epsilon:g} is allowed; the worst is model {self.worst}"
        )

"""What happens in a search among models: episodes are played, models refuted, and policies planned in those that live."""

from richobs.core.events import Event, Said, event
from richobs.core.words import number_words


@event("models", "weighing", "which models hold what was seen too unlikely?", "models refuted", "models before")
class ModelsWeighed(Event):
    """Episodes were weighed by every living model."""

    model: int | None  # whose optimal policy was played; None for episodes from before the run
    why: str  # why this one was played
    earned: float  # mean total
    promised: float | None  # the model's V*
    before: int  # living models
    impossible: int  # models refuted because something in the episodes is impossible in them
    outweighed: int  # models refuted because the others give the episodes more probability by a factor of 1/d

    def said(self) -> Said:
        """Returns what the episodes did."""
        refuted = self.impossible + self.outweighed
        who = "recorded before" if self.model is None else f"with the policy of model {self.model} ({self.why})"
        left = f"{refuted:,} models refuted, {self.before - refuted:,} left"
        sentence = f"{self.n:,} episodes {who} earned {self.earned:.3g}; {left}"
        return Said("refuted" if refuted else "none refuted", sentence, refuted, self.before)


@event(
    "models",
    "planning",
    "does one policy lose little in every living model?",
    "largest loss in a living model",
    "allowed",
)
class RegretPlanned(Event):
    """The likely models' policies were planned in the living models, and the one that loses least was found."""

    model: int  # whose optimal policy loses least
    worst: int  # the model in which it loses most
    regret: float  # that loss, errors of planning included
    epsilon: float

    def said(self) -> Said:
        """Returns how much is lost, and where."""
        sentence = (
            f"the policy of model {self.model} loses at most {number_words(self.regret, up=True)} in a living model, "
            f"{self.epsilon:g} is allowed; the worst is model {self.worst}"
        )
        verdict = "certified" if self.regret <= self.epsilon else "loses too much"
        return Said(verdict, sentence, self.regret, self.epsilon)

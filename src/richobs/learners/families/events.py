"""What happens in a search in a family: episodes are weighed, and the loss of a policy is bounded over what lives."""

import math

from richobs.core.events import ChartKind, Event, Reading, Said, event
from richobs.core.words import number_words

WIDTHS = ChartKind(
    "widths", "What is left of each interval", "About how wide, relative to the box: 1 is all of it.", "parameter"
)
LOSSES = ChartKind(
    "losses", "Largest loss of the policy", "In points that are left, or bounded over all of them.", limit="epsilon"
)
LEAST = 1e-12  # below it a curve is drawn no lower


@event(
    "families",
    "weighing",
    "which parameters hold what was seen too unlikely?",
    "log-likelihood of the most likely ones, above the threshold",
)
class ThetaWeighed(Event):
    """Episodes were weighed by every parameter of the box."""

    why: str  # what was played
    earned: float  # mean total
    radius: float  # log-likelihood of the most likely parameters less the threshold
    likely: tuple[float, ...]  # the most likely ones
    widths: tuple[float, ...]  # about what is left of each interval, relative to the box
    structures: int  # combinations of listed items that are left

    def said(self) -> Said:
        """Returns what the episodes did."""
        left = ", ".join(f"{100 * width:.3g}%" for width in self.widths)
        sentence = f"{self.n:,} episodes of {self.why} earned {self.earned:.3g}; about {left} of each interval is left"
        reading = Reading(WIDTHS, tuple(math.log(max(width, LEAST)) for width in self.widths))
        return Said(f"{left} left", sentence, self.radius, readings=(reading,))


@event(
    "families",
    "planning",
    "does one policy lose little at every parameter that is left?",
    "largest loss",
    "allowed",
)
class LossBounded(Event):
    """The loss of a policy was looked at in points that live, and where these allow it, bounded over all of them."""

    regret: float  # bound over all cells where one was found, else the largest in points that live
    proved: bool  # whether it is a bound
    epsilon: float
    cells: int  # that were looked at
    planned_at: tuple[float, ...]  # the parameters whose best policy it is
    witness: tuple[float, ...]  # parameters that live and at which it loses more than allowed; () where none are known

    def said(self) -> Said:
        """Returns how much is lost."""
        lost, allowed = number_words(self.regret, up=True), f"{self.epsilon:g} is allowed"
        sentence = f"the policy loses {lost} at a parameter that is left; {allowed}"
        verdict = "loses too much" if self.regret > self.epsilon else "not shown"
        if self.proved:
            verdict = "certified"
            sentence = (
                f"the policy loses at most {lost} wherever parameters are left, in {self.cells:,} cells; {allowed}"
            )
        reading = Reading(LOSSES, (math.log(max(self.regret, LEAST)),), math.log(self.epsilon))
        return Said(verdict, sentence, self.regret, self.epsilon, readings=(reading,))


@event("families", "counting", "how well are the unknown laws known?", "laws seen", "laws")
class LawsCounted(Event):
    """Episodes were counted, of laws of which only the outcomes are known."""

    why: str  # what was played
    earned: float  # mean total
    laws: int  # of more than one outcome
    seen: int  # of them
    median: float  # times that half of the laws were seen at least

    def said(self) -> Said:
        """Returns what the episodes showed."""
        left = f"{self.seen:,} of {self.laws:,} laws were seen, half of them {self.median:,.0f} times or more"
        sentence = f"{self.n:,} episodes of {self.why} earned {self.earned:.3g}; {left}"
        return Said(f"{self.seen:,} seen", sentence, self.seen, self.laws)

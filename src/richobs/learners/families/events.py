"""What happens in a search among parameters: episodes are weighed, and the loss of a policy is bounded over what lives."""

import math
from dataclasses import dataclass
from typing import ClassVar

from richobs.core.events import ChartKind, Event, Reading, event
from richobs.core.outcome import number_words

WIDTHS = ChartKind(
    "widths", "Width of what is left of each interval", "Relative to the box: 1 is all of it.", curves="parameter"
)
LOSSES = ChartKind("losses", "Largest loss found, or bounded", "The run may claim once it is below.", limit="epsilon")


@event("families")
@dataclass(frozen=True, kw_only=True)
class ThetaWeighed(Event):
    """Episodes were weighed by every parameter of the box."""

    kind: ClassVar[str] = "weighing"
    question: ClassVar[str] = "which parameters hold what was seen too unlikely?"
    statistic_name: ClassVar[str] = "likelihood of the best, above the threshold (nats)"
    statistic_field: ClassVar[str] = "radius"

    why: str  # what was played
    earned: float  # mean total
    radius: float  # log-likelihood of the most likely parameters less the threshold
    likely: tuple[float, ...]  # the most likely ones
    widths: tuple[float, ...]  # what is left of each interval, relative to the box
    structures: int  # lists of items that are left

    @property
    def verdict(self) -> str:
        """How much of the intervals is left."""
        return f"{max(self.widths, default=1.0):.3g} of the box left"

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The widths."""
        return (Reading(WIDTHS, tuple(math.log(max(width, 1e-12)) for width in self.widths)),)

    @property
    def sentence(self) -> str:
        """What the episodes did."""
        left = ", ".join(f"{100 * width:.3g}%" for width in self.widths)
        return f"{self.n:,} episodes of {self.why} earned {self.earned:.3g}; {left} of each interval is left"


@event("families")
@dataclass(frozen=True, kw_only=True)
class LossBounded(Event):
    """The loss of a policy was looked at in points that live, and where these allow it, bounded over all of them."""

    kind: ClassVar[str] = "planning"
    question: ClassVar[str] = "does one policy lose little at every parameter that is left?"
    statistic_name: ClassVar[str] = "largest loss"
    threshold_name: ClassVar[str] = "allowed"
    statistic_field: ClassVar[str] = "regret"
    threshold_field: ClassVar[str] = "epsilon"

    regret: float  # bound over all cells where one was found, else the largest in points that live
    proved: bool  # whether it is a bound
    epsilon: float
    cells: int  # that were looked at
    planned_at: tuple[float, ...]  # the parameters whose best policy it is
    witness: tuple[float, ...]  # parameters that live and at which it loses more than allowed; () where none are known

    @property
    def verdict(self) -> str:
        """Whether it is shown to lose at most epsilon."""
        if self.proved:
            return "certified"
        return "loses too much" if self.regret > self.epsilon else "not shown"

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The largest loss."""
        return (Reading(LOSSES, (math.log(max(self.regret, 1e-12)),), math.log(self.epsilon)),)

    @property
    def sentence(self) -> str:
        """How much is lost."""
        lost, allowed = number_words(self.regret, up=True), f"{self.epsilon:g} is allowed"
        if self.proved:
            return (
                f"the policy loses at most {lost} at every parameter that is left, in {self.cells:,} cells; {allowed}"
            )
        return f"the policy loses up to {lost} at a parameter that is left; {allowed}"

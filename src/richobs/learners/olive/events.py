"""What happens in a run of OLIVE: values estimated at the root, candidates evaluated, functions eliminated."""

from dataclasses import dataclass
from typing import ClassVar

from richobs.core.events import Event, event

SEARCH = "search"  # the only phase


@event("olive")
@dataclass(frozen=True, kw_only=True)
class ValuesEstimated(Event):
    """The value that every function predicts at the root was estimated (Algorithm 1, lines 2 and 3)."""

    kind: ClassVar[str] = "estimation"
    question: ClassVar[str] = "what does every function predict at the root?"
    statistic_name: ClassVar[str] = "largest prediction"
    statistic_field: ClassVar[str] = "largest"

    largest: float

    @property
    def verdict(self) -> str:
        """That it was done."""
        return "estimated"

    @property
    def sentence(self) -> str:
        """What happened, in a sentence without its full stop."""
        return f"predictions at the root were estimated: the largest is {self.largest:.4g}"


@event("olive")
@dataclass(frozen=True, kw_only=True)
class CandidateEvaluated(Event):
    """The policy of the most optimistic survivor was played (Algorithm 1, lines 6 to 9)."""

    kind: ClassVar[str] = "evaluation"
    question: ClassVar[str] = "does the most optimistic survivor predict what its own policy earns?"
    statistic_name: ClassVar[str] = "sum of its Bellman errors"
    threshold_name: ClassVar[str] = "largest sum that ends the run"
    statistic_field: ClassVar[str] = "total"
    threshold_field: ClassVar[str] = "stop"

    value: float  # that the survivor predicts at the root
    earned: float  # by its policy
    total: float
    stop: float

    @property
    def passed(self) -> bool:
        """Whether the run ends with this policy."""
        return self.total <= self.stop

    @property
    def verdict(self) -> str:
        """Whether the run ends with this policy."""
        return "near-optimal" if self.passed else "failed"

    @property
    def sentence(self) -> str:
        """What happened, in a sentence without its full stop."""
        return f"a policy predicted to earn {self.value:.4g} earned {self.earned:.4g}: {self.verdict}"


@event("olive")
@dataclass(frozen=True, kw_only=True)
class LevelEliminated(Event):
    """Functions were tested at one level, under the candidate's policy (Algorithm 1, lines 12 to 15)."""

    kind: ClassVar[str] = "elimination"
    question: ClassVar[str] = "which functions have a Bellman error of about 0 at this level?"
    statistic_name: ClassVar[str] = "smallest error"
    threshold_name: ClassVar[str] = "largest error that survives"
    statistic_field: ClassVar[str] = "least"
    threshold_field: ClassVar[str] = "phi"

    tested: int  # the level
    least: float
    phi: float

    @property
    def level(self) -> int:
        """The level whose functions were tested."""
        return self.tested

    @property
    def dropped(self) -> bool:
        """Whether any function was eliminated."""
        return self.log_size_after < self.log_size_before

    @property
    def verdict(self) -> str:
        """Whether any function was eliminated."""
        return "dropped" if self.dropped else "none dropped"

    @property
    def sentence(self) -> str:
        """What happened, in a sentence without its full stop."""
        return f"functions were tested at level {self.tested}: {self.verdict}"

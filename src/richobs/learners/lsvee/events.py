"""What happens in a run of LSVEE as printed: consensus tests, eliminations, and policies that are played."""

from dataclasses import dataclass
from typing import ClassVar

from richobs.core.events import (
    AGREED,
    ELIMINATED,
    ELIMINATED_ON_DEMAND,
    IDLE,
    IDLE_ON_DEMAND,
    OPEN,
    POLICIES,
    Event,
    Mark,
    event,
)

SEARCH, DEMAND = "search", "demand"  # the two phases of Algorithm 1


@event("lsvee")
@dataclass(frozen=True, kw_only=True)
class ConsensusTested(Event):
    """Consensus ([KAL16] Algorithm 3) ran at a node."""

    kind: ClassVar[str] = "consensus"
    question: ClassVar[str] = "do survivors agree on the value here?"
    statistic_name: ClassVar[str] = "widest disagreement"
    threshold_name: ClassVar[str] = "still counts as agreement"
    statistic_field: ClassVar[str] = "spread"
    threshold_field: ClassVar[str] = "eps_test"

    agree: bool
    spread: float
    eps_test: float

    @property
    def verdict(self) -> str:
        """Whether survivors agree."""
        return "agree" if self.agree else "disagree"

    @property
    def mark(self) -> Mark:
        """Agreed, or open."""
        return AGREED if self.agree else OPEN

    @property
    def level(self) -> int:
        """The level of the node."""
        return len(self.path)


@event("lsvee")
@dataclass(frozen=True, kw_only=True)
class NodeEliminated(Event):
    """TD-Elim ([KAL16] Appendix B) ran at a node."""

    kind: ClassVar[str] = "elimination"
    question: ClassVar[str] = "which functions are inconsistent with what was seen?"
    statistic_name: ClassVar[str] = "smallest risk"
    threshold_name: ClassVar[str] = "largest risk that survives"
    statistic_field: ClassVar[str] = "least"
    threshold_field: ClassVar[str] = "cutoff"

    least: float
    cutoff: float

    @property
    def dropped(self) -> bool:
        """Whether any function was eliminated."""
        return self.log_size_after < self.log_size_before

    @property
    def verdict(self) -> str:
        """Whether any function was eliminated."""
        return "dropped" if self.dropped else "none dropped"

    @property
    def mark(self) -> Mark:
        """Eliminated or idle, in the search or on demand."""
        if self.phase == DEMAND:
            return ELIMINATED_ON_DEMAND if self.dropped else IDLE_ON_DEMAND
        return ELIMINATED if self.dropped else IDLE

    @property
    def level(self) -> int:
        """The level of the node."""
        return len(self.path)


@event("lsvee")
@dataclass(frozen=True, kw_only=True)
class PolicyPlayed(Event):
    """A survivor's policy was played (Algorithm 1, lines 5 and 6)."""

    kind: ClassVar[str] = "rollout"
    question: ClassVar[str] = "does the policy earn what was promised?"
    statistic_name: ClassVar[str] = "distance from the estimate of V*"
    threshold_name: ClassVar[str] = "allowed"
    statistic_field: ClassVar[str] = "gap"
    threshold_field: ClassVar[str] = "eps_demand"

    gap: float
    eps_demand: float

    @property
    def passed(self) -> bool:
        """Whether the policy is near-optimal."""
        return self.gap <= self.eps_demand

    @property
    def verdict(self) -> str:
        """Whether the policy passed."""
        return "near-optimal" if self.passed else "failed"

    @property
    def mark(self) -> Mark:
        """A whole policy."""
        return POLICIES

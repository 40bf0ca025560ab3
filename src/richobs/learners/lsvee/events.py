"""What happens in a run of LSVEE: consensus tests, eliminations, and policies that are played."""

from richobs.core import events
from richobs.core.events import Event, Said, event

SEARCH, DEMAND = "search", "demand"  # the two phases of Algorithm 1


@event(
    "lsvee", "consensus", "do survivors agree on the value here?", "widest disagreement", "still counts as agreement"
)
class ConsensusTested(Event):
    """Consensus ([KAL16] Algorithm 3) ran at a node."""

    agree: bool
    spread: float
    eps_test: float

    def said(self) -> Said:
        """Returns whether survivors agree."""
        verdict, mark = ("agree", events.AGREED) if self.agree else ("disagree", events.OPEN)
        return Said(verdict, "", self.spread, self.eps_test, mark, level=len(self.path))


@event(
    "lsvee",
    "elimination",
    "which functions are inconsistent with what was seen?",
    "smallest risk",
    "largest risk that survives",
)
class NodeEliminated(Event):
    """TD-Elim ([KAL16] Appendix B) ran at a node."""

    least: float
    cutoff: float

    def said(self) -> Said:
        """Returns whether any function was eliminated, in the search or on demand."""
        searching = self.phase != DEMAND
        if self.log_size_after < self.log_size_before:
            verdict, mark = "dropped", events.ELIMINATED if searching else events.ELIMINATED_ON_DEMAND
        else:
            verdict, mark = "none dropped", events.IDLE if searching else events.IDLE_ON_DEMAND
        return Said(verdict, "", self.least, self.cutoff, mark, level=len(self.path))


@event("lsvee", "rollout", "does the policy earn what was promised?", "distance from the estimate of V*", "allowed")
class PolicyPlayed(Event):
    """A survivor's policy was played (Algorithm 1, lines 5 and 6)."""

    gap: float
    eps_demand: float

    @property
    def passed(self) -> bool:
        """Whether the policy is near-optimal."""
        return self.gap <= self.eps_demand

    def said(self) -> Said:
        """Returns whether the policy passed."""
        return Said("near-optimal" if self.passed else "failed", "", self.gap, self.eps_demand, events.POLICIES)

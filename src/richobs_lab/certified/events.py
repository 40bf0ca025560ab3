"""What happens in a certified search: trials of candidates, tests of pairs, looks at a candidate's value."""

from typing import Literal

from richobs.core.events import ELIMINATED, IDLE, POLICIES, Event, Said, event


@event("certified", "trial", "does the candidate seem to keep its promise?", "promised minus earned", "allowed")
class CandidateTried(Event):
    """A survivor's policy was played a few times."""

    promising: bool
    shortfall: float
    epsilon: float

    def said(self) -> Said:
        """Returns whether it is worth verifying."""
        return Said("promising" if self.promising else "failed", "", self.shortfall, self.epsilon, POLICIES)


@event(
    "certified",
    "elimination",
    "which functions are inconsistent with what was seen?",
    "risk of the reference",
    "largest risk that survives",
)
class PairTested(Event):
    """Functions were tested for one action at one node; `path` leads to the node and ends with that action."""

    dropped: bool
    bar: float
    cutoff: float

    def said(self) -> Said:
        """Returns whether any function was eliminated. All levels of a path share episodes, which are counted once."""
        verdict, mark = ("dropped", ELIMINATED) if self.dropped else ("none dropped", IDLE)
        episodes = "" if self.n else "shared with its path"
        return Said(verdict, "", self.bar, self.cutoff, mark, level=len(self.path) - 1, episodes=episodes)


@event("certified", "verification", "are the bounds close enough?", "U - W", "epsilon asked for")
class CandidateVerified(Event):
    """A look was taken at a candidate's value, from fresh rollouts."""

    result: Literal["certified", "failed", "open"]
    width: float
    epsilon: float

    def said(self) -> Said:
        """Returns certified, failed, or open: more rollouts are to come."""
        return Said(self.result, "", self.width, self.epsilon, POLICIES)


@event("certified", "stage", "a batch told no survivors apart", "its size", "largest batch from here on")
class StageDoubled(Event):
    """A batch of the largest size eliminated nothing, so larger ones are allowed from here on."""

    batch: int
    largest: int

    def said(self) -> Said:
        """Returns the new size: the search struggles."""
        those = f"because those of {self.batch:,} told no survivors apart"
        sentence = f"batches of up to {self.largest:,} episodes from here on, {those}"
        return Said("doubled", sentence, self.batch, self.largest, is_trouble=True)

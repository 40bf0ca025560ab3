"""What happens in a certified search: trials of candidates, tests of pairs, looks at a candidate's value."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from richobs.core.events import ELIMINATED, IDLE, POLICIES, Event, Mark, event


@event("certified")
@dataclass(frozen=True, kw_only=True)
class CandidateTried(Event):
    """A survivor's policy was played a few times."""

    kind: ClassVar[str] = "trial"
    question: ClassVar[str] = "does the candidate seem to keep its promise?"
    statistic_name: ClassVar[str] = "promised minus earned"
    threshold_name: ClassVar[str] = "allowed"
    statistic_field: ClassVar[str] = "shortfall"
    threshold_field: ClassVar[str] = "epsilon"

    promising: bool
    shortfall: float
    epsilon: float

    @property
    def verdict(self) -> str:
        """Whether it is worth verifying."""
        return "promising" if self.promising else "failed"

    @property
    def mark(self) -> Mark:
        """A whole policy."""
        return POLICIES


@event("certified")
@dataclass(frozen=True, kw_only=True)
class PairTested(Event):
    """Functions were tested for one action at one node; `path` leads to the node and ends with that action."""

    kind: ClassVar[str] = "elimination"
    question: ClassVar[str] = "which functions are inconsistent with what was seen?"
    statistic_name: ClassVar[str] = "risk of the reference"
    threshold_name: ClassVar[str] = "largest risk that survives"
    statistic_field: ClassVar[str] = "bar"
    threshold_field: ClassVar[str] = "cutoff"

    dropped: bool
    bar: float
    cutoff: float

    @property
    def verdict(self) -> str:
        """Whether any function was eliminated."""
        return "dropped" if self.dropped else "none dropped"

    @property
    def mark(self) -> Mark:
        """Eliminated, or idle."""
        return ELIMINATED if self.dropped else IDLE

    @property
    def level(self) -> int:
        """The level of the node, at which the last action of the path was taken."""
        return len(self.path) - 1

    @property
    def episodes_words(self) -> str:
        """All levels of a path are tested on the same episodes, which are counted once."""
        return super().episodes_words if self.n else "shared with its path"


@event("certified")
@dataclass(frozen=True, kw_only=True)
class CandidateVerified(Event):
    """A look was taken at a candidate's value, from fresh rollouts."""

    kind: ClassVar[str] = "verification"
    question: ClassVar[str] = "are the bounds close enough?"
    statistic_name: ClassVar[str] = "U - W"
    threshold_name: ClassVar[str] = "epsilon asked for"
    statistic_field: ClassVar[str] = "width"
    threshold_field: ClassVar[str] = "epsilon"

    result: Literal["certified", "failed", "open"]
    width: float
    epsilon: float

    @property
    def verdict(self) -> str:
        """Certified, failed, or open: more rollouts are to come."""
        return self.result

    @property
    def mark(self) -> Mark:
        """A whole policy."""
        return POLICIES


@event("certified")
@dataclass(frozen=True, kw_only=True)
class StageDoubled(Event):
    """A batch of the largest size eliminated nothing, so larger ones are allowed from here on."""

    kind: ClassVar[str] = "stage"
    question: ClassVar[str] = "a batch told no survivors apart"
    statistic_name: ClassVar[str] = "its size"
    threshold_name: ClassVar[str] = "largest batch from here on"
    statistic_field: ClassVar[str] = "batch"
    threshold_field: ClassVar[str] = "largest"

    batch: int
    largest: int

    @property
    def verdict(self) -> str:
        """The size is doubled."""
        return "doubled"

    @property
    def is_trouble(self) -> bool:
        """The search struggles."""
        return True

    @property
    def sentence(self) -> str:
        """The event in a sentence."""
        return (
            f"batches of up to {self.largest:,} episodes from here on, because those of {self.batch:,} told no survivors "
            "apart"
        )

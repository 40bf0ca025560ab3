"""What happens in a betting search: candidates are drawn, batches played, pairs refuted, and a claim closes."""

import math
from dataclasses import dataclass
from typing import ClassVar

from richobs.core.events import CandidateNews, ChartKind, Event, Reading, event

PHASE = "betting"
LIVING = ChartKind(
    "living",
    "Living functions",
    "Functions that are part of a survivor; of equal functions one counts.",
    curves="level",
)
WEALTH = ChartKind(
    "wealth",
    "Wealth of bets on the candidate's errors",
    "Bets that its predictions are wrong start with a wealth below 1. Where it reaches the limit, the candidate is "
    "refuted.",
    curves="level",
    limit="refuted at",
    by_candidate=True,
)
AGREEMENT = ChartKind(
    "agreement",
    "Agreement of all survivors",
    "Wealth for the survivor that agrees least with the candidate's policy. At the needed wealth all survivors agree that "
    "the policy loses at most epsilon. The test begins once the candidate has enough episodes to pass it.",
    limit="needed",
    by_candidate=True,
)


@event("betting")
@dataclass(frozen=True, kw_only=True)
class RecordedRead(Event):
    """Bets were settled on episodes that were played before the run."""

    kind: ClassVar[str] = "recorded"
    question: ClassVar[str] = "which predictions lose their bets on recorded episodes?"

    episodes: int
    refuted: int  # pairs and members, as groups that nothing has told apart

    @property
    def verdict(self) -> str:
        """Whether anything was refuted."""
        return "refuted" if self.refuted else "none refuted"

    @property
    def sentence(self) -> str:
        """What the recorded episodes did."""
        return f"{self.episodes:,} recorded episodes refuted {self.refuted:,} groups"


@event("betting")
@dataclass(frozen=True, kw_only=True)
class CandidateDrawn(Event):
    """A survivor was drawn as the candidate to play."""

    kind: ClassVar[str] = "candidate"
    question: ClassVar[str] = "does another survivor fit better?"
    statistic_name: ClassVar[str] = "nats by which another fits better"
    threshold_name: ClassVar[str] = "nats allowed"
    threshold_field: ClassVar[str] = "allowed"

    played_before: bool
    behind: float | None  # None where the last candidate is refuted, or no longer among the most promising
    allowed: float

    @property
    def verdict(self) -> str:
        """Whether it was played before."""
        return "played before" if self.played_before else "new"

    @property
    def statistic(self) -> float:
        """Nats by which another survivor fitted better than the last candidate."""
        return math.nan if self.behind is None else self.behind

    @property
    def sentence(self) -> str:
        """Why there is another candidate."""
        why = (
            "the last one is refuted or promises too little" if self.behind is None else "another survivor fits better"
        )
        return f"a candidate that is {self.verdict}, because {why}"

    @property
    def candidate(self) -> CandidateNews:
        """Why the candidate before it is played no longer; one that is refuted stays so."""
        if self.behind is None:
            return CandidateNews(None, fate="replaced", why="another survivor promises more")
        return CandidateNews(None, fate="replaced", why=f"another survivor fits better by {self.behind:.3g} nats")


@event("betting")
@dataclass(frozen=True, kw_only=True)
class BatchPlayed(Event):
    """Episodes of a candidate were played, and the bets of all pairs settled on them."""

    kind: ClassVar[str] = "batch"
    question: ClassVar[str] = "which predictions lose their bets?"
    statistic_name: ClassVar[str] = "earned"
    threshold_name: ClassVar[str] = "promised"
    statistic_field: ClassVar[str] = "earned"
    threshold_field: ClassVar[str] = "promised"

    refuted: int  # pairs and members, as groups that nothing has told apart
    earned: float
    promised: float
    drawn: int = 0  # number of the candidate, in the order in which candidates were first played, from 1
    living: tuple[int, ...] = ()  # per level, members that are part of a survivor; one number for a listed class
    wealth: tuple[
        float, ...
    ] = ()  # per level, log of the bets won against the candidate; one number for a listed class
    limit: float = math.inf  # log of the wealth at which it is refuted

    @property
    def verdict(self) -> str:
        """Whether anything was refuted."""
        return "refuted" if self.refuted else "none refuted"

    @property
    def candidate(self) -> CandidateNews:
        """What the candidate earned, and whether it was refuted."""
        if self.living and not self.wealth:
            fate, why = "refuted", "bets on its errors won"
        else:
            fate, why = "", ""
        return CandidateNews(self.drawn, self.n, self.earned, self.promised, fate, why)

    @property
    def readings(self) -> tuple[Reading, ...]:
        """Who lives, and the wealth of bets on the candidate's errors."""
        if not self.living:
            return ()
        wealth = Reading(WEALTH, self.wealth, self.limit)
        if len(self.living) == 1:  # the same as all survivors
            return (wealth,)
        return (Reading(LIVING, tuple(math.log(max(n, 1)) for n in self.living)), wealth)

    @property
    def sentence(self) -> str:
        """What the batch did."""
        earned = f"{self.n:,} episodes earned {self.earned:.3g} of {self.promised:.3g} promised"
        return f"{earned}; {self.refuted:,} groups refuted"


@event("betting")
@dataclass(frozen=True, kw_only=True)
class AverageRefuted(Event):
    """A candidate's errors at one level are too large on average [B2]."""

    kind: ClassVar[str] = "average"
    question: ClassVar[str] = "does the candidate err on average?"
    statistic_name: ClassVar[str] = "mean error"
    statistic_field: ClassVar[str] = "error"

    at: int  # the level
    error: float

    @property
    def verdict(self) -> str:
        """It is refuted."""
        return "refuted"

    @property
    def level(self) -> int:
        """The level at which it errs."""
        return self.at

    @property
    def candidate(self) -> CandidateNews:
        """It is refuted."""
        return CandidateNews(None, fate="refuted", why=f"it errs at level {self.at} by {self.error:.3g} on average")

    @property
    def sentence(self) -> str:
        """What was refuted."""
        return f"the candidate errs at level {self.at} by {self.error:.3g} on average"


@event("betting")
@dataclass(frozen=True, kw_only=True)
class AgreementTested(Event):
    """All survivors were asked whether the candidate's policy loses much under them [B3.2]."""

    kind: ClassVar[str] = "agreement"
    question: ClassVar[str] = "do all survivors agree that the policy loses at most epsilon?"
    statistic_name: ClassVar[str] = "log wealth of the worst survivor"
    threshold_name: ClassVar[str] = "log wealth needed"
    statistic_field: ClassVar[str] = "log_wealth"
    threshold_field: ClassVar[str] = "needed"

    at: int  # the level where the sum fell below what is needed; the last one tested where it did not
    log_wealth: float  # over the levels tested so far, so at least that over all levels
    needed: float
    agreed: bool
    rests_on: int  # episodes of the candidate

    @property
    def verdict(self) -> str:
        """Whether they agree."""
        return "agree" if self.agreed else "disagree"

    @property
    def level(self) -> int:
        """The level at which they disagree most."""
        return self.at

    @property
    def readings(self) -> tuple[Reading, ...]:
        """Wealth, and what is needed."""
        return (Reading(AGREEMENT, (self.log_wealth,), self.needed),)

    @property
    def outlook(self) -> str:
        """How far from agreement survivors are."""
        return self.sentence

    @property
    def sentence(self) -> str:
        """How far from agreement survivors are."""
        if self.agreed:
            return f"all survivors agree, at a wealth of exp({self.log_wealth:.3g})"
        return (
            f"survivors disagree with the policy at level {self.at}: a wealth of exp({self.log_wealth:.3g}), and "
            f"exp({self.needed:.3g}) is needed"
        )


@event("betting")
@dataclass(frozen=True, kw_only=True)
class ClaimClosed(Event):
    """The candidate is certified."""

    kind: ClassVar[str] = "claim"
    question: ClassVar[str] = "is the candidate within epsilon of V*?"
    statistic_name: ClassVar[str] = "bound on V* - V(policy)"
    threshold_name: ClassVar[str] = "epsilon"
    statistic_field: ClassVar[str] = "gap"
    threshold_field: ClassVar[str] = "epsilon"

    by: str  # agreement, interval, one survivor, or a threshold that was reached or cannot be
    gap: float
    epsilon: float

    @property
    def verdict(self) -> str:
        """Certified, or that no policy is worth the threshold."""
        return "not worth it" if self.by == "not worth it" else "certified"

    @property
    def how(self) -> str:
        """How it was certified."""
        return {
            "agreement": "all survivors agree with the policy closely enough",
            "interval": "its lower bound is within epsilon of the upper bound on V*",
            "one survivor": "its function is the only survivor",
            "tolerance": "its bounds hold, and the tolerance may keep them from coming nearer",
            "worth it": "its lower bound reaches the threshold",
            "not worth it": "no policy reaches the threshold",
        }[self.by]

    @property
    def candidate(self) -> CandidateNews:
        """It is certified, unless it was refuted and another function is the only survivor."""
        return CandidateNews(None, fate=self.verdict, why=self.how)

    @property
    def sentence(self) -> str:
        """How it was certified, or that no policy is worth the threshold."""
        return self.how if self.by == "not worth it" else f"the policy is certified: {self.how}"

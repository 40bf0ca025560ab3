"""What happens in a betting search: candidates are drawn, batches played, pairs refuted, and a claim closes."""

import math

from richobs.core.events import CandidateNews, ChartKind, Event, Reading, Said, event

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


@event("betting", "recorded", "which predictions lose their bets on recorded episodes?")
class RecordedRead(Event):
    """Bets were settled on episodes that were played before the run."""

    episodes: int
    refuted: int  # pairs and members, as groups that nothing has told apart

    def said(self) -> Said:
        """Returns whether anything was refuted."""
        sentence = f"{self.episodes:,} recorded episodes refuted {self.refuted:,} groups"
        return Said("refuted" if self.refuted else "none refuted", sentence)


@event("betting", "candidate", "does another survivor fit better?", "nats by which another fits better", "nats allowed")
class CandidateDrawn(Event):
    """A survivor was drawn as the candidate to play."""

    played_before: bool
    behind: float | None  # None where the last candidate is refuted, or no longer among the most promising
    allowed: float

    def said(self) -> Said:
        """Returns why there is another candidate; one that is refuted stays so."""
        verdict = "played before" if self.played_before else "new"
        if self.behind is None:
            because, why = "the last one is refuted or promises too little", "another survivor promises more"
        else:
            because = "another survivor fits better"
            why = f"{because} by {self.behind:.3g} nats"
        return Said(
            verdict,
            f"a candidate that is {verdict}, because {because}",
            math.nan if self.behind is None else self.behind,
            self.allowed,
            candidate=CandidateNews(None, fate="replaced", why=why),
        )


@event("betting", "batch", "which predictions lose their bets?", "earned", "promised")
class BatchPlayed(Event):
    """Episodes of a candidate were played, and the bets of all pairs settled on them."""

    refuted: int  # pairs and members, as groups that nothing has told apart
    earned: float
    promised: float
    drawn: int = 0  # number of the candidate, in the order in which candidates were first played, from 1
    living: tuple[int, ...] = ()  # per level, members that are part of a survivor; one number for a listed class
    wealth: tuple[float, ...] = ()  # per level, log of the bets won against the candidate; one for a listed class
    limit: float = math.inf  # log of the wealth at which it is refuted

    def said(self) -> Said:
        """Returns what the batch did, who lives, and the wealth of bets on the candidate's errors."""
        earned = f"{self.n:,} episodes earned {self.earned:.3g} of {self.promised:.3g} promised"
        fate = ("refuted", "bets on its errors won") if self.living and not self.wealth else ("", "")
        readings = [Reading(WEALTH, self.wealth, self.limit)] if self.living else []
        if len(self.living) > 1:  # one number is the same as all survivors
            readings.insert(0, Reading(LIVING, tuple(math.log(max(n, 1)) for n in self.living)))
        return Said(
            "refuted" if self.refuted else "none refuted",
            f"{earned}; {self.refuted:,} groups refuted",
            self.earned,
            self.promised,
            candidate=CandidateNews(self.drawn, self.n, self.earned, self.promised, *fate),
            readings=tuple(readings),
        )


@event("betting", "average", "does the candidate err on average?", "mean error")
class AverageRefuted(Event):
    """A candidate's errors at one level are too large on average [B2]."""

    at: int  # the level
    error: float
    drawn: int = 0  # number of the candidate; 0 for the one that was played last

    def said(self) -> Said:
        """Returns what was refuted."""
        errs = f"errs at level {self.at} by {self.error:.3g} on average"
        news = CandidateNews(self.drawn or None, fate="refuted", why=f"it {errs}")
        return Said("refuted", f"the candidate {errs}", self.error, level=self.at, candidate=news)


@event(
    "betting",
    "agreement",
    "do all survivors agree that the policy loses at most epsilon?",
    "log wealth of the worst survivor",
    "log wealth needed",
)
class AgreementTested(Event):
    """All survivors were asked whether the candidate's policy loses much under them [B3.2]."""

    at: int  # the level where the sum fell below what is needed; the last one tested where it did not
    log_wealth: float  # over the levels tested so far, so at least that over all levels
    needed: float
    agreed: bool
    rests_on: int  # episodes of the candidate
    drawn: int = 0  # number of the candidate; 0 for the one that was played last

    def said(self) -> Said:
        """Returns how far from agreement survivors are."""
        if self.agreed:
            sentence = f"all survivors agree, at a wealth of exp({self.log_wealth:.3g})"
        else:
            sentence = (
                f"survivors disagree with the policy at level {self.at}: a wealth of exp({self.log_wealth:.3g}), and "
                f"exp({self.needed:.3g}) is needed"
            )
        if self.drawn:
            sentence = f"of the policy of candidate {self.drawn}: {sentence}"
        reading = Reading(AGREEMENT, (self.log_wealth,), self.needed)
        return Said(
            "agree" if self.agreed else "disagree",
            sentence,
            self.log_wealth,
            self.needed,
            level=self.at,
            readings=()
            if self.drawn and not self.agreed
            else (reading,),  # the chart is that of the one that is played
            outlook=sentence,
        )


HOW_CERTIFIED = {  # what closed a claim -> in words
    "agreement": "all survivors agree with the policy closely enough",
    "interval": "its lower bound is within epsilon of the upper bound on V*",
    "one survivor": "its function is the only survivor",
    "promise": "it earns what every survivor promises, closely enough",
    "tolerance": "its bounds hold, and the tolerance may keep them from coming nearer",
    "worth it": "its lower bound reaches the threshold",
    "not worth it": "no policy reaches the threshold",
}


@event("betting", "claim", "is the candidate within epsilon of V*?", "bound on V* - V(policy)", "epsilon")
class ClaimClosed(Event):
    """The candidate is certified."""

    by: str  # a key of HOW_CERTIFIED
    gap: float
    epsilon: float
    drawn: int = 0  # number of the candidate whose policy it is; 0 for the one that was played last

    def said(self) -> Said:
        """Returns how it was certified, or that no policy is worth the threshold."""
        how = HOW_CERTIFIED[self.by]
        if self.drawn:
            how = f"{how}; it is the policy of candidate {self.drawn}"
        is_worth = self.by != "not worth it"
        verdict, sentence = ("certified", f"the policy is certified: {how}") if is_worth else (self.by, how)
        news = CandidateNews(self.drawn or None, fate=verdict, why=how)
        return Said(verdict, sentence, self.gap, self.epsilon, candidate=news)

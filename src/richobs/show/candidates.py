"""The candidates of a run: which were played, when, and what became of each. Events are asked; no learner is known here."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from richobs.core.events import CandidateNews, Progress

REFUTED, CERTIFIED, OPEN = "refuted", "certified", "in play"
ORDER = (REFUTED, "replaced", CERTIFIED, OPEN)  # in which fates are listed


@dataclass
class Candidate:
    """One candidate, as far as events tell."""

    number: int
    episodes: int = 0
    batches: int = 0
    returns: float = 0.0  # sum over its episodes
    promised: float = math.nan  # the last time it was played
    fate: str = OPEN
    why: str = ""

    @property
    def earned(self) -> float:
        """Mean over its episodes."""
        return self.returns / self.episodes if self.episodes else math.nan


class Tenure(NamedTuple):
    """A time during which one candidate was played."""

    number: int  # of the candidate
    begin: int  # episodes of the run
    end: int


@dataclass
class Candidates:
    """All candidates so far, in the order of their numbers."""

    known: dict[int, Candidate] = field(default_factory=dict)
    tenures: list[Tenure] = field(default_factory=list)
    current: Candidate | None = None
    outlook: str = ""  # how far the end is, from the last event about the current candidate that says so
    other: str = ""  # why a function was certified that is not the candidate played last; empty where none was

    @classmethod
    def of(cls, steps: Iterable[Progress]) -> "Candidates":
        """Returns the candidates that the events of a run tell of."""
        made = cls()
        for step in steps:
            made.absorb(step)
        return made

    def absorb(self, step: Progress) -> None:
        """Takes note of what an event says of a candidate."""
        said = step.event.said()
        self.outlook, news = said.outlook or self.outlook, said.candidate
        if news is None:
            return
        if news.fate and news.fate != CERTIFIED:
            self.outlook = ""
        if news.number is not None:
            self._play(news, news.number, step.episodes)
        candidate = self.current
        if candidate is None or not news.fate:
            return
        if candidate.fate != REFUTED:
            candidate.fate, candidate.why = news.fate, news.why
        elif news.fate == CERTIFIED:
            self.other = news.why

    def _play(self, news: CandidateNews, number: int, episodes: int) -> None:
        """Counts episodes of a candidate; one that was replaced before is open again."""
        candidate = self.known.setdefault(number, Candidate(number))
        goes_on = self.current is candidate and candidate.fate == OPEN
        begin = self.tenures.pop().begin if goes_on and self.tenures else max(episodes - news.episodes, 0)
        self.tenures.append(Tenure(number, begin, episodes))
        if candidate.fate != REFUTED:
            candidate.fate, candidate.why = OPEN, ""
        candidate.batches += 1
        candidate.episodes += news.episodes
        candidate.returns += news.episodes * news.earned
        candidate.promised = news.promised
        self.current = candidate

    @property
    def fates(self) -> str:
        """How many were played, and what became of them, in words: `8 played: 7 replaced, 1 certified`."""
        if not self.known:
            return ""
        counts = Counter(candidate.fate for candidate in self.known.values())
        order = [*ORDER, *sorted(counts.keys() - ORDER)]
        said = f"{len(self.known):,} played: " + ", ".join(f"{counts[f]:,} {f}" for f in order if counts[f])
        return f"{said}; then another was certified: {self.other}" if self.other else said

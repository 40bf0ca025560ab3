"""What happens in a search by linear values: exploration is planned, and attempts verify what was frozen."""

import math

from richobs.core.events import ChartKind, Event, Reading, Said, event
from richobs.core.words import number_words

EXCESS = ChartKind(
    "excess",
    "Bound by level",
    "What the bound on V* - V(policy) gets from each level, in each attempt.",
    curves="level",
)
BOUND = ChartKind("bound", "Bound on the loss", "The bound on V* - V(policy) of each attempt.", limit="epsilon")


@event("linear", "exploration", "are there enough episodes to freeze a value function?", "episodes", "needed")
class Explored(Event):
    """Episodes were played to learn where to look."""

    policy: str  # whose, in words
    earned: float  # mean return
    episodes: int  # that a value function can be frozen from
    needed: int  # for an attempt

    def said(self) -> Said:
        """Returns how far an attempt is."""
        enough = self.episodes >= self.needed
        sentence = f"{self.n:,} episodes of the {self.policy} policy earned {self.earned:.3g}"
        outlook = "" if enough else f"an attempt needs {self.needed:,} episodes to freeze a value function from"
        return Said("enough" if enough else "not yet", sentence, self.episodes, self.needed, outlook=outlook)


@event("linear", "attempt", "does the policy lose little against every other one?", "bound on the loss", "asked")
class Attempted(Event):
    """A frozen value function was verified on fresh episodes, and then what was left over."""

    attempt: int
    bound: float  # on V* - V(policy); infinite where a direction was not seen
    target: float  # that the attempt was made for
    epsilon: float
    predicted: float  # mean of V_0 - return
    left_over: float  # mean of F_0
    excess: tuple[float, ...]  # by level
    noise: float
    deviation: float
    unseen: tuple[int, ...]  # levels with a direction that was not seen

    def said(self) -> Said:
        """Returns the bound, and what it is made of."""
        if self.unseen:
            where = ", ".join(map(str, self.unseen))
            return Said(
                "no bound", f"attempt {self.attempt}: a direction of the features was not seen at level {where}"
            )
        verdict = "certified" if self.bound <= self.epsilon else "too wide"
        sentence = (
            f"attempt {self.attempt}: the policy loses at most {number_words(self.bound, up=True)}, {self.epsilon:g} is "
            f"asked; {self.predicted + self.left_over:.3g} of it was measured, {self.noise + self.deviation:.3g} is chance, "
            f"{math.fsum(self.excess):.3g} lies between contexts"
        )
        logs = tuple(math.log(max(e, 1e-12)) for e in self.excess)
        readings = (
            Reading(BOUND, (math.log(max(self.bound, 1e-12)),), math.log(self.epsilon)),
            Reading(EXCESS, logs),
        )
        return Said(verdict, sentence, self.bound, self.epsilon, readings=readings)

"""A tournament of policies: a learner to copy when you write your own.

Copy this file to `src/richobs/learners/`, change it, and add one line to `LEARNERS` in `__init__.py` there. The conformance
suite (`tests/conformance/test_learners.py`), the command line, certificates and pages then know your learner.
"""

import itertools
import math
from dataclasses import dataclass

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.errors import EpisodeLimit, InvalidInput
from richobs.core.events import Callback, Event, Progress, Said, event
from richobs.core.outcome import REALIZABLE, Outcome, StopReason, claim_words
from richobs.core.problem import Problem
from richobs.core.queries import Engine, Query
from richobs.core.settings import Settings
from richobs.core.types import Member
from richobs.learners.base import Learner, Need, PlanRow, Promise, ShortPlan, unit_rewards

MOST = 1_000  # functions whose policies are played


# A need has words, and a function that returns in a sentence why a problem does not offer it; None where it does.
def _too_many(problem: Problem, settings: Settings) -> str | None:
    known = problem.functions.log_size <= math.log(MOST)
    return None if known else f"it has about 10^{problem.functions.log_size / math.log(10):.1f}."


# Events are what the terminal, the page and the record show. Fields are plain values, so that stored runs can be read.
@event("tournament", "trial", "what does the policy earn?", "mean return")
class PolicyTried(Event):
    """The policy of one function was played."""

    mean: float
    is_best: bool  # so far

    def said(self) -> Said:
        """Returns whether it is the best so far."""
        return Said("best so far" if self.is_best else "worse", statistic=self.mean)


# What a user may choose: a sentence under each field is its help text. Leave it out where there is nothing to choose.
@dataclass(frozen=True)
class TournamentTuning:
    """The numbers of a tournament that can be chosen."""

    share: float = 1.0
    """Share of the episodes that the guarantee asks for; below 1 nothing is guaranteed."""

    def __post_init__(self) -> None:
        if not 0 < self.share < math.inf:
            raise InvalidInput(f"tuning: share must be a positive number; got {self.share}.")


class Tournament(Learner):
    """Plays the policy of every function equally often."""

    name = "tournament"
    about = "Plays the greedy policy of every function equally often and takes the one that earned most."
    given = ("class of value functions", "horizon")  # what it is told; tables that compare learners show it
    needs = (unit_rewards, Need(f"a class of at most {MOST:,} functions", _too_many))
    promises = Promise(
        "With probability 1 - delta the policy's value is within epsilon of V*.", ("Q* is in the class",)
    )
    costs = "N times 2/epsilon^2 log(2 N/delta) episodes for N functions."
    Tuning = TournamentTuning

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the episodes of each policy: Hoeffding's, epsilon/2 for every mean."""
        N = round(math.exp(problem.functions.log_size))
        enough = 2 / settings.epsilon**2 * math.log(2 * N / settings.delta)
        each = max(1, math.ceil(self.tuning(settings).share * enough))
        lines = (PlanRow("tournament", "episodes", each, "episodes", "of each policy: 2/epsilon^2 log(2 N/delta)"),)
        return ShortPlan("tournament", N * each, lines)

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Learns: all that it knows of the problem are the class and the engine's answers."""
        each = int(self.plan(problem, settings).lines[0].value)
        members = _members(problem)
        best, top, complete = members[0], -math.inf, True
        for member in members:
            try:
                # A query must not depend on `max_episodes`: a stored run that is allowed more goes on with the same ones.
                query = Query.rollout(LearnedPolicy(problem.functions, member), each, purpose="trial")
                mean = engine.ask(query).returns.mean
            except EpisodeLimit:
                complete = False
                break
            if mean > top:
                best, top = member, mean
            told = PolicyTried(phase="search", n=each, mean=mean, is_best=best == member)
            notify(Progress(told, engine.ledger.total))
        guaranteed = complete and self.tuning(settings).share >= 1
        return Outcome(
            policy=LearnedPolicy(problem.functions, best),
            # Say exactly what is guaranteed, or that nothing is.
            claim=claim_words(settings.delta, settings.epsilon, [REALIZABLE], sampling=engine.ledger.assumes)
            if guaranteed
            else "No guarantee: too few episodes were played.",
            learner=self.name,
            epsilon=settings.epsilon,
            delta=settings.delta,
            reason=StopReason.OWN_RULE if complete else StopReason.BUDGET_SPENT,
            guaranteed=guaranteed,
            value_hat=top if math.isfinite(top) else None,
        )


def _members(problem: Problem) -> list[Member]:
    """Returns every function of the class: an index, or one index per level of a product class."""
    functions = problem.functions
    if not functions.is_product:
        return list(range(functions.level_size(0)))
    return list(itertools.product(*(range(functions.level_size(h)) for h in range(functions.horizon))))

"""Uniform exploration: play at random, count, and plan as if the counts were the truth (certainty equivalence)."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from richobs import Outcome, Problem, Settings, TabularProcess, Uniform
from richobs.core.errors import EpisodeLimit
from richobs.core.events import Callback
from richobs.core.queries import Engine
from richobs.core.types import Floats
from richobs.learners.base import Promise, ShortPlan, Traits, unit_rewards
from richobs_lab.rivals.base import Rival, plan_of_episodes, require_at_least
from richobs_lab.rivals.rival_events import Rounds, tell_nobody
from richobs_lab.rivals.tabular import PROCESS, EmpiricalModel, counted, earned_in, greedy_policy, n_pairs, process_of


class Look(NamedTuple):
    """What is planned after some random episodes."""

    episodes: int
    values: tuple[Floats, ...]  # per level [X, K]; what was never tried is worth 0
    value_hat: float  # what the plan expects to earn


def explore_uniformly(
    engine: Engine, process: TabularProcess, looks: Sequence[int], *, notify: Callback = tell_nobody
) -> Iterator[Look]:
    """Plays at random and yields a plan over (level, observation) at every look, until episodes or looks are spent.

    Args:
        engine: plays the process.
        process: numbers the observations, which are treated as states.
        looks: numbers of episodes after which to plan, increasing.
        notify: told about rounds.
    """
    model, played = EmpiricalModel(process), 0
    rounds = Rounds(engine, notify, lambda: greedy_policy(process, model.values(1, unknown=0.0)))

    def words() -> str:
        tried = sum(int((v > 0).sum()) for v in model.visits)
        return f"tried {tried:,} of {n_pairs(process):,} pairs of observation and action"

    for look in looks:
        try:
            tally = counted(engine, Uniform(process.n_actions), look - played)
        except EpisodeLimit:
            return
        model.add(tally)
        rounds.add(look - played, earned_in(tally), words)
        played = look
        values = model.values(1, unknown=0.0)
        yield Look(look, values, model.start_value(values))
    rounds.close(words())


def uniform_exploration(
    engine: Engine, process: TabularProcess, looks: Sequence[int], good: Callable[[Sequence[Floats]], bool]
) -> int | None:
    """Returns after how many random episodes the plan over (level, observation) is good; None if it never is.

    Args:
        engine: plays the process.
        process: numbers the observations, which are treated as states.
        looks: numbers of episodes after which to plan, increasing.
        good: judges the values planned with, per level `[X, K]`; what was never tried is worth 0.
    """
    return next((look.episodes for look in explore_uniformly(engine, process, looks) if good(look.values)), None)


@dataclass(frozen=True)
class UniformExplorationTuning:
    """The numbers of uniform exploration that can be chosen."""

    episodes: int = 10_000
    """Random episodes to play: the method has no stopping rule."""

    def __post_init__(self) -> None:
        require_at_least(1, episodes=self.episodes)


class UniformExploration(Rival):
    """Uniform exploration as a learner."""

    name = "uniform-exploration"
    about = "Plays at random, counts, and plans as if the counts were the truth."
    given = ("list of observations", "horizon", "number of episodes")
    needs = (unit_rewards, PROCESS)
    promises = Promise(
        "Nothing better than the probability that random play finds what matters.", ("what is seen is the state",)
    )
    costs = "As many episodes as it is told to play (tuning `episodes`); on locks 2^H are needed."
    Tuning = UniformExplorationTuning
    traits = Traits(claims=False, counts=True)

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the episodes that it will play."""
        return plan_of_episodes("uniform exploration", self.tuning(settings).episodes)

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Learns."""
        process, episodes = process_of(problem), self.tuning(settings).episodes
        looks = [1]  # a quarter more each time; they do not depend on the episodes allowed, so that a run can go on
        while looks[-1] < episodes:
            looks.append(min(episodes, looks[-1] + max(1, looks[-1] // 4)))
        (last,) = deque(explore_uniformly(engine, process, looks, notify=notify), maxlen=1)
        why = "uniform exploration promises nothing about its plan."
        return self.answer(greedy_policy(process, last.values), settings, why, value_hat=last.value_hat)

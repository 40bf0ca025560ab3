"""Q-learning (Watkins 1989) with epsilon-greedy exploration: the undirected exploration most often used."""

from dataclasses import dataclass

import numpy as np

from richobs import Episodes, InvalidInput, LearnedPolicy, Outcome, Policy, Problem, Settings, TabularProcess
from richobs.core.events import Callback
from richobs.core.policies import Explore
from richobs.core.queries import Engine
from richobs.core.types import Floats
from richobs.learners.base import PlanRow, Promise, ShortPlan, Traits, unit_rewards
from richobs_lab.rivals.base import Rival, plan_of_episodes, require_at_least
from richobs_lab.rivals.rival_events import Rounds
from richobs_lab.rivals.tabular import (
    PROCESS,
    GreedyTables,
    greedy_policy,
    learn_by_episodes,
    process_of,
)


class EpsilonGreedyTables:
    """R tables over (level, observation) that start at 0; a random action with probability `explore`, ties at random.

    Steps are 1/visits. An episode is replayed from its end, so that one success reaches the root at once: more than plain
    Q-learning does, and as much as undirected exploration can hope for. It promises nothing beyond the limit.
    """

    def __init__(self, process: TabularProcess, explore: float = 0.1, *, runs: int = 1):
        """Makes the tables.

        Args:
            process: numbers the observations.
            explore: probability of a random action, anew at every level.
            runs: R.
        """
        self.process, self.explore = process, explore
        self.q: list[Floats] = [np.zeros((runs, len(rows), process.n_actions)) for rows in process.observations]
        self._visits = [np.zeros_like(q) for q in self.q]

    @property
    def policy(self) -> Policy:
        """Takes greedy actions, some replaced by random ones."""
        return Explore(GreedyTables(self.process, self.q), self.explore, self.process.n_actions)

    @property
    def tried(self) -> int:
        """How many (level, observation, action) triples the first table has seen."""
        return sum(int((v[0] > 0).sum()) for v in self._visits)

    def learn(self, played: Episodes, /) -> None:
        """Moves the value of every step towards reward plus best next value, last step first."""
        run = np.arange(played.n)
        future: Floats | float = 0.0
        for level in reversed(range(len(self.q))):
            x = self.process.encode(level, played.observations[level])
            at = (run, x, played.actions[level])
            self._visits[level][at] += 1
            self.q[level][at] += (played.rewards[level] + future - self.q[level][at]) / self._visits[level][at]
            future = self.q[level][run, x].max(axis=1)


@dataclass(frozen=True)
class EpsilonGreedyTuning:
    """The numbers of epsilon-greedy Q-learning that can be chosen."""

    explore: float = 0.1
    """Probability of a random action, anew at every level."""
    episodes: int = 10_000
    """Episodes to play: the method has no stopping rule."""

    def __post_init__(self) -> None:
        if not 0 <= self.explore <= 1:
            raise InvalidInput(f"tuning: explore must lie in [0, 1]; got {self.explore}.")
        require_at_least(1, episodes=self.episodes)


class EpsilonGreedy(Rival):
    """Epsilon-greedy Q-learning as a learner."""

    name = "epsilon-greedy"
    about = "Q-learning that mostly takes the best action so far and sometimes a random one."
    cites = "Watkins 1989"
    given = ("list of observations", "horizon", "number of episodes")
    needs = (unit_rewards, PROCESS)
    promises = Promise("Nothing for a finite number of episodes.")
    costs = "As many episodes as it is told to play (tuning `episodes`); on locks 2^H are needed."
    Tuning = EpsilonGreedyTuning
    traits = Traits(claims=False, level_work=200)
    reads_episodes = "learns after every episode"

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the episodes that it will play."""
        tuning: EpsilonGreedyTuning = self.tuning(settings)
        title = "epsilon-greedy Q-learning"
        explore = PlanRow(title, "explore", tuning.explore, "", "probability of a random action")
        return plan_of_episodes(title, tuning.episodes, explore)

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Learns."""
        process, tuning = process_of(problem), self.tuning(settings)
        tables = EpsilonGreedyTables(process, tuning.explore)

        def policy() -> LearnedPolicy:
            return greedy_policy(process, [q[0] for q in tables.q])

        learn_by_episodes(tables, engine, tuning.episodes, Rounds(engine, notify, policy))
        why = "epsilon-greedy Q-learning promises nothing for a finite number of episodes."
        return self.answer(policy(), settings, why)

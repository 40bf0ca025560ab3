"""Q-learning with upper confidence bounds (Jin, Allen-Zhu, Bubeck and Jordan 2018, Algorithm 1, UCB-Hoeffding).

Is Q-learning provably efficient?, NeurIPS. There every reward lies in [0, 1], values reach H, and regret is of order
sqrt(H^4 S A T) with T steps. Here totals lie in [0, 1], so values and bonuses are divided by H: b_t = c sqrt(H iota / t).
In n = T/H episodes regret is then of order sqrt(H^3 S A n).
"""

import math
from dataclasses import dataclass

import numpy as np

from richobs import Episodes, LearnedPolicy, Outcome, Policy, Problem, Settings, TabularProcess
from richobs.core.events import Callback
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

PROVEN = 2.0  # c: Azuma-Hoeffding over weights whose squares sum to at most 2H/t asks for 2 sqrt(H iota / t)


class UcbQTables:
    """R tables over (level, observation) that start at 1; greedy in them, with step (H + 1) / (H + t) and a bonus b_t."""

    def __init__(self, process: TabularProcess, episodes: int, delta: float, c: float = PROVEN, *, runs: int = 1):
        """Makes the tables.

        Args:
            process: numbers the observations.
            episodes: that will be played; iota = log(S A T / delta) with T = episodes H.
            delta: probability that the bounds fail.
            c: scale of the bonus; below `PROVEN` nothing is proven.
            runs: R.
        """
        sizes, H, K = [len(rows) for rows in process.observations], process.horizon, process.n_actions
        self.process = process
        self.q: list[Floats] = [np.ones((runs, size, K)) for size in sizes]
        self._value = [np.ones(q.shape[:2]) for q in self.q]
        self._visits = [np.zeros_like(q) for q in self.q]
        self._bonus = c * math.sqrt(H * math.log(max(sizes) * K * episodes * H / delta))

    @property
    def policy(self) -> Policy:
        """Takes the actions of the largest upper bounds, ties broken at random."""
        return GreedyTables(self.process, self.q)

    @property
    def tried(self) -> int:
        """How many (level, observation, action) triples the first table has seen."""
        return sum(int((v[0] > 0).sum()) for v in self._visits)

    def learn(self, played: Episodes, /) -> None:
        """Moves every step's bound towards reward plus next value plus bonus, first step first, as printed."""
        H, run = self.process.horizon, np.arange(played.n)
        seen = [self.process.encode(level, x) for level, x in enumerate(played.observations)]
        for level, x in enumerate(seen):
            at = (run, x, played.actions[level])
            self._visits[level][at] += 1
            t = self._visits[level][at]
            future: Floats | float = self._value[level + 1][run, seen[level + 1]] if level < H - 1 else 0.0
            step = (H + 1) / (H + t)
            goal = played.rewards[level] + future + self._bonus / np.sqrt(t)
            self.q[level][at] = (1 - step) * self.q[level][at] + step * goal
            self._value[level][run, x] = np.minimum(1.0, self.q[level][run, x].max(axis=1))


@dataclass(frozen=True)
class UcbQTuning:
    """The numbers of UCB-Q that can be chosen."""

    c: float = PROVEN
    """Scale of the bonus; the proof asks for 2, smaller ones learn faster without a proof."""
    episodes: int = 10_000
    """Episodes to play: the method has no stopping rule, and its bonus depends on their number."""

    def __post_init__(self) -> None:
        require_at_least(0, c=self.c)
        require_at_least(1, episodes=self.episodes)


class UcbQ(Rival):
    """UCB-Q as a learner."""

    name = "ucb-q"
    about = "UCB-Q: Q-learning that is greedy in upper confidence bounds and learns after every episode."
    cites = "Jin, Allen-Zhu, Bubeck and Jordan 2018, Algorithm 1"
    given = ("list of observations", "horizon", "number of episodes")
    needs = (unit_rewards, PROCESS)
    promises = Promise(
        "Its tables are upper bounds on Q* with probability at least 1 - delta, and its regret in n episodes with totals in "
        "[0, 1] is of order sqrt(H^3 S A n); nothing is promised of the policy that it returns.",
        ("what is seen is the state", "the bonus has c = 2 at least"),
    )
    costs = "As many episodes as it is told to play (tuning `episodes`)."
    Tuning = UcbQTuning
    traits = Traits(claims=False, level_work=200)
    reads_episodes = "learns after every episode"

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the episodes that it will play."""
        tuning: UcbQTuning = self.tuning(settings)
        bonus = PlanRow("UCB-Q", "c", tuning.c, "", "b_t = c sqrt(H iota / t)")
        return plan_of_episodes("UCB-Q", tuning.episodes, bonus)

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Learns."""
        process, tuning = process_of(problem), self.tuning(settings)
        tables = UcbQTables(process, tuning.episodes, settings.delta, tuning.c)

        def policy() -> LearnedPolicy:
            return greedy_policy(process, [q[0] for q in tables.q])

        learn_by_episodes(tables, engine, tuning.episodes, Rounds(engine, notify, policy))
        why = "UCB-Q bounds the regret of all its episodes together, not the gap of its last policy."
        return self.answer(policy(), settings, why)

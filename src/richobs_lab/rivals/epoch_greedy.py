"""Epoch-Greedy (Langford and Zhang 2007): explore once, then exploit as long as one exploration pays for.

The epoch-greedy algorithm for multi-armed bandits with side information, NeurIPS 20, Algorithm 1. Contextual bandits: one
level. An epoch is one episode with a uniformly random action and s(n) episodes with the policy that is best on the n
explored ones, every reward weighted by K. For N policies s(n) = floor(sqrt(n / (8 K log N))) (Section 4, the finite class,
quoted from memory). Shapes: N functions, K actions.
"""

import math
from dataclasses import dataclass

import numpy as np

from richobs import LearnedPolicy, Outcome, Problem, Settings, Uniform
from richobs.core.errors import EpisodeLimit
from richobs.core.events import Callback
from richobs.core.policies import greedy_actions
from richobs.core.queries import Engine, Query
from richobs.core.types import Member
from richobs.learners.base import Need, Promise, ShortPlan, Traits, unit_rewards
from richobs_lab.rivals.base import Rival, plan_of_episodes, require_at_least
from richobs_lab.rivals.rival_events import Rounds

MOST_FUNCTIONS = 100_000


def exploitation(explored: int, n_actions: int, n_policies: int) -> int:
    """Returns s(n), the episodes that are exploited after n explorations."""
    return math.floor(math.sqrt(explored / (8 * n_actions * math.log(max(n_policies, 2)))))


@dataclass(frozen=True)
class EpochGreedyTuning:
    """The numbers of Epoch-Greedy that can be chosen."""

    episodes: int = 10_000
    """Episodes to play: the method has no stopping rule."""

    def __post_init__(self) -> None:
        require_at_least(1, episodes=self.episodes)


def _many_levels(problem: Problem, settings: Settings) -> str | None:
    return None if problem.horizon == 1 else f"{problem.name} has {problem.horizon} levels."


def _too_many(problem: Problem, settings: Settings) -> str | None:
    if problem.functions.log_size <= math.log(MOST_FUNCTIONS) + 1e-9:
        return None
    return f"it has about 10^{problem.functions.log_size / math.log(10):.1f}."


class EpochGreedy(Rival):
    """Epoch-Greedy as a learner."""

    name = "epoch-greedy"
    about = "Epoch-Greedy: one random action, then the best policy so far for as long as that pays; contextual bandits."
    cites = "Langford and Zhang 2007, Algorithm 1"
    given = ("class of value functions", "number of episodes")
    needs = (
        unit_rewards,
        Need("one level", _many_levels),
        Need(f"a class of at most {MOST_FUNCTIONS:,} functions", _too_many),
    )
    promises = Promise(
        "Its regret is of order T^(2/3) (K log N)^(1/3) in expectation; nothing is promised of the policy that it returns.",
    )
    costs = "As many episodes as it is told to play (tuning `episodes`)."
    Tuning = EpochGreedyTuning
    traits = Traits(claims=False)
    reads_episodes = "learns after every episode"

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the episodes that it will play."""
        return plan_of_episodes("Epoch-Greedy", self.tuning(settings).episodes)

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Learns."""
        functions, K, episodes = problem.functions, problem.n_actions, self.tuning(settings).episodes
        N = functions.level_size(0)
        scores, explored, played = np.zeros(N), 0, 0

        def words() -> str:
            return f"explored {explored:,} times, the best policy is estimated at {scores.max() / explored:.4f}"

        def best() -> LearnedPolicy:
            index = int(scores.argmax())
            member: Member = (index,) if functions.is_product else index
            return LearnedPolicy(functions, member)

        rounds = Rounds(engine, notify, best)
        try:
            while played < episodes:
                one = engine.ask(Query(Uniform(K), 1, "exploration", episodes=True)).episodes
                assert one is not None
                explored, played = explored + 1, played + 1
                reward = float(one.rewards[0][0])
                if reward:
                    agrees = greedy_actions(functions.values(0, one.observations[0]))[:, 0] == one.actions[0][0]
                    scores += K * reward * agrees
                rounds.add(1, reward, words)
                n = min(exploitation(explored, K, N), episodes - played)
                if n:
                    returns = engine.ask(Query.rollout(best(), n, purpose="exploitation")).returns
                    played += n
                    rounds.add(n, returns.mean * n, words)
            rounds.close(words())
        except EpisodeLimit:
            pass
        why = "Epoch-Greedy bounds the regret of its episodes together, not the gap of its last policy."
        return self.answer(best(), settings, why, value_hat=float(scores.max() / explored) if explored else None)

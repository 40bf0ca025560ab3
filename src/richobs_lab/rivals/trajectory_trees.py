"""Trajectory trees (Kearns, Mansour and Ng 2000): the same random episodes judge every policy of a class.

Approximate planning in large POMDPs via reusable trajectories, NeurIPS 12. Where a simulator can be set to any state, a tree
holds one sampled future of every action, and every policy has its return on every tree. Nothing can be set to a state here;
so this is the paper's second method, random trajectories, for simulators that can only be reset: actions are drawn
uniformly, and an episode that a policy agrees with counts K^H times for it. Trees have K^H leaves, so both pay K^H.

The paper bounds the number of trees up to constants, for classes of finite VC dimension. Here the class is finite and
Bernstein's inequality gives the number of episodes. Shapes: N policies, n episodes, K actions.
"""

import itertools
import math

import numpy as np

from richobs import Episodes, FunctionClass, LearnedPolicy, Outcome, Problem, Settings, Uniform
from richobs.core.errors import EpisodeLimit
from richobs.core.events import Callback
from richobs.core.policies import greedy_actions
from richobs.core.queries import Engine, Query
from richobs.core.types import Floats, Member
from richobs.learners.base import Need, PlanRow, Promise, ShortPlan, unit_rewards
from richobs_lab.rivals.base import Rival, near_optimal
from richobs_lab.rivals.rival_events import Rounds

MOST_POLICIES = 10_000
MOST_LEAVES = 1_000_000  # K^H
BATCH = 1_024  # episodes of a query


def enough_episodes(n_policies: int, leaves: int, epsilon: float, delta: float) -> int:
    """Returns episodes after which all estimates are within epsilon/2, with probability 1 - delta, by Bernstein.

    A weighted return lies in [0, K^H] and has a second moment of at most K^H.
    """
    t = epsilon / 2
    return math.ceil(2 * leaves * (1 + t / 3) / t**2 * math.log(2 * n_policies / delta))


def members_of(functions: FunctionClass) -> list[Member]:
    """Returns every function of a class: an index, or one index per level of a product class."""
    if not functions.is_product:
        return list(range(functions.level_size(0)))
    return list(itertools.product(*(range(functions.level_size(h)) for h in range(functions.horizon))))


def weighted_returns(functions: FunctionClass, played: Episodes, n_actions: int) -> Floats:
    """Returns `[N]` sums over random episodes of return times K^levels, where the greedy policy agrees with all actions.

    Args:
        functions: whose greedy policies are judged; in the order of `members_of`.
        played: episodes of uniformly random actions.
        n_actions: K.
    """
    returns = played.returns
    paid = np.flatnonzero(returns != 0)  # others add nothing
    agree = np.ones((1 if functions.is_product else functions.level_size(0), len(paid)), dtype=bool)
    weights = returns[paid]
    for level in range(played.levels):
        over = played.ended[level][paid] if played.ended else np.zeros(len(paid), dtype=bool)
        x, actions = played.observations[level][paid], played.actions[level][paid]
        same = (greedy_actions(functions.values(level, x)) == actions) | over  # after the end nobody acts
        agree = (agree[:, None] & same[None]).reshape(-1, len(paid)) if functions.is_product else agree & same
        weights = weights * np.where(over, 1, n_actions)
    return np.asarray(agree @ weights)


def _too_many_leaves(problem: Problem, settings: Settings) -> str | None:
    if problem.horizon * math.log(problem.n_actions) <= math.log(MOST_LEAVES) + 1e-9:
        return None
    return f"{problem.name} has {problem.n_actions}^{problem.horizon} of them."


def _too_many_policies(problem: Problem, settings: Settings) -> str | None:
    if problem.functions.log_size <= math.log(MOST_POLICIES) + 1e-9:
        return None
    return f"it has about 10^{problem.functions.log_size / math.log(10):.1f}."


class TrajectoryTrees(Rival):
    """Reusable random trajectories as a learner."""

    name = "trajectory-trees"
    about = "Reusable trajectories: judges every policy of the class on the same uniformly random episodes."
    cites = "Kearns, Mansour and Ng 2000, random trajectories"
    given = ("class of value functions", "horizon")
    needs = (
        unit_rewards,
        Need(f"at most {MOST_LEAVES:,} action sequences", _too_many_leaves),
        Need(f"a class of at most {MOST_POLICIES:,} functions", _too_many_policies),
    )
    promises = Promise(
        "With probability 1 - delta the policy's value is within epsilon of that of the best greedy policy of the class; "
        "this is V* where Q* is in the class.",
    )
    costs = "Of order K^H/epsilon^2 log(N/delta) episodes for N functions."
    reads_episodes = "learns after every episode"

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the episodes."""
        N, leaves = round(math.exp(problem.functions.log_size)), problem.n_actions**problem.horizon
        n = enough_episodes(N, leaves, settings.epsilon, settings.delta)
        lines = (
            PlanRow("reusable trajectories", "policies", N, "policies", "greedy in a function of the class"),
            PlanRow("reusable trajectories", "leaves", leaves, "action sequences", "K^H"),
        )
        return ShortPlan("reusable trajectories", n, lines)

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Learns."""
        functions, K = problem.functions, problem.n_actions
        members, n = members_of(functions), self.plan(problem, settings).max_episodes
        assert n is not None
        sums, played, stopped = np.zeros(len(members)), 0, None

        def policy() -> LearnedPolicy:
            return LearnedPolicy(functions, members[int(sums.argmax())])

        rounds = Rounds(engine, notify, policy)

        def words() -> str:
            return f"the best of {len(members):,} policies is estimated at {sums.max() / played:.4f}"

        while played < n:
            size = min(BATCH, n - played)
            try:
                episodes = engine.ask(Query(Uniform(K), size, "random trajectory", episodes=True)).episodes
            except EpisodeLimit as limit:
                stopped = str(limit)
                break
            assert episodes is not None
            sums += weighted_returns(functions, episodes, K)
            played += size
            rounds.add(size, float(episodes.returns.sum()), words)
        if stopped is None:
            rounds.close(words())
        best = int(sums.argmax())
        wording = near_optimal(settings, engine.ledger, "that of the best greedy policy of the class")
        return self.answer(
            policy(),
            settings,
            "the episodes allowed were spent before the estimates were accurate enough.",
            finished=stopped is None,
            wording=wording,
            remarks=() if stopped is None else (stopped,),
            value_hat=float(sums[best] / played) if played else None,
        )

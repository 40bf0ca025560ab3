"""LSVI-UCB (Jin, Yang, Wang and Jordan 2020, Algorithm 1): least-squares value iteration with a bonus for uncertainty.

Provably efficient reinforcement learning with linear function approximation, COLT. There every reward lies in [0, 1] and
values reach H, with the bonus beta = c d H sqrt(iota), iota = log(2 d T / delta). Here it is c d sqrt(iota) times the range
of totals. It plans again when its episodes have grown by an eighth, not after each one. Shapes: X contexts, K actions, d
features, n episodes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from richobs import Episodes, LearnedPolicy, Linear, Outcome, Problem, Settings
from richobs.core.errors import EpisodeLimit
from richobs.core.events import Callback
from richobs.core.queries import Engine, Query
from richobs.core.types import Floats, Ints
from richobs.learners.base import Need, PlanRow, Promise, ShortPlan, Traits
from richobs_lab.rivals.base import Rival, plan_of_episodes, require_at_least
from richobs_lab.rivals.rival_events import SEARCH, Rounds

GROWTH = 8  # a plan is kept while episodes grow by one in so many
LEAST = 16  # episodes of a plan


def _no_contexts(problem: Problem, settings: Settings) -> str | None:
    functions = problem.functions
    if isinstance(functions, Linear) and not functions.has_list and functions.contexts is not None:
        return None
    return "its class is another one. Give richobs.Linear(features, contexts=...) without parameters."


@dataclass(frozen=True)
class LsviUcbTuning:
    """The numbers of LSVI-UCB that can be chosen."""

    c: float = 1.0
    """Scale of the bonus."""
    episodes: int = 10_000
    """Episodes to play: the method has no stopping rule, and its bonus depends on their number."""

    def __post_init__(self) -> None:
        require_at_least(0, c=self.c)
        require_at_least(1, episodes=self.episodes)


def planned(
    phi: Sequence[Floats], seen: Sequence[tuple[Ints, Ints, Floats]], beta: float, cut: tuple[float, float]
) -> list[Ints]:
    """Returns per level `[X]` the actions of regularised least squares backwards over levels, with a bonus.

    Args:
        phi: per level `[X, K, d]` features.
        seen: per level `[n]` contexts, actions and rewards; context -1 after an end.
        beta: bonus of phi is beta |phi| in the norm of the inverse of A.
        cut: smallest and largest value.
    """
    actions: list[Ints] = []
    v = np.zeros(1)
    for h in reversed(range(len(phi))):
        x, a, r = seen[h]
        live = x >= 0
        y = r[live]
        if h + 1 < len(phi):
            after = seen[h + 1][0][live]
            y = y + np.where(after >= 0, v[after], 0.0)
        rows = phi[h][x[live], a[live]]
        inverse = np.linalg.inv(rows.T @ rows + np.eye(rows.shape[1]))
        q = phi[h] @ (inverse @ (rows.T @ y)) + beta * np.sqrt(((phi[h] @ inverse) * phi[h]).sum(axis=2))
        v = np.clip(q.max(axis=1), *cut)
        actions.insert(0, q.argmax(axis=1))
    return actions


class LsviUcb(Rival):
    """LSVI-UCB as a learner."""

    name = "lsvi-ucb"
    about = "LSVI-UCB: least-squares value iteration that is greedy in upper confidence bounds, for linear MDPs."
    cites = "Jin, Yang, Wang and Jordan 2020, Algorithm 1"
    given = ("features", "list of contexts", "horizon", "number of episodes")
    needs = (Need("features of contexts that are listed", _no_contexts),)
    promises = Promise(
        "In a linear MDP its regret in n episodes is of order sqrt(d^3 H^4 n), with rewards in [0, 1]; nothing is promised "
        "of the policy that it returns.",
        ("rewards and laws of what is seen next are linear in the features",),
    )
    costs = "As many episodes as it is told to play (tuning `episodes`)."
    Tuning = LsviUcbTuning
    traits = Traits(claims=False, without_list=True, level_work=200)
    reads_episodes = "fits values to single steps"

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the episodes that it will play."""
        self.check_needs(problem, settings)
        tuning: LsviUcbTuning = self.tuning(settings)
        beta = PlanRow("LSVI-UCB", "c", tuning.c, "", "beta = c d sqrt(log(2 d T/delta)) times the range of totals")
        return plan_of_episodes("LSVI-UCB", tuning.episodes, beta)

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Learns."""
        functions, tuning = problem.functions, self.tuning(settings)
        assert isinstance(functions, Linear)
        assert functions.contexts is not None, "its need was checked"
        books, H, d = functions.contexts, functions.horizon, functions.dim
        low, high = problem.env.reward_range
        phi = [functions.phi(h, book.rows) for h, book in enumerate(books)]
        beta = tuning.c * d * math.sqrt(math.log(2 * d * tuning.episodes * H / settings.delta)) * (high - low)
        cut = min(low, 0.0), max(high, 0.0)
        nothing = np.zeros(0, dtype=np.int64)
        seen = [(nothing, nothing, np.zeros(0)) for _ in range(H)]

        def policy(bonus: float) -> LearnedPolicy:
            tables = planned(phi, seen, bonus, cut)
            lists = [None if book.is_plain else book for book in books]
            return LearnedPolicy.from_table(lists, tables, n_actions=functions.n_actions)

        rounds, n = Rounds(engine, notify, lambda: policy(0.0)), 0
        try:
            while n < tuning.episodes:
                size = min(max(LEAST, n // GROWTH), tuning.episodes - n)
                played = engine.ask(Query(policy(beta), size, "LSVI-UCB", SEARCH, episodes=True)).episodes
                assert played is not None, "the query wants episodes"
                seen = [_more(seen[h], played, h, functions) for h in range(H)]
                n += size
                rounds.add(size, float(played.returns.sum()), lambda: "values were fitted again")
        except EpisodeLimit:
            pass
        why = "LSVI-UCB bounds the regret of all its episodes together, not the gap of its last policy."
        return self.answer(policy(0.0), settings, why)


def _more(seen: tuple[Ints, Ints, Floats], played: Episodes, h: int, functions: Linear) -> tuple[Ints, Ints, Floats]:
    """Returns contexts, actions and rewards of a level with those of more episodes; context -1 after an end."""
    assert functions.contexts is not None, "its need was checked"
    live = ~played.ended[h] if played.ended else np.ones(played.n, dtype=bool)
    x = np.full(played.n, -1)
    x[live] = functions.contexts[h].encode(played.observations[h][live])
    actions, rewards = np.where(live, played.actions[h], 0), np.where(live, played.rewards[h], 0.0)
    return np.concatenate([seen[0], x]), np.concatenate([seen[1], actions]), np.concatenate([seen[2], rewards])

"""RegressorElimination (Agarwal, Dudik, Kale, Langford and Schapire 2012): contextual bandits, a class with E[r|x,a] in it.

Contextual bandit learning with predictable rewards, AISTATS, Algorithm 1. It knows the law of the contexts, as there.
Shapes: N functions, X contexts, K actions.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from richobs import InvalidInput, LearnedPolicy, Outcome, Problem, Settings, TabularProcess
from richobs.core.errors import EpisodeLimit
from richobs.core.events import Callback
from richobs.core.policies import greedy_actions
from richobs.core.queries import Engine
from richobs.core.types import Floats, Ints, Mask
from richobs.learners.base import Need, PlanRow, Promise, ShortPlan, Traits, unit_rewards
from richobs_lab.rivals.base import Rival, near_optimal, require_at_least
from richobs_lab.rivals.rival_events import Rounds, tell_nobody
from richobs_lab.rivals.tabular import PROCESS, TableLaw, counted, earned_in, process_of

CONFIDENCE = 18.0  # functions survive within CONFIDENCE log(1/delta_t) / t of the smallest risk
SLACK = 1e-3  # share by which the condition on the distribution may be missed
SOLVER_STEPS = 10_000  # at most; the condition is checked after each
LEAST_BATCH = 1 / 64  # a distribution is kept for at least this share of the rounds so far
MOST_VALUES = 20_000_000  # of all functions at all contexts, which are held at once


class Elimination(NamedTuple):
    """What a run came to."""

    member: int  # the function whose policy is the answer
    policy: Ints  # [X] the action for each context
    episodes: int
    survivors: Mask  # [N]
    finished: bool  # the survivors prove the policy epsilon-optimal; otherwise the rounds or episodes were spent


def regressor_elimination(
    engine: Engine,
    process: TabularProcess,
    tables: Floats,
    *,
    epsilon: float,
    delta: float,
    max_rounds: int,
    notify: Callback = tell_nobody,
) -> Elimination:
    """Plays until the surviving functions agree that one policy is epsilon-optimal.

    Departs from the paper, which bounds regret over T rounds: the true function survives with probability 1 - delta, so a
    policy whose regret is at most epsilon under *every* survivor is epsilon-optimal. And survivors are looked at after
    batches that grow with t rather than after each round, at which point actions only depend on older eliminations.

    Args:
        engine: plays the bandit; where its ledger allows no more episodes, the best policy so far is the answer.
        process: the bandit, H = 1; its law of the contexts is known to the method.
        tables: `[N, X, K]` the class; one of them is E[r|x,a].
        epsilon: largest allowed gap between the policy's value and V*.
        delta: probability that the gap is larger.
        max_rounds: T, which sets the least probability mu of an action.
        notify: told about rounds.
    """
    if process.horizon != 1 or len(process.start) != 1:
        raise InvalidInput("regressor elimination plays contextual bandits: one level, one state.")
    N, _, K = tables.shape
    contexts = process.emissions[0][0]  # [X]
    greedy = greedy_actions(tables)  # [N, X] pi_f
    mu = min(1 / (2 * K), 1 / math.sqrt(max_rounds))
    risk = np.zeros(N)  # summed squared errors, less the sum of r^2, which is the same for all functions
    alive = np.ones(N, dtype=bool)
    t = 0
    chances = exploring_distribution(greedy, contexts, K, mu)
    rounds = Rounds(engine, notify)

    def words() -> str:
        return f"{int(alive.sum()):,} of {N:,} functions survive"

    regret, best = _worst_regret(tables, greedy, contexts, alive)
    while regret > epsilon and t < max_rounds:
        n = min(max(1, int(t * LEAST_BATCH)), max_rounds - t)
        try:
            tally = counted(engine, TableLaw(process, [chances]), n)
        except EpisodeLimit:
            return Elimination(best, greedy[best], t, alive, False)
        risk += ((tables * tally.visits[0] - 2 * tally.rewards[0]) * tables).sum(axis=(1, 2))
        t += n
        delta_t = delta / (2 * N * t**3 * max(1.0, math.log2(t)))
        survive = alive & (risk < risk[alive].min() + CONFIDENCE * math.log(1 / delta_t))
        if (survive != alive).any():
            alive = survive
            regret, best = _worst_regret(tables, greedy, contexts, alive)
            chances = exploring_distribution(greedy[alive], contexts, K, mu)
        rounds.add(n, earned_in(tally), words)
    rounds.close(words())
    return Elimination(best, greedy[best], t, alive, regret <= epsilon)


def exploring_distribution(greedy: Ints, contexts: Floats, n_actions: int, mu: float) -> Floats:
    """Returns `[X, K]` P'(a|x) with E_x[1 / P'(pi_f(x)|x)] <= E_x |A(x)| for every f, A(x) the actions some pi_f takes.

    P' mixes a distribution P over functions with K mu of uniform play over A(x), so each of its actions has at least mu.
    Maximising E_x sum_{a in A(x)} log P'(a|x) over P gives the condition: at the optimum the left side is at most
    E_x sum_a P(a|x) / P'(a|x), and each of those sums is at most |A(x)|. Found by expectation maximisation.

    Args:
        greedy: `[N, X]` the policies of the functions left.
        contexts: `[X]` law of the contexts.
        n_actions: K.
        mu: least probability of an action in A(x).
    """
    policies = np.unique(greedy, axis=0)
    taken = np.eye(n_actions)[policies]  # [P, X, K]
    offered = taken.any(axis=0)  # [X, K]
    choices = offered.sum(axis=1, keepdims=True)  # [X, 1] |A(x)|
    bound = float(contexts @ choices[:, 0])
    weights = np.full(len(policies), 1 / len(policies))
    chances = offered / choices
    for _ in range(SOLVER_STEPS):
        mixed = (1 - n_actions * mu) * np.einsum("p,pxk->xk", weights, taken) + n_actions * mu / choices
        chances = np.where(offered, mixed, 0.0)
        inverse = np.divide(1.0, chances, out=np.zeros_like(chances), where=offered)
        load = np.einsum("x,xk,pxk->p", contexts, inverse, taken)
        if load.max() <= bound * (1 + SLACK):
            break
        weights = weights * load / (weights @ load)
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))  # rounding may have passed 1


def _worst_regret(tables: Floats, greedy: Ints, contexts: Floats, alive: Mask) -> tuple[float, int]:
    """Returns the smallest, over survivors g, of the largest regret of pi_g under a survivor f, and the first such g."""
    members = np.flatnonzero(alive)
    f = tables[members]  # [n, X, K]
    promise = f.max(axis=2) @ contexts  # [n]
    columns = np.arange(len(contexts))
    policies, first = np.unique(greedy[members], axis=0, return_index=True)
    worst = np.array([(promise - f[:, columns, policy] @ contexts).max() for policy in policies])
    return float(worst.min()), int(members[first[worst == worst.min()].min()])


@dataclass(frozen=True)
class RegressorEliminationTuning:
    """The numbers of RegressorElimination that can be chosen."""

    max_rounds: int = 2_000_000
    """T: the most rounds, from which the least probability of an action follows."""

    def __post_init__(self) -> None:
        require_at_least(1, max_rounds=self.max_rounds)


def _not_a_bandit(problem: Problem, settings: Settings) -> str | None:
    if problem.horizon != 1:
        return f"{problem.name} has {problem.horizon} levels."
    if problem.process is not None and len(problem.process.start) != 1:
        return f"{problem.name} has {len(problem.process.start)} states."
    return None


def _too_many_values(problem: Problem, settings: Settings) -> str | None:
    if problem.process is None:
        return None
    contexts = len(problem.process.observations[0])
    values = problem.functions.level_size(0) * contexts * problem.n_actions
    if values <= MOST_VALUES:
        return None
    return f"{problem.functions.level_size(0):,} functions of {contexts:,} contexts have {values:,} values."


class RegressorElimination(Rival):
    """RegressorElimination as a learner."""

    name = "regressor-elimination"
    about = "RegressorElimination: contextual bandits with a class of reward predictors, the wrong ones dropped."
    cites = "Agarwal, Dudik, Kale, Langford and Schapire 2012, Algorithm 1"
    given = ("class of value functions", "list of observations", "one state")
    needs = (
        unit_rewards,
        PROCESS,
        Need("a contextual bandit, one level and one state", _not_a_bandit),
        Need(f"a class with at most {MOST_VALUES:,} values over all contexts", _too_many_values),
    )
    promises = Promise(
        "When the survivors agree: with probability 1 - delta the policy's value is within epsilon of V*.",
        ("E[r|x,a] is in the class", "the law of the contexts is known"),
    )
    costs = "Of order K/epsilon^2 log(N/delta)."
    Tuning = RegressorEliminationTuning
    traits = Traits(counts=True)

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the most rounds."""
        T = self.tuning(settings).max_rounds
        lines = (PlanRow("RegressorElimination", "T", T, "episodes", "tuning: the most rounds"),)
        return ShortPlan("RegressorElimination", T, lines)

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Learns."""
        process, functions = process_of(problem), problem.functions
        tables = functions.values(0, process.observations[0])
        end = regressor_elimination(
            engine,
            process,
            tables,
            epsilon=settings.epsilon,
            delta=settings.delta,
            max_rounds=self.tuning(settings).max_rounds,
            notify=notify,
        )
        wording = near_optimal(settings, engine.ledger, "optimal", "E[r|x,a] is in the class")
        return self.answer(
            LearnedPolicy(functions, (end.member,) if functions.is_product else end.member),
            settings,
            "the rounds were spent before the surviving functions agreed on a policy.",
            finished=end.finished,
            wording=wording,
            log_size=math.log(end.survivors.sum()),
        )

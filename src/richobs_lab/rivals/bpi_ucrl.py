"""BPI-UCRL (Kaufmann, Menard, Darwiche Domingues, Jonsson, Leurent and Valko 2021): bounds from above and below meet.

Adaptive reward-free exploration, ALT, Section 4: best-policy identification. Upper and lower bounds on Q* are planned over
all models whose transitions lie in a Kullback-Leibler ball. It plays the policy of the upper bounds, stops when both bounds
on V* are within epsilon, and answers with the policy of the lower bounds. Here totals lie in [0, 1], rewards are random and
not known, and the start may be random: each has a ball of its own. Shapes: X states of a level, X' of the next, K actions.
"""

import math
from typing import NamedTuple

import numpy as np

from richobs import Problem, Settings, TabularProcess
from richobs.core.events import Callback
from richobs.core.queries import Engine, Tally
from richobs.core.types import Floats
from richobs.learners.base import PlanRow, Promise, ShortPlan
from richobs.stats.bets import kl_upper
from richobs_lab.rivals.rival_events import Rounds, tell_nobody
from richobs_lab.rivals.tabular import (
    EmpiricalModel,
    Learned,
    TabularRival,
    best_actions,
    greedy_policy,
    n_pairs,
    play_batches,
    process_of,
)

LEAST_BATCH = 1 / 16  # a policy is kept for at least this share of the episodes so far
TILTS = np.geomspace(1e-6, 1e4, 61)  # where the dual of the ball is evaluated; every place gives a bound


def radius(visits: Floats, support: int, delta: float) -> Floats:
    """Returns beta(n, delta) / n, within which KL(counted, true) lies for all n at once with probability 1 - delta.

    beta(n, delta) = log(1/delta) + (m - 1) log(e (1 + n/(m - 1))) for laws on m points (Jonsson et al. 2020, Planning in
    Markov decision processes with gap-dependent sample complexity, Proposition 1). A likelihood ratio averaged over a
    uniform Dirichlet law is a martingale, and at least exp(n KL) over the binomial coefficient of n + m - 1 and m - 1. The
    mean of rewards in [0, 1] is covered with m = 2, because a likelihood ratio is convex in the reward.

    Args:
        visits: n, any shape; 0 gives infinity.
        support: m.
        delta: probability that it fails for some n.
    """
    if support == 1:
        return np.zeros_like(visits)
    n = np.maximum(visits, 1)
    beta = math.log(1 / delta) + (support - 1) * (1 + np.log1p(n / (support - 1)))
    return np.where(visits > 0, beta / n, np.inf)


def ball_upper(law: Floats, values: Floats, budget: Floats) -> Floats:
    """Returns `[...]` a number that p @ values exceeds for no p with KL(law, p) <= budget.

    For every v above all values, p @ values <= v - exp(-budget) exp(law @ log(v - values)), by Jensen's inequality. The
    smallest over a grid of v is returned: each of them is a bound, and at the best v the bound is met.

    Args:
        law: `[..., X]` counted probabilities.
        values: `[X]`.
        budget: `[...]` size of the ball; infinity allows every p.
    """
    top = float(values.max())
    spread = top - float(values.min())
    if spread <= 0:
        return np.full(budget.shape, top)
    best = np.full(budget.shape, top)
    scale = np.exp(-budget)
    for tilt in TILTS * spread:
        best = np.minimum(best, top + tilt - scale * np.exp(law @ np.log(top + tilt - values)))
    return best


class Bounds(NamedTuple):
    """Bounds on Q* and V*."""

    upper: tuple[Floats, ...]  # per level [X, K]
    lower: tuple[Floats, ...]  # per level [X, K]
    best: float  # V* is at most
    sure: float  # the value of the policy of the lower bounds is at least


def plan_bounds(model: EmpiricalModel, delta: float) -> Bounds:
    """Returns bounds that all hold, for all numbers of episodes at once, with probability 1 - delta.

    Args:
        model: what was counted.
        delta: split evenly over rewards and transitions of all pairs, and the start.
    """
    share = delta / (2 * sum(v.size for v in model.visits) + 1)
    upper: list[Floats] = []
    lower: list[Floats] = []
    for level in reversed(range(len(model.visits))):
        visits = model.visits[level]
        n = np.maximum(visits, 1)
        mean = np.clip(model.rewards[level] / n, 0.0, 1.0)
        rate = radius(visits, 2, share)
        high, low = kl_upper(mean, rate), 1 - kl_upper(1 - mean, rate)
        if upper:
            law = model.moves[level] / n[:, :, None]
            budget = radius(visits, law.shape[2], share)
            high = high + ball_upper(law, upper[0].max(axis=1), budget)
            low = low - ball_upper(law, -lower[0].max(axis=1), budget)
        upper.insert(0, np.where(visits > 0, np.minimum(high, 1.0), 1.0))
        lower.insert(0, np.where(visits > 0, np.clip(low, 0.0, 1.0), 0.0))
    begun = model.visits[0].sum(axis=1)
    start = begun / max(begun.sum(), 1.0)
    budget = radius(np.array(begun.sum()), len(begun), share)
    best = float(ball_upper(start, upper[0].max(axis=1), budget))
    sure = -float(ball_upper(start, -lower[0].max(axis=1), budget))
    return Bounds(tuple(upper), tuple(lower), min(best, 1.0), max(sure, 0.0))


def bpi_ucrl(
    engine: Engine,
    process: TabularProcess,
    *,
    epsilon: float,
    delta: float,
    notify: Callback = tell_nobody,
) -> tuple[Learned, Bounds]:
    """Plays the policy of the upper bounds until the bounds on V* are within epsilon.

    Departs from the paper, which plans after every episode: a policy is kept for batches that grow with the episodes so
    far. The bounds hold at all times, so looking less often spends nothing.

    Args:
        engine: plays the process; where its ledger allows no more episodes, the bounds so far are the answer.
        process: numbers the states, all of which are seen.
        epsilon: largest allowed gap between the policy's value and V*.
        delta: probability that the gap is larger.
        notify: told about rounds.
    """
    model = EmpiricalModel(process)
    bounds = plan_bounds(model, delta)

    def size(played: int) -> int:
        return 0 if bounds.best - bounds.sure <= epsilon else max(1, int(played * LEAST_BATCH))

    def take(tally: Tally, played: int) -> None:
        nonlocal bounds
        model.add(tally)
        bounds = plan_bounds(model, delta)

    def words() -> str:
        return f"V* is at most {bounds.best:.4f}, and the policy's value at least {bounds.sure:.4f}"

    rounds = Rounds(engine, notify, lambda: greedy_policy(process, bounds.lower))
    end = play_batches(engine, process, rounds, size, lambda: bounds.upper, take, words)
    return Learned(best_actions(bounds.lower), bounds.lower, end.episodes, end.finished, remarks=end.remarks), bounds


class BpiUcrl(TabularRival):
    """BPI-UCRL as a learner."""

    name = "bpi-ucrl"
    about = "BPI-UCRL: best-policy identification, upper and lower bounds planned over Kullback-Leibler balls."
    cites = "Kaufmann, Menard, Darwiche Domingues, Jonsson, Leurent and Valko 2021, BPI-UCRL"
    promises = Promise(
        "When its bounds meet: with probability 1 - delta the policy's value is within epsilon of V*.",
        ("what is seen is the state",),
    )
    costs = "Of order S A H^3/epsilon^2 (log(1/delta) + S) episodes, with totals in [0, 1]."
    unfinished = "the episodes allowed were spent before the bounds were within epsilon."

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns what enters its bounds; how many episodes they need is not known before."""
        process = process_of(problem)
        pairs = n_pairs(process)
        lines = (
            PlanRow("BPI-UCRL", "pairs", pairs, "pairs", "(level, state, action)"),
            PlanRow(
                "BPI-UCRL", "share", settings.delta / (2 * pairs + 1), "", "delta of each ball: delta / (2 pairs + 1)"
            ),
        )
        return ShortPlan("BPI-UCRL", None, lines)

    def learn(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Learned:
        """Plays until the bounds are within epsilon."""
        process = process_of(problem)
        return bpi_ucrl(engine, process, epsilon=settings.epsilon, delta=settings.delta, notify=notify)[0]

"""RegressorElimination (Agarwal, Dudik, Kale, Langford and Schapire 2012): contextual bandits, a class with E[r|x,a] in it.

Contextual bandit learning with predictable rewards, AISTATS, Algorithm 1. It knows the law of the contexts, as there.
"""

import math
from typing import NamedTuple

import numpy as np

from richobs.errors import InvalidInput
from richobs.problem import Floats, Ints, Mask
from richobs.tabular import TabularProcess

CONFIDENCE = 18.0  # functions survive within CONFIDENCE log(1/delta_t) / t of the smallest risk
SLACK = 1e-3  # share by which the condition on the distribution may be missed
SOLVER_STEPS = 10_000  # at most; the condition is checked after each
LEAST_BATCH = 1 / 64  # a distribution is kept for at least this share of the rounds so far


class Elimination(NamedTuple):
    """What a run came to."""

    policy: Ints  # [X] the action for each context
    episodes: int
    survivors: Mask  # [N]
    finished: bool  # the survivors prove the policy epsilon-optimal; otherwise the rounds were spent


def regressor_elimination(
    process: TabularProcess,
    tables: Floats,
    *,
    epsilon: float,
    delta: float,
    max_rounds: int,
    rng: np.random.Generator,
) -> Elimination:
    """Plays until the surviving functions agree that one policy is epsilon-optimal.

    Departs from the paper, which bounds regret over T rounds: the true function survives with probability 1 - delta, so a
    policy whose regret is at most epsilon under *every* survivor is epsilon-optimal. And survivors are looked at after
    batches that grow with t rather than after each round, at which point actions only depend on older eliminations.

    Args:
        process: the bandit, H = 1; contexts and rewards are drawn from it.
        tables: `[N, X, K]` the class; one of them is E[r|x,a].
        epsilon: how far from optimal the policy may be.
        delta: how often it may be farther.
        max_rounds: T, which sets the least probability mu of an action.
        rng: of contexts, actions and rewards.
    """
    if process.horizon != 1 or len(process.start) != 1:
        raise InvalidInput("regressor elimination plays contextual bandits: one level, one state.")
    N, _, K = tables.shape
    contexts = process.emissions[0][0]  # [X]
    greedy = tables.argmax(axis=2)  # [N, X] pi_f
    mu = min(1 / (2 * K), 1 / math.sqrt(max_rounds))
    risk = np.zeros(N)  # summed squared errors
    alive = np.ones(N, dtype=bool)
    t = 0
    chances = exploring_distribution(greedy, contexts, K, mu)
    while True:
        regret, best = _worst_regret(tables, greedy, contexts, alive)
        if regret <= epsilon or t >= max_rounds:
            return Elimination(greedy[best], t, alive, regret <= epsilon)
        n = min(max(1, int(t * LEAST_BATCH)), max_rounds - t)
        x = rng.choice(len(contexts), size=n, p=contexts)
        a = (chances[x].cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1).clip(max=K - 1)
        r = _rewards(process, x, a, rng)
        risk += ((tables[:, x, a] - r) ** 2).sum(axis=1)
        t += n
        delta_t = delta / (2 * N * t**3 * max(1.0, math.log2(t)))
        survive = alive & (risk < risk[alive].min() + CONFIDENCE * math.log(1 / delta_t))
        if (survive != alive).any():
            alive = survive
            chances = exploring_distribution(greedy[alive], contexts, K, mu)


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
    return chances


def _worst_regret(tables: Floats, greedy: Ints, contexts: Floats, alive: Mask) -> tuple[float, int]:
    """Returns the smallest, over survivors g, of the largest regret of pi_g under a survivor f, and that g."""
    members = np.flatnonzero(alive)
    f = tables[members]  # [n, X, K]
    promise = f.max(axis=2) @ contexts  # [n]
    columns = np.arange(len(contexts))
    worst = np.array([(promise - f[:, columns, greedy[g]] @ contexts).max() for g in members])
    return float(worst.min()), int(members[worst.argmin()])


def _rewards(process: TabularProcess, x: Ints, a: Ints, rng: np.random.Generator) -> Floats:
    rewards = process.rewards[0]
    steps = rewards.probs[0, x, a].cumsum(axis=1)
    point = (steps < rng.random(len(x))[:, None]).sum(axis=1).clip(max=steps.shape[1] - 1)
    return rewards.values[0, x, a, point]

"""Successive elimination (Even-Dar, Mannor and Mansour 2006, Algorithm 2, unknown biases).

Action elimination and stopping conditions for the multi-armed bandit and reinforcement learning problems, JMLR 7.
"""

import math

import numpy as np

from richobs import Problem, Settings
from richobs.learners.base import PlanRow, ShortPlan
from richobs_lab.rivals.arms import Arms, BestArmLearner, Choice, Scores

C = 4.0  # by Hoeffding the bounds fail with probability at most delta pi^2 / (3 C): any C >= 3.29 does
BATCH = 1 / 16  # as a learner it plays this share of the rounds so far between two looks


def confidence(t: int, n_arms: int, delta: float) -> float:
    """Returns alpha_t = sqrt(log(C n t^2 / delta) / t)."""
    return math.sqrt(math.log(C * n_arms * t**2 / delta) / t)


def successive_elimination(
    arms: Arms,
    delta: float,
    rng: np.random.Generator,
    *,
    budget: int | None = None,
    epsilon: float = 0.0,
    batch: float = 0.0,
) -> Choice:
    """Returns the best arm with probability at least 1 - delta, or one that is epsilon-optimal.

    In round t every surviving arm is pulled once, and those whose mean is below the best one by 2 alpha_t or more are
    dropped. Departs from the paper where asked to: the best mean is epsilon-optimal as soon as 2 alpha_t <= epsilon, so it
    also stops then; and survivors may be looked at after some rounds only, since the bounds hold in all rounds at once.

    Args:
        arms: n of them.
        delta: probability that the answer is wrong.
        rng: of pulls and ties.
        budget: most pulls; when it is spent, or the arms run out, the best mean of the survivors is returned.
        epsilon: gap to the best arm that is good enough; 0 asks for the best arm.
        batch: rounds from one look to the next, as a share of those so far; 0 looks after every round.
    """
    scores = Scores(arms, budget, rng)
    alive = np.arange(arms.n_arms)
    t = 0
    while len(alive) > 1:
        times = max(1, int(t * batch))
        if not scores.pull(alive, times):
            return scores.best(alive, finished=False)
        t += times
        means = scores.means(alive)
        alpha = confidence(t, arms.n_arms, delta)
        alive = alive[means.max() - means < 2 * alpha]
        if 2 * alpha <= epsilon:
            break
    return scores.best(alive, finished=True)


class SuccessiveElimination(BestArmLearner):
    """Successive elimination as a learner."""

    name = "successive-elimination"
    about = "Plays all action sequences in turn and drops those that are surely not the best."
    cites = "Even-Dar, Mannor and Mansour 2006, Algorithm 2"
    costs = "For each of K^H action sequences of order 1/gap^2 log(K^H/(delta gap)), gap at least epsilon."

    def choose(self, arms: Arms, settings: Settings, rng: np.random.Generator) -> Choice:
        """Returns the arm that is left, or the best one when all that are left are good enough."""
        return successive_elimination(arms, settings.delta, rng, epsilon=settings.epsilon, batch=BATCH)

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the most rounds, and the most pulls of all."""
        n_arms, t = problem.n_actions**problem.horizon, 1
        while 2 * confidence(t, n_arms, settings.delta) > settings.epsilon:
            t += max(1, int(t * BATCH))
        lines = (
            PlanRow("successive elimination", "arms", n_arms, "action sequences", "K^H"),
            PlanRow("successive elimination", "rounds", t, "episodes", "of each at most: 2 alpha_t <= epsilon"),
        )
        return ShortPlan("successive elimination", n_arms * t if n_arms > 1 else 0, lines)

"""Uniform allocation: pull every arm equally often (the naive algorithm of Even-Dar, Mannor and Mansour 2006, Section 3)."""

import math

import numpy as np

from richobs import Problem, Settings
from richobs.learners.base import PlanRow, ShortPlan
from richobs_lab.rivals.arms import Arms, BestArmLearner, Choice, Scores


def naive_pulls(n_arms: int, epsilon: float, delta: float) -> int:
    """Returns how often each arm is pulled so that the best mean is epsilon-optimal with probability 1 - delta."""
    return math.ceil(4 / epsilon**2 * math.log(2 * n_arms / delta))


def uniform_allocation(arms: Arms, budget: int, rng: np.random.Generator) -> Choice:
    """Spends `budget` pulls equally (what is left of a round goes to random arms) and returns the best mean.

    With `n_arms * naive_pulls(...)` pulls the answer is epsilon-optimal with probability at least 1 - delta.
    """
    scores = Scores(arms, budget, rng)
    everyone = np.arange(arms.n_arms)
    scores.pull_in_rounds(everyone, -(-budget // arms.n_arms))
    return scores.best(everyone, finished=int(scores.pulls.sum()) == budget)


class UniformAllocation(BestArmLearner):
    """Uniform allocation as a learner."""

    name = "uniform-allocation"
    about = "Plays every action sequence equally often and takes the one that earned most."
    cites = "Even-Dar, Mannor and Mansour 2006, Section 3"
    costs = "K^H times 4/epsilon^2 log(2 K^H/delta) episodes."

    def choose(self, arms: Arms, settings: Settings, rng: np.random.Generator) -> Choice:
        """Returns the arm with the best mean."""
        pulls = naive_pulls(arms.n_arms, settings.epsilon, settings.delta)
        return uniform_allocation(arms, arms.n_arms * pulls, rng)

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the pulls of each arm, and of all."""
        n_arms = problem.n_actions**problem.horizon
        pulls = naive_pulls(n_arms, settings.epsilon, settings.delta)
        lines = (
            PlanRow("uniform allocation", "arms", n_arms, "action sequences", "K^H"),
            PlanRow("uniform allocation", "pulls", pulls, "episodes", "of each: 4/epsilon^2 log(2 arms/delta)"),
        )
        return ShortPlan("uniform allocation", n_arms * pulls, lines)

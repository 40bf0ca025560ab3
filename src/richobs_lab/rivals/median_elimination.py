"""Median elimination (Even-Dar, Mannor and Mansour 2006, Algorithm 3): O(n / epsilon^2 log(1/delta)) pulls.

Action elimination and stopping conditions for the multi-armed bandit and reinforcement learning problems, JMLR 7.
"""

import math
from collections.abc import Iterator

import numpy as np

from richobs import Problem, Settings
from richobs.learners.base import PlanRow, ShortPlan
from richobs_lab.rivals.arms import Arms, BestArmLearner, Choice, Scores


def round_pulls(epsilon: float, delta: float) -> Iterator[int]:
    """Yields how often round l pulls each survivor: 4 / epsilon_l^2 log(3 / delta_l).

    epsilon_1 = epsilon/4 and delta_1 = delta/2, then 3/4 and 1/2 of them from round to round.
    """
    epsilon_l, delta_l = epsilon / 4, delta / 2
    while True:
        yield math.ceil(4 / epsilon_l**2 * math.log(3 / delta_l))
        epsilon_l, delta_l = 3 / 4 * epsilon_l, delta_l / 2


def median_elimination(
    arms: Arms, epsilon: float, delta: float, rng: np.random.Generator, *, budget: int | None = None
) -> Choice:
    """Returns an epsilon-optimal arm with probability at least 1 - delta.

    Every round pulls the survivors afresh and keeps the better half. Printed, arms below the median go; here exactly half of
    them do, also among ties, so that every round ends with fewer arms.

    Args:
        arms: n of them.
        epsilon: largest allowed gap between the answer's mean and the best one.
        delta: probability that the gap is larger.
        rng: of pulls and ties.
        budget: most pulls; when it is spent, or the arms run out, the best mean of the last round is returned.
    """
    alive = np.arange(arms.n_arms)
    pulls, sizes = 0, round_pulls(epsilon, delta)
    best = Choice(0, 0, True, -math.inf)
    while len(alive) > 1:
        scores = Scores(arms, None if budget is None else budget - pulls, rng)
        enough = scores.pull_in_rounds(alive, next(sizes))
        pulls += int(scores.pulls.sum())
        if not enough:
            last = scores.best(alive, finished=False) if scores.pulls.any() else best
            return last._replace(pulls=pulls, finished=False)
        shuffled = rng.permutation(alive)
        means = scores.means(shuffled)
        order = np.argsort(-means, kind="stable")
        best = Choice(int(shuffled[order[0]]), pulls, True, float(means.max()))
        alive = np.sort(shuffled[order[: -(-len(alive) // 2)]])
    return best


class MedianElimination(BestArmLearner):
    """Median elimination as a learner."""

    name = "median-elimination"
    about = "Plays all action sequences and drops the worse half, round after round."
    cites = "Even-Dar, Mannor and Mansour 2006, Algorithm 3"
    costs = "Of order K^H/epsilon^2 log(1/delta) episodes."

    def choose(self, arms: Arms, settings: Settings, rng: np.random.Generator) -> Choice:
        """Returns the arm that is left."""
        return median_elimination(arms, settings.epsilon, settings.delta, rng)

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the pulls of the first round, and of all."""
        n_arms = problem.n_actions**problem.horizon
        alive, total, sizes = n_arms, 0, round_pulls(settings.epsilon, settings.delta)
        while alive > 1:
            total += alive * next(sizes)
            alive = -(-alive // 2)
        first = next(round_pulls(settings.epsilon, settings.delta))
        lines = (
            PlanRow("median elimination", "arms", n_arms, "action sequences", "K^H"),
            PlanRow("median elimination", "pulls", first, "episodes", "of each in the first round"),
        )
        return ShortPlan("median elimination", total, lines)

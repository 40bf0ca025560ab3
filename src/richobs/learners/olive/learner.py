"""OLIVE as a learner: what it needs, promises and costs."""

from richobs.core.events import Callback
from richobs.core.outcome import Outcome
from richobs.core.problem import Problem
from richobs.core.queries import Engine
from richobs.core.settings import Settings
from richobs.learners.base import Promise, ShortPlan, Traits, unit_rewards
from richobs.learners.olive.algorithm import olive
from richobs.learners.olive.constants import OliveConstants, olive_plan
from richobs.learners.printed import N_STATES, PrintedLearner


class Olive(PrintedLearner):
    """OLIVE as printed, at its own constants."""

    name = "olive"
    about = "OLIVE as printed, at its own constants: transitions may be random, every sample size is fixed in advance."
    cites = "Jiang, Krishnamurthy, Agarwal, Langford and Schapire 2017, Algorithm 1"
    given = ("class of value functions", "horizon", "number of states")
    needs = (unit_rewards, N_STATES)
    promises = Promise(
        "With probability 1 - delta the policy's value is within epsilon of V*.",
        (
            "Q* is in the class, so the best value of an action depends on what is seen, not on what was seen before",
            "the Bellman rank is at most n_states, which holds where there are at most n_states hidden states a level",
            "rewards are nonnegative with totals at most 1, and every function's values lie in [0, 1]",
        ),
    )
    costs = "10^8 to 10^15 episodes, drawn as counts where the process is written down: M^2 H^3 K / epsilon^2 log N."
    bounded = "Bellman rank"
    Constants = OliveConstants
    traits = Traits(counts=True, level_work=4_000)

    def least(self, problem: Problem, settings: Settings) -> tuple[int, str]:
        """Returns what a run with one elimination plays."""
        least = self.constants(problem, settings).one_round
        return least, f"OLIVE as printed asks for {least:.3g} episodes here until its first elimination is done"

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns every sample size, and the worst case they add up to."""
        return olive_plan(self.constants(problem, settings))

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Runs Algorithm 1."""
        return olive(engine, problem.functions, self.constants(problem, settings), notify=notify)

"""LSVEE as a learner: what it needs, promises and costs."""

from dataclasses import dataclass
from typing import Literal

from richobs.core.events import Callback
from richobs.core.outcome import DETERMINISTIC, REACTIVE, REALIZABLE, Outcome
from richobs.core.problem import Problem
from richobs.core.queries import Engine
from richobs.core.settings import Settings
from richobs.learners.base import Promise, Traits, deterministic_transitions, unit_rewards
from richobs.learners.lsvee.algorithm import lsvee
from richobs.learners.lsvee.constants import PaperConstants
from richobs.learners.lsvee.plan import SamplePlan
from richobs.learners.printed import N_STATES, PrintedLearner


@dataclass(frozen=True)
class LsveeTuning:
    """What may be chosen about LSVEE."""

    repeats: Literal["skip", "verbatim"] = "skip"
    """What on-demand exploration does with paths that were learned: skip them, or learn them again as printed (verbatim)."""
    # "skip" also excludes policies that failed, and stops at M H eliminations in a search, at M H rounds, and where a policy
    # earns more than V*-hat + epsilon/4. "verbatim" does none of this. It stops where it played more episodes than the proof
    # allows, or a hundred times its rounds: as printed a run may never end.


class Lsvee(PrintedLearner):
    """LSVEE at the paper's own constants; as printed but for repeats, failed policies and early stops, or `verbatim`."""

    name = "lsvee"
    about = "LSVEE at the paper's own constants, all sizes fixed in advance; learned paths and failed policies are left out."
    cites = "Krishnamurthy, Agarwal and Langford 2016, Algorithms 1 to 3"
    given = ("class of value functions", "horizon", "number of states", "deterministic transitions")
    needs = (unit_rewards, deterministic_transitions, N_STATES)
    promises = Promise(
        "With probability 1 - delta the policy's value is within epsilon of V*.",
        (REACTIVE, REALIZABLE, DETERMINISTIC, "there are at most n_states hidden states a level"),
    )
    costs = "10^11 to 10^20 episodes, drawn as counts where the process is written down: M H^6 K^2 / epsilon^3 log N."
    bounded = "hidden states"
    Constants = PaperConstants
    Tuning = LsveeTuning
    traits = Traits(counts=True, level_work=200)

    def least(self, problem: Problem, settings: Settings) -> tuple[int, str]:
        """Returns what learning the states of one path costs."""
        least = self.constants(problem, settings).one_path
        return least, f"LSVEE at the printed sizes asks for at least {least:.3g} episodes here (H (n_train + K n_test))"

    def plan(self, problem: Problem, settings: Settings) -> SamplePlan:
        """Returns every sample size, and the worst case they add up to."""
        return SamplePlan(self.constants(problem, settings))

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Runs Algorithm 1."""
        verbatim = self.tuning(settings).repeats == "verbatim"
        constants = self.constants(problem, settings)
        return lsvee(engine, problem.functions, constants, verbatim=verbatim, notify=notify)

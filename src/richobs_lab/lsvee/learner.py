"""LSVEE as a learner: what it needs, promises and costs, and its plan: all sample sizes, thresholds, and the worst case."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from richobs import FunctionClass, Outcome, Problem, Settings
from richobs.core.events import Callback
from richobs.core.outcome import DETERMINISTIC, REACTIVE, REALIZABLE
from richobs.core.queries import Engine
from richobs.core.registry import InNotebook
from richobs.learners.base import PlanRow, Promise, Traits, deterministic_transitions, unit_rewards
from richobs.learners.printed import N_STATES, PrintedLearner
from richobs_lab.device import OnDevice
from richobs_lab.lsvee.algorithm import lsvee
from richobs_lab.lsvee.constants import PaperConstants


@dataclass(frozen=True)
class SamplePlan(InNotebook):
    """The paper's sample sizes for one problem, the worst case they add up to, and the rates it compares with."""

    view = "plan"
    constants: PaperConstants
    title = "lsvee: the paper as printed, every size fixed in advance"

    @property
    def max_episodes(self) -> int:
        """The most episodes that a run can need with probability 1 - delta."""
        return self.constants.max_episodes()

    @property
    def theorem_1(self) -> float:
        """M H^6 K^2 / epsilon^3 log(N/delta) log(1/delta): Theorem 1's order, constants and other logarithms left out."""
        c = self.constants
        order = c.n_states * c.horizon**6 * c.n_actions**2 / c.epsilon**3
        return order * (c.log_size + self._log_inverse_delta) * self._log_inverse_delta

    @property
    def bandit_rate(self) -> float:
        """K / epsilon^2 log(N/delta): what is known for contextual bandits, M = H = 1 (Section 3.2)."""
        c = self.constants
        return c.n_actions / c.epsilon**2 * (c.log_size + self._log_inverse_delta)

    @property
    def tabular_rate(self) -> float:
        """M K / epsilon^2 log(1/delta), times a polynomial in H: what is known for tabular MDPs (Section 3.2)."""
        c = self.constants
        return c.n_states * c.n_actions / c.epsilon**2 * self._log_inverse_delta

    @property
    def _log_inverse_delta(self) -> float:
        return -math.log(self.constants.delta)

    def rows(self) -> Iterator[PlanRow]:
        """Yields the plan line by line."""
        c = self.constants
        given, sizes, worst, rates = "asked for", "thresholds", "worst case", "orders, constants left out"
        yield PlanRow(given, "H, K, M", c.horizon, f"levels, {c.n_actions} actions, {c.n_states} states a level", "")
        yield PlanRow(given, "log10 N", c.log_size / math.log(10), "functions, as a power of ten", "")
        yield PlanRow(sizes, "phi", c.phi, "value", "epsilon / (320 H^2 sqrt K), Algorithm 2")
        for level in sorted({1, c.horizon - 1} & set(range(1, c.horizon))):
            tolerance = c.eps_test(level)
            yield PlanRow(
                sizes, f"eps_test, level {level}", tolerance, "value", "20 (H-|p|-5/4) sqrt(K) phi, Algorithm 2"
            )
        yield PlanRow(
            sizes, "slack", c.search.slack, "squared value", "2 phi^2 + 22 log(4MHN/d) / n_train, Algorithm 2"
        )
        yield PlanRow(sizes, "eps_demand", c.eps_demand, "value", "epsilon / 2, Algorithm 1")
        for section, s, d in (
            ("search at the root", c.search, "d = delta/2"),
            ("search on demand", c.demand, "d = delta/(6MH^2 n_2)"),
        ):
            yield PlanRow(section, "n_test", s.n_test, "episodes per consensus test", f"2 log(4MKHN/d) / phi^2, {d}")
            yield PlanRow(section, "n_train", s.n_train, "episodes per elimination", f"24 log(8MHN/d) / phi^2, {d}")
        yield PlanRow("on demand", "n_1", c.n_1, "rollouts per round", "32 log(12MH/delta) / epsilon^2, Algorithm 1")
        yield PlanRow(
            "on demand", "n_2", c.n_2, "paths learned per failed round", "8 log(6MH/delta) / epsilon, Algorithm 1"
        )
        yield PlanRow(
            worst, "eliminations", c.max_eliminations, "calls in one search", "T <= M H, theorem for DFS-Learn"
        )
        yield PlanRow(worst, "search at the root", c.max_search_episodes, "episodes", "M H (n_train + K n_test)")
        both = "M H n_1 + (M H^2 n_2 + M H)(n_train + K n_test)"
        yield PlanRow(worst, "on demand", c.max_demand_episodes, "episodes", both)
        yield PlanRow(worst, "in all", self.max_episodes, "episodes", "")
        yield PlanRow(rates, "Theorem 1", self.theorem_1, "episodes", "M H^6 K^2 / eps^3 log(N/delta) log(1/delta)")
        yield PlanRow(rates, "contextual bandits", self.bandit_rate, "episodes, for H = 1", "K / eps^2 log(N/delta)")
        yield PlanRow(rates, "tabular MDPs", self.tabular_rate, "episodes, times poly(H)", "M K / eps^2 log(1/delta)")

    def as_json(self) -> dict[str, Any]:
        """Returns the plan as plain values."""
        return {
            "constants": dataclasses.asdict(self.constants),
            "max_search_episodes": self.constants.max_search_episodes,
            "max_demand_episodes": self.constants.max_demand_episodes,
            "max_episodes": self.max_episodes,
            "theorem_1": self.theorem_1,
            "bandit_rate": self.bandit_rate,
            "tabular_rate": self.tabular_rate,
        }


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

    def on_device(self, functions: FunctionClass, device: str) -> FunctionClass:
        """Returns the class whose moments are computed on the device."""
        return OnDevice(functions, device)

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Runs Algorithm 1."""
        verbatim = self.tuning(settings).repeats == "verbatim"
        constants = self.constants(problem, settings)
        return lsvee(engine, problem.functions, constants, verbatim=verbatim, notify=notify)

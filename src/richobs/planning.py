"""`plan`: what a run will ask for, before anything runs."""

import dataclasses
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple

from richobs.errors import InvalidInput
from richobs.learning import Learnable, Settings, constants_for, fallback_constants
from richobs.lsvee import PaperConstants


class Row(NamedTuple):
    """One line of a plan."""

    section: str
    name: str
    value: float  # an int where it counts something
    unit: str
    where: str  # the formula, and where it stands in [KAL16]


@dataclass(frozen=True)
class SamplePlan:
    """The paper's sample sizes for one problem, the worst case they add up to, and the rates it compares with."""

    constants: PaperConstants

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

    def rows(self) -> Iterator[Row]:
        """Yields the plan line by line."""
        c = self.constants
        given, sizes, worst, rates = "asked for", "thresholds", "worst case", "orders, constants left out"
        yield Row(given, "H, K, M", c.horizon, f"levels, {c.n_actions} actions, {c.n_states} states a level", "")
        yield Row(given, "log10 N", c.log_size / math.log(10), "functions, as a power of ten", "")
        yield Row(sizes, "phi", c.phi, "value", "epsilon / (320 H^2 sqrt K), Algorithm 2")
        for level in sorted({1, c.horizon - 1} & set(range(1, c.horizon))):
            tolerance = c.eps_test(level)
            yield Row(sizes, f"eps_test, level {level}", tolerance, "value", "20 (H-|p|-5/4) sqrt(K) phi, Algorithm 2")
        yield Row(sizes, "slack", c.search.slack, "squared value", "2 phi^2 + 22 log(4MHN/d) / n_train, Algorithm 2")
        yield Row(sizes, "eps_demand", c.eps_demand, "value", "epsilon / 2, Algorithm 1")
        for section, s, d in (
            ("search at the root", c.search, "d = delta/2"),
            ("search on demand", c.demand, "d = delta/(6MH^2 n_2)"),
        ):
            yield Row(section, "n_test", s.n_test, "episodes per consensus test", f"2 log(4MKHN/d) / phi^2, {d}")
            yield Row(section, "n_train", s.n_train, "episodes per elimination", f"24 log(8MHN/d) / phi^2, {d}")
        yield Row("on demand", "n_1", c.n_1, "rollouts per round", "32 log(12MH/delta) / epsilon^2, Algorithm 1")
        yield Row(
            "on demand", "n_2", c.n_2, "paths learned per failed round", "8 log(6MH/delta) / epsilon, Algorithm 1"
        )
        yield Row(worst, "eliminations", c.max_eliminations, "calls in one search", "T <= M H, theorem for DFS-Learn")
        yield Row(worst, "search at the root", c.max_search_episodes, "episodes", "M H (n_train + K n_test)")
        both = "M H n_1 + (M H^2 n_2 + M H)(n_train + K n_test)"
        yield Row(worst, "on demand", c.max_demand_episodes, "episodes", both)
        yield Row(worst, "in all", self.max_episodes, "episodes", "")
        yield Row(rates, "Theorem 1", self.theorem_1, "episodes", "M H^6 K^2 / eps^3 log(N/delta) log(1/delta)")
        yield Row(rates, "contextual bandits", self.bandit_rate, "episodes, for H = 1", "K / eps^2 log(N/delta)")
        yield Row(rates, "tabular MDPs", self.tabular_rate, "episodes, times poly(H)", "M K / eps^2 log(1/delta)")

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


class Measured(NamedTuple):
    """What certified runs on one world needed (`benchmarks/certified.py`)."""

    world: str
    horizon: int
    n_actions: int
    log_size: float
    epsilon: float
    delta: float
    runs: int
    episodes: tuple[int, int, int]  # least, median, most

    def distance(self, problem: Learnable, epsilon: float) -> float:
        """Returns how far this world is from a problem: in levels, actions, log of the class and epsilon, each by ratio."""
        size = max(1.0, problem.functions.log_size)
        ratios = (
            self.horizon / problem.env.horizon,
            self.n_actions / problem.env.n_actions,
            max(1.0, self.log_size) / size,
            self.epsilon / epsilon,
        )
        return math.sqrt(sum(math.log(ratio) ** 2 for ratio in ratios))


@dataclass(frozen=True)
class CertifiedPlan:
    """What the certified schedule may need: what surely suffices, and what similar worlds needed."""

    suffices: (
        int | None
    )  # episodes, with probability 1 - delta; None where n_states is unknown or nothing is guaranteed
    similar: tuple[Measured, ...]  # the nearest first


def plan_certified(problem: Learnable, settings: Settings, at_most: int = 3) -> CertifiedPlan:
    """Returns what is known in advance of a certified run; nothing is played.

    A search that has spent what one path costs the paper's algorithm hands over to it, having spent at most four times that
    (docs/certified.md, Theorem 2).
    """
    constants = fallback_constants(problem, settings)
    n_states = settings.n_states if settings.n_states is not None else problem.n_states
    suffices = None
    if constants is not None and n_states is not None:
        suffices = 4 * constants.one_path + constants.max_episodes(min(n_states, constants.n_states))
    text = resources.files("richobs.certified").joinpath("measured.json").read_text(encoding="utf-8")
    known = [Measured(**{**row, "episodes": tuple(row["episodes"])}) for row in json.loads(text)]
    known.sort(key=lambda m: m.distance(problem, settings.epsilon))
    return CertifiedPlan(suffices, tuple(known[:at_most]))


def plan(
    problem: Learnable | None = None,
    *,
    epsilon: float = 0.1,
    delta: float = 0.05,
    n_states: int | None = None,
    horizon: int | None = None,
    n_actions: int | None = None,
    log_size: float | None = None,
) -> SamplePlan:
    """Returns the paper's sample sizes and the worst case they add up to; nothing is played.

    Args:
        problem: a problem from `richobs.make`; or give the four numbers instead.
        epsilon: how far from optimal the policy may be.
        delta: how often it may be farther.
        n_states: M, a bound on the latent states per level.
        horizon: H.
        n_actions: K.
        log_size: natural logarithm of the number of functions N.
    """
    if problem is not None:
        return SamplePlan(constants_for(problem, Settings(epsilon=epsilon, delta=delta, n_states=n_states)))
    if horizon is None or n_actions is None or n_states is None or log_size is None:
        raise InvalidInput("plan needs a problem, or all of horizon, n_actions, n_states and log_size.")
    return SamplePlan(
        PaperConstants.of(
            horizon=horizon, n_actions=n_actions, n_states=n_states, log_size=log_size, epsilon=epsilon, delta=delta
        )
    )

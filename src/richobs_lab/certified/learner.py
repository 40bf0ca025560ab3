"""Certified LSVEE as a learner: what it needs, promises and costs."""

import math
from collections.abc import Mapping
from typing import Any

from richobs import FunctionClass, Learner, Outcome, Problem, Settings
from richobs.core.events import Callback
from richobs.core.outcome import LOWER, UPPER, StopReason
from richobs.core.problem import SMALLEST
from richobs.core.queries import Engine
from richobs.learners.base import (
    WITHIN_EPSILON,
    Finding,
    Promise,
    Traits,
    deterministic_transitions,
    similar_worlds,
    unit_rewards,
)
from richobs.learners.printed import bound_on_states
from richobs.learners.stopping import Fallback
from richobs_lab.certified.plan import CertifiedPlan
from richobs_lab.certified.search import ASSUMPTIONS, NARROWER, certified
from richobs_lab.certified.state import RESERVE, Tuning
from richobs_lab.device import OnDevice
from richobs_lab.lsvee.algorithm import lsvee
from richobs_lab.lsvee.constants import PaperConstants

MOST_DIGITS = 120  # of K^H, beyond which float64 cannot hold the shares of delta that the fallback would need


class Certified(Learner):
    """Certified LSVEE."""

    name = "certified"
    about = "Certified LSVEE: an optimistic search with tests that hold at any sample size."
    cites = "docs/certified.md, after Krishnamurthy, Agarwal and Langford 2016"
    given = ("class of value functions", "horizon", "deterministic transitions")
    needs = (unit_rewards, deterministic_transitions)
    promises = Promise(WITHIN_EPSILON, ASSUMPTIONS)
    costs = (
        "A few thousand episodes on locks, 10^4 to 10^5 where wrong functions are off by little; it needs no n_states."
    )
    Tuning = Tuning
    traits = Traits(
        keeps_bounds=True,
        tests_pairs=True,
        levels_share_episodes=True,
        purposes={
            "pilot": "choosing what to test",
            "batch": "the tests themselves",
            "root value": "the best value",
        },
    )

    def fallback_constants(self, problem: Problem, settings: Settings) -> PaperConstants | None:
        """Returns the numbers of LSVEE as printed where it takes over from the search; None where it cannot.

        No bound on the latent states is assumed: there are at most as many as paths, K^(H-1), and they enter by a
        logarithm.
        """
        H, K = problem.horizon, problem.n_actions
        epsilon, delta = NARROWER * settings.epsilon, RESERVE * settings.delta
        if H * math.log10(K) > MOST_DIGITS or min(epsilon, delta) < SMALLEST:
            return None
        log_size = problem.functions.log_size
        return PaperConstants.of(
            horizon=H, n_actions=K, n_states=K ** (H - 1), log_size=log_size, epsilon=epsilon, delta=delta
        )

    def plan(self, problem: Problem, settings: Settings) -> CertifiedPlan:
        """Returns what surely suffices, and what similar worlds needed.

        A search that has spent what one path costs LSVEE as printed hands over to it, having spent at most four times that
        (docs/certified.md, Theorem 2).
        """
        constants, n_states = self.fallback_constants(problem, settings), bound_on_states(problem, settings)
        suffices = None
        if constants is not None and n_states is not None:
            suffices = 4 * constants.one_path + constants.max_episodes(min(n_states, constants.n_states))
        return CertifiedPlan(suffices, similar_worlds(__package__, problem, settings.epsilon))

    def on_device(self, functions: FunctionClass, device: str) -> FunctionClass:
        """Returns the class whose moments are computed on the device."""
        return OnDevice(functions, device)

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Searches, and hands over to LSVEE as printed after as many episodes as one path of that would cost."""
        constants = self.fallback_constants(problem, settings)
        fallback = None
        if constants is not None:
            fallback = Fallback(
                "LSVEE as printed",
                lambda: constants.one_path,
                lambda: lsvee(engine, problem.functions, constants, notify=notify),
            )
        return certified(
            engine,
            problem.functions,
            epsilon=settings.epsilon,
            delta=settings.delta,
            seed=settings.seed,
            notify=notify,
            tuning=self.tuning(settings),
            fallback=fallback,
        )

    def recheck(self, content: Mapping[str, Any], problem: Problem, settings: Settings) -> list[Finding]:
        """Adds up the shares of delta that the claims spent, and takes U and W from the claims themselves."""
        claims, result = content["claims"], content["result"]
        upper, lower = result["upper"], result["lower"]
        best = max((row[4] for row in claims if row[0] == LOWER), default=0.0)
        tops = [row[4] for row in claims if row[0] == UPPER]
        width = settings.epsilon if result["reason"] == StopReason.CERTIFIED.value else 1.0
        known = isinstance(upper, float) and isinstance(lower, float)
        stated = known and lower == best and (not tops or upper <= min(tops)) and 0 <= upper - lower <= width
        return [
            *super().recheck(content, problem, settings),
            Finding("bounds", stated, f"V* <= {upper}, the policy's value >= {lower}"),
        ]

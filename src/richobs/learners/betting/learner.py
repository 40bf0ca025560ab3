"""The betting search as a learner: what it needs, promises and costs."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from richobs.core.errors import InvalidInput
from richobs.core.events import Callback
from richobs.core.outcome import LOWER, UPPER, Outcome
from richobs.core.problem import Problem
from richobs.core.queries import Engine
from richobs.core.settings import Settings
from richobs.learners.base import Finding, Learner, PlanRow, Promise, ShortPlan, unit_rewards
from richobs.learners.betting.candidates import AGREED
from richobs.learners.betting.closing import REASONS
from richobs.learners.betting.search import betting
from richobs.learners.betting.state import SHARES, Tuning
from richobs.stats import bets
from richobs.stats.shares import SERIES


class Betting(Learner):
    """The betting search."""

    name = "betting"
    about = "Betting search: an optimistic search whose bets Q* cannot win; transitions may be random."
    cites = "docs/betting.md; average Bellman errors after Jiang et al. 2017, bets after Waudby-Smith and Ramdas 2024"
    needs = (unit_rewards,)
    promises = Promise(
        "With probability 1 - delta the policy's value is within epsilon of V*; if the episodes run out first, within the "
        "wider epsilon that the run states.",
        (
            "rewards are nonnegative and their totals at most 1",
            "the best value of an action depends on what is seen, not on what was seen before (assumption 1)",
            "Q* is in the class (assumption 2)",
        ),
    )
    costs = (
        "A few hundred episodes on locks and random worlds; it needs neither n_states nor deterministic transitions."
    )
    Tuning = Tuning
    keeps_bounds = True

    def check(self, problem: Problem, settings: Settings, engine: str) -> None:
        """Refuses what the base refuses, and an engine that cannot give episodes one by one."""
        super().check(problem, settings, engine)
        if engine == "counted":
            raise InvalidInput(
                "the learner 'betting' reads episodes one by one, and the counted engine only draws how often each occurs. "
                "Use engine='stream'."
            )

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the fewest episodes that a certificate by agreement can take; nothing is known of the most."""
        H = problem.horizon
        largest = max(float(problem.functions.value_bounds(h)[1].max()) for h in range(H))
        bet = bets.Agreement.of(settings.epsilon, min(1.0, max(largest, settings.epsilon)), H)
        needed = math.log(SERIES * 2 * math.log(2) ** 2 / (SHARES["agreement"] * settings.delta))
        n = 1
        while bet.log_wealth(n, np.zeros(len(bet.bets))) < needed:
            n += 1
        row = PlanRow("at the least", "agreement", n, "episodes", "docs/betting.md, B3: all survivors agree at once")
        return ShortPlan("betting: a search that fixes no size in advance", None, (row,))

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Searches until a candidate is certified, or the episodes are spent."""
        return betting(
            engine,
            problem.functions,
            epsilon=settings.epsilon,
            delta=settings.delta,
            seed=settings.seed,
            notify=notify,
            tuning=self.tuning(settings),
        )

    def recheck(self, content: Mapping[str, Any], problem: Problem, settings: Settings) -> list[Finding]:
        """Adds up the shares of delta, takes the bounds from the claims, and computes the wealth of an agreement again."""
        claims, result, constants = content["claims"], content["result"], content["constants"]
        spent = math.fsum(row[3] for row in claims)
        upper, lower, by = result["upper"], result["lower"], constants.get("closed_by")
        best = {row[4] for row in claims if row[0] == LOWER} | {0.0}
        tops = [row[4] for row in claims if row[0] == UPPER]
        known = isinstance(upper, float) and isinstance(lower, float)
        stated = known and lower in best and (not tops or upper <= min(tops)) and upper >= lower
        if by == "interval":
            stated = stated and upper - lower <= settings.epsilon
        stated = stated and by in REASONS and result["reason"] == REASONS[by].value
        findings = [
            Finding("delta", spent <= settings.delta, f"{len(claims)} claims spend {spent:.6g} of it"),
            Finding("bounds", stated, f"V* <= {upper}, the policy's value >= {lower}"),
        ]
        if by == "agreement":
            findings.append(_agreement(constants["agreement"], claims, problem, settings))
        return findings


def _agreement(record: Any, claims: Any, problem: Problem, settings: Settings) -> Finding:
    """Computes the wealth that agreement rests on again, from what the worst survivor takes away."""
    largest = max(float(problem.functions.value_bounds(h)[1].max()) for h in range(problem.horizon))
    H = problem.horizon
    bet = bets.Agreement.of(settings.epsilon - 2 * H * bets.ZETA, float(np.clip(largest, settings.epsilon, 1.0)), H)
    again = bet.log_wealth(int(record["n"]), np.array(record["taken"], dtype=np.float64))
    claimed = [row for row in claims if row[0] == AGREED]
    enough = len(claimed) == 1 and again >= math.log(1 / claimed[0][3])
    same = enough and record["bets"] == bet.bets.tolist() and record["weights"] == bet.weights.tolist()
    return Finding("agreement", same, f"{record['n']} episodes make a wealth of exp({again:.4g})")

"""The betting search as a learner: what it needs, promises and costs."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from richobs.core.errors import InvalidInput
from richobs.core.events import Callback
from richobs.core.outcome import LOWER, UPPER, Outcome
from richobs.core.problem import SMALLEST, Problem
from richobs.core.queries import Engine
from richobs.core.settings import Settings
from richobs.core.units import has_unit_rewards
from richobs.learners.base import Finding, Learner, Promise, Traits
from richobs.learners.betting.candidates import AGREED
from richobs.learners.betting.closing import ASSUMPTIONS, REASONS
from richobs.learners.betting.plan import BettingPlan, least_by_agreement
from richobs.learners.betting.ranges import Ranges
from richobs.learners.betting.search import betting
from richobs.learners.betting.state import SHARES, Tuning, agreement_bets
from richobs.learners.handing_over import Fallback
from richobs.learners.olive.algorithm import olive
from richobs.learners.olive.constants import OliveConstants
from richobs.learners.printed import bound_on_states
from richobs.learners.similar import similar_worlds


class Betting(Learner):
    """The betting search."""

    name = "betting"
    about = "Betting search: optimistic, with bets that nobody can expect to win against Q*; transitions may be random."
    cites = "docs/betting.md; average Bellman errors after Jiang et al. 2017, bets after Waudby-Smith and Ramdas 2024"
    given = ("class of value functions", "horizon")
    promises = Promise(
        "With probability 1 - delta the policy's value is within epsilon of V*; if the episodes run out first, within the "
        "wider epsilon that the run states.",
        ASSUMPTIONS,
    )
    costs = (
        "A few hundred episodes on locks and random worlds; it needs neither n_states nor deterministic transitions."
    )
    Tuning = Tuning
    traits = Traits(
        level_work=2_000,
        keeps_bounds=True,
        purposes={"play": "the candidates' policies"},
        reads_recorded=True,
        knows_threshold=True,
    )

    def fallback_constants(self, problem: Problem, settings: Settings) -> OliveConstants | None:
        """Returns the numbers of OLIVE where it takes over from the search; None where it cannot.

        The Bellman rank is at most the number of pairs of neighbouring members (of functions, where they are listed), so no
        bound on the hidden states is needed; a smaller one only ends the run sooner.
        """
        delta = SHARES["reserve"] * settings.delta
        if min(settings.epsilon, delta) < SMALLEST or not has_unit_rewards(problem):
            return None
        functions, H = problem.functions, problem.horizon
        sizes = [functions.level_size(h) for h in range(H)] + [1]
        rank = max(sizes[h] * sizes[h + 1] if functions.is_product else sizes[h] for h in range(H))
        known = bound_on_states(problem, settings)
        return OliveConstants.of(
            horizon=H,
            n_actions=problem.n_actions,
            n_states=rank if known is None else min(rank, known),
            log_size=functions.log_size,
            epsilon=settings.epsilon,
            delta=delta,
        )

    def check(self, problem: Problem, settings: Settings, engine: str) -> None:
        """Refuses what the base refuses, and an engine that cannot give episodes one by one."""
        super().check(problem, settings, engine)
        self._check_epsilon(problem, settings)
        if engine == "counted":
            raise InvalidInput(
                "the learner 'betting' reads episodes one by one, and the counted engine only draws how often each occurs. "
                "Use engine='stream'."
            )

    @staticmethod
    def _check_epsilon(problem: Problem, settings: Settings) -> None:
        """Raises InvalidInput if rounding may hide as much as epsilon."""
        hidden = Ranges.of(problem.env, problem.functions).hidden
        if settings.epsilon < 2 * hidden:
            raise InvalidInput(
                f"epsilon must be at least {2 * hidden:.3g} here: rounding of rewards and values in single precision, and "
                f"actions so near that they count as equal, may hide a loss of {hidden:.3g} over {problem.horizon} levels. "
                f"{settings.epsilon:g} arrived."
            )

    def plan(self, problem: Problem, settings: Settings) -> BettingPlan:
        """Returns what similar worlds needed, the least by agreement, and what surely suffices.

        A search that has spent what OLIVE would cost hands over to it, at most one batch later (docs/betting.md, Theorem 5).
        """
        self._check_epsilon(problem, settings)
        constants, suffices = self.fallback_constants(problem, settings), None
        if constants is not None:
            suffices = 2 * constants.max_episodes + self.tuning(settings).most(constants.max_episodes)
        similar = similar_worlds(__package__, problem, settings.epsilon)
        return BettingPlan(suffices, least_by_agreement(problem, settings), similar)

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Searches until a candidate is certified or the episodes are spent; OLIVE takes over once that surely pays."""
        constants, fallback = self.fallback_constants(problem, settings), None
        if constants is not None:
            fallback = Fallback(
                "OLIVE", constants.max_episodes, lambda: olive(engine, problem.functions, constants, notify=notify)
            )
        return betting(
            engine,
            problem.functions,
            epsilon=settings.epsilon,
            delta=settings.delta,
            seed=settings.seed,
            notify=notify,
            tuning=self.tuning(settings),
            threshold=settings.threshold,
            recorded=problem.recorded,
            ranges=Ranges.of(problem.env, problem.functions),
            fallback=fallback,
            device=settings.device,
        )

    def recheck(self, content: Mapping[str, Any], problem: Problem, settings: Settings) -> list[Finding]:
        """Adds up the shares of delta, takes the bounds from the claims, and computes the wealth of an agreement again."""
        claims, result, constants = content["claims"], content["result"], content["constants"]
        spent = math.fsum(row[3] for row in claims)
        upper, lower, by = result["upper"], result["lower"], constants.get("closed_by")
        best = {row[4] for row in claims if row[0] == LOWER} | {float(problem.env.reward_range[0])}
        tops = [row[4] for row in claims if row[0] == UPPER]
        known = isinstance(upper, float) and isinstance(lower, float)
        stated = known and lower in best and (not tops or upper <= min(tops)) and upper >= lower
        if by == "interval":
            stated = stated and upper - lower <= settings.epsilon
        if by in ("worth it", "not worth it"):
            aim = settings.threshold
            stated = stated and aim is not None and (lower >= aim if by == "worth it" else upper < aim)
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
    bet = agreement_bets(settings.epsilon, Ranges.of(problem.env, problem.functions), problem.horizon)
    again = bet.log_wealth(int(record["n"]), np.array(record["taken"], dtype=np.float64))
    claimed = [row for row in claims if row[0] == AGREED]
    enough = len(claimed) == 1 and again >= math.log(1 / claimed[0][3])
    same = enough and record["bets"] == bet.bets.tolist() and record["weights"] == bet.weights.tolist()
    return Finding("agreement", same, f"{record['n']} episodes make a wealth of exp({again:.4g})")

"""The search in a family as a learner: what it needs, promises and costs."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from richobs.classes.learned_policy import LearnedPolicy
from richobs.classes.parametric import OFF, Family
from richobs.core.environment import step_range
from richobs.core.errors import InvalidInput
from richobs.core.events import Callback, Progress
from richobs.core.outcome import Outcome, StopReason
from richobs.core.problem import Problem
from richobs.core.queries import Engine
from richobs.core.settings import Settings
from richobs.core.words import number_words
from richobs.learners.base import WITHIN_EPSILON, Finding, Learner, Need, PlanRow, Promise, ShortPlan, Traits
from richobs.learners.families.cells import Evidence, Tables, loss_at
from richobs.learners.families.nearly import StepBets, Term
from richobs.learners.families.search import (
    CONFIRM,
    ON_LIKELIHOOD,
    PHASE,
    SLACK,
    FamilySearch,
    Tuning,
    cover_all,
    outcome,
    points_in,
    run,
)
from richobs.learners.models.living import ZETA
from richobs.learners.models.search import planning_error
from richobs.learners.tolerance import ToleranceIsLarge, total_variation
from richobs.stats import bets
from richobs.stats.shares import Supposed

MOST_LOOKED_AT = 16  # points of the box whose own loss within a tolerance is bounded before a run
EXACT = 1e-9  # relative difference that bounding again may show


def _family_missing(problem: Problem, settings: Settings) -> str | None:
    if isinstance(problem.functions, Family):
        return None
    return (
        f"a {type(problem.functions).__name__} is a list. Give a simulator with unknown numbers as richobs.Family, or use "
        "the learner 'models' for a list of simulators, 'betting' for a list of value functions."
    )


class Families(Learner):
    """The search in a family."""

    name = "families"
    about = (
        "Search in a family of simulators with unknown numbers: likelihood over the whole box, regret over cells of it."
    )
    cites = "docs/models.md; likelihood ratios after Robbins 1970, experiments after Chernoff 1959"
    given = ("simulator with unknown numbers", "horizon")
    needs = (Need("a family with parameters in a box", _family_missing),)
    promises = Promise(
        WITHIN_EPSILON,
        (
            "the real system is the simulator for some parameters in the box",
            "episodes are independent of each other, given what was played",
        ),
    )
    costs = (
        "Often a few dozen episodes: they grow with the number of parameters, and as the square of 1/epsilon where policies "
        "differ a little near the true parameters."
    )
    Tuning = Tuning
    traits = Traits(
        keeps_bounds=True,
        reads_episodes=True,
        looks_at_episodes=True,
        takes_tolerance=True,
        purposes={"play": "tells parameters apart", "confirm": "what the claimed policy earns"},
    )

    def check(self, problem: Problem, settings: Settings, engine: str) -> None:
        """Refuses what the base refuses, and an epsilon that rounding could hide."""
        super().check(problem, settings, engine)
        total_variation(settings)
        error = 2 * value_error(problem)
        if not error < settings.epsilon:
            raise InvalidInput(
                f"epsilon {settings.epsilon:g} is too small for the learner 'families': a loss may be wrong by {error:.2g}, "
                "because rewards count as equal up to single precision. Ask for a larger epsilon, or declare step_range."
            )

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the evidence that refutes parameters; nothing is known of the number of episodes."""
        self.check_needs(problem, settings)
        needed = math.log(1 / (ON_LIKELIHOOD * settings.delta))
        row = PlanRow(
            "at the least",
            "evidence",
            needed,
            "nats of likelihood between forecasts and refuted parameters",
            "docs/models.md, F1: log(1 / delta)",
        )
        rows = [row]
        if settings.tolerance:
            least = least_loss(problem, total_variation(settings))
            rows.append(PlanRow("tolerance", "least epsilon to hope for", least, "of reward", "docs/models.md, F7"))
        return ShortPlan("families: a search that fixes no size in advance", None, tuple(rows))

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Searches until a policy is certified, or the episodes are spent."""
        alpha = total_variation(settings)
        if alpha and (least := least_loss(problem, alpha)) > settings.epsilon:
            notify(Progress(ToleranceIsLarge(phase=PHASE, least=least, epsilon=settings.epsilon), engine.ledger.total))
        search = FamilySearch.of(self, problem, engine, settings, notify, alpha=alpha)
        return outcome(search, *run(search))

    def recheck(self, content: Mapping[str, Any], problem: Problem, settings: Settings) -> list[Finding]:
        """Adds up the shares of delta, and covers everything that lives again, from the counts that are stored."""
        findings = super().recheck(content, problem, settings)
        if content["result"]["guaranteed"]:
            findings.append(_covered_again(content, problem, settings, self.tuning(settings)))
        return findings


def _family(problem: Problem) -> Family:
    family = problem.functions
    assert isinstance(family, Family), "its need was checked"
    return family


def least_loss(problem: Problem, alpha: float) -> float:
    """Returns the smallest loss that could be claimed at some points of the box, where that point alone is left [F7]."""
    family = _family(problem)
    tables, points = Tables(family, 0), points_in(family, MOST_LOOKED_AT)
    law = np.maximum(family.program.at(points), 0.0)
    best = tables.plan(law)[1]
    some = [
        loss_at(family, tables, best[:, :, i], points[:, [i]], law[:, [i]], alpha)[0] for i in range(MOST_LOOKED_AT)
    ]
    return float(min(some)) + 2 * value_error(problem)


def value_error(problem: Problem) -> float:
    """Returns by how much a value may be wrong: rounding, and rewards that count as equal."""
    low, high = problem.env.reward_range
    return planning_error(problem.horizon, (low, high), step_range(problem.env)) + SLACK * (high - low)


def _covered_again(content: Mapping[str, Any], problem: Problem, settings: Settings, tuning: Tuning) -> Finding:
    """Derives threshold, policy, cells and bounds again."""
    family, constants, result = _family(problem), content["constants"], content["result"]
    E = len(family.program.wanted)
    counts = {int(k): np.array(own, dtype=np.float64) for k, own in constants["counts"]}
    alpha, bets_made = total_variation(settings), StepBets(family)
    for row, q, n in constants["terms"]:
        bets_made.keep(Term(tuple(map(float, row)), np.array(q, dtype=np.float64), np.array(n, dtype=np.float64)))
    sane = all(0 <= k < family.n_structures and own.shape == (E,) and (own >= 0).all() for k, own in counts.items())
    if not sane or set(counts) != {int(k) for k, _ in constants["counts"]} or not counts:
        return Finding("cells", False, "the counts are not of this family")
    if alpha:
        legal = all((term.q > 0).all() and term.q.sum() <= 1 + OFF and (term.n >= 0).all() for term in bets_made.terms)
        if not legal or any(not np.array_equal(bets_made.counts(k), own) for k, own in counts.items()):
            return Finding("cells", False, "the forecasts and counts of single steps are not of this family")
    death = math.log(bets.death(Supposed(settings.delta * ON_LIKELIHOOD)))
    numerator = bets_made.log_q if alpha else float(constants["log_numerator"])
    threshold = numerator - death - 2 * ZETA * int(constants["factors"])
    fits = {int(k): np.array(theta, dtype=np.float64) for k, theta in constants["fits"]}
    point = np.array(constants["planned_at"], dtype=np.float64)
    law = np.maximum(family.program.at(point[:, None]), 0.0)
    actions = Tables(family, int(constants["structure"])).plan(law)[1][:, :, 0]
    policy = LearnedPolicy.from_table(
        [family.arrays.codebook] * len(actions), list(actions), n_actions=family.n_actions
    )
    if policy.digest != content["policy"]["digest"]:
        return Finding("cells", False, "the policy is not the best one of the parameters that are stated")
    gap, error = float(constants["gap"]), value_error(problem)
    allowed = max(settings.epsilon, float(constants["allowed"]))
    evidence = {k: Evidence(own, threshold, bets_made.within(k, alpha) if alpha else None) for k, own in counts.items()}
    found = cover_all(family, evidence, actions, allowed, fits, tuning.cells, error)
    upper = min(problem.env.reward_range[1], found.upper)
    scale = EXACT * max(1.0, *map(abs, problem.env.reward_range))
    claimed = max(settings.epsilon, gap)
    same = all(
        abs(float(stated) - again) <= scale
        for stated, again in (
            (constants["threshold"], threshold),
            (constants["alpha"], alpha),
            (gap, found.regret),
            (result["upper"], upper),
            (result["epsilon"], claimed),
        )
    )
    reasons = [one.value for one in (StopReason.EVERY_MODEL, StopReason.EPISODES_SPENT, StopReason.TOLERANCE)]
    agrees = found.complete and same and result["reason"] in reasons
    lost = number_words(found.regret, up=True) if math.isfinite(found.regret) else "nothing known"
    return Finding(
        "cells", agrees, f"in {found.cells:,} cells the policy loses at most {lost}; {CONFIRM} episodes confirmed it"
    )

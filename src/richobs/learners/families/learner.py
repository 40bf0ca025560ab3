"""The search in a family as a learner: what it needs, promises and costs."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from richobs.classes.laws import UnknownLaws
from richobs.classes.parametric import Family, Unlisted
from richobs.core.environment import step_range
from richobs.core.errors import InvalidInput
from richobs.core.events import Callback, Progress
from richobs.core.outcome import Outcome
from richobs.core.problem import Problem
from richobs.core.queries import Engine
from richobs.core.settings import Settings
from richobs.learners.base import WITHIN_EPSILON, Finding, Learner, Need, PlanRow, Promise, ShortPlan, Traits
from richobs.learners.families.cells import Tables, loss_at
from richobs.learners.families.confirm import ON_LIKELIHOOD, PHASE, SLACK
from richobs.learners.families.laws import LawSearch, run_laws
from richobs.learners.families.recheck import covered_again, planned_again
from richobs.learners.families.search import (
    FamilySearch,
    Tuning,
    outcome,
    points_in,
    run,
)
from richobs.learners.models.search import planning_error
from richobs.learners.tolerance import ToleranceIsLarge, total_variation

MOST_LOOKED_AT = 16  # points of the box whose own loss within a tolerance is bounded before a run


def _family_missing(problem: Problem, settings: Settings) -> str | None:
    if isinstance(problem.functions, Unlisted):
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
        if total_variation(settings) and isinstance(problem.functions, UnknownLaws):
            raise InvalidInput(
                "a family by laws takes no tolerance: it holds every law on the listed outcomes. Leave `tolerance` out, or "
                "let states and actions that may differ have laws of their own."
            )
        if settings.tolerance and not _unlisted(problem).is_read:
            raise InvalidInput(
                "a tolerance needs a family that knows which state an observation is: one array `observations`, and no "
                "function. Leave `tolerance` out, or give the observations."
            )
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
        if isinstance(problem.functions, UnknownLaws):
            return run_laws(LawSearch.of(self, problem, engine, settings, notify))
        alpha = total_variation(settings)
        if alpha and (least := least_loss(problem, alpha)) > settings.epsilon:
            notify(Progress(ToleranceIsLarge(phase=PHASE, least=least, epsilon=settings.epsilon), engine.ledger.total))
        search = FamilySearch.of(self, problem, engine, settings, notify, alpha=alpha)
        return outcome(search, *run(search))

    def recheck(self, content: Mapping[str, Any], problem: Problem, settings: Settings) -> list[Finding]:
        """Adds up the shares of delta, and covers everything that lives again, from the counts that are stored."""
        findings = super().recheck(content, problem, settings)
        if not content["result"]["guaranteed"]:
            return findings
        if isinstance(problem.functions, UnknownLaws):
            return [*findings, *planned_again(content, problem, settings, value_error(problem))]
        return [*findings, *covered_again(content, problem, settings, self.tuning(settings), value_error(problem))]


def _family(problem: Problem) -> Family:
    family = problem.functions
    assert isinstance(family, Family), "its need was checked"
    return family


def _unlisted(problem: Problem) -> Unlisted:
    assert isinstance(problem.functions, Unlisted), "its need was checked"
    return problem.functions


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

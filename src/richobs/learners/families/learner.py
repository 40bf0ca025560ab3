"""The search in a family as a learner: what it needs, promises and costs, and how its certificates are derived again."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from richobs.classes.laws import UnknownLaws
from richobs.classes.parametric import OFF, Family, Unlisted
from richobs.core.environment import step_range
from richobs.core.errors import BrokenPromise, InvalidInput
from richobs.core.events import Callback, Progress
from richobs.core.outcome import Outcome, StopReason
from richobs.core.problem import Problem
from richobs.core.queries import Engine
from richobs.core.settings import Settings
from richobs.core.types import Floats
from richobs.core.words import number_words
from richobs.learners.base import WITHIN_EPSILON, Finding, Learner, Need, PlanRow, Promise, ShortPlan, Traits
from richobs.learners.families.cells import Tables, loss_at
from richobs.learners.families.confirm import CONFIRM, ON_LIKELIHOOD, PHASE, earned_again, policy_of, value_error
from richobs.learners.families.evidence import Seen
from richobs.learners.families.laws import LawSearch, Rows, law_intervals, log_deaths, pooled, radii, run_laws
from richobs.learners.families.search import (
    FamilySearch,
    Tuning,
    cover_all,
    hull_of,
    outcome,
    points_in,
    run,
)
from richobs.learners.families.steps import Term
from richobs.learners.stopping import FEWEST, ToleranceIsLarge, total_variation
from richobs.stats.shares import Supposed

EXACT = 1e-9  # relative difference that bounding again may show
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
        reads_recorded=True,
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
        error = 2 * _error(problem)
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
            fewest = FEWEST + CONFIRM
            rows.append(PlanRow("tolerance", "before a wider claim", fewest, "episodes", "docs/models.md, F7"))
        return ShortPlan("families: a search that fixes no size in advance", None, tuple(rows))

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Searches until a policy is certified, or the episodes are spent."""
        if isinstance(problem.functions, UnknownLaws):
            return run_laws(LawSearch.of(self, problem, engine, settings, notify, recorded=problem.recorded))
        alpha = total_variation(settings)
        if alpha and (least := least_loss(problem, alpha)) > settings.epsilon:
            notify(Progress(ToleranceIsLarge(phase=PHASE, least=least, epsilon=settings.epsilon), engine.ledger.total))
        search = FamilySearch.of(self, problem, engine, settings, notify, alpha=alpha, recorded=problem.recorded)
        return outcome(search, *run(search))

    def recheck(self, content: Mapping[str, Any], problem: Problem, settings: Settings) -> list[Finding]:
        """Adds up the shares of delta, and covers everything that lives again, from the counts that are stored."""
        findings = super().recheck(content, problem, settings)
        if not content["result"]["guaranteed"]:
            return findings
        if isinstance(problem.functions, UnknownLaws):
            return [*findings, *planned_again(content, problem, settings, _error(problem))]
        return [*findings, *covered_again(content, problem, settings, self.tuning(settings), _error(problem))]


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
    return float(min(some)) + 2 * _error(problem)


def _error(problem: Problem) -> float:
    return value_error(problem.horizon, problem.env.reward_range, step_range(problem.env))


def covered_again(
    content: Mapping[str, Any], problem: Problem, settings: Settings, tuning: Tuning, error: float
) -> list[Finding]:
    """Derives threshold, policy, cells, bounds, intervals and W again.

    Args:
        content: of the certificate.
        problem: what was learned, with a family.
        settings: of the run.
        tuning: of the run.
        error: by which a value may be wrong.
    """
    family, constants, result = problem.functions, content["constants"], content["result"]
    assert isinstance(family, Family), "its need was checked"
    alpha = total_variation(settings)
    seen = Seen(family, Supposed(settings.delta * ON_LIKELIHOOD), alpha)
    try:
        seen.recount(constants["steps"])
    except BrokenPromise as wrong:
        return [Finding("cells", False, f"the steps are not of this family: {wrong}")]
    if not (np.array(seen.n) > 0).all() or len(seen.n) < len(constants["steps"]):
        return [Finding("cells", False, "a step is there twice, or was seen less than once")]
    some = [int(k) for k in np.flatnonzero(seen.possible)]
    for row, q, n in constants["terms"]:
        seen.stepwise.keep(Term(tuple(map(float, row)), np.array(q, dtype=np.float64), np.array(n, dtype=np.float64)))
    if alpha:
        terms = seen.stepwise.terms
        legal = all((term.q > 0).all() and term.q.sum() <= 1 + OFF and (term.n >= 0).all() for term in terms)
        if not legal or any(not np.array_equal(seen.stepwise.counts(k), seen.counts[k]) for k in some):
            return [Finding("cells", False, "the forecasts and counts of single steps are not of this family")]
    threshold = seen.threshold_of(seen.stepwise.log_q if alpha else float(constants["log_numerator"]))
    fits = {int(k): np.array(theta, dtype=np.float64) for k, theta in constants["fits"]}
    point = np.array(constants["planned_at"], dtype=np.float64)
    law = np.maximum(family.program.at(point[:, None]), 0.0)
    actions = Tables(family, int(constants["structure"])).plan(law)[1][:, :, 0]
    if policy_of(family, actions).digest != content["policy"]["digest"]:
        return [Finding("cells", False, "the policy is not the best one of the parameters that are stated")]
    allowed = max(settings.epsilon, float(constants["allowed"]))
    evidence = {k: seen.evidence(k, threshold) for k in some}
    found = cover_all(family, evidence, actions, allowed, fits, tuning.cells, error)
    same = found.complete and _same(
        problem,
        (constants["threshold"], threshold),
        (constants["alpha"], alpha),
        (constants["gap"], found.regret),
        (result["upper"], min(problem.env.reward_range[1], found.upper)),
        (result["epsilon"], max(settings.epsilon, float(constants["gap"]))),
    )
    lost = number_words(found.regret, up=True) if math.isfinite(found.regret) else "nothing known"
    words = f"in {found.cells:,} cells the policy loses at most {lost}; {CONFIRM} episodes confirmed it"
    hull = hull_of(family, evidence, fits)
    return [
        Finding("cells", same and _reason_fits(result), words),
        _intervals(constants, dict(zip(family.names, hull.tolist(), strict=True))),
        *_earned(content, problem, settings),
    ]


def planned_again(content: Mapping[str, Any], problem: Problem, settings: Settings, error: float) -> list[Finding]:
    """Derives the balls, the loss of the policy, intervals and W again, of a family of unknown laws."""
    family, constants, result = problem.functions, content["constants"], content["result"]
    assert isinstance(family, UnknownLaws), "its need was checked"
    members, rows = np.array(constants["counts"], dtype=np.float64), Rows.of(family)
    actions = np.array(constants["actions"], dtype=np.int64)
    beyond = np.arange(len(family.padding)) >= family.sizes[rows.law][:, None]  # [n, B]
    if members.shape != beyond.shape or (members < 0).any() or members[beyond].any():
        return [Finding("laws", False, "the counts are not of this family")]
    sane = actions.shape == (family.horizon, family.n_states) and ((actions >= 0) & (actions < family.n_actions)).all()
    if not sane or policy_of(family, actions).digest != content["policy"]["digest"]:
        return [Finding("laws", False, "the policy is not the one whose actions are stated")]
    death = log_deaths(family, Supposed(settings.delta * ON_LIKELIHOOD))
    radius, counts = radii(members, rows.law, family.sizes, death), pooled(members, rows.law, len(family.names))
    if (radius < 0).any():
        return [Finding("laws", False, "a group has no one law that explains its counts")]
    found = rows.plan(counts, radius, actions)
    gap = found.regret + 2 * error
    same = _same(
        problem,
        (constants["gap"], gap),
        (result["upper"], min(problem.env.reward_range[1], found.upper + error)),
        (result["epsilon"], max(settings.epsilon, gap)),
    )
    words = f"within the balls of {len(family.names):,} laws the policy loses at most {number_words(gap, up=True)}"
    return [
        Finding("laws", same and _reason_fits(result), words),
        _intervals(constants, {name: ends[:2] for name, ends in law_intervals(family, counts, radius).items()}),
        *_earned(content, problem, settings),
    ]


def _same(problem: Problem, *pairs: tuple[Any, float]) -> bool:
    scale = EXACT * max(1.0, *map(abs, problem.env.reward_range))
    return all(abs(float(stated) - again) <= scale for stated, again in pairs)


def _reason_fits(result: Mapping[str, Any]) -> bool:
    return result["reason"] in [
        one.value for one in (StopReason.EVERY_MODEL, StopReason.EPISODES_SPENT, StopReason.TOLERANCE)
    ]


def _intervals(constants: Mapping[str, Any], again: Mapping[str, Any]) -> Finding:
    """Compares the intervals of parameters."""
    stated = {name: ends[:2] for name, ends in constants["theta"].items()}
    ends: Floats = np.array([[*stated.get(name, (math.nan, math.nan)), *own] for name, own in again.items()]).reshape(
        -1, 4
    )
    off = np.abs(ends[:, :2] - ends[:, 2:]) <= EXACT * np.maximum(1.0, np.abs(ends[:, 2:]))
    agrees = set(stated) == set(again) and bool(off.all())
    return Finding("theta", agrees, f"{len(again):,} intervals hold what is left")


def _earned(content: Mapping[str, Any], problem: Problem, settings: Settings) -> list[Finding]:
    """Compares W with what the stored returns of the confirming episodes say; where it states nothing, with the range."""
    least, most = problem.env.reward_range
    stated = content["constants"]["earns"]
    if stated == [least, most] and content["result"]["lower"] == least:
        return [Finding("W", True, "nothing is claimed of what the policy earns")]
    lower, upper = earned_again(content["constants"], settings.delta, (least, most))
    same = _same(problem, (stated[0], lower), (stated[1], upper), (content["result"]["lower"], lower))
    return [Finding("W", same, f"{CONFIRM} episodes of the policy show at least {number_words(lower, up=False)}")]

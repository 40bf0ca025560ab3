"""What a certificate of a search in families states, derived again from the counts that it stores."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from richobs.classes.laws import UnknownLaws
from richobs.classes.learned_policy import LearnedPolicy
from richobs.classes.parametric import OFF, Family, Unlisted
from richobs.core.errors import BrokenPromise
from richobs.core.outcome import StopReason
from richobs.core.problem import Problem
from richobs.core.settings import Settings
from richobs.core.types import Floats, Ints
from richobs.core.words import number_words
from richobs.learners.base import Finding
from richobs.learners.families.cells import Tables
from richobs.learners.families.confirm import CONFIRM, ON_LIKELIHOOD, earned_again
from richobs.learners.families.evidence import Seen
from richobs.learners.families.laws import Rows, law_intervals, log_deaths, pooled, radii
from richobs.learners.families.nearly import Term
from richobs.learners.families.search import Tuning, cover_all, hull_of
from richobs.learners.tolerance import total_variation
from richobs.stats.shares import Supposed

EXACT = 1e-9  # relative difference that bounding again may show


def _policy_of(family: Unlisted, actions: Ints) -> LearnedPolicy:
    book = family.arrays.codebook
    return LearnedPolicy.from_table([book] * len(actions), list(actions), n_actions=family.n_actions)


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
    if _policy_of(family, actions).digest != content["policy"]["digest"]:
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
    if not sane or _policy_of(family, actions).digest != content["policy"]["digest"]:
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

"""The search among models as a learner: what it needs, promises and costs."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.environment import step_range
from richobs.core.errors import InvalidInput
from richobs.core.events import Callback, Progress
from richobs.core.functions import ModelFamily, StepwiseFamily
from richobs.core.outcome import Outcome, StopReason
from richobs.core.problem import Problem
from richobs.core.queries import Engine
from richobs.core.settings import Settings
from richobs.core.words import exact_words, number_words
from richobs.learners.base import WITHIN_EPSILON, Finding, Learner, Need, PlanRow, Promise, ShortPlan, Traits
from richobs.learners.models.search import PHASE, ModelSearch, Tuning, outcome, planning_error, run, says_steps
from richobs.learners.stopping import ToleranceIsLarge, total_variation

EXACT = 1e-12  # relative difference that planning again may show
MOST_LOOKED_AT = 64  # models whose own loss within a tolerance is planned before a run


def _models_missing(problem: Problem, settings: Settings) -> str | None:
    if isinstance(problem.functions, ModelFamily):
        return None
    return (
        f"a {type(problem.functions).__name__} says what actions are worth, and not how likely everything is. Give "
        "candidate models as richobs.Simulators, or use the learner 'betting'."
    )


class Models(Learner):
    """The search among models."""

    name = "models"
    about = "Search among models: elimination by likelihood, and policies planned in every model that is left."
    cites = "docs/models.md; mixture likelihoods after Robbins 1970, posterior draws after Thompson 1933"
    given = ("class of models", "horizon")
    needs = (Need("a class of candidate models", _models_missing),)
    promises = Promise(
        WITHIN_EPSILON,
        ("the real system is one of the models", "episodes are independent of each other, given what was played"),
    )
    costs = (
        "Often one or two dozen episodes: they grow with the logarithm of the number of models and with how alike those are "
        "that disagree about the best policy."
    )
    Tuning = Tuning
    traits = Traits(
        keeps_bounds=True,
        reads_episodes=True,
        looks_at_episodes=True,
        reads_recorded=True,
        takes_tolerance=True,
    )

    def check(self, problem: Problem, settings: Settings, engine: str) -> None:
        """Refuses what the base refuses, and an epsilon that rounding could hide."""
        super().check(problem, settings, engine)
        _check_tolerance(problem, settings)
        error = 2 * _planning_error(problem)
        if not error < settings.epsilon:
            low, high = problem.env.reward_range
            raise InvalidInput(
                f"epsilon {settings.epsilon:g} is too small for the learner 'models': with totals in [{exact_words(low)}, "
                f"{exact_words(high)}] a loss may be wrong by {error:.2g}, because rewards count as equal up to single "
                "precision. Ask for a larger epsilon, or let rewards be smaller: subtract a constant, or declare step_range."
            )

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns the evidence that refutes a model; nothing is known of the number of episodes."""
        self.check_needs(problem, settings)
        family = _family(problem)
        needed = math.log(family.n_models / settings.delta)
        where = "docs/models.md, B4: log(N / delta)"
        row = PlanRow(
            "at the most", "evidence", needed, "nats of likelihood between the truth and a refuted model", where
        )
        rows = [row]
        if settings.tolerance:
            least = least_loss(problem, settings)
            rows.append(PlanRow("tolerance", "least epsilon to hope for", least, "of reward", "docs/models.md, M2"))
        return ShortPlan("models: a search that fixes no size in advance", None, tuple(rows))

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Searches until a policy is certified, or the episodes are spent."""
        if settings.tolerance and (least := least_loss(problem, settings)) > settings.epsilon:
            size = math.log(_family(problem).n_models)
            said = ToleranceIsLarge(
                phase=PHASE, log_size_before=size, log_size_after=size, least=least, epsilon=settings.epsilon
            )
            notify(Progress(said, engine.ledger.total))
        search = ModelSearch.of(self, problem, engine, settings, notify, alpha=total_variation(settings))
        return outcome(search, run(search, problem.recorded))

    def recheck(self, content: Mapping[str, Any], problem: Problem, settings: Settings) -> list[Finding]:
        """Adds up the shares of delta, and plans the policy again in every model that the certificate says is left."""
        findings = super().recheck(content, problem, settings)
        if content["constants"].get("living") is None:
            return [*findings, Finding("planning", True, "the models that are left are too many to be listed")]
        return [*findings, _planned_again(content, problem, settings)]


def _family(problem: Problem) -> ModelFamily:
    family = problem.functions
    assert isinstance(family, ModelFamily), "its need was checked"
    return family


def _check_tolerance(problem: Problem, settings: Settings) -> None:
    """Raises InvalidInput if a tolerance is no total variation, or models do not say how likely single steps are."""
    if not total_variation(settings):
        return
    if not says_steps(_family(problem)):
        raise InvalidInput(
            "a tolerance needs models in which the observation tells the state: only then is it said how likely a single "
            "step is. Let observations show more, or leave `tolerance` out."
        )


def least_loss(problem: Problem, settings: Settings) -> float:
    """Returns the smallest loss that could be claimed, of a model's best policy where that model alone is left [M2]."""
    family, alpha = _family(problem), total_variation(settings)
    assert isinstance(family, StepwiseFamily), "it was checked"
    best = family.optimal_values_within(alpha)
    return min(
        float(best[i] - family.policy_values_within(LearnedPolicy(problem.functions, i), alpha, np.array([i]))[0])
        for i in range(min(_family(problem).n_models, MOST_LOOKED_AT))
    ) + 2 * _planning_error(problem)


def _planning_error(problem: Problem) -> float:
    return planning_error(problem.horizon, problem.env.reward_range, step_range(problem.env))


def _planned_again(content: Mapping[str, Any], problem: Problem, settings: Settings) -> Finding:
    """Computes U, W and the largest regret again from the models that are left."""
    family, constants, result = _family(problem), content["constants"], content["result"]
    left, member = constants["living"], content["policy"]["member"]
    listed = isinstance(left, list) and all(type(i) is int and 0 <= i < family.n_models for i in left)
    if not listed or not left or type(member) is not int or not 0 <= member < family.n_models:
        return Finding("planning", False, f"models {left!r} and policy {member!r} are not of this family")
    living = np.array(left)
    error, (least, most) = _planning_error(problem), problem.env.reward_range
    policy, alpha = LearnedPolicy(problem.functions, member), total_variation(settings)
    if alpha:
        assert isinstance(family, StepwiseFamily), "it was checked"
        values, best = family.policy_values_within(policy, alpha, living), family.optimal_values_within(alpha, living)
    else:
        values, best = family.policy_values(policy, living), family.optimal_values()[living]
    gap = max(0.0, float((best - values).max())) + 2 * error
    upper, lower = min(most, float(best.max()) + error), max(least, float(values.min()) - error)
    certified = gap <= settings.epsilon
    # A claim that was made wider says less than what was shown; where the policy was played too little, nothing.
    nothing = (result["upper"], result["lower"]) == (float(most), float(least)) and result["epsilon"] >= most - least
    widened = result["reason"] == StopReason.DOUBTED.value or nothing
    reasons = {StopReason.EVERY_MODEL} if certified else {StopReason.EPISODES_SPENT, StopReason.TOLERANCE}
    if result["remarks"]:  # the episodes were spent before the claim was tested, or speak against it
        reasons |= {StopReason.EPISODES_SPENT, StopReason.DOUBTED}
    claimed = settings.epsilon if certified else gap
    scale = EXACT * max(1.0, *map(abs, problem.env.reward_range))
    same = all(
        isinstance(stated, float | int) and (abs(stated - again) <= scale or (widened and wider * (stated - again) > 0))
        for stated, again, wider in (
            (constants.get("gap"), gap, 1),
            (result["upper"], upper, 1),
            (result["lower"], lower, -1),
            (result["epsilon"], claimed, 1),
        )
    )
    agrees = same and result["reason"] in {r.value for r in reasons} and constants.get("n_living") == len(left)
    where = "the model that is left" if len(left) == 1 else f"the {len(left):,} models that are left"
    lost, most_earned = number_words(gap, up=True), number_words(upper, up=True)
    return Finding("planning", agrees, f"in {where} the policy loses at most {lost}; V* <= {most_earned}")

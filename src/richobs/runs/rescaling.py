"""Rewards in other units, for learners that need them in [0, 1]: the problem is rescaled, and the answer scaled back.

What a person sees of a run is in the problem's own units: epsilon, bounds, estimates, the claim, and the bounds of every
`Progress`. What only the learner sees is in unit scale and labelled: its constants, the numbers of its events, and claims
of other kinds than bounds.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.environment import Environment
from richobs.core.errors import InvalidInput
from richobs.core.events import Progress
from richobs.core.outcome import DECLARED_TOTALS, LOWER, UNIT_TOTALS, UPPER, Claim, InUnits, Outcome, claim_words
from richobs.core.policies import SavablePolicy
from richobs.core.problem import SMALLEST, Problem
from richobs.core.settings import Settings
from richobs.core.units import LABEL, UnitEnvironment, UnitFunctions, Units, has_unit_rewards, units_missing, units_of
from richobs.learners import Finding, Learner
from richobs.learners.base import unit_rewards

NUMBERS = ("epsilon", "v_star_hat", "value_hat", "upper", "lower")  # of a result, which depend on units


@dataclass(frozen=True, eq=False)
class Rescaling:
    """A problem and settings in their own units and in those of a learner that needs rewards in [0, 1]."""

    learner: Learner
    own: Problem
    asked: Settings  # epsilon in the problem's own units
    units: Units
    problem: Problem  # in unit scale
    settings: Settings  # epsilon in unit scale

    def environment(self, env: Environment) -> Environment:
        """Returns what is played for the problem's environment, or for what stands in for it, in unit scale."""
        return UnitEnvironment(env, self.units)

    def progress(self, progress: Progress) -> Progress:
        """Returns where a run stands, with its bounds in the problem's own units."""
        upper, lower = progress.upper, progress.lower
        return dataclasses.replace(
            progress,
            upper=None if upper is None else self.units.own_above(upper),
            lower=None if lower is None else self.units.own_below(lower),
        )

    def outcome(self, answer: Outcome, sampling: tuple[str, ...]) -> Outcome:
        """Returns a learner's answer in the problem's own units.

        Args:
            answer: in unit scale.
            sampling: what the episodes themselves rest on, for learners that do not word their claim for other numbers.
        """
        numbers = _own_numbers(self.units, {name: getattr(answer, name) for name in NUMBERS})
        if answer.epsilon == self.settings.epsilon:
            numbers["epsilon"] = self.asked.epsilon
        return dataclasses.replace(
            answer,
            policy=self._own_policy(answer.policy),
            claim=self._claim(answer, numbers, sampling) if answer.guaranteed else answer.claim,
            claims=tuple(_own_claim(self.units, claim) for claim in answer.claims),
            remarks=tuple(f"{remark.rstrip('.')} (values here are {LABEL})" for remark in answer.remarks),
            in_units=InUnits(self.units, answer),
            **numbers,
        )

    def _own_policy(self, policy: SavablePolicy) -> SavablePolicy:
        """Returns the policy of the same member of the class in its own units, whose actions are the same."""
        if isinstance(policy, LearnedPolicy) and isinstance(policy.functions, UnitFunctions):
            return LearnedPolicy(policy.functions.own, policy.member)
        return policy

    def _claim(self, answer: Outcome, numbers: Mapping[str, Any], sampling: tuple[str, ...]) -> str:
        given = {name: numbers[name] for name in ("epsilon", "lower", "upper")}
        if answer.wording is not None:
            return answer.wording(**given).replace(UNIT_TOTALS, DECLARED_TOTALS)
        assumptions = self.learner.promises.assumptions or (f"the learner {answer.learner!r} may be used here",)
        return claim_words(answer.delta, assumptions=assumptions, sampling=sampling, **given)

    def recheck(self, content: Mapping[str, Any]) -> list[Finding]:
        """Checks that a certificate's numbers follow from those in unit scale, and lets the learner check these."""
        stated = content.get("units")
        if stated is None:
            return [Finding("units", False, f"the certificate has no numbers {LABEL}, and this learner works there")]
        same = (stated["shift"], stated["scale"]) == (self.units.shift, self.units.scale)
        numbers = _own_numbers(self.units, stated["result"])
        if stated["result"]["epsilon"] == self.settings.epsilon:
            numbers["epsilon"] = self.asked.epsilon
        same &= all(content["result"][name] == value for name, value in numbers.items())
        claims = [_own_claim(self.units, Claim(row[0], tuple(row[1]), *row[2:])) for row in stated["claims"]]
        same &= content["claims"] == [claim_row(claim) for claim in claims]
        unit_content = {
            **content,
            "settings": self.settings.as_plain(),
            "result": {**content["result"], **stated["result"]},
            "claims": stated["claims"],
        }
        detail = f"{self.units.words}; bounds and estimates follow from those {LABEL}"
        return [
            Finding("units", same, detail if same else f"not what {self.units.words} makes of the numbers {LABEL}"),
            *self.learner.recheck(unit_content, self.problem, self.settings),
        ]


def rescaling(learner: Learner, problem: Problem, settings: Settings) -> Rescaling | None:
    """Returns how a problem is rescaled for a learner; None where that is not needed, or not possible.

    Where it is not possible, `learner.check_needs` says why.

    Args:
        learner: who learns.
        problem: in its own units.
        settings: what is asked for, in the problem's own units.

    Raises:
        InvalidInput: epsilon is too small once it is rescaled.
    """
    if unit_rewards not in learner.needs or has_unit_rewards(problem) or units_missing(problem) is not None:
        return None
    units = units_of(problem.env)
    epsilon = units.width(settings.epsilon)
    if epsilon < SMALLEST:
        raise InvalidInput(
            f"the learner {learner.name!r} works {LABEL}. There epsilon = {settings.epsilon:g} is {epsilon:.3g}, and at "
            f"least {SMALLEST:g} is needed."
        )
    threshold = None if settings.threshold is None else units.value(settings.threshold)
    inner = dataclasses.replace(settings, epsilon=epsilon, threshold=threshold)
    return Rescaling(learner, problem, settings, units, units.problem(problem), inner)


def as_served(learner: Learner, problem: Problem, settings: Settings) -> tuple[Problem, Settings]:
    """Returns problem and settings as a learner gets them: rescaled where it needs rewards in [0, 1], else as they are."""
    found = rescaling(learner, problem, settings)
    return (problem, settings) if found is None else (found.problem, found.settings)


def paper_epsilon(problem: Problem, settings: Settings) -> float | None:
    """Returns epsilon in units where totals lie in [0, 1], as the paper's sizes need it; None: there are none."""
    if has_unit_rewards(problem):
        return settings.epsilon
    if units_missing(problem) is not None:
        return None
    epsilon = units_of(problem.env).width(settings.epsilon)
    return epsilon if SMALLEST <= epsilon < 1 else None


def units_part(outcome: Outcome) -> dict[str, Any]:
    """Returns what a certificate says of a rescaling, with the learner's own numbers; {} where there was none."""
    if outcome.in_units is None:
        return {}
    units, answer = outcome.in_units
    return {
        "units": {
            "shift": units.shift,
            "scale": units.scale,
            "words": f"{units.words}; constants and the numbers of tests are {LABEL}",
            "result": {name: getattr(answer, name) for name in NUMBERS},
            "claims": [claim_row(claim) for claim in answer.claims],
        }
    }


def claim_row(claim: Claim) -> list[Any]:
    """Returns a claim as a certificate writes it."""
    return [claim.kind, list(claim.path), claim.n, claim.share, claim.value]


def _own_numbers(units: Units, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the numbers of a result in the problem's own units; bounds are rounded to the safe side."""
    ways = {"epsilon": units.own_width, "upper": units.own_above, "lower": units.own_below}
    return {
        name: None if value is None else ways.get(name, units.own)(value)
        for name, value in ((name, numbers[name]) for name in NUMBERS)
    }


def _own_claim(units: Units, claim: Claim) -> Claim:
    """Returns a claim in the problem's own units where it is a bound on a value; others are labelled."""
    if claim.kind in (LOWER, UPPER):
        value = (units.own_below if claim.kind == LOWER else units.own_above)(claim.value)
        return dataclasses.replace(claim, value=value)
    return dataclasses.replace(claim, kind=f"{claim.kind} ({LABEL})")

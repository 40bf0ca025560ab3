"""What a notebook shows of an outcome, a certificate and a plan: the claim, the bounds as a small picture, the numbers."""

from collections.abc import Mapping
from typing import Any

from richobs.core import words
from richobs.core.outcome import Outcome, estimate_words
from richobs.learners.base import Plan
from richobs.runs.certificate import Certificate
from richobs.show.chart import Picture, bounds_picture, page

NOTHING = Picture("", "")


def outcome_html(outcome: Outcome) -> str:
    """Returns what `learn` answered."""
    names = ("lower", "upper", "value_hat", "guaranteed", "episodes", "remarks")
    result = {name: getattr(outcome, name) for name in names} | {"reason": outcome.reason.value}
    return _html(outcome.claim, outcome.learner, result, outcome.reward_range)


def certificate_html(certificate: Certificate) -> str:
    """Returns what a certificate states."""
    content = certificate.content
    return _html(certificate.claim, content["learner"], content["result"], content["environment"]["reward_range"])


def plan_html(plan: Plan) -> str:
    """Returns a plan line by line."""
    most = "not known" if plan.max_episodes is None else f"{words.count(plan.max_episodes)} episodes"
    rows = [(row.name, f"{words.number(row.value)} {row.unit}") for row in plan.rows()]
    return page(plan.title, NOTHING, [*rows, ("worst case", most)], whole=False)


def _html(claim: str, learner: str, result: Mapping[str, Any], span: tuple[float, float] | None) -> str:
    lower, upper, value = (result[name] for name in ("lower", "upper", "value_hat"))
    picture = NOTHING
    if span is not None and None not in (lower, upper) and result["guaranteed"]:
        picture = bounds_picture((span[0], span[1]), lower, upper, value)
    rows = [("learner", learner), ("episodes", words.count(result["episodes"]))]
    rows += [] if value is None else [("policy's value", estimate_words(value, lower, upper))]
    rows += [("stopped because", result["reason"]), *(("struggled", remark) for remark in result["remarks"])]
    return page(claim, picture, rows, whole=False)

"""Learners: who asks an engine and answers with a policy. One line here makes a learner known everywhere."""

from richobs.core.arguments import did_you_mean
from richobs.core.errors import InvalidInput
from richobs.core.functions import FunctionClass
from richobs.core.registry import Registry
from richobs.core.settings import Settings
from richobs.learners.base import Finding, Learner, Need, Plan, PlanRow, Promise, ShortPlan, tuning_fields

__all__ = [
    "LEARNERS",
    "Finding",
    "Learner",
    "Need",
    "Plan",
    "PlanRow",
    "Promise",
    "ShortPlan",
    "default_learner",
    "learner",
    "tuning_fields",
]

LEARNERS = Registry(
    "richobs.learners",
    {
        "betting": "richobs.learners.betting:Betting",
        "models": "richobs.learners.models:Models",
        "families": "richobs.learners.families:Families",
        "olive": "richobs.learners.olive:Olive",
        "linear": "richobs.learners.linear:LinearValues",
    },
)


def learner(name: str) -> Learner:
    """Returns the learner of that name; only then is it imported.

    Raises:
        InvalidInput: there is none.
    """
    if name not in LEARNERS:
        raise InvalidInput(
            f"there is no learner {name!r}; there are {', '.join(LEARNERS)} (see `richobs learners`)."
            f"{did_you_mean(name, LEARNERS)}"
        )
    made = LEARNERS.load(name)()
    if not isinstance(made, Learner):
        raise InvalidInput(f"the learner {name!r} is {LEARNERS[name]}, which is no richobs.Learner.")
    if made.traits.hands_over_to:
        LEARNERS.load(made.traits.hands_over_to)  # a stored run may hold its events
    return made


def default_learner(functions: FunctionClass) -> str:
    """Returns who learns where nobody is named: whom the class prefers, or that of the settings."""
    return getattr(functions, "preferred_learner", None) or Settings.learner

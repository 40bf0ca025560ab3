"""Learners: who asks an engine and answers with a policy. One line here makes a learner known everywhere."""

import importlib

from richobs.core.errors import InvalidInput
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
    "learner",
    "tuning_fields",
]

LEARNERS: dict[str, str] = {  # name -> where it is defined
    "betting": "richobs.learners.betting:Betting",
    "models": "richobs.learners.models:Models",
    "certified": "richobs.learners.certified:Certified",
    "lsvee": "richobs.learners.lsvee:Lsvee",
    "olive": "richobs.learners.olive:Olive",
    "delayed-q": "richobs.learners.delayed_q:DelayedQ",
    "epsilon-greedy": "richobs.learners.epsilon_greedy:EpsilonGreedy",
    "median-elimination": "richobs.learners.median_elimination:MedianElimination",
    "regressor-elimination": "richobs.learners.regressor_elimination:RegressorElimination",
    "rmax": "richobs.learners.rmax:Rmax",
    "successive-elimination": "richobs.learners.successive_elimination:SuccessiveElimination",
    "ucb-q": "richobs.learners.ucb_q:UcbQ",
    "uniform-allocation": "richobs.learners.uniform_allocation:UniformAllocation",
    "uniform-exploration": "richobs.learners.uniform_exploration:UniformExploration",
}
ALIASES = {"paper": "lsvee"}  # the name that the paper's algorithm used to have


def learner(name: str) -> Learner:
    """Returns the learner of that name; only then is it imported.

    Raises:
        InvalidInput: there is none.
    """
    known = ALIASES.get(name, name)
    if known not in LEARNERS:
        raise InvalidInput(f"there is no learner {name!r}; there are {', '.join(LEARNERS)} (see `richobs learners`).")
    module, _, kind = LEARNERS[known].partition(":")
    made = getattr(importlib.import_module(module), kind)()
    assert isinstance(made, Learner)
    return made

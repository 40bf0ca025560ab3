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
    "bpi-ucrl": "richobs.learners.bpi_ucrl:BpiUcrl",
    "delayed-q": "richobs.learners.delayed_q:DelayedQ",
    "e3": "richobs.learners.e3:E3",
    "epoch-greedy": "richobs.learners.epoch_greedy:EpochGreedy",
    "eprl": "richobs.learners.eprl:Eprl",
    "epsilon-greedy": "richobs.learners.epsilon_greedy:EpsilonGreedy",
    "homer": "richobs.learners.homer:Homer",
    "latent-q": "richobs.learners.latent_q:LatentQ",
    "median-elimination": "richobs.learners.median_elimination:MedianElimination",
    "pcid": "richobs.learners.pcid:Pcid",
    "ppe": "richobs.learners.ppe:Ppe",
    "regressor-elimination": "richobs.learners.regressor_elimination:RegressorElimination",
    "rmax": "richobs.learners.rmax:Rmax",
    "sb3-dqn": "richobs.learners.stable_baselines:Sb3Dqn",
    "sb3-ppo": "richobs.learners.stable_baselines:Sb3Ppo",
    "sparse-sampling": "richobs.learners.sparse_sampling:SparseSampling",
    "successive-elimination": "richobs.learners.successive_elimination:SuccessiveElimination",
    "trajectory-trees": "richobs.learners.trajectory_trees:TrajectoryTrees",
    "ucb-q": "richobs.learners.ucb_q:UcbQ",
    "ucfh": "richobs.learners.ucfh:Ucfh",
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

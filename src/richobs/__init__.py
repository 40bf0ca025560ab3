"""PAC reinforcement learning with rich observations: few hidden states, guarantees that can be checked.

Importing this package registers its worlds with Gymnasium (`richobs/Lock-v0` and so on).
"""

from richobs.assumptions import Check, Report, audit, check_assumptions
from richobs.certificate import Certificate, certify, verify
from richobs.envs import Problem, make
from richobs.envs.gym import register_all as _register_all
from richobs.errors import RichObsError
from richobs.functions import Callables, Layered, Tables
from richobs.learning import Settings
from richobs.outcome import Outcome, Progress
from richobs.planning import plan
from richobs.policy import LearnedPolicy
from richobs.problem import Environment, FunctionClass, GreedyPolicy, Policy, ValueFunction, ValueReport
from richobs.session import learn
from richobs.store import StoredRun
from richobs.tabular import Optimum, Rewards, TabularProcess
from richobs.version import __version__

__all__ = [
    "Callables",
    "Certificate",
    "Check",
    "Environment",
    "FunctionClass",
    "GreedyPolicy",
    "Layered",
    "LearnedPolicy",
    "Optimum",
    "Outcome",
    "Policy",
    "Problem",
    "Progress",
    "Report",
    "Rewards",
    "RichObsError",
    "Settings",
    "StoredRun",
    "Tables",
    "TabularProcess",
    "ValueFunction",
    "ValueReport",
    "__version__",
    "audit",
    "certify",
    "check_assumptions",
    "learn",
    "make",
    "plan",
    "verify",
]

_register_all()

"""PAC reinforcement learning with rich observations: few hidden states, guarantees that can be checked.

Importing this package registers its worlds with Gymnasium (`richobs/Lock-v0` and so on).
"""

from richobs.classes import (
    Callables,
    Constants,
    Family,
    Layered,
    LearnedPolicy,
    LevelClass,
    Linear,
    Listed,
    Model,
    Networks,
    Simulators,
    Tables,
)
from richobs.core import errors
from richobs.core.environment import Declared, Environment, Episodes
from richobs.core.errors import BrokenPromise, InvalidInput, RichObsError, RunStopped
from richobs.core.events import Progress
from richobs.core.functions import FunctionClass, ModelFamily
from richobs.core.outcome import Claim, Outcome
from richobs.core.policies import Greedy, OpenLoop, Policy, Switch, Uniform
from richobs.core.problem import Problem, Truth, ValueReport
from richobs.core.process import Rewards, TabularProcess
from richobs.core.settings import Settings
from richobs.core.version import __version__
from richobs.judging.compare import compare, compare_returns
from richobs.judging.measures import Episode
from richobs.judging.select import select
from richobs.judging.value import PolicyReport, Verdict, certify_policy
from richobs.learners import LEARNERS, Learner
from richobs.learning import learn, plan
from richobs.runs.certificate import Certificate, Verification
from richobs.runs.store import StoredRun
from richobs.runs.verify import verify
from richobs.show.terminal import TensorBoard
from richobs.worlds import WORLDS, make
from richobs.worlds.gymnasium_in import from_gymnasium
from richobs.worlds.gymnasium_out import register_all as _register_all

__all__ = [
    "LEARNERS",
    "WORLDS",
    "BrokenPromise",
    "Callables",
    "Certificate",
    "Claim",
    "Constants",
    "Declared",
    "Environment",
    "Episode",
    "Episodes",
    "Family",
    "FunctionClass",
    "Greedy",
    "InvalidInput",
    "Layered",
    "LearnedPolicy",
    "Learner",
    "LevelClass",
    "Linear",
    "Listed",
    "Model",
    "ModelFamily",
    "Networks",
    "OpenLoop",
    "Outcome",
    "Policy",
    "PolicyReport",
    "Problem",
    "Progress",
    "Rewards",
    "RichObsError",
    "RunStopped",
    "Settings",
    "Simulators",
    "StoredRun",
    "Switch",
    "Tables",
    "TabularProcess",
    "TensorBoard",
    "Truth",
    "Uniform",
    "ValueReport",
    "Verdict",
    "Verification",
    "__version__",
    "certify_policy",
    "compare",
    "compare_returns",
    "errors",
    "from_gymnasium",
    "learn",
    "make",
    "plan",
    "select",
    "verify",
]

_register_all()

"""PAC reinforcement learning with rich observations: few hidden states, guarantees that can be checked.

Importing this package registers its worlds with Gymnasium (`richobs/Lock-v0` and so on).
"""

from richobs.classes import (
    CallableLevel,
    Callables,
    Constants,
    Decoders,
    Layered,
    LearnedPolicy,
    LevelClass,
    Listed,
    Prototypes,
    TableLevel,
    Tables,
    codec,
    open_loop_policy,
    table_policy,
)
from richobs.core.environment import Environment, Episodes
from richobs.core.errors import (
    AssumptionViolated,
    BrokenPromise,
    EpisodeLimit,
    InvalidFile,
    InvalidInput,
    InvalidPath,
    InvalidProcess,
    Overspent,
    PrecisionError,
    Rejected,
    RewardOutOfRange,
    RichObsError,
    RunStopped,
    StoreError,
    UnknownWorld,
)
from richobs.core.events import Event, Progress
from richobs.core.functions import FunctionClass, ValueFunction
from richobs.core.outcome import Claim, Outcome, StopReason
from richobs.core.policies import Explore, Greedy, OpenLoop, Policy, Switch, Uniform
from richobs.core.problem import Problem, Truth, ValueReport
from richobs.core.process import Optimum, Rewards, TabularProcess
from richobs.core.queries import Answer, Engine, Query
from richobs.core.settings import Settings
from richobs.core.version import __version__
from richobs.engines import ENGINES
from richobs.learners import LEARNERS, Learner
from richobs.learning import learn
from richobs.runs.certificate import Certificate, Verification, certify
from richobs.runs.planning import plan
from richobs.runs.store import StoredRun, discard
from richobs.runs.verify import verify
from richobs.show.tensorboard import TensorBoard
from richobs.worlds import WORLDS, make
from richobs.worlds.assumptions import AssumptionCheck, AssumptionReport, check_assumptions
from richobs.worlds.audit import audit
from richobs.worlds.gymnasium_out import register_all as _register_all

__all__ = [
    "ENGINES",
    "LEARNERS",
    "WORLDS",
    "Answer",
    "AssumptionCheck",
    "AssumptionReport",
    "AssumptionViolated",
    "BrokenPromise",
    "CallableLevel",
    "Callables",
    "Certificate",
    "Claim",
    "Constants",
    "Decoders",
    "Engine",
    "Environment",
    "EpisodeLimit",
    "Episodes",
    "Event",
    "Explore",
    "FunctionClass",
    "Greedy",
    "InvalidFile",
    "InvalidInput",
    "InvalidPath",
    "InvalidProcess",
    "Layered",
    "LearnedPolicy",
    "Learner",
    "LevelClass",
    "Listed",
    "OpenLoop",
    "Optimum",
    "Outcome",
    "Overspent",
    "Policy",
    "PrecisionError",
    "Problem",
    "Progress",
    "Prototypes",
    "Query",
    "Rejected",
    "RewardOutOfRange",
    "Rewards",
    "RichObsError",
    "RunStopped",
    "Settings",
    "StopReason",
    "StoreError",
    "StoredRun",
    "Switch",
    "TableLevel",
    "Tables",
    "TabularProcess",
    "TensorBoard",
    "Truth",
    "Uniform",
    "UnknownWorld",
    "ValueFunction",
    "ValueReport",
    "Verification",
    "__version__",
    "audit",
    "certify",
    "check_assumptions",
    "codec",
    "discard",
    "learn",
    "make",
    "open_loop_policy",
    "plan",
    "table_policy",
    "verify",
]

_register_all()

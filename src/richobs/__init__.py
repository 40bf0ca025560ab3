"""PAC reinforcement learning with rich observations: few hidden states, guarantees that can be checked.

Importing this package registers its worlds with Gymnasium (`richobs/Lock-v0` and so on).
"""

from richobs.certifying import PolicyReport, Verdict, certify_policy
from richobs.classes import (
    CallableLevel,
    Callables,
    Constants,
    Decoders,
    Layered,
    LearnedPolicy,
    LevelClass,
    Linear,
    LinearLevel,
    Listed,
    Model,
    NetworkLevel,
    Networks,
    Prototypes,
    Simulators,
    TableLevel,
    Tables,
    codec,
    open_loop_policy,
    table_policy,
)
from richobs.core.environment import Declared, Environment, Episodes
from richobs.core.errors import (
    AssumptionViolated,
    BrokenPromise,
    CallTooLong,
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
    WorkerFailed,
)
from richobs.core.events import Event, Progress
from richobs.core.functions import FunctionClass, ModelFamily, ValueFunction
from richobs.core.outcome import Claim, Outcome, StopReason
from richobs.core.policies import Explore, Greedy, OpenLoop, Policy, Switch, Uniform
from richobs.core.problem import Problem, Truth, ValueReport
from richobs.core.process import Optimum, Rewards, TabularProcess
from richobs.core.queries import Answer, Engine, Query
from richobs.core.recorded import load_episodes, save_episodes
from richobs.core.settings import Settings
from richobs.core.version import __version__
from richobs.engines import ENGINES
from richobs.learners import LEARNERS, Learner
from richobs.learning import learn, plan
from richobs.runs.certificate import Certificate, Verification, certify
from richobs.runs.store import StoredRun, discard
from richobs.runs.verify import verify
from richobs.show.tensorboard import TensorBoard
from richobs.sweeping import sweep
from richobs.worlds import WORLDS, make
from richobs.worlds.assumptions import AssumptionCheck, AssumptionReport, check_assumptions
from richobs.worlds.audit import audit
from richobs.worlds.gymnasium_in import from_gymnasium
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
    "CallTooLong",
    "CallableLevel",
    "Callables",
    "Certificate",
    "Claim",
    "Constants",
    "Declared",
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
    "Linear",
    "LinearLevel",
    "Listed",
    "Model",
    "ModelFamily",
    "NetworkLevel",
    "Networks",
    "OpenLoop",
    "Optimum",
    "Outcome",
    "Overspent",
    "Policy",
    "PolicyReport",
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
    "Simulators",
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
    "Verdict",
    "Verification",
    "WorkerFailed",
    "__version__",
    "audit",
    "certify",
    "certify_policy",
    "check_assumptions",
    "codec",
    "discard",
    "from_gymnasium",
    "learn",
    "load_episodes",
    "make",
    "open_loop_policy",
    "plan",
    "save_episodes",
    "sweep",
    "table_policy",
    "verify",
]

_register_all()

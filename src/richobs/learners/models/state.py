"""The state of a search in a family of models, and the numbers that say how eager it is."""

import math
from dataclasses import dataclass, field
from functools import partial

from richobs.classes.family import REWARD_TOLERANCE
from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.environment import implied_step_range
from richobs.core.errors import InvalidInput
from richobs.core.events import Callback, Event, Progress
from richobs.core.functions import FunctionClass, ModelFamily
from richobs.core.queries import Engine
from richobs.engines.independence import Watch
from richobs.learners.models.living import ZETA, Living
from richobs.learners.models.regrets import Judged, Regrets
from richobs.stats.shares import Share

PHASE = "models"
ROUNDING = 1024 * 2.0**-52  # relative error of one level of planning: a few roundings for each outcome of an action


@dataclass(frozen=True)
class Tuning:
    """How eager the search is; nothing claimed depends on it."""

    batch: int = 2
    """Episodes of one policy before the models are weighed again; a long search allows a sixteenth of its episodes."""
    look: int = 4
    """How many of the most likely models' policies are planned in every living model after each batch."""

    def __post_init__(self) -> None:
        for name in ("batch", "look"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} must be at least 1; got {getattr(self, name)}.")


def planning_error(
    horizon: int, reward_range: tuple[float, float], step_range: tuple[float, float] | None = None
) -> float:
    """Returns how far the value of a policy in the true system may be from the planned one.

    Three errors are added up. An episode multiplies H + 1 probabilities, each with a relative error of at most ZETA, so two
    laws of whole episodes are at most (H + 1) ZETA apart, and totals lie in the declared range. A reward counts as the
    model's if it differs by at most REWARD_TOLERANCE of its size, or of 1. And sums are rounded in float64.

    Args:
        horizon: number of levels H.
        reward_range: smallest and largest possible sum of an episode's rewards.
        step_range: smallest and largest possible reward of one level; by default what `reward_range` implies.
    """
    low, high = reward_range
    reward = max(map(abs, implied_step_range(reward_range) if step_range is None else step_range))
    size = max(abs(low), abs(high), horizon * reward)
    tolerated = horizon * REWARD_TOLERANCE * max(1.0, reward)
    return float((horizon + 1) * (ZETA * (high - low) + ROUNDING * size) + tolerated)


@dataclass
class ModelSearch:
    """Which models live, which policies were planned in them, and what of delta was spent."""

    engine: Engine
    functions: FunctionClass
    family: ModelFamily
    reward_range: tuple[float, float]
    epsilon: float
    delta: float
    seed: int  # of the choice among models
    notify: Callback
    tuning: Tuning
    step_range: tuple[float, float] | None = None  # of one reward; None: what `reward_range` implies
    share: Share = field(init=False)  # the whole of delta, which B4 spends: B5 needs none
    living: Living = field(init=False)
    regrets: Regrets = field(init=False)
    error: float = field(init=False)  # of a planned value
    watch: Watch = field(init=False)  # that episodes are independent and of one law
    recorded: int = 0  # episodes that were played before the run
    rounds: int = 0  # batches played
    best: Judged | None = None  # the policy that loses least

    def __post_init__(self) -> None:
        self.share = Share(self.delta)
        self.living = Living(self.family.n_models, self.share)
        self.regrets = Regrets(self.functions, self.family, self.living, self.tuning.look)
        self.error = planning_error(self.functions.horizon, self.reward_range, self.step_range)
        self.watch = Watch(self.seed, self.reward_range)

    @property
    def upper(self) -> float:
        """U: the largest V* of a living model; no policy earns more than the largest total."""
        return min(float(self.reward_range[1]), self.regrets.upper + self.error)

    @property
    def lower(self) -> float:
        """W of the policy that loses least: its smallest value in a living model."""
        low = float(self.reward_range[0])
        if self.best is None or self.best.lowest is None:
            return low
        return max(low, self.best.lowest - self.error)

    @property
    def log_size(self) -> float:
        """Natural logarithm of the number of living models."""
        return math.log(len(self.living.models))

    @property
    def next_size(self) -> int:
        """Episodes of the next batch: known before it is played, and not a matter of how many are allowed."""
        return max(self.tuning.batch, self.engine.ledger.total // 16)

    def gap(self, judged: Judged) -> float:
        """Returns V* less the policy's value in the true model, at the most."""
        return max(0.0, judged.regret) + 2 * self.error

    def tell(self, event: Event) -> None:
        """Tells whoever listens."""
        policy = None if self.best is None else partial(LearnedPolicy, self.functions, self.best.member)
        self.notify(Progress(event, self.engine.ledger.total, self.upper, self.lower, policy))

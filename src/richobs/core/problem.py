"""A problem: what to play, which functions are candidates, and whatever else is known, such as recorded episodes."""

import copy
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar, cast

import numpy as np

from richobs.core.arguments import LARGEST_FACT, real_number, refuse_unusable, whole_number
from richobs.core.environment import (
    COLUMNS,
    Environment,
    Episodes,
    PlainFacts,
    checked_episodes,
    checked_range,
    environment_identity,
)
from richobs.core.errors import AssumptionViolated, InvalidInput, Rejected, RewardOutOfRange
from richobs.core.functions import FunctionClass
from richobs.core.policies import Greedy, Policy, Uniform, checked_policy
from richobs.core.process import TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Member

SMALLEST = 1e-9  # epsilon and delta below it are refused: float64 could not hold what follows from them
ENVIRONMENT_NAMES = ("horizon", "n_actions", "reward_range", "play")
CLASS_NAMES = (
    *("horizon", "n_actions", "is_product", "log_size", "digest", "level_size"),
    *("values", "moments", "kinds", "value_bounds", "value_range", "member"),
)
T = TypeVar("T")
ROLLOUTS = 200_000  # episodes that estimate a value in a world of this package, unless told otherwise
PART = 10_000  # of these episodes are played at once
REPEATED = 16  # different episodes from which on two equal parts are one that was given twice


def checked_accuracy(epsilon: Any, delta: Any, largest: float = 1.0) -> tuple[float, float]:
    """Returns both as Python's floats.

    Raises:
        InvalidInput: one of them is no number, or below SMALLEST, or epsilon is not below `largest`, or delta not below 1.
    """
    for name, value, most in (("epsilon", epsilon, largest), ("delta", delta, 1.0)):
        if not SMALLEST <= real_number(name, value) < most:
            end = f"{most:g}" if math.isfinite(most) else "the width of the range of an episode's total"
            raise InvalidInput(f"{name} must lie between {SMALLEST:g} and {end}; got {value!r}.")
    return float(epsilon), float(delta)


class ValueReport(float):
    """The value of a policy: a number that knows whether it is exact, and its interval where it is an estimate.

    It compares and computes like the number itself: `problem.value(policy) >= 0.4`.
    """

    low: float
    high: float
    confidence: float  # probability with which [low, high] holds the true value
    episodes: int  # rollouts that an estimate rests on; 0 where the value is exact

    def __new__(
        cls, value: float, low: float, high: float, confidence: float = 1.0, episodes: int = 0
    ) -> "ValueReport":
        """Returns the report of a value between `low` and `high`."""
        self = super().__new__(cls, value)
        self.low, self.high, self.confidence, self.episodes = low, high, confidence, episodes
        return self

    @classmethod
    def known(cls, value: float) -> "ValueReport":
        """Returns the report of a value computed exactly."""
        return cls(value, value, value)

    @classmethod
    def estimated(cls, returns: Floats, reward_range: tuple[float, float], confidence: float) -> "ValueReport":
        """Returns the mean of `returns` `[n]` with Hoeffding's two-sided interval for the mean, cut to the range."""
        if not 0 < confidence < 1:
            raise InvalidInput(f"confidence must lie strictly between 0 and 1; got {confidence}.")
        low, high = reward_range
        n = len(returns)
        mean = float(returns.mean())
        radius = (high - low) * math.sqrt(math.log(2 / (1 - confidence)) / (2 * n))
        return cls(mean, max(low, mean - radius), min(high, mean + radius), confidence, n)

    @property
    def value(self) -> float:
        """The number alone."""
        return float(self)

    @property
    def exact(self) -> bool:
        """Whether the value was computed rather than estimated."""
        return self.episodes == 0

    def __str__(self) -> str:
        if self.exact:
            return f"{float(self):.6g} (exact)"
        low, high = math.floor(1e4 * self.low) / 1e4, math.ceil(1e4 * self.high) / 1e4  # outwards
        return (
            f"{float(self):.4f}, an estimate from {self.episodes:,} episodes: in [{low:.4f}, {high:.4f}] "
            f"with probability {self.confidence:g}"
        )

    __repr__ = __str__


@dataclass(frozen=True, eq=False)
class Truth:
    """What only a judge may know of a problem: the optimum, and the simulator with its secret."""

    optimal_value: float  # V* ([KAL16] Eq. 1), exact; where noise hides states an upper bound only
    optimal_function: Member | None = None  # Q* in the class; None where it is not in it, or not known
    world: Any = field(default=None, repr=False)  # the simulator (`richobs.worlds.World`)
    exact_value: Callable[[Policy], float | None] | None = field(default=None, repr=False)  # None where it cannot tell


class WhenAsked(Generic[T]):
    """A field of a problem: a function that was given in its place is called when the field is first read."""

    def __init__(self, kind: type[T]):
        """Takes the type of the field."""
        self._kind = kind

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return "None"  # in the signature of a problem: it is the default

    def __get__(self, problem: "Problem | None", owner: object = None) -> T | None:
        if problem is None:
            return None
        given = vars(problem)[self._name]
        if callable(given):
            given = given()
            if not isinstance(given, self._kind):
                raise InvalidInput(
                    f"{self._name} of a problem is a richobs.{self._kind.__name__}, or a function that returns one; it "
                    f"returned {given!r:.80}."
                )
            problem.check_shape(self._name, given)
            vars(problem)[self._name] = given
        return cast("T | None", given)

    def __set__(self, problem: "Problem", given: T | Callable[[], T] | None) -> None:
        is_default = isinstance(given, WhenAsked)  # the default of such a field is its descriptor
        vars(problem)[self._name] = None if is_default else given


@dataclass(frozen=True, eq=False)
class Problem:
    """An environment and a class of candidate value functions; all else is optional and enables something.

    `env` and `functions` are what a learner sees. Everything else is for checking the answer, or enables more.
    """

    env: Environment
    functions: FunctionClass
    process: WhenAsked[TabularProcess] = field(
        default=WhenAsked(TabularProcess), repr=False
    )  # written down in full, or a function that does so when it is first asked for: counted draws, exact values
    n_states: int | None = None  # bound M on the latent states per level, which OLIVE needs
    truth: WhenAsked[Truth] = field(
        default=WhenAsked(Truth), repr=False
    )  # enables `optimal_value` and tells `verify` what is true; or a function that returns it
    id: str | None = None  # `richobs.make(id)` builds the same problem again: the command line can resume and verify
    recorded: Episodes | None = field(
        default=None, repr=False
    )  # played before by anybody: free evidence for elimination

    @refuse_unusable
    def __post_init__(self) -> None:
        check_class(self.functions)
        object.__setattr__(self, "env", checked_environment(self.env))
        self.check_shape("class", self.functions)
        if not callable(process := vars(self)["process"]):
            self.check_shape("process", process)
        if self.recorded is not None:
            object.__setattr__(self, "recorded", checked_recorded(joined_episodes(self.recorded), self.env))

    def check_shape(self, what: str, part: Any) -> None:
        """Raises InvalidInput where class or process has other levels or actions than the environment."""
        env = self.env
        has_shape = part is not None and what != "truth"
        if has_shape and (part.horizon, part.n_actions) != (env.horizon, env.n_actions):
            raise InvalidInput(
                f"the {what} has {part.horizon} levels and {part.n_actions} actions; the environment has {env.horizon} "
                f"and {env.n_actions}."
            )

    def named(self, id: str) -> Self:
        """Returns the same problem with the id by which `richobs.make` builds it; nothing is checked or built again."""
        named = copy.copy(self)
        object.__setattr__(named, "id", id)
        return named

    @property
    def horizon(self) -> int:
        """Number of levels H."""
        return self.env.horizon

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        return self.env.n_actions

    @property
    def name(self) -> str:
        """The id, or words for a problem without one."""
        return self.id if self.id is not None else "an environment of your own"

    @property
    def identity(self) -> str:
        """Which environment is played, in a line: as it declares, or the id, or its class and facts (weak)."""
        return environment_identity(self.env, self.id)

    @property
    def optimal_value(self) -> float:
        """V*, where it is known.

        Raises:
            AssumptionViolated: it is not known.
        """
        if self.truth is not None:
            return self.truth.optimal_value
        if self.process is not None:
            return self.process.optimum.value
        raise AssumptionViolated(f"{self.name}: V* is not known; give the problem a process or a truth.")

    @property
    def knows_optimum(self) -> bool:
        """Whether `optimal_value` can be asked for."""
        return self.truth is not None or self.process is not None

    @property
    def optimal_function(self) -> Member | None:
        """Q* in the class; None where it is not in it, or not known."""
        return None if self.truth is None else self.truth.optimal_function

    def value(
        self, policy: Policy, *, episodes: int | None = None, confidence: float = 0.99, seed: int = 0
    ) -> ValueReport:
        """Returns V(policy): exact where it can be computed, otherwise an estimate that says so.

        Exact where the process is listed, or where the policy says that it reads few enough bits to enumerate.

        Args:
            policy: what to value.
            episodes: how many rollouts an estimate takes; by default 200,000 in a built-in world. For an environment of
                your own, say how many it may play.
            confidence: probability with which the estimate's interval is to hold.
            seed: of the rollouts.
        """
        checked_policy(policy)
        if self.process is not None:
            return ValueReport.known(self.process.value(policy))
        exact = self.truth.exact_value(policy) if self.truth is not None and self.truth.exact_value else None
        if exact is not None:
            return ValueReport.known(exact)
        if episodes is None and self.truth is None:
            raise InvalidInput(
                f"{self.name}: a value can only be estimated by playing; say how many `episodes` to play."
            )
        total = ROLLOUTS if episodes is None else whole_number("Problem.value: episodes", episodes, least=1)
        rng = keyed_generator(whole_number("Problem.value: seed", seed, least=None), self.id or "own", "value")
        parts = [self.env.play(policy, min(PART, total - first), rng).returns for first in range(0, total, PART)]
        return ValueReport.estimated(np.concatenate(parts), self.env.reward_range, confidence)

    def optimal_policy(self) -> Policy:
        """Returns a policy that earns V*, from the truth (nothing is learned).

        Raises:
            AssumptionViolated: no reactive policy is known to.
        """
        if self.optimal_function is not None:
            return Greedy(self.functions.member(self.optimal_function))
        if self.process is not None:
            return self.process.optimal_policy()
        raise AssumptionViolated(
            f"{self.name}: no policy is known to be optimal. Where noise of unbounded support shows every observation in "
            "every state, no function of the observation is Q*."
        )


def as_problem(given: Environment | Problem, functions: FunctionClass | None = None) -> Problem:
    """Returns the problem that a caller means: one that was given, changed by what else was given, or a new one.

    Args:
        given: a problem, or an environment.
        functions: the class F; needed with an environment, replaces a problem's own.
    """
    if not isinstance(given, Problem):
        if functions is None:
            raise InvalidInput(
                f"a {type(given).__name__} arrived without a function class: give (env, functions), or a richobs.Problem "
                "such as richobs.make returns."
            )
        return Problem(given, functions)
    if functions is None:
        return given
    # Another class makes another problem: no id describes it, and Q* has no known place in the class.
    return Problem(given.env, functions, given.process, given.n_states, recorded=given.recorded)


def check_class(functions: FunctionClass) -> None:
    """Refuses what is no class of functions.

    Raises:
        InvalidInput: it lacks something that every class has.
    """
    _require("a function class", functions, CLASS_NAMES)


def checked_environment(env: Environment) -> Environment:
    """Returns an environment whose three facts are Python's numbers: the one that is given, if its own are.

    Raises:
        InvalidInput: `env` lacks something that every environment has, or declares something impossible.
    """
    _require("an environment", env, ENVIRONMENT_NAMES)
    name = type(env).__name__
    if isinstance(env, type):
        raise InvalidInput(f"{env.__name__} is a class; give an environment of it, {env.__name__}().")
    declared: list[Any] = [env.horizon, env.n_actions]
    horizon, n_actions = (
        whole_number(f"{name}.{fact}", number, least=1, most=LARGEST_FACT)
        for fact, number in zip(("horizon", "n_actions"), declared, strict=True)
    )
    ends = env.reward_range
    low, high = checked_range(
        f"{name}.reward_range, what an episode's rewards sum to at the least and at the most,", ends
    )
    if low == high:
        raise InvalidInput(
            f"{name}.reward_range is [{low:g}, {high:g}]: every policy earns {low:g}, nothing is left to learn."
        )
    if {type(number) for number in (*declared, *ends)} <= {int, float}:
        return env
    return PlainFacts.around(env, horizon, n_actions, (low, high))


def _require(what: str, thing: object, names: tuple[str, ...]) -> None:
    """Raises `InvalidInput` where an object lacks one of the attributes in `names`."""
    missing = [name for name in names if not hasattr(thing, name)]
    if missing:
        if "play" in missing and hasattr(thing, "step") and hasattr(thing, "reset"):
            steps = getattr(getattr(thing, "spec", None), "max_episode_steps", None)
            raise InvalidInput(
                f"{what} plays whole episodes, and a {type(thing).__name__} arrived, an environment of Gymnasium. Give "
                f"richobs.from_gymnasium(env, horizon={steps or '...'}, reward_range=(smallest total, largest total)): see "
                "docs/gymnasium.md."
            )
        arrived = f"a {type(thing).__name__} arrived"
        found = f"{what} needs {', '.join(names)}; {arrived}, which has no {', '.join(missing)}"
        advice = (
            "richobs.make(id) builds a world, richobs.from_gymnasium(id, ...) a Gymnasium one: docs/your-own-problem.md."
            if "play" in names
            else "richobs.Simulators makes one of a list of models, Callables of Python functions, Tables of arrays, Family "
            "of a simulator with unknown numbers: see docs/classes.md."
        )
        raise InvalidInput(f"{found if len(missing) < len(names) else f'{what} is needed; {arrived}'}. {advice}")


def joined_episodes(given: Any) -> Episodes:
    """Returns one `Episodes` of one or several.

    Raises:
        InvalidInput: something else was given, or nothing.
    """
    parts = [given] if isinstance(given, Episodes) else given
    if not isinstance(parts, Sequence) or not parts or not all(isinstance(part, Episodes) for part in parts):
        raise InvalidInput(
            "recorded episodes are a richobs.Episodes, or a list of them, such as `play` returns and richobs.Episodes.load "
            f"reads; got {type(given).__name__}."
        )
    try:
        joined = Episodes.concatenate(parts)
        digests = [episodes_digest(part) for part in parts] if len(parts) > 1 else []
        counts = Counter(digests)
        twice = [part for part, digest in zip(parts, digests, strict=False) if counts[digest] > 1]
        repeated = max((part.n for part in twice if _count_different(part) >= REPEATED), default=0)
    except (ValueError, TypeError, IndexError) as error:
        raise InvalidInput(f"the recorded episodes do not fit each other: {error}") from error
    if repeated:
        raise InvalidInput(
            f"recorded episodes count once, and a part of {repeated:,} of them is twice in the list. Give each part once."
        )
    return joined


def _count_different(episodes: Episodes) -> int:
    """Returns how many different episodes there are."""
    columns = [np.asarray(column) for name in COLUMNS for column in getattr(episodes, name)]
    return len({b"".join(column[i].tobytes() for column in columns) for i in range(episodes.n)})


def checked_recorded(given: Episodes, env: Environment) -> Episodes:
    """Returns recorded episodes once they are known to fit an environment: all levels, its actions, its range of rewards.

    Raises:
        InvalidInput: they do not fit.
    """
    if not given.levels or not given.n:
        raise InvalidInput("the recorded episodes hold no episode.")
    try:
        return checked_episodes(given, env, Uniform(env.n_actions), given.n, env.horizon)
    except (Rejected, RewardOutOfRange) as error:
        raise InvalidInput(
            f"the recorded episodes are not of this environment, or not whole. Read as its own: {error}"
        ) from error


def check_alike(recorded: Episodes, played: Episodes) -> None:
    """Refuses recorded episodes whose observations have another form than those that were played.

    Raises:
        InvalidInput: another shape, or text instead of numbers.
    """
    for level, (before, now) in enumerate(zip(recorded.observations, played.observations, strict=True)):
        forms = [(x.shape[1:], x.dtype.kind in "fiubc") for x in (before, now)]
        if forms[0] != forms[1]:
            raise InvalidInput(
                f"the recorded episodes are not of this environment: at level {level} an observation there is "
                f"{before.dtype} of shape {before.shape[1:]}, and {now.dtype} of shape {now.shape[1:]} in those played now."
            )


def episodes_digest(episodes: Episodes) -> str:
    """Returns the SHA-256 of all that was seen, done and earned, with types and shapes."""
    digest = hashlib.sha256()
    for name in COLUMNS:
        for column in getattr(episodes, name):
            plain = np.ascontiguousarray(column)
            digest.update(f"{name} {plain.dtype.str} {plain.shape}\n".encode())
            digest.update(plain.tobytes())
    return digest.hexdigest()

"""`certify_policy`: what any policy earns, with an interval that holds at every number of episodes.

Whoever learned the policy, only its own fresh episodes count (docs/policy-value.md). Shapes: n episodes.
"""

import contextlib
import dataclasses
import enum
import functools
import json
import math
import operator
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from pathlib import Path as FilePath
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.arguments import real_number, whole_number
from richobs.core.environment import TOLERANCE, Environment, checked_range, declared_by
from richobs.core.errors import BrokenPromise, InvalidInput, RewardOutOfRange, RunStopped
from richobs.core.executors import Workers
from richobs.core.files import write_atomically
from richobs.core.ledger import Ledger
from richobs.core.outcome import LOWER, Claim, sampling_assumptions
from richobs.core.policies import Policy
from richobs.core.problem import ENVIRONMENT_NAMES, SMALLEST, Problem, checked_environment
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Observations
from richobs.core.version import __version__
from richobs.core.words import exact_words, number_words, probability_words
from richobs.engines.calls import Calls, play_checked
from richobs.engines.independence import OneLaw, stop_for
from richobs.show.terminal import is_interactive
from richobs.stats.sequences import ConfidenceSequence, enough_for
from richobs.stats.shares import Share
from richobs.worlds.gymnasium_in.arrays import NUMBERED, Actions
from richobs.worlds.simulator import WorldEnvironment

FORMAT = "richobs-policy-value"
MAX_EPISODES = 100_000  # where only a threshold is given
BATCH = 32  # episodes between two looks at the beginning
LARGEST_BATCH = 10_000_000  # episodes that are played before anything is looked at
GROWTH = 16  # later, a sixteenth of all episodes so far
DIGITS = 4  # to which a bound is written in words, as powers of ten below the width of the range
ROUNDING = 1e-12  # relative error of scaling to [0, 1] and back in float64, with room
MONITOR = 5e-7  # the wrapper Monitor of Stable-Baselines3 rounds totals to six decimals
SINGLE = 2.0**-23  # relative error of a total whose rewards are in single precision, as vector environments return them
FALSE_ALARM = 1e-4  # probability that a call is stopped though its episodes are independent and of one law
ABOVE = "V(policy) is at most"  # the claim that the upper bound is


class Verdict(enum.Enum):
    """Why no more episodes were played; the value is the sentence a person reads."""

    AT_LEAST = "the policy earns at least the threshold"
    BELOW = "the policy earns less than the threshold"
    WITHIN_EPSILON = "the interval is as narrow as was asked"
    EPISODES_SPENT = "the episodes allowed were spent; the interval holds, but nothing else was decided"
    OPEN = "not decided yet; more episodes are being played"


@dataclass(frozen=True)
class PolicyReport:
    """What is certain about the value of a policy, its expected total reward, in the environment's own units."""

    lower: float
    upper: float
    mean: float  # of the totals that were played: an estimate, of which nothing is claimed
    episodes: int
    delta: float  # probability that the interval, or the verdict, is false
    verdict: Verdict
    reward_range: tuple[float, float]  # declared range of an episode's total
    threshold: float | None = None
    epsilon: float | None = None  # width of the interval that was asked for
    seed: int = 0
    claims: tuple[Claim, ...] = dataclasses.field(default=(), repr=False)  # the two bounds and their shares of delta
    checks: int = 0  # episodes that were played a second time, to compare copies; the interval does not rest on them
    assumes: tuple[str, ...] = ()  # what else has to be true so that episodes are independent, in words
    deterministic: bool = False  # whether a model was asked for deterministic actions, perhaps not those of training

    @property
    def width(self) -> float:
        """How far apart the bounds are."""
        return self.upper - self.lower

    @property
    def is_certified(self) -> bool:
        """Whether the policy is known to earn at least the threshold."""
        return self.verdict is Verdict.AT_LEAST

    @property
    def units(self) -> str:
        """What the numbers mean, in words."""
        low, high = self.reward_range
        return f"total reward of an episode, declared to lie in [{exact_words(low)}, {exact_words(high)}]"

    @property
    def claim(self) -> str:
        """What is guaranteed, in a sentence; bounds are rounded outwards."""
        low, high = self.reward_range
        power = math.floor(math.log10(high - low)) - DIGITS
        below = max(_on_grid(self.lower, power, ROUND_FLOOR), exact_words(low), key=Decimal)
        above = min(_on_grid(self.upper, power, ROUND_CEILING), exact_words(high), key=Decimal)
        interval = f"between {below} and {above} per episode in expectation"
        decided = ""
        if self.threshold is not None and self.verdict in (Verdict.AT_LEAST, Verdict.BELOW):
            relation = "at least" if self.verdict is Verdict.AT_LEAST else "less than"
            decided = f", which is {relation} {exact_words(self.threshold)}"
        spent = float(
            Context(prec=3, rounding=ROUND_CEILING).create_decimal(repr(self.delta))
        )  # rounded up, few digits
        assumed = "".join(f"{words}, that " for words in self.assumes)
        policy = "the policy, acting deterministically," if self.deterministic else "the policy"
        return (
            f"With probability at least {probability_words(spent)} {policy} earns {interval}{decided}, provided that "
            f"{assumed}episodes are independent and every total lies in [{exact_words(low)}, {exact_words(high)}]."
        )

    def __str__(self) -> str:
        """The claim, and what it rests on."""
        more = f", and {self.checks:,} played again to compare copies" if self.checks else ""
        return f"{self.claim} ({self.episodes:,} episodes{more}, mean {self.mean:.4g}; {self.verdict.value}.)"

    def as_json(self) -> dict[str, Any]:
        """Returns the report as plain values."""
        return {
            "format": FORMAT,
            "version": 1,
            "claim": self.claim,
            "verdict": self.verdict.name,
            "reason": self.verdict.value,
            "lower": self.lower,
            "upper": self.upper,
            "mean": self.mean,
            "episodes": self.episodes,
            "checks": self.checks,
            "delta": self.delta,
            "units": self.units,
            "reward_range": list(self.reward_range),
            "threshold": self.threshold,
            "epsilon": self.epsilon,
            "deterministic": self.deterministic,
            "seed": self.seed,
            "claims": [[c.kind, c.n, c.share, c.value] for c in self.claims],
            "richobs": __version__,
        }

    def save(self, file: str | os.PathLike[str], /) -> None:
        """Writes the report to a JSON file."""
        with write_atomically(FilePath(file)) as stream:
            stream.write((json.dumps(self.as_json(), indent=2) + "\n").encode())


def _on_grid(bound: float, power: int, rounding: str) -> str:
    """Returns a bound as a multiple of 10^power, rounded to its own side; -0 reads 0."""
    context = Context(prec=60, rounding=rounding)
    rounded = Decimal(repr(float(bound))).quantize(Decimal(1).scaleb(power), context=context) + 0
    return f"{rounded:f}"


Listener = Callable[[PolicyReport], None]
Player = Callable[[int, np.random.Generator], list[Floats]]  # plays n episodes and returns their totals, call by call


@runtime_checkable
class Predictor(Protocol):
    """A policy as Stable-Baselines3 has them."""

    def predict(self, observation: Any, **options: Any) -> Any:
        """Returns (actions, state) for observations."""


@runtime_checkable
class VectorEnvironment(Protocol):
    """A vector environment of Stable-Baselines3, as far as it is told apart from others."""

    num_envs: int

    def step_async(self, actions: Any) -> None:
        """Begins a step of all copies."""

    def step_wait(self) -> Any:
        """Ends a step of all copies."""

    def seed(self, seed: int | None = None) -> Any:
        """Seeds all copies."""


def certify_policy(
    env: Environment | Problem | gymnasium.Env[Any, Any] | VectorEnvironment,
    policy: Policy | Predictor | Callable[[Any], Any],
    *,
    threshold: float | None = None,
    epsilon: float | None = None,
    delta: float = 0.05,
    max_episodes: int | None = None,
    seed: int = 0,
    reward_range: tuple[float, float] | None = None,
    batch: int = BATCH,
    callback: Listener | None = None,
    progress: bool | None = None,
) -> PolicyReport:
    """Plays a policy until it is certain what it is worth, and returns an interval for its value (docs/policy-value.md).

    The interval holds with probability at least 1 - delta at all numbers of episodes at once, so looking after every batch
    and stopping early do not weaken it. It is assumed that episodes are independent and that their totals lie in the
    declared range, and nothing else. The policy must have been fixed before: where it was chosen by means of a call with
    the same seed, choose another seed.

    Args:
        env: a richobs environment or problem, or a Gymnasium environment with any spaces. A Gymnasium environment is reset
            with a fresh seed for every episode, which lasts until the environment says that it is over. A vector
            environment of Stable-Baselines3 plays several episodes at once, which is faster for models.
        policy: an object with `actions(level, x, rng)` (any policy of richobs), an object with `predict(obs,
            deterministic=True)` (any model of Stable-Baselines3; the claim is about its deterministic actions), or a
            function that takes one observation and returns one action. A function is called for every observation
            separately, so the first two are faster. Numbers from `actions` count a Gymnasium environment's actions from 0,
            as `from_gymnasium` does; `predict` and functions return actions of its space.
        threshold: stop as soon as it is certain that the value is at least this, or that it is less.
        epsilon: stop as soon as the interval is at most this wide, in units of reward.
        delta: probability that the claim is false.
        max_episodes: no more are played. By default, with `epsilon`, as many as surely suffice for it, and otherwise
            100,000.
        seed: of every draw; the same seed gives the same result.
        reward_range: smallest and largest possible total of an episode; by default what the environment declares. A
            Gymnasium environment declares none.
        batch: episodes until the first look; later looks come after a sixteenth of all episodes so far.
        callback: called with the report so far after every look.
        progress: show the interval as it shrinks; by default in a terminal or a notebook.

    Raises:
        BrokenPromise: two looks contradict each other, so episodes are not independent draws of one law (or the probability
            delta was met); or a check shows that they are not (with those it stops a call with probability 0.0001 at most).
        InvalidInput: nothing says when to stop, or an argument cannot be used.
        Rejected: the environment answered something else than it was asked.
        RewardOutOfRange: an episode's total lies outside the declared range.
    """
    played: Any = env.env if isinstance(env, Problem) else env
    low, high = totals_range(played, reward_range)
    check_question((low, high), threshold, epsilon, delta, max_episodes, batch)
    delta = float(delta)
    threshold, epsilon = (None if value is None else float(value) for value in (threshold, epsilon))
    error = _totals_error(played, (low, high))
    slack = TOLERANCE + ROUNDING * (high - low) + error
    if max_episodes is None:
        max_episodes = MAX_EPISODES
        if epsilon is not None:
            max_episodes = enough_for(min((epsilon - 2 * slack) / (high - low), 1.0), delta / 2)
    asked = PolicyReport(
        low,
        high,
        math.nan,
        0,
        delta,
        Verdict.OPEN,
        (low, high),
        threshold,
        epsilon,
        whole_number("seed", seed, least=None),
        assumes=() if isinstance(played, gymnasium.Env | VectorEnvironment) else sampling_assumptions(played),
        deterministic=isinstance(policy, Predictor) and not callable(getattr(policy, "actions", None)),
    )
    if callback is not None and not callable(callback):
        raise InvalidInput(f"callback must be a function of a PolicyReport; got {callback!r:.80}.")
    ledger = Ledger(int(max_episodes))
    with (
        Workers(declared_by(played).processes) as workers,
        _shown(is_interactive() if progress is None else progress) as watch,
    ):
        play = player(played, policy, workers, ledger)

        def listen(report: PolicyReport) -> None:
            watch(report)
            if callback is not None:
                callback(report)

        return _looks(play, asked, ledger, int(batch), listen, slack)


def _totals_error(env: Any, reward_range: tuple[float, float]) -> float:
    """Returns by how much a total that arrives may differ from the rewards that were paid.

    Vector environments return rewards in single precision, and a `Monitor` around them rounds totals.
    """
    if not isinstance(env, VectorEnvironment) or isinstance(env, gymnasium.Env):
        return 0.0
    return MONITOR + SINGLE * max(map(abs, reward_range))


def _looks(
    play: Player, asked: PolicyReport, ledger: Ledger, batch: int, listen: Listener, slack: float
) -> PolicyReport:
    """Plays and looks until there is a verdict.

    Args:
        play: plays n episodes.
        asked: what was asked, in a report of no episodes.
        ledger: counts the episodes, and says how many are allowed.
        batch: episodes until the first look.
        listen: called with the report after every look.
        slack: by how much clipping to the range and rounding may move a mean.
    """
    limit = ledger.max_episodes or MAX_EPISODES
    whole = Share(asked.delta)
    below, above = whole.split(0.5, 0.5)
    sequence = ConfidenceSequence(limit, below, above)
    report, low, high = asked, *asked.reward_range
    one_law = OneLaw(Share(FALSE_ALARM), keyed_generator(asked.seed, "policy value", "checks"))
    try:
        while report.verdict is Verdict.OPEN:
            n = min(max(batch, sequence.n // GROWTH), limit - sequence.n)
            look = ledger.charge("value", "rollout", (), n)
            calls = play(n, keyed_generator(asked.seed, "policy value", look))
            totals = _scaled(np.concatenate(calls), n, asked.reward_range, slack)
            for call in np.split(totals, np.cumsum([len(call) for call in calls[:-1]])):
                one_law.add(call)
            if one_law.is_refuted:
                stop_for(one_law.returns_words(low, high - low), FALSE_ALARM)
            sequence.add(totals)
            report = _look(sequence, asked, limit, slack)
            listen(report)
    except RunStopped as stopped:
        stopped.ledger = ledger
        raise
    except RuntimeError as error:
        if isinstance(error.__cause__, StopIteration):  # of somebody's code: a generator on its way changed it
            raise error.__cause__ from None
        raise
    below.claim(LOWER, (), report.episodes, report.lower)
    above.claim(ABOVE, (), report.episodes, report.upper)
    return dataclasses.replace(report, claims=whole.claims(), checks=ledger.checks)


def _look(sequence: ConfidenceSequence, asked: PolicyReport, limit: int, slack: float) -> PolicyReport:
    """Returns what is certain now, in the environment's units.

    Raises:
        BrokenPromise: the bounds contradict each other.
    """
    low, high = asked.reward_range
    report = dataclasses.replace(
        asked,
        lower=max(low, low + (high - low) * sequence.lower - slack),
        upper=min(high, low + (high - low) * sequence.upper + slack),
        mean=low + (high - low) * sequence.mean,
        episodes=sequence.n,
    )
    if report.lower > report.upper:
        raise BrokenPromise(
            f"after {report.episodes:,} episodes the value is certainly at least {report.lower:.6g}, and certainly at most "
            f"{report.upper:.6g}. These bounds contradict each other: episodes are not independent draws of one law. If "
            f"they are, this happens with probability at most {asked.delta:g}."
        )
    return dataclasses.replace(report, verdict=_verdict(report, limit))


def _verdict(report: PolicyReport, limit: int) -> Verdict:
    """Returns what is certain now."""
    if report.threshold is not None and report.lower >= report.threshold:
        return Verdict.AT_LEAST
    if report.threshold is not None and report.upper < report.threshold:
        return Verdict.BELOW
    if report.epsilon is not None and report.width <= report.epsilon:
        return Verdict.WITHIN_EPSILON
    return Verdict.EPISODES_SPENT if report.episodes >= limit else Verdict.OPEN


def totals_range(env: Any, reward_range: tuple[float, float] | None) -> tuple[float, float]:
    """Returns the declared range of an episode's total.

    Args:
        env: what is played.
        reward_range: what the caller declares; it goes before what the environment declares.

    Raises:
        InvalidInput: nothing declares it, or it is not a pair of finite numbers, the first one smaller.
    """
    given = reward_range
    if given is None:
        if isinstance(env, gymnasium.Env) or not hasattr(env, "reward_range"):
            raise InvalidInput(
                f"{type(env).__name__} does not declare what an episode's rewards can sum to, and no interval is valid "
                "without that: give reward_range=(smallest total, largest total), for CartPole-v1 (0, 500)."
            )
        given = env.reward_range
    low, high = checked_range("reward_range", given)
    if low == high:
        raise InvalidInput(
            f"reward_range is [{low:g}, {high:g}]: every policy earns {low:g}, nothing is left to certify."
        )
    return low, high


def check_question(
    reward_range: tuple[float, float],
    threshold: Any,
    epsilon: Any,
    delta: Any,
    max_episodes: Any,
    batch: Any = BATCH,
) -> None:
    """Raises `InvalidInput` where an argument of `certify_policy` cannot be used, or nothing says when to stop."""
    low, high = reward_range
    if threshold is None and epsilon is None and max_episodes is None:
        raise InvalidInput(
            "nothing says when to stop: give a threshold to compare the value with, the width epsilon that the interval "
            "should have, or max_episodes."
        )
    for name, value in (("threshold", threshold), ("epsilon", epsilon), ("delta", delta)):
        if value is not None and not math.isfinite(real_number(name, value)):
            raise InvalidInput(f"{name} must be a finite number; got {value!r}.")
    if not SMALLEST <= delta < 1:
        raise InvalidInput(f"delta must lie between {SMALLEST:g} and 1; got {delta!r}.")
    if threshold is not None and not low < threshold <= high:
        raise InvalidInput(
            f"threshold {threshold:g} decides nothing, because totals lie in [{low:g}, {high:g}]. Give one above {low:g} "
            f"and at most {high:g}."
        )
    if epsilon is not None and epsilon <= 0:
        raise InvalidInput(f"epsilon, the width of the interval, must be above 0; got {epsilon!r}.")
    if max_episodes is not None:
        whole_number("max_episodes", max_episodes, least=1)
    whole_number("batch", batch, least=1, most=LARGEST_BATCH)


def _scaled(totals: Any, n: int, reward_range: tuple[float, float], slack: float) -> Floats:
    """Returns the totals of n episodes as numbers in [0, 1], after checking that they lie in the range but for rounding."""
    low, high = reward_range
    array = np.asarray(totals, dtype=np.float64)
    if array.shape != (n,):
        raise InvalidInput(f"{n} episodes were to be played; totals of shape {array.shape} arrived.")
    wrong = ~((array >= low - slack) & (array <= high + slack))  # NaN included
    if wrong.any():
        raise RewardOutOfRange(
            f"an episode's rewards sum to {array[wrong][0]:.6g}; the declared range of the total is [{low:g}, {high:g}]. "
            "Declare the range that totals can really have (reward_range)."
        )
    return np.clip((array - low) / (high - low), 0.0, 1.0)


def player(env: Any, policy: Any, workers: Workers | None = None, ledger: Ledger | None = None) -> Player:
    """Returns what plays n episodes of a policy and returns their totals.

    Args:
        env: a richobs environment, or a Gymnasium environment.
        policy: as `certify_policy` takes them.
        workers: who shares the episodes of a richobs environment.
        ledger: where episodes are counted that are played a second time to compare workers.

    Raises:
        InvalidInput: one of them is something else.
    """
    if isinstance(env, gymnasium.Env):
        return _GymnasiumPlayer(env, policy)
    if isinstance(env, VectorEnvironment):
        return _VectorPlayer(env, policy)
    if not all(hasattr(env, name) for name in ENVIRONMENT_NAMES):
        raise InvalidInput(
            f"certify_policy plays richobs environments, problems and Gymnasium environments; a {type(env).__name__} "
            "arrived. See docs/policy-value.md."
        )
    acting = policy_of(policy)
    if isinstance(acting, LearnedPolicy):
        _check_fits(acting, env.horizon, env.n_actions)
    if isinstance(env, WorldEnvironment):
        return lambda n, rng: [play_checked(env, acting, n, rng).returns]
    return _OwnPlayer(Calls(checked_environment(env), workers=workers, ledger=ledger), acting)


def _check_fits(policy: LearnedPolicy, horizon: int, n_actions: int) -> None:
    """Refuses a policy for fewer levels or for other actions."""
    levels, actions = policy.functions.horizon, policy.functions.n_actions
    if levels < horizon or actions > n_actions:
        raise InvalidInput(
            f"the policy is for {levels} levels and {actions} actions; the environment has {horizon} and {n_actions}."
        )


def policy_of(policy: Any) -> Policy:
    """Returns a policy of richobs that acts as what was given: a policy, something with `predict`, or a function.

    Raises:
        InvalidInput: it is something else.
    """
    if isinstance(policy, type):
        raise InvalidInput(f"{policy.__name__} is a class; give a policy of it.")
    if callable(getattr(policy, "actions", None)):
        acting: Policy = policy
        return acting
    if isinstance(policy, Predictor):
        return _Predicted(policy)
    if callable(policy):
        return _EachAlone(policy)
    raise InvalidInput(
        "a policy has actions(level, x, rng), or predict(obs, deterministic=True), or is a function of one observation; a "
        f"{type(policy).__name__} arrived."
    )


class _Predicted:
    """A model with `predict`; what it remembers begins anew with every episode."""

    def __init__(self, model: Predictor):
        self._model = model
        self._state: Any = None
        self._rows = 0

    def actions(self, level: int, x: Observations, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` what the model predicts."""
        if level == 0:
            self._state, self._rows = None, len(x)
        if self._state is not None and len(x) != self._rows:
            raise InvalidInput(
                f"{type(self._model).__name__} remembers earlier observations, and this environment shows only those of the "
                f"{len(x)} episodes of {self._rows} that go on. Give a Gymnasium environment instead."
            )
        starts = np.full(len(x), level == 0)
        predicted, self._state = self._model.predict(x, state=self._state, episode_start=starts, deterministic=True)
        return np.asarray(predicted)


class _EachAlone:
    """A function that takes one observation and returns one action."""

    def __init__(self, choose: Callable[[Any], Any]):
        self._choose = choose

    def actions(self, level: int, x: Observations, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` the function's action for each observation."""
        return np.array([operator.index(self._choose(row)) for row in x], dtype=np.int64)


class _OwnPlayer:
    """Plays an environment that somebody brings: at first one episode per call, later at most a GROWTHth of all so far.

    An environment may draw something once per call of `play`. Then the episodes of one call are not independent, and only
    several calls can show that.
    """

    def __init__(self, env: Calls, policy: Policy):
        self._env = env
        self._policy = policy
        self._played = 0

    def __call__(self, n: int, rng: np.random.Generator) -> list[Floats]:
        """Plays n episodes and returns their totals, call by call."""
        calls: list[Floats] = []
        while n:
            size = min(n, max(1, self._played // GROWTH))
            calls.append(self._env.play(self._policy, size, rng).returns)
            self._played, n = self._played + size, n - size
        return calls


class _GymnasiumPlayer:
    """Plays a Gymnasium environment one episode after the other, each until it is terminated or truncated.

    Values need no levels, no list of actions and no array of observations, so any spaces will do.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], policy: Any):
        self._env = env
        self._policy = policy
        policy_of(policy)  # refuses what is none

    def __call__(self, n: int, rng: np.random.Generator) -> list[Floats]:
        """Plays n episodes and returns `[n]` their totals, as one call."""
        return [np.array([self._total(rng) for _ in range(n)])]

    def _total(self, rng: np.random.Generator) -> float:
        """Plays one episode and returns the sum of its rewards."""
        x, _ = self._env.reset(seed=int(rng.integers(2**31)))
        choose = self._chooser(rng)
        total, ended, level = 0.0, False, 0
        while not ended:
            action = choose(level, x)
            if isinstance(action, np.ndarray) and action.ndim == 0:
                action = action.item()
            x, reward, terminated, truncated, _ = self._env.step(action)
            total += float(reward)
            ended, level = bool(terminated or truncated), level + 1
        return total

    def _numbered(self, chosen: Any) -> Any:
        """Returns the environment's action for the number that a policy of richobs chose, as `from_gymnasium` counts."""
        if np.ndim(chosen) > 0 or not isinstance(self._env.action_space, NUMBERED):  # an action of the space itself
            return chosen
        return self._actions.action(whole_number("the action that the policy chose", chosen, 0, self._actions.n - 1))

    @functools.cached_property
    def _actions(self) -> Actions:
        return Actions(self._env.action_space)

    def _chooser(self, rng: np.random.Generator) -> Callable[[int, Any], Any]:
        """Returns what chooses the actions of one episode."""
        policy = self._policy
        if callable(getattr(policy, "actions", None)):

            def act(level: int, x: Any) -> Any:
                if isinstance(policy, LearnedPolicy):
                    _check_fits(policy, level + 1, policy.functions.n_actions)
                return self._numbered(policy.actions(level, np.asarray(x)[None], rng)[0])

            return act
        if not isinstance(policy, Predictor):
            return lambda level, x: policy(x)
        state: Any = None

        def predict(level: int, x: Any) -> Any:
            nonlocal state
            start = np.array([level == 0])
            action, state = policy.predict(x, state=state, episode_start=start, deterministic=True)
            return action

        return predict


class _VectorPlayer:
    """Plays a vector environment of Stable-Baselines3 by its own `evaluate_policy`.

    Each copy plays a number of episodes that is fixed before, so short episodes do not count more often. Where a `Monitor`
    is among the wrappers, totals are what it counts, before other wrappers change rewards.
    """

    def __init__(self, env: VectorEnvironment, policy: Any):
        if not isinstance(policy, Predictor):
            raise InvalidInput(
                f"a vector environment is played by a policy with predict(obs, deterministic=True); a "
                f"{type(policy).__name__} arrived. Give a Gymnasium environment, or a model."
            )
        self._env = env
        self._policy = policy

    def __call__(self, n: int, rng: np.random.Generator) -> list[Floats]:
        """Plays n episodes and returns `[n]` their totals, as one call."""
        from stable_baselines3.common.evaluation import evaluate_policy

        self._env.seed(int(rng.integers(2**31)))
        model, env = self._policy, self._env
        totals, _ = evaluate_policy(model, env, n, deterministic=True, return_episode_rewards=True, warn=False)
        return [np.array(totals, dtype=np.float64)]


@contextlib.contextmanager
def _shown(wanted: bool) -> Iterator[Listener]:
    """Shows the interval in one line while the block lasts."""
    if not wanted:
        yield lambda report: None
        return
    from rich.console import Console

    from richobs.show.terminal import can_draw

    console = Console(stderr=True, highlight=False, emoji=False)
    if not can_draw(console):  # a notebook without ipywidgets, for instance
        yield lambda report: None
        return
    with console.status("playing") as status:
        yield lambda report: status.update(
            f"{report.episodes:,} episodes: the value lies between {number_words(report.lower, up=False)} and "
            f"{number_words(report.upper, up=True)}"
        )

"""Who plays the policies that are judged: one episode after the other, or several in the copies of a vector environment.

A player has two ways: n episodes of its policy, which have nothing to do with those of other policies (`alone`), or one
episode for each of some generators that other policies get too (`rounds`). Shapes: n episodes, C copies.
"""

import abc
import functools
import hashlib
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from richobs.classes.callables import as_array
from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.arguments import whole_number
from richobs.core.environment import Episodes, declared_by, environment_identity
from richobs.core.errors import InvalidInput
from richobs.core.executors import Workers
from richobs.core.ledger import Ledger
from richobs.core.policies import OpenLoop, Policy, Uniform
from richobs.core.problem import ENVIRONMENT_NAMES, Problem, checked_environment
from richobs.core.types import Floats, Ints, Observations
from richobs.engines.calls import Calls
from richobs.engines.stream import play_checked
from richobs.judging.measures import Measure, copied, episodes_of, made_episode
from richobs.runs.database import sha256
from richobs.worlds.gymnasium_in.arrays import NUMBERED, Actions
from richobs.worlds.gymnasium_in.copies import step_vector, vector_rows
from richobs.worlds.simulator import WorldEnvironment

GROWTH = 16  # later calls, and looks, come after a sixteenth of all episodes so far
MONITOR = 5e-7  # the wrapper Monitor of Stable-Baselines3 rounds totals to six decimals
SINGLE = 2.0**-23  # relative error of a total whose rewards are in single precision, as vector environments return them
LIVES = "EpisodicLifeEnv"  # a wrapper of Stable-Baselines3 whose reset begins no new episode
MOST_STEPS = 1_000_000  # of one episode of a Gymnasium environment


@runtime_checkable
class Predictor(Protocol):
    """A policy as Stable-Baselines3 has them."""

    def predict(self, observation: Any, **options: Any) -> Any:
        """Returns (actions, state) for observations."""
        ...


@runtime_checkable
class VectorEnvironment(Protocol):
    """A vector environment of Stable-Baselines3, as far as it is told apart from others."""

    num_envs: int

    def step_async(self, actions: Any) -> None:
        """Begins a step of all copies."""
        ...

    def step_wait(self) -> Any:
        """Ends a step of all copies."""
        ...

    def seed(self, seed: int | None = None) -> Any:
        """Seeds all copies."""
        ...


class Player(abc.ABC):
    """Plays one policy in one environment."""

    measure: Measure | None = None  # what is returned of episodes instead of their totals
    paired = True  # whether `rounds` gives equal generators to equal rounds; else rounds have nothing in common

    @abc.abstractmethod
    def alone(self, n: int, rng: np.random.Generator, before: int) -> list[Floats]:
        """Plays n episodes and returns their totals, call by call; `before` were played before."""

    @abc.abstractmethod
    def rounds(self, shared: Sequence[np.random.Generator], own: np.random.Generator) -> Floats:
        """Plays one episode with each generator, and returns `[n]` their totals in this order.

        Args:
            shared: of every round; another policy gets equal ones.
            own: for what this policy alone draws.
        """


def totals_error(env: Any, reward_range: tuple[float, float]) -> float:
    """Returns by how much a total that arrives may differ from the rewards that were paid.

    Vector environments of Stable-Baselines3 return rewards in single precision, and a `Monitor` around them rounds totals.
    """
    if isinstance(env, gymnasium.Env | VectorEnv) or not isinstance(env, VectorEnvironment):
        return 0.0
    return MONITOR + SINGLE * max(map(abs, reward_range))


def environment_words(env: Any, id: str | None) -> str:
    """Returns which environment it is, in a line."""
    if isinstance(env, gymnasium.Env | VectorEnv | VectorEnvironment):
        spec = getattr(env, "spec", None)
        return f"{type(getattr(env, 'unwrapped', env)).__name__}{'' if spec is None else f' {spec.id}'}"
    _check_playable(env)
    return environment_identity(checked_environment(env), id)


def _check_playable(env: Any) -> None:
    """Refuses what is no environment."""
    if not all(hasattr(env, name) for name in ENVIRONMENT_NAMES):
        raise InvalidInput(
            "richobs judges policies in its own environments and problems, and in those of Gymnasium and "
            f"Stable-Baselines3; a {type(env).__name__} arrived. An id becomes one with gymnasium.make(id) or "
            "richobs.make(id). See docs/policy-value.md."
        )


def environment_digest(env: Any, id: str | None) -> str | None:
    """Returns what tells an environment from every other one: its identity or id, or SHA-256 of its specification.

    None for a vector environment, whose copies and wrappers no specification tells, and for one that is plain Python.
    """
    if isinstance(env, VectorEnv | VectorEnvironment):
        return None
    if not isinstance(env, gymnasium.Env):
        return declared_by(env).identity or id
    try:
        plain = json.loads(env.spec.to_json()) if env.spec is not None else None
    except (TypeError, ValueError):  # made of Python code
        return None
    if plain is None or any(wrapper["kwargs"] is None for wrapper in plain["additional_wrappers"]):
        return None
    return sha256(json.dumps(plain, sort_keys=True).encode())


def policy_digest(policy: Any) -> str | None:
    """Returns what tells a policy from every other one, such as SHA-256 of what it consists of; None for plain Python."""
    if type(policy) is OpenLoop:
        return f"OpenLoop {policy.path}"
    if type(policy) is Uniform:
        return f"Uniform {policy.n_actions}"
    try:
        digest = getattr(policy, "digest", None)
    except InvalidInput:  # made of Python code
        return None
    if isinstance(digest, str):
        return digest
    if callable(getattr(policy, "actions", None)) or not isinstance(policy, Predictor) or not _parameters(policy):
        return None
    return parameter_digest(policy)


def policy_words(policy: Any) -> str:
    """Returns which policy it is: its digest, or the name of its class or function."""
    return policy_digest(policy) or str(getattr(policy, "__qualname__", type(policy).__qualname__))


def strangers(env: Any, policies: Sequence[Any]) -> list[str]:
    """Returns, in words, what of a judgement cannot be told from something else by the next call."""
    played = env.env if isinstance(env, Problem) else env
    known = {type(policy).__qualname__: None for policy in policies if policy_digest(policy) is None}
    named = [f"the policy ({name})" for name in known]
    if environment_digest(played, getattr(env, "id", None)) is None:
        named.append(f"the environment ({type(played).__qualname__})")
    return named


def parameter_digest(model: Any) -> str:
    """Returns SHA-256 of the parameters of a model's policy.

    They are `policy.state_dict()`, or else its own, or else what `get_parameters()` returns. A model that has none of them
    has the digest of no parameters: of such a model it cannot be seen whether it has changed.
    """
    digest = hashlib.sha256()
    _absorb(digest, "", _parameters(model))
    return digest.hexdigest()


def _parameters(model: Any) -> Any:
    """Returns the parameters of a model's policy; nothing where it has none."""
    holder = model.policy if hasattr(model, "policy") and hasattr(model.policy, "state_dict") else model
    if hasattr(holder, "state_dict"):
        return holder.state_dict()
    return model.get_parameters() if hasattr(model, "get_parameters") else {}


def _absorb(digest: Any, name: str, part: Any) -> None:
    """Adds a part of a model's parameters to a digest: a tensor, an array, or a dictionary of parts."""
    if isinstance(part, Mapping):
        for key in sorted(part, key=str):
            _absorb(digest, f"{name}/{key}", part[key])
        return
    array = np.asarray(as_array(part))
    content = repr(part).encode() if array.dtype.hasobject else np.ascontiguousarray(array).tobytes()
    digest.update(f"{name} {array.dtype} {array.shape} {len(content)} ".encode() + content)


def player(
    env: Any,
    policy: Any,
    workers: Workers | None = None,
    ledger: Ledger | None = None,
    measure: Measure | None = None,
) -> Player:
    """Returns what plays a policy.

    Args:
        env: a richobs environment or problem, a Gymnasium environment, or a vector environment.
        policy: as `certify_policy` takes them.
        workers: who shares the episodes of a richobs environment.
        ledger: where episodes are counted that are played a second time to compare workers.
        measure: what is returned of episodes instead of their totals.

    Raises:
        InvalidInput: one of them is something else.
    """
    env = env.env if isinstance(env, Problem) else env
    made: Player
    if isinstance(env, VectorEnv):
        made = _CopiesPlayer(env, policy)
    elif isinstance(env, gymnasium.Env):
        made = _GymnasiumPlayer(env, policy)
    elif isinstance(env, VectorEnvironment):
        made = _StableBaselinesPlayer(env, policy)
    else:
        _check_playable(env)
        acting = policy_of(policy)
        if isinstance(acting, LearnedPolicy):
            _check_fits(acting, env.horizon, env.n_actions)
        made = _OwnPlayer(env, acting, workers, ledger)
    made.measure = measure
    return made


def _row(x: Any, i: Any) -> Any:
    """Returns copy i's part of what a vector environment shows or takes."""
    if isinstance(x, Mapping):
        return {name: _row(part, i) for name, part in x.items()}
    return tuple(_row(part, i) for part in x) if isinstance(x, tuple) else x[i]


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


class _OwnPlayer(Player):
    """Plays an environment with a method `play`.

    One that somebody brings may draw something once per call. Then the episodes of one call are not independent, and only
    several calls can show that: at first it is played one episode per call, later at most a GROWTHth of all so far.
    """

    def __init__(self, env: Any, policy: Policy, workers: Workers | None, ledger: Ledger | None):
        self._is_world = isinstance(env, WorldEnvironment)
        self._env = env if self._is_world else checked_environment(env)
        self._policy = policy
        self._calls = None if self._is_world else Calls(self._env, workers=workers, ledger=ledger)

    def alone(self, n: int, rng: np.random.Generator, before: int) -> list[Floats]:
        """Plays n episodes and returns their totals, call by call."""
        if self._calls is None:
            return [self._measured(play_checked(self._env, self._policy, n, rng))]
        calls: list[Floats] = []
        while n:
            size = min(n, max(1, before // GROWTH))
            calls.append(self._measured(self._calls.play(self._policy, size, rng)))
            before, n = before + size, n - size
        return calls

    def _measured(self, played: Episodes) -> Floats:
        """Returns `[n]` what is measured of episodes."""
        if self.measure is None:
            return played.returns
        return np.array([self.measure(one) for one in episodes_of(played)])

    def rounds(self, shared: Sequence[np.random.Generator], own: np.random.Generator) -> Floats:
        """Plays one episode per call: in a call of several, an episode may get the random numbers of another one."""
        return np.concatenate([play_checked(self._env, self._policy, 1, rng).returns for rng in shared])


class _GymnasiumPlayer(Player):
    """Plays a Gymnasium environment one episode after the other, each until it is terminated or truncated.

    Values need no levels, no list of actions and no array of observations, so any spaces will do.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], policy: Any):
        self._env = env
        self._policy = policy
        policy_of(policy)  # refuses what is none
        while isinstance(env, gymnasium.Wrapper):
            if type(env).__name__ == LIVES:
                _refuse_lives()
            env = env.env

    def alone(self, n: int, rng: np.random.Generator, before: int) -> list[Floats]:
        """Plays n episodes and returns `[n]` their totals, as one call."""
        return [np.array([self._total(rng) for _ in range(n)])]

    def rounds(self, shared: Sequence[np.random.Generator], own: np.random.Generator) -> Floats:
        """Plays one episode with each generator, which gives the seed of its reset."""
        return np.array([self._total(rng) for rng in shared])

    def _total(self, rng: np.random.Generator) -> float:
        """Plays one episode and returns the sum of its rewards."""
        x, _ = self._env.reset(seed=int(rng.integers(2**31)))
        choose = self._chooser(rng)
        total, ended, level = 0.0, False, 0
        steps: list[tuple[Any, Any, float]] = []
        while not ended:
            action = choose(level, x)
            if isinstance(action, np.ndarray) and action.ndim == 0:
                action = action.item()
            seen = copied(x) if self.measure is not None else None
            x, reward, terminated, truncated, _ = self._env.step(action)
            total += float(reward)
            if self.measure is not None:
                steps.append((seen, copied(action), float(reward)))
            ended, level = bool(terminated or truncated), level + 1
            _check_ends(self._env, level, ended)
        return (
            total
            if self.measure is None
            else self.measure(made_episode(steps, total, copied(x), terminated=bool(terminated)))
        )

    def _numbered(self, chosen: Any) -> Any:
        """Returns the environment's action for the number that a policy of richobs chose, as `from_gymnasium` counts."""
        return _numbered(chosen, self._env.action_space, lambda: self._actions)

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


def _refuse_lives() -> None:
    raise InvalidInput(
        f"the environment is wrapped in {LIVES}: its episodes end with a life, and the next one goes on where the last "
        "ended, so they are neither whole games nor independent. Give the environment without it (for make_atari_env: "
        'wrapper_kwargs={"terminal_on_life_loss": False}).'
    )


def _check_ends(env: Any, steps: int, ended: bool) -> None:
    """Refuses an episode that does not end."""
    if steps >= MOST_STEPS and not ended:
        raise InvalidInput(
            f"an episode of {env} has not ended after {MOST_STEPS:,} steps, and the value of a policy needs episodes that "
            "end. Wrap it in gymnasium.wrappers.TimeLimit."
        )


def _numbered(chosen: Any, space: gymnasium.Space[Any], actions: Callable[[], Actions]) -> Any:
    """Returns the action of a space for the number that a policy of richobs chose."""
    if np.ndim(chosen) > 0 or not isinstance(space, NUMBERED):  # an action of the space itself
        return chosen
    known = actions()
    return known.action(whole_number("the action that the policy chose", chosen, 0, known.n - 1))


class _CopiesPlayer(Player):
    """Plays one episode in each copy of a vector environment of Gymnasium.

    All copies begin together. What a copy does after the end of its episode counts for nothing, so it does not matter how
    and when it begins anew, and short episodes do not count more often than long ones.
    """

    def __init__(self, env: Any, policy: Any):
        policy_of(policy)  # refuses what is none
        self._env, self._policy = env, policy
        self._size = int(env.num_envs)
        # Other kinds have one generator for all copies: what a copy draws then depends on the others.
        self.paired = isinstance(getattr(env, "unwrapped", env), SyncVectorEnv | AsyncVectorEnv)

    def alone(self, n: int, rng: np.random.Generator, before: int) -> list[Floats]:
        """Plays n episodes and returns `[n]` their totals, as one call."""
        return [self._totals([int(s) for s in rng.integers(2**31, size=n)], rng)]

    def rounds(self, shared: Sequence[np.random.Generator], own: np.random.Generator) -> Floats:
        """Plays one episode with each generator, which gives the seed of its copy's reset."""
        return self._totals([int(rng.integers(2**31)) for rng in shared], own)

    def _totals(self, seeds: list[int], rng: np.random.Generator) -> Floats:
        """Returns `[n]` the totals of one episode per seed, as many at a time as there are copies."""
        parts = [self._one_each(seeds[i : i + self._size], rng) for i in range(0, len(seeds), self._size)]
        return np.concatenate(parts)

    def _one_each(self, seeds: list[int], rng: np.random.Generator) -> Floats:
        """Returns `[m]` the totals of one episode in each of the first m copies; the others play along."""
        spare = [int(s) for s in rng.integers(2**31, size=self._size - len(seeds))]
        x = self._reset([*seeds, *spare])
        totals, over, level, state = np.zeros(self._size), np.zeros(self._size, dtype=bool), 0, None
        steps: list[list[tuple[Any, Any, float]]] = [[] for _ in range(self._size)]
        while not over[: len(seeds)].all():
            actions, state = self._actions(level, x, state, rng)
            if self.measure is not None:
                for i in np.flatnonzero(~over):
                    steps[i].append((copied(_row(x, i)), copied(_row(actions, i)), 0.0))
            x, rewards, ends, whole = self._step(actions)
            if self.measure is not None:
                for i in np.flatnonzero(~over):
                    steps[i][-1] = (*steps[i][-1][:2], float(rewards[i]))
            totals = np.where(over, totals, np.where(ends & ~np.isnan(whole), whole, totals + rewards))
            over |= ends
            level += 1
            _check_ends(self._env, level, bool(over[: len(seeds)].all()))
        if self.measure is None:
            return totals[: len(seeds)]
        return np.array([self.measure(made_episode(steps[i], totals[i])) for i in range(len(seeds))])

    def _reset(self, seeds: list[int]) -> Any:
        """Begins an episode in each copy."""
        return self._env.reset(seed=seeds if self.paired else seeds[0])[0]

    def _step(self, actions: Any) -> tuple[Any, Floats, Any, Floats]:
        """Takes one action in each copy; returns observations, rewards, ends, totals that others added up (or NaN)."""
        return *step_vector(self._env, actions), np.full(self._size, np.nan)

    def _actions(self, level: int, x: Any, state: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        """Returns an action for each copy, and what a model remembers."""
        policy = self._policy
        if callable(getattr(policy, "actions", None)):
            if isinstance(policy, LearnedPolicy):
                _check_fits(policy, level + 1, policy.functions.n_actions)
            chosen = policy.actions(level, np.asarray(x), rng)
            return np.array(
                [_numbered(one, self._env.single_action_space, lambda: self._numbers) for one in chosen]
            ), state
        if isinstance(policy, Predictor):
            starts = np.full(self._size, level == 0)
            actions, state = policy.predict(x, state=state, episode_start=starts, deterministic=True)
            return actions, state
        return np.array([np.asarray(policy(one)) for one in vector_rows(self._env, x)]), state

    @functools.cached_property
    def _numbers(self) -> Actions:
        return Actions(self._env.single_action_space)


class _StableBaselinesPlayer(_CopiesPlayer):
    """Plays a vector environment of Stable-Baselines3.

    Where a `Monitor` is among the wrappers, totals are what it counts, before other wrappers change rewards.
    """

    def __init__(self, env: VectorEnvironment, policy: Any):
        if not isinstance(policy, Predictor):
            raise InvalidInput(
                f"a vector environment is played by a policy with predict(obs, deterministic=True); a "
                f"{type(policy).__name__} arrived. Give a Gymnasium environment, or a model."
            )
        super().__init__(env, policy)
        if hasattr(env, "env_is_wrapped"):
            from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv

            if any(env.env_is_wrapped(EpisodicLifeEnv)):
                _refuse_lives()
        self.paired = type(getattr(env, "unwrapped", env)).__name__ in ("DummyVecEnv", "SubprocVecEnv")

    def alone(self, n: int, rng: np.random.Generator, before: int) -> list[Floats]:
        """Plays n episodes by Stable-Baselines3's own `evaluate_policy`: each copy plays a number that is fixed before.

        Where something else than totals is measured, each copy plays one episode at a time.
        """
        if self.measure is not None:
            return super().alone(n, rng, before)
        from stable_baselines3.common.evaluation import evaluate_policy

        self._env.seed(int(rng.integers(2**31)))
        model, env = self._policy, self._env
        totals, _ = evaluate_policy(model, env, n, deterministic=True, return_episode_rewards=True, warn=False)
        return [rng.permutation(np.array(totals, dtype=np.float64))]  # they come in the order in which they ended

    def _reset(self, seeds: list[int]) -> Any:
        """Begins an episode in each copy; the first seed gives those of all copies."""
        self._env.seed(seeds[0])
        return self._env.reset()

    def _step(self, actions: Any) -> tuple[Any, Floats, Any, Floats]:
        """Takes one action in each copy, which begins anew in the same step where its episode ends."""
        x, rewards, ends, infos = self._env.step(actions)
        whole = np.array([info["episode"]["r"] if "episode" in info else np.nan for info in infos], dtype=np.float64)
        return x, np.asarray(rewards, dtype=np.float64), np.asarray(ends, dtype=bool), whole

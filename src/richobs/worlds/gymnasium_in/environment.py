"""`from_gymnasium`: a Gymnasium environment as an environment of richobs. Shapes: n episodes, K actions."""

import dataclasses
import functools
import importlib
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from richobs.core.arguments import MOST_WORKERS
from richobs.core.environment import Declared, Environment, Episodes, implied_step_range, random_steps_words
from richobs.core.errors import InvalidInput
from richobs.core.policies import OpenLoop, Policy, live_actions
from richobs.core.problem import Problem
from richobs.core.randomness import keyed_generator
from richobs.core.types import Mask
from richobs.worlds.gymnasium_in.arrays import Actions, Rows
from richobs.worlds.gymnasium_in.copies import (
    EPISODES,
    Copies,
    Env,
    KnownPaths,
    LocalCopies,
    NativeCopies,
    noise_behind_a_start,
    rewards_seen,
)
from richobs.worlds.gymnasium_in.spec import GymnasiumSpec, Range, Vector, find_named, plain_text, qualified_name, whole

# Calls of a policy that a worker must make again with the same result before it shares them: that episodes follow from
# their seeds is a guess. Environments that ignore seeds agree with probability 1/256.
REPLAYS_FIRST = 8


def from_gymnasium(
    env: str | Env | Callable[..., Env],
    *,
    horizon: int,
    reward_range: Range | None = None,
    step_range: Range | None = None,
    seed: int | None = None,
    observation: Callable[[Any], Any] | None = None,
    end_observation: Any = None,
    deterministic: bool | None = None,
    vector: Vector = None,
    **kwargs: Any,
) -> "GymnasiumEnvironment":
    """Returns an environment that plays a Gymnasium environment.

    An episode has `horizon` levels. One that ends before (terminated or truncated) earns nothing at the levels after its
    end, `Episodes.ended` is true there, and the observation is the end marker: the zero of the observation space, or
    `end_observation`. The levels of an episode are the environment's steps, counted from 0 at every reset.

    One copy plays, one episode after the other. Where processes share the episodes (`vector`, or `workers` of
    `richobs.learn`), everything random in an episode must follow from the seed of its reset: copies with generators of
    their own could play the same episodes, which must not count as independent. So processes share the episodes of a policy
    only after episodes of it with different returns were played again by another copy, with the same result. Where one has
    another result, a warning of the logger "richobs" says it, and one copy plays everything.

    Args:
        env: an id, for `gymnasium.make`; or a callable that makes an environment; or one environment, which is played one
            episode at a time, never by several processes, and stays yours to close; or a vector environment, whose copies
            play one episode each at a time. An environment of bsuite (dm_env) is taken where shimmy is installed.
        horizon: number of levels H, at most 1,000,000.
        reward_range: smallest and largest possible total of an episode's rewards. By default it follows from `step_range`;
            one of the two must be given.
        step_range: smallest and largest possible reward of one step. By default it follows from `reward_range`.
        seed: every reset uses this seed, so all episodes start alike, and random steps are the same in every episode too.
            Claims are about such episodes, and say so.
            By default every reset has a fresh seed, drawn from the generator that `play` is given.
        observation: a function of one observation; its result is what policies and function classes see. Needed for Dict
            spaces, useful for images.
        end_observation: what is seen after the end of an episode, if not zeros.
        deterministic: True if the same actions always show and pay the same. Then each path is played once and remembered,
            some are played again to check it, and `real_episodes` counts what was really played. By default False.
        vector: number of processes that `richobs.learn` and `richobs.certify_policy` share the episodes among, as `workers`
            of `richobs.learn` does; or "native" for the vector environment that Gymnasium has for the id. By default one
            copy plays, in this process.
        **kwargs: for `gymnasium.make`, or for the callable.

    Raises:
        InvalidInput: a range was not declared (the message has a suggestion), the spaces cannot be used, or the arguments
            contradict each other.
    """
    spec = GymnasiumSpec(
        _from_dm_env(env) if _is_dm_env(env) else env,
        horizon,
        reward_range,
        step_range,
        seed,
        observation,
        end_observation,
        deterministic,
        vector,
        kwargs=kwargs,
    )
    return environment_from_spec(spec)


def environment_from_spec(spec: GymnasiumSpec) -> "GymnasiumEnvironment":
    """Makes the environment that a spec describes; a function that it names is imported, so use specs that you trust."""
    spec = spec.checked()
    _check_vector(spec)
    copies, actions, rows = _opened(spec)
    try:
        ranges = _ranges(spec, copies, actions.n)
        _check_seed(spec, copies, rows, actions.n)
        return GymnasiumEnvironment(spec, copies, actions, rows, ranges)
    except BaseException:
        copies.close()
        raise


def problem_from_spec(spec: GymnasiumSpec) -> Problem:
    """Makes the problem of a spec: its environment, and the class that its `functions` make for it."""
    if not isinstance(spec.functions, str):
        raise InvalidInput(
            "a problem needs `functions`, module:name of a function that takes the environment and returns a function "
            f"class; got {spec.functions!r}."
        )
    make = find_named(spec.functions, "functions")
    env = environment_from_spec(spec)
    try:
        return Problem(env, make(env))
    except BaseException:
        env.close()
        raise


class GymnasiumEnvironment:
    """A Gymnasium environment that can be played; `from_gymnasium` makes it.

    It closes the copies that it made when it is closed, when the `with` block that it opened ends, or when it is no longer
    used.
    """

    def __init__(
        self, spec: GymnasiumSpec, copies: Copies, actions: Actions, rows: Rows, ranges: tuple[Range, Range]
    ) -> None:
        """Takes what plays.

        Args:
            spec: what was said about the environment.
            copies: of it.
            actions: numbers its actions.
            rows: turns its observations into rows.
            ranges: of an episode's total, and of one reward.
        """
        self.horizon, self.n_actions = spec.levels, actions.n
        self.reward_range, self._ranges = ranges[0], ranges
        self._spec, self._copies, self._rows = spec, copies, rows
        self.declared = Declared(
            step_range=ranges[1],
            identity=self._identity(),
            deterministic=bool(spec.deterministic),
            frozen_seed=spec.seed,
            # Copies elsewhere may play the same where every episode is reset with a seed that the generator gives.
            replayable=not (spec.vector == "native" or isinstance(spec.env, gymnasium.Env | VectorEnv)),
            replays_first=REPLAYS_FIRST,
            processes=1 if spec.vector in (None, "native") else int(spec.vector),
        )
        self._played = 0
        self._known: KnownPaths | None = None
        if spec.deterministic:
            if not isinstance(copies, LocalCopies):
                raise InvalidInput("paths are remembered in this process alone: leave vector= out.")
            self._known = KnownPaths(spec.name, copies, rows, actions.n, spec.seed)
        self._finalizer = weakref.finalize(self, copies.close)

    @property
    def real_episodes(self) -> int:
        """Number of episodes that were really played; with `deterministic=True` fewer than were asked for."""
        return self._played if self._known is None else self._known.real_episodes

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (self._spec, self._ranges)

    def _identity(self) -> str:
        """Returns what the environment is, in one line: id, arguments, horizon, seed, name of the observation function."""
        d = self._spec
        parts = {
            "kwargs": dict(d.kwargs) or None,
            "horizon": d.levels,
            "reward_range": list(self._ranges[0]),
            "step_range": list(self._ranges[1]),
            "seed": d.seed,
            "observation": None if d.observation is None else qualified_name(d.observation),
            "end_observation": None if d.end_observation is None else np.asarray(d.end_observation).tolist(),
            "deterministic": d.deterministic or None,
            "vector": "native" if d.vector == "native" else None,  # processes play what copies here would play
        }
        words = [f"{name}={plain_text(value)}" for name, value in parts.items() if value is not None]
        return ", ".join([f"gym:{d.name}", *words])

    def spec(self) -> GymnasiumSpec:
        """Returns what is declared, with both ranges; `environment_from_spec` makes the environment again from it."""
        return dataclasses.replace(self._spec, reward_range=self._ranges[0], step_range=self._ranges[1])

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        """Plays n whole episodes, one after the other; copies of a native vector environment at the same time.

        Args:
            policy: what to do.
            n: number of episodes.
            rng: where seeds and the policy's randomness come from.
            levels: stop after so many levels, where no more is wanted; by default after all.
        """
        if not self._finalizer.alive:
            raise InvalidInput(f"{self._spec.name} was closed; make a new environment with from_gymnasium.")
        depth = self.horizon if levels is None else levels
        if n < 1 or not 1 <= depth <= self.horizon:
            raise InvalidInput(
                f"play needs at least one episode, and 1 to {self.horizon} levels; got {n} and {levels}."
            )
        if self._known is not None:
            return self._known.play(policy, n, rng, depth)
        drawn = rng.integers(2**31, size=n)  # also with a seed of its own, so that `rng` is used alike
        fixed = self._spec.seed
        seeds = [int(s) if fixed is None else fixed for s in drawn]
        self._played += n
        size = self._copies.size
        return Episodes.concatenate(
            [self._one_each(policy, seeds[i : i + size], rng, depth) for i in range(0, n, size)]
        )

    def _one_each(self, policy: Policy, seeds: list[int], rng: np.random.Generator, levels: int) -> Episodes:
        """Plays one episode in each of some copies."""
        m = len(seeds)
        rows: list[Any] = [self._rows.row(raw) for raw in self._copies.reset(seeds)]
        over: Mask = np.zeros(m, dtype=bool)
        seen, taken, paid, ended = [], [], [], []
        for level in range(levels):
            x = self._rows.stack(rows)
            actions = live_actions(policy, level, x, over, self.n_actions, rng)
            rewards, ends = np.zeros(m), over
            if not over.all():
                stepped = self._copies.step(actions, over)
                rewards, ends = np.where(over, 0.0, stepped.rewards), over | stepped.over
                if level + 1 < levels:
                    rows = [None if ends[i] else self._rows.row(stepped.seen[i]) for i in range(m)]
            seen.append(x)
            taken.append(actions)
            paid.append(rewards)
            ended.append(over)
            over = ends
        return Episodes(tuple(seen), tuple(taken), tuple(paid), tuple(ended))

    def close(self) -> None:
        """Closes the copies that were made here; a second call does nothing."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"from_gymnasium({self.declared.identity})"


def _made_again(spec: GymnasiumSpec, ranges: tuple[Range, Range]) -> GymnasiumEnvironment:
    """Returns a copy of an environment, for a worker; what was found out about it is not found out again."""
    return GymnasiumEnvironment(spec, *_opened(spec), ranges)


def _check_vector(spec: GymnasiumSpec) -> None:
    """Refuses ways to play copies together that this environment does not allow."""
    vector, given = spec.vector, spec.env
    if isinstance(given, VectorEnv) and spec.seed is not None:
        raise InvalidInput("a vector environment may start all copies from one seed, each elsewhere: leave seed= out.")
    if vector is None:
        return
    if spec.deterministic:
        raise InvalidInput("deterministic=True plays each path once, in this process: leave vector= out.")
    if vector == "native":
        if not isinstance(given, str):
            raise InvalidInput('vector="native" needs an id: Gymnasium has vector environments for some of its ids.')
        if spec.seed is not None:
            raise InvalidInput(
                'vector="native" starts all copies from one seed, each at another place: leave seed= out, or vector=.'
            )
        return
    whole("vector", vector, 1, MOST_WORKERS)
    if isinstance(given, gymnasium.Env | VectorEnv):
        raise InvalidInput("vector= needs copies of the environment: give an id, or a callable that makes one.")


def _opened(spec: GymnasiumSpec) -> tuple[Copies, Actions, Rows]:
    """Makes the environment, and decides how its actions and observations are read."""
    given, vector = spec.env, spec.vector
    if vector == "native":
        many = _made(lambda: gymnasium.make_vec(given, Declared.at_once, "vector_entry_point", **spec.kwargs), spec)
        try:
            actions = Actions(many.single_action_space)
            return NativeCopies(many, actions), actions, _rows(spec, many.single_observation_space)
        except BaseException:
            many.close()
            raise
    make = _maker(spec)
    if isinstance(given, VectorEnv):
        actions = Actions(given.single_action_space)
        return NativeCopies(given, actions, given=True), actions, _rows(spec, given.single_observation_space)
    first = given if make is None else _made(make, spec)
    try:
        actions, rows = Actions(first.action_space), _rows(spec, first.observation_space)
    except BaseException:
        if make is not None:
            first.close()
        raise
    return LocalCopies(first, actions, make, Declared.at_once if spec.deterministic else 1), actions, rows


def _rows(spec: GymnasiumSpec, space: gymnasium.Space[Any]) -> Rows:
    return Rows(space, spec.observation, spec.end_observation)


def _maker(spec: GymnasiumSpec) -> Callable[[], Env] | None:
    """Returns a function that makes a copy; None where an environment was given."""
    given = spec.env
    if isinstance(given, str):
        return functools.partial(gymnasium.make, given, **spec.kwargs)
    if isinstance(given, gymnasium.Env | VectorEnv):
        if spec.kwargs:
            raise InvalidInput(
                f"{', '.join(sorted(spec.kwargs))}: arguments make an environment, and this one is made already. Give "
                "an id, or a callable that makes it."
            )
        return None
    if not callable(given):
        raise InvalidInput(
            f"from_gymnasium takes an id, a gymnasium.Env, or a callable that makes one; got a {type(given).__name__}."
        )
    return functools.partial(_called, given, dict(spec.kwargs))


def _called(make: Callable[..., Any], kwargs: Mapping[str, Any]) -> Env:
    """Returns what a callable makes, after checking that it is an environment."""
    made = make(**kwargs)
    if _is_dm_env(made):
        return _from_dm_env(made)
    if not isinstance(made, gymnasium.Env):
        raise InvalidInput(
            f"{qualified_name(make)} must return a gymnasium.Env; it returned a {type(made).__name__}. For the older Gym "
            "API, wrap it with shimmy."
        )
    return made


def _made(make: Callable[[], Any], spec: GymnasiumSpec) -> Any:
    """Makes an environment; what Gymnasium says against it becomes part of a sentence."""
    try:
        return make()
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        raise InvalidInput(f"Gymnasium cannot make {spec.name!r}: {error}") from error
    except TypeError as error:
        if not isinstance(spec.env, str):
            raise
        raise InvalidInput(f"Gymnasium cannot make {spec.name!r} with these arguments: {error}") from error


def _is_dm_env(given: object) -> bool:
    return any(base.__module__.partition(".")[0] == "dm_env" for base in type(given).__mro__)


def _from_dm_env(env: Any) -> Env:
    """Returns a dm_env environment (bsuite) as a Gymnasium environment."""
    try:
        shimmy = importlib.import_module("shimmy")
    except ImportError as error:
        raise InvalidInput(
            f"a {type(env).__name__} is a dm_env environment; shimmy makes a Gymnasium environment of it: pip install "
            "'richobs[bsuite]'."
        ) from error
    made: Env = shimmy.BSuiteCompatibilityV0(env)
    return made


def _ranges(spec: GymnasiumSpec, copies: Copies, n_actions: int) -> tuple[Range, Range]:
    """Returns the ranges of an episode's total and of one reward, of which at least one was declared."""
    total, step = _declared_ranges(spec, copies, n_actions)
    if total[0] == total[1]:
        raise InvalidInput(
            f"by what was declared every episode of {spec.name} earns {total[0]:g}, so there is nothing to learn. "
            "Declare the smallest and the largest total that an episode can have: reward_range=(low, high)."
        )
    return total, step


def _declared_ranges(spec: GymnasiumSpec, copies: Copies, n_actions: int) -> tuple[Range, Range]:
    """Returns both ranges; where only that of one reward was declared, that of the total follows from it."""
    total, step, horizon = spec.reward_range, spec.step_range, spec.levels
    if step is None:
        if total is not None:
            return total, implied_step_range(total)
        seen = rewards_seen(copies, n_actions, horizon)
        (low, high), (least, most) = seen.step, seen.total
        advice = f"step_range=({low:g}, {high:g}) is right if its documentation names no rewards outside."
        if least == most:  # a range of one number would be refused too
            advice = (
                "all earned the same, so they do not show the range. Look for it in the environment's documentation."
            )
        raise InvalidInput(
            f"{spec.name} does not say which rewards it can pay, and a guarantee needs their range. Declare "
            "step_range=(low, high) of one reward, reward_range=(low, high) of an episode's total, or both. In "
            f"{EPISODES} episodes of random actions rewards lay in [{low:g}, {high:g}] and totals in [{least:g}, {most:g}]: "
            f"{advice}"
        )
    # An episode has 1 to H rewards, so this holds surely.
    surely = (step[0] * (horizon if step[0] < 0 else 1), step[1] * (horizon if step[1] > 0 else 1))
    if total is None:
        return surely, step
    if total[0] > surely[1] or total[1] < surely[0]:
        raise InvalidInput(
            f"reward_range={total} and step_range={step} contradict each other: 1 to {horizon} such rewards add up to a "
            f"total in [{surely[0]:g}, {surely[1]:g}]."
        )
    return total, step


def _check_seed(spec: GymnasiumSpec, copies: Copies, rows: Rows, n_actions: int) -> None:
    """Refuses a seed that would freeze the randomness of steps without a word about it."""
    if spec.seed is None or spec.deterministic:
        return
    actions = noise_behind_a_start(copies, rows, n_actions, spec.levels)
    if actions is not None:
        raise InvalidInput(
            f"{random_steps_words(spec.name, actions)} With seed={spec.seed} the random steps would be the same in "
            "every episode, and a claim would hold for these random numbers alone. Leave seed= out; or give "
            "deterministic=True, if the environment with these random numbers fixed is what you want."
        )


def looks_deterministic(env: Environment, *, sequences: int = 16, seed: int = 0) -> bool:
    """Whether random action sequences, each played twice, showed and paid the same both times.

    "True" is no proof: what is random may be rare, or lie behind other actions.

    Args:
        env: any environment; not one that was made with `deterministic=True`, which answers from memory.
        sequences: number of action sequences; twice as many episodes are played.
        seed: of the sequences and the plays.
    """
    if sequences < 1:
        raise InvalidInput(f"looks_deterministic needs at least one sequence; got {sequences}.")
    if isinstance(env, GymnasiumEnvironment) and env.declared.deterministic:
        raise InvalidInput(
            "looks_deterministic was given an environment made with deterministic=True, which answers from memory. Make it "
            "without that."
        )
    rng = keyed_generator(seed, "looks deterministic")
    for _ in range(sequences):
        path = tuple(int(a) for a in rng.integers(env.n_actions, size=env.horizon))
        played = env.play(OpenLoop(path), 2, rng)
        over = played.ended or [np.zeros(2, dtype=bool)] * played.levels
        for x, reward, ended in zip(played.observations, played.rewards, over, strict=True):
            if reward[0] != reward[1] or ended[0] != ended[1] or not np.array_equal(x[0], x[1]):
                return False
    return True

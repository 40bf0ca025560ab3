"""Policies: what an environment is asked to play.

A policy maps a level and observations to actions. `OpenLoop`, `Greedy` and `Switch` express every roll-in that a learner
needs, so `play` takes a policy and nothing else. Shapes: n episodes, K actions.
"""

import operator
import os
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

from richobs.core.arguments import LARGEST_FACT, real_number, whole_number
from richobs.core.errors import InvalidInput
from richobs.core.functions import ValueFunction
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Mask, Member, Observations, Path

TIE = 1e-13  # how much better an action must be than the one before it; rounding is a thousand times smaller


class Policy(Protocol):
    """A reactive policy: the action depends on the level, the observation and fresh randomness, on nothing else."""

    def actions(self, level: int, x: Observations, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` the action for each of the n observations `x`, all made at `level`.

        Args:
            level: counted from 0.
            x: `[n, ...]` observations.
            rng: where a random policy gets its randomness; others ignore it.
        """


@runtime_checkable
class RandomPolicy(Policy, Protocol):
    """A policy whose actions are random given the observation, and that knows their law."""

    def probabilities(self, level: int, x: Observations, /) -> Floats:
        """Returns `[n, K]` the probability of each action."""


@runtime_checkable
class PickyPolicy(Policy, Protocol):
    """A policy that is random in part, and knows which actions it never takes."""

    def never_takes(self, level: int, x: Observations, actions: Ints, /) -> Mask:
        """Returns `[n]` where an action is one that the policy never takes at the observation, whatever rounding does."""


class SavablePolicy(Policy, Protocol):
    """What a run hands over: a policy that can be used where Stable-Baselines3 policies are, saved and identified."""

    @property
    def member(self) -> Member:
        """The function of its class whose greedy policy it is."""

    @property
    def digest(self) -> str:
        """SHA-256 of what the policy consists of."""

    def predict(
        self,
        observation: Observations,
        state: tuple[Ints, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = True,
    ) -> tuple[Ints, tuple[Ints, ...]]:
        """Returns actions as Stable-Baselines3 policies do; the level travels in `state`."""

    def save(self, file: str | os.PathLike[str], /) -> None:
        """Writes the policy to a file."""


def checked_policy(given: Any) -> Policy:
    """Returns a policy, once it is known to be one.

    Raises:
        InvalidInput: it has no method `actions`, or is a class.
    """
    if isinstance(given, type) or not callable(getattr(given, "actions", None)):
        raise InvalidInput(f"a policy has a method actions(level, x, rng), as richobs.OpenLoop has; got {given!r:.80}.")
    return given


def greedy_actions(values: Floats) -> Ints:
    """Returns `[..., n]` the action with the largest of the values `[..., n, K]`, but for rounding; ties to the smallest.

    The same observation may get values that differ in their last digits when it is evaluated in another batch. So an
    action is preferred to a smaller one only if it is better by more than TIE times their distance, and times the largest
    value of the observation where that exceeds 1.
    """
    step: Floats | float = TIE
    if values.size and max(float(values.max()), -float(values.min())) > 1:
        step = TIE * np.maximum(1.0, np.abs(values).max(axis=-1, keepdims=True))
    return (values - step * np.arange(values.shape[-1])).argmax(axis=-1).astype(np.int64, copy=False)


class Greedy:
    """pi_f: the action with the largest value under f; ties go to the smallest action ([KAL16] Assumption 2)."""

    def __init__(self, f: ValueFunction):
        self.f = f

    def actions(self, level: int, x: Observations, rng: np.random.Generator | None = None, /) -> Ints:
        """Returns `[n]` argmax_a f(x, a)."""
        return greedy_actions(self.f.values(level, x))


class OpenLoop:
    """Plays one action sequence whatever it sees; after the end of the sequence it takes action 0."""

    def __init__(self, path: Path):
        try:
            self.path = tuple(operator.index(a) for a in path)
        except TypeError:
            raise InvalidInput(f"OpenLoop needs a sequence of actions, such as (0, 1); got {path!r:.80}.") from None

    def actions(self, level: int, x: Observations, rng: np.random.Generator | None = None, /) -> Ints:
        """Returns `[n]` the action of `level`."""
        return np.full(len(x), self.path[level] if level < len(self.path) else 0, dtype=np.int64)


class Uniform:
    """Takes each of K actions with the same probability."""

    def __init__(self, n_actions: int):
        self.n_actions = whole_number("Uniform: n_actions", n_actions, least=1, most=LARGEST_FACT)

    def actions(self, level: int, x: Observations, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` random actions."""
        return rng.integers(self.n_actions, size=len(x))

    def probabilities(self, level: int, x: Observations, /) -> Floats:
        """Returns `[n, K]` 1/K everywhere."""
        return np.full((len(x), self.n_actions), 1 / self.n_actions)


class Switch:
    """Follows one policy before a level and another from there on: roll in, then act."""

    def __init__(self, first: Policy, level: int, then: Policy):
        """Takes the two policies.

        Args:
            first: played at levels 0 to `level - 1`.
            level: where `then` takes over.
            then: played from `level` on.
        """
        self.first, self.then = checked_policy(first), checked_policy(then)
        self.level = whole_number("Switch: the level at which a policy takes over", level)

    def at(self, level: int) -> Policy:
        """Returns the policy that acts at `level`."""
        return self.first if level < self.level else self.then

    def actions(self, level: int, x: Observations, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` the actions of the policy that acts at `level`."""
        return self.at(level).actions(level, x, rng)


class Explore:
    """Acts at random with a given probability, anew at every level, and otherwise as another policy does."""

    def __init__(self, policy: Policy, share: float, n_actions: int):
        """Takes the policy.

        Args:
            policy: what is played otherwise.
            share: probability of a random action, in [0, 1].
            n_actions: K.
        """
        self.policy: Policy = checked_policy(policy)
        self.share: float = real_number("the share of random actions", share)
        if not 0 <= self.share <= 1:
            raise InvalidInput(f"the share of random actions must lie in [0, 1]; got {share}.")
        self.n_actions = whole_number("Explore: n_actions", n_actions, least=1)

    def actions(self, level: int, x: Observations, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` actions, some of them random."""
        chosen = self.policy.actions(level, x, rng)
        anything = rng.integers(self.n_actions, size=len(x))
        return np.where(rng.random(len(x)) < self.share, anything, chosen)

    def probabilities(self, level: int, x: Observations, /) -> Floats:
        """Returns `[n, K]` the probability of each action."""
        law = action_law(self.policy, level, x, self.n_actions)
        return (1 - self.share) * law + self.share / self.n_actions


def fixed_prefix(policy: Policy) -> Path:
    """Returns the actions that a policy always plays first, whatever it sees; () where none are known."""
    if isinstance(policy, OpenLoop):
        return policy.path
    if isinstance(policy, Switch):
        start = fixed_prefix(policy.first)
        return start[: policy.level]
    return ()


def sure_actions(policy: Policy, level: int, x: Observations) -> Ints | None:
    """Returns `[n]` the actions of a policy that surely is not random at `level`; None where that cannot be said."""
    if isinstance(policy, Switch):
        return sure_actions(policy.at(level), level, x)
    if isinstance(policy, Greedy | OpenLoop) and type(policy).actions in (Greedy.actions, OpenLoop.actions):
        return policy.actions(level, x)
    return None


def never_takes(policy: Policy, level: int, x: Observations, actions: Ints) -> Mask:
    """Returns `[n]` where an action is surely not one that a policy takes at `level` and the observation."""
    if isinstance(policy, Switch):
        return never_takes(policy.at(level), level, x, actions)
    if hasattr(policy, "never_takes"):  # isinstance with a protocol takes longer than the rest of a call
        return cast("PickyPolicy", policy).never_takes(level, x, actions)
    asked = sure_actions(policy, level, x)
    return np.zeros(len(x), dtype=bool) if asked is None else actions != asked


def action_law(policy: Policy, level: int, x: Observations, n_actions: int) -> Floats:
    """Returns `[n, K]` how likely a policy takes each action at each observation, exactly.

    Raises:
        InvalidInput: the policy returns something else than one action per observation, or it is random and does not say
            with which probabilities.
    """
    if isinstance(policy, Switch):
        return action_law(policy.at(level), level, x, n_actions)
    if isinstance(policy, RandomPolicy):
        return policy.probabilities(level, x)
    once = checked_actions(policy, level, x, n_actions, keyed_generator(0, "action law"))
    if type(policy).actions in (Greedy.actions, OpenLoop.actions):
        return _one_hot(once, n_actions)
    again = checked_actions(policy, level, x, n_actions, keyed_generator(1, "action law"))
    if not np.array_equal(once, again):
        raise InvalidInput(
            f"{type(policy).__name__} acts at random at level {level}; to value it exactly it needs a method "
            "probabilities(level, x), which returns [n, K]."
        )
    return _one_hot(once, n_actions)


def _one_hot(actions: Ints, n_actions: int) -> Floats:
    """Returns `[n, K]` 1 at each action and 0 elsewhere; no K x K matrix is made, since K may be large."""
    law = np.zeros((len(actions), n_actions))
    law[np.arange(len(actions)), actions] = 1.0
    return law


def checked_actions(policy: Policy, level: int, x: Observations, n_actions: int, rng: np.random.Generator) -> Ints:
    """Returns `[n]` the actions of a policy, after checking that they are one existing action per observation.

    Raises:
        InvalidInput: it is something else.
    """
    array = np.asarray(policy.actions(level, x, rng))
    name = type(policy).__name__
    if array.shape != (len(x),) or array.dtype.kind not in "iu":
        raise InvalidInput(
            f"a policy must return one integer action per observation, [{len(x)}] of them at level {level}; {name} "
            f"returned {array.dtype} of shape {array.shape}."
        )
    if array.size and not (array.min() >= 0 and array.max() < n_actions):
        wrong = array[(array < 0) | (array >= n_actions)][0]
        raise InvalidInput(f"{name} takes action {wrong} at level {level}; there are actions 0 to {n_actions - 1}.")
    return array.astype(np.int64, copy=False)


def live_actions(
    policy: Policy, level: int, x: Observations, over: Mask, n_actions: int, rng: np.random.Generator
) -> Ints:
    """Returns `[n]` a policy's checked actions, and 0 where the episode is over `[n]`: nobody is asked there."""
    actions = np.zeros(len(x), dtype=np.int64)
    live = np.flatnonzero(~over)
    if len(live):
        actions[live] = checked_actions(policy, level, x[live], n_actions, rng)
    return actions

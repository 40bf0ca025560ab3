"""Copies of a Gymnasium environment that are stepped together, one after the other or natively, and a few trial episodes.

Copies know only numbers of actions and raw observations. Shapes: m episodes at a time, at most as many as there are
copies.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import iterate

from richobs.core.errors import InvalidInput, Rejected
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Mask
from richobs.worlds.gymnasium_in.arrays import Actions, Rows

Env = gymnasium.Env[Any, Any]


class Stepped(NamedTuple):
    """What m copies answered to one action each; what those say whose episode was over before means nothing."""

    seen: Sequence[Any]  # m raw observations
    rewards: Floats  # [m]
    over: Mask  # [m] whether the episode is over now, terminated or truncated


class Copies(Protocol):
    """Some copies of one environment."""

    @property
    def size(self) -> int:
        """How many episodes can be played at a time."""

    def reset(self, seeds: Sequence[int], /) -> Sequence[Any]:
        """Starts an episode with each of at most `size` seeds, and returns the raw observations."""

    def step(self, actions: Ints, over: Mask, /) -> Stepped:
        """Takes one action in each copy; copies whose episode is over are left alone."""

    def close(self) -> None:
        """Closes what was made here; a second call does nothing."""


class LocalCopies:
    """Copies in this process, made when they are first needed and stepped one after the other."""

    def __init__(self, env: Env, actions: Actions, make: Callable[[], Env] | None, size: int):
        """Takes the first copy.

        Args:
            env: the first copy.
            actions: numbers its actions.
            make: makes another one; None where there is only this one, which then belongs to the caller and stays open.
            size: how many copies there may be.
        """
        self.size = size if make is not None else 1
        self._envs, self._actions, self._make = [env], actions, make

    def reset(self, seeds: Sequence[int], /) -> list[Any]:
        """Starts an episode with each seed, and returns the raw observations."""
        return [self.reset_one(i, seed) for i, seed in enumerate(seeds)]

    def step(self, actions: Ints, over: Mask, /) -> Stepped:
        """Takes one action in each copy whose episode goes on."""
        seen: list[Any] = [None] * len(actions)
        rewards, ends = np.zeros(len(actions)), over.copy()
        for i in np.flatnonzero(~over):
            seen[i], rewards[i], ends[i] = self.step_one(int(i), int(actions[i]))
        return Stepped(seen, rewards, ends)

    def reset_one(self, copy: int, seed: int) -> Any:
        """Starts an episode in one copy, and returns the raw observation."""
        while len(self._envs) <= copy:
            if self._make is None:
                raise InvalidInput(f"there is one environment only; copy {copy} cannot be made.")
            self._envs.append(self._make())
            if any(env.unwrapped is self._envs[-1].unwrapped for env in self._envs[:-1]):
                raise InvalidInput(
                    f"a callable must make a new environment whenever it is called; it returned {self._envs.pop()} again. "
                    "Give that environment itself, then it is played one episode at a time."
                )
        answer = self._envs[copy].reset(seed=seed)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise Rejected(
                f"{self._envs[copy]}.reset must return (observation, info), as Gymnasium asks; it returned "
                f"{type(answer).__name__}."
            )
        return answer[0]

    def step_one(self, copy: int, action: int) -> tuple[Any, float, bool]:
        """Takes one action in one copy; returns the raw observation, the reward, and whether the episode is over."""
        return _answer(self._envs[copy], self._envs[copy].step(self._actions.action(action)))

    def close(self) -> None:
        """Closes the copies that were made here."""
        if self._make is not None:
            while self._envs:
                self._envs.pop().close()


def _answer(env: Env, answer: Any) -> tuple[Any, float, bool]:
    """Returns observation, reward and whether the episode is over, of what `step` answered."""
    if not isinstance(answer, tuple) or len(answer) != 5:
        raise Rejected(
            f"{env}.step must return (observation, reward, terminated, truncated, info), as Gymnasium asks; it returned "
            f"{f'{len(answer)} values' if isinstance(answer, tuple) else type(answer).__name__}."
        )
    seen, reward, terminated, truncated, _ = answer
    try:
        number = float(reward)
    except (TypeError, ValueError):
        raise Rejected(f"{env}.step returned the reward {reward!r}, which is not a number.") from None
    return seen, number, bool(terminated) or bool(truncated)


def step_vector(vector: VectorEnv[Any, Any, Any], actions: Any) -> tuple[Any, Floats, Mask]:
    """Takes one action in each copy of a vector environment; returns observations, `[C]` rewards, and where episodes ended.

    A copy whose episode was over before begins anew with this step or the next (autoreset modes SAME_STEP, NEXT_STEP), and
    what it pays then belongs to no episode of ours. In the mode DISABLED it begins anew here, because it may not be stepped
    otherwise.
    """
    seen, rewards, terminated, truncated, _ = vector.step(actions)
    ends = np.asarray(terminated, dtype=bool) | np.asarray(truncated, dtype=bool)
    if ends.any() and vector.metadata.get("autoreset_mode") == AutoresetMode.DISABLED:
        seen, _ = vector.reset(options={"reset_mask": ends})
    return seen, np.asarray(rewards, dtype=np.float64), ends


def vector_rows(vector: VectorEnv[Any, Any, Any], seen: Any) -> list[Any]:
    """Returns the observation of each copy."""
    return list(iterate(vector.observation_space, seen))


class NativeCopies:
    """Copies in one vector environment: that of Gymnasium for an id (its vector entry point), or one that was given.

    What a copy does after the end of its episode is ignored. Where each copy has an environment of its own, each gets a
    seed; else one seed serves all copies.
    """

    def __init__(self, vector: VectorEnv[Any, Any, Any], actions: Actions, *, given: bool = False):
        """Takes the vector environment; one that was given stays open for its owner."""
        self.size = vector.num_envs
        self._vector, self._actions, self._given = vector, actions, given

    def reset(self, seeds: Sequence[int], /) -> list[Any]:
        """Starts an episode in every copy, and returns as many raw observations as seeds."""
        several = isinstance(self._vector.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        padded = [int(seed) for seed in seeds] + [int(seeds[-1])] * (self.size - len(seeds))
        seed: Any = padded if several else padded[0]
        seen, _ = self._vector.reset(seed=seed)
        return vector_rows(self._vector, seen)[: len(seeds)]

    def step(self, actions: Ints, over: Mask, /) -> Stepped:
        """Takes one action in each copy; answers after an episode's end mean nothing."""
        m = len(actions)
        padded = np.concatenate([actions, np.zeros(self.size - m, dtype=np.int64)])
        seen, rewards, ends = step_vector(self._vector, self._actions.batch(padded))
        return Stepped(vector_rows(self._vector, seen)[:m], rewards[:m], ends[:m])

    def close(self) -> None:
        """Closes a vector environment that was made here."""
        if not self._given and not self._vector.closed:
            self._vector.close()


EPISODES = 20  # played to suggest a range of rewards
SEQUENCES = 8  # of actions, each played with two seeds
LEVELS = 64  # of an episode that are compared


class RewardsSeen(NamedTuple):
    """What episodes of random actions paid."""

    step: tuple[float, float]  # smallest and largest reward
    total: tuple[float, float]  # smallest and largest total of an episode


def rewards_seen(copies: Copies, n_actions: int, horizon: int) -> RewardsSeen:
    """Plays `EPISODES` episodes of random actions."""
    rng = keyed_generator(0, "gymnasium", "rewards seen")
    steps: list[float] = []
    totals: list[float] = []
    while len(totals) < EPISODES:
        m = min(copies.size, EPISODES - len(totals))
        copies.reset([int(seed) for seed in rng.integers(2**31, size=m)])
        over, total = np.zeros(m, dtype=bool), np.zeros(m)
        for _ in range(horizon):
            if over.all():
                break
            stepped = copies.step(rng.integers(n_actions, size=m), over)
            steps += stepped.rewards[~over].tolist()
            total[~over] += stepped.rewards[~over]
            over = over | stepped.over
        totals += total.tolist()
    return RewardsSeen((min(steps), max(steps)), (min(totals), max(totals)))


def noise_behind_a_start(copies: Copies, rows: Rows, n_actions: int, horizon: int) -> Sequence[int] | None:
    """Returns actions that led from the same first observation to different ones with two seeds; None where none did."""
    rng = keyed_generator(0, "gymnasium", "frozen noise")
    for _ in range(SEQUENCES):
        actions = rng.integers(n_actions, size=min(horizon, LEVELS))
        one, other = (_shown(copies, rows, [int(seed)], [actions])[0] for seed in rng.integers(2**31, size=2))
        if one[0] == other[0] and one != other:
            first = next(
                (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
            )
            return [int(a) for a in actions[:first]]
    return None


def _shown(copies: Copies, rows: Rows, seeds: Sequence[int], actions: Sequence[Ints] | Ints) -> list[list[Any]]:
    """Returns what an episode in each of some copies shows and pays, up to its end.

    Args:
        copies: of the environment; the first ones play.
        rows: turns observations into rows.
        seeds: `[m]` of the episodes.
        actions: `[m, levels]` what each episode does.
    """
    shown: list[list[Any]] = [[rows.row(raw).tobytes()] for raw in copies.reset(seeds)]
    over = np.zeros(len(seeds), dtype=bool)
    for taken in np.asarray(actions).T:
        if over.all():
            break
        stepped = copies.step(taken, over)
        for i in np.flatnonzero(~over).tolist():
            seen = None if stepped.over[i] else rows.row(stepped.seen[i]).tobytes()
            shown[i].append((float(stepped.rewards[i]), seen))
        over = over | stepped.over
    return shown

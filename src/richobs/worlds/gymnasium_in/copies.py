"""Copies of a Gymnasium environment that are stepped together, one after the other or natively, and a few trial episodes.

Copies know only numbers of actions and raw observations. Shapes: m episodes at a time, at most as many as there are
copies.

If the same actions always lead to the same observations and rewards, an episode whose actions are known need not be
played. Every real episode is compared with what is known of its path, and some known paths are played again for nothing
but this comparison. Shapes: n episodes.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import iterate

from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise, InvalidInput, Rejected
from richobs.core.policies import Policy, live_actions
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Mask, Observations, Path
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
SHARE = 16  # one of so many played paths is played again
SHOWN = 6  # numbers of an observation that a message shows


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


class Node:
    """What one path led to."""

    __slots__ = ("after", "observation", "reward")

    def __init__(self, observation: Observations | None, reward: float):
        """Takes what the last action of the path led to.

        Args:
            observation: one row; None where the episode was over.
            reward: of the last action; 0 where there is none.
        """
        self.observation, self.reward = observation, reward
        self.after: dict[int, Node] = {}  # action -> what it led to


class KnownPaths:
    """Plays policies in a deterministic environment, and plays each path only once.

    After a call of `play` the number of paths that were played again is at least one in `SHARE` of the played paths, plus
    the binary logarithm of the number of episodes that were answered without being played.
    """

    def __init__(self, name: str, copies: LocalCopies, rows: Rows, n_actions: int, seed: int | None):
        """Takes the copies that play.

        Args:
            name: of the environment, for messages.
            copies: of the environment.
            rows: turns observations into rows.
            n_actions: number of actions K.
            seed: of every reset; None where a reset is deterministic whatever its seed.
        """
        self.real_episodes = 0  # that were played, those that were played again included
        self._name, self._copies, self._rows, self._n_actions, self._seed = name, copies, rows, n_actions, seed
        self._root: Node | None = None
        self._again = 0  # episodes that were played again
        self._answered = 0  # episodes that were answered without being played
        self._places: dict[Path, int] = {}  # path -> the copy whose episode has come so far
        self._free: list[int] = []

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int) -> Episodes:
        """Plays n episodes as `Environment.play` does; the use of `rng` does not depend on which paths are known."""
        own = keyed_generator(int(rng.integers(2**63)), "gymnasium", "deterministic")
        before = self.real_episodes
        self._places, self._free = {}, list(reversed(range(self._copies.size)))
        nodes = [self._known_root(own)] * n
        paths: list[Path] = [()] * n
        seen, taken, paid, ended = [], [], [], []
        for level in range(levels):
            x = self._rows.stack([node.observation for node in nodes])
            over = np.array([node.observation is None for node in nodes])
            actions = live_actions(policy, level, x, over, self._n_actions, rng)
            rewards = np.zeros(n)
            live = np.flatnonzero(~over)
            for i in live:
                if int(actions[i]) not in nodes[i].after:
                    self._extend(paths[i], int(actions[i]), nodes[i], own)
            for i in live:
                nodes[i], paths[i] = nodes[i].after[int(actions[i])], (*paths[i], int(actions[i]))
                rewards[i] = nodes[i].reward
            seen.append(x)
            taken.append(actions)
            paid.append(rewards)
            ended.append(over)
        self._answered += max(0, n - (self.real_episodes - before))
        self._check(sorted(set(paths)), own)
        return Episodes(tuple(seen), tuple(taken), tuple(paid), tuple(ended))

    def _check(self, paths: Sequence[Path], own: np.random.Generator) -> None:
        """Plays some of the paths again, as many as are due."""
        played = self.real_episodes - self._again
        due = (-(-played // SHARE) + int(math.log2(1 + self._answered))) if self._answered else 0
        while self._again < due:
            self._again += 1
            self._free = list(reversed(range(self._copies.size)))
            self._follow(paths[int(own.integers(len(paths)))], own)

    def _extend(self, path: Path, action: int, node: Node, own: np.random.Generator) -> None:
        """Plays one more action behind a path, in an episode that has come so far or in a new one."""
        copy = self._places.pop(path, None)
        if copy is None:
            if not self._free:  # the episode that has waited longest is given up
                self._free.append(self._places.pop(next(iter(self._places))))
            copy = self._follow(path, own)
        node.after[action] = self._step(copy, action)
        if node.after[action].observation is None:
            self._free.append(copy)
        else:
            self._places[(*path, action)] = copy

    def _known_root(self, own: np.random.Generator) -> Node:
        """Returns what a reset shows, after a first one if need be."""
        if self._root is None:
            copy, self._root = self._start(own)
            self._places[()] = copy
        return self._root

    def _start(self, own: np.random.Generator) -> tuple[int, Node]:
        """Starts a real episode; returns the copy that plays it, and what it shows."""
        copy = self._free.pop()
        self.real_episodes += 1
        seed = int(own.integers(2**31)) if self._seed is None else self._seed
        return copy, Node(self._rows.row(self._copies.reset_one(copy, seed)), 0.0)

    def _follow(self, path: Path, own: np.random.Generator) -> int:
        """Plays a known path from the start, compares all that it shows, and returns the copy."""
        copy, now = self._start(own)
        node = self._known_root(own)
        self._compare((), node, now)
        for level, action in enumerate(path):
            node = node.after[action]
            self._compare(path[: level + 1], node, self._step(copy, action))
        return copy

    def _step(self, copy: int, action: int) -> Node:
        raw, reward, over = self._copies.step_one(copy, action)
        return Node(None if over else self._rows.row(raw), reward)

    def _compare(self, path: Path, known: Node, now: Node) -> None:
        """Refuses an environment that shows something else than before."""
        same = (known.observation is None) == (now.observation is None) and known.reward == now.reward
        if known.observation is not None and now.observation is not None:
            same = same and np.array_equal(known.observation, now.observation)
        if not same:
            seeds = "fresh seeds" if self._seed is None else f"the seed {self._seed}"
            where = f"the actions {path}" if path else "a reset"
            raise BrokenPromise(
                f"{self._name} is not deterministic: {where} led to {_words(path, known)} at first, and to "
                f"{_words(path, now)} later, with {seeds}. Leave deterministic=True out; or, if only the start is random, "
                "give seed=."
            )


def _words(path: Path, node: Node) -> str:
    """Returns what a path led to, in words; of a large observation its digest too, so that a difference shows."""
    x, paid = node.observation, f"the reward {node.reward!r} and " if path else ""
    if x is None:
        return f"{paid}the end of the episode"
    shown = ", ".join(str(v) for v in np.ravel(x)[:SHOWN])
    more = f", ... of {x.size} (SHA-256 {hashlib.sha256(x.tobytes()).hexdigest()[:12]})" if x.size > SHOWN else ""
    return f"{paid}the observation [{shown}{more}]"

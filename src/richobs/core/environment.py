"""What an environment is, what it answers, and the one place where an answer is checked before it counts.

Shapes: n episodes, H levels, K actions. Levels count from 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from richobs.core.errors import InvalidInput, InvalidPath, Rejected, RewardOutOfRange
from richobs.core.policies import Policy, fixed_prefix, sure_actions
from richobs.core.types import Floats, Ints, Mask, Observations, Path

TOLERANCE = 1e-9  # how far rounding may push a reward or a total out of its range
AT_ONCE = 32  # episodes per call of an environment that a user brings, unless it says otherwise


@dataclass(frozen=True, eq=False)
class Episodes:
    """What n episodes saw, did and earned, one entry per level that was played."""

    observations: Sequence[Observations]  # per level [n, ...]
    actions: Sequence[Ints]  # per level [n]
    rewards: Sequence[Floats]  # per level [n]
    ended: Sequence[Mask] = ()  # per level [n]: True where the episode was over before; () where none ends early

    @property
    def n(self) -> int:
        """Number of episodes."""
        return len(self.rewards[0])

    @property
    def levels(self) -> int:
        """Number of levels that were played."""
        return len(self.rewards)

    @property
    def returns(self) -> Floats:
        """`[n]` the sum of each episode's rewards."""
        return np.sum(self.rewards, axis=0, dtype=np.float64)

    @property
    def paths(self) -> Ints:
        """`[n, levels]` the actions that each episode took."""
        return np.stack(self.actions, axis=1)

    @classmethod
    def concatenate(cls, parts: Sequence["Episodes"]) -> "Episodes":
        """Returns the episodes of several parts, one after the other."""
        if len(parts) == 1:
            return parts[0]

        def joined(name: str) -> tuple[Any, ...]:
            return tuple(np.concatenate(column) for column in zip(*(getattr(p, name) for p in parts), strict=True))

        ended = joined("ended") if all(p.ended for p in parts) else ()
        return cls(joined("observations"), joined("actions"), joined("rewards"), ended)


class Environment(Protocol):
    """A contextual decision process that can be played ([KAL16] Section 2): three facts and one method.

    An environment may also have an attribute `at_once`, the number of episodes that one call of `play` is asked for at
    most (32 unless it says otherwise); a smaller one loses less when a run is killed. It need not count episodes, because
    the ledger does.
    """

    @property
    def horizon(self) -> int:
        """Number of levels H."""
        ...

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        ...

    @property
    def reward_range(self) -> tuple[float, float]:
        """Smallest and largest possible sum of an episode's rewards."""
        ...

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        """Plays n whole episodes from the start, each asking `policy.actions(level, x, rng)` once per level.

        Args:
            policy: what to do.
            n: number of episodes.
            rng: where all randomness comes from.
            levels: stop after so many levels, where no more is wanted; by default after all.
        """
        ...


def checked_episodes(played: Any, env: Environment, policy: Policy, n: int, levels: int) -> Episodes:
    """Checks what an environment's `play` returned, and returns it as arrays of the usual types.

    Raises:
        Rejected: other rows, levels, shapes, types or actions than were asked for.
        RewardOutOfRange: a reward that is not a number, or a total outside `env.reward_range`.
    """
    name = f"{type(env).__name__}.play"
    if not isinstance(played, Episodes):
        raise Rejected(f"{name} must return richobs.Episodes; it returned {type(played).__name__}.")
    seen = _columns(name, "observations", played.observations, n, levels)
    for level, x in enumerate(seen):
        if x.dtype.hasobject:
            raise Rejected(f"{name}: observations at level {level} are Python objects, not numbers or text.")
        if x.dtype.kind == "f" and np.isnan(x).any():
            raise Rejected(f"{name}: an observation at level {level} is not a number (NaN).")
    actions = _table(name, "actions", played.actions, n, levels, "iu")
    rewards = _table(name, "rewards", played.rewards, n, levels, "fiub").astype(np.float64, copy=False)
    ended = _table(name, "ended", played.ended, n, levels, "b") if len(played.ended) else None
    if ended is not None and (ended[:-1] & ~ended[1:]).any():
        raise Rejected(f"{name}: an episode that had ended goes on; `ended` stays True once it is.")
    if not (actions.min() >= 0 and actions.max() < env.n_actions):
        level, episode = np.argwhere((actions < 0) | (actions >= env.n_actions))[0]
        raise Rejected(
            f"{name}: episode {episode} took action {actions[level, episode]} at level {level}; there are actions 0 to "
            f"{env.n_actions - 1}."
        )
    prefix = np.array(fixed_prefix(policy)[:levels], dtype=np.int64)
    wrong = actions[: len(prefix)] != prefix[:, None]
    if wrong.any():
        level, episode = np.argwhere(wrong)[0]
        raise Rejected(
            f"{name}: episode {episode} took action {actions[level, episode]} at level {level}; action {prefix[level]} was "
            "asked for."
        )
    check_rewards(rewards, ended, env, policy)
    return Episodes(
        tuple(seen), tuple(actions.astype(np.int64, copy=False)), tuple(rewards), () if ended is None else tuple(ended)
    )


def check_obeyed(played: Episodes, env: Environment, policy: Policy) -> None:
    """Refuses episodes in which a policy that is not random would have acted otherwise.

    Raises:
        Rejected: an action that the policy does not take at what was seen.
    """
    for level, (x, acted) in enumerate(zip(played.observations, played.actions, strict=True)):
        asked = sure_actions(policy, level, x)
        if asked is None:
            continue
        wrong = acted != asked
        if played.ended:
            wrong &= ~played.ended[level]
        if wrong.any():
            i = int(wrong.argmax())
            raise Rejected(
                f"{type(env).__name__}.play: episode {i} took action {acted[i]} at level {level}; the policy asks for "
                f"action {asked[i]} at what was seen there."
            )


def _columns(name: str, what: str, given: Any, n: int, levels: int) -> list[Any]:
    """Returns one array of n rows per level."""
    if not isinstance(given, Sequence | np.ndarray):
        raise Rejected(f"{name}: {what} must be a list with one array per level; got {type(given).__name__}.")
    try:
        columns = [np.array(column) for column in given]  # copies: an environment may use its arrays again
    except ValueError as error:
        raise Rejected(f"{name}: {what} are not arrays: {error}") from error
    if len(columns) != levels:
        raise Rejected(f"{name} returned {what} of {len(columns)} levels; {levels} were asked for.")
    for level, column in enumerate(columns):
        if column.ndim < 1 or len(column) != n:
            raise Rejected(
                f"{name}: {what} at level {level} have shape {column.shape}; {n} episodes were asked for, one row each."
            )
    return columns


def _table(name: str, what: str, given: Any, n: int, levels: int, kinds: str) -> Any:
    """Returns `[levels, n]` numbers of a given kind."""
    columns = _columns(name, what, given, n, levels)
    for level, column in enumerate(columns):
        if column.ndim != 1 or column.dtype.kind not in kinds:
            wanted = {"iu": "[n] integers", "b": "[n] True or False"}.get(kinds, "[n] numbers")
            raise Rejected(
                f"{name}: {what} at level {level} must be {wanted}; got {column.dtype} of shape {column.shape}."
            )
    return np.stack(columns)


def check_rewards(rewards: Floats, ended: Mask | None, env: Environment, policy: Policy) -> None:
    """Refuses rewards `[levels, n]` that are not numbers, come after the end, or add up to more than was declared.

    Raises:
        RewardOutOfRange: naming episode, level and value.
    """
    low, high = env.reward_range
    so_far = rewards.cumsum(axis=0)
    # Later rewards may undo earlier ones where some are negative; only nonnegative rewards bound every partial sum.
    least = 0.0 if low >= 0 else low - max(high, 0.0)
    most = high if low >= 0 else high - low
    wrong = ~((rewards >= least - TOLERANCE) & (rewards <= most + TOLERANCE))  # NaN included
    if low >= 0:
        wrong |= so_far > high + TOLERANCE
    if len(rewards) == env.horizon:
        wrong[-1] |= ~((so_far[-1] >= low - TOLERANCE) & (so_far[-1] <= high + TOLERANCE))
    late = np.zeros_like(wrong) if ended is None else ended & (rewards != 0)
    if (wrong | late).any():
        level, episode = np.argwhere(wrong | late)[0]
        prefix = fixed_prefix(policy)
        where = f"on the path {prefix}" if prefix else "playing a policy"
        after = " after the episode's end" if late[level, episode] else ""
        raise RewardOutOfRange(
            f"{where}, episode {episode} of a call: level {level} paid {rewards[level, episode]}{after}, which makes "
            f"{so_far[level, episode]:.6g} in total; the declared range of an episode's total is [{low:g}, {high:g}]. "
            "Declare the range that rewards have, or rescale them."
        )


def at_once(env: Environment) -> int:
    """Returns how many episodes one call of an environment that a user brings plays at most."""
    number = getattr(env, "at_once", AT_ONCE)
    if not isinstance(number, int) or number < 1:
        raise InvalidInput(f"an environment's at_once is a number of episodes, at least 1; got {number!r}.")
    return number


def checked_path(path: Sequence[int], horizon: int, n_actions: int, *, room: int = 0) -> Path:
    """Returns `path` as a tuple of ints.

    Args:
        path: the actions from the root.
        horizon: levels of the environment.
        n_actions: actions of the environment.
        room: how many more actions must fit behind the path.

    Raises:
        InvalidPath: it is longer than `horizon - room`, or holds an action that does not exist.
    """
    actions = tuple(int(a) for a in path)
    if len(actions) > horizon - room:
        raise InvalidPath(
            f"path {actions} has {len(actions)} actions; this environment has {horizon} levels, so a path here "
            f"holds at most {horizon - room}."
        )
    for level, a in enumerate(actions):
        if not 0 <= a < n_actions:
            raise InvalidPath(
                f"path {actions} takes action {a} at level {level}; this environment has actions 0 to {n_actions - 1}."
            )
    return actions

"""What an environment is, what it answers, and the one place where an answer is checked before it counts.

Shapes: n episodes, H levels, K actions. Levels count from 0.
"""

import math
import numbers
import operator
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np

from richobs.core.arguments import file_path, real_number, refuse_unusable, whole_number
from richobs.core.errors import InvalidFile, InvalidInput, InvalidPath, Rejected, RewardOutOfRange
from richobs.core.files import expanded_limit, open_arrays, write_atomically
from richobs.core.policies import Policy, fixed_prefix, never_takes, sure_actions
from richobs.core.types import Floats, Ints, Mask, Observations, Path

TOLERANCE = 1e-9  # how far rounding may push a reward or a total out of its range
LONGEST_IDENTITY = 100_000  # characters of the line that says which environment it is
CALLS = 16  # of a replayable environment for one request, at least: what workers share


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What an environment may say about itself besides its three facts, in its attribute `declared`.

    Raises `InvalidInput` where a field is something else than it should be.
    """

    step_range: tuple[float, float] | None = None
    """Smallest and largest possible reward of one level, where that is not what `reward_range` implies."""
    at_once: int = 32
    """Episodes that one call of `play` is asked for at most; a smaller number loses less when a run is killed."""
    identity: str | None = None
    """A text that says which environment it is: a stored run goes on only with the same one."""
    deterministic: bool = False
    """Whether the same actions always show and pay the same, so that it answers known actions from memory."""
    frozen_seed: int | None = None
    """The seed of every reset, where episodes do not get fresh ones: claims name it."""
    replayable: bool = False
    """Whether `play` takes all its randomness from `rng`, and keeps no state between calls.

    Then copies of it may be played by other threads, processes or machines, if it can be pickled (docs/scale.md). A copy
    that had a generator of its own would play the same episodes everywhere, and a claim that counts them as independent
    would be false; so some calls are made twice, by copies and by the environment itself, and compared.
    """
    releases_gil: bool = False
    """Whether `play` mostly works without Python's interpreter lock: workers are threads then."""
    replays_first: int = 0
    """Calls of a policy that workers must make again, with the same result, before they share its calls.

    For environments that nobody has declared replayable: those that richobs makes of those of others.
    """
    processes: int = 1
    """How many processes should play it."""

    def __post_init__(self) -> None:
        for name in ("deterministic", "replayable", "releases_gil"):
            flag = getattr(self, name)
            if not isinstance(flag, bool | np.bool_ | None):
                raise InvalidInput(f"an environment's {name} is True or False; got {flag!r:.80}.")
            object.__setattr__(self, name, bool(flag))
        counts = (("at_once, a number of episodes,", 1), ("replays_first, a number of calls,", 0), ("processes", 1))
        for words, least in counts:
            name = words.partition(",")[0]
            number = whole_number(f"an environment's {words}", getattr(self, name), least=least)
            object.__setattr__(self, name, min(number, sys.maxsize))
        if self.frozen_seed is not None:
            whole_number("an environment's frozen_seed", self.frozen_seed, least=None)
        if self.step_range is not None:
            object.__setattr__(self, "step_range", checked_range("step_range", self.step_range))
        identity: object = self.identity
        if identity is not None and (not isinstance(identity, str) or not identity):
            raise InvalidInput(f"an environment's identity is a text that says which one it is; got {identity!r:.80}.")

    @property
    def may_be_copied(self) -> bool:
        """Whether workers may play copies: not where it answers from memory, and counts what it really played."""
        return self.replayable and not self.deterministic

    def call_size(self, n: int) -> int:
        """Returns how many episodes one call of `play` is asked for, of n that are wanted.

        Replayable environments are played in at least 16 calls, so that workers can share them. The number of workers does
        not matter: calls belong to the result.
        """
        return max(1, min(self.at_once, -(-n // CALLS))) if self.may_be_copied else self.at_once


COLUMNS = ("observations", "actions", "rewards", "ended", "propensities")
OPTIONAL = ("ended", "propensities")
NOTHING_DECLARED = Declared()


def declared_by(env: object) -> Declared:
    """Returns what an environment declares about itself.

    Raises:
        InvalidInput: its attribute `declared` is something else, or what belongs there is an attribute of its own, as it
            was before there was a `Declared`: passed over, it could make a claim false.
    """
    declared = getattr(env, "declared", None)
    if declared is None:
        alone = [field.name for field in fields(Declared) if hasattr(env, field.name)]
        if alone:
            raise InvalidInput(
                f"{type(env).__name__} has the attribute {alone[0]!r}, which richobs reads from `declared` alone. Write "
                f"declared = richobs.Declared({alone[0]}=...), or richobs.Declared() where it means something else."
            )
        return NOTHING_DECLARED
    if not isinstance(declared, Declared):
        raise InvalidInput(f"an environment's attribute `declared` is a richobs.Declared; got {declared!r:.80}.")
    return declared


@dataclass(frozen=True, eq=False)
class Episodes:
    """What n episodes saw, did and earned, one entry per level that was played."""

    observations: Sequence[Observations]  # per level [n, ...]
    actions: Sequence[Ints]  # per level [n]
    rewards: Sequence[Floats]  # per level [n]
    ended: Sequence[
        Mask
    ] = ()  # per level [n]: True where it was over before, never at level 0; () where none ends early
    propensities: Sequence[Floats] = ()  # per level [n]: probability with which the action was drawn; () if not known

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

    def part(self, first: int, last: int) -> "Episodes":
        """Returns episodes `first` to `last - 1`."""
        columns: tuple[Any, ...] = (self.observations, self.actions, self.rewards, self.ended, self.propensities)
        return Episodes(*(tuple(level[first:last] for level in column) for column in columns))

    @classmethod
    def concatenate(cls, parts: Sequence["Episodes"]) -> "Episodes":
        """Returns the episodes of several parts, one after the other."""
        if len(parts) == 1:
            return parts[0]

        def joined(name: str) -> tuple[Any, ...]:
            return tuple(np.concatenate(column) for column in zip(*(getattr(p, name) for p in parts), strict=True))

        if any(p.ended for p in parts):  # a part without ends has none: it must not make the ends of others disappear
            parts = [p if p.ended else replace(p, ended=[np.zeros(p.n, dtype=bool)] * p.levels) for p in parts]
        known = joined("propensities") if all(p.propensities for p in parts) else ()
        return cls(joined("observations"), joined("actions"), joined("rewards"), joined("ended"), known)

    @refuse_unusable
    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes the episodes to a file that `load` reads; numbers, bits and text only."""
        arrays: dict[str, Any] = {}
        for name in COLUMNS:
            for level, column in enumerate(getattr(self, name)):
                plain = np.asarray(column)
                if plain.dtype.hasobject:
                    raise InvalidInput(f"{name} at level {level} are Python objects, which are not written to files.")
                arrays[f"{name}_{level}"] = plain
        write = np.savez if sum(a.nbytes for a in arrays.values()) > expanded_limit(0) // 2 else np.savez_compressed
        with write_atomically(file_path(file)) as stream:
            write(stream, **arrays)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> "Episodes":
        """Returns the episodes in a file that `save` wrote.

        The sizes that the file declares are checked before anything is expanded: at most 256 MiB, or 20 times the file.

        Raises:
            InvalidFile: it is damaged, or something else, or it would expand to more.
        """
        try:
            with open_arrays(file_path(file), largest=expanded_limit(os.path.getsize(file))) as stored:
                levels = sum(name.startswith("rewards_") for name in stored.sizes)
                known = {f"{name}_{level}" for name in COLUMNS for level in range(levels)}
                if not levels or stored.sizes.keys() - known:
                    raise InvalidFile(f"it has {', '.join(sorted(stored.sizes)[:8])}")
                columns = {
                    name: tuple(stored.read(f"{name}_{level}") for level in range(levels))
                    for name in COLUMNS
                    if name not in OPTIONAL or f"{name}_0" in stored.sizes
                }
        except OSError:
            raise
        except Exception as error:  # whatever a damaged or hostile file leads to
            raise InvalidFile(f"{file} does not hold episodes as Episodes.save writes them: {error}") from error
        return cls(**columns)


class Environment(Protocol):
    """A contextual decision process that can be played ([KAL16] Section 2): three facts and one method.

    It need not count episodes, because the ledger does. An attribute `declared` may say more about it (see `Declared`). If
    it declares `deterministic`, an attribute `real_episodes` may count the episodes that it really played.
    """

    @property
    def horizon(self) -> int:
        """Number of levels H."""

    @property
    def n_actions(self) -> int:
        """Number of actions K."""

    @property
    def reward_range(self) -> tuple[float, float]:
        """Smallest and largest possible sum of an episode's rewards."""

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        """Plays n whole episodes from the start, each asking `policy.actions(level, x, rng)` once per level.

        Args:
            policy: what to do.
            n: number of episodes.
            rng: where all randomness comes from.
            levels: stop after so many levels, where no more is wanted; by default after all.
        """


class PlainFacts:
    """An environment whose three facts are Python's numbers; everything else is that of the environment inside.

    The numbers of NumPy are no content of a JSON file, and those of few bits overflow (`np.uint8(2) * 288`).
    """

    def __init__(self, env: Environment, horizon: int, n_actions: int, reward_range: tuple[float, float]):
        """Takes the environment and its facts."""
        self.horizon, self.n_actions, self.reward_range = horizon, n_actions, reward_range
        self._inside = env

    @classmethod
    def around(cls, env: Environment, horizon: int, n_actions: int, reward_range: tuple[float, float]) -> "PlainFacts":
        """Returns the environment with these facts, under the name of its class, which messages and files mention."""
        named: type[PlainFacts] = type(type(env).__name__, (cls,), {})
        return named(env, horizon, n_actions, reward_range)

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        """Plays n episodes."""
        return self._inside.play(policy, n, rng, levels)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # how to copy or pickle is not that of the environment inside
            raise AttributeError(name)
        return getattr(self._inside, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return PlainFacts.around, (self._inside, self.horizon, self.n_actions, self.reward_range)


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
        if x.dtype.kind in "fc" and not np.isfinite(x).all():
            wrong = ~np.isfinite(x)
            raise Rejected(
                f"{name}: an observation at level {level} is not a finite number (NaN or infinite): {x[wrong][0]} in "
                f"episode {np.argwhere(wrong)[0][0]}."
            )
        if x.dtype.kind in "mM" and np.isnat(x).any():
            raise Rejected(f"{name}: an observation at level {level} is not a time (NaT).")
    actions = _table(name, "actions", played.actions, n, levels, "iu")
    rewards = _table(name, "rewards", played.rewards, n, levels, "fiub").astype(np.float64, copy=False)
    has_ends = not isinstance(played.ended, Sequence | np.ndarray) or len(played.ended)
    ended = _table(name, "ended", played.ended, n, levels, "b") if has_ends else None
    if ended is not None and ended[0].any():
        raise Rejected(
            f"{name}: episode {ended[0].argmax()} is over before its first action (`ended` is True at level 0), and what is "
            "seen first must be an observation, not padding. Every episode takes at least one action: show an observation "
            "of its own where nothing can be earned, and let `ended` be True from level 1 on."
        )
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
    if ended is not None:
        wrong &= ~ended[: len(prefix)]  # what an episode does after its end is nothing
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
    """Refuses episodes in which a policy would have acted otherwise, wherever it is not random.

    Raises:
        Rejected: an action that the policy does not take at what was seen.
    """
    for level, (x, acted) in enumerate(zip(played.observations, played.actions, strict=True)):
        live = np.flatnonzero(~played.ended[level]) if played.ended else np.arange(played.n)
        wrong = never_takes(policy, level, x[live], acted[live]) if len(live) else live
        if wrong.any():
            i = int(wrong.argmax())
            asked = sure_actions(policy, level, x[live])
            words = "never takes that" if asked is None else f"asks for action {asked[i]}"
            raise Rejected(
                f"{type(env).__name__}.play: episode {live[i]} took action {acted[live[i]]} at level {level}; the policy "
                f"{words} at what was seen there."
            )


def _columns(name: str, what: str, given: Any, n: int, levels: int) -> list[Any]:
    """Returns one array of n rows per level."""
    if not isinstance(given, Sequence | np.ndarray):
        raise Rejected(f"{name}: {what} must be a list with one array per level; got {type(given).__name__}.")
    try:
        columns = [np.array(column) for column in given]  # copies: an environment may use its arrays again
    except (ValueError, TypeError, OverflowError) as error:
        raise Rejected(f"{name}: {what} are not arrays: {error}") from error
    if len(columns) != levels:
        raise Rejected(f"{name} returned {what} of {len(columns)} levels; {levels} were asked for.")
    if any(np.ma.is_masked(column) for column in given):
        raise Rejected(f"{name}: {what} have masked entries, which are no values.")
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
    least, most = step_range(env)
    wrong = ~((rewards >= least - TOLERANCE) & (rewards <= most + TOLERANCE))  # NaN included
    if ended is not None:
        wrong &= ~ended  # 0 after the end, whatever the range is
    # Later rewards may undo earlier ones, unless all have the same sign: only then is every partial sum bounded.
    if least >= 0:
        wrong |= so_far > high + TOLERANCE
    if most <= 0:
        wrong |= so_far < low - TOLERANCE
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
            f"{so_far[level, episode]:.6g} in total; the declared range of an episode's total is [{low:g}, {high:g}], that "
            f"of one reward [{least:g}, {most:g}]. "
            "Declare the range that rewards have, or rescale them."
        )


def environment_identity(env: Environment, id: str | None = None) -> str:
    """Returns which environment it is, in a line: as it declares, or its id, or the name of its class and three facts.

    Args:
        env: which one.
        id: of a problem that can be built again by it.

    Raises:
        InvalidInput: it is too long for a certificate, or not a text of whole characters.
    """
    declared = declared_by(env).identity or id
    if declared is None:
        low, high = (float(v) for v in env.reward_range)
        facts = f"horizon={int(env.horizon)}, n_actions={int(env.n_actions)}, reward_range=[{low!r}, {high!r}]"
        return f"{type(env).__name__}, {facts}"
    if len(declared) > LONGEST_IDENTITY or any("\ud800" <= mark <= "\udfff" for mark in declared):
        raise InvalidInput(
            f"an environment's identity stands in every certificate, as at most {LONGEST_IDENTITY:,} characters and no half "
            f"of one (a surrogate); got {len(declared):,} characters, {declared[:40]!r}... Declare a digest of what it says."
        )
    return declared


def random_steps_words(name: str, actions: Sequence[int], seeds: str = "two seeds") -> str:
    """Returns the sentence for an environment whose random steps one seed would freeze."""
    return (
        f"{name} is random behind its start: with {seeds} the actions {tuple(actions)} led from the same observation to "
        "different observations, rewards or ends."
    )


def real_episodes(env: Environment) -> int | None:
    """Returns how many episodes an environment that is declared deterministic really played so far; None for others.

    Others play every episode that they are asked for.

    Raises:
        InvalidInput: the attribute `real_episodes` is not a whole number.
    """
    played = getattr(env, "real_episodes", None) if declared_by(env).deterministic else None
    if played is None:
        return None
    if isinstance(played, bool) or not isinstance(played, numbers.Integral) or played < 0:
        raise InvalidInput(f"an environment's real_episodes is the number of episodes that it played; got {played!r}.")
    return int(played)


def step_range(env: Environment) -> tuple[float, float]:
    """Returns the smallest and the largest possible reward of one level: as declared, or as `reward_range` implies."""
    given = declared_by(env).step_range
    return implied_step_range(env.reward_range) if given is None else given


def implied_step_range(reward_range: tuple[float, float]) -> tuple[float, float]:
    """Returns the range that one reward is held to, where only the range of an episode's total was declared.

    If totals are never negative, rewards are taken to be nonnegative too, so each lies in [0, high]. Otherwise later
    rewards may undo earlier ones, and a reward lies in [low - max(high, 0), high - low].
    """
    low, high = reward_range
    return (0.0, float(high)) if low >= 0 else (float(low - max(high, 0.0)), float(high - low))


def checked_range(name: str, given: Any) -> tuple[float, float]:
    """Returns a pair (low, high) of finite numbers as floats.

    Args:
        name: what the pair is called in a message.
        given: what should be such a pair.

    Raises:
        InvalidInput: it is something else.
    """
    if type(given) is tuple and [*map(type, given)] == [float, float] and -math.inf < given[0] <= given[1] < math.inf:
        return given
    is_array = isinstance(given, np.ndarray)
    pair = given.shape == (2,) if is_array else isinstance(given, tuple | list) and len(given) == 2
    low, high = (real_number(f"each end of {name}", v) for v in given) if pair else (math.nan, math.nan)
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise InvalidInput(f"{name} must be a pair (low, high) of finite numbers, low <= high; got {given!r:.80}.")
    return low, high


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
    try:
        actions = tuple(operator.index(a) for a in path)
    except TypeError:
        raise InvalidPath(
            f"a path is a sequence of whole numbers, the actions from the root; got {path!r:.80}."
        ) from None
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

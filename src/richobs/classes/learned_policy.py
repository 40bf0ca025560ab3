"""Policies that were learned: playable, usable where Stable-Baselines3 policies are, saved without pickle.

Shapes: H levels, n observations, X observations of a level that are listed, K actions.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from richobs.classes.base import Arrays, digest_of, from_arrays, read_whole, to_arrays, write_parts
from richobs.classes.layered import Layered, LevelwiseFunction
from richobs.classes.tables import Constants, TableLevel
from richobs.core.arguments import refuse_unusable
from richobs.core.environment import checked_path
from richobs.core.errors import InvalidFile, InvalidInput
from richobs.core.functions import FunctionClass
from richobs.core.policies import Greedy
from richobs.core.process import Codebook
from richobs.core.types import Ints, Member, Observations

FORMAT = "richobs-policy"


class LearnedPolicy(Greedy):
    """The greedy policy of one function of a class."""

    @refuse_unusable
    def __init__(self, functions: FunctionClass, member: Member):
        """Takes the class, and which function of it is meant."""
        super().__init__(functions.member(member))
        self.functions = functions
        self.member = member

    def predict(
        self,
        observation: Observations,
        state: tuple[Ints, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = True,
    ) -> tuple[Ints, tuple[Ints, ...]]:
        """Returns actions as Stable-Baselines3 policies do; the level travels in `state`.

        What is best may depend on the level, so an observation alone is not enough where there are several levels.

        Args:
            observation: `[n, ...]` one per environment, or a single one. Where the class does not say how many axes an
                observation has, a single number or text is one observation and every other array holds n of them.
            state: what the last call returned; None at the start of all episodes.
            episode_start: `[n]` True where a new episode begins, so that the level is 0 again; True or False for all.
            deterministic: accepted for compatibility; this policy always is.

        Returns:
            `[n]` actions, and the state for the next call: `(levels,)` with `[n]` levels. For a single observation, a
            single action (an array without axes) and a state with one level.

        Raises:
            InvalidInput: neither `state` nor `episode_start` says at which level an observation was made.
        """
        x, before, starts = _as_arrays(observation, state, episode_start)
        if before is None and self.functions.horizon > 1 and (starts is None or not starts.all()):
            raise InvalidInput(
                f"predict was not told at which of {self.functions.horizon} levels the observation was made. Give "
                "episode_start=True at the first step of an episode and state=the state that the last call returned at "
                "every other, as Stable-Baselines3's evaluate_policy does; or ask policy.actions(level, observations)."
            )
        first = 0 if before is None or (starts is not None and starts.flat[0]) else int(before[0])
        single = x.ndim == (self._observation_ndim(first) or 0)
        if single:
            x = x[None]
        if starts is not None and starts.ndim == 0:
            starts = np.full(len(x), bool(starts))
        levels = np.zeros(len(x), dtype=np.int64) if before is None else before.copy()
        if levels.shape != (len(x),) or (starts is not None and starts.shape != (len(x),)):
            raise InvalidInput(
                f"{len(x)} observations arrived, with the levels of {levels.size}"
                + ("." if starts is None else f" and the episode starts of {starts.size}.")
                + " `state` and `episode_start` hold one entry per observation."
            )
        if starts is not None:
            levels[starts] = 0
        actions = np.zeros(len(x), dtype=np.int64)
        for level in np.unique(levels):
            mine = levels == level
            if level < self.functions.horizon:  # after the last level an environment resets, whatever the action
                actions[mine] = self.actions(int(level), x[mine])
        return (actions.reshape(()) if single else actions), (levels + 1,)

    def _observation_ndim(self, level: int) -> int | None:
        """Returns how many axes one observation of `level` has, as far as the class says."""
        if not isinstance(self.f, LevelwiseFunction):
            return None
        return self.f.levels[min(level, len(self.f.levels) - 1)].observation_ndim

    def _parts(self) -> list[tuple[str, Arrays]]:
        """Returns, per level, the kind and the arrays of the one function that is used there."""
        if not isinstance(self.f, LevelwiseFunction):
            raise InvalidInput(
                f"{type(self.functions).__name__} does not give its functions level by level, so they cannot be written; "
                "richobs.Layered and richobs.Listed do."
            )
        return [to_arrays(c.singleton(i)) for c, i in zip(self.f.levels, self.f.chain, strict=True)]

    @property
    def digest(self) -> str:
        """SHA-256 of what the policy consists of; the same for the policy loaded from its file.

        Raises:
            InvalidInput: it is made of Python code.
        """
        return digest_of(self._parts())

    def save(self, file: str | os.PathLike[str], /) -> None:
        """Writes the policy to a `.npz` file: plain arrays and a JSON header, no pickle.

        Raises:
            InvalidInput: it is made of Python code.
        """
        write_parts(file, FORMAT, self._parts())

    @classmethod
    def load(cls, file: str | os.PathLike[str], /) -> LearnedPolicy:
        """Returns the policy that `save` wrote.

        Raises:
            InvalidFile: the file is damaged or holds something else.
        """

        def build(parts: list[tuple[str, Arrays]]) -> LearnedPolicy:
            levels = [from_arrays(kind, arrays) for kind, arrays in parts]
            policy = cls(Layered(levels), (0,) * len(levels))
            if policy.digest != digest_of(parts):
                raise InvalidFile("its arrays are of other types or shapes than such a policy has.")
            return policy

        return read_whole(file, FORMAT, build)

    @classmethod
    @refuse_unusable
    def from_table(
        cls, codebooks: Sequence[Codebook | None], actions: Sequence[ArrayLike], *, n_actions: int | None = None
    ) -> LearnedPolicy:
        """Returns the policy that looks the observation up and plays the action listed for it.

        Args:
            codebooks: the observations of each level; None where an observation is its own number.
            actions: per level `[X]` the action for each observation.
            n_actions: number of actions K; by default the largest one that is listed, plus 1.
        """
        if len(codebooks) != len(actions):
            raise InvalidInput(f"there are codebooks of {len(codebooks)} levels and actions of {len(actions)}.")
        tables = [np.asarray(a) for a in actions]
        for level, table in enumerate(tables):
            if table.ndim != 1 or not table.size or table.dtype.kind not in "iu":
                raise InvalidInput(
                    f"level {level}: actions must be [X] integers, one per observation; got {table.dtype} of shape "
                    f"{table.shape}."
                )
        largest = max((int(t.max()) for t in tables), default=0)
        K = largest + 1 if n_actions is None else n_actions
        if largest >= K or min((int(t.min()) for t in tables), default=0) < 0:
            raise InvalidInput(f"actions must lie between 0 and {K - 1}; others are listed.")
        levels = [TableLevel(np.eye(K)[t][None], book) for t, book in zip(tables, codebooks, strict=True)]
        return cls(Layered(levels), (0,) * len(levels))

    @classmethod
    @refuse_unusable
    def open_loop(cls, path: Sequence[int], n_actions: int) -> LearnedPolicy:
        """Returns the policy that plays one action sequence whatever it sees.

        Args:
            path: the action of each level.
            n_actions: number of actions K.
        """
        actions = checked_path(path, len(path), n_actions)
        levels = [Constants(np.eye(n_actions)[[a]]) for a in actions]
        return cls(Layered(levels), (0,) * len(levels))


@refuse_unusable
def _as_arrays(
    observation: Observations, state: tuple[Ints, ...] | None, episode_start: np.ndarray | None
) -> tuple[Observations, Ints | None, np.ndarray | None]:
    """Returns what `predict` is given as arrays: observations, levels and starts of episodes."""
    x = np.asarray(observation)
    before = None if state is None else np.atleast_1d(state[0]).astype(np.int64, casting="same_kind")
    starts = None if episode_start is None else np.asarray(episode_start, dtype=bool)
    return x, before, starts

"""Policies that were learned: playable, usable where Stable-Baselines3 policies are, saved without pickle."""

import json
import os
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from richobs.errors import InvalidFile, InvalidInput
from richobs.files import write_atomically
from richobs.functions import Layered, Listed
from richobs.functions.portable import digest_of, from_arrays, only, to_arrays
from richobs.problem import FunctionClass, GreedyPolicy, Ints, Member, Observations

FORMAT = "richobs-policy"


class LearnedPolicy(GreedyPolicy):
    """The greedy policy of one function of a class."""

    def __init__(self, functions: FunctionClass, member: Member):
        super().__init__(functions.member(member))
        self.functions = functions
        self.member = member

    def predict(
        self,
        observation: Observations,
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = True,
    ) -> tuple[Ints, tuple[np.ndarray, ...]]:
        """Returns actions as Stable-Baselines3 policies do; the level travels in `state`.

        Args:
            observation: `[n, ...]` one per environment.
            state: what the last call returned; None at the start of all episodes.
            episode_start: `[n]` True where a new episode begins, so that the level is 0 again.
            deterministic: accepted for compatibility; this policy always is.

        Returns:
            `[n]` actions, and the state for the next call: `(levels,)` with `[n]` levels.
        """
        x = np.asarray(observation)
        levels = np.zeros(len(x), dtype=np.int64) if state is None else np.asarray(state[0]).copy()
        if episode_start is not None:
            levels[np.asarray(episode_start, dtype=bool)] = 0
        actions = np.zeros(len(x), dtype=np.int64)
        for level in np.unique(levels):
            mine = levels == level
            if level < self.functions.horizon:  # past the last level an environment resets, whatever it is told
                actions[mine] = self.actions(int(level), x[mine])
        return actions, (levels + 1,)

    def _parts(self) -> list[tuple[str, dict[str, Any]]]:
        """Returns, per level, the kind and the arrays of the one function that is used there."""
        chain = (self.member,) * self.functions.horizon if isinstance(self.member, int) else self.member
        levels = getattr(self.functions, "levels", None)
        if levels is None:
            raise InvalidInput(
                f"{type(self.functions).__name__} does not say what it is made of, so it cannot be written."
            )
        return [to_arrays(only(c, i)) for c, i in zip(levels, chain, strict=True)]

    @property
    def digest(self) -> str:
        """SHA-256 of what the policy consists of; the same for the policy loaded from its file."""
        return digest_of(self._parts())

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes the policy to a `.npz` file: plain arrays and a JSON header, no pickle."""
        parts = self._parts()
        header = {"format": FORMAT, "version": 1, "kinds": [kind for kind, _ in parts]}
        arrays = {f"{h}/{name}": a for h, (_, level) in enumerate(parts) for name, a in level.items()}
        with write_atomically(FilePath(file)) as stream:
            np.savez(stream, header=np.array(json.dumps(header)), **arrays)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> "LearnedPolicy":
        """Returns the policy that `save` wrote.

        Raises:
            InvalidFile: the file is damaged or holds something else.
        """
        try:
            with open(file, "rb") as stream, np.load(stream, allow_pickle=False) as stored:
                header = json.loads(str(stored["header"]))
                arrays = {name: stored[name] for name in stored.files if name != "header"}
            if header["format"] != FORMAT or header["version"] != 1:
                raise InvalidFile(f"{file} is not a {FORMAT} file of version 1: its header says {header}.")
            levels = []
            for h, kind in enumerate(list(header["kinds"])):
                prefix = f"{h}/"
                mine = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
                levels.append(from_arrays(kind, mine))
            return cls(Layered(levels), (0,) * len(levels))
        except (FileNotFoundError, InvalidFile):
            raise
        except Exception as error:  # whatever else a damaged or hostile file leads to
            raise InvalidFile(f"{file} is not a policy that richobs wrote: {error}") from error


def class_digest(functions: FunctionClass) -> str | None:
    """Returns a SHA-256 of a function class, or None where it is made of Python code."""
    if not isinstance(functions, Layered | Listed):
        return None
    try:
        kind = "product" if functions.is_product else "list"
        return digest_of([(kind, {"levels": np.array(functions.horizon)}), *(to_arrays(c) for c in functions.levels)])
    except ValueError:
        return None

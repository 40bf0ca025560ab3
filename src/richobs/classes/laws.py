"""Tables of which only the outcomes are known: one unknown law for each group of states and actions (docs/models.md, [F8]).

Shapes: L laws, S states, K actions, B outcomes of a law at most.
"""

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from richobs.classes.base import digest_of, write_parts
from richobs.classes.dynamics import Model, first_law
from richobs.classes.model_arrays import REWARD_TOLERANCE, ModelArrays
from richobs.classes.parametric import FORMAT, OFF, Unlisted, shown_rows
from richobs.core.arguments import LEVELS, real_array, real_number, refuse_unusable, whole_number
from richobs.core.errors import InvalidInput
from richobs.core.process import Codebook
from richobs.core.types import Ints, Mask


class UnknownLaws(Unlisted):
    """Simulators whose outcomes are listed, with unknown probabilities; `Family.by_law` makes it."""

    @refuse_unusable
    def __init__(
        self,
        laws: Any,
        *,
        horizon: int,
        start: Any = 0,
        reward_range: tuple[float, float] | None = None,
        observations: NDArray[Any] | None = None,
    ):
        """Reads the outcomes; `Family.by_law` describes the arguments.

        Raises:
            InvalidInput: with the law, state and action where something is missing or cannot be.
        """
        self.horizon = whole_number("horizon", horizon, 1, LEVELS)
        listed, self.names = _read(laws)
        S, K = 1 + max(s for s, _ in listed), 1 + max(a for _, a in listed)
        if missing := [place for place in itertools.product(range(S), range(K)) if place not in listed]:
            raise InvalidInput(f"no law is given for state {missing[0][0]}, action {missing[0][1]}.")
        self.sizes: Ints = np.zeros(len(self.names), dtype=np.int64)  # [L] outcomes of each law
        for (s, a), (law, outcomes) in listed.items():
            if self.sizes[law] not in (0, len(outcomes)):
                raise InvalidInput(
                    f"law {self.names[law]!r} has {self.sizes[law]} outcomes elsewhere and {len(outcomes)} at state {s}, "
                    f"action {a}. Where one law is at work, outcomes are listed in one order; those that are the same may "
                    "be listed twice."
                )
            self.sizes[law] = len(outcomes)
        shape = (int(self.sizes.max()), 1, S, K)
        self.law: Ints = np.zeros((S, K), dtype=np.int64)
        to, reward, done = np.zeros(shape, np.int32), np.zeros(shape), np.ones(shape, bool)
        self.padding = np.ones(shape, dtype=bool)
        for (s, a), (law, outcomes) in listed.items():
            self.law[s, a] = law
            for b, (state, pay, ends) in enumerate(outcomes):
                if not ends and not 0 <= state < S:
                    raise InvalidInput(
                        f"state {s}, action {a} leads to state {state}; states are 0 to {S - 1}, which list outcomes."
                    )
                at = (b, 0, s, a)
                to[at], reward[at], done[at], self.padding[at] = 0 if ends else state, pay, ends, False
        even = np.where(self.padding, 0.0, 1.0)
        rows = shown_rows(observations, S)
        self.arrays = ModelArrays(
            self.horizon,
            first_law(start, S)[None],
            even / even.sum(axis=0),
            to,
            reward,
            done,
            np.arange(S)[None],
            Codebook(rows),
        )
        self._tell()
        self.reward_range = self._checked_totals(reward_range)

    def _tell(self) -> None:
        """Finds the states and actions whose outcomes can be told apart; the others are no evidence.

        Raises:
            InvalidInput: a law has outcomes that can be told apart nowhere.
        """
        S, K = self.law.shape
        self.tells: Mask = np.zeros(
            (2, S, K), dtype=bool
        )  # before the last level, and at it, where rewards alone are seen
        ever = [np.eye(int(n), dtype=bool) for n in self.sizes]
        for s, a in itertools.product(range(S), range(K)):
            n = int(self.sizes[self.law[s, a]])
            at = (slice(0, n), 0, s, a)
            pay, ends, to = self.arrays.reward[at], self.arrays.done[at], self.arrays.next[at]
            size = np.maximum(1.0, np.maximum(np.abs(pay), np.abs(pay[:, None])))
            apart = np.abs(pay - pay[:, None]) > 4 * REWARD_TOLERANCE * size
            moved = apart | (ends != ends[:, None]) | (~ends & ~ends[:, None] & (to != to[:, None]))
            same = np.eye(n, dtype=bool)
            self.tells[:, s, a] = (moved | same).all(), (apart | same).all()
            ever[self.law[s, a]] |= moved
        for law, known in enumerate(ever):
            if not known.all():
                i, j = np.argwhere(~known)[0]
                raise InvalidInput(
                    f"outcomes {i} and {j} of law {self.names[law]!r} lead to the same everywhere. Write them as one."
                )
        told = np.zeros(len(self.names), dtype=bool)
        told[self.law[self.tells[0]]] = True
        if not told.all():
            raise InvalidInput(
                f"no state and action tells all outcomes of law {self.names[int(told.argmin())]!r} apart, so that nothing "
                "can be learned of it."
            )

    @property
    def log_size(self) -> float:
        """Natural logarithm of how many different laws float64 can hold, at most: 2^64 for each free probability."""
        return float(64 * np.log(2) * (self.sizes - 1).sum())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the outcomes and of which law is at work where."""
        return digest_of([(FORMAT, self._to_arrays())])

    def at(self, laws: Mapping[str, Any]) -> Model:
        """Returns the model with these probabilities: a list for each law of more than one outcome."""
        table = np.zeros((len(self.names), len(self.padding)))
        for law, (name, n) in enumerate(zip(self.names, self.sizes.tolist(), strict=True)):
            given = real_array(laws[name]) if name in laws else np.ones(1)
            if given.shape != (n,) or (given < 0).any() or abs(given.sum() - 1) > OFF:
                raise InvalidInput(f"law {name!r} needs {n} probabilities that sum to 1; got {given.tolist()}.")
            table[law, :n] = given
        if unknown := [name for name in laws if name not in self.names]:
            raise InvalidInput(f"this family has no law {unknown[0]!r}.")
        return self._model(0, np.moveaxis(table[self.law], 2, 0))

    def _to_arrays(self) -> dict[str, NDArray[Any]]:
        names = np.frombuffer(json.dumps(self.names).encode(), dtype=np.uint8)
        arrays = {name: x for name, x in self.arrays.to_arrays().items() if name not in ("probability", "shows")}
        return {**arrays, "law": self.law, "sizes": self.sizes, "names": names, "range": np.array(self.reward_range)}

    def save(self, file: str | os.PathLike[str], /) -> None:
        """Writes the family to a `.npz` file, which `Family.load` reads."""
        write_parts(file, FORMAT, [("laws", self._to_arrays())])

    @classmethod
    def _from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "UnknownLaws":
        names, law = json.loads(np.asarray(arrays["names"]).tobytes()), np.asarray(arrays["law"])
        sizes = np.asarray(arrays["sizes"]).tolist()
        listed: dict[str, dict[tuple[int, int], list[Any]]] = {name: {} for name in names}
        for s, a in itertools.product(*map(range, law.shape)):
            parts = (
                np.asarray(arrays[part])[: sizes[law[s, a]], 0, s, a].tolist() for part in ("next", "reward", "done")
            )
            listed[names[law[s, a]]][s, a] = list(zip(*parts, strict=True))
        ends = np.asarray(arrays["range"]).tolist()
        start, shown = np.asarray(arrays["start"])[0], np.asarray(arrays["codebook"])
        return cls(
            listed, horizon=int(arrays["horizon"]), start=start, reward_range=(ends[0], ends[1]), observations=shown
        )


def _read(laws: Any) -> tuple[dict[tuple[int, int], tuple[int, list[tuple[int, float, bool]]]], list[str]]:
    """Returns (state, action) -> its law and outcomes, and the names of the laws."""
    if not isinstance(laws, Mapping):
        try:
            laws = {
                f"state {s}, action {a}": {(s, a): laws[s][a]} for s in range(len(laws)) for a in range(len(laws[s]))
            }
        except (TypeError, KeyError, IndexError) as error:
            raise InvalidInput(
                f"by_law takes {{name: {{(state, action): [(next, reward, done), ...]}}}}, or outcomes [s][a]; {error}."
            ) from None
    found: dict[tuple[int, int], tuple[int, list[tuple[int, float, bool]]]] = {}
    for i, (name, places) in enumerate(laws.items()):
        if not isinstance(name, str) or not isinstance(places, Mapping) or not places:
            raise InvalidInput(
                f"law {name!r:.40} must be a name with {{(state, action): outcomes}}; got {places!r:.60}."
            )
        for place, outcomes in places.items():
            if not isinstance(place, tuple) or len(place) != 2:
                raise InvalidInput(f"law {name!r} is at work at (state, action); got {place!r:.40}.")
            s, a = (
                whole_number(f"law {name!r}: {what}", x, 0) for what, x in zip(("state", "action"), place, strict=True)
            )
            if (s, a) in found:
                raise InvalidInput(f"state {s}, action {a} has two laws.")
            if not isinstance(outcomes, Sequence) or not len(outcomes):
                raise InvalidInput(f"state {s}, action {a} needs a list of (next, reward, done); got {outcomes!r:.60}.")
            own = []
            for outcome in outcomes:
                if not isinstance(outcome, Sequence) or len(outcome) != 3:
                    raise InvalidInput(
                        f"state {s}, action {a}: an outcome is (next, reward, done); got {outcome!r:.60}."
                    )
                to, reward, done = outcome
                ends = bool(done)
                state = 0 if ends else whole_number(f"state {s}, action {a}: next state", to, 0)
                own.append((state, float(real_number(f"state {s}, action {a}: reward", reward)) + 0.0, ends))
            found[s, a] = (i, own)
    if not found:
        raise InvalidInput("by_law needs outcomes of at least one state and action.")
    return found, list(laws)

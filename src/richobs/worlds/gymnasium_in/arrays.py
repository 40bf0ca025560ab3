"""Actions as numbers and observations as rows of an array: what a learner sees of Gymnasium's spaces.

Shapes: m episodes, K actions.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from richobs.core.errors import InvalidInput, Rejected
from richobs.core.types import Ints, Observations

MAX_ACTIONS = 1_000_000
NUMBERED = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)  # spaces whose actions `Actions` numbers
NUMBERS = {"b": "b", "i": "iub", "u": "iub", "f": "iubf"}  # kinds of numbers that an array of each kind can take


class Actions:
    """The actions 0 to K - 1 of a space with finitely many actions.

    The parts of a MultiDiscrete or MultiBinary action count like the digits of a number, the last part fastest.
    """

    def __init__(self, space: Space[Any]):
        """Takes the action space.

        Raises:
            InvalidInput: it is not Discrete, MultiDiscrete or MultiBinary, or it has too many actions.
        """
        self._space = space
        if isinstance(space, spaces.Discrete):
            self._sizes: Ints = np.array([space.n], dtype=np.int64)
            self._start: Any = int(space.start)
        elif isinstance(space, spaces.MultiDiscrete):
            self._sizes, self._start = np.asarray(space.nvec, dtype=np.int64).ravel(), space.start
        elif isinstance(space, spaces.MultiBinary):
            self._sizes, self._start = np.full(int(np.prod(space.shape)), 2, dtype=np.int64), 0
        else:
            raise InvalidInput(
                f"from_gymnasium needs finitely many actions: Discrete, MultiDiscrete or MultiBinary; the environment has "
                f"{space}. Wrap it so that a number chooses one of a few actions (gymnasium.ActionWrapper)."
            )
        size = float(np.prod(self._sizes.astype(np.float64)))
        if size > MAX_ACTIONS:
            raise InvalidInput(
                f"{space} has {size:.3g} actions when its parts are combined; at most {MAX_ACTIONS:,} can be numbered. Wrap "
                "the environment so that a number chooses one of fewer actions (gymnasium.ActionWrapper)."
            )
        self.n = int(size)

    def action(self, number: int) -> Any:
        """Returns the action with a number, of the type that the space itself samples."""
        if isinstance(self._space, spaces.Discrete):
            return np.int64(number + self._start)
        parts = np.array(np.unravel_index(number, self._sizes), dtype=np.int64).reshape(self._space.shape)
        return (parts + self._start).astype(self._space.dtype)

    def batch(self, numbers: Ints) -> NDArray[Any]:
        """Returns `[m, ...]` the actions with numbers `[m]`, as a vector environment takes them."""
        return np.stack([self.action(int(number)) for number in numbers])


class Rows:
    """Turns observations into rows of one shape and type, and knows the row that stands for "the episode is over".

    The marker is the zero of the space: zeros, the empty text, or the smallest value of a Discrete or MultiDiscrete space.
    """

    def __init__(self, space: Space[Any], function: Callable[[Any], Any] | None = None, end: Any = None):
        """Decides how observations become rows.

        Args:
            space: of the observations.
            function: of one observation, applied first; its results must have one shape and one type of number.
            end: the marker, where another one is wanted.

        Raises:
            InvalidInput: observations of this space are no arrays, and there is no function that makes one of them.
        """
        self._function = function if function is not None else _joined if isinstance(space, spaces.Tuple) else None
        self._name = "observation=" if function is not None else "the environment"
        self._marker: Any = None
        self._shape: tuple[int, ...] | None = None  # None until a first result of the function is known
        self._dtype: np.dtype[Any] | None = None
        if function is None:
            zero = _zero(space)
            if zero is None:
                raise InvalidInput(
                    f"an observation of {space} is not an array. Give observation=, a function of one observation that "
                    "returns a number, a text or an array; or wrap the environment in "
                    "gymnasium.wrappers.FlattenObservation."
                )
            self._shape, self._dtype, self._marker = zero.shape, zero.dtype, zero
        self._end = end

    def row(self, raw: Any) -> NDArray[Any]:
        """Returns one observation as a new array.

        Raises:
            Rejected: it does not have the shape and type of those before, or of its space.
        """
        given = np.asarray(raw if self._function is None else self._function(raw))
        if self._shape is None or self._dtype is None:
            if given.dtype.kind not in "biufU":
                raise Rejected(
                    f"observation= must return a number, a text or an array of numbers; it returned {given.dtype}."
                )
            self._shape, self._dtype, self._marker = given.shape, given.dtype, np.zeros_like(given)
        return self._cast(given, self._shape, self._dtype)

    def stack(self, rows: Sequence[NDArray[Any] | None]) -> Observations:
        """Returns `[m, ...]` rows; the marker stands where a row is None."""
        if self._end is not None and self._shape is not None and self._dtype is not None:
            self._marker, self._end = self._cast(np.asarray(self._end), self._shape, self._dtype), None
        return np.stack([self._marker if row is None else row for row in rows])

    def _cast(self, given: NDArray[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Returns `given` as an array of the type of all rows, unless that would change it (floats may be rounded)."""
        text = dtype.kind == "U"
        fits = given.shape == shape and given.dtype.kind in ("U" if text else NUMBERS[dtype.kind])
        if fits and text and self._name == "observation=":
            return given.copy()  # no longest text is declared
        cast = given.astype(dtype) if fits else given
        if not fits or (dtype.kind != "f" and (cast != given).any()):
            raise Rejected(
                f"{self._name} gave an observation of type {given.dtype} and shape {given.shape}; observations here are "
                f"{dtype} of shape {shape}. All observations must have one shape and one type."
            )
        return cast


def _joined(parts: Sequence[Any]) -> NDArray[Any]:
    """Returns the parts of a Tuple observation one after the other."""
    return np.concatenate([np.ravel(np.asarray(part)) for part in parts])


def _zero(space: Space[Any]) -> NDArray[Any] | None:
    """Returns the row of a space that stands for the end, with the shape and type of all rows; None where there is none."""
    if isinstance(space, spaces.Discrete):
        return np.array(int(space.start), dtype=np.int64)
    if isinstance(space, spaces.MultiDiscrete):
        return np.array(space.start, dtype=space.dtype).reshape(space.shape)
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return np.zeros(space.shape, dtype=space.dtype)
    if isinstance(space, spaces.Text):
        return np.zeros((), dtype=f"<U{max(1, space.max_length)}")
    if isinstance(space, spaces.Tuple):
        parts = [_zero(part) for part in space.spaces]
        known = [part for part in parts if part is not None and part.dtype.kind in "iuf"]
        return _joined(known) if known and len(known) == len(parts) else None
    return None

"""Callables: any Python functions of (level, x), for observations of any type."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from richobs.classes.base import UNIT, LevelClass, checked_members, range_words
from richobs.classes.layered import Listed
from richobs.core.arguments import LEVELS, real_array, refuse_unusable, whole_number
from richobs.core.environment import checked_range
from richobs.core.errors import InvalidInput
from richobs.core.types import Floats, Ints, Observations


@runtime_checkable
class Tensor(Protocol):
    """What is used of a PyTorch tensor to read its numbers."""

    def detach(self) -> Any:
        """Returns the same numbers without their gradient."""

    def cpu(self) -> Any:
        """Returns the same numbers in the memory of the computer."""


def as_array(given: Any) -> Any:
    """Returns what NumPy can read: a tensor without its gradient and off its device, anything else as it is."""
    return given.detach().cpu() if isinstance(given, Tensor) else given


ValueCallable = Callable[[int, Observations], Floats]  # (level, [n, ...]) to [n, K] values in the range of the class


class Callables(Listed):
    """A list of vectorised Python functions, each used at every level."""

    @refuse_unusable
    def __init__(
        self,
        functions: Sequence[ValueCallable],
        horizon: int,
        n_actions: int,
        *,
        value_range: tuple[float, float] = UNIT,
    ):
        """Takes the functions.

        Args:
            functions: each maps (level, observations `[n, ...]`) to values `[n, K]` in `value_range`. They may be PyTorch
                tensors, on any device and with gradients.
            horizon: number of levels H.
            n_actions: number of actions K.
            value_range: smallest and largest value that a function may return.
        """
        horizon = whole_number("Callables: horizon", horizon, least=1, most=LEVELS)
        super().__init__([CallableLevel(functions, h, n_actions, value_range=value_range) for h in range(horizon)])


class CallableLevel(LevelClass):
    """Python functions at one level, each asked once per batch. It is Python code, so it is not written to files."""

    values_are_checked = True

    @refuse_unusable
    def __init__(
        self, functions: Sequence[ValueCallable], level: int, n_actions: int, *, value_range: tuple[float, float] = UNIT
    ):
        """Takes the functions.

        Args:
            functions: each maps (level, observations `[n, ...]`) to values `[n, K]` in `value_range`.
            level: the level that is passed to them, counted from 0.
            n_actions: number of actions K.
            value_range: smallest and largest value that a function may return.
        """
        if not functions:
            raise InvalidInput("a class needs at least one function; the list is empty.")
        for i, f in enumerate(functions):
            if not callable(f):
                raise InvalidInput(f"function {i} cannot be called: it is a {type(f).__name__}.")
        if n_actions < 1:
            raise InvalidInput(f"n_actions must be at least 1; got {n_actions}.")
        self.functions = tuple(functions)
        self.level = level
        self.size, self.n_actions = len(self.functions), n_actions
        self.value_range = checked_range("value_range", value_range)

    def values(self, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all functions, or of those listed in `members`.

        Raises:
            InvalidInput: a function returned another shape, or something else than numbers in `value_range`.
        """
        chosen = checked_members(members, self.size).tolist()
        result = np.empty((len(chosen), len(x), self.n_actions))
        for row, i in enumerate(chosen):
            result[row] = self._checked(i, x)
        return result

    def _checked(self, i: int, x: Observations) -> Floats:
        """Returns `[n, K]` the values of function i, once they are known to be values."""
        name = getattr(self.functions[i], "__name__", f"function {i}")  # a partial or an object has none
        given = self.functions[i](self.level, x)
        try:
            values = real_array(as_array(given))
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"{name} must return an array of numbers at level {self.level}: {error}") from error
        if values.shape != (len(x), self.n_actions):
            raise InvalidInput(
                f"{name} must return [n, K] = {(len(x), self.n_actions)} values at level {self.level}; it returned "
                f"shape {values.shape}."
            )
        low, high = self.value_range
        bad = ~((values >= low) & (values <= high))  # NaN included
        if bad.any():
            n, a = np.unravel_index(int(bad.argmax()), values.shape)
            raise InvalidInput(
                f"{name} returned {values[n, a]} at level {self.level} for action {a} and observation {x[n]}; values "
                f"must lie in {range_words(self.value_range)}."
            )
        return values

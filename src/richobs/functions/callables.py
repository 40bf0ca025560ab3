"""Callables: any Python functions of (level, x), for observations of any type."""

from collections.abc import Callable, Sequence

import numpy as np

from richobs.errors import InvalidInput
from richobs.functions.layered import Listed
from richobs.problem import Floats, Ints, Observations

ValueCallable = Callable[[int, Observations], Floats]  # (level, [n, ...]) to [n, K] values in [0, 1]


class Callables(Listed):
    """A list of vectorised Python functions; each is asked once per batch."""

    def __init__(self, functions: Sequence[ValueCallable], horizon: int, n_actions: int):
        """Takes the functions.

        Args:
            functions: each maps (level, observations `[n, ...]`) to values `[n, K]` in [0, 1].
            horizon: number of levels H.
            n_actions: number of actions K.
        """
        if not functions:
            raise InvalidInput("a class needs at least one function; the list is empty.")
        if horizon < 1:
            raise InvalidInput(f"horizon must be at least 1; got {horizon}.")
        super().__init__([_CallableLevel(tuple(functions), h, n_actions) for h in range(horizon)])


class _CallableLevel:
    """The functions at one level."""

    def __init__(self, functions: tuple[ValueCallable, ...], level: int, n_actions: int):
        self.functions = functions
        self.level = level
        self.n_actions = n_actions

    @property
    def size(self) -> int:
        """Number of functions."""
        return len(self.functions)

    def values(self, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x`, checked: user code is where NaN comes from."""
        chosen = range(self.size) if members is None else members.tolist()
        result = np.empty((len(chosen), len(x), self.n_actions))
        for row, i in enumerate(chosen):
            values = np.asarray(self.functions[i](self.level, x), dtype=np.float64)
            name = getattr(self.functions[i], "__name__", f"function {i}")
            if values.shape != (len(x), self.n_actions):
                raise InvalidInput(
                    f"{name} must return [n, K] = {(len(x), self.n_actions)} values at level {self.level}; it returned "
                    f"shape {values.shape}."
                )
            bad = ~((values >= 0) & (values <= 1))
            if bad.any():
                n, a = np.unravel_index(int(bad.argmax()), values.shape)
                raise InvalidInput(
                    f"{name} returned {values[n, a]} at level {self.level} for action {a} and observation {x[n]}; values "
                    "must lie in [0, 1]."
                )
            result[row] = values
        return result

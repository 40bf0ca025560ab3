"""What a class of value functions is to everybody who uses one. Shapes: N members of a level, n samples, K actions.

`richobs.classes` holds the base classes from which every class gets all of this by writing `size`, `n_actions` and `values`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from richobs.core.moments import Batch, Moments
from richobs.core.types import Floats, Ints, Member, Observations

if TYPE_CHECKING:
    from richobs.core.environment import Episodes
    from richobs.core.policies import Policy

SHORT, MANY = 24, 32  # rows of so few numbers are reduced column by column where so many rows come on each number


def reduced(reduce: np.ufunc, values: NDArray[Any]) -> NDArray[Any]:
    """Returns `[...]` the smallest or the largest number of each row of `[..., k]`; numpy is slow where rows are short."""
    k = values.shape[-1]
    if not 0 < k <= SHORT or values.size < MANY * k * k:
        return np.asarray(reduce.reduce(values, axis=-1))
    result = values[..., 0].copy()
    for column in range(1, k):
        reduce(result, values[..., column], out=result)
    return result


class ValueFunction(Protocol):
    """One predictor f of long-term reward."""

    def values(self, level: int, x: Observations, /) -> Floats:
        """Returns `[n, K]` f(x, a) for each of the n observations and each action."""


class FunctionClass(Protocol):
    """A class F of value functions, given level by level ([KAL16] Assumption 2).

    Where `is_product` holds, a function is any choice of one member per level and `Member` is a tuple; otherwise
    member i of one level belongs with member i of every other, and `Member` is i.
    """

    @property
    def horizon(self) -> int:
        """Number of levels H."""

    @property
    def n_actions(self) -> int:
        """Number of actions K."""

    @property
    def is_product(self) -> bool:
        """Whether members are chosen independently at each level."""

    @property
    def log_size(self) -> float:
        """Natural logarithm of the number of functions; the number itself overflows."""

    @property
    def digest(self) -> str | None:
        """SHA-256 of what the class consists of; None where it is made of Python code."""

    def level_size(self, level: int, /) -> int:
        """Returns how many members there are at `level`."""

    def values(self, level: int, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all members at `level`, or of those listed in `members`."""

    def moments(self, level: int, batch: Batch, members: Ints | None = None, /) -> Moments:
        """Returns the moments of a batch at `level`, of all members or of those listed."""

    def kinds(self, level: int, members: Ints, action: int, /) -> tuple[Ints, Ints]:
        """Groups members that agree on `action` and on max_a f at every observation.

        Returns:
            One member of each group, and `[len(members)]` the group of each.
        """

    def value_bounds(self, level: int, /) -> tuple[Floats, Floats]:
        """Returns `[N]` the smallest and the largest value that max_a f(x, a) takes for the members of `level`."""

    def value_range(self, level: int, /) -> tuple[float, float]:
        """Returns the declared range of f(x, a) for all members of `level`: (0, 1) unless the class says otherwise."""

    def member(self, member: Member, /) -> ValueFunction:
        """Returns one function of the class."""


class FunctionsAround:
    """A class of functions that asks another one for everything; a subclass says what differs."""

    def __init__(self, own: FunctionClass):
        """Takes the other class."""
        self.own = own
        self.horizon, self.n_actions, self.log_size = own.horizon, own.n_actions, own.log_size
        self.is_product = own.is_product

    @property
    def digest(self) -> str | None:
        """SHA-256 of what the class consists of; None where it is made of Python code."""
        return self.own.digest

    def level_size(self, level: int, /) -> int:
        """Returns how many members there are at `level`."""
        return self.own.level_size(level)

    def values(self, level: int, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all members at `level`, or of those listed in `members`."""
        return self.own.values(level, x, members)

    def moments(self, level: int, batch: Batch, members: Ints | None = None, /) -> Moments:
        """Returns the moments of a batch at `level`, of all members or of those listed."""
        return self.own.moments(level, batch, members)

    def kinds(self, level: int, members: Ints, action: int, /) -> tuple[Ints, Ints]:
        """Groups members that agree on `action` and on max_a f at every observation."""
        return self.own.kinds(level, members, action)

    def value_bounds(self, level: int, /) -> tuple[Floats, Floats]:
        """Returns `[N]` a lower and `[N]` an upper bound on max_a f(x, a) over all x, for the members of `level`."""
        return self.own.value_bounds(level)

    def value_range(self, level: int, /) -> tuple[float, float]:
        """Returns the declared range of f(x, a) for all members of `level`."""
        return self.own.value_range(level)

    def member(self, member: Member, /) -> ValueFunction:
        """Returns one function of the class."""
        return self.own.member(member)


class StepLaw(NamedTuple):
    """What models say about one thing that was asked of the system, and how often which answer came."""

    where: tuple[int, int, int]  # level, number of the observation, action; -1 and -1 for the first observation
    names: list[
        tuple[int, float]
    ]  # [O] number of the next observation (-1: the episode ended, or it is not seen), reward
    law: Floats  # [m, O] probabilities of all outcomes that some model knows
    happened: Ints  # [n] which of them came; -1 for one that no model knows


@runtime_checkable
class StepwiseFamily(Protocol):
    """What a family of models offers where it says how likely each single step is: a tolerance and an alarm need it."""

    def step_laws(self, episodes: "Episodes", models: Ints, /) -> Iterator[StepLaw] | None:
        """Returns the law of every first observation and of every observation and action of a level that episodes show.

        None where how likely a step is depends on more than what is seen.
        """
        ...

    def optimal_values_within(self, alpha: float, models: Ints | None = None, /) -> Floats:
        """Returns `[m]` the largest V* of a system whose laws are within alpha of the model's, on the same outcomes."""
        ...

    def policy_values_within(self, policy: "Policy", alpha: float, models: Ints | None = None, /) -> Floats:
        """Returns `[m]` the smallest value of a reactive policy in such a system."""
        ...


@runtime_checkable
class ModelFamily(Protocol):
    """What a class offers beside its functions where member i is Q* of a model that says how likely everything is.

    `richobs.Simulators` is one. Shapes: N models, m of them listed in `models` (any order, repeats allowed), n episodes.
    """

    @property
    def n_models(self) -> int:
        """Number of models N; member i of the class is Q* of model i."""

    def log_likelihood(self, episodes: "Episodes", models: Ints | None = None, /) -> Floats:
        """Returns `[m]` the logarithm of how likely each model shows and pays what the episodes saw, given their actions.

        It counts the first observation, every reward, every next observation and every early end. It is -inf for a model
        that holds something in the episodes impossible. What was drawn to choose actions does not count.
        """

    def optimal_values(self) -> Floats:
        """Returns `[N]` V* of each model, by exact planning, in the units of the rewards."""

    def policy_values(self, policy: "Policy", models: Ints | None = None, /) -> Floats:
        """Returns `[m]` the value of a reactive policy in each model, exactly."""

"""Linear: functions that are linear in features of observation and action.

Shapes: N functions, n observations, K actions, d features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from richobs.classes.base import UNIT, Arrays, Clipping, LevelClass, checked_members, codec, range_arrays, range_from
from richobs.classes.layered import Listed
from richobs.core.arguments import LEVELS, real_array, real_number, refuse_unusable, whole_number
from richobs.core.environment import TOLERANCE
from richobs.core.errors import InvalidInput
from richobs.core.process import Codebook
from richobs.core.types import Floats, Ints, Observations

MEMBERS_AT_ONCE = 65_536  # functions whose parameters are turned into float64 at once
FEW = 16  # so many functions or fewer: their values do not depend on what else is in the batch
EVERYTHING = 1e12  # features without parameters are smaller in size
PRODUCTS_AT_ONCE = 500_000  # products of a parameter and a feature that are held in memory at once

FeatureFunction = Callable[[int, Observations], ArrayLike]  # (level, [n, ...]) to [n, d], or to [n, K, d]


def identity(level: int, x: Observations) -> Floats:
    """Returns `[n, d]` the coordinates of vectors `[n, d]`."""
    if x.ndim != 2:
        raise InvalidInput(f"these functions read vectors, [n, d] of them; got shape {x.shape}.")
    return real_array(x)


def affine(level: int, x: Observations) -> Floats:
    """Returns `[n, 1 + d]` a 1 and the coordinates of vectors `[n, d]`."""
    return np.column_stack([np.ones(len(x)), identity(level, x)])


FEATURES: dict[str, FeatureFunction] = {"identity": identity, "affine": affine}  # those that files name


@codec
class LinearLevel(LevelClass):
    """The functions f_i(x, a) = theta_i . phi(x, a) of one level, cut to a range of values.

    Parameters are kept as float32 or float64, as they come. Values are computed in float64, for a part of the functions at a
    time. Where at most FEW functions are asked for, the value at an observation is always the same number, whatever else is
    asked: a policy then acts at one observation as it did in a batch. With more functions two batches may give the same
    observation values that differ by rounding.
    """

    values_are_checked = True

    code = "linear"

    @refuse_unusable
    def __init__(
        self,
        features: str | FeatureFunction,
        parameters: ArrayLike,
        *,
        n_actions: int | None = None,
        level: int = 0,
        value_range: tuple[float, float] = UNIT,
    ):
        """Describes the class.

        Args:
            features: "identity" or "affine", or a function of (level, observations `[n, ...]`). It returns phi(x, a)
                `[n, K, d]`, or features of x alone `[n, d]`.
            parameters: `[N, d]` with phi(x, a), or `[N, K, d]`, one vector per action, with features of x alone.
            n_actions: number of actions K, where the parameters do not say.
            level: that is passed to the function of features.
            value_range: range to which values are cut; `clipping` counts how often.
        """
        given = np.asarray(parameters)
        array: NDArray[Any] = given if given.dtype == np.float32 else real_array(given)
        if array.ndim not in (2, 3) or 0 in array.shape:
            raise InvalidInput(f"parameters must be [N, d] or [N, K, d], no size 0; got shape {array.shape}.")
        if not np.isfinite(array.min()) or not np.isfinite(array.max()):  # NaN included
            raise InvalidInput("parameters must be finite numbers; others are among them.")
        if isinstance(features, str) and (features not in FEATURES or array.ndim != 3):
            raise InvalidInput(
                f"features by name are {', '.join(FEATURES)}, with parameters [N, K, d]; got {features!r} and parameters of "
                f"shape {array.shape}."
            )
        if array.ndim == 2 and n_actions is None:
            raise InvalidInput("parameters [N, d] do not say how many actions there are; give `n_actions`.")
        if array.ndim == 3 and n_actions not in (None, array.shape[1]):
            raise InvalidInput(f"parameters [N, K, d] are of {array.shape[1]} actions; n_actions is {n_actions}.")
        self.parameters = array
        self.features = features
        self.level = level
        self.size = len(array)
        self.n_actions = array.shape[1] if array.ndim == 3 else int(n_actions or 0)
        self.clipping = Clipping(value_range)
        self.value_range = self.clipping.low, self.clipping.high

    @property
    def observation_ndim(self) -> int | None:
        """Number of axes of one observation: 1 where the features are known by name."""
        return 1 if isinstance(self.features, str) else None

    def values(self, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all functions, or of those listed in `members`."""
        phi = self.phi(x)
        chosen = None if members is None else checked_members(members, self.size)
        size = self.size if chosen is None else len(chosen)
        result = np.empty((size, len(x), self.n_actions))
        if size <= FEW:
            theta = (self.parameters if chosen is None else self.parameters[chosen]).astype(np.float64)
            return self.clipping(_in_order(theta, phi, result), "a linear function")
        for first in range(0, size, MEMBERS_AT_ONCE):
            part = slice(first, first + MEMBERS_AT_ONCE)
            theta = (self.parameters[part] if chosen is None else self.parameters[chosen[part]]).astype(np.float64)
            if theta.ndim == 2:
                result[part] = (theta @ phi.reshape(-1, phi.shape[-1]).T).reshape(result[part].shape)
            else:
                for a in range(self.n_actions):
                    result[part, :, a] = theta[:, a] @ phi.T
        return self.clipping(result, "a linear function")

    def phi(self, x: Observations) -> Floats:
        """Returns the features `[n, d]` or `[n, K, d]`, once they fit the parameters."""
        by_name = isinstance(self.features, str)
        function = FEATURES[self.features] if isinstance(self.features, str) else self.features
        phi = real_array(function(self.level, x))
        d = self.parameters.shape[-1]
        shape = (len(x), d) if self.parameters.ndim == 3 else (len(x), self.n_actions, d)
        if phi.shape != shape:
            name = f"the features {self.features!r}" if by_name else "the function of features"
            raise InvalidInput(
                f"{name} must return {shape} numbers for parameters of length {d}; got shape {phi.shape}."
            )
        if not np.isfinite(phi).all():
            raise InvalidInput(f"a feature at level {self.level} is not a finite number.")
        return phi

    def singleton(self, member: int, /) -> LinearLevel:
        """Returns the class that holds one of these functions."""
        one = self.parameters[checked_members(np.array([member]), self.size)]
        return LinearLevel(self.features, one, n_actions=self.n_actions, level=self.level, value_range=self.value_range)

    def to_arrays(self) -> Arrays:
        """Returns `features`, a name, `parameters` `[N, K, d]`, and `value_range` where it is not [0, 1].

        Raises:
            InvalidInput: the features are Python code.
        """
        if not isinstance(self.features, str):
            return super().to_arrays()  # raises
        name = {"features": np.array(self.features), "parameters": self.parameters}
        return {**name, **range_arrays(self.value_range)}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the class that `to_arrays` took apart."""
        name = str(np.asarray(arrays["features"]).ravel()[0])
        return cls(name, arrays["parameters"], value_range=range_from(arrays))


def _in_order(theta: Floats, phi: Floats, result: Floats) -> Floats:
    """Fills `[N, n, K]` values, each a sum of products in an order that depends on the number of features alone.

    A product of matrices adds up in an order that depends on their sizes.

    Args:
        theta: `[N, d]` or `[N, K, d]` parameters.
        phi: `[n, K, d]` or `[n, d]` features.
        result: where the values go.
    """
    features = phi if phi.ndim == 3 else phi[:, None]  # [n, K or 1, d]
    vectors = theta if theta.ndim == 3 else theta[:, None]  # [N, K or 1, d]
    step = max(1, PRODUCTS_AT_ONCE // (result.shape[2] * phi.shape[-1]))
    for first in range(0, len(phi), step):
        for vector, values in zip(vectors, result, strict=True):
            # One row behind the other, however the features lie in memory: NumPy adds up rows of one length in one way.
            products = np.multiply(vector, features[first : first + step], order="C")
            values[first : first + step] = products.sum(axis=-1)
    return result


class Linear(Listed):
    """Linear functions of features: N of them by their parameters, or all of them where no parameters are given.

    Without parameters the class lists the d features themselves, and every linear combination of them is meant; a learner
    that needs no list takes it (docs/linear.md).
    """

    @refuse_unusable
    def __init__(
        self,
        features: str | FeatureFunction | ArrayLike,
        parameters: ArrayLike | None = None,
        horizon: int | None = None,
        *,
        dim: int | None = None,
        n_actions: int | None = None,
        contexts: ArrayLike | Sequence[ArrayLike] | None = None,
        norm: float | None = None,
        probabilities: bool = False,
        may_end: bool = False,
        value_range: tuple[float, float] | None = None,
    ):
        """Describes the class.

        Args:
            features: as for `LinearLevel`; without parameters also `[X, K, d]` the features of observations 0 to X-1, or a
                list with one such array per level.
            parameters: `[N, d]` or `[N, K, d]`, the same at all levels. For others, make a `Listed` of `LinearLevel`.
            horizon: number of levels H.
            dim: without parameters, the number of features d; of those of one action where features are known by name.
            n_actions: number of actions K, where the parameters do not say.
            contexts: without parameters, all observations there can be: `[X, ...]`, or one such array per level. Bounds are
                then taken over these; otherwise over all features of which the next two say where they lie.
            norm: without parameters and contexts, the largest Euclidean length of phi(x, a).
            probabilities: without parameters and contexts, whether phi(x, a) are probabilities: not negative, and they add
                up to 1 (soft kinds of observations, the softmax of a network). Tighter than `norm=1`.
            may_end: without parameters, whether episodes can end before the last level.
            value_range: range to which values are cut, by default [0, 1]; with parameters alone.
        """
        self.contexts: tuple[Codebook, ...] | None = None
        self.norm, self.may_end, self.has_list = math.inf, bool(may_end), parameters is not None
        self.probabilities = bool(probabilities)
        if parameters is None:
            if not isinstance(features, str) and not callable(features):
                function, contexts = _of_arrays(features, horizon)
                dim, n_actions, features = function.tables[0].shape[2], function.tables[0].shape[1], function
                horizon = len(function.tables) if horizon is None else horizon
            if dim is None or n_actions is None or value_range is not None:
                raise InvalidInput("Linear without parameters needs `dim` and `n_actions`, and has no `value_range`.")
            dim, n_actions = whole_number("Linear: dim", dim, least=1), whole_number("n_actions", n_actions, least=1)
            size = dim * n_actions if isinstance(features, str) else dim
            parameters = np.eye(size).reshape(size, n_actions, dim) if isinstance(features, str) else np.eye(size)
            value_range = (-EVERYTHING, EVERYTHING)
        horizon = whole_number("Linear: horizon", horizon, least=1, most=LEVELS)
        every: NDArray[Any] = np.asarray(parameters)  # one array, shared by all levels
        unit = UNIT if value_range is None else value_range
        function_of = cast("str | FeatureFunction", features)
        super().__init__(
            [LinearLevel(function_of, every, n_actions=n_actions, level=h, value_range=unit) for h in range(horizon)]
        )
        if not self.has_list:
            self.preferred_learner = "linear"
            self._bounds(contexts, norm)

    def _bounds(self, contexts: ArrayLike | Sequence[ArrayLike] | None, norm: float | None) -> None:
        """Keeps what is known of all features there can be."""
        if contexts is not None:
            lists = contexts if isinstance(contexts, list | tuple) else [contexts] * self.horizon
            if len(lists) != self.horizon:
                raise InvalidInput(
                    f"contexts are one array, or one for each of {self.horizon} levels; got {len(lists)}."
                )
            self.contexts = tuple(Codebook(np.asarray(rows)) for rows in lists)
            return
        if self.probabilities and norm is None:
            return
        self.norm = math.nan if norm is None else real_number("Linear: norm", norm)
        if self.probabilities or not 0 < self.norm < EVERYTHING:
            raise InvalidInput(
                "Linear without parameters bounds what was not seen: give `contexts`, all observations there can be, or "
                "`probabilities=True`, if phi(x, a) are not negative and add up to 1, or "
                f"`norm`, the largest length of phi(x, a), a positive number below {EVERYTHING:g}; got norm={norm!r}."
            )

    @property
    def dim(self) -> int:
        """Number of features d of an observation and an action."""
        return self.level_size(0)

    def phi(self, level: int, x: Observations) -> Floats:
        """Returns `[n, K, d]` the features of observations; without parameters alone.

        Raises:
            InvalidInput: one is too large or longer than the class says, or the function returns something else.
        """
        phi = np.moveaxis(self.values(level, x), 0, 2)
        if phi.size and max(phi.max(), -phi.min()) >= EVERYTHING:  # values are cut to it
            raise InvalidInput(
                f"a feature at level {level} is {EVERYTHING:g} or more in size; Linear without parameters needs smaller "
                "ones. Centre and scale it."
            )
        longest = float(np.sqrt((phi**2).sum(axis=2)).max()) if phi.size else 0.0
        if longest > self.norm * (1 + TOLERANCE):
            raise InvalidInput(
                f"a feature vector at level {level} has length {longest:g}; norm={self.norm:g} was declared. Declare a "
                "larger one: bounds over all features rest on it."
            )
        if self.probabilities and phi.size and (phi.min() < 0 or np.abs(phi.sum(axis=2) - 1).max() > TOLERANCE):
            raise InvalidInput(
                f"probabilities=True was declared, and features at level {level} are {phi.min():g} at the least and add up "
                f"to 1 within {np.abs(phi.sum(axis=2) - 1).max():g}: bounds over all features rest on it. Scale them in "
                "float64, or give `norm`."
            )
        return phi

    @property
    def clipped(self) -> tuple[int, int]:
        """How many values lay outside the range so far, and how many were computed."""
        counts = [c.clipping for c in self.levels if isinstance(c, LinearLevel)]
        return sum(c.n_clipped for c in counts), sum(c.n_values for c in counts)


class _Looked:
    """Features of observations that are numbers, looked up: a function of (level, observations)."""

    def __init__(self, tables: list[Floats]):
        self.tables = tables

    def __call__(self, level: int, x: Observations) -> Floats:
        return self.tables[level][x]


def _of_arrays(given: Any, horizon: int | None) -> tuple[_Looked, list[Ints]]:
    """Returns the function of features `[X, K, d]`, of all levels or of each, and the observations of each level."""
    lists = isinstance(given, list | tuple) and np.ndim(given[0]) == 3
    tables = [real_array(table) for table in (given if lists else [given] * whole_number("Linear: horizon", horizon))]
    if not tables or any(t.ndim != 3 or 0 in t.shape or t.shape[1:] != tables[0].shape[1:] for t in tables):
        shapes = ", ".join(sorted({str(table.shape) for table in tables}))
        raise InvalidInput(f"features as arrays are [X, K, d], K and d the same at all levels; got {shapes}.")
    return _Looked(tables), [np.arange(len(table)) for table in tables]


def parameter_grid(*axes: ArrayLike) -> Floats:
    """Returns `[N, d]` every choice of one number from each of d lists, in lexicographic order."""
    parts = np.meshgrid(*(real_array(a) for a in axes), indexing="ij")
    return np.stack([p.ravel() for p in parts], axis=1)

"""Linear: functions that are linear in features of observation and action.

Shapes: N functions, n observations, K actions, d features.
"""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from richobs.classes.base import UNIT, Arrays, Clipping, LevelClass, checked_members, codec, range_arrays, range_from
from richobs.classes.layered import Listed
from richobs.core.arguments import LEVELS, real_array, refuse_unusable, whole_number
from richobs.core.errors import InvalidInput
from richobs.core.types import Floats, Ints, Observations

MEMBERS_AT_ONCE = 65_536  # functions whose parameters are turned into float64 at once
FEW = 16  # so many functions or fewer: their values do not depend on what else is in the batch
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

    def singleton(self, member: int, /) -> "LinearLevel":
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
    """N linear functions; function i uses parameter vector i at every level."""

    @refuse_unusable
    def __init__(
        self,
        features: str | FeatureFunction,
        parameters: ArrayLike,
        horizon: int,
        *,
        n_actions: int | None = None,
        value_range: tuple[float, float] = UNIT,
    ):
        """Describes the class.

        Args:
            features: as for `LinearLevel`.
            parameters: `[N, d]` or `[N, K, d]`, the same at all levels. For others, make a `Listed` of `LinearLevel`.
            horizon: number of levels H.
            n_actions: number of actions K, where the parameters do not say.
            value_range: range to which values are cut.
        """
        horizon = whole_number("Linear: horizon", horizon, least=1, most=LEVELS)
        every: NDArray[Any] = np.asarray(parameters)  # one array, shared by all levels
        super().__init__(
            [
                LinearLevel(features, every, n_actions=n_actions, level=h, value_range=value_range)
                for h in range(horizon)
            ]
        )

    @property
    def clipped(self) -> tuple[int, int]:
        """How many values lay outside the range so far, and how many were computed."""
        counts = [c.clipping for c in self.levels if isinstance(c, LinearLevel)]
        return sum(c.n_clipped for c in counts), sum(c.n_values for c in counts)


def parameter_grid(*axes: ArrayLike) -> Floats:
    """Returns `[N, d]` every choice of one number from each of d lists, in lexicographic order."""
    parts = np.meshgrid(*(real_array(a) for a in axes), indexing="ij")
    return np.stack([p.ravel() for p in parts], axis=1)

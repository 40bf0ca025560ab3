"""Embeddings: functions that map an observation to a vector and look up the nearest of a few centres in a table.

Learned decoders are functions of this kind: a centre is a learned state. Shapes: n observations, D coordinates of an
observation, U hidden units, M coordinates of an embedding, S centres, N functions, K actions.
"""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from richobs.classes.base import Arrays, LevelClass, checked_members, codec
from richobs.core.arguments import real_array
from richobs.core.errors import InvalidInput
from richobs.core.policies import greedy_actions
from richobs.core.types import Floats, Ints, Observations

DIGITS = 9  # of learned numbers that are kept: what two computers add up in another order must not differ


def rounded(numbers: ArrayLike) -> Floats:
    """Returns numbers with DIGITS digits, counted from the first digit of the largest."""
    array = real_array(numbers)
    top = float(np.abs(array).max(initial=0.0))
    return array.round(DIGITS - 1 - math.floor(math.log10(top))) if 0 < top < math.inf else array


@dataclass(frozen=True, eq=False)
class Features:
    """How an observation becomes a vector that begins with a 1.

    Single integers and texts are names: each one that was seen has a coordinate of its own, which is 1 for it and 0 for
    others, and a name that was not seen is 0 everywhere. All else is flattened, centred and divided by one number.
    """

    names: NDArray[Any]  # [D] the names that were seen, in order; [0] where observations are numbers
    mean: Floats  # [D] what is subtracted; [0] where observations are names
    scale: float  # what it is divided by
    axes: int = 0  # number of axes of one observation

    @classmethod
    def of(cls, x: Observations) -> "Features":
        """Returns the features of observations like `x` `[n, ...]`: centred, with a mean squared norm of 1 there."""
        x = np.asarray(x)
        if _are_names(x):
            return cls(np.unique(x), np.zeros(0), 1.0)
        vectors = _flat(x)
        mean = vectors.mean(axis=0)
        spread = np.sqrt(((vectors - mean) ** 2).sum(axis=1).mean())
        scale = float(rounded(spread)) or 1.0
        return cls(np.zeros(0), (mean / scale).round(DIGITS) * scale, scale, x.ndim - 1)

    @property
    def size(self) -> int:
        """Number of features, the 1 included."""
        return 1 + max(len(self.names), len(self.mean))

    def __call__(self, x: Observations) -> Floats:
        """Returns `[n, 1 + D]` the features of observations `[n, ...]`.

        Raises:
            InvalidInput: observations have another shape or type.
        """
        x = np.asarray(x)
        result = np.zeros((len(x), self.size))
        result[:, 0] = 1.0
        if len(self.names):
            if not _are_names(x) or (x.dtype.kind == "U") != (self.names.dtype.kind == "U"):
                raise InvalidInput(
                    f"these functions read single observations of type {self.names.dtype}; got {x.dtype} of shape {x.shape}."
                )
            place = np.minimum(np.searchsorted(self.names, x), len(self.names) - 1)
            known = self.names[place] == x
            result[np.flatnonzero(known), 1 + place[known]] = 1.0
            return result
        vectors = _flat(x)
        if vectors.shape[1] != len(self.mean) or x.ndim - 1 != self.axes:
            raise InvalidInput(
                f"these functions read {len(self.mean)} numbers with {self.axes} axes; got observations of shape "
                f"{x.shape[1:]}."
            )
        result[:, 1:] = (vectors - self.mean) / self.scale
        return result


def _are_names(x: Observations) -> bool:
    return x.ndim == 1 and x.dtype.kind in "iuU"


def _flat(x: Observations) -> Floats:
    """Returns `[n, D]` numbers, every observation flattened."""
    if x.dtype.kind not in "biuf":
        raise InvalidInput(f"embeddings read numbers, or single texts; got {x.dtype} of shape {x.shape}.")
    vectors = x.reshape(len(x), -1).astype(np.float64)
    if not np.isfinite(vectors).all():
        raise InvalidInput("an observation holds a number that is not finite.")
    return vectors


@dataclass(frozen=True, eq=False)
class Embedding:
    """A map from observations to vectors: linear in the features, or with one hidden layer."""

    features: Features
    weights: Floats  # [1 + D, M], or [1 + U, M] behind a hidden layer
    hidden: Floats | None = None  # [1 + D, U] weights of a hidden layer of tanh units; None where there is none

    def __post_init__(self) -> None:
        last = self.features.size if self.hidden is None else 1 + self.hidden.shape[-1]
        fits = self.weights.ndim == 2 and len(self.weights) == last
        if self.hidden is not None:
            fits = fits and self.hidden.ndim == 2 and len(self.hidden) == self.features.size
        arrays = [self.features.mean, self.weights, *([] if self.hidden is None else [self.hidden])]
        if not fits or not all(np.isfinite(a).all() for a in arrays) or not 0 < self.features.scale < np.inf:
            raise InvalidInput(
                f"an embedding needs finite weights [1 + D, M], or [1 + D, U] and [1 + U, M], for {self.features.size} "
                f"features; got shapes {None if self.hidden is None else self.hidden.shape} and {self.weights.shape}."
            )

    def __call__(self, x: Observations) -> Floats:
        """Returns `[n, M]` the embeddings of observations `[n, ...]`."""
        phi = self.features(x)
        if self.hidden is not None:
            phi = with_one(np.tanh(phi @ self.hidden))
        return phi @ self.weights


def with_one(x: Floats) -> Floats:
    """Returns `[n, 1 + D]` the rows of `x` `[n, D]`, each behind a 1."""
    return np.concatenate([np.ones((len(x), 1)), x], axis=1)


def nearest(points: Floats, centres: Floats) -> Ints:
    """Returns `[n]` which of the centres `[S, M]` is nearest to each point `[n, M]`; ties go to the first."""
    # The square of a point is the same for all centres. Rounding differs between batches, and must not decide a tie.
    return greedy_actions(2 * points @ centres.T - (centres**2).sum(axis=1))


@codec
class Embeddings(LevelClass):
    """Function m finds the centre nearest to the embedding of x and returns that centre's row of table m."""

    values_are_checked = True

    code = "embeddings"

    def __init__(self, embedding: Embedding, centres: ArrayLike, tables: ArrayLike):
        """Describes the class.

        Args:
            embedding: from observations to vectors.
            centres: `[S, M]` the states, as embeddings.
            tables: `[N, S, K]` the table of each function, values in [0, 1].
        """
        self.embedding = embedding
        self.centres = real_array(centres)
        self.tables = real_array(tables)
        fits = self.centres.ndim == 2 and self.tables.ndim == 3 and len(self.centres) == self.tables.shape[1]
        if not fits or 0 in self.tables.shape or self.centres.shape[1] != self.embedding.weights.shape[1]:
            raise InvalidInput(
                f"embeddings need centres [S, M] and tables [N, S, K], no size 0; got shapes {self.centres.shape} and "
                f"{self.tables.shape} with weights of shape {self.embedding.weights.shape}."
            )
        if not np.isfinite(self.centres).all() or not ((self.tables >= 0) & (self.tables <= 1)).all():
            raise InvalidInput("centres must be finite and values lie in [0, 1]; others were given.")
        self.size, self.n_actions = len(self.tables), self.tables.shape[2]

    @property
    def observation_ndim(self) -> int:
        """Number of axes of one observation, as in the observations that the features were made for."""
        return self.embedding.features.axes

    def states(self, x: Observations) -> Ints:
        """Returns `[n]` the number of the nearest centre: what the decoder takes for the state."""
        return nearest(self.embedding(x), self.centres)

    def values(self, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all functions, or of those listed in `members`."""
        return self.tables[checked_members(members, self.size)][:, self.states(x)]

    def value_bounds(self) -> tuple[Floats, Floats]:
        """Returns `[N]` the smallest and `[N]` the largest max_a f(x, a) in each table."""
        top = self.tables.max(axis=2)
        return top.min(axis=1), top.max(axis=1)

    def singleton(self, member: int, /) -> "Embeddings":
        """Returns the class that holds one of these functions."""
        return Embeddings(self.embedding, self.centres, self.tables[checked_members(np.array([member]), self.size)])

    def to_arrays(self) -> Arrays:
        """Returns `names`, `mean`, `scale` and `axes` of the features, `weights`, `hidden` if any, `centres`, `tables`."""
        features, hidden = self.embedding.features, self.embedding.hidden
        return {
            "names": features.names,
            "mean": features.mean,
            "scale": np.array(features.scale),
            "axes": np.array(features.axes),
            "weights": self.embedding.weights,
            **({} if hidden is None else {"hidden": hidden}),
            "centres": self.centres,
            "tables": self.tables,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the class that `to_arrays` took apart."""
        names, mean = np.asarray(arrays["names"]), real_array(arrays["mean"])
        if names.ndim != 1 or mean.ndim != 1 or (len(names) and (len(mean) or names.dtype.kind not in "iuU")):
            raise InvalidInput(f"features need names [D] or a mean [D]; got {names.dtype} and shape {mean.shape}.")
        scale, axes = (np.asarray(arrays[name]).ravel()[0] for name in ("scale", "axes"))
        features = Features(names, mean, float(scale), int(axes))
        weights = real_array(arrays["weights"])
        hidden = real_array(arrays["hidden"]) if "hidden" in arrays else None
        return cls(Embedding(features, weights, hidden), arrays["centres"], arrays["tables"])

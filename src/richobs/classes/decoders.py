"""Decoders: which coordinate of a vector means the first live state, which the second, and what is live there."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from richobs.classes.base import Arrays, LevelClass, codec
from richobs.core.arguments import real_array, refuse_unusable
from richobs.core.errors import InvalidInput
from richobs.core.moments import Batch, Moments, moments_of_cases
from richobs.core.types import Floats, Ints, Mask, Observations
from richobs.stats import grouping

MOST_LEVELS = 256  # different values, 0 included, whose places a byte holds
FEW_MEMBERS = 1 << 10  # up to which each is looked at


@codec
class Decoders(LevelClass):
    """All (i, j, a, b) with i != j: coordinate i tells the first live state and j the second.

    Where coordinate i is on (x_i > 1/2), action u is worth `worth[a, u]`; where j is on, `worth[b, u]`; the larger
    where both are, 0 where neither is. D coordinates and A rows of `worth` make D(D-1)A^2 functions, none of them stored.
    """

    values_are_checked = True

    code = "decoders"

    @refuse_unusable
    def __init__(self, n_coordinates: int, worth: ArrayLike, *, rotation: Floats | None = None):
        """Describes the class.

        Args:
            n_coordinates: D, how many coordinates could carry the state.
            worth: `[A, K]` value of each action when choice a of the live action is right; in [0, 1].
            rotation: `[D', D']` orthogonal matrix; observations are `rotation @ (D' coordinates)` and are turned back
                first. None where observations are the coordinates.
        """
        self._worth = real_array(worth).copy()
        self._worth.setflags(write=False)
        if n_coordinates < 2 or self.worth.ndim != 2:
            raise InvalidInput(
                f"decoders need at least two coordinates and a worth of shape [A, K]; got {n_coordinates} and shape "
                f"{self.worth.shape}."
            )
        if not ((self.worth >= 0) & (self.worth <= 1)).all():
            raise InvalidInput("decoders predict values in [0, 1]; `worth` holds others.")
        self.n_coordinates = n_coordinates
        self.rotation = None if rotation is None else np.asarray(rotation)
        if self.rotation is not None:
            width = len(self.rotation) if self.rotation.ndim else 0
            if self.rotation.shape != (width, width) or width < n_coordinates or self.rotation.dtype.kind != "f":
                raise InvalidInput(
                    f"a rotation must be a square matrix of floating-point numbers with at least {n_coordinates} rows; got "
                    f"{self.rotation.dtype} of shape {self.rotation.shape}."
                )
        self.size = n_coordinates * (n_coordinates - 1) * len(self.worth) ** 2
        self.n_actions = int(self.worth.shape[1])
        if self.size > np.iinfo(np.int64).max:
            raise InvalidInput(f"{n_coordinates} coordinates make more decoders than an index can name.")
        self._groups: dict[int, NDArray[np.int32]] = {}  # action -> group of every member

    @property
    def worth(self) -> Floats:
        """`[A, K]` the value of each action in a state that a decoder tells; it stays as it was given."""
        return self._worth

    @property
    def observation_ndim(self) -> int:
        """Number of axes of one observation: 1, a vector."""
        return 1

    def index(self, first: int, second: int, a: int, b: int) -> int:
        """Returns the place of decoder (i, j, a, b) in the class."""
        D, A = self.n_coordinates, len(self.worth)
        if first == second or not (0 <= first < D and 0 <= second < D and 0 <= a < A and 0 <= b < A):
            raise InvalidInput(f"({first}, {second}, {a}, {b}) is not a decoder of {D} coordinates and {A} choices.")
        return ((first * (D - 1) + second - (second > first)) * A + a) * A + b

    def parameters(self, members: Ints | None = None) -> tuple[Ints, Ints, Ints, Ints]:
        """Returns i, j, a, b, each `[N]`, of all decoders or of those listed."""
        rest = np.arange(self.size) if members is None else np.asarray(members, dtype=np.int64)
        if rest.size and rest.view(np.uint64).max() >= self.size:  # negative numbers are the largest here
            raise InvalidInput(
                f"this class has functions 0 to {self.size - 1}; asked for {rest.min()} to {rest.max()}."
            )
        return self._apart(rest)

    def _apart(self, members: Any) -> tuple[Any, Any, Any, Any]:
        """Returns i, j, a, b of one decoder, or of an array of them."""
        rest, b = divmod(members, len(self._worth))
        rest, a = divmod(rest, len(self._worth))
        first, second = divmod(rest, self.n_coordinates - 1)
        return first, second + (second >= first), a, b

    def coordinates(self, x: Observations) -> Mask:
        """Returns `[n, D]` which coordinates are on."""
        plain = np.asarray(x)
        width = self.n_coordinates if self.rotation is None else len(self.rotation)
        if plain.ndim != 2 or plain.shape[1] < width or (self.rotation is not None and plain.shape[1] != width):
            least = "at least " if self.rotation is None else ""
            raise InvalidInput(f"these decoders read vectors of {least}{width} coordinates; got shape {plain.shape}.")
        plain = plain if self.rotation is None else plain @ self.rotation
        return plain[:, : self.n_coordinates] > 0.5

    def values(self, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all decoders, or of those listed in `members`."""
        if members is not None and len(members) == 1 and 0 <= (member := int(members[0])) < self.size:
            first, second, a, b = self._apart(member)
            on = self.coordinates(x)
            return np.maximum(on[:, first, None] * self._worth[a], on[:, second, None] * self._worth[b])[None]
        values: Floats = values_of(np, self.coordinates(x), self.worth, *self.parameters(members))
        return values

    def rows(self, x: Observations, members: Ints, actions: Ints | None = None, /) -> tuple[Floats, Ints] | None:
        """Returns `[G, n]` the distinct rows of f(x, a), or of max_a f(x, a), and `[N]` which of them each member has.

        A row is the larger of two out of D A rows, one for each coordinate and choice. Many of these are equal, so of many
        members one for each pair of different rows is looked at. Values are compared by their places in order, a byte each.
        """
        if len(self._levels[0]) > MOST_LEVELS:
            return None
        on, (levels, code) = self.coordinates(x).T, self._levels
        worth = code[:, -1:] if actions is None else code[:, actions]  # [A, n or 1]
        each = np.zeros((self.n_coordinates, len(self.worth), -(-len(x) // 8) * 8), dtype=np.uint8)
        np.multiply(on[:, None], worth, out=each[:, :, : len(x)])
        table = each.reshape(-1, each.shape[2])  # [D A, n and more]
        one, other = (codes.take(members) for codes in self._codes)
        both: Ints | None = None
        if len(members) > FEW_MEMBERS:
            some, row = grouping.equal_rows(table)
            if len(some) ** 2 < len(members):
                pair, both = grouping.numbered((row * len(some)).take(one) + row.take(other), len(some) ** 2)
                one, other = some[pair // len(some)], some[pair % len(some)]
        words = table.view(np.uint64)  # eight bytes are taken at once
        found = np.maximum(*(words.take(rows, axis=0).view(np.uint8) for rows in (one, other)))
        first, group = grouping.equal_rows(found)
        return levels.take(found.take(first, axis=0)[:, : len(x)]), group if both is None else group.take(both)

    @cached_property
    def _levels(self) -> tuple[Floats, NDArray[np.uint8]]:
        """The different values in order, 0 first, and `[A, K + 1]` which of them each action is worth, then the best one."""
        levels, code = np.unique(np.append(self.worth, 0.0), return_inverse=True)
        codes = code[:-1].reshape(self.worth.shape).astype(np.uint8)
        return levels, np.append(codes, codes.max(axis=1, keepdims=True), axis=1)

    @cached_property
    def _codes(self) -> tuple[Ints, Ints]:
        """`[N]` the number of coordinate and choice of each decoder's first state, and of its second."""
        first, second, a, b = self.parameters()
        return first * len(self.worth) + a, second * len(self.worth) + b

    def kinds(self, members: Ints, action: int, /) -> tuple[Ints, Ints]:
        """Groups members whose value of `action` and whose largest value are equal at every x.

        Returns:
            One member of each group, and `[len(members)]` the group of each.
        """
        every = self._groups.get(action)
        if every is None:
            every = self._groups[action] = self._grouped(action)
        groups, group = grouping.numbered(every[members].astype(np.int64), int(every.max()) + 1)
        some = np.empty(len(groups), dtype=np.int64)
        some[group[::-1]] = members[::-1]  # the first of each
        return some, group

    def _grouped(self, action: int) -> NDArray[np.int32]:
        """Returns `[N]` the group of every member."""
        different, kind = grouping.kinds(self.worth[:, action], self.worth.max(axis=1))
        codes = self.n_coordinates * len(different)
        each = (np.arange(self.n_coordinates)[:, None] * len(different) + kind).ravel()  # of coordinate and choice
        one, other = (each.take(code) for code in self._codes)
        key = np.minimum(one, other) * codes + np.maximum(one, other)  # (i, j, a, b) and (j, i, b, a) are one function
        return grouping.numbered(key, codes**2)[1].astype(np.int32)

    def moments(self, batch: Batch, members: Ints | None = None, /) -> Moments:
        """Returns the moments of a batch; of listed members, from how often any two coordinates were on together.

        A decoder distinguishes four cases of a row (i on or off, j on or off), so its moments follow from the shares, mean
        rewards and mean squares of rewards of the D^2 pairs of coordinates. The moments of all members come from their
        values, which is more exact.
        """
        if members is None:
            return super().moments(batch)
        on = self.coordinates(batch.x).astype(np.float64)
        first, second, a, b = self.parameters(members)

        def sums(weights: Floats) -> Floats:
            return sums_by_case(np, on.T @ (on * weights[:, None]), weights.sum(), first, second)

        v_mean, v_var = moments_of_cases(sums(batch.weight), worth_by_case(np, self.worth.max(axis=1), a, b))
        u_mean, u_var = np.zeros((2, len(members), self.n_actions))
        for action in np.flatnonzero(batch.pair.any(axis=0)):
            weights, paid = batch.pair[:, action], batch.r_mean[:, action]
            centre = weights @ paid
            spread = weights @ ((paid - centre) ** 2 + batch.r_var[:, action])
            gain, worth = sums(weights * (paid - centre)), worth_by_case(np, self.worth[:, action], a, b)
            u_mean[:, action], u_var[:, action] = moments_of_cases(sums(weights), worth, gain, centre, spread)
        return Moments(batch.n, batch.actions, v_mean, np.maximum(v_var, 0.0), u_mean, np.maximum(u_var, 0.0))

    def value_bounds(self) -> tuple[Floats, Floats]:
        """Returns `[N]` the smallest and `[N]` the largest value that max_a f(x, a) takes; both are read-only."""
        return self._bounds

    @cached_property
    def _bounds(self) -> tuple[Floats, Floats]:
        """What `value_bounds` returns: the largest values of an index (i, j, a, b) follow from a and b alone."""
        best = self.worth.max(axis=1)
        each = np.maximum(best[:, None], best).ravel()
        highest = np.tile(each, self.size // len(each))
        highest.setflags(write=False)
        return np.broadcast_to(0.0, self.size), highest

    def reads(self, member: int, rotation: Floats | None, /) -> tuple[int, ...] | None:
        """Returns the two coordinates that one decoder looks at; None if its rotation is not the one given."""
        both = self.rotation is not None and rotation is not None and np.array_equal(self.rotation, rotation)
        if not both and (self.rotation is not None or rotation is not None):
            return None
        first, second, _, _ = self.parameters(np.array([member]))
        return int(first[0]), int(second[0])

    def to_arrays(self) -> Arrays:
        """Returns `n_coordinates`, `worth` `[A, K]`, and `rotation` where there is one."""
        arrays = {"n_coordinates": np.array(self.n_coordinates), "worth": self.worth}
        return arrays if self.rotation is None else {**arrays, "rotation": self.rotation}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the class that `to_arrays` took apart."""
        return cls(int(arrays["n_coordinates"]), arrays["worth"], rotation=arrays.get("rotation"))


# The next three take `numpy` or `torch` first: the same formulas hold for arrays and for tensors on a device.


def values_of(library: Any, on: Any, worth: Any, first: Any, second: Any, a: Any, b: Any) -> Any:
    """Returns `[N, n, K]` the values of decoders (i, j, a, b), given `[n, D]` which coordinates are on."""
    one = on.T[first][:, :, None] * worth[a][:, None, :]
    other = on.T[second][:, :, None] * worth[b][:, None, :]
    return library.maximum(one, other)


def sums_by_case(library: Any, table: Any, total: Any, first: Any, second: Any) -> Any:
    """Returns `[4, N]` the sums of weights over rows with both coordinates on, i alone, j alone, and neither.

    Args:
        library: `numpy` or `torch`.
        table: `[D, D]` the sum over rows with two coordinates on, for each pair of them.
        total: the sum over all rows.
        first: `[N]` i.
        second: `[N]` j.
    """
    single, both = table.diagonal(), table[first, second]
    rest = total - single[first] - single[second] + both
    return library.stack([both, single[first] - both, single[second] - both, rest])


def worth_by_case(library: Any, of: Any, a: Any, b: Any) -> Any:
    """Returns `[4, N]` the values in these cases, given what each choice `[A]` is worth."""
    return library.stack([library.maximum(of[a], of[b]), of[a], of[b], library.zeros_like(of[a])])

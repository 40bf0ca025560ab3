"""Decoders: which coordinate of a vector means the first live state, which the second, and what is live there."""

from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from richobs.classes.base import Arrays, LevelClass
from richobs.classes.codecs import codec
from richobs.classes.device import (
    DeviceBatch,
    DeviceLevel,
    DeviceMemory,
    Reduced,
    accumulated,
    blocked_product,
    gamma,
    product_depth,
    roundoff,
)
from richobs.core.arguments import real_array, refuse_unusable
from richobs.core.errors import InvalidInput
from richobs.core.moments import UNIT_ROUNDOFF, Batch, Moments
from richobs.core.types import Floats, Ints, Mask, Observations
from richobs.stats import grouping


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
        self.worth = real_array(worth)
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
        if self.size > np.iinfo(np.int64).max:
            raise InvalidInput(f"{n_coordinates} coordinates make more decoders than an index can name.")
        self._groups: dict[int, NDArray[np.int32]] = {}  # action -> group of every member

    @property
    def size(self) -> int:
        """Number of functions."""
        return self.n_coordinates * (self.n_coordinates - 1) * len(self.worth) ** 2

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        return int(self.worth.shape[1])

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
        A = len(self.worth)
        rest = np.arange(self.size) if members is None else np.asarray(members, dtype=np.int64)
        if rest.size and not (rest.min() >= 0 and rest.max() < self.size):
            raise InvalidInput(
                f"this class has functions 0 to {self.size - 1}; asked for {rest.min()} to {rest.max()}."
            )
        rest, b = np.divmod(rest, A)
        rest, a = np.divmod(rest, A)
        first, second = np.divmod(rest, self.n_coordinates - 1)
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
        on = self.coordinates(x)
        first, second, a, b = self.parameters(members)
        one = on.T[first][:, :, None] * self.worth[a][:, None, :]
        other = on.T[second][:, :, None] * self.worth[b][:, None, :]
        return np.maximum(one, other)

    @cached_property
    def _all_parameters(self) -> tuple[Ints, Ints, Ints, Ints]:
        return self.parameters()

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
        first, second, a, b = self._all_parameters
        different, kind = grouping.kinds(self.worth[:, action], self.worth.max(axis=1))
        codes = self.n_coordinates * len(different)
        one, other = first * len(different) + kind[a], second * len(different) + kind[b]
        key = np.minimum(one, other) * codes + np.maximum(one, other)  # (i, j, a, b) and (j, i, b, a) are one function
        return grouping.numbered(key, codes**2)[1].astype(np.int32)

    def moments(self, batch: Batch, members: Ints | None = None, /) -> Moments:
        """Returns the moments of a batch; of listed members, from how often any two coordinates were on together.

        A decoder distinguishes four cases of a row (i on or off, j on or off), so its moments follow from the shares, mean
        rewards and mean squares of rewards of the D^2 pairs of coordinates. The rounding error of a variance is about
        1e-15. The moments of all members come from their values, which is more exact.
        """
        if members is None:
            return super().moments(batch)
        on = self.coordinates(batch.x).astype(np.float64)
        first, second, a, b = (p[members] for p in self._all_parameters)

        def cells(weights: Floats) -> Floats:
            """Returns `[4, N]` the sums of `weights` `[m]` over rows with both on, i alone, j alone, and neither."""
            table = on.T @ (on * weights[:, None])
            single, both = table.diagonal(), table[first, second]
            rest = weights.sum() - single[first] - single[second] + both
            return np.stack([both, single[first] - both, single[second] - both, rest])

        def worth(of: Floats) -> Floats:
            """Returns `[4, N]` the values in these cells."""
            return np.stack([np.maximum(of[a], of[b]), of[a], of[b], np.zeros(len(members))])

        share, best = cells(batch.weight), worth(self.worth.max(axis=1))
        v_mean = (share * best).sum(axis=0)
        v_var = (share * (best - v_mean) ** 2).sum(axis=0)
        u_mean, u_var = np.zeros((2, len(members), self.n_actions))
        for action in np.flatnonzero(batch.pair.any(axis=0)):
            weights, paid = batch.pair[:, action], batch.r_mean[:, action]
            centre = weights @ paid
            share, gain = cells(weights), cells(weights * (paid - centre))
            value = worth(self.worth[:, action])
            mean = (share * value).sum(axis=0) - centre
            spread = weights @ ((paid - centre) ** 2 + batch.r_var[:, action])
            u_mean[:, action] = mean
            about = value - centre - mean  # u = value - r, about its mean: (about - (r - centre))^2
            u_var[:, action] = (share * about**2 - 2 * about * gain).sum(axis=0) + spread
        return Moments(batch.n, batch.actions, v_mean, np.maximum(v_var, 0.0), u_mean, np.maximum(u_var, 0.0))

    def on_device(self, memory: DeviceMemory, /) -> "DecodersOnDevice":
        """Returns the decoders on a device."""
        return DecodersOnDevice(self, memory)

    def value_bounds(self) -> tuple[Floats, Floats]:
        """Returns `[N]` the smallest and `[N]` the largest value that max_a f(x, a) takes."""
        _, _, a, b = self.parameters()
        best = self.worth.max(axis=1)
        return np.zeros(self.size), np.maximum(best[a], best[b])

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


class DecodersOnDevice(DeviceLevel):
    """Decoders on a device: the moments of all of them follow from which pairs of coordinates were on together.

    Observations are turned back by a product of matrices. A row with a coordinate closer to 1/2 than its rounding is read
    by NumPy, so every coordinate is read as NumPy reads it.
    """

    def __init__(self, level: Decoders, memory: DeviceMemory):
        """Sends the parameters of all decoders to the device."""
        super().__init__(memory)
        self.level = level
        self.size, self.n_actions, self.largest = level.size, level.n_actions, 1.0
        self.parameters = [memory.send(p) for p in level._all_parameters]  # i, j, a, b
        self.worth = memory.doubles(level.worth)
        self.rotation = None if level.rotation is None else memory.doubles(level.rotation)

    def prepared(self, batch: DeviceBatch) -> Any:
        """Returns `[m, D]` 1 where a coordinate is on and 0 where it is off."""
        x, D, rotation = batch.doubles(self.memory), self.level.n_coordinates, self.level.rotation
        if x.ndim != 2 or (x.shape[1] if rotation is None else rotation.shape[1]) < D:
            raise InvalidInput(f"these decoders read vectors of at least {D} coordinates; got shape {tuple(x.shape)}.")
        if self.rotation is None or rotation is None:
            return (x[:, :D] > 0.5).double()
        plain = x @ self.rotation[:, :D]
        u = roundoff(rotation, batch.x) if isinstance(batch.x, np.ndarray) else UNIT_ROUNDOFF
        length = x.square().sum(dim=1).sqrt() * self.rotation.square().sum(dim=0).max().sqrt()
        error = 4 * gamma(x.shape[1] + 2) * (u / UNIT_ROUNDOFF) * length
        close = ~((plain - 0.5).abs() > error[:, None])  # true where something is not a number
        rows = np.flatnonzero(close.any(dim=1).cpu().numpy())
        on = (plain > 0.5).double()
        if len(rows):
            on[self.memory.send(rows)] = self.memory.doubles(self.level.coordinates(batch.array[rows]))
        return on

    def values(self, rows: Any, members: Any) -> Any:
        """Returns `[N, m, K]` values."""
        first, second, a, b = (p[members] for p in self.parameters)
        one = rows.T[first][:, :, None] * self.worth[a][:, None, :]
        return self.memory.torch.maximum(one, rows.T[second][:, :, None] * self.worth[b][:, None, :])

    def error(self, rows: Any) -> float:
        """Returns 0: values are looked up."""
        return 0.0

    def moments(self, batch: DeviceBatch, members: Ints | None = None) -> Moments:
        """Returns the moments of a batch, of all decoders or of those listed; `Decoders.moments` says how."""
        torch, on, index = self.memory.torch, self.prepared(batch), self.memory.index(members, self.size)
        first, second, a, b = (p if index is None else p[index] for p in self.parameters)

        def cells(rows: Any, weights: Any) -> Any:
            """Returns `[4, N]` the sums of weights over rows with both on, i alone, j alone, and neither."""
            table = blocked_product(rows, rows * weights[:, None])
            single, both = table.diagonal(), table[first, second]
            rest = weights.sum() - single[first] - single[second] + both
            return torch.stack([both, single[first] - both, single[second] - both, rest])

        def worth(of: Any) -> Any:
            """Returns `[4, N]` the values in these cells."""
            return torch.stack([torch.maximum(of[a], of[b]), of[a], of[b], torch.zeros_like(of[a])])

        share, best = cells(on, batch.weight), worth(self.worth.amax(dim=1))
        v_mean = (share * best).sum(dim=0)
        v_var = (share * (best - v_mean) ** 2).sum(dim=0).clamp(min=0.0)
        u_mean, u_var = [], []
        for t in batch.taken:
            centre = (t.share * t.r_mean).sum()
            paid, value = t.r_mean - centre, worth(self.worth[:, t.action])
            share, gain = cells(on[t.rows], t.share), cells(on[t.rows], t.share * paid)
            mean = (share * value).sum(dim=0) - centre
            about = value - centre - mean
            spread = (t.share * (paid**2 + t.r_var)).sum()
            u_mean.append(mean)
            u_var.append(((share * about**2 - 2 * about * gain).sum(dim=0) + spread).clamp(min=0.0))
        # Each of four cells is a sum of four shares, known up to 4 gamma; a variance weighs them with at most 4 W^2.
        rounding = 128 * accumulated(0.0, 1.0 + batch.largest_reward, product_depth(len(on)) + 8)
        return self.fetched([Reduced(v_mean, v_var, tuple(u_mean), tuple(u_var))], batch, rounding)

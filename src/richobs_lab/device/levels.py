"""The functions of one level on a device: values stay on it, moments come back, and what that rounds.

NumPy computes where no device is named. "cpu" is PyTorch's own CPU device: the same code as on a GPU, for tests and for
checking results where there is no GPU. All arithmetic is in float64. Shapes: N functions, m rows, K actions.

What is stated about rounding (docs/scale.md derives it). With u = 2^-53, let every computed value be within E of the exact
one, let values and residuals be at most W, and let a sum of m terms round as one of depth t. Then a mean is within
E + (t + 4) u W of the exact one, and a variance within 2 W E + E^2 + (t + 8) u W^2. `accumulated` returns a bound on both.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from richobs.classes.base import checked_members
from richobs.core.errors import InvalidInput
from richobs.core.moments import UNIT_ROUNDOFF, Batch, Moments
from richobs.core.types import Floats, Ints
from richobs.device import pytorch, torch_device

BLOCK = 512  # rows whose products are added up at once
VALUES_AT_ONCE = {"cpu": 2**22, "cuda": 2**27}  # values of functions that are held on a device at once


def gamma(k: float) -> float:
    """Returns the relative error of k roundings in a row, k u / (1 - k u)."""
    return k * UNIT_ROUNDOFF / (1 - k * UNIT_ROUNDOFF)


def accumulated(error: float, size: float, depth: float) -> float:
    """Returns a bound on the rounding of every mean and every variance.

    Args:
        error: bound E on the error of a value.
        size: bound W on |value| and |value - reward|.
        depth: how many roundings a term of a sum may go through.
    """
    return (1 + 2 * size) * error + error**2 + 2 * gamma(depth + 8) * size * max(1.0, size)


def accumulated_means(error: float, size: float, depth: float) -> float:
    """Returns a bound on the rounding of every mean alone, E + (t + 4) u W; it takes what `accumulated` takes."""
    return error + 2 * gamma(depth + 8) * size


class DeviceMemory:
    """A device, and the arrays that were sent there; each is sent once."""

    def __init__(self, name: str):
        """Opens the device.

        Raises:
            InvalidInput: it is not there.
        """
        self.device = torch_device(name)
        self.torch = pytorch(f"device {name!r}")
        self._kept: dict[tuple[int, str], tuple[NDArray[Any], Any]] = {}

    @property
    def values_at_once(self) -> int:
        """How many values are held at once."""
        return VALUES_AT_ONCE[self.device.type]

    def send(self, array: NDArray[Any]) -> Any:
        """Returns an array on the device, of the same type."""
        return self.torch.tensor(array, device=self.device)

    def doubles(self, array: NDArray[Any]) -> Any:
        """Returns numbers on the device as float64."""
        return self.send(np.ascontiguousarray(array, dtype=np.float64))

    def keep(self, array: NDArray[Any], use: str = "", make: Callable[[], Any] | None = None) -> Any:
        """Returns a tensor of an array on the device, made once for each use.

        Args:
            array: which must not change afterwards.
            use: tells apart what is made of the same array.
            make: makes the tensor; by default the array is sent as it is.
        """
        kept = self._kept.get((id(array), use))
        if kept is None:
            tensor = self.send(array) if make is None else make()
            kept = self._kept[id(array), use] = (array, tensor)  # the array is held: its id stays its own
        return kept[1]

    def index(self, members: Ints | None, size: int) -> Any | None:
        """Returns members of a class of `size` functions as a tensor of indices; None for all of them in order."""
        chosen = checked_members(members, size)
        if len(chosen) == size and bool((chosen == np.arange(size)).all()):
            return None
        return self.send(chosen)


class Taken(NamedTuple):
    """The rows in which one action was taken; tensors."""

    action: int
    rows: Any  # [k] their numbers
    share: Any  # [k] share of the action's samples in each; sums to 1
    r_mean: Any  # [k] mean reward there
    r_var: Any  # [k] variance of the reward there


@dataclass(frozen=True, eq=False)
class DeviceBatch:
    """A `Batch` on a device."""

    n: int
    actions: tuple[int, ...]  # [K] how many samples took each action
    x: NDArray[Any]  # [m, ...] observations; they stay where they are
    weight: Any  # [m] share of the n samples in each row
    taken: tuple[Taken, ...]  # actions that were taken, in order
    largest_reward: float  # bound on |r|
    is_plain: bool  # every row is one sample, with at most one action

    @classmethod
    def of(cls, batch: Batch, memory: DeviceMemory) -> "DeviceBatch":
        """Returns a batch on the device."""
        taken = []
        largest = 0.0
        for a in range(len(batch.actions)):
            rows = np.flatnonzero(batch.pair[:, a])
            if not len(rows):
                continue
            r_mean, r_var = batch.r_mean[rows, a], batch.r_var[rows, a]
            largest = max(largest, float(np.abs(r_mean).max()) + math.sqrt(float(r_var.max())))
            columns = (memory.doubles(c) for c in (batch.pair[rows, a], r_mean, r_var))
            taken.append(Taken(a, memory.send(rows), *columns))
        is_plain = len(batch.x) == batch.n and sum(len(t.rows) for t in taken) in (0, batch.n)
        return cls(
            batch.n, batch.actions, batch.x, memory.doubles(batch.weight), tuple(taken), largest, is_plain=is_plain
        )


def roundoff(*arrays: NDArray[Any]) -> float:
    """Returns the unit roundoff of what NumPy computes from arrays: that of float32 where it uses float32."""
    kind = np.result_type(*(a.dtype for a in arrays), np.float16)
    return float(np.finfo(kind).eps) / 2


class Reduced(NamedTuple):
    """Moments on the device."""

    v_mean: Any  # [N]
    v_var: Any  # [N]
    u_mean: tuple[Any, ...]  # [N] for each action that was taken, in order
    u_var: tuple[Any, ...]  # [N] likewise


def blocked_product(left: Any, right: Any) -> Any:
    """Returns left^T right for `[m, p]` and `[m, q]`, added up over blocks of BLOCK rows, one after the other."""
    total = left[:BLOCK].T @ right[:BLOCK]
    for first in range(BLOCK, len(left), BLOCK):
        total += left[first : first + BLOCK].T @ right[first : first + BLOCK]
    return total


def column_sums(terms: Any) -> Any:
    """Returns the sums `[N]` of terms `[m, N]`, over blocks of BLOCK rows first and then over blocks."""
    whole = len(terms) // BLOCK * BLOCK
    total = terms[:whole].reshape(whole // BLOCK, BLOCK, terms.shape[1]).sum(dim=1).sum(dim=0)
    return total + terms[whole:].sum(dim=0)


def product_depth(m: int) -> int:
    """Returns through how many roundings a term of these sums may go."""
    return min(m, BLOCK) + -(-m // BLOCK) + 1


def weighted_sum(terms: Any, weight: Any) -> Any:
    """Returns the sums of terms `[N, m]` times weights `[m]`, over blocks of BLOCK rows first and then over blocks."""
    if len(weight) <= BLOCK:
        return terms @ weight
    whole = len(weight) // BLOCK * BLOCK
    weighted = terms * weight
    total = weighted[:, :whole].reshape(len(terms), whole // BLOCK, BLOCK).sum(dim=2).sum(dim=1)
    return total + weighted[:, whole:].sum(dim=1)


def reduced(values: Any, batch: DeviceBatch) -> Reduced:
    """Returns the moments of a batch for functions whose values `[N, m, K]` on its rows are given, as `Moments.of` does."""
    best = values.amax(dim=2)
    v_mean, v_var = _mean_and_variance(best, batch.weight)
    del best
    u_mean, u_var = [], []
    for t in batch.taken:
        column = values[:, :, t.action]
        u = (column if len(t.rows) == values.shape[1] else column[:, t.rows]) - t.r_mean
        mean, variance = _mean_and_variance(u, t.share)
        u_mean.append(mean)
        u_var.append(variance + weighted_sum(t.r_var[None], t.share))
    return Reduced(v_mean, v_var, tuple(u_mean), tuple(u_var))


def _mean_and_variance(terms: Any, weight: Any) -> tuple[Any, Any]:
    """Returns weighted means and variances over the last axis; `terms` is used up."""
    mean = weighted_sum(terms, weight)
    return mean, weighted_sum(terms.sub_(mean[:, None]).square_(), weight)


class DeviceLevel(ABC):
    """The functions of one level on a device. A class writes `prepared`, `values` and `error`, or its own `moments`."""

    def __init__(self, memory: DeviceMemory, size: int, n_actions: int, value_range: tuple[float, float]):
        """Takes the device, and what is known of the functions: their number, that of their actions, and their range."""
        self.memory, self.size, self.n_actions = memory, size, n_actions
        self.largest = max(abs(v) for v in value_range)  # bound on |f(x, a)|

    @abstractmethod
    def prepared(self, batch: DeviceBatch) -> Any:
        """Returns what `values` reads of a batch."""

    @abstractmethod
    def values(self, rows: Any, members: Any) -> Any:
        """Returns `[N, m, K]` values, float64 on the device.

        Args:
            rows: what `prepared` returned.
            members: a slice, or a tensor of indices.
        """

    @abstractmethod
    def error(self, rows: Any) -> float:
        """Returns a bound on the error of every value, given what `prepared` returned."""

    def finite_error(self, rows: Any) -> float:
        """Returns the bound on the error of every value once it is known to be a finite number.

        Raises:
            InvalidInput: it is not: a value may be infinite or no number at all.
        """
        error = self.error(rows)
        if not math.isfinite(error):
            raise InvalidInput(f"{type(self).__name__}: values or observations here are too large for float64, or NaN.")
        return error

    def moments(self, batch: DeviceBatch, members: Ints | None = None) -> Moments:
        """Returns the moments of a batch, of all functions or of those listed, for a part of the functions at a time."""
        rows, index = self.prepared(batch), self.memory.index(members, self.size)
        size, m = self.size if index is None else len(index), len(batch.weight)
        step = max(1, self.memory.values_at_once // max(1, m * self.n_actions))
        parts = []
        with self.memory.torch.no_grad():
            for first in range(0, max(1, size), step):
                part = slice(first, min(first + step, size))
                values = self.values(rows, part if index is None else index[part])
                parts.append(reduced(values, batch))
                del values
        bounds = (self.finite_error(rows), self.largest + batch.largest_reward, product_depth(m))
        return self.fetched(parts, batch, accumulated(*bounds), accumulated_means(*bounds))

    def fetched(
        self, parts: list[Reduced], batch: DeviceBatch, rounding: float, of_means: float | None = None
    ) -> Moments:
        """Returns moments that were computed for groups of functions, brought back from the device.

        Args:
            parts: the groups.
            batch: what they are moments of.
            rounding: every mean and variance is within it of exact arithmetic.
            of_means: every mean is; None where nothing better is known.
        """

        def joined(columns: Iterable[Any]) -> Floats:
            return self.memory.torch.cat(list(columns)).cpu().numpy()

        v_mean, v_var = joined(p.v_mean for p in parts), joined(p.v_var for p in parts)
        u_mean, u_var = np.zeros((2, len(v_mean), len(batch.actions)))
        for i, t in enumerate(batch.taken):
            u_mean[:, t.action] = joined(p.u_mean[i] for p in parts)
            u_var[:, t.action] = joined(p.u_var[i] for p in parts)
        return Moments(batch.n, batch.actions, v_mean, v_var, u_mean, u_var, rounding, of_means)

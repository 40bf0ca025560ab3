"""Prototypes: functions on vectors that look up the nearest of a few centres in a table."""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from richobs.classes.base import Arrays, LevelClass, checked_members
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
from richobs.core.moments import UNIT_ROUNDOFF, Moments
from richobs.core.types import Floats, Ints, Observations


@codec
class Prototypes(LevelClass):
    """Function m finds the centre of set `which[m]` that is nearest to x and returns that centre's row of its table."""

    values_are_checked = True

    code = "prototypes"

    @refuse_unusable
    def __init__(self, centres: ArrayLike, which: ArrayLike, tables: ArrayLike):
        """Describes the class.

        Args:
            centres: `[C, S, d]` C sets of S centres.
            which: `[N]` the centre set of each function.
            tables: `[N, S, K]` the table of each function, values in [0, 1].
        """
        centres, which, tables = np.asarray(centres), np.asarray(which), np.asarray(tables)
        sizes_fit = centres.ndim == 3 and tables.ndim == 3 and which.shape == tables.shape[:1]
        if not sizes_fit or centres.shape[1] != tables.shape[1]:
            raise InvalidInput(
                f"prototypes need centres [C, S, d], which [N] and tables [N, S, K]; got shapes {centres.shape}, "
                f"{which.shape} and {tables.shape}."
            )
        if which.size and not (which.min() >= 0 and which.max() < len(centres)):
            raise InvalidInput(
                f"there are centre sets 0 to {len(centres) - 1}; `which` names {which.min()} to {which.max()}."
            )
        real_array(centres)  # refuses complex ones
        if not ((real_array(tables) >= 0) & (tables <= 1)).all():
            raise InvalidInput("values must lie in [0, 1]; `tables` holds others.")
        self.centres = centres
        self.which = which
        self.tables = tables

    @property
    def size(self) -> int:
        """Number of functions."""
        return len(self.tables)

    @property
    def observation_ndim(self) -> int:
        """Number of axes of one observation: 1, a vector."""
        return 1

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        return self.tables.shape[2]

    def values(self, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all functions, or of those listed in `members`."""
        if x.ndim != 2 or x.shape[1] != self.centres.shape[2]:
            raise InvalidInput(f"these functions read vectors of length {self.centres.shape[2]}; got shape {x.shape}.")
        chosen = checked_members(members, self.size)
        sets, inverse = np.unique(self.which[chosen], return_inverse=True)
        nearest = np.empty((len(sets), len(x)), dtype=np.int64)
        for row, centre_set in enumerate(sets):
            nearest[row] = self.nearest(x, int(centre_set))
        return np.take_along_axis(self.tables[chosen], nearest[inverse][:, :, None], axis=1)

    def nearest(self, x: Observations, centre_set: int) -> Ints:
        """Returns `[n]` which centre of a set is nearest to each of the vectors `x` `[n, d]`."""
        return ((x[:, None, :] - self.centres[centre_set][None]) ** 2).sum(axis=2).argmin(axis=1)

    def on_device(self, memory: DeviceMemory, /) -> "PrototypesOnDevice":
        """Returns the functions on a device."""
        return PrototypesOnDevice(self, memory)

    def value_bounds(self) -> tuple[Floats, Floats]:
        """Returns `[N]` the smallest and `[N]` the largest max_a f(x, a) in each table."""
        top = self.tables.max(axis=2)
        return top.min(axis=1), top.max(axis=1)

    def singleton(self, member: int, /) -> "Prototypes":
        """Returns the class that holds one of these functions, with its one set of centres."""
        one = checked_members(np.array([member]), self.size)
        return Prototypes(self.centres[self.which[one]], np.zeros(1, dtype=np.int64), self.tables[one])

    def to_arrays(self) -> Arrays:
        """Returns `centres` `[C, S, d]`, `which` `[N]` and `tables` `[N, S, K]`."""
        return {"centres": self.centres, "which": self.which, "tables": self.tables}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the class that `to_arrays` took apart."""
        return cls(arrays["centres"], arrays["which"], arrays["tables"])


class Decoded(NamedTuple):
    """Which centre is nearest to each row of a batch."""

    nearest: Any  # [C, m]
    m: int


class PrototypesOnDevice(DeviceLevel):
    """Prototypes on a device.

    A function depends on x only through the nearest centre, so the moments of all functions follow from how often each
    centre of each set was nearest, and with which rewards: N S K numbers instead of N m K values. Distances are products of
    matrices. Where two of them are closer than their rounding, NumPy decides, so every row is decoded as NumPy decodes it.
    """

    def __init__(self, level: Prototypes, memory: DeviceMemory):
        """Sends centres and tables to the device."""
        super().__init__(memory)
        self.level = level
        self.size, self.n_actions, self.largest = level.size, level.n_actions, 1.0
        self.centres = memory.doubles(level.centres)
        self.which = memory.send(np.asarray(level.which, dtype=np.int64))
        self.tables = memory.doubles(level.tables)

    def prepared(self, batch: DeviceBatch) -> Decoded:
        """Decodes the observations."""
        torch, x, (C, S, d) = self.memory.torch, batch.doubles(self.memory), self.centres.shape
        if x.ndim != 2 or x.shape[1] != d:
            raise InvalidInput(f"these functions read vectors of length {d}; got shape {tuple(x.shape)}.")
        length = self.centres.square().sum(dim=2)  # [C, S]
        # |x - c|^2 - |x|^2 = |c|^2 - 2 x c, which has the same minimum; NumPy's own distances round too.
        u = roundoff(self.level.centres, batch.x) if isinstance(batch.x, np.ndarray) else UNIT_ROUNDOFF
        reach = float(x.square().sum(dim=1).max().sqrt() + length.max().sqrt())
        error = 8 * gamma(d + 4) * (u / UNIT_ROUNDOFF) * reach**2
        nearest = torch.empty((C, len(x)), dtype=torch.int64, device=self.memory.device)
        step = max(1, self.memory.values_at_once // max(1, len(x) * S))
        for first in range(0, C, step):
            centres = self.centres[first : first + step]
            gap = length[first : first + step, :, None] - 2 * (centres.reshape(-1, d) @ x.T).reshape(-1, S, len(x))
            least, place = gap.min(dim=1)
            close = (~(gap > least[:, None] + error)).sum(dim=1) > 1  # [c, m]; true where something is not a number
            close = close.cpu().numpy()
            for c in np.flatnonzero(close.any(axis=1)):
                rows = np.flatnonzero(close[c])
                decided = self.level.nearest(batch.array[rows], first + int(c))
                place[int(c), self.memory.send(rows)] = self.memory.send(decided)
            nearest[first : first + step] = place
        return Decoded(nearest, len(x))

    def values(self, rows: Decoded, members: Any) -> Any:
        """Returns `[N, m, K]` values."""
        place = rows.nearest[self.which[members]][:, :, None].expand(-1, -1, self.n_actions)
        return self.tables[members].gather(1, place)

    def error(self, rows: Decoded) -> float:
        """Returns 0: values are looked up."""
        return 0.0

    def moments(self, batch: DeviceBatch, members: Ints | None = None) -> Moments:
        """Returns the moments of a batch, of all functions or of those listed."""
        torch, rows, index = self.memory.torch, self.prepared(batch), self.memory.index(members, self.size)
        which, tables = (t if index is None else t[index] for t in (self.which, self.tables))
        share = self._sums(rows, batch.weight[:, None])[:, :, 0][which]  # [N, S]
        best = tables.amax(dim=2)
        v_mean = (share * best).sum(dim=1)
        v_var = (share * (best - v_mean[:, None]) ** 2).sum(dim=1)
        u_mean, u_var = [], []
        for t in batch.taken:
            centre = (t.share * t.r_mean).sum()
            paid = t.r_mean - centre
            sums = self._sums(
                Decoded(rows.nearest[:, t.rows], len(t.rows)), torch.stack([t.share, t.share * paid], dim=1)
            )
            share, gain, value = sums[:, :, 0][which], sums[:, :, 1][which], tables[:, :, t.action]
            mean = (share * value).sum(dim=1) - centre
            about = value - centre - mean[:, None]  # u = value - r about its mean is about - (r - centre)
            spread = (t.share * (paid**2 + t.r_var)).sum()
            u_mean.append(mean)
            u_var.append(((share * about**2 - 2 * about * gain).sum(dim=1) + spread).clamp(min=0.0))
        size, depth = 1.0 + batch.largest_reward, product_depth(rows.m) + self.centres.shape[1]
        # A variance is a sum of three parts, each at most 4 W^2 and rounded on its own.
        rounding = 12 * accumulated(0.0, size, depth)
        return self.fetched([Reduced(v_mean, v_var, tuple(u_mean), tuple(u_var))], batch, rounding)

    def _sums(self, rows: Decoded, weights: Any) -> Any:
        """Returns `[C, S, q]` the sums of weights `[m, q]` over the rows that each centre is nearest to."""
        torch, S = self.memory.torch, self.centres.shape[1]
        step = max(1, self.memory.values_at_once // max(1, rows.m * S))
        state = torch.arange(S, device=self.memory.device)[None, :, None]
        parts = [
            blocked_product(
                (rows.nearest[first : first + step, None, :] == state).double().reshape(-1, rows.m).T, weights
            )
            for first in range(0, len(rows.nearest), step)
        ]
        return torch.cat(parts).reshape(-1, S, weights.shape[1])

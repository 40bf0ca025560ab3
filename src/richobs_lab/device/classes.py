"""Classes of functions on a device: their moments are computed there, everything else is asked of the class itself.

`LEVELS` says which classes of a level can be there, and how. A class of a level knows nothing of devices. Shapes: N
functions of the level, m rows of a batch, K actions.
"""

import functools
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from richobs import FunctionClass, InvalidInput, LevelClass
from richobs.classes import Chosen, Decoders, LinearLevel, NetworkLevel, TableLevel
from richobs.classes.decoders import sums_by_case, values_of, worth_by_case
from richobs.classes.layered import ByLevel
from richobs.core.functions import FunctionsAround
from richobs.core.moments import UNIT_ROUNDOFF, Batch, Moments, moments_of_cases
from richobs.core.policies import TIE
from richobs.core.types import Ints
from richobs.core.units import UnitFunctions, Units
from richobs_lab.device.levels import (
    DeviceBatch,
    DeviceLevel,
    DeviceMemory,
    Reduced,
    Taken,
    accumulated,
    blocked_product,
    column_sums,
    gamma,
    product_depth,
    roundoff,
)
from richobs_lab.prototypes import Prototypes

MEMBERS_AT_ONCE = 2**21  # functions of one launch
BLOCK_ROWS = 32  # observations of a block; those of one block took the same action
BLOCK_MEMBERS = 64  # functions of a block
WARPS = 4
MOST_FEATURES = 128  # blocks of more do not fit beside each other into a multiprocessor's memory
LEAST_FEATURES = 16  # a product of blocks needs so many; others are filled up with zeros
# Layers of networks whose rounding on a device is bounded, beside Linear: Lipschitz constant, and units in the last place.
BOUNDED: dict[str, tuple[float, float]] = {
    "Linear": (1.0, 0.0),
    "Flatten": (1.0, 0.0),
    "ReLU": (1.0, 0.0),
    "Identity": (1.0, 0.0),
    "LeakyReLU": (1.0, 2.0),
    "ELU": (1.0, 16.0),
    "SiLU": (1.1, 16.0),
    "GELU": (1.2, 32.0),
    "Tanh": (1.0, 16.0),
    "Sigmoid": (0.25, 16.0),
}


class OnDevice(FunctionsAround):
    """A class on a device. Levels whose rounding cannot be bounded are evaluated by the class itself.

    Tensors are made when they are first needed and are not pickled, so the object can be sent to another process.
    """

    def __init__(self, own: FunctionClass, device: str):
        """Takes the class and the name of the device."""
        super().__init__(own)
        self.device = device
        self._memory: DeviceMemory | None = None
        self._levels: dict[int, DeviceLevel | None] = {}  # by id: levels that are one object are sent once

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_memory": None, "_levels": {}}

    def level(self, level: int) -> DeviceLevel | None:
        """Returns the functions of a level on the device; None where the class itself has to evaluate them."""
        units = self.own.units if isinstance(self.own, UnitFunctions) else None
        functions = self.own.own if isinstance(self.own, UnitFunctions) else self.own
        if not isinstance(functions, ByLevel):
            return None
        self._memory = self._memory or DeviceMemory(self.device)
        level_class = functions.levels[level]
        if id(level_class) not in self._levels:
            self._levels[id(level_class)] = on_device(level_class, self._memory)
        found = self._levels[id(level_class)]
        return found if found is None or units is None else UnitLevel(found, units, level)

    def moments(self, level: int, batch: Batch, members: Ints | None = None, /) -> Moments:
        """Returns the moments of a batch at `level`, computed on the device where the class can be there."""
        there = self.level(level)
        if there is None:
            return self.own.moments(level, batch, members)
        return there.moments(DeviceBatch.of(batch, there.memory), members)


def on_device(level: LevelClass, memory: DeviceMemory) -> DeviceLevel | None:
    """Returns the functions of a level on a device; None where NumPy has to evaluate them.

    The class that wrote `values` decides, so a subclass with values of its own is not taken for its parent.
    """
    owner = next(c for c in type(level).__mro__ if "values" in vars(c))
    make = LEVELS.get(owner)
    return None if make is None else make(level, memory)


class ChosenOnDevice(DeviceLevel):
    """Some functions of a level on a device."""

    def __init__(self, level: DeviceLevel, chosen: Chosen):
        """Takes the level, and which of its functions are meant."""
        super().__init__(level.memory, chosen.size, level.n_actions, chosen.value_range)
        self.level, self.members = level, chosen.members

    def prepared(self, batch: DeviceBatch) -> Any:
        """Returns what `values` reads of a batch."""
        return self.level.prepared(batch)

    def values(self, rows: Any, members: Any) -> Any:
        """Returns `[N, m, K]` values."""
        return self.level.values(rows, self.memory.keep(self.members)[members])

    def error(self, rows: Any) -> float:
        """Returns a bound on the error of every value."""
        return self.level.error(rows)

    def moments(self, batch: DeviceBatch, members: Ints | None = None) -> Moments:
        """Returns the moments of a batch, as the level computes them."""
        return self.level.moments(batch, self.members if members is None else self.members[members])


class UnitLevel(DeviceLevel):
    """The functions of a level in unit scale, as `richobs.core.units.unit_values` makes them."""

    def __init__(self, level: DeviceLevel, units: Units, number: int):
        """Takes the level in its own units, the units, and which level it is."""
        super().__init__(level.memory, level.size, level.n_actions, (0.0, 1.0))
        self.level, self.units, self.number = level, units, number

    def prepared(self, batch: DeviceBatch) -> Any:
        """Returns what `values` reads of a batch."""
        return self.level.prepared(batch)

    def values(self, rows: Any, members: Any) -> Any:
        """Returns `[N, m, K]` values."""
        return self.units.value(self.level.values(rows, members), self.number).clamp(0.0, 1.0)

    def error(self, rows: Any) -> float:
        """Returns a bound on the error of every value: that of the level, of two operations, and of nearly equal actions."""
        largest = self.level.largest + abs(self.units.shift) * self.units.horizon
        tie = 2 * TIE * self.n_actions * (1 + max(1.0, largest) / self.units.scale)
        return (self.level.error(rows) + 2.0**-50 * largest) / self.units.scale + 2.0**-50 + tie


class TablesOnDevice(DeviceLevel):
    """Tables on a device: values are looked up, so they are exact. Observations are numbered on the CPU."""

    def __init__(self, level: TableLevel, memory: DeviceMemory):
        """Sends the tables to the device."""
        super().__init__(memory, level.size, level.n_actions, level.value_range)
        self.codebook = level.codebook
        self.tables = memory.keep(level.tables)

    def prepared(self, batch: DeviceBatch) -> Any:
        """Returns `[m]` the number of each observation."""
        return self.memory.send(self.codebook.encode(batch.x))

    def values(self, rows: Any, members: Any) -> Any:
        """Returns `[N, m, K]` values."""
        return self.tables[members][:, rows].double()

    def error(self, rows: Any) -> float:
        """Returns 0."""
        return 0.0


class LinearOnDevice(DeviceLevel):
    """Linear functions on a device.

    A product of d terms, in any order and with fused operations or not, is within gamma(d + 1) |theta| |phi| of the exact
    one. Where there is Triton and the features depend on x alone, a fused kernel computes moments without storing values.
    """

    def __init__(self, level: LinearLevel, memory: DeviceMemory):
        """Sends the parameters to the device; levels with one array of parameters share it."""
        super().__init__(memory, level.size, level.n_actions, level.value_range)
        self.level = level
        self.theta = memory.keep(level.parameters)  # [N, d] or [N, K, d]
        self._norm = float(self.theta.double().square().sum(dim=-1).max().sqrt())

    def prepared(self, batch: DeviceBatch) -> Any:
        """Returns the features, `[m, d]` or `[m, K, d]`."""
        return self.memory.doubles(self.level.phi(batch.x))

    def error(self, rows: Any) -> float:
        """Returns a bound on the error of every value."""
        largest = self._norm * float(rows.square().sum(dim=-1).max().sqrt())
        return gamma(rows.shape[-1] + 1) * largest * (1 + 1e-9)

    def values(self, rows: Any, members: Any) -> Any:
        """Returns `[N, m, K]` values."""
        theta = self.theta[members].double()
        if theta.ndim == 2:
            product = (theta @ rows.reshape(-1, rows.shape[-1]).T).reshape(len(theta), len(rows), self.n_actions)
        else:
            product = (theta.reshape(-1, theta.shape[-1]) @ rows.T).reshape(len(theta), self.n_actions, len(rows))
            product = product.transpose(1, 2)
        return clipped(product, self.level)

    def moments(self, batch: DeviceBatch, members: Ints | None = None) -> Moments:
        """Returns the moments of a batch, of all functions or of those listed."""
        fits = (members is None or len(members) > 0) and batch.is_plain and self.theta.ndim == 3
        if fits and has_linear_kernel(self.memory, self.theta.shape[-1]):
            return self.fused_moments(batch, members)
        return super().moments(batch, members)

    def fused_moments(self, batch: DeviceBatch, members: Ints | None) -> Moments:
        """Returns the moments by the kernel: rows are sorted by action and filled up to whole blocks."""
        torch, rows, index = self.memory.torch, self.prepared(batch), self.memory.index(members, self.size)
        blocks = in_blocks(rows, batch.taken, self.n_actions, torch)
        rounding = accumulated(
            self.finite_error(rows),
            self.largest + batch.largest_reward,
            6 * BLOCK_ROWS + 24 + product_depth(len(blocks.counts)),
        )
        theta = self.transposed(blocks.phi.shape[1])
        n, parts = self.size if index is None else len(index), []
        step = max(1, min(MEMBERS_AT_ONCE, self.memory.values_at_once // (4 * len(blocks.counts))))
        for first in range(0, n, step):
            part = slice(first, min(first + step, n))
            mine = theta[:, :, part] if index is None else theta[:, :, index[part]]
            found = linear_blocks(mine.contiguous(), blocks, self.level.value_range, torch)
            self.level.clipping.note(batch.n * (part.stop - first) * self.n_actions, int(found.clipped.sum()))
            v_mean, v_var = _merged_blocks(found.v_mean, found.v_square, blocks.counts)
            of_actions = [
                _merged_blocks(found.u_mean[where], found.u_square[where], blocks.counts[where])
                for where in blocks.of_action
            ]
            parts.append(Reduced(v_mean, v_var, *_columns(of_actions)))
        return self.fetched(parts, batch, rounding)

    def transposed(self, width: int) -> Any:
        """Returns the parameters as the kernel reads them, `[K, width, N]`, made once for each array of parameters."""
        pad = self.memory.torch.nn.functional.pad

        def made() -> Any:
            return pad(self.theta.double(), (0, width - self.theta.shape[-1])).permute(1, 2, 0).contiguous()

        return self.memory.keep(self.level.parameters, f"transposed {width}", made)


def _merged_blocks(mean: Any, square: Any, counts: Any) -> tuple[Any, Any]:
    """Returns means and variances `[N]` over blocks of rows, from those `[B, N]` of each block and its size `[B]`."""
    size = counts.double()[:, None]
    n = size.sum()
    total = column_sums(mean * size) / n
    return total, column_sums((mean - total).square_().mul_(size).add_(square)) / n


def _columns(of_actions: Sequence[tuple[Any, Any]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Returns the means of all actions, and their variances, from (mean, variance) of each."""
    return tuple(mean for mean, _ in of_actions), tuple(variance for _, variance in of_actions)


def clipped(values: Any, level: LinearLevel | NetworkLevel) -> Any:
    """Returns values on a device cut to the range of their level, in place; the level counts how many were."""
    low, high = level.value_range
    outside = int(((values < low) | (values > high)).sum())
    level.clipping.note(values.numel(), outside)
    return values.clamp_(low, high) if outside else values


class LevelByCases(DeviceLevel):
    """Functions that distinguish a few cases of a row, the same ones for all functions or each its own.

    The moments of all functions follow from how often each case occurs, and with which rewards: a number for each function
    and case instead of a value for each function and row. Values are looked up, so they are exact.
    """

    terms: float  # parts that a variance is a sum of, times the share of W^2 that each may be
    depth: int  # roundings of a term beside those of a sum over rows

    @abstractmethod
    def cases(self, rows: Any, weights: Sequence[Any], index: Any) -> list[Any]:
        """Returns for each of some weights `[m]` its sums `[C, N]` over the rows in each case.

        Args:
            rows: what `prepared` returned, or some rows of it.
            weights: of these rows.
            index: the functions; None for all.
        """

    @abstractmethod
    def worth(self, action: int | None, index: Any) -> Any:
        """Returns `[C, N]` the value of an action in each case; None: the largest value of an action."""

    def error(self, rows: Any) -> float:
        """Returns 0: values are looked up."""
        return 0.0

    def moments(self, batch: DeviceBatch, members: Ints | None = None) -> Moments:
        """Returns the moments of a batch, of all functions or of those listed."""
        rows, index = self.prepared(batch), self.memory.index(members, self.size)
        (share,) = self.cases(rows, [batch.weight], index)
        v_mean, v_var = moments_of_cases(share, self.worth(None, index))
        of_actions = []
        for t in batch.taken:
            centre = (t.share * t.r_mean).sum()
            paid = t.r_mean - centre
            share, gain = self.cases(rows[t.rows], [t.share, t.share * paid], index)
            spread = (t.share * (paid**2 + t.r_var)).sum()
            mean, variance = moments_of_cases(share, self.worth(t.action, index), gain, centre, spread)
            of_actions.append((mean, variance.clamp(min=0.0)))
        size, depth = self.largest + batch.largest_reward, product_depth(len(rows)) + self.depth
        rounding = self.terms * accumulated(0.0, size, depth)
        return self.fetched([Reduced(v_mean, v_var.clamp(min=0.0), *_columns(of_actions))], batch, rounding)


class PrototypesOnDevice(LevelByCases):
    """Prototypes on a device: the cases of a function are the centres of its set, and the nearest one counts.

    Distances are products of matrices. Where two of them are closer than their rounding, NumPy decides, so every row is
    decoded as NumPy decodes it.
    """

    terms = 12  # a variance is a sum of three parts, each at most 4 W^2 and rounded on its own

    def __init__(self, level: Prototypes, memory: DeviceMemory):
        """Sends centres and tables to the device."""
        super().__init__(memory, level.size, level.n_actions, level.value_range)
        self.level = level
        self.centres = memory.doubles(level.centres)
        self.which = memory.send(np.asarray(level.which, dtype=np.int64))
        self.tables = memory.doubles(level.tables)
        self.depth = self.centres.shape[1]

    def prepared(self, batch: DeviceBatch) -> Any:
        """Returns `[m, C]` which centre of each of C sets is nearest."""
        torch, x, (C, S, d) = self.memory.torch, self.memory.doubles(batch.x), self.centres.shape
        if x.ndim != 2 or x.shape[1] != d:
            raise InvalidInput(f"these functions read vectors of length {d}; got shape {tuple(x.shape)}.")
        length = self.centres.square().sum(dim=2)  # [C, S]
        # |x - c|^2 - |x|^2 = |c|^2 - 2 x c, which has the same minimum; NumPy's own distances round too.
        reach = float(x.square().sum(dim=1).max().sqrt() + length.max().sqrt())
        error = 8 * gamma(d + 4) * (roundoff(self.level.centres, batch.x) / UNIT_ROUNDOFF) * reach**2
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
                decided = self.level.nearest(batch.x[rows], first + int(c))
                place[int(c), self.memory.send(rows)] = self.memory.send(decided)
            nearest[first : first + step] = place
        return nearest.T

    def values(self, rows: Any, members: Any) -> Any:
        """Returns `[N, m, K]` values."""
        place = rows.T[self.which[members]][:, :, None].expand(-1, -1, self.n_actions)
        return self.tables[members].gather(1, place)

    def cases(self, rows: Any, weights: Sequence[Any], index: Any) -> list[Any]:
        """Returns for each of some weights `[m]` its sums `[S, N]` over the rows to which each centre is nearest."""
        torch, S, columns = self.memory.torch, self.centres.shape[1], self.memory.torch.stack(list(weights), dim=1)
        step = max(1, self.memory.values_at_once // max(1, len(rows) * S))
        state = torch.arange(S, device=self.memory.device)[None, :, None]
        parts = [
            blocked_product((rows.T[first : first + step, None] == state).double().reshape(-1, len(rows)).T, columns)
            for first in range(0, rows.shape[1], step)
        ]
        sums = torch.cat(parts).reshape(-1, S, len(weights))[self.which if index is None else self.which[index]]
        return [sums[:, :, i].T for i in range(len(weights))]

    def worth(self, action: int | None, index: Any) -> Any:
        """Returns `[S, N]` the value of an action at each centre, or the largest value there."""
        tables = self.tables if index is None else self.tables[index]
        return (tables.amax(dim=2) if action is None else tables[:, :, action]).T


class DecodersOnDevice(LevelByCases):
    """Decoders on a device: the four cases of a function are whether each of its two coordinates is on.

    Observations are turned back by a product of matrices. A row with a coordinate closer to 1/2 than its rounding is read
    by NumPy, so every coordinate is read as NumPy reads it.
    """

    terms = 128  # each of four cases is a sum of four shares, known up to 4 gamma; a variance weighs them with at most 4 W^2
    depth = 8

    def __init__(self, level: Decoders, memory: DeviceMemory):
        """Sends the parameters of all decoders to the device."""
        super().__init__(memory, level.size, level.n_actions, level.value_range)
        self.level = level
        self.parameters = [memory.send(p) for p in level.parameters()]  # i, j, a, b
        self.worths = memory.doubles(level.worth)
        self.rotation = None if level.rotation is None else memory.doubles(level.rotation)

    def prepared(self, batch: DeviceBatch) -> Any:
        """Returns `[m, D]` 1 where a coordinate is on and 0 where it is off."""
        x, D, rotation = self.memory.doubles(batch.x), self.level.n_coordinates, self.level.rotation
        if x.ndim != 2 or (x.shape[1] if rotation is None else rotation.shape[1]) < D:
            raise InvalidInput(f"these decoders read vectors of at least {D} coordinates; got shape {tuple(x.shape)}.")
        if self.rotation is None or rotation is None:
            return (x[:, :D] > 0.5).double()
        plain = x @ self.rotation[:, :D]
        length = x.square().sum(dim=1).sqrt() * self.rotation.square().sum(dim=0).max().sqrt()
        error = 4 * gamma(x.shape[1] + 2) * (roundoff(rotation, batch.x) / UNIT_ROUNDOFF) * length
        close = ~((plain - 0.5).abs() > error[:, None])  # true where something is not a number
        rows = np.flatnonzero(close.any(dim=1).cpu().numpy())
        on = (plain > 0.5).double()
        if len(rows):
            on[self.memory.send(rows)] = self.memory.doubles(self.level.coordinates(batch.x[rows]))
        return on

    def values(self, rows: Any, members: Any) -> Any:
        """Returns `[N, m, K]` values."""
        return values_of(self.memory.torch, rows, self.worths, *(p[members] for p in self.parameters))

    def cases(self, rows: Any, weights: Sequence[Any], index: Any) -> list[Any]:
        """Returns for each of some weights `[m]` its sums `[4, N]` over the rows of each case."""
        first, second = (p if index is None else p[index] for p in self.parameters[:2])
        tables = [blocked_product(rows, rows * w[:, None]) for w in weights]
        return [
            sums_by_case(self.memory.torch, table, w.sum(), first, second)
            for table, w in zip(tables, weights, strict=True)
        ]

    def worth(self, action: int | None, index: Any) -> Any:
        """Returns `[4, N]` the value of an action in each case, or the largest value there."""
        a, b = (p if index is None else p[index] for p in self.parameters[2:])
        of = self.worths.amax(dim=1) if action is None else self.worths[:, action]
        return worth_by_case(self.memory.torch, of, a, b)


def is_bounded(description: list[Any]) -> bool:
    """Whether `rounding_of` bounds the rounding of a network, described as `richobs.classes.networks.describe` does."""
    kind, content = description
    return all(is_bounded(part) for _, part in content) if kind == "Sequential" else kind in BOUNDED


def rounding_of(
    description: list[Any], parameters: Mapping[str, Any], size: Any, error: Any, prefix: str = ""
) -> tuple[Any, Any]:
    """Returns bounds on what layers compute and on its error, from bounds on what they are given.

    A linear layer with rows of absolute sum L and k terms maps an error e to L e + gamma(k) (L size + |bias|). Every other
    layer is a function with a known Lipschitz constant, evaluated up to a few units in the last place.

    Args:
        description: of the network, or a part of it.
        parameters: names to tensors `[N, ...]`.
        size: `[N]` largest |number| that is given to each network.
        error: `[N]` largest error of such a number.
        prefix: of the names of this part's parameters.
    """
    kind, content = description
    if kind == "Sequential":
        for name, part in content:
            size, error = rounding_of(part, parameters, size, error, f"{prefix}{name}.")
        return size, error
    if kind == "Linear":
        weight, bias = parameters[prefix + "weight"].double().abs(), parameters.get(prefix + "bias")
        row = weight.sum(dim=2).amax(dim=1)
        most = row * size + (0.0 if bias is None else bias.double().abs().amax(dim=1))
        error = row * error + gamma(weight.shape[2] + 2) * most
        return most + error, error
    steepest, few = BOUNDED[kind]
    slope = max(steepest, abs(content.get("negative_slope", 0.0)), abs(content.get("alpha", 0.0)))
    return slope * size + 1.0, slope * error + few * UNIT_ROUNDOFF * (slope * size + 1.0)


class NetworksOnDevice(DeviceLevel):
    """Networks on a device, a few at a time as one batch."""

    def __init__(self, level: NetworkLevel, description: list[Any], memory: DeviceMemory):
        """Sends the parameters to the device."""
        super().__init__(memory, level.size, level.n_actions, level.value_range)
        self.level, self.description = level, description
        self.parameters = {name: p.to(memory.device) for name, p in level.parameters.items()}
        self._widest = max(int(np.prod(p.shape[1:2])) for p in self.parameters.values())

    def prepared(self, batch: DeviceBatch) -> Any:
        """Returns the observations."""
        return self.memory.doubles(batch.x)

    def error(self, rows: Any) -> float:
        """Returns a bound on the error of every value."""
        torch = self.memory.torch
        size = torch.full((self.size,), float(rows.abs().max()), dtype=torch.float64, device=self.memory.device)
        return float(rounding_of(self.description, self.parameters, size, torch.zeros_like(size))[1].max()) * (1 + 1e-9)

    def values(self, rows: Any, members: Any) -> Any:
        """Returns `[N, m, K]` values."""
        torch = self.memory.torch
        chosen = {name: p[members] for name, p in self.parameters.items()}
        size = len(next(iter(chosen.values())))
        step = max(1, self.memory.values_at_once // max(1, len(rows) * self._widest))
        result = torch.empty((size, len(rows), self.n_actions), dtype=torch.float64, device=self.memory.device)
        for first in range(0, size, step):
            mine = {name: p[first : first + step] for name, p in chosen.items()}
            result[first : first + step] = self.level.evaluated(mine, rows)
        return clipped(result, self.level)


def _networks(level: NetworkLevel, memory: DeviceMemory) -> NetworksOnDevice | None:
    """Returns networks on a device; None where the rounding of a layer is not bounded, or they are Python code."""
    plain = None if level.architecture is None else json.loads(level.architecture)
    return NetworksOnDevice(level, plain, memory) if level.as_floats and plain and is_bounded(plain) else None


def _chosen(chosen: Chosen, memory: DeviceMemory) -> ChosenOnDevice | None:
    """Returns some functions of a level on a device, where the level can be there."""
    level = on_device(chosen.level_class, memory)
    return None if level is None else ChosenOnDevice(level, chosen)


# A class of a level -> what makes it on a device. It must bound the rounding of its values there (`DeviceLevel.error`).
LEVELS: dict[type, Callable[[Any, DeviceMemory], DeviceLevel | None]] = {
    Chosen: _chosen,
    TableLevel: TablesOnDevice,
    LinearLevel: LinearOnDevice,
    Prototypes: PrototypesOnDevice,
    Decoders: DecodersOnDevice,
    NetworkLevel: _networks,
}


class LinearBlocks(NamedTuple):
    """What the kernel says about every block of observations; tensors on the device."""

    v_mean: Any  # [B, N] mean of max_a f
    v_square: Any  # [B, N] sum of squares of max_a f about that mean
    u_mean: Any  # [B, N] mean of f(x, a) - r under the block's action
    u_square: Any  # [B, N] sum of squares about that mean
    clipped: Any  # [B, N] how many values lay outside the range


@functools.cache
def _linear_kernel() -> Any:
    """Returns a Triton kernel: linear functions and their moments in one pass; it is compiled when it is first launched.

    A program of the kernel multiplies a block of observations with a block of functions, takes the greedy maximum over
    actions and the residual of the action taken, and reduces both over its rows to a mean and a centred sum of squares, all
    in registers. Values never reach the memory. Blocks are merged afterwards, also centred. All arithmetic is in float64.
    Shapes: N functions, m observations, K actions, d features.
    """
    import triton
    import triton.language as tl

    def linear_blocks(  # type: ignore[no-untyped-def] # Triton reads annotations, and takes none of Python's
        theta,  # [K, d, N]
        phi,  # [B ROWS, d]
        rewards,  # [B ROWS]
        actions,  # [B] action of each block; K where none was taken
        counts,  # [B] rows of each block that count
        bounds,  # [2] smallest and largest value; Triton takes plain numbers as float32
        out,  # [B, 4, N]
        clipped,  # [B, N]
        N,
        K: tl.constexpr,
        D: tl.constexpr,
        ROWS: tl.constexpr,
        MEMBERS: tl.constexpr,
    ):
        block = tl.program_id(0)  # the axis that may have more than 65,535 programs
        members = tl.program_id(1) * MEMBERS + tl.arange(0, MEMBERS)
        inside = members < N
        row = tl.arange(0, ROWS)
        feature = tl.arange(0, D).to(tl.int64)  # places may pass 2^31
        n = tl.load(counts + block)
        action = tl.load(actions + block)
        low = tl.load(bounds)
        high = tl.load(bounds + 1)
        live = (row < n)[:, None]
        x = tl.load(phi + (block * ROWS + row)[:, None] * D + feature[None, :])
        r = tl.load(rewards + block * ROWS + row)
        best = tl.full((ROWS, MEMBERS), 0.0, tl.float64) + low
        u = tl.zeros((ROWS, MEMBERS), tl.float64)
        outside = tl.zeros((MEMBERS,), tl.int32)
        for a in tl.static_range(K):
            t = tl.load(theta + (a * D + feature)[:, None] * N + members[None, :], mask=inside[None, :], other=0.0)
            value = tl.dot(x, t, out_dtype=tl.float64)
            cut = tl.minimum(tl.maximum(value, low), high)
            outside += tl.sum(((cut != value) & live).to(tl.int32), axis=0)
            best = tl.maximum(best, cut)
            u = tl.where(action == a, cut, u)
        u = u - r[:, None]
        size = n.to(tl.float64)
        v_mean = tl.sum(tl.where(live, best, 0.0), axis=0) / size
        gap = tl.where(live, best - v_mean[None, :], 0.0)
        v_square = tl.sum(gap * gap, axis=0)
        u_mean = tl.sum(tl.where(live, u, 0.0), axis=0) / size
        gap = tl.where(live, u - u_mean[None, :], 0.0)
        u_square = tl.sum(gap * gap, axis=0)
        first = block.to(tl.int64) * N
        tl.store(out + first * 4 + members, v_mean, mask=inside)
        tl.store(out + first * 4 + N + members, v_square, mask=inside)
        tl.store(out + first * 4 + 2 * N + members, u_mean, mask=inside)
        tl.store(out + first * 4 + 3 * N + members, u_square, mask=inside)
        tl.store(clipped + first + members, outside, mask=inside)

    return triton.jit(linear_blocks)


class LinearRows(NamedTuple):
    """Observations in blocks of BLOCK_ROWS, as the kernel reads them; tensors on the device."""

    phi: Any  # [B BLOCK_ROWS, D] features; D is a power of two, rows and features that are filled up hold zeros
    rewards: Any  # [B BLOCK_ROWS]
    actions: Any  # [B] action of each block; K where none was taken
    counts: Any  # [B] rows of each block that count
    of_action: tuple[slice, ...]  # which blocks belong to each action that was taken, in order


def has_linear_kernel(memory: DeviceMemory, width: int) -> bool:
    """Whether the kernel can be used: on a GPU, with Triton, for so many features."""
    return memory.device.type == "cuda" and width <= MOST_FEATURES and find_spec("triton") is not None


def in_blocks(phi: Any, taken: Sequence[Taken], n_actions: int, torch: Any) -> LinearRows:
    """Returns observations in blocks, those of one block with the same action.

    Args:
        phi: `[m, d]` features.
        taken: the rows of each action; none where no action was taken.
        n_actions: number of actions K.
        torch: the module.
    """
    groups = [(t.action, t.rows, t.r_mean) for t in taken]
    if not groups:
        every = torch.arange(len(phi), device=phi.device)
        groups = [(n_actions, every, torch.zeros(len(phi), dtype=torch.float64, device=phi.device))]
    sizes = [-(-len(rows) // BLOCK_ROWS) for _, rows, _ in groups]
    B, width = sum(sizes), max(LEAST_FEATURES, 1 << (phi.shape[1] - 1).bit_length())
    filled = torch.zeros((B * BLOCK_ROWS, width), dtype=torch.float64, device=phi.device)
    rewards = torch.zeros(B * BLOCK_ROWS, dtype=torch.float64, device=phi.device)
    actions = torch.full((B,), n_actions, dtype=torch.int32, device=phi.device)
    counts = torch.full((B,), BLOCK_ROWS, dtype=torch.int32, device=phi.device)
    of_action, first = [], 0
    for (action, rows, r), size in zip(groups, sizes, strict=True):
        place = slice(first * BLOCK_ROWS, first * BLOCK_ROWS + len(rows))
        filled[place, : phi.shape[1]] = phi[rows]
        rewards[place] = r
        actions[first : first + size] = action
        counts[first + size - 1] = len(rows) - (size - 1) * BLOCK_ROWS
        if action < n_actions:
            of_action.append(slice(first, first + size))
        first += size
    return LinearRows(filled, rewards, actions, counts, tuple(of_action))


def linear_blocks(theta: Any, rows: LinearRows, value_range: tuple[float, float], torch: Any) -> LinearBlocks:
    """Evaluates linear functions on blocks of observations and reduces each block.

    Args:
        theta: `[K, D, N]` parameters, contiguous float64.
        rows: the observations.
        value_range: range to which values are cut.
        torch: the module.
    """
    K, D, N = theta.shape
    B = len(rows.counts)
    out = torch.empty((B, 4, N), dtype=torch.float64, device=theta.device)
    clipped = torch.empty((B, N), dtype=torch.int32, device=theta.device)
    bounds = torch.tensor(value_range, dtype=torch.float64, device=theta.device)
    given = (theta, rows.phi, rows.rewards, rows.actions, rows.counts, bounds, out, clipped, N)
    sizes = {"K": K, "D": D, "ROWS": BLOCK_ROWS, "MEMBERS": BLOCK_MEMBERS}
    with torch.cuda.device(theta.device):
        _linear_kernel()[B, -(-N // BLOCK_MEMBERS)](*given, **sizes, num_warps=WARPS)
    return LinearBlocks(out[:, 0], out[:, 1], out[:, 2], out[:, 3], clipped)

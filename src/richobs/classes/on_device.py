"""A class of functions whose moments are computed on a device; everything else is asked of the class itself."""

from typing import Any

from richobs.classes.device import DeviceBatch, DeviceLevel, DeviceMemory
from richobs.classes.layered import ByLevel
from richobs.core.functions import FunctionClass, ValueFunction
from richobs.core.moments import Batch, Moments
from richobs.core.policies import TIE
from richobs.core.types import Floats, Ints, Member, Observations
from richobs.core.units import UnitFunctions, Units


class OnDevice:
    """A class on a device. Levels whose rounding cannot be bounded are evaluated by the class itself.

    Tensors are made when they are first needed and are not pickled, so the object can be sent to another process.
    """

    def __init__(self, own: FunctionClass, device: str):
        """Takes the class and the name of the device."""
        self.own = own
        self.device = device
        self._memory: DeviceMemory | None = None
        self._levels: dict[int, DeviceLevel | None] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_memory": None, "_levels": {}}

    @property
    def horizon(self) -> int:
        """Number of levels H."""
        return self.own.horizon

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        return self.own.n_actions

    @property
    def is_product(self) -> bool:
        """Whether members are chosen independently at each level."""
        return self.own.is_product

    @property
    def log_size(self) -> float:
        """Natural logarithm of the number of functions."""
        return self.own.log_size

    @property
    def digest(self) -> str | None:
        """The digest of the class."""
        return self.own.digest

    @property
    def memory(self) -> DeviceMemory:
        """The device."""
        if self._memory is None:
            self._memory = DeviceMemory(self.device)
        return self._memory

    def level(self, level: int) -> DeviceLevel | None:
        """Returns the functions of a level on the device; None where the class itself has to evaluate them."""
        if level not in self._levels:
            self._levels[level] = _on_device(self.own, level, self.memory)
        return self._levels[level]

    def level_size(self, level: int, /) -> int:
        """Returns how many members there are at `level`."""
        return self.own.level_size(level)

    def values(self, level: int, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x`, by NumPy."""
        return self.own.values(level, x, members)

    def moments(self, level: int, batch: Batch, members: Ints | None = None, /) -> Moments:
        """Returns the moments of a batch at `level`, computed on the device where the class can be there."""
        on_device = self.level(level)
        if on_device is None:
            return self.own.moments(level, batch, members)
        return on_device.moments(DeviceBatch.of(batch, self.memory), members)

    def kinds(self, level: int, members: Ints, action: int, /) -> tuple[Ints, Ints]:
        """Groups members that agree on `action` and on max_a f at every observation, as the class itself does."""
        return self.own.kinds(level, members, action)

    def value_bounds(self, level: int, /) -> tuple[Floats, Floats]:
        """Returns `[N]` the smallest and the largest value that max_a f(x, a) takes for the members of `level`."""
        return self.own.value_bounds(level)

    def value_range(self, level: int, /) -> tuple[float, float]:
        """Returns the declared range of f(x, a) for all members of `level`."""
        return self.own.value_range(level)

    def member(self, member: Member, /) -> ValueFunction:
        """Returns one function of the class."""
        return self.own.member(member)


class UnitLevel(DeviceLevel):
    """The functions of a level in unit scale, as `richobs.core.units.unit_values` makes them."""

    def __init__(self, level: DeviceLevel, units: Units, number: int):
        """Takes the level in its own units, the units, and which level it is."""
        super().__init__(level.memory)
        self.level, self.units, self.number = level, units, number
        self.size, self.n_actions, self.largest = level.size, level.n_actions, 1.0

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


def _on_device(functions: FunctionClass, level: int, memory: DeviceMemory) -> DeviceLevel | None:
    """Returns a level on a device, or None."""
    if isinstance(functions, UnitFunctions):
        own = _on_device(functions.own, level, memory)
        return None if own is None else UnitLevel(own, functions.units, level)
    return memory.level(functions.levels[level]) if isinstance(functions, ByLevel) else None

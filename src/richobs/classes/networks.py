"""Networks: PyTorch modules as a class of functions, all of them evaluated as one batch.

PyTorch is imported when the first class is made, never by importing richobs. Shapes: N networks, n observations, K actions.
"""

import copy
import json
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from richobs.classes.base import UNIT, Arrays, Clipping, LevelClass, checked_members, codec, range_arrays, range_from
from richobs.classes.callables import as_array
from richobs.classes.layered import Listed
from richobs.core.errors import InvalidFile, InvalidInput
from richobs.core.types import Floats, Ints, Observations

MEMBERS_AT_ONCE = 256  # networks that are evaluated at once
ROWS_AT_ONCE = 4096  # observations that are evaluated at once
FORMAT = "richobs-networks"
PARAMETER = "parameter/"  # what names of parameters begin with in arrays

# Layers that files describe by their constructor's arguments, each the name of an attribute. Networks of other layers are
# Python code.
LAYERS: dict[str, tuple[str, ...]] = {
    "Linear": ("in_features", "out_features"),
    "Conv2d": ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode"),
    "LayerNorm": ("normalized_shape", "eps", "elementwise_affine"),
    "MaxPool2d": ("kernel_size", "stride", "padding"),
    "Flatten": ("start_dim", "end_dim"),
    "ELU": ("alpha",),
    "LeakyReLU": ("negative_slope",),
    "Softplus": ("beta", "threshold"),
    "GELU": ("approximate",),
    "ReLU": (),
    "SiLU": (),
    "Tanh": (),
    "Sigmoid": (),
    "Identity": (),
}
WITH_BIAS = ("Linear", "Conv2d", "LayerNorm")

Evaluate = Callable[[Mapping[str, Any], Any], Any]  # (parameters of one network, observations) to [n, K] values


def pytorch() -> Any:
    """Returns the module `torch`.

    Raises:
        InvalidInput: it is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise InvalidInput("networks need PyTorch, which is not installed: pip install 'richobs[torch]'.") from error
    return torch


def describe(module: Any) -> str | None:
    """Returns a module as text from which `rebuilt` makes it again, without its numbers; None where that is not possible.

    It is possible for `torch.nn.Sequential` of the layers in LAYERS, also nested.
    """
    plain = _description(module, pytorch().nn)
    return None if plain is None else json.dumps(plain)


def _description(module: Any, nn: Any) -> list[Any] | None:
    kind = type(module).__name__
    if type(module) is nn.Sequential:
        parts = [[name, _description(child, nn)] for name, child in module.named_children()]
        return None if any(part is None for _, part in parts) else ["Sequential", parts]
    if kind not in LAYERS or type(module) is not vars(nn).get(kind):
        return None
    options = {name: getattr(module, name) for name in LAYERS[kind]}
    if kind in WITH_BIAS:
        options["bias"] = module.bias is not None
    return [kind, options]


def rebuilt(description: str) -> Any:
    """Returns the module that `describe` described, with numbers that mean nothing.

    Raises:
        InvalidInput: the text describes something else.
    """
    try:
        return _rebuilt(json.loads(description), pytorch().nn)
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise InvalidInput(f"this does not describe a network that richobs wrote: {error}") from error


def _rebuilt(plain: Any, nn: Any) -> Any:
    kind, content = plain
    if kind == "Sequential":
        return nn.Sequential(OrderedDict((str(name), _rebuilt(part, nn)) for name, part in content))
    allowed = (*LAYERS[kind], *(("bias",) if kind in WITH_BIAS else ()))
    options = {name: tuple(v) if isinstance(v, list) else v for name, v in content.items() if name in allowed}
    return vars(nn)[kind](**options)


@codec
class NetworkLevel(LevelClass):
    """N networks of one shape at one level, each with parameters of its own.

    Networks are evaluated in double precision, whatever the precision of their parameters: values then depend on the batch
    by rounding of float64 alone. A choice between actions whose values are closer than that is not safe
    (docs/classes.md). Random layers and layers that learn are switched off (`eval`).
    """

    values_are_checked = True

    code = "networks"

    def __init__(
        self,
        modules: Sequence[Any],
        n_actions: int,
        *,
        value_range: tuple[float, float] = UNIT,
        as_floats: bool = True,
        device: str = "cpu",
    ):
        """Takes the networks.

        Args:
            modules: `torch.nn.Module`s of one architecture; each maps observations `[n, ...]` to values `[n, K]`.
            n_actions: number of actions K.
            value_range: range to which values are cut; `clipping` counts how often.
            as_floats: turn observations into float64; False for networks that read whole numbers.
            device: where they are evaluated, as PyTorch names it.
        """
        torch = pytorch()
        if not modules:
            raise InvalidInput("a class needs at least one network; the list is empty.")
        for i, module in enumerate(modules):
            if not isinstance(module, torch.nn.Module):
                raise InvalidInput(f"network {i} is a {type(module).__name__}; a torch.nn.Module is needed.")
        names = [{name: tuple(p.shape) for name, p in m.state_dict().items()} for m in modules]
        for i, shapes in enumerate(names):
            if shapes != names[0] or str(modules[i]) != str(modules[0]):
                raise InvalidInput(f"network {i} is built differently from network 0; give them as two classes.")
        try:
            parameters, buffers = torch.func.stack_module_state(list(modules))
        except RuntimeError as error:  # some in training and some not, or on several devices
            raise InvalidInput(f"these networks cannot be evaluated as one batch: {error}") from error
        stacked = {name: p.detach() for name, p in {**parameters, **buffers}.items()}
        evaluate = _function_of(copy.deepcopy(modules[0]).to(device))
        self._set(evaluate, stacked, n_actions, value_range, as_floats, device, describe(modules[0]))

    @classmethod
    def of_function(
        cls,
        function: Evaluate,
        parameters: Mapping[str, Any],
        n_actions: int,
        *,
        value_range: tuple[float, float] = UNIT,
        as_floats: bool = True,
        device: str = "cpu",
    ) -> "NetworkLevel":
        """Returns the class of one function with N sets of parameters.

        Args:
            function: maps the parameters of one network and observations `[n, ...]`, all tensors, to values `[n, K]`. It
                must be one that `torch.func.vmap` can evaluate.
            parameters: names to tensors or arrays `[N, ...]`.
            n_actions: number of actions K.
            value_range: as for the constructor.
            as_floats: as for the constructor.
            device: as for the constructor.
        """
        torch = pytorch()
        stacked = {name: torch.as_tensor(as_array(p)) for name, p in parameters.items()}
        if not stacked or len({len(p) for p in stacked.values()}) != 1:
            sizes = {name: tuple(p.shape) for name, p in stacked.items()}
            raise InvalidInput(f"parameters must be tensors [N, ...] with one N; got {sizes}.")
        level = cls.__new__(cls)
        level._set(function, stacked, n_actions, value_range, as_floats, device, None)
        return level

    def _set(
        self,
        evaluate: Evaluate,
        parameters: dict[str, Any],
        n_actions: int,
        value_range: tuple[float, float],
        as_floats: bool,
        device: str,
        architecture: str | None,
    ) -> None:
        """Keeps what both ways of making a class need."""
        if n_actions < 1:
            raise InvalidInput(f"n_actions must be at least 1; got {n_actions}.")
        if not parameters:
            raise InvalidInput("these networks have no parameters, so all of them are the same; use richobs.Callables.")
        self._evaluate = evaluate
        self.parameters = {name: _at_least_single(p.to(device)) for name, p in parameters.items()}  # tensors [N, ...]
        self.size, self.n_actions = len(next(iter(self.parameters.values()))), n_actions
        self.as_floats = as_floats
        self.device = device
        self.architecture = architecture  # None where the networks are Python code
        self.clipping = Clipping(value_range)
        self.value_range = self.clipping.low, self.clipping.high

    def values(self, x: Observations, members: Ints | None = None, /) -> Floats:
        """Returns `[N, n, K]` the values at `x` of all networks, or of those listed in `members`.

        Raises:
            InvalidInput: a network returns another shape, or values that are not numbers.
        """
        torch = pytorch()
        chosen = checked_members(members, self.size)
        given = np.ascontiguousarray(x, dtype=np.float64) if self.as_floats else np.ascontiguousarray(x)
        result = np.empty((len(chosen), len(x), self.n_actions))
        with torch.no_grad():
            for first in range(0, len(chosen), MEMBERS_AT_ONCE):
                part = torch.as_tensor(chosen[first : first + MEMBERS_AT_ONCE], device=self.device)
                mine = {name: p[part] for name, p in self.parameters.items()}
                for row in range(0, len(x), ROWS_AT_ONCE):
                    rows = torch.tensor(given[row : row + ROWS_AT_ONCE], device=self.device)
                    out = np.asarray(as_array(self.evaluated(mine, rows)), dtype=np.float64)
                    result[first : first + len(part), row : row + len(rows)] = out
        return self.clipping(result, "a network")

    def evaluated(self, parameters: Mapping[str, Any], rows: Any) -> Any:
        """Returns `[m, n, K]` the values of m networks with given parameters, not cut to the range.

        Args:
            parameters: names to tensors `[m, ...]`; they are used in double precision.
            rows: tensor `[n, ...]` of observations.

        Raises:
            InvalidInput: a network returns another shape.
        """
        torch = pytorch()
        doubled = {name: p.to(torch.float64) if p.is_floating_point() else p for name, p in parameters.items()}
        out = torch.func.vmap(self._evaluate, in_dims=(0, None))(doubled, rows)
        shape = (len(rows), self.n_actions)
        if tuple(out.shape[1:]) != shape:
            raise InvalidInput(
                f"a network must return [n, K] = {shape} values; it returned shape {tuple(out.shape[1:])}."
            )
        return out

    def singleton(self, member: int, /) -> "NetworkLevel":
        """Returns the class that holds one of these networks."""
        (one,) = checked_members(np.array([member]), self.size)
        result = copy.copy(self)
        result.size = 1
        result.parameters = {name: p[int(one) : int(one) + 1] for name, p in self.parameters.items()}
        result.clipping = Clipping(self.value_range)
        return result

    def to_arrays(self) -> Arrays:
        """Returns the architecture as text, the parameters `[N, ...]` of every layer, and how they are evaluated.

        Raises:
            InvalidInput: the networks are Python code: a function, or layers that are not in LAYERS.
        """
        if self.architecture is None:
            return super().to_arrays()  # raises
        facts = {
            "architecture": np.array(self.architecture),
            "n_actions": np.array(self.n_actions),
            "as_floats": np.array(self.as_floats),
        }
        numbers = {PARAMETER + name: np.asarray(as_array(p)) for name, p in self.parameters.items()}
        return {**facts, **numbers, **range_arrays(self.value_range)}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Returns the class that `to_arrays` took apart; it is evaluated on the CPU."""
        torch = pytorch()
        stacked = {
            name.removeprefix(PARAMETER): torch.tensor(a) for name, a in arrays.items() if name.startswith(PARAMETER)
        }
        return cls._of_architecture(
            str(np.asarray(arrays["architecture"]).ravel()[0]),
            stacked,
            int(np.asarray(arrays["n_actions"]).ravel()[0]),
            range_from(arrays),
            bool(np.asarray(arrays["as_floats"]).ravel()[0]),
        )

    @classmethod
    def _of_architecture(
        cls,
        architecture: str,
        parameters: dict[str, Any],
        n_actions: int,
        value_range: tuple[float, float],
        as_floats: bool,
    ) -> Self:
        module = rebuilt(architecture)
        wanted = {name: tuple(p.shape) for name, p in module.state_dict().items()}
        given = {name: tuple(p.shape[1:]) for name, p in parameters.items()}
        if wanted != given or len({len(p) for p in parameters.values()}) != 1:
            raise InvalidInput(f"the parameters do not fit the architecture: {given} arrived and {wanted} are needed.")
        level = cls.__new__(cls)
        level._set(_function_of(module), parameters, n_actions, value_range, as_floats, "cpu", architecture)
        return level


def _function_of(module: Any) -> Evaluate:
    """Returns what a module computes in double precision, as a function of its parameters and observations."""
    template, call = module.eval().double(), pytorch().func.functional_call
    return lambda parameters, x: call(template, dict(parameters), (x,))


def _at_least_single(tensor: Any) -> Any:
    """Returns numbers of half precision in single precision, which changes none of them; NumPy reads that."""
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() < 4 else tensor


class Networks(Listed):
    """N networks of one architecture, each used at every level."""

    def __init__(
        self,
        modules: Sequence[Any],
        horizon: int,
        n_actions: int,
        *,
        value_range: tuple[float, float] = UNIT,
        as_floats: bool = True,
        device: str = "cpu",
    ):
        """Takes the networks. For other networks at every level, make a `Listed` of `NetworkLevel`.

        Args:
            modules: `torch.nn.Module`s of one architecture; each maps observations `[n, ...]` to values `[n, K]`.
            horizon: number of levels H.
            n_actions: number of actions K.
            value_range: range to which values are cut; `clipped` counts how often.
            as_floats: turn observations into float64; False for networks that read whole numbers.
            device: where they are evaluated, as PyTorch names it.
        """
        level = NetworkLevel(modules, n_actions, value_range=value_range, as_floats=as_floats, device=device)
        self._share(level, horizon)

    @classmethod
    def of_function(
        cls,
        function: Evaluate,
        parameters: Mapping[str, Any],
        horizon: int,
        n_actions: int,
        *,
        value_range: tuple[float, float] = UNIT,
        as_floats: bool = True,
        device: str = "cpu",
    ) -> "Networks":
        """Returns the class of one function with N sets of parameters, as `NetworkLevel.of_function` takes them."""
        level = NetworkLevel.of_function(
            function, parameters, n_actions, value_range=value_range, as_floats=as_floats, device=device
        )
        return cls._of_level(level, horizon)

    @classmethod
    def _of_level(cls, level: NetworkLevel, horizon: int) -> "Networks":
        functions = cls.__new__(cls)
        functions._share(level, horizon)
        return functions

    def _share(self, level: NetworkLevel, horizon: int) -> None:
        """Uses one level for all."""
        if horizon < 1:
            raise InvalidInput(f"horizon must be at least 1; got {horizon}.")
        self.level = level
        super().__init__([level] * horizon)

    @property
    def clipped(self) -> tuple[int, int]:
        """How many values lay outside the range so far, and how many were computed."""
        return self.level.clipping.n_clipped, self.level.clipping.n_values

    def save(self, file: str | os.PathLike[str], /) -> None:
        """Writes parameters and architecture to a safetensors file.

        Raises:
            InvalidInput: the networks are Python code.
        """
        arrays = self.level.to_arrays()
        facts = {
            "format": FORMAT,
            "architecture": self.level.architecture or "",
            "horizon": str(self.horizon),
            "n_actions": str(self.n_actions),
            "as_floats": json.dumps(self.level.as_floats),
            "value_range": json.dumps(self.level.value_range),
        }
        numbers = {name: p for name, p in arrays.items() if name.startswith(PARAMETER)}
        _safetensors().save_file({name: np.ascontiguousarray(p) for name, p in numbers.items()}, os.fspath(file), facts)

    @classmethod
    def load(cls, file: str | os.PathLike[str], /) -> "Networks":
        """Returns the class that `save` wrote.

        Raises:
            InvalidFile: the file is damaged or holds something else.
        """
        torch = pytorch()
        numpy_files = _safetensors()
        from safetensors import safe_open

        if not os.path.exists(file):
            raise FileNotFoundError(file)
        try:
            with safe_open(os.fspath(file), framework="numpy") as stored:
                facts = stored.metadata() or {}
            if facts.get("format") != FORMAT:
                raise InvalidFile(f"{file} is not a {FORMAT} file: its header says {facts}.")
            arrays = numpy_files.load_file(os.fspath(file))
            level = NetworkLevel._of_architecture(
                facts["architecture"],
                {name.removeprefix(PARAMETER): torch.tensor(a) for name, a in arrays.items()},
                int(facts["n_actions"]),
                range_from({"value_range": np.array(json.loads(facts["value_range"]))}),
                bool(json.loads(facts["as_floats"])),
            )
            return cls._of_level(level, int(facts["horizon"]))
        except InvalidFile:
            raise
        except Exception as error:  # whatever else a damaged or hostile file leads to
            raise InvalidFile(f"{file} does not hold networks that richobs wrote: {error}") from error


def _safetensors() -> Any:
    """Returns the part of safetensors that reads and writes arrays."""
    try:
        import safetensors.numpy as files
    except ImportError as error:
        raise InvalidInput(
            "files of networks need safetensors, which is not installed: pip install 'richobs[torch]'."
        ) from error
    return files

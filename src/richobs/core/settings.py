"""What a run is asked to do, apart from the problem."""

import ast
import dataclasses
import inspect
import itertools
import math
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from richobs.core.arguments import checked_workers, real_number, whole_number
from richobs.core.errors import InvalidInput
from richobs.core.events import fits
from richobs.core.problem import checked_accuracy

LARGEST_COUNT = 2**63 - 1  # of episodes and states: what an integer of NumPy holds
LONGEST_CALL = 1e8  # seconds: what alarms and waits take
DEVICE = re.compile(r"cpu|cuda(:\d{1,3})?")
MAY_CHANGE = frozenset({"max_episodes", "workers"})  # a stored run may go on with other values


@dataclass(frozen=True)
class Settings:
    """What a run is asked to do, apart from the problem; it is part of the certificate."""

    epsilon: float = 0.1
    """Largest allowed gap between the policy's value and the optimal value V*."""
    delta: float = 0.05
    """Probability that the claim is false."""
    learner: str = "betting"
    """Who learns: `betting` takes a few hundred episodes; `richobs learners` lists all."""
    engine: str = "auto"
    """Who plays: `stream` plays episodes one by one, `counted` draws how often each occurs, `auto` asks the learner."""
    seed: int = 0
    """Seed of every draw."""
    n_states: int | None = None
    """Bound M on the latent states per level; by default what the problem says."""
    max_episodes: int | None = None
    """Play at most this many episodes. Some learners then claim what they can, others stop. A stored run can go on later."""
    workers: int = 1
    """Threads or processes that share the episodes. They do not change the result; see docs/scale.md."""
    threshold: float | None = None
    """Stop as soon as a policy is certified to be worth this, or no policy can be; in the units of the rewards."""
    tolerance: tuple[float, ...] = ()
    """How far the truth may be from the class: |f - Q*| for the nearest f, in units of reward, once or per level; for
    `models` the total variation between the real laws and those of the nearest model; for `linear` the distance of means
    from a linear function of the features. By default the class holds it."""
    timeout: float | None = dataclasses.field(default=None, compare=False)
    """Stop where one call of an environment takes more seconds than this. It changes no result and is not stored."""
    device: str | None = None
    """Evaluate functions with PyTorch on this device: `cuda`, or `cpu` for the same code without a GPU (docs/scale.md)."""
    tuning: tuple[str, ...] = ()
    """Numbers of the learner's own, as name=value; `richobs learners NAME` lists them."""

    def __post_init__(self) -> None:
        for name in ("seed", "n_states", "max_episodes", "workers"):
            value = getattr(self, name)
            if value is None and name in ("n_states", "max_episodes"):
                continue
            object.__setattr__(self, name, whole_number(name, value, least=None))  # NumPy's integers become Python's
        for name in ("epsilon", "delta", "threshold", "timeout"):
            value = getattr(self, name)
            if value is None and name in ("threshold", "timeout"):
                continue
            number = real_number(name, value)
            if type(value) not in (int, float):  # NumPy's numbers become Python's
                object.__setattr__(self, name, number)
        given: Any = self.tolerance
        several = isinstance(given, list | tuple) or getattr(given, "ndim", 0) == 1
        tolerances = tuple(real_number("tolerance", number) for number in (given if several else (given,)))
        object.__setattr__(self, "tolerance", tolerances if any(tolerances) else ())
        object.__setattr__(self, "tuning", tuple(sorted(write_tuning(self.tuning))))

    def check(self) -> None:
        """Raises `InvalidInput` where a value is impossible for every run."""
        checked_accuracy(self.epsilon, self.delta, math.inf)
        for name, text in (("learner", self.learner), ("engine", self.engine)):
            if not isinstance(text, str):
                raise InvalidInput(f"{name} must be the name of one; got {text!r}.")
        if self.device is not None:
            check_device_name(self.device)
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise InvalidInput(f"threshold must be a finite number; got {self.threshold!r}.")
        if not all(0 <= number < math.inf for number in self.tolerance):
            arrived = ", ".join(map(repr, self.tolerance))
            raise InvalidInput(f"tolerance must be a number that is at least 0, or one per level; got {arrived}.")
        if self.timeout is not None and not 0 < self.timeout <= LONGEST_CALL:
            raise InvalidInput(
                f"timeout must be a number of seconds above 0, at most {LONGEST_CALL:g}; got {self.timeout!r}."
            )
        checked_workers(self.workers)
        for name, value in (("max_episodes", self.max_episodes), ("n_states", self.n_states)):
            if value is not None:
                whole_number(name, value, least=1, most=LARGEST_COUNT)

    def as_plain(self) -> dict[str, Any]:
        """Returns the settings in plain values, but for `timeout`; without `device` and `tolerance` where there is none."""
        plain = {**dataclasses.asdict(self), "tuning": list(self.tuning), "tolerance": list(self.tolerance)}
        del plain["timeout"]  # of a process, not of a run
        return {name: value for name, value in plain.items() if name not in ("device", "tolerance") or value}


Record = TypeVar("Record")


def read_record(kind: type[Record], values: Any) -> Record:
    """Returns a dataclass of plain values from anybody; a list stands for a tuple.

    Raises:
        TypeError: a field is missing or unknown, or its value is of another type than is declared, or not finite.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"it is a {type(values).__name__}, not the fields of a {kind.__name__}")
    hints = typing.get_type_hints(kind)
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    for name, value in given.items():
        is_finite = not isinstance(value, float) or math.isfinite(value)
        if name not in hints or not fits(value, hints[name]) or not is_finite:
            raise TypeError(f"{name!r:.80} of {kind.__name__} is {value!r:.80}")
    return kind(**given)


Tuned = TypeVar("Tuned")


def read_tuning(pairs: tuple[str, ...], kind: type[Tuned], learner: str) -> Tuned:
    """Returns a learner's tuning, an instance of the dataclass `kind`, from 'name=value' pairs.

    Raises:
        InvalidInput: a name that the learner does not have, or a value of another type.
    """
    kinds = typing.get_type_hints(kind)
    given: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or name in given:
            raise InvalidInput(f"tuning: {pair!r} should read name=value, each name once.")
        if name not in kinds:
            has = f"it has {', '.join(kinds)}" if kinds else "it has nothing to tune"
            raise InvalidInput(f"the learner {learner!r} has no tuning {name!r}; {has}.")
        options = typing.get_args(kinds[name])
        try:
            given[name] = text if options else kinds[name](text)
        except ValueError:
            raise InvalidInput(f"tuning: {name} must be {kinds[name].__name__}; got {text!r}.") from None
        if options and text not in options:
            raise InvalidInput(f"tuning: {name} must be one of {', '.join(options)}; got {text!r}.")
    return kind(**given)


def write_tuning(given: Any) -> tuple[str, ...]:
    """Returns tuning as 'name=value' pairs, from a dataclass, a mapping, or pairs; defaults are left out."""
    if given is None:
        return ()
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        return tuple(
            f"{f.name}={getattr(given, f.name)}"
            for f in dataclasses.fields(given)
            if getattr(given, f.name) != f.default
        )
    if isinstance(given, Mapping):
        return tuple(f"{name}={value}" for name, value in given.items())
    if isinstance(given, list | tuple) and all(isinstance(pair, str) for pair in given):
        return tuple(given)
    raise InvalidInput(f"tuning must be a learner's Tuning, a dictionary, or a list of 'name=value'; got {given!r}.")


def field_docs(config: type[Any]) -> dict[str, str]:
    """Returns what the string under each field of a dataclass says, in the order of the fields."""
    module = inspect.getmodule(config)  # `inspect.getsource` of a class parses all of its file too, and takes longer
    lines = ast.parse("" if module is None else inspect.getsource(module)).body
    found = next((one for one in lines if isinstance(one, ast.ClassDef) and one.name == config.__qualname__), None)
    body = (found or typing.cast("ast.ClassDef", ast.parse(inspect.getsource(config)).body[0])).body
    return {
        ast.unparse(line.target): str(ast.literal_eval(text.value))
        for line, text in itertools.pairwise(body)
        if isinstance(line, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def check_device_name(name: object) -> None:
    """Raises `InvalidInput` where `name` is not "cpu", "cuda" or "cuda:1"; whether it is there is not asked."""
    if not (isinstance(name, str) and DEVICE.fullmatch(name)):
        raise InvalidInput(
            f"device must be 'cuda', 'cuda:1' (the second one) or 'cpu' (the same code without a GPU); got {name!r}. Leave "
            "it out to compute with NumPy."
        )

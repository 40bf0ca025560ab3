"""Expressions in unknown parameters: written once as plain arithmetic, evaluated at points and as Taylor models of cells.

A user's function is called with `Expression` objects in place of numbers and computes with them. What it did is kept as a
graph in which equal expressions are one node, and affine ones are their coefficients. Shapes: d parameters, E expressions
that are wanted, P points, C cells.
"""

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from richobs.classes import taylor
from richobs.classes.taylor import Taylor
from richobs.core.errors import InvalidInput
from richobs.core.types import Floats, Ints, Mask

FUNCTIONS = "+ - * / **, abs, and NumPy's exp, log, sqrt, maximum and minimum (not those of math)"


class Node(NamedTuple):
    """One operation: its name, what it takes, and numbers that belong to it. An affine one has its coefficients only."""

    op: str
    args: tuple[int, ...] = ()  # places of nodes before it
    numbers: tuple[float, ...] = ()


class Graph:
    """All expressions in d parameters, equal ones once."""

    def __init__(self, d: int):
        self.d = d
        self.nodes: list[Node] = []
        self._place: dict[Node, int] = {}

    def parameter(self, i: int) -> "Expression":
        """Returns the i-th parameter."""
        return self.affine((0.0, *(float(j == i) for j in range(self.d))))

    def affine(self, coefficients: Sequence[float]) -> "Expression":
        """Returns the expression with a constant and d slopes."""
        return self.add(Node("affine", (), tuple(float(c) + 0.0 for c in coefficients)))

    def add(self, node: Node) -> "Expression":
        """Returns the expression of a node, the same one for equal nodes."""
        place = self._place.setdefault(node, len(self.nodes))
        if place == len(self.nodes):
            self.nodes.append(node)
        return Expression(self, place)

    def of(self, value: Any) -> "Expression":
        """Returns a number, or an expression of this graph, as an expression."""
        if isinstance(value, Expression):
            if value.graph is not self:
                raise InvalidInput(
                    "make returned something of an earlier call. It must keep nothing between its calls."
                )
            return value
        try:
            number = float(operator.index(value)) if isinstance(value, bool | int | np.integer) else float(value)
        except (TypeError, ValueError):
            raise InvalidInput(
                f"a family computes with numbers and parameters, one at a time; got {value!r:.60}."
            ) from None
        if not math.isfinite(number):
            raise InvalidInput(f"a family computes with finite numbers; got {number}.")
        return self.affine((number, *(0.0,) * self.d))


def _refuse(what: str) -> NoReturn:
    raise InvalidInput(
        f"{what} a parameter of a family: its value is not known, so code cannot branch on it. Write probabilities with "
        f"{FUNCTIONS}, and with Family.poisson, Family.binomial and Family.phi. Where they are affine in the parameters, "
        "Family(affine=True) takes any code. What is neither can be a list of structures, such as "
        'theta={"kind": ["a", "b"]}, or a grid, richobs.Simulators.grid.'
    )


class Expression:
    """A number that depends on parameters; it cannot be compared, or turned into a number."""

    __slots__ = ("graph", "place")

    def __init__(self, graph: Graph, place: int):
        self.graph, self.place = graph, place

    @property
    def coefficients(self) -> tuple[float, ...] | None:
        """The constant and d slopes of an affine expression; None for any other."""
        node = self.graph.nodes[self.place]
        return node.numbers if node.op == "affine" else None

    @property
    def constant(self) -> float | None:
        """The number that it always is; None where it depends on parameters."""
        own = self.coefficients
        return own[0] if own is not None and not any(own[1:]) else None

    def __hash__(self) -> int:
        return hash((id(self.graph), self.place))

    def __repr__(self) -> str:
        return "a parameter of a family" if self.constant is None else repr(self.constant)

    def _apply(self, op: str, *args: "Expression", numbers: tuple[float, ...] = ()) -> "Expression":
        """Returns the expression of an operation; one of constants is computed."""
        known = [arg.constant for arg in args]
        if all(value is not None for value in known):
            with np.errstate(all="ignore"):
                value = OPERATIONS[op].plain([np.array([v], dtype=np.float64) for v in known], numbers)
            return self.graph.of(float(value[0]))
        return self.graph.add(Node(op, tuple(arg.place for arg in args), numbers))

    def __add__(self, other: Any) -> "Expression":
        other = self.graph.of(other)
        a, b = self.coefficients, other.coefficients
        if a is not None and b is not None:
            return self.graph.affine([x + y for x, y in zip(a, b, strict=True)])
        if self.constant == 0:
            return other
        return self if other.constant == 0 else self._apply("add", *sorted((self, other), key=lambda e: e.place))

    def __mul__(self, other: Any) -> "Expression":
        other = self.graph.of(other)
        for a, b in ((self, other), (other, self)):
            if a.constant is not None:
                if b.coefficients is not None:
                    return self.graph.affine([a.constant * x for x in b.coefficients])
                if a.constant in (0.0, 1.0):
                    return b if a.constant else a
        return self._apply("mul", *sorted((self, other), key=lambda e: e.place))

    def __neg__(self) -> "Expression":
        return self * -1.0

    def __pos__(self) -> "Expression":
        return self

    def __sub__(self, other: Any) -> "Expression":
        return self + self.graph.of(other) * -1.0

    def __rsub__(self, other: Any) -> "Expression":
        return self.graph.of(other) - self

    def __truediv__(self, other: Any) -> "Expression":
        other = self.graph.of(other)
        if other.constant == 0:
            raise InvalidInput("a family divides by 0.")
        return self * (1 / other.constant if other.constant is not None else self._apply("reciprocal", other))

    def __rtruediv__(self, other: Any) -> "Expression":
        return self.graph.of(other) / self

    def __pow__(self, other: Any) -> "Expression":
        p = self.graph.of(other)
        if p.constant is None:
            return (self._apply("log", self) * p).exp()
        if p.constant in (0.0, 1.0):
            return self if p.constant else self.graph.of(1.0)
        return self._apply("power", self, numbers=(p.constant,))

    def __rpow__(self, other: Any) -> "Expression":
        return self.graph.of(other) ** self

    def __abs__(self) -> "Expression":
        return self._apply("max", self, -self)

    def exp(self) -> "Expression":
        """Returns e to this power."""
        return self._apply("exp", self)

    def _comparison(self, other: Any = None) -> NoReturn:
        _refuse("code compared, or tested,")

    def _number(self) -> NoReturn:
        _refuse("code asked for the value of")

    __radd__, __rmul__ = __add__, __mul__
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _comparison
    __float__ = __int__ = __index__ = __round__ = __floor__ = __ceil__ = __trunc__ = _number
    __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __divmod__ = _comparison

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> "Expression":
        """Answers NumPy's functions of one number; arrays of expressions are lists here."""
        known = UFUNCS.get(function.__name__)
        if known is None or method != "__call__" or options:
            raise InvalidInput(f"a family knows no numpy.{function.__name__}; it knows {FUNCTIONS}.")
        return known(*(self.graph.of(given) for given in inputs))


UFUNCS: dict[str, Callable[..., Expression]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "power": operator.pow,
    "float_power": operator.pow,
    "negative": operator.neg,
    "absolute": abs,
    "square": lambda x: x**2,
    "exp": lambda x: x.exp(),
    "log": lambda x: x._apply("log", x),
    "sqrt": lambda x: x._apply("sqrt", x),
    "maximum": lambda x, y: x._apply("max", x, y),
    "minimum": lambda x, y: -x._apply("max", -x, -y),
}


class Operation(NamedTuple):
    """How an operation is computed: of numbers, and of Taylor models."""

    plain: Callable[[list[Floats], tuple[float, ...]], Floats]
    model: Callable[[list[Taylor], tuple[float, ...]], Taylor]


def _tail(rate: Floats, k: int) -> Floats:
    return np.asarray(1 - sum((taylor.poisson_law(rate, j) for j in range(k)), np.zeros_like(rate)))


OPERATIONS = {
    "add": Operation(lambda x, n: x[0] + x[1], lambda x, n: x[0] + x[1]),
    "mul": Operation(lambda x, n: x[0] * x[1], lambda x, n: x[0] * x[1]),
    "reciprocal": Operation(lambda x, n: 1 / x[0], lambda x, n: taylor.reciprocal(x[0])),
    "power": Operation(lambda x, n: x[0] ** n[0], lambda x, n: taylor.power(x[0], n[0])),
    "exp": Operation(lambda x, n: np.exp(x[0]), lambda x, n: taylor.exp(x[0])),
    "log": Operation(lambda x, n: np.log(x[0]), lambda x, n: taylor.log(x[0])),
    "sqrt": Operation(lambda x, n: np.sqrt(np.maximum(x[0], 0)), lambda x, n: taylor.sqrt(x[0])),
    "max": Operation(lambda x, n: np.maximum(x[0], x[1]), lambda x, n: taylor.larger(x[0], x[1])),
    "phi": Operation(lambda x, n: taylor.normal(x[0]), lambda x, n: taylor.phi(x[0])),
    "poisson": Operation(
        lambda x, n: taylor.poisson_law(x[0], int(n[0])), lambda x, n: taylor.poisson(x[0], int(n[0]))
    ),
    "tail": Operation(lambda x, n: _tail(x[0], int(n[0])), lambda x, n: taylor.poisson(x[0], int(n[0]), tail=True)),
    "binomial": Operation(
        lambda x, n: taylor.binomial_law(int(n[1]))(x[0], int(n[0]), 0),
        lambda x, n: taylor.binomial(x[0], int(n[0]), int(n[1])),
    ),
}


class Program:
    """Expressions that are evaluated together: nodes of one depth and one operation at once."""

    def __init__(self, graph: Graph, wanted: Sequence[int]):
        """Takes the graph and `[E]` the places of the nodes that are wanted."""
        self.d = graph.d
        self.places = tuple(wanted)  # [E]
        needed: set[int] = set()
        stack = list(wanted)
        while stack:
            place = stack.pop()
            if place not in needed:
                needed.add(place)
                stack.extend(graph.nodes[place].args)
        depth: dict[int, int] = {}
        for place in sorted(needed):  # arguments come first
            depth[place] = 1 + max((depth[arg] for arg in graph.nodes[place].args), default=-1)
        order = sorted(needed, key=lambda p: (depth[p], graph.nodes[p].op, graph.nodes[p].numbers, p))
        affine = [p for p in order if graph.nodes[p].op == "affine"]
        order = affine + [p for p in order if graph.nodes[p].op != "affine"]
        place_of = {p: i for i, p in enumerate(order)}
        self.coefficients: Floats = np.array([graph.nodes[p].numbers for p in affine]).reshape(-1, self.d + 1)
        self.groups: list[tuple[slice, str, tuple[float, ...], list[Ints]]] = []
        rest = order[len(affine) :]
        first = len(affine)
        for (_, op, numbers), group in itertools.groupby(
            rest, key=lambda p: (depth[p], graph.nodes[p].op, graph.nodes[p].numbers)
        ):
            members = list(group)
            args = [
                np.array([place_of[graph.nodes[p].args[k]] for p in members])
                for k in range(len(graph.nodes[members[0]].args))
            ]
            self.groups.append((slice(first, first + len(members)), op, numbers, args))
            first += len(members)
        self.wanted: Ints = np.array([place_of[p] for p in wanted], dtype=np.int64)
        self.is_affine: Mask = self.wanted < len(affine)
        self._size = first

    def at(self, points: Floats) -> Floats:
        """Returns `[E, P]` the expressions at points `[d, P]`."""
        known = np.empty((self._size, points.shape[1]))
        n = len(self.coefficients)
        known[:n] = self.coefficients[:, :1] + self.coefficients[:, 1:] @ points
        with np.errstate(all="ignore"):
            for where, op, numbers, args in self.groups:
                known[where] = OPERATIONS[op].plain([known[arg] for arg in args], numbers)
        return known[self.wanted]

    def over(self, parameters: Taylor) -> Taylor:
        """Returns `[E, C]` the expressions as Taylor models, of parameters `[d, C]`."""
        d, n = self.d, len(self.coefficients)
        whole = Taylor.constant(np.zeros((self._size, parameters.c.shape[1])), d, parameters.ball)
        constant, slope = self.coefficients[:, :1], self.coefficients[:, 1:]
        whole.c[:n] = constant + slope @ parameters.c
        whole.g[:, :n] = np.einsum("ni,jic->jnc", slope, parameters.g)
        size = np.abs(constant) + np.abs(slope) @ (np.abs(parameters.c) + np.abs(parameters.g).sum(axis=0))
        whole.r[:n] = 4 * taylor.ROUNDING * size
        with np.errstate(all="ignore"):
            for where, op, numbers, args in self.groups:
                found = OPERATIONS[op].model([whole[arg] for arg in args], numbers)
                whole.c[where], whole.g[:, where], whole.m[:, where], whole.r[where] = (
                    found.c,
                    found.g,
                    found.m,
                    found.r,
                )
        return whole[self.wanted]

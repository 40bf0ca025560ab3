"""Families: simulators with unknown numbers, each in an interval (docs/models.md).

A `Family` is a function that lists, for given parameters, the outcomes of every state and action with their probabilities.
It is called once with expressions in place of numbers, so that probabilities can be evaluated at any point and bounded over
any cell of the box. Every different probability is one *event*. Shapes: d parameters, N structures, S states, K actions, B
outcomes of a state and action at most, E events, P points, C cells.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from richobs.classes import taylor
from richobs.classes.base import Arrays, digest_of, read_whole, write_parts
from richobs.classes.dynamics import Model, first_law
from richobs.classes.expressions import Expression, Graph, Node, Program
from richobs.classes.model_arrays import REWARD_TOLERANCE, ModelArrays
from richobs.classes.taylor import Taylor
from richobs.core.arguments import LEVELS, real_number, refuse_unusable, whole_number
from richobs.core.environment import checked_range
from richobs.core.errors import InvalidInput
from richobs.core.moments import distinct
from richobs.core.process import Codebook
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Mask

FORMAT = "richobs-family"
OFF = 1e-9  # by which probabilities of a state and action may miss 1, and one of them 0
POINTS = 256  # of the box at which that is looked at
CELLS = 4_096  # into which the box is cut at most, to show that no probability is negative
STRUCTURES = 100_000  # that a family may list
AFFINE_POINTS = 8  # beside the corners of the box, at which probabilities that are said to be affine are compared

Make = Callable[[Any], Any]


class Unlisted:
    """A class of functions to `richobs.learn` without a list: what families of unknown numbers and unknown laws share."""

    preferred_learner = "families"
    is_product = False
    horizon: int
    arrays: ModelArrays
    padding: Mask  # [B, N, S, K] outcomes that are none
    reward_range: tuple[float, float]

    @cached_property
    def shows(self) -> Ints:
        """`[N, S]` the number of what each state shows."""
        return np.broadcast_to(self.arrays.shows, self.padding.shape[1:3])

    @cached_property
    def state_of(self) -> Ints:
        """`[N, O]` the state that shows an observation, by its number; -1 where none does."""
        result = np.full((self.n_structures, len(self.arrays.codebook)), -1)
        np.put_along_axis(result, self.shows, np.broadcast_to(np.arange(self.n_states), self.shows.shape), axis=1)
        return result

    @property
    def is_read(self) -> bool:
        """Whether it is known which state an observation is."""
        return len(self.arrays.shows) == 1

    @property
    def n_states(self) -> int:
        """Number of states S."""
        return self.padding.shape[2]

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        return self.padding.shape[3]

    @property
    def n_structures(self) -> int:
        """Number of structures N: the product of the lengths of all lists."""
        return self.padding.shape[1]

    def level_size(self, level: int, /) -> int:
        """Returns 1: the whole box is one thing, of which no functions are listed."""
        return 1

    def value_range(self, level: int, /) -> tuple[float, float]:
        """Returns the range of totals, in which every value lies that is counted from the start."""
        return self.reward_range

    def _no_list(self, *asked: Any) -> NoReturn:
        """Refuses: there is no list of functions."""
        raise InvalidInput(
            "a Family is a box of parameters, not a list of functions. Use the learner 'families', which learn() chooses; "
            "other learners take a grid of it, richobs.Simulators.grid(family.at, thetas)."
        )

    values = moments = kinds = value_bounds = member = _no_list

    def _checked_totals(self, given: tuple[float, float] | None) -> tuple[float, float]:
        """Returns the range of totals, after checking that it holds everything that the outcomes allow."""
        ends = []
        for sign in (1.0, -1.0):
            value = np.zeros((self.n_structures, self.n_states))
            for _ in range(self.horizon):
                rows = np.arange(self.n_structures)[:, None, None]
                later = np.where(self.arrays.done, 0.0, value[rows, self.arrays.next])
                best = np.where(self.padding, -np.inf, sign * self.arrays.reward + later)
                value = best.max(axis=(0, 3))
            ends.append(sign * float(np.where(self.arrays.start > 0, value, -np.inf).max()) + 0.0)
        high, low = ends
        if given is None:
            return (low, high) if low < high else (low, low + 1.0)
        declared = checked_range("reward_range", given)
        slack = REWARD_TOLERANCE * self.horizon * max(1.0, abs(low), abs(high))
        if low < declared[0] - slack or high > declared[1] + slack:
            raise InvalidInput(
                f"reward_range is [{declared[0]:g}, {declared[1]:g}], and outcomes allow totals from {low:g} to {high:g}."
            )
        return declared

    def _model(self, structure: int, law: Floats) -> Model:
        """Returns the model of one structure with probabilities `[B, S, K]` of its outcomes."""
        arrays = self.arrays
        law = np.where(self.padding[:, structure], 0.0, law)
        parts = (law / law.sum(axis=0), *(x[:, structure] for x in (arrays.next, arrays.reward, arrays.done)))
        probability, to, reward, done = (np.moveaxis(part, 0, -1) for part in parts)
        rows = None if arrays.codebook.is_plain and self.is_read else arrays.codebook.rows[self.shows[structure]]
        return Model(self.horizon, arrays.start[structure], probability, to, reward, done, rows)


class Family(Unlisted):
    """Simulators that differ in unknown numbers: which of them is the real system is to be learned.

    A class of functions to `richobs.learn`, which chooses the learner "families" for it.
    """

    @refuse_unusable
    def __init__(
        self,
        make: Make,
        theta: Mapping[str, Any],
        *,
        horizon: int,
        start: int | ArrayLike = 0,
        reward_range: tuple[float, float] | None = None,
        observations: NDArray[Any] | Callable[[dict[str, Any]], ArrayLike] | None = None,
        affine: bool = False,
    ):
        """Calls `make` with expressions, and checks its probabilities over the whole box.

        Args:
            make: takes a dictionary like `theta`, with a number or expression for each name, and returns the outcomes
                `[s][a]`, lists of (probability, next state, reward, done) as Gymnasium's toy-text has them. Probabilities
                are written with + - * / **, abs, NumPy's exp, log, sqrt, maximum and minimum, and with `Family.poisson`,
                `Family.binomial` and `Family.phi`; nothing else may depend on parameters.
            theta: names and what is known of them: (low, high) for a number in between, or a list of candidates, such as
                maps, of which one is right.
            horizon: number of levels H.
            start: the first state, or `[S]` its distribution; it is known.
            reward_range: smallest and largest total of an episode; by default what the outcomes allow.
            observations: `[S, ...]` what each state shows, all different; by default its number. Where it is not known what
                states show: a function that takes an item of each list of `theta` and returns it.
            affine: whether probabilities are affine in the parameters, and `make` is called with numbers alone: code that
                cannot compute with expressions. They follow from d + 1 corners of the box, and are compared at the others,
                up to `POINTS`, and at `AFFINE_POINTS` points inside. Claims name this assumption.

        Raises:
            InvalidInput: with the place, and the parameters, where probabilities are none.
        """
        self.horizon = whole_number("horizon", horizon, 1, LEVELS)
        self.names, self.low, self.high, lists = _read_box(theta)
        self.lists, self.is_declared_affine = lists, affine
        traced = _affine(make, self.names, self.low, self.high) if affine else make
        graph = Graph(len(self.names))
        parameters = {name: graph.parameter(i) for i, name in enumerate(self.names)}
        tables, shown = [], []
        for chosen in itertools.product(*lists.values()):
            items = dict(zip(lists, chosen, strict=True))
            tables.append(
                _read_outcomes(_called(traced, {**parameters, **items}), graph, ", ".join(map(_short, chosen)))
            )
            if callable(observations):
                shown.append(shown_rows(observations(items), len(tables[0])))
        self._build(graph, tables, start, shown or [shown_rows(observations, len(tables[0]))])
        used = self.program.coefficients[:, 1:].any(axis=0)
        if not used.all():
            raise InvalidInput(
                f"no probability depends on theta[{self.names[int(used.argmin())]!r}]. make must compute with what it is "
                "given, not with numbers of its own; leave out a parameter that does not matter."
            )
        self._compare(make)
        self.reward_range = self._checked_totals(reward_range)

    def _build(
        self, graph: Graph, tables: list[list[list[dict[Any, Expression]]]], start: Any, shown: list[NDArray[Any]]
    ) -> None:
        """Makes arrays of the outcomes, merges equal probabilities, and checks them; `shown` is for all or for each."""
        S, K = len(tables[0]), len(tables[0][0])
        for i, table in enumerate(tables):
            if (len(table), {len(row) for row in table}) != (S, {K}):
                raise InvalidInput(f"structure {i} has other numbers of states or actions than structure 0.")
        B = max(len(law) for table in tables for row in table for law in row)
        shape = (B, len(tables), S, K)
        zero = graph.of(0.0).place
        self.events: Ints = np.full(shape, zero)  # [B, N, S, K] the event of each outcome; that of 0 for padding
        self.paid: Ints = np.full(shape, zero)  # likewise of "one of the outcomes with this reward", at the last level
        to, done, reward = np.zeros(shape, np.int32), np.ones(shape, bool), np.zeros(shape)
        for (n, table), s, a in itertools.product(enumerate(tables), range(S), range(K)):
            law = table[s][a]
            by_reward: dict[float, Expression] = {}
            for (_, pay, _), p in law.items():
                by_reward[pay] = by_reward[pay] + p if pay in by_reward else p
            for lower, upper in itertools.pairwise(sorted(by_reward)):
                if upper - lower <= 4 * REWARD_TOLERANCE * max(1.0, abs(upper)):
                    raise InvalidInput(
                        f"state {s}, action {a} can pay {lower!r} and {upper!r}. Rewards that close cannot be told apart; "
                        "write them as one."
                    )
            for b, ((state, pay, ends), p) in enumerate(law.items()):
                at = (b, n, s, a)
                self.events[at], self.paid[at] = p.place, by_reward[pay].place
                to[at], reward[at], done[at] = state, pay, ends
        first = first_law(start, S)
        wanted, places = np.unique(np.stack([self.events, self.paid]), return_inverse=True)
        self.events, self.paid = places.reshape(2, *shape)
        self.graph, self.program = graph, Program(graph, wanted.tolist())
        shows, book = _numbered(shown)
        self.padding: Mask = (
            self.events == int(np.flatnonzero(wanted == zero)[0]) if zero in wanted else self.events < 0
        )
        self._check_box()
        centre = self.program.at(((self.low + self.high) / 2)[:, None])[:, 0]
        law_at = np.maximum(centre[self.events], 0.0)
        self.arrays = ModelArrays(
            self.horizon,
            np.broadcast_to(first, shape[1:3]).copy(),
            law_at / law_at.sum(axis=0),
            to,
            reward,
            done,
            shows,
            book,
        )

    # What a class of functions is asked for.

    @property
    def log_size(self) -> float:
        """Natural logarithm of how many different parameters float64 can hold, at most: 2^64 for each, times N."""
        return 64 * len(self.names) * math.log(2) + math.log(self.n_structures)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the outcomes, of how their probabilities follow from the parameters, and of the box."""
        return digest_of([(FORMAT, self._to_arrays())])

    # What can be asked of a family.

    def at(self, theta: Mapping[str, Any]) -> Model:
        """Returns the model with these parameters: a number for each interval, an item for each list."""
        missing = [name for name in (*self.names, *self.lists) if name not in theta]
        if missing or len(theta) != len(self.names) + len(self.lists):
            raise InvalidInput(
                f"this family has the parameters {', '.join((*self.names, *self.lists))}; got {', '.join(map(str, theta))}."
            )
        point = np.array([real_number(name, theta[name]) for name in self.names])
        if not ((self.low <= point) & (point <= self.high)).all():
            raise InvalidInput(f"{dict(zip(self.names, point.tolist(), strict=True))} lies outside the box.")
        places = [_place_of(items, theta[name], name) for name, items in self.lists.items()]
        sizes = [len(items) for items in self.lists.values()]
        return self.model(int(np.ravel_multi_index(places, sizes)) if sizes else 0, point)

    def model(self, structure: int, point: Floats) -> Model:
        """Returns the model of one structure at a point `[d]`."""
        return self._model(structure, np.maximum(self.program.at(point[:, None])[:, 0], 0.0)[self.events[:, structure]])

    def structure_words(self, structure: int) -> dict[str, Any]:
        """Returns the items of one structure, by the names of their lists."""
        sizes = [len(items) for items in self.lists.values()]
        places = np.unravel_index(structure, sizes) if sizes else ()
        return {name: items[int(i)] for (name, items), i in zip(self.lists.items(), places, strict=True)}

    @staticmethod
    def poisson(rate: Any, n: int) -> list[Any]:
        """Returns n + 1 probabilities by a Poisson law: of 0, 1, ..., n - 1, and of n or more."""
        n = whole_number("n", n, 0, 10_000)
        if isinstance(rate, Expression):
            return [
                *(rate._apply("poisson", rate, numbers=(float(k),)) for k in range(n)),
                rate._apply("tail", rate, numbers=(float(n),)),
            ]
        law = [float(taylor.poisson_law(np.asarray(rate, dtype=np.float64), k)) for k in range(n)]
        return [*law, 1 - sum(law)]

    @staticmethod
    def binomial(n: int, p: Any) -> list[Any]:
        """Returns n + 1 probabilities: of 0, 1, ..., n successes in n trials, each of probability p."""
        n = whole_number("n", n, 0, 1_000)
        if isinstance(p, Expression):
            return [p._apply("binomial", p, numbers=(float(k), float(n))) for k in range(n + 1)]
        return [float(taylor.binomial_law(n)(np.asarray(p, dtype=np.float64), k, 0)) for k in range(n + 1)]

    @staticmethod
    def phi(x: Any) -> Any:
        """Returns the probability that a standard normal number is at most x."""
        return x._apply("phi", x) if isinstance(x, Expression) else float(taylor.normal(x))

    @classmethod
    def of_gymnasium(cls, env: Any, *, horizon: int, fixed: Mapping[str, Any] | None = None, **theta: Any) -> Family:
        """Returns the family of a Gymnasium toy-text environment whose outcomes `P` depend on keyword arguments.

        Probabilities must be affine in the arguments, as with `affine=True`. The environment in the middle of the box is
        played and compared with what it publishes.

        Args:
            env: id of the environment, or a function that makes it.
            horizon: number of levels H.
            fixed: arguments that are known, of any type.
            **theta: (low, high) of each argument that is not known. A text, a number or a bool is a known argument, as in
                `map_name="8x8"`.
        """
        import gymnasium

        known = {name: value for name, value in theta.items() if isinstance(value, str | float | int)}
        theta = {name: ends for name, ends in theta.items() if name not in known}
        known = {**(fixed or {}), **known}
        names, low, high, lists = _read_box(theta)
        if name := next(iter(lists), None):
            raise InvalidInput(f"{name} is a list. Unknown: {name}=(low, high). Known: fixed={{{name!r}: ...}}.")

        def made(point: Floats) -> Any:
            given = {**known, **dict(zip(names, point.tolist(), strict=True))}
            with _named(names, point):
                return gymnasium.make(env, **given) if isinstance(env, str) else env(**given)

        def published(given: Mapping[str, Any]) -> Any:
            point = np.array([given[name] for name in names])
            with contextlib.closing(made(point)) as one:
                begins = getattr(one.unwrapped, "initial_state_distrib", None)
                if begins is not None and not np.allclose(
                    np.asarray(begins, dtype=np.float64), model.start, rtol=0.0, atol=OFF
                ):
                    raise InvalidInput(
                        f"the law of the first state depends on {', '.join(names)}: it is another one at {dict(given)}. A "
                        "family knows the law of the first state. Write it for richobs.Family with one more state, which "
                        "every action leaves for the first one at random."
                    )
                return one.unwrapped.P

        model = Model.of_gymnasium(lambda: made((low + high) / 2), horizon)
        return cls(published, theta, horizon=horizon, start=model.start, affine=True)

    @staticmethod
    def by_law(
        laws: Mapping[str, Mapping[tuple[int, int], Any]] | Sequence[Sequence[Any]],
        *,
        horizon: int,
        start: int | ArrayLike = 0,
        reward_range: tuple[float, float] | None = None,
        observations: NDArray[Any] | None = None,
    ) -> Any:
        """Returns a family in which outcomes are listed and nothing is known of how likely they are.

        Args:
            laws: name of each unknown law -> (state, action) -> what its outcomes lead to there, a list of (next, reward,
                done). States and actions of one law list as many outcomes, in one order: their probabilities are the same.
                Or outcomes `[s][a]`: then every state and action has a law of its own.
            horizon: number of levels H.
            start: the first state, or `[S]` its distribution; it is known.
            reward_range: smallest and largest total of an episode; by default what the outcomes allow.
            observations: `[S, ...]` what each state shows, all different; by default its number.
        """
        from richobs.classes.laws import UnknownLaws

        return UnknownLaws(laws, horizon=horizon, start=start, reward_range=reward_range, observations=observations)

    # Saving.

    def _to_arrays(self) -> dict[str, NDArray[Any]]:
        left_out = ("probability", "shows") if self.is_read else ("probability",)
        nodes = json.dumps([[node.op, node.args, node.numbers] for node in self.graph.nodes])
        places = np.array(self.program.places)
        box = json.dumps([self.names, {name: [_short(item) for item in items] for name, items in self.lists.items()}])
        return {
            **{name: x for name, x in self.arrays.to_arrays().items() if name not in left_out},
            "low": self.low,
            "high": self.high,
            "reward_range": np.array(self.reward_range),
            "nodes": np.frombuffer(nodes.encode(), dtype=np.uint8),
            "names": np.frombuffer(box.encode(), dtype=np.uint8),
            "events": places[self.events],
            "paid": places[self.paid],
            **({"affine": np.array(True)} if self.is_declared_affine else {}),
        }

    def save(self, file: str | os.PathLike[str], /) -> None:
        """Writes the family to a `.npz` file: plain arrays and JSON, no pickle. Items of lists are written as text."""
        write_parts(file, FORMAT, [("family", self._to_arrays())])

    @classmethod
    def load(cls, file: str | os.PathLike[str], /) -> Any:
        """Returns the family that `save` wrote, also one of `by_law`.

        Raises:
            InvalidFile: the file is damaged or holds something else.
        """

        def build(parts: list[tuple[str, Arrays]]) -> Any:
            ((kind, arrays),) = parts
            if kind == "laws":
                from richobs.classes.laws import UnknownLaws

                return UnknownLaws._from_arrays(arrays)
            names, lists = json.loads(arrays["names"].tobytes())
            graph = Graph(len(names))
            for op, args, numbers in json.loads(arrays["nodes"].tobytes()):
                place = len(graph.nodes)
                if not all(type(arg) is int and 0 <= arg < place for arg in args):
                    raise InvalidInput("a node takes one that is not before it")
                graph.add(Node(str(op), tuple(args), tuple(map(float, numbers))))
            events = np.asarray(arrays["events"], dtype=np.int64)
            tables = [
                [
                    [_law_of_arrays(arrays, graph, events, n, s, a) for a in range(events.shape[3])]
                    for s in range(events.shape[2])
                ]
                for n in range(events.shape[1])
            ]
            family = cls.__new__(cls)
            family.horizon = whole_number("horizon", int(np.asarray(arrays["horizon"])), 1, LEVELS)
            box = {name: (float(a), float(b)) for name, a, b in zip(names, arrays["low"], arrays["high"], strict=True)}
            family.names, family.low, family.high, _ = _read_box(box)
            family.lists, family.is_declared_affine = lists, "affine" in arrays
            book = np.asarray(arrays["codebook"])
            shown = [book[row] for row in np.asarray(arrays.get("shows", np.arange(len(book))[None]))]
            family._build(graph, tables, np.asarray(arrays["start"])[0], shown)
            family.reward_range = family._checked_totals(
                (float(arrays["reward_range"][0]), float(arrays["reward_range"][1]))
            )
            return family

        return read_whole(file, FORMAT, build)

    # Checks.

    def _check_box(self) -> None:
        """Refuses probabilities that are negative, or do not sum to 1, somewhere in the box.

        Sums are looked at in POINTS points and all corners. That no event is negative is shown for whole cells, which are
        halved until it is plain, or CELLS were looked at. What escapes this makes no claim false as long as the true numbers
        are fine, because forecasts are laws at every point (`forecast`).
        """
        d = len(self.low)
        rng = keyed_generator(0, "points of a box")
        corners = np.array(list(itertools.islice(itertools.product((0.0, 1.0), repeat=d), POINTS))).reshape(-1, d)
        unit = np.concatenate([corners, rng.random((POINTS, d))]).T  # [d, P]
        points = self.low[:, None] + (self.high - self.low)[:, None] * unit
        at = self.program.at(points)
        for n in range(self.n_structures):
            law = np.where(self.padding[:, n, :, :, None], 0.0, at[self.events[:, n]])  # [B, S, K, P]
            with np.errstate(invalid="ignore"):  # infinity less infinity
                total = law.sum(axis=0)
            bad = ~((np.abs(total - 1) <= OFF) & (law.min(axis=0) >= -OFF))  # NaN included
            if bad.any():
                s, a, p = (int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
                self._refuse_law(n, s, a, points[:, p], law[:, s, a, p])
        centre, width = ((self.low + self.high) / 2)[:, None], ((self.high - self.low) / 2)[:, None]
        seen = 0
        while centre.shape[1] and seen < CELLS:
            seen += centre.shape[1]
            found = self.program.over(Taylor.cells(centre, width))
            middle = self.program.at(centre)
            negative = middle < -OFF
            if negative.any():
                e, cell = (int(i) for i in np.argwhere(negative)[0])
                _, n, s, a = (int(i) for i in np.argwhere((self.events == e) | (self.paid == e))[0])
                law = middle[self.events[:, n, s, a], cell]
                self._refuse_law(n, s, a, centre[:, cell], law)
            open_ = (found.low < -OFF).any(axis=0)
            centre, width = _halved(centre[:, open_], width[:, open_], (self.high - self.low)[:, None])

    def forecast(self, structure: Ints, points: Floats) -> Floats:
        """Returns `[E, I]` the events at points `[d, I]` of structures: nonnegative, and at most 1 for a state and action.

        Where the probabilities at a point are none, because they sum to more than 1, all of them are made smaller.
        """
        law = np.maximum(self.program.at(points), 0.0)
        unknown = np.isnan(law).any(axis=0)
        if unknown.any():
            where = dict(zip(self.names, points[:, int(unknown.argmax())].tolist(), strict=True))
            raise InvalidInput(
                f"a probability is not a number at {where}, a point of the box. Write it so that it is one there, or "
                "choose a box without this point."
            )
        for n in np.unique(structure):
            mine = np.flatnonzero(structure == n)
            total = np.where(self.padding[:, n, :, :, None], 0.0, law[:, mine][self.events[:, n]]).sum(axis=0)
            most = total.max(axis=(0, 1))
            law[:, mine] /= np.where(most > 1 + OFF, most, 1.0)
        return law

    def _refuse_law(self, n: int, s: int, a: int, point: Floats, law: Floats) -> NoReturn:
        where = {name: float(f"{x:.6g}") for name, x in zip(self.names, point, strict=True)}
        kind = f"{self.structure_words(n)}, " if self.lists else ""
        total = sum(law.tolist())
        raise InvalidInput(
            f"state {s}, action {a}: at {kind}{where} the probabilities are {', '.join(f'{p:.6g}' for p in law)}, which sum "
            f"to {total:.9g}. Over the whole box they must not be negative and must sum to 1: narrow the box, or write the "
            "last one as 1 less the others."
        )

    def _compare(self, make: Make) -> None:
        """Refuses a function that returns something else for numbers than it did for expressions."""
        rng = keyed_generator(0, "compare", self.n_structures)
        for n in {0, self.n_structures - 1}:
            point = rng.uniform(self.low, self.high)
            given = {**dict(zip(self.names, point.tolist(), strict=True)), **self.structure_words(n)}
            flat = Graph(0)
            table = _read_outcomes(_called(make, given), flat, "numbers")
            law = self.program.at(point[:, None])[:, 0]
            for s, a in itertools.product(range(self.n_states), range(self.n_actions)):
                own = {
                    (int(self.arrays.next[b, n, s, a]), float(self.arrays.reward[b, n, s, a]), bool(d)): law[e]
                    for b, (e, d) in enumerate(zip(self.events[:, n, s, a], self.arrays.done[:, n, s, a], strict=True))
                    if not self.padding[b, n, s, a]
                }
                other = {key: p.constant or 0.0 for key, p in table[s][a].items()}
                if any(abs(own.get(key, 0.0) - other.get(key, 0.0)) > OFF for key in (*own, *other)):
                    raise InvalidInput(
                        f"make returns other outcomes of state {s}, action {a} for the numbers {given!r:.80} than for "
                        "unknown ones. It must not depend on anything but its argument, nor on how it is called."
                    )


def shown_rows(shown: Any, n_states: int) -> NDArray[Any]:
    """Returns `[S, ...]` what the states show."""
    rows = np.arange(n_states) if shown is None else np.asarray(shown)
    if len(rows) != n_states:
        raise InvalidInput(f"a family of {n_states} states needs as many observations; got {len(rows)}.")
    return rows


def _numbered(shown: list[NDArray[Any]]) -> tuple[Ints, Codebook]:
    """Returns `[N or 1, S]` the number of what each state shows, and the observations.

    Raises:
        InvalidInput: two states of a structure show the same, or structures show things of different shapes.
    """
    if len(shown) == 1:
        return np.arange(len(shown[0]))[None], Codebook(shown[0])
    if len({(rows.dtype.str, rows.shape) for rows in shown}) > 1:
        raise InvalidInput("what states show must have one shape and type, whichever item of a list is right.")
    rows, place = distinct(np.concatenate(shown))
    shows = place.reshape(len(shown), -1)
    twice = [n for n, row in enumerate(shows) if len(set(row.tolist())) < len(row)]
    if twice:
        raise InvalidInput(
            f"structure {twice[0]}: two states show the same. A state that shows one of several observations is several "
            "states; where an observation does not tell the state, use richobs.Simulators with assume='model'."
        )
    return shows, Codebook(rows)


def _short(item: Any) -> str:
    return item if isinstance(item, str) else f"{item!r:.60}"


def _place_of(items: Sequence[Any], item: Any, name: str) -> int:
    for i, one in enumerate(items):
        if one is item or (type(one) is type(item) and np.array_equal(one, item)):
            return i
    raise InvalidInput(f"{name} is none of the {len(items):,} items of its list; got {_short(item)}.")


def _read_box(theta: Any) -> tuple[list[str], Floats, Floats, dict[str, list[Any]]]:
    """Returns names and ends of intervals, and the lists."""
    if not isinstance(theta, Mapping) or not theta or not all(isinstance(name, str) for name in theta):
        raise InvalidInput(
            f'theta names the unknown numbers and where they lie, such as {{"slip": (0, 1)}}; got {theta!r:.80}.'
        )
    names: list[str] = []
    ends: list[tuple[float, float]] = []
    lists: dict[str, list[Any]] = {}
    for name, known in theta.items():
        if isinstance(known, list):
            if not known:
                raise InvalidInput(f"theta[{name!r}] is an empty list: one of its items has to be right.")
            lists[name] = list(known)
            continue
        if isinstance(known, str) or not isinstance(known, Sequence | np.ndarray) or len(known) != 2:
            raise InvalidInput(
                f"theta[{name!r}] must be (low, high), or a list of candidates of which one is right; got {known!r:.60}."
            )
        low, high = (real_number(f"theta[{name!r}]", end) for end in known)
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise InvalidInput(
                f"theta[{name!r}] must be (low, high), finite numbers with low < high; got ({low:g}, {high:g}). A number "
                "that is known is written into `make`."
            )
        names.append(name)
        ends.append((float(low), float(high)))
    if not names:
        raise InvalidInput(
            "theta lists candidates alone; a family has at least one (low, high). A list is richobs.Simulators."
        )
    if math.prod(len(items) for items in lists.values()) > STRUCTURES:
        raise InvalidInput(f"the lists of theta have more than {STRUCTURES:,} combinations.")
    box = np.array(ends, dtype=np.float64).reshape(-1, 2)
    return names, box[:, 0].copy(), box[:, 1].copy(), lists


class _Parameters(dict[str, Any]):
    def __missing__(self, name: Any) -> Any:
        raise InvalidInput(
            f"make asks for theta[{name!r}], and theta names {', '.join(self)}. Give its ends, theta={{{name!r}: (low, "
            "high), ...}, or write a known number into make."
        )


def _called(make: Make, given: dict[str, Any]) -> Any:
    if not callable(make):
        raise InvalidInput(f"make must be a function of the parameters; got {make!r:.60}.")
    return make(_Parameters(given))


def _read_outcomes(given: Any, graph: Graph, kind: str) -> list[list[dict[Any, Expression]]]:
    """Returns per state and action {(next, reward, done): probability}; outcomes that are equal are added up."""
    where = f" ({kind})" if kind else ""
    try:
        tables = [[list(given[s][a]) for a in range(len(given[s]))] for s in range(len(given))]
    except (TypeError, KeyError, IndexError) as error:
        raise InvalidInput(
            f"make must return outcomes [s][a], lists of (probability, next, reward, done){where}; {error}."
        ) from None
    if not tables or not tables[0]:
        raise InvalidInput(f"make returned no states or no actions{where}.")
    found: list[list[dict[Any, Expression]]] = []
    for s, row in enumerate(tables):
        found.append([])
        for a, outcomes in enumerate(row):
            law: dict[Any, Expression] = {}
            for outcome in outcomes:
                if not isinstance(outcome, Sequence) or len(outcome) != 4:
                    raise InvalidInput(
                        f"state {s}, action {a}: an outcome is (probability, next, reward, done); got {outcome!r:.60}."
                    )
                probability, to, reward, done = outcome
                if any(isinstance(part, Expression) for part in (to, reward, done)):
                    raise InvalidInput(
                        f"state {s}, action {a}: next state, reward and done of an outcome must not depend on parameters, "
                        "only probabilities do. List an outcome for each value."
                    )
                p = graph.of(probability)
                if p.constant == 0:
                    continue
                ends = bool(done)
                state = 0 if ends else whole_number(f"state {s}, action {a}: next state", to, 0, len(tables) - 1)
                pay = real_number(f"state {s}, action {a}: reward", reward) + 0.0
                if not math.isfinite(pay):
                    raise InvalidInput(f"state {s}, action {a}: a reward must be finite; got {pay:g}.")
                key = (state, pay, ends)
                law[key] = law[key] + p if key in law else p
            if not law:
                raise InvalidInput(f"state {s}, action {a} has no outcome{where}.")
            found[-1].append(dict(sorted(law.items(), key=lambda item: item[0])))
    return found


def _law_of_arrays(arrays: Any, graph: Graph, events: Ints, n: int, s: int, a: int) -> dict[Any, Expression]:
    law = {}
    for b in range(len(events)):
        p = Expression(graph, int(events[b, n, s, a]))
        if p.constant != 0:
            key = (
                int(arrays["next"][b, n, s, a]),
                float(arrays["reward"][b, n, s, a]),
                bool(arrays["done"][b, n, s, a]),
            )
            law[key] = p
    return law


def _halved(centre: Floats, width: Floats, span: Floats) -> tuple[Floats, Floats]:
    """Returns the two halves of every cell, cut across the side that is longest relative to the box."""
    side = (width / span).argmax(axis=0)
    half = np.where(np.arange(len(width))[:, None] == side, width / 2, 0.0)
    new = np.where(half > 0, half, width)
    return np.concatenate([centre - half, centre + half], axis=1), np.concatenate([new, new], axis=1)


@contextlib.contextmanager
def _named(names: Sequence[str], point: Floats) -> Iterator[None]:
    try:
        yield
    except InvalidInput:
        raise
    except Exception as error:  # of somebody's environment
        where = dict(zip(names, point.tolist(), strict=True))
        raise InvalidInput(f"the environment cannot be made with {where}: {error}") from error


def _affine(make: Make, names: Sequence[str], low: Floats, high: Floats) -> Make:
    """Returns a function that computes with expressions, from one of numbers whose probabilities are affine in them.

    They are compared at corners too. Where a convex function, such as a maximum of affine ones, is at least an affine one
    and not equal to it, it exceeds it at a corner; the same holds of concave ones.

    Raises:
        InvalidInput: when called, where they are not.
    """
    d, span, rng = len(names), high - low, keyed_generator(0, "affine tables")
    corners = [low, *(np.where(np.arange(d) == i, high, low) for i in range(d))]
    every = itertools.islice(itertools.product(*zip(low, high, strict=True)), POINTS)
    points = np.array([*corners, *every, *(rng.uniform(low, high) for _ in range(AFFINE_POINTS))])  # [P, d]

    def law_at(given: Mapping[str, Any], laws: list[dict[Any, Expression]], where: str) -> list[tuple[Any, ...]]:
        """Returns the outcomes of one state and action, from those at all points."""
        keys = sorted({key for law in laws for key in law})
        p = np.array([[law[key].constant if key in law else 0.0 for key in keys] for law in laws])  # [P, B]
        slopes = (p[1 : d + 1] - p[0]) / span[:, None]
        if np.abs(p[0] + (points - low) @ slopes - p).max() > OFF:
            raise InvalidInput(
                f"{where}: probabilities are not affine in {', '.join(names)}, or other outcomes are listed. Write them "
                "down, in a function for richobs.Family that computes with parameters."
            )
        found = []
        for b, key in enumerate(keys):
            sum_: Any = p[0, b] - float(low @ slopes[:, b])
            for i, name in enumerate(names):
                if abs(slopes[i, b]) * span[i] > 1e-12:
                    sum_ = sum_ + float(slopes[i, b]) * given[name]
            found.append((sum_, *key))
        return found

    def traced(given: Mapping[str, Any]) -> list[list[list[tuple[Any, ...]]]]:
        numbers = ({**given, **dict(zip(names, point.tolist(), strict=True))} for point in points)
        tables = [_read_outcomes(_called(make, one), Graph(0), "") for one in numbers]
        if len({tuple(map(len, table)) for table in tables}) > 1:
            raise InvalidInput(f"the number of states or actions changes with {', '.join(names)}.")
        return [
            [law_at(given, [t[s][a] for t in tables], f"state {s}, action {a}") for a in range(len(row))]
            for s, row in enumerate(tables[0])
        ]

    return traced

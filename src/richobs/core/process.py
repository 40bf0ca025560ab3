"""Processes written down in full: few latent states, finitely many observations, everything computable.

The model of [KAL16] Section 2.1 as arrays, and its exact dynamic programming. Shapes, per level h: S latent states,
X observations, K actions, R points in the support of a reward. Levels count from 0 to H-1. A codebook numbers observations.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from richobs.core.arguments import real_array, refuse_unusable
from richobs.core.errors import (
    AssumptionViolated,
    InvalidInput,
    NotFiniteError,
    ProbabilityError,
    RewardRangeError,
    ShapeError,
    UnreachableLevelError,
)
from richobs.core.functions import ValueFunction
from richobs.core.policies import Greedy, Policy, action_law
from richobs.core.types import Floats, Ints, Mask, Observations, Path

PROBABILITY_TOLERANCE = 1e-9  # how far rounding may push a sum of probabilities from 1, or rewards past their range
EQUALITY_TOLERANCE = 1e-9  # values closer than this are the same value: dynamic programming rounds far below it
NUMBERS = frozenset("biuf")  # NumPy's letters for truth values, integers and floats


@dataclass(frozen=True, eq=False)
class Rewards:
    """Reward distributions of one level, each on finitely many points; arrays may broadcast against `[S, X, K, R]`."""

    values: Floats  # [S, X, K, R] the points
    probs: Floats  # [S, X, K, R] their probabilities

    @classmethod
    def finite(cls, values: ArrayLike, probs: ArrayLike) -> Rewards:
        """Returns rewards on any finite support, both arguments broadcasting against `[S, X, K, R]`."""
        return cls(real_array(values), real_array(probs))

    @classmethod
    def deterministic(cls, value: ArrayLike) -> Rewards:
        """Returns rewards that equal `value`, which broadcasts against `[S, X, K]`."""
        points = real_array(value)[..., None]
        return cls(points, np.ones_like(points))

    @classmethod
    def bernoulli(cls, probability: ArrayLike, scale: ArrayLike = 1.0) -> Rewards:
        """Returns rewards that are `scale` with the given probability and 0 otherwise (both against `[S, X, K]`)."""
        p, top = np.broadcast_arrays(real_array(probability), real_array(scale))
        return cls(np.stack([np.zeros_like(top), top], axis=-1), np.stack([1 - p, p], axis=-1))

    def broadcast(self, shape: tuple[int, int, int], level: int) -> Rewards:
        """Returns the same rewards as `[S, X, K, R]` arrays (views, nothing is copied)."""
        points = max(np.shape(self.values)[-1:] + np.shape(self.probs)[-1:], default=1)
        try:
            return Rewards(
                np.broadcast_to(self.values, (*shape, points)), np.broadcast_to(self.probs, (*shape, points))
            )
        except ValueError as error:
            raise ShapeError(
                f"level {level}: rewards must broadcast against [S, X, K, R] = {(*shape, points)}; values have shape "
                f"{np.shape(self.values)} and probabilities {np.shape(self.probs)}."
            ) from error

    @cached_property
    def mean(self) -> Floats:
        """`[S, X, K]` expected rewards."""
        return np.einsum("sxkr,sxkr->sxk", self.values, self.probs)


class Optimum(NamedTuple):
    """Optimal values, by dynamic programming over ([KAL16] Eqs. 1 and 2)."""

    value: float  # V*
    state_values: tuple[Floats, ...]  # per level [S] V*(s)
    q: tuple[Floats, ...]  # per level [S, X, K] Q*_s(x, a); also where D_s(x) = 0, where nothing rests on it


class TableFunction:
    """A value function on a process's observations, as one table per level."""

    def __init__(self, process: TabularProcess, tables: Sequence[Floats]):
        self.process = process
        self.tables = tuple(tables)  # per level [X, K]

    def values(self, level: int, x: Observations, /) -> Floats:
        """Returns `[n, K]` the rows that belong to the observations."""
        return self.tables[level][self.process.encode(level, x)]


@dataclass(frozen=True, eq=False)
class TabularProcess:
    """A contextual decision process, latent part and all ([KAL16] Section 2.1).

    Raises a subclass of `InvalidProcess` that names level, state and value when it is not one. Deterministic
    transitions may be given as integers `[S, K]` (the next state) instead of probabilities.
    """

    start: Floats  # [S] distribution of the first state
    transitions: tuple[NDArray[Any], ...]  # H-1 arrays [S, K, S'] probabilities of the next state
    emissions: tuple[Floats, ...]  # H arrays [S, X] D_s(x)
    rewards: tuple[Rewards, ...]  # H of them, [S, X, K, R]
    observations: tuple[NDArray[Any], ...] = ()  # H arrays [X, ...]: what is seen; by default the index itself
    labels: tuple[tuple[str, ...], ...] = ()  # names of the states per level; one name at two levels: not layered
    check_rewards: bool = field(default=True, repr=False)  # False: rewards may leave their range

    @refuse_unusable
    def __post_init__(self) -> None:
        emissions = tuple(real_array(e) for e in self.emissions)
        set_ = object.__setattr__
        set_(self, "observations", tuple(np.asarray(o) for o in self.observations))
        set_(self, "emissions", emissions)
        set_(self, "start", real_array(self.start))
        self._check_shapes()
        set_(self, "transitions", tuple(self._as_probabilities(h, t) for h, t in enumerate(self.transitions)))
        shapes = [(*e.shape, self.n_actions) for e in emissions]
        set_(self, "rewards", tuple(r.broadcast(shapes[h], h) for h, r in enumerate(self.rewards)))
        if not self.observations:
            set_(self, "observations", tuple(np.arange(e.shape[1]) for e in emissions))
        if not self.labels:
            names = tuple(tuple(f"{h}:{s}" for s in range(e.shape[0])) for h, e in enumerate(emissions))
            set_(self, "labels", names)
        self._check_codebook()
        self._check_probabilities()
        # The checks allow small rounding errors; samplers need laws that sum to 1 exactly.
        set_(self, "start", _snapped(_normalised(self.start)))
        set_(self, "transitions", tuple(_snapped(_normalised(t)) for t in self.transitions))
        set_(self, "emissions", tuple(_normalised(e) for e in self.emissions))
        set_(self, "rewards", tuple(Rewards(r.values, _normalised(r.probs)) for r in self.rewards))
        if self.check_rewards:
            fault = self.reward_fault()
            if fault is not None:
                raise RewardRangeError(fault)

    @classmethod
    def from_flat(
        cls,
        horizon: int,
        start: ArrayLike,
        transitions: ArrayLike,
        emissions: ArrayLike,
        rewards: Rewards,
        labels: Sequence[str] | None = None,
        *,
        check_rewards: bool = True,
    ) -> TabularProcess:
        """Unrolls a process whose states are not tied to a level, such as a chain with loops, over `horizon` levels.

        Each level holds the states that can be reached there. States keep their names, so that
        `check_assumptions` can say which of them recur at several levels.

        Args:
            horizon: number of levels.
            start: `[S]` distribution of the first state.
            transitions: `[S, K, S]` probabilities, or `[S, K]` next states.
            emissions: `[S, X]` probabilities of the observations, the same at every level.
            rewards: `[S, X, K, R]`, the same at every level.
            labels: `[S]` names; by default the index.
            check_rewards: as for the constructor.
        """
        if horizon < 1:
            raise ShapeError(f"a process needs at least one level; horizon is {horizon}.")
        # As a process of two levels first: every check of the constructor then covers every state.
        emission = real_array(emissions)
        names = [str(s) for s in range(len(np.atleast_1d(emission)))] if labels is None else list(labels)
        twice = cls(
            start=real_array(start),
            transitions=(np.asarray(transitions),),
            emissions=(emission, emission),
            rewards=(rewards, rewards),
            labels=(tuple(names), tuple(names)),
            check_rewards=False,
        )
        first, move, full = twice.start, twice.transitions[0], twice.rewards[0]
        present: list[Ints] = [np.flatnonzero(first > 0)]
        for _ in range(horizon - 1):
            present.append(np.flatnonzero((move[present[-1]] > 0).any(axis=(0, 1))))
        return cls(
            start=first[present[0]],
            transitions=tuple(move[a][:, :, b] for a, b in itertools.pairwise(present)),
            emissions=tuple(emission[s] for s in present),
            rewards=tuple(Rewards(full.values[s], full.probs[s]) for s in present),
            labels=tuple(tuple(names[i] for i in s) for s in present),
            check_rewards=check_rewards,
        )

    @property
    def horizon(self) -> int:
        """Number of levels H."""
        return len(self.emissions)

    @cached_property
    def n_actions(self) -> int:
        """Number of actions K."""
        if self.transitions:
            return int(np.shape(self.transitions[0])[1])
        shapes = [np.shape(self.rewards[0].values), np.shape(self.rewards[0].probs)]
        return max((s[-2] for s in shapes if len(s) >= 2), default=1)

    @cached_property
    def n_states(self) -> int:
        """Largest number of states at a level that can be reached: the paper's M."""
        return max(int(r.sum()) for r in self.reachable)

    @cached_property
    def is_deterministic(self) -> bool:
        """Whether start and every transition out of a reachable state is a point mass ([KAL16] Assumption 3)."""
        moves = zip(self.reachable, self.transitions, strict=False)
        return bool(_is_point_mass(self.start).all()) and all(bool(_is_point_mass(t[r]).all()) for r, t in moves)

    @cached_property
    def reachable(self) -> tuple[Mask, ...]:
        """Per level `[S]`: which states some action sequence reaches."""
        masks = [self.start > 0]
        for t in self.transitions:
            masks.append(np.any(t[masks[-1]] > 0, axis=(0, 1)))
        return tuple(masks)

    @cached_property
    def seen(self) -> tuple[Mask, ...]:
        """Per level `[S, X]`: which (state, observation) pairs can occur."""
        return tuple((e > 0) & r[:, None] for e, r in zip(self.emissions, self.reachable, strict=True))

    def encode(self, level: int, x: Observations) -> Ints:
        """Returns `[n]` the index of each observation in `observations[level]`."""
        return self.codebooks[level].encode(x)

    @cached_property
    def codebooks(self) -> tuple[Codebook, ...]:
        """Per level: the observations and their numbers."""
        known: dict[int, Codebook] = {}  # levels often share one array
        return tuple(known.setdefault(id(rows), Codebook(rows)) for rows in self.observations)

    @cached_property
    def optimum(self) -> Optimum:
        """V*, V*(s) and Q*_s(x, a), backwards from the last level."""
        state_values: list[Floats] = []
        q: list[Floats] = []
        for h in reversed(range(self.horizon)):
            future = self.transitions[h] @ state_values[0] if state_values else np.zeros((len(self.emissions[h]), 1))
            q.insert(0, self.rewards[h].mean + future[:, None, :])
            state_values.insert(0, np.einsum("sx,sx->s", self.emissions[h], q[0].max(axis=2)))
        return Optimum(float(self.start @ state_values[0]), tuple(state_values), tuple(q))

    def state_values(self, policy: Policy) -> tuple[Floats, ...]:
        """Returns per level `[S]` V(s, pi): what `policy` earns from s on."""
        values: list[Floats] = []
        for h in reversed(range(self.horizon)):
            law, emission = self.action_law(policy, h), self.emissions[h]
            earned = np.einsum("sx,xk,sxk->s", emission, law, self.rewards[h].mean)
            if values:
                earned = earned + np.einsum("sk,sk->s", emission @ law, self.transitions[h] @ values[0])
            values.insert(0, earned)
        return tuple(values)

    def value(self, policy: Policy) -> float:
        """Returns V(pi) exactly."""
        return float(self.start @ self.state_values(policy)[0])

    def predicted_values(self, f: ValueFunction, policy: Policy | None = None) -> tuple[Floats, ...]:
        """Returns per level `[S]` V^f(s, pi) = E f(x, pi(x)); `policy` is f's own greedy one unless given."""
        policy = Greedy(f) if policy is None else policy
        return tuple(
            emission @ (np.asarray(f.values(h, self.observations[h])) * self.action_law(policy, h)).sum(axis=1)
            for h, emission in enumerate(self.emissions)
        )

    def action_law(self, policy: Policy, level: int) -> Floats:
        """Returns `[X, K]` how likely `policy` takes each action at every observation of `level`."""
        return action_law(policy, level, self.observations[level], self.n_actions)

    @cached_property
    def q_tables(self) -> tuple[Floats, ...]:
        """Per level `[X, K]`: the largest Q* among the states that show x (under Assumption 1 the only one), else 0."""
        return tuple(
            np.max(q, axis=0, where=seen[:, :, None], initial=0.0)
            for seen, q in zip(self.seen, self.optimum.q, strict=True)
        )

    def reactive_q(self) -> TableFunction:
        """Returns Q* as a function of (level, x) alone, which Assumption 1 promises to exist.

        Observations that never occur get 0.

        Raises:
            AssumptionViolated: it does not exist; `check_assumptions` says the same in a report.
        """
        conflict = self.reactivity_conflict()
        if conflict is not None:
            raise AssumptionViolated(f"Q* is not a function of the observation: {conflict}")
        return TableFunction(self, self.q_tables)

    def optimal_policy(self) -> Greedy:
        """Returns the greedy policy of Q*, which earns V* (needs Assumption 1)."""
        return Greedy(self.reactive_q())

    def reactivity_conflict(self) -> str | None:
        """Returns a counterexample to [KAL16] Assumption 1 in words, or None where it holds.

        States that no action sequence reaches are left out: what they emit is never seen.
        """
        for h, (seen, q) in enumerate(zip(self.seen, self.optimum.q, strict=True)):
            mask = seen[:, :, None]
            high = np.where(mask, q, -np.inf)
            low = np.where(mask, q, np.inf)
            gap = high.max(axis=0) - low.min(axis=0)  # [X, K]; -inf where an observation is never seen
            if gap.max() > EQUALITY_TOLERANCE:
                x, a = np.unravel_index(int(gap.argmax()), gap.shape)
                one, other = sorted((int(high[:, x, a].argmax()), int(low[:, x, a].argmin())))
                return (
                    f"observation {x} at level {h} is emitted by states {one} and {other} whose Q* for action {a} are "
                    f"{q[one, x, a]:.6g} and {q[other, x, a]:.6g}."
                )
        return None

    def reward_fault(self) -> str | None:
        """Returns what breaks "every reward and every episode's total lies in [0, 1]" in words, or None."""
        peaks: list[Floats] = []  # per level [S, K] the largest reward that can occur
        for h, (seen, rewards) in enumerate(zip(self.seen, self.rewards, strict=True)):
            possible = seen[:, :, None, None] & (rewards.probs > 0)
            high = np.where(possible, rewards.values, -np.inf)
            low = np.where(possible, rewards.values, np.inf)
            for extreme, at in ((high.max(), high.argmax()), (low.min(), low.argmin())):
                if np.isfinite(extreme) and not -PROBABILITY_TOLERANCE <= extreme <= 1 + PROBABILITY_TOLERANCE:
                    s, x, a, _ = np.unravel_index(int(at), high.shape)
                    return (
                        f"level {h}, state {s} ({self.labels[h][s]!r}): the reward of action {a} at observation {x} "
                        f"can be {extreme:.6g}; every reward must lie in [0, 1]."
                    )
            peaks.append(high.max(axis=(1, 3)))
        totals: list[Floats] = []  # per level [S, K] the largest total from here on
        for h in reversed(range(self.horizon)):
            future = 0.0
            if totals:
                follows = self.transitions[h] > 0
                future = np.where(follows, totals[0].max(axis=1)[None, None, :], -np.inf).max(axis=2)
            totals.insert(0, peaks[h] + future)
        top = float(np.where(self.start > 0, totals[0].max(axis=1), -np.inf).max())
        if top <= 1 + PROBABILITY_TOLERANCE:
            return None
        path, states = self._greedy_path(totals)
        return (
            f"the action sequence {path} from level 0, state {states[0]} ({self.labels[0][states[0]]!r}) can earn "
            f"{top:.6g} in total; every action sequence must earn at most 1."
        )

    def _greedy_path(self, totals: Sequence[Floats]) -> tuple[Path, list[int]]:
        """Follows the largest totals `[S, K]` from the best start state to the end."""
        state = int(np.where(self.start > 0, totals[0].max(axis=1), -np.inf).argmax())
        path, states = [], [state]
        for h in range(self.horizon):
            path.append(int(totals[h][state].argmax()))
            if h < self.horizon - 1:
                follows = self.transitions[h][state, path[-1]] > 0
                state = int(np.where(follows, totals[h + 1].max(axis=1), -np.inf).argmax())
                states.append(state)
        return tuple(path), states

    def _check_shapes(self) -> None:
        if not self.emissions:
            raise ShapeError("a process needs at least one level; `emissions` is empty.")
        H = self.horizon
        for name, length, wanted in (
            ("transitions", len(self.transitions), H - 1),
            ("rewards", len(self.rewards), H),
            ("observations", len(self.observations) or H, H),
            ("labels", len(self.labels) or H, H),
        ):
            if length != wanted:
                raise ShapeError(f"`emissions` lists {H} levels, so `{name}` needs {wanted} entries; it has {length}.")
        for h, r in enumerate(self.rewards):
            if not isinstance(r, Rewards):
                raise ShapeError(
                    f"level {h}: rewards must be a `Rewards`, for instance Rewards.bernoulli(p); got {type(r)}."
                )
        for h, t in enumerate(self.transitions):
            if np.ndim(t) not in (2, 3) or 0 in np.shape(t):
                raise ShapeError(f"level {h}: transitions must be [S, K, S'] or [S, K]; they have shape {np.shape(t)}.")
        for h, e in enumerate(self.emissions):
            if e.ndim != 2:
                raise ShapeError(f"level {h}: emissions must be [S, X]; they have shape {e.shape}.")
            if 0 in e.shape:
                raise UnreachableLevelError(
                    f"level {h} has {e.shape[0]} states and {e.shape[1]} observations, so no episode can reach it."
                )
        if self.start.shape != self.emissions[0].shape[:1]:
            raise ShapeError(
                f"level 0 has {len(self.emissions[0])} states, so `start` must be [{len(self.emissions[0])}]; it has "
                f"shape {self.start.shape}."
            )
        for h, names in enumerate(self.labels):
            if len(names) != len(self.emissions[h]):
                raise ShapeError(f"level {h} has {len(self.emissions[h])} states but {len(names)} labels.")

    def _as_probabilities(self, level: int, given: ArrayLike) -> Floats:
        """Returns transitions out of `level` as `[S, K, S']` probabilities."""
        here, there = len(self.emissions[level]), len(self.emissions[level + 1])
        t = np.asarray(given)
        if t.shape == (here, self.n_actions) and t.dtype.kind in "iu":
            wrong = np.argwhere((t < 0) | (t >= there))
            if len(wrong):
                s, a = wrong[0]
                raise ShapeError(
                    f"level {level}, state {s}: action {a} leads to state {t[s, a]}, but level {level + 1} has states "
                    f"0 to {there - 1}."
                )
            return np.eye(there)[t]
        if t.shape != (here, self.n_actions, there):
            raise ShapeError(
                f"level {level}: transitions must be [S, K, S'] = {(here, self.n_actions, there)} probabilities or "
                f"[S, K] = {(here, self.n_actions)} integers; they have shape {t.shape} and type {t.dtype}."
            )
        return t.astype(np.float64)

    def _check_codebook(self) -> None:
        for h, rows in enumerate(self.observations):
            n = self.emissions[h].shape[1]
            if len(rows) != n:
                raise ShapeError(f"level {h} has {n} observations in `emissions`, but {len(rows)} in `observations`.")
        try:
            _ = self.codebooks
        except InvalidInput as error:
            raise ShapeError(f"`observations`: {error}") from error

    def _check_probabilities(self) -> None:
        self._check_law(self.start[None], lambda _: "level 0: the start distribution")
        reached = self.start > 0
        for h, t in enumerate(self.transitions):
            if np.isfinite(t).all() and not (t[reached] > 0).any():
                raise UnreachableLevelError(
                    f"level {h + 1} is reached by no action sequence: every transition out of the states that can be "
                    f"reached at level {h} ({', '.join(map(str, np.flatnonzero(reached)))}) has probability 0."
                )
            self._check_law(t, lambda at, h=h: f"{self._place(h, at[0])}: transitions under action {at[1]}")
            reached = np.any(t[reached] > 0, axis=(0, 1))
        for h, (e, r) in enumerate(zip(self.emissions, self.rewards, strict=True)):
            self._check_law(e, lambda at, h=h: f"{self._place(h, at[0])}: emissions")

            def where(at: tuple[int, ...], h: int = h) -> str:
                return f"{self._place(h, at[0])}: rewards of action {at[2]} at observation {at[1]}"

            _check_finite(r.values, where)
            self._check_law(r.probs, where)

    def _place(self, level: int, state: int) -> str:
        return f"level {level}, state {state} ({self.labels[level][state]!r})"

    @staticmethod
    def _check_law(probs: Floats, where: Any) -> None:
        """Checks that the last axis of `probs` holds probabilities; `where(index)` names the place of a fault."""
        _check_finite(probs, where)
        if probs.min() < 0:
            at = np.unravel_index(int(probs.argmin()), probs.shape)
            raise ProbabilityError(f"{where(at)}: probability {probs.min():.6g} is negative.")
        off = np.abs(probs.sum(axis=-1) - 1)
        if off.max() > PROBABILITY_TOLERANCE:
            at = np.unravel_index(int(off.argmax()), off.shape)
            raise ProbabilityError(f"{where(at)}: probabilities sum to {probs[at].sum():.9g}, not 1.")


def _check_finite(array: Floats, where: Any) -> None:
    bad = ~np.isfinite(array)
    if bad.any():
        at = np.unravel_index(int(bad.argmax()), array.shape)
        raise NotFiniteError(f"{where(at)}: {array[at]} is not a finite number.")


def _normalised(probs: Floats) -> Floats:
    """Returns laws over the last axis that sum to 1; those that do are returned as they are."""
    total = probs.sum(axis=-1, keepdims=True)
    return probs if (total == 1).all() else probs / total


def _snapped(probs: Floats) -> Floats:
    """Returns laws over the last axis, those within rounding of a point mass made exactly that."""
    sure = probs.max(axis=-1, keepdims=True) >= 1 - PROBABILITY_TOLERANCE
    return np.where(sure, np.eye(probs.shape[-1])[probs.argmax(axis=-1)], probs)


def _is_point_mass(probs: Floats) -> Mask:
    return np.asarray(probs.max(axis=-1) >= 1 - PROBABILITY_TOLERANCE)


class Codebook:
    """Observations 0 to X-1 and what they look like; in a plain one an observation is its own number."""

    def __init__(self, rows: NDArray[Any]):
        """Takes `[X, ...]` what each observation looks like, all different."""
        self.rows = rows
        self.is_plain = rows.ndim == 1 and rows.dtype.kind in "iu" and bool((rows == np.arange(len(rows))).all())
        self._order, self._keys = np.arange(len(rows)), np.arange(len(rows))
        if not self.is_plain:
            keys = _row_keys(rows)
            self._order = np.argsort(keys)
            self._keys = keys[self._order]
            if (self._keys[1:] == self._keys[:-1]).any():
                raise InvalidInput("two rows of a codebook are equal; each observation is listed once.")

    def __len__(self) -> int:
        return len(self.rows)

    def encode(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Returns `[n]` the number of each observation `[n, ...]`."""
        given = np.asarray(x)
        if given.ndim < 1 or given.shape[1:] != self.rows.shape[1:]:
            raise InvalidInput(
                f"observations here are [n, ...] with n of shape {self.rows.shape[1:]}; got shape {given.shape}."
            )
        if len(given) == 0:
            return np.zeros(0, dtype=np.int64)
        if given.dtype == self.rows.dtype and given.dtype.kind in "biu":  # a cast would change nothing
            return self._find(given, given.astype(np.int64) if self.is_plain else given, None)
        kinds = {given.dtype.kind, self.rows.dtype.kind}
        if len(kinds) > 1 and not kinds <= NUMBERS:
            raise InvalidInput(f"observations here are of type {self.rows.dtype}; got {given.dtype}.")
        with np.errstate(invalid="ignore"):  # NaN becomes some number, which then differs from what was given
            cast = given.astype(np.int64 if self.is_plain else self.rows.dtype)
        return self._find(given, cast, cast != given)

    def _find(self, given: NDArray[Any], cast: NDArray[Any], changed: Mask | None) -> NDArray[np.int64]:
        """Returns `[n]` the number of each observation.

        Args:
            given: `[n, ...]` the observations.
            cast: `[n, ...]` as the type of the rows, or as numbers in a plain codebook.
            changed: `[n, ...]` where that is something else; None where it is nowhere.
        """
        if self.is_plain:
            if changed is None and cast.view(np.uint64).max() < len(self):  # negative ones are the largest here
                return cast
            unknown = (cast < 0) | (cast >= len(self))
            if changed is not None:
                unknown |= changed
            if unknown.any():
                raise InvalidInput(f"observation {given[unknown][0]} is not known: there are 0 to {len(self) - 1}.")
            return cast
        wanted = _row_keys(cast)
        place = np.minimum(self._keys.searchsorted(wanted), len(self) - 1)
        unknown = self._keys[place] != wanted
        if changed is not None:
            unknown |= changed.reshape(len(given), -1).any(axis=1)
        if unknown.any():
            raise InvalidInput(
                f"observation {given[unknown][0]} is not among the {len(self):,} that are known. Models and tables list "
                "every observation that the environment can show: add it, make fewer ones of them (`observation=` of "
                "from_gymnasium rounds or bins), or use functions of the observation (richobs.Callables, richobs.Linear)."
            )
        return self._order[place]


def _row_keys(rows: NDArray[Any]) -> NDArray[Any]:
    """Returns `[n]` one sortable, comparable key per row: its bytes."""
    flat = np.ascontiguousarray(rows.reshape(len(rows), -1))
    if flat.dtype.kind == "f":
        flat = flat + 0.0  # -0.0 and 0.0 are one observation
    return flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1]))).ravel()

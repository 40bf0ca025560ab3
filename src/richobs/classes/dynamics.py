"""Models: what a candidate says about how a system starts, moves, pays, ends and looks.

A `Model` is a finite Markov decision process with few outcomes for every state and action. Each state shows one observation.
Observations that are random in a hidden state are written as one state for each pair (hidden state, observation), as
`Model.of_process` does. Shapes: S states, K actions, B outcomes of a state and action at most, H levels.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from richobs.classes.published import Outcome, best_actions, check_played, check_wrappers, law_of
from richobs.core.arguments import LEVELS, real_array, refuse_unusable, whole_number
from richobs.core.environment import random_steps_words
from richobs.core.errors import InvalidInput
from richobs.core.process import PROBABILITY_TOLERANCE, TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.core.registry import waiting
from richobs.core.types import Floats, Ints, Mask, Path

MAX_ENTRIES = 50_000_000  # outcomes that one model may list
BUDGET = 1_000_000  # steps of an environment that planning by replay takes, unless told otherwise
PLAYS = 4  # how often planning by replay plays every action sequence
RESETS = 1_000  # that look for other seeds with the same first observation, where a seed is given


@dataclass(frozen=True, eq=False)
class Model:
    """One candidate model. Outcomes of probability 0 are padding; an outcome that ends the episode leads nowhere."""

    horizon: int
    start: Floats  # [S] distribution of the first state
    probability: Floats  # [S, K, B] of each outcome
    next: Ints  # [S, K, B] the state that it leads to
    reward: Floats  # [S, K, B] what it pays
    done: Mask  # [S, K, B] whether the episode ends with it
    observations: NDArray[Any] | None = None  # [S, ...] what each state shows; None: its number
    level_of: Ints | None = None  # [S] the only level at which a state occurs; None: a state may occur at every level

    @refuse_unusable
    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "horizon", whole_number("horizon", self.horizon, 1, LEVELS))
        set_(self, "start", real_array(self.start))
        set_(self, "probability", real_array(self.probability))
        set_(self, "reward", real_array(self.reward))
        for name, kind in (("next", np.int64), ("reward", np.float64), ("done", np.bool_)):
            set_(self, name, np.broadcast_to(np.asarray(getattr(self, name), dtype=kind), self.probability.shape))
        n_states = len(self.start)
        if self.probability.ndim != 3 or len(self.probability) != n_states or 0 in self.probability.shape:
            raise InvalidInput(
                f"a model needs start [S] and outcomes [S, K, B]; got shapes {self.start.shape} and "
                f"{self.probability.shape}."
            )
        for name in ("observations", "level_of"):
            given = getattr(self, name)
            if given is not None and len(given) != n_states:
                raise InvalidInput(f"a model of {n_states} states needs as many {name}; got {len(given)}.")
        if self.level_of is not None:
            set_(self, "level_of", np.asarray(self.level_of, dtype=np.int64))
            check_levels(
                self.level_of[None],
                self.start[None],
                np.moveaxis(self.probability, 2, 0)[:, None],
                np.moveaxis(self.next, 2, 0)[:, None],
                np.moveaxis(self.done, 2, 0)[:, None],
                self.horizon,
            )

    @property
    def n_states(self) -> int:
        """Number of states S."""
        return len(self.start)

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        return self.probability.shape[1]

    @property
    def shown(self) -> NDArray[Any]:
        """`[S, ...]` what each state shows."""
        return np.arange(self.n_states) if self.observations is None else self.observations

    @classmethod
    @refuse_unusable
    def of_lists(
        cls,
        outcomes: Mapping[int, Mapping[int, Sequence[Outcome]]] | Sequence[Sequence[Sequence[Outcome]]],
        horizon: int,
        start: ArrayLike = 0,
        *,
        observations: NDArray[Any] | None = None,
        level_of: Ints | None = None,
    ) -> Model:
        """Returns the model whose state s and action a have the outcomes `outcomes[s][a]`, as Gymnasium's toy-text has them.

        Args:
            outcomes: lists of (probability, next state, reward, done). Equal outcomes are added up.
            horizon: number of levels H.
            start: the first state, or `[S]` its distribution.
            observations: `[S, ...]` what each state shows; by default its number.
            level_of: `[S]` the level of each state, where it has one.
        """
        n_states, n_actions = len(outcomes), len(outcomes[0])
        rows: list[list[tuple[int, float, bool, float]]] = []
        for s in range(n_states):
            if len(outcomes[s]) != n_actions:
                raise InvalidInput(f"state 0 has {n_actions} actions and state {s} has {len(outcomes[s])}.")
            for a in range(n_actions):
                law = law_of(outcomes[s][a])
                rows.append([(*key, law[key]) for key in sorted(law)])
        width = max(len(row) for row in rows)
        if not width:
            raise InvalidInput("no state and action has an outcome of positive probability.")
        padded = np.array([row + [(0, 0.0, True, 0.0)] * (width - len(row)) for row in rows], dtype=np.float64)
        padded = padded.reshape(n_states, n_actions, width, 4)
        return cls(
            horizon,
            first_law(start, n_states),
            padded[..., 3],
            padded[..., 0].astype(np.int64),
            padded[..., 1],
            padded[..., 2] > 0,
            observations,
            level_of,
        )

    @classmethod
    def of_arrays(
        cls,
        transitions: ArrayLike,
        rewards: ArrayLike,
        horizon: int,
        *,
        start: ArrayLike = 0,
        done: ArrayLike | None = None,
        observations: NDArray[Any] | None = None,
    ) -> Model:
        """Returns the model of dense arrays.

        Args:
            transitions: `[S, K, S]` P(s' | s, a).
            rewards: `[S, K, S]` what the move to s' pays; `[S, K]` where that does not depend on s'.
            horizon: number of levels H.
            start: the first state, or `[S]` its distribution.
            done: `[S]` states whose arrival ends the episode, or `[S, K, S]` moves that do; by default none.
            observations: `[S, ...]` what each state shows; by default its number.
        """
        p = real_array(transitions)
        outcomes = sparse_outcomes(p[None], real_array(rewards)[None], done)
        columns: list[NDArray[Any]] = [np.moveaxis(part[:, 0], 0, -1) for part in outcomes]
        probability, to, reward, ends = columns
        return cls(horizon, first_law(start, len(p)), probability, to, reward, ends, observations)

    @classmethod
    def of_process(cls, process: TabularProcess) -> Model:
        """Returns the model of a process that is written down: one state per level and possible (state, observation)."""
        pairs = [np.argwhere(seen) for seen in process.seen]
        first = np.concatenate([[0], np.cumsum([len(p) for p in pairs])])
        K, total = process.n_actions, int(first[-1])
        parts: list[tuple[Floats, Ints, Floats, Mask]] = []
        for h, here in enumerate(pairs):
            s, x = here.T
            rewards = process.rewards[h]
            pay = np.broadcast_to(rewards.values, (*process.emissions[h].shape, K, rewards.values.shape[-1]))[s, x]
            chance = np.broadcast_to(rewards.probs, (*process.emissions[h].shape, K, rewards.probs.shape[-1]))[s, x]
            if h < process.horizon - 1:
                after, shown = pairs[h + 1].T
                entries = chance.size * len(after)
                if entries > MAX_ENTRIES:
                    raise InvalidInput(
                        f"level {h} of this process has {entries:,} outcomes, more than the {MAX_ENTRIES:,} that a model "
                        "may list. Give the models as functions of the hidden state, or use fewer observations."
                    )
                law = process.transitions[h][s][:, :, after] * process.emissions[h + 1][after, shown]  # [n, K, n']
                p = (chance[..., None] * law[:, :, None, :]).reshape(len(here), K, -1)
                to = np.broadcast_to(first[h + 1] + np.arange(len(after)), (*chance.shape, len(after)))
                r = np.broadcast_to(pay[..., None], to.shape)
                ends = np.zeros(p.shape, dtype=bool)
                parts.append((p, to.reshape(p.shape), r.reshape(p.shape), ends))
            else:
                parts.append((chance, np.zeros(chance.shape, dtype=np.int64), pay, np.ones(chance.shape, dtype=bool)))
        packed = [_compact(*part) for part in parts]
        width = max(part[0].shape[-1] for part in packed)
        probability, reward = np.zeros((2, total, K, width))
        to, ends = np.zeros((total, K, width), np.int64), np.ones((total, K, width), bool)
        for h, part in enumerate(packed):
            rows, columns = slice(first[h], first[h + 1]), slice(0, part[0].shape[-1])
            for whole, piece in zip((probability, to, reward, ends), part, strict=True):
                whole[rows, :, columns] = piece
        start = np.zeros(total)
        s, x = pairs[0].T
        start[: len(s)] = process.start[s] * process.emissions[0][s, x]
        shown = np.concatenate([process.observations[h][x] for h, (_, x) in enumerate(p.T for p in pairs)])
        level_of = np.repeat(np.arange(process.horizon), [len(p) for p in pairs])
        return cls(process.horizon, start, probability, to, reward, ends, shown, level_of)

    @classmethod
    def of_gymnasium(cls, env: Any, horizon: int, *, start: ArrayLike | None = None) -> Model:
        """Returns the model that a Gymnasium toy-text environment publishes: FrozenLake, CliffWalking, Taxi.

        The environment is played for about a thousand steps, and what it does is compared with what it publishes (see
        richobs/classes/published.py).

        Args:
            env: the environment or its id. `env.unwrapped.P[s][a]` must list (probability, next state, reward, done), and
                an observation must be the number of the state. Wrappers that change what is seen, done or paid are refused.
            horizon: number of levels H. A time limit of the environment is not part of the model, so H must not exceed it.
            start: `[S]` distribution of the first state; by default `env.unwrapped.initial_state_distrib`, which is compared
                with what resets show.

        Raises:
            InvalidInput: the environment publishes no outcomes, or plays something else than these.
        """
        horizon = whole_number("horizon", horizon, 1, LEVELS)
        with _copies(env) as copies:  # of an id one copy publishes, another one plays
            inner = copies[0].unwrapped
            if not has_outcomes(copies[0]):
                raise InvalidInput(
                    f"{type(inner).__name__} does not publish its outcomes as `P[s][a]`, as Gymnasium's toy-text "
                    "environments do. Where the same actions always show the same, use Model.by_replay."
                )
            published = getattr(inner, "initial_state_distrib", None) if start is None else start
            if published is None:
                raise InvalidInput(
                    f"{type(inner).__name__} does not say how it starts; give `start`, [S] probabilities."
                )
            check_wrappers(copies[-1], horizon)
            model = cls.of_lists(inner.P, horizon, published)
            plan = best_actions(model.probability, model.next, model.reward, model.done, horizon)
            check_played(copies[-1], inner.P, model.start if start is None else None, plan, horizon)
            return model

    @classmethod
    def by_replay(
        cls,
        env: Any,
        horizon: int,
        *,
        seed: int | None = None,
        markov: bool = False,
        observation: Callable[[Any], ArrayLike] | None = None,
        budget: int = BUDGET,
    ) -> Model:
        """Returns the model of a deterministic Gymnasium environment, found by resetting it and replaying actions.

        Every action sequence is played `PLAYS` times with different seeds, and must show and pay the same each time. A
        state is the sequence of actions that led to it, so there are up to K^H of them. Where the level and the observation
        tell all that matters (`markov`), states that agree in both are one state.

        Args:
            env: the environment, its id, or a function that makes it. What is made here is closed here.
            horizon: number of levels H. An end or a truncation before that ends the episode.
            seed: of every reset, where the start is random; the model is then one of the environment that is reset with
                this seed (`from_gymnasium(..., seed=)`). Seeds that show the same first observation must agree with it.
            markov: whether level and observation determine what follows. It is not checked.
            observation: makes an array of an observation; by default `numpy.asarray`.
            budget: largest number of steps that may be taken in all.

        Raises:
            InvalidInput: the environment is not deterministic, its actions are not `Discrete`, or the budget is too small.
        """
        horizon = whole_number("horizon", horizon, 1, LEVELS)
        if seed is not None:
            seed = whole_number("seed", seed)
        with _copies(env) as copies:
            return _Replay(copies, horizon, seed, markov, observation or np.asarray, budget).model()


@contextlib.contextmanager
def _copies(env: Any) -> Iterator[list[Any]]:
    """Yields two environments that an id or a function makes, and closes them; one that is made already is left open."""
    if not isinstance(env, str | type) and hasattr(env, "step"):
        yield [env]
        return
    import gymnasium

    with contextlib.ExitStack() as stack:
        try:
            copies = [gymnasium.make(env) if isinstance(env, str) else env() for _ in range(2)]
        except gymnasium.error.Error as error:
            raise InvalidInput(f"Gymnasium cannot make {env!r:.80}: {error}") from error
        for made in copies:
            stack.callback(made.close)
        yield copies


class _Replay:
    """A search through a deterministic environment that can only be reset and stepped."""

    def __init__(
        self,
        copies: Sequence[Any],
        horizon: int,
        seed: int | None,
        markov: bool,
        observation: Callable[[Any], ArrayLike],
        budget: int,
    ):
        import gymnasium

        space = copies[0].action_space
        if not isinstance(space, gymnasium.spaces.Discrete):
            raise InvalidInput(f"planning by replay needs Discrete actions; this environment has {space}.")
        self.copies, self.horizon, self.seed, self.markov, self.budget = copies, horizon, seed, markov, budget
        self.observation = observation
        self.n_actions, self.first_action = int(space.n), int(space.start)
        self.steps = 0
        self.rng = keyed_generator(0, "replay")
        self.number: dict[tuple[int, Any], int] = {}  # (level, what identifies the state) -> its number
        self.shown: list[NDArray[Any]] = []
        self.level_of: list[int] = []
        self.moves: dict[tuple[int, int], tuple[int, float, bool]] = {}  # (state, action) -> (next, reward, done)
        self.paths: list[Path] = []
        self._state((), self._reset(0, self._fresh() if seed is None else seed))
        self.alike = [] if seed is None else self._alike()

    def _fresh(self) -> int:
        return int(self.rng.integers(2**31))

    def _reset(self, copy: int, seed: int) -> Any:
        return self.copies[copy % len(self.copies)].reset(seed=seed)[0]

    def _alike(self) -> list[int]:
        """Returns seeds that show the same first observation as the one that was given, where a few resets find any."""
        found: list[int] = []
        for _ in range(RESETS):
            seed = self._fresh()
            if self._bytes(self._reset(0, seed)) == self.shown[0].tobytes():
                found.append(seed)
            if len(found) >= PLAYS:
                break
        return found

    def _seeds(self) -> list[int]:
        """Returns the seeds with which one path is played."""
        if self.seed is None:
            return [self._fresh() for _ in range(PLAYS)]
        return [self.seed, *self.alike, *[self.seed] * PLAYS][:PLAYS]

    def _bytes(self, seen: Any) -> bytes:
        return np.asarray(self.observation(seen)).tobytes()

    def _state(self, path: Path, seen: Any) -> int:
        """Returns the number of the state that a path leads to; a new one where it is not known."""
        x = np.asarray(self.observation(seen))
        if self.shown and (x.shape != self.shown[0].shape or x.dtype != self.shown[0].dtype):
            raise InvalidInput(
                f"observations must have one shape and type; got {x.dtype} {x.shape} after {self.shown[0].dtype} "
                f"{self.shown[0].shape}. Give `observation`, a function that makes equal arrays of them."
            )
        key = (len(path), x.tobytes() if self.markov and path else path)
        found = self.number.get(key)
        if found is None:
            found = self.number[key] = len(self.shown)
            self.shown.append(np.array(x))
            self.level_of.append(len(path))
            self.paths.append(path)
        elif x.tobytes() != self.shown[found].tobytes():
            raise self._not_deterministic(path)
        return found

    def _not_deterministic(self, path: Path) -> InvalidInput:
        name = type(getattr(self.copies[0], "unwrapped", self.copies[0])).__name__
        seeds = "two seeds" if self.seed is None or (self.alike and path) else f"the seed {self.seed} twice"
        if not path:
            advice = "give seed= here and in from_gymnasium" if self.seed is None else "its reset has to use the seed"
            return InvalidInput(
                f"{name} starts at random: with {seeds} a reset showed different observations, so one play does not tell "
                f"how it starts. If the environment with one seed is what you want, {advice}."
            )
        return InvalidInput(
            f"{random_steps_words(name, path, seeds)} One play does not tell what an action does then. Give a model that "
            "lists its probabilities: Model.of_gymnasium, Model.of_lists or Model.of_arrays."
        )

    def _run(self, state: int, action: int) -> None:
        """Plays the path to a state, an action there and then untried ones; and all of it again with other seeds."""
        path: Path = (*self.paths[state], action)
        for i, seed in enumerate(self._seeds()):
            path = self._play(path, i, seed)

    def _play(self, prefix: Path, copy: int, seed: int) -> Path:
        """Plays a path and, behind it, actions that were not tried yet; returns all actions."""
        path: Path = ()
        here = self._state((), self._reset(copy, seed))
        while len(path) < self.horizon:
            untried = (a for a in range(self.n_actions) if (here, a) not in self.moves)
            chosen = prefix[len(path)] if len(path) < len(prefix) else next(untried, None)
            if chosen is None:
                break
            if self.steps >= self.budget:
                raise InvalidInput(
                    f"planning by replay took its budget of {self.budget:,} steps and knows {len(self.shown):,} states so "
                    f"far. Raise `budget`, lower the horizon {self.horizon}"
                    + (".", ", or say `markov=True` where level and observation determine what follows.")[
                        not self.markov
                    ]
                )
            self.steps += 1
            env = self.copies[copy % len(self.copies)]
            seen, reward, terminated, truncated, _ = env.step(chosen + self.first_action)
            path = (*path, chosen)
            ends = bool(terminated or truncated)
            leads = len(path) < self.horizon and not ends
            move = (self._state(path, seen) if leads else 0, float(reward), ends)
            to, paid, ended = self.moves.setdefault((here, chosen), move)
            if (to, ended) != (move[0], ends) or not math.isclose(paid, move[1], rel_tol=1e-12, abs_tol=1e-12):
                raise self._not_deterministic(path)
            if not leads:
                break
            here = move[0]
        return path

    def model(self) -> Model:
        """Searches, and returns what was found."""
        state = 0
        with waiting("replaying the environment, states") as told:
            while state < len(self.shown):  # the list grows while it is searched
                for action in range(self.n_actions):
                    if (state, action) not in self.moves:
                        self._run(state, action)
                state += 1
                told(state, len(self.shown))
        size = len(self.shown)
        table = np.array([self.moves[s, a] for s in range(size) for a in range(self.n_actions)], dtype=np.float64)
        to, reward, ends = table.reshape(size, self.n_actions, 1, 3).transpose(3, 0, 1, 2)
        start = np.zeros(size)
        start[0] = 1
        return Model(
            self.horizon,
            start,
            np.ones((size, self.n_actions, 1)),
            to.astype(np.int64),
            reward,
            ends > 0,
            np.stack(self.shown),
            np.array(self.level_of),
        )


def has_outcomes(env: Any) -> bool:
    """Returns whether a Gymnasium environment publishes its outcomes as `P[s][a]`."""
    return hasattr(env, "unwrapped") and hasattr(env.unwrapped, "P")


def first_law(start: Any, n_states: int) -> Floats:
    """Returns `[S]` the law of the first state."""
    if np.ndim(start) == 0:
        return np.eye(n_states)[whole_number("start", start, 0, n_states - 1)]
    first = real_array(start)
    if first.shape != (n_states,):
        raise InvalidInput(f"start must be a state, or [S] = [{n_states}] probabilities; got shape {first.shape}.")
    return first


def as_model(given: Any, horizon: int | None = None) -> Model:
    """Returns a model as it is, or that of a process, of a toy-text environment or of its id.

    Args:
        given: a `Model`, a `TabularProcess`, or what `Model.of_gymnasium` takes.
        horizon: number of levels, where `given` does not say.
    """
    if isinstance(given, TabularProcess):
        given = Model.of_process(given)
    if isinstance(given, Model):
        if horizon not in (None, given.horizon):
            raise InvalidInput(f"a model has {given.horizon} levels; {horizon} were asked for.")
        return given
    if not isinstance(given, str) and not has_outcomes(given):
        raise InvalidInput(
            f"a candidate is a richobs.Model, a TabularProcess, or a Gymnasium toy-text environment; got a "
            f"{type(given).__name__}. Write its outcomes down (richobs.Model.of_lists, Model.of_arrays), or replay an "
            "environment without chance (Model.by_replay): see docs/classes.md."
        )
    if horizon is None:
        raise InvalidInput("a Gymnasium environment does not say how many levels are meant: give `horizon`.")
    return Model.of_gymnasium(given, horizon)


def sparse_outcomes(
    transitions: Floats, rewards: Floats, done: ArrayLike | None = None
) -> tuple[Floats, Ints, Floats, Mask]:
    """Returns the outcomes of N models given as dense arrays: probability, next, reward and done, each `[B, N, S, K]`.

    Args:
        transitions: `[N, S, K, S]` P(s' | s, a).
        rewards: `[N, S, K, S]`, or `[N, S, K]` where they do not depend on s'; N may be 1 where all models agree.
        done: `[S]` states whose arrival ends the episode, or anything that broadcasts against `[N, S, K, S]`.
    """
    shape = transitions.shape
    if len(shape) != 4 or shape[1] != shape[3] or 0 in shape:
        raise InvalidInput(f"transitions must be [S, K, S] for each model; got shape {shape[1:]}.")
    try:
        pay = np.broadcast_to(rewards[..., None] if rewards.ndim == 3 else rewards, shape)
        ends = np.broadcast_to(np.asarray(False if done is None else done, dtype=bool), shape)
    except ValueError as error:
        raise InvalidInput(
            f"rewards must be [S, K] or [S, K, S] and done [S] or [S, K, S] for transitions of shape {shape[1:]}; got "
            f"{rewards.shape[1:]} and {np.asarray(done).shape}."
        ) from error
    to = np.broadcast_to(np.arange(shape[3]), shape)
    probability, to, pay, ends = _compact(transitions, to, pay, ends)
    return (
        np.ascontiguousarray(np.moveaxis(probability, -1, 0)),
        np.ascontiguousarray(np.moveaxis(to, -1, 0)),
        np.ascontiguousarray(np.moveaxis(pay, -1, 0)),
        np.ascontiguousarray(np.moveaxis(ends, -1, 0)),
    )


def _compact(probability: Floats, to: Ints, reward: Floats, done: Mask) -> tuple[Floats, Ints, Floats, Mask]:
    """Returns `[..., B]` the outcomes whose probability is not 0, first in every row, and padding behind them."""
    kept = probability != 0  # negative ones are kept, to be refused with their place
    width = max(1, int(kept.sum(axis=-1).max()))
    order = np.argsort(~kept, axis=-1, kind="stable")[..., :width]
    columns: list[NDArray[Any]] = [np.take_along_axis(part, order, axis=-1) for part in (probability, to, reward, done)]
    p, t, r, d = columns
    empty = p == 0
    return p, np.where(empty | d, 0, t), np.where(empty, 0.0, r), d | empty


def check_levels(
    level_of: Ints, start: Floats, probability: Floats, to: NDArray[np.integer[Any]], done: Mask, horizon: int
) -> None:
    """Raises `InvalidInput` where states that are bound to levels start or lead somewhere else than the levels say.

    Planning reads a state at its level only, and likelihoods follow the moves, so the two must say the same.

    Args:
        level_of: `[N or 1, S]` the level of each state; -1 where there is no state.
        start: `[N, S]` distribution of the first state.
        probability: `[B, N, S, K]` of each outcome.
        to: `[B, N, S, K]` the state that it leads to.
        done: `[B, N, S, K]` whether the episode ends with it.
        horizon: number of levels H.
    """
    if level_of.min() < -1 or level_of.max() >= horizon:
        raise InvalidInput(f"levels of states lie in 0 to {horizon - 1}; got {level_of.min()} to {level_of.max()}.")
    levels = np.broadcast_to(level_of, start.shape)
    wrong = (start > 0) & (levels != 0)
    if wrong.any():
        n, s = (int(i) for i in np.argwhere(wrong)[0])
        raise InvalidInput(f"model {n} starts in state {s}, which is bound to level {levels[n, s]}.")
    rows = np.arange(len(levels))[:, None, None]
    for p, target, ends in zip(probability, to, done, strict=True):
        moves = (p > 0) & ~ends & (levels < horizon - 1)[:, :, None]
        wrong_moves = moves & (levels[rows, np.where(moves, target, 0)] != levels[:, :, None] + 1)
        if wrong_moves.any():
            n, s, a = (int(i) for i in np.argwhere(wrong_moves)[0])
            after = int(target[n, s, a])
            raise InvalidInput(
                f"model {n}: action {a} leads from state {s}, which is bound to level {levels[n, s]}, to state {after}, "
                f"which is bound to level {levels[n, after]}. It must be bound to the next level."
            )


def check_law(probability: Floats, where: Callable[[tuple[int, ...]], str], axis: int) -> Floats:
    """Returns laws that sum to 1 along `axis`, after checking that they do but for rounding.

    Args:
        probability: the laws.
        where: names the place of a fault, given its index without `axis`.
        axis: along which they are laws.
    """
    total = probability.sum(axis=axis)
    off = np.abs(total - 1)
    low = probability.min(axis=axis)
    bad = ~((off <= PROBABILITY_TOLERANCE) & (low >= 0))  # NaN included
    if bad.any():
        at = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
        raise InvalidInput(
            f"{where(at)}: probabilities must not be negative and must sum to 1; the smallest is {low[at]:.6g} and the sum "
            f"{total[at]:.9g}."
        )
    return probability if (total == 1).all() else probability / np.expand_dims(total, axis)

"""Families of models as arrays: planning in all of them at once, likelihoods of what was seen, values of policies.

Shapes: N models, m of them chosen, S states, K actions, B outcomes of a state and action at most, X observations, n
episodes or steps, H levels. Outcomes come first, `[B, N, S, K]`, so that one outcome of all models is one block of memory.
Sums over outcomes run in order, one after the other, so that the same models give the same values.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from richobs.classes.base import Arrays, checked_members
from richobs.classes.dynamics import Model, check_law, check_levels
from richobs.core.environment import Episodes
from richobs.core.errors import InvalidInput
from richobs.core.functions import StepLaw, reduced
from richobs.core.moments import distinct
from richobs.core.policies import Policy, action_law
from richobs.core.process import EQUALITY_TOLERANCE, Codebook
from richobs.core.registry import Told
from richobs.core.types import Floats, Ints, Mask, Observations

AT_ONCE_OUTCOMES = 1_000_000  # numbers of one array that a computation over models holds in memory at once
REWARD_TOLERANCE = 1e-7  # relative, up to which a reward is the one of the model: rounding to single precision

SAME_REWARD = 1e-12  # relative, up to which two rewards are one that was rounded in two ways


@dataclass(frozen=True, eq=False)
class ModelArrays:
    """N models over one set of states; a model with fewer states leaves the others out."""

    horizon: int
    start: Floats  # [N, S] distribution of the first state
    probability: Floats  # [B, N, S, K]
    next: NDArray[np.int32]  # [B, N, S, K]
    reward: Floats  # [B, N, S, K]
    done: Mask  # [B, N, S, K]
    shows: Ints  # [N, S] number of the observation of each state, -1 where there is no state; [1, S]: in all models
    codebook: Codebook  # the X observations
    level_of: Ints | None = None  # [N, S] or [1, S] level of each state; None: states may occur at every level

    def __post_init__(self) -> None:
        shape = self.probability.shape
        if len(shape) != 4 or 0 in shape or self.start.shape != shape[1:3]:
            raise InvalidInput(
                f"models need start [N, S] and outcomes [B, N, S, K]; got shapes {self.start.shape} and {shape}."
            )
        if not np.isfinite(self.reward).all():
            raise InvalidInput("a reward of a model is not a finite number.")
        if self.next.min() < 0 or self.next.max() >= shape[2]:
            raise InvalidInput(f"a model leads to state {self.next.max()}; there are 0 to {shape[2] - 1}.")
        exists = np.broadcast_to(self.shows >= 0, shape[1:3])
        law = self.probability.copy() if not exists.all() else self.probability
        if not exists.all():
            law[0][~exists] = 1.0  # a state that is not there moves nowhere

        def where(at: tuple[int, ...]) -> str:
            return f"model {at[0]}, state {at[1]}, action {at[2]}"

        law = check_law(law, where, 0)
        start = check_law(self.start, lambda at: f"model {at[0]}: the start", 1)
        if not exists.all():
            law[:, ~exists] = 0.0
        object.__setattr__(self, "probability", law)
        object.__setattr__(self, "start", start)
        if self._close_rewards() is not None:
            object.__setattr__(self, "reward", merged_rewards(self.reward))
            self._check_rewards()
        if self.level_of is not None:
            check_levels(self.level_of, start, law, self.next, self.done, self.horizon)

    def _check_rewards(self) -> None:
        """Refuses rewards of one model that differ, but by so little that one would count as the other.

        An outcome would count for two rewards then, and the probabilities of all that can happen would sum to more than 1.
        """
        if (found := self._close_rewards()) is not None:
            (_, model, _, action), reward, gap = found
            raise InvalidInput(
                f"model {model}: action {action} of one state can pay {reward:.12g} and a reward that differs by {gap:.2g}. "
                "Rewards that close cannot be told apart; write them as one."
            )

    def _close_rewards(self) -> tuple[tuple[int, ...], float, float] | None:
        """Returns where two rewards are so close, the larger one and by how much they differ; None where none are."""
        rewards = np.where(self.probability > 0, self.reward, np.nan)
        if not self.is_identified:  # states that look alike count as one
            rewards = rewards.transpose(0, 2, 1, 3).reshape(-1, self.n_models, 1, self.n_actions)
        if len(rewards) == 1:
            return None
        ordered = np.sort(rewards, axis=0)  # NaN last
        gaps = ordered[1:] - ordered[:-1]
        close = (gaps > 0) & (gaps <= 4 * REWARD_TOLERANCE * np.maximum(1.0, np.abs(ordered[1:])))
        if not close.any():
            return None
        at = tuple(int(i) for i in np.unravel_index(int(close.argmax()), close.shape))
        return at, float(ordered[1:][at]), float(gaps[at])

    @classmethod
    def stack(cls, models: Sequence[Model]) -> "ModelArrays":
        """Returns the family of some models, all of as many levels and actions."""
        if not models:
            raise InvalidInput("a family needs at least one model; the list is empty.")
        first = models[0]
        for i, model in enumerate(models):
            if (model.horizon, model.n_actions) != (first.horizon, first.n_actions):
                raise InvalidInput(
                    f"model {i} has {model.horizon} levels and {model.n_actions} actions; model 0 has {first.horizon} and "
                    f"{first.n_actions}."
                )
            if (model.level_of is None) != (first.level_of is None):
                raise InvalidInput(f"the states of model {i} and of model 0 must both be bound to levels, or neither.")
        N, S, K = len(models), max(m.n_states for m in models), first.n_actions
        B = max(m.probability.shape[2] for m in models)
        start = np.zeros((N, S))
        probability, reward = np.zeros((2, B, N, S, K))
        to, done = np.zeros((B, N, S, K), np.int32), np.ones((B, N, S, K), bool)
        for i, m in enumerate(models):
            start[i, : m.n_states] = m.start
            width = m.probability.shape[2]
            parts = (m.probability, m.next, m.reward, m.done)
            for whole, part in zip((probability, to, reward, done), parts, strict=True):
                whole[:width, i, : m.n_states] = np.moveaxis(part, 2, 0)
        shows, codebook = _numbered(models, S)
        level_of = None if first.level_of is None else _padded([m.level_of for m in models], S)
        return cls(first.horizon, start, probability, to, reward, done, shows, codebook, level_of)

    @property
    def n_models(self) -> int:
        """Number of models N."""
        return self.probability.shape[1]

    @property
    def n_states(self) -> int:
        """Number of states S."""
        return self.probability.shape[2]

    @property
    def n_actions(self) -> int:
        """Number of actions K."""
        return self.probability.shape[3]

    def take(self, models: Ints) -> "ModelArrays":
        """Returns the family of some of these models."""
        index = checked_members(models, self.n_models)

        def rows(part: Ints | None) -> Ints | None:
            return part if part is None or len(part) == 1 else part[index]

        return replace(
            self,
            start=self.start[index],
            probability=self.probability[:, index],
            next=self.next[:, index],
            reward=self.reward[:, index],
            done=self.done[:, index],
            shows=self.shows if len(self.shows) == 1 else self.shows[index],
            level_of=rows(self.level_of),
        )

    def to_arrays(self) -> Arrays:
        """Returns what the family consists of."""
        arrays: Arrays = {
            "horizon": np.array(self.horizon),
            "start": self.start,
            "probability": self.probability,
            "next": self.next,
            "reward": self.reward,
            "done": self.done,
            "shows": self.shows,
            "codebook": self.codebook.rows,
        }
        return arrays if self.level_of is None else {**arrays, "level_of": self.level_of}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "ModelArrays":
        """Returns the family that `to_arrays` took apart."""
        return cls(
            int(np.asarray(arrays["horizon"]).ravel()[0]),
            arrays["start"],
            arrays["probability"],
            arrays["next"],
            arrays["reward"],
            arrays["done"],
            arrays["shows"],
            Codebook(arrays["codebook"]),
            arrays.get("level_of"),
        )

    # Which state an observation means.

    def columns(self, level: int) -> Ints:
        """Returns the states that occur at `level` in some model."""
        if self.level_of is None:
            return np.arange(self.n_states)
        return np.flatnonzero((self.level_of == level).any(axis=0))

    def _present(self, level: int) -> Ints:
        """Returns `[N or 1, S]` the observation of each state that may occur at `level`, else -1."""
        return self.shows if self.level_of is None else np.where(self.level_of == level, self.shows, -1)

    @cached_property
    def _state_tables(self) -> tuple[Ints, ...] | None:
        """Per level `[N or 1, X]` the state that shows an observation, -1 where none does; None where several do."""
        tables: list[Ints] = []
        for level in range(self.horizon if self.level_of is not None else 1):
            present = self._present(level)
            rows, states = np.nonzero(present >= 0)
            table = np.full((len(present), len(self.codebook)), -1, dtype=np.int64)
            table[rows, present[rows, states]] = states
            if (table >= 0).sum() < len(rows):
                return None
            tables.append(table)
        return tuple(tables)

    @property
    def is_identified(self) -> bool:
        """Whether level and observation tell the state in every model."""
        return self._state_tables is not None

    def encode(self, x: Observations) -> Ints:
        """Returns `[n]` the number of each observation; -1 for one that no model shows."""
        try:
            return self.codebook.encode(x)
        except InvalidInput:
            rows, row = distinct(np.asarray(x))
            numbers = np.full(len(rows), -1, dtype=np.int64)
            for i in range(len(rows)):
                try:
                    numbers[i] = self.codebook.encode(rows[i : i + 1])[0]
                except InvalidInput:
                    continue
            return numbers[row]

    # Planning.

    def blocks(self, models: Ints | None = None, width: int | None = None) -> Iterator[tuple[slice, Ints]]:
        """Yields the chosen models in parts: which places of the result they are, and which models.

        Args:
            models: `[m]` the models, by default all.
            width: numbers per model that the computation holds; by default the outcomes of one rank.
        """
        chosen = checked_members(models, self.n_models)
        step = max(1, AT_ONCE_OUTCOMES // max(1, width or self.n_states * self.n_actions))
        for first in range(0, len(chosen), step):
            yield slice(first, first + step), chosen[first : first + step]

    @cached_property
    def _pay(self) -> Floats:
        """`[N, S, K]` mean rewards."""
        pay = np.zeros(self.probability.shape[1:])
        for p, reward in zip(self.probability, self.reward, strict=True):
            pay += p * reward
        return pay

    @cached_property
    def _go_on(self) -> Floats:
        """`[B, N, S, K]` probabilities of outcomes that do not end the episode."""
        return np.where(self.done, 0.0, self.probability)

    def _parts(self, models: Ints) -> tuple[Floats, Floats, NDArray[np.int32]]:
        """Returns mean rewards `[m, S, K]`, probabilities of going on `[B, m, S, K]` and where to, for some models."""
        row = (
            models if (np.diff(models) != 1).any() else slice(int(models[0]), int(models[-1]) + 1)
        )  # a slice is no copy
        return self._pay[row], self._go_on[:, row], self.next[:, row]

    def plan(self, table_type: Any, told: Told | None = None) -> tuple[list[NDArray[Any]], Floats]:
        """Returns per level `[N, X, K]` Q* of every model, 0 at observations that a model does not show, and `[N]` V*.

        Args:
            table_type: NumPy type of the tables.
            told: called after each part of the models.

        Raises:
            InvalidInput: Q* of a model is not a function of level and observation.
        """
        N, X, K = self.n_models, len(self.codebook), self.n_actions
        tables = [np.zeros((N, X, K), dtype=table_type) for _ in range(self.horizon)]
        best = np.zeros(N)
        for _, models in self.blocks():
            pay, go_on, to = self._parts(models)
            reached = None if self.is_identified else self._reached(models)
            value = np.zeros((len(models), self.n_states))
            for level in reversed(range(self.horizon)):
                at = self.columns(level)
                q = _backup(pay[:, at], go_on[:, :, at], to[:, :, at], value)
                value = np.zeros_like(value)
                value[:, at] = reduced(np.maximum, q)
                self._fill(tables[level], q, at, level, models, None if reached is None else reached[level])
            best[models] = (self.start[models] * value).sum(axis=1)
            if told is not None:
                told(int(models[-1]) + 1, N)
        return tables, best

    def _fill(self, table: NDArray[Any], q: Floats, at: Ints, level: int, models: Ints, reached: Mask | None) -> None:
        """Writes Q* of some models at the states `at` of a level into the rows of the observations that they show."""
        present = self._present(level)
        shown = present[:, at] if len(present) == 1 else present[models][:, at]
        if reached is None:
            if len(shown) == 1 and (shown >= 0).all():
                table[models[:, None], shown] = q
                return
            rows, places = np.nonzero(np.broadcast_to(shown >= 0, q.shape[:2]))
            table[models[rows], np.broadcast_to(shown, q.shape[:2])[rows, places]] = q[rows, places]
            return
        rows, places = np.nonzero(np.broadcast_to(shown >= 0, q.shape[:2]) & reached[:, at])
        x, values = np.broadcast_to(shown, q.shape[:2])[rows, places], q[rows, places]
        high = np.full((len(models), len(self.codebook), self.n_actions), -np.inf)
        low = -high
        np.maximum.at(high, (rows, x), values)
        np.minimum.at(low, (rows, x), values)
        wrong = high - low > EQUALITY_TOLERANCE
        if wrong.any():
            n, o, a = np.unravel_index(int(wrong.argmax()), wrong.shape)
            raise InvalidInput(
                f"model {models[n]}: Q* at level {level} is not a function of the observation. States that show "
                f"{self.codebook.rows[o]} have Q* of action {a} from {low[n, o, a]:.6g} to {high[n, o, a]:.6g}. A class of "
                "functions of the observation cannot hold it; let observations show more of the state."
            )
        table[models] = np.where(np.isfinite(high), high, 0.0)

    def _reached(self, models: Ints) -> list[Mask]:
        """Returns per level `[m, S]` the states that some actions reach."""
        _, go_on, to = self._parts(models)
        reached = [self.start[models] > 0]
        for _ in range(self.horizon - 1):
            reached.append(_after(reached[-1], go_on, to))
        return reached

    def _ever_reached(self, models: Ints) -> Mask:
        """Returns `[m, S]` the states that some actions reach at some level."""
        _, go_on, to = self._parts(models)
        ever = new = self.start[models] > 0
        for _ in range(self.horizon - 1):
            new = _after(new, go_on, to) & ~ever
            if not new.any():
                break
            ever = ever | new
        return ever

    def merged(self) -> tuple["ModelArrays", Ints]:
        """Leaves out models that say the same as one before them about everything that can happen.

        Returns:
            The others, and `[N]` the place of each model among them.
        """
        place = np.zeros(self.n_models, dtype=np.int64)
        known: dict[bytes, int] = {}
        kept: list[int] = []
        for part, models in self.blocks():
            reached = self._ever_reached(models)[None, :, :, None]
            used = (self.probability[:, models] > 0) & reached  # [B, m, S, K]
            goes_on = used & ~self.done[:, models]
            columns = [
                np.where(used, self.probability[:, models], 0.0),
                np.where(used, self.reward[:, models] + 0.0, 0.0),  # -0.0 and 0.0 are one reward
                np.where(goes_on, self.next[:, models], -1),
            ]
            seen = [self.shows] if self.level_of is None else [self.shows, self.level_of]
            rows = [np.where(reached[0, :, :, 0], np.broadcast_to(s, self.start.shape)[models], -1) for s in seen]
            rows.append(self.start[models])
            for i in range(len(models)):
                key = b"".join([c[:, i].tobytes() for c in columns] + [row[i].tobytes() for row in rows])
                found = known.setdefault(key, len(kept))
                if found == len(kept):
                    kept.append(int(models[i]))
                place[part.start + i] = found
        return (self if len(kept) == self.n_models else self.take(np.array(kept))), place

    def policy_values(self, policy: Policy, models: Ints | None = None) -> Floats:
        """Returns `[m]` the value of a reactive policy in each model, exactly."""
        laws = [action_law(policy, h, self.codebook.rows, self.n_actions) for h in range(self.horizon)]
        sure = all(bool((law.max(axis=1) == 1).all()) for law in laws)
        result = np.zeros(self.n_models if models is None else len(models))
        for part, chosen in self.blocks(models):
            shows = self.shows if len(self.shows) == 1 else self.shows[chosen]
            value = np.zeros((len(chosen), self.n_states))
            for level in reversed(range(self.horizon)):
                at = self.columns(level)
                law = laws[level][np.maximum(shows[:, at], 0)]  # [m or 1, s, K]
                now = np.zeros_like(value)
                if sure:
                    now[:, at] = self._one_action(chosen, at, law.argmax(axis=2), value)
                else:
                    pay, go_on, to = self._parts(chosen)
                    now[:, at] = (law * _backup(pay[:, at], go_on[:, :, at], to[:, :, at], value)).sum(axis=2)
                value = now
            result[part] = (self.start[chosen] * value).sum(axis=1)
        return result

    def _one_action(self, models: Ints, at: Ints, taken: Ints, value: Floats) -> Floats:
        """Returns `[m, s]` the values of the states `at`, one action `[m or 1, s]` being taken in each."""
        entry = (models[:, None] * self.n_states + at) * self.n_actions + taken  # place in an array [N, S, K]
        result = self._pay.reshape(-1)[entry]
        for go_on, to in zip(self._go_on, self.next, strict=True):
            result += go_on.reshape(-1)[entry] * np.take_along_axis(value, to.reshape(-1)[entry], axis=1)
        return result

    # Laws within a total variation of those of the models [M2].

    def optimal_values_within(self, alpha: float, models: Ints | None = None) -> Floats:
        """Returns `[m]` the largest V* of a system each of whose laws is within alpha of the model's, on its outcomes."""
        return self._values_within(alpha, models, None)

    def policy_values_within(self, policy: Policy, alpha: float, models: Ints | None = None) -> Floats:
        """Returns `[m]` the smallest value of a reactive policy in such a system."""
        return self._values_within(
            alpha, models, [action_law(policy, h, self.codebook.rows, self.n_actions) for h in range(self.horizon)]
        )

    def _values_within(self, alpha: float, models: Ints | None, laws: list[Floats] | None) -> Floats:
        """Returns the largest V*, or the smallest value where the actions' `laws` per level `[X, K]` are given."""
        sign = 1.0 if laws is None else -1.0  # the smallest value is the largest of what is lost
        result = np.zeros(self.n_models if models is None else len(models))
        for part, chosen in self.blocks(models, self.probability[:, 0].size):
            shows = self.shows if len(self.shows) == 1 else self.shows[chosen]
            value = np.zeros((len(chosen), self.n_states))
            for level in reversed(range(self.horizon)):
                at = self.columns(level)
                p, to = self.probability[:, chosen][:, :, at], self.next[:, chosen][:, :, at]
                flat = to.transpose(1, 0, 2, 3).reshape(len(chosen), -1)
                later = np.take_along_axis(value, flat, axis=1).reshape(len(chosen), len(p), *p.shape[2:])
                later = np.where(self.done[:, chosen][:, :, at], 0.0, later.transpose(1, 0, 2, 3))
                q = _most_within(p, sign * self.reward[:, chosen][:, :, at] + later, alpha)
                value = np.zeros_like(value)
                if laws is None:
                    value[:, at] = reduced(np.maximum, q)
                else:
                    value[:, at] = (laws[level][np.maximum(shows[:, at], 0)] * q).sum(axis=2)
            result[part] = sign * _most_within(self.start[chosen].T, value.T, alpha)
        return result

    def step_laws(self, episodes: Episodes, models: Ints) -> Iterator[StepLaw]:
        """Yields the laws of all that was answered, one for every first observation, and observation and action of a level.

        What cannot be told apart is one outcome: at the last level the reward alone is seen.
        """
        H, n = episodes.levels, episodes.n
        seen, ended = self._read(episodes)
        start = self._first_law(models)[:, :-1]
        yield StepLaw((0, -1, -1), [(x, 0.0) for x in range(start.shape[1])], start, seen[0])
        for h in range(H):
            actions, rewards = np.asarray(episodes.actions[h]), np.asarray(episodes.rewards[h])
            after = np.where(ended[h + 1], -1, seen[h + 1]) if h + 1 < H else np.full(n, -1)
            unknown = ~ended[h + 1] & (seen[h + 1] < 0) if h + 1 < H else np.zeros(n, dtype=bool)
            keys, which = np.unique(np.stack([seen[h], actions], axis=1)[~ended[h]], axis=0, return_inverse=True)
            places = np.flatnonzero(~ended[h])
            for k, (x, a) in enumerate(keys.tolist()):
                mine = places[which.ravel() == k]
                yield self._law((h, x, a), models, h + 1 == H, rewards[mine], after[mine], unknown[mine])

    def _law(
        self, where: tuple[int, int, int], models: Ints, last: bool, rewards: Floats, after: Ints, unknown: Mask
    ) -> StepLaw:
        """Returns the law of what follows an observation and an action, and which outcome happened."""
        level, x, a = where
        assert self._state_tables is not None
        table = self._state_tables[level if self.level_of is not None else 0]
        state = (
            np.broadcast_to(table, (self.n_models, table.shape[1]))[models, x] if x >= 0 else np.full(len(models), -1)
        )
        spot = np.maximum(state, 0)
        p = np.where(state >= 0, self.probability[:, models, spot, a], 0.0)  # [B, m]
        reward, done = self.reward[:, models, spot, a], self.done[:, models, spot, a]
        to = np.broadcast_to(self.shows, (self.n_models, self.n_states))[models, self.next[:, models, spot, a]]
        to = np.where(done | last, -1, to)
        used = p > 0
        every = np.unique(np.concatenate([reward[used], rewards]))  # rewards within the tolerance count as one
        group = np.cumsum(np.append(0, np.diff(every) > REWARD_TOLERANCE * np.maximum(1.0, np.abs(every[1:]))))

        def key(next_x: Ints, paid: Floats) -> Ints:
            return (next_x + 1) * (group[-1] + 1) + group[np.searchsorted(every, paid)]

        known, column = np.unique(key(to[used], reward[used]), return_inverse=True)
        law = np.zeros((len(models), len(known)))
        np.add.at(law, (np.nonzero(used)[1], column.ravel()), p[used])
        came = key(after, rewards)
        place = np.minimum(np.searchsorted(known, came), max(len(known) - 1, 0))
        happened = np.where(unknown | (len(known) == 0), -1, place)
        happened = np.where((happened >= 0) & (known[place] == came if len(known) else False), happened, -1)
        first = np.append(True, np.diff(group) > 0)  # the smallest reward stands for its group
        names = [(int(k // (group[-1] + 1)) - 1, float(every[first][k % (group[-1] + 1)])) for k in known]
        return StepLaw(where, names, law, happened)

    # Likelihood.

    def start_log_probability(self, x: Observations, models: Ints | None = None) -> Floats:
        """Returns `[m, n]` the logarithm of how likely each model begins with each observation."""
        return _log(self._first_law(checked_members(models, self.n_models))[:, self.encode(x)])

    def _first_law(self, chosen: Ints) -> Floats:
        """Returns `[m, X + 1]` how likely each model begins with each observation, and 0 for one that no model shows."""
        present = self._present(0)
        chance = np.zeros(
            (len(chosen), len(self.codebook) + 1)
        )  # the last column is an observation that no model shows
        for part, block in self.blocks(chosen, self.n_states):
            shown = np.broadcast_to(present if len(present) == 1 else present[block], (len(block), self.n_states))
            rows = np.broadcast_to(np.arange(len(block))[:, None] + part.start, shown.shape)
            np.add.at(chance, (rows, shown), np.where(shown >= 0, self.start[block], 0.0))
        return chance

    def _read(self, episodes: Episodes) -> tuple[Ints, Mask]:
        """Returns `[H, n]` the number of each observation, -1 where none was made, and which episodes were over."""
        shape = (episodes.levels, episodes.n)
        ended = np.stack(episodes.ended) if len(episodes.ended) else np.zeros(shape, dtype=bool)
        seen = np.full(shape, -1, dtype=np.int64)
        for h, live in enumerate(~ended):
            seen[h, live] = self.encode(np.asarray(episodes.observations[h])[live])
        return seen, ended

    def _chances(
        self, level: int, models: Ints, seen: Ints, actions: Ints, rewards: Floats, after: Ints | None, ended: Mask
    ) -> Floats:
        """Returns `[m, n]` the probability of each step in each model; the observation tells the state."""
        assert self._state_tables is not None
        table = self._state_tables[level if self.level_of is not None else 0]
        state = np.where(seen >= 0, (table if len(table) == 1 else table[models])[:, seen], -1)  # [m or 1, n]
        rows = models[:, None]
        spot = np.maximum(state, 0)
        total = np.zeros((len(models), len(seen)))
        for b in range(len(self.probability)):
            chance = self.probability[b][rows, spot, actions]
            fits = _same_reward(self.reward[b][rows, spot, actions], rewards)
            if after is not None:
                to, done = self.next[b][rows, spot, actions], self.done[b][rows, spot, actions]
                shown = self.shows[0][to] if len(self.shows) == 1 else self.shows[rows, to]
                fits &= np.where(ended, done, ~done & (shown == after) & (after >= 0))
            total += np.where(fits, chance, 0.0)
        return np.where(state >= 0, total, 0.0)

    def episode_log_likelihoods(self, episodes: Episodes, models: Ints | None = None) -> Floats:
        """Returns `[m, n]` the logarithm of how likely each model answers each whole episode, given its actions.

        At the last level that was played only the reward counts: what follows was not seen.
        """
        chosen = checked_members(models, self.n_models)
        H = episodes.levels
        if not 1 <= H <= self.horizon:
            raise InvalidInput(f"these models have {self.horizon} levels; episodes of {H} arrived.")
        seen, ended = self._read(episodes)
        if not self.is_identified:
            return self._filtered(episodes, seen, ended, chosen)
        result = self.start_log_probability(np.asarray(episodes.observations[0]), chosen)
        for h in range(H):
            alive = np.flatnonzero(~ended[h])
            if not len(alive):
                break
            a, r = np.asarray(episodes.actions[h])[alive], np.asarray(episodes.rewards[h])[alive]
            ends = ended[h + 1][alive] if h + 1 < H else np.zeros(len(alive), dtype=bool)
            after = seen[h + 1][alive] if h + 1 < H else None
            for part, block in self.blocks(chosen, len(alive)):
                result[part, alive] += _log(self._chances(h, block, seen[h][alive], a, r, after, ends))
        return result

    def _filtered(self, episodes: Episodes, seen: Ints, ended: Mask, models: Ints) -> Floats:
        """Returns `[m, n]` log-likelihoods by the forward recursion over states, where observations hide them."""
        H, n = seen.shape
        result = np.zeros((len(models), n))
        for part, block in self.blocks(models, n * self.n_states):
            size = (len(block), n, self.n_states)
            shows = np.broadcast_to(self.shows if len(self.shows) == 1 else self.shows[block], (len(block), size[2]))
            belief = self.start[block][:, None, :] * (shows[:, None, :] == seen[0][:, None]) * (seen[0][:, None] >= 0)
            log = np.zeros(size[:2])
            belief, log = _rescaled(belief, log)
            cell = np.arange(size[0] * n).reshape(size[0], n, 1) * self.n_states
            for h in range(H):
                a, r = np.asarray(episodes.actions[h]), np.asarray(episodes.rewards[h])
                last = h + 1 == H
                ends = np.zeros(n, dtype=bool) if last else ended[h + 1]
                after = np.zeros(size)
                for b in range(len(self.probability)):
                    chance = self.probability[b][block][:, :, a].transpose(0, 2, 1)  # [m, n, S]
                    pay = self.reward[b][block][:, :, a].transpose(0, 2, 1)
                    weight = np.where(_same_reward(pay, r[:, None]), belief * chance, 0.0)
                    if not last:
                        done = self.done[b][block][:, :, a].transpose(0, 2, 1)
                        weight = np.where(done == ends[:, None], weight, 0.0)
                    to = self.next[b][block][:, :, a].transpose(0, 2, 1)
                    after += np.bincount((cell + to).ravel(), weights=weight.ravel(), minlength=after.size).reshape(
                        size
                    )
                if not last:
                    fits = (shows[:, None, :] == seen[h + 1][:, None]) & (seen[h + 1][:, None] >= 0)
                    after = np.where(ends[:, None] | fits, after, 0.0)
                over = ended[h][:, None]
                belief, log = _rescaled(np.where(over, belief, after), log)
            result[part] = log
        return result


def _after(reached: Mask, go_on: Floats, to: NDArray[np.int32]) -> Mask:
    """Returns `[m, S]` the states to which some action leads from one of the states `[m, S]`."""
    after = np.zeros_like(reached)
    rows, states = np.nonzero(reached)
    for b in range(len(to)):
        moves = go_on[b][rows, states] > 0  # [reached, K]
        after[np.broadcast_to(rows[:, None], moves.shape)[moves], to[b][rows, states][moves]] = True
    return after


def _backup(pay: Floats, go_on: Floats, to: NDArray[np.int32], value: Floats) -> Floats:
    """Returns `[m, s, K]` Q from the values `[m, S]` of the next level."""
    q = pay.copy()
    flat = (len(pay), pay.shape[1] * pay.shape[2])
    for b in range(len(to)):
        q += go_on[b] * np.take_along_axis(value, to[b].reshape(flat), axis=1).reshape(pay.shape)
    return q


def _most_within(p: Floats, values: Floats, alpha: float) -> Floats:
    """Returns the largest mean of values `[B, ...]` under a law within alpha of p in total variation, on its outcomes.

    Mass alpha moves from the smallest values to the largest one; 0 where p has no outcome.
    """
    possible = p > 0
    top = np.where(possible, values, -np.inf).max(axis=0)
    order = np.argsort(np.where(possible, values, np.inf), axis=0, kind="stable")
    p, values = np.take_along_axis(p, order, axis=0), np.take_along_axis(values, order, axis=0)
    moved = np.clip(alpha - (np.cumsum(p, axis=0) - p), 0.0, p)
    gain = np.where(p > 0, moved * (np.where(np.isfinite(top), top, 0.0) - values), 0.0)
    return np.asarray((np.where(p > 0, p * values, 0.0) + gain).sum(axis=0))


def _same_reward(expected: Floats, paid: Floats) -> Mask:
    return np.abs(expected - paid) <= REWARD_TOLERANCE * np.maximum(1.0, np.abs(paid))


def _log(chance: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(chance)


def _rescaled(belief: Floats, log: Floats) -> tuple[Floats, Floats]:
    """Returns beliefs that sum to 1 (or are 0), and the logarithms with what they summed to added."""
    total = belief.sum(axis=2)
    return belief / np.where(total > 0, total, 1.0)[:, :, None], log + _log(total)


def _numbered(models: Sequence[Model], n_states: int) -> tuple[Ints, Codebook]:
    """Returns `[N or 1, S]` the number of each state's observation, and the observations."""
    first = models[0].shown
    if all(m.observations is models[0].observations or np.array_equal(m.shown, first) for m in models) and all(
        m.n_states == n_states for m in models
    ):
        rows, row = distinct(first)
        return row[None, :].astype(np.int64), Codebook(rows)
    kinds = {(m.shown.dtype.str, m.shown.shape[1:]) for m in models}
    if len(kinds) > 1:
        raise InvalidInput(
            f"the observations of all models must have one type and shape; got {sorted(map(str, kinds))}."
        )
    rows, row = distinct(np.concatenate([m.shown for m in models]))
    shows = np.full((len(models), n_states), -1, dtype=np.int64)
    place = 0
    for i, m in enumerate(models):
        shows[i, : m.n_states] = row[place : place + m.n_states]
        place += m.n_states
    return shows, Codebook(rows)


def _padded(rows: Sequence[Ints | None], width: int) -> Ints:
    """Returns `[N, width]` rows of different lengths, -1 behind their ends; `[1, width]` where all are equal."""
    result = np.full((len(rows), width), -1, dtype=np.int64)
    for i, row in enumerate(rows):
        if row is not None:
            result[i, : len(row)] = row
    return result[:1] if (result == result[0]).all() else result


def merged_rewards(reward: Floats) -> Floats:
    """Returns rewards of any shape, each group that differs by rounding alone replaced by its smallest.

    A reward moves by much less than `REWARD_TOLERANCE`, which claims allow for; where it would not, nothing is changed.
    """
    known, place = np.unique(reward, return_inverse=True)
    apart = np.diff(known, prepend=-np.inf) > SAME_REWARD * np.maximum(1.0, np.abs(known))
    first = known[np.flatnonzero(apart)[np.cumsum(apart) - 1]]
    if (known - first > 100 * SAME_REWARD * np.maximum(1.0, np.abs(known))).any():
        return reward
    return first[place].reshape(reward.shape)

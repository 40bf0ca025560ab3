"""Steps of episodes: read and counted, and bet on one by one where the real system is only near the family [F7].

Before a batch every state and action has one forecast q of its outcomes. The bet of a step against theta is f / (1 + alpha
span(f)), f = min(q / p_theta, LARGEST_RATIO): its mean is at most 1 under every law within alpha of p_theta on its outcomes.
Labels are those of `docs/models.md`. Shapes: N structures, E events, B outcomes of a row at most, O outcomes of a row in all
structures together, T terms, P points, C cells.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from richobs.classes.model_arrays import REWARD_TOLERANCE, ModelArrays
from richobs.classes.parametric import Family
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise, InvalidInput
from richobs.core.types import Floats, Ints
from richobs.learners.models.living import ALARM, KAPPAS, LARGEST_RATIO

STARTED, MOVED, LAST = 0.0, 1.0, 2.0  # kinds of steps: the first state; a move; a reward at the last level
ENDED = -1.0  # in the place of the next state

Row = tuple[float, ...]  # (kind, state, action)
LEAST_WEIGHT = 1e-3  # of an alarm in a forecast; below it only the family's own law counts
TINY = 1e-300  # probabilities below it count as it: their logarithm is finite
AT_ONCE = 4_000_000  # numbers [T, B, C] that are held at once


class Batch(NamedTuple):
    """Different steps of some episodes."""

    steps: list[tuple[float, ...]]  # (kind, state, action, next, reward)
    n: Floats  # [u] how often each was seen


def read_steps(arrays: ModelArrays, rewards: Floats, played: Episodes) -> Batch:
    """Returns the different steps of some episodes.

    Args:
        arrays: of the family.
        rewards: all that it lists, each once.
        played: the episodes.

    Raises:
        BrokenPromise: an observation that no state shows, or a first state that the family holds impossible.
    """
    H = played.levels
    ended = np.stack(played.ended) if len(played.ended) else np.zeros((H, played.n), dtype=bool)
    states = np.full((H, played.n), -1, dtype=np.int64)
    parts = []
    for h in range(H):
        going = np.flatnonzero(~ended[h])
        states[h, going] = arrays.encode(np.asarray(played.observations[h])[going])
        unknown = states[h, going] < 0
        if unknown.any():
            x = np.asarray(played.observations[h])[going][unknown][0]
            raise BrokenPromise(
                f"level {h} showed {np.array2string(np.asarray(x), threshold=8)}, which no state of the family shows."
            )
    zeros = np.zeros(played.n)
    parts.append(np.stack([zeros + STARTED, states[0], zeros, zeros, zeros], axis=1))
    for h in range(H):
        going = np.flatnonzero(~ended[h])
        a, r = (np.asarray(x[h], dtype=np.float64)[going] for x in (played.actions, played.rewards))
        near = rewards[np.abs(rewards - r[:, None]).argmin(axis=1)]
        r = np.where(np.abs(near - r) <= REWARD_TOLERANCE * np.maximum(1.0, np.abs(r)), near, r)  # one reward, one step
        last = h + 1 == H
        after = np.full(len(going), 0.0) if last else np.where(ended[h + 1], ENDED, states[h + 1])[going]
        kind = np.full(len(going), LAST if last else MOVED)
        parts.append(np.stack([kind, states[h, going], a, after, r], axis=1))
    rows, n = np.unique(np.concatenate(parts), axis=0, return_counts=True)
    return Batch([tuple(row) for row in rows.tolist()], n.astype(np.float64))


def outcome_words(step: tuple[float, ...]) -> str:
    """Returns the outcome of a step in words."""
    kind, _, _, after, reward = step
    where = "" if kind == LAST else "the end and " if after == ENDED else f"state {int(after)} and "
    return f"{where}reward {reward:g}"


def step_words(step: tuple[float, ...]) -> str:
    """Returns a step in words."""
    return f"state {int(step[1])}, action {int(step[2])}, then {outcome_words(step)}"


class Outcomes(NamedTuple):
    """What may come of one row, in all structures."""

    names: list[
        tuple[float, float]
    ]  # [O] (next state, or ENDED; reward); at the last level 0 in the place of the first
    key: Ints  # [B, N] the number of each outcome; O where it is none
    events: Ints  # [B, N]
    last: list[float]  # [O] rewards up to this one count as that of the name: they cannot be told apart


class Term(NamedTuple):
    """Steps of one batch and one row."""

    row: Row
    q: Floats  # [O] the forecast
    n: Floats  # [O] how often each outcome came


@dataclass(frozen=True, eq=False)
class Within:
    """What a tolerance allows parameters of one structure: terms that were grouped."""

    alpha: float
    events: Ints  # [T, B] of each outcome of a row; -1 for none
    q: Floats  # [T, B] the forecast
    n: Floats  # [T] how often
    cap: Floats  # [E] probabilities below it count as it: the largest q of what was seen, by LARGEST_RATIO

    def allowed(self, low: Floats, high: Floats) -> Floats:
        """Returns `[C]` at least the sum of log(1 + alpha span(f)) where probabilities lie between low and high `[E, C]`."""
        real = self.events >= 0
        total = np.zeros(low.shape[1])
        each = max(1, AT_ONCE // max(1, self.events.shape[1] * low.shape[1]))
        with np.errstate(divide="ignore"):
            for first in range(0, len(self.n), each):
                part = slice(first, first + each)
                at, q, is_real = self.events[part], self.q[part][:, :, None], real[part][:, :, None]
                most = np.minimum(q / np.maximum(low, TINY)[at], LARGEST_RATIO)
                least = np.minimum(q / np.maximum(high, TINY)[at], LARGEST_RATIO)
                span = np.where(is_real, most, -np.inf).max(axis=1) - np.where(is_real, least, np.inf).min(axis=1)
                total += self.n[part] @ np.log1p(self.alpha * (1 + 1e-12) * np.maximum(span, 0.0))
        return total


class StepBets:
    """The forecasts of every batch, step by step, and what came."""

    def __init__(self, family: Family):
        self.family = family
        self.terms: list[Term] = []
        self.log_q = 0.0  # logarithm of what the forecasts gave to what was seen
        self._outcomes: dict[Row, Outcomes] = {}
        self._counts: dict[Row, Floats] = {}
        self._grouped: dict[int, tuple[int, Within]] = {}  # of a structure, with how many terms there were
        self._logs: Floats = np.zeros(1 + len(KAPPAS))  # of the family's forecast and each alarm's, if played alone

    @property
    def weights(self) -> Floats:
        """`[4]` shares of the family's law and of each alarm's in the next forecast, by how well they did."""
        money = np.array([1 - ALARM, *[ALARM / len(KAPPAS)] * len(KAPPAS)])
        odds = money * np.exp(self._logs - self._logs.max())
        odds /= odds.sum()
        odds[1:] *= odds[1:] >= LEAST_WEIGHT
        return odds / odds.sum()

    def add(self, batch: Batch, mean: Floats) -> None:
        """Bets on a batch by forecasts that were fixed before it, and only then counts it.

        Args:
            batch: what came.
            mean: `[N, E]` the forecast of each structure's events: nodes of it, weighted; weights of all sum to 1.
        """
        weights, new = self.weights, []
        for row, places, n in self._by_row(batch):
            outcomes = self.outcomes(row)
            fit = np.bincount(
                outcomes.key.ravel(),
                mean[np.arange(outcomes.key.shape[1]), outcomes.events].ravel(),
                len(outcomes.names) + 1,
            )[:-1]
            known = self._counts.get(row, np.zeros(len(fit)))
            laws = np.stack([fit, *((known + kappa * fit) / (known.sum() + kappa) for kappa in KAPPAS)])
            came = np.bincount(places, n, len(fit)).astype(np.float64)
            q = np.maximum(weights @ laws, TINY)
            self._logs = self._logs + np.log(np.maximum(laws, TINY)) @ came
            new.append(Term(row, q, came))
        for term in new:
            self.keep(term)

    def keep(self, term: Term) -> None:
        """Counts what came of one row in a batch."""
        self.terms.append(term)
        self.log_q += float(term.n @ np.log(term.q))
        self._counts[term.row] = self._counts.get(term.row, 0.0) + term.n

    def _by_row(self, batch: Batch) -> list[tuple[Row, list[int], list[float]]]:
        found: dict[Row, tuple[list[int], list[float]]] = {}
        for step, n in zip(batch.steps, batch.n, strict=True):
            if step[0] != STARTED:  # the law of the first state is known
                places, counts = found.setdefault(step[:3], ([], []))
                places.append(self._place(step))
                counts.append(float(n))
        return [(row, places, counts) for row, (places, counts) in found.items()]

    def _place(self, step: tuple[float, ...]) -> int:
        names, _, _, last = self.outcomes(step[:3])
        same = [i for i, (to, _) in enumerate(names) if to == step[3]]
        return min(same, key=lambda i: max(names[i][1] - step[4], step[4] - last[i], 0.0))  # some structure has it

    def outcomes(self, row: Row) -> Outcomes:
        """Returns what may come of a row.

        Raises:
            InvalidInput: rewards of different structures are too close to be told apart, and do not belong together.
        """
        if row in self._outcomes:
            return self._outcomes[row]
        kind, s, a = row[0], int(row[1]), int(row[2])
        family, at, last = self.family, (slice(None), slice(None), s, a), kind == LAST
        arrays = family.arrays
        reward, real = arrays.reward[at], ~family.padding[at]  # [B, N]
        to = np.where(arrays.done[at], ENDED, arrays.next[at]) if not last else np.zeros(reward.shape)
        events = (family.paid if last else family.events)[at]
        every = np.unique(reward[real])
        group = np.cumsum(np.append(0, np.diff(every) > 4 * REWARD_TOLERANCE * np.maximum(1.0, np.abs(every[1:]))))
        first, final = (every[np.append(*ends)] for ends in ((True, np.diff(group) > 0), (np.diff(group) > 0, True)))
        pay = group[np.minimum(np.searchsorted(every, reward), len(every) - 1)]
        pairs = np.stack([to[real], pay[real].astype(np.float64)], axis=1)
        names, place = np.unique(pairs, axis=0, return_inverse=True)
        key = np.full(reward.shape, len(names))
        key[real] = place.ravel()
        for b, n in np.argwhere(real).tolist():
            twins = np.flatnonzero(key[:b, n] == key[b, n])
            if len(twins):  # at the last level outcomes of one reward are one event
                if events[twins[0], n] != events[b, n]:
                    raise InvalidInput(
                        f"state {s}, action {a}: rewards near {reward[b, n]:.12g} of different structures cannot be told "
                        "apart. With a tolerance they must be equal, or further apart."
                    )
                key[b, n] = len(names)
        listed = [(float(x), float(first[int(g)])) for x, g in names]
        found = Outcomes(listed, key, events, [float(final[int(g)]) for _, g in names])
        self._outcomes[row] = found
        return found

    def within(self, structure: int, alpha: float) -> Within:
        """Returns the terms of a structure; those with equal events and forecasts are one."""
        known = self._grouped.get(structure)
        if known is None or known[0] != len(self.terms):
            known = self._grouped[structure] = (len(self.terms), self._group(structure))
        return replace(known[1], alpha=alpha)

    def _group(self, structure: int) -> Within:
        E, B = len(self.family.program.wanted), self.family.events.shape[0]
        lines, counts, cap = [], [], np.zeros(E)
        for row, q, n in self.terms:
            outcomes = self.outcomes(row)
            key, events = outcomes.key[:, structure], outcomes.events[:, structure]
            real = key < len(q)
            own = np.where(real, np.append(q, 0.0)[key], -1.0)
            at = np.where(real, events, -1)
            order = np.lexsort((own, at))
            lines.append(np.concatenate([at[order].astype(np.float64), own[order]]))
            counts.append(n.sum())
            seen = real & (np.append(n, 0.0)[key] > 0)
            np.maximum.at(cap, events[seen], own[seen] / LARGEST_RATIO)
        if not lines:
            return Within(0.0, np.zeros((0, B), np.int64), np.zeros((0, B)), np.zeros(0), cap)
        whole, place = np.unique(np.array(lines), axis=0, return_inverse=True)
        return Within(
            0.0, whole[:, :B].astype(np.int64), whole[:, B:], np.bincount(place.ravel(), counts).astype(np.float64), cap
        )

    def counts(self, structure: int) -> Floats:
        """Returns `[E]` how often each event of a structure was seen; NaN where it holds something seen impossible."""
        result = np.zeros(len(self.family.program.wanted))
        for row, _, n in self.terms:
            outcomes = self.outcomes(row)
            key, events = outcomes.key[:, structure], outcomes.events[:, structure]
            own = np.append(n, 0.0)[key]
            if own.sum() < n.sum():
                return np.full(len(result), math.nan)
            np.add.at(result, events, own)
        return result

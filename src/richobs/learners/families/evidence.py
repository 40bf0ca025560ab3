"""What was seen, and how likely: counts, the forecast that was fixed before each batch, and the alarm [F1].

Shapes: N structures, E events, U different steps that were seen, I nodes of the forecast, d parameters.
"""

import math
from typing import NamedTuple

import numpy as np

from richobs.classes.model_arrays import REWARD_TOLERANCE
from richobs.classes.parametric import Family
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise
from richobs.core.types import Floats, Ints, Mask
from richobs.learners.families.cells import Evidence
from richobs.learners.families.steps import (
    ENDED,
    LAST,
    MOVED,
    STARTED,
    TINY,
    Batch,
    StepBets,
    outcome_words,
    read_steps,
    step_words,
)
from richobs.learners.models.living import ALARM, KAPPAS, ZETA
from richobs.stats import bets
from richobs.stats.shares import Spendable

TRUST = KAPPAS  # episodes that the fit counts as, in each of the forecasts that do not believe in the family
HISTORY = 20_000  # numbers [N, E] of a forecast, of which those of all batches are kept at most


class Nodes(NamedTuple):
    """The forecast of the next batch: a mixture of parameters, fixed before it is played."""

    structure: Ints  # [I]
    theta: Floats  # [d, I]
    law: Floats  # [E, I] probabilities of events
    weight: Floats  # [I] they sum to 1

    def means(self, n_structures: int) -> Floats:
        """Returns `[N, E]` the events of each structure, weighted."""
        result = np.zeros((n_structures, len(self.law)))
        np.add.at(result, self.structure, (self.law * self.weight).T)
        return result


class Seen:
    """All that is kept of the episodes, and the accounts against every parameter of the box."""

    def __init__(self, family: Family, share: Spendable, alpha: float = 0.0):
        """Starts with nothing.

        Args:
            family: the family.
            share: probability with which the true parameters may ever not live.
            alpha: how far the real laws may be from those of the true parameters, in total variation.
        """
        self.alpha, self.stepwise = alpha, StepBets(family)
        self._history: list[tuple[Batch, Floats]] = []  # what was not bet on step by step
        self.family = family
        self.steps: dict[tuple[float, ...], int] = {}
        self.n: list[float] = []  # [U]
        self.events: list[Ints] = []  # [U] of [N], the event of each step in each structure; -1 where it is impossible
        self.rows: dict[tuple[float, ...], float] = {}  # (kind, state, action) -> how often
        self._rewards: Floats = np.unique(family.arrays.reward)
        E = len(family.program.wanted)
        self.counts: Floats = np.zeros((family.n_structures, E))
        self.log_first: Floats = np.zeros(family.n_structures)  # where structures differ in what the first state shows
        self.possible: Mask = np.ones(family.n_structures, dtype=bool)
        self.factors = 0  # probabilities multiplied
        self.log_mixture = 0.0
        self.log_alarms: Floats = np.zeros(len(TRUST))  # relative to the law of the first state, which is known
        self._log_death = math.log(bets.death(share))

    @property
    def log_numerator(self) -> float:
        """Logarithm of what all forecasts together gave to what was seen: nine tenths of the money on the mixture."""
        if self.alpha:
            return self.stepwise.log_q
        shares = np.array([1 - ALARM, *[ALARM / len(TRUST)] * len(TRUST)])
        logs = np.log(shares) + np.array([self.log_mixture, *self.log_alarms])
        top = float(logs.max())
        return top + math.log(float(np.exp(logs - top).sum()))

    @property
    def threshold(self) -> float:
        """Parameters live while their log-likelihood exceeds this (Theorem F1); rounding lowers it."""
        return self.threshold_of(self.log_numerator)

    def threshold_of(self, log_numerator: float) -> float:
        """Returns the threshold where forecasts gave this to what was seen."""
        return log_numerator - self._log_death - 2 * ZETA * self.factors

    def evidence(self, structure: int, threshold: float | None = None) -> Evidence:
        """Returns what the data say of one structure."""
        within = self.stepwise.within(structure, self.alpha) if self.alpha else None
        least = self.threshold if threshold is None else threshold
        return Evidence(self.counts[structure], least - float(self.log_first[structure]), within)

    def nearly(self, alpha: float) -> dict[int, Evidence]:
        """Returns what the data say of every possible structure where the real laws are only within alpha [F7]."""
        for batch, means in self._history:
            self.stepwise.add(batch, means)
        self._history = []
        threshold = self.threshold_of(self.stepwise.log_q)
        some = np.flatnonzero(self.possible)
        return {int(k): Evidence(self.counts[k], threshold, self.stepwise.within(int(k), alpha)) for k in some}

    @property
    def has_history(self) -> bool:
        """Whether all batches were kept: not where a family has very many structures."""
        return self.alpha > 0 or (self.counts.size <= HISTORY and self.family.is_read)

    def read(self, played: Episodes) -> Batch:
        """Returns the different steps of some episodes."""
        return read_steps(self.family.arrays, self._rewards, played)

    def absorb(self, batch: Batch, nodes: Nodes) -> None:
        """Weighs a batch by the forecasts that were fixed before it, and only then counts it.

        Raises:
            BrokenPromise: no structure holds all of it possible.
        """
        new, began = self._counted(batch)
        alarm = np.zeros(len(TRUST))
        mixed = nodes.law * nodes.weight
        for step, n in zip(batch.steps, batch.n, strict=True):
            if step[0] == STARTED:
                if not self.family.is_read:  # otherwise every forecast knows the law of the first state
                    first = self._first(int(step[1]))
                    alarm += n * math.log(max(float(nodes.weight @ first[nodes.structure]), TINY))
                continue
            place = self._place(step)
            at, seen = self.events[place][nodes.structure], self.n[place]
            fit = float(mixed[np.maximum(at, 0), np.arange(len(at))][at >= 0].sum())
            total = self.rows.get(step[:3], 0.0)
            laws = [(seen + trust * fit) / (total + trust) for trust in TRUST]
            alarm += n * np.log(np.maximum(laws, TINY))
        if self.alpha:
            self.stepwise.add(batch, nodes.means(len(self.counts)))
        elif self.has_history:
            self._history.append((batch, nodes.means(len(self.counts))))
        log_law = np.log(np.maximum(nodes.law, TINY))
        logs = (new[nodes.structure] * log_law.T).sum(axis=1) + began[nodes.structure]  # [I]
        logs = np.where(self.possible[nodes.structure], logs, -np.inf) + np.log(np.maximum(nodes.weight, TINY))
        top = float(logs.max())
        self.log_mixture += top + math.log(float(np.exp(logs - top).sum())) if math.isfinite(top) else -math.inf
        self.log_alarms += alarm
        self._keep(batch, new, began)

    def recount(self, steps: list[list[float]]) -> None:
        """Counts steps (kind, observation, action, next, reward, how often) that were weighed before.

        Raises:
            BrokenPromise: no structure holds all of them possible.
        """
        batch = Batch([tuple(step[:5]) for step in steps], np.array([step[5] for step in steps], dtype=np.float64))
        self._keep(batch, *self._counted(batch))

    def _counted(self, batch: Batch) -> tuple[Floats, Floats]:
        """Returns `[N, E]` events of a batch and `[N]` log-likelihoods of its first states; notes what is impossible."""
        new, began, own = np.zeros_like(self.counts), np.zeros(len(self.counts)), np.arange(len(self.counts))
        for step, n in zip(batch.steps, batch.n, strict=True):
            event = self.events[self._place(step)]
            if step[0] == STARTED:
                first = self._first(int(step[1]))
                if not first.any():
                    raise BrokenPromise(f"an episode began in state {int(step[1])}, which the family holds impossible.")
                if not self.family.is_read:
                    self.possible &= first > 0
                    began += n * np.log(np.maximum(first, TINY))
                continue
            new[own[event >= 0], event[event >= 0]] += n
            self.possible &= event >= 0
        if not self.possible.any():
            raise BrokenPromise(self._impossible(batch))
        return new, began

    def _keep(self, batch: Batch, new: Floats, began: Floats) -> None:
        self.counts += new
        self.log_first += began
        for step, n in zip(batch.steps, batch.n, strict=True):
            self.n[self.steps[step]] += float(n)
            self.rows[step[:3]] = self.rows.get(step[:3], 0.0) + float(n)
        self.factors += int(batch.n.sum())

    def _first(self, x: int) -> Floats:
        """Returns `[N]` the probability that an episode begins with an observation, in every structure."""
        state = self.family.state_of[:, x]
        return np.where(state >= 0, self.family.arrays.start[np.arange(len(state)), state], 0.0)

    def _place(self, step: tuple[float, ...]) -> int:
        """Returns the number of a step; a new one is looked up in every structure."""
        if step not in self.steps:
            self.steps[step] = len(self.n)
            self.n.append(0.0)
            self.events.append(self._events_of(step))
        return self.steps[step]

    def _events_of(self, step: tuple[float, ...]) -> Ints:
        """Returns `[N]` the event of a step in every structure, -1 where it is impossible."""
        kind, x, a, after, reward = step
        family, every = self.family, np.arange(self.family.n_structures)
        if kind == STARTED:
            return np.full(family.n_structures, -1)
        arrays, state = family.arrays, family.state_of[:, int(x)]
        at = (slice(None), every, state, int(a))
        close = np.abs(arrays.reward[at] - reward) <= 2 * REWARD_TOLERANCE * max(1.0, abs(reward))
        fits = close & ~family.padding[at] & (state >= 0)  # [B, N]
        if kind == MOVED:
            to = None if after == ENDED else family.state_of[:, int(after)]
            fits &= arrays.done[at] if to is None else ~arrays.done[at] & (arrays.next[at] == to)
        events = (family.paid if kind == LAST else family.events)[at]
        return np.where(fits.any(axis=0), np.take_along_axis(events, fits.argmax(axis=0)[None], axis=0)[0], -1)

    def _impossible(self, batch: Batch) -> str:
        """Returns, in words, a step that no structure holds possible, or one that the last ones do not."""
        for step in batch.steps:
            if step[0] != STARTED and not (self.events[self.steps[step]] >= 0).any():
                return f"{step_words(step)} is impossible for every parameter of the family."
        return "what was seen is impossible for every structure of the family."

    def misfit(self, structure: int, law: Floats) -> str:
        """Returns, in words, the state and action whose outcomes are the least likely by probabilities `[E]` of events."""
        worst, words = -math.inf, ""
        for row, total in self.rows.items():
            mine = [(step, u) for step, u in self.steps.items() if step[:3] == row and row[0] != STARTED]
            if not mine:
                continue
            n = np.array([self.n[u] for _, u in mine])
            p = np.array([law[self.events[u][structure]] for _, u in mine])
            lost = float((n * np.log(n / total / np.maximum(p, TINY))).sum())
            if lost > worst:
                seen = ", ".join(
                    f"{outcome_words(step)} {int(k):,} times where {total * q:.1f} are expected"
                    for (step, _), k, q in zip(mine, n, p, strict=True)
                )
                worst, words = lost, f"state {int(row[1])}, action {int(row[2])}: {seen}"
        return words

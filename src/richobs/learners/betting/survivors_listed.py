"""Survivors of a listed class: one wealth for every function, over all levels [B1].

Within an episode the factors of levels 0, 1, ... follow each other, since y of a level is known with the next observation
and before the bet of the next level. Their product is one martingale, and a function dies at 0.7/d.
Shapes: N functions alive, M of them in the panel that makes forecasts, P priors, n samples.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from richobs.core.errors import BrokenPromise
from richobs.core.functions import FunctionClass
from richobs.core.types import Floats, Ints, Mask, Member
from richobs.learners.betting.values import (
    CONSTANTS,
    PRIORS,
    Cells,
    Fit,
    Largest,
    Ranges,
    Samples,
    forecasts,
    taken_values,
    top_values,
    variances,
)
from richobs.stats import bets
from richobs.stats.shares import Share

PANEL_NUMBERS = 25_000_000  # losses of panels that are held at once, over all levels
LARGEST_PANEL = 64  # forecasters of a level
AT_ONCE = 1 << 12  # functions whose bets are computed at once
KEPT_NUMBERS = 1 << 22  # values of y, of all functions, that are kept until losses are added up, instead of read again


class ListedSurvivors:
    """What is left of a listed class."""

    def __init__(self, functions: FunctionClass, share: Share, ranges: Ranges):
        """Starts with the whole class.

        Args:
            functions: the class.
            share: probability with which bets may refute Q*.
            ranges: of rewards and values.
        """
        self.functions, self.ranges = functions, ranges
        self.limit = bets.refutation(share)
        self._members = np.arange(functions.level_size(0))
        H, N = functions.horizon, len(self._members)
        self._wealth = np.zeros(N)
        self._own_loss = np.zeros((H, N))
        self._missed = np.zeros((H, len(PRIORS), N))
        self._seen = np.zeros(H, dtype=np.int64)
        self._history: list[Sequence[Samples]] = []
        self._cells = Cells(N)  # mean errors y - f at what came again, over all levels
        self._choose_panel()

    @property
    def log_size(self) -> float:
        """Logarithm of the number of survivors."""
        return math.log(len(self._members))

    @property
    def log_bound(self) -> float:
        """The same as `log_size`, which is cheap for a list."""
        return self.log_size

    @property
    def only(self) -> Member | None:
        """The last surviving function; None where there are several."""
        return int(self._members[0]) if len(self._members) == 1 else None

    @property
    def rounding(self) -> float:
        """0: listed functions bet in NumPy."""
        return 0.0

    def living(self, level: int) -> Ints:
        """Returns `[N]` the surviving functions, the same at every level."""
        return self._members

    def log_wealth(self, member: Member) -> tuple[float, ...]:
        """Returns the logarithm of the bets won against a survivor, over all levels."""
        return (bets.log_of(self._wealth[self.root(member)]),)

    def least_wealth(self) -> float:
        """Returns the wealth against the survivor that bets won least against."""
        return float(self._wealth.min())

    def root(self, member: Member) -> int:
        """Returns the place of a survivor among the living."""
        return int(np.searchsorted(self._members, member))

    def __contains__(self, member: Member) -> bool:
        return bool(np.isin(member, self._members))

    def absorb(self, steps: Sequence[Samples], t: int) -> int:
        """Settles the bets of the t-th batch, drops functions that died, and returns how many did.

        All forecasts come from earlier batches; the values f(x, a) of this one choose among them.
        """
        N, some = len(self._members), [(h, step) for h, step in enumerate(steps) if len(step.actions)]
        change, refuted = np.zeros(N), np.zeros(N, dtype=bool)
        places = [self._cells.places(step.keys) for _, step in some]
        panels: dict[int, Floats] = {}
        earned: dict[int, Floats] = {}  # y of all functions, where one block holds them and they are few numbers
        are_few = N * sum(len(step.actions) for _, step in some) <= KEPT_NUMBERS
        for rows in self._blocks():
            cells = self._cells.part(rows)
            samples: list[tuple[Ints, Floats, Floats, Floats]] = []  # of all levels, for forecasts of later batches
            for (h, step), place in zip(some, places, strict=True):
                f, (y, wrong) = self._taken(h, step, self._members[rows]), self._earned(h, step, self._members[rows])
                if len(f) == N:
                    panels[h] = f[self._panel]
                    if are_few:
                        earned[h] = y
                elif h not in panels:
                    panels[h] = self._taken(h, step, self._members[self._panel])
                refuted[rows] |= wrong
                missed = self._missed[h][:, rows]
                s = variances(missed, int(self._seen[h]))  # [P, N]
                losses = self._loss[h][:, rows], self._constant_loss[h][:, rows]
                g = forecasts(*losses, s, np.ones(len(self._panel)), panels[h])  # [P, N, n]
                best, each = missed.argmin(axis=0), np.arange(len(f))
                start = g[best, each]
                corrected = np.clip(f + cells.forecast(place, np.zeros_like(f)), 0.0, 1.0)
                better = cells.serve_better[:, None]
                variance = np.where(better, cells.variance(place), s[best, each][:, None])
                tolerance = float(self.ranges.residual[h])
                stake = bets.stakes(np.where(better, corrected, start), variance, f, tolerance)
                change[rows] += bets.log_factors(stake, y, f, tolerance).sum(axis=1)
                samples.append((place, y - f, y - corrected, y - start))
                self._own_loss[h, rows] += ((f - y) ** 2).sum(axis=1)
                missed += ((y - g) ** 2).sum(axis=2)
            for sample in samples:
                cells.add(*sample)
        for (h, step), place in zip(some, places, strict=True):
            self._cells.count(place)
            self._seen[h] += len(step.actions)
        self._history.append(steps)
        self._wealth = bets.grown(self._wealth, change, t)
        dead = refuted | (self._wealth >= self.limit)
        kept, is_stale = self._drop(dead)
        for h, step in some:
            self._add_losses(h, step, panels[h][kept], earned[h][~dead] if h in earned else None)
        if is_stale:
            self._choose_panel()
        return int(dead.sum())

    def _blocks(self) -> list[slice]:
        """Returns parts of the functions that are few enough for a processor's cache."""
        return [slice(first, first + AT_ONCE) for first in range(0, len(self._members), AT_ONCE)]

    def _taken(self, h: int, step: Samples, members: Ints) -> Floats:
        """Returns `[m, n]` f(x, a) on the scale of bets."""
        taken = taken_values(self.functions, h, members, step.x, step.actions)
        return self.ranges.unit(h, taken.values)[taken.group]

    def _earned(self, h: int, step: Samples, members: Ints) -> tuple[Floats, Mask]:
        """Returns `[m, n]` y on the scale of bets, and `[m]` who predicts the impossible."""
        y = np.tile(step.rewards, (len(members), 1))
        if step.goes_on.any():
            top = top_values(self.functions, h + 1, members, step.next_x)
            y[:, step.goes_on] += top.values[top.group]
        return self.ranges.unit(h, y), self.ranges.impossible(y + step.before, h)

    def _add_losses(self, h: int, step: Samples, panel: Floats, earned: Floats | None = None) -> None:
        """Adds the squared errors of panel `[M, n]` and constants against everybody's y, which is read where it is None."""
        n = panel.shape[1]
        for rows in self._blocks():
            y = self._earned(h, step, self._members[rows])[0] if earned is None else earned[rows]
            squares = (y**2).sum(axis=1)
            cross = squares + (panel**2).sum(axis=1)[:, None] - 2 * panel @ y.T
            self._loss[h][:, rows] += np.maximum(cross, 0.0).astype(np.float32)
            constants = squares + n * CONSTANTS[:, None] ** 2 - 2 * CONSTANTS[:, None] * y.sum(axis=1)
            self._constant_loss[h][:, rows] += np.maximum(constants, 0.0).astype(np.float32)

    def _choose_panel(self) -> None:
        """Makes the best fitting functions forecasters, and computes their losses on everything played so far."""
        H, N = self.functions.horizon, len(self._members)
        size = min(N, LARGEST_PANEL, max(8, PANEL_NUMBERS // (N * H)))
        self._panel = np.sort(np.argsort(-self._log_weights(), kind="stable")[:size])
        self._chosen_among = N
        self._loss: list[NDArray[Any]] = []  # the old panel's go before there are others
        self._loss = [np.zeros((size, N), dtype=np.float32) for _ in range(H)]
        self._constant_loss = np.zeros((H, len(CONSTANTS), N), dtype=np.float32)
        for steps in self._history:
            for h, step in enumerate(steps):
                if len(step.actions):
                    self._add_losses(h, step, self._taken(h, step, self._members[self._panel]))

    def _drop(self, dead: Mask) -> tuple[Mask, bool]:
        """Drops functions; returns `[M]` whose losses are kept, and whether other forecasters should be chosen.

        These are chosen by all losses of the old ones, so the dead among the old ones are kept until then.
        """
        keep = ~dead
        if not keep.any():
            raise BrokenPromise(
                f"no function of the class is consistent with what was seen: {self.ranges.broken} With all assumptions true "
                "this happens with probability at most delta."
            )
        in_panel = keep[self._panel]
        if keep.all():
            return in_panel, False
        few = not in_panel.any() or len(self._panel) < len(dead)  # whether somebody is no forecaster
        is_stale = few and (2 * int(keep.sum()) <= self._chosen_among or not in_panel.any())
        kept = in_panel | is_stale
        self._panel = (np.cumsum(keep) - 1)[self._panel[in_panel]]
        self._members, self._wealth = self._members[keep], self._wealth[keep]
        self._own_loss, self._missed = self._own_loss[:, keep], self._missed[:, :, keep]
        self._constant_loss = self._constant_loss[:, :, keep]
        for h, loss in enumerate(self._loss):  # level by level: there is no second copy of all
            self._loss[h] = loss[np.ix_(kept, keep)]
        self._cells.take(np.flatnonzero(keep))
        return kept, is_stale

    def kill(self, member: Member, level: int) -> None:
        """Drops a function whose average errors at a level are too large [B2]."""
        if self._drop(self._members == member)[1]:
            self._choose_panel()

    def _log_weights(self) -> Floats:
        """Returns `[N]` how well functions fit: exp(-loss / 2 s^2), normalised by the panel, over the wealth above 1."""
        logs = -np.log(np.maximum(self._wealth, 1.0))
        each = np.arange(len(self._wealth))
        for h in np.flatnonzero(self._seen):
            s = variances(self._missed[h], int(self._seen[h]))[self._missed[h].argmin(axis=0), each]
            own = self._own_loss[h]
            least = np.minimum(self._loss[h].min(axis=0), own)
            total = np.exp(np.maximum((least - self._loss[h]) / (2 * s), -700.0)).sum(axis=0)
            logs += (least - own) / (2 * s) - np.log(total + np.exp((least - own) / (2 * s)))
        return logs

    def fit(self, first: Mask) -> Fit:
        """Returns how well the survivors among `first` `[N]` fit."""
        logs = self._log_weights()
        may_be_drawn = np.where(first, logs, -np.inf)
        return Fit(partial(self._behind, logs, may_be_drawn), partial(self._drawn, may_be_drawn))

    def _behind(self, logs: Floats, may_be_drawn: Floats, member: Member) -> float:
        """Returns by how many nats the best survivor fits better than a given one."""
        return float(may_be_drawn.max() - logs[self.root(member)])

    def _drawn(self, logs: Floats, rng: np.random.Generator) -> Member:
        """Returns a survivor at random in proportion to its weight."""
        chances = np.exp(logs - logs.max())
        return int(self._members[rng.choice(len(chances), p=chances / chances.sum())])

    def largest(self, values: Mapping[int, Floats]) -> Largest:
        """Returns the largest sum over levels of values `[A, N]` of one function."""
        sums = np.sum(list(values.values()), axis=0)
        which, each = sums.argmax(axis=1), np.arange(len(sums))
        parts = {h: level[each, which] for h, level in values.items()}
        return Largest(sums[each, which], parts, dict.fromkeys(values, self._members[which]))

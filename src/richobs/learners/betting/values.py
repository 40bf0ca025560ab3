"""What functions say about what was played: their values, on the scale of bets, and forecasts of what comes next.

At a level bets see f and y = r + max_a f_{h+1}(x', a) as numbers in [0, 1] (`Ranges`). Each distinct row of values is read
once (`taken_values`, `top_values`). Forecasts of y come from the past alone: they decide which bets win, never whether a
claim is true. Shapes: H levels, m members, G groups of equal rows, n samples, P priors, M forecasters, C kinds of u.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from richobs.core.environment import Environment, Episodes, step_range
from richobs.core.errors import InvalidInput
from richobs.core.functions import FunctionClass, reduced
from richobs.core.outcome import REALIZABLE
from richobs.core.policies import TIE
from richobs.core.types import Floats, Ints, Mask, Member, Observations
from richobs.core.words import number_words
from richobs.stats.bets import LEAST_VARIANCE, ZETA
from richobs.stats.grouping import equal_rows, numbered, row_bytes

SURELY = 1e-6  # share of the range by which rounding may push the rewards so far plus a value of Q* out of it
AT_ONCE_VALUES = 1 << 16  # values of functions that are read at once: few enough for a processor's cache
FEW_VALUES = 1 << 12  # members times samples up to which values are read for each member and each sample
PRIORS = np.array([0.25, 0.01])  # squared error that a forecast is given before its first sample
CONSTANTS = np.linspace(0.0, 1.0, 9)  # forecasters beside the members
FARTHEST = 60.0  # nats behind the best at which a forecaster's weight is as good as 0
MOST_NUMBERS = 4_000_000  # sums that are held at once; cells that would need more are not kept
MANY_ROWS = 64  # for each column, from which on numpy is slow at what concerns a column
SHRINK = 1.0  # samples that the forecast of the class counts as, in the mean of a cell
SHRINK_VARIANCE = 2.0  # samples that the overall squared error counts as, in the squared error of a cell
SHORT = 64  # bytes of what was seen and done up to which they are kept as they are
LARGEST = partial(reduced, np.maximum)  # over actions
UNSEEN = 0  # place of all pairs without a cell: nothing is ever added there


@dataclass(frozen=True)
class Ranges:
    """What is surely true of rewards, totals, y and values under Q*, in the problem's own units.

    Bets see values of a level less the smallest y that is possible there, divided by the width of its range. That range
    comes from the rewards of one step and the values of the next level, so one large loss that good policies avoid does not
    make all other differences tiny.
    """

    least: float  # smallest total of an episode
    most: float  # largest total
    low: Floats  # [H] smallest y; never above 0
    width: Floats  # [H] of the range of y
    rest: Floats  # [H] the least that any policy earns from a level on, in expectation; never above 0
    jump: float  # largest value less `rest`
    slack: float  # how far rounding may push the rewards so far plus a value of Q* out of the range of totals
    ties: float = 0.0  # what a greedy policy may lose because nearly equal actions count as equal
    eta: Floats = field(default_factory=lambda: np.zeros(0))  # [H] the tolerance of each level; [0]: there is none

    @classmethod
    def of(cls, env: Environment, functions: FunctionClass, tolerance: Sequence[float] = ()) -> "Ranges":
        """Returns the ranges that an environment declares and a class implies.

        For Q*, y is at least the smallest reward plus the smallest value of the next level (0 where the episode ends), and
        at least what the smallest total leaves after the largest possible rewards before. The same holds from above. Every
        range is widened to hold 0, and to be no narrower than what is added up in it is large, so that rounding errors are
        small beside its width. What totals allow is widened by the tolerance: only Q* itself surely obeys it.

        Args:
            env: the environment.
            functions: the class.
            tolerance: how far the nearest function may be from Q*: one number, or one per level; nothing: it is Q*.
        """
        H = functions.horizon
        eta = np.broadcast_to(np.asarray(tolerance, dtype=np.float64), H if len(tolerance) else 0)
        behind = np.append(eta[1:], 0.0) if len(eta) else 0.0  # of V at the next level
        lowest, highest = step_range(env)
        least, most = (float(v) for v in env.reward_range)
        bounds = [functions.value_bounds(h) for h in range(H)]
        bottom = np.array([float(b[0].min()) for b in bounds] + [0.0])
        top = np.array([float(b[1].max()) for b in bounds] + [0.0])
        levels = np.arange(H)
        before_least = np.maximum(levels * min(lowest, 0.0), least - (H - levels) * max(highest, 0.0))
        before_most = np.minimum(levels * max(highest, 0.0), most - (H - levels) * min(lowest, 0.0))
        low = np.maximum(lowest + np.minimum(bottom[1:], 0.0), least - before_most - behind)
        high = np.minimum(highest + np.maximum(top[1:], 0.0), most - before_least + behind)
        low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
        size = max(abs(lowest), abs(highest))
        high = np.maximum(high, low + np.maximum(size, np.maximum(np.abs(bottom), np.abs(top))[1:]))
        rest = np.minimum(np.maximum((H - levels) * min(lowest, 0.0), least - before_most), 0.0)
        # Rewards of one sign are rounded relative to a sum that the totals bound; others may cancel.
        scale = max(most - least, float((high - low).max()))
        slack = SURELY * max(scale, H * size if lowest < 0 else 0.0) + H * ZETA * scale
        jump = float((top[:-1] - rest).max())
        return cls(least, most, low, high - low, rest, jump, slack, lost_to_ties(functions), eta)

    @classmethod
    def plain(cls, functions: FunctionClass) -> "Ranges":
        """Returns the ranges of nonnegative rewards whose totals are at most 1."""
        H = functions.horizon
        top = max(float(functions.value_bounds(h)[1].max()) for h in range(H))
        return cls(0.0, 1.0, np.zeros(H), np.ones(H), np.zeros(H), top, SURELY + H * ZETA, lost_to_ties(functions))

    @property
    def span(self) -> float:
        """Width of the range of totals."""
        return self.most - self.least

    @property
    def scale(self) -> float:
        """The largest width of a level's range, or of the totals: declared rounding errors are shares of it."""
        return max(float(self.width.max()), self.span)

    @property
    def rounded(self) -> float:
        """What rounding may hide of a policy's loss: every value of Q* is off by a small part of ZETA of the range."""
        return 2 * len(self.width) * ZETA * self.scale

    @property
    def hidden(self) -> float:
        """What the greedy policy of Q* may lose: to rounding, and to ties. Agreement counts ties among the gaps."""
        return self.rounded + self.ties

    @cached_property
    def residual(self) -> Floats:
        """`[H]` how far E[y] may be from f for the function that is as near Q* as the tolerance says, on the scale of bets.

        |E[y] - f| <= |E[V_f - V*]| + |Q* - f|: the tolerances of two neighbouring levels [T1]; 1 at most.
        """
        if not len(self.eta):
            return np.zeros(len(self.width))
        return np.minimum((self.eta + np.append(self.eta[1:], 0.0)) / self.width, 1.0)

    @property
    def above(self) -> float:
        """How far V* may be above what that function promises at the root [T2]."""
        return float(self.eta[0]) if len(self.eta) else 0.0

    @property
    def lost(self) -> float:
        """What the tolerance may hide of a policy's loss: each gap of Q* exceeds that function's by 2 eta at most [T4]."""
        return 2 * float(self.eta.sum())

    @property
    def nearest(self) -> str:
        """What is assumed of the class, in words that can follow "that"."""
        if not len(self.eta):
            return REALIZABLE
        some, least = [number_words(eta, up=False) for eta in self.eta], "some function of the class is within"
        if len(set(some)) == 1:
            return f"{least} {some[0]} of Q* everywhere"
        return f"{least} {', '.join(some)} of Q* at levels 0 to {len(some) - 1}"

    @property
    def broken(self) -> str:
        """What must be false where no function is left, in words."""
        absent = f"it is not true that {self.nearest}" if len(self.eta) else "Q* is not in the class"
        return f"{absent}, or the value of an observation depends on what was seen before it."

    def unit(self, level: int | None, values: Floats) -> Floats:
        """Returns values of f or y at a level, or `[H, n]` at all of them, on the scale of bets, cut to the range."""
        if level is not None and self._is_unit[level] and not np.count_nonzero((values < 0) | (values > 1)):
            return values
        low, width = (ends[: len(values), None] if level is None else ends[level] for ends in (self.low, self.width))
        return np.minimum(np.maximum((values - low) / width, 0.0), 1.0)

    @cached_property
    def _is_unit(self) -> list[bool]:
        """Whether the range of each level is [0, 1]."""
        return ((self.low == 0) & (self.width == 1)).tolist()

    def impossible(self, totals: Floats, level: int = -1) -> Mask:
        """Returns `[m]` which rows of expected totals `[m, n]`, rewards so far and what is predicted, leave their range.

        Args:
            totals: rewards up to a level, and V of the next one.
            level: which; its prediction may be off by the tolerance of the next level.
        """
        slack = self.slack + (float(self.eta[level + 1]) if level + 1 < len(self.eta) else 0.0)
        if totals.max(initial=self.most) <= self.most + slack and totals.min(initial=self.least) >= self.least - slack:
            return np.zeros(len(totals), dtype=bool)
        return np.logical_or.reduce((totals > self.most + slack) | (totals < self.least - slack), axis=1)

    def unit_totals(self, totals: Floats) -> Floats:
        """Returns totals of episodes as numbers in [0, 1]."""
        return np.clip((totals - self.least) / self.span, 0.0, 1.0)


def lost_to_ties(functions: FunctionClass) -> float:
    """Returns what all levels may lose because `greedy_actions` takes a smaller action that is worse by at most TIE."""
    largest = [max(1.0, *map(abs, functions.value_range(h))) for h in range(functions.horizon)]
    return float(TIE * (functions.n_actions - 1) * sum(largest))


class Samples(NamedTuple):
    """What the episodes of a batch did at one level; episodes that were over before are left out."""

    x: Observations  # [n, ...]
    actions: Ints  # [n]
    rewards: Floats  # [n]
    before: Floats  # [n] rewards of the levels before
    next_x: Observations  # [k, ...] what was seen at the next level, where the episode goes on; empty at the last one
    goes_on: Mask  # [n] whether it does
    keys: list[bytes]  # [n] names of what was seen and done
    next_keys: list[bytes]  # [k] names of what was seen next


def samples_of(played: Episodes) -> list[Samples]:
    """Returns what episodes did, level by level."""
    here = [~over for over in played.ended] or [np.ones(played.n, dtype=bool)] * played.levels

    def live(column: NDArray[Any], h: int) -> NDArray[Any]:
        """Returns the part of the episodes that go on at a level: all of them where none ends early."""
        return column[here[h]] if played.ended else column

    seen = [live(x, h) for h, x in enumerate(played.observations)]
    rows = [row_bytes(x) for x in seen]
    none = np.zeros(played.n, dtype=bool)
    following = zip([*seen[1:], seen[0][:0]], [*here[1:], none], [*rows[1:], []], strict=True)
    before, samples = np.zeros(played.n), []
    for h, (next_x, goes_on, next_rows) in enumerate(following):
        actions = live(played.actions[h], h)
        keys, next_keys = names(rows[h], actions), names(next_rows)
        rewards = live(played.rewards[h], h), live(before, h)
        samples.append(Samples(seen[h], actions, *rewards, next_x, live(goes_on, h), keys, next_keys))
        before = before + played.rewards[h]
    return samples


class Fit(NamedTuple):
    """How well survivors fit what was seen; it is in use only until the survivors change."""

    behind: Callable[[Member], float]  # by how many nats the best survivor fits better than a given one
    draw: Callable[[np.random.Generator], Member]  # a survivor at random, in proportion to its weight


class Largest(NamedTuple):
    """Upper bounds on a sum over levels, largest over the surviving functions, and the functions that attain them."""

    total: Floats  # [A]
    parts: Mapping[int, Floats]  # per level [A]
    members: Mapping[int, Ints]  # per level [A]


class Rows(NamedTuple):
    """Values of members on n samples, each distinct row once."""

    values: Floats  # [G, n]
    group: Ints  # [m] which row each member has


class Known(NamedTuple):
    """Values on samples that all came before: members that share a row of the pairs (or a column) have equal ones."""

    values: Floats  # [G, n] distinct rows
    row: Ints  # [R] which of them each row of the pairs has, or each column


def taken_values(functions: FunctionClass, level: int, members: Ints, x: Observations, actions: Ints) -> Rows:
    """Returns f(x, a) of members at the actions that were taken."""
    known = _known_rows(functions, level, members, x, actions)
    if known is not None:
        return known
    if len(members) * len(x) <= FEW_VALUES:
        return _grouped(read(functions, level, x, members, partial(_of_actions, actions)))
    some, place = distinct(x)
    group = np.zeros(len(members), dtype=np.int64)
    parts: list[tuple[Ints, Floats]] = []  # samples, values of the groups of one action
    of_part: list[Ints] = []  # per action [m]
    for action in np.unique(actions):
        mine = np.flatnonzero(actions == action)
        seen, inverse = np.unique(place[mine], return_inverse=True)
        a = int(action)
        reps, rep = functions.kinds(level, members, a)
        values = read(functions, level, x[some[seen]], reps, partial(_of_action, a))
        first, row = equal_rows(values)
        parts.append((mine, values[first][:, inverse]))
        of_part.append(row[rep])
    for rows, (_, values) in zip(of_part, parts, strict=True):
        _, group = numbered(group * len(values) + rows, (int(group.max(initial=0)) + 1) * len(values))
    result = np.empty((int(group.max(initial=0)) + 1, len(x)))
    one = np.empty(len(result), dtype=np.int64)
    one[group] = np.arange(len(members))  # a member of each group
    for rows, (mine, values) in zip(of_part, parts, strict=True):
        result[:, mine] = values[rows[one]]
    return Rows(result, group)


def _of_action(action: int, values: Floats) -> Floats:
    return values[:, :, action]


def _of_actions(actions: Ints, values: Floats) -> Floats:
    """Returns `[m, n]` the values of an action for each sample, out of values `[m, n, K]`."""
    return values[:, np.arange(len(actions)), actions]


def _grouped(values: Floats) -> Rows:
    """Returns the distinct rows of values `[m, n]`."""
    first, row = equal_rows(values)
    return Rows(values[first], row)


def top_values(functions: FunctionClass, level: int, members: Ints, x: Observations) -> Rows:
    """Returns max_a f(x, a) of members."""
    if not len(x):
        return Rows(np.zeros((1, 0)), np.zeros(len(members), dtype=np.int64))
    known = _known_rows(functions, level, members, x)
    if known is not None:
        return known
    if len(members) * len(x) <= FEW_VALUES:
        return _grouped(read(functions, level, x, members, LARGEST))
    some, place = distinct(x)
    reps, rep = functions.kinds(level, members, 0)
    values = read(functions, level, x[some], reps, LARGEST)
    first, row = equal_rows(values)
    return _used(values[first][:, place], row[rep])


def best_and_gap(
    functions: FunctionClass, level: int, members: Ints, x: Observations, action: int
) -> tuple[Floats, Floats]:
    """Returns `[m, n]` max_a f(x, a) of members, and `[m, n]` by how much an action is worth less."""
    top, taken = (_known_rows(functions, level, members, x, a) for a in (None, np.full(len(x), action)))
    if top is not None and taken is not None:
        best = top.values.take(top.group, axis=0)
        return best, best - taken.values.take(taken.group, axis=0)
    both = read(functions, level, x, members, partial(_best_and_taken, action))  # [m, 2 n]
    best = both[:, : len(x)]
    return best, best - both[:, len(x) :]


def _best_and_taken(action: int, values: Floats) -> Floats:
    """Returns `[m, 2 n]` the best values, then those of an action, out of values `[m, n, K]`."""
    return np.concatenate([LARGEST(values), values[:, :, action]], axis=1)


def _known_rows(
    functions: FunctionClass, level: int, members: Ints, x: Observations, actions: Ints | None = None
) -> Rows | None:
    """Returns the rows of values that the class itself tells apart; None where it knows no faster way than to be read."""
    own = getattr(functions, "rows", None)
    found = None if own is None else own(level, x, members, actions)
    if found is None:
        return None
    values, group = found[0], np.asarray(found[1]).astype(np.int64, copy=False)
    if group.shape != members.shape or (len(group) and not group.view(np.uint64).max() < len(values)):  # nor negative
        raise InvalidInput(
            f"`rows` of the class at level {level} must say which of its {len(values)} rows each of {len(members)} "
            f"members has; it returned {group.shape} numbers, not all of them rows (docs/skeletons/level_class.py)."
        )
    return _used(values, group)


def _used(values: Floats, group: Ints) -> Rows:
    """Leaves out rows that no member has: groups would count them, and take members for told apart that are not."""
    if len(values) > 1 and np.count_nonzero(np.bincount(group, minlength=len(values))) < len(values):
        used, group = numbered(group, len(values))
        values = values[used]
    return Rows(values, group)


def read(
    functions: FunctionClass, level: int, x: Observations, members: Ints, pick: Callable[[Floats], Floats]
) -> Floats:
    """Returns `[m, n]` what `pick` takes of the values `[m, n, K]`, a part of the members at a time.

    Raises:
        InvalidInput: a value is not a number in the range that the class declares.
    """
    low, high = functions.value_range(level)
    tolerance = ZETA * max(1.0, high - low)
    step = max(1, AT_ONCE_VALUES // max(1, len(x) * functions.n_actions))
    parts = []
    for first in range(0, len(members), step):
        values = functions.values(level, x, members[first : first + step])
        if not (values.min() >= low - tolerance and values.max() <= high + tolerance):  # also where a value is NaN
            raise InvalidInput(f"a function of level {level} has a value that is not a number in [{low:g}, {high:g}].")
        parts.append(np.asarray(pick(values), dtype=np.float64))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def names(rows: list[bytes], actions: Ints | None = None) -> list[bytes]:
    """Returns the bytes `[n]` of observations, with the action `[n]` where given; a hash of 16 where they are many."""
    if actions is not None:
        rows = list(map(bytes.__add__, rows, row_bytes(actions.astype(np.int64))))
    return rows if not rows or len(rows[0]) <= SHORT else [blake2b(row, digest_size=16).digest() for row in rows]


def distinct(x: Observations) -> tuple[Ints, Ints]:
    """Returns the place of the first of each distinct observation, and `[n]` which of them each is."""
    known: dict[bytes, int] = {}
    place = np.array([known.setdefault(row, len(known)) for row in row_bytes(x)], dtype=np.int64)
    first = np.zeros(len(known), dtype=np.int64)
    first[place[::-1]] = np.arange(len(place))[::-1]
    return first, place


def variances(missed: Floats, seen: int) -> Floats:
    """Returns `[P, C]` s^2: the mean squared error of the forecasts so far, the prior counted as one sample.

    Args:
        missed: `[P, C]` sums of squared errors.
        seen: number of samples.
    """
    return np.maximum((PRIORS[:, None] + missed) / (1 + seen), LEAST_VARIANCE)


def least(losses: Floats) -> Floats:
    """Returns `[C]` the least of each column of `[M, C]`; numpy is slow where many rows are short."""
    many = len(losses) > MANY_ROWS * losses.shape[1]
    return np.array([column.min() for column in losses.T]) if many else np.minimum.reduce(losses)


def forecasts(
    loss: Floats,
    constant_loss: Floats,
    variance: Floats,
    counts: Floats,
    sums: Floats,
    parts: tuple[Floats, Ints, Ints] | None = None,
) -> Floats:
    """Returns `[P, C, n]` what y = r + u(x') is expected to be.

    It is the mean of the members of the level and a few constants, weighted by exp(-loss / 2 s^2). The loss is their squared
    error against u's y so far, and s^2 the forecast's own mean squared error.

    Args:
        loss: `[M, C]` squared errors of forecasters so far.
        constant_loss: `[9, C]` those of the constants.
        variance: `[P, C]` s^2.
        counts: `[M]` how many members each forecaster stands for.
        sums: `[M, n]` sum of their values; with `parts` `[G, n]` the values that members may have.
        parts: of forecasters that consist of parts: `[A]` members of each part, its forecaster, and which values it has.
    """
    M, n = len(loss), sums.shape[1]
    behind = np.concatenate([loss, constant_loss])  # [M + 9, C]
    result = np.empty((*variance.shape, n))
    if parts is None and (behind.size <= AT_ONCE_VALUES or MANY_ROWS * behind.shape[1] > M):
        behind -= np.minimum.reduce(behind)
        said = np.empty((len(behind), n + 1))  # the last column adds up weights
        said[:M, :n], said[:M, n] = sums, counts
        said[M:, :n], said[M:, n] = CONSTANTS[:, None], 1.0
        step = len(variance) if behind.size <= AT_ONCE_VALUES else 1
        weight = np.empty((step, *behind.shape))
        for k in range(0, len(variance), step):
            np.multiply(behind, -0.5 / variance[k : k + step, None], out=weight)
            np.exp(np.maximum(weight, -FARTHEST, out=weight), out=weight)
            added = np.matmul(weight.transpose(0, 2, 1), said)
            np.divide(added[:, :, :n], added[:, :, n:], out=result[k : k + step])
        return result
    behind = behind.T.copy()  # what belongs to a column is together now
    behind -= np.minimum.reduce(behind, axis=1, keepdims=True)
    weight = np.empty(behind.shape)
    for mean, s2 in zip(result, variance, strict=True):
        np.multiply(behind, (-0.5 / s2)[:, None], out=weight)
        np.exp(np.maximum(weight, -FARTHEST, out=weight), out=weight)
        members, constants = weight[:, :M], weight[:, M:]
        by_value = members
        if parts is not None:  # weights are added up instead of values
            size, of, place = parts
            by_value = np.stack([np.bincount(place, weights=w.take(of) * size, minlength=len(sums)) for w in members])
        np.matmul(by_value, sums, out=mean)
        mean += (constants @ CONSTANTS)[:, None]
        mean /= (members @ counts + constants.sum(axis=1))[:, None]
    return result


class Cells:
    """Forecasts from what followed the same observation and action before.

    A class need not hold E[y | x, a] for its wrong functions, and then no mean of its members forecasts y well. Where
    observations come again, what was seen there does. A cell is an observation with an action that came again. For every
    row (a function, or a column of pairs) it keeps a mean, and the squared error of that mean as a forecast. Shapes: N rows.
    """

    def __init__(self, rows: int):
        """Starts with nothing seen."""
        self.known: dict[bytes, int] = {}  # the cell of everything that was seen; UNSEEN where it came once
        self._count = np.zeros(1)
        self._total, self._square = np.zeros((2, rows, 1))
        self._seen = 0
        self._room: int | None = None  # number of cells, where it does not depend on the number of rows
        self.missed = np.zeros(rows)  # [N] squared errors of these forecasts so far
        self.others_missed = np.zeros(rows)  # [N] squared errors of the forecasts that they start from

    def places(self, keys: Sequence[bytes]) -> Ints:
        """Returns `[n]` the cell of each sample. A pair gets one when it is seen again: what never repeats takes no room."""
        rows, size = self._total.shape
        room, before, result = MOST_NUMBERS // rows if self._room is None else self._room, size, []
        for key in keys:
            place = self.known.get(key)
            if place is None or (place == UNSEEN and size < room):
                place = self.known[key] = UNSEEN if place is None else size
                size += place != UNSEEN
            result.append(place)
        if size > before:
            more = np.zeros((rows, size - before))
            self._count = np.concatenate([self._count, np.zeros(size - before)])
            self._total, self._square = (np.concatenate([sums, more], axis=1) for sums in (self._total, self._square))
        return np.array(result, dtype=np.int64)

    def limit(self, rows: int | None) -> None:
        """Keeps as many cells as there is room for with so many rows, whatever the rows are; None ends this."""
        self._room = None if rows is None else MOST_NUMBERS // rows

    def forecast(self, place: Ints, start: Floats) -> Floats:
        """Returns `[N, n]` the mean at each sample's cell, with the start `[N, n]` counted as SHRINK samples."""
        if not place.any():
            return start
        return (SHRINK * start + self._total[:, place]) / (SHRINK + self._count[place])

    def variance(self, place: Ints) -> Floats:
        """Returns `[N, n]` the squared error of the forecasts at each sample's cell."""
        own = ((PRIORS[0] + self.missed) / (1 + self._seen))[:, None].repeat(len(place), axis=1)  # overall
        if place.any():
            own = (SHRINK_VARIANCE * own + self._square[:, place]) / (SHRINK_VARIANCE + self._count[place])
        return np.maximum(own, LEAST_VARIANCE)

    @property
    def is_empty(self) -> bool:
        """Whether nothing came again so far: these forecasts are then those that they start from."""
        return len(self._count) == 1

    def add_start(self, n: int, missed: Floats) -> None:
        """Adds n samples while there is no cell, with the squared errors `[N]` of the forecasts that these start from."""
        self.missed, self.others_missed = self.missed + missed, self.others_missed + missed
        self._seen += n

    @property
    def serve_better(self) -> Mask:
        """`[N]` whether these forecasts were better so far than those that they start from."""
        return self.missed < self.others_missed

    def add(self, place: Ints, values: Floats, errors: Floats, others_errors: Floats) -> None:
        """Adds samples.

        Args:
            place: `[n]` as `places` gave them.
            values: `[N, n]` what the means are of.
            errors: `[N, n]` of these forecasts.
            others_errors: `[N, n]` of the forecasts that they started from.
        """
        squares = errors**2
        self.missed += squares.sum(axis=1)
        self.others_missed += (others_errors**2).sum(axis=1)
        some = (place != UNSEEN).nonzero()[0]
        cells = place[some]
        if len(some) > len(set(cells.tolist())):  # a cell came twice
            cells, inverse = numbered(cells, len(self._count))
            which = np.zeros((len(place), len(cells)))
            which[some, inverse] = 1.0
            values, squares = values @ which, squares @ which
        elif len(some) < len(place):
            values, squares = values[:, some], squares[:, some]
        self._total[:, cells] += values
        self._square[:, cells] += squares

    def count(self, place: Ints) -> None:
        """Counts samples, once they were added to all rows."""
        self._seen += len(place)
        self._count[1:] += np.bincount(place, minlength=len(self._count))[1:]

    def part(self, rows: slice) -> "Cells":
        """Returns some of the rows; what is added to them is added here."""
        some = copy.copy(self)
        some._total, some._square = self._total[rows], self._square[rows]
        some.missed, some.others_missed = self.missed[rows], self.others_missed[rows]
        return some

    def take(self, rows: Ints) -> None:
        """Keeps some of the rows, in the order given; a row may be taken twice."""
        self._total, self._square = self._total[rows], self._square[rows]
        self.missed, self.others_missed = self.missed[rows], self.others_missed[rows]

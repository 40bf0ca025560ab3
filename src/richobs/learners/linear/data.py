"""Episodes as rows of features: what each level showed, did and earned, and whether means are linear in them.

Tests of that look at fresh episodes and only stop a run (docs/linear.md). Given features and actions of a level, a sum of
c_i y_i with c orthogonal to all features has mean 0 if the mean of y is linear, and is sub-Gaussian. The directions c are
fixed before y is drawn.

Shapes: n episodes, m of them alive at a level, X contexts, K actions, d features.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from richobs.classes.linear import Linear
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise, InvalidInput
from richobs.core.types import Floats, Ints

ROUNDING = 1e-14  # part of a feature that those before it may leave unexplained, if it counts as linear in them
# Up to which it is refused, because rounding would decide what rests on it: 1e-6 where no numbers longer than float64 are.
NEARLY = max(1e-8, 4e9 * float(np.finfo(np.longdouble).eps))
FALSE_ALARM = 1e-3  # probability that a run is stopped though means are linear; not part of delta
MOST_DIRECTIONS = 256  # directions of a level that are tested
SMALL = 1e-6  # length of a direction, relative to what it was made of, below which features explain it


@dataclass(frozen=True)
class Level:
    """The episodes of one phase at one level."""

    phi: Floats  # [X, K, d] features of the contexts that `x` counts
    x: Ints  # [m]
    a: Ints  # [m]
    r: Floats  # [m]
    next: Ints  # [m] context at the next level; -1 where the episode was over

    @cached_property
    def codes(self) -> Ints:
        """`[m]` the number of each sample's context and action."""
        return self.x * self.phi.shape[1] + self.a

    @cached_property
    def has_cells(self) -> bool:
        """Whether sums go over contexts and actions, because these are no more than the samples."""
        return self.phi.shape[0] * self.phi.shape[1] <= len(self.x)

    @cached_property
    def rows(self) -> Floats:
        """`[C, d]` features of all contexts and actions, or of each sample: whatever is less."""
        return self.phi.reshape(-1, self.phi.shape[2]) if self.has_cells else self.phi[self.x, self.a]

    def each(self, of_rows: Floats) -> Floats:
        """Returns `[m]` what each sample has of a function `[C]` of the rows."""
        return of_rows[self.codes] if self.has_cells else of_rows

    def sums(self, y: Floats | None = None) -> Floats:
        """Returns `[C]` the sum of y `[m]` over the samples of each row; how many they are where no y is given."""
        if not self.has_cells:
            return np.ones(len(self.x)) if y is None else y
        return np.bincount(self.codes, y, len(self.rows)).astype(np.float64, copy=False)

    def gram(self, weights: Floats | None = None) -> Floats:
        """Returns `[d, d]` the sum of weight phi phi' over samples, with weights `[m]` or 1."""
        return (self.rows * self.sums(weights)[:, None]).T @ self.rows

    def answers(self, after: Floats | None, rewards: bool) -> Floats:
        """Returns `[m]` y: the reward, if wanted, plus a function `[X']` of what was seen next, 0 where nothing was."""
        y = self.r.copy() if rewards else np.zeros(len(self.x))
        if after is not None and len(after):
            y += np.where(self.next >= 0, after[self.next], 0.0)
        return y


@dataclass(frozen=True)
class Data:
    """Episodes of a phase."""

    levels: tuple[Level, ...]
    returns: Floats  # [n]

    @property
    def n(self) -> int:
        """Number of episodes."""
        return len(self.returns)


class Features:
    """Turns observations into features, and knows all contexts where they are listed.

    Where they are, features become a basis that is orthonormal over the contexts and actions of a level: the same functions
    are linear in it, so that no claim depends on units and offsets, and no direction is idle [L1].
    """

    def __init__(self, functions: Linear):
        """Reads the contexts' features where the class lists contexts.

        Raises:
            InvalidInput: a feature is too large, or so close to a combination of others that float64 loses it.
        """
        self.functions, self.horizon, self.n_actions = functions, functions.horizon, functions.n_actions
        self.tables: list[Floats] | None = None
        self.left_out: list[list[int]] = []  # of each level, features that count as linear in those before them
        if functions.contexts is None:
            return
        self.tables = []
        for level, book in enumerate(functions.contexts):
            phi = functions.phi(level, book.rows)
            largest = np.abs(phi).max(axis=(0, 1))
            phi = phi / np.ldexp(
                1.0, np.frexp(largest)[1]
            )  # without rounding; tiny ones have squares that float64 loses
            try:
                kept, basis = orthonormal(phi.reshape(-1, functions.dim))
            except InvalidInput as lost:
                raise InvalidInput(f"Linear, level {level}: {lost}") from None
            self.left_out.append([j for j in range(functions.dim) if j not in kept and largest[j] > 0])
            self.tables.append(basis.reshape(*phi.shape[:2], -1))

    def dim(self, level: int) -> int:
        """Returns the number of features of a level."""
        return self.functions.dim if self.tables is None else self.tables[level].shape[2]

    def place(self, level: int, x: np.ndarray) -> tuple[Floats, Ints]:
        """Returns features `[X, K, d]` of contexts, and `[n]` which of them each observation is.

        Raises:
            InvalidInput: an observation is not among the contexts.
        """
        if self.tables is None:
            return self.functions.phi(level, x), np.arange(len(x))
        assert self.functions.contexts is not None, "tables are made of contexts"
        try:
            return self.tables[level], self.functions.contexts[level].encode(x)
        except InvalidInput as unknown:
            raise InvalidInput(f"level {level} of Linear: contexts were given, and {unknown}") from None

    def read(self, played: Episodes) -> Data:
        """Returns episodes as rows of features.

        Raises:
            BrokenPromise: an episode ended early, and the class says that none does.
        """
        if played.ended and any(over.any() for over in played.ended) and not self.functions.may_end:
            raise BrokenPromise("an episode ended before the last level; Linear(..., may_end=True) allows for that.")
        levels: list[Level] = []
        after = np.full(played.n, -1)
        for h in reversed(range(played.levels)):
            live = np.flatnonzero(~played.ended[h]) if played.ended else np.arange(played.n)
            phi, x = self.place(h, played.observations[h][live])
            levels.append(Level(phi, x, played.actions[h][live], played.rewards[h][live], after[live]))
            after = np.full(played.n, -1)
            after[live] = x
        return Data(tuple(levels[::-1]), played.returns)


def orthonormal(rows: Floats) -> tuple[list[int], Floats]:
    """Returns which columns of `[C, d]` are not linear in those before them, and a basis `[C, k]` of all columns.

    The mean square of each column of the basis is 1. A space without any is spanned by a column of zeros.

    Raises:
        InvalidInput: one is nearly linear in those before it.
    """
    kept: list[int] = []
    basis = np.zeros((0, len(rows)), dtype=np.longdouble)  # more digits than float64, where the machine has them
    for j in range(rows.shape[1]):
        rest = rows[:, j].astype(np.longdouble)
        whole = float(np.sqrt(rest @ rest))
        for _ in range(2):  # once more against rounding
            rest -= (basis @ rest) @ basis
        size = float(np.sqrt(rest @ rest))
        if size <= ROUNDING * whole:
            continue
        if size <= NEARLY * whole:
            raise InvalidInput(
                f"feature {j} is nearly a linear combination of features {', '.join(map(str, kept))}: all but "
                f"{size / whole:.1g} of it, which is lost in rounding. Centre and scale it, or leave it out."
            )
        kept.append(j)
        basis = np.vstack([basis, rest / size])
    if not kept:
        return [], np.zeros((len(rows), 1))
    return kept, np.asarray(basis.T * math.sqrt(len(rows)), dtype=np.float64)


def joined(parts: Sequence[Data], known: bool) -> Data:
    """Returns the episodes of several phases; `known` where they count contexts of one list."""
    if len(parts) == 1:
        return parts[0]
    levels = []
    for h in range(len(parts[0].levels)):
        here = [part.levels[h] for part in parts]
        first = 0 if known else np.cumsum([0, *(len(level.phi) for level in here)])
        later = [0] if h + 1 == len(parts[0].levels) else [len(part.levels[h + 1].phi) for part in parts]
        shift = 0 if known or len(later) == 1 else np.cumsum([0, *later])
        levels.append(
            Level(
                here[0].phi if known else np.concatenate([level.phi for level in here]),
                np.concatenate([level.x + _at(first, i) for i, level in enumerate(here)]),
                np.concatenate([level.a for level in here]),
                np.concatenate([level.r for level in here]),
                np.concatenate(
                    [np.where(level.next >= 0, level.next + _at(shift, i), -1) for i, level in enumerate(here)]
                ),
            )
        )
    return Data(tuple(levels), np.concatenate([part.returns for part in parts]))


def _at(shifts: Ints | int, i: int) -> int:
    return shifts if isinstance(shifts, int) else int(shifts[i])


def richer(level: Level, known: bool) -> Floats:
    """Returns `[C, J]` richer features: each context and action of its own where listed, else squares and products."""
    if known:
        counts = np.bincount(level.codes)
        chosen = np.argsort(-counts, kind="stable")[: min(MOST_DIRECTIONS, int(np.count_nonzero(counts)))]
        return (_codes(level)[:, None] == chosen).astype(np.float64)
    i, j = np.triu_indices(level.rows.shape[1])
    return level.rows[:, i[:MOST_DIRECTIONS]] * level.rows[:, j[:MOST_DIRECTIONS]]


def _codes(level: Level) -> Ints:
    """Returns `[C]` which context and action each row is, where contexts are listed."""
    return np.arange(len(level.rows)) if level.has_cells else level.codes


def surprise(
    level: Level, y: Floats, directions: Floats, width: float, chance: float, zeta: float = 0.0
) -> tuple[int, float] | None:
    """Returns the direction whose sum is too far from 0 and by how much; None where none is.

    Args:
        level: what was seen and done.
        y: `[m]` answers.
        directions: `[C, J]` of the rows, fixed before y.
        width: length of the range of y.
        chance: probability with which a linear mean gives any at all.
        zeta: how far means may be from linear.
    """
    visits = level.sums()
    root = np.sqrt(visits)[:, None]  # of as many equal samples
    rows = level.rows / np.maximum(np.abs(root * level.rows).max(axis=0, initial=0.0), 1e-300)  # tiny ones are dropped
    rest = directions - rows @ np.linalg.lstsq(root * rows, root * directions, rcond=None)[0]
    length = np.sqrt(visits @ rest**2)
    kept = np.flatnonzero(length > SMALL * np.sqrt(visits @ directions**2))
    if not len(kept):
        return None
    sums = np.abs(level.sums(y) @ rest[:, kept]) - zeta * (visits @ np.abs(rest[:, kept]))
    far = sums / (width / 2 * length[kept])  # in standard deviations, at the most
    worst = int(far.argmax())
    limit = math.sqrt(2 * math.log(2 * len(kept) / chance))
    return (int(kept[worst]), float(far[worst])) if far[worst] > limit else None


def check_linear(
    h: int,
    level: Level,
    y: Floats,
    ends: tuple[float, float],
    before: tuple[Level, Floats],
    known: bool,
    attempt: int,
    horizon: int,
    zeta: float = 0.0,
) -> None:
    """Tests that the mean of y is linear at a level of phase B.

    The first direction is what richer features explained of the episodes before; the others are these features.

    Args:
        h: the level.
        level: what was seen and done there.
        y: `[m]` answers.
        ends: smallest and largest possible answer.
        before: the level in earlier episodes, and what their answers were beyond the frozen function.
        known: whether all contexts are listed.
        attempt: its number, from 1.
        horizon: number of levels H.
        zeta: how far means may be from linear at this level.

    Raises:
        BrokenPromise: it is not.
    """
    directions = np.column_stack([_learned(known, *before, level), richer(level, known)])
    found = surprise(level, y, directions, ends[1] - ends[0], FALSE_ALARM / (attempt * (attempt + 1)) / horizon, zeta)
    if found is not None:
        raise BrokenPromise(_words(h, level, found, known, zeta))


def _learned(known: bool, before: Level, error: Floats, level: Level) -> Floats:
    """Returns `[C]` what richer features of earlier episodes explained beyond the frozen function, at the fresh ones."""
    if not known:
        old, new = richer(before, known), richer(level, known)
        scale = old.T @ old + 1e-6 * max(1.0, float((old**2).sum())) * np.eye(old.shape[1]) / old.shape[1]
        return new @ np.linalg.solve(scale, old.T @ error)
    size = level.phi.shape[0] * level.phi.shape[1]
    means = np.bincount(before.codes, error, size) / (np.bincount(before.codes, minlength=size) + 1.0)
    return means[_codes(level)]


def _words(h: int, level: Level, found: tuple[int, float], known: bool, zeta: float) -> str:
    which, far = found
    where = "in the direction that earlier episodes suggested"
    if which and known:
        row = int(np.flatnonzero(richer(level, True)[:, which - 1])[0])
        context, action = divmod(int(_codes(level)[row]), level.phi.shape[1])
        where = f"at context {context} and action {action}"
    elif which:
        where = "along a product of two features"
    near = f" within {zeta:g}" if zeta else ""
    return (
        f"means are not linear in the features{near}: at level {h}, {where}, fresh episodes differ from every function that "
        f"is by {far:.1f} standard deviations or more. The learner 'linear' needs such means; with those a run is stopped "
        f"like this with probability at most {FALSE_ALARM:g}, which is not part of delta. Give richer features, or a larger "
        "tolerance (docs/linear.md)."
    )

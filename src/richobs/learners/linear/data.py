"""Episodes as rows of features: what each level showed, did and earned.

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

"""Whether means are linear in the features: tests on fresh episodes, which only stop a run (docs/linear.md).

Given features and actions of a level, a sum of c_i y_i with c orthogonal to all features has mean 0 if the mean of y is
linear, and is sub-Gaussian. The directions c are fixed before y is drawn.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from richobs.core.errors import BrokenPromise
from richobs.core.types import Floats
from richobs.learners.linear.data import Data, Level
from richobs.learners.linear.fits import Frozen

if TYPE_CHECKING:
    from richobs.learners.linear.search import LinearSearch

FALSE_ALARM = 1e-3  # probability that a run is stopped though means are linear; not part of delta
MOST = 256  # directions of a level that are tested
SMALL = 1e-6  # length of a direction, relative to what it was made of, below which features explain it


def richer(level: Level, known: bool) -> Floats:
    """Returns `[m, J]` richer features: each context and action of its own where listed, else squares and products."""
    if known:
        codes = level.x * level.phi.shape[1] + level.a
        common = np.unique(codes, return_counts=True)
        chosen = common[0][np.argsort(-common[1], kind="stable")[:MOST]]
        return (codes[:, None] == chosen).astype(np.float64)
    taken = level.taken
    i, j = np.triu_indices(taken.shape[1])
    return taken[:, i[:MOST]] * taken[:, j[:MOST]]


def surprise(level: Level, y: Floats, directions: Floats, width: float, chance: float) -> tuple[int, float] | None:
    """Returns the direction whose sum is too far from 0 and by how much; None where none is.

    Args:
        level: what was seen and done.
        y: `[m]` answers.
        directions: `[m, J]` fixed before y.
        width: length of the range of y.
        chance: probability with which a linear mean gives any at all.
    """
    taken = level.taken
    rest = directions - taken @ np.linalg.lstsq(taken, directions, rcond=None)[0]
    length = np.sqrt((rest**2).sum(axis=0))
    kept = np.flatnonzero(length > SMALL * np.sqrt((directions**2).sum(axis=0)))
    if not len(kept):
        return None
    far = np.abs(y @ rest[:, kept]) / (width / 2 * length[kept])  # in standard deviations, at the most
    worst = int(far.argmax())
    limit = math.sqrt(2 * math.log(2 * len(kept) / chance))
    return (int(kept[worst]), float(far[worst])) if far[worst] > limit else None


def check_linear(search: "LinearSearch", frozen: Frozen, before: Data, fresh: Data) -> None:
    """Tests that the mean of r + V_{h+1} is linear at every level of phase B.

    The first direction of a level is what richer features explained of the episodes before; the others are these features.

    Raises:
        BrokenPromise: it is not.
    """
    H = len(fresh.levels)
    attempt = search.tried + 1
    chance = FALSE_ALARM / (attempt * (attempt + 1)) / H
    for h, level in enumerate(fresh.levels):
        after, past = (None if h + 1 == H else frozen.value(h + 1, data.levels[h + 1].phi) for data in (fresh, before))
        low, high = (0.0, 0.0) if after is None else frozen.value_ends(h + 1, search.at(h + 1))
        if search.features.functions.may_end:
            low, high = min(low, 0.0), max(high, 0.0)
        width = search.step_range[1] - search.step_range[0] + high - low + 1e-9
        y = level.answers(after, True)
        extra = richer(level, search.known)
        learned = _learned(search.known, frozen.w[h], before.levels[h], past, level)
        found = surprise(level, y, np.column_stack([learned, extra]), width, chance)
        if found is not None:
            raise BrokenPromise(_words(search, h, level, found))


def _learned(known: bool, w: Floats, before: Level, past: Floats | None, level: Level) -> Floats:
    """Returns `[m, 1]` what richer features of earlier episodes explained beyond phi.w, at the fresh ones."""
    error = before.answers(past, True) - before.taken @ w
    if not known:
        i, j = np.triu_indices(len(w))
        i, j = i[:MOST], j[:MOST]
        old, new = (part.taken[:, i] * part.taken[:, j] for part in (before, level))
        scale = old.T @ old + 1e-6 * max(1.0, float((old**2).sum())) * np.eye(len(i)) / max(1, len(i))
        return (new @ np.linalg.solve(scale, old.T @ error))[:, None]
    K = level.phi.shape[1]
    codes, size = before.x * K + before.a, level.phi.shape[0] * K
    means = np.bincount(codes, error, size) / (np.bincount(codes, minlength=size) + 1.0)
    return means[level.x * K + level.a][:, None]


def _words(search: "LinearSearch", h: int, level: Level, found: tuple[int, float]) -> str:
    which, far = found
    where = "in the direction that earlier episodes suggested"
    if which and search.known:
        chosen = int(np.flatnonzero(richer(level, True)[:, which - 1])[0])
        where = f"at context {int(level.x[chosen])} and action {int(level.a[chosen])}"
    elif which:
        where = "along a product of two features"
    return (
        f"means are not linear in the features: at level {h}, {where}, fresh episodes differ from every linear function by "
        f"{far:.1f} standard deviations or more. The learner 'linear' needs linear means; with those a run is stopped like "
        f"this with probability at most {FALSE_ALARM:g}, which is not part of delta. Give richer features (docs/linear.md)."
    )

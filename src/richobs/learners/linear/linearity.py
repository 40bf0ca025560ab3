"""Whether means are linear in the features: tests on fresh episodes, which only stop a run (docs/linear.md).

Given features and actions of a level, a sum of c_i y_i with c orthogonal to all features has mean 0 if the mean of y is
linear, and is sub-Gaussian. The directions c are fixed before y is drawn.
"""

import math

import numpy as np

from richobs.core.errors import BrokenPromise
from richobs.core.types import Floats, Ints
from richobs.learners.linear.data import Level

FALSE_ALARM = 1e-3  # probability that a run is stopped though means are linear; not part of delta
MOST = 256  # directions of a level that are tested
SMALL = 1e-6  # length of a direction, relative to what it was made of, below which features explain it


def richer(level: Level, known: bool) -> Floats:
    """Returns `[C, J]` richer features: each context and action of its own where listed, else squares and products."""
    if known:
        counts = np.bincount(level.codes)
        chosen = np.argsort(-counts, kind="stable")[: min(MOST, int(np.count_nonzero(counts)))]
        return (_codes(level)[:, None] == chosen).astype(np.float64)
    i, j = np.triu_indices(level.rows.shape[1])
    return level.rows[:, i[:MOST]] * level.rows[:, j[:MOST]]


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

"""Whether means are linear in the features: tests on fresh episodes, which only stop a run (docs/linear.md).

Given features and actions of a level, a sum of c_i y_i with c orthogonal to all features has mean 0 if the mean of y is
linear, and is sub-Gaussian. The directions c are fixed before y is drawn.
"""

import math

import numpy as np

from richobs.core.errors import BrokenPromise
from richobs.core.types import Floats
from richobs.learners.linear.data import Level

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


def surprise(
    level: Level, y: Floats, directions: Floats, width: float, chance: float, zeta: float = 0.0
) -> tuple[int, float] | None:
    """Returns the direction whose sum is too far from 0 and by how much; None where none is.

    Args:
        level: what was seen and done.
        y: `[m]` answers.
        directions: `[m, J]` fixed before y.
        width: length of the range of y.
        chance: probability with which a linear mean gives any at all.
        zeta: how far means may be from linear.
    """
    taken = level.taken / np.maximum(
        np.abs(level.taken).max(axis=0, initial=0.0), 1e-300
    )  # least squares drop tiny ones
    rest = directions - taken @ np.linalg.lstsq(taken, directions, rcond=None)[0]
    length = np.sqrt((rest**2).sum(axis=0))
    kept = np.flatnonzero(length > SMALL * np.sqrt((directions**2).sum(axis=0)))
    if not len(kept):
        return None
    sums = np.abs(y @ rest[:, kept]) - zeta * np.abs(rest[:, kept]).sum(axis=0)
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
    """Returns `[m]` what richer features of earlier episodes explained beyond the frozen function, at the fresh ones."""
    if not known:
        old, new = richer(before, known), richer(level, known)
        scale = old.T @ old + 1e-6 * max(1.0, float((old**2).sum())) * np.eye(old.shape[1]) / old.shape[1]
        return new @ np.linalg.solve(scale, old.T @ error)
    K = level.phi.shape[1]
    codes, size = before.x * K + before.a, level.phi.shape[0] * K
    means = np.bincount(codes, error, size) / (np.bincount(codes, minlength=size) + 1.0)
    return means[level.x * K + level.a]


def _words(h: int, level: Level, found: tuple[int, float], known: bool, zeta: float) -> str:
    which, far = found
    where = "in the direction that earlier episodes suggested"
    if which and known:
        chosen = int(np.flatnonzero(richer(level, True)[:, which - 1])[0])
        where = f"at context {int(level.x[chosen])} and action {int(level.a[chosen])}"
    elif which:
        where = "along a product of two features"
    near = f" within {zeta:g}" if zeta else ""
    return (
        f"means are not linear in the features{near}: at level {h}, {where}, fresh episodes differ from every function that "
        f"is by {far:.1f} standard deviations or more. The learner 'linear' needs such means; with those a run is stopped "
        f"like this with probability at most {FALSE_ALARM:g}, which is not part of delta. Give richer features, or a larger "
        "tolerance (docs/linear.md)."
    )

"""Plans by least squares on what was seen, and the policies that follow them; nothing here is certified.

Shapes: X contexts, K actions, d features, H levels.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from richobs.classes.layered import Layered
from richobs.classes.learned_policy import LearnedPolicy
from richobs.classes.linear import EVERYTHING, LinearLevel
from richobs.core.policies import greedy_actions
from richobs.core.types import Floats, Ints, Observations
from richobs.learners.linear.data import Data, Features, Level
from richobs.learners.linear.fits import quadratic

RIDGE = 1e-3  # added to A, relative to its mean eigenvalue


class Plan(NamedTuple):
    """A plan, level by level: the best action maximises phi.w + |phi|_bonus, plus what was given."""

    w: list[Floats]  # [d]
    bonus: list[Floats]  # [d, d]
    spread: list[Floats]  # [d, d] covariance of w, times the number of episodes
    inverse: list[Floats]  # [d, d] of A, with ridge
    tables: list[Floats]  # [X, K] values at the contexts of the data
    variance: float  # of what an episode adds up to beyond its plan


def planned(
    data: Data,
    *,
    given: Callable[[int, Level], Floats] | None = None,
    bonus: float = 0.0,
    cut: Sequence[tuple[float, float]] | None = None,
    ahead: float = 0.0,
) -> Plan:
    """Returns the plan of least squares backwards over levels.

    Args:
        data: what was seen.
        given: `[X, K]` what an action is given at once, in place of the rewards.
        bonus: how many standard errors of w are added.
        cut: ends of the values of each level.
        ahead: episodes in which w will be estimated anew; its error then is that of both.
    """
    H = len(data.levels)
    blank: Floats = np.zeros(0)
    w, extra, spread, inverses, tables = ([blank] * H for _ in range(5))
    after: Floats | None = None
    total = 0.0
    for h in reversed(range(H)):
        level = data.levels[h]
        taken, y = level.taken, level.answers(after, given is None)
        gram = taken.T @ taken
        ridge = RIDGE * max(float(np.trace(gram)) / len(gram), 1e-12)
        inverse = np.asarray(np.linalg.inv(gram + ridge * np.eye(len(gram))), dtype=np.float64)
        inverses[h] = inverse
        w[h] = inverse @ (taken.T @ y)
        error = y - taken @ w[h]
        total += float((error**2).mean()) if len(error) else 0.0
        spread[h] = inverse @ ((taken * error[:, None] ** 2).T @ taken) @ inverse * data.n
        extra[h] = bonus**2 * spread[h] / data.n * (1 + (data.n / ahead if ahead else 0.0))
        q = level.phi @ w[h] + np.sqrt(quadratic(level.phi, extra[h]))
        tables[h] = q if given is None else q + given(h, level)
        after = tables[h].max(axis=1)
        if cut is not None:
            after = np.clip(after, *cut[h])
    return Plan(w, extra, spread, inverses, tables, total)


def moves(data: Data, plan: Plan) -> list[Floats]:
    """Returns per level `[d, X']` what least squares makes of a function of the next contexts; none at the last level."""
    after = [len(level.phi) for level in data.levels[1:]]
    result = []
    for level, inverse, size in zip(data.levels, plan.inverse, after, strict=False):
        live = level.next >= 0
        sums = [np.bincount(level.next[live], column, size) for column in level.taken[live].T]
        result.append(inverse @ np.stack(sums))
    return result


def planned_value(data: Data, law: Sequence[Floats], given: Sequence[Floats]) -> float:
    """Returns the mean over first contexts of the most that can be had of what is given, by the law of `moves`.

    Args:
        data: what was seen.
        law: of what comes next.
        given: per level `[X, K]` what an action is given.
    """
    best = given[-1].max(axis=1)
    for h in reversed(range(len(law))):
        best = (given[h] + data.levels[h].phi @ (law[h] @ best)).max(axis=1)
    return float(best[data.levels[0].x].mean())


class Planned:
    """The policy of a plan; it knows which one it is, so that a record of its episodes can be compared."""

    def __init__(self, features: Features, w: Sequence[Floats], bonus: Sequence[Floats]):
        """Takes the plan."""
        self.features, self.w, self.bonus = features, w, bonus
        self.member = int(hashlib.sha256(b"".join(a.tobytes() for a in (*w, *bonus))).hexdigest()[:15], 16)
        tables = features.tables
        self.actions_of: list[Ints] | None = None
        if tables is not None:
            self.actions_of = [greedy_actions(self._scores(h, phi)) for h, phi in enumerate(tables)]
        greedy = tables is None and not any(matrix.any() for matrix in bonus)
        self._handed_over = self.learned() if greedy else None  # what is certified is what is played, ties included

    def _scores(self, level: int, phi: Floats) -> Floats:
        return phi @ self.w[level] + np.sqrt(quadratic(phi, self.bonus[level]))

    def actions(self, level: int, x: Observations, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` the plan's actions."""
        if self._handed_over is not None:
            return self._handed_over.actions(level, x)
        phi, place = self.features.place(level, x)
        if self.actions_of is not None:
            return self.actions_of[level][place]
        return greedy_actions(self._scores(level, phi))

    def learned(self) -> LearnedPolicy:
        """Returns the policy as a run hands it over; without the bonus."""
        functions, features = self.features.functions, self.features
        if self.actions_of is not None and functions.contexts is not None:
            books = [None if book.is_plain else book for book in functions.contexts]
            return LearnedPolicy.from_table(books, self.actions_of, n_actions=features.n_actions)
        levels = []
        for h, (own, w) in enumerate(zip(functions.levels, self.w, strict=True)):
            assert isinstance(own, LinearLevel), "levels of Linear"
            one = w.reshape(1, *own.parameters.shape[1:]) if own.parameters.ndim == 3 else w[None]
            levels.append(
                LinearLevel(
                    own.features, one, n_actions=features.n_actions, level=h, value_range=(-EVERYTHING, EVERYTHING)
                )
            )
        return LearnedPolicy(Layered(levels), (0,) * len(levels))

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
    noise: list[float]  # mean square of what was beyond the plan

    @property
    def greedy(self) -> "Aim":
        """The policy of a plan without bonus."""
        return Aim(self.w, [np.zeros_like(spread) for spread in self.spread])


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
    noise = [0.0] * H
    for h in reversed(range(H)):
        level = data.levels[h]
        y = level.answers(after, given is None)
        inverses[h] = inverse = _inverse(level.gram())
        w[h] = inverse @ (level.sums(y) @ level.rows)
        square = (y - level.each(level.rows @ w[h])) ** 2
        noise[h] = float(square.mean()) if len(y) else 0.0
        spread[h] = inverse @ level.gram(square) @ inverse * data.n
        extra[h] = bonus**2 * spread[h] / data.n * (1 + (data.n / ahead if ahead else 0.0))
        q = level.phi @ w[h] + np.sqrt(quadratic(level.phi, extra[h]))
        tables[h] = q if given is None else q + given(h, level)
        after = tables[h].max(axis=1)
        if cut is not None:
            after = np.clip(after, *cut[h])
    return Plan(w, extra, spread, inverses, tables, noise)


def moves(data: Data, plan: Plan) -> list[Floats]:
    """Returns per level `[d, X']` what least squares makes of a function of the next contexts; none at the last level."""
    after = [len(level.phi) for level in data.levels[1:]]
    result = []
    for level, inverse, size in zip(data.levels, plan.inverse, after, strict=False):
        live = level.next >= 0
        taken = level.phi[level.x[live], level.a[live]]
        sums = [np.bincount(level.next[live], column, size) for column in taken.T]
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


class Aim(NamedTuple):
    """A policy as a plan has it: at each level it maximises phi.w + |phi|_square^2."""

    w: list[Floats]  # [d]
    square: list[Floats]  # [d, d]


def uncertain(data: Data, law: Sequence[Floats], square: Sequence[Floats]) -> Aim:
    """Returns the policy along which |phi|^2 adds up to most, by the law of `moves`."""
    w = [np.zeros(level.phi.shape[2]) for level in data.levels]
    best = quadratic(data.levels[-1].phi, square[-1]).max(axis=1)
    for h in reversed(range(len(law))):
        w[h] = law[h] @ best
        best = (quadratic(data.levels[h].phi, square[h]) + data.levels[h].phi @ w[h]).max(axis=1)
    return Aim(w, list(square))


def design(data: Data, plan: Plan, law: Sequence[Floats], steps: int) -> list[Aim]:
    """Returns policies to play as often as the greedy and the random one: Frank-Wolfe towards a G-optimal design.

    Each is the most uncertain one, in the mixture of all before it, by the law of `moves`.
    """
    H = len(data.levels)
    sums = [a + b for a, b in zip(expected_grams(data, law, plan.greedy), expected_grams(data, law, None), strict=True)]
    found: list[Aim] = []
    for _ in range(steps):
        square = [plan.noise[h] * _inverse(sums[h]) for h in range(H)]
        found.append(uncertain(data, law, square))
        sums = [a + b for a, b in zip(sums, expected_grams(data, law, found[-1]), strict=True)]
    return found


def expected_grams(data: Data, law: Sequence[Floats], aim: Aim | None) -> list[Floats]:
    """Returns per level `[d, d]` the mean of phi phi' under a policy, by the law of `moves`; None: the random one."""
    first = data.levels[0]
    p, result = np.bincount(first.x, minlength=len(first.phi)) / len(first.x), []
    for h, level in enumerate(data.levels):
        X, K, d = level.phi.shape
        if aim is None:
            rows, mass = level.phi.reshape(-1, d), np.repeat(p / K, K)
        else:
            chosen = (level.phi @ aim.w[h] + quadratic(level.phi, aim.square[h])).argmax(axis=1)
            rows, mass = level.phi[np.arange(X), chosen], p
        result.append((rows * mass[:, None]).T @ rows)
        if h < len(law):
            p = np.maximum((mass @ rows) @ law[h], 0.0)
            p = p / max(p.sum(), 1e-12)
    return result


def _inverse(gram: Floats) -> Floats:
    """Returns the inverse with a ridge."""
    ridge = RIDGE * max(float(np.trace(gram)) / len(gram), 1e-12)
    return np.asarray(np.linalg.inv(gram + ridge * np.eye(len(gram))), dtype=np.float64)


class Planned:
    """The policy of a plan; it knows which one it is, so that a record of its episodes can be compared."""

    def __init__(self, features: Features, aim: Aim):
        """Takes the plan."""
        self.features, self.w, self.square = features, aim.w, aim.square
        self.member = int(hashlib.sha256(b"".join(a.tobytes() for a in (*aim.w, *aim.square))).hexdigest()[:15], 16)
        tables = features.tables
        self.actions_of: list[Ints] | None = None
        if tables is not None:
            self.actions_of = [greedy_actions(self._scores(h, phi)) for h, phi in enumerate(tables)]
        greedy = tables is None and not any(matrix.any() for matrix in aim.square)
        self._handed_over = self.learned() if greedy else None  # what is certified is what is played, ties included

    def _scores(self, level: int, phi: Floats) -> Floats:
        return phi @ self.w[level] + quadratic(phi, self.square[level])

    def actions(self, level: int, x: Observations, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` the plan's actions."""
        if self._handed_over is not None:
            return self._handed_over.actions(level, x)
        phi, place = self.features.place(level, x)
        if self.actions_of is not None:
            return self.actions_of[level][place]
        return greedy_actions(self._scores(level, phi))

    def learned(self) -> LearnedPolicy:
        """Returns the policy as a run hands it over; of a greedy plan."""
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

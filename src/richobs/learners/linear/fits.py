"""The bound: least squares along the one optimal policy [L1], and of what is left over [L2] (docs/linear.md).

Pure functions of arrays. Shapes: m samples of a level, X contexts, K actions, d features, H levels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from richobs.core.types import Floats
from richobs.learners.linear.data import Level

LARGEST_BET = 0.95  # samples with larger bets are bounded by the range of y, others by the squares that were seen
LEAST_EIGENVALUE = 1e-7  # of A, relative to its largest: below it a direction counts as not seen
LEAST_SQUARES = 1e-200  # below it float64 loses digits, and nothing counts as seen
AT_ONCE = 512  # contexts whose reach is computed at once
NOT_COUNTED = np.zeros(1)
SLACK = 1e-7  # of the range of totals that the bound is widened by, against rounding


@dataclass(frozen=True)
class Ball:
    """All feature vectors no longer than `norm`, where contexts are not listed [L2]."""

    norm: float

    def ends(self, u: Floats) -> tuple[float, float]:
        """Returns the smallest and the largest phi.u."""
        most = self.norm * float(np.linalg.norm(u))
        return -most, most

    def square(self, matrix: Floats) -> float:
        """Returns the largest |phi|_M^2."""
        return self.norm**2 * max(0.0, float(np.linalg.eigvalsh(matrix)[-1]))

    def most(self, u: Floats, matrix: Floats) -> float:
        """Returns at least the largest phi.u + |phi|_M^2."""
        return self.ends(u)[1] + self.square(matrix)

    def reach(self, rows: Floats) -> Floats:
        """Returns `[C]` the largest |phi.row| of rows `[C, d]`."""
        return self.norm * np.sqrt((rows**2).sum(axis=1))

    def __str__(self) -> str:
        return f"no feature vector is longer than {self.norm:g}"


@dataclass(frozen=True)
class Simplex:
    """All feature vectors that are probabilities, where contexts are not listed; methods as those of `Ball`.

    A convex function of them is largest where one feature is 1 and the others are 0 [L2].
    """

    def ends(self, u: Floats) -> tuple[float, float]:
        """Returns the smallest and the largest phi.u."""
        return float(u.min()), float(u.max())

    def square(self, matrix: Floats) -> float:
        """Returns the largest |phi|_M^2."""
        return max(0.0, float(np.diag(matrix).max()))

    def most(self, u: Floats, matrix: Floats) -> float:
        """Returns the largest phi.u + |phi|_M^2."""
        return float((u + np.diag(matrix)).max())

    def reach(self, rows: Floats) -> Floats:
        """Returns `[C]` the largest |phi.row| of rows `[C, d]`."""
        return np.asarray(np.abs(rows).max(axis=1, initial=0.0))

    def __str__(self) -> str:
        return "features are probabilities: not negative, and they add up to 1"


Region = Ball | Simplex


class Fit(NamedTuple):
    """The sums of one level of a phase that the bound rests on."""

    gram: Floats  # [d, d] A, the sum of phi phi'
    moment: Floats  # [d] the sum of phi y
    squares: Floats  # [d, d] the sum of weight phi phi', by `sample_weights`
    visits: Floats = NOT_COUNTED  # [X * K] samples at each context and action; [1] all samples where none are listed

    def solved(self) -> tuple[Floats, Floats] | None:
        """Returns theta `[d]`, and N `[d, d]` that bounds its error; None where a direction was not seen.

        With l fixed before the phase, E exp(l f.(theta* - theta) - l^2/2 f'N f) <= 1 for every fixed mean f of features.
        """
        inverse = inverse_gram(self.gram)
        return None if inverse is None else (inverse @ self.moment, inverse @ self.squares @ inverse)

    def leverage(self, phi: Floats) -> Floats:
        """Returns `[X, K]` by how much errors of 1 in the means of samples can move phi.theta, at the most [T].

        Where contexts are listed, `phi` holds all of them.
        """
        inverse = inverse_gram(self.gram)
        return np.full(phi.shape[:-1], math.inf) if inverse is None else leverage(phi, inverse, self.visits)

    def most_leverage(self, region: Region) -> float:
        """Returns the largest leverage of any features, where contexts are not listed."""
        inverse = inverse_gram(self.gram)
        assert inverse is not None, "its directions were seen"
        return math.sqrt(self.visits[0] * region.square(inverse))

    def outgrown(self, other: "Fit") -> float:
        """Returns t >= 0 such that no features have a leverage above 1 + t times this one in the other fit."""
        root = np.linalg.cholesky(self.gram)  # |phi|^2 of the other is at most the largest eigenvalue times this one
        inverse = inverse_gram(other.gram)
        assert inverse is not None, "its directions were seen"
        ratio = Ball(1.0).square(root.T @ inverse @ root) * other.visits[0] / self.visits[0]
        return max(0.0, math.sqrt(ratio) - 1)


def inverse_gram(gram: Floats) -> Floats | None:
    """Returns A^-1; None where a direction was not seen, so that nothing can be said of it [L1]."""
    values, vectors = np.linalg.eigh(gram)
    seen = values[0] > max(LEAST_EIGENVALUE * values[-1], LEAST_SQUARES)
    return np.asarray((vectors / values) @ vectors.T) if seen else None


def quadratic(phi: Floats, matrix: Floats) -> Floats:
    """Returns `[...]` phi' M phi, never negative."""
    return np.maximum(((phi @ matrix) * phi).sum(axis=-1), 0.0)


def leverage(phi: Floats, inverse: Floats, visits: Floats) -> Floats:
    """Returns `[X, K]` the sum of |phi' A^-1 phi_i| over samples i, or a bound on it where contexts are not listed.

    Args:
        phi: `[X, K, d]` features; all there can be, in their order, where contexts are listed.
        inverse: `[d, d]` A^-1.
        visits: `[X * K]` samples at each context and action, or `[1]` all samples.
    """
    if len(visits) == 1:
        return np.sqrt(visits[0] * quadratic(phi, inverse))
    every = phi.reshape(-1, phi.shape[-1])
    seen = np.flatnonzero(visits)
    rows = inverse @ every[seen].T  # [d, C]
    parts = [np.abs(every[i : i + AT_ONCE] @ rows) @ visits[seen] for i in range(0, len(every), AT_ONCE)]
    return np.concatenate(parts).reshape(phi.shape[:-1])


def visits_of(level: Level, known: bool) -> Floats:
    """Returns `[X * K]` how often each context and action was taken; `[1]` all samples where contexts are not listed."""
    if not known:
        return np.array([float(len(level.x))])
    X, K = level.phi.shape[:2]
    return np.bincount(level.codes, minlength=X * K).astype(np.float64)


def growth(u: Floats) -> Floats:
    """Returns 2 psi(u) / u^2 for psi(u) = -log(1 - u) - u and u in [0, 1): at least 1, and growing with u."""
    small = u < 1e-3
    safe = np.where(small, 0.5, u)
    return np.where(small, 1 + 2 * u / 3 + 0.6 * u * u, 2 * (-np.log1p(-safe) - safe) / safe**2)


def sample_weights(
    reach: Floats, y: Floats, guess: Floats, ends: tuple[float, float], rate: float, variance: float = 0.0
) -> Floats:
    """Returns `[m]` weights with E exp(b (E y - y) - b^2/2 weight) <= 1 for every fixed |b| <= rate * reach [L1].

    Which of the two bounds a sample gets depends on features and guesses alone: it is fixed before y is drawn.

    Args:
        reach: `[m]` largest |f' A^-1 phi_i| of any mean f of features.
        y: `[m]` answers.
        guess: `[m]` forecasts of them, fixed before the phase, between the ends.
        ends: smallest and largest possible answer.
        rate: lambda, fixed before the phase.
        variance: guess of the mean of (y - guess)^2, fixed before the phase; the bound that is smaller with it is used.
    """
    low, high = ends
    bet = rate * reach * np.maximum(high - guess, guess - low)
    grown = growth(np.minimum(bet, LARGEST_BET))
    seen = (bet <= LARGEST_BET) & (grown * variance <= (high - low) ** 2 / 4)
    return np.where(seen, grown * (y - guess) ** 2, (high - low) ** 2 / 4)


def reaches(phi: Floats, inverse: Floats, contexts: Floats | Region) -> Floats:
    """Returns `[C]` the largest |c'A^-1 phi| of all features c there can be, for features `[C, d]`."""
    if isinstance(contexts, Region):
        return contexts.reach(phi @ inverse)
    every, rows = contexts.reshape(-1, contexts.shape[2]), inverse @ phi.T  # [d, C]
    parts = [np.abs(every[i : i + AT_ONCE] @ rows).max(axis=0) for i in range(0, len(every), AT_ONCE)]
    return np.asarray(np.max(parts, axis=0))


def fitted(
    level: Level,
    y: Floats,
    guess: Floats,
    ends: tuple[float, float],
    rate: float,
    contexts: Floats | Region,
    variance: float = 0.0,
) -> Fit:
    """Returns the sums of least squares of y on the features that were taken.

    Args:
        level: what was seen and done.
        y: `[m]` answers.
        guess: `[d]` phi.guess forecasts them, fixed before the phase; it is cut to the ends.
        ends: smallest and largest possible answer.
        rate: lambda, fixed before the phase.
        contexts: `[X, K, d]` all features there can be, or where they lie.
        variance: as in `sample_weights`.
    """
    gram = level.gram()
    inverse = inverse_gram(gram)
    reach = np.full(len(level.rows), math.inf) if inverse is None else reaches(level.rows, inverse, contexts)
    forecast = np.clip(level.rows @ guess, *ends)
    weights = sample_weights(level.each(reach), y, level.each(forecast), ends, rate, variance)
    visits = visits_of(level, not isinstance(contexts, Region))
    return Fit(gram, level.sums(y) @ level.rows, level.gram(weights), visits)


def blurred(zeta: float, phi: Floats, fit: Fit) -> Floats | float:
    """Returns `[X, K]` zeta (1 + leverage): how far phi.theta of a fit can be from the mean beside noise [T]."""
    return zeta * (1 + fit.leverage(phi)) if zeta else 0.0


@dataclass(frozen=True)
class Frozen:
    """What was fixed before a phase: V and, after phase B, the function F of what is left over."""

    w: list[Floats]  # [d] of each level: V_h(x) = max_a phi.w_h, cut to `cut`
    cut: list[tuple[float, float]]  # ends of V_h
    rate: float  # lambda
    first: tuple[Fit, ...] = ()  # phase B
    f: tuple[Floats, ...] = ()  # [d] of each level
    bonus: tuple[Floats, ...] = ()  # [d, d] of each level: F_h = max_a [g_h + phi.f_h + |phi|_bonus + blur_h]
    zeta: tuple[float, ...] = ()  # of each level: how far means may be from linear; nothing: they are linear

    def value(self, level: int, phi: Floats) -> Floats:
        """Returns `[X]` V_h of contexts."""
        return np.clip((phi @ self.w[level]).max(axis=-1), *self.cut[level])

    def blurs(self, level: int, zeta: float | None = None) -> tuple[float, float]:
        """Returns how far means of r + V and of F may be from linear; F is 0 after the last level, so that its mean is."""
        at = zeta if zeta is not None else self.zeta[level] if self.zeta else 0.0
        return at, at if level + 1 < len(self.w) else 0.0

    def bracket(self, level: int, phi: Floats) -> Floats:
        """Returns `[X, K]` g_h = phi.theta + lambda/2 |phi|_N^2 + blur - V_h [L1]; infinite if a direction was not seen."""
        solved = self.first[level].solved()
        if solved is None:
            return np.full(phi.shape[:2], math.inf)
        theta, noise = solved
        upper = phi @ theta + self.rate / 2 * quadratic(phi, noise) - self.value(level, phi)[:, None]
        return upper + blurred(self.blurs(level)[0], phi, self.first[level])

    def planned(self, level: int, phi: Floats) -> Floats:
        """Returns `[X, K]` g_h + phi.f_h + |phi|_bonus + blur, whose largest over actions is F_h [L2].

        The blur of phase B stands in for that of phase C, which is about as large.
        """
        ahead = phi @ self.f[level] + np.sqrt(quadratic(phi, self.bonus[level]))
        return self.bracket(level, phi) + ahead + blurred(self.blurs(level)[1], phi, self.first[level])

    def left_over(self, level: int, phi: Floats) -> Floats:
        """Returns `[X]` F_h of contexts."""
        return self.planned(level, phi).max(axis=-1)

    def value_ends(self, level: int, contexts: Floats | Region) -> tuple[float, float]:
        """Returns the smallest and largest V_h of all contexts there can be."""
        if isinstance(contexts, Region):
            low, high = contexts.ends(self.w[level])
            least, most = self.cut[level]
            return max(low, least), min(high, most)
        values = self.value(level, contexts)
        return float(values.min()), float(values.max())

    def left_over_ends(self, level: int, contexts: Floats | Region) -> tuple[float, float]:
        """Returns the smallest and largest F_h of all contexts there can be; V is not cut where they are not listed."""
        if isinstance(contexts, Region):
            solved = self.first[level].solved()
            if solved is None:
                return -math.inf, math.inf
            theta, noise = solved
            u = theta - self.w[level] + self.f[level]
            high = contexts.most(u, self.rate / 2 * noise) + math.sqrt(contexts.square(self.bonus[level]))
            if self.zeta:
                high += sum(self.blurs(level)) * (1 + self.first[level].most_leverage(contexts))
            return contexts.ends(u)[0], high
        values = self.left_over(level, contexts)
        return float(values.min()), float(values.max())

    def excess(self, level: int, second: Fit, contexts: Floats | Region, zeta: float | None = None) -> float:
        """Returns the largest [g_h + phi.f~ + lambda/2 |phi|_N'^2 + blur - F_h]_+ of all contexts there can be [L2].

        Args:
            level: h.
            second: phase C.
            contexts: `[X, K, d]` all features there can be, or where they lie.
            zeta: how far means may be from linear, at least as far as F allows for; None: as far.
        """
        solved, first = second.solved(), self.first[level]
        if solved is None or first.solved() is None:
            return math.inf
        f, noise = solved
        now, after = self.blurs(level, zeta)
        more = now - self.blurs(level)[0], after - self.blurs(level)[1]  # than F allows for
        if isinstance(contexts, Region):  # g_h cancels: F_h is at least its own value at the action
            moved, bonus, noise = f - self.f[level], self.bonus[level], self.rate / 2 * noise
            inverse, excess = inverse_gram(bonus), max(0.0, contexts.most(moved, noise))
            if inverse is not None:  # moved.phi <= |moved| |phi|_bonus with the norm of the inverse
                beyond = max(0.0, math.sqrt(float(moved @ inverse @ moved)) - 1)
                excess = min(excess, beyond * math.sqrt(contexts.square(bonus)) + contexts.square(noise))
            if now:
                most = first.most_leverage(contexts)
                excess += sum(more) * (1 + most) + after * most * first.outgrown(second)
            return excess
        new = self.bracket(level, contexts) + contexts @ f + self.rate / 2 * quadratic(contexts, noise)
        new += blurred(more[0], contexts, first) + blurred(after, contexts, second)
        return max(0.0, float((new - self.left_over(level, contexts)[:, None]).max()))


class Mean(NamedTuple):
    """The mean of a number over fresh episodes, and what bounds its error as N bounds that of least squares."""

    mean: float
    noise: float
    n: int


def fitted_mean(y: Floats, guess: float, ends: tuple[float, float], rate: float, variance: float = 0.0) -> Mean:
    """Returns the mean of y `[n]`; it is least squares with one feature, which is 1."""
    n = len(y)
    weights = sample_weights(np.full(n, 1 / n), y, np.full(n, min(max(guess, ends[0]), ends[1])), ends, rate, variance)
    return Mean(float(y.mean()), float(weights.sum()) / n**2, n)


class Bound(NamedTuple):
    """V* - V(policy) is at most `total`, and the parts that this is the sum of."""

    total: float
    predicted: float  # mean of V_0 - return over the policy's own episodes
    left_over: float  # mean of F_0
    excess: tuple[float, ...]  # of each level
    noise: float  # lambda/2 times that of the two means
    deviation: float  # log(1/d) / lambda


def certified(
    frozen: Frozen,
    second: tuple[Fit, ...],
    earned: Mean,
    start: Mean,
    contexts: list[Floats] | Region,
    d: float,
    span: float,
    zeta: Sequence[float] | None = None,
) -> Bound:
    """Returns the bound on V* - V(policy) that holds but for the probability d [L2].

    Args:
        frozen: what was fixed before phase C.
        second: phase C.
        earned: V_0(x_0) - return over the policy's own episodes.
        start: F_0(x_0) over phase C.
        contexts: per level `[X, K, d]` all features there can be, or where they lie.
        d: share of delta.
        span: width of the range of totals.
        zeta: of each level, how far means may be from linear, at least as far as F allows for; None: as far.
    """
    excess = tuple(
        frozen.excess(
            h, fit, contexts if isinstance(contexts, Region) else contexts[h], None if zeta is None else zeta[h]
        )
        for h, fit in enumerate(second)
    )
    noise = frozen.rate / 2 * (earned.noise + start.noise)
    deviation = math.log(1 / d) / frozen.rate
    total = earned.mean + start.mean + math.fsum(excess) + noise + deviation + SLACK * span
    return Bound(total, earned.mean, start.mean, excess, noise, deviation)

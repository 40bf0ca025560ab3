"""The central type: everything LSVEE asks of n samples at a node, as sums that add up.

`Moments` form a commutative monoid: `a + b` are the moments of both samples, so chunks, processes and machines differ
only in who computes the terms of one sum. Shapes: N functions, K actions, m distinct rows of a batch.

Departs from [KAL16]: sums are carried as means and centred variances instead of raw power sums. At small epsilon the
printed thresholds fall below what an expanded square can resolve in float64; centred terms are all non-negative, so a
risk is right to a few units in its last place.
"""

from dataclasses import dataclass

import numpy as np

from richobs.core.types import Floats, Ints, Observations


@dataclass(frozen=True, eq=False)
class Batch:
    """n samples at one node, grouped into rows with equal observations (or one row per sample)."""

    n: int
    actions: tuple[int, ...]  # [K] how many samples took each action; all 0 where no action was taken
    x: Observations  # [m, ...] one observation per row
    weight: Floats  # [m] share of the n samples in each row
    pair: Floats  # [m, K] share of action a's samples in each row; a column sums to 1, or is 0 where a was not taken
    r_mean: Floats  # [m, K] mean reward in the row under each action
    r_var: Floats  # [m, K] variance of the reward there

    @classmethod
    def of_observations(cls, x: Observations, n_actions: int) -> "Batch":
        """Returns the batch of observations `[n, ...]` without actions."""
        rows, row = _grouped(x)
        none = np.zeros((len(rows), n_actions))
        return cls(len(x), (0,) * n_actions, rows, np.bincount(row) / len(x), none, none, none)

    @classmethod
    def of_steps(cls, x: Observations, actions: Ints, rewards: Floats, n_actions: int) -> "Batch":
        """Returns the batch of samples (x, a, r), `[n]` of each."""
        rows, row = _grouped(x)
        shape = (len(rows), n_actions)
        cell = row * n_actions + actions
        counts = np.bincount(cell, minlength=len(rows) * n_actions)  # [m K]
        some = np.maximum(counts, 1)
        r_mean = np.bincount(cell, weights=rewards, minlength=len(counts)) / some
        r_var = np.bincount(cell, weights=(rewards - r_mean[cell]) ** 2, minlength=len(counts)) / some
        table = counts.reshape(shape)
        taken = table.sum(axis=0)
        return cls(
            n=len(x),
            actions=tuple(taken.tolist()),
            x=rows,
            weight=table.sum(axis=1) / len(x),
            pair=table / np.maximum(taken, 1),
            r_mean=r_mean.reshape(shape),
            r_var=r_var.reshape(shape),
        )


def _grouped(x: Observations) -> tuple[Observations, Ints]:
    """Returns the distinct observations and which of them each sample is; vectors are left as they are."""
    if x.ndim == 1 and x.dtype.kind in "iu":
        rows, row = np.unique(x, return_inverse=True)
        return rows, row
    return x, np.arange(len(x))


@dataclass(frozen=True, eq=False)
class Moments:
    """Means and variances over n samples, per function.

    With u = f(x, a) - r: under action a its mean is `u_mean[:, a]` and its variance `u_var[:, a]`. The value of f at x is
    max_a f(x, a).
    """

    n: int
    actions: tuple[int, ...]  # [K] samples per action
    v_mean: Floats  # [N] mean value: the estimate of V^f(p, pi_f)
    v_var: Floats  # [N] variance of the value (divisor n)
    u_mean: Floats  # [N, K]
    u_var: Floats  # [N, K] (divisor: the action's count)

    @classmethod
    def empty(cls, n_functions: int, n_actions: int) -> "Moments":
        """Returns the moments of no samples, the neutral element."""
        each, pairs = np.zeros(n_functions), np.zeros((n_functions, n_actions))
        return cls(0, (0,) * n_actions, each, each, pairs, pairs)

    @classmethod
    def of(cls, values: Floats, batch: Batch) -> "Moments":
        """Returns the moments of a batch, for functions whose values `[N, m, K]` on its rows are given."""
        best = values.max(axis=2)
        v_mean = best @ batch.weight
        v_var = (best - v_mean[:, None]) ** 2 @ batch.weight
        u_mean, u_var = np.zeros((2, len(values), len(batch.actions)))
        for a in range(len(batch.actions)):
            rows = np.flatnonzero(batch.pair[:, a])
            share = batch.pair[rows, a]
            u = values[:, rows, a] - batch.r_mean[rows, a]
            u_mean[:, a] = u @ share
            u_var[:, a] = (u - u_mean[:, a, None]) ** 2 @ share + batch.r_var[rows, a] @ share
        return cls(batch.n, batch.actions, v_mean, v_var, u_mean, u_var)

    @classmethod
    def concatenate(cls, parts: list["Moments"]) -> "Moments":
        """Returns moments over several groups of functions, all of the same samples, as one."""
        first = parts[0]
        fields = ("v_mean", "v_var", "u_mean", "u_var")
        return cls(first.n, first.actions, *(np.concatenate([getattr(p, f) for p in parts]) for f in fields))

    def __add__(self, other: "Moments") -> "Moments":
        n = self.n + other.n
        counts = tuple(a + b for a, b in zip(self.actions, other.actions, strict=True))
        w = other.n / n if n else 0.0
        wa = np.array([b / c if c else 0.0 for b, c in zip(other.actions, counts, strict=True)])
        v_mean, v_var = _merged(self.v_mean, self.v_var, other.v_mean, other.v_var, np.float64(w))
        u_mean, u_var = _merged(self.u_mean, self.u_var, other.u_mean, other.u_var, wa)
        return Moments(n, counts, v_mean, v_var, u_mean, u_var)

    @property
    def shares(self) -> Floats:
        """`[K]` share of the samples that took each action."""
        return np.array([a / self.n for a in self.actions])


def _merged(mean: Floats, var: Floats, mean2: Floats, var2: Floats, w: Floats | np.float64) -> tuple[Floats, Floats]:
    """Returns mean and variance of a mixture with weight `w` on the second part."""
    gap = mean2 - mean
    return mean + w * gap, (1 - w) * var + w * var2 + w * (1 - w) * gap**2

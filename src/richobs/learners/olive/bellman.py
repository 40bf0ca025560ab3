"""Average Bellman errors ([JKALS17] Definition 2, cited from memory), estimated from steps.

Pure functions: they see arrays and functions, never an environment. Shapes: N_h members of level h, X observations of the
level, X' of the next, K actions.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from richobs.core.functions import FunctionClass, ValueFunction
from richobs.core.policies import greedy_actions
from richobs.core.steps import Steps
from richobs.core.types import Floats, Ints, Mask
from richobs.learners.version_space import PairError

AT_ONCE = 8_000_000  # values of functions that are held in memory at once


class Evaluation(NamedTuple):
    """What n_eval episodes of pi_f say about f."""

    errors: Floats  # [H] the average Bellman error of f at each level, along its own policy
    earned: float  # mean return of pi_f


def own_errors(steps: Sequence[Steps], f: ValueFunction) -> Evaluation:
    """Estimates f's average Bellman errors along pi_f: at level h the mean of f(x_h, a_h) - r_h - f(x_{h+1}, a_{h+1}).

    Args:
        steps: of every level, all of the same episodes of pi_f.
        f: the function.
    """
    predicted = np.array([(s.visits * f.values(h, s.x)).sum() / s.n for h, s in enumerate(steps)])
    earned = np.array([s.rewards.sum() / s.n for s in steps])
    return Evaluation(predicted - earned - np.append(predicted[1:], 0.0), float(earned.sum()))


def pair_error(functions: FunctionClass, level: int, steps: Steps, alive: Mask, next_alive: Mask | None) -> PairError:
    """Estimates the average Bellman error of every function at one level, for a roll-in policy of somebody else.

    The error of f is the mean of K 1[a = pi_f(x)] (f(x, a) - r - max_a' f(x', a')). Actions of the level were drawn
    uniformly, so a share of 1/K took the action of pi_f; the others count 0, and the factor K makes up for them.

    Args:
        functions: the class.
        level: h.
        steps: of the level, actions drawn uniformly.
        alive: `[N_h]` the members that are wanted; others get gain 0.
        next_alive: `[N_{h+1}]` the same for the next level; None at the last one.
    """
    K, n = steps.visits.shape[1], steps.n
    members = np.flatnonzero(alive)
    greedy = np.empty((len(members), len(steps.x)), dtype=np.min_scalar_type(K - 1))
    gain = np.zeros(len(alive))
    place = np.arange(len(steps.x))
    for part in _parts(len(members), len(steps.x) * K):
        values = functions.values(level, steps.x, members[part])  # [part, X, K]
        chosen = greedy_actions(values)
        greedy[part] = chosen
        weighted = steps.visits[place, chosen] * values.max(axis=2) - steps.rewards[place, chosen]
        gain[members[part]] = K * (weighted.sum(axis=1) / n)
    row = np.zeros(len(alive), dtype=np.int64)
    if next_alive is None:
        return PairError(level, gain, row, np.zeros((1, 0)), None)
    policies, kind = np.unique(greedy, axis=0, return_inverse=True)
    row[members] = kind.ravel()
    return PairError(level, gain, row, _reach(policies, steps), _future(functions, level + 1, steps, next_alive))


def _reach(policies: Ints, steps: Steps) -> Floats:
    """Returns `[I, X']` K/n times how often each next observation followed where the action was that of the policy."""
    K = steps.visits.shape[1]
    where, action = steps.pair // K, steps.pair % K
    counts = [
        np.bincount(steps.next, weights=steps.moves * (policy[where] == action), minlength=len(steps.next_x))
        for policy in policies
    ]
    return K * (np.array(counts, dtype=np.float64) / steps.n)


def _future(functions: FunctionClass, level: int, steps: Steps, alive: Mask) -> Floats:
    """Returns `[N, X']` max_a f(x', a) of the living members of `level`, and 0 for the others."""
    future = np.zeros((len(alive), len(steps.next_x)))
    members = np.flatnonzero(alive)
    for part in _parts(len(members), len(steps.next_x) * functions.n_actions):
        future[members[part]] = functions.values(level, steps.next_x, members[part]).max(axis=2)
    return future


def _parts(members: int, each: int) -> list[slice]:
    """Returns slices of members that take `AT_ONCE` values at most, where each takes `each` of them."""
    step = max(1, AT_ONCE // max(1, each))
    return [slice(first, first + step) for first in range(0, members, step)]

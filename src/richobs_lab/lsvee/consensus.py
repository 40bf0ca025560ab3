"""Consensus ([KAL16] Algorithm 3): do the survivors agree on the value of a node?

A pure function: it sees arrays, never an environment. Shapes: N members of the node's level.
"""

from typing import NamedTuple

import numpy as np

from richobs.core.moments import Moments
from richobs.core.types import Floats, Mask


class Consensus(NamedTuple):
    """Verdict of the test, with the estimates it rests on."""

    agree: bool
    v_hat: Floats  # [N] predicted value of the state at the node; elimination one step earlier reuses it
    spread: float  # widest disagreement between two survivors


def consensus(moments: Moments, alive: Mask, *, eps_test: float) -> Consensus:
    """Tests whether survivors agree on the value of a node.

    Args:
        moments: of n_test observations drawn there.
        alive: `[N]` True where the member is part of a surviving function.
        eps_test: the widest disagreement that still counts as agreement.
    """
    v_hat = moments.v_mean  # pi_f is greedy in f, so f(x, pi_f(x)) is a maximum
    spread = float(np.ptp(v_hat[alive]))
    # Departs from [KAL16]: two values that agree may seem to differ by twice their rounding more.
    return Consensus(spread <= eps_test + 2 * moments.rounding, v_hat, spread)

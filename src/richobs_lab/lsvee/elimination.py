"""TD-Elim ([KAL16] Appendix B): which functions are consistent with their own predictions one step later?

A pure function: it sees arrays, never an environment. Shapes: N_h members of the node's level, K actions.
"""

from collections.abc import Sequence

import numpy as np

from richobs.core.moments import Moments
from richobs.core.types import Floats
from richobs_lab.lsvee.spaces import NodeRisk


def td_risk(level: int, moments: Moments, v_children: Sequence[Floats] | None) -> NodeRisk:
    """Returns what R~(f) of every function is made of ([KAL16] Eq. 4): mean of (f(x,a) - r - V^f(p∘a))^2.

    Args:
        level: of the node.
        moments: of n_train samples drawn there with uniform actions.
        v_children: per action, `[N_{h+1}]` the estimated value of the child; None at the last level, where it is 0.
    """
    return NodeRisk(
        level=level,
        noise=moments.u_var @ moments.shares,
        gain=moments.u_mean,
        future=None if v_children is None else np.stack(v_children, axis=1),
        share=moments.shares,
    )


def risk_rounding(noise: Floats, gain: Floats, future: Floats | None, here: float, there: float) -> float:
    """Returns by how much two risks noise + (gain - future)^2 may differ more than computed, because of rounding.

    Each noise is known up to `here`, each difference up to e = `here` + `there`, and the square of a difference d up to
    e (2 d + e). Both risks that are compared may be wrong.

    Args:
        noise: variances.
        gain: means, any shape.
        future: means that are subtracted; None where they are 0.
        here: `rounding` of the moments that `noise` and `gain` come from.
        there: `rounding` of those that `future` comes from.
    """
    e = here + there
    if e == 0.0:
        return 0.0
    d = float(np.abs(gain).max(initial=0.0)) + (0.0 if future is None else float(np.abs(future).max(initial=0.0)))
    return 2 * (here + e * (2 * d + e))

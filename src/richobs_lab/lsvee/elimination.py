"""TD-Elim ([KAL16] Appendix B): which functions are consistent with their own predictions one step later?

A pure function: it sees arrays, never an environment. Shapes: N_h members of the node's level, K actions.
"""

from collections.abc import Sequence

import numpy as np

from richobs.core.moments import Moments
from richobs.core.types import Floats
from richobs.learners.version_space import NodeRisk


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

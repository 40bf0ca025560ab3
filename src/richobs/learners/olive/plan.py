"""What OLIVE as printed will ask for: every sample size and threshold, and the worst case they add up to."""

import math

from richobs.learners.base import PlanRow, ShortPlan
from richobs.learners.olive.constants import OliveConstants


def olive_plan(c: OliveConstants) -> ShortPlan:
    """Returns the plan that follows from the constants."""
    H, K, M = c.horizon, c.n_actions, c.n_states
    given, sizes, episodes, worst = "asked for", "thresholds", "sample sizes", "worst case"
    order = M**2 * H**3 * K / c.epsilon**2 * (c.log_size + math.log(c.zeta / c.delta))
    return ShortPlan(
        "olive: the paper as printed, every size fixed in advance",
        c.max_episodes,
        (
            PlanRow(given, "H, K, M", H, f"levels, {K} actions, a Bellman rank of at most {M}", ""),
            PlanRow(given, "log10 N", c.log_size / math.log(10), "functions, as a power of ten", ""),
            PlanRow(sizes, "phi", c.phi, "value", "epsilon / (12 H sqrt M), largest error that survives"),
            PlanRow(sizes, "stop", c.stop, "value", "5 epsilon / 8, largest sum of errors that ends the run"),
            PlanRow(episodes, "n_est", c.n_est, "episodes, once", "32 log(6N/delta) / epsilon^2"),
            PlanRow(episodes, "n_eval", c.n_eval, "episodes a round", "288 H^2 log(12 H^2 M L/delta) / epsilon^2"),
            PlanRow(episodes, "n", c.n, "episodes per elimination", "4608 H^2 M K log(12 N H M L/delta) / epsilon^2"),
            PlanRow(worst, "rounds", c.max_rounds, "rounds", "H M L / log(5/3), L = log(6 H sqrt(M) zeta/epsilon)"),
            PlanRow(worst, "in all", c.max_episodes, "episodes", "n_est + rounds (n_eval + n) - n"),
            PlanRow(
                "orders, constants left out", "Theorem 1", order, "episodes", "M^2 H^3 K / eps^2 log(N zeta/delta)"
            ),
        ),
    )

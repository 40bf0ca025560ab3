"""Every number of OLIVE, computed in one place from (H, K, M, log N, epsilon, delta).

[JKALS17] is Jiang, Krishnamurthy, Agarwal, Langford and Schapire 2017, "Contextual Decision Processes with Low Bellman Rank
are PAC-Learnable". Its lines are cited from memory: the text was not at hand. Each number is derived again in docs/olive.md,
so the guarantee does not rest on the citation. Sizes are rounded up. N enters as its logarithm, because N itself overflows.
"""

import math
from dataclasses import dataclass

from richobs.core.settings import LARGEST_COUNT
from richobs.learners.base import PlanRow, ShortPlan
from richobs.learners.printed import checked_inputs


@dataclass(frozen=True)
class OliveConstants:
    """The inputs, and what Algorithm 1 uses. L = log(6 H sqrt(M) zeta / epsilon)."""

    horizon: int  # H
    n_actions: int  # K
    n_states: int  # M, a bound on the Bellman rank: the hidden states of a level, or fewer
    log_size: float  # log N
    epsilon: float
    delta: float
    zeta: float  # 2 sqrt(M), a bound on the norms of the factors (from memory: Proposition on reactive POMDPs)
    phi: float  # epsilon / (12 H sqrt(M)), largest |error| that survives (from memory: Theorem 1; Algorithm 1, line 15)
    stop: float  # 5 epsilon / 8, largest sum of errors that ends the run (from memory: Algorithm 1, line 9)
    n_est: int  # 32 log(6 N / delta) / epsilon^2 (from memory: Theorem 1; Algorithm 1, line 2)
    n_eval: int  # 288 H^2 log(12 H^2 M L / delta) / epsilon^2 (from memory: Theorem 1; Algorithm 1, line 7)
    n: int  # 4608 H^2 M K log(12 N H M L / delta) / epsilon^2 (from memory: Theorem 1; Algorithm 1, line 13)
    max_rounds: int  # H M L / log(5/3), rounded down (from memory: proof of Theorem 1)
    delta_est: float  # delta / 3, of the estimates at the root
    delta_round: float  # delta / (6 H M L), of one evaluation, and of one elimination

    @classmethod
    def of(
        cls, *, horizon: int, n_actions: int, n_states: int, log_size: float, epsilon: float, delta: float
    ) -> "OliveConstants":
        """Computes the constants.

        Args:
            horizon: H.
            n_actions: K.
            n_states: M.
            log_size: natural logarithm of N.
            epsilon: largest allowed gap between the policy's value and V*.
            delta: probability that the claim is false.
        """
        given = checked_inputs(horizon, n_actions, n_states, log_size, epsilon, delta, LARGEST_COUNT)
        H, K, M, log_size, epsilon, delta = given.values()
        zeta = 2 * math.sqrt(M)
        rounds = H * M * math.log(6 * H * math.sqrt(M) * zeta / epsilon)  # H M L
        return cls(
            **given,
            zeta=zeta,
            phi=epsilon / (12 * H * math.sqrt(M)),
            stop=5 * epsilon / 8,
            n_est=math.ceil(32 * (math.log(6 / delta) + log_size) / epsilon**2),
            n_eval=math.ceil(288 * H**2 * math.log(12 * H * rounds / delta) / epsilon**2),
            n=math.ceil(4608 * H**2 * M * K * (math.log(12 * rounds / delta) + log_size) / epsilon**2),
            max_rounds=math.floor(rounds / math.log(5 / 3)),
            delta_est=delta / 3,
            delta_round=delta / (6 * rounds),
        )

    @property
    def one_round(self) -> int:
        """n_est + n_eval + n: what a run with one elimination plays at the least."""
        return self.n_est + self.n_eval + self.n

    @property
    def max_episodes(self) -> int:
        """n_est + max_rounds (n_eval + n): the most that a run plays; the last round needs no elimination."""
        return self.n_est + self.max_rounds * (self.n_eval + self.n) - self.n


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

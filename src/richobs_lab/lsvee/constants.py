"""Every number of the paper, computed in one place from (H, K, M, log N, epsilon, delta).

Sizes are rounded up, and exactly so: they are computed with `DIGITS` digits, because double precision is one short or more
from 10^15 on. N enters as its logarithm, because N itself overflows. Main text and appendix of [KAL16] agree after
substitution; each line says where it stands.
"""

import dataclasses
import math
from dataclasses import dataclass
from decimal import Decimal, localcontext

from richobs.learners.printed import checked_inputs

DIGITS = 60  # of the arithmetic that sizes are rounded up from


def n_test(log_size: float, delta: float | Decimal, phi: float | Decimal) -> int:
    """Returns 2 log(2N / delta) / phi^2, the sample size of Consensus (Algorithm 3, line 1)."""
    with localcontext(prec=DIGITS):
        return math.ceil(2 * (_log(2) + Decimal(log_size) - _log(delta)) / Decimal(phi) ** 2)


def n_train(log_size: float, delta: float | Decimal, phi: float | Decimal) -> int:
    """Returns 24 log(4N / delta) / phi^2, the sample size of TD-Elim (App. B, TD-Elim; Algorithm 2, line 5)."""
    with localcontext(prec=DIGITS):
        return math.ceil(24 * (_log(4) + Decimal(log_size) - _log(delta)) / Decimal(phi) ** 2)


def elimination_slack(log_size: float, delta: float, phi: float, n: int) -> float:
    """Returns 2 phi^2 + 22 log(2N / delta) / n, by which a survivor's risk may exceed the smallest (App. B, Eq. 6)."""
    return 2 * phi**2 + 22 * (math.log(2) + log_size - math.log(delta)) / n


@dataclass(frozen=True)
class SearchConstants:
    """What one call of DFS-Learn and all it calls use, given its share of delta."""

    delta: float  # of the whole call
    delta_consensus: float  # of one Consensus call: (delta/2) / (M K H)   (Algorithm 2, line 2; DFS-Learn line 3)
    delta_elimination: float  # of one TD-Elim call: (delta/2) / (M H)     (App. B, DFS-Learn line 7)
    n_test: int  # 2 log(2N / delta_consensus) / phi^2                    (Algorithm 3, line 1)
    n_train: int  # 24 log(4N / delta_elimination) / phi^2                (App. B, TD-Elim; Algorithm 2, line 5)
    slack: float  # 2 phi^2 + 22 log(2N / delta_elimination) / n_train     (App. B, Eq. 6; Algorithm 2, line 6)


@dataclass(frozen=True)
class PaperConstants:
    """Algorithm 1 and everything below it, with delta/2 for the search at the root and delta/2 for what follows."""

    horizon: int  # H
    n_actions: int  # K
    n_states: int  # M, a bound on the latent states per level
    log_size: float  # log N
    epsilon: float
    delta: float
    phi: float  # epsilon / (320 H^2 sqrt(K))                             (Algorithm 2, line 1)
    search: SearchConstants  # DFS-Learn at the root, with delta/2          (Algorithm 1, line 1)
    eps_demand: float  # epsilon / 2                                      (Algorithm 1, line 3)
    n_1: int  # 32 log(12 M H / delta) / epsilon^2                        (Algorithm 1, line 3)
    n_2: int  # 8 log(6 M H / delta) / epsilon                            (Algorithm 1, line 3)
    demand: SearchConstants  # DFS-Learn on demand, with delta / (6 M H^2 n_2) (Algorithm 1, line 8)

    @classmethod
    def of(
        cls, *, horizon: int, n_actions: int, n_states: int, log_size: float, epsilon: float, delta: float
    ) -> "PaperConstants":
        """Computes the constants.

        Args:
            horizon: H.
            n_actions: K.
            n_states: M.
            log_size: natural logarithm of N.
            epsilon: largest allowed gap between the policy's value and V*.
            delta: probability that the claim is false.
        """
        given = checked_inputs(horizon, n_actions, n_states, log_size, epsilon, delta)
        H, K, M, log_size, epsilon, delta = given.values()
        phi = epsilon / (320 * H**2 * math.sqrt(K))
        with localcontext(prec=DIGITS):
            exact_epsilon, exact_delta = _as_written(epsilon), _as_written(delta)
            exact_phi = exact_epsilon / (320 * H**2 * Decimal(K).sqrt())

            def search(parts: int) -> SearchConstants:
                share, exact_share = delta / parts, exact_delta / parts
                tests, eliminations = 2 * M * K * H, 2 * M * H  # 2: each kind gets half of the share
                n = n_train(log_size, exact_share / eliminations, exact_phi)
                return SearchConstants(
                    delta=share,
                    delta_consensus=share / tests,
                    delta_elimination=share / eliminations,
                    n_test=n_test(log_size, exact_share / tests, exact_phi),
                    n_train=n,
                    slack=elimination_slack(log_size, share / eliminations, phi, n),
                )

            n_2 = math.ceil(8 * _log(6 * M * H / exact_delta) / exact_epsilon)
            return cls(
                **given,
                phi=phi,
                search=search(2),
                eps_demand=epsilon / 2,
                n_1=math.ceil(32 * _log(12 * M * H / exact_delta) / exact_epsilon**2),
                n_2=n_2,
                demand=search(6 * M * H**2 * n_2),
            )

    def eps_test(self, level: int) -> float:
        """Returns the consensus tolerance for a node at `level`, called from its parent (Algorithm 2, line 1).

        The parent p has |p| = level - 1, so this is 20 (H - |p| - 5/4) sqrt(K) phi. Nodes at level H are terminal and
        never tested: the printed tolerance would be negative there.
        """
        return 20 * (self.horizon - (level - 1) - 5 / 4) * math.sqrt(self.n_actions) * self.phi

    @property
    def max_eliminations(self) -> int:
        """Calls of TD-Elim in one search: T <= M H (theorem for DFS-Learn)."""
        return self.n_states * self.horizon

    @property
    def max_rounds(self) -> int:
        """Rounds of on-demand exploration: at most M H (proof of the theorem for Explore-on-Demand)."""
        return self.n_states * self.horizon

    @property
    def max_search_episodes(self) -> int:
        """T (n_train + K n_test) with T = M H (proof of the theorem for DFS-Learn)."""
        return self.max_eliminations * self._per_elimination(self.search)

    @property
    def max_demand_episodes(self) -> int:
        """M H n_1 rollouts, and M H^2 n_2 + M H calls of TD-Elim with their tests (theorem for Explore-on-Demand)."""
        M, H = self.n_states, self.horizon
        return self.max_rounds * self.n_1 + (M * H**2 * self.n_2 + M * H) * self._per_elimination(self.demand)

    @property
    def one_path(self) -> int:
        """H (n_train + K n_test): what learning the states of one path costs, the least that a search can take."""
        return self.horizon * self._per_elimination(self.search)

    def max_episodes(self, n_states: int | None = None) -> int:
        """Returns the most episodes of a run on a process with `n_states` a level, which may be fewer than the bound M."""
        true = self if n_states is None else dataclasses.replace(self, n_states=n_states)
        return true.max_search_episodes + true.max_demand_episodes

    def _per_elimination(self, search: SearchConstants) -> int:
        return search.n_train + self.n_actions * search.n_test


def _as_written(x: float) -> Decimal:
    """Returns x or its shortest decimal form, whichever is smaller: 0.01 and the double next to it are both meant."""
    return min(Decimal(x), Decimal(repr(x)))


def _log(x: float | Decimal) -> Decimal:
    """Returns the natural logarithm, with the digits of the context."""
    return Decimal(x).ln()

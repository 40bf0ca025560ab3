"""The numbers of [KAL16] written down a second time, from its main text, for statements to hold the shipped ones against.

Nothing here comes from `richobs_lab.lsvee.constants`: a factor that is wrong there must not cancel where an algorithm
is held against its bound. Sizes are rounded up from 60 digits. Lines of the paper's source are named.
"""

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext

from richobs import Problem

_DIGITS = 60


@dataclass(frozen=True)
class PrintedSearch:
    """Sample sizes and the threshold of one search, by Algorithms 2 and 3 (lines 622 to 649)."""

    n_train: int  # 24/phi^2 log(8 M H N/d)
    n_test: int  # 2/phi^2 log(4 M K H N/d): Algorithm 3 with (d/2)/(M K H)
    slack: float  # 2 phi^2 + 22 log(4 M H N/d)/n_train


@dataclass(frozen=True)
class Printed:
    """What the paper prints for H, K, M, log N, epsilon and delta, and what its proofs allow."""

    H: int
    K: int
    M: int
    log_n: float
    epsilon: float
    delta: float

    @classmethod
    def of(cls, problem: Problem, epsilon: float, delta: float) -> "Printed":
        """Reads H, K, M and log N off a problem that says its number of states."""
        assert problem.n_states is not None
        return cls(problem.horizon, problem.n_actions, problem.n_states, problem.functions.log_size, epsilon, delta)

    @property
    def phi(self) -> float:
        """Algorithm 2, line 1 (tex line 624): epsilon/(320 H^2 sqrt(K))."""
        return self.epsilon / 320 / self.H**2 / math.sqrt(self.K)

    def eps_test(self, to_go: int) -> float:
        """The tolerance of Consensus at a node with `to_go` actions left (tex line 1714): 20 (eta - 1/4) sqrt(K) phi."""
        return (to_go - 0.25) * self.epsilon / (16 * self.H**2)

    @property
    def eps_demand(self) -> float:
        """Algorithm 1, line 3 (tex line 610)."""
        return self.epsilon / 2

    @property
    def n_1(self) -> int:
        """Algorithm 1, line 3 (tex line 610): 32 log(12 M H/delta)/epsilon^2."""
        with localcontext(prec=_DIGITS):
            return math.ceil(32 * self._log(12 * self.M * self.H, self._delta) / self._epsilon**2)

    @property
    def n_2(self) -> int:
        """Algorithm 1, line 3 (tex line 610): 8 log(6 M H/delta)/epsilon."""
        with localcontext(prec=_DIGITS):
            return math.ceil(8 * self._log(6 * self.M * self.H, self._delta) / self._epsilon)

    @property
    def root(self) -> PrintedSearch:
        """Algorithm 1, line 1: DFS-Learn with delta/2."""
        with localcontext(prec=_DIGITS):
            return self.search(self._delta / 2)

    @property
    def on_demand(self) -> PrintedSearch:
        """Algorithm 1, line 8: DFS-Learn with delta/(6 M H^2 n_2)."""
        with localcontext(prec=_DIGITS):
            return self.search(self._delta / (6 * self.M * self.H * self.H * self.n_2))

    def search(self, share: Decimal | float) -> PrintedSearch:
        """Returns what DFS-Learn with delta = `share` uses."""
        M, H, K, n = self.M, self.H, self.K, Decimal(self.log_n)
        with localcontext(prec=_DIGITS):
            d = Decimal(share)
            per_phi = 102400 * H**4 * K / self._epsilon**2  # 1/phi^2
            n_train = math.ceil(24 * per_phi * (self._log(8 * M * H, d) + n))
            n_test = math.ceil(2 * per_phi * (self._log(4 * M * K * H, d) + n))
            slack = 2 / per_phi + 22 * (self._log(4 * M * H, d) + n) / n_train
        return PrintedSearch(n_train, n_test, float(slack))

    def per_elimination(self, search: PrintedSearch) -> int:
        """What one call of TD-Elim takes with the tests before it: n_train + K n_test (tex line 1983)."""
        return search.n_train + self.K * search.n_test

    def displayed(self, calls: int, share: float) -> float:
        """The bound displayed for DFS-Learn (tex line 1751) where it calls TD-Elim that often with delta = `share`."""
        M, H, K = self.M, self.H, self.K
        each = calls * H**4 * K / self.epsilon**2
        first = 3e6 * each * (self.log_n + math.log(8 * M * H / share))
        return first + 3e5 * each * K * (self.log_n + math.log(4 * M * K * H / share))

    @property
    def rounds(self) -> int:
        """M H rounds on demand (tex line 1917)."""
        return self.M * self.H

    @property
    def most_on_demand(self) -> int:
        """M H n_1 + (M H^2 n_2 + M H)(n_train + K n_test) (tex lines 1961 and 1983)."""
        M, H = self.M, self.H
        return M * H * self.n_1 + (M * H * H * self.n_2 + M * H) * self.per_elimination(self.on_demand)

    @property
    def most(self) -> int:
        """The whole run: M H (n_train + K n_test) at the root (tex line 1751), and what on-demand exploration takes."""
        return self.M * self.H * self.per_elimination(self.root) + self.most_on_demand

    @property
    def order(self) -> float:
        """Theorem 1 (tex line 793): M H^6 K^2/epsilon^3 log(N/delta) log(1/delta), no constant."""
        log = -math.log(self.delta)
        return self.M * self.H**6 * self.K**2 / self.epsilon**3 * (self.log_n + log) * log

    @property
    def logs(self) -> float:
        """The logarithms of the proof's last display (tex line 1989): log(M H K N/(epsilon delta)) log(M H/delta)."""
        M, H, K = self.M, self.H, self.K
        return (self.log_n + math.log(M * H * K / self.epsilon / self.delta)) * math.log(M * H / self.delta)

    def staircase(self) -> int:
        """Returns what a good run of LSVEE as printed takes on the staircase, to the episode; H is at least 2.

        All tests agree there. The search at the root is one elimination. There are (M-1)(H-1) + 2 rounds. Each but the last
        eliminates at H-1 prefixes of n_2 paths; below the last level of prefixes there is nothing to test.
        """
        M, H, d = self.M, self.H, self.on_demand
        rounds = (M - 1) * (H - 1) + 2
        failed = self.n_2 * ((H - 1) * d.n_train + (H - 2) * self.K * d.n_test)
        return self.per_elimination(self.root) + rounds * self.n_1 + (rounds - 1) * failed

    @property
    def _epsilon(self) -> Decimal:
        return min(Decimal(self.epsilon), Decimal(repr(self.epsilon)))

    @property
    def _delta(self) -> Decimal:
        return min(Decimal(self.delta), Decimal(repr(self.delta)))

    @staticmethod
    def _log(over: int, under: Decimal) -> Decimal:
        return (over / under).ln()

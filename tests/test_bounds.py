"""Each bound at its limits, where a wrong constant shows: the least favourable laws, child errors at plus and minus e."""

import math

import numpy as np
import pytest

from richobs.stats.bets import kl_upper
from richobs.stats.shares import Share, Supposed
from richobs_lab.certified import bounds
from richobs_lab.certified.bounds import elimination_slack, residual_radius, return_lower_bound, value_radius

TRIALS = 20_000


def may_exceed(failures, trials, delta):
    """Whether so many failures are more than probability `delta` explains, at level 1e-6 (exact binomial tail)."""
    logs = [
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * math.log(delta)
        + (trials - k) * math.log1p(-delta)
        for k in range(failures)
    ]
    return 1 - math.fsum(map(math.exp, logs)) < 1e-6


class TestValueRadius:
    @pytest.mark.parametrize("n", [2, 10, 100, 10_000])
    @pytest.mark.parametrize("p", [0.0, 0.01, 0.3, 0.5, 0.99])
    def test_it_holds_for_two_point_laws(self, n, p):
        """The least favourable laws on a range of width 1/2, at delta 0.2: failures are within what delta allows."""
        rng = np.random.default_rng(int(1000 * p) + n)
        mean = 0.25 + 0.5 * rng.binomial(n, p, TRIALS) / n
        variance = (mean - 0.25) * (0.75 - mean)
        radius = value_radius(mean, variance, n, np.full(TRIALS, 0.25), np.full(TRIALS, 0.75), Supposed(0.2))
        failures = int((np.abs(mean - (0.25 + 0.5 * p)) > radius + 1e-12).sum())
        assert not may_exceed(failures, TRIALS, 0.2)

    def test_at_the_edge_it_shrinks_like_one_over_n(self):
        """All n values at the top: e = width (1 - (delta/4)^(1/n)), far below Hoeffding's square root."""
        for n in (20, 200, 2000):
            e = value_radius(np.array([0.5]), np.zeros(1), n, np.zeros(1), np.array([0.5]), Supposed(0.01))[0]
            assert e == pytest.approx(0.5 * (1 - (0.01 / 4) ** (1 / n)), rel=1e-6)


def test_kl_bounds_invert_the_divergence():
    q = kl_upper(np.array([0.0, 0.2, 0.5, 1.0]), 0.1)
    assert q[0] == pytest.approx(1 - math.exp(-0.1))
    assert q[3] == 1
    for p, u in zip((0.2, 0.5), q[1:3], strict=True):
        assert p * math.log(p / u) + (1 - p) * math.log((1 - p) / (1 - u)) == pytest.approx(0.1, abs=1e-9)


@pytest.mark.parametrize("budget", [1e-6, 0.003, 0.05, 0.4, 3.0])
def test_newton_ends_on_the_safe_side(budget):
    """A bound that is too small by rounding is false; one that is much too large says less than it could."""
    ends = 10 ** np.linspace(-9, -1, 30)
    means = np.concatenate([[0.0], ends, np.linspace(0.1, 0.9, 40), 1 - ends])
    found = kl_upper(means, budget)
    np.testing.assert_array_equal(found, kl_upper(means, np.full(len(means), budget)))
    for p, q in zip(means, found, strict=True):
        if q == 1:
            assert (1 - p) * math.exp(-budget / (1 - p)) < 1e-15  # what is missing cannot be written down
            continue
        divergence = (p * math.log(p / q) if p else 0.0) + (1 - p) * math.log((1 - p) / (1 - q))
        assert budget - 1e-14 < divergence
        assert (divergence - budget) * q * (1 - q) / (q - p) <= 1e-10  # by so much q is too large


@pytest.mark.parametrize("mean", [0.0, 1e-9, 0.3, 0.5])
@pytest.mark.parametrize("n", [1e12, 1e17, 1e20])
def test_tiny_budgets_are_inverted_without_cancellation(mean, n):
    """At n = 10^17 the divergence is below the rounding of its terms; the bound must stay on the safe side of the truth.

    log(100)/n is the budget at delta 0.01: the bound lies at least sqrt(2 p (1-p) budget) above the mean, which is what
    kl(p, q) ~ (q - p)^2 / (2 p (1-p)) gives, and at most Pinsker's sqrt(budget/2) above it.
    """
    budget = math.log(100) / n
    above = float(kl_upper(np.array([mean]), budget)[0]) - mean
    assert above >= math.sqrt(2 * mean * (1 - mean) * budget) * (1 - 1e-3) - np.spacing(mean)
    assert above <= math.sqrt(budget / 2) + 1e-10


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_bounds_on_returns_and_root_values_hold(p):
    rng = np.random.default_rng(7)
    for n in (3, 50, 2000):
        means = rng.binomial(n, p, 3000) / n
        every, place = np.unique(means, return_inverse=True)
        lower = np.array([return_lower_bound(m, n, Supposed(0.2)) for m in every])[place]
        assert not may_exceed(int((lower > p + 1e-12).sum()), 3000, 0.2)
        upper = bounds.mean_upper_bound(means, n, np.zeros(3000), np.ones(3000), Supposed(0.2))
        assert not may_exceed(int((upper < p - 1e-12).sum()), 3000, 0.2)


def elimination_failures(n, e, xi, gap, reward, delta):
    """How often risk(f*) > risk(g) + slack, for Bernoulli(reward) rewards.

    f* = reward + V with child error xi (|xi| <= e); the reference g differs from it by `gap`: losses (m - r)^2 with
    m* = reward - xi and m_g = reward + gap.
    """
    r = np.random.default_rng(0).binomial(n, reward, TRIALS) / n  # mean of n rewards; r^2 = r
    star, other = reward - xi, reward + gap
    risk_star = star**2 - 2 * star * r + r
    risk_other = other**2 - 2 * other * r + r
    slack = elimination_slack(np.array([e]), n, Supposed(delta))[0]
    return int((risk_star > risk_other + slack + 1e-15).sum())


class TestElimination:
    @pytest.mark.parametrize("n", [10, 100, 1000, 10_000])
    @pytest.mark.parametrize("e", [0.0, 0.02, 0.1])
    @pytest.mark.parametrize("sign", [-1, 1])
    def test_the_truth_passes_at_its_limits(self, n, e, sign):
        """Child errors at plus and minus their radius, the reference at every distance: failures stay below delta."""
        for reward in (0.05, 0.5):
            for gap in (-0.3, -0.1, -0.03, -0.01, 0.01, 0.03, 0.1, 0.3):
                failures = elimination_failures(n, e, sign * e, gap, reward, 0.1)
                assert not may_exceed(failures, TRIALS, 0.1), (reward, gap)

    @pytest.mark.parametrize("n", [5, 100, 5000])
    def test_the_absolute_test_keeps_the_truth(self, n):
        rng = np.random.default_rng(n)
        for reward in (0.05, 0.5):
            off = np.abs(rng.binomial(n, reward, TRIALS) / n - reward)
            assert not may_exceed(int((off > residual_radius(n, 0.5, Supposed(0.1))).sum()), TRIALS, 0.1)


class TestLiterals:
    """Values worked out by hand, so that no logarithm or factor can change unseen."""

    def test_empirical_bernstein_with_its_own_logarithm(self):
        """n = 10^6, s^2 = 10^-6, range 1: sqrt(2 s^2 log(8/d)/(n-1)) + 7 log(8/d)/(3(n-1)), log(8/0.08) = 4.60517."""
        n = 1_000_000
        e = value_radius(np.array([0.5]), np.array([1e-6]), n, np.zeros(1), np.ones(1), Supposed(0.08))[0]
        assert e == pytest.approx(math.sqrt(2e-6 * 4.605170186 / (n - 1)) + 7 * 4.605170186 / (3 * (n - 1)), rel=1e-9)

    def test_chernoff_with_its_own_logarithm(self):
        """All of n = 100 values at 0: q solves -log(1 - q) = log(4/0.04)/100."""
        e = value_radius(np.zeros(1), np.zeros(1), 100, np.zeros(1), np.ones(1), Supposed(0.04))[0]
        assert e == pytest.approx(1 - math.exp(-math.log(100) / 100), rel=1e-6)

    def test_the_slack(self):
        """e = 0.1, n = 400, L = 2: (0.1 + sqrt(2/800))^2 = 0.15^2. At e = 0 it is L/(2n)."""
        assert elimination_slack(np.array([0.1]), 400, Supposed(math.exp(-2)))[0] == pytest.approx(0.0225)
        assert elimination_slack(np.zeros(1), 1000, Supposed(math.exp(-1)))[0] == pytest.approx(1 / 2000)

    def test_the_residual_radius(self):
        """(1 + b) sqrt(log(2/d) / 2n) with b = 0.5, n = 200, d = 2 e^-4: 1.5 * 0.1."""
        assert residual_radius(200, 0.5, Supposed(2 * math.exp(-4))) == pytest.approx(0.15)

    def test_bounds_on_means(self):
        """All returns 1: W = d^(1/n). All values at the bottom of [0.2, 0.6]: U = 0.2 + 0.4 (1 - d^(1/n))."""
        assert return_lower_bound(1.0, 50, Supposed(0.01)) == pytest.approx(0.01 ** (1 / 50), rel=1e-9)
        upper = bounds.mean_upper_bound(np.array([0.2]), 50, np.array([0.2]), np.array([0.6]), Supposed(0.01))[0]
        assert upper == pytest.approx(0.2 + 0.4 * (1 - 0.01 ** (1 / 50)), rel=1e-9)


@pytest.mark.parametrize(
    "bound",
    [
        lambda share: value_radius(np.array([0.5]), np.array([0.1]), 10, np.zeros(1), np.ones(1), share),
        lambda share: elimination_slack(np.zeros(1), 10, share),
        lambda share: residual_radius(10, 1.0, share),
        lambda share: return_lower_bound(0.5, 10, share),
        lambda share: bounds.mean_upper_bound(np.array([0.5]), 10, np.zeros(1), np.ones(1), share),
    ],
)
def test_a_bound_spends_its_share_whole_and_once(bound):
    share = Share(0.1)
    bound(share)
    with pytest.raises(Exception, match="cannot be spent again"):
        bound(share)

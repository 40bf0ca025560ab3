"""Each bound at its limits, where a wrong constant shows: the least favourable laws, child errors at plus and minus e."""

import math

import numpy as np
import pytest

from richobs.stats.bets import kl_upper
from richobs.stats.shares import Share, Supposed
from richobs_lab.certified.bounds import (
    elimination_slack,
    mean_upper_bound,
    residual_radius,
    return_lower_bound,
    value_radius,
)

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

    def test_half_of_it_would_not_hold(self):
        rng = np.random.default_rng(0)
        mean = rng.binomial(100, 0.5, TRIALS) / 100
        radius = value_radius(mean, mean * (1 - mean), 100, np.zeros(TRIALS), np.ones(TRIALS), Supposed(0.02)) / 2
        assert may_exceed(int((np.abs(mean - 0.5) > radius).sum()), TRIALS, 0.02)

    def test_at_the_edge_it_shrinks_like_one_over_n(self):
        """All n values at the top: e = width (1 - (delta/4)^(1/n)), far below Hoeffding's square root."""
        for n in (20, 200, 2000):
            e = value_radius(np.array([0.5]), np.zeros(1), n, np.zeros(1), np.array([0.5]), Supposed(0.01))[0]
            assert e == pytest.approx(0.5 * (1 - (0.01 / 4) ** (1 / n)), rel=1e-6)

    def test_constants_have_no_radius(self):
        assert value_radius(np.array([0.3]), np.zeros(1), 5, np.array([0.3]), np.array([0.3]), Supposed(0.1))[0] == 0


def test_kl_bounds_invert_the_divergence():
    q = kl_upper(np.array([0.0, 0.2, 0.5, 1.0]), 0.1)
    assert q[0] == pytest.approx(1 - math.exp(-0.1))
    assert q[3] == 1
    for p, u in zip((0.2, 0.5), q[1:3], strict=True):
        assert p * math.log(p / u) + (1 - p) * math.log((1 - p) / (1 - u)) == pytest.approx(0.1, abs=1e-9)


def test_bisection_ends_on_the_safe_side():
    """A bound that is too small by rounding is false; bisection stops within 10^-11 of the root, above it."""
    for budget in (0.003, 0.05, 0.4):
        means = np.linspace(0.01, 0.9, 60)
        for p, q in zip(means, kl_upper(means, budget), strict=True):
            divergence = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
            assert budget - 1e-14 <= divergence <= budget + 1e-9


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
        lower = np.array([return_lower_bound(m, n, Supposed(0.2)) for m in np.unique(means)])[
            np.unique(means, return_inverse=True)[1]
        ]
        assert not may_exceed(int((lower > p + 1e-12).sum()), 3000, 0.2)
        upper = mean_upper_bound(means, n, np.zeros(3000), np.ones(3000), Supposed(0.2))
        assert not may_exceed(int((upper < p - 1e-12).sum()), 3000, 0.2)


def elimination_failures(n, e, xi, gap, reward, delta, slack, trials=TRIALS, seed=0):
    """How often risk(f*) > risk(g) + slack, for Bernoulli(reward) rewards.

    f* = reward + V with child error xi (|xi| <= e); the reference g differs from it by `gap`: losses (m - r)^2 with
    m* = reward - xi and m_g = reward + gap.
    """
    rng = np.random.default_rng(seed)
    r = rng.binomial(n, reward, trials) / n  # mean of n rewards; r^2 = r
    star, other = reward - xi, reward + gap
    risk_star = star**2 - 2 * star * r + r
    risk_other = other**2 - 2 * other * r + r
    return int((risk_star > risk_other + slack(np.array([e]), n, Supposed(delta))[0] + 1e-15).sum())


class TestElimination:
    @pytest.mark.parametrize("n", [10, 100, 1000, 10_000])
    @pytest.mark.parametrize("e", [0.0, 0.02, 0.1])
    @pytest.mark.parametrize("sign", [-1, 1])
    def test_the_truth_passes_at_its_limits(self, n, e, sign):
        """Child errors at plus and minus their radius, the reference at every distance: failures stay below delta."""
        for reward in (0.05, 0.5):
            for gap in (-0.3, -0.1, -0.03, -0.01, 0.01, 0.03, 0.1, 0.3):
                failures = elimination_failures(n, e, sign * e, gap, reward, 0.1, elimination_slack)
                assert not may_exceed(failures, TRIALS, 0.1), (reward, gap)

    def test_half_the_slack_loses_the_truth_to_noise(self):
        """At e = 0 half of it loses the truth more often than delta, against a reference at the worst distance."""

        def half(e, n, share):
            return elimination_slack(e, n, share) / 2

        n, delta = 10_000, 0.01
        gap = math.sqrt(half(np.zeros(1), n, Supposed(delta))[0])
        worst = max(elimination_failures(n, 0.0, 0.0, g, 0.5, delta, half) for g in (gap, -gap))
        assert may_exceed(worst, TRIALS, delta)

    def test_half_the_slack_loses_the_truth_to_a_child_error(self):
        def half(e, n, share):
            return elimination_slack(e, n, share) / 2

        assert elimination_failures(10_000, 0.1, 0.1, 0.0, 0.5, 0.1, half) > 0.9 * TRIALS

    def test_child_errors_must_be_paid_for(self):
        """With the radius dropped from the slack, a child error of 0.1 loses the truth."""

        def careless(e, n, share):
            return elimination_slack(0 * e, n, share)

        assert elimination_failures(10_000, 0.1, 0.1, 0.0, 0.5, 0.1, careless) > 0.5 * TRIALS
        assert not may_exceed(elimination_failures(10_000, 0.1, 0.1, 0.0, 0.5, 0.1, elimination_slack), TRIALS, 0.1)

    def test_a_reference_chosen_after_the_batch_costs_a_union(self):
        """The best of many references on the same batch beats the truth by more than the slack: why pilots exist."""
        rng = np.random.default_rng(0)
        n, rivals, trials, delta = 50, 20_000, 40, 0.3
        lost = 0
        for _ in range(trials):
            x = rng.integers(0, 2, (rivals, n))
            r = rng.integers(0, 2, n)
            risks = ((0.25 + 0.5 * x - r) ** 2).mean(axis=1)  # each guesses by a coin of its own
            lost += ((0.5 - r) ** 2).mean() > risks.min() + elimination_slack(np.zeros(1), n, Supposed(delta))[0]
        assert lost > delta * trials

    def test_reweighted_counts_would_lose_the_truth(self):
        """2,000 samples of one action and 4 of another, weighed alike, are not 2,004 samples: why a batch has one action."""
        rng = np.random.default_rng(1)
        many, few, delta = 2000, 4, 0.05
        slack = elimination_slack(np.zeros(1), many + few, Supposed(delta))[0]
        first, second = rng.binomial(many, 0.5, TRIALS) / many, rng.binomial(few, 0.5, TRIALS) / few
        gap = 0.1  # the reference is off by it under the second action only
        risk_star = (0.25 - 2 * 0.5 * first + first) / 2 + (0.25 - 2 * 0.5 * second + second) / 2
        other = 0.5 + gap
        risk_other = (0.25 - 2 * 0.5 * first + first) / 2 + (other**2 - 2 * other * second + second) / 2
        assert may_exceed(int((risk_star > risk_other + slack).sum()), TRIALS, delta)
        lone = (0.25 - 2 * 0.5 * second + second) - (
            other**2 - 2 * other * second + second
        )  # the few, for what they are
        assert not may_exceed(
            int((lone > elimination_slack(np.zeros(1), few, Supposed(delta))[0]).sum()), TRIALS, delta
        )

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
        upper = mean_upper_bound(np.array([0.2]), 50, np.array([0.2]), np.array([0.6]), Supposed(0.01))[0]
        assert upper == pytest.approx(0.2 + 0.4 * (1 - 0.01 ** (1 / 50)), rel=1e-9)


@pytest.mark.parametrize(
    "bound",
    [
        lambda share: value_radius(np.array([0.5]), np.array([0.1]), 10, np.zeros(1), np.ones(1), share),
        lambda share: elimination_slack(np.zeros(1), 10, share),
        lambda share: residual_radius(10, 1.0, share),
        lambda share: return_lower_bound(0.5, 10, share),
        lambda share: mean_upper_bound(np.array([0.5]), 10, np.zeros(1), np.ones(1), share),
    ],
)
def test_a_bound_spends_its_share_whole_and_once(bound):
    share = Share(0.1)
    bound(share)
    with pytest.raises(Exception, match="cannot be spent again"):
        bound(share)

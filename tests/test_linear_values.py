import dataclasses
import json
import math
import re

import numpy as np
import pytest

import richobs
from own import Arms
from richobs.core.environment import Declared, Episodes
from richobs.core.errors import BrokenPromise, InvalidInput
from richobs.learners import learner
from richobs.learners.linear import fits as estimates
from richobs.learners.linear import search as searching
from richobs.learners.linear.data import Data, Features, Level, joined, orthonormal, surprise
from richobs.learners.linear.fits import Ball, Fit, Frozen, Mean, Simplex, certified, fitted, fitted_mean
from richobs.learners.linear.search import AGAIN, FINAL, WIDER, LinearSearch, Tuning, assumptions
from richobs_lab.worlds.linear_mdp import linear_problem
from runs import faults

ONE = np.ones((1, 1, 1))  # one context, one action, one feature
NO_END = "no episode ends before the last level"
EVERYWHERE = (-math.inf, math.inf)


def level_of(phi, x, a, r=None, after=None):
    r, after = np.zeros(len(x)) if r is None else r, np.full(len(x), -1) if after is None else after
    return Level(np.asarray(phi, dtype=float), *map(np.asarray, (x, a)), np.asarray(r, dtype=float), np.asarray(after))


# The inequalities, by hand.


def test_growth_is_that_of_the_logarithm():
    # 2 (-log(1 - u) - u) / u^2 at u = 1/2: 8 (log 2 - 1/2)
    expected = [1.0, 8 * (math.log(2) - 0.5), 2 * (math.log(10) - 0.9) / 0.81]
    np.testing.assert_allclose(estimates.growth(np.array([0.0, 0.5, 0.9])), expected, rtol=1e-6)
    u = np.linspace(0, 0.99, 400)
    assert (np.diff(estimates.growth(u)) > 0).all()


@pytest.mark.parametrize("p", [0.01, 0.2, 0.5, 0.97])
@pytest.mark.parametrize("bet", [-0.94, -0.49, -0.1, 0.2, 0.45, 0.95, 3.0])
@pytest.mark.parametrize("variance", [0.0, 0.2])
@pytest.mark.parametrize("guess", [0.0, 0.3, 1.0])
def test_a_sample_of_its_weight_is_no_gain_on_average(p, bet, guess, variance):
    """E exp(b (E y - y) - b^2/2 weight) <= 1, exactly, for y that is 1 with probability p."""
    y = np.array([0.0, 1.0])
    weights = estimates.sample_weights(np.full(2, abs(bet)), y, np.full(2, guess), (0.0, 1.0), 1.0, variance)
    law = np.array([1 - p, p])
    assert law @ np.exp(bet * (p - y) - bet**2 / 2 * weights) <= 1 + 1e-12


def test_a_weight_is_chosen_before_the_answer_is_known():
    y = np.array([0.0, 0.5, 1.0])
    large = estimates.sample_weights(np.full(3, 2.0), y, np.full(3, 0.5), (0.0, 1.0), 1.0)
    np.testing.assert_array_equal(large, 0.25)  # the range's: width^2 / 4
    small = estimates.sample_weights(np.full(3, 0.2), y, np.full(3, 0.25), (0.0, 1.0), 1.0)
    g = float(estimates.growth(np.array([0.15]))[0])  # 0.2 times the largest distance from the guess
    np.testing.assert_allclose(small, [0.0625 * g, 0.0625 * g, 0.5625 * g])
    guessed = estimates.sample_weights(np.full(3, 0.2), y, np.full(3, 0.25), (0.0, 1.0), 1.0, variance=0.24)
    np.testing.assert_array_equal(guessed, 0.25)  # 0.24 g would be more, whatever comes


def test_least_squares_by_hand():
    """Two features, one sample along (1, 0) twice and (0, 1) once: A = diag(2, 1)."""
    phi = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    fit = fitted(level_of(phi, [0, 0, 1], [0, 0, 0]), np.array([0.0, 1.0, 0.5]), np.zeros(2), (0.0, 1.0), 0.01, phi)
    theta, noise = fit.solved()
    np.testing.assert_allclose(theta, [0.5, 0.5])
    g = estimates.growth(np.array([0.005, 0.01]))  # lambda times reach times 1
    np.testing.assert_allclose(np.diag(noise), [g[0] * 1.0 / 4, g[1] * 0.25])


def test_a_direction_that_was_not_seen_gives_no_bound():
    phi = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    fit = fitted(level_of(phi, [0, 0], [0, 0]), np.zeros(2), np.zeros(2), (0.0, 1.0), 1.0, phi)
    assert fit.solved() is None
    assert estimates.inverse_gram(np.diag([1.0, 1e-8])) is None
    assert estimates.inverse_gram(np.array([[1e-320]])) is None  # float64 keeps three digits of it
    whole = Fit(np.eye(2), np.zeros(2), np.eye(2))
    frozen = Frozen([np.zeros(2)], [EVERYWHERE], 1.0, (whole,), (np.zeros(2),), (np.zeros((2, 2)),))
    assert frozen.excess(0, fit, phi) == math.inf
    unseen = dataclasses.replace(frozen, first=(fit,))
    assert unseen.excess(0, whole, phi) == math.inf
    assert (unseen.bracket(0, phi) == math.inf).all()


def test_the_bound_by_hand():
    """One level, one feature: every part of the sum can be read off."""
    first = Fit(np.array([[4.0]]), np.array([2.0]), np.array([[8.0]]))  # theta 1/2, N = 8/16
    second = Fit(np.array([[4.0]]), np.array([0.4]), np.array([[1.6]]))  # f 1/10, N' = 1/10
    frozen = Frozen([np.array([0.3])], [(0.0, 1.0)], 2.0, (first,), (np.array([0.05]),), (np.zeros((1, 1)),))
    g = 0.5 + 0.5 - 0.3  # theta + lambda/2 N - V
    assert frozen.bracket(0, ONE)[0, 0] == pytest.approx(g)
    assert frozen.left_over(0, ONE)[0] == pytest.approx(g + 0.05)
    bound = certified(frozen, (second,), Mean(0.01, 0.02, 9), Mean(0.75, 0.0, 9), [ONE], math.exp(-3), 1.0)
    assert bound.excess == (pytest.approx(0.1 + 0.1 - 0.05),)  # f~ + lambda/2 N' - f
    assert bound.noise == pytest.approx(0.02)
    assert bound.deviation == pytest.approx(1.5)  # log(1/d) / lambda
    assert bound.total == pytest.approx(0.01 + 0.75 + 0.15 + 0.02 + 1.5, abs=2e-7)
    lucky = second._replace(moment=np.array([-4.0]))  # a bracket below 0 earns nothing: the episode may be over
    assert frozen.excess(0, lucky, ONE) == 0.0


REGIONS = (Ball(2.0), Simplex())


def some_features(region, rng):
    """Returns `[2000, 2, 3]` features of a region, corners of the simplex among them."""
    if isinstance(region, Simplex):
        return np.concatenate([rng.dirichlet([0.3] * 3, size=(1_991, 2)), np.eye(3)[list(np.ndindex(3, 3))]])
    phi = rng.normal(size=(2_000, 2, 3))
    return phi * 2 * rng.random((2_000, 2, 1)) / np.linalg.norm(phi, axis=2, keepdims=True)  # of length 2 at the most


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("region", REGIONS)
def test_without_contexts_the_bound_is_that_of_the_worst_features(seed, region):
    """The inequality is at least the supremum over any features of the region."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(4, 3, 3))
    fits = [Fit(a @ a.T + np.eye(3), rng.normal(size=3), a @ a.T) for a in root[:2]]
    frozen = Frozen([rng.normal(size=3)], [EVERYWHERE], 1.5, (fits[0],), (rng.normal(size=3),), (root[2] @ root[2].T,))
    phi = some_features(region, rng)
    assert frozen.excess(0, fits[1], phi) <= frozen.excess(0, fits[1], region)
    low, high = frozen.left_over_ends(0, region)
    assert low <= frozen.left_over(0, phi).min() <= frozen.left_over(0, phi).max() <= high
    low, high = frozen.value_ends(0, region)
    assert low <= frozen.value(0, phi).min() <= frozen.value(0, phi).max() <= high
    rows, inverse = phi[:50, 0], estimates.inverse_gram(fits[0].gram)
    listed, every = estimates.reaches(rows, inverse, phi), estimates.reaches(rows, inverse, region)
    assert (listed <= every + 1e-12).all()
    if isinstance(region, Simplex):  # its corners are among the features
        np.testing.assert_allclose(listed, every)
        assert (low, high) == (pytest.approx(frozen.value(0, phi).min()), pytest.approx(frozen.value(0, phi).max()))


def test_without_contexts_the_bound_by_hand():
    """Features of length 2 at the most, f~ = f: lambda/2 times 4 times the largest eigenvalue of N' is left."""
    first = Fit(np.eye(2), np.zeros(2), np.eye(2))
    second = Fit(np.eye(2), np.array([0.1, 0.2]), np.diag([0.25, 0.5]))
    frozen = Frozen([np.zeros(2)], [EVERYWHERE], 3.0, (first,), (np.array([0.1, 0.2]),), (np.diag([0.01, 0.04]),))
    assert frozen.excess(0, second, Ball(2.0)) == pytest.approx(1.5 * 4 * 0.5)
    moved = second._replace(moment=np.array([0.4, 0.2]))  # by 0.3, which is 3 in the norm of the bonus
    assert frozen.excess(0, moved, Ball(2.0)) == pytest.approx(3.0 + min(2 * 0.3, (3 - 1) * 2 * 0.2))


def test_over_all_probabilities_the_bound_by_hand():
    """A convex function of probabilities is largest at a corner: moved + lambda/2 N' of one feature."""
    first = Fit(np.eye(2), np.array([0.3, 0.1]), np.diag([0.02, 0.04]))
    second = Fit(np.eye(2), np.array([0.1, 0.4]), np.diag([0.2, 0.1]))
    frozen = Frozen([np.array([0.2, 0.5])], [EVERYWHERE], 2.0, (first,), (np.zeros(2),), (np.diag([0.01, 0.04]),))
    assert frozen.value_ends(0, Simplex()) == (0.2, 0.5)
    # theta - w + f = (0.1, -0.4); lambda/2 N = (0.02, 0.04); the largest bonus is 0.2
    assert frozen.left_over_ends(0, Simplex()) == (pytest.approx(-0.4), pytest.approx(0.1 + 0.02 + 0.2))
    # corners: 0.1 + 0.2 and 0.4 + 0.1; in the norm of the bonus f moved by sqrt(1 + 4)
    assert frozen.excess(0, second, Simplex()) == pytest.approx(min(0.5, (math.sqrt(5) - 1) * 0.2 + 0.2))
    still = second._replace(moment=np.array([0.1, 0.0]))  # within the bonus
    assert frozen.excess(0, still, Simplex()) == pytest.approx(0.2)
    assert Fit(np.diag([4.0, 1.0]), np.zeros(2), np.eye(2), np.array([9.0])).most_leverage(Simplex()) == 3.0


def test_a_mean_is_least_squares_with_one_feature():
    y = np.array([0.0, 1.0, 1.0, 0.0])
    mean = fitted_mean(y, 0.4, (0.0, 1.0), 0.3)
    fit = fitted(level_of(ONE, [0] * 4, [0] * 4), y, np.array([0.4]), (0.0, 1.0), 0.3, ONE)
    theta, noise = fit.solved()
    assert (mean.mean, mean.noise) == (pytest.approx(theta[0]), pytest.approx(noise[0, 0]))


def test_the_shares_of_all_attempts_add_up_to_delta():
    functions = richobs.Linear(np.ones((1, 2, 1)), horizon=1)
    search = LinearSearch(None, functions, (0.0, 1.0), (0.0, 1.0), 0.01, 0.2, 0, print, Tuning())
    total = 0.0
    for _ in range(5_000):
        total += search.share.part(search.next_share).amount  # a share refuses to hand out more than it has
        if len(search.targets) > 1:
            search.targets.pop(0)
        else:
            search.again += 1
    assert total == pytest.approx(0.2, rel=0.02)
    assert pytest.approx(1) == FINAL + WIDER + AGAIN


# Means that are only nearly linear [T].


def test_the_leverage_of_aggregated_features_is_1_however_rarely_a_cell_is_seen():
    phi = np.eye(2)[:, None]
    fit = fitted(level_of(phi, [0] * 9 + [1], [0] * 10), np.zeros(10), np.zeros(2), (0.0, 1.0), 0.01, phi)
    assert fit.visits.tolist() == [9, 1]
    np.testing.assert_allclose(fit.leverage(phi)[:, 0], [1, 1])
    unlisted = fit._replace(visits=np.array([10.0]))  # sqrt(m) |phi|
    np.testing.assert_allclose(unlisted.leverage(phi)[:, 0], np.sqrt([10 / 9, 10]))
    assert unlisted.most_leverage(Ball(2.0)) == pytest.approx(2 * math.sqrt(10))
    assert (Fit(np.zeros((2, 2)), np.zeros(2), np.zeros((2, 2))).leverage(phi) == math.inf).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("listed", [True, False])
def test_no_error_of_the_means_moves_least_squares_by_more_than_the_leverage(seed, listed):
    """Errors of size 1 with the worst signs reach the leverage where contexts are listed, and stay below it otherwise."""
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(5, 2, 3))
    x, a = rng.integers(5, size=40), rng.integers(2, size=40)
    fit = fitted(level_of(phi, x, a), np.zeros(40), np.zeros(3), (0.0, 1.0), 0.1, phi if listed else Ball(9.0))
    taken, most = phi[x, a], fit.leverage(phi)
    moved = np.linalg.solve(fit.gram, taken.T) * 1.0  # [d, m] of theta by an error of 1 at a sample
    for i, j in np.ndindex(5, 2):
        signs = np.sign(phi[i, j] @ moved)
        worst = phi[i, j] @ (moved @ signs)
        assert worst == pytest.approx(most[i, j]) if listed else worst <= most[i, j] + 1e-12
    if not listed:
        assert most.max() <= fit.most_leverage(Ball(float(np.sqrt((phi**2).sum(axis=2)).max()))) + 1e-12
        other = fit._replace(gram=fit.gram * 0.5 + np.diag([1.0, 0.0, 9.0]), visits=np.array([30.0]))
        assert (other.leverage(phi) <= (1 + fit.outgrown(other)) * most + 1e-12).all()


def test_the_bound_with_a_tolerance_by_hand():
    """Two levels, one feature that is always 1: the leverage is 1, so that a level costs 2 zeta twice, the last one once."""
    fit = Fit(np.array([[4.0]]), np.zeros(1), np.zeros((1, 1)), np.array([4.0]))
    zero = (np.zeros(1),) * 2
    frozen = Frozen(list(zero), [(0.0, 1.0)] * 2, 1.0, (fit,) * 2, zero, (np.zeros((1, 1)),) * 2, (0.01, 0.02))
    assert frozen.bracket(0, ONE)[0, 0] == pytest.approx(0.02)
    assert [frozen.left_over(h, ONE)[0] for h in (0, 1)] == pytest.approx([0.04, 0.04])
    means = Mean(0.0, 0.0, 9), Mean(0.0, 0.0, 9)
    for contexts in ([ONE, ONE], Ball(1.0)):
        given = frozen, (fit,) * 2, *means, contexts, math.exp(-1), 1.0
        exact, wider = (certified(*given, zeta) for zeta in (None, [0.03, 0.03]))
        assert exact.excess == pytest.approx((0.0, 0.0))  # F allows for it
        assert wider.excess == pytest.approx((0.03 * 4 - 0.04, 0.03 * 2 - 0.04))
        assert frozen.left_over_ends(0, contexts)[1] == pytest.approx(0.04)
    more = fit._replace(gram=np.array([[1.0]]))  # four samples whose features add up to 1: a leverage of 2 in phase C
    assert [frozen.excess(0, more, contexts) for contexts in (ONE, Ball(1.0))] == pytest.approx([0.01, 0.01])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("region", REGIONS)
def test_with_a_tolerance_the_bound_without_contexts_is_that_of_the_worst_features(seed, region):
    rng = np.random.default_rng(seed)
    root, m = rng.normal(size=(4, 3, 3)), np.array([50.0])
    fits = [Fit(a @ a.T + np.eye(3), rng.normal(size=3), a @ a.T, m) for a in root[:2]]
    zero = (np.zeros(3),) * 2
    bonus = (root[2] @ root[2].T,) * 2
    frozen = Frozen([*zero], [EVERYWHERE] * 2, 1.5, (fits[0],) * 2, (rng.normal(size=3),) * 2, bonus, (0.1, 0.1))
    phi = some_features(region, rng)
    for level, zeta in ((0, None), (0, 0.4), (1, 0.4)):
        assert frozen.excess(level, fits[1], phi, zeta) <= frozen.excess(level, fits[1], region, zeta)
    low, high = frozen.left_over_ends(0, region)
    assert low <= frozen.left_over(0, phi).min() <= frozen.left_over(0, phi).max() <= high


@pytest.mark.parametrize("seed", range(3))
def test_the_basis_of_the_features_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    phi, T = rng.normal(size=(6, 2, 3)), rng.normal(size=(3, 3)) + 3 * np.eye(3)
    x, a, y = rng.integers(6, size=50), rng.integers(2, size=50), rng.random(50)
    w, f, root = rng.normal(size=3) / 9, rng.normal(size=3) / 9, rng.normal(size=(3, 3))
    found = []
    for turn in (np.eye(3), T):
        back = np.linalg.inv(turn)
        new, guess = phi @ turn, back @ w
        fit = fitted(level_of(new, x, a), y, guess, (0.0, 1.0), 0.4, new)
        bonus = back @ root @ root.T @ back.T
        frozen = Frozen([guess] * 2, [(0, 1)] * 2, 0.4, (fit,) * 2, (back @ f,) * 2, (bonus,) * 2, (0.1, 0.1))
        found.append([frozen.bracket(0, new), frozen.planned(0, new), frozen.excess(0, fit, new, 0.2)])
        found[-1].append(fit.leverage(new))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_a_tolerance_is_claimed_and_checked_and_its_curve_grows():
    problem = linear_problem(horizon=2, dim=3, n_contexts=6, n_actions=2)
    outcome = richobs.learn(problem, epsilon=0.2, seed=1, tolerance=(0.004, 0.002))
    assert outcome.reason.name == "CERTIFIED"
    assert "is within 0.004, 0.002 (level by level) of a linear function of the features" in outcome.claim
    certificate = richobs.Certificate.of(outcome, problem)
    assert richobs.verify(certificate, problem).agrees
    check = learner("linear").recheck
    for zeta in ([0.0, 0.0], []):
        broken = json.loads(certificate.to_json())
        broken["constants"]["zeta"] = zeta
        assert not check(broken, problem, outcome.settings)[1].agrees
    more = dataclasses.replace(outcome.settings, tolerance=(0.1,))
    assert not check(json.loads(certificate.to_json()), problem, more)[1].agrees
    curve = outcome.tolerance_curve
    assert curve.together
    assert [row.tolerance for row in curve.rows[:2]] == [
        0.002,
        0.004,
    ]  # at every level: the claim allows for the smaller
    assert curve.rows[0].epsilon == 0.2
    uneven = richobs.learn(problem, epsilon=0.2, seed=1, tolerance=(0.0, 0.03), max_episodes=20_000).tolerance_curve
    assert uneven.rows[1].tolerance == 0.03
    assert uneven.rows[1].epsilon > uneven.claimed + 0.03  # the first level costs as well
    widths = [row.epsilon for row in curve.rows]
    assert widths == sorted(widths)
    assert widths[-1] == 1
    assert "all of them at once" in str(curve)
    assert [row.upper for row in curve.rows] == sorted(row.upper for row in curve.rows)
    assert curve.rows[-1].upper == 1


ONE_HOT = linear_problem("one-hot", horizon=1, n_contexts=2, n_actions=2).env
NEVER_ALL = richobs.Linear(np.eye(6).reshape(3, 2, 6), horizon=1)  # the third context never comes
PHI = np.eye(4).reshape(2, 2, 4)
FAR = richobs.Linear(lambda level, x: 1e3 + PHI[x], horizon=1, dim=4, n_actions=2, norm=2002.0)
NO_BOUND = (
    r"\d+ attempts with [\d,]+ episodes gave no bound, because .* at level 0. Leave out contexts that cannot occur"
)
LARGE = "List the contexts, or centre and scale the features: norm=2002 is large"


@pytest.mark.parametrize(
    ("problem", "tolerance", "reason", "words"),
    [
        (linear_problem(horizon=2, dim=3, n_contexts=6, n_actions=2), 0.05, "TOLERANCE", "within 0.05 of a linear"),
        (richobs.Problem(ONE_HOT, NEVER_ALL), 0.0, "STALLED", NO_BOUND),
        (linear_problem(horizon=1, dim=2, n_contexts=4, n_actions=2), 0.9, "TOLERANCE", "the tolerance alone may hide"),
        (richobs.Problem(ONE_HOT, FAR), 0.0, "STALLED", LARGE),
    ],
)
def test_a_run_that_cannot_reach_epsilon_ends_with_a_sentence(problem, tolerance, reason, words):
    outcome = richobs.learn(problem, epsilon=0.2, seed=1, tolerance=tolerance, max_episodes=200_000)
    assert outcome.reason.name == reason
    assert re.search(words, outcome.claim)
    assert outcome.epsilon > 0.2


@pytest.mark.parametrize("listed", [True, False])
def test_levels_that_no_episode_reaches_are_no_error(listed):
    """Every episode is over after its first step, so that nothing is ever seen at the second level."""

    class Short:
        horizon, n_actions, reward_range, declared = 2, 2, (0.0, 1.0), Declared(at_once=1_000)

        def play(self, policy, n, rng, levels=None):
            x = rng.integers(2, size=n)
            a = policy.actions(0, x, rng)
            none, over = np.zeros(n, dtype=int), np.ones(n, dtype=bool)
            return Episodes([x, none], [a, none], [(x == a).astype(float), np.zeros(n)], [~over, over])

    known = {"contexts": np.arange(2)} if listed else {"norm": 1.0}
    functions = richobs.Linear(lambda level, x: PHI[x], horizon=2, dim=4, n_actions=2, may_end=True, **known)
    outcome = richobs.learn(Short(), functions, epsilon=0.2, seed=1, max_episodes=5_000)
    assert not outcome.guaranteed
    assert outcome.claim.startswith("No guarantee")


def test_rewards_that_have_not_come_yet_do_not_ask_for_millions_of_episodes():
    rare, functions = Arms(0.002, 0.002, at_once=1_000), richobs.Linear(np.eye(2)[None], horizon=1)
    assert richobs.learn(rare, functions, epsilon=0.2, seed=1, max_episodes=20_000).reason.name == "CERTIFIED"


def test_a_bound_below_0_is_false_and_not_claimed(monkeypatch):
    """A policy cannot lose less than nothing: such a bound belongs to the event that delta allows for."""
    exact = searching.certified
    monkeypatch.setattr(searching, "certified", lambda *given: exact(*given)._replace(total=-0.01))
    outcome = richobs.learn(linear_problem(horizon=1, dim=2, n_contexts=4), epsilon=0.3, seed=1, max_episodes=3_000)
    assert not outcome.guaranteed


@pytest.mark.parametrize("offset", [1e3, 1e5])
def test_offsets_change_nothing(offset, solved):
    problem, plain = solved
    tables = [table.copy() for table in problem.functions.levels[0].features.tables]
    for table in tables:
        table[:, :, 1:] += offset
    outcome = richobs.learn(richobs.Problem(problem.env, richobs.Linear(tables)), epsilon=0.2, seed=1)
    assert outcome.reason.name == "CERTIFIED"
    assert outcome.episodes == pytest.approx(plain.episodes, rel=0.1)
    assert outcome.upper == pytest.approx(plain.upper, abs=0.05)


# Data.


def test_ended_episodes_have_no_features_and_nothing_after_them():
    functions = richobs.Linear(np.arange(12.0).reshape(3, 2, 2), horizon=2, may_end=True)
    over = [np.array([False, False]), np.array([True, False])]
    played = Episodes([np.array([0, 1])] * 2, [np.array([1, 0])] * 2, [np.array([0.5, 0.25])] * 2, over)
    data = Features(functions).read(played)
    assert data.levels[0].next.tolist() == [-1, 1]
    assert data.levels[1].x.tolist() == [1]
    np.testing.assert_array_equal(data.levels[0].answers(np.array([9.0, 7.0, 8.0]), True), [0.5, 7.25])
    sure = richobs.Linear(np.arange(12.0).reshape(3, 2, 2), horizon=2)
    with pytest.raises(BrokenPromise, match="may_end=True"):
        Features(sure).read(played)


def test_phases_are_joined_with_their_own_contexts():
    first = level_of([[[1.0]], [[2.0]]], [0, 1], [0, 0], after=[1, -1])
    one = Data((first, level_of([[[3.0]], [[4.0]]], [1], [0])), np.ones(2))
    both = joined([one, one], known=False)
    assert both.levels[0].rows.ravel().tolist() == [1, 2, 1, 2]
    assert both.levels[0].next.tolist() == [1, -1, 3, -1]
    assert joined([one, one], known=True).levels[0].next.tolist() == [1, -1, 1, -1]


def test_features_that_others_explain_are_left_out():
    rows = np.array([[1.0, 2.0, 0.0, 1.0], [1.0, 2.0, 1.0, 2.0], [1.0, 2.0, 3.0, 4.0]])
    kept, basis = orthonormal(rows)
    assert kept == [0, 2]
    np.testing.assert_allclose(basis.T @ basis, 3 * np.eye(2), atol=1e-14)
    np.testing.assert_allclose(basis @ (basis.T @ rows) / 3, rows, atol=1e-14)  # every feature is linear in it
    assert orthonormal(np.zeros((2, 3)))[0] == []
    thirds = np.column_stack([np.ones(4), np.arange(4) / 3])
    assert orthonormal(np.column_stack([thirds, thirds @ [0.1, 0.7]]))[0] == [0, 1]  # up to rounding


def in_units(scale, offset):
    """Returns features 1 and scale (offset + u), with u from 0 to 1."""
    u = np.array([[0.0, 1.0], [0.3, 0.6]])
    return richobs.Linear(np.stack([np.ones((2, 2)), scale * (offset + u)], axis=2), horizon=1)


@pytest.mark.parametrize(
    ("scale", "offset", "words"),
    [
        (1.0, 1.7e9, "level 0: feature 1 is nearly a linear combination of features 0.* Centre and scale"),
        (1.0, 1e8, "feature 1 is nearly"),
        (1e-3, 1e12, "feature 1 is nearly"),
        (2e12, 1.0, "a feature at level 0 is 1e\\+12 or more in size.* Centre and scale"),
        (-2e12, 1.0, "a feature at level 0 is 1e\\+12 or more in size"),
    ],
)
def test_no_feature_is_lost_to_rounding(scale, offset, words):
    with pytest.raises(InvalidInput, match=words):
        Features(in_units(scale, offset))


@pytest.mark.parametrize(("scale", "offset"), [(1.0, 1e5), (1.0, -1e5), (1e11, 0.0), (1e-200, 0.0), (1e-310, 0.0)])
def test_the_unit_and_the_offset_of_a_feature_do_not_matter(scale, offset):
    features = Features(in_units(scale, offset))
    np.testing.assert_allclose(features.tables[0], Features(in_units(1, 0)).tables[0] * [1, 1], rtol=1e-10)
    assert not any(features.left_out)


def test_a_feature_that_is_left_out_is_named_in_the_claim():
    assert assumptions(Features(in_units(1.0, 0.0)))[1:] == ["every observation is one of the contexts", NO_END]
    phi = np.stack(
        [np.full((2, 2), 0.1), np.array([[0.1, 0.2], [0.3, 0.4]]), np.array([[0.2, 0.3], [0.4, 0.5]])], axis=2
    )
    features = Features(richobs.Linear(phi, horizon=1))
    assert features.left_out == [[2]]
    assert assumptions(features)[2] == "feature 2 of level 0 is linear in those before it, as it is up to rounding"


# Runs.


@pytest.fixture(scope="module")
def solved():
    problem = linear_problem(horizon=2, dim=3, n_contexts=6, n_actions=2)
    return problem, richobs.learn(problem, epsilon=0.2, seed=1)


def test_the_learner_is_chosen_by_the_class_and_its_claim_is_true(solved):
    problem, outcome = solved
    assert outcome.learner == "linear"
    assert outcome.epsilon == 0.2
    assert problem.optimal_value - problem.value(outcome.policy) <= 0.2
    assert outcome.lower <= problem.value(outcome.policy)
    assert problem.optimal_value <= outcome.upper
    assert "is linear in the features" in outcome.claim
    assert math.fsum(claim.share for claim in outcome.claims) <= outcome.delta
    last = outcome.trace[-1]
    assert outcome.upper >= min(1.0, outcome.value_hat + last.bound)
    parts = last.predicted + last.left_over + math.fsum(last.excess) + last.noise + last.deviation
    assert last.bound == pytest.approx(parts, abs=2e-7)


def test_the_certificate_holds_the_sums_and_is_checked_by_them(solved):
    problem, outcome = solved
    certificate = richobs.Certificate.of(outcome, problem)
    assert richobs.verify(certificate, problem).agrees
    content = json.loads(certificate.to_json())
    check = learner("linear").recheck
    assert [f.agrees for f in check(content, problem, outcome.settings)] == [True, True]
    for name, change in (
        ("second", lambda fits: fits[0].__setitem__(1, [v * 1.5 + 0.1 for v in fits[0][1]])),
        ("first", lambda fits: fits[0].__setitem__(2, (np.array(fits[0][2]) * 2).tolist())),
        ("earned", lambda mean: mean.__setitem__(0, mean[0] + 0.01)),
        ("v_range", lambda ends: ends[1].__setitem__(1, ends[1][1] + 0.01)),
        ("f_range", lambda ends: ends[0].__setitem__(0, ends[0][0] + 0.01)),
    ):
        broken = json.loads(certificate.to_json())
        change(broken["constants"][name])
        assert not check(broken, problem, outcome.settings)[1].agrees, name
    for side, value in (("lower", outcome.value_hat + 0.01), ("upper", outcome.value_hat + outcome.epsilon / 2)):
        broken = json.loads(certificate.to_json())
        row = next(row for row in broken["claims"] if row[4] == broken["result"][side])
        broken["result"][side] = row[4] = value
        assert not check(broken, problem, outcome.settings)[1].agrees, side
        broken["result"][side] = getattr(outcome, side)  # and no longer what the claim says
        assert not check(broken, problem, outcome.settings)[1].agrees, side
    content["constants"]["w"][0].clear()
    with pytest.raises(ValueError, match="mismatch"):  # `verify` says that parts cannot be read
        check(content, problem, outcome.settings)
    lowered = json.loads(certificate.to_json())
    for row in lowered["claims"]:
        row[3] /= 2  # less than the bound took
    assert not check(lowered, problem, outcome.settings)[1].agrees


def test_every_phase_is_verified_on_its_own_episodes_alone(solved):
    """The features of a context add up to 1, so that A counts the episodes that a bound rests on."""
    problem, outcome = solved
    constants = outcome.constants
    tables = Features(problem.functions).tables
    for h in range(problem.horizon):
        one = np.linalg.lstsq(tables[h].reshape(-1, 3), np.ones(12))[0]  # phi.one is 1
        first, second = (float(one @ np.array(fits[h][0]) @ one) for fits in (constants.first, constants.second))
        assert round(first + constants.earned[2] + second) == constants.episodes
    assert sum(constants.starts) == constants.start[2] == round(second)
    assert constants.episodes == outcome.trace[-1].n < outcome.episodes


def test_episodes_that_run_out_leave_the_honest_wider_bound():
    problem = linear_problem(horizon=2, dim=3, n_contexts=6, n_actions=2)
    outcome = richobs.learn(problem, epsilon=0.02, seed=1, max_episodes=6_000)
    assert outcome.guaranteed
    assert 0.02 < outcome.epsilon < 1
    assert problem.optimal_value - problem.value(outcome.policy) <= outcome.epsilon
    assert "is chance" in outcome.remarks[0]


def test_sizes_do_not_depend_on_how_often_they_were_predicted(monkeypatch):
    """Without half steps the number of episodes goes to and fro here, and one more round asks for 8 times as many."""
    sized, most = searching._sized, [1.0]

    def twice(search):
        rounds = searching.ROUNDS
        monkeypatch.setattr(searching, "ROUNDS", rounds + 1)
        other = sized(search)[1].first
        monkeypatch.setattr(searching, "ROUNDS", rounds)
        plan, sizes = sized(search)
        most.append(max(other / sizes.first, sizes.first / other))
        return plan, sizes

    monkeypatch.setattr(searching, "_sized", twice)
    problem = linear_problem("one-hot", horizon=3, n_contexts=3, seed=2, dim=9)
    richobs.learn(problem, epsilon=0.15, seed=1, max_episodes=8_000)
    assert 1 < max(most) < 2


@pytest.mark.parametrize("known", ["contexts", "norm"])
@pytest.mark.parametrize(("most", "played", "asked"), [(1, 0, 64), (63, 0, 64), (64, 64, 64), (150, 128, 64)])
def test_whatever_the_limit_is_a_run_ends_with_what_it_knows(most, played, asked, known):
    problem = linear_problem(horizon=2, known=known)
    outcome = richobs.learn(problem, seed=1, max_episodes=most)
    assert (outcome.guaranteed, outcome.epsilon, outcome.episodes) == (False, 1.0, played)
    words = f"the episodes allowed, {most}, did not suffice for a bound; what it asked for next was {asked}"
    assert words in outcome.claim
    assert problem.value(outcome.policy) <= problem.optimal_value
    planned = [(row.section, row.value) for row in richobs.plan(problem).lines if row.unit == "episodes"]
    assert planned == [("exploration", 64), ("attempt", 64)]


@pytest.mark.parametrize(
    ("known", "assumed", "supremum"),
    [
        ("norm", "no feature vector is longer than 1", "all features no longer than 1, by an inequality of matrices"),
        (
            "probabilities",
            "features are probabilities: not negative, and they add up to 1",
            "all features that are probabilities, by those with one feature that is 1",
        ),
        ("contexts", "every observation is one of the contexts", "all 4 contexts of 1 levels, one by one"),
    ],
)
def test_contexts_need_not_be_known(known, assumed, supremum):
    problem = linear_problem("linear", horizon=1, dim=2, n_contexts=4, n_actions=2, known=known)
    outcome = richobs.learn(problem, epsilon=0.3, seed=2, max_episodes=60_000)
    assert outcome.guaranteed
    assert assumed in outcome.claim
    assert outcome.constants.contexts == supremum
    assert problem.optimal_value - problem.value(outcome.policy) <= outcome.epsilon < 1
    assert faults(outcome, problem) == []


def test_a_mean_that_is_not_linear_stops_the_run():
    with pytest.raises(BrokenPromise, match=r"not linear in the features: at level \d"):
        richobs.learn(linear_problem("broken", horizon=2, dim=3, n_contexts=8), epsilon=0.05, seed=1)


def test_the_test_of_linearity_by_hand():
    """Contexts 0, 1, 2 have the feature 1; the mean of y at context 2 differs."""
    x = np.repeat([0, 1, 2], 100)
    level = level_of(np.ones((3, 1, 1)), x, np.zeros(300, dtype=int))
    one_hot = np.eye(3)
    flat, bent = np.full(300, 0.5), 0.5 + 0.5 * (x == 2)
    assert surprise(level, flat, one_hot, 1.0, 1e-3) is None
    which, far = surprise(level, bent, one_hot, 1.0, 1e-3)
    # c = one-hot - 1/3: sum of c y = 100/3 and |c| = sqrt(200/3), in units of 1/2
    assert (which, far) == (2, pytest.approx(100 / 3 / (0.5 * math.sqrt(200 / 3))))
    assert surprise(level, bent, np.ones((3, 1)), 1.0, 1e-3) is None  # the feature explains it
    # |c|_1 = 100 2/3 + 200/3 = 400/3
    far = (100 / 3 - 0.1 * 400 / 3) / (0.5 * math.sqrt(200 / 3))
    assert surprise(level, bent, one_hot, 1.0, 1e-3, zeta=0.1)[1] == pytest.approx(far)
    assert surprise(level, bent, one_hot, 1.0, 1e-3, zeta=0.25) is None


def affine(horizon=1, **known):
    return richobs.Linear("affine", horizon=horizon, dim=2, n_actions=2, **known)


def learned(horizon=1, **asked):
    return richobs.learn(linear_problem(horizon=horizon), **asked)


SUMS = "probabilities=True was declared, and features at level 0 are 0 at the least and add up to 1 within 0.5"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: richobs.Linear("affine", horizon=2, dim=3), "needs `dim` and `n_actions`"),
        (lambda: affine(2), "give `contexts`.* or `norm`"),
        (lambda: affine(2, norm=-1), "norm=-1"),
        (lambda: richobs.Linear(np.ones((2, 3)), horizon=2), r"\[X, K, d\]"),
        (lambda: richobs.Linear([np.ones((2, 3, 1)), np.ones((2, 2, 1))]), "the same at all levels"),
        (lambda: affine(2, contexts=[np.ones((1, 1))]), "one for each of 2 levels; got 1"),
        (lambda: affine(norm=1.0).phi(0, np.array([[2.0]])), "level 0 has length 2.23607; norm=1 was declared"),
        (lambda: affine(probabilities=True).phi(0, np.array([[0.5]])), SUMS),
        (lambda: affine(probabilities=True, norm=1.0), "`probabilities=True`, if .* or `norm`"),
        (lambda: learned(learner="betting"), "'betting' needs a class whose functions are listed; a Linear"),
        (lambda: learned(engine="counted"), "engine|counted"),
        (lambda: learned(3, tolerance=(0.1, 0.1)), "one for each of 3 levels; got 2"),
        (lambda: learned(3, tolerance=9.0), "or it says nothing; got 9"),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(InvalidInput, match=words):
        call()


def test_a_context_that_was_not_listed_is_named():
    problem = linear_problem(horizon=1, n_contexts=5)
    some = richobs.Linear([phi[:3] for phi in problem.functions.levels[0].features.tables])
    words = r"level 0 of Linear: contexts were given, and observation [34] is not known"
    with pytest.raises(InvalidInput, match=words):
        richobs.learn(richobs.Problem(problem.env, some), seed=0)


def test_features_known_by_name_give_a_policy_that_can_be_saved(tmp_path):
    class Line:
        """One number is seen; action 1 pays with that probability, action 0 with one half."""

        horizon, n_actions, reward_range, declared = 1, 2, (0.0, 1.0), Declared(at_once=1_000)

        def play(self, policy, n, rng, levels=None):
            x = rng.random((n, 1))
            a = policy.actions(0, x, rng)
            return Episodes([x], [a], [(rng.random(n) < np.where(a == 1, x[:, 0], 0.5)).astype(float)])

    outcome = richobs.learn(Line(), affine(norm=math.sqrt(2)), epsilon=0.4, seed=3, max_episodes=40_000)
    assert outcome.guaranteed
    outcome.policy.save(tmp_path / "policy.npz")
    loaded = richobs.LearnedPolicy.load(tmp_path / "policy.npz")
    assert loaded.actions(0, np.array([[0.05], [0.95]])).tolist() == [0, 1]

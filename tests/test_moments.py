"""Moments add up, and are right where raw power sums are not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from richobs.core.moments import Batch, Moments

FIELDS = ("v_mean", "v_var", "u_mean", "u_var")


def batch_of(rng, n, n_functions=3, n_actions=2):
    values = rng.random((n_functions, n, n_actions))
    batch = Batch.of_steps(np.arange(n), rng.integers(n_actions, size=n), rng.random(n), n_actions)
    return values, batch


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 60))
def test_grouping_equal_observations_changes_nothing(seed, n):
    """Integers are grouped, the same integers as vectors are not; the moments are those of the samples either way."""
    rng = np.random.default_rng(seed)
    table = rng.random((3, 4, 2))
    x, a, r = rng.integers(4, size=n), rng.integers(2, size=n), rng.random(n)
    grouped, single = Batch.of_steps(x, a, r, 2), Batch.of_steps(x[:, None], a, r, 2)
    assert len(grouped.x) == len(set(x.tolist()))
    assert len(single.x) == n
    assert_equal(Moments.of(table[:, grouped.x], grouped), Moments.of(table[:, x], single))
    grouped, single = Batch.of_observations(x, 2), Batch.of_observations(x[:, None], 2)
    assert_equal(Moments.of(table[:, grouped.x], grouped), Moments.of(table[:, x], single))


def assert_equal(a, b):
    assert (a.n, a.actions) == (b.n, b.actions)
    for field in FIELDS:
        np.testing.assert_allclose(getattr(a, field), getattr(b, field), rtol=1e-12, atol=1e-15)


def test_moments_worked_out_by_hand():
    """One function with values (0.2, 0.6), (0.5, 0.1), (0.2, 0.6) and samples (a, r) = (0, 0), (0, 1), (1, 1)."""
    values = np.array([[[0.2, 0.6], [0.5, 0.1], [0.2, 0.6]]])
    m = Moments.of(values, Batch.of_steps(np.arange(3), np.array([0, 0, 1]), np.array([0.0, 1.0, 1.0]), 2))
    assert (m.n, m.actions) == (3, (2, 1))
    assert m.v_mean[0] == pytest.approx((0.6 + 0.5 + 0.6) / 3)
    np.testing.assert_allclose(m.u_mean[0], [(0.2 - 0.5) / 2, -0.4])
    np.testing.assert_allclose(m.u_var[0], [0.35**2, 0.0], atol=1e-16)
    np.testing.assert_allclose(m.shares, [2 / 3, 1 / 3])


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), sizes=st.lists(st.integers(1, 9), min_size=3, max_size=3))
def test_moments_form_a_commutative_monoid(seed, sizes):
    rng = np.random.default_rng(seed)
    a, b, c = (Moments.of(*batch_of(rng, n)) for n in sizes)
    zero = Moments.empty(3, 2)
    assert_equal(a + b, b + a)
    assert_equal((a + b) + c, a + (b + c))
    assert_equal(a + zero, a)
    assert_equal(zero + a, a)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 40))
def test_the_moments_of_two_samples_are_the_sum_of_theirs(seed, n):
    rng = np.random.default_rng(seed)
    values, batch = batch_of(rng, n)
    actions, rewards = batch.pair.argmax(axis=1), batch.r_mean.sum(axis=1)  # one sample a row
    cut = int(rng.integers(1, n))
    parts = [
        Moments.of(values[:, rows], Batch.of_steps(np.arange(n)[rows], actions[rows], rewards[rows], 2))
        for rows in (slice(0, cut), slice(cut, n))
    ]
    assert_equal(parts[0] + parts[1], Moments.of(values, batch))


def test_the_variance_between_two_samples_counts():
    """Values 0, 0 in one sample and 1, 1 in the other: no variance in either, 1/4 in both together."""
    zeros, ones = (
        Moments.of(np.full((1, 2, 1), value), Batch.of_steps(np.arange(2), np.zeros(2, dtype=int), np.zeros(2), 1))
        for value in (0.0, 1.0)
    )
    both = zeros + ones
    assert (both.v_mean[0], both.v_var[0], both.u_mean[0, 0], both.u_var[0, 0]) == (0.5, 0.25, 0.5, 0.25)


def test_random_rewards_in_one_row_count():
    """One observation seen twice, rewards 0 and 1: f is constant there, and f - r has variance 1/4."""
    batch = Batch.of_steps(np.zeros(2, dtype=int), np.zeros(2, dtype=int), np.array([0.0, 1.0]), 1)
    m = Moments.of(np.full((1, 1, 1), 0.7), batch)
    assert m.u_mean[0, 0] == pytest.approx(0.2)
    assert m.u_var[0, 0] == pytest.approx(0.25)


def test_variances_survive_where_squares_cancel():
    """Residuals 1e-9 apart around 0.7: raw power sums give a variance of 0 or worse, centred ones are right."""
    u = 0.7 + np.array([0, 1e-9, 2e-9, 3e-9])
    m = Moments.of(u[None, :, None], Batch.of_steps(np.arange(4), np.zeros(4, dtype=int), np.zeros(4), 1))
    assert m.u_var[0, 0] == pytest.approx(1.25e-18, rel=1e-6)
    assert abs((u**2).mean() - u.mean() ** 2 - 1.25e-18) > 1e-18

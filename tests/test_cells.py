"""Forecasts from what followed the same observation and action before."""

import numpy as np
import pytest

import richobs
from richobs.learners.betting import survivors_listed, values
from richobs.learners.betting.events import BatchPlayed
from richobs.learners.betting.values import UNSEEN, Cells, names
from richobs.stats.grouping import row_bytes


def named(x, actions):
    return names(row_bytes(x), actions)


def filled():
    """Two rows; the pair (7, 0) was seen in two batches, (8, 1) in one."""
    some = Cells(2)
    first = some.places(named(np.array([7, 8]), np.array([0, 1])))
    some.add(first, np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((2, 2)))
    some.count(first)
    again = some.places(named(np.array([7, 7, 9]), np.array([0, 0, 0])))
    values, errors, others = np.array([[0.2, 0.4, 0.9], [0.6, 0.6, 0.9]]), np.full((2, 3), 0.5), np.full((2, 3), 0.6)
    for rows in (slice(0, 1), slice(1, 2)):  # a part of the rows at a time, counted once
        some.part(rows).add(again, values[rows], errors[rows], others[rows])
    some.count(again)
    return some, first, again


def test_a_pair_has_a_cell_once_it_comes_again():
    some, first, again = filled()
    assert first.tolist() == [UNSEEN, UNSEEN]
    assert again.tolist() == [1, 1, UNSEEN]
    another = some.places(named(np.array([7, 7, 8]), np.array([0, 1, 1])))
    assert another.tolist() == [1, UNSEEN, 2]  # another action, another cell


def test_a_forecast_is_the_mean_there_with_its_start_as_one_sample():
    some, _, _ = filled()
    start = np.array([[0.0, 0.5], [0.0, 0.5]])
    found = some.forecast(np.array([1, UNSEEN]), start)
    np.testing.assert_allclose(found, [[(0.2 + 0.4 + 0.0) / 3, 0.5], [(0.6 + 0.6 + 0.0) / 3, 0.5]])


def test_variances_are_those_of_the_cell_with_the_overall_one_as_two_samples():
    some, _, _ = filled()
    overall = (0.25 + 3 * 0.25) / (1 + 5)
    found = some.variance(np.array([1, UNSEEN]))
    np.testing.assert_allclose(found, [[(2 * overall + 2 * 0.25) / 4, overall]] * 2)


def test_nothing_is_ever_added_to_what_has_no_cell():
    some, _, _ = filled()
    start = np.array([[0.3], [0.4]])
    np.testing.assert_array_equal(some.forecast(np.array([UNSEEN]), start), start)


def test_they_are_used_where_they_served_better():
    some, _, _ = filled()
    assert some.serve_better.tolist() == [True, True]
    assert Cells(3).serve_better.tolist() == [False] * 3
    some.take(np.array([1, 1, 0]))
    np.testing.assert_allclose(some.forecast(np.array([1]), np.zeros((3, 1)))[:, 0], [0.4, 0.4, 0.2])


def test_observations_that_never_repeat_take_no_room(monkeypatch):
    some = Cells(10)
    for batch in range(50):
        some.places(named(np.random.default_rng(batch).normal(size=(20, 3)), np.zeros(20, dtype=np.int64)))
    assert some._total.shape == (10, 1)
    monkeypatch.setattr(values, "MOST_NUMBERS", 30)
    for _ in range(2):
        found = some.places(named(np.arange(5), np.zeros(5, dtype=np.int64)))
    assert found.tolist() == [1, 2, UNSEEN, UNSEEN, UNSEEN]


def test_functions_of_a_list_bet_in_blocks_as_they_do_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = richobs.make("frozen-lake/10,n_maps=200,slip_unknown=True", seed=1)  # more than forecasters
    whole = richobs.learn(problem, seed=1, progress=False)
    monkeypatch.setattr(survivors_listed, "AT_ONCE", 7)
    parts = richobs.learn(problem, seed=1, progress=False)
    assert parts.constants == whole.constants
    wealth = [[e.wealth for e in outcome.trace if isinstance(e, BatchPlayed)] for outcome in (parts, whole)]
    for one, other in zip(*wealth, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)

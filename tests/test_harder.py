"""Classes around Q* that are hard to tell apart: close competitors, Bernoulli rewards, and twins of actions."""

import numpy as np
import pytest

from richobs.core.settings import Settings
from richobs.runs.session import run
from richobs.worlds import make
from richobs_lab.assumptions.exact import check_assumptions


@pytest.mark.parametrize(
    ("id", "value", "places", "first"),
    [
        ("random", 0.5715303086930422, (17, 10, 8, 17), [0.40940957, 0.57153031]),
        ("random,stochastic=True,seed=1", 0.7086991268431106, (2, 13, 15, 9), [0.52276254, 0.5833213]),
    ],
)
def test_without_the_new_parameters_worlds_are_what_they_were(id, value, places, first):
    """Literals of the code before `near`, `rewards` and `twin_gap`."""
    problem = make(id)
    assert problem.optimal_value == pytest.approx(value, abs=1e-12)
    assert problem.truth.optimal_function == places
    np.testing.assert_allclose(problem.functions.levels[0].tables[0].ravel()[:2], first, atol=1e-8)


@pytest.mark.parametrize("near", [0.05, 0.2])
@pytest.mark.parametrize("stochastic", [False, True])
def test_competitors_are_near_everywhere_and_q_star_is_not_in_the_middle(near, stochastic):
    problem = make("random/5", near=near, class_size=400, stochastic=stochastic, seed=2)
    off_centre = []
    for q, level, place in zip(
        problem.process.q_tables, problem.functions.levels, problem.truth.optimal_function, strict=True
    ):
        np.testing.assert_array_equal(level.tables[place], q)
        away = level.tables - q
        assert np.abs(away).max() <= near
        assert np.abs(away).max() > 0.8 * near  # as far as promised
        assert len(np.unique(level.tables.reshape(400, -1), axis=0)) == 400
        off_centre.append(np.abs(away.mean(axis=0)).ravel())
    off_centre = np.concatenate(off_centre)
    assert off_centre.mean() > near / 8  # the mean of the class does not tell Q*; near/4 is expected
    assert off_centre.max() < 0.55 * near
    assert check_assumptions(problem)["realizable"].holds


def test_around_q_star_itself_the_mean_of_the_class_tells_it():
    problem = make("random/5", near=0.1, centred=True, class_size=400, seed=2)
    for q, level, place in zip(
        problem.process.q_tables, problem.functions.levels, problem.truth.optimal_function, strict=True
    ):
        np.testing.assert_array_equal(level.tables[place], q)
        inside = (q > 0.1) & (q < 0.9)  # nothing is cut there
        away = (level.tables - q)[:, inside]
        assert 0.095 < np.abs(away).max() <= 0.1
        assert np.abs(away.mean(axis=0)).max() < 0.02  # standard error 0.003; hidden it is up to 0.05


def test_bernoulli_rewards_pay_all_that_the_level_can_or_nothing():
    process = make("random/5", rewards="bernoulli", seed=1).process
    tops = []
    for rewards in process.rewards:
        paid = rewards.values[rewards.probs > 0]
        tops.append(paid.max())
        assert set(np.unique(paid)) == {0.0, tops[-1]}
    assert sum(tops) == pytest.approx(1.0)
    assert min(tops) > 0.1  # every level pays
    mixed = make("random/5", seed=1).process
    assert any(len(np.unique(r.values[r.probs > 0])) > 2 for r in mixed.rewards)


@pytest.mark.parametrize("stochastic", [False, True])
def test_twins_lead_to_the_same_states_and_are_nearly_worth_the_same(stochastic):
    gaps = []
    for seed in range(5):
        problem = make("random/4", n_actions=4, twin_gap=0.03, stochastic=stochastic, seed=seed)
        for move in problem.process.transitions:
            np.testing.assert_array_equal(move[:, ::2], move[:, 1::2])
        for q, seen in zip(problem.process.q_tables, problem.process.seen, strict=True):
            shown = q[seen.any(axis=0)]
            gaps.append((shown[:, ::2] - shown[:, 1::2]).ravel())
        report = check_assumptions(problem)
        assert report["reactive"].holds
        assert report["realizable"].holds
        assert report["deterministic"].holds is not stochastic
    gaps = np.concatenate(gaps)
    assert gaps.min() >= -1e-12
    assert 0.02 < gaps.max() <= 0.03 + 1e-12
    other = np.abs(np.concatenate([q[:, 0] - q[:, 2] for q in problem.process.q_tables]))
    assert other.max() > 0.1  # actions that are no twins differ


def test_where_many_policies_are_near_optimal_the_interval_can_end_the_run():
    """At this epsilon the interval closes while survivors still disagree about twins; the answer is right all the same."""
    problem = make("random/5,rewards=bernoulli,near=0.1,n_actions=4,twin_gap=0.02,class_size=30,seed=0")
    outcome = run(problem, Settings(epsilon=0.3, delta=0.05, learner="betting", seed=0, max_episodes=5000))
    assert outcome.constants.closed_by == "interval"
    assert outcome.epsilon == 0.3
    assert problem.optimal_value - problem.value(outcome.policy).high <= 0.3
    assert problem.optimal_value <= outcome.upper

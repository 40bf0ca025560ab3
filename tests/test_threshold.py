"""`learn(threshold=v)`: stop once a policy is certified to be worth v, or none can be."""

import dataclasses

import pytest

import richobs
from richobs.core.errors import InvalidInput
from richobs.core.outcome import StopReason
from runs import faults


@pytest.fixture(scope="module")
def problem():
    return richobs.make("lock/4,seed=3")  # V* = 0.5


def test_it_stops_as_soon_as_a_policy_is_worth_it(problem):
    outcome = richobs.learn(problem, learner="betting", threshold=0.2, epsilon=0.01, seed=1)
    assert outcome.reason is StopReason.WORTH_IT
    assert outcome.lower >= 0.2
    assert problem.value(outcome.policy) >= 0.2
    assert outcome.epsilon == pytest.approx(outcome.upper - outcome.lower, abs=0.1)
    assert outcome.epsilon > 0.01  # nothing finer is claimed than what is known
    assert outcome.episodes < richobs.learn(problem, learner="betting", epsilon=0.01, seed=1).episodes


def test_it_stops_as_soon_as_no_policy_can_be(problem):
    outcome = richobs.learn(problem, learner="betting", threshold=0.7, seed=1)
    assert outcome.reason is StopReason.NOT_WORTH_IT
    assert outcome.upper < 0.7


def test_a_threshold_that_is_not_decided_before_epsilon_ends_as_usual(problem):
    outcome = richobs.learn(problem, learner="betting", threshold=0.499, seed=1)
    assert outcome.reason in (StopReason.AGREEMENT, StopReason.CERTIFIED, StopReason.ONE_SURVIVOR)
    assert outcome.remarks[-1].startswith("whether a policy is worth 0.499 is not decided: the bounds lie between")
    assert richobs.learn(problem, learner="betting", threshold=0.2, epsilon=0.01, seed=1).remarks == ()


def test_a_certificate_of_a_threshold_is_checked(problem):
    outcome = richobs.learn(problem, learner="betting", threshold=0.2, epsilon=0.01, seed=1)
    assert faults(outcome, problem) == []
    higher = dataclasses.replace(outcome.settings, threshold=0.45)
    assert faults(dataclasses.replace(outcome, settings=higher), problem) != []


def test_who_cannot_stop_there_says_so(problem):
    with pytest.raises(InvalidInput, match="cannot stop at a threshold"):
        richobs.learn(problem, learner="certified", threshold=0.2)
    with pytest.raises(InvalidInput, match="finite"):
        richobs.learn(problem, learner="betting", threshold=float("nan"))

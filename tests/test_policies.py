"""Policies: what each plays, what is fixed in advance, and the exact law of random ones."""

import numpy as np
import pytest

from richobs.core.errors import InvalidInput
from richobs.core.policies import Explore, Greedy, OpenLoop, Switch, Uniform, action_law, checked_actions, fixed_prefix

X = np.array([0, 1, 1])
RNG = np.random.default_rng(0)


class Copies:
    """Plays what it sees."""

    def actions(self, level, x, rng):
        return x.copy()


def test_switch_rolls_in_and_then_acts():
    policy = Switch(OpenLoop((2, 1)), 1, Copies())
    assert policy.actions(0, X, RNG).tolist() == [2, 2, 2]
    assert policy.actions(1, X, RNG).tolist() == [0, 1, 1]
    with pytest.raises(InvalidInput, match="at which a policy takes over must be a whole number, at least 0; got -1"):
        Switch(OpenLoop(()), -1, Copies())


@pytest.mark.parametrize(
    ("policy", "prefix"),
    [
        *((OpenLoop((2, 1)), (2, 1)), (Copies(), ()), (Uniform(3), ())),
        *((Switch(OpenLoop((2, 1)), 1, Copies()), (2,)), (Switch(OpenLoop((2, 1)), 5, Copies()), (2, 1))),
    ],
)
def test_what_is_surely_played_first(policy, prefix):
    assert fixed_prefix(policy) == prefix


def test_laws_of_random_policies_are_exact():
    """Explore with share 0.3 over three actions: 0.8 for the copied action, 0.1 for each other."""
    np.testing.assert_allclose(action_law(Explore(Copies(), 0.3, 3), 0, X, 3)[1], [0.1, 0.8, 0.1])
    np.testing.assert_allclose(action_law(Uniform(4), 0, X, 4), np.full((3, 4), 0.25))
    np.testing.assert_allclose(action_law(Switch(Copies(), 1, Uniform(2)), 0, X, 2), np.eye(2)[X])
    np.testing.assert_allclose(action_law(Switch(Copies(), 1, Uniform(2)), 1, X, 2), np.full((3, 2), 0.5))
    drawn = np.array([Explore(Copies(), 0.3, 3).actions(0, np.zeros(1, dtype=int), RNG)[0] for _ in range(4000)])
    assert abs((drawn == 0).mean() - 0.8) < 5.5 * 0.4 / np.sqrt(4000)
    with pytest.raises(InvalidInput, match=r"must lie in \[0, 1\]; got 1.5"):
        Explore(Copies(), 1.5, 3)


def test_a_random_policy_that_hides_its_law_cannot_be_valued_exactly():
    class Coin:
        def actions(self, level, x, rng):
            return rng.integers(2, size=len(x))

    many = np.zeros(50, dtype=int)
    with pytest.raises(InvalidInput, match="Coin acts at random at level 0; to value it exactly it needs a method"):
        action_law(Coin(), 0, many, 2)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (np.zeros(2, dtype=int), r"\[3\] of them at level 1; Given returned int64 of shape \(2,\)"),
        (np.zeros(3), "returned float64"),
        (np.array([0, 5, 0]), "Given takes action 5 at level 1; there are actions 0 to 1"),
        (np.array([0, -1, 0]), "takes action -1"),
    ],
)
def test_actions_that_are_none_are_refused(answer, sentence):
    class Given:
        def actions(self, level, x, rng):
            return answer

    with pytest.raises(InvalidInput, match=sentence):
        checked_actions(Given(), 1, X, 2, RNG)


def test_rounding_does_not_choose_between_equal_actions():
    """Values that differ in their last digits are a tie, and go to the smallest action; a real difference decides."""

    class Values:
        def values(self, level, x):
            return np.array([[0.3, 0.1 + 0.2, 0.0], [0.3, 0.3 + 1e-9, 0.0], [0.0, 0.3, 0.3 - 1e-15]])

    assert 0.1 + 0.2 > 0.3
    assert Greedy(Values()).actions(0, X).tolist() == [0, 1, 1]


def test_more_actions_than_an_environment_may_declare_are_refused():
    with pytest.raises(InvalidInput, match="at most 1,000,000,000; got 36893488147419103232"):
        Uniform(2**65)

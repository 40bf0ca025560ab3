"""The commonest first mistakes get the hint that they need."""

import gymnasium
import numpy as np
import pytest

import richobs

CLASS = richobs.Tables([np.zeros((2, 16, 4))] * 3)


@pytest.mark.parametrize(
    ("mistake", "hint"),
    [
        (lambda: richobs.learn(gymnasium.make("FrozenLake-v1"), CLASS), r"from_gymnasium\(env, horizon=100, reward_r"),
        (lambda: richobs.learn("FrozenLake-v1", CLASS), r"richobs.from_gymnasium\(id, ...\) a Gymnasium one"),
        (lambda: richobs.make("CartPole-v1"), "write gym:CartPole-v1, or use richobs.from_gymnasium"),
        (lambda: richobs.make("lokc"), "Did you mean 'lock'?"),
        (lambda: richobs.make("lock/5", noise_bit=3), "Did you mean 'noise_bits'?"),
        (lambda: richobs.learn(richobs.make("lock/3"), learner="beting"), "Did you mean 'betting'?"),
        (lambda: richobs.learn(richobs.make("lock/3"), treshold=0.2), "Did you mean 'threshold'?"),
    ],
)
def test_a_mistake_gets_the_hint_that_it_needs(mistake, hint):
    with pytest.raises(richobs.InvalidInput, match=hint):
        mistake()

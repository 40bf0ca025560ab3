"""Linear functions, with values worked out by hand."""

import numpy as np
import pytest

from richobs.classes import Linear, LinearLevel, parameter_grid
from richobs.core.errors import InvalidInput

X = np.array([[1.0, 2.0], [0.0, -1.0], [4.0, 0.0]])
BY_ACTION = [[[0.5, 0.25, 0.0], [0.0, 0.0, 0.25]], [[1.0, 0.0, 0.0], [0.5, -0.5, 0.125]]]  # [N, K, 1 + d]


def test_one_vector_per_action():
    functions = Linear("affine", BY_ACTION, 2)
    # 0.5 + x_0 / 4 and x_1 / 4; then 1 and 0.5 - x_0 / 2 + x_1 / 8; all cut to [0, 1]
    expected = [[[0.75, 0.5], [0.5, 0.0], [1.0, 0.0]], [[1.0, 0.25], [1.0, 0.375], [1.0, 0.0]]]
    np.testing.assert_array_equal(functions.values(1, X), expected)
    assert functions.clipped == (3, 12)  # 1.5, -0.25 and -1.5
    plain = Linear("identity", np.array(BY_ACTION)[:, :, 1:], 1, value_range=(-4.0, 4.0))
    np.testing.assert_array_equal(plain.values(0, X, np.array([1])), [[[0, -0.25], [0, -0.125], [0, -2.0]]])
    assert plain.value_range(0) == (-4.0, 4.0)


def test_features_of_observation_and_action():
    def features(level, x):
        return np.stack([x[:, None] * [1, 2], np.full((len(x), 2), level)], axis=2)  # [n, K, 2]

    functions = Linear(features, [[0.125, 0.25], [0.0, 0.5]], 3, n_actions=2)
    np.testing.assert_array_equal(
        functions.values(1, np.array([0, 2])), [[[0.25, 0.25], [0.5, 0.75]], [[0.5, 0.5]] * 2]
    )
    np.testing.assert_array_equal(functions.values(2, np.array([0])), [[[0.5, 0.5]], [[1.0, 1.0]]])
    assert functions.digest is None


@pytest.mark.parametrize("d", [3, 784])
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_value_at_an_observation_does_not_depend_on_the_batch(d, order):
    """Rounding may decide between actions that are nearly equal, so a batch and one observation must round alike."""
    rng = np.random.default_rng(d)
    x = np.asarray(rng.normal(0, 50, (70, d)), order=order)
    wide = (-1e9, 1e9)

    def features(level, x):
        return np.asarray(np.stack([x, 2 * x], axis=1), order=order)  # [n, K, d]

    theta = rng.normal(size=(3, 2, d))
    for functions in (
        LinearLevel("identity", theta, value_range=wide),
        LinearLevel(features, theta[:, 0], n_actions=2, value_range=wide),
    ):
        whole = functions.values(x)
        np.testing.assert_allclose(whole, functions.values(x, np.arange(51) % 3)[:3], rtol=0, atol=1e-9)
        for i in range(3):
            alone = functions.singleton(i)
            for rows in (slice(0, 1), slice(7, 9), slice(3, 64)):
                np.testing.assert_array_equal(alone.values(x[rows])[0], whole[i, rows])


def test_a_grid_of_parameters():
    np.testing.assert_array_equal(parameter_grid([0, 1], [5, 6, 7]), [[0, 5], [0, 6], [0, 7], [1, 5], [1, 6], [1, 7]])


def test_many_members_are_read_in_parts(monkeypatch):
    rng = np.random.default_rng(0)
    theta = rng.normal(0.2, 0.3, (500, 2, 3)).astype(np.float32)
    functions = LinearLevel("affine", theta)
    assert functions.parameters is theta  # not copied, not widened
    whole = functions.values(X)
    monkeypatch.setattr("richobs.classes.linear.MEMBERS_AT_ONCE", 64)
    np.testing.assert_allclose(functions.values(X), whole, rtol=0, atol=1e-14)
    exact = np.clip(theta.astype(np.float64) @ np.column_stack([np.ones(3), X]).T, 0, 1).swapaxes(1, 2)
    np.testing.assert_allclose(whole, exact, atol=1e-14)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Linear("affine", np.zeros((2, 3)), 1), "features by name .* parameters of shape"),
        (lambda: Linear("fourier", np.zeros((2, 2, 3)), 1), "identity, affine, with parameters .* 'fourier'"),
        (lambda: Linear(lambda h, x: x, np.zeros((2, 3)), 1), "give `n_actions`"),
        (lambda: Linear("affine", np.zeros((2, 2, 3)), 1, n_actions=3), "of 2 actions; n_actions is 3"),
        (lambda: Linear("affine", np.full((1, 1, 3), np.nan), 1), "finite numbers"),
        (lambda: Linear("affine", np.zeros((0, 2, 3)), 1), r"got shape \(0, 2, 3\)"),
        (lambda: Linear("affine", BY_ACTION, 0), "horizon must be a whole number, at least 1"),
        (lambda: Linear("affine", BY_ACTION, 1).values(0, X[:, :1]), r"must return \(3, 3\) .* got shape \(3, 2\)"),
        (lambda: Linear("affine", BY_ACTION, 1).values(0, X[:, 0]), "read vectors"),
        (lambda: Linear("affine", BY_ACTION, 1).values(0, X * np.inf), "not a finite number"),
        (lambda: Linear("affine", BY_ACTION, 1, value_range=(1.0, 0.0)), "value_range must be"),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(InvalidInput, match=words), np.errstate(invalid="ignore"):
        call()

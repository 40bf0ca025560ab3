"""Exact planning: against numbers worked out by hand, enumeration and simulation; and what validation refuses."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from richobs.core import errors
from richobs.core.errors import InvalidInput, ProbabilityError, RewardRangeError, ShapeError
from richobs.core.policies import Explore, OpenLoop, Switch, Uniform
from richobs.core.process import Rewards, TableFunction, TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.worlds import make


class TablePolicy:
    def __init__(self, actions):
        self.table = actions

    def actions(self, level, x, rng=None):
        return np.asarray(self.table[level])[x]


def two_levels(**changes):
    """Level 0: one state, x in {0, 1} with odds 1:3. Level 1: state 0 shows x=0, state 1 shows x=1.

    Action 0 leads to state 0 and action 1 to state 1. At level 0 action 0 pays 0.4 at x=0 and nothing else pays. At level 1
    state 0 pays Bernoulli(1/2) * 0.6 for action 0 and 0.1 for action 1; state 1 pays nothing for action 0 and {0, 0.2, 0.6}
    with probabilities {1/4, 1/4, 1/2} for action 1.
    """
    parts = {
        "start": np.array([1.0]),
        "transitions": (np.array([[0, 1]]),),
        "emissions": (np.array([[0.25, 0.75]]), np.eye(2)),
        "rewards": (
            Rewards.deterministic([[[0.4, 0.0], [0.0, 0.0]]]),
            Rewards.finite(
                [[[[0, 0, 0.6], [0.1, 0.1, 0.1]]], [[[0, 0, 0], [0, 0.2, 0.6]]]],
                [[[[0.25, 0.25, 0.5], [0.25, 0.25, 0.5]]], [[[0.25, 0.25, 0.5], [0.25, 0.25, 0.5]]]],
            ),
        ),
    }
    return TabularProcess(**{**parts, **changes})


def test_optimal_values_worked_out_by_hand():
    plan = two_levels().optimum
    # level 1: max(0.6/2, 0.1) = 0.3 and max(0, 0.2/4 + 0.6/2) = 0.35
    np.testing.assert_allclose(plan.state_values[1], [0.3, 0.35])
    # level 0: Q*(0) = (0.4 + 0.3, 0.35), Q*(1) = (0.3, 0.35); V* = 0.7/4 + 0.35 * 3/4
    np.testing.assert_allclose(plan.q[0][0], [[0.7, 0.35], [0.3, 0.35]])
    assert plan.value == pytest.approx(0.4375)


def test_value_of_a_policy_worked_out_by_hand():
    policy = TablePolicy([[1, 0], [1, 1]])  # x=0 -> state 1 -> 0.35; x=1 -> state 0 -> 0.1
    assert two_levels().value(policy) == pytest.approx(0.25 * 0.35 + 0.75 * 0.1)


def test_predictions_of_a_function_worked_out_by_hand():
    process = two_levels()
    f = TableFunction(process, [np.array([[0.2, 0.6], [0.8, 0.4]]), np.array([[0.1, 0.3], [0.5, 0.5]])])
    own = process.predicted_values(f)
    assert own[0][0] == pytest.approx(0.25 * 0.6 + 0.75 * 0.8)
    np.testing.assert_allclose(own[1], [0.3, 0.5])
    always_zero = process.predicted_values(f, TablePolicy([[0, 0], [0, 0]]))
    assert always_zero[0][0] == pytest.approx(0.25 * 0.2 + 0.75 * 0.8)


def test_random_policies_worked_out_by_hand():
    """Level 0 under action 0 pays 0.4/4 = 0.1 on average; level 1 pays (0.3, 0.1) in state 0 and (0, 0.35) in state 1."""
    process = two_levels()
    uniform = Uniform(2)
    # V = 0.1/2 + (0.3 + 0.1 + 0 + 0.35)/4
    assert process.value(uniform) == pytest.approx(0.2375)
    assert process.value(OpenLoop((1, 1))) == pytest.approx(0.35)
    # roll in with action 1, then act uniformly in state 1: (0 + 0.35)/2
    assert process.value(Switch(OpenLoop((1,)), 1, uniform)) == pytest.approx(0.175)
    # each action of (1, 1) is replaced by a random one with probability 1/2, so it is taken with probability 3/4
    explored = 0.25 * 0.1 + 0.25 * (0.25 * 0.3 + 0.75 * 0.1) + 0.75 * (0.75 * 0.35)
    assert process.value(Explore(OpenLoop((1, 1)), 0.5, 2)) == pytest.approx(explored)
    np.testing.assert_allclose(process.action_law(TablePolicy([[1, 0], [1, 1]]), 0), [[0, 1], [1, 0]])


def all_policies(process):
    sizes = [e.shape[1] for e in process.emissions]
    for flat in itertools.product(range(process.n_actions), repeat=sum(sizes)):
        yield TablePolicy(np.split(np.array(flat), np.cumsum(sizes)[:-1]))


def value_by_enumeration(process, policy, level=0, state_weights=None, path=()):
    """Sums over every (state, observation) sequence; also returns the law of action sequences."""
    weights = {s: p for s, p in enumerate(process.start) if p} if state_weights is None else state_weights
    if level == process.horizon:
        return 0.0, {path: sum(weights.values())}
    total, law = 0.0, {}
    for s, p in weights.items():
        for x, q in enumerate(process.emissions[level][s]):
            if q == 0:
                continue
            a = int(policy.actions(level, process.observations[level][[x]], None)[0])
            r = process.rewards[level]
            total += p * q * sum(v * w for v, w in zip(r.values[s, x, a], r.probs[s, x, a], strict=True))
            after = {0: p * q}
            if level < process.horizon - 1:
                after = {t: p * q * w for t, w in enumerate(process.transitions[level][s, a]) if w}
            rest, paths = value_by_enumeration(process, policy, level + 1, after, (*path, a))
            total += rest
            for key, w in paths.items():
                law[key] = law.get(key, 0.0) + w
    return total, law


random_worlds = st.fixed_dictionaries(
    {
        "horizon": st.integers(1, 4),
        "n_states": st.integers(1, 4),
        "n_actions": st.integers(1, 3),
        "n_observations": st.integers(0, 4),
        "overlap": st.sampled_from([0.0, 0.5, 1.0]),
        "violate": st.sampled_from(["none", "deterministic"]),
        "seed": st.integers(0, 10**6),
    }
)


@settings(max_examples=80, deadline=None)
@given(params=random_worlds, policy_seed=st.integers(0, 2**32))
def test_values_agree_with_enumeration(params, policy_seed):
    process = make("random", class_size=1, **params).process
    rng = np.random.default_rng(policy_seed)
    policy = TablePolicy([rng.integers(process.n_actions, size=e.shape[1]) for e in process.emissions])
    value, _ = value_by_enumeration(process, policy)
    assert process.value(policy) == pytest.approx(value, abs=1e-12)
    best, _ = value_by_enumeration(process, process.optimal_policy())
    assert process.optimum.value == pytest.approx(best, abs=1e-12)


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_no_reactive_policy_beats_the_optimum_and_one_attains_it(seed):
    process = make("random", horizon=2, n_states=2, n_actions=2, n_observations=1, class_size=1, seed=seed).process
    best = max(value_by_enumeration(process, policy)[0] for policy in all_policies(process))
    assert process.optimum.value == pytest.approx(best, abs=1e-12)


@settings(max_examples=80, deadline=None)
@given(params=random_worlds)
def test_values_agree_with_simulation(params):
    problem = make("random", class_size=1, **params)
    rng = keyed_generator(params["seed"], "simulation")
    policy = TablePolicy([rng.integers(problem.n_actions, size=e.shape[1]) for e in problem.process.emissions])
    n = 4000
    played = problem.env.play(policy, n, rng)
    radius = math.sqrt(math.log(2 / 1e-9) / (2 * n))  # Hoeffding: wrong once in 10^9
    assert abs(played.returns.mean() - problem.process.value(policy)) <= radius
    for path, prob in value_by_enumeration(problem.process, policy)[1].items():
        assert abs((played.paths == path).all(axis=1).mean() - prob) <= radius


def test_no_reactive_q_where_states_that_look_alike_differ():
    process = two_levels(emissions=(np.array([[0.25, 0.75]]), np.array([[1.0, 0.0], [0.5, 0.5]])))
    with pytest.raises(errors.AssumptionViolated, match="observation 0 at level 1 is emitted by states 0 and 1"):
        process.optimal_policy()


PAYS, LAW = Rewards.deterministic, np.array([[0.25, 0.75]])


@pytest.mark.parametrize(
    ("error", "changes", "words"),
    [
        (ProbabilityError, {"start": np.array([0.9])}, r"level 0: the start distribution.*sum to 0.9"),
        (ProbabilityError, {"transitions": (np.array([[[0.5, 0.4], [0, 1]]]),)}, r"under action 0: prob.* sum to 0.9"),
        (ProbabilityError, {"emissions": (np.array([[1.25, -0.25]]), np.eye(2))}, r"emissions: .* -0.25 is negative"),
        (errors.NotFiniteError, {"emissions": (LAW, np.array([[1, 0], [np.nan, 1]]))}, r"level 1, state 1.*nan"),
        (
            errors.NotFiniteError,
            {"rewards": (PAYS(np.inf), PAYS(0.0))},
            r"level 0, state 0.*action 0 at observation 0: inf",
        ),
        (RewardRangeError, {"rewards": (PAYS(0.0), PAYS([[[0, 0]], [[0, 1.5]]]))}, r"state 1 \('1:1'\).* can be 1.5"),
        (RewardRangeError, {"rewards": (PAYS(0.0), PAYS([[[-0.1, 0]], [[0, 0]]]))}, r"level 1, state 0.*can be -0.1"),
        (
            RewardRangeError,
            {"rewards": (PAYS([[[0, 0.7]]]), Rewards.bernoulli([[[0, 0]], [[0.1, 0]]], 0.5))},
            r"the action sequence \(1, 0\) from level 0, state 0 \('0:0'\) can earn 1.2",
        ),
        (
            errors.UnreachableLevelError,
            {"transitions": (np.zeros((1, 2, 2)),)},
            r"level 1 is reached by no action sequence",
        ),
        (errors.UnreachableLevelError, {"emissions": (LAW, np.zeros((0, 2)))}, r"level 1 has 0 states"),
        (ShapeError, {"transitions": (np.array([[0, 2]]),)}, r"level 0, state 0: action 1 leads to state 2"),
        (ShapeError, {"transitions": (np.array([[0.5, 0.5]]),)}, r"level 0: transitions must be"),
        (ShapeError, {"rewards": (np.zeros((1, 1, 2)),) * 2}, "level 0"),
        (ShapeError, {"transitions": (np.array(0),)}, "level 0"),
        (ShapeError, {"transitions": (np.zeros((1, 0)),)}, "level 0"),
        (ShapeError, {"transitions": ()}, r"`transitions` needs 1 entries; it has 0"),
        (ShapeError, {"rewards": (PAYS(np.zeros((3, 3, 3))),) * 2}, r"level 0: rewards must broadcast"),
        (ShapeError, {"labels": (("a",), ("b",))}, r"level 1 has 2 states but 1 labels"),
        (ShapeError, {"observations": (np.array([7, 7]), np.arange(2))}, r"`observations`: two rows of a codebook are"),
    ],
)
def test_what_is_refused_and_where_it_says_the_fault_is(error, changes, words):
    with pytest.raises(error, match=words):
        two_levels(**changes)


def test_a_codebook_of_vectors_is_looked_up_row_by_row():
    codebook = np.array([[0.5, -1.0], [0.0, 2.0]])
    process = two_levels(observations=(codebook, np.array(["left", "right"])))
    np.testing.assert_array_equal(process.encode(0, np.array([[-0.0, 2.0], [0.5, -1.0]])), [1, 0])
    np.testing.assert_array_equal(process.encode(1, np.array(["right", "left"])), [1, 0])
    with pytest.raises(InvalidInput, match="not among the 2 that are known"):
        process.encode(0, np.array([[3.0, 3.0]]))
    with pytest.raises(InvalidInput, match=r"shape \(2,\); got"):
        process.encode(0, np.zeros((1, 3)))
    with pytest.raises(InvalidInput, match="not among"):
        process.encode(1, np.array(["leftover"]))
    assert process.encode(0, np.zeros((0, 2))).shape == (0,)


def test_observations_are_not_rounded_into_the_codebook():
    process = make("lock/1", noise_bits=0).process
    for x in ([[257, 0, 0]], [[0.9, 0.0, 0.0]]):
        with pytest.raises(InvalidInput, match="not among"):
            process.encode(0, np.array(x))


FLAT = {"horizon": 3, "start": [1.0, 0.0], "transitions": [[0, 1], [1, 0]], "emissions": np.eye(2)}


@pytest.mark.parametrize(
    "changes",
    [
        {"horizon": 0},
        {"start": [1.0, -0.5]},
        {"start": [1.0, np.nan]},
        {"start": [1.0, 0.0, 0.0]},
        {"transitions": [[0, -1], [1, 0]]},
        {"transitions": [[0, 5], [1, 0]]},
        {"transitions": [[0.5, 0.5], [1.0, 0.0]]},
        {"transitions": np.array([[[1.0, 0.0]] * 2, [[1.3, -0.3]] * 2])},
        {"emissions": np.array([1.0, 0.0])},
        {"labels": ["one"]},
    ],
)
def test_unrolling_checks_every_state_first(changes):
    with pytest.raises(InvalidInput):
        TabularProcess.from_flat(**{**FLAT, "rewards": Rewards.deterministic(np.zeros((1, 1, 2))), **changes})


def test_laws_within_rounding_of_certainty_are_certain():
    process = two_levels(start=np.array([1.0]), transitions=(np.array([[[1.0, 4e-18], [1e-12, 1 - 1e-12]]]),))
    assert process.is_deterministic
    assert process.transitions[0].tolist() == [[[1.0, 0.0], [0.0, 1.0]]]

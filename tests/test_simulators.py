"""Families of models: planning, likelihoods and values of policies, by hand and against enumeration."""

import dataclasses
import functools
import itertools

import gymnasium
import numpy as np
import pytest

import richobs
from richobs.classes import LearnedPolicy, Model, ModelArrays, Simulators, TableLevel
from richobs.core.environment import Episodes
from richobs.core.errors import InvalidFile, InvalidInput
from richobs.core.policies import Greedy, OpenLoop


def two_rooms(win: float = 0.75, prize: float = 8.0) -> Model:
    """State 0: action 0 pays -1 and stays; action 1 ends with a prize with probability `win`, else leads to state 1.

    State 1: action 0 pays 2 and stays; action 1 pays 0 and leads back.
    """
    outcomes = {
        0: {0: [(1.0, 0, -1.0, False)], 1: [(win, 1, prize, True), (1 - win, 1, 0.0, False)]},
        1: {0: [(1.0, 1, 2.0, False)], 1: [(0.5, 0, 0.0, False), (0.5, 0, 0.0, False)]},
    }
    return Model.of_lists(outcomes, 3, [1.0, 0.0])


def random_models(rng: np.random.Generator, n: int, horizon: int = 3, observations=None) -> ModelArrays:
    """Models of 3 states, 2 actions and 3 outcomes, some impossible, some final, few rewards."""
    B, S, K = 3, 3, 2
    probability = rng.random((B, n, S, K)) * (rng.random((B, n, S, K)) < 0.7)
    probability[0] += 0.1
    probability /= probability.sum(axis=0)
    to = rng.integers(0, S, (B, n, S, K)).astype(np.int32)
    reward = rng.choice([-2.0, 0.0, 0.5], (B, n, S, K))
    done = rng.random((B, n, S, K)) < 0.25
    start = rng.dirichlet(np.ones(S), n)
    rows, shows = np.unique(np.arange(S) if observations is None else observations, return_inverse=True)
    return ModelArrays(horizon, start, probability, to, reward, done, shows[None], richobs.core.process.Codebook(rows))


def as_episodes(history, path) -> Episodes:
    """One episode that saw and was paid what a history of (x, r) says, and ended with it."""
    steps = list(history) + [(0, 0.0)] * (len(path) - len(history))
    return Episodes(
        [np.array([x]) for x, _ in steps],
        [np.array([a]) for a in path],
        [np.array([r]) for _, r in steps],
        [np.array([level >= len(history)]) for level in range(len(path))],
    )


def all_episodes(family: ModelArrays, path) -> Episodes:
    """Every combination of observation and reward on a path, ended anywhere, whether possible or not."""
    rewards = np.unique(family.reward)
    seen = range(len(family.codebook))
    each = list(itertools.product(seen, rewards))
    histories = (steps for k in range(1, len(path) + 1) for steps in itertools.product(each, repeat=k))
    return Episodes.concatenate([as_episodes(steps, path) for steps in histories])


class TestPlanning:
    def test_worked_out_by_hand(self):
        functions = Simulators([two_rooms()])
        # Level 2: state 0: -1 or 6; state 1: 2 or 0. Level 1: state 0: -1 + 6, or 6 + 2/4; state 1: 2 + 2, or 6.
        np.testing.assert_array_equal(functions.values(2, np.arange(2)), [[[-1.0, 6.0], [2.0, 0.0]]])
        np.testing.assert_array_equal(functions.values(1, np.arange(2)), [[[5.0, 6.5], [4.0, 6.0]]])
        np.testing.assert_array_equal(functions.values(0, np.arange(2)), [[[5.5, 7.5], [8.0, 6.5]]])
        assert functions.optimal_values().tolist() == [7.5]
        assert [functions.value_range(h) for h in range(3)] == [(0.0, 8.0), (0.0, 6.5), (-1.0, 6.0)]

    @pytest.mark.parametrize("seed", range(2))
    def test_no_policy_earns_more_and_one_earns_as_much(self, seed):
        family = random_models(np.random.default_rng(seed), 2)
        functions = Simulators(family)
        assert functions.n_models == 2
        every = []
        for choice in itertools.product(range(2), repeat=9):
            table = np.eye(2)[np.reshape(choice, (3, 3))]
            policy = Greedy(richobs.Tables([t[None] for t in table]).member(0))
            every.append(functions.policy_values(policy))
        np.testing.assert_allclose(np.max(every, axis=0), functions.optimal_values(), atol=1e-12)
        for i in range(2):
            own = functions.policy_values(LearnedPolicy(functions, i), np.array([i]))
            np.testing.assert_allclose(own, functions.optimal_values()[i], atol=1e-12)

    @pytest.mark.parametrize(
        ("env", "value", "low", "high"),
        [("FrozenLake-v1", 0.347873, 0.0, 1.0), ("CliffWalking-v1", -13.0, -113.0, 0.0), ("Taxi-v4", 7.93, -7.0, 20.0)],
    )
    def test_toy_text(self, env, value, low, high):
        functions = Simulators([env], horizon=30)
        assert functions.optimal_values()[0] == pytest.approx(value, abs=1e-5)
        assert functions.value_range(0) == (low, high)

    def test_models_of_different_sizes_and_looks(self):
        small = Model.of_arrays(np.eye(2)[:, None], np.array([[1.0], [2.0]]), 2, observations=np.array(["a", "b"]))
        large = Model.of_arrays(
            np.eye(3)[[1, 2, 2]][:, None], np.array([[0.0], [3.0], [9.0]]), 2, observations=np.array(["b", "a", "c"])
        )
        functions = Simulators([small, large])
        x = np.array(["a", "b", "c"])
        np.testing.assert_array_equal(functions.values(0, x)[:, :, 0], [[2, 4, 0], [12, 3, 18]])
        np.testing.assert_array_equal(functions.optimal_values(), [2, 3])
        np.testing.assert_array_equal(functions.policy_values(OpenLoop(())), [2, 3])
        seen = Episodes([np.array(["b"]), np.array(["a"])], [np.array([0])] * 2, [np.array([0.0]), np.array([3.0])])
        assert functions.log_likelihood(seen).tolist() == [-np.inf, 0.0]

    def test_progress_is_told_and_parts_give_the_same(self, monkeypatch):
        family = random_models(np.random.default_rng(0), 7)
        whole = Simulators(family)
        monkeypatch.setattr("richobs.classes.model_arrays.AT_ONCE_OUTCOMES", 18)  # three models at once
        told = []
        parts = Simulators(family, progress=lambda done, n: told.append((done, n)))
        assert told == [(3, 7), (6, 7), (7, 7)]
        assert parts.digest == whole.digest
        policy = LearnedPolicy(whole, 3)
        np.testing.assert_array_equal(parts.policy_values(policy), whole.policy_values(policy))
        seen = as_episodes([(0, 0.5), (1, 0.0)], (0, 1))
        np.testing.assert_array_equal(parts.log_likelihood(seen), whole.log_likelihood(seen))

    def test_what_is_not_a_function_of_the_observation_is_refused(self):
        chain = np.eye(3)[[1, 2, 2]][:, None]
        looks = {"start": [0.5, 0.5, 0.0], "observations": np.array([0, 0, 1])}
        with pytest.raises(InvalidInput, match=r"model 0: Q\* at level 0 is not a function of the observation"):
            Simulators([Model.of_arrays(chain, [[0.0], [0.0], [1.0]], 3, **looks)])

    def test_states_that_look_alike_and_are_worth_the_same(self):
        moves = np.eye(3)[[2, 2, 2]][:, None]
        twins = Simulators([Model.of_arrays(moves, [[1.0], [1.0], [5.0]], 2, observations=np.array([4, 4, 7]))])
        assert not twins.models.is_identified
        np.testing.assert_array_equal(twins.values(0, np.array([4, 7]))[0, :, 0], [6.0, 0.0])  # 7 is never seen first


class TestLikelihood:
    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("observations", [None, [0, 1, 1]])
    def test_all_that_can_happen_on_a_path_has_probability_one(self, seed, observations):
        family = random_models(np.random.default_rng(seed), 3, observations=observations)
        assert family.is_identified == (observations is None)
        for path in ((0, 1, 1), (1, 0)):
            likelihoods = family.episode_log_likelihoods(all_episodes(family, path))
            np.testing.assert_allclose(np.exp(likelihoods).sum(axis=1), 1.0, atol=1e-12)

    def test_following_states_and_observing_them_agree(self):
        """A family that hides nothing, once by looking states up and once by the forward recursion."""
        rng = np.random.default_rng(5)
        family = random_models(rng, 4)
        episodes = all_episodes(family, (1, 0, 1))
        plain = family.episode_log_likelihoods(episodes)
        seen = np.stack(episodes.observations)
        ended = np.stack(episodes.ended)
        filtered = family._filtered(episodes, np.where(ended, -1, seen), ended, np.arange(4))
        np.testing.assert_allclose(np.exp(filtered), np.exp(plain), atol=1e-14)

    def test_worked_out_by_hand(self):
        functions = Simulators([two_rooms(0.75), two_rooms(0.5), two_rooms(1.0)])
        episodes = Episodes(
            observations=[np.array([0, 0]), np.array([1, 0]), np.array([1, 0])],
            actions=[np.array([1, 1]), np.array([0, 0]), np.array([0, 0])],
            rewards=[np.array([0.0, 8.0]), np.array([2.0, 0.0]), np.array([2.0, 0.0])],
            ended=[np.array([False, False]), np.array([False, True]), np.array([False, True])],
        )
        each = functions.models.episode_log_likelihoods(episodes)
        np.testing.assert_allclose(np.exp(each), [[0.25, 0.75], [0.5, 0.5], [0.0, 1.0]], atol=1e-15)
        np.testing.assert_allclose(functions.log_likelihood(episodes)[:2], np.log([0.1875, 0.25]))
        assert functions.log_likelihood(episodes, np.array([2, 1]))[0] == -np.inf

    def test_what_no_model_shows_is_impossible(self):
        functions = Simulators([two_rooms()])
        played = Episodes([np.array([0]), np.array([5])], [np.array([0])] * 2, [np.array([-1.0])] * 2)
        assert functions.log_likelihood(played).tolist() == [-np.inf]
        with pytest.raises(InvalidInput, match="these models have 3 levels; episodes of 4 arrived"):
            functions.log_likelihood(Episodes([np.array([0])] * 4, [np.array([0])] * 4, [np.array([-1.0])] * 4))


class TestInputs:
    def test_equal_candidates_become_one(self):
        """Models that differ only where nothing leads, or in how outcomes are listed, are one."""
        moves = np.array([[[0.5, 0.5, 0]], [[0, 1, 0]], [[0, 0, 1.0]]])
        pay = np.array([[[0.0, 1, 0]], [[0, 0, 0]], [[0, 0, 9.0]]])
        other, third = pay.copy(), pay.copy()
        other[2], third[1] = 4, 0.5
        functions = Simulators.of_arrays(np.stack([moves] * 3), np.stack([pay, third, other]), 4)
        assert functions.place.tolist() == [0, 1, 0]
        assert (functions.n_models, functions.n_merged) == (2, 1)
        assert functions.optimal_values().tolist() == [0.9375, 2.0]

    def test_candidates_that_differ_are_kept_apart(self):
        """In where an action leads, in the start, in what is shown, or in whether the episode ends."""
        pay, looks = [[0.0], [0.0], [0.0]], np.array([5, 6, 7])

        def model(to, **options):
            return Model.of_arrays(np.eye(3)[[to, 1, 2]][:, None], pay, 2, **{"observations": looks, **options})

        others = [model(2), model(1, start=[0.5, 0.5, 0.0]), model(1, observations=np.array([5, 7, 6]))]
        others.append(model(1, done=[False, True, False]))
        assert Simulators([model(1), *others, model(1)]).place.tolist() == [0, 1, 2, 3, 4, 0]
        ways = np.eye(3)[[[1, 2], [1, 1], [2, 2]]]
        swapped = np.eye(3)[[[2, 1], [1, 1], [2, 2]]]
        assert Simulators.of_arrays([ways, swapped, ways], np.zeros((3, 2)), 2).place.tolist() == [0, 1, 0]

    def test_replay_finds_what_is_published(self):
        make = functools.partial(gymnasium.make, "FrozenLake-v1", is_slippery=False)
        published = Simulators([make()], horizon=7)
        found = Simulators([Model.by_replay(make, 7, markov=True)])
        assert found.optimal_values().tolist() == published.optimal_values().tolist() == [1.0]
        for level, x in ((0, [0]), (1, [0, 1, 4]), (6, [0, 1, 4, 14])):
            np.testing.assert_array_equal(found.values(level, np.array(x)), published.values(level, np.array(x)))

    def test_replay_by_paths(self):
        """Without the Markov promise a state is a path; the values along paths are the same."""
        model = Model.by_replay(Counter(), 3)
        assert model.n_states == 1 + 2 + 4
        assert Simulators([model]).optimal_values().tolist() == [2.0]
        merged = Model.by_replay(Counter(), 3, markov=True)
        assert merged.n_states == 1 + 2 + 3

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda: Simulators([]), "at least one model; the list is empty"),
            (lambda: Simulators(["CartPole-v1"], horizon=3), "CartPoleEnv does not publish its outcomes"),
            (lambda: Simulators(["FrozenLake-v1"]), "give `horizon`"),
            (lambda: Simulators([two_rooms()], horizon=4), "has 3 levels; 4 were asked for"),
            (lambda: Simulators(["FrozenLake-v1"], horizon=10**12), "horizon must be a whole.*at most 1,000,000"),
            (lambda: Model.of_lists([[[(1.0, 0, 0.0, False)]]], 10**12, [1.0]), "horizon must .*at most 1,000,000"),
            (lambda: Model.of_lists([[3]], 1, [1.0]), "Model.of_lists cannot use an argument"),
            (lambda: Simulators([3]), "a candidate is a richobs.Model.*got a int"),
            (lambda: Simulators([two_rooms(1.5)]), "model 0, state 0, action 1: .* smallest is -0.5"),
            (lambda: Model.of_arrays(np.eye(2), np.zeros((2, 1)), 1), "transitions must be"),
            (lambda: Simulators.of_arrays(np.eye(2)[:, None], np.zeros((2, 1)), 1), r"\[N, S, K, S\]; got shape"),
            (lambda: Simulators([two_rooms(prize=np.inf)]), "not a finite number"),
            (lambda: Simulators([two_rooms(prize=1e-8)]), "action 1 .* can pay 1e-08 .* cannot be told apart"),
            (lambda: Simulators([two_rooms(prize=100.0)], single_precision=True), "reach 93.75; single precision"),
        ],
    )
    def test_what_is_refused(self, call, words):
        with pytest.raises(InvalidInput, match=words):
            call()


class Counter(gymnasium.Env):
    """Counts how often action 1 was taken; the last step pays the count if it was action 0. Actions are 5 and 6."""

    action_space = gymnasium.spaces.Discrete(2, start=5)
    observation_space = gymnasium.spaces.Discrete(10)

    def reset(self, *, seed=None, options=None):
        self.count = 0
        return np.int64(0), {}

    def step(self, action):
        self.count += action - 5
        return np.int64(self.count), float(self.count if action == 5 else 0), False, False, {}


class TestFiles:
    def test_models_come_back(self, tmp_path):
        functions = Simulators.grid(two_rooms, [0.25, 0.5, 0.25])
        functions.save(tmp_path / "models.npz")
        again = Simulators.load(tmp_path / "models.npz")
        assert again.digest == functions.digest
        assert again.place.tolist() == [0, 1, 0]
        np.testing.assert_array_equal(again.values(1, np.arange(2)), functions.values(1, np.arange(2)))
        LearnedPolicy(functions, 1).save(tmp_path / "policy.npz")
        assert LearnedPolicy.load(tmp_path / "policy.npz").digest == LearnedPolicy(again, 1).digest

    def test_the_digest_tells_models_with_equal_values_apart(self):
        steady = Model.of_lists([[[(1.0, 0, 0.5, False)]]], 2, [1.0])
        coin = Model.of_lists([[[(0.5, 0, 0.0, False), (0.5, 0, 1.0, False)]]], 2, [1.0])
        one, other = Simulators([steady]), Simulators([coin])
        np.testing.assert_array_equal(one.values(0, np.array([0])), other.values(0, np.array([0])))
        assert one.digest != other.digest
        assert Simulators([steady], single_precision=True).digest != one.digest
        assert Simulators([steady, coin]).n_models == 2

    def test_damaged_files_are_refused(self, tmp_path):
        file = tmp_path / "models.npz"
        richobs.Layered([TableLevel([[[0.5]]])]).save(file)
        with pytest.raises(InvalidFile, match="not a richobs-models file"):
            Simulators.load(file)
        with pytest.raises(InvalidFile, match=r"does not hold a richobs.Listed class; richobs.Layered.load"):
            richobs.Listed.load(file)
        assert richobs.Layered.load(file).digest == richobs.Layered([TableLevel([[[0.5]]])]).digest


class TestLevels:
    """States that are bound to levels: 0 at level 0, 1 and 2 at level 1."""

    LEVELS = np.array([0, 1, 1])
    MOVES = ([[[(0.5, 1, 0.0, False), (0.5, 2, 1.0, False)]], [[(1.0, 0, 1.0, False)]], [[(1.0, 0, 0.0, True)]]], 2)

    @pytest.mark.parametrize(
        ("levels", "start", "words"),
        [
            ([0, 1, 0], [1, 0, 0], "action 0 leads from state 0, .* bound to level 0, to state 2, which is bound to l"),
            ([0, 0, 1], [1, 0, 0], "to state 1, which is bound to level 0. It must be bound to the next level"),
            ([0, 1, 1], [0.5, 0.5, 0], "model 0 starts in state 1, which is bound to level 1"),
            ([0, 1, 2], [1, 0, 0], "levels of states lie in 0 to 1; got 0 to 2"),
        ],
    )
    def test_levels_that_contradict_the_moves_are_refused(self, levels, start, words):
        with pytest.raises(InvalidInput, match=words):
            Model.of_lists(*self.MOVES, start, level_of=np.array(levels))
        plain = ModelArrays.stack([Model.of_lists(*self.MOVES, start)])
        with pytest.raises(InvalidInput, match=words):
            dataclasses.replace(plain, level_of=np.array([levels]))

    def test_models_are_planned_as_they_are_weighed(self):
        """Bound to levels or not, a model says the same about what can happen and what it is worth."""
        bound = Simulators([Model.of_lists(*self.MOVES, [1.0, 0.0, 0.0], level_of=self.LEVELS)])
        free = Simulators([Model.of_lists(*self.MOVES, [1.0, 0.0, 0.0])])
        zero = np.zeros(1, dtype=np.int64)
        seen = Episodes([zero, zero + 2], [zero, zero], [np.ones(1), np.zeros(1)])
        for functions in (bound, free):
            assert functions.log_likelihood(seen) == pytest.approx([np.log(0.5)])
            assert functions.optimal_values() == pytest.approx([1.0])

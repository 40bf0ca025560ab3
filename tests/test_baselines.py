import math

import numpy as np
import pytest

import richobs
from richobs.baselines import (
    EpsilonGreedy,
    Lanes,
    ObservedStates,
    PathArms,
    TablePolicy,
    UcbQ,
    delayed_q,
    delayed_q_visits,
    enough_visits,
    greedy_values,
    median_elimination,
    printed_visits,
    regressor_elimination,
    rmax,
    successive_elimination,
    train,
    uniform_allocation,
    uniform_exploration,
)
from richobs.baselines import successive_elimination as successive_module
from richobs.baselines.regressor_elimination import exploring_distribution
from richobs.baselines.uniform_allocation import naive_pulls
from richobs.errors import InvalidInput
from richobs.intervals import binomial_interval
from richobs.randomness import keyed_generator


class Coins:
    """Bernoulli arms."""

    def __init__(self, means):
        self.means = np.asarray(means)
        self.n_arms = len(self.means)

    def pull(self, arms, rng, /):
        return (rng.random(len(arms)) < self.means[arms]).astype(float)


def rate_of_failure(run, runs=300):
    """A 99.9% upper limit is not what is tested: the lower limit must not exceed the promise."""
    failures = sum(not run(seed) for seed in range(runs))
    return binomial_interval(failures, runs, 0.999)[0]


class TestBestArm:
    coins = Coins([0.5, 0.7, 0.5, 0.5, 0.62])

    def test_uniform_allocation_is_pac_and_spends_what_it_says(self):
        pulls = 5 * naive_pulls(5, 0.15, 0.1)
        assert naive_pulls(5, 0.15, 0.1) == 819  # 4 / 0.0225 log(100)

        def run(seed):
            choice = uniform_allocation(self.coins, pulls, keyed_generator(seed, "naive"))
            assert choice.pulls == pulls
            return choice.arm in (1, 4)

        assert rate_of_failure(run, 50) <= 0.1

    def test_a_budget_that_does_not_divide_is_spent_to_the_last_pull(self):
        choice = uniform_allocation(self.coins, 13, keyed_generator(0, "odd"))
        assert choice.pulls == 13

    def test_successive_elimination_finds_the_best_arm(self):
        coins = Coins([0.1, 0.4, 0.9])

        def run(seed):
            choice = successive_elimination(coins, 0.1, keyed_generator(seed, "se"))
            assert choice.finished
            return choice.arm == 2

        assert rate_of_failure(run, 100) <= 0.1

    def test_successive_elimination_with_bounds_too_tight_errs(self, monkeypatch):
        module = __import__("sys").modules[successive_module.__module__]
        monkeypatch.setattr(module, "C", 0.0021)  # 2 alpha_1 is 0.44: one unlucky pull is enough to drop the best arm
        coins = Coins([0.5, 0.9, 0.5, 0.5, 0.5])

        def run(seed):
            return successive_elimination(coins, 0.01, keyed_generator(seed, "se"), budget=1500).arm == 1

        assert rate_of_failure(run) > 0.01

    def test_successive_elimination_stops_at_its_budget(self):
        choice = successive_elimination(self.coins, 0.1, keyed_generator(0, "se"), budget=12)
        assert (choice.pulls, choice.finished) == (12, False)

    def test_median_elimination_is_pac_and_halves(self):
        rounds = [math.ceil(4 / (e / 4) ** 2 * math.log(6 / d)) for e, d in ((0.4, 0.2), (0.3, 0.1), (0.225, 0.05))]
        coins = Coins([0.3, 0.8, 0.3, 0.3, 0.3])  # 5, then 3, then 2, then 1

        def run(seed):
            choice = median_elimination(coins, 0.4, 0.2, keyed_generator(seed, "me"))
            assert choice.pulls == 5 * rounds[0] + 3 * rounds[1] + 2 * rounds[2]
            return choice.arm == 1

        assert rate_of_failure(run, 30) <= 0.2

    def test_median_elimination_stops_at_its_budget(self):
        choice = median_elimination(self.coins, 0.1, 0.1, keyed_generator(0, "me"), budget=50)
        assert (choice.pulls, choice.finished) == (50, False)

    def test_arms_of_an_environment_are_its_action_sequences(self):
        problem = richobs.make("lower-bound/3", epsilon=0.5)
        arms = PathArms(problem.env)
        secret = [
            a for a in range(8) if problem.process.value(richobs.envs.lower_bound.SequencePolicy(arms.path(a))) > 0.9
        ]
        assert arms.n_arms == 8
        assert arms.path(6) == (1, 1, 0)
        paid = arms.pull(np.repeat(secret, 50), keyed_generator(0, "pull"))
        np.testing.assert_array_equal(paid, 1.0)
        assert problem.env.episodes == 50


class TestRegressorElimination:
    def test_the_distribution_meets_its_condition(self):
        rng = keyed_generator(0, "policies")
        contexts = rng.dirichlet(np.ones(6))
        greedy = rng.integers(4, size=(30, 6))
        mu = 0.01
        chances = exploring_distribution(greedy, contexts, 4, mu)
        np.testing.assert_allclose(chances.sum(axis=1), 1.0)
        offered = np.array([[a in greedy[:, x] for a in range(4)] for x in range(6)])
        assert chances[offered].min() >= mu
        assert chances[~offered].max(initial=0.0) == 0.0
        load = [contexts @ (1 / chances[np.arange(6), g]) for g in greedy]
        assert max(load) <= contexts @ offered.sum(axis=1) * (1 + 1e-3)
        even = exploring_distribution(np.repeat([[0], [1]], [9, 1], axis=0), np.ones(1), 2, mu)
        np.testing.assert_allclose(even, [[0.5, 0.5]], atol=1e-3)  # not 9 to 1: each policy counts once

    def test_the_true_function_survives_and_the_policy_is_good(self):
        def run(seed):
            problem = richobs.make("bandit", seed=seed, n_contexts=4, n_actions=3, class_size=20)
            tables = problem.functions.values(0, problem.process.observations[0])
            rng = keyed_generator(seed, "re")
            end = regressor_elimination(problem.process, tables, epsilon=0.1, delta=0.1, max_rounds=200_000, rng=rng)
            assert end.finished
            value = problem.process.value(TablePolicy(problem.process, [end.policy]))
            return end.survivors[problem.optimal_function[0]] and problem.optimal_value - value <= 0.1

        assert rate_of_failure(run, 10) <= 0.1

    def test_the_true_function_survives_near_misses(self):
        rewards = richobs.Rewards.bernoulli([[[0.5, 0.45]]])
        process = richobs.TabularProcess(np.ones(1), (), (np.eye(1),), (rewards,))
        tables = np.array([[[0.5, 0.45]], [[0.6, 0.45]], [[0.4, 0.45]]])

        for seed in range(20):  # the paper's margin is wide: not one should go
            rng = keyed_generator(seed, "near")
            end = regressor_elimination(process, tables, epsilon=1e-6, delta=0.1, max_rounds=300, rng=rng)
            assert end.survivors[0]

    def test_rounds_that_run_out_are_not_called_finished(self):
        problem = richobs.make("bandit")
        tables = problem.functions.values(0, problem.process.observations[0])
        rng = keyed_generator(0, "re")
        end = regressor_elimination(problem.process, tables, epsilon=0.01, delta=0.1, max_rounds=10, rng=rng)
        assert (end.episodes, end.finished) == (10, False)

    def test_longer_episodes_are_refused(self):
        problem = richobs.make("mdp/2")
        with pytest.raises(InvalidInput, match="contextual bandits"):
            regressor_elimination(
                problem.process, np.zeros((1, 1, 3)), epsilon=0.1, delta=0.1, max_rounds=9, rng=keyed_generator(0)
            )


class TestObservedStates:
    def test_counts_have_the_law_of_episodes(self):
        problem = richobs.make("mdp/3", stochastic=True, n_states=3, n_actions=2)
        game = ObservedStates(problem.process)
        policy = tuple(np.zeros(s, dtype=np.int64) for s in game.sizes)
        tally = game.play(policy, 10**10, keyed_generator(0, "tally"))
        assert game.episodes == 10**10
        assert [v.sum() for v in tally.visits] == [10**10] * 3
        here = problem.process.start
        for level in range(3):
            np.testing.assert_allclose(tally.visits[level][:, 0] / 10**10, here, atol=1e-4)
            mean = problem.process.rewards[level].mean[np.arange(len(here)), np.arange(len(here)), 0]
            np.testing.assert_allclose(tally.rewards[level][:, 0] / 10**10, here * mean, atol=1e-4)
            if level < 2:
                here = here @ problem.process.transitions[level][:, 0]

    def test_hidden_states_are_refused(self):
        with pytest.raises(InvalidInput, match="shows its states"):
            ObservedStates(richobs.make("lock/3", noise_bits=1).process)


def pairs(process):
    return sum(len(e) for e in process.emissions) * process.n_actions


class TestTabular:
    def test_sample_sizes_by_hand(self):
        assert printed_visits(2, 2, 1, 0.5, 0.1) == 4097  # (4 * 2 * 1 / 0.5)^3 + 1
        assert printed_visits(1, 10, 1, 1.0, 1e-3) == 14_132  # -6 log^3(1e-3 / 600) + 1, larger than 4^3
        assert enough_visits(10, 2, 0.2, 0.05) == 1199  # log(400) / (2 * 0.05^2)
        assert enough_visits(10, 2, 0.2, 0.05, top=0.5) == 300
        m, epsilon_1 = delayed_q_visits(4, 2, 0.9, 0.1)
        assert epsilon_1 == pytest.approx(0.05)
        assert m == 1837  # log(3 * 4 * 81 / 0.1) / 0.005 = 1836.4

    @pytest.mark.parametrize("stochastic", [False, True])
    def test_rmax_learns(self, stochastic):
        def run(seed):
            problem = richobs.make("mdp/3", seed=seed, stochastic=stochastic, n_states=3, n_actions=2)
            visits = printed_visits(7, 2, 3, 0.1, 0.05)
            learned = rmax(ObservedStates(problem.process), visits, keyed_generator(seed, "rmax"))
            assert learned.finished
            value = problem.process.value(TablePolicy(problem.process, learned.policy))
            return problem.optimal_value - value <= 0.1

        assert rate_of_failure(run, 20) <= 0.05

    def test_rmax_visits_every_pair_as_often_as_it_says(self):
        problem = richobs.make("mdp/1", n_actions=4)
        learned = rmax(ObservedStates(problem.process), 25, keyed_generator(0, "rmax"))
        assert learned.episodes == 4 * 25

    def test_rmax_that_trusts_one_visit_errs(self):
        def run(seed):
            problem = richobs.make("mdp/3", seed=seed, n_states=3, n_actions=3)
            learned = rmax(ObservedStates(problem.process), 1, keyed_generator(seed, "rmax"))
            value = problem.process.value(TablePolicy(problem.process, learned.policy))
            return problem.optimal_value - value <= 0.1

        assert rate_of_failure(run, 100) > 0.05

    def test_delayed_q_learns(self):
        def run(seed):
            problem = richobs.make("mdp/3", seed=seed, n_states=3, n_actions=2)
            sizes = delayed_q_visits(pairs(problem.process), 3, 0.1, 0.05)
            learned = delayed_q(ObservedStates(problem.process), *sizes, keyed_generator(seed, "dq"))
            assert learned.finished
            value = problem.process.value(TablePolicy(problem.process, learned.policy))
            return problem.optimal_value - value <= 0.1

        assert rate_of_failure(run, 20) <= 0.05

    def test_delayed_q_by_hand(self):
        rewards = richobs.Rewards.deterministic([[[0.3, 0.6]]])
        process = richobs.TabularProcess(np.ones(1), (), (np.eye(1),), (rewards,))
        learned = delayed_q(ObservedStates(process), 10, 0.01, keyed_generator(0))
        # 10 visits bring q of action 0 from 1 to 0.31, 10 bring action 1 to 0.61; 10 more fall by 0.01 only: no LEARN.
        assert (learned.policy[0].tolist(), learned.episodes, learned.finished) == ([1], 30, True)
        np.testing.assert_allclose(learned.values[0], [[0.31, 0.61]])

    def test_ucb_q_by_hand(self):
        rewards = richobs.Rewards.deterministic([[[0.25]]])
        process = richobs.TabularProcess(np.ones(1), (), (np.eye(1),), (rewards,))
        lanes = Lanes(process, 1)
        learner = UcbQ(lanes, 100, 0.1, c=0.01)
        bonus = 0.01 * math.sqrt(math.log(1 * 1 * 100 * 1 / 0.1))
        train(lanes, learner, 1, keyed_generator(0))
        assert learner.q[0][0, 0, 0] == pytest.approx(0.25 + bonus)
        train(lanes, learner, 1, keyed_generator(0))  # step (1 + 1) / (1 + 2)
        assert learner.q[0][0, 0, 0] == pytest.approx((0.25 + bonus) / 3 + 2 / 3 * (0.25 + bonus / math.sqrt(2)))

    def test_ucb_q_is_optimistic_and_learns_with_a_small_bonus(self):
        problem = richobs.make("mdp/3", stochastic=True, n_states=3, n_actions=2)
        q_star = problem.process.q_tables
        lanes = Lanes(problem.process, 30)
        learner, rng = UcbQ(lanes, 1000, 0.05), keyed_generator(0, "ucb")
        train(lanes, learner, 1000, rng)
        assert all((q >= q_star[h] - 1e-12).all() for h, q in enumerate(learner.q))
        lanes = Lanes(problem.process, 30)
        learner = UcbQ(lanes, 1000, 0.05, c=0.02)
        train(lanes, learner, 1000, rng)
        assert (problem.optimal_value - lanes.values(learner)).mean() < 0.05
        assert any((q < q_star[h]).any() for h, q in enumerate(learner.q))  # the price: no bound any more


class TestUndirected:
    def test_epsilon_greedy_by_hand(self):
        rewards = (richobs.Rewards.deterministic([[[0.0]]]), richobs.Rewards.deterministic([[[0.8]]]))
        process = richobs.TabularProcess(np.ones(1), (np.zeros((1, 1), dtype=int),), (np.eye(1),) * 2, rewards)
        lanes = Lanes(process, 2)
        learner = EpsilonGreedy(lanes)
        train(lanes, learner, 1, keyed_generator(0))
        assert [q.tolist() for q in learner.q] == [[[[0.8]], [[0.8]]]] * 2  # one episode reaches the root

    def test_epsilon_greedy_explores_as_often_as_it_says(self):
        lanes = Lanes(richobs.make("mdp/1", n_actions=4).process, 40_000)
        learner = EpsilonGreedy(lanes, explore=0.2)
        learner.q[0][:, :, 2] = 1.0
        actions = lanes.play(learner, keyed_generator(0, "explore")).actions[0]
        low, high = binomial_interval(int((actions != 2).sum()), 40_000, 0.999)
        assert low <= 0.2 * 3 / 4 <= high

    def test_ties_are_broken_at_random(self):
        lanes = Lanes(richobs.make("mdp/1", n_actions=4).process, 4000)
        actions = lanes.play(EpsilonGreedy(lanes, explore=0.0), keyed_generator(0, "ties")).actions[0]
        assert np.bincount(actions).min() > 850

    def test_values_of_lanes_are_exact(self):
        problem = richobs.make("lock/3", noise_bits=2)
        lanes = Lanes(problem.process, 3)
        learner, rng = EpsilonGreedy(lanes), keyed_generator(0, "values")
        for q in learner.q:
            q += rng.random(q.shape)
        for lane, value in enumerate(lanes.values(learner)):
            policy = TablePolicy(problem.process, [q[lane].argmax(axis=1) for q in learner.q])
            assert value == pytest.approx(problem.process.value(policy))

    def test_tied_tables_are_worth_what_random_play_is(self):
        process = richobs.make("lock/3", noise_bits=0).process
        tied = [np.zeros((1, 3, 4))] * 3
        assert greedy_values(process, tied) == pytest.approx([0.5 * 0.5**3])

    @pytest.mark.parametrize("world", ["mdp/3", "lock/4,noise_bits=0"])
    def test_both_learn_where_little_exploration_is_needed(self, world):
        problem = richobs.make(world)
        good = problem.optimal_value - 0.1
        lanes, rng = Lanes(problem.process, 20), keyed_generator(0, "undirected")
        learner = EpsilonGreedy(lanes)
        train(lanes, learner, 1500, rng)
        assert (lanes.values(learner) >= good).mean() > 0.8
        episodes = uniform_exploration(
            problem.process,
            [1, 10, 100, 1000, 10_000],
            rng,
            lambda q: greedy_values(problem.process, [t[None] for t in q])[0] >= good,
        )
        assert episodes is not None

    def test_uniform_exploration_knows_what_it_tried(self):
        rewards = richobs.Rewards.deterministic([[[0.3, 0.3, 0.3]]])
        process = richobs.TabularProcess(np.ones(1), (), (np.eye(1),), (rewards,))
        seen = []
        uniform_exploration(process, [1], keyed_generator(0), lambda q: seen.append(q) or False)
        assert sorted(seen[0][0].ravel()) == [0.0, 0.0, 0.3]

    def test_uniform_exploration_says_when_it_failed(self):
        problem = richobs.make("mdp/2")
        assert uniform_exploration(problem.process, [1, 2], keyed_generator(0), lambda q: False) is None

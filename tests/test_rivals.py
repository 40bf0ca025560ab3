"""Rivals: best-arm methods, contextual bandits, tabular methods, those that are told states or transitions, planners."""

import math
import random
import sys

import numpy as np
import pytest

import richobs
from richobs.classes.learned_policy import LearnedPolicy
from richobs.classes.tables import Constants
from richobs.core.environment import Episodes
from richobs.core.errors import InvalidInput
from richobs.core.events import EVENTS, Progress, from_plain, to_plain
from richobs.core.ledger import Ledger
from richobs.core.outcome import StopReason
from richobs.core.policies import Greedy, Uniform
from richobs.core.process import TableFunction, TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.core.settings import Settings
from richobs.core.steps import Steps, distinct
from richobs.engines import CountedEngine, StreamEngine
from richobs.engines.counted import tally
from richobs.runs.prepare import prepare
from richobs.runs.session import run
from richobs.stats.bounds import kl_upper
from richobs.worlds.simulator import TabularWorld, WorldEnvironment
from richobs_lab.intervals import binomial_interval
from richobs_lab.paper.rigs.lanes import Lanes, SideBySideArms, greedy_values, train
from richobs_lab.rivals import bpi_ucrl as bpi_module
from richobs_lab.rivals import eprl as eprl_module
from richobs_lab.rivals import regressor_elimination as regressor_module
from richobs_lab.rivals import successive_elimination as successive_module
from richobs_lab.rivals.arms import PathArms, Pulled, Scores
from richobs_lab.rivals.bpi_ucrl import ball_upper, bpi_ucrl, plan_bounds, radius
from richobs_lab.rivals.delayed_q import DelayedQ, delayed_q, delayed_q_visits
from richobs_lab.rivals.e3 import e3, two_plans
from richobs_lab.rivals.epoch_greedy import exploitation
from richobs_lab.rivals.eprl import Rewards as PairRewards
from richobs_lab.rivals.eprl import best_path, eprl
from richobs_lab.rivals.epsilon_greedy import EpsilonGreedyTables
from richobs_lab.rivals.latent_q import LatentQTables, latent_q
from richobs_lab.rivals.latent_states import ReplayedStates, ShownStates, find_reader, known_moves
from richobs_lab.rivals.median_elimination import MedianElimination, median_elimination
from richobs_lab.rivals.regressor_elimination import (
    exploring_distribution,
    regressor_elimination,
)
from richobs_lab.rivals.rival_events import RoundPlayed, Rounds, tell_nobody
from richobs_lab.rivals.rmax import Rmax, enough_visits, printed_visits, rmax
from richobs_lab.rivals.sparse_sampling import n_nodes, printed_samples, sparse_sampling
from richobs_lab.rivals.stable_baselines import Reading, Sb3Ppo
from richobs_lab.rivals.successive_elimination import SuccessiveElimination, successive_elimination
from richobs_lab.rivals.tabular import EmpiricalModel, TableLaw, greedy_policy, n_pairs
from richobs_lab.rivals.trajectory_trees import enough_episodes, members_of, weighted_returns
from richobs_lab.rivals.ucb_q import UcbQTables
from richobs_lab.rivals.ucfh import optimistic_mean, optimistic_values, ucfh
from richobs_lab.rivals.uniform_allocation import UniformAllocation, naive_pulls, uniform_allocation
from richobs_lab.rivals.uniform_exploration import uniform_exploration

MDP = "mdp/2,n_states=2,n_actions=2,class_size=4"


class Coins:
    """Bernoulli arms."""

    def __init__(self, means):
        self.means = np.asarray(means)
        self.n_arms = len(self.means)

    def pull(self, which, times, rng, /):
        return Pulled(np.full(len(which), times), rng.binomial(times, self.means[which]).astype(float))


class Purse(Coins):
    """Bernoulli arms that can be pulled so often in all."""

    def __init__(self, means, left):
        super().__init__(means)
        self.left = left

    def pull(self, which, times, rng, /):
        pulls = np.zeros(len(which), dtype=np.int64)
        for i in range(len(which)):
            if self.left < times:
                break
            self.left -= times
            pulls[i] = times
        return Pulled(pulls, rng.binomial(pulls, self.means[which]).astype(float))


def rate_of_failure(attempt, runs=300):
    """The lower end of a 99.9% interval for the probability of failure: above delta only if the promise is broken."""
    failures = sum(not attempt(seed) for seed in range(runs))
    return binomial_interval(failures, runs, 0.999)[0]


def constant_class(process):
    """A class that nobody looks at."""
    return richobs.Layered([Constants(np.zeros((1, process.n_actions)))] * process.horizon)


def counting(process, seed=0, max_episodes=None):
    return CountedEngine(process, constant_class(process), seed=seed, ledger=Ledger(max_episodes))


def bandit(means, deterministic=False):
    """A process of one level and one state, one row of means per context, contexts equally likely."""
    means = np.asarray(means)[None]
    rewards = richobs.Rewards.deterministic(means) if deterministic else richobs.Rewards.bernoulli(means)
    return richobs.TabularProcess(np.ones(1), (), (np.full((1, means.shape[1]), 1 / means.shape[1]),), (rewards,))


def streaming(problem, seed=0, max_episodes=None):
    return StreamEngine(problem.env, problem.functions, seed=seed, ledger=Ledger(max_episodes), process=problem.process)


def moves_of(process):
    """The transitions of a process, as rivals are told them."""
    env, nothing = WorldEnvironment(TabularWorld(process)), constant_class(process)
    return known_moves(richobs.Problem(env, nothing, process))


def two_paths(good, bad):
    """One decision between two states: the first pays `good`, the second `bad`, a number or one for each action."""
    pays = richobs.Rewards.bernoulli(np.stack([np.broadcast_to(good, (2, 2)), np.broadcast_to(bad, (2, 2))]))
    return TabularProcess(
        np.ones(1),
        (np.array([[0, 1]]),),
        (np.ones((1, 1)), np.eye(2)),
        (richobs.Rewards.deterministic(np.zeros((1, 1, 2))), pays),
    )


class TestBestArm:
    coins = Coins([0.5, 0.7, 0.5, 0.5, 0.62])

    def test_uniform_allocation_is_pac_and_spends_what_it_says(self):
        pulls = 5 * naive_pulls(5, 0.15, 0.1)
        assert naive_pulls(5, 0.15, 0.1) == 819  # 4 / 0.0225 log(100)

        def attempt(seed):
            choice = uniform_allocation(self.coins, pulls, keyed_generator(seed, "naive"))
            assert choice.pulls == pulls
            assert choice.finished
            return choice.arm in (1, 4)

        assert rate_of_failure(attempt, 50) <= 0.1

    def test_a_budget_is_spent_to_the_last_pull_and_not_called_finished(self):
        rng = keyed_generator(0, "budget")
        assert uniform_allocation(self.coins, 13, rng).pulls == 13  # it does not divide by 5
        for choice in (
            successive_elimination(self.coins, 0.1, rng, budget=12),
            median_elimination(self.coins, 0.1, 0.1, rng, budget=12),
        ):
            assert (choice.pulls, choice.finished) == (12, False)

    def test_rounds_that_grow_add_up(self):
        scores = Scores(self.coins, None, keyed_generator(0, "rounds"))
        assert scores.pull_in_rounds(np.array([1, 3]), 21)  # 1, 3, 12 and 5
        assert scores.pulls.tolist() == [0, 21, 0, 21, 0]

    def test_arms_that_run_out_have_been_pulled_about_equally_often(self):
        scores = Scores(Purse([0.5] * 5, 30), None, keyed_generator(0, "purse"))
        assert not scores.pull_in_rounds(np.arange(5), 100)
        assert scores.pulls.tolist() == [4] * 5  # 1 and 3 of each; the 12 of the third round no longer fit
        choice = uniform_allocation(Purse([0.5] * 5, 30), 500, keyed_generator(0, "purse"))
        assert (choice.pulls, choice.finished) == (20, False)

    def test_successive_elimination_finds_the_best_arm(self):
        coins = Coins([0.1, 0.4, 0.9])

        def attempt(seed):
            choice = successive_elimination(coins, 0.1, keyed_generator(seed, "se"))
            assert choice.finished
            return choice.arm == 2

        assert rate_of_failure(attempt, 100) <= 0.1

    def test_successive_elimination_with_bounds_too_tight_errs(self, monkeypatch):
        monkeypatch.setattr(successive_module, "C", 0.0021)  # 2 alpha_1 is 0.44: one unlucky pull drops the best arm
        coins = Coins([0.5, 0.9, 0.5, 0.5, 0.5])

        def attempt(seed):
            return successive_elimination(coins, 0.01, keyed_generator(seed, "se"), budget=400).arm == 1

        assert rate_of_failure(attempt, 200) > 0.01

    def test_successive_elimination_ends_among_equal_arms_when_they_are_good_enough(self):
        equal = Coins([0.5, 0.5])
        choice = successive_elimination(equal, 0.1, keyed_generator(0, "se"), epsilon=0.5)
        # 2 sqrt(log(4 * 2 * t^2 / 0.1) / t) <= 0.5 from t = 247 on: log(80 * 247^2) / 247 = 0.06235, at 246 it is 0.06257
        assert (choice.pulls, choice.finished) == (2 * 247, True)

    def test_median_elimination_is_pac_and_halves(self):
        rounds = [math.ceil(4 / (e / 4) ** 2 * math.log(6 / d)) for e, d in ((0.4, 0.2), (0.3, 0.1), (0.225, 0.05))]
        coins = Coins([0.3, 0.8, 0.3, 0.3, 0.3])  # 5, then 3, then 2, then 1

        def attempt(seed):
            choice = median_elimination(coins, 0.4, 0.2, keyed_generator(seed, "me"))
            assert choice.pulls == 5 * rounds[0] + 3 * rounds[1] + 2 * rounds[2]
            return choice.arm == 1

        assert rate_of_failure(attempt, 30) <= 0.2

    def test_median_elimination_that_ends_between_rounds_answers_with_the_last_round(self):
        coins = Coins([0.0, 1.0, 0.0, 0.0, 0.0])
        first = 5 * math.ceil(4 / 0.1**2 * math.log(30))
        for seed in range(5):
            choice = median_elimination(coins, 0.4, 0.2, keyed_generator(seed, "me"), budget=first)
            assert (choice.arm, choice.pulls, choice.finished, choice.mean) == (1, first, False, 1.0)

    def test_arms_of_an_environment_are_its_action_sequences(self):
        problem = richobs.make("lower-bound/3", epsilon=0.5)
        engine = counting(problem.process)
        asked = PathArms(engine, 3, 2, Rounds(engine, tell_nobody))
        beside = SideBySideArms(problem.env)
        assert asked.n_arms == beside.n_arms == 8
        assert asked.path(6) == beside.path(6) == (1, 1, 0)
        worth = [problem.process.value(LearnedPolicy.open_loop(asked.path(a), 2)) for a in range(8)]
        secret = int(np.argmax(worth))
        assert worth[secret] == 1.0
        which = np.array([secret, (secret + 1) % 8])
        for arms in (asked, beside):
            pulled = arms.pull(which, 50, keyed_generator(0, "pull"))
            assert pulled.pulls.tolist() == [50, 50]
            assert pulled.sums[0] == pytest.approx(50)
            assert 5 < pulled.sums[1] < 45
        assert engine.ledger.total == 100
        assert engine.ledger.by("purpose") == {("pull",): (2, 100)}


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

    def test_actions_follow_the_law_of_their_context(self):
        process = bandit([[0.5] * 3, [0.5] * 3])
        law = TableLaw(process, [np.array([[0.2, 0.0, 0.8], [1.0, 0.0, 0.0]])])
        actions = law.actions(0, np.repeat([0, 1], [20_000, 100]), keyed_generator(0, "law"))
        counts = np.bincount(actions[:20_000], minlength=3)
        assert counts[1] == 0
        low, high = binomial_interval(int(counts[0]), 20_000, 0.999)
        assert low <= 0.2 <= high
        assert not actions[20_000:].any()

    def test_the_true_function_survives_and_the_policy_is_good(self):
        def attempt(seed):
            problem = richobs.make("bandit", seed=seed, n_contexts=4, n_actions=3, class_size=20)
            tables = problem.functions.values(0, problem.process.observations[0])
            engine = counting(problem.process, seed)
            end = regressor_elimination(engine, problem.process, tables, epsilon=0.1, delta=0.1, max_rounds=200_000)
            assert end.finished
            assert end.episodes == engine.ledger.total
            value = problem.process.value(
                LearnedPolicy.from_table(problem.process.codebooks, [end.policy], n_actions=3)
            )
            return end.survivors[problem.optimal_function[0]] and problem.optimal_value - value <= 0.1

        assert all(map(attempt, range(4)))

    @pytest.mark.parametrize(("margin", "least", "most"), [(None, 0, 0), (0.05, 6, 8)])
    def test_the_margin_keeps_the_truth_in_a_class_that_can_fit_the_noise(self, monkeypatch, margin, least, most):
        """Every function but the truth is off by 0.1 up or down at each of ten (context, action) pairs: 1,024 of them.

        One of them fits the noise at all ten, and so much better than the truth that a small margin loses the truth.
        """
        if margin is not None:
            monkeypatch.setattr(regressor_module, "CONFIDENCE", margin)
        process = bandit(np.full((5, 2), 0.5))
        signs = np.stack(np.unravel_index(np.arange(1024), (2,) * 10), axis=1).reshape(1024, 5, 2) * 2 - 1
        tables = np.concatenate([np.full((1, 5, 2), 0.5), 0.5 + 0.1 * signs])

        def survives(seed):
            end = regressor_elimination(
                counting(process, seed), process, tables, epsilon=1e-6, delta=0.1, max_rounds=300
            )
            return end.survivors[0]

        assert least <= sum(not survives(seed) for seed in range(8)) <= most

    def test_rounds_that_run_out_are_not_called_finished(self):
        problem = richobs.make("bandit")
        tables = problem.functions.values(0, problem.process.observations[0])
        for engine, rounds in ((counting(problem.process), 10), (counting(problem.process, max_episodes=10), 1000)):
            end = regressor_elimination(engine, problem.process, tables, epsilon=0.01, delta=0.1, max_rounds=rounds)
            assert (end.episodes, end.finished) == (10, False)


class TestCounts:
    def test_counts_have_the_law_of_episodes(self):
        problem = richobs.make("mdp/3", stochastic=True, n_states=3, n_actions=2)
        process = problem.process
        zeros = [np.zeros((len(rows), 2)) for rows in process.observations]
        counts = tally(process, Greedy(TableFunction(process, zeros)), 10**10, keyed_generator(0, "tally"))
        assert [v.sum() for v in counts.visits] == [10**10] * 3
        here = process.start
        for level in range(3):
            np.testing.assert_allclose(counts.visits[level][:, 0] / 10**10, here, atol=1e-4)
            mean = process.rewards[level].mean[np.arange(len(here)), np.arange(len(here)), 0]
            np.testing.assert_allclose(counts.rewards[level][:, 0] / 10**10, here * mean, atol=1e-4)
            if level < 2:
                here = here @ process.transitions[level][:, 0]

    def test_the_model_of_counts_by_hand(self):
        process = richobs.make("mdp/2", n_states=2, n_actions=2).process
        model = EmpiricalModel(process)
        model.visits[0][:], model.rewards[0][:] = [[4, 1]], [[1.0, 0.5]]
        model.moves[0][:] = [[[3, 1], [0, 1]]]
        model.visits[1][:], model.rewards[1][:] = [[3, 0], [2, 1]], [[0.6, 0.0], [0.2, 0.4]]
        first, second = model.values(2, unknown=1.0)
        np.testing.assert_allclose(second, [[0.2, 1.0], [0.1, 1.0]])  # seen less than twice: as good as can be
        np.testing.assert_allclose(first, [[1 / 4 + 1.0, 1.0]])
        first, second = model.values(1, unknown=0.0)
        np.testing.assert_allclose(second, [[0.2, 0.0], [0.1, 0.4]])
        np.testing.assert_allclose(first, [[1 / 4 + (3 * 0.2 + 0.4) / 4, 0.5 + 0.4]])
        assert model.start_value((first, second)) == pytest.approx(0.9)

    @pytest.mark.parametrize("method", [rmax, lambda *a: delayed_q(*a, 0.1)])
    def test_hidden_states_are_refused(self, method):
        process = richobs.make("lock/3", noise_bits=1).process
        with pytest.raises(InvalidInput, match="shows its states"):
            method(counting(process), process, 5)


def gap(problem, learned):
    policy = LearnedPolicy.from_table(problem.process.codebooks, learned.policy, n_actions=problem.n_actions)
    return problem.optimal_value - problem.process.value(policy)


class TestTabular:
    def test_sample_sizes_by_hand(self):
        assert printed_visits(2, 2, 1, 0.5, 0.1) == 4097  # (4 * 2 * 1 / 0.5)^3 + 1
        assert printed_visits(1, 10, 1, 1.0, 1e-3) == 14_132  # -6 log^3(1e-3 / 600) + 1, larger than 4^3
        assert enough_visits(10, 2, 0.2, 0.05) == 1199  # log(400) / (2 * 0.05^2)
        assert enough_visits(10, 2, 0.2, 0.05, top=0.5) == 300
        m, epsilon_1 = delayed_q_visits(4, 2, 0.9, 0.1)
        assert epsilon_1 == pytest.approx(0.05)
        assert m == 1837  # log(3 * 4 * 81 / 0.1) / 0.005 = 1836.4

    @pytest.mark.parametrize(("stochastic", "runs"), [(False, 8), (True, 3)])
    def test_rmax_learns(self, stochastic, runs):
        for seed in range(runs):
            problem = richobs.make("mdp/3", seed=seed, stochastic=stochastic, n_states=3, n_actions=2)
            learned = rmax(counting(problem.process, seed), problem.process, printed_visits(7, 2, 3, 0.1, 0.05))
            assert learned.finished
            assert gap(problem, learned) <= 0.1

    def test_rmax_visits_every_pair_as_often_as_it_says(self):
        process = richobs.make("mdp/1", n_actions=4).process
        engine = counting(process)
        learned = rmax(engine, process, 25)
        assert learned.episodes == engine.ledger.total == 4 * 25

    def test_rmax_by_hand(self):
        process = bandit([[0.3, 0.6]], deterministic=True)
        learned = rmax(counting(process), process, 10)
        assert (learned.policy[0].tolist(), learned.episodes, learned.finished) == ([1], 20, True)
        np.testing.assert_allclose(learned.values[0], [[0.3, 0.6]])
        assert learned.value_hat == pytest.approx(0.6)

    def test_rmax_that_trusts_one_visit_errs(self):
        def attempt(seed):
            problem = richobs.make("mdp/3", seed=seed, n_states=3, n_actions=3)
            return gap(problem, rmax(counting(problem.process, seed), problem.process, 1)) <= 0.1

        assert rate_of_failure(attempt, 40) > 0.05

    def test_rmax_whose_episodes_run_out_says_why_it_stopped(self):
        process = bandit([[0.3, 0.6]])
        learned = rmax(counting(process, max_episodes=15), process, 10)  # 1, then 9 of action 0, then 1 of action 1
        assert (learned.episodes, learned.finished, learned.value_hat) == (11, False, None)
        assert "asks for 9 episodes; 4 remain of the 15" in learned.remarks[0]

    def test_delayed_q_learns(self):
        for seed in range(8):
            problem = richobs.make("mdp/3", seed=seed, n_states=3, n_actions=2)
            sizes = delayed_q_visits(n_pairs(problem.process), 3, 0.1, 0.05)
            learned = delayed_q(counting(problem.process, seed), problem.process, *sizes)
            assert learned.finished
            assert gap(problem, learned) <= 0.1

    def test_delayed_q_by_hand(self):
        process = bandit([[0.3, 0.6]], deterministic=True)
        learned = delayed_q(counting(process), process, 10, 0.01)
        # 10 visits bring q of action 0 from 1 to 0.31, 10 bring action 1 to 0.61; 10 more fall by 0.01 only: no LEARN.
        assert (learned.policy[0].tolist(), learned.episodes, learned.finished) == ([1], 30, True)
        np.testing.assert_allclose(learned.values[0], [[0.31, 0.61]])

    def test_ucb_q_by_hand(self):
        process = bandit([[0.25]], deterministic=True)
        lanes = Lanes(process, 1)
        tables = UcbQTables(process, 100, 0.1, c=0.01)
        bonus = 0.01 * math.sqrt(math.log(1 * 1 * 100 * 1 / 0.1))
        train(lanes, tables, 1, keyed_generator(0))
        assert tables.q[0][0, 0, 0] == pytest.approx(0.25 + bonus)
        train(lanes, tables, 1, keyed_generator(0))  # step (1 + 1) / (1 + 2)
        assert tables.q[0][0, 0, 0] == pytest.approx((0.25 + bonus) / 3 + 2 / 3 * (0.25 + bonus / math.sqrt(2)))
        assert tables.tried == 1

    def test_ucb_q_is_optimistic_and_learns_with_a_small_bonus(self):
        problem = richobs.make("mdp/3", stochastic=True, n_states=3, n_actions=2)
        q_star = problem.process.q_tables
        lanes, rng = Lanes(problem.process, 30), keyed_generator(0, "ucb")
        tables = UcbQTables(problem.process, 1000, 0.05, runs=30)
        train(lanes, tables, 1000, rng)
        assert all((q >= q_star[h] - 1e-12).all() for h, q in enumerate(tables.q))
        tables = UcbQTables(problem.process, 1000, 0.05, c=0.02, runs=30)
        train(lanes, tables, 1000, rng)
        assert (problem.optimal_value - lanes.values(tables)).mean() < 0.05
        assert any((q < q_star[h]).any() for h, q in enumerate(tables.q))  # the price: no bound any more


class TestUndirected:
    def test_epsilon_greedy_by_hand(self):
        rewards = (richobs.Rewards.deterministic([[[0.0]]]), richobs.Rewards.deterministic([[[0.8]]]))
        process = richobs.TabularProcess(np.ones(1), (np.zeros((1, 1), dtype=int),), (np.eye(1),) * 2, rewards)
        tables = EpsilonGreedyTables(process, runs=2)
        train(Lanes(process, 2), tables, 1, keyed_generator(0))
        assert [q.tolist() for q in tables.q] == [[[[0.8]], [[0.8]]]] * 2  # one episode reaches the root

    def test_epsilon_greedy_explores_as_often_as_it_says(self):
        process = richobs.make("mdp/1", n_actions=4).process
        tables = EpsilonGreedyTables(process, explore=0.2, runs=40_000)
        tables.q[0][:, :, 2] = 1.0
        actions = Lanes(process, 40_000).play(tables.policy, keyed_generator(0, "explore")).actions[0]
        low, high = binomial_interval(int((actions != 2).sum()), 40_000, 0.999)
        assert low <= 0.2 * 3 / 4 <= high

    def test_ties_are_broken_at_random(self):
        process = richobs.make("mdp/1", n_actions=4).process
        tables = EpsilonGreedyTables(process, explore=0.0, runs=4000)
        actions = Lanes(process, 4000).play(tables.policy, keyed_generator(0, "ties")).actions[0]
        assert np.bincount(actions).min() > 850

    def test_lanes_act_and_learn_each_by_their_own_table(self):
        process = richobs.make("mdp/1", n_actions=3).process
        tables = EpsilonGreedyTables(process, explore=0.0, runs=3)
        for lane in range(3):
            tables.q[0][lane, :, lane] = 2.0
        played = Lanes(process, 3).play(tables.policy, keyed_generator(0, "lanes"))
        assert played.actions[0].tolist() == [0, 1, 2]
        tables.learn(played)
        np.testing.assert_array_equal(tables.q[0][:, 0], np.diag(played.rewards[0]))

    def test_one_table_knows_the_law_of_what_it_plays(self):
        process = bandit([[0.5] * 3, [0.5] * 3])
        tables = EpsilonGreedyTables(process, explore=0.3)
        tables.q[0][0] = [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
        law = process.action_law(tables.policy, 0)
        np.testing.assert_allclose(law, [[0.45, 0.45, 0.1], [0.1, 0.1, 0.8]])

    def test_values_of_lanes_are_exact(self):
        problem = richobs.make("lock/3", noise_bits=2)
        lanes, tables = Lanes(problem.process, 3), EpsilonGreedyTables(problem.process, runs=3)
        rng = keyed_generator(0, "values")
        for q in tables.q:
            q += rng.random(q.shape)
        for lane, value in enumerate(lanes.values(tables)):
            policy = LearnedPolicy.from_table(
                problem.process.codebooks, [q[lane].argmax(axis=1) for q in tables.q], n_actions=4
            )
            assert value == pytest.approx(problem.process.value(policy))

    def test_tied_tables_are_worth_what_random_play_is(self):
        process = richobs.make("lock/3", noise_bits=0).process
        tied = [np.zeros((1, 3, 4))] * 3
        assert greedy_values(process, tied) == pytest.approx([0.5 * 0.5**3])

    @pytest.mark.parametrize("world", ["mdp/3", "lock/4,noise_bits=0"])
    def test_both_learn_where_little_exploration_is_needed(self, world):
        problem = richobs.make(world)
        good = problem.optimal_value - 0.1
        lanes, tables = Lanes(problem.process, 20), EpsilonGreedyTables(problem.process, runs=20)
        train(lanes, tables, 1500, keyed_generator(0, "undirected"))
        assert lanes.episodes == 1500
        assert (lanes.values(tables) >= good).mean() > 0.8
        episodes = uniform_exploration(
            counting(problem.process),
            problem.process,
            [1, 10, 100, 1000, 10_000],
            lambda q: greedy_values(problem.process, [t[None] for t in q])[0] >= good,
        )
        assert episodes in (10, 100, 1000, 10_000)

    def test_uniform_exploration_knows_what_it_tried(self):
        process = bandit([[0.3, 0.3, 0.3]], deterministic=True)
        seen = []
        uniform_exploration(counting(process), process, [1], lambda q: seen.append(q) or False)
        assert sorted(seen[0][0].ravel()) == [0.0, 0.0, 0.3]

    def test_uniform_exploration_says_when_it_failed(self):
        process = richobs.make("mdp/2").process
        assert uniform_exploration(counting(process), process, [1, 2], lambda q: False) is None


class TestRounds:
    def test_progress_is_told_when_episodes_grew_by_a_sixteenth_and_every_thousand(self):
        process = bandit([[0.5, 0.5]])
        engine, told = counting(process), []
        rounds = Rounds(engine, told.append)
        for episode in range(1, 5001):
            engine.ledger.charge("search", "episode", (), 1)
            rounds.add(1, float(episode % 2), lambda: "played")
        rounds.close("done")
        at = [p.episodes for p in told]
        assert at[:35] == [*range(1, 33), 34, 36, 38]
        assert at[-7:] == [3597, 3821, 4000, 4250, 4515, 4797, 5000]
        assert [p.event.n for p in told][-3:] == [265, 282, 203]
        assert sum(p.event.n for p in told) == 5000
        assert told[32].event.sentence == "34 episodes, 0.5000 earned on average: played"
        assert told[0].event.sentence == "1 episode, 1.0000 earned on average: played"

    def test_what_is_left_is_told_at_the_end(self):
        engine, told = counting(bandit([[0.5, 0.5]])), []
        rounds = Rounds(engine, told.append)
        for n in (64, 2):
            engine.ledger.charge("search", "batch", (), n)
            rounds.add(n, 1.5, lambda: "played")
        assert len(told) == 1
        rounds.close("done")
        assert told[1] == Progress(RoundPlayed(phase="search", n=2, episodes=66, mean=0.75, what="done"), 66)
        assert EVENTS["rival round"] is RoundPlayed
        assert from_plain(to_plain(told[1].event)).sentence == "66 episodes, 0.7500 earned on average: done"


class TestLatentStates:
    def test_both_readers_see_the_same_states(self):
        problem = richobs.make("lock/4,noise_bits=2,n_actions=3")
        played = problem.env.play(Uniform(3), 200, keyed_generator(0, "readers"))
        shown, replayed = ShownStates(problem.process), ReplayedStates(known_moves(problem), 3)
        assert isinstance(find_reader(problem), ShownStates)
        for one, other in zip(shown.states(played), replayed.states(played), strict=True):
            np.testing.assert_array_equal(one, other)
        assert {int(s) for s in shown.states(played)[3]} == {0, 1, 2}

    def test_the_world_tells_its_transitions_where_observations_cannot_be_listed(self):
        listed, long = richobs.make("lock/5,noise_bits=3"), richobs.make("lock/5,noise_bits=30")
        assert long.process is None
        assert isinstance(find_reader(long), ReplayedStates)
        assert known_moves(listed).start == known_moves(long).start
        for one, other in zip(known_moves(listed).next, known_moves(long).next, strict=True):
            np.testing.assert_array_equal(one, other)

    def test_a_policy_of_states_is_the_same_saved(self):
        problem = richobs.make("lock/4,noise_bits=2,swap=0.3")
        reader = find_reader(problem)
        best = [q[:, 0].argmax(axis=1) for q in richobs.make("lock/4,noise_bits=0,swap=0.3").process.optimum.q]
        assert problem.value(reader.saved(best)) == pytest.approx(problem.optimal_value)
        assert problem.value(reader.saved([0 * b for b in best])) < problem.optimal_value
        assert problem.process.value(reader.acting(best)) == pytest.approx(problem.optimal_value)


class TestLatentQ:
    def test_the_update_by_hand(self):
        tables = LatentQTables((1, 2), 2, step=0.5, c=0.1)
        tables.q[1, 1] = [0.4, 0.2]
        tables.learn(np.array([0, 1]), np.array([1, 0]), np.array([0.0, 0.1]))
        bonus = 0.1 * math.sqrt(2)
        assert tables.q[0, 0].tolist() == [
            1.0,
            pytest.approx(0.5 * 1 + 0.5 * (0.4 + bonus)),
        ]  # the old value of level 1
        assert tables.q[1, 1].tolist() == [pytest.approx(0.5 * 0.4 + 0.5 * (0.1 + bonus)), 0.2]
        tables.learn(np.array([0, 1]), np.array([1, 0]), np.array([1.0, 1.0]))
        assert tables.q[0, 0, 1] == 1.0  # cut

    def test_it_needs_as_many_episodes_as_its_authors_report(self):
        """About 600 at H = 5, K = 4 until the running mean is above half of V*; a factor of 1.5 is allowed."""

        def episodes(seed):
            problem = richobs.make(f"lock/5,noise_bits=5,n_actions=4,seed={seed}")
            earned = []
            tables, engine = LatentQTables((3,) * 5, 4, 0.1, 0.01), streaming(problem, seed)
            reader = ReplayedStates(known_moves(problem), 4)
            learn = tables.learn
            tables.learn = lambda s, a, r: (earned.append(r.sum()), learn(s, a, r))
            latent_q(engine, reader, tables, 900, seed=seed)
            mean = np.cumsum(earned) / np.arange(1, 901)
            assert engine.ledger.total == 900
            return 30 + int((mean[30:] >= 0.25).argmax())

        assert 400 <= np.mean([episodes(seed) for seed in range(2)]) <= 900

    def test_it_says_what_it_is_shown_and_claims_nothing(self):
        problem = richobs.make("lock/3,noise_bits=2")
        outcome = run(problem, Settings(learner="latent-q", tuning=("episodes=300",)))
        assert problem.value(outcome.policy) == problem.optimal_value
        assert (outcome.guaranteed, outcome.reason) == (False, StopReason.BUDGET_SPENT)
        assert "THE LATENT STATE" in richobs.learners.learner("latent-q").given[0]


class TestBpiUcrl:
    def test_the_radius_by_hand(self):
        visits = np.array([0.0, 1.0, 100.0])
        found = radius(visits, 3, 0.1)
        assert math.isinf(found[0])
        # log 10 + 2 log(e (1 + 100/2)) = 2.302585 + 2 (1 + 3.931826) = 12.166236
        assert found[2] == pytest.approx(0.12166236)
        assert radius(visits, 1, 0.1).tolist() == [0.0, 0.0, 0.0]

    def test_the_ball_between_two_points_is_that_of_a_coin(self):
        p, budget = np.array([0.0, 0.1, 0.5, 1.0]), np.array([0.05, 0.01, 0.2, 0.1])
        found = ball_upper(np.stack([p, 1 - p], axis=1), np.array([1.0, 0.0]), budget)
        exact = kl_upper(p, budget)
        assert (found >= exact - 1e-9).all()
        np.testing.assert_allclose(found, exact, atol=2e-3)
        assert ball_upper(np.array([0.3, 0.7]), np.array([0.2, 0.6]), np.array(np.inf)) == 0.6

    def test_no_law_in_the_ball_exceeds_the_bound(self):
        rng = keyed_generator(0, "ball")
        law, values, budget = rng.dirichlet(np.ones(4)), rng.random(4), 0.07
        others = rng.dirichlet(np.ones(4), 20_000)
        inside = (law * np.log(law / others)).sum(axis=1) <= budget
        bound = float(ball_upper(law, values, np.array(budget)))
        assert inside.sum() > 100
        assert (others[inside] @ values).max() <= bound
        assert (others[inside] @ values).max() >= bound - 0.05

    @pytest.mark.parametrize("stochastic", [False, True])
    def test_bounds_hold_and_meet(self, stochastic):
        for seed in range(2):
            problem = richobs.make(MDP, stochastic=stochastic, seed=seed)
            learned, bounds = bpi_ucrl(counting(problem.process, seed), problem.process, epsilon=0.3, delta=0.05)
            assert learned.finished
            assert bounds.best - bounds.sure <= 0.3
            assert bounds.sure <= problem.optimal_value <= bounds.best
            for upper, lower, q in zip(bounds.upper, bounds.lower, problem.process.q_tables, strict=True):
                assert (lower <= q + 1e-9).all()
                assert (q <= upper + 1e-9).all()

    def test_bounds_from_too_small_balls_fail(self, monkeypatch):
        monkeypatch.setattr(bpi_module, "radius", lambda visits, support, delta: np.full(visits.shape, 1e-4))
        wrong = 0
        for seed in range(4):
            problem = richobs.make(MDP, stochastic=True, seed=seed)
            _, bounds = bpi_ucrl(counting(problem.process, seed), problem.process, epsilon=0.3, delta=0.05)
            wrong += not bounds.sure <= problem.optimal_value <= bounds.best
        assert wrong >= 2

    def test_bounds_allow_for_moves_that_were_not_seen(self):
        model = EmpiricalModel(richobs.make(MDP).process)
        model.visits[0][:], model.moves[0][:] = [[50, 0]], [[[50, 0], [0, 0]]]
        model.visits[1][0, 0], model.rewards[1][0, 0] = 10**6, 0.4 * 10**6  # the other state was never seen
        bounds = plan_bounds(model, 0.1)
        first, good = bounds.lower[0][0, 0], bounds.lower[1][0, 0]
        assert good == pytest.approx(0.4, abs=0.01)
        stays = math.exp(-float(radius(np.array(50.0), 2, 0.1 / 13)))  # P = 6 pairs, 13 shares
        assert first == pytest.approx(stays * good, abs=2e-3)
        assert stays < 0.85

    def test_what_was_never_seen_may_be_anything(self):
        process = richobs.make(MDP).process
        bounds = plan_bounds(EmpiricalModel(process), 0.1)
        assert (bounds.best, bounds.sure) == (1.0, 0.0)


class TestEprl:
    def test_a_pair_goes_when_its_best_path_is_surely_worse(self):
        moves = moves_of(two_paths(0.9, 0.1))
        known = PairRewards(moves, 2, 0.1)
        assert known.pairs == 6
        for level, sums in ((0, np.zeros((1, 2))), (1, np.array([[900.0, 900.0], [100.0, 100.0]]))):
            known.visits[level][:] = 1000
            known.sums[level][:] = sums
        known.drop()
        assert [a.tolist() for a in known.active] == [[[True, False]], [[True, True], [False, False]]]
        known.sums[1][0, 1] = 880.0  # too close to be told apart from 900
        known.drop()
        assert known.left == 3

    def test_what_was_earned_on_the_way_to_a_pair_counts(self):
        known = PairRewards(moves_of(two_paths(0.9, 0.1)), 2, 0.1)
        for level, sums in ((0, np.array([[500.0, 500.0]])), (1, np.full((2, 2), 300.0))):
            known.visits[level][:] = 1000
            known.sums[level][:] = sums
        known.drop()
        assert known.left == 6  # each path earns 0.8, and no pair does alone

    def test_the_first_paths_cover_everything_once(self):
        process = two_paths(0.9, 0.1)
        engine = counting(process, max_episodes=4)
        found = eprl(engine, moves_of(process), 2, epsilon=0.2, delta=0.05)
        assert not found.finished
        assert engine.ledger.by("path") == {(str(p),): (1, 1) for p in [(0, 0), (0, 1), (1, 0), (1, 1)]}

    def test_the_next_path_covers_most(self):
        moves = known_moves(richobs.make("lock/3,noise_bits=0,n_actions=2"))
        everything = [np.ones((3, 2), dtype=bool)] * 3
        gains = [np.zeros((3, 2)) for _ in range(3)]
        state = moves.start
        for level, action in enumerate((1, 0, 1)):
            gains[level][state, action] = 1.0
            state = int(moves.next[level][state, action]) if level < 2 else state
        assert best_path(moves, gains, everything) == ((1, 0, 1), 3.0)

    def test_it_finds_the_best_path_with_visits_spread_evenly(self):
        process = two_paths(0.9, 0.1)
        engine = counting(process)
        found = eprl(engine, moves_of(process), 2, epsilon=0.2, delta=0.05)
        assert found.finished
        assert found.path[0] == 0
        assert abs(found.value_hat - 0.9) <= 0.2
        played = engine.ledger.by("path")
        bad = sum(n for (path,), (_, n) in played.items() if path.startswith("(1"))
        assert 0 < bad < engine.ledger.total / 3  # dropped early

    def test_intervals_that_are_too_narrow_lose_the_best_path(self, monkeypatch):
        process = two_paths(0.6, 0.4)
        moves = moves_of(process)
        right = [eprl(counting(process, seed), moves, 2, epsilon=0.1, delta=0.1).path[0] == 0 for seed in range(2)]
        assert all(right)
        monkeypatch.setattr(eprl_module, "kl_upper", lambda mean, rate: np.minimum(mean + 1e-9, 1.0))
        wrong = [eprl(counting(process, seed), moves, 2, epsilon=1e-9, delta=0.1).path[0] == 1 for seed in range(8)]
        assert any(wrong)


class TestSparseSampling:
    def test_sizes_by_hand(self):
        assert n_nodes(3, 2) == 14
        # lambda = 0.5 / 4: (2 log(2 * 64) + log 8) * 64 = 754.1
        assert printed_samples(1, 2, 0.5) == 755
        assert enough_visits(14, 3, 0.3, 0.05) == 1266  # log(560) / (2 * 0.05^2)

    def test_every_node_is_sampled_once_and_the_best_path_wins(self):
        process = two_paths([0.2, 0.8], 0.5)
        engine = counting(process)
        path, value, stopped = sparse_sampling(engine, 2, 2, 400)
        assert stopped is None
        assert path == (0, 1)
        assert value == pytest.approx(0.8, abs=0.1)
        assert engine.ledger.by("path") == {(str(p),): (1, 400) for p in [(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)]}

    def test_the_lock_is_opened_at_the_price_of_the_tree(self):
        problem = richobs.make("lock/3,noise_bits=30,n_actions=2")
        outcome = run(problem, Settings(learner="sparse-sampling", epsilon=0.4))
        assert outcome.episodes == 14 * enough_visits(14, 3, 0.4, 0.05)
        assert outcome.guaranteed
        assert problem.value(outcome.policy) == problem.optimal_value


class TestTrajectoryTrees:
    def test_episodes_by_hand(self):
        assert enough_episodes(16, 4, 0.3, 0.05) == 2413  # 8 * 1.05 / 0.0225 * log(640)

    def test_weighted_returns_by_hand(self):
        tables = [np.array([[[1.0, 0.0]], [[0.0, 1.0]]])] * 2  # action 0 or 1, whatever is seen
        functions = richobs.Layered([richobs.classes.tables.TableLevel(t) for t in tables])
        played = Episodes(
            (np.zeros(3, dtype=int),) * 2,
            (np.array([0, 1, 0]), np.array([1, 1, 0])),
            (np.array([0.5, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])),
        )
        assert members_of(functions) == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert weighted_returns(functions, played, 2).tolist() == [0.0, 2.0, 0.0, 4.0]
        ended = Episodes(*(getattr(played, n) for n in ("observations", "actions", "rewards")))
        object.__setattr__(ended, "ended", (np.zeros(3, dtype=bool), np.array([True, False, False])))
        assert weighted_returns(functions, ended, 2).tolist() == [1.0, 1.0, 0.0, 4.0]

    def test_estimates_of_all_policies_are_as_accurate_as_promised(self):
        problem = richobs.make(MDP, stochastic=True)
        members = members_of(problem.functions)
        n = enough_episodes(len(members), 4, 0.3, 0.05)
        played = problem.env.play(Uniform(2), n, keyed_generator(0, "trees"))
        found = weighted_returns(problem.functions, played, 2) / n
        true = [float(problem.value(richobs.LearnedPolicy(problem.functions, m))) for m in members]
        np.testing.assert_allclose(found, true, atol=0.15)
        assert np.ptp(true) > 0.1

    def test_it_needs_no_deterministic_transitions(self):
        problem = richobs.make(MDP, stochastic=True)
        outcome = run(problem, Settings(learner="trajectory-trees", epsilon=0.3))
        assert outcome.guaranteed
        assert outcome.episodes == 2413
        assert problem.optimal_value - problem.value(outcome.policy) <= 0.3


class TestEpochGreedy:
    def test_the_schedule_by_hand(self):
        assert [exploitation(n, 2, 20) for n in (1, 47, 48, 191, 192, 4800)] == [0, 0, 1, 1, 2, 10]  # 16 log 20 = 47.93

    def test_it_learns_a_bandit_and_plays_what_it_was_told(self):
        problem = richobs.make("bandit,n_contexts=4,n_actions=3,class_size=20")
        outcome = run(problem, Settings(learner="epoch-greedy", tuning=("episodes=1500",)))
        assert outcome.episodes == 1500
        assert not outcome.guaranteed
        spent = {purpose: n for (purpose,), (_, n) in outcome.ledger.by("purpose").items()}
        explored = spent["exploration"]
        assert spent["exploitation"] + explored == 1500
        assert sum(exploitation(n, 3, 20) for n in range(1, explored)) <= spent["exploitation"]
        assert problem.optimal_value - problem.value(outcome.policy) <= 0.1


class TestE3:
    def test_both_plans_by_hand(self):
        model = EmpiricalModel(richobs.make(MDP).process)
        model.visits[0][:], model.rewards[0][:] = [[4, 4]], [[1.0, 0.0]]
        model.moves[0][:] = [[[4, 0], [1, 3]]]
        model.visits[1][:], model.rewards[1][:] = [[4, 5], [4, 3]], [[2.0, 1.0], [4.0, 3.0]]
        plans = two_plans(model, 4)  # the second state of level 1 is not known
        np.testing.assert_allclose(plans.exploit[0], [[0.75, 0.125]])
        np.testing.assert_allclose(plans.exploit[1], [[0.5, 0.2], [0.0, 0.0]])
        np.testing.assert_allclose(plans.explore[0], [[0.0, 0.75]])
        assert plans.explore[1].argmax(axis=1).tolist() == [0, 1]  # the least tried action
        assert (plans.chance, plans.worth) == (0.75, 0.75)
        known = two_plans(model, 3)
        assert known.chance == 0.0
        np.testing.assert_allclose(known.exploit[0], [[0.75, 0.125 + 0.75]])

    def test_it_stops_when_nothing_unknown_is_left_and_the_policy_is_good(self):
        for seed in range(6):
            problem = richobs.make("mdp/3,n_states=3,n_actions=2", seed=seed)
            m = enough_visits(14, 3, 0.2, 0.05)
            engine = counting(problem.process, seed)
            learned = e3(engine, problem.process, m, 0.05)
            assert learned.finished
            policy = greedy_policy(problem.process, learned.values)
            assert problem.optimal_value - problem.value(policy) <= 0.2
            assert learned.episodes == engine.ledger.total <= 14 * m


class TestUcfh:
    def test_optimistic_laws_by_hand(self):
        low, high = np.array([[0.1, 0.2, 0.3], [0.0, 0.0, 0.0]]), np.array([[0.6, 0.5, 0.9], [1.0, 1.0, 1.0]])
        # 0.4 is free: all of it goes to the first state; in the second row everything does
        np.testing.assert_allclose(optimistic_mean(low, high, np.array([1.0, 0.5, 0.0])), [0.5 + 0.1, 1.0])
        np.testing.assert_allclose(optimistic_mean(low, high, np.array([0.0, 0.5, 1.0])), [0.7 + 0.1, 1.0])

    def test_its_values_are_upper_bounds_and_its_policy_is_good(self):
        for seed in range(3):
            problem = richobs.make(MDP, stochastic=True, seed=seed)
            learned = ucfh(counting(problem.process, seed), problem.process, 8.0, 40_000)
            assert learned.episodes == 40_000
            for upper, q in zip(learned.values, problem.process.q_tables, strict=True):
                assert (upper >= q - 1e-9).all()
            policy = greedy_policy(problem.process, learned.values)
            assert problem.optimal_value - problem.value(policy) <= 0.05
        assert all((v == 1).all() for v in optimistic_values(EmpiricalModel(problem.process), 8.0))


class TestStableBaselines:
    def test_without_the_package_it_says_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "stable_baselines3", None)
        with pytest.raises(InvalidInput, match=r"pip install 'richobs\[sb3\]'"):
            prepare(richobs.make(MDP), Settings(learner="sb3-dqn"))

    def test_a_network_sees_the_observation_and_the_level(self):
        problem = richobs.make("lock/3,noise_bits=30")
        played = problem.env.play(Uniform(4), 2, keyed_generator(0, "reading"))
        reading = Reading(problem, played)
        seen = reading.steps(played).reshape(2, 3, 36)
        np.testing.assert_array_equal(seen[1, 2, :33], played.observations[2][1])
        np.testing.assert_array_equal(seen[:, :, 33:], np.broadcast_to(np.eye(3), (2, 3, 3)))
        numbers = richobs.make(MDP)
        few = numbers.env.play(Uniform(2), 1, keyed_generator(0, "reading"))
        assert Reading(numbers, few).width == 2
        assert Reading(numbers, few)(1, np.array([1, 0]))[:, :2].tolist() == [[0.0, 1.0], [1.0, 0.0]]

    def test_ppo_plays_whole_rounds(self):
        assert [Sb3Ppo().together(H) for H in (1, 2, 5, 3000)] == [2048, 1024, 410, 1]
        plan = Sb3Ppo().plan(richobs.make("lock/5"), Settings(learner="sb3-ppo", tuning=("episodes=1000",)))
        assert plan.max_episodes == 1 + 3 * 410

    @pytest.mark.parametrize("bits", [2, 30])
    def test_the_saved_policy_does_what_the_network_does(self, bits):
        torch = pytest.importorskip("torch")
        problem = richobs.make(f"lock/3,noise_bits={bits}")
        played = problem.env.play(Uniform(4), 50, keyed_generator(0, "saved"))
        reading = Reading(problem, played)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            layers = [torch.nn.Linear(reading.width + 3, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4, bias=False)]
            layers[0].weight.data *= 10
        policy = reading.saved(layers, 4)
        with torch.no_grad():
            actions = torch.nn.Sequential(*layers)(torch.as_tensor(reading.steps(played))).argmax(dim=1).numpy()
        for level, x in enumerate(played.observations):
            np.testing.assert_array_equal(policy.actions(level, x), actions.reshape(50, 3)[:, level])
        assert len(set(actions.tolist())) > 1

    @pytest.mark.parametrize(("name", "episodes", "gap"), [("sb3-dqn", 200, 1.0), ("sb3-ppo", 2049, 0.1)])
    def test_the_ledger_counts_every_episode_and_global_generators_stay(self, name, episodes, gap):
        pytest.importorskip("stable_baselines3")
        problem = richobs.make("bandit,n_contexts=4,n_actions=3,class_size=20")
        before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002 (looked at, not drawn from)
        outcome = run(problem, Settings(learner=name, tuning=(f"episodes={episodes}",)))
        assert outcome.episodes == episodes
        assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002 (looked at, not drawn from)
        assert problem.optimal_value - problem.value(outcome.policy) <= gap
        assert not outcome.guaranteed


def test_what_plans_say_by_hand():
    problem, asked = richobs.make(MDP), Settings(epsilon=0.3, delta=0.05)
    assert UniformAllocation().plan(problem, asked).max_episodes == 4 * 226  # 4 / 0.09 log(160) = 225.6
    first, second = (math.ceil(4 / e**2 * math.log(3 / d)) for e, d in ((0.075, 0.025), (0.05625, 0.0125)))
    assert MedianElimination().plan(problem, asked).max_episodes == 4 * first + 2 * second
    rounds = SuccessiveElimination().plan(problem, asked).max_episodes / 4
    assert 2 * math.sqrt(math.log(320 * rounds**2) / rounds) <= 0.3
    assert 2 * math.sqrt(math.log(320 * (0.9 * rounds) ** 2) / (0.9 * rounds)) > 0.3
    assert Rmax().plan(problem, asked).as_json() == {"max_episodes": 6 * 488, "pairs": 6, "visits": 488}
    assert DelayedQ().plan(problem, asked).as_json()["epsilon_1"] == pytest.approx(0.3 / 18)
    random_moves = richobs.make(f"{MDP},stochastic=True")  # these need the printed visits
    assert Rmax().plan(random_moves, asked).as_json() == {"max_episodes": None, "pairs": 6, "visits": 512_001}
    printed = Settings(epsilon=0.3, delta=0.05, tuning=("visits=printed",))
    assert Rmax().visits(problem, printed) == 512_001  # (4 * 3 * 2 / 0.3)^3 + 1


@pytest.mark.parametrize(
    ("name", "world", "why"),
    [
        ("ucb-q", "lock/3,noise_bits=20", "'ucb-q' needs a process that is written down"),
        ("rmax", "lock/3,noise_bits=1", "needs observations that are the states"),
        ("regressor-elimination", "mdp/2", "needs a contextual bandit, one level and one state"),
        ("epoch-greedy", "mdp/2", "needs one level: mdp/2"),
        ("median-elimination", "lock/11,n_actions=4", "needs at most 1,000,000 action sequences: .* 4.11"),
        ("latent-q", "lock/5,noise_bits=30,swap=0.5", "needs latent states"),
        ("eprl", "lock/5,noise_bits=30,swap=0.5", "needs deterministic transitions"),
        ("sparse-sampling", "lock/30", "a tree of at most 100,000 nodes"),
        ("sparse-sampling", "lock/3,swap=0.5", "deterministic transitions"),
    ],
)
def test_what_a_learner_cannot_serve_is_refused_with_the_reason(name, world, why):
    with pytest.raises(InvalidInput, match=why):
        prepare(richobs.make(world), Settings(learner=name))


def test_arms_need_no_process():
    problem = richobs.make("lock/2,noise_bits=20,n_actions=2")
    assert problem.process is None
    outcome = run(problem, Settings(learner="median-elimination", epsilon=0.45, delta=0.2))
    assert problem.optimal_value - problem.value(outcome.policy) <= 0.45


def test_steps_without_next_observations_add_up():
    x = np.zeros((2, 3), dtype=np.int8)
    one = Steps.of(x, np.array([0, 1]), np.array([0.5, 1.0]), None, 2)
    both = one + one
    assert both.rewards.tolist() == [[1.0, 2.0]]
    assert len(distinct(x[:0])[0]) == 0

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
from richobs.core.ledger import Ledger
from richobs.core.moments import Steps, distinct
from richobs.core.policies import Uniform
from richobs.core.process import TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.core.settings import Settings
from richobs.runs.prepare import prepare
from richobs.runs.session import run
from richobs.stats.bets import kl_upper
from richobs.worlds.simulator import TabularWorld, WorldEnvironment
from richobs_lab.counted import CountedEngine
from richobs_lab.intervals import binomial_interval
from richobs_lab.paper.rigs.lanes import Lanes, greedy_values, train
from richobs_lab.rivals.arms import Pulled, Scores
from richobs_lab.rivals.bpi_ucrl import ball_upper, bpi_ucrl, plan_bounds, radius
from richobs_lab.rivals.delayed_q import DelayedQ, delayed_q, delayed_q_visits
from richobs_lab.rivals.e3 import e3, two_plans
from richobs_lab.rivals.epoch_greedy import exploitation
from richobs_lab.rivals.eprl import Rewards as PairRewards
from richobs_lab.rivals.eprl import best_path
from richobs_lab.rivals.epsilon_greedy import EpsilonGreedyTables
from richobs_lab.rivals.latent_q import LatentQTables
from richobs_lab.rivals.latent_states import ReplayedStates, ShownStates, find_reader, known_moves
from richobs_lab.rivals.median_elimination import MedianElimination, median_elimination
from richobs_lab.rivals.regressor_elimination import exploring_distribution, regressor_elimination
from richobs_lab.rivals.rival_events import Rounds
from richobs_lab.rivals.rmax import Rmax, enough_visits, printed_visits, rmax
from richobs_lab.rivals.sparse_sampling import n_nodes, printed_samples, sparse_sampling
from richobs_lab.rivals.stable_baselines import Reading, Sb3Ppo
from richobs_lab.rivals.successive_elimination import SuccessiveElimination, successive_elimination
from richobs_lab.rivals.tabular import EmpiricalModel, n_pairs
from richobs_lab.rivals.trajectory_trees import enough_episodes, members_of, weighted_returns
from richobs_lab.rivals.ucb_q import UcbQTables
from richobs_lab.rivals.ucfh import optimistic_mean, optimistic_values, ucfh
from richobs_lab.rivals.uniform_allocation import UniformAllocation, uniform_allocation

MDP = "mdp/2,n_states=2,n_actions=2,class_size=4"


class Coins:
    """Bernoulli arms."""

    def __init__(self, means):
        self.means = np.asarray(means)
        self.n_arms = len(self.means)

    def pull(self, which, times, rng, /):
        return Pulled(np.full(len(which), times), rng.binomial(times, self.means[which]).astype(float))


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


def moves_of(process):
    """The transitions of a process, as rivals are told them."""
    env, nothing = WorldEnvironment(TabularWorld(process)), constant_class(process)
    return known_moves(richobs.Problem(env, nothing, process))


def two_paths(good, bad):
    """One decision between two states: the first pays `good`, the second `bad`, a number or one for each action."""
    pays = richobs.Rewards.bernoulli(np.stack([np.broadcast_to(good, (2, 2)), np.broadcast_to(bad, (2, 2))]))
    nothing = richobs.Rewards.deterministic(np.zeros((1, 1, 2)))
    return TabularProcess(np.ones(1), (np.array([[0, 1]]),), (np.ones((1, 1)), np.eye(2)), (nothing, pays))


# 4 / (eps/4)^2 log(3 / delta) at (0.4, 0.2), (0.3, 0.1) and (0.225, 0.05), of 5, then 3, then 2 arms
HALVED = 5 * 1361 + 3 * 2912 + 2 * 6053


class TestBestArm:
    @pytest.mark.parametrize(
        ("means", "method", "good", "delta", "pulls", "runs"),
        [
            ([0.5, 0.7, 0.5, 0.5, 0.62], lambda c, r: uniform_allocation(c, 5 * 819, r), (1, 4), 0.1, 5 * 819, 50),
            ([0.1, 0.4, 0.9], lambda c, r: successive_elimination(c, 0.1, r), (2,), 0.1, None, 100),
            ([0.3, 0.8, 0.3, 0.3, 0.3], lambda c, r: median_elimination(c, 0.4, 0.2, r), (1,), 0.2, HALVED, 30),
        ],
        ids=["uniform", "successive", "median"],
    )
    def test_methods_are_pac_and_pull_as_often_as_they_say(self, means, method, good, delta, pulls, runs):
        def attempt(seed):
            choice = method(Coins(means), keyed_generator(seed, "arms"))
            assert choice.finished
            assert pulls in (None, choice.pulls)
            return choice.arm in good

        assert rate_of_failure(attempt, runs) <= delta

    def test_rounds_that_grow_add_up(self):
        scores = Scores(Coins([0.5] * 5), None, keyed_generator(0, "rounds"))
        assert scores.pull_in_rounds(np.array([1, 3]), 21)  # 1, 3, 12 and 5
        assert scores.pulls.tolist() == [0, 21, 0, 21, 0]

    def test_successive_elimination_ends_among_equal_arms_when_they_are_good_enough(self):
        equal = Coins([0.5, 0.5])
        choice = successive_elimination(equal, 0.1, keyed_generator(0, "se"), epsilon=0.5)
        # 2 sqrt(log(4 * 2 * t^2 / 0.1) / t) <= 0.5 from t = 247 on: log(80 * 247^2) / 247 = 0.06235, at 246 it is 0.06257
        assert (choice.pulls, choice.finished) == (2 * 247, True)


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

    def test_the_margin_keeps_the_truth_in_a_class_that_can_fit_the_noise(self):
        """Every function but the truth is off by 0.1 up or down at each of ten (context, action) pairs: 1,024 of them.

        One of them fits the noise at all ten, and so much better than the truth that a small margin loses the truth.
        """
        process = bandit(np.full((5, 2), 0.5))
        signs = np.stack(np.unravel_index(np.arange(1024), (2,) * 10), axis=1).reshape(1024, 5, 2) * 2 - 1
        tables = np.concatenate([np.full((1, 5, 2), 0.5), 0.5 + 0.1 * signs])
        for seed in range(8):
            engine = counting(process, seed)
            end = regressor_elimination(engine, process, tables, epsilon=1e-6, delta=0.1, max_rounds=300)
            assert end.survivors[0], seed


class TestCounts:
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


def gap(problem, learned):
    policy = LearnedPolicy.from_table(problem.process.codebooks, learned.policy, n_actions=problem.n_actions)
    return problem.optimal_value - problem.process.value(policy)


@pytest.mark.parametrize(
    ("method", "stochastic", "runs", "epsilon"),
    [
        (lambda e, p: rmax(e, p, printed_visits(7, 2, 3, 0.1, 0.05)), False, 8, 0.1),
        (lambda e, p: rmax(e, p, printed_visits(7, 2, 3, 0.1, 0.05)), True, 3, 0.1),
        (lambda e, p: delayed_q(e, p, *delayed_q_visits(n_pairs(p), 3, 0.1, 0.05)), False, 8, 0.1),
        (lambda e, p: e3(e, p, enough_visits(14, 3, 0.2, 0.05), 0.05), False, 6, 0.2),
        (lambda e, p: ucfh(e, p, 8.0, 40_000), True, 2, 0.05),
    ],
    ids=["rmax", "rmax, random moves", "delayed-q", "e3", "ucfh"],
)
def test_tabular_methods_learn(method, stochastic, runs, epsilon):
    for seed in range(runs):
        problem = richobs.make("mdp/3", seed=seed, stochastic=stochastic, n_states=3, n_actions=2)
        engine = counting(problem.process, seed)
        learned = method(engine, problem.process)
        assert learned.finished
        assert learned.episodes == engine.ledger.total
        assert gap(problem, learned) <= epsilon


class TestTabular:
    def test_sample_sizes_by_hand(self):
        assert printed_visits(2, 2, 1, 0.5, 0.1) == 4097  # (4 * 2 * 1 / 0.5)^3 + 1
        assert printed_visits(1, 10, 1, 1.0, 1e-3) == 14_132  # -6 log^3(1e-3 / 600) + 1, larger than 4^3
        assert enough_visits(10, 2, 0.2, 0.05) == 1199  # log(400) / (2 * 0.05^2)
        assert enough_visits(10, 2, 0.2, 0.05, top=0.5) == 300
        m, epsilon_1 = delayed_q_visits(4, 2, 0.9, 0.1)
        assert epsilon_1 == pytest.approx(0.05)
        assert m == 1837  # log(3 * 4 * 81 / 0.1) / 0.005 = 1836.4

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


class TestUndirected:
    def test_epsilon_greedy_by_hand(self):
        rewards = (richobs.Rewards.deterministic([[[0.0]]]), richobs.Rewards.deterministic([[[0.8]]]))
        process = richobs.TabularProcess(np.ones(1), (np.zeros((1, 1), dtype=int),), (np.eye(1),) * 2, rewards)
        tables = EpsilonGreedyTables(process, runs=2)
        train(Lanes(process, 2), tables, 1, keyed_generator(0))
        assert [q.tolist() for q in tables.q] == [[[[0.8]], [[0.8]]]] * 2  # one episode reaches the root

    def test_lanes_act_and_learn_each_by_their_own_table(self):
        process = richobs.make("mdp/1", n_actions=3).process
        tables = EpsilonGreedyTables(process, explore=0.0, runs=3)
        for lane in range(3):
            tables.q[0][lane, :, lane] = 2.0
        played = Lanes(process, 3).play(tables.policy, keyed_generator(0, "lanes"))
        assert played.actions[0].tolist() == [0, 1, 2]
        tables.learn(played)
        np.testing.assert_array_equal(tables.q[0][:, 0], np.diag(played.rewards[0]))

    def test_values_of_lanes_are_exact(self):
        problem = richobs.make("lock/3", noise_bits=2)
        lanes, tables = Lanes(problem.process, 3), EpsilonGreedyTables(problem.process, runs=3)
        rng = keyed_generator(0, "values")
        for q in tables.q:
            q += rng.random(q.shape)
        for lane, value in enumerate(lanes.values(tables)):
            actions = [q[lane].argmax(axis=1) for q in tables.q]
            policy = LearnedPolicy.from_table(problem.process.codebooks, actions, n_actions=4)
            assert value == pytest.approx(problem.process.value(policy))

    def test_tied_tables_are_worth_what_random_play_is(self):
        process = richobs.make("lock/3", noise_bits=0).process
        tied = [np.zeros((1, 3, 4))] * 3
        assert greedy_values(process, tied) == pytest.approx([0.5 * 0.5**3])


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


class TestLatentStates:
    def test_both_readers_see_the_same_states(self):
        problem = richobs.make("lock/4,noise_bits=2,n_actions=3")
        played = problem.env.play(Uniform(3), 200, keyed_generator(0, "readers"))
        shown, replayed = ShownStates(problem.process), ReplayedStates(known_moves(problem), 3)
        assert isinstance(find_reader(problem), ShownStates)
        for one, other in zip(shown.states(played), replayed.states(played), strict=True):
            np.testing.assert_array_equal(one, other)
        assert {int(s) for s in shown.states(played)[3]} == {0, 1, 2}


class TestLatentQ:
    def test_the_update_by_hand(self):
        tables = LatentQTables((1, 2), 2, step=0.5, c=0.1)
        tables.q[1, 1] = [0.4, 0.2]
        tables.learn(np.array([0, 1]), np.array([1, 0]), np.array([0.0, 0.1]))
        bonus = 0.1 * math.sqrt(2)
        # the old value of level 1
        assert tables.q[0, 0].tolist() == [1.0, pytest.approx(0.5 * 1 + 0.5 * (0.4 + bonus))]
        assert tables.q[1, 1].tolist() == [pytest.approx(0.5 * 0.4 + 0.5 * (0.1 + bonus)), 0.2]
        tables.learn(np.array([0, 1]), np.array([1, 0]), np.array([1.0, 1.0]))
        assert tables.q[0, 0, 1] == 1.0  # cut


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

    def test_bounds_allow_for_moves_that_were_not_seen(self):
        model = EmpiricalModel(richobs.make(MDP).process)
        model.visits[0][:], model.moves[0][:] = [[50, 0]], [[[50, 0], [0, 0]]]
        model.visits[1][0, 0], model.rewards[1][0, 0] = 10**6, 0.4 * 10**6  # the other state was never seen
        bounds = plan_bounds(model, 0.1)
        first, good = bounds.lower[0][0, 0], bounds.lower[1][0, 0]
        assert good == pytest.approx(0.4, abs=0.01)
        unseen = plan_bounds(EmpiricalModel(richobs.make(MDP).process), 0.1)
        assert (unseen.best, unseen.sure) == (1.0, 0.0)
        stays = math.exp(-float(radius(np.array(50.0), 2, 0.1 / 13)))  # P = 6 pairs, 13 shares
        assert first == pytest.approx(stays * good, abs=2e-3)
        assert stays < 0.85


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

    def test_the_next_path_covers_most(self):
        moves = known_moves(richobs.make("lock/3,noise_bits=0,n_actions=2"))
        everything = [np.ones((3, 2), dtype=bool)] * 3
        gains = [np.zeros((3, 2)) for _ in range(3)]
        state = moves.start
        for level, action in enumerate((1, 0, 1)):
            gains[level][state, action] = 1.0
            state = int(moves.next[level][state, action]) if level < 2 else state
        assert best_path(moves, gains, everything) == ((1, 0, 1), 3.0)


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


class TestTrajectoryTrees:
    def test_episodes_by_hand(self):
        assert enough_episodes(16, 4, 0.3, 0.05) == 2413  # 8 * 1.05 / 0.0225 * log(640)

    def test_weighted_returns_by_hand(self):
        tables = [np.array([[[1.0, 0.0]], [[0.0, 1.0]]])] * 2  # action 0 or 1, whatever is seen
        functions = richobs.Layered([richobs.classes.tables.TableLevel(t) for t in tables])
        actions, rewards = ([0, 1, 0], [1, 1, 0]), ([0.5, 0.0, 0.0], [0.0, 1.0, 0.0])
        played = Episodes((np.zeros(3, dtype=int),) * 2, tuple(map(np.array, actions)), tuple(map(np.array, rewards)))
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


class TestEpochGreedy:
    def test_the_schedule_by_hand(self):
        assert [exploitation(n, 2, 20) for n in (1, 47, 48, 191, 192, 4800)] == [0, 0, 1, 1, 2, 10]  # 16 log 20 = 47.93


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


class TestUcfh:
    def test_optimistic_laws_by_hand(self):
        low, high = np.array([[0.1, 0.2, 0.3], [0.0, 0.0, 0.0]]), np.array([[0.6, 0.5, 0.9], [1.0, 1.0, 1.0]])
        # 0.4 is free: all of it goes to the first state; in the second row everything does
        np.testing.assert_allclose(optimistic_mean(low, high, np.array([1.0, 0.5, 0.0])), [0.5 + 0.1, 1.0])
        np.testing.assert_allclose(optimistic_mean(low, high, np.array([0.0, 0.5, 1.0])), [0.7 + 0.1, 1.0])

    def test_its_values_are_upper_bounds(self):
        for seed in range(3):
            process = richobs.make(MDP, stochastic=True, seed=seed).process
            learned = ucfh(counting(process, seed), process, 8.0, 40_000)
            assert all((upper >= q - 1e-9).all() for upper, q in zip(learned.values, process.q_tables, strict=True))
        assert all((v == 1).all() for v in optimistic_values(EmpiricalModel(process), 8.0))


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


def test_steps_without_next_observations_add_up():
    x = np.zeros((2, 3), dtype=np.int8)
    one = Steps.of(x, np.array([0, 1]), np.array([0.5, 1.0]), None, 2)
    both = one + one
    assert both.rewards.tolist() == [[1.0, 2.0]]
    assert len(distinct(x[:0])[0]) == 0

"""Tests of the rivals that are told states or transitions, of best-policy identification, and of the older planners."""

import math
import random
import sys

import numpy as np
import pytest

import richobs
from richobs.classes.tables import Constants
from richobs.core.environment import Episodes
from richobs.core.errors import InvalidInput
from richobs.core.ledger import Ledger
from richobs.core.outcome import StopReason
from richobs.core.policies import Uniform
from richobs.core.process import TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.core.settings import Settings
from richobs.core.steps import Steps, distinct
from richobs.engines import CountedEngine, StreamEngine
from richobs.runs.prepare import prepare
from richobs.runs.session import run
from richobs.stats.bounds import kl_upper
from richobs_lab.rivals import bpi_ucrl as bpi_module
from richobs_lab.rivals import eprl as eprl_module
from richobs_lab.rivals.bpi_ucrl import ball_upper, bpi_ucrl, plan_bounds, radius
from richobs_lab.rivals.e3 import e3, two_plans
from richobs_lab.rivals.epoch_greedy import exploitation
from richobs_lab.rivals.eprl import Rewards as PairRewards
from richobs_lab.rivals.eprl import best_path, eprl
from richobs_lab.rivals.latent_q import LatentQTables, latent_q
from richobs_lab.rivals.latent_states import ReplayedStates, ShownStates, find_reader, known_moves
from richobs_lab.rivals.rmax import enough_visits
from richobs_lab.rivals.sparse_sampling import n_nodes, printed_samples, sparse_sampling
from richobs_lab.rivals.stable_baselines import Reading, Sb3Ppo
from richobs_lab.rivals.tabular import EmpiricalModel, greedy_policy
from richobs_lab.rivals.trajectory_trees import enough_episodes, members_of, weighted_returns
from richobs_lab.rivals.ucfh import optimistic_mean, optimistic_values, ucfh

MDP = "mdp/2,n_states=2,n_actions=2,class_size=4"


def counting(process, seed=0, max_episodes=None):
    nothing = richobs.Layered([Constants(np.zeros((1, process.n_actions)))] * process.horizon)
    return CountedEngine(process, nothing, seed=seed, ledger=Ledger(max_episodes))


def streaming(problem, seed=0, max_episodes=None):
    return StreamEngine(problem.env, problem.functions, seed=seed, ledger=Ledger(max_episodes), process=problem.process)


def two_paths(good, bad):
    """One decision between two states: the first pays `good`, the second `bad`, a number or one for each action."""
    pays = richobs.Rewards.bernoulli(np.stack([np.broadcast_to(good, (2, 2)), np.broadcast_to(bad, (2, 2))]))
    return TabularProcess(
        np.ones(1),
        (np.array([[0, 1]]),),
        (np.ones((1, 1)), np.eye(2)),
        (richobs.Rewards.deterministic(np.zeros((1, 1, 2))), pays),
    )


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

    @pytest.mark.parametrize("name", ["latent-q", "eprl"])
    def test_states_that_nobody_can_tell_are_refused(self, name):
        problem = richobs.make("lock/5,noise_bits=30,swap=0.5")
        with pytest.raises(InvalidInput, match=f"the learner '{name}' needs (latent states|deterministic transitions)"):
            prepare(problem, Settings(learner=name))


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
        for seed in range(4):
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
        moves = known_moves(richobs.Problem(*_problem(two_paths(0.9, 0.1))))
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
        known = PairRewards(known_moves(richobs.Problem(*_problem(two_paths(0.9, 0.1)))), 2, 0.1)
        for level, sums in ((0, np.array([[500.0, 500.0]])), (1, np.full((2, 2), 300.0))):
            known.visits[level][:] = 1000
            known.sums[level][:] = sums
        known.drop()
        assert known.left == 6  # each path earns 0.8, and no pair does alone

    def test_the_first_paths_cover_everything_once(self):
        process = two_paths(0.9, 0.1)
        engine = counting(process, max_episodes=4)
        found = eprl(engine, known_moves(richobs.Problem(*_problem(process))), 2, epsilon=0.2, delta=0.05)
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
        problem = richobs.Problem(*_problem(process))
        engine = counting(process)
        found = eprl(engine, known_moves(problem), 2, epsilon=0.2, delta=0.05)
        assert found.finished
        assert found.path[0] == 0
        assert abs(found.value_hat - 0.9) <= 0.2
        played = engine.ledger.by("path")
        bad = sum(n for (path,), (_, n) in played.items() if path.startswith("(1"))
        assert 0 < bad < engine.ledger.total / 3  # dropped early

    def test_intervals_that_are_too_narrow_lose_the_best_path(self, monkeypatch):
        process = two_paths(0.6, 0.4)
        moves = known_moves(richobs.Problem(*_problem(process)))
        right = [eprl(counting(process, seed), moves, 2, epsilon=0.1, delta=0.1).path[0] == 0 for seed in range(2)]
        assert all(right)
        monkeypatch.setattr(eprl_module, "kl_upper", lambda mean, rate: np.minimum(mean + 1e-9, 1.0))
        wrong = [eprl(counting(process, seed), moves, 2, epsilon=1e-9, delta=0.1).path[0] == 1 for seed in range(8)]
        assert any(wrong)


def _problem(process):
    """Environment, class and process of a problem whose class nobody looks at."""
    from richobs.worlds.simulator import TabularWorld, WorldEnvironment

    nothing = richobs.Layered([Constants(np.zeros((1, process.n_actions)))] * process.horizon)
    return WorldEnvironment(TabularWorld(process)), nothing, process


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

    def test_too_large_a_tree_and_random_moves_are_refused(self):
        with pytest.raises(InvalidInput, match="a tree of at most 100,000 nodes"):
            prepare(richobs.make("lock/30"), Settings(learner="sparse-sampling"))
        with pytest.raises(InvalidInput, match="deterministic transitions"):
            prepare(richobs.make("lock/3,swap=0.5"), Settings(learner="sparse-sampling"))


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

    def test_more_levels_are_refused(self):
        with pytest.raises(InvalidInput, match="needs one level: mdp/2"):
            prepare(richobs.make(MDP), Settings(learner="epoch-greedy"))


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

    def test_a_budget_is_not_called_finished(self):
        process = richobs.make(MDP).process
        learned = e3(counting(process, max_episodes=30), process, 100, 0.1)
        assert not learned.finished
        assert learned.episodes <= 30


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


@pytest.mark.parametrize(
    ("name", "pair", "why"),
    [
        ("latent-q", "step=0", "step must be above 0"),
        ("latent-q", "c=-1", "c must be a number of at least 0"),
        ("latent-q", "episodes=0", "episodes must be at least 1"),
        ("ucfh", "episodes=0", "episodes must be at least 1"),
        ("epoch-greedy", "episodes=0", "episodes must be at least 1"),
        ("sb3-ppo", "episodes=0", "episodes must be at least 1"),
        ("sparse-sampling", "samples=7", "samples must be one of auto, printed"),
    ],
)
def test_tuning_that_makes_no_sense_is_refused(name, pair, why):
    with pytest.raises(InvalidInput, match=why):
        prepare(richobs.make("bandit,n_contexts=4,n_actions=3,class_size=20"), Settings(learner=name, tuning=(pair,)))


@pytest.mark.parametrize(
    "name",
    ["latent-q", "bpi-ucrl", "eprl", "sparse-sampling", "trajectory-trees", "e3", "ucfh", "sb3-dqn"],
)
def test_a_longer_run_begins_like_a_shorter_one(name, tmp_path):
    problem = richobs.make(MDP)
    if name == "sb3-dqn":
        pytest.importorskip("stable_baselines3")
    tuning = ("episodes=60",) if name in ("latent-q", "sb3-dqn") else ()

    def asked(most):
        return Settings(learner=name, epsilon=0.4, tuning=tuning, max_episodes=most)

    first = run(problem, asked(25), out=tmp_path / name)
    again = run(problem, asked(100_000), out=tmp_path / name)
    straight = run(problem, asked(100_000))
    assert first.episodes <= 25 < again.episodes == straight.episodes
    assert not first.guaranteed
    assert again.policy.digest == straight.policy.digest
    assert again.trace == straight.trace


def test_steps_without_next_observations_add_up():
    x = np.zeros((2, 3), dtype=np.int8)
    one = Steps.of(x, np.array([0, 1]), np.array([0.5, 1.0]), None, 2)
    both = one + one
    assert both.rewards.tolist() == [[1.0, 2.0]]
    assert len(distinct(x[:0])[0]) == 0

"""What each world promises, worked out by hand; `conformance/test_worlds.py` holds what all of them share."""

import itertools
import math

import gymnasium
import numpy as np
import pytest

from richobs.classes.decoders import Decoders
from richobs.classes.layered import Layered
from richobs.core.errors import AssumptionViolated, InvalidInput, InvalidPath, UnknownWorld
from richobs.core.policies import Greedy, OpenLoop
from richobs.core.randomness import keyed_generator
from richobs.worlds import TabularWorld, configure, make
from richobs.worlds.gymnasium_out import register_all
from richobs.worlds.registry import full_id
from richobs.worlds.simulator import _Categorical
from richobs_lab.worlds.diabolical import hadamard
from richobs_lab.worlds.frozen_lake import Config as LakeConfig
from richobs_lab.worlds.frozen_lake import candidate_lakes, has_way, process_of, q_functions
from richobs_lab.worlds.lower_bound import AllPaths, Config, member, policies, predictors

register_all()


def observed(problem, path, n, rng):
    """What n episodes show at the node at `path`."""
    return problem.env.play(OpenLoop(path), n, rng, len(path) + 1).observations[-1]


def _code_of(world: str, seed: int) -> np.ndarray:
    """The secret action sequence of a world, read from its process."""
    process = make(world, seed=seed).process
    return np.array([process.optimum.q[h][0].max(axis=0).argmax() for h in range(process.horizon)])


@pytest.mark.parametrize("world", ["lock/10,noise_bits=0", "diabolical/10", "lower-bound/10"])
def test_no_generator_a_user_would_seed_alike_opens_the_lock(world):
    """For each way a random agent may be seeded, agreement with the secret stays at chance over 100 seeds."""
    n_actions, H, seeds = make(world).n_actions, 10, range(100)
    hits = {"integers": 0, "discrete": 0, "env.action_space": 0, "choice": 0, "legacy": 0}
    env = gymnasium.make(f"richobs/{'Lock' if world.startswith('lock') else 'Diabolical'}-v0", n_actions=n_actions)
    for seed in seeds:
        code = _code_of(world, seed)
        space = gymnasium.spaces.Discrete(n_actions, seed=seed)
        env.reset(seed=seed)
        env.action_space.seed(seed)
        guesses = {
            "integers": np.random.default_rng(seed).integers(n_actions, size=H),
            "choice": np.random.default_rng(seed).choice(n_actions, size=H),
            "legacy": np.random.RandomState(seed).randint(n_actions, size=H),
            "discrete": [space.sample() for _ in range(H)],
            "env.action_space": [env.action_space.sample() for _ in range(H)],
        }
        for name, guess in guesses.items():
            hits[name] += int((code == np.asarray(guess)).sum())
    n, p = H * len(seeds), 1 / n_actions
    for name, count in hits.items():
        assert abs(count - n * p) <= 5 * math.sqrt(n * p * (1 - p)), (name, count / n)


class TestRegistry:
    def test_ids(self):
        assert make("lock").id == "lock/5"
        assert make("lock/7", noise_bits=2).id == "lock/7,noise_bits=2"
        assert make("disjoint/2,vectors=True,seed=4").id == "disjoint/2,vectors=True,seed=4"
        assert full_id(configure("bandit", n_actions=3)) == "bandit,n_actions=3"

    @pytest.mark.parametrize("horizon", [3, "3", np.int64(3), True])
    def test_whole_numbers_become_pythons(self, horizon):
        config = configure("lock", horizon=horizon)
        assert type(config.horizon) is int
        assert full_id(config) == ("lock/1" if horizon is True else "lock/3")

    @pytest.mark.parametrize(
        ("error", "id", "params", "words"),
        [
            (UnknownWorld, "lokc", {}, "there is no world 'lokc'; there are bandit, mdp"),
            (InvalidInput, "lock", {"bits": 3}, "world 'lock' has no parameter 'bits'; it has horizon, n_actions"),
            (InvalidInput, "lock/5", {"horizon": 6}, "horizon: given in the id 'lock/5' and again"),
            (InvalidInput, "lock,horizon", {}, "'horizon' should read name=value"),
            (InvalidInput, "lock/3,seed=1,seed=2", {}, "gives seed twice"),
            (InvalidInput, "lock/3,horizon=4", {}, "gives horizon twice"),
            (InvalidInput, "lock,noise_bits=11,functions=tables", {}, "at most 10 noise bits"),
            (InvalidInput, "bandit/3", {}, "world 'bandit' has no parameter 'horizon'"),
            (InvalidInput, "lock", {"horizon": 2.5}, "world 'lock': horizon must be a whole number; got 2.5"),
            (InvalidInput, "lock/x", {}, "horizon must be a whole number; got 'x'"),
            (InvalidInput, "lock", {"noise": "loud"}, "noise must be one of bits, gaussian; got 'loud'"),
            (InvalidInput, "lock", {"swap": float("nan")}, "swap must be a finite number; got nan"),
            (InvalidInput, "lock", {"swap": 1.5}, "lock: swap must be between 0.0 and 1.0; got 1.5"),
            (InvalidInput, "lock", {"fail": -0.1}, "lock: fail must be between 0.0 and 1.0; got -0.1"),
            (InvalidInput, "random", {"stochastic": True, "violate": "deterministic"}, "Give one of the two"),
            (InvalidInput, "random", {"stochastic": True, "n_states": 1}, "n_states of at least 2; got 1"),
            (InvalidInput, "frozen-lake", {"slip": 0.6}, "slip must be between 0.0 and 0.5; got 0.6"),
            (InvalidInput, "frozen-lake", {"n_maps": 10**6}, "a world may hold 40,000,000"),
            (InvalidInput, "frozen-lake", {"n_maps": 39, "candidates": "near"}, "37 different near maps of size 4x4"),
            (InvalidInput, "lock", {"horizon": 0}, "lock: horizon must be between 1 and 1000000; got 0"),
            (InvalidInput, "mdp,stochastic=yes", {}, "stochastic must be True or False; got 'yes'"),
            (InvalidInput, "random", {"near": -0.1}, "near must be between 0.0 and 1.0; got -0.1"),
            (InvalidInput, "random", {"twin_gap": 0.1, "n_actions": 3}, "n_actions must be even; got 3"),
            (InvalidInput, "random", {"twin_gap": 0.1, "violate": "reactive"}, "violate=reactive breaks one"),
            (InvalidInput, "random", {"rewards": "gaussian"}, "rewards must be one of mixed, bernoulli"),
            (InvalidInput, "lower-bound/1,n_actions=20000", {}, "too many"),
            (InvalidInput, "diabolical/501", {}, "between 1 and 500"),
            (InvalidInput, "random/1", {"violate": "reactive"}, "horizon, n_states and n_actions must be at least 2"),
        ],
    )
    def test_wrong_requests_say_what_is_wrong(self, error, id, params, words):
        with pytest.raises(error, match=words):
            make(id, **params)


class TestLock:
    def test_dynamics_are_those_of_the_paper(self):
        problem = make("lock", horizon=6, n_actions=5, seed=3)
        world, rng = problem.truth.world, keyed_generator(0)
        for level in range(5):
            moves = np.array(
                [[world.move(level, np.array([s]), np.array([a]), rng)[0] for a in range(5)] for s in range(3)]
            )
            a, b = (int(np.flatnonzero(moves[s] == s)[0]) for s in (0, 1))
            np.testing.assert_array_equal(np.flatnonzero(moves[0] == 1), [(a + 1) % 5])
            np.testing.assert_array_equal(np.flatnonzero(moves[1] == 0), [(b + 1) % 5])
            assert (moves[2] == 2).all()
            assert (moves[0] == 2).sum() == (moves[1] == 2).sum() == 3

    def test_only_live_actions_at_the_last_level_pay(self):
        problem = make("lock", horizon=3, noise_bits=1)
        for level, rewards in enumerate(problem.process.rewards):
            paid = rewards.mean[:, 0]
            if level < 2:
                assert (paid == 0).all()
            else:
                assert sorted(paid[0]) == sorted(paid[1]) == [0, 0, 0.5, 0.5]
                assert (paid[2] == 0).all()

    def test_observations_are_indicators_and_fair_coins(self):
        problem = make("lock", noise_bits=20)
        n = 20_000
        x = observed(problem, (), n, keyed_generator(7))
        assert x.shape == (n, 23)
        assert x.dtype == np.int8
        np.testing.assert_array_equal(x[:, :3], np.tile([1, 0, 0], (n, 1)))
        assert abs(x[:, 3:].mean(axis=0) - 0.5).max() < 5 / math.sqrt(4 * n)
        pairs = np.corrcoef(x[:, 3:].T) - np.eye(20)
        assert abs(pairs).max() < 5.5 / math.sqrt(n)  # 190 pairs

    def test_each_move_that_may_fail_costs_its_share_of_the_value(self):
        """fail 0.1, H = 4: 0.5 at the last level, then 0.45, 0.405 and 0.3645."""
        for noise_bits in (2, 80):
            problem = make("lock/4", noise_bits=noise_bits, swap=0.5, fail=0.1)
            assert problem.optimal_value == pytest.approx(0.3645)
            worth = [level.worth.max() for level in problem.functions.levels]
            assert worth == pytest.approx([0.3645, 0.405, 0.45, 0.5])
            earned = problem.value(Greedy(problem.functions.member(problem.optimal_function)))
            assert earned.exact
            assert earned == pytest.approx(0.3645)

    def test_swapping_and_failing_have_the_odds_they_should(self):
        """swap 0.5 and fail 0.1: a live action leads to A, B and C in 45%, 45% and 10% of episodes."""
        problem = make("lock/3", swap=0.5, fail=0.1, noise_bits=0)
        law = problem.process.transitions[0]  # [3, K, 3]
        live = np.flatnonzero(law[0, :, 0] > 0)
        assert len(live) == 2
        np.testing.assert_allclose(law[0, live], [[0.45, 0.45, 0.1]] * 2)
        np.testing.assert_array_equal(law[2], [[0, 0, 1]] * 4)
        n = 20_000
        x = problem.env.play(OpenLoop((int(live[0]),)), n, keyed_generator(4), 2).observations[1]
        np.testing.assert_allclose(x.mean(axis=0), [0.45, 0.45, 0.1], atol=5 * 0.5 / math.sqrt(n))

    @pytest.mark.parametrize(
        ("params", "deterministic"),
        [({}, True), ({"fail": 1.0, "swap": 0.5}, True), ({"fail": 0.1}, False), ({"horizon": 1, "swap": 0.5}, True)],
    )
    def test_world_and_process_agree_on_what_is_deterministic(self, params, deterministic):
        problem = make("lock", **params)
        assert problem.truth.world.is_deterministic is deterministic
        assert problem.process.is_deterministic is deterministic

    @pytest.mark.parametrize("params", [{"swap": 0.1}, {"fail": 0.3}, {"swap": 0.5, "fail": 0.1}])
    def test_values_by_reading_bits_agree_with_the_listed_process(self, params):
        """The same decoders valued twice: through the process of all 3 * 2^4 observations, and bit by bit."""
        problem = make("lock/4", noise_bits=4, **params)
        rng = np.random.default_rng(0)
        truth = np.array(problem.optimal_function)
        for trial in range(60):
            chain = np.where(rng.random(4) < 0.5, truth, rng.integers(problem.functions.level_size(0), size=4))
            policy = Greedy(problem.functions.member(tuple(chain.tolist())))
            assert problem.truth.exact_value(policy) == pytest.approx(problem.process.value(policy), abs=1e-12), trial

    @pytest.mark.parametrize(("id", "noise"), [("lock/3,noise_bits=1", {"noise": "gaussian"}), ("diabolical/3", {})])
    def test_noisy_worlds_are_valued_exactly_too(self, id, noise):
        problem = make(id, sigma=0.4, **noise)
        policy = Greedy(problem.functions.member(make(id).optimal_function))
        report = problem.value(policy)
        assert report.exact
        assert 0.05 < report.value < 0.9
        returns = problem.env.play(policy, 200_000, keyed_generator(3)).returns
        assert abs(returns.mean() - report.value) < 5 * 0.5 / math.sqrt(200_000)

    def test_a_policy_whose_reading_is_unknown_is_estimated(self):
        """One that says it is greedy and acts otherwise, one that says it reads nothing, one that turns observations."""
        problem = make("lock/1", noise_bits=40)

        class Contrary(Greedy):
            def actions(self, level, x, rng=None):
                return (super().actions(level, x) + 2) % 4

        class Xor:
            def actions(self, level, x, rng):
                return np.asarray((x[:, 3] > 0.5) ^ (x[:, 4] > 0.5), dtype=np.int64)

            def reads(self, level, rotation):
                return ()

        turned = Layered([Decoders(43, problem.functions.levels[0].worth, rotation=np.eye(43)[::-1])])
        contrary = Contrary(problem.functions.member(problem.optimal_function))
        for policy in (contrary, Xor(), Greedy(turned.member((5,)))):
            report = problem.value(policy, episodes=1000)
            assert not report.exact
            assert "an estimate from 1,000 episodes" in str(report)
            assert report.low <= report.value <= report.high
        assert problem.value(contrary, episodes=100) == 0  # no action of it is live
        with pytest.raises(InvalidInput, match="confidence"):
            problem.value(Xor(), confidence=1.0)

    def test_gaussian_noise_has_no_known_optimal_policy(self):
        with pytest.raises(AssumptionViolated, match="unbounded support"):
            make("lock", noise="gaussian").optimal_policy()


class TestDiabolical:
    def test_one_live_action_and_a_bonus_for_giving_up(self):
        process = make("diabolical/4").process
        for level in range(4):
            q = process.optimum.q[level][0, 0]
            assert sorted(q) == pytest.approx([0.05] * 9 + [1.0])
        bonus = process.rewards[0]
        giving_up = int(np.flatnonzero(process.optimum.q[0][0, 0] < 1)[0])
        np.testing.assert_allclose(bonus.values[0, 0, giving_up], [0, 0.1])
        np.testing.assert_allclose(bonus.probs[0, 0, giving_up], [0.5, 0.5])
        assert process.optimum.value == pytest.approx(1.0)

    def test_observations_are_rotated_two_hot_vectors(self):
        problem = make("diabolical/5")
        H = hadamard(8)
        np.testing.assert_allclose(H @ H.T, np.eye(8), atol=1e-12)
        np.testing.assert_allclose(np.abs(H), 1 / math.sqrt(8))
        x = observed(problem, (), 1, keyed_generator(0))
        np.testing.assert_allclose(x @ H, [[1, 0, 0, 1, 0, 0, 0, 0]], atol=1e-12)


class TestLowerBound:
    def test_the_secret_path_is_better_by_epsilon_and_all_others_are_equal(self):
        config = Config(horizon=3, n_actions=3, epsilon=0.2)
        secret = (2, 0, 1)
        process = member(config, secret)
        values = {p.path: process.value(p) for p in policies(config)}
        assert len(values) == 27
        assert values.pop(secret) == pytest.approx(0.7)
        assert list(values.values()) == pytest.approx([0.5] * 26)

    def test_the_predictor_of_the_secret_path_is_q_star_on_histories(self):
        """f_p(history with the proposed action) equals Q* at the state that the history leads to (Proposition 2)."""
        config = Config(horizon=3, n_actions=2, epsilon=0.1)
        for f in predictors(config):
            process = member(config, f.path)
            for length in range(3):
                for history in AllPaths(length, 2):
                    state = 0
                    for level, a in enumerate(history):
                        state = int(process.transitions[level][state, a].argmax())
                    np.testing.assert_allclose(f.values(history), process.optimum.q[length][state, 0])

    @pytest.mark.parametrize(
        ("secret", "words"),
        [
            ((0, 1), "needs 4 actions, one per level; got 2"),
            ((0,) * 5, "has 5 actions; this environment has 4 levels"),
            ((0, 2, 0, 0), "takes action 2 at level 1; this environment has actions 0 to 1"),
            ((0, 1, 0, -1), "takes action -1 at level 3"),
        ],
    )
    def test_impossible_secrets(self, secret, words):
        with pytest.raises(InvalidPath, match=words):
            member(Config(), secret)


class TestTheOthers:
    def test_deep_sea_pays_for_diving_right_all_the_way(self):
        problem = make("deep-sea/6")
        process = problem.process
        assert process.optimum.value == pytest.approx(1.0)
        wrong = problem.env.play(problem.optimal_policy(), 1, keyed_generator(0)).paths[0].copy()
        wrong[2] = 1 - wrong[2]
        assert problem.env.play(OpenLoop(tuple(wrong)), 1, keyed_generator(0)).returns[0] <= 0.01 + 1e-12

    def test_disjoint_states_own_their_observations(self):
        process = make("disjoint", n_observations=6).process
        for emission in process.emissions:
            assert ((emission > 0).sum(axis=0) == 1).all()
            assert ((emission > 0).sum(axis=1) == 6).all()

    def test_disjoint_vectors_never_leave_their_ball(self):
        problem = make("disjoint,vectors=True")
        assert problem.process is None
        truth = problem.functions.member(problem.optimal_function)
        for path in itertools.product(range(3), repeat=3):
            values = truth.values(3, observed(problem, path, 200, keyed_generator(1)))
            np.testing.assert_array_equal(values, np.tile(values[:1], (200, 1)))  # one state, one row of Q*

    def test_mdp_shows_its_states(self):
        assert all((e == np.eye(len(e))).all() for e in make("mdp").process.emissions)

    def test_bandit_has_one_level_and_one_state(self):
        problem = make("bandit", n_contexts=3)
        assert (problem.horizon, problem.n_states) == (1, 1)
        assert problem.process.emissions[0].shape == (1, 3)


class TestRandom:
    def test_random_transitions_leave_q_star_a_function_of_what_is_seen(self):
        """Where states share an observation they differ in what follows, and their mean rewards make up for it."""
        shared = uneven = 0
        for seed in range(40):
            process = make("random", stochastic=True, seed=seed).process
            assert not process.is_deterministic
            assert process.reactivity_conflict() is None
            assert all((t > 0).all() for t in process.transitions)
            for seen, rewards in zip(process.seen, process.rewards, strict=True):
                for x in np.flatnonzero(seen.sum(axis=0) > 1):
                    shared += 1
                    uneven += np.ptp(rewards.mean[seen[:, x], x], axis=0).max() > 1e-3
        assert shared >= 100
        assert uneven >= 50


class TestFrozenLake:
    def test_the_standard_map(self):
        problem = make("frozen-lake")
        assert (problem.horizon, problem.n_actions) == (30, 4)
        assert problem.optimal_value == pytest.approx(0.3479, abs=5e-5)
        assert problem.value(problem.optimal_policy()) == pytest.approx(problem.optimal_value, abs=1e-12)

    @pytest.mark.parametrize(("map", "success_rate"), [("4x4", 1 / 3), ("4x4", 0.8), ("8x8", 1 / 3)])
    def test_gymnasiums_own_lake_moves_alike(self, map, success_rate):
        process = make("frozen-lake/2", n_maps=1, map=map, slip=(1 - success_rate) / 2).process
        theirs = gymnasium.make("FrozenLake-v1", map_name=map, success_rate=success_rate).unwrapped.P
        goal = len(theirs) - 1
        for cell in range(goal):
            for action in range(4):
                law = np.zeros(goal + 2)
                for chance, there, paid, done in theirs[cell][action]:
                    law[goal + 1 if done and there == cell else there] += chance  # what has ended is over
                    assert paid == (there == goal)
                np.testing.assert_allclose(process.transitions[0][cell, action], law, atol=1e-12)

    @pytest.mark.parametrize(
        ("actions", "cells", "rewards"),
        [
            ((1, 1, 2, 1, 2, 2, 0, 0, 0), [0, 4, 8, 9, 13, 14, 15, 16, 16], [0, 0, 0, 0, 0, 0, 1, 0, 0]),
            ((2, 1, 0, 1, 2), [0, 1, 5, 16, 16], [0] * 5),  # into the hole
            (None, [0, 4, 8, 9, 13, 14], [0, 0, 0, 0, 0, 1]),  # six moves suffice: the goal pays on arrival
        ],
    )
    def test_without_slipping_goal_and_hole_are_seen_once_and_then_it_is_over(self, actions, cells, rewards):
        problem = make(f"frozen-lake/{len(cells)},slip=0.0,n_maps=2")
        policy = problem.optimal_policy() if actions is None else OpenLoop(actions)
        played = problem.env.play(policy, 1, keyed_generator(0))
        assert [int(x[0]) for x in played.observations] == cells
        assert [float(r[0]) for r in played.rewards] == rewards
        assert make("frozen-lake/5,slip=0.0,n_maps=2").optimal_value == 0

    def test_random_candidates_are_different_maps_with_a_way(self):
        lakes, place = candidate_lakes(LakeConfig(n_maps=2500), keyed_generator(1))
        assert lakes.holes.shape == (2500, 16)
        assert len(np.unique(lakes.holes, axis=0)) == 2500  # so many draws hit the true map too; it is listed once
        assert np.flatnonzero(lakes.holes[place]).tolist() == [5, 7, 11, 12]
        assert has_way(lakes.holes).all()
        assert (lakes.slips == 1 / 3).all()

    def test_near_candidates_have_one_hole_moved(self):
        config = LakeConfig(n_maps=500, candidates="near", slip_unknown=True, slip_range=0.05)
        lakes, place = candidate_lakes(config, keyed_generator(1))
        moved = (lakes.holes != lakes.holes[place]).sum(axis=1)
        assert np.delete(moved, place).tolist() == [2] * 499  # one cell thawed or froze, another did the reverse
        assert (lakes.holes.sum(axis=1) == 4).all()
        assert lakes.slips[place] == 1 / 3
        assert 0.04 < np.abs(lakes.slips - 1 / 3).max() <= 0.05

    def test_a_way_leads_around_holes_or_there_is_none(self):
        holes = np.zeros((3, 9), dtype=bool)
        holes[1, [1, 7]] = True  # .H. / ... / .H.: through the middle row
        holes[2, [2, 4, 6]] = True  # ..H / .H. / H..: the diagonal is closed
        assert has_way(holes).tolist() == [True, True, False]

    def test_every_candidate_is_q_star_of_its_own_map(self):
        config = LakeConfig(n_maps=6, horizon=7, slip_unknown=True)
        lakes, _ = candidate_lakes(config, keyed_generator(2))
        tables = q_functions(lakes, 7)
        for i in range(6):
            process = process_of(lakes.holes[i], float(lakes.slips[i]), 7)
            for level in range(7):
                np.testing.assert_allclose(tables[level][i], process.optimum.q[level][range(17), range(17)], atol=1e-12)


def test_categorical_rows_never_leave_their_support():
    """Probabilities with zeros in front, between and behind, sampled at the ends of the unit interval."""
    rows = np.array([[0.0, 0.5, 0.0, 0.5, 0.0], [0.1, 0.2, 0.3, 0.4, 0.0], [0, 0, 0, 0, 1.0]])

    class Extremes:
        def random(self, n):
            return np.resize([0.0, 0.5 - 2**-54, 0.5, 1 - 2**-53], n)

    for row, law in enumerate(rows):
        drawn = _Categorical(rows).sample(np.full(40, row), Extremes())
        assert set(drawn.tolist()) <= set(np.flatnonzero(law).tolist())


def test_a_tabular_world_draws_from_its_law():
    problem = make("random", seed=5)
    assert isinstance(problem.truth.world, TabularWorld)
    n = 40_000
    for level in range(problem.horizon):
        state = np.zeros(n, dtype=int)
        x = problem.truth.world.observe(level, state, keyed_generator(level))
        law = problem.process.emissions[level][0]
        np.testing.assert_allclose(np.bincount(x, minlength=len(law)) / n, law, atol=5 * 0.5 / math.sqrt(n))
        shown = int(law.argmax())
        r = problem.truth.world.reward(level, state, np.full(n, shown), state, keyed_generator(level, "r"))
        values, probs = (getattr(problem.process.rewards[level], k)[0, shown, 0] for k in ("values", "probs"))
        for v in set(values[probs > 0]):
            assert abs((r == v).mean() - probs[values == v].sum()) < 5 * 0.5 / math.sqrt(n)
        assert set(r.tolist()) <= set(values[probs > 0].tolist())


@pytest.mark.parametrize("world", ["bandit", "mdp", "disjoint", "random", "deep-sea"])
def test_the_tables_alone_do_not_tell_which_one_is_the_truth(world):
    """Attacks on the class: the table most like the others (by rows, columns, or distance) is Q* no more than by chance."""

    def attacks(tables):
        columns = [np.sort(t, axis=1).tobytes() for t in tables]
        rows = [np.array(sorted(map(tuple, t))).tobytes() for t in tables]
        both = [*zip(columns, rows, strict=True)]
        yield [sum(c == d or r == s for d, s in both) for c, r in both]
        flat = tables.reshape(len(tables), -1)
        yield -np.abs(flat[:, None] - flat[None]).sum(axis=(1, 2) if flat.ndim == 3 else 2).sum(axis=1)

    hits = np.zeros(2)
    trials = 0
    for seed in range(40):
        problem = make(world, seed=seed)
        level = problem.horizon - 1
        tables, place = problem.functions.levels[level].tables, problem.optimal_function[level]
        same = np.abs(tables - tables[place]).max(axis=(1, 2)) == 0
        if same.sum() > 5:
            continue  # so symmetric that there is nothing to find
        trials += 1
        for i, score in enumerate(attacks(tables)):
            hits[i] += same[np.argmax(score)]
    assert (hits <= 0.35 * max(trials, 10)).all(), (hits, trials)

"""The worlds: one conformance suite over the registry, then what each of them promises, worked out by hand."""

import itertools
import math

import gymnasium
import numpy as np
import pytest

import richobs
from richobs.assumptions import check_assumptions
from richobs.envs import WORLDS, TabularWorld, configure
from richobs.envs.diabolical import hadamard
from richobs.envs.lower_bound import AllPaths, Config, SequencePolicy, member, policies, predictors
from richobs.envs.registry import full_id
from richobs.errors import AssumptionViolated, InvalidInput, InvalidPath, UnknownWorld
from richobs.functions import Decoders, Layered
from richobs.problem import GreedyPolicy
from richobs.randomness import keyed_generator

VARIANTS = [
    *WORLDS,
    "disjoint,vectors=True",
    "lock/3,noise_bits=30",
    "lock/3,noise=gaussian",
    "lock/3,switch=0.25",
    "lock/3,functions=tables,class_size=12",
    "diabolical/3,sigma=0.1",
    "diabolical/3,switch=0.5",
    "mdp,stochastic=True",
    "random,violate=deterministic",
    "lock/1",
    "diabolical/1",
    "deep-sea/1",
]


@pytest.mark.parametrize("id", VARIANTS)
class TestEveryWorld:
    def test_the_id_builds_the_same_problem_again(self, id):
        first, second = richobs.make(id), richobs.make(richobs.make(id).id)
        assert first.id == second.id
        for problem in (first, second):
            assert problem.optimal_value == first.optimal_value
        path = (0,) * (first.horizon - 1)
        a, b = (p.env.step(path, np.zeros(20, dtype=int), keyed_generator(5)) for p in (first, second))
        np.testing.assert_array_equal(a.observations, b.observations)
        np.testing.assert_array_equal(a.rewards, b.rewards)

    def test_shapes_and_counting(self, id):
        problem = richobs.make(id)
        env, rng, H = problem.env, keyed_generator(1), problem.horizon
        path = (problem.n_actions - 1,) * (H - 1)
        x = env.draw(path, 7, rng)
        assert len(x) == 7
        assert env.episodes == 7
        steps = env.step(path, np.arange(5) % problem.n_actions, rng)
        assert len(steps.observations) == len(steps.rewards) == 5
        rollouts = env.rollout(GreedyPolicy(problem.functions.member((0,) * H)), 11, rng)
        assert rollouts.returns.shape == (11,)
        assert rollouts.paths.shape == (11, H)
        plays = env.play((*path, 0), 13, rng)
        assert [len(o) for o in plays.observations] == [13] * H
        assert plays.rewards.shape == (13, H)
        assert env.episodes == 7 + 5 + 11 + 13

    def test_returns_stay_in_the_declared_range(self, id):
        problem = richobs.make(id)
        low, high = problem.env.reward_range
        rng = keyed_generator(2)
        for path in {tuple(rng.integers(problem.n_actions, size=problem.horizon).tolist()) for _ in range(10)}:
            rewards = problem.env.play(path, 50, rng).rewards
            assert (rewards >= low).all()
            assert (rewards.sum(axis=1) <= high + 1e-12).all()

    def test_functions_predict_values_in_the_unit_interval(self, id):
        problem = richobs.make(id)
        for level in range(problem.horizon):
            x = problem.env.draw((0,) * level, 9, keyed_generator(3))
            some = np.arange(0, problem.functions.level_size(level), 7)
            values = problem.functions.values(level, x, some)
            assert values.shape == (len(some), 9, problem.n_actions)
            assert values.min() >= 0
            assert values.max() <= 1
            np.testing.assert_array_equal(
                problem.functions.member((7,) * problem.horizon).values(level, x)
                if problem.functions.level_size(level) > 7
                else values[0],
                values[1] if len(some) > 1 else values[0],
            )

    def test_nothing_printed_tells_the_secret(self, id):
        problem, other = richobs.make(id), richobs.make(id + ",seed=77")
        shown = [repr(p).replace(p.id, "").partition(", n_states=")[0] for p in (problem, other)]
        assert shown[0] == shown[1]
        public = [name for name in vars(problem.env) if not name.startswith("_")]
        assert public == ["horizon", "n_actions", "reward_range", "episodes"]


UNREALIZABLE = {"lower-bound", "lock/3,noise=gaussian", "diabolical/3,sigma=0.1"}  # on purpose


@pytest.mark.parametrize("id", [v for v in VARIANTS if v not in UNREALIZABLE])
def test_the_optimum_is_in_the_class_and_earns_the_optimal_value(id):
    problem = richobs.make(id)
    report = problem.value(problem.optimal_policy())
    assert report.low - 1e-12 <= problem.optimal_value <= report.high + 1e-12
    if problem.process is not None:
        assert check_assumptions(problem.process, problem.functions)["realizable"].holds


@pytest.mark.parametrize("id", WORLDS)
def test_another_seed_is_another_secret(id):
    truths = set()
    for seed in range(8):
        p = richobs.make(f"{id},seed={seed}")
        outcomes = [p.env.play(path, 40, keyed_generator(0)).rewards.sum() for path in _some_paths(p)]
        truths.add((p.optimal_function, tuple(outcomes)))
    assert len(truths) > 1


def _some_paths(problem):
    rng = keyed_generator(9)
    return [tuple(rng.integers(problem.n_actions, size=problem.horizon).tolist()) for _ in range(30)]


def _code_of(world: str, seed: int) -> np.ndarray:
    """The secret action sequence of a world, read from its process."""
    process = richobs.make(world, seed=seed).process
    return np.array([process.optimum.q[h][0].max(axis=0).argmax() for h in range(process.horizon)])


@pytest.mark.parametrize("world", ["lock/10,noise_bits=0", "diabolical/10", "lower-bound/10"])
def test_no_generator_a_user_would_seed_alike_opens_the_lock(world):
    """For each way a random agent may be seeded, agreement with the secret stays at chance over 300 seeds."""
    n_actions, H, seeds = richobs.make(world).n_actions, 10, range(300)
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
        assert richobs.make("lock").id == "lock/5"
        assert richobs.make("lock/7", noise_bits=2).id == "lock/7,noise_bits=2"
        assert richobs.make("disjoint/2,vectors=True,seed=4").id == "disjoint/2,vectors=True,seed=4"
        assert full_id(configure("bandit", n_actions=3)) == "bandit,n_actions=3"

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
            (InvalidInput, "lock", {"switch": float("nan")}, "switch must be a finite number; got nan"),
            (InvalidInput, "lock", {"switch": 1.5}, "lock: switch must be between 0.0 and 1.0; got 1.5"),
            (InvalidInput, "lock", {"horizon": 0}, "lock: horizon must be at least 1; got 0"),
            (InvalidInput, "mdp,stochastic=yes", {}, "stochastic must be True or False; got 'yes'"),
            (InvalidInput, "random/1", {"violate": "reactive"}, "horizon, n_states and n_actions must be at least 2"),
        ],
    )
    def test_wrong_requests_say_what_is_wrong(self, error, id, params, words):
        with pytest.raises(error, match=words):
            richobs.make(id, **params)


class TestPaths:
    @pytest.mark.parametrize(
        ("path", "words"), [((0,) * 5, "at most 4"), ((4,), "actions 0 to 3"), ((0, -1), "action -1 at level 1")]
    )
    def test_impossible_paths(self, path, words):
        with pytest.raises(InvalidPath, match=words):
            richobs.make("lock").env.draw(path, 3, keyed_generator(0))

    @pytest.mark.parametrize("actions", [[4], [-1], [0.5], [[0]]])
    def test_impossible_actions(self, actions):
        with pytest.raises(InvalidInput):
            richobs.make("lock").env.step((), np.array(actions), keyed_generator(0))

    def test_no_episodes(self):
        with pytest.raises(InvalidInput, match="at least one episode"):
            richobs.make("lock").env.draw((), 0, keyed_generator(0))

    def test_draw_and_step_and_play_agree_at_stochastic_nodes(self):
        """Lock with switch 0.3: after a live first action the other live state is seen in 30% of episodes."""
        problem = richobs.make("lock", switch=0.3, noise_bits=0)
        stay = next(a for a in range(4) if problem.process.transitions[0][0, a, 0] == pytest.approx(0.7))
        n = 20_000
        rng = keyed_generator(4)
        for x in (
            problem.env.draw((stay,), n, rng),
            problem.env.step((stay,), np.zeros(n, dtype=int), rng).observations,
            problem.env.play((stay, 0), n, rng).observations[1],
        ):
            np.testing.assert_allclose(x.mean(axis=0), [0.7, 0.3, 0.0], atol=5 * math.sqrt(0.21 / n))


class TestLock:
    def test_dynamics_are_those_of_the_paper(self):
        problem = richobs.make("lock", horizon=6, n_actions=5, seed=3)
        world, rng = problem.world, keyed_generator(0)
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
        problem = richobs.make("lock", horizon=3, noise_bits=1)
        for level, rewards in enumerate(problem.process.rewards):
            paid = rewards.mean[:, 0]
            if level < 2:
                assert (paid == 0).all()
            else:
                assert sorted(paid[0]) == sorted(paid[1]) == [0, 0, 0.5, 0.5]
                assert (paid[2] == 0).all()

    def test_observations_are_indicators_and_fair_coins(self):
        problem = richobs.make("lock", noise_bits=20)
        n = 20_000
        x = problem.env.draw((), n, keyed_generator(7))
        assert x.shape == (n, 23)
        assert x.dtype == np.int8
        np.testing.assert_array_equal(x[:, :3], np.tile([1, 0, 0], (n, 1)))
        assert abs(x[:, 3:].mean(axis=0) - 0.5).max() < 5 / math.sqrt(4 * n)
        pairs = np.corrcoef(x[:, 3:].T) - np.eye(20)
        assert abs(pairs).max() < 5.5 / math.sqrt(n)  # 190 pairs

    @pytest.mark.parametrize("switch", [0.0, 0.2])
    def test_optimal_value_is_one_half(self, switch):
        for noise_bits in (0, 5, 80):
            assert richobs.make("lock", noise_bits=noise_bits, switch=switch).optimal_value == pytest.approx(0.5)

    def test_the_class_has_the_size_it_should(self):
        problem = richobs.make("lock/4", noise_bits=7, n_actions=4)
        assert problem.functions.level_size(0) == 10 * 9 * 16
        assert problem.functions.log_size == pytest.approx(4 * math.log(1440))
        indices = {problem.functions.levels[0].index(i, j, a, b)
                   for i, j in itertools.permutations(range(10), 2) for a in range(4) for b in range(4)}  # fmt: skip
        assert indices == set(range(1440))

    def test_values_by_reading_bits_agree_with_the_listed_process(self):
        """The same decoders valued twice: through the process of all 3 * 2^4 observations, and bit by bit."""
        problem = richobs.make("lock/4", noise_bits=4, switch=0.1)
        rng = np.random.default_rng(0)
        truth = np.array(problem.optimal_function)
        for trial in range(60):
            chain = np.where(rng.random(4) < 0.5, truth, rng.integers(problem.functions.level_size(0), size=4))
            policy = GreedyPolicy(problem.functions.member(tuple(chain.tolist())))
            assert problem._exact_value(policy) == pytest.approx(problem.process.value(policy), abs=1e-12), trial

    def test_a_noisy_lock_is_valued_exactly_too(self):
        problem = richobs.make("lock/3", noise="gaussian", sigma=0.4, noise_bits=1)
        bits = richobs.make("lock/3", noise_bits=1)
        policy = GreedyPolicy(problem.functions.member(bits.optimal_function))
        report = problem.value(policy)
        assert report.exact
        assert 0.05 < report.value < 0.45
        returns = problem.env.rollout(policy, 200_000, keyed_generator(3)).returns
        assert abs(returns.mean() - report.value) < 5 * 0.5 / math.sqrt(200_000)

    def test_a_policy_whose_reading_is_unknown_is_estimated(self):
        """Also one that claims to read nothing and is no decoder."""
        problem = richobs.make("lock/1", noise_bits=40)

        class Xor:
            def actions(self, level, x):
                return np.asarray((x[:, 3] > 0.5) ^ (x[:, 4] > 0.5), dtype=np.int64)

            def reads(self, level, rotation):
                return ()

        report = problem.value(Xor(), episodes=1000)
        assert not report.exact
        assert "an estimate from 1,000 episodes" in str(report)
        assert report.low <= report.value <= report.high
        with pytest.raises(InvalidInput, match="confidence"):
            problem.value(Xor(), confidence=1.0)

    def test_a_decoder_that_turns_its_observations_is_estimated(self):
        problem = richobs.make("lock/1", noise_bits=40)
        turned = Layered([Decoders(43, problem.functions.levels[0].worth, rotation=np.eye(43)[::-1])])
        assert not problem.value(GreedyPolicy(turned.member((5,))), episodes=100).exact

    def test_gaussian_noise_has_no_known_optimal_policy(self):
        with pytest.raises(AssumptionViolated, match="unbounded support"):
            richobs.make("lock", noise="gaussian").optimal_policy()


class TestDiabolical:
    def test_one_live_action_and_a_bonus_for_giving_up(self):
        process = richobs.make("diabolical/4").process
        for level in range(4):
            q = process.optimum.q[level][0, 0]
            assert sorted(q) == pytest.approx([0.05] * 9 + [1.0])
        bonus = process.rewards[0]
        giving_up = int(np.flatnonzero(process.optimum.q[0][0, 0] < 1)[0])
        np.testing.assert_allclose(bonus.values[0, 0, giving_up], [0, 0.1])
        np.testing.assert_allclose(bonus.probs[0, 0, giving_up], [0.5, 0.5])
        assert process.optimum.value == pytest.approx(1.0)

    def test_observations_are_rotated_two_hot_vectors(self):
        problem = richobs.make("diabolical/5")
        H = hadamard(8)
        np.testing.assert_allclose(H @ H.T, np.eye(8), atol=1e-12)
        np.testing.assert_allclose(np.abs(H), 1 / math.sqrt(8))
        x = problem.env.draw((), 1, keyed_generator(0))
        np.testing.assert_allclose(x @ H, [[1, 0, 0, 1, 0, 0, 0, 0]], atol=1e-12)

    def test_with_noise_values_are_still_exact(self):
        noisy, plain = richobs.make("diabolical/3,sigma=0.4"), richobs.make("diabolical/3")
        policy = GreedyPolicy(noisy.functions.member(plain.optimal_function))
        report = noisy.value(policy)
        assert report.exact
        returns = noisy.env.rollout(policy, 200_000, keyed_generator(3)).returns
        assert abs(returns.mean() - report.value) < 5 * 0.5 / math.sqrt(200_000)
        assert 0.1 < report.value < 0.9


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

    def test_following_the_greedy_history_policy_plays_the_path(self):
        f = predictors(Config(horizon=4, n_actions=3))[57]
        history = ()
        for _ in range(4):
            history = (*history, f.action(history))
        assert history == f.path

    def test_paths_in_order(self):
        paths = AllPaths(3, 2)
        assert len(paths) == 8
        assert paths[:3] == [(0, 0, 0), (0, 0, 1), (0, 1, 0)]
        assert paths[-1] == (1, 1, 1)
        assert len(AllPaths(60, 2)) == 2**60
        with pytest.raises(IndexError):
            paths[8]

    def test_a_secret_of_the_wrong_length(self):
        with pytest.raises(InvalidPath, match="needs 4 actions"):
            member(Config(), (0, 1))

    def test_all_levels_look_the_same_whatever_was_done(self):
        problem = richobs.make("lower-bound")
        for path in [(), (0,), (1, 1), (0, 1, 0)]:
            assert (problem.env.draw(path, 50, keyed_generator(0)) == 0).all()
        assert SequencePolicy((1, 0)).actions(1, np.zeros(3)).tolist() == [0, 0, 0]


class TestTheOthers:
    def test_deep_sea_pays_for_diving_right_all_the_way(self):
        problem = richobs.make("deep-sea/6")
        process = problem.process
        assert process.optimum.value == pytest.approx(1.0)
        paths, probs = process.path_distribution(problem.optimal_policy())
        assert probs.tolist() == [1.0]
        wrong = paths[0].copy()
        wrong[2] = 1 - wrong[2]
        assert problem.env.play(tuple(wrong), 1, keyed_generator(0)).rewards.sum() <= 0.01 + 1e-12

    def test_disjoint_states_own_their_observations(self):
        process = richobs.make("disjoint", n_observations=6).process
        for emission in process.emissions:
            assert ((emission > 0).sum(axis=0) == 1).all()
            assert ((emission > 0).sum(axis=1) == 6).all()

    def test_disjoint_vectors_never_leave_their_ball(self):
        problem = richobs.make("disjoint,vectors=True")
        assert problem.process is None
        truth = problem.functions.member(problem.optimal_function)
        for path in itertools.product(range(3), repeat=3):
            values = truth.values(3, problem.env.draw(path, 200, keyed_generator(1)))
            np.testing.assert_array_equal(values, np.tile(values[:1], (200, 1)))  # one state, one row of Q*

    def test_mdp_shows_its_states(self):
        assert all((e == np.eye(len(e))).all() for e in richobs.make("mdp").process.emissions)

    def test_bandit_has_one_level_and_one_state(self):
        problem = richobs.make("bandit", n_contexts=3)
        assert (problem.horizon, problem.n_states) == (1, 1)
        assert problem.process.emissions[0].shape == (1, 3)


def test_categorical_rows_never_leave_their_support():
    """Probabilities with zeros in front, between and behind, sampled at the ends of the unit interval."""
    from richobs.envs.world import _Categorical

    rows = np.array([[0.0, 0.5, 0.0, 0.5, 0.0], [0.1, 0.2, 0.3, 0.4, 0.0], [0, 0, 0, 0, 1.0]])

    class Extremes:
        def random(self, n):
            return np.resize([0.0, 0.5 - 2**-54, 0.5, 1 - 2**-53], n)

    for row in range(3):
        drawn = _Categorical(rows).sample(np.full(40, row), Extremes())
        assert set(drawn.tolist()) <= set(np.flatnonzero(rows[row]).tolist())


def test_a_tabular_world_draws_from_its_law():
    problem = richobs.make("random", seed=5)
    assert isinstance(problem.world, TabularWorld)
    n = 40_000
    for level in range(problem.horizon):
        state = np.zeros(n, dtype=int)
        x = problem.world.observe(level, state, keyed_generator(level))
        law = problem.process.emissions[level][0]
        np.testing.assert_allclose(np.bincount(x, minlength=len(law)) / n, law, atol=5 * 0.5 / math.sqrt(n))
        shown = int(law.argmax())
        r = problem.world.reward(level, state, np.full(n, shown), state, keyed_generator(level, "r"))
        values, probs = (getattr(problem.process.rewards[level], k)[0, shown, 0] for k in ("values", "probs"))
        for v in set(values[probs > 0]):
            assert abs((r == v).mean() - probs[values == v].sum()) < 5 * 0.5 / math.sqrt(n)
        assert set(r.tolist()) <= set(values[probs > 0].tolist())


def test_nearly_certain_laws_are_drawn_as_certain():
    """A softmax that rounds to (1, 4e-18, 4e-18) must give its first outcome."""
    from richobs.envs.world import _Categorical

    law = np.array([[1.0, 4e-18, 4e-18]])
    assert (_Categorical(law).sample(np.zeros(50, dtype=int), keyed_generator(0)) == 0).all()


@pytest.mark.parametrize("world", ["bandit", "mdp", "disjoint", "random", "deep-sea"])
def test_the_tables_alone_do_not_tell_which_one_is_the_truth(world):
    """Attacks on the class: the table most like the others (by rows, columns, or distance) is Q* no more than by chance."""

    def attacks(tables):
        columns = [np.sort(t, axis=1).tobytes() for t in tables]
        rows = [np.array(sorted(map(tuple, t))).tobytes() for t in tables]
        yield [
            sum(c == d or r == s for d, s in zip(columns, rows, strict=True))
            for c, r in zip(columns, rows, strict=True)
        ]
        flat = tables.reshape(len(tables), -1)
        yield -np.abs(flat[:, None] - flat[None]).sum(axis=(1, 2) if flat.ndim == 3 else 2).sum(axis=1)

    hits = np.zeros(2)
    trials = 0
    for seed in range(40):
        problem = richobs.make(world, seed=seed)
        level = problem.horizon - 1
        tables, place = problem.functions.levels[level].tables, problem.optimal_function[level]
        same = np.abs(tables - tables[place]).max(axis=(1, 2)) == 0
        if same.sum() > 5:
            continue  # so symmetric that there is nothing to find
        trials += 1
        for i, score in enumerate(attacks(tables)):
            hits[i] += same[np.argmax(score)]
    assert (hits <= 0.35 * max(trials, 10)).all(), (hits, trials)

"""Engines: the law of counts at any n, both engines against each other, and who may change a result (nobody)."""

import math
import pickle

import numpy as np
import pytest

import richobs
from richobs.engines import CountedEngine, Ledger, StreamEngine
from richobs.engines.counts import as_counts, binomial, multinomial
from richobs.envs.world import PathEnvironment, TabularWorld
from richobs.errors import EpisodeLimit, InvalidInput, RewardOutOfRange
from richobs.functions import Layered, TableLevel
from richobs.problem import GreedyPolicy
from richobs.tabular import Rewards, TabularProcess


class TestCounts:
    @pytest.mark.parametrize(
        ("n", "p"),
        [
            (10**4, 0.3),
            (2**31 + 1, 0.5),
            (10**11, 0.02),
            (10**13, 1e-7),
            (10**15, 0.999),
            (10**18, 0.25),
            (10**21, 1 / 3),
            (10**24, 1e-12),
        ],
    )
    def test_binomial_counts_have_the_right_law(self, n, p):
        """5,000 standardised draws against the normal law (at these n no test can tell it from the binomial):

        mean, variance and Kolmogorov-Smirnov distance, each wrong with probability below 1e-6.
        """
        size = 5000
        drawn = binomial(np.full(size, n, dtype=as_counts(n).dtype), np.full(size, p), np.random.default_rng(0))
        centre, scale = round(n * p), math.sqrt(n * p * (1 - p))
        z = np.sort(np.array([int(k) - centre for k in drawn], dtype=float) / scale)
        assert abs(z.mean()) < 5 / math.sqrt(size)
        assert abs(z.var() - 1) < 5 * math.sqrt(2 / size)
        phi = np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in z])
        ranks = np.arange(size) / size
        lumps = 0.5 / scale  # the binomial law lives on integers
        assert max((phi - ranks).max(), (ranks + 1 / size - phi).max()) < 2.7 / math.sqrt(size) + lumps

    def test_small_binomials_are_numpys_own(self):
        a = binomial(np.array([5, 10]), np.array([0.5, 0.1]), np.random.default_rng(3))
        np.testing.assert_array_equal(a, np.random.default_rng(3).binomial([5, 10], [0.5, 0.1]))

    @pytest.mark.parametrize("n", [7, 10**12, 10**21])
    def test_multinomial_counts_sum_to_n_and_respect_zeros(self, n):
        probs = np.array([0.0, 0.2, 0.0, 0.5, 0.3, 0.0, 0.0])
        counts = multinomial(as_counts(n), probs, np.random.default_rng(1))
        assert sum(int(c) for c in counts) == n
        assert all(c == 0 for c, p in zip(counts, probs, strict=True) if p == 0)
        for c, p in zip(counts, probs, strict=True):
            assert abs(int(c) - n * p) <= 6 * math.sqrt(n * p * (1 - p)) + 1

    def test_multinomials_of_many_rows(self):
        n = np.array([10**12, 0, 3, 10**10])
        probs = np.tile([0.1, 0.2, 0.7], (4, 1))
        counts = multinomial(n, probs, np.random.default_rng(2))
        np.testing.assert_array_equal(counts.sum(axis=1), n)
        cells = np.array(
            [multinomial(as_counts(10**12), [0.1, 0.2, 0.7], np.random.default_rng(s)) for s in range(2000)]
        )
        scaled = (cells - 1e12 * np.array([0.1, 0.2, 0.7])) / 1e6
        covariance = np.cov(scaled.T)
        expected = np.diag([0.1, 0.2, 0.7]) - np.outer([0.1, 0.2, 0.7], [0.1, 0.2, 0.7])
        np.testing.assert_allclose(covariance, expected, atol=0.03)  # standard errors are below 0.007

    @pytest.mark.parametrize("probs", [[1.0, 1e-17], [1e-17, 1.0], [0.5, 0.5, 1e-17, 1e-17], [1e-17, 0.5, 0.5]])
    def test_rare_cells_are_not_lost_to_rounding(self, probs):
        counts = multinomial(as_counts(10**21), np.array(probs), np.random.default_rng(0))
        for c, p in zip(counts, probs, strict=True):
            if p == 1e-17:
                assert abs(int(c) - 10_000) < 600

    @pytest.mark.parametrize("p", [0.0, 1.0])
    def test_certain_outcomes(self, p):
        assert binomial(np.array([10**15]), np.array([p]), np.random.default_rng(0))[0] == p * 10**15


def indicator_class(process):
    """Per level, the functions that are 1 at one observation and 0 elsewhere, and 0: frequencies and mean rewards."""
    sizes = [e.shape[1] for e in process.emissions]
    tables = [
        np.concatenate([np.eye(x), np.zeros((1, x))])[:, :, None].repeat(process.n_actions, axis=2) for x in sizes
    ]
    return Layered([TableLevel(t) for t in tables])


def engines_for(process, env_process=None, n_seed=0, **kwargs):
    functions = indicator_class(process)
    counted = CountedEngine(process, functions, seed=n_seed, ledger=Ledger())
    env = PathEnvironment(TabularWorld(env_process or process))
    stream = StreamEngine(env, functions, seed=n_seed, ledger=Ledger(), **kwargs)
    return counted, stream


def largest_z(a, b, n):
    """Largest standardised difference between the moments of two engines, over frequencies and mean rewards."""
    pooled = np.maximum((a.v_var + b.v_var) / 2, 1 / n)
    zs = [np.abs(a.v_mean - b.v_mean) / np.sqrt(2 * pooled / n)]
    if sum(a.actions):
        per_action = n / len(a.actions)
        spread = np.maximum((a.u_var + b.u_var) / 2, 1 / per_action)
        zs.append((np.abs(a.u_mean - b.u_mean) / np.sqrt(2 * spread / per_action)).ravel())
    return max(float(z.max()) for z in zs)


N = 1_000_000
LIMIT = 6.0  # exceeded with probability below 1e-6 over the few hundred comparisons below


class TestAgreement:
    """Counted and streaming engines draw from the same law; a bias of one part in fifty is seen."""

    @pytest.mark.parametrize("seed", [3, 8])
    def test_in_distribution(self, seed):
        process = richobs.make("random/3", seed=seed, n_states=2).process
        counted, stream = engines_for(process)
        for path in [(), (1,), (0, 1)]:
            for ask in ("observe", "step"):
                a, b = (getattr(e, ask)(path, N, phase="t", purpose=ask) for e in (counted, stream))
                assert a.n == b.n == N
                assert largest_z(a, b, N) < LIMIT, (path, ask)

    def test_a_biased_emission_is_seen(self):
        process, biased = self.pair(tilt_emission=1.02)
        counted, stream = engines_for(process, biased)
        a, b = (e.observe((), N, phase="t", purpose="x") for e in (counted, stream))
        assert largest_z(a, b, N) > LIMIT

    def test_a_biased_reward_is_seen(self):
        process, biased = self.pair(tilt_reward=1.02)
        counted, stream = engines_for(process, biased)
        a, b = (e.step((), N, phase="t", purpose="x") for e in (counted, stream))
        assert largest_z(a, b, N) > LIMIT

    @staticmethod
    def pair(tilt_emission=1.0, tilt_reward=1.0):
        def process(e, r):
            return TabularProcess(
                start=np.ones(1),
                transitions=(),
                emissions=(np.array([[0.5 * e, 1 - 0.5 * e]]),),
                rewards=(Rewards.bernoulli([[[0.5 * r, 0.5], [0.5 * r, 0.5]]]),),
            )

        return process(1.0, 1.0), process(tilt_emission, tilt_reward)

    @pytest.mark.parametrize("id", ["random/3,seed=3", "lock/3,noise_bits=1,switch=0.3", "mdp/3,stochastic=True"])
    def test_rollouts_have_the_law_of_the_process(self, id):
        problem = richobs.make(id)
        process = problem.process
        policy = GreedyPolicy(problem.functions.member((1,) * process.horizon))
        law = {tuple(p): q for p, q in zip(*(a.tolist() for a in process.path_distribution(policy)), strict=True)}
        n, first = 100_000, 4000
        counted = CountedEngine(process, problem.functions, seed=1, ledger=Ledger())
        stream = StreamEngine(problem.env, problem.functions, seed=1, ledger=Ledger())
        for engine in (counted, stream):
            played = engine.rollout(policy, n, first, phase="t", purpose="r")
            error = math.sqrt(max(played.variance, 1e-4) / n)
            assert abs(played.mean - process.value(policy)) < 5.5 * error
            assert played.paths.shape == (first, process.horizon)
            for path, q in law.items():
                share = (played.paths == path).all(axis=1).mean()
                assert abs(share - q) < 5.5 * math.sqrt(max(q * (1 - q), 1e-3) / first), (engine.name, path)

    def test_the_first_rollouts_come_in_random_order(self):
        """With returns 0 and 1 equally likely, first and last of the first paths are independent."""
        problem = richobs.make("random/3,seed=3")
        policy = GreedyPolicy(problem.functions.member((1,) * 3))
        counted = CountedEngine(problem.process, problem.functions, seed=1, ledger=Ledger())
        firsts = np.array([counted.rollout(policy, 50, 2, phase="t", purpose="r").paths for _ in range(2000)])
        same = (firsts[:, 0] == firsts[:, 1]).all(axis=1).mean()
        _, probs = problem.process.path_distribution(policy)
        assert abs(same - (probs**2).sum()) < 5.5 * 0.5 / math.sqrt(2000)


class TestKeys:
    def test_asking_again_draws_anew_and_the_same_seed_draws_the_same(self):
        process = richobs.make("random/3,seed=3").process
        for which in (0, 1):
            one, two = engines_for(process)[which], engines_for(process)[which]
            first, again = (one.step((0,), 1000, phase="t", purpose="x") for _ in range(2))
            assert first.actions != again.actions
            assert two.step((0,), 1000, phase="t", purpose="x").actions == first.actions
            assert two.step((1,), 1000, phase="t", purpose="x").actions != first.actions

    @pytest.mark.parametrize("ask", ["observe", "step"])
    def test_workers_do_not_change_a_byte(self, ask):
        process = richobs.make("random/3,seed=3").process
        results = []
        for workers in (1, 2, 4):
            _, stream = engines_for(process, chunk=700, workers=workers)
            m = getattr(stream, ask)((0, 1), 10_001, phase="t", purpose="x")
            results.append((m.n, m.actions, m.v_mean.tobytes(), m.u_mean.tobytes(), m.u_var.tobytes()))
        assert results[0] == results[1] == results[2]

    def test_every_chunk_draws_its_own_numbers(self):
        process = richobs.make("random/3,seed=3").process
        one, two = (
            engines_for(process, chunk=1000)[1].step((0,), n, phase="t", purpose="x").actions for n in (1000, 2000)
        )
        assert two != tuple(2 * a for a in one)

    def test_workers_do_not_change_rollouts(self):
        problem = richobs.make("random/3,seed=3")
        policy = GreedyPolicy(problem.functions.member((1,) * 3))
        results = []
        for workers in (1, 3):
            stream = StreamEngine(problem.env, problem.functions, seed=1, ledger=Ledger(), chunk=100, workers=workers)
            played = stream.rollout(policy, 1234, 250, phase="t", purpose="r")
            results.append((played.mean, played.variance, played.paths.tobytes()))
        assert results[0] == results[1]

    def test_large_classes_are_evaluated_in_parts(self, monkeypatch):
        problem = richobs.make("lock/3,noise_bits=2")
        whole = StreamEngine(problem.env, problem.functions, seed=1, ledger=Ledger())
        a = whole.step((0,), 500, phase="t", purpose="x")
        monkeypatch.setattr("richobs.engines.base.AT_ONCE", 10_000)
        b = StreamEngine(problem.env, problem.functions, seed=1, ledger=Ledger()).step(
            (0,), 500, phase="t", purpose="x"
        )
        np.testing.assert_allclose(a.u_mean, b.u_mean, atol=1e-15)


class TestOddProcesses:
    def test_many_actions(self):
        """More actions than a short integer holds: the path and the value are still right."""
        K = 40_000
        moves = np.zeros((1, K), dtype=int)
        moves[0, 35_000] = 1
        process = TabularProcess(
            start=np.ones(1),
            transitions=(moves,),
            emissions=(np.ones((1, 1)), np.eye(2)),
            rewards=(Rewards.deterministic(0.0), Rewards.deterministic(np.array([0.0, 1.0])[:, None, None])),
        )

        class Right:
            def actions(self, level, x):
                return np.full(len(x), 35_000 if level == 0 else 0)

        functions = Layered([TableLevel(np.zeros((1, e.shape[1], K))) for e in process.emissions])
        played = CountedEngine(process, functions, seed=0, ledger=Ledger()).rollout(
            Right(), 10, 1, phase="t", purpose="r"
        )
        assert played.mean == 1.0
        assert played.paths.tolist() == [[35_000, 0]]

    def test_laws_that_sum_to_one_but_for_rounding(self):
        off = np.array([0.5 + 5e-10, 0.5, 0.0])
        process = TabularProcess(
            start=np.ones(1),
            transitions=(off.reshape(1, 1, 3),),
            emissions=(np.ones((1, 1)), np.eye(3)),
            rewards=(Rewards.deterministic(0.0), Rewards.finite([0.0, 0.5, 1.0], off)),
        )
        functions = indicator_class(process)
        engine = CountedEngine(process, functions, seed=0, ledger=Ledger())
        engine.rollout(GreedyPolicy(functions.member((0, 0))), 1000, 5, phase="t", purpose="r")
        engine.step((0,), 1000, phase="t", purpose="s")

    def test_draws_do_not_depend_on_who_found_the_way(self):
        """A state that nobody reaches has a random transition; finding the path once must not shift later draws."""
        process = TabularProcess(
            start=np.array([1.0, 0.0]),
            transitions=(np.array([[[1.0, 0.0]], [[0.5, 0.5]]]),),
            emissions=(np.eye(2), np.full((2, 2), 0.5)),
            rewards=(Rewards.deterministic(0.0), Rewards.deterministic(0.0)),
        )
        assert process.is_deterministic
        env = PathEnvironment(TabularWorld(process))
        first, again = (env.draw((0,), 50, np.random.default_rng(1)) for _ in range(2))
        np.testing.assert_array_equal(first, again)

    @pytest.mark.parametrize("paid", [math.nan, 7.0, -3.0])
    @pytest.mark.parametrize("ask", ["step", "rollout", "play"])
    def test_rewards_outside_the_range_stop_the_run(self, paid, ask):
        problem = richobs.make("mdp/2")

        class Generous(TabularWorld):
            def reward(self, level, states, x, actions, rng):
                rewards = super().reward(level, states, x, actions, rng)
                rewards[3] = paid
                return rewards

        engine = StreamEngine(PathEnvironment(Generous(problem.process)), problem.functions, seed=0, ledger=Ledger())
        requests = {
            "step": lambda: engine.step((), 10, phase="t", purpose="x"),
            "play": lambda: engine.play((0, 0), 10, [np.arange(2)] * 2, phase="t", purpose="x"),
            "rollout": lambda: engine.rollout(
                GreedyPolicy(problem.functions.member((0, 0))), 10, 1, phase="t", purpose="x"
            ),
        }
        with pytest.raises(RewardOutOfRange, match="episode 3 of a chunk"):
            requests[ask]()

    def test_problems_can_be_pickled(self):
        problem = pickle.loads(pickle.dumps(richobs.make("lock/3")))
        assert len(problem.env.draw((0,), 3, np.random.default_rng(0))) == 3


class TestLedger:
    def test_every_episode_is_charged_once(self):
        problem = richobs.make("random/3,seed=3")
        outcome = richobs.learn(problem, schedule="paper")
        assert sum(e.episodes for e in outcome.ledger) == outcome.episodes
        sums = outcome.ledger.by("purpose")
        assert sum(episodes for _, episodes in sums.values()) == outcome.episodes
        by_kind = {}
        for event in outcome.trace:
            by_kind[event.kind] = by_kind.get(event.kind, 0) + event.n
        assert by_kind == {kind[0]: episodes for kind, (_, episodes) in sums.items()}

    def test_streamed_episodes_are_those_the_environment_played(self):
        problem = richobs.make("random/3,seed=3")
        stream = StreamEngine(problem.env, problem.functions, seed=0, ledger=Ledger(), workers=2, chunk=100)
        stream.observe((0,), 1001, phase="t", purpose="x")
        stream.step((), 555, phase="t", purpose="x")
        stream.rollout(GreedyPolicy(problem.functions.member((0,) * 3)), 77, 5, phase="t", purpose="r")
        assert stream.ledger.total == problem.env.episodes == 1001 + 555 + 77

    def test_the_limit_is_kept_before_anything_is_played(self):
        ledger = Ledger(1000)
        ledger.charge("search", "consensus", (1, 0), 900)
        with pytest.raises(
            EpisodeLimit, match=r"elimination at path \(1, 0\) asks for 200 episodes; 100 remain of the 1,000"
        ):
            ledger.charge("search", "elimination", (1, 0), 200)
        assert ledger.total == 900
        assert [tuple(e) for e in ledger] == [("search", "consensus", (1, 0), 1, 900)]

    def test_impossible_engines(self):
        problem = richobs.make("mdp")
        with pytest.raises(InvalidInput, match="chunk and workers"):
            StreamEngine(problem.env, problem.functions, seed=0, ledger=Ledger(), workers=0)

"""Engines: the law of counts at any n, both engines against each other, and who may change a result (nobody)."""

import contextlib
import math
from types import SimpleNamespace

import numpy as np
import pytest

import richobs
from richobs.classes import Layered, TableLevel
from richobs.core.environment import Episodes
from richobs.core.errors import EpisodeLimit, InvalidInput, Rejected, RewardOutOfRange
from richobs.core.ledger import Ledger
from richobs.core.moments import Steps
from richobs.core.policies import Explore, Greedy, OpenLoop, Switch, Uniform
from richobs.core.process import Rewards, TabularProcess
from richobs.core.queries import LevelMoments, LevelSteps, Query
from richobs.engines import StreamEngine
from richobs.engines.answers import pack_answer, unpack_answer
from richobs.engines.stream import play_checked
from richobs.worlds.simulator import TabularWorld, WorldEnvironment
from richobs_lab.counted import CountedEngine, as_counts, binomial, multinomial
from test_process import value_by_enumeration

STEPS = ("x", "visits", "rewards", "next_x", "pair", "next", "moves")


def observe(engine, path, n, purpose="x"):
    """Moments of n observations at a node."""
    return engine.ask(Query.observe(path, n, purpose=purpose)).moments[0]


def step(engine, path, n, purpose="x", n_actions=2):
    """Moments of n samples at a node under uniform actions."""
    return engine.ask(Query.step(path, n, n_actions, purpose=purpose)).moments[0]


def rollout(engine, policy, n, paths, purpose="r"):
    return engine.ask(Query.rollout(policy, n, purpose=purpose, paths=paths))


class TestCounts:
    @pytest.mark.parametrize(
        ("n", "p"),
        [
            *((10**4, 0.3), (2**31 + 1, 0.5), (10**11, 0.02), (10**13, 1e-7)),
            *((10**15, 0.999), (10**18, 0.25), (10**21, 1 / 3), (10**24, 1e-12)),
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

    @pytest.mark.parametrize("n", [7, 10**12, 10**21])
    def test_multinomial_counts_sum_to_n_and_respect_zeros(self, n):
        probs = np.array([0.0, 0.2, 0.0, 0.5, 0.3, 0.0, 0.0])
        counts = multinomial(as_counts(n), probs, np.random.default_rng(1))
        assert sum(int(c) for c in counts) == n
        assert all(c == 0 for c, p in zip(counts, probs, strict=True) if p == 0)
        for c, p in zip(counts, probs, strict=True):
            assert abs(int(c) - n * p) <= 6 * math.sqrt(n * p * (1 - p)) + 1

    @pytest.mark.parametrize("probs", [[1.0, 1e-17], [1e-17, 1.0], [0.5, 0.5, 1e-17, 1e-17], [1e-17, 0.5, 0.5]])
    def test_rare_cells_are_not_lost_to_rounding(self, probs):
        counts = multinomial(as_counts(10**21), np.array(probs), np.random.default_rng(0))
        for c, p in zip(counts, probs, strict=True):
            if p == 1e-17:
                assert abs(int(c) - 10_000) < 600

    def test_a_law_that_rounding_left_above_one_is_drawn_from(self):
        assert multinomial(as_counts(5), np.array([0.0, 1 + 2**-52]), np.random.default_rng(0)).tolist() == [0, 5]

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
    env = WorldEnvironment(TabularWorld(env_process or process))
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

    def test_in_distribution(self):
        process = richobs.make("random/3", seed=3, n_states=2).process
        counted, stream = engines_for(process)
        for path in [(), (1,), (0, 1)]:
            for ask in (observe, step):
                a, b = (ask(e, path, N, ask.__name__) for e in (counted, stream))
                assert a.n == b.n == N
                assert largest_z(a, b, N) < LIMIT, (path, ask)

    @pytest.mark.parametrize(("tilt", "ask"), [((1.02, 1.0), observe), ((1.0, 1.02), step)])
    def test_a_bias_of_emissions_or_rewards_is_seen(self, tilt, ask):
        processes = []
        for e, r in ((1.0, 1.0), tilt):
            emissions, rewards = np.array([[0.5 * e, 1 - 0.5 * e]]), Rewards.bernoulli([[[0.5 * r, 0.5]] * 2])
            processes.append(TabularProcess(np.ones(1), (), (emissions,), (rewards,)))
        a, b = (ask(e, (), N) for e in engines_for(*processes))
        assert largest_z(a, b, N) > LIMIT

    @pytest.mark.parametrize("id", ["random/3,seed=3", "lock/3,noise_bits=1,swap=0.3", "mdp/3,stochastic=True"])
    def test_rollouts_have_the_law_of_the_process(self, id):
        problem = richobs.make(id)
        process = problem.process
        policy = Greedy(problem.functions.member((1,) * process.horizon))
        _, law = value_by_enumeration(process, policy)
        n, first = 100_000, 4000
        counted = CountedEngine(process, problem.functions, seed=1, ledger=Ledger())
        stream = StreamEngine(problem.env, problem.functions, seed=1, ledger=Ledger())
        for engine in (counted, stream):
            played = rollout(engine, policy, n, first)
            error = math.sqrt(max(played.returns.variance, 1e-4) / n)
            assert abs(played.returns.mean - process.value(policy)) < 5.5 * error
            assert played.paths.shape == (first, process.horizon)
            for path, q in law.items():
                share = (played.paths == path).all(axis=1).mean()
                assert abs(share - q) < 5.5 * math.sqrt(max(q * (1 - q), 1e-3) / first), (engine.name, path)

    def test_the_first_rollouts_come_in_random_order(self):
        """Counts are drawn group by group; which of the first episodes comes first must be a matter of chance.

        The first path of two equally likely ones is each of them half of the time, and not the one that is listed first.
        """
        process = TabularProcess(np.ones(1), (), (np.full((1, 2), 0.5),), (Rewards.deterministic(np.zeros((1, 2, 2))),))
        functions = Layered([TableLevel([[[1.0, 0.0], [0.0, 1.0]]])])  # takes the action that it sees
        counted = CountedEngine(process, functions, seed=1, ledger=Ledger())
        policy = Greedy(functions.member((0,)))
        trials = 400
        first = np.array([rollout(counted, policy, 50, 6).paths[:, 0] for _ in range(trials)])  # [trials, 6]
        assert abs(first[:, 0].mean() - 0.5) < 5.5 * 0.5 / math.sqrt(trials)
        assert abs((first[:, 0] == first[:, 5]).mean() - 0.5) < 5.5 * 0.5 / math.sqrt(trials)

    def test_levels_of_one_play_are_drawn_independently(self):
        """Two levels with the same coin: what is seen at one says nothing about the other."""
        law, nothing = (np.full((1, 2), 0.5),) * 2, (Rewards.deterministic(np.zeros((1, 1, 2))),) * 2
        process = TabularProcess(np.ones(1), (np.zeros((1, 2), dtype=int),), law, nothing)
        counted, _ = engines_for(process)
        members = [np.array([0])] * 2
        shares = []
        for _ in range(300):
            one, two = counted.ask(Query.along((0, 0), 40, members, purpose="x")).moments
            shares.append((one.v_mean[0], two.v_mean[0]))
        assert abs(np.corrcoef(np.array(shares).T)[0, 1]) < 5.5 / math.sqrt(300)

    def test_levels_of_random_transitions_are_not_drawn_apart(self):
        """What is seen at level 1 then depends on the episode, so levels are no batches of their own."""
        process = richobs.make("mdp/2,stochastic=True").process
        counted, _ = engines_for(process)
        with pytest.raises(InvalidInput, match="which needs deterministic transitions"):
            counted.ask(Query.along((0, 0), 40, [np.array([0])] * 2, purpose="x"))

    def test_rollouts_are_counted_once(self):
        """Every episode earns 0.5, whether or not its path is wanted: the mean is 0.5 and nothing varies."""
        process = TabularProcess(np.ones(1), (), (np.ones((1, 1)),), (Rewards.deterministic([[[0.5]]]),))
        played = rollout(engines_for(process)[0], OpenLoop((0,)), 10, 4)
        assert played.returns == (0.5, 0.0)
        assert played.paths.tolist() == [[0]] * 4

    def test_noise_of_rewards_is_the_same_in_both_engines(self):
        """A fair coin pays 0 or 1: the variance of f - r is 1/4 up to (1/200)^2 at n = 10,000."""
        process = TabularProcess(np.ones(1), (), (np.ones((1, 1)),), (Rewards.bernoulli([[[0.5]]]),))
        for engine in engines_for(process):
            assert step(engine, (), 10_000, n_actions=1).u_var.ravel() == pytest.approx([0.25, 0.25], abs=0.001)

    @pytest.mark.parametrize("id", ["random/3,seed=3", "mdp/3,stochastic=True"])
    @pytest.mark.parametrize("kind", ["greedy", "uniform", "explore", "switch"])
    def test_tallies_have_the_law_of_the_process(self, id, kind):
        """Counts of (level, observation, action), sums of rewards and moves: counted, streamed, and as computed."""
        problem = richobs.make(id)
        process, K = problem.process, problem.n_actions
        greedy = Greedy(problem.functions.member((1,) * process.horizon))
        others = {"explore": Explore(greedy, 0.3, K), "switch": Switch(OpenLoop((1,)), 1, Uniform(K))}
        policy = {"greedy": greedy, "uniform": Uniform(K), **others}[kind]
        n = 40_000
        counted = CountedEngine(process, problem.functions, seed=1, ledger=Ledger())
        stream = StreamEngine(problem.env, problem.functions, seed=1, ledger=Ledger(), process=process, chunk=7_000)
        a, b = (e.ask(Query(policy, n, "batch", tally=True)).tally for e in (counted, stream))
        assert all(v.sum() == n for t in (a, b) for v in t.visits)
        for one, other in zip(a.visits + a.moves, b.visits + b.moves, strict=True):
            spread = np.sqrt(np.maximum(one + other, 25))
            assert (np.abs(one - other) / spread).max() < LIMIT
        for tally in (a, b):
            assert abs(sum(r.sum() for r in tally.rewards) / n - process.value(policy)) < 5.5 * 0.5 / math.sqrt(n)
            for visits, moves in zip(tally.visits, tally.moves, strict=False):
                np.testing.assert_allclose(moves.sum(axis=2), visits)


class TestWhatIsWanted:
    def test_episodes_themselves(self):
        problem = richobs.make("lock/3")
        engine = StreamEngine(problem.env, problem.functions, seed=0, ledger=Ledger(), chunk=4)
        query = Query(OpenLoop((0, 1, 2)), 10, "look", returns=True, paths=3, episodes=True)
        answer = engine.ask(query)
        assert answer.episodes.n == 10
        assert answer.episodes.paths.tolist() == [[0, 1, 2]] * 10
        assert answer.paths.tolist() == [[0, 1, 2]] * 3
        assert answer.returns.mean == answer.episodes.returns.mean()

    def test_answers_survive_the_record(self):
        problem = richobs.make("mdp/3")
        engine = StreamEngine(problem.env, problem.functions, seed=0, ledger=Ledger(), process=problem.process)
        moments = (LevelMoments(0, np.array([0, 2])), LevelMoments(2, rewards=False))
        wanted = {"moments": moments, "steps": (LevelSteps(1), LevelSteps(2, moves=False))}
        query = Query(Uniform(3), 30, "look", returns=True, paths=4, tally=True, episodes=True, **wanted)
        answer = engine.ask(query)
        again = unpack_answer(pack_answer(answer))
        assert (again.n, again.returns) == (answer.n, answer.returns)
        np.testing.assert_array_equal(again.paths, answer.paths)
        for names, pairs in (
            (("actions", "u_mean", "u_var", "v_mean", "v_var"), zip(answer.moments, again.moments, strict=True)),
            (("n", *STEPS), zip(answer.steps, again.steps, strict=True)),
            (("visits", "rewards", "moves"), [(answer.tally, again.tally)]),
            (("observations", "actions", "rewards"), [(answer.episodes, again.episodes)]),
        ):
            for one, other in pairs:
                for name in names:
                    np.testing.assert_equal(getattr(one, name), getattr(other, name))
        assert answer.moments[0].u_var.max() > 0

    @pytest.mark.parametrize(
        ("query", "sentence"),
        [
            (Query(Explore(OpenLoop(()), 0.5, 4), 5, "x", moments=(LevelMoments(0),)), "actions do not depend on x"),
            (Query(Uniform(4), 5, "x", returns=True, steps=(LevelSteps(0),)), "in a query of their own"),
        ],
    )
    def test_what_counts_cannot_tell_is_refused(self, query, sentence):
        problem = richobs.make("lock/3")
        engine = CountedEngine(problem.process, problem.functions, seed=0, ledger=Ledger())
        with pytest.raises(InvalidInput, match=sentence):
            engine.ask(query)
        assert engine.ledger.total == 0

    @pytest.mark.parametrize(
        ("n", "options", "sentence"),
        [(0, {}, "at least one episode"), (5, {"steps": (LevelSteps(1), LevelSteps(0))}, "once each, in order")],
    )
    def test_what_is_no_query(self, n, options, sentence):
        with pytest.raises(InvalidInput, match=sentence):
            Query(Uniform(2), n, "x", **options)


class TestKeys:
    def test_different_paths_draw_different_numbers(self):
        """Both actions lead to the same state, so the two nodes have one law; what is drawn there differs all the same."""
        law, nothing = (np.ones((1, 1)), np.full((1, 2), 0.5)), (Rewards.deterministic(0.0),) * 2
        process = TabularProcess(np.ones(1), (np.zeros((1, 2), dtype=int),), law, nothing)
        for engine in engines_for(process):
            assert step(engine, (0,), 1000).actions != step(engine, (1,), 1000).actions

    def test_different_purposes_draw_different_numbers(self):
        """A batch that repeated its pilot would not be fresh data."""
        process = richobs.make("random/3,seed=3").process
        for which in (0, 1):
            pilot, batch = (step(engines_for(process)[which], (0,), 1000, purpose) for purpose in ("pilot", "batch"))
            assert pilot.actions != batch.actions

    def test_every_chunk_draws_its_own_numbers(self):
        process = richobs.make("random/3,seed=3").process
        one, two = (step(engines_for(process, chunk=1000)[1], (0,), n).actions for n in (1000, 2000))
        assert two != tuple(2 * a for a in one)

    def test_large_classes_are_evaluated_in_parts(self, monkeypatch):
        problem = richobs.make("lock/3,noise_bits=2")
        whole = StreamEngine(problem.env, problem.functions, seed=1, ledger=Ledger())
        a = step(whole, (0,), 500, n_actions=4)
        monkeypatch.setattr("richobs.classes.base.AT_ONCE_VALUES", 10_000)
        b = step(StreamEngine(problem.env, problem.functions, seed=1, ledger=Ledger()), (0,), 500, n_actions=4)
        np.testing.assert_allclose(a.u_mean, b.u_mean, atol=1e-15)


class TestOddProcesses:
    def test_laws_that_sum_to_one_but_for_rounding(self):
        off = np.array([0.5 + 5e-10, 0.5, 0.0])
        rewards = Rewards.deterministic(0.0), Rewards.finite([0.0, 0.5, 1.0], off)
        process = TabularProcess(np.ones(1), (off.reshape(1, 1, 3),), (np.ones((1, 1)), np.eye(3)), rewards)
        functions = indicator_class(process)
        engine = CountedEngine(process, functions, seed=0, ledger=Ledger())
        rollout(engine, Greedy(functions.member((0, 0))), 1000, 5)
        step(engine, (0,), 1000, n_actions=1)

    @pytest.mark.parametrize(("ask", "paid"), [("step", math.nan), ("rollout", 7.0), ("play", -3.0)])
    def test_rewards_outside_the_range_stop_the_run(self, paid, ask):
        problem = richobs.make("mdp/2")

        class Generous(TabularWorld):
            def reward(self, level, states, x, actions, rng):
                rewards = super().reward(level, states, x, actions, rng)
                rewards[3] = paid
                return rewards

        engine = StreamEngine(WorldEnvironment(Generous(problem.process)), problem.functions, seed=0, ledger=Ledger())
        queries = {
            "step": Query.step((), 10, 3, purpose="x"),
            "play": Query.along((0, 0), 10, [np.arange(2)] * 2, purpose="x"),
            "rollout": Query.rollout(Greedy(problem.functions.member((0, 0))), 10, purpose="x"),
        }
        with pytest.raises(RewardOutOfRange, match="episode 3 of a call"):
            engine.ask(queries[ask])

    def test_many_actions(self):
        """More actions than a short integer holds: the path and the value are still right."""
        K = 40_000
        moves = np.zeros((1, K), dtype=int)
        moves[0, 35_000] = 1
        rewards = Rewards.deterministic(0.0), Rewards.deterministic(np.array([0.0, 1.0])[:, None, None])
        process = TabularProcess(np.ones(1), (moves,), (np.ones((1, 1)), np.eye(2)), rewards)

        class Right:
            def actions(self, level, x, rng):
                return np.full(len(x), 35_000 if level == 0 else 0)

        functions = Layered([TableLevel(np.zeros((1, e.shape[1], K))) for e in process.emissions])
        played = rollout(CountedEngine(process, functions, seed=0, ledger=Ledger()), Right(), 10, 1)
        assert played.returns.mean == 1.0
        assert played.paths.tolist() == [[35_000, 0]]


class TestLedger:
    def test_streamed_episodes_are_those_the_environment_played(self):
        problem = richobs.make("random/3,seed=3")
        played = []

        class Counting(WorldEnvironment):
            def play(self, policy, n, rng, levels=None):
                played.append((n, levels))
                return super().play(policy, n, rng, levels)

        env = Counting(problem.truth.world)
        stream = StreamEngine(env, problem.functions, seed=0, ledger=Ledger(), workers=2, chunk=100)
        observe(stream, (0,), 1001)
        step(stream, (), 555)
        rollout(stream, Greedy(problem.functions.member((0,) * 3)), 77, 5)
        assert stream.ledger.total == sum(n for n, _ in played) == 1001 + 555 + 77
        assert {levels for _, levels in played} == {2, 1, 3}  # no level is played that nobody asked for


class TestEpisodesAreChecked:
    """Four episodes over two of three levels, action 1 asked for at the first: right as they are, wrong after a change."""

    class Env:
        horizon, n_actions, reward_range = 3, 2, (0.0, 1.0)

    @staticmethod
    def given(**changes):
        whole = {
            "observations": [np.arange(4), np.arange(4)],
            "actions": [np.ones(4, dtype=int), np.array([0, 1, 0, 1])],
            "rewards": [np.full(4, 0.2), np.full(4, 0.2)],
            "ended": [np.zeros(4, dtype=bool)] * 2,
        }
        return Episodes(**{**whole, **changes})

    def check(self, played, levels=2, env=Env):
        playing = env()
        playing.play = lambda *asked: played
        return play_checked(playing, OpenLoop((1,)), 4, np.random.default_rng(0), levels)

    def test_what_is_right_passes(self):
        assert self.check(self.given()).returns.tolist() == [0.4] * 4
        assert self.check(self.given(ended=())).ended == ()

    @pytest.mark.parametrize(
        ("changes", "sentence"),
        [
            ({"observations": [np.array([None] * 4), np.arange(4)]}, "observations at level 0 are Python objects"),
            ({"observations": [np.arange(4), np.arange(8)]}, r"observations at level 1 have shape \(8,\); 4 episodes"),
            ({"observations": [np.full(4, np.nan), np.arange(4)]}, r"is not a .*number \(NaN"),
            ({"observations": [np.array([0, 0, np.inf, 0])] * 2}, "level 0 is not a finite number.*: inf in episode 2"),
            ({"observations": [np.full((4, 2), np.nan + 0j)] * 2}, "is not a finite number"),
            ({"observations": [np.array(["NaT"] * 4, dtype="M8[s]")] * 2}, "is not a time"),
            ({"observations": [[[0], [0, 1]], np.arange(4)]}, "observations are not arrays"),
            ({"observations": None}, "observations must be a list with one array per level"),
            ({"actions": [np.ones(4, dtype=int), np.array([0, -1, 0, 1])]}, "took action -1 at level 1; there are"),
            ({"actions": [np.ones(4, dtype=int), np.array([0, 2, 0, 1])]}, "took action 2 at level 1; there are"),
            ({"actions": [np.full(4, 2**63, dtype=np.uint64)] * 2}, "took action 9223372036854775808 at level 0"),
            ({"actions": [np.array([1, 1, 0, 1]), np.ones(4, int)]}, "episode 2 took action 0 at level 0; action 1"),
            ({"actions": [np.ones(4), np.ones(4)]}, r"actions at level 0 must be \[n\] integers"),
            ({"actions": [np.ones(0, dtype=int)] * 2}, "actions at level 0 .*4 episodes were asked for"),
            ({"rewards": [np.full(4, np.nan)] * 2}, "level 0 paid nan"),
            ({"rewards": [np.full(4, 0.2j)] * 2}, r"rewards at level 0 must be \[n\] numbers; got complex"),
            ({"rewards": [["a"] * 4] * 2}, r"rewards at level 0 must be \[n\] numbers"),
            ({"rewards": [[10**30] * 4] * 2}, r"rewards at level 0 must be \[n\] numbers"),
            ({"rewards": [np.ma.masked_array(np.zeros(4), mask=True)] * 2}, "rewards have masked entries"),
            ({"rewards": [np.full(5, 0.2)] * 2}, r"rewards at level 0 have shape \(5,\); 4 episodes"),
            ({"rewards": [np.full((4, 1), 0.2)] * 2}, r"rewards at level 0 must be \[n\] numbers"),
            ({"rewards": [np.full(4, 0.2)] * 3}, "rewards of 3 levels; 2 were asked for"),
            ({"rewards": [None, None]}, "rewards at level 0"),
            ({"ended": None}, "ended must be a list with one array per level; got NoneType"),
            ({"ended": [np.zeros(4, dtype=bool), np.array([True] * 4)]}, "paid 0.2 after the episode's end"),
            ({"ended": [np.zeros(4, dtype=int)] * 2}, r"ended at level 0 must be \[n\] True or False"),
            ({"ended": [np.zeros(3, dtype=bool)] * 2}, "ended at level 0 .*4 episodes were asked for"),
            (
                {"ended": [np.array([False, False, True, True])] * 2, "rewards": [np.zeros(4)] * 2},
                "episode 2 is over before its first action",
            ),
        ],
    )
    def test_what_is_not_an_answer_is_rejected(self, changes, sentence):
        with pytest.raises(Rejected, match=sentence):
            self.check(self.given(**changes))

    def test_totals_are_kept_even_where_an_episode_is_cut_short(self):
        """Rewards that are never negative cannot make up later for a total above the range; at the end both sides count."""
        with pytest.raises(RewardOutOfRange, match=r"level 1 paid 0\.8, which makes 1\.6 in total"):
            self.check(self.given(rewards=[np.full(4, 0.8)] * 2))

        class Generous(self.Env):
            horizon, reward_range = 2, (0.5, 1.0)

        with pytest.raises(RewardOutOfRange, match=r"makes 0\.4 in total; .* \[0\.5, 1\]"):
            self.check(self.given(), env=Generous)


def step_law(process, policy, level):
    """Exact law of (x, a, x') at a level, `[X, K, X']`, by listing every way to get there; and mean rewards `[X, K]`."""
    K = process.n_actions
    ways = {int(s): p for s, p in enumerate(process.start)}
    for h in range(level + 1):
        law, ahead, paid = process.action_law(policy, h), {}, np.zeros((process.emissions[h].shape[1], K))
        joint = np.zeros((*paid.shape, process.emissions[h + 1].shape[1]))
        for s, p in ways.items():
            for x, e in enumerate(process.emissions[h][s]):
                for a in range(K):
                    chance = p * e * law[x, a]
                    paid[x, a] += chance * process.rewards[h].mean[s, x, a]
                    for t, q in enumerate(process.transitions[h][s, a]):
                        ahead[t] = ahead.get(t, 0.0) + chance * q
                        joint[x, a] += chance * q * process.emissions[h + 1][t]
        ways = ahead
    return joint, paid


def as_arrays(steps, process, level):
    """Steps as visits, rewards and moves over all observations of the process."""
    K = process.n_actions
    x, y = process.encode(level, steps.x), process.encode(level + 1, steps.next_x)
    visits, rewards = np.zeros((2, process.emissions[level].shape[1], K))
    visits[x], rewards[x] = steps.visits, steps.rewards
    moves = np.zeros((*visits.shape, process.emissions[level + 1].shape[1]))
    moves[x[steps.pair // K], steps.pair % K, y[steps.next]] = steps.moves
    return visits, rewards, moves


STEP_WORLDS = ["random/3,seed=3", "mdp/3,stochastic=True", "random/3,violate=deterministic,seed=5"]
STEP_WORLDS += ["lock/3,noise_bits=1"]


class TestSteps:
    """Counts of (x, a, r, x') at a level that any policy may lead to."""

    @staticmethod
    def engines(problem, **options):
        return (
            CountedEngine(problem.process, problem.functions, seed=4, ledger=Ledger()),
            StreamEngine(problem.env, problem.functions, seed=4, ledger=Ledger(), **options),
        )

    @staticmethod
    def largest_z(steps, process, policy, level, n):
        """Largest standardised distance from the exact law, over visits, rewards and moves."""
        joint, paid = step_law(process, policy, level)
        visits, rewards, moves = as_arrays(steps, process, level)
        assert visits[joint.sum(axis=2) == 0].sum() == moves[joint == 0].sum() == 0  # nothing that cannot happen

        def distance(counts, law):
            return float((np.abs(counts / n - law) / np.sqrt(np.maximum(law * (1 - law), 1e-3) / n)).max())

        return max(distance(visits, joint.sum(axis=2)), distance(rewards, paid), distance(moves, joint))

    @pytest.mark.parametrize("id", STEP_WORLDS)
    @pytest.mark.parametrize("level", [0, 1])
    @pytest.mark.parametrize("uniform", [True, False])
    def test_both_engines_have_the_law_of_the_process(self, id, level, uniform):
        """Rewards lie in [0, 1], so their variance is at most their mean, as for a count."""
        problem = richobs.make(id)
        rolled = Greedy(problem.functions.member((1,) * 3))
        policy = Switch(rolled, level, Uniform(problem.n_actions)) if uniform else rolled
        n = 200_000
        for engine in self.engines(problem):
            (steps,) = engine.ask(Query(policy, n, "x", levels=level + 2, steps=(LevelSteps(level),))).steps
            assert steps.n == n
            assert steps.visits.sum() == steps.moves.sum() == n
            assert self.largest_z(steps, problem.process, policy, level, n) < LIMIT, engine.name

    def test_another_law_is_seen(self):
        problem = richobs.make(STEP_WORLDS[1])
        policy, other = Uniform(3), Switch(Explore(OpenLoop((0,)), 0.95, 3), 1, Uniform(3))
        for engine in self.engines(problem):
            (steps,) = engine.ask(Query(other, 1_000_000, "x", levels=3, steps=(LevelSteps(1),))).steps
            assert self.largest_z(steps, problem.process, policy, 1, 1_000_000) > LIMIT

    @pytest.mark.parametrize("n", [50, 10**13, 10**20])
    @pytest.mark.parametrize("id", STEP_WORLDS[1:3])
    def test_levels_belong_to_the_same_episodes(self, id, n):
        """What follows level 0 is what level 1 sees, count by count."""
        problem = richobs.make(id)
        policy = Greedy(problem.functions.member((1,) * 3))
        wanted = (LevelSteps(0), LevelSteps(1), LevelSteps(2, moves=False))
        for engine in self.engines(problem)[: 2 if n < 10**6 else 1]:
            first, then, last = engine.ask(Query(policy, n, "x", steps=wanted)).steps
            for before, after in ((first, then), (then, last)):
                came = np.bincount(before.next, weights=before.moves)
                np.testing.assert_array_equal(before.next_x, after.x)
                np.testing.assert_allclose(came, after.visits.sum(axis=1), rtol=1e-15)
            assert len(last.next_x) == len(last.moves) == 0

    def test_queries_that_want_steps_have_other_words(self):
        plain = Query(Uniform(2), 5, "x")
        assert len(plain.words) == 7
        assert Query(Uniform(2), 5, "x", steps=(LevelSteps(1),)).words == [*plain.words, [[1, True]]]

    @pytest.mark.parametrize("kind", ["numbers", "bits", "vectors", "words", "nothing"])
    def test_sums_of_parts_are_the_whole(self, kind):
        rng = np.random.default_rng(0)
        n = 400

        def seen():
            number = rng.integers(5, size=n)
            number[:7] = 3 + number[:7] % 2  # the first part has others than the second
            rows = {
                "numbers": np.arange(5),
                "bits": np.array([[0, 0], [0, 1], [1, 0], [1, 1], [1, 2]], dtype=np.int8),
                "vectors": np.random.default_rng(1).normal(size=(5, 3)),
                "words": np.array(["a", "bb", "c", "d", "e"]),
                "nothing": np.zeros((5, 0)),
            }
            return rows[kind][number]

        x, y, a, r = seen(), seen(), rng.integers(3, size=n), rng.integers(4, size=n) / 4
        whole = Steps.of(x, a, r, y, 3)
        cuts = [slice(0, 7), slice(7, 30), slice(30, n)]
        first, *others = (Steps.of(x[c], a[c], r[c], y[c], 3) for c in cuts)
        for part in others:
            first += part
        assert first.n == n
        assert len(whole.x) == (1 if kind == "nothing" else 5)
        for name in STEPS:
            np.testing.assert_array_equal(getattr(first, name), getattr(whole, name))
        for i, j, count in zip(whole.pair, whole.next, whole.moves, strict=True):
            same = (a == i % 3) & np.array([np.array_equal(v, whole.x[i // 3]) for v in x])
            assert count == (same & np.array([np.array_equal(v, whole.next_x[j]) for v in y])).sum()

    @pytest.mark.parametrize("which", [0, 1])
    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ({"steps": (LevelSteps(2),)}, "level 2 and what is seen next, and plays levels 0 to 2 only"),
            ({"steps": (LevelSteps(1, moves=False),), "levels": 1}, "level 1, and plays levels 0 to 0 only"),
        ],
    )
    def test_levels_that_are_not_played_are_refused(self, which, options, sentence):
        engine = self.engines(richobs.make(STEP_WORLDS[0]))[which]
        with pytest.raises(InvalidInput, match=sentence):
            engine.ask(Query(Uniform(2), 5, "x", **options))
        assert engine.ledger.total == 0


def test_a_learner_may_ask_for_less_after_the_limit():
    """A query that the ledger refused is no draw: the record goes on without a gap."""
    problem, kept = richobs.make("lock/2"), []
    inside = StreamEngine(problem.env, problem.functions, seed=0, ledger=Ledger(100))
    inside.log = SimpleNamespace(draw=lambda k: None, keep_draw=lambda k, words, body: kept.append(k))
    for n, purpose in ((60, "first"), (60, "too many"), (10, "fewer")):
        with contextlib.suppress(EpisodeLimit):
            inside.ask(Query(OpenLoop((0, 0)), n, purpose))
    assert kept == [0, 1]


def test_a_stop_iteration_of_a_policy_does_not_end_a_batch_in_silence():
    """`map` would take it for the end of the chunks, and the batch would count as whole."""

    class Tired(Uniform):
        asked = 0

        def actions(self, level, x, rng, /):
            self.asked += 1
            if self.asked > 4:
                raise StopIteration
            return super().actions(level, x, rng)

    problem = richobs.make("lock/3")
    engine = StreamEngine(problem.env, problem.functions, seed=0, ledger=Ledger(), chunk=10)
    with pytest.raises(RuntimeError, match="StopIteration"):
        engine.ask(Query(Tired(4), 100, "x", returns=True))

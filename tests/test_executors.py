"""Who does the work of a run changes no byte of it: threads, processes, any executor; and what may not be sent is not."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
import threadpoolctl

import own
import richobs
from own import ENDS, FUNCTIONS, ROOTS
from richobs.classes import Callables, Layered, TableLevel
from richobs.core import executors
from richobs.core.errors import InvalidInput, Rejected, WorkerFailed
from richobs.core.executors import Spec, Workers, do_task
from richobs.core.ledger import Ledger
from richobs.core.policies import OpenLoop, Uniform
from richobs.core.queries import LevelMoments, LevelSteps, Query
from richobs.engines import Calls, StreamEngine
from richobs.engines.answers import pack_answer
from richobs.engines.calls import Request, parts_of, play_call

ASKED = {"epsilon": 0.05, "delta": 0.2, "max_episodes": 300, "progress": False}


class Own(own.Own):
    declared = richobs.Declared(replayable=True)


class InThreads(Own):
    """Says that it releases the interpreter lock, and notes who plays it, and how many episodes."""

    declared = richobs.Declared(replayable=True, releases_gil=True)
    players: ClassVar[set[str]] = set()
    episodes: ClassVar[int] = 0

    def play(self, policy, n, rng, levels=None):
        InThreads.episodes += n
        self.players.add(threading.current_thread().name.partition("_")[0])
        return super().play(policy, n, rng, levels)


class Busy(Own):
    """Two threads must not play one copy of it at the same time."""

    busy = False

    def play(self, policy, n, rng, levels=None):
        assert not self.busy
        self.busy = True
        time.sleep(0.005)
        played = super().play(policy, n, rng, levels)
        self.busy = False
        return played


class Undeclared(Busy):
    declared = richobs.Declared()


class OwnGenerator(Own):
    """Declares what is not true: it has a generator of its own, of which every copy has a copy."""

    def __init__(self):
        self.hidden = np.random.default_rng(0)

    def play(self, policy, n, rng, levels=None):
        return super().play(policy, n, self.hidden, levels)


class Remade(Own):
    """Declares what is not true: every copy draws for itself what it is like."""

    made = number = 0

    def __setstate__(self, state):
        Remade.made += 1
        self.number = Remade.made

    def __getstate__(self):
        return {"number": 0}

    def play(self, policy, n, rng, levels=None):
        return super().play(policy, n, np.random.default_rng([self.number, int(rng.integers(2**31))]), levels)


class OneAtATime(Own):
    """Plays one episode per call, and says so."""

    declared = richobs.Declared(replayable=True, at_once=1)

    def play(self, policy, n, rng, levels=None):
        assert n == 1
        return super().play(policy, n, rng, levels)


SETTINGS = {"pays": 0.9, "root": 0.72}  # of this module; a worker imports it anew


class PaysBehindALock(Own):
    """What it pays behind six right actions is a setting of this module: trials hardly ever get there."""

    horizon, n_actions, reward_range = 6, 4, (0.0, 1.0)

    def play(self, policy, n, rng, levels=None):
        seen, taken, paid, right = [], [], [], np.ones(n, dtype=bool)
        for level in range(levels or 6):
            seen.append(right.astype(int))
            taken.append(policy.actions(level, seen[-1], rng))
            right = right & (taken[-1] == 3)
            paid.append(np.where(right & (level == 5), SETTINGS["pays"], 0.0))
        return richobs.Episodes(seen, taken, paid)


class CoinBehindALock(gymnasium.Env):
    """Six right actions, and a generator of its own tosses a coin; seeds give the first observation, or nothing at all."""

    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(4)

    def __init__(self, hidden=0, probability=0.5, start=False):
        self.hidden, self.probability, self.start = np.random.default_rng(hidden), probability, start

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.level, self.right = 0, True
        return int(self.np_random.integers(2)) if self.start else 1, {}

    def step(self, action):
        self.right, self.level = self.right and action == 3, self.level + 1
        pays = self.right and self.level == 6 and self.hidden.random() < self.probability
        return int(self.right), float(pays), self.level == 6, False, {}


def configured(level, x):
    return np.full((len(x), 2), SETTINGS["root"])


def constant(level, x):
    return np.full((len(x), 2), 0.5)


class Steps(gymnasium.Env):
    """A walk on the numbers 0 to 3 with random steps, as Gymnasium wants it."""

    observation_space, action_space = gymnasium.spaces.Discrete(4), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(2))
        return self.place, {}

    def step(self, action):
        self.place = min(3, self.place + int(action == 1 and self.np_random.random() < 0.8))
        return self.place, float(self.place == 3) / 2, False, False, {}


class Unseeded(gymnasium.Env):
    """Ignores the seed of its reset: one step, which pays what a generator of its own draws."""

    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)

    def __init__(self, hidden=0):
        self.hidden = np.random.default_rng(hidden)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 0, self.pays(), True, False, {}

    def pays(self):
        return float(self.hidden.random())


class SharedByAll(Unseeded):
    """All copies draw from one generator."""

    of_all = np.random.default_rng(1)

    def __init__(self):
        self.hidden = self.of_all


class EachDifferent(Unseeded):
    """Episodes of one copy are alike but for their sign, which follows from seeds; those of another are not like them."""

    made = 0

    def __init__(self):
        EachDifferent.made += 1
        self.number = 1 / EachDifferent.made

    def reset(self, *, seed=None, options=None):
        self.sign = 1 - 2 * (seed % 2)
        return 0, {}

    def pays(self):
        return self.sign * self.number


class Counted(ThreadPoolExecutor):
    """Counts what is submitted, and how many tasks brought the spec along."""

    def __init__(self, n):
        super().__init__(n)
        self.tasks = self.whole = 0

    def submit(self, fn, /, *args):
        self.tasks += 1
        self.whole += args[1] is not None
        return super().submit(fn, *args)


class RepeatsItself(ThreadPoolExecutor):
    """Gives its first answer to every task."""

    first = None

    def submit(self, fn, /, *args):
        self.first = self.first or super().submit(fn, *args)
        return self.first


class AnswersNothing(ThreadPoolExecutor):
    def submit(self, fn, /, *args):
        return super().submit(len, "")


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.fixture
def threads():
    with Counted(2) as pool:
        yield pool


@pytest.fixture(autouse=True)
def _forget():
    """A worker process is new to each test; these threads share the process of all tests."""
    executors._specs.clear()


def files_of(folder):
    return {name: (folder / name).read_bytes() for name in ("certificate.json", "policy.npz")}


class TestSameBytes:
    def test_an_environment_of_your_own(self, tmp_path, processes, threads):
        whole = richobs.learn(Own(), FUNCTIONS, **ASKED, out=tmp_path / "one")
        for name, workers in (("two", threads), ("three", processes)):
            outcome = richobs.learn(Own(), FUNCTIONS, **ASKED, workers=workers, out=tmp_path / name)
            assert outcome.trace == whole.trace
            assert files_of(tmp_path / name) == files_of(tmp_path / "one")
        assert whole.episodes > 100
        assert threads.tasks > 16

    def test_a_built_in_world(self, monkeypatch, processes, threads):
        monkeypatch.setattr("richobs.engines.stream.CHUNK_LEVELS", 400)
        problem = richobs.make("lock/4,seed=3")
        moments, steps = (LevelMoments(1, np.array([0, 2])), LevelMoments(3)), (LevelSteps(0), LevelSteps(2))
        wanted = {"returns": True, "paths": 150, "tally": True, "moments": moments, "steps": steps}
        query = Query(Uniform(problem.n_actions), 1_001, "x", **wanted)

        def answer(workers):
            engine = StreamEngine(
                problem.env, problem.functions, seed=5, ledger=Ledger(), process=problem.process, workers=workers
            )
            return pack_answer(engine.ask(query))

        one = answer(1)
        assert answer(3) == one
        assert answer(Workers(1, processes)) == one
        assert answer(Workers(1, threads)) == one
        assert threads.tasks == 11

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("kind", ["loky", "dask"])
    def test_other_executors(self, tmp_path, kind):
        if kind == "loky":
            pool = pytest.importorskip("loky").ProcessPoolExecutor(2)
            close = pool.shutdown
        else:
            client = pytest.importorskip("distributed").Client(
                n_workers=2, threads_per_worker=1, dashboard_address=None
            )
            pool, close = client.get_executor(), client.close
        try:
            for name, executor in (("one", 1), ("two", pool)):
                richobs.learn(Own(), FUNCTIONS, **ASKED, workers=executor, out=tmp_path / name)
            assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
        finally:
            close()


class TestCalls:
    def test_every_call_has_numbers_of_its_own(self):
        played = Calls(Own()).play(Uniform(2), 320, np.random.default_rng(0))
        calls = {tuple(np.concatenate([part.observations[0], part.actions[0]])) for part in cut(played, 20)}
        assert len(calls) == 16

    def test_their_size_does_not_depend_on_who_plays(self):
        own, undeclared = richobs.Declared(replayable=True), richobs.Declared()
        assert [own.call_size(n) for n in (1, 16, 17, 100, 512, 10**9)] == [1, 1, 2, 7, 32, 32]
        assert [undeclared.call_size(n) for n in (1, 512, 10**9)] == [32, 32, 32]
        assert richobs.Declared(replayable=True, at_once=3).call_size(512) == 3

    def test_recorded_calls_are_not_sent(self, threads):
        calls = {}

        class Notes:
            def call(self, key):
                return calls.get(key)

            def keep_call(self, key, answer):
                assert key not in calls
                calls[key] = answer

        def play():
            env = Calls(Own(), Notes(), workers=Workers(1, threads))
            return env.play(Uniform(2), 64, np.random.default_rng(0))

        first = play()
        for key in sorted(calls)[:12]:
            del calls[key]
        again = play()
        assert threads.tasks == 15 + 11  # the first call is made here, as nothing was before
        for key in sorted(calls)[:5]:
            del calls[key]
        play()
        assert threads.tasks == 15 + 11  # to compare 4 of 20 episodes would be more than a tenth
        np.testing.assert_array_equal(again.observations, first.observations)


def cut(played, size):
    return [played.part(i, i + size) for i in range(0, played.n, size)]


class TestWhatMayBeSent:
    @pytest.mark.parametrize("kind", [OwnGenerator, Remade])
    def test_an_environment_that_hides_randomness_is_refused(self, kind, threads):
        """Copies in several workers would all play the same episodes, and a claim would count them as independent."""
        with pytest.raises(Rejected, match="copies of it do not play the same episodes with the same generator"):
            Calls(kind(), workers=Workers(1, threads)).play(Uniform(2), 32, np.random.default_rng(0))

    @pytest.mark.parametrize("kind", [Unseeded, SharedByAll, EachDifferent])
    def test_a_gymnasium_environment_that_ignores_seeds_is_played_by_one_copy(self, kind, threads, caplog):
        env, ledger = richobs.from_gymnasium(kind, horizon=1, reward_range=(-1, 1)), Ledger()
        paced = Calls(env, workers=Workers(1, threads), ledger=ledger)
        played = [paced.play(Uniform(2), 64, np.random.default_rng(draw)) for draw in range(10)]
        assert "does not take all its randomness from the seed of its reset" in caplog.text
        assert env.real_episodes == 640  # all of the run was played here
        assert 0 < ledger.checks == 4 * threads.tasks <= 32  # calls that were made again
        if kind is Unseeded:
            assert len(set(np.ravel([part.rewards for part in played]))) == 640

    def test_it_plays_what_one_given_environment_plays(self):
        envs = [richobs.from_gymnasium(given, horizon=1, reward_range=(0, 1)) for given in (Unseeded, Unseeded())]
        one, two = (env.play(Uniform(2), 40, np.random.default_rng(0)) for env in envs)
        np.testing.assert_array_equal(one.rewards, two.rewards)

    def test_a_policy_of_a_gymnasium_environment_is_shared_once_its_returns_followed_from_seeds(self, threads):
        env, ledger = richobs.from_gymnasium(Steps, horizon=2, step_range=(0.0, 0.5)), Ledger()
        paced = Calls(env, workers=Workers(1, threads), ledger=ledger)
        one = Calls(richobs.from_gymnasium(Steps, horizon=2, step_range=(0.0, 0.5)))
        for policy, shared in ((OpenLoop((1, 1)), True), (OpenLoop((0, 0)), False)):  # the second always earns 0
            before = threads.tasks
            for draw in range(20):
                here, there = (player.play(policy, 32, np.random.default_rng(draw)) for player in (one, paced))
                np.testing.assert_array_equal(here.rewards, there.rewards)
            assert (threads.tasks - before > 16) is shared
        assert 0 < ledger.checks <= 2 * 20 * 32 / 10

    @pytest.mark.parametrize("start", [False, True])
    def test_a_coin_behind_a_lock_that_copies_share_is_tossed_by_one_copy(self, start, threads, caplog):
        """Eight agreements by chance have probability 1/256 at most, whatever the coin: here in none of 10 environments."""
        shared = 0
        for hidden in range(10):
            made = {"hidden": hidden, "probability": (0.5, 0.8)[hidden % 2], "start": start}
            env = richobs.from_gymnasium(CoinBehindALock, horizon=6, reward_range=(0, 1), **made)
            paced = Calls(env, workers=Workers(1, threads))
            for draw in range(12):
                paced.play(OpenLoop((3,) * 6), 16, np.random.default_rng(draw))
            shared += env.real_episodes < 12 * 16
        assert shared == 0
        assert "does not take all its randomness from the seed of its reset" in caplog.text

    def test_processes_that_a_gymnasium_environment_asks_for_are_workers(self):
        env = richobs.from_gymnasium(Steps, horizon=2, step_range=(0.0, 0.5), vector=2)
        found = richobs.certify_policy(env, OpenLoop((1, 1)), max_episodes=400, progress=False)
        assert 8 <= found.checks <= 40
        assert f"400 episodes, and {found.checks} played again to compare copies" in str(found)
        assert env.real_episodes < 400
        alone = richobs.from_gymnasium(Steps, horizon=2, step_range=(0.0, 0.5))
        again = richobs.certify_policy(alone, OpenLoop((1, 1)), max_episodes=400, progress=False)
        assert (again.lower, again.upper, again.checks) == (found.lower, found.upper, 0)

    def test_one_episode_in_ten_is_played_again_at_most_and_the_ledger_says_how_many_were(self, threads):
        """A run of 24 episodes with four workers once played 156."""
        for most in (24, 300):
            InThreads.episodes = 0
            outcome = richobs.learn(InThreads(), FUNCTIONS, **{**ASKED, "max_episodes": most}, workers=threads)
            assert InThreads.episodes == outcome.ledger.played == outcome.episodes + outcome.ledger.checks
            assert 0 < outcome.ledger.checks <= outcome.episodes / 10
            assert f" episodes, and {outcome.ledger.checks} played again to compare workers" in str(outcome)

    def test_so_is_one_whose_settings_show_only_under_the_policy_that_is_played(self, monkeypatch, processes):
        env = Calls(PaysBehindALock(), workers=Workers(2, processes))
        env.play(OpenLoop((3,) * 6), 32, np.random.default_rng(0))
        monkeypatch.setitem(SETTINGS, "pays", 0.2)
        with pytest.raises(WorkerFailed, match="plays other episodes than the one in this process"):
            env.play(OpenLoop((3,) * 6), 32, np.random.default_rng(0))

    def test_so_is_one_with_another_class(self, monkeypatch, processes):
        monkeypatch.setattr("richobs.engines.stream.CHUNK_LEVELS", 400)
        monkeypatch.setitem(SETTINGS, "root", 0.1)
        problem = richobs.make("bandit,n_actions=2")
        functions = Callables([constant, configured], problem.horizon, n_actions=2)
        engine = StreamEngine(problem.env, functions, seed=0, ledger=Ledger(), workers=Workers(1, processes))
        with pytest.raises(WorkerFailed, match="a worker has another class of functions than this process"):
            engine.ask(Query.observe((), 1_000, purpose="x", phase="x"))

    def test_one_that_is_not_declared_stays_and_says_so_once(self, threads, caplog, monkeypatch):
        monkeypatch.setattr("richobs.engines.stream.CHUNK_LEVELS", 8)  # two chunks must not be played at once
        one, two, four = (richobs.learn(Undeclared(), FUNCTIONS, **ASKED, workers=n) for n in (1, threads, 4))
        assert one.trace == two.trace == four.trace
        assert threads.tasks == 0
        assert [r.message for r in caplog.records] == [
            "Undeclared does not declare `replayable`, so it is played in this process, by one thread. See docs/scale.md."
        ] * 2

    def test_one_that_answers_from_memory_stays(self, threads, caplog):
        env = Own()
        env.declared, env.real_episodes = richobs.Declared(replayable=True, deterministic=True), 0
        Calls(env, workers=Workers(1, threads)).play(Uniform(2), 64, np.random.default_rng(0))
        assert threads.tasks == 0
        assert "Own is declared deterministic, so it is played in this process" in caplog.text

    def test_neither_is_one_that_cannot_be_pickled(self, threads, caplog):
        env = Own()
        env.line = threading.Lock()
        one, two = (richobs.learn(env, FUNCTIONS, **ASKED, workers=pool) for pool in (1, threads))
        assert one.trace == two.trace
        assert threads.tasks == 0
        assert "Own cannot be copied (TypeError: cannot pickle '_thread.lock' object), so it is played" in caplog.text

    def test_policies_of_python_code_stay_and_the_others_are_sent(self, threads, caplog):
        functions = Callables([lambda level, x: np.array((ROOTS, ENDS)[level][0])[x]], 2, 2)
        env = Calls(Own(), functions=functions, workers=Workers(1, threads))
        env.play(richobs.LearnedPolicy(functions, 0), 32, np.random.default_rng(0))
        assert threads.tasks == 0
        assert "a policy of type LearnedPolicy cannot be sent to workers" in caplog.text
        env.play(OpenLoop((0, 1)), 32, np.random.default_rng(0))
        assert threads.tasks == 16

    def test_threads_where_it_says_that_they_pay(self):
        InThreads.players.clear()
        richobs.learn(InThreads(), FUNCTIONS, **ASKED, workers=2)
        assert "richobs" in InThreads.players

    def test_every_thread_plays_a_copy_of_its_own(self, threads):
        env = Calls(Busy(), workers=Workers(1, threads))
        assert env.play(Uniform(2), 32, np.random.default_rng(0)).n == 32
        assert threads.tasks == 15

    def test_a_stored_run_goes_on_with_the_same_declaration_alone(self, tmp_path):
        env, asked = Own(), {**ASKED, "out": tmp_path / "run"}
        richobs.learn(env, FUNCTIONS, **asked)
        env.declared = richobs.Declared()
        with pytest.raises(InvalidInput, match="replayable"):
            richobs.learn(env, FUNCTIONS, **asked)

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            ({"at_once": 0}, "at_once, a number of episodes, must be"),
            ({"replayable": "yes"}, "replayable is True or False; got 'yes'"),
            ({"releases_gil": 1}, "releases_gil is True or False; got 1"),
            ({"deterministic": "yes"}, "deterministic is True or False; got 'yes'"),
            ({"frozen_seed": "yes"}, "frozen_seed must be a whole number; got str"),
            ({"processes": 0}, "processes must be a whole number, at least 1; got 0"),
        ],
    )
    def test_what_cannot_be_declared(self, change, sentence):
        with pytest.raises(InvalidInput, match=sentence):
            richobs.Declared(**change)

    def test_what_is_no_executor(self):
        with pytest.raises(InvalidInput, match="workers must be a whole number"):
            richobs.learn(Own(), FUNCTIONS, **ASKED, workers="three")
        with pytest.raises(InvalidInput, match=r"no argument and no setting 'executor'.*an executor is given as"):
            richobs.learn(Own(), FUNCTIONS, **ASKED, executor=3)

    def test_tasks_are_small_however_large_the_class(self):
        functions = Layered([TableLevel(np.random.default_rng(0).random((5_000, 2, 2)))] * 2)
        spec = Spec({"env": Own()}, parts_of(functions))
        policy = richobs.LearnedPolicy(functions, (7, 4_000))
        body = spec.task(play_call, None, Own(), Request(policy, 8, 2, 8, 1))
        assert len(spec.body) > 160_000
        assert len(body) < 1_000
        told = do_task(spec.digest, spec.body, body, 0)
        expected = play_call(None, Own(), Request(policy, 8, 2, 8, 1), 0)
        np.testing.assert_array_equal(told.value.actions, expected.actions)

    def test_no_call_plays_more_at_once_than_is_declared(self, threads):
        pools = Workers(), Workers(1, threads)
        one, two = (Calls(OneAtATime(), workers=w).play(Uniform(2), 20, np.random.default_rng(0)) for w in pools)
        np.testing.assert_array_equal(one.observations, two.observations)
        assert threads.tasks == 19


def squared(offset, item):
    if item == 13:
        raise RewardWasStrange("at 13")
    if item == 14:
        raise CannotTravel(lambda: 3)
    if item == 15:
        raise SystemExit(0)
    return (offset + item) ** 2


class RewardWasStrange(Exception):
    pass


class CannotTravel(Exception):
    pass


class Slow(Executor):
    """Does a task when its answer is awaited, and counts how many wait at a time."""

    _max_workers = 2

    def __init__(self):
        self.waiting = self.most = 0

    def submit(self, fn, /, *args):
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        outer = self

        class Awaited(Future):
            def result(self, timeout=None):
                outer.waiting -= 1
                return fn(*args)

        return Awaited()


class TestWorkers:
    spec = Spec({}, {})

    def test_answers_come_in_order_and_few_tasks_are_under_way(self):
        slow = Slow()
        answers = Workers(1, slow).send(self.spec, self.spec.task(squared, 1), range(16, 16 + 10**9))
        assert [next(answers) for _ in range(30)] == [(1 + i) ** 2 for i in range(16, 46)]
        assert slow.most == 4 * slow._max_workers

    def test_a_worker_that_does_not_have_the_spec_gets_it(self, threads):
        workers, body = Workers(1, threads), self.spec.task(squared, 1)
        assert list(workers.send(self.spec, body, range(8))) == [(1 + i) ** 2 for i in range(8)]
        assert (threads.tasks, threads.whole) == (8, 2)
        executors._specs.clear()  # as if the workers were new
        assert list(workers.send(self.spec, body, range(3))) == [1, 4, 9]
        assert threads.whole > 2
        assert threads.tasks == 8 + 3 + threads.whole - 2

    def test_tasks_carry_the_spec_again_once_a_worker_did_not_have_it(self, threads):
        workers, body = Workers(1, threads), self.spec.task(squared, 1)
        list(workers.send(self.spec, body, range(8)))
        executors._specs.clear()  # as if a worker came later
        list(workers.send(self.spec, body, range(1)))
        before = threads.whole
        for carried in (2, 2):  # one for each of two workers, and then no more
            list(workers.send(self.spec, body, range(4)))
            assert threads.whole == before + carried

    def test_what_a_task_raises_is_raised(self, threads):
        workers, body = Workers(1, threads), self.spec.task(squared, 1)
        with pytest.raises(RewardWasStrange, match="at 13") as raised:
            list(workers.send(self.spec, body, [13]))
        assert "Raised in a worker" in raised.value.__notes__[0]
        with pytest.raises(WorkerFailed, match="cannot be sent back"):
            list(workers.send(self.spec, body, [14]))
        with pytest.raises(WorkerFailed, match=r"a worker's task raised SystemExit\(0\)"):
            list(workers.send(self.spec, body, [15]))

    @pytest.mark.parametrize("kind", [RepeatsItself, AnswersNothing])
    def test_an_answer_to_another_task_is_refused(self, kind):
        refused = pytest.raises(WorkerFailed, match="a worker answered something else than it was asked")
        with kind(2) as pool, refused:
            list(Workers(1, pool).send(self.spec, self.spec.task(squared, 1), range(4)))

    def test_an_executor_that_is_shut_down(self, threads):
        threads.shutdown()
        with pytest.raises(WorkerFailed, match=r"takes no more tasks \(RuntimeError: cannot schedule"):
            list(Workers(1, threads).send(self.spec, self.spec.task(squared, 1), [1]))

    def test_a_task_that_a_worker_cannot_read(self, threads):
        body = self.spec.task(squared, 1).replace(b"squared", b"Squared")
        with pytest.raises(WorkerFailed, match="must be defined in modules that the workers can import"):
            list(Workers(1, threads).send(self.spec, body, [1]))

    def test_a_worker_with_other_versions_is_refused(self, monkeypatch, threads):
        monkeypatch.setattr(executors, "VERSIONS", "richobs 9 and NumPy 9")
        with pytest.raises(WorkerFailed, match="it has richobs 9 and NumPy 9; the run has richobs 0"):
            list(Workers(1, threads).send(self.spec, self.spec.task(squared, 1), [1]))


class TestBlasThreads:
    """A run multiplies small matrices: it holds BLAS at one thread, and gives the user's threads back."""

    @pytest.fixture(autouse=True)
    def _three(self, monkeypatch):
        for name in executors.ONE_THREAD:
            monkeypatch.delenv(name, raising=False)
        with threadpoolctl.threadpool_limits(3, user_api="blas"):
            if self.threads() != {3}:
                pytest.skip("this NumPy has a BLAS that cannot be told how many threads to use")
            yield

    @staticmethod
    def threads():
        return {each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"}

    def test_a_run_has_one_and_gives_them_back_also_where_it_fails(self):
        seen = []
        richobs.learn(richobs.make("lock/2"), progress=False, callback=lambda _: seen.append(self.threads()))
        assert set.union(*seen) == {1}
        assert self.threads() == {3}
        with pytest.raises(ZeroDivisionError):
            richobs.learn(richobs.make("lock/2"), progress=False, callback=lambda _: 1 // 0)
        assert self.threads() == {3}

    def test_runs_that_overlap_give_them_back_when_the_last_one_ends(self):
        first, second = executors.one_blas_thread(), executors.one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert self.threads() == {1}
        second.__exit__(None, None, None)
        assert self.threads() == {3}

    @pytest.mark.parametrize("name", executors.ONE_THREAD)
    def test_a_variable_decides_instead(self, name, monkeypatch):
        monkeypatch.setenv(name, "3")
        with executors.one_blas_thread():
            assert self.threads() == {3}

    @pytest.mark.parametrize(("given", "then"), [({}, "1"), ({"OMP_NUM_THREADS": "3"}, None)])
    def test_the_command_never_starts_them_unless_it_is_told_to(self, given, then):
        ask = "import os, sys, richobs_command; sys.argv[1:] = ['--version']\ntry: richobs_command.main()\n"
        ask += "finally: print(os.environ.get('OPENBLAS_NUM_THREADS'))"
        asked = subprocess.run([sys.executable, "-c", ask], env={**os.environ, **given}, capture_output=True, text=True)
        assert asked.stdout.splitlines()[-1] == str(then)

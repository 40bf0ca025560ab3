"""What every engine must do: one suite over all that are registered, a recorded one, and the skeleton that people copy."""

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest

import richobs
from richobs.core.errors import EpisodeLimit, InvalidInput, InvalidPath
from richobs.core.executors import Workers
from richobs.core.ledger import Ledger
from richobs.core.policies import Greedy, OpenLoop, Uniform
from richobs.core.queries import LevelMoments, Query
from richobs.core.settings import Settings
from richobs.engines import ENGINES
from richobs.engines.answers import pack_answer

SKELETON = Path(__file__).parents[2] / "docs/skeletons/engine.py"
PROBLEM = richobs.make("random/3,n_states=2,n_actions=2")
H, K = PROBLEM.horizon, PROBLEM.n_actions
BEST = PROBLEM.optimal_policy()


def load_skeleton():
    spec = importlib.util.spec_from_file_location("skeleton_of_an_engine", SKELETON)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return f"{spec.name}:DirectEngine"


REGISTERED = {**ENGINES, "direct": load_skeleton()}
PLAYING = [name for name in REGISTERED if name != "counted"]  # those that call the environment


@pytest.fixture(autouse=True)
def _with_skeleton(monkeypatch):
    monkeypatch.setitem(ENGINES, "direct", REGISTERED["direct"])


class MemoryRecord:
    """A record in memory."""

    def __init__(self):
        self.draws = {}

    def draw(self, k):
        return self.draws.get(k)

    def keep_draw(self, k, query, answer):
        assert k not in self.draws
        self.draws[k] = (query, answer)


class CountedCalls:
    """An environment that counts how often it is played, and may break."""

    def __init__(self, env, breaks=False):
        self.env, self.breaks, self.calls = env, breaks, 0
        self.horizon, self.n_actions, self.reward_range = env.horizon, env.n_actions, env.reward_range

    def play(self, policy, n, rng, levels=None):
        self.calls += 1
        if self.breaks:
            raise RuntimeError("the machine is broken")
        return self.env.play(policy, n, rng, levels)


def build(name, *, seed=0, limit=None, env=PROBLEM.env, problem=PROBLEM, record=None):
    """An engine by its name; "recorded" is a streaming engine that writes to a record."""
    kind = ENGINES.load("stream" if name == "recorded" else name)
    engine = kind.build(problem, env, Settings(seed=seed), Ledger(limit), Workers())
    if name == "recorded":
        engine.log = record or MemoryRecord()
    return engine


@pytest.fixture(params=[*REGISTERED, "recorded"])
def name(request):
    return request.param


def queries():
    members = [np.array([0, 2]), np.array([1]), np.array([3, 0, 1])]
    return {
        "observe": Query.observe((1,), 40, purpose="observe"),
        "step": Query.step((0, 1), 40, K, purpose="step"),
        "along": Query.along((1, 0, 1), 40, members, purpose="along"),
        "rollout": Query.rollout(BEST, 40, purpose="rollout", paths=7),
        "tally": Query(Uniform(K), 40, "tally", tally=True),
    }


@pytest.mark.parametrize("what", queries())
class TestDraws:
    """A draw is a function of the seed, the query's key, and how often that key was asked before."""

    def test_the_same_key_gives_the_same_answer(self, name, what):
        query = queries()[what]
        assert pack_answer(build(name).ask(query)) == pack_answer(build(name).ask(queries()[what]))

    def test_what_is_asked_in_between_does_not_matter(self, name, what):
        plain, busy = build(name), build(name)
        first = pack_answer(busy.ask(queries()[what]))
        for other in set(queries()) - {what}:
            busy.ask(queries()[other])
        assert pack_answer(plain.ask(queries()[what])) == first
        assert pack_answer(plain.ask(queries()[what])) == pack_answer(busy.ask(queries()[what]))

    def test_another_visit_is_another_draw(self, name, what):
        engine = build(name)
        assert len({pack_answer(engine.ask(queries()[what])) for _ in range(5)}) > 1  # small counts may agree by chance

    def test_another_seed_is_another_draw(self, name, what):
        assert len({pack_answer(build(name, seed=seed).ask(queries()[what])) for seed in range(5)}) > 1


class TestCharges:
    """Every episode is charged, before it is played."""

    def test_every_episode_is_in_the_ledger(self, name):
        engine = build(name)
        for query in queries().values():
            engine.ask(query)
        paths = {"observe": (1,), "step": (0, 1), "along": (1, 0, 1), "rollout": (), "tally": ()}
        charged = [(e.purpose, e.path, e.requests, e.episodes) for e in engine.ledger]
        assert charged == [(purpose, path, 1, 40) for purpose, path in paths.items()]
        assert engine.ledger.total == 200

    def test_a_query_past_the_limit_is_refused_and_costs_nothing(self, name):
        env = CountedCalls(PROBLEM.env)
        engine = build(name, limit=100, env=env)
        engine.ask(Query.observe((), 60, purpose="x"))
        calls = env.calls
        with pytest.raises(EpisodeLimit, match="asks for 41 episodes; 40 remain of the 100 allowed"):
            engine.ask(Query.observe((), 41, purpose="x"))
        assert (engine.ledger.total, env.calls) == (60, calls)
        assert engine.ask(Query.observe((), 40, purpose="x")).n == 40

    @pytest.mark.parametrize("playing", [*PLAYING, "recorded"])
    def test_episodes_are_charged_before_they_are_played(self, playing):
        engine = build(playing, env=CountedCalls(PROBLEM.env, breaks=True))
        with pytest.raises(RuntimeError, match="the machine is broken"):
            engine.ask(Query.observe((), 5, purpose="x"))
        assert engine.ledger.total == 5

    def test_a_path_that_does_not_exist_is_refused_and_costs_nothing(self, name):
        engine = build(name)
        with pytest.raises(InvalidPath, match="takes action 2 at level 1; this environment has actions 0 to 1"):
            engine.ask(Query.rollout(OpenLoop((0, 2, 0)), 5, purpose="x"))
        assert engine.ledger.total == 0


class TestAnswers:
    """An answer holds what the query wants, and nothing else."""

    def test_returns_and_the_first_paths(self, name):
        answer = build(name).ask(Query.rollout(BEST, 40, purpose="x", paths=7))
        assert answer.n == 40
        assert 0 <= answer.returns.mean <= 1
        assert 0 <= answer.returns.variance <= 0.25
        assert answer.paths.shape == (7, H)
        assert set(answer.paths.ravel().tolist()) <= set(range(K))
        assert (answer.moments, answer.tally, answer.episodes) == ((), None, None)

    def test_moments_of_the_listed_members(self, name):
        answer = build(name).ask(queries()["along"])
        assert [m.n for m in answer.moments] == [40, 40, 40]
        assert [m.actions for m in answer.moments] == [(0, 40), (40, 0), (0, 40)]
        assert [m.v_mean.shape for m in answer.moments] == [(2,), (1,), (3,)]
        assert [m.u_mean.shape for m in answer.moments] == [(2, K), (1, K), (3, K)]
        assert math.isnan(answer.returns.mean)
        assert answer.paths.size == 0

    def test_observations_come_without_actions(self, name):
        (moments,) = build(name).ask(queries()["observe"]).moments
        assert moments.actions == (0, 0)
        assert len(moments.v_mean) == PROBLEM.functions.level_size(1)

    def test_a_tally_counts_every_episode_at_every_level(self, name):
        tally = build(name).ask(queries()["tally"]).tally
        assert [t.sum() for t in tally.visits] == [40, 40, 40]
        assert [t.sum() for t in tally.moves] == [40, 40]
        for h in range(H - 1):
            np.testing.assert_array_equal(tally.moves[h].sum(axis=2), tally.visits[h])
            np.testing.assert_array_equal(tally.moves[h].sum(axis=(0, 1)), tally.visits[h + 1].sum(axis=1))

    def test_means_are_those_of_the_process(self, name):
        """Hoeffding's interval for the mean of 20,000 returns in [0, 1], wrong with probability 1e-9."""
        n = 20_000
        radius = math.sqrt(math.log(2 / 1e-9) / (2 * n))
        first = Greedy(PROBLEM.functions.member((0,) * H))
        engine = build(name)
        for policy in (BEST, first, Uniform(K)):
            mean = engine.ask(Query.rollout(policy, n, purpose="x")).returns.mean
            assert abs(mean - PROBLEM.process.value(policy)) < radius


WANTS = {
    "episodes": Query(BEST, 5, "x", episodes=True),
    "moments of a policy": Query(BEST, 5, "x", moments=(LevelMoments(2),)),
    "moments and returns": Query(OpenLoop((0, 0, 0)), 5, "x", returns=True, moments=(LevelMoments(0),)),
    "a large number": Query.rollout(BEST, 10**7, purpose="x"),
}
REFUSED = {
    ("counted", "episodes"): "the counted engine only draws how often each occurs. Use engine='stream'.",
    ("counted", "moments of a policy"): "does not fix its actions before level 2. Use engine='stream'.",
    ("counted", "moments and returns"): "draws moments and whole episodes apart; ask for them in two queries.",
    ("direct", "a large number"): "the direct engine holds at most 1,000,000 at once. Use engine='stream'.",
}


class TestRefusals:
    """An engine that cannot answer says so in a sentence, and then the query costs nothing."""

    @pytest.mark.parametrize(("engine", "want"), REFUSED)
    def test_what_it_cannot_do_is_said(self, engine, want):
        made = build(engine)
        with pytest.raises(InvalidInput) as refused:
            made.ask(WANTS[want])
        assert str(refused.value).endswith(REFUSED[engine, want])
        assert made.ledger.total == 0

    @pytest.mark.parametrize("want", [w for w in WANTS if w != "a large number"])
    def test_everything_else_is_answered(self, name, want):
        if (name, want) in REFUSED:
            return
        answer = build(name).ask(WANTS[want])
        assert (answer.episodes is not None) == (want == "episodes")
        assert len(answer.moments) == len(WANTS[want].moments)

    @pytest.mark.parametrize("playing", [*PLAYING, "recorded"])
    def test_a_tally_needs_a_process(self, playing):
        engine = build(playing, problem=richobs.Problem(PROBLEM.env, PROBLEM.functions))
        with pytest.raises(InvalidInput, match="needs a process that lists them"):
            engine.ask(queries()["tally"])
        assert engine.ledger.total == 0

    def test_the_counted_engine_needs_a_process(self):
        with pytest.raises(InvalidInput, match="draws from a process written down in full"):
            richobs.learn(PROBLEM.env, PROBLEM.functions, engine="counted", progress=False)


def test_a_record_answers_without_playing():
    record, env = MemoryRecord(), CountedCalls(PROBLEM.env)
    first = [pack_answer(build("recorded", env=env, record=record).ask(queries()["step"]))]
    calls = env.calls
    again = build("recorded", env=env, record=record)
    assert [pack_answer(again.ask(queries()["step"]))] == first
    assert env.calls == calls
    assert again.ledger.total == 40


@pytest.mark.parametrize(
    ("registered", "learner"), [*((name, "certified") for name in REGISTERED), *((name, "betting") for name in PLAYING)]
)
def test_one_line_makes_an_engine_known(registered, learner):
    problem = richobs.make("lock/3,noise_bits=1")
    outcome = richobs.learn(problem, learner=learner, epsilon=0.2, engine=registered, progress=False)
    assert outcome.guaranteed
    assert problem.optimal_value - problem.value(outcome.policy) <= 0.2
    certificate = richobs.Certificate.of(outcome, problem)
    assert certificate.settings.engine == registered
    assert richobs.verify(certificate, problem).agrees

"""One suite over every learner that is registered, and over the skeleton that people copy."""

import dataclasses
import functools
import importlib.util
import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest

import richobs
from richobs.classes.base import LevelClass
from richobs.classes.dynamics import Model
from richobs.classes.simulators import Simulators
from richobs.core.errors import EpisodeLimit, InvalidInput
from richobs.core.events import EVENTS, from_plain, to_plain
from richobs.core.outcome import StopReason
from richobs.core.settings import Settings
from richobs.learners import LEARNERS, learner, tuning_fields
from richobs.learners.base import Learner, Promise
from richobs.runs.prepare import prepare
from richobs.runs.session import run
from richobs_lab.rivals.rival_events import RoundPlayed
from richobs_lab.rivals.uniform_exploration import UniformExploration
from richobs_lab.worlds.linear_mdp import linear_problem
from richobs_lab.worlds.model_environment import model_problem

SKELETON = Path(__file__).parents[2] / "docs/skeletons/learner.py"
EPSILON = 0.3
SERVED = ("mdp/2,n_states=2,n_actions=2,class_size=4", "bandit,n_contexts=4,n_actions=3,class_size=20")
EXTRAS = {"sb3-dqn": "stable_baselines3", "sb3-ppo": "stable_baselines3"}  # learner -> the package that it needs
PLAYS_AS_TOLD = ("ucb-q", "epsilon-greedy", "uniform-exploration", "latent-q", "epoch-greedy", "ucfh", *EXTRAS)
QUICK = dict.fromkeys(PLAYS_AS_TOLD, ("episodes=300",))  # tuning


def load_skeleton():
    spec = importlib.util.spec_from_file_location("skeleton_of_a_learner", SKELETON)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return f"{spec.name}:Tournament"


ALL = {**LEARNERS, "tournament": load_skeleton()}


@pytest.fixture(autouse=True)
def _with_skeleton(monkeypatch):
    monkeypatch.setitem(LEARNERS, "tournament", ALL["tournament"])


@pytest.fixture(params=ALL)
def name(request):
    if request.param in EXTRAS:
        pytest.importorskip(EXTRAS[request.param])
    return request.param


class Huge(LevelClass):
    """So many functions that nobody can look at each."""

    size = 10**9
    n_actions = 3

    def values(self, x, members=None):
        raise AssertionError("these functions are too many to be looked at")


class Misdeclared:
    """An environment that declares smaller totals than its process pays."""

    def __init__(self, env):
        self.play = env.play
        self.horizon, self.n_actions, self.reward_range = env.horizon, env.n_actions, (-1.0, 0.001)


@functools.cache
def awkward():
    """Problems each of which lacks something that some learner needs."""
    easy, bandit = (richobs.make(world) for world in SERVED)
    return [
        richobs.Problem(Misdeclared(easy.env), easy.functions, easy.process, n_states=2),
        dataclasses.replace(easy, n_states=None),
        richobs.Problem(easy.env, easy.functions),
        easy,
        bandit,
        richobs.make("lock/3,noise_bits=1"),
        richobs.make("lock/3,noise_bits=20"),
        richobs.make("lock/30"),
        richobs.make("lock/3,swap=0.5"),
        richobs.Problem(bandit.env, richobs.Layered([Huge()]), bandit.process, n_states=1),
    ]


class FromMemory:
    """An environment that declares that it may answer from memory."""

    declared = richobs.Declared(deterministic=True)

    def __init__(self, env):
        self.play, self.horizon, self.n_actions, self.reward_range = (
            env.play,
            env.horizon,
            env.n_actions,
            env.reward_range,
        )


def two_models():
    """A family of two models, the second of which is true."""
    lists = ([[(p, 0, 1.0, True), (1 - p, 0, 0.0, True)] for p in law] for law in ([0.6, 0.2], [0.3, 0.9]))
    return model_problem(Simulators([Model.of_lists([law], 1, [1.0]) for law in lists]), 1)


def asked(name, **more):
    return Settings(**{"learner": name, "epsilon": EPSILON, "tuning": QUICK.get(name, ()), **more})


@functools.cache
def served(name):
    """The first small problem that a learner can serve."""
    for problem in [
        *map(richobs.make, SERVED),
        two_models(),
        linear_problem(horizon=2, dim=2, n_contexts=4, n_actions=2),
    ]:
        try:
            prepare(problem, asked(name))
        except InvalidInput:
            continue
        return problem
    raise AssertionError(f"{name} serves none of {SERVED}: list a small problem that it can serve")


@functools.cache
def first_run(name):
    """What a learner answers on the problem that it can serve, and what it told meanwhile; tests share it."""
    told = []
    return run(served(name), asked(name), callback=told.append), told


def as_bytes(outcome):
    """Everything that a run answers, as text."""
    fields = {f.name: getattr(outcome, f.name) for f in dataclasses.fields(outcome)}
    fields["policy"] = outcome.policy.digest
    fields["ledger"] = list(outcome.ledger)
    return repr(fields)


# What conformance means, as functions: they are also shown to fail.


def check_facts(chosen):
    assert chosen.about[0].isupper()
    assert chosen.about.endswith(".")
    assert isinstance(chosen.cites, str)
    assert isinstance(chosen.given, tuple)
    assert chosen.given
    assert all(words and not words.endswith(".") for words in chosen.given)
    assert isinstance(chosen.promises, Promise)
    assert chosen.promises.words.endswith(".")
    assert chosen.costs.endswith(".")
    assert all(need.words and not need.words.endswith(".") for need in chosen.needs)
    fields = {f.name for f in dataclasses.fields(chosen.Tuning)}
    described = {name: words for name, _, words in tuning_fields(chosen)}
    assert described.keys() == fields
    assert all(words.endswith(".") for words in described.values())


def check_repeats(problem, settings, first=None):
    first = first or run(problem, settings)
    assert as_bytes(first) == as_bytes(run(problem, settings))


def check_claim(problem, settings, outcome=None):
    outcome = outcome or run(problem, settings)
    gap = problem.optimal_value - problem.value(outcome.policy)
    assert not outcome.guaranteed or gap <= outcome.epsilon
    assert outcome.guaranteed != outcome.claim.startswith("No guarantee: ")
    words = ("episodes are independent", "the real system is one of the")  # a model says that they are
    assert not outcome.guaranteed or any(said in outcome.claim for said in words)
    assert outcome.claim.endswith(".")


def check_events(problem, settings, outcome=None, progress=None):
    if outcome is None:
        progress = []
        outcome = run(problem, settings, callback=progress.append)
    assert [p.event for p in progress] == list(outcome.trace)
    assert progress
    for told in outcome.trace:
        plain = json.dumps(to_plain(told))
        again = from_plain(json.loads(plain))
        assert type(again) in EVENTS.values()
        assert json.dumps(to_plain(again)) == plain
        assert (again.sentence, repr(again.said())) == (told.sentence, repr(told.said()))
        assert told.sentence
        assert not told.sentence.endswith(".")
    counts = [p.episodes for p in progress]
    assert counts == sorted(counts)
    assert counts[-1] <= outcome.episodes
    if isinstance(outcome.trace[-1], RoundPlayed):  # rounds tell about every episode
        assert outcome.trace[-1].episodes == outcome.episodes == sum(told.n for told in outcome.trace)


def test_facts_are_there(name):
    chosen = learner(name)
    assert chosen.name == name
    check_facts(chosen)


def test_what_a_learner_needs_is_named_where_it_is_missing(name):
    chosen = learner(name)
    for place, need in enumerate(chosen.needs):
        lacking = [
            p
            for p in awkward()
            if need.missing(p, asked(name)) and not any(n.missing(p, asked(name)) for n in chosen.needs[:place])
        ]
        assert lacking, f"no problem here lacks {need.words}: add one"
        with pytest.raises(InvalidInput) as refused:
            prepare(lacking[0], asked(name))
        assert f"the learner {name!r} needs {need.words}: " in str(refused.value)
        assert str(refused.value).endswith(".")


def test_tuning_that_does_not_exist_or_makes_no_sense_is_refused(name):
    fields = [field for field, _, _ in tuning_fields(learner(name))]
    why = "has no tuning 'no_such_thing'" if fields else "has nothing to tune"
    for pair, sentence in [("no_such_thing=1", why), *((f"{field}=-1", f"{field} must ") for field in fields)]:
        with pytest.raises(InvalidInput, match=sentence):
            prepare(served(name), asked(name, tuning=(pair,)))


def test_the_plan_is_plain_and_kept(name):
    plan = learner(name).plan(served(name), asked(name))
    assert plan.title
    assert json.loads(json.dumps(plan.as_json()))
    assert all(row.section and row.name and np.isfinite(row.value) for row in plan.rows())
    assert plan.max_episodes is None or first_run(name)[0].episodes <= plan.max_episodes


def test_the_same_seed_gives_the_same_bytes(name):
    check_repeats(served(name), asked(name), first_run(name)[0])


def test_the_policy_is_good_and_guaranteed_by_those_that_claim_something(name):
    """Every learner solves its small problem, also those that promise nothing."""
    problem, (outcome, _) = served(name), first_run(name)
    check_claim(problem, asked(name), outcome)
    assert outcome.guaranteed == learner(name).traits.claims
    assert problem.optimal_value - problem.value(outcome.policy) <= EPSILON


@pytest.mark.parametrize("engine", ["counted", "stream"])
def test_an_engine_serves_or_is_refused_with_the_reason(name, engine):
    problem, settings = served(name), asked(name, engine=engine, max_episodes=30_000)
    try:
        outcome = run(problem, settings)
    except EpisodeLimit:
        outcome = None
    except InvalidInput as refused:
        outcome = str(refused)
    if outcome is None:
        assert first_run(name)[0].episodes > 30_000
    elif isinstance(outcome, str):
        assert (engine, outcome[-21:]) == ("counted", " Use engine='stream'.")
    else:
        check_claim(problem, settings, outcome)


def test_events_can_be_stored(name):
    check_events(served(name), asked(name), *first_run(name))


def test_the_policy_can_be_saved_and_loaded(name, tmp_path):
    problem = served(name)
    policy = first_run(name)[0].policy
    policy.save(tmp_path / "policy.npz")
    loaded = richobs.LearnedPolicy.load(tmp_path / "policy.npz")
    assert loaded.digest == policy.digest
    assert problem.value(loaded) == problem.value(policy)


def test_no_more_episodes_are_played_than_are_allowed(name):
    """A run without enough of them claims nothing, unless it has bounds that are wider than asked for."""
    problem, settings = served(name), asked(name, max_episodes=20)
    try:
        outcome = run(problem, settings)
        ledger = outcome.ledger
    except EpisodeLimit as stopped:
        outcome, ledger = None, stopped.ledger
    assert ledger.total <= 20
    if outcome is None:
        return
    check_claim(problem, settings, outcome)
    assert not outcome.guaranteed or outcome.upper is not None
    if not outcome.guaranteed:
        assert outcome.reason in (StopReason.BUDGET_SPENT, StopReason.EPISODES_SPENT)


def test_a_stored_run_goes_on_where_its_episodes_ended(name, tmp_path):
    """Half of the episodes first, then all: the same bytes as in one go."""
    problem, (whole, _) = served(name), first_run(name)
    try:
        first = run(problem, asked(name, max_episodes=whole.episodes // 2), out=tmp_path)
        assert 1 <= first.episodes <= whole.episodes // 2
    except EpisodeLimit:
        pass
    again = run(problem, asked(name), out=tmp_path)
    assert (again.policy.digest, again.claim, again.trace) == (whole.policy.digest, whole.claim, whole.trace)
    assert richobs.LearnedPolicy.load(tmp_path / "policy.npz").digest == whole.policy.digest


def test_every_learner_can_be_certified(name):
    problem = served(name)
    certificate = richobs.Certificate.of(first_run(name)[0], problem)
    assert certificate.content["learner"] == name
    assert json.loads(certificate.to_json()) == certificate.content


class Broken(UniformExploration):
    """Runs as another learner does; subclasses break one thing."""

    name = "broken"

    def run(self, problem, engine, settings, notify):
        return dataclasses.replace(super().run(problem, engine, settings, notify), learner=self.name)


class Forgetful(Broken):
    """Draws from the global generator."""

    def run(self, problem, engine, settings, notify):
        outcome = super().run(problem, engine, settings, notify)
        return dataclasses.replace(outcome, value_hat=random.random())


class Boastful(Broken):
    """Guarantees what it does not know."""

    def run(self, problem, engine, settings, notify):
        outcome = super().run(problem, engine, settings, notify)
        worst = richobs.LearnedPolicy.open_loop((0,) * problem.horizon, problem.n_actions)
        return dataclasses.replace(
            outcome, policy=worst, guaranteed=True, claim="It is optimal if episodes are independent.", epsilon=1e-9
        )


class Silent(Broken):
    """Tells nobody what it does."""

    def run(self, problem, engine, settings, notify):
        return super().run(problem, engine, settings, lambda progress: None)


class Wordless(Broken):
    """Says nothing about itself."""

    about = ""


@pytest.mark.parametrize(
    ("kind", "what"), [(Forgetful, check_repeats), (Boastful, check_claim), (Silent, check_events)]
)
def test_a_broken_learner_is_found_out(kind, what, monkeypatch):
    problem = richobs.make(SERVED[0])
    for made, fails in ((Broken, False), (kind, True)):
        monkeypatch.setitem(LEARNERS, "broken", f"{__name__}:{made.__name__}")
        settings = Settings(learner="broken", tuning=("episodes=30",))
        if fails:
            with pytest.raises(AssertionError):
                what(problem, settings)
        else:
            what(problem, settings)


def test_a_learner_without_facts_is_found_out():
    check_facts(Broken())
    with pytest.raises((AssertionError, IndexError)):
        check_facts(Wordless())
    with pytest.raises(TypeError, match="abstract"):
        Learner()


def test_a_claim_rests_on_what_a_deterministic_environment_declares(name):
    problem = served(name)
    outcome = run(dataclasses.replace(problem, env=FromMemory(problem.env)), asked(name))
    # Once where there is one sentence, twice where what the policy earns is a sentence of its own.
    two = outcome.guaranteed and "two things hold" in outcome.claim
    assert outcome.claim.count("the environment is deterministic") == outcome.guaranteed + two

"""One suite over every learner that is registered, and over the skeleton that people copy."""

import dataclasses
import functools
import importlib.util
import json
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
from richobs.learners.base import Promise
from richobs.runs.prepare import prepare
from richobs.runs.session import run
from richobs_lab.rivals.rival_events import RoundPlayed
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


class Redeclared:
    """An environment that says something else about itself."""

    def __init__(self, env, **facts):
        same = {name: getattr(env, name) for name in ("play", "horizon", "n_actions", "reward_range")}
        vars(self).update(same | facts)


@functools.cache
def awkward():
    """Problems each of which lacks something that some learner needs."""
    easy, bandit = (richobs.make(world) for world in SERVED)
    return [
        richobs.Problem(Redeclared(easy.env, reward_range=(-1.0, 0.001)), easy.functions, easy.process, n_states=2),
        dataclasses.replace(easy, n_states=None),
        richobs.Problem(easy.env, easy.functions),
        *(easy, bandit),
        *map(richobs.make, ("lock/3,noise_bits=1", "lock/3,noise_bits=20", "lock/30", "lock/3,swap=0.5")),
        richobs.Problem(bandit.env, richobs.Layered([Huge()]), bandit.process, n_states=1),
    ]


def two_models():
    """A family of two models, the second of which is true."""
    lists = ([[(p, 0, 1.0, True), (1 - p, 0, 0.0, True)] for p in law] for law in ([0.6, 0.2], [0.3, 0.9]))
    return model_problem(Simulators([Model.of_lists([law], 1, [1.0]) for law in lists]), 1)


def unknown_coin():
    """A family: one action pays 1 with an unknown probability, the other with 1/2."""
    family = richobs.Family(
        lambda t: [[[(p, 0, 1.0, True), (1 - p, 0, 0.0, True)] for p in (t["p"], 0.5)]], {"p": (0, 1)}, horizon=1
    )
    truth = model_problem(Simulators([family.at({"p": 0.9})]), 0)
    return richobs.Problem(truth.env, family, truth=truth.truth)


def asked(name, **more):
    return Settings(**{"learner": name, "epsilon": EPSILON, "tuning": QUICK.get(name, ()), **more})


@functools.cache
def served(name):
    """The first small problem that a learner can serve."""
    linear = linear_problem(horizon=2, dim=2, n_contexts=4, n_actions=2)
    for problem in (*map(richobs.make, SERVED), two_models(), unknown_coin(), linear):
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
    fields = {f.name: getattr(outcome, f.name) for f in dataclasses.fields(outcome) if f.compare}
    fields["policy"] = outcome.policy.digest
    fields["ledger"] = list(outcome.ledger)
    return repr(fields)


def test_facts_are_there(name):
    chosen = learner(name)
    assert chosen.name == name
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


def check_claim(problem, outcome):
    gap = problem.optimal_value - problem.value(outcome.policy)
    assert not outcome.guaranteed or gap <= outcome.epsilon
    assert outcome.guaranteed != outcome.claim.startswith("No guarantee: ")
    words = ("episodes are independent", "the real system is one of the")  # a model says that they are
    assert not outcome.guaranteed or any(said in outcome.claim for said in words)
    assert outcome.claim.endswith(".")


def test_events_can_be_stored(name):
    outcome, progress = first_run(name)
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


def test_what_a_learner_needs_is_named_where_it_is_missing(name):
    chosen = learner(name)
    for need in chosen.needs:
        lacking = [p for p in awkward() if [n for n in chosen.needs if n.missing(p, asked(name))][:1] == [need]]
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
    assert as_bytes(first_run(name)[0]) == as_bytes(run(served(name), asked(name)))


def test_the_policy_is_good_and_guaranteed_by_those_that_claim_something(name):
    """Every learner solves its small problem, also those that promise nothing."""
    problem, (outcome, _) = served(name), first_run(name)
    check_claim(problem, outcome)
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
        check_claim(problem, outcome)


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
    check_claim(problem, outcome)
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


def test_a_claim_rests_on_what_a_deterministic_environment_declares(name):
    if not learner(name).traits.claims:
        return  # there is no claim to rest on anything
    problem = served(name)
    from_memory = Redeclared(problem.env, declared=richobs.Declared(deterministic=True))
    outcome = run(dataclasses.replace(problem, env=from_memory), asked(name))
    assert outcome.claim.count("the environment is deterministic") == outcome.guaranteed
    assert outcome.claim.count("episodes are independent") == outcome.guaranteed

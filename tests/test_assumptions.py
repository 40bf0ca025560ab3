"""Every named violation is found, none is reported where there is none; the audit keeps its error rate and sees."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import richobs
from richobs.assumptions import audit, check_assumptions
from richobs.envs.world import PathEnvironment, TabularWorld
from richobs.errors import InvalidInput
from richobs.functions import Layered, TableLevel, Tables
from richobs.tabular import Rewards, TabularProcess

VIOLATIONS = ["layered", "reactive", "realizable", "deterministic", "reward range"]


@settings(max_examples=300, deadline=None)
@given(
    violate=st.sampled_from(["none", *VIOLATIONS]),
    horizon=st.integers(2, 5),
    n_states=st.integers(2, 4),
    n_actions=st.integers(2, 4),
    overlap=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 10**6),
)
def test_exactly_the_broken_assumption_is_reported(violate, horizon, n_states, n_actions, overlap, seed):
    problem = richobs.make(
        "random",
        violate=violate,
        horizon=horizon,
        n_states=n_states,
        n_actions=n_actions,
        overlap=overlap,
        seed=seed,
    )
    report = check_assumptions(problem.process, problem.functions)
    assert report.failures == (() if violate == "none" else (violate,))


@pytest.mark.parametrize("violate", ["none", "realizable", "deterministic", "reward range"])
@pytest.mark.parametrize("params", [{"horizon": 1}, {"n_actions": 1}, {"n_states": 1}, {"n_observations": 0}])
def test_the_smallest_worlds_can_be_broken_too(violate, params):
    for seed in range(20):
        problem = richobs.make("random", violate=violate, seed=seed, **params)
        report = check_assumptions(problem.process, problem.functions)
        assert report.failures == (() if violate == "none" else (violate,)), seed


def test_random_worlds_share_observations_between_states_that_differ():
    shared = 0
    for seed in range(100):
        process = richobs.make("random", seed=seed).process
        shared += any((seen.sum(axis=0) > 1).any() for seen in process.seen)
    assert shared >= 60
    sizes = {tuple(len(e) for e in richobs.make("random", seed=s).process.emissions) for s in range(50)}
    assert len(sizes) > 10


def test_the_counterexample_is_concrete():
    process = richobs.make("lower-bound", horizon=3, epsilon=0.25).process
    finding = check_assumptions(process)["reactive"].finding
    assert finding.startswith("observation 0 at level 1 is emitted by states 0 and 1 whose Q* for action ")
    assert finding.endswith(" are 0.75 and 0.5.")


def test_without_a_class_realizability_is_not_judged():
    assert check_assumptions(richobs.make("mdp").process)["realizable"].holds is None


def test_an_enumerated_class_needs_one_member_that_is_right_at_all_levels():
    """Level 0 of member 0 and level 1 of member 1 together are Q*; as a product that counts, enumerated it does not."""
    process = richobs.make("mdp", horizon=2, n_states=2).process
    truth = process.q_tables
    tables = [np.stack([truth[0], truth[0] / 2]), np.stack([truth[1] / 2, truth[1]])]
    product = Layered([TableLevel(t) for t in tables])
    assert check_assumptions(process, product)["realizable"].holds
    assert not check_assumptions(process, Tables(tables))["realizable"].holds


def test_a_class_of_another_shape_is_refused():
    with pytest.raises(InvalidInput, match="the class has 5 levels and 4 actions; the process has 4 and 2"):
        check_assumptions(richobs.make("random").process, richobs.make("lock").functions)


QUICK = {"sequences": 16, "episodes": 128}


@pytest.mark.parametrize(
    "id", ["lock,switch=0.3", "diabolical,switch=0.5", "mdp,stochastic=True", "lock,switch=0.3,noise=gaussian"]
)
def test_audit_notices_random_states(id):
    report = audit(richobs.make(id).env, **QUICK)
    assert report.failures == ("independent levels",)


@pytest.mark.parametrize("id", ["bandit", "mdp", "deep-sea", "disjoint,vectors=True", "lock", "diabolical", "random"])
def test_audit_is_content_with_deterministic_worlds(id):
    problem = richobs.make(id)
    report = audit(problem.env, **QUICK)
    assert report.holds, str(report)
    assert problem.env.episodes == 2 * 16 * 128


def test_audit_keeps_its_error_rate():
    """At error rate 0.3, 60 true worlds give at most 29 alarms, except once in 1,000 (binomial(60, 0.3))."""
    alarms = sum(
        not audit(richobs.make("random", seed=s).env, sequences=4, episodes=32, error_rate=0.3, seed=s).holds
        for s in range(60)
    )
    assert alarms <= 29


class Persistent(TabularWorld):
    """Noise that persists: what is drawn at level 0 is shown at every level."""

    mood = ()

    def observe(self, level, states, rng):
        if level == 0 or len(self.mood) != len(states):
            self.mood = rng.integers(2, size=len(states))
        return self.mood


def test_audit_notices_noise_that_persists():
    process = richobs.make("disjoint", n_states=1, n_observations=2).process
    report = audit(PathEnvironment(Persistent(process)), **QUICK)
    assert "independent levels" in report.failures


def test_audit_notices_a_draw_that_disagrees_with_play_and_a_drifting_world():
    problem = richobs.make("disjoint", n_states=1, n_observations=4)

    class Drifting(PathEnvironment):
        def play(self, path, n, rng):
            seen = super().play(path, n, rng)
            late = self.episodes > 16 * 64
            return seen._replace(observations=tuple(np.zeros_like(x) if late else x for x in seen.observations))

    report = audit(Drifting(problem.world), **QUICK)
    assert set(report.failures) >= {"same in every replay", "draw agrees with play"}


def test_audit_names_episode_level_and_value_of_a_reward_out_of_range():
    class Generous(PathEnvironment):
        def play(self, path, n, rng):
            seen = super().play(path, n, rng)
            seen.rewards[3, 1] = 7.0
            return seen

    check = audit(Generous(richobs.make("mdp").world), **QUICK)["reward range"]
    assert check.holds is False
    assert "episode 3, level 1 paid 7; the declared range is [0.0, 1.0]" in check.finding


@pytest.mark.parametrize("rare", [3e-4, 3e-3])
def test_rare_events_raise_no_false_alarm(rare):
    """Rare observations make most permutations tie with the data; ties may not count as evidence."""
    process = TabularProcess(
        start=np.ones(1),
        transitions=(),
        emissions=(np.array([[1 - rare, rare]]),),
        rewards=(Rewards.bernoulli(np.full((1, 1, 2), rare)),),
    )
    alarms = sum(not audit(PathEnvironment(TabularWorld(process)), seed=s).holds for s in range(20))
    assert alarms <= 2  # more than 2 of 20 at rate 0.01 happens once in 1,000


@pytest.mark.parametrize("error_rate", [0.05, 0.075, 0.15, 0.3, 1 / 53])
def test_every_error_rate_can_reject(error_rate):
    report = audit(richobs.make("lock/4,switch=0.5").env, error_rate=error_rate, **QUICK)
    assert "independent levels" in report.failures


@pytest.mark.parametrize("pair", [(5, 8), (9, 11), (0, 1)])
def test_any_two_observations_are_told_apart(pair):
    emission = np.zeros((2, 12))
    emission[[0, 1], list(pair)] = 1
    process = TabularProcess(
        start=np.full(2, 0.5),
        transitions=(np.eye(2)[:, None, :],) * 3,
        emissions=(emission,) * 4,
        rewards=(Rewards.deterministic(0.0),) * 4,
    )
    assert audit(PathEnvironment(TabularWorld(process)), **QUICK).failures == ("independent levels",)


@pytest.mark.parametrize("kind", [str, object])
def test_text_is_compared_by_what_it_says(kind):
    """The longest word of a batch sets the width of NumPy's strings; the same word must be the same in every batch."""
    problem = richobs.make("disjoint", n_states=1, n_observations=3)
    words = np.array(["a", "b", "a much longer word"], dtype=object)

    class Speaking(PathEnvironment):
        def draw(self, path, n, rng):
            return np.array(words[super().draw(path, n, rng) % 3].tolist(), dtype=kind)

        def play(self, path, n, rng):
            seen = super().play(path, n, rng)
            spoken = (words[x % 3].tolist() for x in seen.observations)
            return seen._replace(observations=tuple(np.array(w, dtype=kind) for w in spoken))

    alarms = sum(not audit(Speaking(problem.world), sequences=8, episodes=64, seed=s).holds for s in range(10))
    assert alarms <= 1


def test_observations_that_are_not_finite_are_refused():
    class Broken(PathEnvironment):
        def draw(self, path, n, rng):
            return np.full((n, 2), np.nan)

    with pytest.raises(InvalidInput, match="not finite"):
        audit(Broken(richobs.make("disjoint,vectors=True").world), **QUICK)


def test_a_member_that_is_not_a_number_does_not_hide_the_truth():
    process = richobs.make("bandit", n_contexts=1, n_actions=2).process

    class Odd(Tables):
        def values(self, level, x, members=None, /):
            values = super().values(level, x, members)
            values[0] = np.nan
            return values

    tables = np.stack([np.zeros_like(process.q_tables[0]), process.q_tables[0]])
    assert check_assumptions(process, Odd([tables]))["realizable"].holds


@pytest.mark.parametrize(
    "wrong",
    [
        {"sequences": 10**7},
        {"error_rate": 1e-5},
        {"error_rate": 0.0},
        {"error_rate": 1.0},
        {"sequences": 0},
        {"episodes": 9},
    ],
)
def test_audit_refuses_impossible_requests(wrong):
    with pytest.raises(InvalidInput):
        audit(richobs.make("mdp").env, **wrong)

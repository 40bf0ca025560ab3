"""Problems: what makes one, what is refused at once, and values that compare."""

import dataclasses
import pickle

import numpy as np
import pytest

import richobs
import richobs_lab.assumptions
from richobs.classes.base import LevelClass
from richobs.core.errors import AssumptionViolated, InvalidInput
from richobs.core.events import from_plain, to_plain
from richobs.core.outcome import Outcome, StopReason
from richobs.core.policies import OpenLoop
from richobs.core.problem import Problem, ValueReport
from richobs.core.settings import Settings, field_docs, read_tuning, write_tuning
from richobs.learners.betting.events import AverageRefuted
from richobs_lab.certified import Tuning
from richobs_lab.lsvee import PaperConstants


class Wrapped:
    """An adapter that keeps what it wraps as `self.env`, like every Gymnasium wrapper."""

    def __init__(self, env):
        self.env, self.process = env, "not a process"
        self.horizon, self.n_actions, self.reward_range = env.horizon, env.n_actions, env.reward_range

    def play(self, policy, n, rng, levels=None):
        return self.env.play(policy, n, rng, levels)


class TestProblems:
    def test_a_wrapper_with_an_env_is_an_environment(self):
        problem = richobs.make("lock/3")
        wrapped = Wrapped(problem.env)
        outcome = richobs.learn(wrapped, problem.functions, epsilon=0.3)
        assert problem.value(outcome.policy) >= 0.2
        assert richobs_lab.assumptions.audit(wrapped, sequences=2, episodes=16).holds
        with pytest.raises(InvalidInput, match="a Wrapped arrived without a function class"):
            richobs.learn(wrapped)

    def test_what_is_missing_is_named(self):
        problem = richobs.make("lock/3")
        with pytest.raises(InvalidInput, match=r"an environment is needed; a int arrived. richobs.make"):
            Problem(3, problem.functions)
        with pytest.raises(InvalidInput, match="the class has 4 levels and 4 actions; the environment has 3 and 4"):
            Problem(problem.env, richobs.make("lock/4").functions)

    @pytest.mark.parametrize(
        ("facts", "sentence"),
        [
            ({"horizon": None}, "Wrapped.horizon must be a whole number, at least 1, .*; got NoneType"),
            ({"n_actions": 0}, "Wrapped.n_actions must be a whole number"),
            ({"reward_range": 1.0}, r"Wrapped.reward_range, what .* must be a pair \(low, high\)"),
            ({"reward_range": (1, 0)}, r"got \(1, 0\)"),
            ({"reward_range": None}, "reward_range, what .*, must be"),
        ],
    )
    def test_facts_that_are_none(self, facts, sentence):
        problem = richobs.make("lock/3")
        env = Wrapped(problem.env)
        vars(env).update(facts)
        with pytest.raises(InvalidInput, match=sentence):
            Problem(env, problem.functions)

    def test_a_class_is_no_environment(self):
        class Corridor(Wrapped):
            horizon, n_actions, reward_range = 3, 4, (0.0, 1.0)

        with pytest.raises(InvalidInput, match=r"Corridor is a class; give an environment of it, Corridor\(\)"):
            Problem(Corridor, richobs.make("lock/3").functions)

    def test_without_truth_or_process_values_are_estimated_by_as_many_episodes_as_are_allowed(self):
        problem = richobs.make("lock/3")
        own = Problem(problem.env, problem.functions)
        policy = problem.optimal_policy()
        with pytest.raises(InvalidInput, match="say how many `episodes` to play"):
            own.value(policy)
        report = own.value(policy, episodes=20_000)
        assert (report.exact, report.episodes) == (False, 20_000)
        assert report.low < 0.5 < report.high
        with pytest.raises(AssumptionViolated, match=r"an environment of your own: V\* is not known"):
            _ = own.optimal_value
        assert not own.knows_optimum
        assert problem.knows_optimum

    def test_a_process_given_as_a_function_is_built_once_and_when_it_is_asked_for(self):
        lock, built = richobs.make("lock/3"), []

        def build(id):
            built.append(id)
            return richobs.make(id).process

        later = Problem(lock.env, lock.functions, process=lambda: build("lock/3"))
        repr(later)
        richobs.learn(later, epsilon=0.3)
        assert built == []
        assert later.process is later.process
        assert later.optimal_value == lock.process.optimum.value
        assert built == ["lock/3"]
        wrong = Problem(lock.env, lock.functions, process=lambda: build("lock/4"))
        for _ in range(2):
            with pytest.raises(
                InvalidInput, match="the process has 4 levels and 4 actions; the environment has 3 and 4"
            ):
                _ = wrong.process
        with pytest.raises(InvalidInput, match=r"or a function that returns one; it returned 0\."):
            _ = Problem(lock.env, lock.functions, process=int).process
        assert pickle.loads(pickle.dumps(lock)).process.horizon == 3
        assert Problem(lock.env, lock.functions).process is None


class TestValues:
    def test_they_compare_and_compute_like_numbers(self):
        value = ValueReport.known(0.5)
        assert value >= 0.4
        assert value == 0.5
        assert value - 0.25 == 0.25
        assert max(value, 0.3) == 0.5
        assert f"{value:.2f}" == "0.50"
        assert (value.value, value.exact) == (0.5, True)

    def test_they_say_whether_they_are_exact(self):
        assert str(ValueReport.known(0.5)) == "0.5 (exact)"
        report = ValueReport.estimated(np.array([0.0, 1.0] * 50), (0.0, 1.0), 0.99)
        assert str(report) == "0.5000, an estimate from 100 episodes: in [0.3372, 0.6628] with probability 0.99"


class TestSettings:
    def test_tuning_is_written_and_read(self):
        tuned = Tuning(trials=8, margin=0.5)
        pairs = write_tuning(tuned)
        assert pairs == ("trials=8", "margin=0.5")  # defaults are left out
        assert read_tuning(pairs, Tuning, "certified") == tuned
        assert write_tuning({"trials": 8}) == write_tuning(["trials=8"]) == ("trials=8",)
        assert read_tuning((), Tuning, "certified") == Tuning()

    @pytest.mark.parametrize(
        ("pairs", "sentence"),
        [
            (("trials",), "should read name=value"),
            (("trials=1", "trials=2"), "each name once"),
            (("trials=x",), "trials must be int; got 'x'"),
        ],
    )
    def test_tuning_that_makes_no_sense(self, pairs, sentence):
        with pytest.raises(InvalidInput, match=sentence):
            read_tuning(pairs, Tuning, "certified")

    def test_help_texts_stand_under_the_fields(self):
        docs = field_docs(Settings)
        assert docs["delta"] == "Probability that the claim is false."
        assert list(docs) == list(Settings.__dataclass_fields__)


def test_numbers_of_numpy_become_those_of_python():
    asked = Settings(epsilon=np.float32(0.25), delta=np.float64(0.05), threshold=np.int64(2))
    assert asked == Settings(epsilon=0.25, delta=0.05, threshold=2.0)
    assert [type(v) for v in (asked.epsilon, asked.delta, asked.threshold)] == [float] * 3
    assert type(Settings(threshold=2).threshold) is int  # as it was given: certificates hold it
    with pytest.raises(InvalidInput, match=r"delta must be a number; got '0.1'"):
        Settings(delta="0.1")


def test_the_interval_of_an_estimate_is_rounded_outwards():
    assert "in [0.4000, 0.6001] with" in str(ValueReport(0.5, 0.40009, 0.60001, 0.9, 100))


def test_a_printed_outcome_is_its_claim_and_its_numbers():
    numbers = {"upper": 0.5000004, "lower": 0.25304, "value_hat": 0.59375}
    made = Outcome(OpenLoop((0,)), "It is good.", "betting", 0.1, 0.05, StopReason.AGREEMENT, **numbers)
    assert str(made) == (
        "It is good.\n(betting: 0 episodes; the policy's value is 0.5938 by estimate, beyond the bounds as the mean of a "
        "sample may be; all surviving functions agree that the policy loses at most epsilon)"
    )
    bare = dataclasses.replace(made, upper=None, lower=None, value_hat=None, reason=StopReason.BUDGET_SPENT)
    assert str(bare) == "It is good.\n(betting: 0 episodes; the episodes allowed were spent)"


def test_events_of_other_versions_are_refused():
    with pytest.raises(richobs.errors.InvalidFile, match="there is no kind of event called 'lsvee dance'"):
        from_plain(["lsvee dance", 1])
    with pytest.raises(richobs.errors.InvalidFile, match="has 8 fields; 1 are stored"):
        from_plain(["lsvee consensus", "search"])


def test_events_of_versions_with_fewer_fields_are_read():
    """Fields behind the last that had no default came later."""
    event = AverageRefuted(phase="betting", at=2, error=0.25)
    assert from_plain(to_plain(event)[:-1]) == event
    with pytest.raises(richobs.errors.InvalidFile, match="has 8 fields; 6 are stored"):
        from_plain(to_plain(event)[:-2])
    with pytest.raises(richobs.errors.InvalidFile, match="has 8 fields; 9 are stored"):
        from_plain([*to_plain(event), 0])


class TestFactsOfNumpy:
    """Facts of an environment that are NumPy's numbers; `action_space.n` of Gymnasium is one."""

    FACTS = (
        {"horizon": np.uint8(2)},
        {"n_actions": np.int64(2)},
        {"horizon": np.array(2), "n_actions": np.uint64(2)},
        {"reward_range": (np.float32(0), np.float32(1))},
        {"reward_range": np.array([0.0, 1.0])},
        {"at_once": np.int64(32), "replayable": np.bool_(False), "step_range": (np.float32(0), np.float16(1))},
    )

    class Own:
        horizon, n_actions, reward_range = 2, 2, (0.0, 1.0)

        def __init__(self, **facts):
            more = [field.name for field in dataclasses.fields(richobs.Declared) if field.name in facts]
            self.declared = richobs.Declared(**{name: facts.pop(name) for name in more})
            vars(self).update(facts)

        def play(self, policy, n, rng, levels=None):
            x = [rng.integers(2, size=n) for _ in range(2 if levels is None else levels)]
            a = [policy.actions(h, seen, rng) for h, seen in enumerate(x)]
            return richobs.Episodes(x, a, [np.where(seen == done, 0.5, 0.0) for seen, done in zip(x, a, strict=True)])

    @staticmethod
    def functions():
        right, wrong = np.eye(2), np.full((2, 2), 0.5)
        return richobs.Tables([np.stack([0.5 * right + 0.5, wrong]), np.stack([0.5 * right, 0.5 * wrong])])

    def certificate(self, env, folder):
        functions = self.functions()
        richobs.learn(env, functions, epsilon=0.4, max_episodes=200, out=folder, progress=False)
        return (folder / "certificate.json").read_bytes()

    @pytest.mark.parametrize("facts", FACTS, ids=lambda facts: "-".join(facts))
    def test_the_run_is_that_of_pythons_numbers(self, facts, tmp_path):
        plain = self.certificate(self.Own(), tmp_path / "plain")
        assert self.certificate(self.Own(**facts), tmp_path / "numpy") == plain

    def test_what_a_problem_says_is_pythons(self):
        env = self.Own(horizon=np.uint8(2), n_actions=np.int64(2), reward_range=np.array([0, 1]), at_once=7)
        problem = richobs.Problem(env, self.functions())
        assert [type(problem.horizon), type(problem.n_actions)] == [int, int]
        assert (problem.env.reward_range, type(problem.env).__name__) == ((0.0, 1.0), "Own")
        copied = pickle.loads(pickle.dumps(problem.env))
        assert (copied.horizon, type(copied.horizon), copied.declared.at_once) == (2, int, 7)
        assert richobs.Problem(copied, self.functions()).env is copied

    def test_sizes_of_ones_own_class_do_not_overflow(self):
        class Level(LevelClass):
            size, n_actions, value_range = np.uint8(200), np.uint8(2), np.array([0.0, 1.0], np.float32)

            def values(self, x, members=None, /):
                return np.zeros((200 if members is None else len(members), len(x), 2))

        functions = richobs.Layered([Level(), Level()])
        kinds = [type(v) for v in (functions.n_actions, functions.level_size(0), *functions.value_range(0))]
        assert kinds == [int, int, float, float]
        assert functions.level_size(0) * functions.level_size(1) * functions.n_actions == 80_000

    def test_numbers_that_decide_when_to_stop_are_pythons_too(self):
        def certified(kind):
            asked = {"epsilon": kind(0.5), "delta": kind(0.0625), "threshold": kind(0.75)}
            return richobs.certify_policy(self.Own(), richobs.Uniform(2), max_episodes=100, progress=False, **asked)

        assert certified(np.float16).as_json() == certified(float).as_json()
        sizes = {"n_actions": np.uint8(200), "n_states": np.int8(100), "log_size": np.float16(3)}
        given = PaperConstants.of(horizon=np.uint8(20), epsilon=np.float32(0.25), delta=0.05, **sizes)
        assert given == PaperConstants.of(
            horizon=20, n_actions=200, n_states=100, log_size=3.0, epsilon=0.25, delta=0.05
        )

    def test_what_cannot_be_used_is_refused_before_the_first_episode(self):
        class Unplayed(self.Own):
            def play(self, policy, n, rng, levels=None):
                raise AssertionError("nothing may be played")

        wrong = ({"identity": 3}, {"step_range": "x"}, {"at_once": True}, {"declared": {}}, {"horizon": np.bool_(True)})
        for facts in (*wrong, {"deterministic": True, "real_episodes": -1}):
            with pytest.raises(InvalidInput):
                richobs.learn(Unplayed(**facts), self.functions(), epsilon=0.4, progress=False)

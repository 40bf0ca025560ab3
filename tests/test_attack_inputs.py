"""A small share of `python -m attack.inputs`: every answer is a value or a sentence; and the sentences that it led to."""

import pathlib

import numpy as np
import pytest
from attack.inputs import Call, attack, tried
from attack.isolation import Kind, is_supported
from attack.strategies import Faulty

import richobs
import richobs_lab.assumptions
import richobs_lab.prototypes
from richobs.core.arguments import file_path, real_number, refuse_unusable, whole_number
from richobs.core.errors import InvalidInput

needs_forks = pytest.mark.skipif(not is_supported(), reason="attempts take forks, RLIMIT_AS and /proc")
GOOD = np.full((2, 2, 2), 0.5)


@needs_forks
def test_a_share_is_answered():
    found = attack(12, 5)
    assert found["cases"] == 12
    assert found["failed"] == []


@needs_forks
def test_a_traceback_is_found_out():
    call = Call("arguments", "len(3)", lambda: len(3))
    assert tried(call).kind is Kind.TRACEBACK


class TestArguments:
    @pytest.mark.parametrize(
        ("check", "values", "words"),
        [
            (lambda v: whole_number("n", v), (None, 1.5, "3", -1, []), "n must be a whole number, at least 0"),
            (lambda v: whole_number("n", v, most=5), (6,), "at most 5; got 6"),
            (lambda v: real_number("x", v), (None, "0.5", 1j, []), "x must be a number; got"),
            (lambda v: real_number("x", v), (10**400,), "that a float holds"),
            (file_path, (None, 3, b"x", "a\0b", "\ud800"), "a file is given as text or a path"),
        ],
    )
    def test_what_is_no_number_and_no_file(self, check, values, words):
        for value in values:
            with pytest.raises(InvalidInput, match=words):
                check(value)

    def test_numbers_and_files(self):
        assert (whole_number("n", np.int64(3)), whole_number("seed", -7, least=None)) == (3, -7)
        assert (real_number("x", np.float32(0.5)), file_path("a/b")) == (0.5, pathlib.Path("a/b"))

    def test_a_call_that_does_not_fit_stays_a_type_error(self):
        @refuse_unusable
        def double(x):
            return 2 + x

        assert double(3) == 5
        with pytest.raises(InvalidInput, match=r"double cannot use an argument.*It was given x of type str"):
            double("x")
        with pytest.raises(TypeError, match="missing"):
            double()


@pytest.mark.parametrize(
    "act",
    [
        lambda: richobs.Tables(3),
        lambda: richobs_lab.prototypes.Prototypes(range(10**15), [0], GOOD),
        lambda: richobs.TensorBoard(3.5),
        lambda: richobs.certify_policy(Faulty("none"), richobs.Uniform(2), threshold=0.2, seed=2.5),
        lambda: richobs.certify_policy(Faulty("none"), richobs.Uniform(2), threshold=0.2, batch=10**17),
        lambda: richobs.from_gymnasium("CartPole-v1", horizon=3, reward_range=(0, 3), vector=10**12),
        lambda: richobs.from_gymnasium("CartPole-v1", horizon=3, reward_range=(0, 3), observation=3),
        lambda: richobs.Tables([GOOD], value_range=0.0),
        lambda: richobs.Tables(GOOD, horizon=10**12),
        lambda: richobs.Callables(3, 2, 2),
        lambda: richobs.Callables([len], "x", 2),
        lambda: richobs.Linear("identity", np.zeros((2, 4)), None),
        lambda: richobs.classes.Decoders("x", GOOD),
        lambda: richobs.Layered(3),
        lambda: richobs.Simulators(None),
        lambda: richobs.Simulators("x", 3),
        lambda: richobs.Model(2, 3, 3, 3, 3, 3),
        lambda: richobs.LearnedPolicy(3, 0),
        lambda: richobs.LearnedPolicy.from_table([None], 3),
        lambda: richobs.LearnedPolicy.open_loop("xy", 2),
        lambda: richobs.LearnedPolicy.open_loop((0, 1), 2).predict(np.zeros(2), state=3),
        lambda: richobs.LearnedPolicy.open_loop((0, 1), 2).actions("x", np.zeros(2)),
        lambda: richobs.LearnedPolicy.open_loop((0, 1), 2).save(3),
        lambda: richobs.LearnedPolicy.load(3.5),
        lambda: richobs.Certificate.load(None),
        lambda: richobs.Certificate.of(3, richobs.make("lock/2")),
        lambda: richobs_lab.assumptions.check_assumptions("x"),
        lambda: richobs_lab.assumptions.check_assumptions(richobs.make("mdp/2").process, 3),
        lambda: richobs_lab.assumptions.audit("x"),
        lambda: richobs_lab.assumptions.audit(Faulty("horizon is 1.5")),
        lambda: richobs_lab.assumptions.audit(Faulty("none"), seed="x"),
        lambda: richobs_lab.assumptions.audit(Faulty("none"), error_rate="x"),
        lambda: richobs.certify_policy(Faulty("n_actions is x"), richobs.Uniform(2), threshold=0.2),
        lambda: richobs.certify_policy(Faulty("at_once is True"), richobs.Uniform(2), threshold=0.2),
        lambda: richobs.certify_policy(Faulty("none"), richobs.Uniform(2), threshold=0.2, callback=3),
        lambda: richobs.Problem(Faulty("reward_range is (0.0, nan)"), richobs.Callables([len], 2, 2)),
        lambda: richobs.make("lock/2").value(3),
        lambda: richobs.OpenLoop(3),
        lambda: richobs.Uniform(0),
        lambda: richobs.Switch(richobs.Uniform(2), "x", richobs.Uniform(2)),
        lambda: richobs.Switch(3, 1, richobs.Uniform(2)),
        lambda: richobs.core.policies.Explore(richobs.Uniform(2), "x", 2),
        lambda: richobs.Episodes(3, 3, 3).save("x.npz"),
        lambda: richobs.from_gymnasium("CartPole-v1", horizon=3, deterministic=np.zeros(0)),
    ],
)
def test_arguments_of_other_kinds_get_a_sentence(act, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(richobs.RichObsError, match=r"[a-z].*\w"):
        act()

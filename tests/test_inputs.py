"""Inputs and files from strangers: every one is answered by a value or by a sentence, and takes little memory."""

import contextlib
import copy
import dataclasses
import io
import json
import os
import pathlib
import sys
import tempfile
import zipfile

import numpy as np
import pytest
from attack.strategies import ESCAPE, LINES, SMALL, WORLD_IDS
from hypothesis import given, settings

import richobs
from richobs.classes.learned_policy import LearnedPolicy
from richobs.cli import main
from richobs.core.environment import Episodes, checked_episodes
from richobs.core.errors import InvalidFile, InvalidInput, Rejected, RichObsError
from richobs.core.files import open_arrays
from richobs.core.policies import OpenLoop
from richobs.core.settings import Settings
from richobs.learners import LEARNERS
from richobs.runs.certificate import Certificate
from richobs.runs.prepare import prepare
from richobs.runs.session import run
from richobs.runs.verify import verify
from richobs.worlds.registry import make


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def problem():
    return make(SMALL)


@pytest.fixture(scope="module", params=["betting", "lsvee"])
def ran(request, problem):
    return run(problem, Settings(epsilon=0.3, learner=request.param))


@pytest.fixture(scope="module")
def certificate(ran, problem):
    return Certificate.of(ran, problem)


def answer(*args):
    """Returns the exit status of a command line, and what it printed; a traceback fails the test."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(args)
        except SystemExit as stop:  # the parser's own refusals
            status = stop.code
    return status, out.getvalue() + err.getvalue()


def repr_of(value):
    """Returns a short name of a case."""
    return repr(value)[:20]


def altered(content, path, value):
    """Returns a copy with another value at a path of keys; without it where the value is ...."""
    result = copy.deepcopy(content)
    place = result
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return result


def parts(content, before=()):
    """Yields the path of every part of plain values, of a list the first entry alone."""
    pairs = content.items() if isinstance(content, dict) else list(enumerate(content))[:1]
    for key, value in pairs:
        yield (*before, key)
        if isinstance(value, dict | list):
            yield from parts(value, (*before, key))


class TestSettings:
    @pytest.mark.parametrize("learner", LEARNERS)
    @pytest.mark.parametrize("n_states", [0, -1])
    def test_impossible_numbers_of_states_are_refused_before_anything_is_played(self, problem, learner, n_states):
        with pytest.raises(
            InvalidInput, match=f"n_states must be a whole number, at least 1, at most .*; got {n_states}"
        ):
            prepare(problem, Settings(learner=learner, n_states=n_states))

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"seed": None}, "seed must be a whole number; got None"),
            ({"workers": None}, "workers must be a whole number; got None"),
            ({"workers": 2**31}, "workers must be a whole number, at least 1, at most 10,000; got 2147483648"),
            ({"timeout": 0}, "timeout must be a number"),
            ({"timeout": float("nan")}, "timeout must be a number"),
            ({"timeout": "5"}, "timeout must be a number"),
            ({"workers": 10**30}, "workers must be a whole number, at least 1, at most 10,000; got 1000000"),
            ({"n_states": 10**400, "learner": "lsvee"}, "n_states must be a whole number, at least 1, at most"),
            ({"max_episodes": 10**400}, "max_episodes must be a whole number, at least 1, at most"),
            ({"epsilon": 10**400}, "epsilon must be a number that a float holds"),
            ({"delta": -(10**400)}, "delta must be a number that a float holds"),
            ({"threshold": 10**400}, "threshold must be a number that a float holds"),
            ({"threshold": "x"}, "threshold must be a number; got 'x'"),
            ({"threshold": []}, "threshold must be a number"),
            ({"engine": ["stream"]}, "engine must be the name of one"),
            ({"learner": ["betting"]}, "learner must be the name of one"),
        ],
    )
    def test_impossible_values_get_a_sentence(self, problem, given, said):
        with pytest.raises(InvalidInput, match=said):
            prepare(problem, Settings(**given))

    def test_a_problem_without_a_range_of_rewards_is_refused(self, problem):
        class Rangeless:
            horizon, n_actions, reward_range = 2, 4, None

            def play(self, policy, n, rng, levels=None):
                raise AssertionError("nothing may be played")

        with pytest.raises(InvalidInput, match=r"reward_range, what .*, must be"):
            richobs.learn(Rangeless(), problem.functions)


class TestCertificates:
    @pytest.mark.parametrize("value", [..., None, {}, "x", -1, 10**400], ids=repr_of)
    def test_an_altered_part_is_found_or_refused(self, ran, certificate, problem, tmp_path, monkeypatch, value):
        monkeypatch.setattr("richobs.runs.verify.run", lambda *args, **more: ran)  # the settings stay as they are
        file, content = tmp_path / "certificate.json", certificate.content
        for path in parts(content):
            changed = altered(content, path, value)
            if changed == content or path[0] in ("versions", "settings") or path == ("result", "real_episodes"):
                continue
            file.write_text(json.dumps(changed))
            with contextlib.suppress(InvalidFile):
                assert not verify(Certificate.load(file), problem).agrees, path

    @pytest.mark.parametrize("n_states", [0, -1, 10**40, 2.5, "3"], ids=repr_of)
    def test_impossible_settings_are_refused_when_it_is_read(self, certificate, tmp_path, n_states):
        file = tmp_path / "certificate.json"
        file.write_text(json.dumps(altered(certificate.content, ("settings", "n_states"), n_states)))
        with pytest.raises(InvalidFile, match="n_states"):
            Certificate.load(file)

    def test_another_number_of_states_is_found(self, certificate, problem):
        assert certificate.content["environment"]["n_states"] == 3
        changed = Certificate(altered(certificate.content, ("settings", "n_states"), 7))
        wrong = [f.what for f in verify(changed, problem).findings if not f.agrees]
        assert "run" in wrong

    def test_parts_that_the_learner_reads_may_be_missing(self, problem):
        real = Certificate.of(run(problem, Settings(epsilon=0.3)), problem)
        found = verify(Certificate(altered(real.content, ("constants", "agreement"), None)), problem)
        (wrong,) = [f for f in found.findings if not f.agrees]
        assert wrong.what == "constants"
        assert "parts that betting writes are missing, or of another kind" in wrong.detail

    def test_a_world_that_nobody_can_build_takes_no_memory(self, certificate, tmp_path):
        huge = altered(certificate.content, ("environment", "id"), "random/1000000,n_states=1000000")
        (tmp_path / "certificate.json").write_text(json.dumps(huge))
        status, said = answer("verify", "certificate.json")
        assert status == 2
        assert "random: 1,000,000 levels of about 9,000,076,000,192 numbers each are too many" in said

    def test_deep_nesting_gets_a_sentence(self, tmp_path):
        deep = "[" * 200_000
        (tmp_path / "certificate.json").write_text(deep)
        assert answer("verify", "certificate.json")[0] == 2
        assert answer("learn", SMALL, "--quiet", "--out", "runs/good")[0] == 0
        bad = tmp_path / "runs" / "bad"
        bad.mkdir()
        (bad / "config.json").write_text(deep)
        (bad / "run.sqlite").write_bytes(b"")
        status, said = answer("show", "runs")
        assert status == 0
        assert "runs/good" in said
        assert "runs/bad" in said
        for command in ("show", "resume", "report"):
            status, said = answer(command, "runs/bad")
            assert status == 2
            assert "richobs:" in said


class TestWorlds:
    @pytest.mark.parametrize("id", [None, [], ["lock/3"], 3, b"lock/3", {}])
    def test_an_id_is_a_text(self, id):
        with pytest.raises(InvalidInput, match="an id is a text such as 'lock/10'"):
            make(id)

    @pytest.mark.parametrize(
        "id",
        [
            *("lock/1000000000000000000000", "lock/100000", "lock/3,n_actions=99999999999999999999"),
            *("lock/3,noise_bits=99999999999999999999", "lock/3,noise_bits=10001", "lock/3,n_actions=1000000"),
            *("lock/3,functions=tables,class_size=1000000", "diabolical/1000000000000000000000"),
            *("diabolical/3,n_actions=1000000", "lower-bound/1000000000000000000000", "lower-bound/1000000"),
            *("random/1000000", "random/2,n_observations=99999999999", "mdp/1000000", "mdp/3,n_states=1000000"),
            *("deep-sea/1000000", "disjoint/3,n_states=1000000", "disjoint/3,vectors=True,dimension=1000000"),
            *("bandit,n_contexts=1000000,n_actions=1000000", f"lock/3,swap={10**400}"),
        ],
    )
    def test_worlds_that_are_too_large_are_refused_before_they_are_built(self, id):
        with pytest.raises(InvalidInput, match=r"must be|are too many"):
            make(id)


class TestEnvironments:
    """Four episodes of two levels are asked for, with actions 0 and 1."""

    class Env:
        horizon, n_actions, reward_range = 2, 2, (0.0, 1.0)

    def checked(self, **changes):
        """Four good episodes with changes; no changes are no answer at all."""
        good = {"observations": [np.zeros(4)] * 2, "actions": [np.ones(4, int)] * 2, "rewards": [np.zeros(4)] * 2}
        played = Episodes(**{**good, **changes}) if changes else None
        return checked_episodes(played, self.Env(), OpenLoop((1, 1)), 4, 2)

    @pytest.mark.parametrize("rows", [8, 3, 0])
    @pytest.mark.parametrize("column", ["observations", "actions", "rewards", "ended"])
    def test_other_numbers_of_rows_are_refused(self, column, rows):
        values = [np.zeros(rows, {"actions": int, "ended": bool}.get(column, float))] * 2
        with pytest.raises(Rejected, match=rf"Env.play: {column} at level 0 .*4 episodes were asked for"):
            self.checked(**{column: values})

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({}, r"must return richobs.Episodes; it returned NoneType"),
            ({"ended": None}, "ended must be a list with one array per level; got NoneType"),
            ({"ended": 3}, "ended must be a list"),
            ({"ended": [np.zeros(4, int)] * 2}, r"ended at level 0 must be \[n\] True or False"),
            ({"rewards": None}, "rewards must be a list"),
            ({"rewards": [None, None]}, "rewards at level 0"),
            ({"rewards": [np.zeros(4)]}, "rewards of 1 levels; 2 were asked for"),
            ({"rewards": [["a"] * 4] * 2}, r"rewards at level 0 must be \[n\] numbers"),
            ({"rewards": [np.zeros(4, complex)] * 2}, r"rewards at level 0 must be \[n\] numbers"),
            ({"rewards": [[10**30] * 4] * 2}, r"rewards at level 0 must be \[n\] numbers"),
            ({"rewards": [np.full(4, np.nan)] * 2}, "level 0 paid nan"),
            ({"rewards": [np.ma.masked_array(np.zeros(4), mask=True)] * 2}, "rewards have masked entries"),
            ({"actions": [np.ones(4)] * 2}, r"actions at level 0 must be \[n\] integers"),
            ({"actions": [np.full(4, 2**63, dtype=np.uint64)] * 2}, "took action 9223372036854775808 at level 0"),
            ({"observations": [[[1], [1, 2], 3, 4]] * 2}, "observations are not arrays"),
            ({"observations": [np.array([0, 0, np.inf, 0])] * 2}, "level 0 is not a finite number.*: inf in episode 2"),
            ({"observations": [np.full((4, 2), np.nan + 0j)] * 2}, "is not a finite number"),
            ({"observations": [np.array(["NaT"] * 4, dtype="M8[s]")] * 2}, "is not a time"),
            ({"observations": [np.array([{}] * 4)] * 2}, "are Python objects"),
        ],
    )
    def test_other_answers_are_refused_in_a_sentence(self, changes, said):
        with pytest.raises(Rejected, match=said):
            self.checked(**changes)


def archive(file, members, *, compression=zipfile.ZIP_DEFLATED):
    """Writes a `.npz` file from bytes by name."""
    with zipfile.ZipFile(file, "w", compression) as out:
        for name, body in members:
            out.writestr(name, body)


def as_bytes(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


class TestArchives:
    @pytest.fixture
    def policy_file(self, tmp_path):
        LearnedPolicy.open_loop((0, 1), 2).save(tmp_path / "policy.npz")
        return tmp_path / "policy.npz"

    def members(self, file):
        with zipfile.ZipFile(file) as stored:
            return [(name, stored.read(name)) for name in stored.namelist()]

    def test_a_policy_is_as_large_as_its_file(self, policy_file):
        assert LearnedPolicy.load(policy_file).digest == LearnedPolicy.open_loop((0, 1), 2).digest
        archive(policy_file, [*self.members(policy_file), ("0/more.npy", as_bytes(np.zeros(1_000_000)))])
        assert policy_file.stat().st_size < 20_000
        with pytest.raises(InvalidFile, match=r"would take 8,00.,... bytes once expanded; .* are allowed"):
            LearnedPolicy.load(policy_file)

    @pytest.mark.parametrize(
        ("name", "content", "said"),
        [
            *((n, None, "which belongs to none of its parts") for n in ("7/values.npy", "more.npy", "-1/values.npy")),
            ("run.py", b"pass", "something that is no array"),
        ],
    )
    def test_a_file_that_holds_something_else_is_refused(self, policy_file, name, content, said):
        more = (name, as_bytes(np.zeros(3)) if content is None else content)
        archive(policy_file, [*self.members(policy_file), more], compression=zipfile.ZIP_STORED)
        with pytest.raises(InvalidFile, match=said):
            LearnedPolicy.load(policy_file)

    @pytest.mark.parametrize("dtype", ["<f8", "|O", "|V0"])
    def test_the_header_of_an_array_cannot_ask_for_memory(self, tmp_path, dtype):
        header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': (1000000000000,), }}\n".encode()
        body = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 64
        archive(tmp_path / "a.npz", [("rewards_0.npy", body)], compression=zipfile.ZIP_STORED)
        said = r"declares 8,000|an array holds"
        with open_arrays(tmp_path / "a.npz") as stored, pytest.raises(InvalidFile, match=said):
            stored.read("rewards_0")
        with pytest.raises(InvalidFile, match="does not hold episodes"):
            Episodes.load(tmp_path / "a.npz")

    def test_episodes_expand_to_what_they_declare_and_no_further(self, tmp_path, monkeypatch):
        played = Episodes([np.zeros((100, 50))], [np.zeros(100, int)], [np.zeros(100)])
        played.save(tmp_path / "small.npz")
        assert Episodes.load(tmp_path / "small.npz").n == 100
        monkeypatch.setattr("richobs.core.files.EXPANDED", 20_000)
        with pytest.raises(InvalidFile, match=r"its arrays would take 41,984 bytes once expanded; 20,000 are allowed"):
            Episodes.load(tmp_path / "small.npz")
        played.save(tmp_path / "large.npz")  # without compression, so that it can be read again
        assert (tmp_path / "large.npz").stat().st_size > 40_000
        assert Episodes.load(tmp_path / "large.npz").n == 100


class TestCommands:
    def test_markup_in_a_folder_is_text(self):
        for folder in ("[/bold]x[red]", "[/]"):
            status, said = answer("learn", SMALL, "--out", folder)
            assert status == 0
            assert f"richobs verify {folder}/certificate.json" in said
            assert answer("show", folder)[0] == 0

    def test_escapes_in_names_are_shown_and_not_obeyed(self, tmp_path):
        status, said = answer("learn", SMALL, "--out", f"runs/{ESCAPE}")
        assert status == 0
        assert r"wrote runs/\x1b[31mred/certificate.json" in said
        for command in (["show", "runs"], ["show", f"runs/{ESCAPE}"], ["show", ESCAPE]):
            said += answer(*command)[1]
        assert "\x1b" not in said
        file = tmp_path / "runs" / ESCAPE / "certificate.json"
        lie = json.loads(file.read_text())
        file.write_text(json.dumps({**lie, "claim": "\x1b[2J\x9b1mverified\u202e"}))
        status, said = answer("verify", "--quiet", str(file))
        assert status == 1
        assert r"\x1b[2J\x9b1mverified\u202e" in said

    @pytest.mark.parametrize("name", ["a\0b", "\ud800"])
    @pytest.mark.parametrize("command", [("learn", SMALL, "--out"), ("show",), ("verify",), ("resume",)])
    def test_what_no_file_can_be_called_is_refused(self, command, name):
        status, said = answer(*command, name)
        assert status == 2
        assert f"an argument is given as text or a path, in characters that a name can hold; got {name!a}" in said

    @pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes there")
    def test_names_that_are_not_utf8_are_names(self):
        status, said = answer("learn", SMALL, "--out", os.fsdecode(b"\xff"))
        assert (status, r"wrote \udcff/certificate.json" in said) == (0, True)


@settings(max_examples=8, deadline=None, derandomize=True, database=None)
@given(LINES)
def test_every_command_line_is_answered(line):
    here = pathlib.Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            status, said = answer(*line)
        finally:
            os.chdir(here)
    assert status in (0, 1, 2), line
    assert said.strip(), line
    assert "Traceback" not in said


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(WORLD_IDS)
def test_every_id_is_a_problem_or_refused(id):
    with contextlib.suppress(RichObsError):
        assert dataclasses.is_dataclass(make(id))

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

from richobs.classes.learned_policy import LearnedPolicy
from richobs.cli import main
from richobs.core.environment import Episodes
from richobs.core.errors import InvalidFile, InvalidInput, RichObsError
from richobs.core.files import open_arrays
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
        words = f"n_states must be a whole number, at least 1, at most .*; got {n_states}"
        with pytest.raises(InvalidInput, match=words):
            prepare(problem, Settings(learner=learner, n_states=n_states))

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"seed": None}, "seed must be a whole number; got None"),
            ({"seed": 1.5}, "seed must be a whole number"),
            ({"workers": None}, "workers must be a whole number; got None"),
            ({"n_states": "3", "learner": "lsvee"}, "n_states must"),
            ({"engine": "fast"}, "there is no engine 'fast'"),
            ({"epsilon": 0.0}, "epsilon must lie between"),
            ({"workers": 2**31}, "workers must be a whole number, at least 1, at most 10,000; got 2147483648"),
            ({"timeout": 0}, "timeout must be a number"),
            ({"timeout": float("nan")}, "timeout must be a number"),
            ({"timeout": "5"}, "timeout must be a number"),
            ({"workers": 10**30}, "workers must be a whole number, at least 1, at most 10,000; got 1000000"),
            ({"n_states": 10**400, "learner": "lsvee"}, "n_states must be a whole number, at least 1, at most"),
            ({"max_episodes": 10**400}, "max_episodes must be a whole number, at least 1, at most"),
            ({"max_episodes": -5}, "max_episodes must be a whole number, at least 1"),
            ({"epsilon": 1e-160}, "epsilon must lie between 1e-09 and"),
            ({"delta": 1e-322}, "delta must lie between 1e-09 and 1"),
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

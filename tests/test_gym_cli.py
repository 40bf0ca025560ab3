"""Gymnasium problems from the command line, which environment a stored run is about, and what deterministic ones claim."""

import json
import pathlib
import re
import sys

import numpy as np
import pytest

import richobs
import richobs_lab.assumptions
from own import Arms
from richobs.cli.learn import default_folder
from richobs.cli.main import COMMANDS, in_order
from richobs.core.errors import InvalidInput
from richobs.core.outcome import DETERMINISTIC_ENVIRONMENT
from richobs.core.settings import Settings
from richobs.runs.prepare import is_simulated
from richobs.runs.store import StoredRun
from richobs.show import write_report
from richobs.worlds.gymnasium_in import GymnasiumSpec
from richobs.worlds.registry import make
from test_cli import exits, run

DOCS = pathlib.Path(__file__).parents[1] / "docs"
DRY, PONG = {"is_slippery": False}, {"mode": "4x4", "number": "12"}
LAKE = "gym:FrozenLake-v1?horizon=8&reward_range=0,1&functions=lake_classes:few&is_slippery=False"
CLASSES = """
import numpy as np
import richobs
from richobs_lab.worlds.frozen_lake import Config, candidate_lakes, q_functions

def few(env):
    lakes, _ = candidate_lakes(Config(horizon=env.horizon, n_maps=8, slip=0.0), np.random.default_rng(0))
    return richobs.Tables(q_functions(lakes, horizon=env.horizon))

def column(cell):
    return cell % 4
"""


@pytest.fixture(autouse=True)
def in_a_folder_with_classes(tmp_path, monkeypatch):
    """A working folder with a module of its own, which nobody has imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    monkeypatch.delenv("RICHOBS_TRUST", raising=False)
    (tmp_path / "lake_classes.py").write_text(CLASSES)
    monkeypatch.delitem(sys.modules, "lake_classes", raising=False)
    yield
    sys.modules.pop("lake_classes", None)


class TestIds:
    @pytest.mark.parametrize(
        ("id", "spec"),
        [
            (
                "gym:FrozenLake-v1?horizon=12&reward_range=0,1&functions=mypkg.candidates:make&is_slippery=False",
                GymnasiumSpec("FrozenLake-v1", 12, (0, 1), functions="mypkg.candidates:make", kwargs=DRY),
            ),
            (
                "gym:ALE/Pong-v5?horizon=4&step_range=-1,0.5&seed=3&deterministic=True&mode=4x4&number='12'",
                GymnasiumSpec("ALE/Pong-v5", 4, step_range=(-1, 0.5), seed=3, deterministic=True, kwargs=PONG),
            ),
            (
                "gym:mine.envs:Lake-v0?horizon=2&desc=['S%20F',%20'G%26%3D%25']",
                GymnasiumSpec("mine.envs:Lake-v0", horizon=2, kwargs={"desc": ["S F", "G&=%"]}),
            ),
            ("gym:CartPole-v1", GymnasiumSpec("CartPole-v1")),
        ],
    )
    def test_an_id_and_a_spec_say_the_same(self, id, spec):
        assert GymnasiumSpec.read(id) == spec
        assert spec.id == id

    @pytest.mark.parametrize(
        ("id", "sentence"),
        [
            ("gym:", "'gym:' names no environment"),
            ("gym:A-v0?horizon", "'horizon' should read name=value"),
            ("gym:A-v0?horizon=2&horizon=3", "gives horizon twice"),
            ("gym:A-v0?slippery=null", "slippery=null: write slippery=None, or slippery='null' for the text"),
        ],
    )
    def test_what_is_no_id(self, id, sentence):
        with pytest.raises(InvalidInput, match=re.escape(sentence)):
            GymnasiumSpec.read(id)

    def test_make_builds_the_problem_again(self, monkeypatch, tmp_path):
        monkeypatch.syspath_prepend(tmp_path)
        parts = {"horizon": 8, "reward_range": (0, 1), "functions": "lake_classes:few", "is_slippery": False}
        problem = make("gym:FrozenLake-v1", **parts)
        assert problem.id == LAKE
        again = make(LAKE)
        assert (again.id, again.identity) == (problem.id, problem.identity)
        assert again.functions.digest == problem.functions.digest
        assert not is_simulated(again)
        with pytest.raises(InvalidInput, match=r"horizon, is_slippery: given in the id '.*' and again"):
            make(LAKE, horizon=9, is_slippery=True)


@pytest.mark.parametrize(
    ("typed", "ordered"),
    [
        ("learn --step-range -1 2 gym:A-v0 --quiet", "learn gym A-v0 --step-range -1 2 --quiet"),
        (
            "learn --env-arg a=1 b=2 gym:B/A-v0?horizon=3 --env-arg c=3 --deterministic",
            "learn gym B/A-v0?horizon=3 --env-arg a=1 --env-arg b=2 --env-arg c=3 --deterministic",
        ),
        ("audit gym A-v0", "audit gym A-v0"),
    ],
)
def test_options_of_an_environment_may_stand_anywhere(typed, ordered):
    assert in_order(typed.split(), COMMANDS) == ordered.split()


class TestCommands:
    def test_the_guides_example_is_learned_and_verified(self, capsys, tmp_path, monkeypatch):
        guide = (DOCS / "gymnasium.md").read_text()
        (module,) = re.findall(r"```python\n# lakes.py\n(.*?)```", guide, re.DOTALL)
        (command,) = re.findall(r"```sh\nrichobs (learn gym:.*)\n```", guide)
        (line,) = re.findall(r"```text\n(gym:.*)\n```", guide)
        (tmp_path / "lakes.py").write_text(module)
        said = exits(0, capsys, *command.split(), "--out", "run")
        assert "check it again: richobs verify run/certificate.json --trust" in said.out
        stored = StoredRun.read("run")
        assert stored.world == line
        assert json.loads(pathlib.Path("run/config.json").read_text())["environment"]["at_once"] == 32  # paced
        said = exits(0, capsys, "verify", "run", "--trust", "--quiet")
        assert "tests drawn again agree to the last byte" in said.out
        monkeypatch.delitem(sys.modules, "lakes")

    def test_a_file_is_trusted_only_if_somebody_says_so(self, capsys, monkeypatch):
        assert run(capsys, "learn", LAKE, "--out", "run", "--quiet", "--max-episodes", "8")[0] == 0
        for args in (["verify", "run"], ["resume", "run"], ["show", "run"], ["show", "."]):
            sys.modules.pop("lake_classes", None)
            status, said = run(capsys, *args)
            assert "lake_classes" not in sys.modules
            if args[0] in ("verify", "resume"):
                assert status == 2
                assert f"is about {LAKE}. To build this problem, the modules that it names are imported" in said.err
                assert "say --trust (or set RICHOBS_TRUST=1)" in said.err
            else:
                assert status == 0
        assert run(capsys, "resume", "run", "--trust", "--max-episodes", "400")[0] == 0
        assert run(capsys, "learn", LAKE, "--out", "whole", "--quiet", "--max-episodes", "400")[0] == 0
        resumed, whole = (pathlib.Path(folder, "certificate.json").read_bytes() for folder in ("run", "whole"))
        assert resumed == whole
        monkeypatch.setenv("RICHOBS_TRUST", "1")
        assert run(capsys, "verify", "run", "--quiet")[0] == 0

    def test_every_option_becomes_part_of_the_id(self, capsys):
        options = "--horizon 5 --step-range 0 1 --env-seed 3 --deterministic --observation lake_classes:column"
        more = "--env-arg is_slippery=False --env-arg map_name=8x8 --functions lake_classes:few"
        said = exits(0, capsys, "plan", "gym:FrozenLake-v1", *options.split(), *more.split(), "--json")
        planned = json.loads(said.out)
        assert planned["id"] == (
            "gym:FrozenLake-v1?horizon=5&step_range=0,1&seed=3&observation=lake_classes:column&deterministic=True"
            "&functions=lake_classes:few&is_slippery=False&map_name=8x8"
        )
        assert set(planned) == {"id", "betting"}

    def test_audit_and_value_need_no_class(self, capsys):
        lake = ("gym:FrozenLake-v1", "--horizon", "4", "--reward-range", "0", "1")
        few = ("--sequences", "4", "--episodes", "64")
        said = exits(1, capsys, "audit", *lake, *few)  # slippery
        assert "gym:FrozenLake-v1, horizon=4" in said.out
        assert "independent levels    fails" in said.out
        said = exits(0, capsys, "audit", *lake, *few, "--env-arg", "is_slippery=False", "--json")
        assert json.loads(said.out)["holds"]
        richobs.LearnedPolicy.open_loop((1, 1, 2, 2, 1, 2, 0, 0), 4).save("policy.npz")
        dry = ("gym:FrozenLake-v1?horizon=8&reward_range=0,1", "--env-arg", "is_slippery=False", "--deterministic")
        said = exits(0, capsys, "value", *dry, "--policy", "policy.npz", "--threshold", "0.5", "--quiet")
        assert "provided that the environment is deterministic, that episodes are independent" in said.out

    @pytest.mark.parametrize(
        ("args", "words"),
        [
            ("learn gym:FrozenLake-v1 --functions lake_classes:few", "needs --horizon"),
            ("learn gym:FrozenLake-v1 --horizon 3", "needs --functions module:name"),
            ("learn gym:FrozenLake-v1?horizon=3 --horizon 4", "horizon: given in the id"),
            (
                "learn gym:FrozenLake-v1?horizon=3&reward_range=3 --functions a:b",
                "reward_range must be a pair (low, high)",
            ),
            ("learn gym:FrozenLake-v1 --env-arg slippery", "--env-arg slippery: it should read name=value"),
            ("learn gym:FrozenLake-v1 --env-arg seed=3", "--env-arg seed=3: this is an option of its own"),
            ("learn gym:FrozenLake-v1 --horizon 3 --functions lake_classes:many", "no attribute 'many'"),
            ("learn gym:FrozenLake-v1 --horizon 3 --functions lake_classes:few", "does not say which rewards"),
            ("learn gym:FrozenLake-v7 --horizon 3 --functions lake_classes:few", "Gymnasium cannot make"),
            (
                "learn gym:FrozenLake-v1 --horizon 3 --functions lake_classes:few --env-arg slip=1",
                "unexpected keyword argument 'slip'",
            ),
            ("check gym:FrozenLake-v1", "is not written down, so its assumptions cannot be checked exactly"),
            ("audit gym:FrozenLake-v1", "needs --horizon"),
        ],
    )
    def test_what_cannot_be_done_is_said_in_one_sentence(self, capsys, args, words):
        status, said = run(capsys, *args.split())
        assert (status, said.out) == (2, "")
        assert words in said.err

    def test_a_long_id_still_names_a_folder(self, capsys):
        arguments = [f"--env-arg=a{i}={'x' * 30}" for i in range(10)]
        problem = make("bandit")
        named = richobs.Problem(problem.env, problem.functions, id=f"gym:A/B-v0?{'&'.join(arguments)}")
        folder = default_folder(named, Settings())
        assert folder.parent == pathlib.Path("runs")
        assert re.fullmatch(r"gym-A-B-v0-[A-Za-z0-9._=-]{1,60}", folder.name)


def named(identity):
    """An environment that says who it is, and always pays 1 for the action 1."""
    return Arms(0.0, 1.0, identity=identity)


TWO = richobs.Tables([np.array([[[0.0, 1.0]], [[1.0, 0.0]]])])


class TestIdentity:
    def test_a_stored_run_goes_on_with_the_same_environment_alone(self):
        richobs.learn(named("robot 7"), TWO, out="run")
        assert json.loads(pathlib.Path("run/config.json").read_text())["environment"]["identity"] == "robot 7"
        richobs.learn(named("robot 7"), TWO, out="run")
        other = named("robot 8")
        with pytest.raises(InvalidInput, match="its environment has identity = 'robot 7', and 'robot 8' is asked for"):
            richobs.learn(other, TWO, out="run")
        assert other.played == 0

    def test_a_certificate_is_verified_with_the_same_environment_alone(self):
        richobs.learn(named("robot 7"), TWO, out="run")
        certificate = richobs.Certificate.load("run/certificate.json")
        assert certificate.content["environment"]["identity"] == "robot 7"
        assert richobs.verify(certificate, named("robot 7"), TWO).agrees
        other = named("robot 8")
        found = richobs.verify(certificate, other, TWO).findings[-1]
        assert (found.what, found.agrees, other.played) == ("identity", False, 0)
        assert "nothing was played: 'robot 7', not 'robot 8'" in found.detail


class TestDeterministicEnvironments:
    def test_real_episodes_are_told_beside_those_that_were_asked_for(self, capsys):
        said = exits(0, capsys, "learn", LAKE, "--deterministic", "--out", "run", "--max-episodes", "12")
        result = richobs.Certificate.load("run/certificate.json").content["result"]
        first = result["real_episodes"]
        assert 0 < first < result["episodes"] == 12
        assert f"12 asked for, {first} really played" in said.out
        # Another process has nothing in its memory, so it plays again; both are counted.
        assert run(capsys, "resume", "run", "--trust", "--max-episodes", "400")[0] == 0
        certificate = richobs.Certificate.load("run/certificate.json")
        result = certificate.content["result"]
        assert first < result["real_episodes"] < result["episodes"]
        assert certificate.claim.count(DETERMINISTIC_ENVIRONMENT) == 1
        (page, *_) = write_report([StoredRun.read("run")], pathlib.Path("page.html"), figures=False)
        assert f"asked for, {result['real_episodes']} really played; in" in page.read_text()
        said = exits(0, capsys, "verify", "run", "--trust", "--quiet", "--json")
        details = {f["what"]: f["detail"] for f in json.loads(said.out)["findings"]}
        assert details["ledger"].endswith(f"; {result['real_episodes']} were really played")
        # Nothing is played for a run that is finished, and its files stay as they are.
        before = pathlib.Path("run/certificate.json").read_bytes()
        assert run(capsys, "resume", "run", "--trust")[0] == 0
        assert pathlib.Path("run/certificate.json").read_bytes() == before

    def test_without_a_folder_only_what_this_run_played_counts(self, monkeypatch, tmp_path):
        monkeypatch.syspath_prepend(tmp_path)
        problem = make(LAKE, deterministic=True)
        first, again = (richobs.learn(problem, max_episodes=16).ledger for _ in range(2))
        assert first.total == again.total == 16
        assert first.real_episodes + again.real_episodes == problem.env.real_episodes
        assert again.real_episodes < first.real_episodes < 16


class Ending:
    """After the first action an episode is over or not, at random; nothing else shows it, and nothing is paid."""

    horizon, n_actions, reward_range = 4, 2, (0.0, 1.0)

    def play(self, policy, n, rng, levels=None):
        depth, x = self.horizon if levels is None else levels, np.zeros(n, dtype=np.int64)
        over = [np.zeros(n, dtype=bool), *[rng.random(n) < 0.5] * (depth - 1)]
        return richobs.Episodes(
            [x] * depth, [policy.actions(level, x, rng) for level in range(depth)], [np.zeros(n)] * depth, over
        )


FEW = {"sequences": 4, "episodes": 64}  # of an audit


class TestAudit:
    def test_an_end_at_random_is_noticed_where_nothing_else_shows_it(self):
        assert richobs_lab.assumptions.audit(Ending(), **FEW).failures == ("independent levels",)

    def test_what_answers_from_memory_is_not_judged(self):
        env = richobs.from_gymnasium("FrozenLake-v1", horizon=4, reward_range=(0, 1), seed=1, deterministic=True)
        report = richobs_lab.assumptions.audit(env, **FEW)
        assert [check.holds for check in report.checks] == [None, None, True]
        assert "answers replays from memory" in report.checks[0].finding

"""The command line, as a user meets it."""

import json
import subprocess
import sys

import pytest

import richobs
from richobs.cli import main
from richobs.envs import WORLDS


def run(capsys, *args):
    status = main(args)
    return status, capsys.readouterr()


def test_learn_plans_and_plays_the_lock(capsys):
    status, said = run(capsys, "learn", "lock", "--horizon", "4", "--episodes", "2000")
    assert status == 0
    assert "lock/4: 4 levels, 4 actions, at most 3 hidden states a level, a class of 10^11.8 functions" in said.out
    assert "Best possible value V*: 0.5" in said.out
    assert "Value of the optimal policy: 0.5 (exact)" in said.out


@pytest.mark.parametrize("world", [w for w in WORLDS if w != "lower-bound"])
def test_learn_knows_every_world(capsys, world):
    status, said = run(capsys, "learn", world, "--episodes", "10")
    assert status == 0
    assert said.out.startswith(world)


def test_an_id_is_as_good_as_options(capsys):
    _, by_id = run(capsys, "learn", "disjoint/3,vectors=True,seed=2", "--episodes", "10")
    _, by_options = run(capsys, "learn", "disjoint", "--horizon", "3", "--vectors", "--seed", "2", "--episodes", "10")
    assert by_id.out == by_options.out


def test_check_exits_with_one_where_an_assumption_fails(capsys):
    status, said = run(capsys, "check", "lower-bound", "--json")
    assert status == 1
    report = json.loads(said.out)
    assert report["id"] == "lower-bound/4"
    assert report["checks"]["reactive"]["holds"] is False
    assert report["checks"]["deterministic"]["holds"] is True
    status, said = run(capsys, "check", "lock")
    assert status == 0
    assert "fails" not in said.out


def test_audit(capsys):
    status, said = run(capsys, "audit", "lock", "--switch", "0.4", "--sequences", "8", "--episodes", "64")
    assert status == 1
    assert "independent levels" in said.out
    status, said = run(capsys, "audit", "lock", "--sequences", "8", "--episodes", "64", "--json")
    assert status == 0
    assert json.loads(said.out)["holds"] is True


def test_worlds_lists_every_parameter(capsys):
    status, said = run(capsys, "worlds")
    assert status == 0
    for world in WORLDS:
        assert f"{world}: " in said.out
    assert "--noise-bits" in said.out
    status, said = run(capsys, "worlds", "--json")
    listing = json.loads(said.out)
    assert listing["lock"]["parameters"]["noise_bits"] == 5
    assert set(listing) == set(WORLDS)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["check", "lock", "--noise-bits", "40"], "too many observations to list"),
        (["learn", "lower-bound"], "Q* is not a function of the observation"),
        (["learn", "lock/3,horizons=4"], "world 'lock' has no parameter 'horizons'"),
        (["learn", "lock", "--episodes", "0"], "--episodes must be at least 1"),
        (["learn", "lock", "--noise", "gaussian"], "unbounded support"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(capsys, args, words):
    status, said = run(capsys, *args)
    assert status == 2
    assert said.out == ""
    assert words in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("args", [["learn", "lokc"], ["learn", "lock", "--horizon", "0"], ["fly"], []])
def test_misspelt_commands_exit_with_two(args, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(args)
    assert stopped.value.code == 2


@pytest.mark.parametrize("args", [["--help"], ["learn", "--help"], ["learn", "lock", "--help"], ["audit", "--help"]])
def test_help(args, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(args)
    assert stopped.value.code == 0
    assert capsys.readouterr().out


def test_version(capsys):
    assert run(capsys, "--version")[1].out == f"richobs {richobs.__version__}\n"


def test_the_installed_command_runs():
    done = subprocess.run([sys.executable, "-m", "richobs", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("richobs ")

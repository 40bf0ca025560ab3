"""The command line, as a user meets it."""

import io
import json
import pathlib
import sqlite3
import subprocess
import sys

import pytest
from rich.console import Console

import richobs
from richobs.cli import main
from richobs.display import Watch
from richobs.envs import WORLDS
from richobs.outcome import Event, Progress


def run(capsys, *args):
    status = main(args)
    return status, capsys.readouterr()


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_learn_prints_the_claim_and_writes_what_it_rests_on(capsys, tmp_path):
    status, said = run(capsys, "learn", "lock", "--horizon", "3", "--noise-bits", "2")
    assert status == 0
    assert "With probability at least 0.95 the policy's value is within 0.1 of optimal" in said.out
    assert "certified: batch" in said.out
    assert "at most 0.5" in said.out
    folder = tmp_path / "runs" / "lock-3,noise_bits=2"
    kept = ["certificate.json", "config.json", "policy.npz", "report.html", "run.lock", "run.sqlite"]
    assert sorted(p.name for p in folder.iterdir()) == kept
    assert str(folder.relative_to(tmp_path)) in said.out


@pytest.mark.parametrize("world", [w for w in WORLDS if w != "lower-bound"])
def test_learn_knows_every_world(capsys, world):
    smaller = ["--horizon", "2"] if world != "bandit" else []
    status, said = run(capsys, "learn", world, *smaller, "--quiet")
    assert status == 0
    assert said.out.startswith("With probability at least 0.95")
    assert len(said.out.splitlines()) == 1


def test_learn_as_printed(capsys):
    status, said = run(capsys, "learn", "lock/3", "--schedule", "paper")
    assert status == 0
    assert "search: elimination" in said.out
    assert "repeats left out" in said.out


def test_learn_json_is_the_certificate(capsys):
    status, said = run(capsys, "learn", "lock/2", "--json", "--out", "here", "--seed", "3", "--epsilon", "0.2")
    assert status == 0
    with open("here/certificate.json") as file:
        assert file.read() == said.out
    assert json.loads(said.out)["settings"]["seed"] == 3


def test_the_seed_of_a_run_is_not_that_of_the_world(capsys):
    answers = {}
    for flag in ("--seed", "--world-seed"):
        _, said = run(capsys, "learn", "lock/2", "--json", "--out", flag.strip("-"), flag, "5")
        answers[flag] = json.loads(said.out)
    assert answers["--seed"]["environment"]["id"] == "lock/2"
    assert answers["--world-seed"]["environment"]["id"] == "lock/2,seed=5"
    assert answers["--world-seed"]["settings"]["seed"] == 0


def test_an_id_is_as_good_as_options(capsys):
    _, by_id = run(capsys, "learn", "disjoint/2,n_observations=3,seed=2", "--json", "--out", "x")
    _, by_options = run(
        capsys,
        "learn",
        "disjoint",
        "--horizon",
        "2",
        "--n-observations",
        "3",
        "--world-seed",
        "2",
        "--json",
        "--out",
        "x",
    )
    assert by_id.out == by_options.out


def test_verify_agrees_with_what_learn_wrote_and_notices_changes(capsys):
    run(capsys, "learn", "lock/2", "--out", "here", "--quiet")
    status, said = run(capsys, "verify", "here/certificate.json")
    assert status == 0
    assert "differs" not in said.out
    assert "agree to the last byte" in said.out
    with open("here/certificate.json") as file:
        content = json.load(file)
    content["result"]["value_hat"] += 1e-12
    with open("here/certificate.json", "w") as file:
        json.dump(content, file)
    status, said = run(capsys, "verify", "here/certificate.json", "--json")
    assert status == 1
    wrong = [f for f in json.loads(said.out)["findings"] if not f["agrees"]]
    assert [f["what"] for f in wrong] == ["run"]
    assert "certificate.result.value_hat" in wrong[0]["detail"]


def test_folders_may_be_called_like_worlds(capsys):
    run(capsys, "learn", "lock/2", "--out", "lock/7", "--quiet")
    with open("lock/7/certificate.json") as file:
        assert json.load(file)["environment"]["id"] == "lock/2"
    status, said = run(capsys, "verify", "lock/7/certificate.json", "--json")
    assert status == 0
    assert json.loads(said.out)["agrees"]


def test_a_folder_that_cannot_be_made_is_noticed_before_the_run(capsys, monkeypatch):
    with open("afile", "w") as file:
        file.write("x")
    monkeypatch.setattr("richobs.store.run", lambda *_: pytest.fail("it ran"))
    status, said = run(capsys, "learn", "lock/2", "--out", "afile")
    assert status == 2
    assert "afile" in said.err


def test_plan(capsys):
    status, said = run(capsys, "plan", "lock", "--horizon", "5", "--epsilon", "0.1", "--delta", "0.05")
    assert status == 0
    for word in ("n_test", "n_train", "n_1", "n_2", "Theorem 1", "contextual bandits", "tabular MDPs", "worst case"):
        assert word in said.out
    status, said = run(capsys, "plan", "lock", "--json")
    assert json.loads(said.out)["constants"]["n_2"] == 600


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
        (["learn", "lock/3,horizons=4"], "world 'lock' has no parameter 'horizons'"),
        (["learn", "lock/3", "--horizon", "4"], "--horizon: given in 'lock/3' and again as an option"),
        (["learn", "lokc"], "there is no world 'lokc'; there are bandit"),
        (["learn", "lock", "--epsilon", "2"], "epsilon must lie between 1e-09 and 1; got 2.0"),
        (
            ["learn", "lock", "--schedule", "paper", "--n-states", "0"],
            "n_states must be at least 1, a whole number; got 0",
        ),
        (["learn", "lock/6", "--horizon=7"], "--horizon: given in 'lock/6' and again as an option"),
        (["learn", "lock", "--schedule", "paper", "--noise-bits", "40"], "the streaming engine plays them one by one"),
        (["plan", "lock", "--epsilon", "1e-160"], "epsilon must lie between 1e-09 and 1"),
        (["plan", "lock", "--delta", "1e-322"], "delta must lie between 1e-09 and 1"),
        (["learn", "lock", "--workers", "0"], "workers must be at least 1"),
        (["learn", "lock", "--max-episodes", "-5"], "max_episodes must be at least 1"),
        (["learn", "lock", "--noise-bits", "40", "--engine", "counted"], "there is none here"),
        (["learn", "lock", "--schedule", "paper", "--max-episodes", "1000"], "1,000 remain of the 1,000 allowed"),
        (["learn", "deep-sea/4", "--schedule", "paper", "--n-states", "1"], "more than M H = 4 eliminations"),
        (["verify", "nothing.json"], "there is no certificate nothing.json"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(capsys, args, words):
    status, said = run(capsys, *args)
    assert status == 2
    assert said.out == ""
    assert words in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("args", [["learn", "lock", "--horizons", "3"], ["fly"], []])
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


class TestStoredRuns:
    """A run that spent its episodes, listed, shown, resumed, and drawn."""

    @pytest.fixture
    def short(self, capsys):
        status, said = run(capsys, "learn", "lock/4", "--max-episodes", "700", "--out", "runs/a", "--quiet")
        assert status == 0
        return said.out

    def test_resume_goes_on_to_the_same_bytes(self, capsys, short):
        assert "within 0.1 of" not in short
        status, said = run(capsys, "resume", "runs/a", "--max-episodes", "100000")
        assert status == 0
        assert "within 0.1 of optimal" in said.out
        run(capsys, "learn", "lock/4", "--max-episodes", "100000", "--out", "runs/b", "--quiet")
        assert (
            pathlib.Path("runs/a/certificate.json").read_bytes() == pathlib.Path("runs/b/certificate.json").read_bytes()
        )

    def test_learn_on_a_finished_folder_says_the_same_again(self, capsys):
        first, again = (run(capsys, "learn", "lock/2", "--quiet")[1].out for _ in range(2))
        assert first == again

    def test_another_run_is_refused_unless_told_to_overwrite(self, capsys, short):
        other = ("learn", "lock/4", "--seed", "1", "--out", "runs/a", "--quiet")
        status, said = run(capsys, *other)
        assert status == 2
        assert "runs/a holds another run" in said.err
        status, said = run(capsys, *other, "--overwrite")
        assert status == 0
        assert json.loads(pathlib.Path("runs/a/config.json").read_text())["settings"]["seed"] == 1

    def test_runs_lists_what_there_is(self, capsys, short):
        run(capsys, "learn", "bandit", "--schedule", "paper", "--out", "runs/b", "--quiet")
        pathlib.Path("runs/c").mkdir()
        pathlib.Path("runs/c/config.json").write_text("{")
        pathlib.Path("runs/c/run.sqlite").write_text("")
        status, said = run(capsys, "runs")
        assert status == 0
        assert [line.split()[0] for line in said.out.splitlines()[1:4]] == ["runs/a", "runs/b", "runs/c"]
        assert "finished" in said.out
        assert "damaged" in said.out
        listed = json.loads(run(capsys, "runs", "--json")[1].out)
        assert [r.get("state") for r in listed] == ["finished", "finished", None]
        assert listed[0]["episodes"] <= 700
        assert run(capsys, "runs", "nowhere")[0] == 2

    def test_show_prints_the_summary_again(self, capsys, short):
        status, said = run(capsys, "show", "runs/a")
        assert status == 0
        assert said.out.startswith(short.strip())
        assert "struggled" in said.out  # it says what is missing
        verified = run(capsys, "verify", "runs/a/certificate.json")
        assert verified[0] == 0
        assert "yes, everything agrees" in run(capsys, "show", "runs/a")[1].out
        whole = json.loads(run(capsys, "show", "runs/a", "--json")[1].out)
        assert whole["certificate"]["claim"] == short.strip()
        assert run(capsys, "show", "runs")[0] == 2

    def test_an_unfinished_run_is_shown_as_far_as_it_is(self, capsys, short):
        with sqlite3.connect("runs/a/run.sqlite") as db:
            db.execute("DELETE FROM ends")
        _, said = run(capsys, "show", "runs/a")
        assert "unfinished" in said.out
        assert "bounds so far" in said.out
        assert "go on: richobs resume runs/a" in said.out

    def test_report_draws_one_or_several(self, capsys, short):
        run(capsys, "learn", "lock/4", "--seed", "1", "--out", "runs/b", "--quiet")
        status, said = run(capsys, "report", "runs/a", "runs/b", "--out", "both.html")
        assert status == 0
        assert "wrote both.html and 10 figures beside it" in said.out
        assert "Side by side" in pathlib.Path("both.html").read_text()
        assert run(capsys, "report", "runs")[0] == 0
        assert pathlib.Path("runs/report.html").exists()
        pathlib.Path("empty").mkdir()
        status, said = run(capsys, "report", "empty")
        assert (status, "no runs in empty" in said.err) == (2, True)

    def test_an_environment_of_ones_own_cannot_be_resumed_from_here(self, capsys, short):
        file = pathlib.Path("runs/a/config.json")
        config = json.loads(file.read_text())
        config["environment"]["id"] = None
        file.write_text(json.dumps(config))
        status, said = run(capsys, "resume", "runs/a")
        assert status == 2
        assert "from Python again" in said.err

    def test_tensorboard_gets_the_numbers(self, capsys):
        pytest.importorskip("tensorboardX")
        status, _ = run(capsys, "learn", "lock/2", "--quiet", "--tensorboard", "board")
        assert status == 0
        body = b"".join(p.read_bytes() for p in pathlib.Path("board").iterdir())
        for name in (b"survivors_log10", b"value/v_star_at_most", b"elimination/threshold"):
            assert name in body

    def test_tensorboard_says_what_is_missing(self, capsys, monkeypatch):
        monkeypatch.setitem(sys.modules, "tensorboardX", None)
        status, said = run(capsys, "learn", "lock/2", "--quiet", "--tensorboard", "board")
        assert status == 2
        assert "pip install 'richobs[tensorboard]'" in said.err


def progress(kind="elimination", path=(0, 1), after=10.0, episodes=500, threshold=1024.0):
    event = Event(kind, "certified", path, "dropped", 0.1, threshold, 64, 20.0, after)
    return Progress(event, episodes, 0.75, 0.25)


class TestWatching:
    def test_the_live_picture_tells_phase_path_survivors_rate_and_bounds(self):
        console = Console(width=120, file=io.StringIO())
        watch = Watch("lock/4", 20.0, 10_000, console, plain=False)
        watch(progress(episodes=100))
        watch(progress("stage", path=tuple(range(4)) * 10))
        console.print(watch)
        text = console.file.getvalue()
        for part in ("lock/4", "certified: stage", "... (40 actions) ...", "10^4.3 of 10^8.7", "500 of at most 10,000"):
            assert part in text
        assert "policy at least 0.2500, V* at most 0.7500" in text
        assert "batches doubled 1 times" in text
        assert "·" * 10 + "━" * 20 + "·" * 10 in text  # the interval from 0.25 to 0.75

    def test_without_a_terminal_there_are_plain_lines_now_and_then(self, monkeypatch):
        clock = [0.0]
        monkeypatch.setattr("time.monotonic", lambda: clock[0])
        console = Console(width=200, file=io.StringIO())
        watch = Watch("lock/4", 20.0, None, console, plain=True)
        for seconds in range(25):
            clock[0] = float(seconds)
            watch(progress(episodes=100 * seconds))
        lines = console.file.getvalue().splitlines()
        assert [line.split(";")[2].strip() for line in lines] == ["1,000 episodes", "2,000 episodes"]
        watch(progress("stage"))
        assert "batches of up to 1,024 episodes from here on" in console.file.getvalue()

"""The command line, as a user meets it."""

import contextlib
import io
import json
import pathlib
import signal
import sqlite3
import subprocess
import sys

import pytest
from rich.console import Console

import richobs
from richobs.cli import main
from richobs.cli.main import COMMANDS, in_order
from richobs.core.events import Progress
from richobs.core.files import held
from richobs.learners import LEARNERS
from richobs.runs import session
from richobs.runs.certificate import Certificate
from richobs.show import terminal
from richobs.show.terminal import Watch, can_draw
from richobs.worlds.registry import WORLDS
from richobs_lab.certified.events import PairTested, StageDoubled
from richobs_lab.paper import STATEMENTS


def run(capsys, *args):
    status = main(args)
    return status, capsys.readouterr()


def exits(status, capsys, *args):
    """Returns what a command printed that ends with this status."""
    found, said = run(capsys, *args)
    assert found == status, said
    return said


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("asked", "spent", "name"),
    [
        ("", "betting: play", "lock-3-noise_bits=2"),
        ("--tuning first=8 doubt=1.5", "betting: play", "lock-3-noise_bits=2-doubt=1.5-first=8"),
        ("--learner certified", "certified: batch", "lock-3-noise_bits=2-learner=certified"),
    ],
)
def test_learn_prints_the_claim_and_writes_what_it_rests_on(capsys, tmp_path, asked, spent, name):
    command = ("learn", "lock", "--horizon", "3", "--noise-bits", "2", *asked.split())
    said = exits(0, capsys, *command)
    assert said.out.startswith("With probability at least 0.95: (1) the policy earns at least 0.")
    assert "It loses at most 0.1 to the best policy" in " ".join(said.out.split())  # broken into lines
    assert spent in said.out
    folder = tmp_path / "runs" / name
    kept = ["certificate.json", "config.json", "policy.npz", "run.lock", "run.sqlite"]
    assert sorted(p.name for p in folder.iterdir()) == kept
    assert str(folder.relative_to(tmp_path)) in said.out
    again = run(capsys, *command)[1].out
    assert said.out.splitlines()[:15] == again.splitlines()[:15]
    assert ["nothing was played: the folder held this run already" in out for out in (said.out, again)] == [False, True]


def test_learn_as_printed(capsys):
    tuned = ("--learner", "lsvee", "--tuning", "repeats=skip", "--json", "--out", "new")
    said = exits(0, capsys, "learn", "lock/3", *tuned)
    settings = json.loads(said.out)["settings"]
    assert (settings["learner"], settings["tuning"]) == ("lsvee", ["repeats=skip"])
    assert pathlib.Path("new/certificate.json").read_text() == said.out
    shown = run(capsys, "show", "new")[1].out
    assert "search: elimination" in shown
    assert "repeats left out" in shown


@pytest.mark.parametrize(
    ("typed", "ordered"),
    [
        ("learn --epsilon 0.2 lock --horizon 5", "learn lock --epsilon 0.2 --horizon 5"),
        ("learn lock/5 --seed 3", "learn lock --seed 3"),
        ("learn --seed 3 lock/6", "learn lock --horizon 6 --seed 3"),
        ("learn --quiet --max_episodes -5 lock/6", "learn lock --horizon 6 --quiet --max_episodes -5"),
        (
            "learn --tuning a=1 b=2 lock/6,seed=4 --json",
            "learn lock --horizon 6 --world-seed 4 --tuning a=1 b=2 --json",
        ),
        ("learn --vectors disjoint", "learn disjoint --vectors"),
        ("plan --learner=lsvee lock", "plan lock --learner=lsvee"),
        ("verify --quiet here --json", "verify here --quiet --json"),
        ("report a --out x.html b", "report a b --out x.html"),
        ("report -- --a", "report -- --a"),
        ("learn --ray lock/4", "learn lock --horizon 4 --ray local"),  # the address of Ray may be left out
        ("learn --ray 10.0.0.1:6379 lock", "learn lock --ray 10.0.0.1:6379"),
        ("sweep --ray auto lock --horizon 5,10", "sweep lock --ray auto --horizon 5,10"),
        ("show", "show"),
        ("learn --help", "learn --help"),
        ("fly --high", "fly --high"),
    ],
)
def test_options_may_stand_anywhere(typed, ordered):
    assert in_order(typed.split(), COMMANDS) == ordered.split()


def test_names_are_printed_as_they_were_typed(capsys, monkeypatch):
    monkeypatch.setattr("richobs.show.figures.write_figures", lambda runs, page: [])
    folder = "x[/b] :smile: [red]y"
    _, said = run(capsys, "learn", "lock/2", "--report", "--out", folder)
    assert f"wrote {folder}/certificate.json, {folder}/policy.npz and {folder}/report.html" in said.out
    assert f"check it again: richobs verify {folder}/certificate.json" in said.out
    assert folder in run(capsys, "show", ".")[1].out
    assert f"wrote {folder}/report.html" in run(capsys, "report", folder)[1].out
    assert f"there is no certificate {folder}/z;" in run(capsys, "verify", f"{folder}/z")[1].err
    assert f"there is no folder {folder}/z;" in run(capsys, "show", f"{folder}/z")[1].err
    pathlib.Path("empty[/b]").mkdir(parents=True)
    assert "no runs in empty[/b]" in run(capsys, "show", "empty[/b]")[1].out


@pytest.mark.parametrize(
    "args", [("learn", "lock/2"), ("plan", "lock/2"), ("learners",), ("worlds",), ("check", "lock/2")]
)
def test_no_line_ends_with_spaces(capsys, args):
    lines = run(capsys, *args)[1].out.splitlines()
    assert len(lines) > 4
    assert [line for line in lines if line != line.rstrip()] == []


def test_a_learner_without_an_estimate_has_its_policy_judged_by_the_world(capsys):
    said = run(capsys, "learn", "mdp/2", "--learner", "ucb-q", "--tuning", "episodes=200", "--out", "here")[1].out
    problem = richobs.make("mdp/2")
    worth = problem.value(richobs.LearnedPolicy.load("here/policy.npz"))
    line = f"the policy's value, computed from the world itself: {worth:.6g}; V* is {problem.optimal_value:.6g}\n"
    assert line in said
    assert line in run(capsys, "show", "here")[1].out
    assert "computed from the world itself" not in run(capsys, "learn", "mdp/2")[1].out


def test_the_seed_of_a_run_is_not_that_of_the_world(capsys):
    answers = {}
    for flag in ("--seed", "--world-seed"):
        _, said = run(capsys, "learn", "lock/2", "--json", "--out", flag.strip("-"), flag, "5")
        answers[flag] = json.loads(said.out)
    assert answers["--seed"]["environment"]["id"] == "lock/2"
    assert answers["--world-seed"]["environment"]["id"] == "lock/2,seed=5"
    assert answers["--world-seed"]["settings"]["seed"] == 0


def test_verify_agrees_with_what_learn_wrote_and_notices_changes(capsys):
    run(capsys, "learn", "lock/2", "--out", "here", "--quiet")
    said = exits(0, capsys, "verify", "here/certificate.json")
    assert "differs" not in said.out
    assert "agree to the last byte" in said.out
    content = json.loads(pathlib.Path("here/certificate.json").read_text())
    content["result"]["value_hat"] += 1e-12
    pathlib.Path("here/certificate.json").write_text(json.dumps(content))
    said = exits(1, capsys, "verify", "here/certificate.json", "--json")
    (wrong,) = [f for f in json.loads(said.out)["findings"] if not f["agrees"]]
    assert wrong["what"] == "run"
    assert "certificate.result.value_hat" in wrong["detail"]


def test_verify_prints_its_verdict_where_it_cannot_be_kept_and_says_that_the_policy_is_absent(capsys, monkeypatch):
    run(capsys, "learn", "lock/3", "--out", "here", "--quiet")
    assert "note:" not in run(capsys, "verify", "here")[1].out
    pathlib.Path("here/policy.npz").unlink()
    pathlib.Path("here/verification.json").unlink()

    def denied(target):
        raise PermissionError(13, "Permission denied", str(target))

    monkeypatch.setattr("richobs.runs.store.write_atomically", denied)
    out = " ".join(exits(0, capsys, "verify", "here").out.split())
    assert "agree to the last byte" in out
    assert "note: there is no policy.npz beside the certificate, so the policy itself was not compared" in out
    assert "note: the verdict is not kept, because here cannot be written: " in out
    assert len(json.loads(exits(0, capsys, "verify", "here", "--json").out)["notes"]) == 2


@pytest.mark.parametrize(
    "findings",
    [
        [],
        {},
        [{"what": "run", "agrees": 1, "detail": "agrees"}],
        [{"what": "run", "agrees": "yes", "detail": "agrees"}],
        [{"what": "run", "agrees": True, "detail": None}],
        [{"what": "run", "agrees": True}],
        ["run"],
        None,
    ],
)
def test_findings_that_are_none_are_no_verdict(findings, capsys):
    run(capsys, "learn", "lock/2", "--out", "here", "--quiet")
    digest = Certificate.load("here/certificate.json").digest
    content = {"findings": findings, "certificate": digest, "at": "2026-01-31", "version": "0.2.0"}
    pathlib.Path("here/verification.json").write_text(json.dumps(content))
    said = exits(2, capsys, "show", "here")
    assert "verification.json is damaged" in said.err
    assert "agree" not in said.out


def test_verify_says_that_a_policy_is_damaged_and_what_to_do(capsys):
    run(capsys, "learn", "lock/2", "--out", "here", "--quiet")
    file = pathlib.Path("here/policy.npz")
    file.write_bytes(file.read_bytes()[:500])
    said = exits(2, capsys, "verify", "here")
    assert "richobs: here/policy.npz is not a " in said.err
    damaged = "The file is damaged, or not the one that the run wrote. Copy the right one back, or move this one away"
    assert damaged in said.err
    file.unlink()
    assert run(capsys, "verify", "here")[0] == 0


def test_a_folder_that_cannot_be_made_is_noticed_before_the_run(capsys, monkeypatch):
    pathlib.Path("afile").touch()
    monkeypatch.setattr("richobs.learners.betting.learner.betting", lambda *_, **__: pytest.fail("it ran"))
    assert "afile" in exits(2, capsys, "learn", "lock/2", "--out", "afile").err


def test_plan(capsys):
    said = exits(0, capsys, "plan", "lock", "--horizon", "5", "--epsilon", "0.1", "--delta", "0.05")
    assert "betting: a search that fixes no size in advance" in said.out
    assert "Theorem 1" not in said.out
    said = run(capsys, "plan", "lock", "--learner", "lsvee")[1]
    for word in ("n_test", "n_train", "n_1", "n_2", "Theorem 1", "contextual bandits", "tabular MDPs", "worst case"):
        assert word in said.out
    assert "similar worlds needed" in run(capsys, "plan", "lock", "--learner", "certified")[1].out
    assert list(json.loads(run(capsys, "plan", "lock", "--json")[1].out)) == ["id", "betting"]
    printed = json.loads(run(capsys, "plan", "lock", "--learner", "lsvee", "--json")[1].out)
    assert printed["lsvee"]["constants"]["n_2"] == 600
    printed = json.loads(run(capsys, "plan", "lock/2", "--tolerance", "0.01", "0.02", "--json")[1].out)
    assert printed["betting"]["least_epsilon"] == pytest.approx(0.06)
    assert "one for each of 2 levels" in run(capsys, "plan", "lock/2", "--tolerance", "0.1", "0", "0")[1].err
    assert "Theorem 1" in run(capsys, "plan", "lock/2", "--epsilon", "1e-7", "--learner", "lsvee")[1].out


def test_learners_lists_all_with_a_line_each(capsys):
    said = exits(0, capsys, "learners")
    lines = said.out.splitlines()
    assert [line.split()[0] for line in lines[:-2]] == list(LEARNERS)
    assert "lsvee                   LSVEE at the paper's own constants" in said.out
    assert lines[-1].startswith("`richobs learners NAME` prints ")


def test_learners_tells_what_one_needs_promises_and_costs(capsys):
    said = exits(0, capsys, "learners", "lsvee")
    assert "olive" not in said.out
    assert "lsvee: LSVEE at the paper's own constants" in said.out
    assert "n_states, a bound on the latent states per level" in said.out
    assert "Q* is in the class" in said.out
    assert "--tuning repeats=skip  What on-demand exploration does with paths that were learned" in said.out
    assert list(json.loads(run(capsys, "learners", "--json", "rmax", "e3")[1].out)) == ["rmax", "e3"]
    listed = json.loads(run(capsys, "learners", "--json")[1].out)
    assert list(listed) == list(LEARNERS)
    assert listed["lsvee"]["tuning"]["repeats"]["default"] == "skip"
    assert len(listed["lsvee"]["assumptions"]) == 4
    assert all(facts["about"] and facts["promises"] and facts["costs"] for facts in listed.values())


def test_worlds_lists_every_parameter(capsys):
    said = exits(0, capsys, "worlds")
    for world in WORLDS:
        assert f"{world}: " in said.out
    assert "--noise-bits" in said.out
    listing = json.loads(exits(0, capsys, "worlds", "--json").out)
    assert listing["lock"]["parameters"]["noise_bits"] == 5
    assert set(listing) == set(WORLDS)


SWAPPED = ["learn", "lock/2", "--swap", "0.4", "--learner"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["check", "lock", "--noise-bits", "40"], "too many observations to list"),
        (["learn", "lock/3,horizons=4"], "world 'lock' has no parameter 'horizons'"),
        (["learn", "lock/3", "--horizon", "4"], "--horizon: given in 'lock/3' and again as an option"),
        (["learn", "lokc"], "there is no world 'lokc'; there are bandit"),
        (["learn", "lock", "--epsilon", "2"], "it must be below 1, and 2 arrived"),
        (["learn", "lock", "--learner", "nobody"], "there is no learner 'nobody'; there are betting, "),
        (["learn", "lock", "--tuning", "speed=3"], "the learner 'betting' has no tuning 'speed'"),
        (["learn", "lock/6", "--horizon=7"], "--horizon: given in 'lock/6' and again as an option"),
        (["learn", "lock", "--learner", "lsvee", "--noise-bits", "40"], "engine plays them one by one"),
        (["learn", "lock", "--noise-bits", "40", "--engine", "counted"], "there is none here"),
        (["learn", "lock", "--engine", "counted"], "the learner 'betting' reads episodes one by one"),
        (["learn", "lock", "--learner", "lsvee", "--max-episodes", "1000"], "1,000 remain of the 1,000 allowed"),
        (["learn", "deep-sea/4", "--learner", "lsvee", "--n-states", "1"], "more than M H = 4 eliminations"),
        (["verify", "nothing.json"], "there is no certificate nothing.json"),
        (["learners", "nobody"], "there is no learner 'nobody'"),
        (["plan", "lock", "--tuning", "bets=3"], "the learner 'betting' has no tuning 'bets'"),
        (["plan", "lock/2", "--epsilon", "1e-7"], "epsilon must be at least 1.6e-06 here"),
        *(([*SWAPPED, name], f"the learner '{name}' needs deterministic") for name in ("certified", "lsvee")),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(capsys, args, words):
    said = exits(2, capsys, *args)
    assert said.out == ""
    assert words in said.err
    assert "Traceback" not in said.err


def test_betting_serves_a_world_without_deterministic_transitions(capsys):
    exits(0, capsys, "learn", "lock/2", "--swap", "0.4", "--max-episodes", "300", "--quiet")


@pytest.mark.parametrize("args", ["learn lock --horizons 3", "fly", ""])
def test_misspelt_commands_exit_with_two(args, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(args.split())


HELPED = {"": [], "learn": [], "learn lock": [], "audit": [], "paper": [*(f" {s} " for s in STATEMENTS), "Consensus"]}


@pytest.mark.parametrize(("args", "words"), HELPED.items())
def test_help(args, words, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([*args.split(), "--help"])
    said = capsys.readouterr().out
    assert said
    assert [word for word in words if word not in said] == []


def test_the_installed_command_runs():
    done = subprocess.run([sys.executable, "-m", "richobs", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"richobs {richobs.__version__}\n"


SEARCH = ("learn", "lock/4", "--learner", "certified", "--quiet")


class TestStoredRuns:
    """A run that spent its episodes, listed, shown, resumed, and drawn."""

    @pytest.fixture
    def short(self, capsys):
        said = exits(0, capsys, *SEARCH, "--max-episodes", "700", "--out", "runs/a")
        return said.out

    def test_an_interruption_says_how_to_go_on(self, capsys, monkeypatch):
        def interrupted(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr("richobs.runs.session.run_prepared", interrupted)
        said = exits(130, capsys, "learn", "lock/2", "--out", "a[/b]")
        assert "Go on: richobs resume a[/b]" in said.err

    def test_a_run_that_stops_says_what_it_spent(self, capsys):
        _, said = run(capsys, "learn", "deep-sea/4", "--learner", "lsvee", "--n-states", "1", "--quiet")
        assert " episodes were spent in " in said.err
        assert not said.err.splitlines()[-1].startswith("0 episodes")

    def test_a_wider_claim_is_yellow_and_says_how_to_go_on(self, capsys, monkeypatch):
        monkeypatch.setenv("FORCE_COLOR", "1")
        said = run(capsys, "learn", "lock/4", "--max-episodes", "20", "--out", "wider")[1].out
        assert said.startswith("\x1b[1;33m")
        assert "go on: richobs resume wider --max-episodes N" in said
        assert run(capsys, "show", "wider")[1].out.startswith("\x1b[1;33m")
        assert run(capsys, "learn", "lock/2", "--quiet")[1].out.startswith("\x1b[1;32m")

    def test_another_run_is_refused_unless_told_to_overwrite(self, capsys, short):
        other = (*SEARCH, "--seed", "1", "--out", "runs/a")
        said = exits(2, capsys, *other)
        assert "runs/a holds another run" in said.err
        said = exits(0, capsys, *other, "--overwrite")
        assert json.loads(pathlib.Path("runs/a/config.json").read_text())["settings"]["seed"] == 1

    def test_runs_lists_what_there_is(self, capsys, short):
        run(capsys, "learn", "bandit", "--learner", "lsvee", "--out", "runs/b", "--quiet")
        pathlib.Path("runs/c").mkdir()
        pathlib.Path("runs/c/config.json").write_text("{")
        pathlib.Path("runs/c/run.sqlite").write_text("")
        said = exits(0, capsys, "show")
        assert [line.split()[0] for line in said.out.splitlines()[1:4]] == ["runs/a", "runs/b", "runs/c"]
        assert "finished" in said.out
        assert "damaged" in said.out
        listed = json.loads(run(capsys, "show", "--json")[1].out)
        assert [r.get("state") for r in listed] == ["finished", "finished", None]
        assert listed[0]["episodes"] <= 700
        assert run(capsys, "show", "nowhere")[0] == 2

    @pytest.mark.parametrize("changed", [False, True])
    def test_a_second_process_that_waited_does_not_spoil_what_the_first_one_says(self, capsys, monkeypatch, changed):
        """It has the folder as soon as the first one is done, before that one reads what it wrote."""
        ran = session.run_prepared

        def then_another(*args, **kwargs):
            outcome = ran(*args, **kwargs)
            stack.enter_context(held(pathlib.Path("d/run.lock")))
            if changed:
                pathlib.Path("d/certificate.json").unlink()  # as a run does that goes on
            return outcome

        monkeypatch.setattr(session, "run_prepared", then_another)
        with contextlib.ExitStack() as stack:
            said = exits(2 if changed else 0, capsys, "learn", "lock/2", "--out", "d")
        assert said.err == changed * (
            "richobs: the run in d has ended, and another process has begun to change it since: it is running.\n"
        )

    def test_show_prints_the_summary_again(self, capsys, short):
        said = exits(0, capsys, "show", "runs/a")
        claim = short.split()
        assert said.out.split()[: len(claim)] == claim  # on several lines, no word broken
        assert "struggled" in said.out  # it says what is missing
        verified = run(capsys, "verify", "runs/a/certificate.json")
        assert verified[0] == 0
        said = " ".join(run(capsys, "show", "runs/a")[1].out.split())
        assert f"by richobs {richobs.__version__}, that everything agreed" in said
        whole = json.loads(run(capsys, "show", "runs/a", "--json")[1].out)
        assert whole["certificate"]["claim"] == short.strip()
        assert "runs/a" in run(capsys, "show", "runs")[1].out

    def test_an_unfinished_run_is_shown_as_far_as_it_is(self, capsys, short):
        with contextlib.closing(sqlite3.connect("runs/a/run.sqlite")) as db, db:
            db.executescript("DELETE FROM rows WHERE kind = 'end'; DELETE FROM heads WHERE kind = 'end'")
        _, said = run(capsys, "show", "runs/a")
        assert "unfinished" in said.out
        assert "bounds so far" in said.out
        assert "go on: richobs resume runs/a" in said.out

    def test_verify_says_that_a_run_has_not_ended(self, capsys, short):
        pathlib.Path("runs/a/certificate.json").unlink()
        said = exits(2, capsys, "verify", "runs/a")
        assert "the run in runs/a has no certificate: it is unfinished after " in said.err
        assert "Let it end first: `richobs resume runs/a`." in said.err
        assert run(capsys, "learn", "lock/3", "--learner", "lsvee", "--max-episodes", "10", "--out", "runs/b")[0] == 2
        said = run(capsys, "verify", "runs/b/certificate.json")[1]
        assert "the run in runs/b has no certificate: it is stopped after 0 episodes. It said: " in said.err
        assert "10 remain of the 10 allowed" in said.err

    def test_report_draws_one_or_several(self, capsys, short, monkeypatch):
        run(capsys, *SEARCH, "--seed", "1", "--out", "runs/b")
        monkeypatch.setattr("richobs.show.figures.write_figures", lambda runs, page: [page] * 10)
        said = exits(0, capsys, "report", "runs/a", "runs/b", "--out", "both.html")
        assert "wrote both.html and 10 figures beside it" in said.out
        assert "Side by side" in pathlib.Path("both.html").read_text()
        monkeypatch.setattr("richobs.show.figures.write_figures", lambda runs, page: [])
        assert run(capsys, "report", "runs")[1].out == "wrote runs/report.html\n"
        assert "Side by side" in pathlib.Path("runs/report.html").read_text()
        run(capsys, "report", "runs/a")
        assert "Side by side" not in pathlib.Path("runs/a/report.html").read_text()
        pathlib.Path("empty").mkdir()
        assert "no runs in empty" in exits(2, capsys, "report", "empty").err

    def test_an_environment_of_ones_own_cannot_be_resumed_from_here(self, capsys, short):
        file = pathlib.Path("runs/a/config.json")
        config = json.loads(file.read_text())
        config["environment"]["id"] = None
        file.write_text(json.dumps(config))
        pathlib.Path("runs/a/run.sqlite").unlink()  # its rows belong to the other configuration
        said = exits(2, capsys, "resume", "runs/a")
        assert "from Python again" in said.err

    def test_tensorboard_gets_the_numbers(self, capsys):
        pytest.importorskip("tensorboardX")
        _ = exits(0, capsys, "learn", "lock/2", "--learner", "certified", "--quiet", "--tensorboard", "board")
        body = b"".join(p.read_bytes() for p in pathlib.Path("board").iterdir())
        for name in (b"survivors_log10", b"value/v_star_at_most", b"elimination/threshold"):
            assert name in body

    def test_tensorboard_says_what_is_missing(self, capsys, monkeypatch):
        monkeypatch.setitem(sys.modules, "tensorboardX", None)
        said = exits(2, capsys, "learn", "lock/2", "--quiet", "--tensorboard", "board")
        assert "pip install 'richobs[tensorboard]'" in said.err


SIZED = {"phase": "certified", "n": 64, "log_size_before": 20.0, "log_size_after": 15.0}
LARGER = StageDoubled(batch=512, largest=1024, **SIZED)


def progress(episodes=500, event=None):
    tested = PairTested(path=tuple(range(4)) * 10, dropped=True, bar=0.1, cutoff=0.2, **SIZED)
    return Progress(event or tested, episodes, 0.75, 0.25)


def drawn(watch):
    console = Console(width=140, file=io.StringIO())
    console.print(watch)
    return console.file.getvalue()


class TestWatching:
    def test_the_live_picture_tells_phase_path_survivors_rate_and_bounds(self):
        watch = Watch("lock/4", 20.0, 10_000, Console(file=io.StringIO()), plain=False)
        assert "starting" in drawn(watch)
        watch(progress(100))
        watch(progress())
        text = drawn(watch)
        for part in ("lock/4", "certified: elimination, dropped", "... (40 actions) ...", "10^6.5 of 10^8.7"):
            assert part in text
        assert "500 of at most 10,000" in text
        assert "policy at least 0.25, V* at most 0.75" in text
        assert "·" * 10 + "━" * 20 + "·" * 10 in text  # the interval from 0.25 to 0.75
        assert "struggling" not in text
        for _ in range(3):
            watch(progress(event=LARGER))
        assert "batches of up to 1,024 episodes from here on" in drawn(watch)
        assert "and 2 remarks before" in drawn(watch)

    def test_without_a_terminal_there_are_plain_lines_now_and_then(self, monkeypatch):
        clock = [0.0]
        monkeypatch.setattr("time.monotonic", lambda: clock[0])
        console = Console(width=200, file=io.StringIO())
        watch = Watch("lock[/4]", 20.0, None, console, plain=True)
        for seconds in range(25):
            clock[0] = float(seconds)
            watch(progress(100 * seconds))
        lines = console.file.getvalue().splitlines()
        assert [line.split(";")[2].strip() for line in lines] == ["1,000 episodes", "2,000 episodes"]
        assert all(line.startswith("lock[/4]: elimination at 0 1 2") for line in lines)
        watch(progress(event=LARGER))
        assert "batches of up to 1,024 episodes from here on" in console.file.getvalue()

    def test_a_notebook_is_drawn_in_where_it_can_be(self, monkeypatch):
        notebook = Console(force_jupyter=True, file=io.StringIO())
        for found, drawable in ((None, False), ("somewhere", True)):
            monkeypatch.setattr("importlib.util.find_spec", lambda name, found=found: found)
            assert can_draw(notebook) is drawable
        assert not can_draw(Console(file=io.StringIO(), force_terminal=False))

    def test_somebody_watches_a_terminal_and_a_notebook(self, monkeypatch):
        for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
            monkeypatch.delenv(name, raising=False)
        assert not terminal.is_interactive()
        monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
        assert terminal.is_interactive()
        monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
        monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
        assert terminal.is_interactive()


def test_control_c_while_python_imports_leaves_no_traceback():
    code = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "richobs.cli":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
import richobs_command
richobs_command.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_check_exits_with_one_where_an_assumption_fails(capsys):
    said = exits(1, capsys, "check", "lower-bound", "--json")
    report = json.loads(said.out)
    assert report["id"] == "lower-bound/4"
    assert report["checks"]["reactive"]["holds"] is False
    assert report["checks"]["deterministic"]["holds"] is True
    said = exits(0, capsys, "check", "lock")
    assert "fails" not in said.out

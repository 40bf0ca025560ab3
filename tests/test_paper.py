"""The runner of the paper's statements, with a statement that is quick to measure."""

import base64
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from richobs.cli import main
from richobs.paper import STATEMENTS, load, runner
from richobs.paper.store import Store

FAKE = '''
"""Squares, slowly; every measurement leaves a mark."""
import os, pathlib, time
from richobs.paper.base import Check, Conclusion

NAME, TITLE, SAYS = "fake", "Squares <of numbers>", "A square is what it is."

def pieces(scale):
    return [{"n": n, "wait": float(os.environ.get("FAKE_WAIT", "0"))} for n in range(3 if scale == "fast" else 8)]

def measure(piece):
    if os.environ.get("FAKE_FAILS") == str(piece["n"]):
        raise ValueError("no square today")
    if os.environ.get("FAKE_DIES") == str(piece["n"]):
        os._exit(3)
    time.sleep(piece["wait"] * (1 + piece["n"] % 3))
    with open(pathlib.Path(__file__).parent / "marks", "a") as marks:
        marks.write(f"{piece['n']}\\n")
    return {"square": piece["n"] ** 2, "third": piece["n"] / 3}

def conclude(pieces, results):
    right = all(r["square"] == p["n"] ** 2 for p, r in zip(pieces, results))
    check = Check("every square is right", right and "FAKE_WRONG" not in os.environ, f"{len(results)} of them")
    rows = tuple((p["n"], r["square"], r["third"]) for p, r in zip(pieces, results))
    return Conclusion((check,), ("n", "square", "third"), rows, "The first numbers; no seed.")

def draw(figure, pieces, results):
    axes = figure.subplots()
    axes.plot([p["n"] for p in pieces], [r["square"] for r in results], "o-")
'''

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from richobs.paper import STATEMENTS
STATEMENTS.clear()
STATEMENTS["fake"] = "fake_statement"
from richobs.cli import main
sys.exit(main(["paper", *sys.argv[2:]]))
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """The fake statement, the only one registered; returns the folder that its marks are in."""
    folder = tmp_path / "fake"
    folder.mkdir()
    (folder / "fake_statement.py").write_text(FAKE)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "fake_statement", raising=False)
    for name in list(STATEMENTS):
        monkeypatch.delitem(STATEMENTS, name)
    monkeypatch.setitem(STATEMENTS, "fake", "fake_statement")
    return folder


def marks(folder):
    return sorted(int(n) for n in (folder / "marks").read_text().split())


def start(fake, out, **environment):
    environment = {**os.environ, **environment}
    command = [sys.executable, "-c", PROGRAM, str(fake), "--out", str(out)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for_marks(fake, count):
    until = time.monotonic() + 60
    while not (fake / "marks").exists() or len(marks(fake)) < count:
        assert time.monotonic() < until, "nothing was measured"
        time.sleep(0.02)


def test_what_is_written(fake, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["paper", "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "holds: every square is right (8 of them)" in said.out
    assert "fake: 8 of 8 pieces (done)" in said.err
    assert sorted(p.name for p in out.iterdir()) == [
        "fake.json",
        "fake.png",
        "fake.svg",
        "index.html",
        "paper.sqlite",
    ]
    stored = json.loads((out / "fake.json").read_text())
    assert stored["measured"][4] == {"piece": {"n": 4, "wait": 0.0}, "result": {"square": 16, "third": 4 / 3}}
    assert stored["holds"] is True


def test_the_page_stands_alone_and_says_everything(fake, tmp_path):
    assert main(["paper", "--out", str(tmp_path), "--quiet"]) == 0
    page = (tmp_path / "index.html").read_text()
    for words in (
        "Squares &lt;of numbers&gt;",
        "A square is what it is.",
        "every square is right",
        "8 of them",
        ">49<",
    ):
        assert words in page
    assert "The first numbers; no seed." in page
    assert not re.search(r'(src|href)="(?!data:|#)', page)  # nothing is fetched from elsewhere
    (drawing,) = re.findall(r"data:image/svg\+xml;base64,([^\"]+)", page)
    assert base64.b64decode(drawing).decode() == (tmp_path / "fake.svg").read_text()
    assert 'lang="en"' in page
    assert re.search(r'<img [^>]*alt="Figure: [^"]+"', page)


def test_a_check_that_fails_is_the_exit_status(fake, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FAKE_WRONG", "1")
    assert main(["paper", "fake", "--fast", "--out", str(tmp_path)]) == 1
    assert "does not hold as printed: every square is right" in capsys.readouterr().out
    assert "Does not hold as printed" in (tmp_path / "index.html").read_text()


def test_the_number_of_workers_changes_no_byte(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_WAIT", "0.02")  # pieces end in another order than they began
    for workers in ("1", "3"):
        assert main(["paper", "--out", str(tmp_path / workers), "--workers", workers, "--quiet"]) == 0
    for name in ("fake.json", "fake.svg", "fake.png", "index.html"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "3" / name).read_bytes(), name


def test_after_kill_9_nothing_finished_is_measured_again(fake, tmp_path):
    killed = start(fake, tmp_path / "out", FAKE_WAIT="0.3")
    wait_for_marks(fake, 5)
    killed.kill()
    killed.communicate()
    time.sleep(0.8)  # workers whose parent is gone end by themselves
    with closing(sqlite3.connect(tmp_path / "out" / "paper.sqlite")) as db:
        stored = [json.loads(piece)["n"] for (piece,) in db.execute("SELECT piece FROM measured")]
    assert 1 <= len(stored) < 8, "to be of use the test must kill in the middle"
    before = marks(fake)[:]
    rest = start(fake, tmp_path / "out", FAKE_WAIT="0.3")
    assert rest.communicate(timeout=60)[1].startswith("fake: ")
    assert rest.returncode == 0
    assert [marks(fake).count(n) for n in stored] == [before.count(n) for n in stored]  # nothing finished again
    once = start(fake, tmp_path / "whole", FAKE_WAIT="0.3")
    once.communicate(timeout=60)
    assert (tmp_path / "out" / "fake.json").read_bytes() == (tmp_path / "whole" / "fake.json").read_bytes()


def test_control_c_leaves_what_is_finished(fake, tmp_path):
    stopped = start(fake, tmp_path / "out", FAKE_WAIT="0.15")
    wait_for_marks(fake, 3)
    os.killpg(stopped.pid, signal.SIGINT)  # as a terminal does: to the workers too
    _, said = stopped.communicate(timeout=30)
    assert stopped.returncode == 130
    assert "what was finished is in" in said
    assert "Traceback" not in said
    with closing(sqlite3.connect(tmp_path / "out" / "paper.sqlite")) as db:
        assert 2 <= db.execute("SELECT count(*) FROM measured").fetchone()[0] < 8


def test_a_second_process_is_refused(fake, tmp_path, capsys):
    first = start(fake, tmp_path / "out", FAKE_WAIT="0.3")
    wait_for_marks(fake, 1)
    assert main(["paper", "--out", str(tmp_path / "out")]) == 2
    assert "another process, perhaps another `richobs paper`, is using" in capsys.readouterr().err
    first.communicate(timeout=60)
    assert first.returncode == 0


def damage(file, where):
    content = bytearray(file.read_bytes())
    content[where : where + 200] = b"x" * 200
    file.write_bytes(bytes(content))


@pytest.mark.parametrize("where", [0, 4096 + 8], ids=["its head", "a page"])
def test_a_damaged_file_is_said_to_be(fake, tmp_path, capsys, where):
    assert main(["paper", "--out", str(tmp_path), "--quiet"]) == 0
    damage(tmp_path / "paper.sqlite", where)
    capsys.readouterr()
    assert main(["paper", "--out", str(tmp_path)]) == 2
    assert "paper.sqlite is damaged or is no file of `richobs paper`" in capsys.readouterr().err


def test_a_changed_number_is_noticed(fake, tmp_path, capsys):
    assert main(["paper", "--out", str(tmp_path), "--quiet"]) == 0
    with closing(sqlite3.connect(tmp_path / "paper.sqlite", isolation_level=None)) as db:
        db.execute("UPDATE measured SET result = replace(result, '49', '48')")
    assert main(["paper", "--out", str(tmp_path)]) == 2
    assert 'what is stored of {"n":7,"wait":0.0} was changed' in capsys.readouterr().err


def test_a_file_of_another_program_is_left_alone(fake, tmp_path, capsys):
    with closing(sqlite3.connect(tmp_path / "paper.sqlite", isolation_level=None)) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")
    before = (tmp_path / "paper.sqlite").read_bytes()
    assert main(["paper", "--out", str(tmp_path)]) == 2
    assert "belongs to another program" in capsys.readouterr().err
    assert (tmp_path / "paper.sqlite").read_bytes() == before


def test_measurements_of_another_version_are_not_used(fake, tmp_path, monkeypatch):
    assert main(["paper", "--out", str(tmp_path), "--fast", "--quiet"]) == 0
    monkeypatch.setattr("richobs.paper.store.__version__", "99")
    with Store(tmp_path) as store:
        assert store.find("fake", {"n": 0, "wait": 0.0}) is None


def test_a_piece_that_fails_is_named_and_the_others_are_kept(fake, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FAKE_FAILS", "2")
    monkeypatch.setenv("FAKE_WAIT", "0.01")
    assert main(["paper", "--out", str(tmp_path), "--workers", "1"]) == 2
    said = capsys.readouterr().err
    assert 'fake: measuring {"n":2,"wait":0.01} failed. ValueError: no square today' in said
    with Store(tmp_path) as store:
        assert store.find("fake", {"n": 1, "wait": 0.01}) == {"square": 1, "third": 1 / 3}


def test_a_worker_that_dies_is_noticed(fake, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FAKE_DIES", "2")
    assert main(["paper", "--out", str(tmp_path), "--workers", "1"]) == 2
    assert "a process that was measuring died" in capsys.readouterr().err


def test_requests_that_cannot_be_met(fake, tmp_path, capsys):
    assert main(["paper", "fame", "--out", str(tmp_path)]) == 2
    assert "there is no statement 'fame'. There are: fake." in capsys.readouterr().err
    assert main(["paper", "--workers", "0"]) == 2
    assert "--workers must be at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_registered_statement_is_one(name):
    statement = load(name)
    assert name == statement.NAME
    assert statement.TITLE
    assert statement.SAYS.endswith(".")
    for scale in ("fast", "full"):
        pieces = statement.pieces(scale)
        assert pieces == json.loads(json.dumps(pieces)), "plain values"
        assert len({json.dumps(p, sort_keys=True) for p in pieces}) == len(pieces) > 0, "no piece twice"


def test_evaluating_here_is_what_a_run_concludes(fake, tmp_path):
    _, _, here = runner.evaluate(load("fake"), "fast")
    (report,) = runner.run(["fake"], scale="fast", out=tmp_path)
    assert report.conclusion == here

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
from concurrent.futures import wait
from contextlib import closing

import pytest

from richobs.cli import main
from richobs.paper import STATEMENTS, load, runner
from richobs.paper.page import cell_words
from richobs.paper.store import Store

FAKE = '''
"""Squares; every measurement leaves a mark. Environment variables say what goes wrong, and what waits for what."""
import os, pathlib, time
from richobs.paper.base import Check, Conclusion

NAME, TITLE, SAYS = "fake", "Squares <of numbers>", "A square is what it is."
HERE = pathlib.Path(__file__).parent

def pieces(scale):
    return [{"n": n} for n in range(3 if scale == "fast" else 8)]

def wait_until(happened):
    while not happened():
        time.sleep(0.005)

def marks():
    return (HERE / "marks").read_text().split() if (HERE / "marks").exists() else []

def measure(piece):
    n = piece["n"]
    if os.environ.get("FAKE_FAILS") == str(n):
        raise ValueError("no square today")
    if os.environ.get("FAKE_DIES") == str(n):
        os._exit(3)
    if n >= int(os.environ.get("FAKE_HOLDS", "8")):
        wait_until((HERE / "go").exists)
    if os.environ.get("FAKE_LAST") == str(n):
        wait_until(lambda: len(marks()) == 7)
    with open(HERE / "marks", "a") as file:
        file.write(f"{n}\\n")
    return {"square": n ** 2, "third": n / 3}

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
import pathlib, sys
sys.path.insert(0, sys.argv[1])
from richobs.cli import main
from richobs.paper import STATEMENTS, runner

class Noted(runner.Store):
    def add(self, *given):
        super().add(*given)
        with open(pathlib.Path(sys.argv[1]) / "stored", "a") as file:
            file.write("one\\n")

if __name__ == "__main__":
    STATEMENTS.clear()
    STATEMENTS["fake"] = "fake_statement"
    runner.Store = Noted
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


def paper(*options):
    """Runs the command with one worker, and returns its exit status."""
    return main(["paper", "--workers", "1", *map(str, options)])


def marks(folder):
    return sorted(int(n) for n in (folder / "marks").read_text().split())


@pytest.fixture
def halfway(fake, tmp_path):
    """A process of `richobs paper` that has stored pieces 0, 1 and 2 and waits in all others; its folder is `out`."""
    command = [sys.executable, "-c", PROGRAM, str(fake), "--out", str(tmp_path / "out"), "--workers", "2"]
    process = subprocess.Popen(
        command,
        env={**os.environ, "FAKE_HOLDS": "3"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    stored = fake / "stored"
    until = time.monotonic() + 120
    while not stored.exists() or stored.read_text().count("one") < 3:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "nothing was measured"
        time.sleep(0.01)
    yield process
    (fake / "go").touch()
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)


def stored_pieces(out):
    with closing(sqlite3.connect(out / "paper.sqlite")) as db:
        return sorted(json.loads(piece)["n"] for (piece,) in db.execute("SELECT piece FROM measured"))


def test_what_is_written(fake, tmp_path, capsys):
    out = tmp_path / "out"
    assert paper("--out", out) == 0
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
    assert stored["measured"][4] == {"piece": {"n": 4}, "result": {"square": 16, "third": 4 / 3}}
    assert stored["holds"] is True


def test_the_page_stands_alone_and_says_everything(fake, tmp_path):
    assert paper("--out", tmp_path, "--quiet") == 0
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
    assert paper("fake", "--fast", "--out", tmp_path) == 1
    assert "does not hold as printed: every square is right" in capsys.readouterr().out
    assert "Does not hold as printed" in (tmp_path / "index.html").read_text()


def test_the_number_of_workers_changes_no_byte(fake, tmp_path, monkeypatch):
    assert paper("--out", tmp_path / "1", "--quiet") == 0
    (fake / "marks").unlink()
    monkeypatch.setenv("FAKE_LAST", "0")  # the first piece ends last
    assert main(["paper", "--out", str(tmp_path / "3"), "--workers", "3", "--quiet"]) == 0
    assert (fake / "marks").read_text().split()[-1] == "0"
    for name in ("fake.json", "fake.svg", "fake.png", "index.html"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "3" / name).read_bytes(), name


def test_after_kill_9_nothing_finished_is_measured_again(halfway, fake, tmp_path):
    halfway.kill()
    halfway.communicate(timeout=120)  # ends when the workers have: they hold the other end of what it reads
    assert stored_pieces(tmp_path / "out") == marks(fake) == [0, 1, 2]
    (fake / "go").touch()
    assert paper("--out", tmp_path / "out", "--quiet") == 0
    assert marks(fake) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert paper("--out", tmp_path / "whole", "--quiet") == 0
    assert (tmp_path / "out" / "fake.json").read_bytes() == (tmp_path / "whole" / "fake.json").read_bytes()


def test_control_c_leaves_what_is_finished(halfway, tmp_path):
    os.killpg(halfway.pid, signal.SIGINT)  # as a terminal does: to the workers too
    _, said = halfway.communicate(timeout=120)
    assert halfway.returncode == 130
    assert "what was finished is in" in said
    assert "Traceback" not in said
    assert stored_pieces(tmp_path / "out") == [0, 1, 2]


def test_a_second_process_is_refused(halfway, tmp_path, capsys):
    assert paper("--out", tmp_path / "out") == 2
    assert "another process, perhaps another `richobs paper`, is using" in capsys.readouterr().err
    assert halfway.poll() is None  # the first is not disturbed


def damage(file, where):
    content = bytearray(file.read_bytes())
    content[where : where + 200] = b"x" * 200
    file.write_bytes(bytes(content))


@pytest.mark.parametrize("where", [0, 4096 + 8], ids=["its head", "a page"])
def test_a_damaged_file_is_said_to_be(fake, tmp_path, capsys, where):
    assert paper("--out", tmp_path, "--quiet") == 0
    damage(tmp_path / "paper.sqlite", where)
    capsys.readouterr()
    assert paper("--out", tmp_path) == 2
    assert "paper.sqlite is damaged or is no file of `richobs paper`" in capsys.readouterr().err


def test_a_changed_number_is_noticed(fake, tmp_path, capsys):
    assert paper("--out", tmp_path, "--quiet") == 0
    with closing(sqlite3.connect(tmp_path / "paper.sqlite", isolation_level=None)) as db:
        db.execute("UPDATE measured SET result = replace(result, '49', '48')")
    assert paper("--out", tmp_path) == 2
    assert 'what is stored of {"n":7} was changed' in capsys.readouterr().err


def test_a_file_of_another_program_is_left_alone(fake, tmp_path, capsys):
    with closing(sqlite3.connect(tmp_path / "paper.sqlite", isolation_level=None)) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")
    before = (tmp_path / "paper.sqlite").read_bytes()
    assert paper("--out", tmp_path) == 2
    assert "belongs to another program" in capsys.readouterr().err
    assert (tmp_path / "paper.sqlite").read_bytes() == before


def test_measurements_of_another_version_are_not_used(fake, tmp_path, monkeypatch):
    assert paper("--out", tmp_path, "--fast", "--quiet") == 0
    monkeypatch.setattr("richobs.paper.store.__version__", "99")
    with Store(tmp_path) as store:
        assert store.find("fake", {"n": 0}) is None


def test_a_piece_that_fails_is_named_and_what_was_finished_is_kept(fake, tmp_path, capsys, monkeypatch):
    def all_at_once(futures, **_):
        return wait(futures)  # the failure and all that was finished beside it

    monkeypatch.setattr(runner, "wait", all_at_once)
    monkeypatch.setenv("FAKE_FAILS", "2")
    assert paper("--out", tmp_path) == 2
    assert 'fake: measuring {"n":2} failed. ValueError: no square today' in capsys.readouterr().err
    assert stored_pieces(tmp_path) == [0, 1, 3, 4, 5, 6, 7]


def test_workers_are_started_while_interruptions_wait(fake, tmp_path, monkeypatch):
    """A worker that has not yet begun would die of Control-C with a traceback."""
    submit, waiting = runner.ProcessPoolExecutor.submit, []

    def noted(pool, *given):
        waiting.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))
        return submit(pool, *given)

    monkeypatch.setattr(runner.ProcessPoolExecutor, "submit", noted)
    runner.run(["fake"], scale="fast", out=tmp_path, workers=1)
    assert waiting == [True] * 3
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_worker_that_dies_is_noticed(fake, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FAKE_DIES", "2")
    assert paper("--out", tmp_path) == 2
    assert "a process that was measuring died" in capsys.readouterr().err


def test_requests_that_cannot_be_met(fake, tmp_path, capsys):
    assert paper("fame", "--out", tmp_path) == 2
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
    (report,) = runner.run(["fake"], scale="fast", out=tmp_path, workers=1)
    assert report.conclusion == here


def test_cells_of_a_table_read_like_the_rest_of_the_pages():
    cells = [True, False, None, 3149, 12 * 10**9, 0.25, 1e-7, "LSVEE (paper)"]
    assert [cell_words(c) for c in cells] == ["yes", "no", "", "3,149", "1.2·10^10", "0.25", "10^-7", "LSVEE (paper)"]

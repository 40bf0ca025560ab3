"""The runner of the paper's statements, with a statement that is quick to measure."""

import base64
import io
import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from queue import SimpleQueue

import pytest
from matplotlib.figure import Figure

from richobs.cli import main
from richobs.core.errors import InvalidInput, StoreError
from richobs_lab.paper import STATEMENTS, Check, Conclusion, load, runner, sources
from richobs_lab.paper.catalogue import entries_of
from richobs_lab.paper.figures import panel_boxes
from richobs_lab.paper.formulas import mathml
from richobs_lab.paper.page import cell_words, render, typeset
from richobs_lab.paper.sources import source_digest
from richobs_lab.paper.store import Store

FAKE = '''
"""Squares; every measurement leaves a mark. Environment variables say what goes wrong, and what waits for what."""
import os, pathlib, time
from richobs_lab.paper.base import Check, Conclusion

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
    right = right and "FAKE_WRONG" not in os.environ
    reading = os.environ.get("FAKE_READING", "")
    share = 0.5 if reading else None
    check = Check("every square is right", right, f"{len(results)} of them", reading=reading, tightness=share)
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
from richobs_lab.paper import STATEMENTS, runner

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


@contextmanager
def registered(folder):
    """Registers the fake statement, and no other, with its source in a folder."""
    folder.mkdir()
    (folder / "fake_statement.py").write_text(FAKE)
    known = dict(STATEMENTS)
    STATEMENTS.clear()
    STATEMENTS["fake"] = "fake_statement"
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(folder))
            patch.delitem(sys.modules, "fake_statement", raising=False)
            yield folder
    finally:
        STATEMENTS.clear()
        STATEMENTS.update(known)  # in their order, which is the paper's


@pytest.fixture
def fake(tmp_path):
    """The fake statement, the only one registered; returns the folder that its marks are in."""
    with registered(tmp_path / "fake") as folder:
        yield folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run at full scale with one worker, and what it printed."""
    folder = tmp_path_factory.mktemp("whole")
    said, err = io.StringIO(), io.StringIO()
    with registered(folder / "fake"), redirect_stdout(said), redirect_stderr(err):
        assert paper("--out", folder / "out") == 0
    return folder / "out", said.getvalue(), err.getvalue()


@pytest.fixture
def out(whole, tmp_path):
    """A copy of that folder."""
    return shutil.copytree(whole[0], tmp_path / "out")


def paper(*options):
    """Runs the command with one worker, and returns its exit status."""
    return main(["paper", "--workers", "1", *map(str, options)])


def marks(folder):
    return sorted(int(n) for n in (folder / "marks").read_text().split())


@pytest.fixture
def halfway(fake, tmp_path):
    """A process of `richobs paper` that has stored pieces 0, 1 and 2 and waits in all others; its folder is `out`."""
    command = [sys.executable, "-c", PROGRAM, str(fake), "--out", str(tmp_path / "out"), "--workers", "2"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env={**os.environ, "FAKE_HOLDS": "3"}, start_new_session=True, **pipes)
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


def test_what_is_written(whole):
    out, said, err = whole
    assert "holds: every square is right (8 of them)" in said
    assert "fake: 8 of 8 pieces (done)" in err
    names = ["fake.json", "fake.png", "fake.svg", "index.html", "paper.lock", "paper.sqlite"]
    assert sorted(p.name for p in out.iterdir()) == names
    stored = json.loads((out / "fake.json").read_text())
    assert stored["measured"][4] == {"piece": {"n": 4}, "result": {"square": 16, "third": 4 / 3}}
    assert stored["holds"] is True


def test_the_page_stands_alone_and_says_everything(whole):
    out, *_ = whole
    page = (out / "index.html").read_text()
    words = ["Squares &lt;of numbers&gt;", "A square is what it is.", "every square is right", "8 of them", ">49<"]
    assert [word for word in (*words, "The first numbers; no seed.") if word not in page] == []
    assert not re.search(r'(src|href)="(?!data:|#)', page)  # nothing is fetched from elsewhere
    assert not re.search(r"url\((?!data:)", page)
    (drawing,) = re.findall(r"data:image/svg\+xml;base64,([^)]+)", page)
    assert base64.b64decode(drawing).decode() == (out / "fake.svg").read_text()
    assert 'lang="en"' in page
    assert re.search(r'role="img" [^>]*aria-label="Figure: [^"]+every square is right: holds', page)
    assert page.count('class="panel"') == 1
    assert "def conclude(pieces, results):" in page  # the statement's own source


def test_a_check_that_fails_is_the_exit_status(fake, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FAKE_WRONG", "1")
    assert paper("fake", "--fast", "--out", tmp_path) == 1
    assert "check failed: every square is right" in capsys.readouterr().out
    assert "Check failed" in (tmp_path / "index.html").read_text()


def test_readings_and_tightness_are_printed(fake, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FAKE_READING", "numbers are whole.")
    assert paper("fake", "--fast", "--out", tmp_path) == 0
    said = capsys.readouterr().out
    assert "fake: Squares <of numbers>: holds as read" in said
    checked = "every square is right (3 of them. Reading: numbers are whole. Tightest instance: 0.5 of the bound)"
    assert checked in " ".join(said.split())
    stored = json.loads((tmp_path / "fake.json").read_text())
    assert (stored["verdict"], stored["tightness"], stored["holds"]) == ("holds as read", 0.5, True)


def assert_same_results(out, other):
    for name in ("fake.json", "fake.svg", "fake.png", "index.html"):
        assert (out / name).read_bytes() == (other / name).read_bytes(), name


def test_the_number_of_workers_changes_no_byte(fake, whole, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_LAST", "0")  # the first piece ends last
    assert main(["paper", "--out", str(tmp_path / "3"), "--workers", "3", "--quiet"]) == 0
    assert (fake / "marks").read_text().split()[-1] == "0"
    assert_same_results(tmp_path / "3", whole[0])


def test_after_kill_9_nothing_finished_is_measured_again(halfway, fake, whole, tmp_path):
    halfway.kill()
    halfway.communicate(timeout=120)  # ends when the workers have: they hold the other end of what it reads
    assert stored_pieces(tmp_path / "out") == marks(fake) == [0, 1, 2]
    (fake / "go").touch()
    assert paper("--out", tmp_path / "out", "--quiet") == 0
    assert marks(fake) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert_same_results(tmp_path / "out", whole[0])


def test_a_second_process_is_refused_and_control_c_leaves_what_is_finished(halfway, tmp_path, capsys):
    assert paper("--out", tmp_path / "out") == 2
    assert "another process is running in" in capsys.readouterr().err
    assert halfway.poll() is None  # the first is not disturbed
    os.killpg(halfway.pid, signal.SIGINT)  # as a terminal does: to the workers too
    _, said = halfway.communicate(timeout=120)
    assert halfway.returncode == 130
    assert "what was finished is in" in said
    assert "Traceback" not in said
    assert stored_pieces(tmp_path / "out") == [0, 1, 2]


def overwrite(file, where):
    content = bytearray(file.read_bytes())
    content[where : where + 200] = b"x" * 200
    file.write_bytes(bytes(content))


def change_a_number(file):
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("UPDATE measured SET result = replace(result, '49', '48')")


def replace(file, make):
    """Puts something else in place of a file."""
    file.rename(file.parent / "other.sqlite")
    make(file)


def recipes(file):
    """Puts the database of another program there."""
    file.unlink()
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")


DAMAGED = "paper.sqlite is damaged or is no file of `richobs paper`"
DAMAGE = {  # what is done to the database -> what is said
    "its head": (lambda file: overwrite(file, 0), DAMAGED),
    "a page": (lambda file: overwrite(file, 4096 + 8), DAMAGED),
    "a number": (change_a_number, 'what is stored of {"n":7} was changed'),
    "journal": (lambda file: file.with_name(f"{file.name}-journal").write_text("x"), "sqlite-journal is not a file of"),
    "link": (lambda file: replace(file, lambda f: f.symlink_to("other.sqlite")), "paper.sqlite is damaged: it is a"),
    "pipe": (lambda file: replace(file, os.mkfifo), "paper.sqlite is damaged: it is a link, a folder or a pipe"),
    "second name": (lambda file: os.link(file, file.parent / "other.sqlite"), "has a second name"),
    "another program's": (recipes, "no database of ours: it has the table 'recipes'"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_folder_or_that_of_a_stranger_is_refused(fake, out, capsys, what):
    do, why = DAMAGE[what]
    do(out / "paper.sqlite")
    before = {file.name: file.read_bytes() for file in out.glob("*.sqlite") if file.is_file()}
    assert paper("--out", out) == 2
    assert why in capsys.readouterr().err
    assert {file.name: file.read_bytes() for file in out.glob("*.sqlite") if file.is_file()} == before


def test_what_other_source_measured_is_measured_again(fake, tmp_path):
    """A statement whose source was edited shows no verdict of before, and no page does."""
    assert paper("--out", tmp_path, "--fast", "--quiet") == 0
    assert marks(fake) == [0, 1, 2]
    assert paper("--out", tmp_path, "--fast", "--quiet") == 0
    assert marks(fake) == [0, 1, 2]
    before = source_digest("fake_statement")
    with (fake / "fake_statement.py").open("a") as file:
        file.write("\nANOTHER = 1\n")
    assert source_digest("fake_statement") != before
    assert runner._all_reports(tmp_path, "fast") == []
    assert paper("--out", tmp_path, "--fast", "--quiet") == 0
    assert marks(fake) == [0, 0, 1, 1, 2, 2]


def test_a_full_disk_is_a_sentence_and_costs_what_did_not_fit(tmp_path):
    with Store(tmp_path) as store:
        store.add("fake", {"n": 1}, "source", "{}")
        store._db.execute("PRAGMA max_page_count = 1")
        with pytest.raises(StoreError, match="cannot be written: database or disk is full"):
            store.add("fake", {"n": 2}, "source", json.dumps("x" * 100_000))
    assert stored_pieces(tmp_path) == [1]


CALLED = """
import json, sys
from richobs_lab.paper import load
from richobs_lab.paper.sources import SOURCE
statement, called = load(sys.argv[1]), set()
alike = ("kind", "class", "world", "learner", "sweep", "swept", "twin", "cap", "verbatim", "product", "copies")
pieces = {tuple(str(p.get(k)) for k in alike): p for p in reversed(statement.pieces("fast"))}
def note(frame, event, arg):
    if event == "call" and frame.f_code.co_name != "<module>":
        called.add(frame.f_code.co_filename)
sys.setprofile(note)
for piece in pieces.values():
    statement.measure(piece)
sys.setprofile(None)
print(json.dumps([f for f in called if f.startswith(str(SOURCE))]))
"""


class TestSources:
    """The digest of what a statement runs."""

    @pytest.fixture
    def package(self, tmp_path, monkeypatch):
        """A copy of the package's source, which the digests are made of."""
        copy = tmp_path / "src"
        shutil.copytree(sources.SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        monkeypatch.setattr(sources, "SOURCE", copy)
        return copy / "richobs"

    def test_consensus_is_part_of_what_whole_runs_are(self, package):
        names = ["consensus", "on-demand", "pac"]
        before = {name: source_digest(STATEMENTS[name]) for name in names}
        (package / "cli/learn.py").write_text("# nothing\n")  # what is not imported is no part
        assert source_digest(STATEMENTS["consensus"]) == before["consensus"]
        file = package.parent / "richobs_lab/lsvee/consensus.py"
        file.write_text(file.read_text().replace("return Consensus(spread <=", "return Consensus(True or spread <="))
        assert [name for name in names if source_digest(STATEMENTS[name]) != before[name]] == names

    def test_what_is_named_in_a_registry_is_part(self):
        assert "richobs_lab.rivals.rmax" in sources.source_files(STATEMENTS["special-cases"])
        assert "richobs.learners.betting" in sources.source_files("richobs.learners")  # named in LEARNERS alone

    def test_what_a_registry_offers_is_part_where_its_id_is_written(self):
        """pac runs lsvee and certified, on random worlds, locks, bandits and the deep sea; other learners change nothing."""
        files = sources.source_files(STATEMENTS["pac"])
        assert {f"richobs_lab.worlds.{w}" for w in ("random", "deep_sea")} < set(files)
        assert {"richobs_lab.certified", "richobs_lab.lsvee", "richobs.worlds.lock"} < set(files)
        others = "richobs.learners.betting richobs.learners.linear richobs_lab.rivals richobs.classes.dynamics"
        assert [name for name in files if name.startswith(tuple(others.split()))] == []

    def test_a_name_that_a_package_passes_on_counts_where_it_is_defined(self):
        assert sources._defined_in("richobs", "Tables") == sources._defined_in("richobs.classes", "Tables")
        assert sources._defined_in("richobs", "Tables") == "richobs.classes.tables"
        assert sources._defined_in("richobs.learners", "LEARNERS") == "richobs.learners"
        assert sources._defined_in("richobs.learners", "olive") == "richobs.learners.olive"

    def test_docstrings_and_comments_are_no_part(self, package):
        before = source_digest("richobs.core.moments")
        file = package / "core/moments.py"
        whole = file.read_text()
        file.write_text(whole.replace('"""', '"""Other words. ', 1) + "\n# another comment\n")
        assert source_digest("richobs.core.moments") == before
        digests = {before}
        for text in ("'# a text'", "'# b text'"):
            file.write_text(f"{whole}\nTEXT = {text}\n")
            digests.add(source_digest("richobs.core.moments"))
        assert len(digests) == 3
        assert sources._code(b'x = 1  # one\n\ny = "# two"\n"""three"""\n') == 'x = 1\ny = "# two"'

    @pytest.mark.parametrize(
        "name", [n if n == "consensus" else pytest.param(n, marks=pytest.mark.paper) for n in STATEMENTS]
    )
    def test_every_file_with_a_function_that_runs_is_part(self, name):
        """One piece of each kind, in a process of its own; every function of both packages that is called is noted."""
        said = subprocess.run([sys.executable, "-c", CALLED, name], capture_output=True, text=True, check=True)
        called = json.loads(said.stdout)
        assert len(called) > 15
        assert set(called) - {str(f) for f in sources.source_files(STATEMENTS[name]).values()} == set()

    def test_imports_for_type_checkers_are_no_part(self):
        assert "richobs_lab.paper.command" in sources.source_files("richobs_lab.paper.command")
        assert "richobs_lab.paper" in sources.source_files("richobs_lab.paper.command")  # imported inside a function
        content = b"if TYPE_CHECKING:\n    import richobs.core.queries\nimport richobs.core.types"
        assert sources._read(pathlib.Path("x.py"), content).imports == {"richobs.core.types"}

    def test_numpy_is_part(self, monkeypatch):
        before = source_digest("richobs.core.types")
        monkeypatch.setattr("numpy.__version__", "0.0")
        assert source_digest("richobs.core.types") != before

    def test_a_module_that_does_not_exist(self):
        with pytest.raises(InvalidInput, match="there is no module richobs_nowhere"):
            source_digest("richobs_nowhere")


class TestVerdicts:
    """Three verdicts, and a fourth judgement for checks that failed."""

    def test_by_hand(self):
        assert Check("a", True, "").judgement == "holds"
        assert Check("a", True, "", reading="log(e/delta)").judgement == "holds as read"
        assert Check("a", True, "", verdict="false as printed").judgement == "false as printed"
        assert Check("a", False, "", verdict="false as printed").judgement == "check failed"
        assert Check("a", False, "", tightness=1.007).judgement == "check failed"

    def test_a_statement_is_as_good_as_its_worst_check(self):
        good, read = Check("a", True, "", tightness=0.25), Check("b", True, "", reading="r", tightness=0.5)
        wrong, failed = Check("c", True, "", verdict="false as printed"), Check("d", False, "")

        def conclusion(*checks):
            return Conclusion(checks, (), (), "")

        assert conclusion(good).verdict == "holds"
        assert conclusion(read, good).verdict == "holds as read"
        assert conclusion(read, wrong, good).verdict == "false as printed"
        assert conclusion(wrong, failed).verdict == "check failed"
        assert conclusion(good, read).tightness == 0.5
        assert conclusion(wrong).tightness is None
        assert conclusion(wrong).holds
        assert not conclusion(good, failed).holds

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"verdict": "holds as read"}, "must say the reading"),
            ({"verdict": "holds", "reading": "r"}, "its verdict must be 'holds as read'"),
            ({"tightness": float("inf")}, "must be finite; got inf"),
            ({"tightness": 1.007}, r"check 'a' holds, and an instance takes 1\.007 of its bound"),
        ],
    )
    def test_what_a_verdict_needs(self, given, words):
        with pytest.raises(InvalidInput, match=words):
            Check("a", True, "", **given)


def test_a_piece_that_fails_is_named_and_what_was_finished_is_kept(fake, tmp_path, capsys, monkeypatch):
    class AllAtOnce(SimpleQueue):
        """Hands over the failure and all that was finished beside it together."""

        def get(self, timeout):
            while self.qsize() < 8:
                time.sleep(0.005)
            return super().get(timeout=timeout)

    monkeypatch.setattr(runner, "SimpleQueue", AllAtOnce)
    monkeypatch.setenv("FAKE_FAILS", "2")
    assert paper("--out", tmp_path) == 2
    assert 'fake: measuring {"n":2} failed. ValueError: no square today' in capsys.readouterr().err
    assert stored_pieces(tmp_path) == [0, 1, 3, 4, 5, 6, 7]


def test_a_worker_that_dies_is_noticed(fake, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FAKE_DIES", "2")
    assert paper("--out", tmp_path) == 2
    assert "a process that was measuring died" in capsys.readouterr().err


def test_requests_that_cannot_be_met(fake, tmp_path, capsys):
    assert paper("fame", "--out", tmp_path) == 2
    assert "there is no statement 'fame'. There are: fake." in capsys.readouterr().err
    assert main(["paper", "--workers", "0"]) == 2
    assert "workers must be a whole number, at least 1" in capsys.readouterr().err


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


def test_a_run_concludes_what_evaluating_does_and_starts_workers_while_interruptions_wait(fake, tmp_path, monkeypatch):
    """A worker that has not yet begun would die of Control-C with a traceback."""
    submit, waiting = runner.ProcessPoolExecutor.submit, []

    def noted(pool, *given):
        waiting.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))
        return submit(pool, *given)

    monkeypatch.setattr(runner.ProcessPoolExecutor, "submit", noted)
    (report,) = runner.run(["fake"], scale="fast", out=tmp_path, workers=1)
    assert waiting == [True] * 3
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert report.conclusion == runner.evaluate(load("fake"), "fast")[2]


def report_of(name, *checks):
    """A report of a statement with these checks, as its JSON has it, and a drawing."""
    statement = load(name)
    conclusion = Conclusion(checks, ("n",), ((1,),), "1 seed.")
    report = runner.StatementReport(name, statement.TITLE, statement.SAYS, "fast", "0" * 32, conclusion)
    return report.as_json() | {"panels": [(0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 0.5, 1.0)]}, '<svg viewBox="0 0 648 302"/>'


def test_the_page_shows_numbers_formulas_verdicts_and_tightness():
    holds = Check("survivors differ by at most the bound", True, "Exactly.", tightness=0.892, loose="Hoeffding")
    read = Check("log", True, "At delta 1.", reading="log(e/delta) for log(1/delta)")
    wrong = Check("Progress as printed", True, "0.2 against 0.1.", verdict="false as printed")
    two = [report_of("bias-accumulation", holds), report_of("pac", holds, read)]
    page = render([*two, report_of("on-demand", wrong)], "fast")
    for words in (
        '<a href="#bias-accumulation"><b>Lemma 4</b>, bias accumulation</a> <span class="verdict holds">holds</span>',
        '<a href="#pac"><b>Theorem 1</b>, PAC bound</a> <span class="verdict holds-as-read">holds as read</span>',
        "✓ 1 holds",
        "✗ 1 false as printed",
        "Tightest instance found: 0.892 of the bound. Why no nearer: Hoeffding.",
        "(line 1492 of the paper's source, <code>lem:bias_bd</code>)",
        "about 40 seconds of CPU time in all",
        "At δ 1. Reading: log(e/δ) for log(1/δ).</span>",
        mathml(entries_of("bias-accumulation")[0].tex),
        "background-size: 200.00% 100.00%; background-position: 100.00% 0.00%",  # the right half
        "(1 row)",
    ):
        assert words in page
    # A lemma whose checks are all other ones is judged by none, which is no success:
    assert re.search(r"<b>Lemma 6</b>[^\n]*check failed</span>", page)
    assert re.search(r"<b>Lemma 9</b>[^\n]*false as printed</span>", page)
    assert "Not every check came out as the paper says." in page
    guarantee = "under Assumptions 1 to 3, with probability at least 1 - δ, its policy is within ε of optimal. Of 2"
    assert f"LSVEE&#39;s guarantee stands: {guarantee}" in render(two, "fast")


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("K^H / (72 epsilon^2)", "K<sup>H</sup> / (72 ε<sup>2</sup>)"),
        ("(1 - q)^n_2 <= 10^-70", "(1 - q)<sup>n<sub>2</sub></sup> ≤ 10<sup>-70</sup>"),
        ("V*-hat, V^f*(p, pi_f)", "V\u0302<sup>⋆</sup>, V<sup>f<sup>⋆</sup></sup>(p, π<sub>f</sub>)"),
        ("eps_test, 2.7e+14, 3*10^6", "ε<sub>test</sub>, 2.7·10<sup>14</sup>, 3·10<sup>6</sup>"),
        ("A'_i of the A_j, Q*_s(x, a)", "A\u2032<sub>i</sub> of the A<sub>j</sub>, Q<sup>⋆</sup><sub>s</sub>(x, a)"),
        ("Gamma_1, 24 * 320^2, log_2 N", "Γ<sub>1</sub>, 24·320<sup>2</sup>, log<sub>2</sub> N"),
        ("check_assumptions & <b>", "check_assumptions &amp; &lt;b&gt;"),
    ],
)
def test_all_of_a_sentence_is_typeset(text, html):
    assert typeset(text) == html


def test_panels_of_a_figure():
    """Two panels beside each other, the right one with a twin axis; a legend of the figure is a panel of its own."""
    figure = Figure(figsize=(8, 4))
    left, right = figure.subplots(1, 2)
    left.set_title("left")
    right.twinx()
    assert len(panel_boxes(figure)) == 2
    (x, y, w, h), (other, *_) = panel_boxes(figure)
    assert 0 <= x < 0.1
    assert 0 <= y < 0.12
    assert x + w <= 0.5 <= other
    assert 0.85 < h <= 1
    figure.legend([*left.plot([0, 1], label="line")], ["line"], loc="lower center")
    assert len(panel_boxes(figure)) == 3


def test_cells_of_a_table_read_like_the_rest_of_the_pages():
    cells = [True, False, None, 3149, 12 * 10**9, 0.25, 1e-7, "LSVEE (paper)"]
    assert [cell_words(c) for c in cells] == ["yes", "no", "", "3,149", "1.2·10^10", "0.25", "10^-7", "LSVEE (paper)"]

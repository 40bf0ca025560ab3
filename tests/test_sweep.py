"""Sweeps: cells as data, runs in folders of their own that go on where they stopped, and what is said about them all."""

import dataclasses
import itertools
import json
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from richobs.cli import main
from richobs.core.errors import InvalidFile, InvalidInput, StoreError
from richobs.core.settings import Settings
from richobs.runs import session
from richobs.runs.store import StoredRun
from richobs.worlds.registry import make
from richobs_lab import sweep as sweeping
from richobs_lab.sweep import runs as sweep
from richobs_lab.sweep.page import setting_rows, sweep_plain, write_sweep
from richobs_lab.sweep.runs import Cell, CellResult, Sweep, plan_cells, run_cell, run_cells, seed_list
from runs import Here

FAST = {"epsilon": [0.3], "horizon": [2, 3]}


def dies_with_seed_1(cell, folder):
    """Takes its process down for one of the cells, while another is being run."""
    begun = Path(folder).with_name("begun")
    if cell.settings.seed == 1:
        while not begun.exists():
            time.sleep(0.01)
        os._exit(9)
    if cell.settings.seed == 0 and not begun.exists():
        begun.touch()
        time.sleep(15)  # until the pool ends this process too
    return CellResult(cell.run, "finished", episodes=cell.settings.seed)


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0:3", [0, 1, 2]), ("3", [0, 1, 2]), ("7,", [7]), ("3,5", [3, 5]), ("0:2,9", [0, 1, 9]), ("2:4", [2, 3])],
)
def test_seeds_are_written_as_ranges_and_lists(text, seeds):
    assert list(seed_list(text)) == seeds


@pytest.mark.parametrize("text", ["", "a", "3:", ":4", "3:3", "0:2:3"])
def test_a_text_that_names_no_seeds_is_refused(text):
    with pytest.raises(InvalidInput, match="seed"):
        seed_list(text)


def test_cells_are_every_combination_with_every_seed():
    cells = plan_cells("lock/5", [0, 7], {"epsilon": [0.1, 0.05], "learner": ["certified"], "world_seed": [3]})
    assert [cell.run for cell in cells] == [f"epsilon={e},seed={seed}" for e in (0.1, 0.05) for seed in (0, 7)]
    assert {cell.world for cell in cells} == {"lock/5,seed=3"}
    assert cells[3].settings == Settings(epsilon=0.05, learner="certified", seed=7)
    assert cells[3].varied == (("epsilon", 0.05),)


@pytest.mark.parametrize(
    ("varied", "said"),
    [
        ({"horizn": [3]}, "neither a run nor the world"),
        ({"seed": [3]}, "Seeds are given"),
        ({"epsilon": [0.1, 0.1]}, "given twice"),
        ({"epsilon": []}, "at least one value"),
        ({"epsilon": "0.1"}, "a list"),
        ({"epsilon": [-1.0]}, "epsilon"),
        ({"learner": ["nobody"]}, "no learner"),
        ({"horizon": ["x"]}, "whole number"),
    ],
)
def test_what_cannot_be_varied_is_refused_before_anything_is_run(varied, said):
    with pytest.raises(InvalidInput, match=said):
        plan_cells("lock", [0], varied)


def test_a_folder_cannot_be_named_out_of_the_sweep():
    cell = plan_cells("lock", [0], {})[0].as_plain()
    for run in ("../elsewhere", "a/b", "", ".", ".."):
        with pytest.raises(ValueError, match="names no folder"):
            Cell.from_plain({**cell, "run": run})


def test_a_sweep_gives_the_bytes_of_single_runs_and_runs_nothing_twice(tmp_path):
    cells = plan_cells("lock", [0, 1], FAST)
    first, again = Here(), Here()
    done = run_cells(cells, tmp_path / "sweep", executor=first)
    assert first.cells == ["horizon=2,seed=0", "horizon=2,seed=1", "horizon=3,seed=0", "horizon=3,seed=1"]
    for cell in cells:
        session.run(make(cell.world), cell.settings, out=tmp_path / cell.run)
        for file in ("certificate.json", "policy.npz"):
            assert (tmp_path / "sweep" / cell.run / file).read_bytes() == (tmp_path / cell.run / file).read_bytes()
        result, stored = done.results[cell.run], StoredRun.read(tmp_path / cell.run)
        assert (result.state, result.episodes, result.as_asked) == ("finished", stored.ledger.total, True)
    assert run_cells(cells, tmp_path / "sweep", executor=again).results == done.results
    assert again.cells == []


def test_a_run_whose_certificate_is_gone_or_changed_is_run_again(tmp_path):
    cells = plan_cells("lock/2", [0, 1, 2], {"epsilon": [0.3]})
    done = run_cells(cells, tmp_path, executor=Here())
    (tmp_path / "seed=1" / "certificate.json").unlink()
    second = Here()
    again = run_cells(cells, tmp_path, executor=second)
    assert again.results["seed=1"].certificate == done.results["seed=1"].certificate
    assert second.cells == ["seed=1"]


def test_a_sweep_that_was_stopped_goes_on_where_it_was(tmp_path):
    cells = plan_cells("lock/2", [0, 1, 2], {"epsilon": [0.3]})

    def stop(progress):
        if progress.finished == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cells(cells, tmp_path, executor=Here(), watch=stop)
    assert list(Sweep.read(tmp_path).results) == ["seed=0"]
    steps = []
    done = run_cells(cells, tmp_path, executor=Here(), watch=steps.append)
    assert steps[0][:4] == (3, 1, 0, 0)
    assert steps[-1][:3] == (3, 3, 0)
    assert set(done.results) == {"seed=0", "seed=1", "seed=2"}


def test_another_sweep_is_refused_in_the_same_folder(swept, tmp_path):
    with pytest.raises(InvalidInput, match="holds another sweep"):
        run_cells(plan_cells("lock/2", [0, 1, 2], {"epsilon": [0.3]}), swept, executor=Here())
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InvalidInput, match="something else than a sweep"):
        run_cells(plan_cells("lock/2", [0], {}), tmp_path, executor=Here())


def test_a_run_that_fails_is_a_row_with_its_sentence(tmp_path):
    cells = plan_cells("lock/2", [0], {"epsilon": [0.3], "learner": ["lsvee", "betting"], "max_episodes": [2000]})
    done = run_cells(cells, tmp_path, executor=Here())
    failed = done.results["learner=lsvee,seed=0"]
    assert failed.state == "failed"
    assert "2,000 allowed" in failed.message
    assert done.results["learner=betting,seed=0"].state == "finished"
    second = Here()
    run_cells(cells, tmp_path, executor=second)
    assert second.cells == ["learner=lsvee,seed=0"]  # it is tried again


def test_seconds_of_all_attempts_add_up(tmp_path):
    cells = plan_cells("lock/2", [0], {"epsilon": [0.3]})
    run_cells(cells, tmp_path, executor=Here())
    line = CellResult("seed=0", "failed", cpu_seconds=100.0, seconds=200.0).line.decode()
    lines = (tmp_path / "results.jsonl").read_text()
    (tmp_path / "results.jsonl").write_text(line + lines + '{"run": "se')  # the last one is torn
    result = Sweep.read(tmp_path).results["seed=0"]
    assert result.state == "finished"
    assert 100 < result.cpu_seconds < 110
    (tmp_path / "results.jsonl").write_text("nonsense\n" + lines)
    assert Sweep.read(tmp_path).results["seed=0"].state == "finished"


def test_a_worker_on_another_machine_sends_the_run_home(tmp_path, monkeypatch):
    names = iter(["this machine", *["another"] * 10])
    monkeypatch.setattr(sweep.platform, "node", lambda: next(names))
    cells = plan_cells("lock/2", [0], {"epsilon": [0.3]})
    places = []

    def work(cell, folder):
        places.append(folder)
        return run_cell(cell, folder)

    done = run_cells(cells, tmp_path / "sweep", executor=Here(), work=work)
    assert not places[0].startswith(str(tmp_path))
    session.run(make("lock/2"), cells[0].settings, out=tmp_path / "single")
    sent = StoredRun.read(tmp_path / "sweep" / "seed=0")
    assert sent.state == "finished"
    assert sent.ledger.total == done.results["seed=0"].episodes > 0
    for file in ("certificate.json", "policy.npz"):
        assert (tmp_path / "sweep/seed=0" / file).read_bytes() == (tmp_path / "single" / file).read_bytes()


def test_a_cell_that_takes_its_process_down_fails_alone(tmp_path):
    cells = plan_cells("lock/2", [0, 1, 2], {})
    done = run_cells(cells, tmp_path, workers=2, work=dies_with_seed_1)
    assert [done.results[f"seed={seed}"].state for seed in range(3)] == ["finished", "failed", "finished"]
    assert "process that ran it died" in done.results["seed=1"].message


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A sweep with a failed run and one that has not ended, and its page."""
    folder = tmp_path_factory.mktemp("sweep")
    cells = plan_cells("lock", [0, 1], {"horizon": [2, 3], "epsilon": [0.3]})
    results = [
        CellResult("horizon=2,seed=0", "finished", "", 40, True, 0.25, True, cpu_seconds=1.5),
        CellResult("horizon=2,seed=1", "finished", "", 60, True, 0.5, False, cpu_seconds=2.5),
        CellResult("horizon=3,seed=0", "failed", "it needs <more> episodes"),
    ]
    sweep._keep_plan(folder, cells)
    (folder / "results.jsonl").write_text("".join(json.dumps(dataclasses.asdict(r)) + "\n" for r in results))
    (folder / "horizon=2,seed=0").mkdir()
    (folder / "horizon=2,seed=0" / "report.html").touch()
    found = Sweep.read(folder)
    return found, write_sweep(found)


def test_rows_are_settings(shown):
    first, second = setting_rows(shown[0])
    assert (first.episodes, first.cpu_seconds, first.certified, first.wider) == ((50.0, 40, 60), 2.0, 1, 1)
    assert (second.episodes, len(second.failed), second.results[1]) == (None, 1, None)
    assert sweep_plain(shown[0])["settings"][0]["varied"] == {"horizon": 2}


def test_the_page_tells_of_every_run_and_links_those_that_have_a_page(shown):
    page, *figures = shown[1]
    text = page.read_text()
    assert 'href="horizon%3D2%2Cseed%3D0/report.html"' in text
    assert text.count("/report.html") == 1
    assert "it needs &lt;more&gt; episodes" in text
    assert "not ended" in text
    assert "40 to 60" in text
    assert sorted(f.name for f in figures) == ["sweep.png", "sweep.svg"]


def test_the_command_line_runs_a_sweep(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    asked = ["sweep", "lock", "--horizon", "2,3", "--epsilon", "0.3", "--seeds", "0:1", "--workers", "1", "--json"]
    assert main(asked) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["varied"] for row in told["settings"]] == [{"horizon": 2}, {"horizon": 3}]
    assert [run["result"]["as_asked"] for run in told["runs"]] == [True, True]
    folder = tmp_path / "runs" / "sweep-lock-epsilon=0.3-horizon=2-3-seeds=0-1"
    assert (folder / "horizon=2,seed=0" / "report.html").exists()
    assert (folder / "sweep.html").exists()


def small_sweep(folder):
    cells = plan_cells("lock/2", range(2), {"epsilon": [0.3]})
    executor = Here()
    return run_cells(cells, folder, executor=executor), executor.cells


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A sweep of two runs, and what came of it."""
    folder = tmp_path_factory.mktemp("finished")
    return folder, small_sweep(folder)[0]


@pytest.fixture
def swept(finished, tmp_path):
    return shutil.copytree(finished[0], tmp_path / "sweep")


class TestTornLines:
    @pytest.mark.parametrize("cut", [1, 40, 200, 10**6])
    def test_a_line_that_was_cut_off_is_written_again_and_the_others_are_kept(self, finished, swept, cut):
        file = swept / "results.jsonl"
        first, second = file.read_bytes().splitlines()
        file.write_bytes(first + b"\n" + second[:cut])
        again, begun = small_sweep(swept)
        assert begun == ([] if cut > len(second) else ["seed=1"])
        assert [r.certificate for r in again.results.values()] == [r.certificate for r in finished[1].results.values()]
        assert file.read_bytes().count(b"\n") == len(file.read_bytes().splitlines()) == 2
        assert small_sweep(swept) == (again, [])

    def test_a_line_that_claims_something_else_than_the_certificate_is_corrected(self, finished, swept):
        first, second = finished[1].results.values()
        line = dataclasses.replace(first, episodes=1, epsilon=1e-6, lower=1.0).line
        (swept / "results.jsonl").write_bytes(line + second.line)
        found, begun = small_sweep(swept)
        assert (found.results, begun) == (finished[1].results, [])

    def test_a_list_of_cells_that_was_being_written_is_begun_again(self, tmp_path):
        (tmp_path / ".sweep.json.abc").write_text("{")
        assert small_sweep(tmp_path)[1] == ["seed=0", "seed=1"]


class TestFoldersFromStrangers:
    FILES = ("sweep.json", "results.jsonl", "seed=0/certificate.json", "sweep.lock")

    @pytest.mark.parametrize("file", FILES)
    @pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
    def test_what_is_no_file_is_refused_and_nothing_elsewhere_is_written(self, swept, file, kind):
        place, elsewhere = swept, swept.parent / "elsewhere"
        (place / file).rename(elsewhere)
        before = elsewhere.read_bytes()
        made = {"link": lambda f: f.symlink_to(elsewhere), "pipe": os.mkfifo, "folder": Path.mkdir}
        made[kind](place / file)
        with pytest.raises(InvalidFile, match="it is a link, a folder or a pipe"):
            small_sweep(place)
        assert elsewhere.read_bytes() == before

    def test_a_run_behind_a_link_is_refused(self, swept, tmp_path):
        (swept / "seed=0").rename(tmp_path / "elsewhere")
        (swept / "seed=0").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(InvalidFile, match="is a link"):
            small_sweep(swept)

    @pytest.mark.parametrize("file", FILES[:3])
    def test_a_file_that_is_too_large_is_refused_unread(self, swept, file):
        os.truncate(swept / file, 2**33)
        with pytest.raises(InvalidFile, match="more than"):
            small_sweep(swept)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *[("episodes", "x"), ("cpu_seconds", "x"), ("cpu_seconds", float("nan")), ("seconds", None), ("run", [])],
            *[("state", "x"), ("epsilon", "x"), ("lower", []), ("message", 3), ("guaranteed", 1), ("more", 1)],
        ],
    )
    def test_a_result_with_a_value_of_another_type_is_said(self, swept, name, value):
        result = json.loads((swept / "results.jsonl").read_text().splitlines()[0])
        (swept / "results.jsonl").write_text(json.dumps({**result, name: value}) + "\n")
        with pytest.raises(InvalidFile, match="line 1, is damaged"):
            Sweep.read(swept)

    @pytest.mark.parametrize(
        "value", [None, [], 3, "x", {"settings": 3}, {"varied": 3}, {"run": "x" * 300}, {"world": 1}]
    )
    def test_a_cell_of_another_kind_is_said(self, swept, value):
        content = json.loads((swept / "sweep.json").read_text())
        content["cells"][0] = {**content["cells"][0], **value} if isinstance(value, dict) else value
        (swept / "sweep.json").write_text(json.dumps(content))
        with pytest.raises(InvalidFile, match="is damaged"):
            Sweep.read(swept)


def test_one_process_at_a_time_runs_a_sweep(tmp_path):
    steps = []

    def again(progress):
        steps.append(progress)
        if len(steps) == 1:
            with pytest.raises(StoreError, match="another process is running"):
                small_sweep(tmp_path)

    cells = plan_cells("lock/2", range(2), {"epsilon": [0.3]})
    run_cells(cells, tmp_path, executor=Here(), watch=again)
    assert len(steps) > 1


class TestCounts:
    @pytest.mark.parametrize("seeds", ["0:99999999999", "0:9,5:" + "9" * 30])
    def test_a_sweep_counts_its_runs_before_it_lists_them(self, seeds, tmp_path, capsys):
        assert main(["sweep", "lock", "--horizon", "2,3", "--seeds", seeds, "--out", str(tmp_path / "x")]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "2 settings with at least 20,001 seeds are at least 40,002 runs; 20,000 are" in said
        assert not (tmp_path / "x").exists()

    def test_the_limit_can_be_raised(self):
        assert len(plan_cells("lock/2", range(3), {}, max_runs=3)) == 3
        with pytest.raises(InvalidInput, match="1 setting with at least 3 seeds are at least 3 runs; 2 are"):
            plan_cells("lock/2", range(3), {}, max_runs=2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"world": 3}, "the id of a world, such as 'lock/5'; got 3"),
        ({"out": "a\ud800"}, "a sweep's folder is given as text"),
        ({"out": "a\0"}, "a sweep's folder is given as text"),
        ({"out": 3}, "a sweep's folder is given as text"),
        ({"seeds": 3}, "seeds are whole numbers, or a text"),
        ({"seeds": [0.5]}, "a seed must be a whole number"),
        ({"workers": "x"}, "workers must be a whole number"),
        ({"workers": 0}, "workers must be a whole number, at least 1"),
        ({"max_runs": None}, "max_runs must be a whole number"),
        ({"max_runs": 10**6}, "max_runs must be a whole number, at least 1, at most 100,000"),
        *(({"seeds": seeds}, "are allowed") for seeds in (itertools.count(), range(10**11))),  # without an end
        ({"horizon": range(10**9), "world": "lock"}, "are allowed"),
    ],
)
def test_what_is_no_sweep_is_refused_in_a_sentence(tmp_path, given, said):
    with pytest.raises(InvalidInput, match=said):
        sweeping.sweep(**{"world": "lock/2", "out": tmp_path / "x", "seeds": "0:1", "progress": False, **given})


def test_a_folder_below_a_deleted_one_is_refused_in_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for use in (lambda: small_sweep("x"), lambda: session.run(make("lock/2"), Settings(epsilon=0.3), out="x")):
        with pytest.raises(InvalidInput, match="the folder in which this process works was deleted"):
            use()


def test_python_runs_a_sweep_of_lists_and_arrays(tmp_path):
    given = {"seeds": np.arange(1), "epsilon": np.array([0.3, 0.4])}
    done = sweeping.sweep("lock/2", out=tmp_path, workers=Here(), progress=False, **given)
    assert [cell.run for cell in done.cells] == ["epsilon=0.3,seed=0", "epsilon=0.4,seed=0"]
    assert (tmp_path / "epsilon=0.4,seed=0" / "report.html").exists()

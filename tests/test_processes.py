"""Worker processes: a script without a guard gets a sentence, and Control-C a short traceback."""

import os
import subprocess
import sys
import types

import pytest

import richobs
from richobs.core import processes
from richobs.core.executors import Workers
from richobs.core.processes import GUARD, WORKER, interruptions_held_back, leave_unguarded_script

UNGUARDED = """
import richobs
done = richobs.sweep("bandit", seeds=[0], workers=1, out="here", progress=False)
print(done.results["seed=0"].message)
"""


@pytest.fixture
def unguarded(monkeypatch):
    """This process is a worker that still imports its script."""
    monkeypatch.setenv(WORKER, "1")
    monkeypatch.setitem(sys.modules, "__mp_main__", types.ModuleType("__mp_main__"))


def test_a_script_without_a_guard_gets_one_sentence(tmp_path):
    (tmp_path / "script.py").write_text(UNGUARDED)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == f"richobs: {GUARD}\n"
    assert done.stdout.endswith(f"the same sweep goes on. {GUARD}\n")


def test_a_worker_that_imports_its_script_starts_no_workers(unguarded, monkeypatch, tmp_path):
    for start in (lambda: Workers(2), lambda: richobs.sweep("bandit", seeds=[0], out=tmp_path / "a", progress=False)):
        with pytest.raises(SystemExit) as ended:
            start()
        assert ended.value.code == 1  # only the first worker prints
    assert not (tmp_path / "a").exists()
    Workers(1).close()
    monkeypatch.setattr(processes.multiprocessing.current_process(), "name", "SpawnProcess-1")
    with pytest.raises(SystemExit, match="behind `if __name__ == '__main__':`"):
        leave_unguarded_script()


@pytest.mark.parametrize("harmless", ["another's worker", "its script is imported", "no worker"])
def test_others_may_start_workers(unguarded, monkeypatch, harmless):
    if harmless == "another's worker":
        monkeypatch.delenv(WORKER)
    elif harmless == "its script is imported":
        monkeypatch.setitem(sys.modules, "__mp_main__", sys.modules["__main__"])
    else:
        monkeypatch.delitem(sys.modules, "__mp_main__")
    leave_unguarded_script()


def test_workers_know_that_they_are_some():
    with interruptions_held_back():
        assert os.environ[WORKER] == "1"
    assert WORKER not in os.environ


@pytest.mark.parametrize(("workers", "frames"), [(1, 3), (2, 2)])
def test_control_c_shows_where_this_process_was_only_where_it_played_itself(monkeypatch, workers, frames, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("richobs.learning.run", interrupted)
    with pytest.raises(KeyboardInterrupt) as stopped:
        richobs.learn(richobs.make("bandit"), workers=workers, out=tmp_path / "a", progress=False)
    assert len(stopped.traceback) == frames
    assert stopped.value.__notes__ == [f"What was drawn is kept in {tmp_path / 'a'}; the same call goes on from there."]

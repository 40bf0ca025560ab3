"""Worker processes: a script without a guard gets a sentence, Control-C a short traceback, and none outlives its parent."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import numpy as np
import pytest

import richobs
from richobs.core import executors
from richobs.core.errors import CallTooLong
from richobs.core.executors import GUARD, WORKER, Spec, Workers, interruptions_held_back, leave_unguarded_script
from richobs_lab.sweep import sweep

UNGUARDED = """
from richobs_lab.sweep import sweep
done = sweep("bandit", seeds=[0], workers=1, out="here", progress=False)
print(done.results["seed=0"].message)
"""


HANGING = """
import ctypes, os, pathlib, sys
from richobs.core.executors import Spec, Workers

def hang(item):
    pathlib.Path("hangs").write_text(str(os.getpid()))
    while True:
        ctypes.PyDLL(None).sleep(600)  # it holds the interpreter lock, so no thread of Python can run

if __name__ == "__main__":
    spec = Spec({}, {})
    with Workers(2) as workers:
        list(workers.send(spec, spec.task(hang), [0]))
"""
PATIENCE = 60  # seconds until a test gives up


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
    for start in (lambda: Workers(2), lambda: sweep("bandit", seeds=[0], out=tmp_path / "a", progress=False)):
        with pytest.raises(SystemExit) as ended:
            start()
        assert ended.value.code == 1  # only the first worker prints
    assert not (tmp_path / "a").exists()
    Workers(1).close()
    monkeypatch.setattr(executors.multiprocessing.current_process(), "name", "SpawnProcess-1")
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


def is_there(pid):
    """Whether a process is there, and is more than an entry that nobody has asked for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def waits_until(condition):
    """Waits until something holds, and returns the seconds that it took."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < PATIENCE
        time.sleep(0.02)
    return time.monotonic() - begin


def heeds_interrupts():
    """In a new process: a shell that runs the tests in the background lets it ignore Control-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.skipif(sys.platform != "linux", reason="it takes /proc, and the kernel of Linux")
@pytest.mark.parametrize("sent", ["interruptions", "kill"])
def test_a_worker_that_hangs_ends_with_the_second_interruption_and_with_its_parent(sent, tmp_path):
    """Before, Control-C ended nothing here, and a worker whose parent was killed hung for as long as its call."""
    (tmp_path / "script.py").write_text(HANGING)
    with (tmp_path / "errors").open("w") as errors:
        script = subprocess.Popen(
            [sys.executable, "script.py"], cwd=tmp_path, stderr=errors, preexec_fn=heeds_interrupts
        )
    hangs = tmp_path / "hangs"
    try:
        waits_until(lambda: hangs.exists() and hangs.read_text())
        worker = int(hangs.read_text())
        if sent == "kill":
            script.kill()
        else:
            script.send_signal(signal.SIGINT)
            waits_until(lambda: "Interrupt again to end them at once" in (tmp_path / "errors").read_text())
            assert is_there(worker)
            assert script.poll() is None
            script.send_signal(signal.SIGINT)
        script.wait(PATIENCE)
        assert waits_until(lambda: not is_there(worker)) < 10
    finally:
        script.kill()
        script.wait()
        if hangs.exists():
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(hangs.read_text()), signal.SIGKILL)


class Slow:
    """An environment that takes a minute for a call, and goes on after an exception."""

    horizon, n_actions, reward_range = 1, 2, (0.0, 1.0)

    def play(self, policy, n, rng, levels=None):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                time.sleep(PATIENCE)
            except ValueError:
                continue
        return richobs.Episodes([np.zeros(n, dtype=int)], [np.zeros(n, dtype=int)], [np.zeros(n)])


def test_a_call_that_takes_too_long_ends_the_run_with_a_sentence(tmp_path):
    functions = richobs.Tables([np.full((1, 2), 0.5)], horizon=1)
    with pytest.raises(CallTooLong, match=r"took longer than 0\.1 seconds, which is what `timeout` allows"):
        richobs.learn(Slow(), functions, timeout=0.1, out=tmp_path / "run", progress=False)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert richobs.core.settings.Settings(timeout=3) == richobs.core.settings.Settings()
    assert "timeout" not in (tmp_path / "run" / "config.json").read_text()


def wait_for_ever(item):
    threading.Event().wait(PATIENCE)


def test_a_worker_that_cannot_be_interrupted_is_given_up(monkeypatch):
    monkeypatch.setattr(executors, "GRACE", 0.0)
    spec, workers = Spec({}, {}), Workers(2, timeout=0.1)
    with pytest.raises(CallTooLong, match="took longer"):
        list(workers.send(spec, spec.task(wait_for_ever), [0], threads=True))
    workers.close()  # it waits for nobody


def test_calls_that_cannot_be_limited_are_named(caplog):
    """Alarms reach the main thread alone."""
    found = []

    def learn():
        found.append(
            richobs.learn(Quick(), richobs.Tables([np.full((1, 2), 0.5)], horizon=1), timeout=9, progress=False)
        )

    thread = threading.Thread(target=learn)
    thread.start()
    thread.join()
    assert len(found) == 1
    assert "timeout is not kept for calls that this process makes" in caplog.text


class Quick(Slow):
    def play(self, policy, n, rng, levels=None):
        x = np.zeros(n, dtype=int)
        return richobs.Episodes([x], [policy.actions(0, x, rng)], [(rng.random(n) < 0.5).astype(float)])

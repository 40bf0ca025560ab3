"""The lock of a folder: one process at a time, whatever is copied, forked or put in its place."""

import os
import shutil
import subprocess
import sys

import pytest

import richobs
from richobs.core import files as locks
from richobs.core.errors import InvalidFile, StoreError
from richobs.core.files import held, is_held

SECOND = """
import sys
from pathlib import Path
from richobs.core.errors import StoreError
from richobs.core import files as locks
locks.WAIT = 0
try:
    with locks.held(Path(sys.argv[1])):
        print("held")
except StoreError as error:
    print(error)
"""


def second(file):
    """Returns what another process says that tries to hold the lock."""
    done = subprocess.run([sys.executable, "-c", SECOND, str(file)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_one_process_at_a_time_holds_it(tmp_path):
    file = tmp_path / "run.lock"
    assert not is_held(file)
    with held(file):
        assert is_held(file)
        assert second(file).startswith(f"another process is running in {tmp_path}")
    assert not is_held(file)
    assert second(file) == "held"


def test_a_copy_of_the_folder_from_inside_the_process_does_not_end_it(tmp_path):
    folder = tmp_path / "run"
    said = []

    def back_up(progress):
        if not said:
            shutil.copytree(folder, tmp_path / "backup")
            said.append(second(folder / "run.lock"))

    richobs.learn(richobs.make("lock/2"), epsilon=0.3, out=folder, callback=back_up, progress=False)
    assert said == [f"another process is running in {folder}. Wait for it, or choose another folder."]


def test_who_looks_for_an_instant_does_not_keep_a_run_from_starting(tmp_path, monkeypatch):
    looks = [False, False, True]
    monkeypatch.setattr(locks, "_take", lambda stream, shared: looks.pop(0))
    with held(tmp_path / "a"):
        assert looks == []


def test_a_forked_child_that_outlives_a_killed_parent_does_not_keep_it(tmp_path):
    """The parent ends without a word, as if it were killed, and its child waits for us."""
    file = tmp_path / "run.lock"
    (tells, told), (waits, goes_on) = os.pipe(), os.pipe()
    parent = os.fork()
    if parent == 0:
        with held(file):
            if os.fork() == 0:
                os.write(told, b".")
                os.close(goes_on)
                os.read(waits, 1)
                os._exit(0)
            os.read(tells, 1)  # the child runs
            os._exit(0)
    os.waitpid(parent, 0)
    assert not is_held(file)
    assert second(file) == "held"
    for end in (goes_on, waits, tells, told):
        os.close(end)


def test_the_child_s_end_does_not_release_it_either(tmp_path):
    with held(tmp_path / "run.lock"):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        assert is_held(tmp_path / "run.lock")


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "pipe"])
def test_what_is_no_file_is_refused_and_nothing_behind_it_is_made(tmp_path, kind):
    file, other = tmp_path / "run.lock", tmp_path / "other"
    if kind == "link":
        other.write_text("mine")
    {"folder": file.mkdir, "pipe": lambda: os.mkfifo(file)}.get(kind, lambda: file.symlink_to(other))()
    before = sorted(os.listdir(tmp_path))
    for use in (lambda: held(file).__enter__(), lambda: is_held(file)):
        with pytest.raises(InvalidFile, match=r"run\.lock is damaged: it is a link, a folder or a pipe"):
            use()
    assert sorted(os.listdir(tmp_path)) == before


def test_a_lock_that_cannot_be_opened_is_a_sentence(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    (tmp_path / "run.lock").touch()
    monkeypatch.setattr(os, "open", refuse)
    with (
        pytest.raises(StoreError, match=r"cannot be written or locked \(.*Permission denied"),
        held(tmp_path / "run.lock"),
    ):
        pass
    with pytest.raises(InvalidFile, match=r"run\.lock cannot be opened \(.*Permission denied"):
        is_held(tmp_path / "run.lock")


def test_a_disk_without_locks_is_a_sentence(tmp_path, monkeypatch):
    def without(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(locks.fcntl, "flock", without)
    with pytest.raises(StoreError, match="a disk that has locks"), held(tmp_path / "run.lock"):
        pass
    assert not is_held(tmp_path / "run.lock")

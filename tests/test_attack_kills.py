"""The attack with kills, power cuts and promises: a small share of it, and that it notices what it is made to notice."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from attack import killed, promises
from attack.killed import PLAYS, RUN, Fate, Recovery, Target
from attack.powercuts import Disk
from attack.shim import Call

import richobs
from richobs.core.outcome import StopReason
from richobs.runs.certificate import Certificate
from richobs.runs.store import RunFolder

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the attack needs Linux")


def attacked(module, folder, *arguments):
    """Runs an attack with a small count and returns its results."""
    command = [sys.executable, "-m", f"attack.{module}", *arguments, "--results", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / f"{module}.json").read_text())


def test_killed_runs_end_with_the_same_bytes(tmp_path):
    """2 kills at random moments, every 300th file-system call of a short run, 5 power cuts."""
    found = attacked(
        "kills", tmp_path, "--n", "2", "--every", "300", "--cuts", "5", "--orders", "1", "--only", "Python functions"
    )
    assert found["failures"] == 0
    by_part = {
        part: [row for row in found["rows"] if row["part"] == part] for part in {r["part"] for r in found["rows"]}
    }
    assert sum(row["kills or refusals"] for row in by_part["random moments"]) >= 2
    if not found["not_done"]:
        assert by_part["every call"][0]["identical"] >= 1
        assert by_part["power cut"][0]["cases"] >= 4
    assert {"richobs", "date", "python", "sqlite"} <= found.keys()


def test_promises_are_kept(tmp_path):
    """16 random problems, half of them with a violated assumption."""
    found = attacked("promises", tmp_path, "--n", "16", "--seed", "1")
    assert (found["kept_runs"], found["violated_runs"], found["failures"]) == (8, 8, 0)


# what the attack found


def test_what_is_named_is_on_disk_before_what_needs_it(tmp_path, monkeypatch):
    """A power cut may undo renames, unless the folder is synced: a database must not outlive its configuration."""
    done, replace, fsync, unlink = [], os.replace, os.fsync, Path.unlink

    def replaced(old, new):
        replace(old, new)
        done.append(Path(new).name)

    def synced(descriptor):
        fsync(descriptor)
        done.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)

    def unlinked(path, missing_ok=False):
        unlink(path, missing_ok)
        done.append(f"no {path.name}")

    monkeypatch.setattr(os, "replace", replaced)
    monkeypatch.setattr(os, "fsync", synced)
    above = tmp_path / "above"
    richobs.learn(richobs.make("lock/2"), out=above / "run", progress=False)
    named = [name for name in done if not name.startswith(".")]
    start = [tmp_path.name, "above"] if named[0] == tmp_path.name else ["above", tmp_path.name]  # two folders were made
    config = ["config.json", "run"]
    assert named[:7] == [*start, *config, "run", "run.sqlite", "run"]
    assert named[7:] == ["policy.npz", "run", "certificate.json", "run"]

    done.clear()
    monkeypatch.setattr(Path, "unlink", unlinked)
    richobs.StoredRun.discard(above / "run")
    assert done[:2] == ["no run.sqlite-shm", "no run.sqlite"]
    assert done[-2:] == ["run", "no config.json"]


def test_how_a_run_ended_is_on_disk_before_its_certificate_changes(tmp_path, monkeypatch):
    """Otherwise a power cut may leave a new certificate beside a database that names the old one, and both are refused."""
    said, end = [], RunFolder.end

    def ended(folder, state, message):
        folder._rows.db.set_trace_callback(said.append)
        end(folder, state, message)

    monkeypatch.setattr(RunFolder, "end", ended)
    richobs.learn(richobs.make("lock/2"), out=tmp_path, progress=False)
    inserts = [i for i, statement in enumerate(said) if statement.startswith("INSERT INTO rows VALUES ('end'")]
    assert len(inserts) == 2
    for i in inserts:
        modes = [statement for statement in said[:i] if "synchronous" in statement]
        assert modes[-1] == "PRAGMA synchronous = FULL"
        assert next(statement for statement in said[i:] if "synchronous" in statement) == "PRAGMA synchronous = NORMAL"


def test_a_run_whose_files_are_written_again_is_not_finished_meanwhile(tmp_path, monkeypatch):
    richobs.learn(richobs.make("lock/2"), out=tmp_path, progress=False)
    (tmp_path / "policy.npz").unlink()

    def killed_here(certificate, file):
        raise KeyboardInterrupt

    monkeypatch.setattr(Certificate, "save", killed_here)
    with pytest.raises(KeyboardInterrupt):
        richobs.learn(richobs.make("lock/2"), out=tmp_path, progress=False)
    with sqlite3.connect(tmp_path / "run.sqlite") as db:
        ends = db.execute("SELECT text FROM rows WHERE kind = 'end' ORDER BY k").fetchall()
    db.close()
    assert [json.loads(text)[0] for (text,) in ends] == ["unfinished", "finished", "unfinished"]


# what the attack notices


def test_a_claim_is_false_where_the_policy_is_worse_than_it_says():
    def part(best, value, **more):
        claimed = {"epsilon": 0.1, "delta": 0.05, "reason": StopReason.CERTIFIED, "upper": 0.8, "lower": 0.5, **more}
        return promises.false_part(richobs.Outcome(None, "", "betting", **claimed), best, value, 1.0)

    assert part(0.7, 0.6) == ""
    assert part(0.7, 0.59) == "gap"
    assert part(0.81, 0.75) == "U"
    assert part(0.55, 0.49) == "W"
    assert part(0.9, 0.3) == "gap and U and W"
    assert part(0.9, 0.3, guaranteed=False, upper=None, lower=None) == ""


@pytest.mark.parametrize(
    ("kept", "floor", "broken"), [(True, False, True), (False, True, False), (False, False, False)]
)
def test_a_promise_is_broken_where_chance_does_not_explain_it(kept, floor, broken):
    kind = promises.Kind("any", "betting", kept, promises.for_betting, floor=floor)
    row = promises.Row(kind, 0.05, promises.Counter({"": 80, "U": 19, "gap and W": 1}))
    assert row.wrong == 20
    assert row.wrong_floors == 1
    assert row.breaks_its_promise is broken
    assert not promises.Row(kind, 0.3, row.found).breaks_its_promise


class Written(Target):
    """A run that is not one: it writes what it is told to."""

    def learn(self):
        return writes(Path(RUN), self.name)

    resume = learn


def writes(folder, what):
    """Writes a finished run of four files, or does what the word says."""
    folder.mkdir(exist_ok=True)
    if what == "refuses":
        print("richobs: no")
        return 2
    if what == "leaves":
        (folder / ".new-12345678").mkdir(exist_ok=True)
    if what == "plays":
        with open(PLAYS, "a") as log:
            log.write("a 3\nb 3\na 3\n")
    for name in ("config.json", *killed.RESULTS):
        (folder / name).write_text("other" if what == "differs" and name == "policy.npz" else "same")
    return 0


@pytest.mark.parametrize(
    ("what", "fate"),
    [
        *(("writes", Fate.IDENTICAL), ("differs", Fate.DIFFERENT), ("refuses", Fate.UNUSABLE)),
        *(("leaves", Fate.LEFTOVERS), ("plays", Fate.PLAYED_TWICE)),
    ],
)
def test_what_becomes_of_a_run_is_told(what, fate, tmp_path):
    wanted = killed.undisturbed(Written("writes"), tmp_path / "wanted")
    recovery = Recovery(Written(what), killed.emptied(tmp_path / "run"), wanted)
    assert recovery.finish(False) is fate
    assert (recovery.trouble == "") is fate.is_good


def calls(*given):
    """Returns calls: kind, inode, number, path, data."""
    return [Call(*call) for call in given]


def left_by(log, chosen):
    disk = Disk("/d")
    for call in log:
        disk.do(call)
    assert disk.loose == len(chosen)
    return disk.left(chosen)


def test_what_a_power_cut_leaves():
    log = calls(
        ("c", 1, 0, "/d/a", b""),
        ("w", 1, 0, "/d/a", b"1234"),
        ("s", 1, 0, "/d/a", b""),
        ("w", 1, 2, "/d/a", b"xyz"),
        ("r", 0, 0, "/d/a\n/d/b", b""),
    )
    # The file's first write is there for good; loose are the two entries, and the second write.
    assert left_by(log, [0, 0, 0]) == {}
    assert left_by(log, [1, 0, 0]) == {"a": b"1234"}
    assert left_by(log, [1, 1, 0]) == {"b": b"1234"}
    assert left_by(log, [0, 1, 1]) == {"b": b"12xyz"}
    synced = [*log, *calls(("d", 0, 0, "/d", b""), ("t", 1, 3, "/d/b", b""))]
    assert left_by(synced, [0, 1]) == {"b": b"123"}
    assert left_by(synced, [1, 1]) == {"b": b"12x"}

"""Attacks on folders: strangers' files in them, and two processes at once. A small share of each."""

import sys
from pathlib import Path

import pytest
from attack import pairs, strangers
from attack.isolation import Kind
from attack.killed import REFUSED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the attacks need forks and /proc")


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A run, and what SQLite would carry out beside it."""
    place = tmp_path_factory.mktemp("strangers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strangers, "COMMANDS", {"run": strangers.COMMANDS["run"]})
        patch.setattr(strangers, "PREPARED", {"run": strangers.LEARN})
        folder = strangers.build(place)["run"]
    hot = strangers.hot(folder / "run.sqlite", "UPDATE pieces SET body = zeroblob(20000)")
    return folder, {"run.sqlite": hot}


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("run.sqlite", "a database and a journal that names a precious file"),
        ("run.sqlite", "a link to a file below, with a journal"),
        ("run.sqlite", "a hard link to the file itself"),
        ("run.sqlite-wal", "a link to where nothing is"),
        ("run.lock", "a database and a journal that names a precious file"),
        ("config.json", "a pipe"),
        ("report.html", "a link to a precious file"),
    ],
)
@pytest.mark.parametrize("action", ["show", "resume for more"])
def test_nothing_around_a_stranger_s_folder_is_touched(given, place, kind, action):
    attempt, changed = strangers.tried(strangers.Case("run", ((place, kind),), action), *given)
    assert (attempt.kind.is_good, changed) == (True, ""), attempt.said


def test_what_is_touched_is_seen(given):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(strangers.COMMANDS["run"], "spoil", [])
        patch.setattr(strangers, "command", lambda _: Path("given/run.lock").write_text("spoilt") and 1 / 0)
        case = strangers.Case("run", (("run.lock", "a link to a precious file"),), "spoil")
        attempt, changed = strangers.tried(case, *given)
    assert (attempt.kind, changed) == (Kind.TRACEBACK, "precious/letter.txt")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """A folder with a finished run, and what that is."""
    place = tmp_path_factory.mktemp("pairs")
    return place, pairs.undisturbed(pairs.TARGET, place / pairs.BEFORE[1])


def test_two_processes_at_once(scratch):
    """Three pairs: two that begin the same run, a reader beside a writer, and one that begins anew beside another."""
    again = "learn --overwrite"
    for first, second, before in (
        ("learn", "learn", "nothing"),
        *((again, s, "a finished run") for s in ("show", "learn")),
    ):
        found = pairs.tried(pairs.Pair(first, second, before, 0.0), *scratch)
        assert found[0] != pairs.TROUBLE, found


def test_a_pair_that_ends_badly_is_told(scratch, monkeypatch):
    pair = pairs.Pair("show", "learn", "a finished run", 0.0)
    for said, trouble in (((0, "AssertionError\nTraceback"), True), ((REFUSED, "no"), True), ((0, "fine"), False)):
        monkeypatch.setattr(pairs, "both", lambda *_, said=said: [(0, ""), said])
        assert (pairs.tried(pair, *scratch)[0] == pairs.TROUBLE) is trouble

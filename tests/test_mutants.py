"""The table of mutants is in order, and a fixed sample of it is killed here; `python -m tests.mutants` runs all of it."""

import dataclasses
import re
import subprocess
import sys

import pytest

import mutants

TABLE = mutants.mutants()
ROOMS = {"core", "stats", "classes", "engines", "runs", "richobs_lab/certified"}
ROOMS |= {"learners", "learners/betting", "richobs_lab/lsvee"}


def test_every_edit_can_be_made_exactly_once():
    problems = {f"{m.file}: {m.why}": m.problem() for m in TABLE}
    assert {name: problem for name, problem in problems.items() if problem} == {}
    assert len({m.why for m in TABLE}) == len(TABLE) >= 60
    assert {m.room for m in TABLE} >= ROOMS


def test_every_edit_names_a_test_that_exists():
    for mutant in TABLE:
        assert 1 <= len(mutant.test) <= 2
        for test in mutant.test:
            file, *names = re.sub(r"\[.*", "", test).split("::")
            text = (mutants.ROOT / file).read_text()
            assert all(re.search(rf"(def|class) {name}\b", text) for name in names), test


def test_every_edit_names_a_case_that_exists():
    """The cases of a test have other names when it gets another parameter; what names an old one is never killed."""
    cases = {test for mutant in TABLE for test in mutant.test if "[" in test}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *sorted(cases)]
    done = subprocess.run(command, cwd=mutants.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_a_sample_takes_the_rooms_in_turn():
    sample = mutants.spread(TABLE, 12)
    assert len(sample) == 12
    assert {m.room for m in sample} >= ROOMS
    assert mutants.spread(TABLE, 10**6) != TABLE
    assert len(mutants.spread(TABLE, 10**6)) == len(TABLE)


def test_a_sample_is_killed(tmp_path):
    verdicts = list(mutants.judged(mutants.spread(TABLE, 2), 1, tmp_path))
    assert [(v.mutant.why, v.complaint) for v in verdicts if v.complaint] == []
    assert all(v.killed_by.startswith(v.mutant.test) for v in verdicts)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    return mutants.make_copy(tmp_path_factory.mktemp("copy") / "0")


def test_survivors_and_entries_that_cannot_run_are_noticed(copy):
    """An edit of a comment survives; a text that is not there, and a test that is not there, kill nothing."""
    first = TABLE[0]
    harmless = dataclasses.replace(first, old="Pure functions of arrays and shares.", new="Functions of arrays.")
    absent = dataclasses.replace(first, old="this text is not there")
    no_test = dataclasses.replace(first, test=("tests/test_bounds.py::test_that_is_not_there",))
    file = first.path(copy)
    before = file.read_text()
    assert mutants.judge(harmless, copy).complaint == "SURVIVED"
    assert mutants.judge(absent, copy).complaint == f"its text occurs 0 times in {first.file}"
    assert mutants.judge(no_test, copy).complaint.startswith("its tests did not run")
    assert file.read_text() == before  # edits are taken back
    assert "not found" in mutants.red_without_mutants([no_test], copy)


def test_the_copy_is_what_is_imported(copy):
    """A copy without a library of its own would test the installed one; its conftest refuses that."""
    (copy / "src").rename(copy / "elsewhere")
    code, printed = mutants.run_tests(copy, TABLE[0].test)
    (copy / "elsewhere").rename(copy / "src")
    assert code not in (mutants.GREEN, mutants.RED)
    assert "AssertionError" in printed or "ModuleNotFoundError" in printed

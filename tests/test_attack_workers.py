"""A small share of `python -m attack.workers`: faulty workers end a run with a sentence; and that the attack notices."""

import subprocess
from pathlib import Path

import pytest
from attack import workers
from attack.workers import HERE, IN_PROCESSES, IN_THREADS, Case, Fate, attacked, chosen, undisturbed

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the attack needs Linux")


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    return undisturbed(tmp_path_factory.mktemp("undisturbed") / "run")


@pytest.mark.parametrize(
    ("where", "fault", "fate"),
    [
        (IN_PROCESSES, "is killed", Fate.SENTENCE),
        (IN_THREADS, "raises", Fate.OWN),
        (HERE, "sleeps for ever", Fate.SENTENCE),
        ("an executor", "does every task twice", Fate.UNNOTICED),
        ("an executor", "gives its last answer again", Fate.SENTENCE),
    ],
)
def test_a_run_with_faulty_workers_goes_on_to_the_same_bytes(where, fault, fate, wanted, tmp_path):
    found, said, _ = attacked(Case(where, fault, 4), tmp_path / "case", wanted)
    assert (found, "Traceback" in said) == (fate, False), said


def test_every_fault_is_tried():
    cases = [chosen(0, number) for number in range(400)]
    assert {case.fault for case in cases} == {*workers.FAULTS, *workers.EXECUTORS}
    assert {case.where for case in cases} == {IN_PROCESSES, IN_THREADS, HERE, "an executor"}


def test_the_attack_notices_other_bytes_and_what_is_left_behind(wanted, tmp_path, monkeypatch):
    case = Case(HERE, "raises", 4)
    other = {name: body + b" " for name, body in wanted.items()}
    assert attacked(case, tmp_path / "other", other)[0] is Fate.DIFFERENT
    monkeypatch.setattr(workers, "OUTLIVES", 0.05)
    with subprocess.Popen(["sleep", "60"]) as left:
        monkeypatch.setattr(
            workers, "in_child", lambda work, limit: (tmp_path / "left" / str(left.pid)).touch() or ENDED
        )
        assert attacked(case, tmp_path / "left", wanted)[0] is Fate.LEFT_BEHIND


ENDED = workers.in_child(lambda: 0)

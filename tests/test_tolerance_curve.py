"""The tolerance curve: what the episodes of a run say of its policy for wider tolerances, docs/betting.md [T6]."""

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.test_betting_runs import ten_observations
from tests.test_cli import run as run_command
from tests.test_tolerance import is_false, nearly

import richobs
from richobs.core.errors import BrokenPromise, InvalidFile
from richobs.core.outcome import Outcome, StopReason, ToleranceCurve, ToleranceRow
from richobs.core.policies import Uniform
from richobs.core.problem import Problem
from richobs.learners.betting import search
from richobs.learners.betting.events import BatchPlayed
from richobs.learners.betting.values import Cells
from richobs.runs.store import CURVE, StoredRun
from richobs.show.page import RunView, page

ETA = 2.0**-5  # a rung


def learned(problem: Problem, **asked: Any) -> Outcome:
    return richobs.learn(problem, **{"epsilon": 0.2, "delta": 0.1, "seed": 0, "progress": False, **asked})


def lock(**asked: Any) -> Outcome:
    return learned(richobs.make("lock/3"), **asked)


def near(seed: int, **asked: Any) -> Outcome:
    return learned(Problem(*nearly(seed, 0.02)[:2]), seed=seed, max_episodes=600, **asked)


@pytest.mark.parametrize(
    ("run", "reason", "first"),
    [
        (lambda: lock(epsilon=0.1), StopReason.AGREEMENT, 0.0),
        (lambda: lock(epsilon=0.1, max_episodes=40), StopReason.EPISODES_SPENT, 0.0),
        (lambda: lock(tolerance=0.01), StopReason.AGREEMENT, 0.01),
        (lambda: near(3), StopReason.ONE_SURVIVOR, 0.0),
        (lambda: near(1, tolerance=0.02, epsilon=0.3), StopReason.CERTIFIED, 0.02),
        (lambda: near(3, tolerance=[0.01, 0.03, 0.0], epsilon=0.3), StopReason.ONE_SURVIVOR, 0.0),
    ],
)
def test_the_curve_begins_with_the_run_and_grows(run: Any, reason: StopReason, first: float) -> None:
    outcome = run()
    rows, widest = outcome.tolerance_curve.rows, max(outcome.settings.tolerance, default=0.0)
    assert outcome.reason is reason
    assert rows[0] == (first, outcome.epsilon, outcome.upper, outcome.log_size)  # to the last digit
    for column in zip(*rows, strict=True):
        assert list(column) == sorted(column)
    assert [row.tolerance for row in rows[1:]] == [2.0**-k for k in range(10, 0, -1) if 2.0**-k > widest]
    assert rows[-1].upper == 1.0  # half of the range says nothing
    assert rows[-1].log_size > rows[0].log_size
    assert outcome.tolerance_curve is outcome.tolerance_curve


def test_agreement_adds_what_the_tolerance_may_hide() -> None:
    """2 eta for each of three levels, as long as the survivors agree; then the bounds decide."""
    found = lock(epsilon=0.1)
    rows = {row.tolerance: row.epsilon for row in found.tolerance_curve.rows}
    assert rows[2.0**-8] == pytest.approx(0.1 + 6 * 2.0**-8)
    assert found.lower is not None
    assert rows[0.25] == pytest.approx(0.75 - found.lower, abs=1e-6)


@pytest.mark.parametrize(("is_product", "seed"), [(True, 0), (False, 0)])
def test_a_replay_refutes_by_averages_too(is_product: bool, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cells, "serve_better", property(lambda cells: np.zeros(len(cells.missed), dtype=bool)))
    asked: dict[str, Any] = {"epsilon": 0.1, "delta": 0.05, "seed": seed}
    trace = learned(ten_observations(is_product), max_episodes=400, **asked).trace
    last = [event.kind for event in trace].index("average")
    spent = sum(
        event.n for event in trace[:last] if isinstance(event, BatchPlayed)
    )  # later batches would refute it too
    found = learned(ten_observations(is_product), max_episodes=spent, **asked)
    assert found.trace[last].kind == "average"
    assert found.tolerance_curve.rows[0] == (0.0, found.epsilon, found.upper, found.log_size)


def test_recorded_episodes_count() -> None:
    env, functions, _ = nearly(3, 0.02)
    log = env.play(Uniform(2), 64, np.random.default_rng(0))
    found = learned(Problem(env, functions, recorded=log), max_episodes=600)
    assert found.tolerance_curve.rows[0] == (0.0, found.epsilon, found.upper, found.log_size)


def test_the_row_at_the_true_tolerance_is_true() -> None:
    """The runs were told that Q* is in the class: their own claims are often false. At delta 0.1 rows may be, in 1 of 10."""
    wrong = {"claim": 0, "row": 0}
    for seed in range(10):
        env, functions, process = nearly(seed, ETA, shift=-ETA)
        try:
            found = learned(Problem(env, functions), seed=seed, max_episodes=600)
        except BrokenPromise:
            continue
        row = next(row for row in found.tolerance_curve.rows if row.tolerance == ETA)
        best, value = process.optimum.value, process.value(found.policy)
        wrong["claim"] += is_false(found, process)
        wrong["row"] += best - value > row.epsilon or best > row.upper
    assert wrong["claim"] >= 3
    assert wrong["row"] == 0


def test_an_error_that_nothing_is_left_names_the_least_rung_that_leaves_something() -> None:
    """Told it, the same recorded episodes leave a function; told half of it they leave none."""
    env, functions = nearly(0, 0.0)[0], nearly(1, 0.0)[1]
    log = env.play(Uniform(2), 1_000, np.random.default_rng(0))
    problem, hint = (
        Problem(env, functions, recorded=log),
        "A hint, not a claim: with a tolerance of 0.125 these episodes",
    )
    for tolerance in ((), 0.0625):
        with pytest.raises(BrokenPromise, match=f"{hint}.* Nothing was played"):
            learned(problem, tolerance=tolerance)
    assert learned(problem, tolerance=0.125, max_episodes=8).tolerance_curve.rows[0].tolerance == 0.125


@pytest.mark.parametrize("name", ["MOST_EPISODES", "MOST_BYTES", "MOST_PAIRS", "MOST_VALUES"])
def test_where_there_is_no_curve_it_says_why(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, name, 20)
    curve = near(3).tolerance_curve
    assert curve.rows == ()
    assert curve.holds_up_to is None
    assert str(curve).startswith("there is no tolerance curve: ")
    other = lock(learner="olive", n_states=5, max_episodes=None, epsilon=0.5) if name == "MOST_PAIRS" else None
    assert other is None or "olive computes none" in str(other.tolerance_curve).lower()


def test_an_outcome_can_be_pickled_without_its_episodes() -> None:
    found = near(3)
    assert pickle.loads(pickle.dumps(found)).tolerance_curve.rows == ()
    assert found.tolerance_curve.rows
    assert pickle.loads(pickle.dumps(found)).tolerance_curve == found.tolerance_curve


def test_a_curve_in_words() -> None:
    rows = [ToleranceRow(*row, 0.9, 1.0) for row in ((0.0, 0.1), (0.013, 0.1), (0.05, 0.31))]
    curve = ToleranceCurve(tuple(rows), 0.1)
    assert curve.holds_up_to == 0.013
    said = "the claim holds up to tolerance 0.013; at 0.05 it is 0.31 (each with probability at least 1 - delta)"
    assert str(curve).startswith(said)


def test_the_command_line_prints_it_where_it_is_asked_for(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for asked in ((), ("--tolerance-curve",)):
        status, said = run_command(capsys, "learn", "lock", "--horizon", "3", *asked)
        assert status == 0
        assert ("the claim holds up to tolerance 0; at" in said.out) == bool(asked)


@pytest.mark.parametrize("asked", [False, True])
def test_a_run_keeps_a_curve_that_was_asked_for_until_it_goes_on(asked: bool, tmp_path: Path) -> None:
    outcome = lock(epsilon=0.1, max_episodes=40, out=tmp_path)
    curve = outcome.tolerance_curve if asked else None
    lock(epsilon=0.1, max_episodes=40, out=tmp_path)  # nothing is played
    stored = StoredRun.read(tmp_path)
    assert stored.curve == curve
    assert ("Each row is a statement of its own, with probability at least 1 - delta" in page([stored])) == asked
    assert lock(epsilon=0.1, out=tmp_path).episodes > 40
    assert StoredRun.read(tmp_path).curve is None  # it was about another certificate
    StoredRun.discard(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["run.lock"]
    assert outcome.tolerance_curve.rows  # also where the run is gone


def test_a_drawn_curve_never_promises_more_than_its_rows(tmp_path: Path) -> None:
    """Between two tolerances the wider row holds: the line rises at the smaller one."""
    rows = lock(epsilon=0.1, out=tmp_path).tolerance_curve.rows
    chart = RunView(StoredRun.read(tmp_path), 1).tolerance_chart
    assert chart is not None
    points = [tuple(map(float, point.split())) for point in chart.lines[0].path[1:].split("L")]  # 1000 wide; y falls
    high = max(row.epsilon for row in rows) * 1.06
    for i, row in enumerate(rows):
        drawn = [1000 - y for x, y in points if x == pytest.approx(1000 * i / (len(rows) - 1), abs=0.1)]
        assert max(drawn) >= 1000 * rows[min(i + 1, len(rows) - 1)].epsilon / high - 0.1
        assert max(drawn) >= 1000 * row.epsilon / high - 0.1
    assert [tick.label for tick in chart.x_ticks[:2]] == ["0", "0.00195"]
    assert len(chart.rows) == len(rows)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored")
    assert lock(max_episodes=40, out=folder).tolerance_curve.rows
    return folder


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": []},
        {"rows": [[0.0, 0.1, None, 1.0]]},
        {"rows": [[0.0, 0.1, 1.0]]},
        {"rows": [[0.0, "0.1", 1.0, 1.0]]},
        {"rows": [[0.0, float("nan"), 1.0, 1.0]]},
        {"together": 1},
    ],
)
def test_a_damaged_curve_is_refused(wrong: dict[str, Any], stored: Path, tmp_path: Path) -> None:
    shutil.copytree(stored, tmp_path, dirs_exist_ok=True)
    file = tmp_path / CURVE
    file.write_text(json.dumps({**json.loads(file.read_text()), **wrong}))
    with pytest.raises(InvalidFile, match=r"tolerance_curve\.json is damaged.*Remove it, and ask for the curve again"):
        StoredRun.read(tmp_path)

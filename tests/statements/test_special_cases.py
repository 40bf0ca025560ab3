import math

import pytest
from work import broken, measured, panels

from richobs.paper.statements import special_cases as statement


@pytest.fixture(scope="module")
def work():
    return measured(statement)


def test_every_check_holds(work):
    assert broken(statement, *work) == []


def test_the_figure_is_drawn(work):
    assert panels(statement, *work) == 4


def test_rmax_that_trusts_one_visit_breaks_its_promise(work, monkeypatch):
    given, results = work
    monkeypatch.setattr(statement, "enough_visits", lambda *_: 1)
    strict = [p for p in given if (p["learner"], p["epsilon"], p["world"]) == (statement.RMAX, 0.15, statement.MDP)]
    again = [{**p, "epsilon": 0.05, "seed": seed} for seed in range(100) for p in strict]
    hasty = [statement.measure(p) for p in again]
    found = broken(statement, [*given, *again], [*results, *hasty])
    assert any(what.startswith("every method that promises") for what in found)


def test_a_slower_lsvee_is_seen(work):
    given, results = work
    slower = [
        {**r, "episodes": [math.ceil(r["episodes"][0] / p["epsilon"] ** 2)]} if p["learner"] == statement.PAPER else r
        for p, r in zip(given, results, strict=True)
    ]
    assert len(broken(statement, given, slower)) == 3  # both rates in bandits, and the one in MDPs


def test_powers_by_hand():
    assert statement.slope({1.0: [10], 2.0: [40, 40, None], 4.0: [160]}) == pytest.approx(2.0)
    assert math.isnan(statement.slope({1.0: [10], 2.0: [None]}))

"""Special cases of Section 3.2: the fast version holds, and each check can go red."""

import math

import pytest
from work import broken, panels

from richobs_lab.paper.statements import special_cases as statement


def test_every_check_holds(work):
    assert broken(statement, *work) == []
    assert panels(statement, *work) == 4


def test_rmax_that_trusts_one_visit_breaks_its_promise(work, monkeypatch):
    given, results = work
    monkeypatch.setattr(statement, "enough_visits", lambda *_: 1)
    (strict, *_) = (p for p in given if (p["learner"], p["sweep"]) == (statement.RMAX, statement.PROMISE))
    again = [{**strict, "epsilon": 0.05, "seed": 100, "seeds": 100}]
    hasty = [statement.measure(p) for p in again]
    found = broken(statement, [*given, *again], [*results, *hasty])
    assert any(what.startswith("every method that promises") for what in found)


def test_a_slower_lsvee_is_seen(work):
    given, results = work
    slower = [
        {**r, "episodes": [math.ceil(r["episodes"][0] / p["epsilon"] ** 2)]} if p["learner"] == statement.PAPER else r
        for p, r in zip(given, results, strict=True)
    ]
    found = broken(statement, given, slower)
    assert len(found) == 4  # both rates in bandits, the one in MDPs, and the proof's bound on the staircase


def test_the_staircase_as_an_mdp_comes_near_to_the_bound(work):
    (check,) = [c for c in statement.conclude(*work).checks if c.tightness is not None]
    assert 0.5 < check.tightness < 1
    process = statement.staircase(horizon=3, n_states=2, n_actions=3, shown=True).process
    assert [(e > 0).sum(axis=1).tolist() for e in process.emissions] == [[1], [1, 1], [1, 1]]  # states show themselves


def test_more_episodes_than_the_proof_allows_are_seen(work):
    given, results = work
    over = [
        {**r, "most": 1.0} if p["learner"] == statement.PAPER and "most" in r else r for p, r in zip(*work, strict=True)
    ]
    assert len(given) == len(results)
    assert [what.split(",")[0] for what in broken(statement, given, over)] == ["LSVEE as printed"]


def test_powers_by_hand():
    assert statement.slope({1.0: [10], 2.0: [40, 40, None], 4.0: [160]}).slope == pytest.approx(2.0)
    assert math.isnan(statement.slope({1.0: [10], 2.0: [None]}).slope)

"""Theorem 1 holds in the fast version; and each check goes red when what it checks is broken."""

import dataclasses
import math

import pytest
from work import measured, panels

from richobs.classes.learned_policy import LearnedPolicy
from richobs.paper.statements import pac as statement
from richobs.runs.session import run


@pytest.fixture(scope="module")
def fast():
    return measured(statement)


def verdict(work, results, beginning):
    (check,) = (c for c in statement.conclude(work, results).checks if c.what.startswith(beginning))
    return check.holds


def test_every_check_holds(fast):
    conclusion = statement.conclude(*fast)
    assert [c for c in conclusion.checks if not c.holds] == []
    assert len({c.what for c in conclusion.checks}) == len(conclusion.checks) == 15
    assert all(len(row) == len(conclusion.columns) for row in conclusion.rows)


def test_the_figure_has_its_eight_panels(fast):
    assert panels(statement, *fast) == 8


def test_exponents_by_hand():
    assert statement.exponent([1, 2, 4], [5, 40, 320]) == pytest.approx(3)
    assert statement.far_exponent("log 1/delta") is None  # delta may not be small enough


def test_a_learner_that_answers_at_random_fails_too_often(monkeypatch):
    """Deliberate violation: the first function of the class instead of what was learned."""

    def careless(problem, settings):
        outcome = run(problem, settings)
        return dataclasses.replace(outcome, policy=LearnedPolicy(problem.functions, (0,) * problem.horizon))

    monkeypatch.setattr(statement, "run", careless)
    failed = statement.measure_pac(learner="lsvee", delta=0.1, first=0, runs=60)["failed"]
    assert statement.binomial_interval(failed, 60, statement.CONFIDENCE)[0] > 0.1


@pytest.mark.parametrize(
    ("kind", "change", "beginning"),
    [
        ("pac", {"failed": 8}, "Learner lsvee, delta 0.1"),
        ("pac", {"many": 1}, "Episodes stay within the bound"),
        ("pac", {"off": 15}, "Corollary 1"),
        ("sweep", {"printed": 1e40}, "Sweep of H"),
        ("sweep", {"right": False}, "Every policy of every sweep"),
        ("verbatim", {"played": 1.0}, "What repeats cost"),
        ("near one", {"order": 1e9}, "Theorem 1 as printed"),
    ],
)
def test_a_broken_bound_is_seen(fast, kind, change, beginning):
    work, results = fast
    spoiled = [{**r, **change} if p["kind"] == kind else r for p, r in zip(work, results, strict=True)]
    assert verdict(work, results, beginning)
    assert not verdict(work, spoiled, beginning)


def test_a_bound_of_another_order_is_seen(fast, monkeypatch):
    """Deliberate violation: a bound that takes the square root of the horizon."""
    true = statement.proof_bound
    monkeypatch.setattr(statement, "proof_bound", lambda at: true({**at, "H": math.isqrt(int(at["H"]))}))
    assert not verdict(*fast, "Sweep of H")
    assert verdict(*fast, "Sweep of K")

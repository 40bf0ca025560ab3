"""Theorem 1 holds in the fast version; and each check goes red when what it checks is broken."""

import json
import math

import pytest

from richobs.paper import pac as statement
from richobs.planning import plan
from richobs.policy import LearnedPolicy
from richobs.session import learn


@pytest.fixture(scope="module")
def fast():
    work = statement.pieces("fast")
    return work, [json.loads(json.dumps(statement.measure(p))) for p in work]


def verdict(work, results, beginning):
    (check,) = (c for c in statement.conclude(work, results).checks if c.what.startswith(beginning))
    return check.holds


def test_every_check_holds(fast):
    conclusion = statement.conclude(*fast)
    assert [c for c in conclusion.checks if not c.holds] == []
    assert len({c.what for c in conclusion.checks}) == len(conclusion.checks) == 15
    assert all(len(row) == len(conclusion.columns) for row in conclusion.rows)


def test_the_figure_has_its_eight_panels(fast):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    statement.draw(figure, *fast)
    FigureCanvasAgg(figure).draw()
    assert len(figure.axes) == 8


def test_exponents_by_hand():
    assert statement.exponent([1, 2, 4], [5, 40, 320]) == pytest.approx(3)
    assert statement.far_exponent("log 1/delta") is None  # delta may not be small enough


def test_a_learner_that_answers_at_random_fails_too_often(monkeypatch):
    """Deliberate violation: the first function of the class instead of what was learned."""
    import dataclasses

    def careless(problem, **asked):
        outcome = learn(problem, **asked)
        return dataclasses.replace(outcome, policy=LearnedPolicy(problem.functions, (0,) * problem.horizon))

    monkeypatch.setattr(statement, "learn", careless)
    asked = {"schedule": "paper", "first": 0, "runs": 60}
    failed = statement.measure_pac(delta=0.1, **asked)["failed"]
    assert statement.binomial_interval(failed, 60, statement.CONFIDENCE)[0] > 0.1


@pytest.mark.parametrize(
    ("kind", "change", "beginning"),
    [
        ("pac", {"failed": 8}, "paper schedule, delta 0.1"),
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
    """Deliberate violation: a plan that takes the square root of the horizon."""
    monkeypatch.setattr(statement, "plan", lambda horizon, **rest: plan(horizon=math.isqrt(horizon), **rest))
    assert not verdict(*fast, "Sweep of H")
    assert verdict(*fast, "Sweep of K")

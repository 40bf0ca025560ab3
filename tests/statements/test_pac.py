"""Theorem 1 holds in the fast version; and each check goes red when what it checks is broken."""

import dataclasses

import pytest
from work import panels

from richobs import Greedy
from richobs.classes.learned_policy import LearnedPolicy
from richobs.runs.session import run
from richobs_lab.lsvee.constants import PaperConstants
from richobs_lab.paper.rigs.fits import fit_exponent
from richobs_lab.paper.rigs.printed import Printed
from richobs_lab.paper.statements import pac as statement


def verdict(work, results, beginning):
    (check,) = (c for c in statement.conclude(work, results).checks if c.what.startswith(beginning))
    return check.holds


def test_every_check_holds(fast):
    conclusion = statement.conclude(*fast)
    assert [c for c in conclusion.checks if not c.holds] == []
    assert len({c.what for c in conclusion.checks}) == len(conclusion.checks) == 19
    assert conclusion.verdict == "holds as read"  # delta at most 1/2, and episodes with probability 1 - delta
    assert all(len(row) == len(conclusion.columns) for row in conclusion.rows)
    assert panels(statement, *fast) == 8


def test_exponents_by_hand():
    """y = 5 x^3 exactly, then with the middle point twice as high: the slope stays and the interval is wide."""
    assert fit_exponent([1, 2, 4], [5, 40, 320]) == pytest.approx((3, 3, 3))
    off = fit_exponent([1, 2, 4], [5, 80, 320])
    assert off.slope == pytest.approx(3)
    assert off.high - off.low > 5


def test_the_printed_numbers_by_hand():
    """H = 3, K = 2, M = 2, N = 100, epsilon = delta = 0.1: the same literals as of the shipped constants (bc, 40 digits)."""
    printed = Printed(3, 2, 2, 4.605170185988092, 0.1, 0.1)
    assert (printed.root.n_train, printed.root.n_test) == (456740232122, 38061686011)
    assert (printed.n_1, printed.n_2) == (21054, 471)
    assert printed.eps_test(2) == pytest.approx(0.0012152777777777778)
    assert printed.phi == pytest.approx(2.455233e-05, rel=1e-6)
    assert printed.per_elimination(printed.root) == 456740232122 + 2 * 38061686011


def test_wrong_sizes_are_seen(monkeypatch):
    """Deliberate violation: delta is not divided by two for the search at the root, and the test is at epsilon."""
    world = {"world": "lock/3,noise_bits=1", "epsilon": 0.1, "delta": 0.05}
    true = Printed.of
    assert statement.measure_sizes(**world)["wrong"] == []
    monkeypatch.setattr(Printed, "of", lambda problem, epsilon, delta: true(problem, epsilon, 2 * delta))
    assert len(statement.measure_sizes(**world)["wrong"]) > 10


def test_a_plan_that_allows_more_is_seen(monkeypatch):
    """Deliberate violation: the shipped bound of on-demand exploration is a hundred times the printed one."""
    true = PaperConstants.max_demand_episodes.fget
    monkeypatch.setattr(PaperConstants, "max_demand_episodes", property(lambda self: 100 * true(self)))
    wrong = statement.measure_sizes(world="bandit", epsilon=0.5, delta=0.3)["wrong"]
    assert [words.split(",")[0].split("episodes ")[1] for words in wrong] == ["on demand", "in all"]


def test_sizes_are_divided_and_thresholds_are_not():
    numbers = statement.constants_for(statement.gap(0.2), 0.2, 0.1)
    fewer = statement.fewer(numbers, "n_train and n_test", 1e6)
    assert (fewer.search.n_train, fewer.n_1) == (709, numbers.n_1)
    assert (fewer.search.slack, fewer.phi) == (numbers.search.slack, numbers.phi)
    assert statement.fewer(numbers, "n_1", 100).n_1 == 39


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
        ("sizes", {"wrong": ["n_1 is 7"]}, "The runs used the printed sizes"),
        ("pac", {"failed": 1}, "Learner lsvee, delta 0.1"),
        ("pac", {"many": 1}, "Episodes stay within the bound"),
        ("pac", {"off": 2}, "Corollary 1"),
        ("margin", {"failed": 0}, "The margin of n_1"),
        ("margin", {"failed": 60}, "The margin of n_train"),
        ("sweep", {"printed": 1e40}, "Sweep of H"),
        ("sweep", {"off": 1}, "Episodes on the staircase"),
        ("sweep", {"right": False}, "Every policy of every sweep"),
        ("verbatim", {"played": 1.0}, "What repeats cost"),
        ("near one", {"order": 1e9}, "The order that Theorem 1 prints"),
        ("paths", {"skipping": 1e15}, "The factor 1/epsilon"),
    ],
)
def test_a_broken_bound_is_seen(fast, kind, change, beginning):
    work, results = fast
    spoiled = [{**r, **change} if p["kind"] == kind else r for p, r in zip(work, results, strict=True)]
    assert verdict(work, results, beginning)
    assert not verdict(work, spoiled, beginning)


def test_a_taller_staircase_comes_nearer_to_the_bound():
    low, high = (
        statement.measure_tallest(horizon=H, n_states=M, n_actions=M + 1, epsilon=0.1, delta=0.05)
        for H, M in ((3, 2), (5, 4))
    )
    assert (low["off"], high["off"]) == (0, 0)
    assert low["right"]
    assert high["right"]
    assert low["printed"] / low["bound"] < 0.3 < 0.45 < high["printed"] / high["bound"] < 1


def test_exponents_are_those_of_episodes_alone(fast):
    """What an exponent is compared with is no share of a bound, so it has no tightness; episodes have."""
    work, results = fast
    checks = statement.conclude(work, results).checks
    assert [c.tightness for c in checks if c.what.startswith("Sweep of")] == [None] * 6
    slopes = {swept: round(fit.slope, 2) for swept, fit in statement.fits(work, results, "printed").items()}
    assert (slopes["M"], slopes["H"], slopes["1/epsilon"]) == (1.39, 6.66, 3.04)
    (bound,) = [c.tightness for c in checks if c.what.startswith("Episodes stay within")]
    assert 0.5 < bound < 1


def test_a_braid_has_one_state_a_level_and_a_policy_that_loses_half():
    problem = statement.braid(5)
    assert (problem.n_states, problem.optimal_value, problem.process.is_deterministic) == (1, 0.75, True)
    assert problem.process.value(Greedy(problem.functions.member(0))) == pytest.approx(0.375)


@pytest.mark.parametrize(
    ("swept", "power"), [("H", 0.3), ("H", -0.6), ("M", 0.2), ("1/epsilon", 0.1), ("K", 1.0), ("log 1/delta", 1.2)]
)
def test_another_order_is_seen(fast, swept, power):
    """Deliberate violation: episodes grow with another power of what is swept."""
    work, results = fast
    other = [
        {**r, "printed": r["printed"] * (r["x"] / 100) ** power, "bound": 1e99} if p.get("swept") == swept else r
        for p, r in zip(work, results, strict=True)
    ]
    assert verdict(work, results, f"Sweep of {swept}")
    assert not verdict(work, other, f"Sweep of {swept}")

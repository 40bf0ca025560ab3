"""Theorem (guarantee for DFS-Learn) and Corollary (estimating V*)."""

import pytest
from work import broken, measured, panels

from richobs.learners import version_space
from richobs_lab.lsvee import dfs
from richobs_lab.lsvee.constants import PaperConstants
from richobs_lab.lsvee.elimination import td_risk
from richobs_lab.paper.statements import dfs_learn, v_star

CONCLUSIONS, MARGIN, PRECONDITIONS, FED, PRODUCT, CLAIM, CALLS, CAP, SIZES, EPISODES, ORDER = range(11)


@pytest.mark.parametrize(("statement", "drawn"), [(dfs_learn, 3), (v_star, 2)], ids=["dfs-learn", "v-star"])
def test_the_statement(statement, drawn):
    work = measured(statement)
    assert broken(statement, *work) == []
    assert panels(statement, *work) == drawn


def pieces_of(kind, **changes):
    chosen = [
        p
        for p in dfs_learn.pieces("fast")
        if p["class"] == kind and p["horizon"] > 2 and p["states"] > 1 and not p.get("twin")
    ]
    return [{**p, "below": False, **changes} for p in chosen[:8]]


def test_every_check_is_where_it_is_named():
    work = [p for p in dfs_learn.pieces("fast") if p["horizon"] < 4]
    checks = dfs_learn.conclude(work, [dfs_learn.measure(p) for p in work]).checks
    assert len(checks) == 11
    assert [checks[i].what.split()[1] for i in (MARGIN, CAP, SIZES, ORDER)] == ["margin:", "more", "are", "displayed"]


def concluded(pieces):
    return [c.holds for c in dfs_learn.conclude(pieces, [dfs_learn.measure(p) for p in pieces]).checks]


def test_a_bound_of_another_order_is_seen():
    """The displayed bound times H^2; and T / (M H) is that of searches with M > 1, 4 of 6, not of the one with M = 1."""
    work = [*pieces_of("sparse", overlap=0.0, horizon=3, states=2), *pieces_of("sparse", horizon=1, states=1)[:1]]
    results = [dfs_learn.measure(p) for p in work]
    checks = dfs_learn.conclude(work, results).checks
    assert checks[ORDER].holds
    assert checks[CALLS].tightness == pytest.approx(4 / 6)
    more = [{**r, "displayed": r["H"] ** 2 * r["displayed"]} for r in results]
    assert not dfs_learn.conclude(work, more).checks[ORDER].holds


def test_sparse_classes_make_every_state_be_learned():
    """So that T <= M H is put to the test: all states that the search can tell apart need an elimination."""
    results = [dfs_learn.measure(p) for p in pieces_of("sparse", overlap=0.0)]
    assert sum(r["T"] for r in results) > 0.8 * sum(r["states"] for r in results)


def test_a_tolerance_twice_as_wide_breaks_the_inductive_claim():
    checks = concluded(pieces_of("beyond", tolerance=2.0))
    assert not checks[CLAIM]
    assert not checks[CONCLUSIONS]


def test_understated_m_breaks_the_count():
    checks = concluded(pieces_of("sparse", bound=1, overlap=0.0))
    assert not checks[CALLS]


def test_a_search_that_does_not_stop_is_seen(monkeypatch):
    """Deliberate violation: ten times M H eliminations are allowed."""
    pieces = [*pieces_of("wide"), *pieces_of("sparse", cap=True, bound=1, overlap=0.0)]
    assert concluded(pieces)[CAP]
    monkeypatch.setattr(PaperConstants, "max_eliminations", property(lambda self: 10 * self.n_states * self.horizon))
    assert not concluded(pieces)[CAP]


def test_other_sizes_are_seen(monkeypatch):
    """Deliberate violation: phi is twice the printed one, for the algorithm alone; sizes and the inductive claim break."""
    true = PaperConstants.of.__func__

    def doubled(cls, *, epsilon, **rest):
        return true(cls, epsilon=2 * epsilon, **rest)

    monkeypatch.setattr(PaperConstants, "of", classmethod(doubled))
    checks = concluded([{**p, "epsilon": 0.1} for p in pieces_of("beyond")])
    assert not checks[SIZES]
    assert not checks[CLAIM]


def test_a_margin_that_is_wide_is_seen():
    """With a divisor of one no search breaks, so that nothing was measured."""
    pieces = [{**p, "divided": d} for p in pieces_of("beyond")[:3] for d in dfs_learn.DIVISORS]
    results = [dfs_learn.measure({**p, "divided": 1}) for p in pieces]
    wide = pieces_of("wide")
    results += [dfs_learn.measure(p) for p in wide]
    assert not dfs_learn.conclude([*pieces, *wide], results).checks[MARGIN].holds


def test_a_test_that_always_passes_breaks_the_estimate_of_v_star():
    pieces = pieces_of("mixed", tolerance=1e4)
    assert not v_star.conclude(pieces, [v_star.measure(p) for p in pieces]).checks[0].holds


def test_the_proof_adds_up_by_hand():
    """H = K = 1: phi = epsilon/320, so 1/sqrt(12) + 8 + 2 of 320: 0.03215."""
    assert v_star.proof(1, 1) == pytest.approx((12**-0.5 + 10) / 320)
    assert v_star.proof(3, 4) == pytest.approx((12**-0.5 + 16 + 2 + 80) / (320 * 9 * 2))


def test_other_child_values_and_other_survivors_are_seen(monkeypatch):
    """Deliberate violations: TD-Elim gets values that nobody estimated, and pairs that were dropped come back."""
    searches = [p for p in pieces_of("beyond") if p["states"] > 1]
    twins = [p for p in dfs_learn.pieces("fast") if p.get("twin")]
    assert all(concluded([*searches, *twins])[i] for i in (FED, PRODUCT))
    true = version_space.LayeredSpace._pairs
    monkeypatch.setattr(version_space.LayeredSpace, "_pairs", lambda self, *given: true(self, *given) | True)
    assert not concluded([*searches, *twins])[PRODUCT]
    monkeypatch.setattr(dfs, "td_risk", lambda level, moments, values: td_risk(level, moments, values and values[::-1]))
    assert not concluded(searches)[FED]

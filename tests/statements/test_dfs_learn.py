"""Theorem (guarantee for DFS-Learn) and Corollary (estimating V*)."""

import pytest
from work import broken, measured, panels

from richobs.paper.statements import dfs_learn, v_star

CONCLUSIONS, PRECONDITIONS, CLAIM, CALLS, EPISODES = range(5)


@pytest.mark.parametrize(("statement", "drawn"), [(dfs_learn, 3), (v_star, 2)], ids=["dfs-learn", "v-star"])
def test_the_statement(statement, drawn):
    work = measured(statement)
    assert broken(statement, *work) == []
    assert panels(statement, *work) == drawn


def pieces_of(kind, **changes):
    chosen = [p for p in dfs_learn.pieces("fast") if p["class"] == kind and p["horizon"] > 2 and p["states"] > 1]
    return [{**p, "below": False, **changes} for p in chosen[:8]]


def concluded(pieces):
    return [c.holds for c in dfs_learn.conclude(pieces, [dfs_learn.measure(p) for p in pieces]).checks]


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


def test_a_test_that_always_passes_breaks_the_estimate_of_v_star():
    pieces = pieces_of("mixed", tolerance=1e4)
    assert not v_star.conclude(pieces, [v_star.measure(p) for p in pieces]).checks[0].holds


def test_the_proof_adds_up_by_hand():
    """H = K = 1: phi = epsilon/320, so 1/sqrt(12) + 8 + 2 of 320: 0.03215."""
    assert v_star.proof(1, 1) == pytest.approx((12**-0.5 + 10) / 320)
    assert v_star.proof(3, 4) == pytest.approx((12**-0.5 + 16 + 2 + 80) / (320 * 9 * 2))

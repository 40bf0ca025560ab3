"""Theorem (guarantee for TD-Elim)."""

import math

import numpy as np
import pytest
from work import broken, measured, panels

from richobs_lab.lsvee.constants import n_train
from richobs_lab.paper.rigs.node import (
    NodeBounds,
    as_printed,
    beyond,
    chance_of_loss,
    climb,
    elimination_share,
    even,
    fair_tail,
    is_rounded_up,
    ladder,
    margin,
    node_of,
    pairs,
    printed_for,
    shipped_for,
    td_elim_runs,
    where,
)
from richobs_lab.paper.statements import td_elim

NUMBERS, GAPS = "samples and threshold are the printed ones", "both preconditions are met with equality"
KEPT, BIAS, RISK = "Q* is retained", "bias bound", "instantaneous risk bound"
ALL = "all four at once, with probability at least 1 - delta"
THRESHOLD = "a function survives where its mean loss is within the threshold, and only there"
PRODUCT = "in a product class a pair of functions survives where its mean loss is within the threshold, and only there"
MARGIN = "n_train can be divided by a known number before Q* is lost too often"


@pytest.fixture(scope="module")
def fast():
    return measured(td_elim)


def test_the_theorem(fast):
    pieces, results = fast
    assert broken(td_elim, pieces, results) == []
    assert panels(td_elim, pieces, results) == 4
    (far,) = [r for p, r in zip(pieces, results, strict=True) if p["kind"] == "beyond" and p["tilt"] == 2.0]
    assert far["lost"] == far["runs"]  # twice the allowed error loses Q* every time


def test_how_close_the_bounds_are(fast):
    tight = {c.what: c.tightness for c in td_elim.conclude(*fast).checks if c.tightness is not None}
    assert tight[BIAS] > 0.55
    assert tight[RISK] > 0.55
    assert tight["estimation bound"] == pytest.approx(0.47, abs=0.01)


def test_pairs_of_a_node_by_hand():
    """Two functions: pair (1, 0) has the second here and the first's estimates at the children."""
    node = ladder(1, 0.01, 0.1, [])
    both = pairs(node)
    np.testing.assert_array_equal(both.f, node.f[[0, 0, 1, 1]])
    np.testing.assert_array_equal(both.v_hat, node.v_hat[[0, 1, 0, 1]])
    assert both.loss.mean[0] == 0
    assert both.loss.mean[3] == pytest.approx(node.loss.mean[1])


def test_bounds_by_hand():
    """phi = 0.1, tau_1 = 0.3, K = 4: 8*0.1*2 + 0.2 + 0.3 = 2.1 and 4*0.1*sqrt(8) + 0.2 + 0.6; n = 24/0.01."""
    assert n_train(0.0, 4 / math.e, 0.1) == 2400
    bounds = NodeBounds.of_theorem(n=2400, phi=0.1, tau=0.3, delta=0.5, n_actions=4, size=3)
    assert bounds.bias == pytest.approx(2.1)
    assert bounds.risk == pytest.approx(0.4 * math.sqrt(8) + 0.8)
    assert bounds.error == pytest.approx(0.1 / math.sqrt(12))


def test_the_lemmas_imply_the_theorem():
    """At n_train every bound of a lemma is at most the theorem's."""
    for K, phi, tau, delta, size in [(1, 0.1, 0.0, 0.5, 1), (4, 1e-4, 0.01, 0.01, 10**6), (10, 0.01, 0.2, 0.1, 50)]:
        n = n_train(math.log(size), delta, phi)
        same = {"n": n, "phi": phi, "tau": tau, "delta": delta, "n_actions": K, "size": size}
        lemmas, theorem = NodeBounds.of_lemmas(**same), NodeBounds.of_theorem(**same)
        assert lemmas.bias <= theorem.bias
        assert lemmas.risk <= theorem.risk
        # Applied with delta/2, as the proof does:
        halved = NodeBounds.of_lemmas(**{**same, "delta": delta / 2})
        assert halved.error <= theorem.error * (1 + 1e-12)


PIECES = td_elim.pieces("fast")


def of(kind):
    return [p for p in PIECES if p["kind"] == kind][-1]


def concluded(kind, **changes):
    """What the theorem concludes from its last piece of a kind, with something changed."""
    piece = {**of(kind), **changes}
    return {c.what: c.holds for c in td_elim.conclude([piece], [td_elim.measure(piece)]).checks}


def test_functions_farther_apart_on_the_children_break_the_bias_bound():
    assert all(concluded("bias").values())
    checks = concluded("bias", bias=3.0)
    assert not checks[GAPS]
    assert not checks[BIAS]
    assert not checks[ALL]


def test_functions_farther_apart_on_the_children_break_the_risk_bound():
    assert all(concluded("risk").values())
    assert not concluded("risk", loss=1.5 * of("risk")["loss"], bias=3.0)[RISK]


def test_numbers_that_are_not_the_printed_ones_are_noticed():
    good = {"sized": True, "threshold": 1.0}
    assert as_printed([good])[0]
    assert not as_printed([good, {**good, "threshold": 1.001}])[0]
    assert not as_printed([good, {**good, "sized": False}])[0]
    assert is_rounded_up(11, 10.2)
    assert not is_rounded_up(12, 10.2)


def test_the_shares_of_delta_by_hand():
    """H = 2, M = 1, delta = 0.8: half for the search at the root, half of that for TD-Elim, over M H calls."""
    piece = {"horizon": 2, "states": 1, "actions": 2, "epsilon": 0.9, "delta": 0.8}
    assert elimination_share(piece) == pytest.approx(0.1)
    phi = 0.9 / (320 * 4 * math.sqrt(2))
    printed = printed_for(piece, 2)
    assert printed.phi == pytest.approx(phi)
    assert is_rounded_up(printed.root.n_train, 24 * math.log(4 * 2 / 0.1) / phi**2)


def test_tails_of_fair_bits_by_hand():
    """Of 4 fair bits 3 or 4 are 1 in 5 of 16 cases; a mean of 3/4 is not more than 1/4 from 1/2."""
    assert fair_tail(4, 3) == pytest.approx(5 / 16)
    assert fair_tail(4, 5) == 0
    assert fair_tail(4, 2) == pytest.approx(11 / 16)
    assert fair_tail(4, 0) == 1
    assert fair_tail(10**8, 10**7) == 1
    assert beyond(4, 0.25) == pytest.approx(2 / 16)
    assert beyond(4, 0.0) == pytest.approx(10 / 16)
    deviations = 3.0  # of 4e8 bits: the normal law is good to a few digits
    assert fair_tail(4 * 10**8, 2 * 10**8 + 30_000) == pytest.approx(math.erfc(deviations / math.sqrt(2)) / 2, rel=1e-3)


def test_the_chance_of_losing_q_star_agrees_with_runs():
    piece = {"horizon": 2, "states": 1, "actions": 2, "epsilon": 0.9, "delta": 0.8}
    printed = printed_for(piece, 2)
    n, slack = printed.root.n_train // 200, printed.root.slack
    exact = chance_of_loss(n, slack, printed.phi, 0.7)
    runs = td_elim_runs(even(2, printed.phi, 0.7), shipped_for(piece, 2), runs=1000, seed=3, n=n)
    assert 0.05 < exact < 0.3
    assert sum(not r.truth for r in runs) / 1000 == pytest.approx(exact, abs=0.04)  # more than 3 standard deviations


def test_the_ladder_has_the_losses_asked_for():
    losses = [1e-6, 3e-6]
    node = ladder(2, 1e-3, 0.01, losses)
    np.testing.assert_allclose(node.loss.mean, [0, *[losses[0]] * 4, *[losses[1]] * 4, -1e-6], atol=1e-15)
    np.testing.assert_allclose(node.process.q_tables[0], node.f[0], atol=1e-15)


def test_all_values_of_the_hardest_class_survive():
    node = node_of({**of("estimation"), "bits": 3})
    assert node.loss.mean == pytest.approx([0.0] * 4)
    assert node.values == pytest.approx([0.5] * 4)


def test_a_margin_lies_between_what_surely_holds_and_what_surely_fails():
    points = [(1.0, 0, 1000, 0.001), (2.0, 50, 1000, 0.05), (3.0, 200, 1000, 0.2)]
    assert margin(points, 0.05, 0.99) == (True, 1.0, 3.0)
    assert not margin([(1.0, 0, 1000, 0.1)], 0.05, 0.99).agrees
    assert margin(points[1:2], 0.05, 0.99)[1:] == (0.0, math.inf)


def test_where_a_condition_changes_and_what_a_search_finds():
    assert where(lambda x: x < 7, 1, 1000) == pytest.approx(7)
    best, at = climb(lambda x: -float(((x - 0.3) ** 2).sum()), 3, seed=0, starts=10, steps=300)
    assert best > -1e-3
    np.testing.assert_allclose(at, 0.3, atol=0.03)

"""Theorem (guarantee for TD-Elim)."""

import math

import pytest
from work import broken, measured, panels

from richobs.learners.lsvee.constants import n_train
from richobs.paper.rigs.node import NodeBounds
from richobs.paper.statements import td_elim

GAPS, KEPT, BIAS, RISK, ESTIMATES, ALL = range(6)


def test_the_theorem():
    pieces, results = measured(td_elim)
    assert broken(td_elim, pieces, results) == []
    assert panels(td_elim, pieces, results) == 3
    (beyond,) = [r for p, r in zip(pieces, results, strict=True) if p["kind"] == "beyond" and p["tilt"] == 2.0]
    assert beyond["lost"] == beyond["runs"]  # twice the allowed error loses Q* every time


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


def concluded(kind, **changes):
    """What the theorem concludes from its last piece of a kind, with something changed."""
    piece = {**[p for p in td_elim.pieces("fast") if p["kind"] == kind][-1], **changes}
    return [c.holds for c in td_elim.conclude([piece], [td_elim.measure(piece)]).checks]


def test_functions_farther_apart_on_the_children_break_the_bias_bound():
    assert all(concluded("bias"))
    checks = concluded("bias", bias=3.0)
    assert not checks[GAPS]
    assert not checks[BIAS]
    assert not checks[ALL]


def test_functions_farther_apart_on_the_children_break_the_risk_bound():
    last = [p for p in td_elim.pieces("fast") if p["kind"] == "risk"][-1]
    assert all(concluded("risk"))
    assert not concluded("risk", loss=1.5 * last["loss"], bias=3.0)[RISK]


def test_a_third_of_the_threshold_loses_q_star():
    piece = next(p for p in td_elim.pieces("fast") if p["kind"] == "beyond")
    assert piece["tilt"] == 1.0
    whole, third = (td_elim.measure({**piece, "slack": part}) for part in (1.0, 0.3))
    assert whole["lost"] == 0
    assert third["lost"] > 0.9 * third["runs"]

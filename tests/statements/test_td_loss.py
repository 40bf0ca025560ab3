"""Lemma (properties of TD squared loss)."""

import numpy as np
import pytest
from work import broken, measured, panels

from richobs.core.process import Rewards
from richobs_lab.paper.rigs.node import Node, biased, drawn, loss_law
from richobs_lab.paper.statements import td_loss


def test_the_lemma():
    work = measured(td_loss)
    assert broken(td_loss, *work) == []
    assert panels(td_loss, *work) == 2


def test_a_search_finds_the_largest_share_there_is():
    """E Y^2 <= 4 E Y where estimates are exact, so Var Y is at most 4/32 of its bound."""
    (first, *_) = [p for p in td_loss.pieces("fast") if p["kind"] == "search"]
    assert 0.12 < td_loss.measure(first)["ratio"] <= 0.125


def test_the_ceiling_by_hand():
    """On halves: w = -2, m = 1, e = 0 has no room, w = 0 = e neither; with 3 E Y in place of 4 there would be too little."""
    assert td_loss.measure({"kind": "ceiling", "parts": 2})["least"] == 0
    w, m, e = -2, 1, 0
    assert 4 * w**2 + 4 * e**2 == (w**2 - e**2) ** 2 + 4 * m * (1 - m) * (w - e) ** 2 == 16


def test_risks_with_another_law_are_noticed(monkeypatch):
    """The variance of f - r left out, or counted twice, moves the mean of R(f) - R(f*) by many standard errors."""
    (*_, box) = [p for p in td_loss.pieces("fast") if p["kind"] == "box"]
    piece = {**box, "n": 10**6, "runs": 60}

    def holds():
        (check,) = td_loss.conclude([piece], [td_loss.measure(piece)]).checks
        return check.holds

    assert holds()
    true = td_loss.td_risk
    for factor in (0, 2):
        monkeypatch.setattr(
            td_loss, "td_risk", lambda *given, by=factor: (risk := true(*given))._replace(noise=by * risk.noise)
        )
        assert not holds()


def test_mean_and_variance_by_hand():
    """One observation and action, r is 0 or 1 with probability 1/2, no children: Q* = 1/2, f = 1.

    Y = (1 - r)^2 - (1/2 - r)^2 is 3/4 where r = 0 and -1/4 where r = 1: mean 1/4 = (f - Q*)^2, variance 1/4.
    """
    fair = Rewards.bernoulli(np.full((1, 1), 0.5))
    law = loss_law(np.ones(1), fair, np.array([[[0.5]], [[1.0]]]), np.zeros((2, 1)), np.zeros(1))
    np.testing.assert_allclose(law.mean, [0, 0.25])
    np.testing.assert_allclose(law.variance, [0, 0.25])
    np.testing.assert_allclose(law.identity, [0, 0.25])


def test_the_rare_family_by_hand():
    """Y is 4 with probability 1/4, else 0: mean 1, variance 3, and the bound is 32."""
    result = td_loss.measure({"kind": "rare", "chance": 0.25, "phi": 0.0})
    assert result["mean"] == pytest.approx([1.0])
    assert result["variance"] == pytest.approx([3.0])
    assert result["ratio"] == pytest.approx(3 / 32)


@pytest.mark.parametrize("node", [biased(3, 0.01, 0.02, np.array([0.0, 0.05])), drawn(3, 0.001, 0.02, 20, seed=5)])
def test_the_first_function_of_a_node_is_q_star(node: Node):
    np.testing.assert_allclose(node.process.q_tables[0], node.f[0], atol=1e-15)
    children = node.process.predicted_values(node.functions.member(1))[1]  # [K] one state behind each action
    np.testing.assert_allclose(children, node.v_children[1])
    assert node.process.predicted_values(node.functions.member(1))[0][0] == pytest.approx(node.values[1])


def test_estimates_worse_than_phi_break_the_variance_bound():
    beyond = {"kind": "edge", "actions": 1, "phi": 0.03, "error": 1.5}
    conclusion = td_loss.conclude([beyond], [td_loss.measure(beyond)])
    assert [c.holds for c in conclusion.checks] == [True, False]


def test_the_identity_needs_the_true_values_of_the_children():
    node = biased(2, 0.01, 0.0, np.array([0.05]))
    rewards = Rewards(node.process.rewards[0].values[0], node.process.rewards[0].probs[0])
    wrong = loss_law(node.law, rewards, node.f, node.v_hat, node.v_star + 0.1)
    assert np.abs(wrong.mean - wrong.identity).max() > 1e-3

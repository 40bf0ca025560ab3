"""The lemmas behind the theorem for TD-Elim: squared loss deviation, estimation error, bias accumulation, risk."""

import math

import pytest
import work

from richobs.learners.lsvee.constants import elimination_slack
from richobs.paper.rigs.node import NodeBounds
from richobs.paper.statements import bias, deviation, estimation, risk


@pytest.mark.parametrize(
    ("lemma", "panels"), [(deviation, 2), (estimation, 1), (bias, 3), (risk, 3)], ids=lambda x: getattr(x, "NAME", "")
)
def test_the_lemma(lemma, panels):
    measured = work.measured(lemma)
    assert work.broken(lemma, *measured) == []
    assert work.panels(lemma, *measured) == panels


def test_bounds_by_hand():
    """phi = 0.1, tau_1 = 0.3, K = 4, N = 1 and delta = 2/e, so that log(2N/delta) = 1; n = 12000."""
    bounds = NodeBounds.of_lemmas(n=12000, phi=0.1, tau=0.3, delta=2 / math.e, n_actions=4, size=1)
    assert bounds.loss == pytest.approx(0.06 + 0.01)
    assert bounds.error == pytest.approx(math.sqrt(2 / 12000))
    assert bounds.bias == pytest.approx(4 * math.sqrt(0.08) + 0.2 + 0.3)
    assert bounds.risk == pytest.approx(math.sqrt(8) * math.sqrt(0.08) + 0.8)
    assert elimination_slack(0.0, 2 / math.e, 0.1, 12000) == pytest.approx(0.02 + 22 / 12000)


def broken(lemma, **changes):
    """What a lemma concludes from its first piece with something changed."""
    piece = {**lemma.pieces("fast")[0], **changes}
    return [c.holds for c in lemma.conclude([piece], [lemma.measure(piece)]).checks]


def test_deviation_needs_the_condition_and_the_threshold():
    assert broken(deviation, n=10**9) == [True, True]
    with_zero = [0.0, 0.01]
    assert broken(deviation, n=10**9, tilt=1.0, steps=with_zero) == [True, True]
    assert broken(deviation, n=10**9, tilt=2.0, steps=with_zero) == [False, True]  # Q*'s estimates off by 2 phi
    assert broken(deviation, n=10**9, slack=10.0) == [True, False]  # ten times the threshold keeps too many


def test_estimation_needs_the_constant():
    assert broken(estimation) == [True, True]
    assert broken(estimation, constant=0.1) == [False, True]


def test_estimation_probability_by_hand():
    """Of 4 fair bits the mean is off by more than 1/4 where all are equal (2 of 16), by more than 0 but in 6 of 16."""
    assert estimation.beyond(4, 0.25) == pytest.approx(2 / 16)
    assert estimation.beyond(4, 0.0) == pytest.approx(10 / 16)


def test_bias_needs_both_conditions():
    assert broken(bias, n=10**9) == [True, True]
    assert broken(bias, n=10**9, bias=3.0) == [False, False]
    assert broken(bias, n=10**9, error=20.0) == [False, False]


def test_risk_needs_the_condition():
    piece = {**risk.pieces("fast")[0], "n": 10**9, "tau": 0.02}
    bound = NodeBounds.of_lemmas(n=10**9, phi=piece["phi"], tau=0.02, delta=piece["delta"], n_actions=2, size=2).risk
    assert broken(risk, n=10**9, tau=0.02, loss=1.5 * bound) == [True]
    assert broken(risk, n=10**9, tau=0.02, loss=1.5 * bound, bias=3.0) == [False]

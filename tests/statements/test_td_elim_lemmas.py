"""The lemmas behind the theorem for TD-Elim: squared loss deviation, estimation error, bias accumulation, risk."""

import math

import pytest
import work

from richobs_lab.lsvee.constants import elimination_slack
from richobs_lab.paper.rigs.node import NodeBounds, elimination_share, printed_for, searched, stretched
from richobs_lab.paper.statements import bias, deviation, estimation, risk

TIGHT = {deviation: 0.30, estimation: 0.45, bias: 0.60, risk: 0.60}  # what is found at least, of the bound


@pytest.mark.parametrize(
    ("lemma", "panels"), [(deviation, 2), (estimation, 1), (bias, 4), (risk, 4)], ids=lambda x: getattr(x, "NAME", "")
)
def test_the_lemma(lemma, panels):
    measured = work.measured(lemma)
    assert work.broken(lemma, *measured) == []
    assert work.panels(lemma, *measured) == panels
    assert TIGHT[lemma] < lemma.conclude(*measured).tightness <= 1


def test_bounds_by_hand():
    """phi = 0.1, tau_1 = 0.3, K = 4, N = 1 and delta = 2/e, so that log(2N/delta) = 1; n = 12000."""
    bounds = NodeBounds.of_lemmas(n=12000, phi=0.1, tau=0.3, delta=2 / math.e, n_actions=4, size=1)
    assert bounds.loss == pytest.approx(0.06 + 0.01)
    assert bounds.error == pytest.approx(math.sqrt(2 / 12000))
    assert bounds.bias == pytest.approx(4 * math.sqrt(0.08) + 0.2 + 0.3)
    assert bounds.risk == pytest.approx(math.sqrt(8) * math.sqrt(0.08) + 0.8)
    assert elimination_slack(0.0, 2 / math.e, 0.1, 12000) == pytest.approx(0.02 + 22 / 12000)


def checked(lemma, piece, measured=None):
    """What a lemma concludes from one piece, where perhaps another was measured."""
    return {c.what: c.holds for c in lemma.conclude([piece], [lemma.measure(measured or piece)]).checks}


def broken(lemma, **changes):
    """Which checks of a lemma fail on its first piece with something changed."""
    piece = {**lemma.pieces("fast")[0], **changes}
    return [what for what, holds in checked(lemma, piece).items() if not holds]


def test_deviation_needs_the_condition_and_the_threshold():
    lost = "Q* survives with probability at least 1 - delta/2"
    over = "every survivor has E Y <= 6 phi^2 + 120 log(2N/delta)/n"
    assert broken(deviation, n=10**9) == []
    with_zero = [0.0, 20.0]
    assert broken(deviation, n=10**9, tilt=1.0, steps=with_zero) == []
    assert broken(deviation, n=10**9, tilt=2.0, steps=with_zero) == [lost]  # Q*'s estimates off by 2 phi
    assert broken(deviation, n=10**9, slack=10.0) == [over]  # ten times the threshold keeps too many


@pytest.mark.parametrize("part", [0.8, 1.25])
def test_another_threshold_shows_in_its_margin(part):
    pieces = [p for p in deviation.pieces("fast") if p["kind"] == "divided"]
    results = [deviation.measure({**p, "slack": p["slack"] * part, "runs": 200}) for p in pieces]
    checks = {c.what: c.holds for c in deviation.conclude(pieces, results).checks}
    assert not checks["a known part of the threshold suffices"]


def test_estimation_needs_the_constant():
    """With a quarter of the samples, or with 2 in the place of 1/2 of the bound, counts leave their exact probability."""
    pieces = [p for p in estimation.pieces("fast") if p["kind"] == "law" and "n" not in p and p["bits"] == 6]
    good = [estimation.measure(p) for p in pieces]
    few = [estimation.measure({**p, "divide": 4.0}) for p in pieces]
    halved = [
        {**r, "exact": estimation.measure({**p, "divide": 16.0})["exact"]} for p, r in zip(pieces, good, strict=True)
    ]
    law = "the engine's samples have that law"
    bound = "the error exceeds the bound with probability at most delta"
    assert {c.what: c.holds for c in estimation.conclude(pieces, good).checks}[law]
    wrong = [{**r, "exact": g["exact"]} for r, g in zip(few, good, strict=True)]
    assert not {c.what: c.holds for c in estimation.conclude(pieces, wrong).checks}[law]
    assert not {c.what: c.holds for c in estimation.conclude(pieces, halved).checks}[bound]


@pytest.mark.parametrize("part", [2, 0.5])
def test_other_samples_show_in_the_margin_of_the_estimates(part):
    law, *_, first, second, third, fourth, fifth = estimation.pieces("fast")
    divided = [first, second, third, fourth, fifth]
    changed = [{**p, "divide": p["divide"] * part} for p in divided]
    results = [estimation.measure({**p, "runs": 300}) for p in (law, *changed)]
    (margin,) = [
        c for c in estimation.conclude([law, *divided], results).checks if c.what.startswith("n_train can be divided")
    ]
    assert not margin.holds


def test_bias_needs_both_conditions():
    met = "the conditions are met, with equality"
    differ = "survivors differ by at most the bound, with probability at least 1 - delta/2"
    assert broken(bias, n=10**9) == []
    assert broken(bias, n=10**9, bias=3.0) == [met, differ]
    assert broken(bias, n=10**9, error=30.0) == [met, differ]


def test_risk_needs_the_condition():
    piece = {**risk.pieces("fast")[0], "n": 10**9, "tau": 0.02}
    phi, delta = printed_for(piece, 2).phi, elimination_share(piece)
    bound = NodeBounds.of_lemmas(n=10**9, phi=phi, tau=0.02, delta=delta, n_actions=2, size=2).risk
    assert broken(risk, n=10**9, tau=0.02, loss=1.5 * bound) == []
    assert broken(risk, n=10**9, tau=0.02, loss=1.5 * bound, bias=3.0) == [
        "actions of survivors lose at most the bound, with probability at least 1 - delta/2"
    ]


def test_a_searched_node_meets_the_conditions_and_lies_at_the_threshold():
    """A rival with equal TD errors on both actions: their square is the threshold, less a twentieth, and phi^2."""
    node = stretched(2, 1e-3, 3e-6, 1, [1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0])
    assert node.estimation_gap == pytest.approx(1e-3)
    assert node.bias_gap == 0
    assert node.loss.mean[1] == pytest.approx(0.95 * 3e-6)
    assert node.f[1, 0] - node.v_hat[1] - node.f[0, 0] + node.v_star == pytest.approx([math.sqrt(3.85e-6)] * 2)


def test_a_search_finds_what_is_known_to_be_the_best():
    """K = 1: two functions with TD errors of +-sqrt(0.95 slack + phi^2), each with estimates off by phi: 2 of each apart."""
    piece = {**bias.pieces("fast")[-1], "actions": 1, "runs": 5, "steps": 400}
    printed = printed_for(piece, 3)
    most = 2 * math.sqrt(0.95 * printed.root.slack + printed.phi**2) + 2 * printed.phi
    result = searched(piece, "bias", 2)
    assert result["found"] * result["bound"]["bias"] == pytest.approx(most, rel=0.01)

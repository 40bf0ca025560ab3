"""Theorem (guarantee for Consensus)."""

import pytest
from work import broken, measured, panels

from richobs_lab.paper.rigs.node import consensus_share
from richobs_lab.paper.statements import consensus

PIECES = consensus.pieces("fast")
NUMBERS = "samples and tolerance are the printed ones"
MARGIN = "n_test can be divided by a known number before (i) fails too often"
CALLS = "DFS-Learn goes on where survivors agree, and learns the child first where they do not"


def checked(pieces, measured_pieces=None):
    """What follows from pieces, where perhaps others were measured."""
    results = [consensus.measure(p) for p in measured_pieces or pieces]
    return {c.what.split(" on that")[0]: c.holds for c in consensus.conclude(pieces, results).checks}


def of(kind):
    return [p for p in PIECES if p["kind"] == kind]


def test_the_theorem():
    work = measured(consensus)
    assert broken(consensus, *work) == []
    assert panels(consensus, *work) == 2
    tight = {c.what[:5]: c.tightness for c in consensus.conclude(*work).checks if c.tightness is not None}
    assert tight["(i) e"] == pytest.approx(0.477, abs=0.002)
    assert 0.98 < tight["(ii) "] <= 1
    assert 0.98 < tight["(iii)"] <= 1


def test_the_differences_are_those_asked_for():
    """tau_2 = 13 phi, so a step of 4 phi makes 17 phi: exactly 2 phi + eps_test, the limit of part (iii)."""
    result = consensus.measure({**PIECES[0], "gap": 4.0, "runs": 1})
    assert result["spread"] / result["phi"] == pytest.approx(17)


def test_the_share_of_delta_by_hand():
    """H = 3, M = 4, K = 2, delta = 0.48: half for the root, half of that for Consensus, over M K H = 24 calls."""
    assert consensus_share({"horizon": 3, "states": 4, "actions": 2, "delta": 0.48}) == pytest.approx(0.005)


def test_a_tolerance_below_what_the_theorem_asks_for_breaks_part_two():
    pieces = [{**p, "tolerance": 0.8} for p in of("gap")]
    checks = checked(pieces)
    assert not checks["(ii)"]
    assert not checks[NUMBERS]


def test_a_tolerance_above_breaks_part_three():
    checks = checked([{**p, "tolerance": 1.3} for p in of("gap")])
    assert checks["(ii)"]
    assert not checks["(iii)"]


def test_a_sixteenth_of_the_samples_breaks_part_one():
    piece = {**of("bits")[0], "runs": 200}
    checks = checked([piece], [{**piece, "divide": 16.0}])
    assert not checks["(i) every value is estimated up to phi, with probability at least 1 - delta"]


@pytest.mark.parametrize("part", [4, 2, 0.5])
def test_other_samples_than_printed_show_in_the_margin(part):
    pieces = [p for p in of("bits") if p["divide"] > 1]
    assert not checked(pieces, [{**p, "divide": p["divide"] * part} for p in pieces])[MARGIN]


@pytest.mark.parametrize("apart", [0.9, 1.1])
def test_a_call_that_went_on_differently_is_noticed(apart):
    (piece,) = [p for p in of("call") if p["apart"] == apart and p["horizon"] == 2]
    other = {**piece, "apart": 2 - apart}
    assert checked([piece])[CALLS]
    assert not checked([piece], [other])[CALLS]

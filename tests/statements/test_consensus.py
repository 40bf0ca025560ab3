"""Theorem (guarantee for Consensus)."""

import pytest
from work import broken, measured, panels

from richobs_lab.paper.rigs.node import consensus_share
from richobs_lab.paper.statements import consensus

PIECES = consensus.pieces("fast")


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

"""Theorem (guarantee for Consensus)."""

from work import broken, measured, panels

from richobs.paper.statements import consensus


def test_the_theorem():
    work = measured(consensus)
    assert broken(consensus, *work) == []
    assert panels(consensus, *work) == 2


def test_the_differences_are_those_asked_for():
    """tau_2 = 5 phi, so a step of 4 phi makes 9 phi: exactly 2 phi + eps_test, the limit of part (iii)."""
    piece = {**consensus.pieces("fast")[0], "gap": 4.0, "runs": 1}
    assert abs(consensus.measure(piece)["spread"] / consensus.PHI - 9) < 1e-9


def test_a_tolerance_below_what_the_theorem_asks_for_breaks_part_two():
    pieces = [{**p, "tolerance": 0.8} for p in consensus.pieces("fast")]
    checks = consensus.conclude(pieces, [consensus.measure(p) for p in pieces]).checks
    assert checks[0].holds
    assert not checks[1].holds


def test_a_sixty_fourth_of_the_samples_breaks_part_one():
    pieces = [{**p, "share": 1.0, "tolerance": 1.0} for p in consensus.pieces("fast")[:1]]
    results = [consensus.measure({**p, "share": 1 / 64}) for p in pieces]
    assert not consensus.conclude(pieces, results).checks[0].holds

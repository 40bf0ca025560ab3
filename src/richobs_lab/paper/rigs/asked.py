"""How statements name and ask for the two versions of LSVEE, and the numbers that the printed one runs with."""

from richobs import Outcome, Problem, Settings
from richobs_lab.lsvee import Lsvee
from richobs_lab.lsvee.constants import PaperConstants

PAPER, CERTIFIED = "LSVEE (paper)", "LSVEE (certified)"  # as tables and figures call them
LEARNER = {PAPER: "lsvee", CERTIFIED: "certified"}  # as settings do


def printed_episodes(outcome: Outcome) -> int:
    """Returns what a run takes as printed: episodes of repeats that were left out are counted too."""
    return outcome.episodes + outcome.ledger.skipped


def constants_for(problem: Problem, epsilon: float, delta: float) -> PaperConstants:
    """Returns the numbers that LSVEE as printed runs with on a problem.

    Args:
        problem: what is learned.
        epsilon: largest allowed gap between the policy's value and V*.
        delta: probability that the claim is false.
    """
    return Lsvee().constants(problem, Settings(epsilon=epsilon, delta=delta, learner="lsvee"))

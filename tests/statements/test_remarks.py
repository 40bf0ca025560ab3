"""What the text says beside its theorems: the fast version holds, and each check can go red."""

import pytest
from work import broken, panels

from richobs_lab.paper.statements import remarks as statement


def test_every_check_holds(work):
    assert broken(statement, *work) == []
    assert panels(statement, *work) == 4


@pytest.mark.parametrize(
    ("kind", "change", "beginning"),
    [
        ("observations", {"rounds": 1}, "|X| does not enter"),
        ("states", {"eliminations": 4}, "the refined notion of M"),
        ("work", {"each": 11.0}, "O(N) time"),
        ("log N", {"off": 0.1}, "log N cannot"),
        ("tree", {"episodes": 31}, "sparse sampling"),
        ("history", {"random": 0.0}, "Q* is a function"),
        ("achievable", {"achieved": 1.0}, "equation (1)"),
        ("policies", {"ratio": 1.0}, "log|Pi|"),
    ],
)
def test_every_check_can_fail(work, kind, change, beginning):
    given, results = work
    other = [{**r, **change} if p["kind"] == kind else r for p, r in zip(given, results, strict=True)]
    assert [what.startswith(beginning) for what in broken(statement, given, other)] == [True]


def test_one_more_episode_for_more_observations_is_seen(work):
    given, results = work
    more = [
        {**r, "episodes": r["episodes"] + (p.get("size") == 10_000)} if p["kind"] == "observations" else r
        for p, r in zip(given, results, strict=True)
    ]
    assert [what.partition(":")[0] for what in broken(statement, given, more)] == ["|X| does not enter"]


def test_losses_by_hand():
    """Two contexts, no episode: half of the guesses are wrong. One episode: of the other context alone. Two: 1/8."""
    assert [statement.enumerated_loss(2, T) for T in range(3)] == [0.5, 0.25, 0.125]

"""A claim is tested by the episodes of the claimed policy itself before it is made."""

from typing import Any

import numpy as np
import pytest

import richobs
from own import Arms as Coin
from richobs.classes import Listed, TableLevel
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise
from richobs.core.events import nobody
from richobs.core.ledger import Ledger
from richobs.core.outcome import StopReason, estimate_words
from richobs.core.policies import OpenLoop
from richobs.engines.stream import StreamEngine
from richobs.learners.betting.certify import Closed, doubted
from richobs.learners.betting.search import BettingSearch, Tuning, run
from richobs.learners.betting.values import Ranges
from richobs.learners.stopping import Doubt, is_surprising, of_returns


def learned(chances: tuple[float, float], *tables: tuple[float, float], **asked: Any) -> richobs.Outcome:
    functions = Listed([TableLevel(np.array(tables)[:, None, :])])
    given = {"epsilon": 0.2, "seed": 0, "progress": False, "max_episodes": 5_000}
    return richobs.learn(Coin(*chances), functions, **{**given, **asked})


def test_the_only_function_is_believed_after_16_episodes_of_its_policy() -> None:
    found = learned((0.5, 0.4), (0.5, 0.4))
    assert (found.reason, found.episodes) == (StopReason.ONE_SURVIVOR, 20)  # the first 4 enter no account
    short = learned((0.5, 0.4), (0.5, 0.4), max_episodes=10)
    assert short.reason is StopReason.EPISODES_SPENT


@pytest.mark.parametrize(("chance", "predicted"), [(0.9, 0.3), (0.1, 0.8)])
def test_an_absurd_function_is_contradicted_or_its_claim_made_wider(chance: float, predicted: float) -> None:
    """Its policy earns much more, or much less, than it promises.

    The class lacks Q*, so U rests on two standard errors where the claim was made wider, and may be below the truth in 1
    of 20 runs. More than 3 of 16 would be so with probability 0.007. Untested, all 16 would state U = 0.3 where 0.9 is true.
    """
    told, wrong = [], 0
    for seed in range(16):
        try:
            found = learned((chance, 0.0), (predicted, 0.0), seed=seed)
        except BrokenPromise as broken:
            told.append(str(broken))
            continue
        assert found.upper is not None
        wrong += found.upper < chance
        told.append(found.remarks[0] if found.remarks else "")
    assert wrong <= 3
    assert sum("no function of the class" in words for words in told) > 8


def test_a_policy_that_earns_more_than_u_names_where() -> None:
    """1 is earned where 0.7 is the most that is promised."""
    words = ""
    for seed in range(3):
        try:
            found = learned((1.0, 0.0), (0.7, 0.0), epsilon=0.31, delta=1e-6, seed=seed)
        except BrokenPromise as broken:
            words = str(broken)
            continue
        if found.reason is StopReason.DOUBTED:
            assert found.upper is not None
            assert found.upper >= 1.0
            assert "the claim was made wider, because the policy earned 1" in found.remarks[0]
            words = words or found.remarks[0]
    assert words


@pytest.mark.parametrize(
    ("values", "counts", "about"),
    [
        ([0.0, 1.0], [50, 50], None),
        (
            [1.0],
            [16],
            "V* should be at most 0.9",
        ),  # 3/16 may be unseen: it is played on, and the claim is a little wider
        ([0.0, 1.0], [1, 15], None),
        ([1.0], [100], "V* should be at most 0.9"),
        ([0.0], [100], "0.5 was predicted"),
        ([0.0, 1.0], [66, 34], None),  # 0.16 below, of which 0.1 is allowed and 0.09 may be chance
    ],
)
def test_what_counts_as_doubt(values: list[float], counts: list[int], about: str | None) -> None:
    found = of_returns(
        np.array(values), np.array(counts, dtype=float), upper=0.9, promised=0.5, allowed=0.1, range_of=1.0
    )
    assert (found is None) if about is None else (found is not None and about in found.words)


def test_true_classes_are_seldom_doubted() -> None:
    """40 runs: the policy is played on in few of them, and nothing is called broken but with delta."""
    doubted = 0
    for seed in range(40):
        found = learned((0.5, 0.7), (0.5, 0.7), (0.9, 0.2), (0.2, 0.3), seed=seed)
        doubted += any("needed" not in event.sentence for event in found.trace if event.kind == "doubt")
    assert doubted <= 4


def test_an_estimate_outside_of_its_bounds_has_a_word() -> None:
    assert estimate_words(0.5, 0.4, 0.6) == "0.5 by estimate"
    for value in (0.3, 0.7):
        assert "beyond the bounds as the mean of a sample may be" in estimate_words(value, 0.4, 0.6)


@pytest.mark.parametrize(("predicted", "doubted"), [(0.5, False), (0.42, True)])
def test_bets_that_have_won_make_a_claim_wait(predicted: float, doubted: bool) -> None:
    """Recorded episodes speak against the function, and what its policy earns is within what is allowed."""
    env = Coin(0.5, 0.0)
    log = env.play(OpenLoop((0,)), 300, np.random.default_rng(1))
    found = learned((0.5, 0.0), (predicted, 0.0), episodes=log, delta=0.01)
    told = [event.sentence for event in found.trace if event.kind == "doubt" and "needed" not in event.sentence]
    assert all("bets against what is left of the class hold" in words for words in told)
    assert bool(told) == doubted
    assert (found.reason is StopReason.DOUBTED) == doubted
    assert found.upper is not None
    assert found.upper >= 0.5


@pytest.mark.parametrize(
    ("asked", "most"), [({"max_episodes": 12}, 0), ({"max_episodes": 24}, 2), ({"threshold": 0.6}, 3)]
)
def test_a_claim_is_tested_however_a_run_ends(asked: dict[str, Any], most: int) -> None:
    """Nothing promises more than 0.5 where 0.85 is earned. Untested, all of these runs would state that as U."""
    wrong = 0
    for seed in range(10):
        try:
            found = learned((0.85, 0.0), (0.5, 0.0), (0.45, 0.1), epsilon=0.45, seed=seed, **asked)
        except BrokenPromise:
            continue
        assert found.upper is not None
        wrong += found.upper < 0.85
        if most == 0:
            assert (found.reason, found.upper) == (StopReason.EPISODES_SPENT, 1.0)
            assert "8 episodes, and 16 are needed" in found.remarks[0]
    assert wrong <= most


def test_an_error_that_no_function_is_left_names_where() -> None:
    """Action 0 pays 0.9 of the time, and 0.3 is promised."""
    said = r"at level 0, observation 0, action 0: 0\.3 was predicted .* and 0\.\d+ was seen on average, \d+ times"
    with pytest.raises(BrokenPromise, match=f"no function of the class.*{said}"):
        learned((0.9, 0.0), (0.3, 0.0), (0.3, 0.1))


@pytest.mark.parametrize(
    ("scores", "surprising"),
    [
        ([], False),
        ([[5.0]], False),  # (7/9 + 2 sqrt(2/9))^3 = 5.09
        ([[5.2]], True),
        ([[1.0] * 50, [1.4] * 50], False),  # 120 of 100; 130 are too many
        ([[1.0] * 50, [1.6] * 50], False),
        ([[1.0] * 50, [1.7] * 50], True),
    ],
)
def test_squares_are_too_large_together(scores: list[list[float]], surprising: bool) -> None:
    assert is_surprising([np.array(some) for some in scores]) == surprising


def one_function(tolerance: float = 0.0, limit: int | None = None) -> tuple[BettingSearch, Closed]:
    """Returns a search that ended with the only function of a class, right about action 0 and saying 0.3 of action 1."""
    env, functions = Coin(0.5, 0.6), Listed([TableLevel([[[0.5, 0.3]]])])
    engine, ranges = StreamEngine(env, functions, seed=0, ledger=Ledger(limit)), Ranges.of(env, functions, (tolerance,))
    search = BettingSearch(engine, functions, 0.2, 0.05, 0, nobody, Tuning(), given_ranges=ranges)
    return search, run(search)


@pytest.mark.parametrize(
    ("times", "paid", "tolerance", "is_doubted"),
    [
        (30, 9, 0.0, False),  # as predicted
        (30, 15, 0.0, False),  # 0.2 more, of which 1/60 is a jump: 4 in squares of standard errors, of 2 cells
        (30, 19, 0.0, True),
        (30, 0, 0.0, True),
        (4, 0, 0.0, False),
        (30, 19, 0.09, False),
    ],
)
def test_what_other_policies_met_speaks_of_the_only_function(
    times: int, paid: int, tolerance: float, is_doubted: bool
) -> None:
    """Its own policy never takes action 1, so neither returns nor errors along it say anything of what others met."""
    search, claim = one_function(tolerance)
    assert claim.by == "one survivor"
    x, ones = np.zeros(times, dtype=np.int64), np.ones(times, dtype=np.int64)
    search.kept.add((0,), Episodes([x], [ones], [(np.arange(times) < paid).astype(float)]))
    found = doubted(search, search.candidate(0), claim)
    assert (found is not None) == is_doubted
    assert found is None or "the only function that is left errs" in found.words


def test_a_doubt_is_not_forgotten_when_the_episodes_are_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim by one survivor waits, and then nothing more may be played: U is no less than the doubt says."""
    waits = Doubt("a claim waits", missing=0.25)
    monkeypatch.setattr(
        "richobs.learners.betting.search.doubted",
        lambda search, candidate, claim, judge=None: waits if claim.by == "one survivor" else None,
    )
    search, claim = one_function(limit=20)
    assert (claim.by, claim.doubt) == ("doubted", "a claim waits")
    assert search.upper == pytest.approx(0.75, abs=1e-5)

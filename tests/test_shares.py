"""Delta as a type: what is spent twice, split too far, or claimed without having been spent cannot be written."""

import math

import pytest

import richobs
from richobs.core.errors import Overspent
from richobs.core.ledger import Ledger
from richobs.core.policies import OpenLoop
from richobs.core.queries import Query
from richobs.engines import StreamEngine
from richobs.stats.shares import SERIES, SQUARES, Series, Share, Squares, Supposed
from richobs_lab.certified.seals import Sealed
from richobs_lab.certified.verification import Looks


def test_a_share_is_spent_once():
    share = Share(0.05)
    assert share.spend() == 0.05
    with pytest.raises(Overspent, match=r"Share\(0\.05, spent\) cannot be spent again"):
        share.spend()
    with pytest.raises(Overspent, match="has no parts to hand out"):
        share.part(0.01)


def test_parts_never_hold_more_than_the_whole():
    share = Share(0.1)
    one, two = share.split(0.25, 0.5)
    assert (one.amount, two.amount) == (0.025, 0.05)
    said = r"a part of 0\.03 was asked of Share\(0\.1, 2 parts\), of which 0\.025 is left"
    with pytest.raises(Overspent, match=said):
        share.part(0.03)
    assert share.part(0.025).amount == 0.025
    with pytest.raises(Overspent, match="cannot be spent again"):
        share.spend()


def test_a_whole_is_a_probability_and_a_part_is_more_than_nothing():
    for amount in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(Overspent, match="strictly between 0 and 1"):
            Share(amount)
        with pytest.raises(Overspent, match="was asked of"):
            Share(0.1).part(amount)


class TestClaims:
    def test_they_are_written_on_what_was_spent_in_order(self):
        whole = Share(0.1)
        one, two = whole.split(0.5, 0.5)
        half, other = two.split(0.8, 0.2)
        for share in (one, half, other):
            share.spend()
        two.claim("second", (0, 1), 20, 0.7)
        one.claim("first", (), 10, 0.3)
        spent = [("second", (0, 1), 20, 0.05, 0.7), ("first", (), 10, 0.05, 0.3)]
        assert [(c.kind, c.path, c.n, c.share, c.value) for c in whole.claims()] == spent

    def test_nothing_spent_nothing_claimed(self):
        with pytest.raises(Overspent, match="of which nothing was spent"):
            Share(0.1).claim("something", (), 1, 0.0)

    def test_no_share_carries_two_claims(self):
        whole = Share(0.1)
        part, rest = whole.split(0.5, 0.5)
        part.spend()
        rest.spend()
        part.claim("one", (), 1, 0.0)
        for share in (part, whole):
            with pytest.raises(Overspent, match="two claims were written"):
                share.claim("another", (), 1, 0.0)

    def test_what_was_spent_in_silence_is_found(self):
        whole = Share(0.1)
        part, rest = whole.split(0.5, 0.5)
        part.spend()
        part.claim("one", (), 1, 0.0)
        rest.spend()
        with pytest.raises(Overspent, match=r"Share\(0\.05, spent\) was spent, and no claim says on what"):
            whole.claims()


class TestSeries:
    def test_shares_sum_to_at_most_the_whole_and_waste_little(self):
        series = Series(Share(0.05))
        spent = math.fsum(series._amount(j) for j in range(1, 200_001))
        tail = 0.05 / SERIES / math.log(200_001)  # integral of 1/(x log^2 x)
        assert spent + tail <= 0.05 * (1 + 1e-4)
        assert spent + tail > 0.0499

    def test_squares_sum_to_at_most_the_whole_and_waste_little(self):
        squares = Squares(Share(0.05))
        spent = math.fsum(squares._amount(j) for j in range(1, 1001))
        assert 0.05 * (1 - 1e-5) < spent + 0.05 / SQUARES / 1001 <= 0.05  # 1/(j + 1/2)^2 is at most 1/j - 1/(j + 1)
        assert spent + 0.05 / SQUARES / 1001 == pytest.approx(0.05 * (math.pi**2 / 2 - 4) / SQUARES, rel=1e-8)
        assert Squares(Share(0.1)).next().amount == pytest.approx(0.1 / 2.1033225)

    def test_the_first_by_hand(self):
        """delta / (2.1098 * 2 log(2)^2) = 0.1 / 2.02731."""
        assert Series(Share(0.1)).next().amount == pytest.approx(0.0493263, rel=1e-4)

    def test_what_is_supposed_is_what_comes(self):
        series = Series(Share(0.1))
        ahead = series.suppose(2).spend()
        assert series.suppose(2).spend() == ahead  # nothing is spent by asking
        amounts = [series.next().amount for _ in range(3)]
        assert amounts[2] == ahead
        assert amounts == sorted(amounts, reverse=True)

    def test_looks_sum_to_the_whole(self):
        looks = Looks(Share(0.1))
        assert looks.suppose().amount == 0.05
        assert [looks.next().amount for _ in range(3)] == pytest.approx([0.05, 0.025, 0.0125])
        assert looks.suppose().amount == 0.1 / 16
        assert math.fsum(looks.next().amount for _ in range(100)) <= 0.1 / 8


def test_what_is_supposed_can_be_asked_again_and_claims_nothing():
    supposed = Supposed(0.01)
    assert (supposed.spend(), supposed.spend()) == (0.01, 0.01)
    assert not hasattr(supposed, "claim")


def test_a_sealed_batch_is_drawn_when_it_is_opened_and_opens_once():
    problem = richobs.make("lock/3")
    engine = StreamEngine(problem.env, problem.functions, seed=0, ledger=Ledger())
    batch = Sealed(Query.rollout(OpenLoop((0, 1, 2)), 10, purpose="batch"))
    assert engine.ledger.total == 0  # nothing exists that a choice could look at
    opened = batch.open(engine, ("reference", 7))
    assert opened.fixed == ("reference", 7)
    assert opened.answer.n == engine.ledger.total == 10
    with pytest.raises(Overspent, match="opens once"):
        batch.open(engine, ("reference", 8))

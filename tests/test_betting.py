"""The betting search: every account against its least favourable law, the survivors against brute force, and whole runs."""

import contextlib
import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import richobs
import richobs.learners
from richobs.classes import Decoders, Layered, Listed, TableLevel
from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise, EpisodeLimit, InvalidInput
from richobs.core.events import nobody
from richobs.core.ledger import Ledger
from richobs.core.outcome import LOWER, UPPER, StopReason
from richobs.core.problem import Problem
from richobs.core.process import Rewards, TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.core.settings import Settings
from richobs.engines import StreamEngine
from richobs.learners import learner
from richobs.learners.betting import Betting, Tuning
from richobs.learners.betting import values as betting_values
from richobs.learners.betting.candidate import Accounts, Candidate, Followed, IdleExploration, followed, lost_sums
from richobs.learners.betting.certify import SHARES, Roots, best_interval, closed
from richobs.learners.betting.certify import outcome as outcome_of
from richobs.learners.betting.learner import AGREED, least_by_agreement
from richobs.learners.betting.search import BettingSearch, _choose, _play
from richobs.learners.betting.search import run as run_search
from richobs.learners.betting.survivors_listed import ListedSurvivors
from richobs.learners.betting.survivors_product import ProductSurvivors
from richobs.learners.betting.values import Ranges, Samples, best_and_gap, samples_of, taken_values, top_values
from richobs.runs.certificate import Certificate
from richobs.runs.session import run
from richobs.stats import bets
from richobs.stats.shares import SQUARES, Share, Supposed
from richobs.worlds.simulator import table_problem


def plain_ranges(horizon: int) -> Ranges:
    """Ranges of nonnegative rewards whose totals are at most 1."""
    return Ranges.plain(Layered([TableLevel(np.ones((1, 1, 1)))] * horizon))


PLAIN = plain_ranges(4)


def of_plain(kind, functions: Layered | Listed, share: Share):
    """Survivors or roots of a class whose rewards are nonnegative with totals of at most 1."""
    return kind(functions, share, Ranges.plain(functions))


F_VALUES = (0.0, 1e-12, 0.01, 0.3, 0.5, 0.97, 1.0)

CERTIFIED = {StopReason.CERTIFIED, StopReason.AGREEMENT, StopReason.ONE_SURVIVOR}  # all but spent episodes


class OfRows(TableLevel):
    """Tables that tell members apart themselves; `group` changes which row each member has."""

    def __init__(self, tables: Any, group: Any):
        super().__init__(tables)
        self.group = group

    def rows(self, x: Any, members: Any, actions: Any = None, /) -> Any:
        values = self.values(x, members)
        taken = values.max(axis=2) if actions is None else values[:, np.arange(len(x)), actions]
        rows, group = np.unique(taken, axis=0, return_inverse=True)
        return rows, self.group(group.ravel())


def as_bytes(group: NDArray[Any]) -> NDArray[np.uint8]:
    return group.astype(np.uint8)


class TestBets:
    def test_the_limit_covers_all_money_that_is_ever_put_in(self) -> None:
        assert [bets.money(t) for t in (1, 2, 10)] == pytest.approx([0.5, 1 / 13.2, 1 / 330])
        total = math.fsum(bets.money(t) for t in range(1, 100_001))
        assert total + 1 / (3.3 * 100_000) < 0.7 <= bets.refutation(Share(0.04)) * 0.04

    def test_an_account_dies_at_one_over_its_share(self) -> None:
        share = Share(0.04)
        assert bets.death(share) == pytest.approx(25.0, rel=1e-5)
        assert bets.death(Supposed(0.04)) > 25.0

    @pytest.mark.parametrize(
        ("forecast", "variance", "f", "stake"),
        [
            (0.5, 0.25, 0.0, 25.0),  # g d / (s^2 + g d) of the floored limit 1 / 0.02
            (0.6, 0.24, 0.5, 0.4),  # 0.06 / 0.3 of 1 / f: Kelly's bet on a coin, d / (f (1 - f))
            (0.25, 0.05, 0.5, -1.5789474),  # 0.1875 / 0.2375 of -1 / (1 - f)
            (0.0, 0.0, 0.5, -1.8),  # CAP of -1 / (1 - f)
            (1.0, 0.0, 0.9, 1.0),  # CAP of 1 / f
            (0.01, 0.0, 0.0, 45.0),  # CAP of the floored limit
            (0.99, 0.0, 1.0, -45.0),
        ],
    )
    def test_stakes(self, forecast: float, variance: float, f: float, stake: float) -> None:
        found = bets.stakes(np.array([forecast]), np.array([variance]), np.array([f]))
        assert found == pytest.approx([stake])

    def test_no_bet_has_an_edge_against_its_own_mean_and_none_can_lose_all(self) -> None:
        # Of all laws on [0, 1] with mean f, the one on {0, 1} moves a bet most.
        for f, forecast, variance in itertools.product(F_VALUES, (0.0, 0.02, 0.5, 1.0), (1e-8, 0.01, 0.25)):
            mean = np.array([f])
            stake = bets.stakes(np.array([forecast]), np.array([variance]), mean)
            lost, won = (math.exp(bets.log_factors(stake, np.array([y]), mean)[0]) for y in (0.0, 1.0))
            assert min(lost, won) >= 1 - bets.CAP - 1e-6
            assert (1 - f) * lost + f * won <= 1 - 1e-10 * abs(stake[0])  # ZETA is taken off
            assert 1 - 2e-5 < (1 - f) * lost + f * won <= 1 + 1e-12  # rounding is paid for

    @pytest.mark.parametrize("tolerance", [0.0, 0.05])
    @pytest.mark.parametrize("again", [False, True])
    @pytest.mark.parametrize("values", [2, 40])
    def test_growth_is_the_sum_of_logarithms_of_factors(
        self, values: int, again: bool, tolerance: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also where samples come again, alone or with the same outcome."""
        monkeypatch.setattr(bets, "FEW_BETS", 0)  # a few bets would be computed one by one
        rng = np.random.default_rng(values)
        f = rng.integers(values, size=(7, 11)) / (values - 1)
        y, forecast, variance = rng.random((5, 11)), rng.random((5, 11)), rng.random((5, 11)) / 4
        if again:
            bet, outcome = [0, 1, 1, 0, 1, 2, 1, 1, 2, 3, 1], [0, 1, 2, 0, 2, 3, 2, 2, 4, 5, 6]
            f, forecast, variance, y = f[:, bet], forecast[:, bet], variance[:, bet], y[:, outcome]
            alike = bets._alike(np.concatenate([f, forecast, variance]), y)
            assert sorted(sorted(count for _, count in group) for group in alike) == [[1], [1, 1], [1, 1, 4], [2]]
        found = bets.growth(f, y, forecast, variance, tolerance)
        for r, c in itertools.product(range(7), range(5)):
            stake = bets.stakes(forecast[c], variance[c], f[r], tolerance)
            assert found[r, c] == pytest.approx(bets.log_factors(stake, y[c], f[r], tolerance).sum(), abs=1e-9)

    def test_money_comes_before_the_bets_of_its_batch(self) -> None:
        wealth = bets.grown(np.array([0.0, 3.0]), np.log(np.array([2.0, 0.5])), 1)
        assert wealth == pytest.approx([1.0, 1.75])


class TestAverages:
    def test_bets_of_both_signs_reach_down_to_the_smallest(self) -> None:
        assert bets.average_bets(0.1).tolist() == [0.5, 0.25, 0.125, 0.0625, -0.5, -0.25, -0.125, -0.0625]

    def test_no_bet_has_an_edge_where_the_mean_error_is_0(self) -> None:
        for up in (0.1, 0.5, 1.0):  # errors of 1 - up and -up
            constant = bets.average_bets(0.01)
            won = np.exp(bets.average_growth(np.array([1 - up]), constant))
            lost = np.exp(bets.average_growth(np.array([-up]), constant))
            mean = up * won + (1 - up) * lost
            assert (mean <= 1 - 1e-12).all()
            assert mean == pytest.approx(np.ones(len(constant)), abs=1e-6)

    def test_a_mixture_is_a_mean_of_wealth(self) -> None:
        assert bets.mixed(np.log([[1.0, 3.0]])) == pytest.approx([math.log(2.0)])


class TestAgreement:
    BETS = bets.Agreement.of(0.1, 0.5, 5)

    def test_it_holds_what_the_page_says(self) -> None:
        assert self.BETS.weights.sum() == pytest.approx(1.0)
        assert self.BETS.theta[::5] == pytest.approx([0.1 / 20, 0.1 / (4 * math.sqrt(5)), 0.1 / 4])
        assert self.BETS.gaps == pytest.approx(5 * self.BETS.theta)
        assert self.BETS.gaps[0] == pytest.approx(0.025)
        assert (self.BETS.epsilon, self.BETS.jump) == (0.1, 0.5)
        assert self.BETS.bets[0] == pytest.approx(0.95 / (0.525 - 0.1))
        top = self.BETS.gaps + self.BETS.jump
        assert (self.BETS.bets * (top - 0.1) <= 0.95 + 1e-12).all()

    def test_the_bound_is_below_the_wealth_of_every_sequence_of_losses(self) -> None:
        rng = np.random.default_rng(0)
        for _ in range(300):
            n = int(rng.integers(1, 60))
            share = rng.random((2, len(self.BETS.bets), n)) ** rng.choice([0.2, 1, 8])
            gaps, jumps = share[0] * self.BETS.gaps[:, None], share[1] * self.BETS.jump
            jumps *= rng.random(n) < rng.random()
            taken = self.BETS.per_gap * gaps.sum(axis=1) + self.BETS.per_jump * jumps.sum(axis=1)
            factors = 1 + self.BETS.bets[:, None] * (0.1 - gaps - jumps)
            exact = math.log(self.BETS.weights @ factors.prod(axis=1))
            assert self.BETS.log_wealth(n, taken) <= exact + 1e-9

    def test_the_bound_is_exact_where_losses_are_0_or_the_largest(self) -> None:
        n, lost = 40, 3
        gaps, jumps = lost * self.BETS.gaps, lost * self.BETS.jump
        factors = (1 + self.BETS.bets * 0.1) ** (n - lost) * (1 + self.BETS.bets * (0.1 - self.BETS.gaps - 0.5)) ** lost
        taken = self.BETS.per_gap * gaps + self.BETS.per_jump * jumps
        assert self.BETS.log_wealth(n, taken) == pytest.approx(math.log(self.BETS.weights @ factors))


class TestBoundsOnMeans:
    def test_it_is_the_largest_mean_that_the_mixture_refutes(self) -> None:
        returns, smallest, threshold = np.array([0.0, 1.0, 1.0, 0.5] * 25), 0.0125, 20.0
        found = bets.lower_bound_of_mean(returns, smallest, threshold)

        def wealth(m: float) -> float:
            every = smallest * 2.0 ** np.arange(13)
            return math.fsum(np.prod(1 + bet * (returns - m)) for bet in every if bet <= 0.9 / m) / 13

        assert wealth(found) >= threshold * (1 - 1e-6) > wealth(found + 1e-6)

    def test_an_upper_bound_uses_range_and_variance(self) -> None:
        one = np.ones(1)
        narrow = bets.upper_bound_of_mean(0.5 * one, 0 * one, 1000, 0 * one, 1 * one, Supposed(0.05))[0]
        assert narrow == pytest.approx(0.5 + 7 * math.log(80) / (3 * 999))
        assert bets.upper_bound_of_mean(0.5 * one, 0 * one, 1000, 0 * one, 0.5 * one, Supposed(0.05))[0] == 0.5
        wide = bets.upper_bound_of_mean(0.5 * one, 0.01 * one, 1000, 0 * one, 1 * one, Supposed(0.05))[0]
        assert wide == pytest.approx(0.5 + math.sqrt(0.02 * math.log(80) / 999) + 7 * math.log(80) / (3 * 999))


# What members say about what was played.


def some_space(levels: list[TableLevel], share: float, is_product: bool) -> ProductSurvivors | ListedSurvivors:
    kind, functions = (ProductSurvivors, Layered(levels)) if is_product else (ListedSurvivors, Listed(levels))
    return of_plain(kind, functions, Share(share))


class TestReading:
    def test_steps_of_episodes_that_end_early(self) -> None:
        played = Episodes(
            [np.array([0, 1]), np.array([2, 3])],
            [np.array([0, 1]), np.array([1, 0])],
            [np.array([0.2, 0.3]), np.array([0.4, 0.0])],
            [np.array([False, False]), np.array([False, True])],
        )
        first, last = samples_of(played)
        assert first.goes_on.tolist() == [True, False]
        assert (last.x.tolist(), last.before.tolist(), last.rewards.tolist()) == ([2], [0.2], [0.4])
        assert last.goes_on.tolist() == [False]


def some_coins(n: int) -> list[Samples]:
    """One level, one observation: every other episode pays 1."""
    zero = np.zeros(n, dtype=np.int64)
    return samples_of(Episodes([zero], [zero], [np.arange(n) % 2.0]))


def by_hand(batches: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, float]:
    """Returns `[n]` the forecast of the last batch's y and its variance, from values `[N, n]` and y `[n]` of all batches."""
    constants = np.linspace(0, 1, 9)
    loss, missed, seen = np.zeros(len(batches[0][0]) + 9), np.zeros(2), 0
    for f, y in batches:
        everybody = np.concatenate([f, np.repeat(constants[:, None], f.shape[1], axis=1)])
        s = (np.array([0.25, 0.01]) + missed) / (1 + seen)
        weights = np.exp(-(loss - loss.min()) / (2 * s[:, None]))
        forecast = weights @ everybody / weights.sum(axis=1, keepdims=True)  # [2, n]
        k = int(missed.argmin())
        answer = forecast[k], float(s[k])
        loss += ((everybody - y) ** 2).sum(axis=1)
        missed += ((forecast - y) ** 2).sum(axis=1)
        seen += len(y)
    return answer


class TestSurvivors:
    def test_wealth_is_that_of_the_definition_for_every_pair_whoever_shares_its_row(self) -> None:
        rng = np.random.default_rng(2)
        levels = [rng.integers(2, size=(6, 2, 2)) / 4 for _ in range(2)]  # few values: members are alike on a batch
        space = of_plain(ProductSurvivors, Layered([TableLevel(t) for t in levels]), Share(1e-9))
        f_seen, y_seen = [], []  # per batch [6, n] and [6, n]
        for t in (1, 2, 3):
            x, a = rng.integers(2, size=(2, 3)), rng.integers(2, size=(2, 3))
            rewards = rng.random((2, 3)) / 4
            space.absorb(samples_of(Episodes(list(x), list(a), list(rewards))), t)
            f_seen.append(levels[0][:, x[0], a[0]])
            y_seen.append(rewards[0] + levels[1].max(axis=2)[:, x[1]])
        pairs = space._pairs[0]
        assert len(pairs.held.alive) < 6  # some share a row
        for j in range(6):
            wealth = np.zeros(6)
            for t in (1, 2, 3):
                past = [(f_seen[i], y_seen[i][j]) for i in range(t)]
                forecast, variance = by_hand(past)
                f, y = past[-1]
                stake = bets.stakes(forecast[None], np.array(variance), f)
                wealth = (wealth + bets.money(t)) * np.exp(bets.log_factors(stake, y, f).sum(axis=1))
            np.testing.assert_allclose(pairs.held.wealth[pairs.rows.of, pairs.columns.of[j]], wealth, rtol=1e-9)

    @pytest.mark.parametrize(("seed", "kept"), [(4, 0.6), (28, 0.5), (15, 0.4)])
    def test_survivors_are_the_chains_through_living_pairs(self, seed: int, kept: float) -> None:
        rng = np.random.default_rng(seed)
        functions = Layered([TableLevel(rng.random((5, 3, 2)) / 2) for _ in range(3)])
        space = of_plain(ProductSurvivors, functions, Share(1e-9))
        for t in range(1, 4):
            x = [rng.integers(3, size=6) for _ in range(3)]
            played = Episodes(x, [rng.integers(2, size=6) for _ in range(3)], [rng.random(6) / 6 for _ in range(3)])
            space.absorb(samples_of(played), t)
        pairs = space._pairs
        for p in pairs:  # more deaths than bets brought
            p.held.alive &= rng.random(p.held.alive.shape) < kept
        members = [space.living(h).copy() for h in range(3)]
        alive = [p.held.alive[p.rows.of][:, p.columns.of] for p in pairs]
        chains = [
            c
            for c in itertools.product(*(range(len(m)) for m in members))
            if alive[0][c[0], c[1]] and alive[1][c[1], c[2]] and alive[2][c[2], 0]
        ]
        space.settle()
        for h in range(3):
            assert space.living(h).tolist() == sorted({int(members[h][c[h]]) for c in chains})
        assert space.log_size == pytest.approx(math.log(len(chains)))
        inside = {tuple(int(members[h][c[h]]) for h in range(3)) for c in chains}
        for c in itertools.product(range(5), repeat=3):
            assert (c in space) == (c in inside)
        assert space.least_wealth() == pytest.approx(min(math.exp(max(space.log_wealth(c))) for c in inside))

    def test_of_members_that_share_a_column_the_one_counts_that_bets_won_least_against(self) -> None:
        """Both promise 0.5, so the level before cannot tell them apart; action 1 pays 0.4, and the second said 0.1."""
        functions = Layered([TableLevel([[[0.5, 0.5]]]), TableLevel([[[0.5, 0.4]], [[0.5, 0.1]]])])
        space = of_plain(ProductSurvivors, functions, Share(1e-9))
        for t in (1, 2, 3):
            x, actions = [np.zeros(6, dtype=np.int64)] * 2, [np.ones(6, dtype=np.int64)] * 2
            space.absorb(samples_of(Episodes(x, actions, [np.zeros(6), np.full(6, 0.4)])), t)
        assert space._pairs[0].columns.count == 1
        right, wrong = (math.exp(max(space.log_wealth((0, k)))) for k in (0, 1))
        assert wrong > 2 * right
        assert space.least_wealth() == pytest.approx(right)

    def test_draws_follow_the_weights_and_the_best_is_the_best(self) -> None:
        rng = np.random.default_rng(6)
        functions = Layered([TableLevel(rng.random((3, 2, 2))) for _ in range(2)])
        space = of_plain(ProductSurvivors, functions, Share(1e-9))
        x = [rng.integers(2, size=3) for _ in range(2)]
        space.absorb(samples_of(Episodes(x, [np.zeros(3, dtype=np.int64)] * 2, [np.full(3, 0.1)] * 2)), 1)
        first = np.array([True, False, True])[: len(space.living(0))]
        logs = [p.weights().logs[p.rows.of][:, p.columns.of] for p in space._pairs]
        weights = {
            (int(space.living(0)[i]), int(space.living(1)[j])): math.exp(logs[0][i, j] + logs[1][j, 0])
            for i in np.flatnonzero(first)
            for j in range(len(space.living(1)))
            if logs[0][i, j] > -np.inf
        }
        fit, total, draws = space.fit(first), sum(weights.values()), 1500
        counted = dict.fromkeys(weights, 0)
        for i in range(draws):
            counted[fit.draw(keyed_generator(i, "test"))] += 1
        for chain, weight in weights.items():
            assert counted[chain] / draws == pytest.approx(weight / total, abs=5 * math.sqrt(0.25 / draws))
            assert fit.behind(chain) == pytest.approx(math.log(max(weights.values()) / weight), abs=1e-9)

    @pytest.mark.parametrize("is_product", [True, False])
    def test_a_value_above_what_can_still_be_earned_is_refuted_at_no_cost(self, is_product: bool) -> None:
        """A reward of 0.6 came two levels before: 0.9 cannot be earned any more, and 0.4 can."""
        levels = [TableLevel([[[1.0]], [[1.0]]]), TableLevel([[[0.4]], [[0.4]]]), TableLevel([[[0.9]], [[0.4]]])]
        space = some_space(levels, 1e-12, is_product)
        zero, rewards = np.zeros(1, dtype=np.int64), [np.array([0.6]), np.zeros(1), np.array([0.4])]
        space.absorb(samples_of(Episodes([zero] * 3, [zero] * 3, rewards)), 1)
        assert space.living(2).tolist() == [1]

    @pytest.mark.parametrize("is_product", [True, False])
    def test_rounding_refutes_no_value_that_can_just_be_earned(self, is_product: bool) -> None:
        """After a reward of 0.6 values up to 0.4 can be earned, and 10^-6 more is allowed for rounding."""
        levels = [TableLevel([[[1.0]]] * 3), TableLevel([[[0.4 + 9e-7]], [[0.4 + 2e-6]], [[0.4]]])]
        space = some_space(levels, 1e-12, is_product)
        zero = np.zeros(1, dtype=np.int64)
        space.absorb(samples_of(Episodes([zero, zero], [zero, zero], [np.array([0.6]), np.array([0.4])])), 1)
        assert space.living(1).tolist() == [0, 2]

    def test_dead_pairs_stay_dead_however_well_they_fit_later(self) -> None:
        """The pair (0, 0) is refuted by averages; both of its members live on in other pairs."""
        levels = [TableLevel([[[0.5]], [[0.3]]]), TableLevel([[[0.5]], [[0.3]]])]
        space = of_plain(ProductSurvivors, Layered(levels), Share(1e-9))
        zero = np.zeros(2, dtype=np.int64)
        played = samples_of(Episodes([zero, zero], [zero, zero], [np.zeros(2), np.array([0.0, 1.0])]))
        space.absorb(played, 1)  # tells the members apart
        space.kill((0, 0), 0)
        for t in (2, 3, 4):
            assert (0, 0) not in space
            assert space.log_size == pytest.approx(math.log(3))
            space.absorb(played, t)
        assert (0, 1) in space
        assert (1, 0) in space
        held = space._pairs[0].held
        assert held.wealth[~held.alive].tolist() == [0.0]
        held.wealth[tuple(np.argwhere(held.alive)[0])] = 1e12  # another pair dies by its bets
        space.absorb(played, 5)
        assert space.log_size == pytest.approx(math.log(2))
        assert (0, 0) not in space

    def test_an_average_drops_a_listed_function(self) -> None:
        space = of_plain(ListedSurvivors, Listed([TableLevel([[[0.5]], [[0.4]], [[0.3]]])]), Share(0.01))
        space.absorb(some_coins(2), 1)
        before = [space.log_wealth(i) for i in (0, 1, 2)]
        assert len(set(before)) == 3
        space.kill(1, 0)
        assert space.living(0).tolist() == [0, 2]
        assert [space.log_wealth(i) for i in (0, 2)] == [before[0], before[2]]
        space.absorb(some_coins(2), 2)
        assert space.living(0).tolist() == [0, 2]
        space.kill(0, 0)
        assert space.only == 2

    def test_the_survivor_that_loses_most_is_found(self) -> None:
        """A product class adds the largest value of each level up; a listed one takes the largest sum of one function."""
        levels = [TableLevel([[[0.5]], [[0.4]], [[0.3]]])] * 2
        values = {1: np.array([[3.0, 1.0, 2.0]]), 0: np.array([[0.0, 4.0, 3.0]])}
        product, listed = (some_space(levels, 0.1, is_product).largest(values) for is_product in (True, False))
        assert product.total.tolist() == [7.0]
        assert ({h: p.tolist() for h, p in product.parts.items()}) == {0: [4.0], 1: [3.0]}
        assert ({h: m.tolist() for h, m in product.members.items()}) == {0: [1], 1: [0]}
        assert listed.total.tolist() == [5.0]
        assert [int(m[0]) for m in listed.members.values()] in ([1, 1], [2, 2])

    def test_an_exact_function_on_the_edge_of_its_range_survives(self) -> None:
        # r_0 = 0.3 and f_1 = 0.7 make f_0 = 1: bets near the edge are large, and rounding must not kill.
        levels = [TableLevel([[[1.0]], [[0.9]]]), TableLevel([[[0.7]], [[0.6]]])]
        for space in (some_space(levels, 0.05, True), some_space(levels, 0.05, False)):
            zero = np.zeros(8, dtype=np.int64)
            played = Episodes([zero, zero], [zero, zero], [np.full(8, 0.3), np.full(8, 0.7)])
            for t in range(1, 200):
                space.absorb(samples_of(played), t)
            assert space.only in ((0, 0), 0)


class TestRoots:
    def functions(self) -> Layered:
        return Layered([TableLevel([[[0.2], [0.9]], [[0.6], [0.5]]])])

    def test_looks_come_at_sizes_fixed_in_advance_whatever_the_batches(self) -> None:
        x = np.random.default_rng(0).integers(2, size=120)
        uppers = []
        for size in (1, 7, 120):
            share = Share(0.2)
            roots = of_plain(Roots, self.functions(), share)
            for first in range(0, 120, size):
                roots.absorb(x[first : first + size], np.arange(2))
            claims = share.claims()
            assert [(c.kind, c.n) for c in claims] == [(UPPER, 32), (UPPER, 48), (UPPER, 72), (UPPER, 108)]
            assert [c.share for c in claims] == pytest.approx([0.09509, 0.03423, 0.01747, 0.01057], abs=1e-5)
            uppers.append(roots.upper)
        np.testing.assert_allclose(uppers[0], uppers[1], rtol=1e-12)
        np.testing.assert_allclose(uppers[0], uppers[2], rtol=1e-12)

    def test_u_is_the_largest_bound_of_a_living_root_and_falls_to_its_mean(self) -> None:
        roots, members = of_plain(Roots, self.functions(), Share(0.2)), np.arange(2)
        assert roots.largest(members) == pytest.approx(0.9)
        roots.absorb(np.arange(5000) % 2, members)
        assert roots.promise(members) == pytest.approx([0.55, 0.55])
        assert 0.55 < roots.largest(members) < 0.58
        assert roots.largest(members) - roots.upper.max() == pytest.approx(2e-7)  # ZETA a level
        assert roots.largest(members[1:]) < roots.largest(members)

    def test_a_look_bounds_the_mean_by_range_and_variance_of_what_was_seen(self) -> None:
        """The 13th look comes at 4163 observations; values are 0.2 and 0.9, or 0.6 and 0.5, in turn."""
        roots, members = of_plain(Roots, self.functions(), Share(0.2)), np.arange(2)
        roots.absorb(np.arange(4163) % 2, members)
        share = Supposed(0.2 / (SQUARES * 13.5**2))
        ones, n = 2081, 4163
        mean = np.array([0.2 * (n - ones) + 0.9 * ones, 0.6 * (n - ones) + 0.5 * ones]) / n
        variance = np.array([0.49, 0.01]) * ones * (n - ones) / n**2
        expected = bets.upper_bound_of_mean(mean, variance, n, np.array([0.2, 0.5]), np.array([0.9, 0.6]), share)
        assert roots.upper == pytest.approx(expected, rel=1e-12)


# One candidate.


def table_policy(levels: list[list[list[float]]]) -> LearnedPolicy:
    return LearnedPolicy(Layered([TableLevel([level]) for level in levels]), (0,) * len(levels))


class TestPlaying:
    POLICY = table_policy([[[0.5, 0.7], [0.0, 0.0]], [[0.3, 0.2], [0.0, 0.0]]])

    def test_random_actions_come_only_where_nothing_is_promised(self) -> None:
        x = np.array([0, 1] * 500)
        explorer, rng = IdleExploration(self.POLICY, np.full(2, 0.01), 2), np.random.default_rng(0)
        actions = explorer.actions(0, x, rng)
        assert (actions[x == 0] == 1).all()
        assert 200 < actions[x == 1].sum() < 300
        never = IdleExploration(self.POLICY, np.full(2, -1.0), 2).actions(0, x, rng)
        np.testing.assert_array_equal(never, self.POLICY.actions(0, x))

    def test_an_episode_serves_claims_up_to_its_first_other_action(self) -> None:
        played = Episodes(
            [np.array([0, 1, 1]), np.array([0, 0, 0])],
            [np.array([1, 1, 0]), np.array([0, 0, 0])],  # the second one differs at level 0
            [np.array([0.1, 0.2, 0.0]), np.array([0.5, 0.6, 0.7])],
        )
        (first, last), earned = followed(played, self.POLICY, PLAIN)
        assert first.actions.tolist() == [1, -1, 0]
        assert first.errors == pytest.approx([0.1 + 0.3 - 0.7, 0.3 - 0.0])
        assert (last.x.tolist(), last.actions.tolist()) == ([0, 0], [0, 0])
        assert earned == pytest.approx([0.6, 0.0, 0.7])

    def test_nothing_is_expected_after_an_early_end(self) -> None:
        """The second episode ends after level 0: its y there is its reward, and level 1 has one episode."""
        over = [np.zeros(2, dtype=bool), np.array([False, True])]
        zero = np.zeros(2, dtype=np.int64)
        played = Episodes([zero, zero], [zero + 1, zero], [np.array([0.1, 0.2]), np.array([0.3, 0.0])], over)
        (first, last), earned = followed(played, self.POLICY, PLAIN)
        assert first.errors == pytest.approx([0.1 + 0.3 - 0.7, 0.2 - 0.7])
        assert last.errors == pytest.approx([0.0])
        assert earned == pytest.approx([0.4, 0.2])

    def test_it_is_what_a_loop_over_episodes_and_levels_says(self) -> None:
        rng, H = np.random.default_rng(5), 4
        policy = LearnedPolicy(Layered([TableLevel(rng.random((1, 3, 2))) for _ in range(H)]), (0,) * H)
        ranges = replace(plain_ranges(H), low=np.array([0.0, -1.0, -0.5, 0.0]), width=np.array([1.0, 3.0, 2.0, 1.0]))
        ranges = replace(ranges, rest=np.array([-0.3, -0.2, -0.1, 0.0]))
        for _ in range(20):
            ends = rng.integers(1, H + 1, size=9)
            over = [ends <= h for h in range(H)]
            x, a = rng.integers(3, size=(H, 9)), rng.integers(2, size=(H, 9))
            played = Episodes(list(x), list(a), list(np.where(over, 0.0, rng.normal(size=(H, 9)))), over)
            levels, earned = followed(played, policy, ranges)
            trail: list[list[tuple[int, int, float | None]]] = [[] for _ in range(H)]
            for i in range(9):
                total = 0.0
                for h in range(ends[i]):
                    f, action = policy.f.values(h, x[h, i : i + 1])[0], a[h, i]
                    if f.argmax() != action:
                        trail[h].append((x[h, i], -1, None))
                        total += ranges.rest[h]
                        break
                    y = played.rewards[h][i]
                    total += y
                    if h + 1 < ends[i]:
                        y = y + policy.f.values(h + 1, x[h + 1, i : i + 1]).max()
                    low, width = ranges.low[h], ranges.width[h]
                    error = np.clip((y - low) / width, 0, 1) - np.clip((f[action] - low) / width, 0, 1)
                    trail[h].append((x[h, i], action, error))
                assert earned[i] == total
            for level, steps in zip(levels, trail, strict=True):
                assert level.x.tolist() == [step[0] for step in steps]
                assert level.actions.tolist() == [step[1] for step in steps]
                assert level.errors.tolist() == [step[2] for step in steps if step[2] is not None]

    def test_a_stop_loses_what_could_be_earned_beyond_the_least(self) -> None:
        functions = Layered([TableLevel(np.array([[[0.5, 0.1]], [[0.2, 0.7]]]), value_range=(-1.0, 1.0))])
        trail = [[Followed(np.array([0]), np.array([0]), np.zeros(1))]]
        gaps, jumps = lost_sums(functions, 0, np.arange(2), trail, np.array([0.01]), -0.25)
        assert (gaps.tolist(), jumps.tolist()) == ([[0.0, 0.0]], [[0.0, 0.95]])

    def test_values_that_differ_by_rounding_are_ties_for_what_is_played_and_what_is_claimed(self) -> None:
        policy = table_policy([[[0.5, 0.5 + 1e-14]]])
        zero, rng = np.zeros(1, dtype=np.int64), np.random.default_rng(0)
        assert policy.actions(0, zero).tolist() == [0]
        assert IdleExploration(policy, np.full(2, 0.01), 2).actions(0, zero, rng).tolist() == [0]
        for action, follows in ((0, True), (1, False)):
            (level,), earned = followed(Episodes([zero], [zero + action], [np.ones(1)]), policy, PLAIN)
            assert (level.actions.tolist(), earned.tolist()) == ([0 if follows else -1], [float(follows)])

    def test_what_members_contribute_to_the_loss(self) -> None:
        # Members: one agrees, one prefers the other action by 0.02, one by 0.4.
        functions = Layered([TableLevel([[[0.5, 0.1]], [[0.5, 0.52]], [[0.3, 0.7]]])])
        trail = [[Followed(np.array([0, 0, 0]), np.array([0, 0, -1]), np.zeros(2))]]
        gaps, jumps = lost_sums(functions, 0, np.arange(3), trail, np.array([0.01, 0.1]), 0.0)
        np.testing.assert_allclose(gaps, [[0, 0, 0], [0, 0.04, 0]], atol=1e-12)
        np.testing.assert_allclose(jumps, [[0.5, 3 * 0.52, 2.1], [0.5, 0.52, 2.1]])

    def test_a_row_that_no_member_has_is_left_out(self) -> None:
        class Padded(TableLevel):
            def rows(self, x: Any, members: Any, actions: Any = None, /) -> Any:
                values = self.values(x, members)
                rows = values.max(axis=2) if actions is None else values[:, np.arange(len(x)), actions]
                return np.concatenate([rows[:1] / 2, rows]), 1 + np.arange(len(members))

        functions = Layered([Padded([[[0.5, 0.1]], [[0.5, 0.6]], [[0.3, 0.7]]])])
        x, members = np.zeros(2, dtype=np.int64), np.arange(3)
        for found, expected in (
            (top_values(functions, 0, members, x), [0.5, 0.6, 0.7]),
            (taken_values(functions, 0, members, x, np.ones(2, dtype=np.int64)), [0.1, 0.6, 0.7]),
        ):
            assert len(found.values) == len(set(found.group.tolist())) == 3
            np.testing.assert_array_equal(found.values[found.group], np.repeat(expected, 2).reshape(3, 2))

    def test_rows_may_be_numbered_by_small_integers(self) -> None:
        """Products of bytes would overflow, and members that were told apart would share a row."""
        T = np.round(np.random.default_rng(0).random((150, 4, 2)) * 8) / 8
        space = of_plain(ProductSurvivors, Layered([OfRows(T, as_bytes)]), Share(1e-200))
        x, actions = (np.random.default_rng(1).integers(m, size=(4, 3)) for m in (4, 2))
        for t in range(4):
            space.absorb(samples_of(Episodes([x[t]], [actions[t]], [np.zeros(3)])), t + 1)
        told_apart = np.unique(T[:, x.ravel(), actions.ravel()], axis=0)
        assert space._pairs[0].rows.count == len(told_apart)

    @pytest.mark.parametrize("group", [lambda rows: rows[:-1], lambda rows: rows - 1, lambda rows: rows + 1])
    def test_rows_must_say_which_each_member_has(self, group: Any) -> None:
        functions = Layered([OfRows(np.random.default_rng(0).random((5, 2, 2)), group)])
        with pytest.raises(InvalidInput, match="must say which of its 5 rows each of 5 members has"):
            top_values(functions, 0, np.arange(5), np.arange(2))

    def test_a_kind_that_no_member_has_is_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class AllKinds(TableLevel):
            def kinds(self, members: Any, action: int, /) -> Any:
                return np.arange(self.size), np.asarray(members)

            def rows(self, *given: Any) -> Any:
                return None

        monkeypatch.setattr(betting_values, "FEW_VALUES", 0)
        functions = Layered([AllKinds([[[0.5, 0.1]], [[0.4, 0.6]], [[0.3, 0.7]]])])
        members, x = np.array([0, 2]), np.zeros(2, dtype=np.int64)
        for found in (
            top_values(functions, 0, members, x),
            taken_values(functions, 0, members, x, np.zeros(2, dtype=np.int64)),
        ):
            assert sorted(found.group.tolist()) == [0, 1]
            assert len(found.values) == 2

    def test_gaps_of_decoders_are_those_of_their_values(self) -> None:
        functions = Layered([Decoders(4, [[0.5, 0.1, 0.0], [0.0, 0.25, 0.5]])])
        x, members = np.random.default_rng(0).integers(0, 2, (9, 4)).astype(float), np.arange(functions.level_size(0))
        for action in range(3):
            best, gap = best_and_gap(functions, 0, members, x, action)
            values = functions.values(0, x)
            np.testing.assert_array_equal(best, values.max(axis=2))
            np.testing.assert_array_equal(gap, values.max(axis=2) - values[:, :, action])

    def test_merging_equal_rows_changes_no_sum_and_keeps_memory_small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        functions = Layered([TableLevel(np.random.default_rng(0).random((3, 2, 2)))])
        monkeypatch.setattr("richobs.learners.betting.candidate.MERGED_FROM", 8)
        rng, kept = np.random.default_rng(1), []
        accounts = Accounts.opened(1, 0.1, plain_ranges(1), *Share(0.1).split(0.1, 0.2, 0.3))
        for _ in range(20):
            x, actions, returns = rng.integers(2, size=6), rng.integers(-1, 2, size=6), rng.integers(3, size=6) / 4
            kept.append((Followed(x, actions, rng.random(6) / 2), returns))
            accounts.add([kept[-1][0]], returns)
        assert accounts.kept <= 12  # two observations, three kinds of actions: six rows, and a batch
        members, thetas = np.arange(3), np.array([0.01, 0.2])
        whole = lost_sums(functions, 0, members, [[level] for level, _ in kept], thetas, 0.0)
        np.testing.assert_allclose(lost_sums(functions, 0, members, accounts.trail, thetas, 0.0), whole)
        earned = np.concatenate([returns for _, returns in kept])
        assert accounts.mean == pytest.approx(earned.mean())
        assert accounts.look(0.00625, PLAIN) == bets.lower_bound_of_mean(earned, 0.00625, accounts.interval_threshold)
        candidate = Candidate(1, (0,), LearnedPolicy(functions, (0,)), accounts=accounts)
        assert candidate.mean_error(0) == pytest.approx(np.concatenate([level.errors for level, _ in kept]).mean())

    def test_accounts_split_their_share_among_levels(self) -> None:
        shares = Share(0.1).split(0.1, 0.2, 0.3)
        accounts = Accounts.opened(1, 0.1, plain_ranges(4), *shares)
        assert accounts.average_limit == pytest.approx(4 / 0.01, rel=1e-5)
        assert accounts.average_wealth.shape == (4, 16)
        assert accounts.average_bets.min() == -0.5
        accounts.add([Followed(np.zeros(64), np.zeros(64, dtype=np.int64), np.zeros(64))] * 4, np.ones(64))
        assert accounts.look(0.00625, PLAIN) > 0.7
        assert accounts.interval_threshold == pytest.approx(50.0, rel=1e-5)


# Whole runs.


def learn(problem: Problem, **given: object) -> richobs.Outcome:
    return run(problem, Settings(learner="betting", **given))


def searched(
    problem: Problem, *, epsilon: float = 0.1, delta: float = 0.05, seed: int = 0, limit: int | None = None, **tuning
):
    engine = StreamEngine(problem.env, problem.functions, seed=seed, ledger=Ledger(limit))
    return BettingSearch(engine, problem.functions, epsilon, delta, seed, nobody, Tuning(**tuning))


def coin_problem(chances: list[float], tables: list[list[float]]) -> Problem:
    """One level and one observation: actions pay 1 with the given chances; the class lists tables."""
    rewards = (Rewards.bernoulli(np.array(chances)[None, None]),)
    process = TabularProcess(start=np.ones(1), transitions=(), emissions=(np.ones((1, 1)),), rewards=rewards)
    return table_problem(process, [np.array(tables)[:, None]], (tables.index(chances),))


MOST = {"lock/5,noise_bits=5": 250, "lock/3,swap=0.5,fail=0.1": 250, "random/4": 450, "mdp": 500, "disjoint": 500}


class TestRuns:
    @pytest.mark.parametrize(("world", "most"), MOST.items())
    def test_it_certifies_an_optimal_policy_in_a_few_hundred_episodes(self, world: str, most: int) -> None:
        doubted = 0  # random/4 with seed 1: bets against Q* stand just below their limit
        for seed in range(2):
            problem = richobs.make(f"{world},seed={seed}")
            outcome = learn(problem, seed=seed)
            doubted += outcome.reason is StopReason.DOUBTED
            assert outcome.reason in {*CERTIFIED, StopReason.DOUBTED}
            assert outcome.episodes <= most
            assert problem.optimal_value - problem.value(outcome.policy) <= 0.1
            assert outcome.upper >= problem.optimal_value
            assert outcome.lower <= problem.value(outcome.policy)
            assert outcome.epsilon == 0.1 or outcome.reason is StopReason.DOUBTED
        assert doubted <= (world == "random/4")

    def test_q_star_survives_and_the_claims_add_up_to_at_most_delta(self) -> None:
        problem = richobs.make("lock/4,noise_bits=4,seed=5")
        search = searched(problem)
        found = run_search(search)
        assert problem.optimal_function in search.survivors
        assert found.by == "agreement"
        outcome = learn(problem)
        assert sum(c.share for c in outcome.claims) <= 0.05
        kinds = {c.kind for c in outcome.claims}
        assert {LOWER, UPPER, AGREED, "bets never refute Q*"} <= kinds
        (bet,) = (c for c in outcome.claims if c.kind == "bets never refute Q*")
        assert bet.share == pytest.approx(SHARES["bets"] * 0.05)
        assert bet.value == pytest.approx(0.7 * 4 / bet.share, rel=1e-5)

    def test_a_batch_is_no_larger_than_agreement_needs(self) -> None:
        problem = richobs.make("lock/3")
        search = searched(problem, first=2, largest=64)
        candidate = search.candidate(problem.optimal_function)
        search.open_accounts(candidate)
        own, bet = candidate.accounts, search.agreement
        assert own is not None
        assert bet is not None
        needed = math.log(bets.death(Supposed(own.agreement.amount)))
        least = next(n for n in range(1, 999) if bet.log_wealth(n, np.zeros(len(bet.bets))) >= needed)
        search.tenure = 6
        for own.n, own.taken, size in (
            (0, None, least),
            (least - 5, None, 5),
            (least - 1, None, 2),  # never fewer than the first batch of a tenure
            (least, None, 64),  # agreement has enough, and waits for something else
            (least, 3 * bet.per_episode, 3),  # survivors took as much as three episodes bring
        ):
            assert search.next_size(candidate) == size

    def test_delta_is_split_as_the_page_says(self) -> None:
        first, second = {"bets": 0.345, "averages": 0.05, "interval": 0.12}, {"agreement": 0.35, "root": 0.125}
        assert {**first, **second, "reserve": 0.01} == SHARES
        assert sum(SHARES.values()) <= 1 + 1e-12
        search = searched(richobs.make("lock/3"), delta=0.1)
        assert search.refutations.amount == pytest.approx(0.0345)
        assert search.survivors.limit == pytest.approx(0.7 * 3 / 0.0345, rel=1e-5)
        assert search.reserve.amount == pytest.approx(0.001)
        problem = richobs.make("lock/3")
        candidates = [Candidate(i, (0, 0, i), LearnedPolicy(problem.functions, (0, 0, i))) for i in range(3)]
        for j, candidate in enumerate(candidates, 1):
            search.open_accounts(candidate)
            own, term = candidate.accounts, 1 / (SQUARES * (j + 0.5) ** 2)
            assert own is not None
            found = (own.number, own.averages.amount, own.interval.amount, own.agreement.amount)
            assert found == pytest.approx((j, 0.005 * term, 0.012 * term, 0.035 * term))
            assert own.average_limit == pytest.approx(3 / (0.005 * term), rel=1e-5)
        first = problem.env.play(richobs.OpenLoop((0, 0, 0)), 32, np.random.default_rng(0)).observations[0]
        search.roots.absorb(first, search.survivors.living(0))
        (claim,) = (c for c in search.share._book if c.kind == UPPER)
        assert claim.share == pytest.approx(0.0125 / (SQUARES * 1.5**2))

    def test_the_page_lists_the_shares(self) -> None:
        page = (Path(__file__).parent.parent / "docs" / "betting.md").read_text(encoding="utf-8")
        table = page.partition("| for | share of delta |")[2].partition("\n\n")[0]
        assert [float(row.rsplit("|", 2)[1]) for row in table.splitlines()[2:]] == list(SHARES.values())

    def test_what_agreement_refutes(self) -> None:
        """2 H zeta are taken off epsilon, and a stop loses at most the largest value of any level."""
        tables = [TableLevel([[[0.2, 0.1]]]), TableLevel([[[0.7, 0.3]], [[0.4, 0.1]]]), TableLevel([[[0.5, 0.3]]])]
        functions = Layered(tables)
        engine = StreamEngine(coin_problem([0.5], [[0.5]]).env, functions, seed=0, ledger=Ledger())
        bet = BettingSearch(engine, functions, 0.1, 0.05, 0, nobody, Tuning()).agreement
        assert bet.epsilon == pytest.approx(0.1 - 6 * 2e-7, abs=1e-12)
        assert bet.jump == 0.7
        assert bet.gaps == pytest.approx(3 * bet.theta)

    def test_a_search_of_all_kinds_of_problems_is_seldom_wrong(self) -> None:
        # delta 0.5: at most half may be wrong; about one in twenty is. 20 runs with more than 4 wrong would be a fault.
        wrong = 0
        for seed in range(20):
            rng = keyed_generator(seed, "test betting")
            moves = rng.dirichlet([0.5, 0.5], size=(2, 2))
            mean = rng.choice([0.02, 0.4, 0.6, 1.0], size=(2, 1, 2))
            process = TabularProcess.from_flat(2, [0.5, 0.5], moves, np.eye(2), Rewards.bernoulli(mean, 0.5))
            levels = [np.clip(q + rng.normal(0, 0.15, (6, *q.shape)), 0, 1) for q in process.q_tables]
            for level, q in zip(levels, process.q_tables, strict=True):
                level[0] = q
            problem = table_problem(process, levels, (0, 0))
            search = searched(problem, delta=0.5, seed=seed, limit=300)
            try:
                found = run_search(search)
            except BrokenPromise:
                wrong += 1
                continue
            value = process.value(LearnedPolicy(problem.functions, found.member))
            false = (0, 0) not in search.survivors or search.upper < process.optimum.value
            wrong += false or process.optimum.value - value > found.gap + 1e-9
        assert wrong <= 4

    def test_the_policy_played_is_the_policy_handed_out_ties_included(self) -> None:
        # All actions tie under the first function; the smallest action pays least, and the claim must know that.
        chances = [0.3] + [0.7] * 4
        problem = coin_problem(chances, [chances, [0.7] * 5])
        outcome = learn(problem, epsilon=0.2)
        assert problem.optimal_value - problem.value(outcome.policy) <= outcome.epsilon
        search = searched(problem, epsilon=0.2)
        run_search(search)
        for candidate in search.opened:
            assert candidate.accounts is not None
            greedy = candidate.policy.actions(0, np.zeros(1, dtype=np.int64))[0]
            taken = np.concatenate([batch[0].actions for batch in candidate.accounts.trail])
            assert set(taken.tolist()) == {greedy}

    def test_the_first_batch_of_a_candidate_enters_no_account(self) -> None:
        search = searched(richobs.make("random/3,seed=1"), first=4, largest=4)
        run_search(search)
        batches = sum(c.batches for c in search.candidates.values())
        assert batches == search.batches
        for candidate in search.candidates.values():
            if candidate.batches < 2:
                assert candidate.accounts is None
            else:
                assert candidate.accounts is not None
                assert len(candidate.accounts.trail) == candidate.batches - 1
                assert candidate.accounts.n == candidate.accounts.returns[1].sum()
        assert [c.accounts.number for c in search.opened] == list(range(1, len(search.opened) + 1))

    def test_episodes_that_run_out_leave_an_honest_interval(self) -> None:
        problem = richobs.make("lock/4,seed=2")
        outcome = learn(problem, max_episodes=30)
        assert outcome.reason is StopReason.EPISODES_SPENT
        assert outcome.episodes <= 30
        assert outcome.epsilon == pytest.approx(outcome.upper - outcome.lower)
        assert problem.optimal_value - problem.value(outcome.policy) <= outcome.epsilon
        with pytest.raises(EpisodeLimit):
            learn(problem, max_episodes=1)

    def test_bounds_that_contradict_each_other_are_a_broken_promise_not_a_certificate(self) -> None:
        problem = coin_problem([0.5, 0.2], [[0.5, 0.2], [0.5, 0.9]])
        search = searched(problem, limit=200)
        found = run_search(search)
        for candidate in search.opened:
            assert candidate.accounts is not None
            candidate.accounts.lower = 0.95
        with pytest.raises(BrokenPromise, match=r"at least 0\.95, but no surviving function promises more than 0\.5"):
            closed(search, search.opened[0])
        with pytest.raises(BrokenPromise, match=r"at least 0\.95"):
            outcome_of(search, found)
        with pytest.raises(BrokenPromise, match=r"at least 0\.95"):
            best_interval(search, search.opened[0])

    def test_a_certificate_is_derived_again_and_a_changed_one_is_noticed(self) -> None:
        problem = richobs.make("lock/4,seed=3")
        settings = Settings(learner="betting", seed=1)
        content = Certificate.of(run(problem, settings), problem).content
        findings = {f.what: f.agrees for f in Betting().recheck(content, problem, settings)}
        assert findings == {"delta": True, "bounds": True, "agreement": True}
        agreement = {**content["constants"]["agreement"], "n": 20}
        fewer = {**content, "constants": {**content["constants"], "agreement": agreement}}
        findings = {f.what: f.agrees for f in Betting().recheck(fewer, problem, settings)}
        assert findings == {"delta": True, "bounds": True, "agreement": False}
        claims = [[kind, path, n, 2 * share, value] for kind, path, n, share, value in content["claims"]]
        dearer = {**content, "claims": claims, "result": {**content["result"], "lower": 0.49999}}
        findings = {f.what: f.agrees for f in Betting().recheck(dearer, problem, settings)}
        assert (findings["delta"], findings["bounds"]) == (False, False)

    def test_every_test_of_agreement_tells_how_far_it_is(self) -> None:
        outcome = learn(richobs.make("lock/5,swap=0.5,fail=0.1"), seed=10)
        tests = [(i, e) for i, e in enumerate(outcome.trace) if e.kind == "agreement"]
        assert len(tests) >= 2
        for i, e in tests:
            before = [b for b in outcome.trace[:i] if b.kind == "batch"]
            drawn = before[-1].drawn
            mine = [b for b in before if b.drawn == drawn]
            assert e.rests_on == sum(b.n for b in mine[1:])  # the first batch enters no account
            assert (e.n, e.agreed) == (0, e.log_wealth >= e.needed)
            assert 0 <= e.at < 5
            assert e.said().level == e.at
            seconds = (b.drawn for k, b in enumerate(before) if b.drawn in {c.drawn for c in before[:k]})
            j = list(dict.fromkeys(seconds)).index(drawn) + 1
            assert e.needed == pytest.approx(math.log(SQUARES * (j + 0.5) ** 2 / (0.35 * 0.05)), abs=1e-5)
            assert e.said().verdict in e.sentence
        assert [e.agreed for _, e in tests] == [False] * (len(tests) - 1) + [True]
        assert outcome.trace[-1].by == "agreement"

    def test_batches_have_sizes_that_do_not_depend_on_how_many_episodes_are_allowed(self) -> None:
        problem = coin_problem([0.5, 0.45], [[0.5, 0.45], [0.5, 0.4]])
        for limit in (None, 180, 10**6):
            outcome_sizes = []
            search = searched(problem, epsilon=0.02, limit=limit)
            search.notify = lambda p, into=outcome_sizes: into.append(p.event.n)
            with contextlib.suppress(EpisodeLimit):
                candidate = _choose(search, None)
                for _ in range(24):
                    _play(search, candidate)
            played = [n for n in outcome_sizes if n]
            expected = [2, 4, *[8] * 15, 6, 8, 8, 9, 9, 10, 11]  # after 6 more agreement could have been reached
            assert played == expected[: len(played)]
            assert len(played) == (24 if limit != 180 else 23)

    def test_a_tenure_begins_with_few_episodes_where_members_of_a_level_have_one_range_of_values(self) -> None:
        decoders, tables, listed = (richobs.make(w).functions for w in ("lock/3", "mdp", "frozen-lake,n_maps=10"))
        assert [Tuning().begins(f) for f in (decoders, tables, listed)] == [2, 4, 4]
        many = [richobs.make(w).functions for w in ("lock/3,n_actions=5", "diabolical/3", "mdp,n_actions=5")]
        assert [Tuning().begins(f) for f in many] == [1, 1, 4]
        assert [Tuning(largest=1).begins(tables), Tuning(first=7).begins(decoders)] == [1, 7]

    def test_an_interval_certifies_where_it_is_no_wider_than_epsilon(self) -> None:
        """U is 0.6 and a rounding error more."""
        problem = coin_problem([0.5, 0.5], [[0.5, 0.5], [0.6, 0.6]])
        for lower, by in ((0.5, None), (0.5 + 1e-6, "interval"), (0.4, None)):
            search = searched(problem)
            candidate = _choose(search, None)
            for _ in range(2):
                _play(search, candidate)
            own = candidate.accounts
            assert own is not None
            search.roots.upper[:] = 0.6
            own.lower, own.looked_at = lower, 10**6
            found = closed(search, candidate)
            assert (None if found is None else found.by) == by
            own.lower = lower
            left = best_interval(search, candidate)
            assert left.by == (by or "nothing")
            assert left.gap == pytest.approx(0.6 - lower, abs=1e-6)

    def test_a_certificate_of_another_rule_is_told_from_a_wrong_one(self) -> None:
        problem = richobs.make("lock/3")
        content = Certificate.of(learn(problem), problem).content
        settings, constants = Settings(learner="betting"), content["constants"]
        assert (constants["rule"], constants["money"]) == (5, 0.7)
        for rule, words in ((5, None), (4, "an earlier rule"), (6, "another rule"), (None, "an earlier rule")):
            file = {**content, "constants": {**constants, "rule": rule}}
            said = [f.detail for f in Betting().recheck(file, problem, settings) if f.what == "rule"]
            assert [f"made by {words} of the betting search" in d for d in said] == ([] if words is None else [True])

    def test_a_plan_says_what_agreement_takes_at_the_least(self) -> None:
        problem = richobs.make("lock/5")
        plan = Betting().plan(problem, Settings(learner="betting"))
        (row,) = (row for row in plan.rows() if row.section == "at the least")
        assert row.value == 26
        asked = Betting().fallback_settings(problem, Settings(learner="betting"))
        assert asked is not None
        assert asked.delta == pytest.approx(0.0005)  # what is kept of delta
        olives = learner(asked.learner).plan(problem, asked).max_episodes
        assert plan.max_episodes == 2 * olives + 8_192  # the largest batch

    @pytest.mark.parametrize(("epsilon", "least"), [(0.4, 8), (1e-3, 2_617), (5e-6, 870_591)])
    def test_the_least_by_agreement_is_found_without_trying_every_number(self, epsilon: float, least: int) -> None:
        assert least_by_agreement(richobs.make("lock/5"), Settings(epsilon=epsilon)) == least

"""Levels of a large class that wait: bets settled later are those of the definition, and no later sample chooses them."""

import math

import numpy as np
import pytest

import richobs
import test_betting_exact as exact
from richobs.classes import Layered, TableLevel
from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise
from richobs.core.randomness import keyed_generator
from richobs.learners.betting import survivors_product, values
from richobs.learners.betting.events import BatchPlayed
from richobs.learners.betting.survivors_product import ProductSurvivors, Waiting
from richobs.learners.betting.values import Ranges, Samples, names, samples_of
from richobs.stats import bets
from richobs.stats.grouping import row_bytes
from richobs.stats.shares import Share
from test_betting import by_hand

N, BATCHES, SIZE = 6, 5, 3  # members of a level, batches, and their samples
EXACT_SIZES = (1, 1, 1, 1)  # of the batches whose outcomes are all looked at


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every level but the last wait as soon as members are told apart, until it is asked for."""
    monkeypatch.setattr(survivors_product, "LARGE_CLASS", 0)
    monkeypatch.setattr(survivors_product, "MOST_PAIRS", 1)
    monkeypatch.setattr(survivors_product, "DUE", ((math.inf, 0),))
    monkeypatch.setattr(survivors_product, "BLOCK", 5)  # two batches


class Played:
    """Random tables of two levels, and batches of episodes."""

    def __init__(self, batches: int = BATCHES):
        rng = np.random.default_rng(2)
        self.levels = [
            rng.integers(4, size=(N, 3, 2)) / 8 for _ in range(2)
        ]  # few values: members are alike on a batch
        paid = rng.integers(2, size=(3, 2)) / 2  # no member predicts it, but what was seen before does
        self.batches: list[list[Samples]] = []
        self.f, self.y = [], []  # per batch [N, n]
        for _ in range(batches):
            x, a = np.tile(rng.integers(3, size=SIZE), (2, 1)), rng.integers(2, size=(2, SIZE))
            rewards = np.stack([paid[x[0], a[0]], rng.random(SIZE) / 4])
            self.batches.append(samples_of(Episodes(list(x), list(a), list(rewards))))
            self.f.append(self.levels[0][:, x[0], a[0]])
            self.y.append(rewards[0] + self.levels[1].max(axis=2)[:, x[1]])

    def survivors(self) -> ProductSurvivors:
        functions = Layered([TableLevel(t) for t in self.levels])
        space = ProductSurvivors(functions, Share(1e-200), Ranges.plain(functions))  # nothing dies
        for t, steps in enumerate(self.batches, start=1):
            space.absorb(steps, t)
        return space


def wealth_of(space: ProductSurvivors) -> np.ndarray:
    """Returns `[m, m']` the wealth of the pairs of living members at level 0."""
    pairs = space._pairs[0]
    return pairs.held.wealth[pairs.rows.of][:, pairs.columns.of]


@pytest.mark.usefixtures("waits")
def test_wealth_is_that_of_the_definition_with_batches_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MOST_NUMBERS", 0)  # by_hand knows no cells
    played = Played()
    space = played.survivors()
    assert (wealth_of(space) == 0).all()  # nothing was bet yet
    space.catch_up(0)
    blocks = [slice(0, 2), slice(2, 4), slice(4, 5)]
    for j in range(N):
        wealth, past = np.zeros(N), []
        for number, block in enumerate(blocks, start=1):
            past.append((np.concatenate(played.f[block], axis=1), np.concatenate([y[j] for y in played.y[block]])))
            forecast, variance = by_hand(past)
            f, y = past[-1]
            stake = bets.stakes(forecast[None], np.array(variance), f)
            wealth = (wealth + bets.money(number)) * np.exp(bets.log_factors(stake, y, f).sum(axis=1))
        np.testing.assert_allclose(wealth_of(space)[:, j], wealth, rtol=1e-9)


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("numbers", [2 * N, 10**6])
def test_what_died_while_a_level_waited_changes_no_bet(monkeypatch: pytest.MonkeyPatch, numbers: int) -> None:
    """Forecasts and cells must not depend on who lives when the bets are computed: later samples decided that."""
    monkeypatch.setattr(values, "MOST_NUMBERS", numbers)  # room for two cells, or for all
    whole, less = Played(8).survivors(), Played(8).survivors()
    whole.catch_up(0)
    kept = [np.array([True, False, True, True, False, False]), np.array([False, True, False, False, True, True])]
    for h in (0, 1):
        less._keep(h, kept[h])
    less.catch_up(0)
    assert less._pairs[0].cells.serve_better.any()
    np.testing.assert_allclose(wealth_of(less), wealth_of(whole)[kept[0]][:, kept[1]], rtol=1e-12)


@pytest.mark.usefixtures("waits")
def test_members_are_told_apart_by_what_waited() -> None:
    space = Played().survivors()
    assert space._pairs[0].rows.count == 1
    space.catch_up(0)
    assert space._pairs[0].rows.count == N
    assert set(names(row_bytes(np.arange(3)), np.zeros(3))) <= space._pairs[0].cells.known.keys()


def two_by_two() -> ProductSurvivors:
    """Two members at each of two levels that one batch tells apart; level 0 waits with it."""
    functions = Layered([TableLevel([[[0.5]], [[0.3]]]), TableLevel([[[0.5]], [[0.3]]])])
    space = ProductSurvivors(functions, Share(1e-9), Ranges.plain(functions))
    zero = np.zeros(2, dtype=np.int64)
    space.absorb(samples_of(Episodes([zero, zero], [zero, zero], [np.zeros(2), np.array([0.0, 1.0])])), 1)
    return space


@pytest.mark.usefixtures("waits")
def test_an_average_refutes_one_pair_of_a_level_that_waits() -> None:
    """The pair shares its row and column with all others until the bets are settled; none of these dies with it."""
    space = two_by_two()
    space.kill((0, 0), 0)
    for _ in range(2):
        assert (0, 0) not in space
        assert [c in space for c in ((0, 1), (1, 0), (1, 1))] == [True] * 3
        space.catch_up(0)
    assert space.log_size == pytest.approx(math.log(3))


@pytest.mark.usefixtures("waits")
def test_values_that_cannot_be_earned_are_refuted_when_the_bets_are_settled() -> None:
    """A reward of 0.6 came before: 0.9 cannot be earned any more, and 0.4 can."""
    functions = Layered([TableLevel([[[1.0]], [[0.9]]]), TableLevel([[[0.9]], [[0.4]]])])
    space = ProductSurvivors(functions, Share(1e-12), Ranges.plain(functions))
    zero = np.zeros(1, dtype=np.int64)
    space.absorb(samples_of(Episodes([zero] * 2, [zero] * 2, [np.array([0.6]), np.array([0.4])])), 1)
    assert space.living(1).tolist() == [0, 1]
    space.catch_up(0)
    assert space.living(1).tolist() == [1]


@pytest.mark.usefixtures("waits")
def test_a_draw_takes_the_number_of_the_next_level_where_the_fit_says_nothing() -> None:
    space = two_by_two()
    fit = space.fit(np.ones(2, dtype=bool))
    assert {fit.draw(keyed_generator(i, "test")) for i in range(40)} == {(0, 0), (1, 1)}
    space.kill((0, 0), 0)
    assert (1, 0) in {fit.draw(keyed_generator(i, "test")) for i in range(40)}
    fit = space.fit(np.array([True, False]))  # no chain may begin at member 1
    assert {fit.draw(keyed_generator(i, "test"))[0] for i in range(40)} == {0}


def test_no_number_of_money_is_used_twice() -> None:
    steps = [steps[0] for steps in Played().batches]
    level = two_by_two()._pairs[0]
    some = Waiting(level, np.arange(N), np.arange(N), 7, steps)
    assert [(number, len(block.actions)) for number, block in some.blocks()] == [(7, 15)]
    assert sum(len(step.actions) for step in steps) == 15
    many = Waiting(level, np.arange(N), np.arange(N), 7, steps * 5)
    numbers = [(number, len(block.actions)) for number, block in many.blocks()]
    assert numbers == [(7, 33), (8, 33), (9, 9)]


def test_waiting_ends_when_few_kinds_are_left_or_many_samples_wait() -> None:
    steps = [steps[0] for steps in Played().batches][:1]
    level = two_by_two()._pairs[0]

    def is_due(rows: int, kinds: int, batches: int) -> bool:
        return Waiting(level, np.arange(rows), np.arange(2), 1, steps * batches).is_due(kinds)

    assert is_due(1024, 1024, 1)
    assert not is_due(1024, 1025, 1)
    assert not is_due(1024, 1025, 85)  # 255 samples
    assert is_due(1024, 1025, 86)
    assert not is_due(1024, 65_537, 86)
    assert is_due(1024, 65_537, 342)  # 1,026 samples
    assert 1248 * 312 <= survivors_product.LARGE_CLASS < 4048 * 1012  # lock/10, and 1,000 tables, never wait


def test_a_lock_whose_levels_wait_is_certified_and_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """lock/4 has 240 functions a level and few pairs; here its levels wait as those of a large class do."""
    monkeypatch.setattr(survivors_product, "LARGE_CLASS", 0)
    monkeypatch.setattr(survivors_product, "MOST_PAIRS", 64)
    monkeypatch.setattr(survivors_product, "DUE", ((math.inf, 4000),))
    waited: list[int] = []
    catch_up = ProductSurvivors.catch_up
    monkeypatch.setattr(ProductSurvivors, "catch_up", lambda self, h: waited.append(h) or catch_up(self, h))
    problem = richobs.make("lock/4,noise_bits=3")
    richobs.learn(problem, seed=1, tuning={"wait": "never"}, progress=False)
    assert not waited
    outcome = richobs.learn(problem, seed=1)
    assert sorted(waited) == [0, 1, 2]
    assert outcome.epsilon <= 0.1
    assert problem.value(outcome.policy) >= 0.5 - 0.1
    assert outcome.episodes < 300


@pytest.mark.usefixtures("waits")
def test_large_levels_settle_the_same_bets_in_other_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that only make forecasts, members that nothing can tell apart any more, and sums over weights."""
    monkeypatch.setattr(survivors_product, "LARGE_CLASS", 0)
    monkeypatch.setattr(survivors_product, "MOST_PAIRS", 64)
    monkeypatch.setattr(survivors_product, "DUE", ((math.inf, 4000),))
    problem, seen = richobs.make("lock/6,noise_bits=6", seed=2), []
    for size in (survivors_product.MANY_ROWS, 0):
        monkeypatch.setattr(survivors_product, "MANY_ROWS", size)
        monkeypatch.setattr(survivors_product, "FEW_COUNTS", size << 7)
        monkeypatch.setattr(survivors_product, "DENSE_COUNTS", size << 11)
        if size == 0:
            monkeypatch.setattr(survivors_product, "are_sparse", lambda keys, below: True)
        seen.append(richobs.learn(problem, seed=2, progress=False))
    assert seen[0].constants == seen[1].constants
    wealth = [[e.wealth for e in outcome.trace if isinstance(e, BatchPlayed)] for outcome in seen]
    for one, other in zip(*wealth, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.usefixtures("waits")
def test_the_last_function_is_not_certified_while_samples_wait_that_may_refute_it() -> None:
    space = two_by_two()
    for h in (0, 1):
        space._keep(h, np.array([True, False]))
    assert space.only is None
    space.kill((0, 0), 0)  # an average refutes it: nothing is left
    assert space.only is None
    with pytest.raises(BrokenPromise, match="no function of level"):
        space.catch_up(0)


def later_samples_decide(space: ProductSurvivors, t: int) -> None:
    """Drops members and ends the waiting of level 0 by what the samples that wait show: other levels may do that."""
    some = space._waiting[0]
    if some is None:
        return
    n, ones = len(some.batches), sum(int(step.next_x.sum()) for step in some.batches)
    if t < len(EXACT_SIZES) and (n == 1 or ones == 1):
        return
    space._keep(0, np.array([True, 2 * ones > n, 2 * ones <= n]))
    if ones % 2 == 0:
        space._keep(1, np.array([True, False, False]))
    space.catch_up(0)


def test_bets_on_samples_that_waited_win_nothing_from_q_star_on_average(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all 256 outcomes of four episodes, the mean wealth of Q*'s pair is the mean of the money put in.

    The batch at hand decides whether level 0 begins to wait: members of level 1 differ at observation 1 alone. The samples
    that wait decide how long it waits, and who is dropped in the meantime. A bet that depends on them moves the mean.
    """
    monkeypatch.setattr(survivors_product, "LARGE_CLASS", 0)
    monkeypatch.setattr(survivors_product, "MOST_PAIRS", 3)
    monkeypatch.setattr(survivors_product, "DUE", ((math.inf, 0),))
    monkeypatch.setattr(survivors_product, "BLOCK", 2)
    monkeypatch.setattr(exact, "SIZES", EXACT_SIZES)
    numbers: list[int] = []
    grown = bets.grown
    monkeypatch.setattr(bets, "grown", lambda w, c, t, *row: numbers.append(t) or grown(w, c, t, *row))
    last = [exact.Q[1], [exact.Q[1][0], [0.9, 0.1]], [exact.Q[1][0], [0.2, 0.1]]]
    functions = Layered([exact.levels()[0], TableLevel(last)])
    mean, put_in, total, kinds = 0.0, 0.0, 0.0, set()
    for chance, batches in exact.every_run(lambda t, paid: lambda level, x: (t + paid) % 2 if level == 0 else 0):
        space = ProductSurvivors(functions, Share(1e-9), exact.RANGES)
        monkeypatch.setattr(space._pairs[1], "update", lambda *given: 0)  # only level 0 bets
        numbers.clear()
        for t, played in enumerate(batches, start=1):
            space.absorb(samples_of(played), t)
            later_samples_decide(space, t)
        mean += chance * math.exp(space.log_wealth((0, 0))[0])
        put_in += chance * sum(bets.money(t) for t in set(numbers))
        total += chance
        kinds.add(tuple(numbers))
    assert kinds == {(1, 2), (1, 2, 3), (1, 2, 4), (1, 3, 4), (1, 2, 3, 4)}  # no number of money is used twice
    assert total == pytest.approx(1.0)
    assert put_in * (1 - 1e-6) < mean < put_in

"""Pairs of a betting search: on a device of PyTorch, and where one member of each row speaks for all.

Tests of the device run on PyTorch's CPU device, and are skipped where PyTorch is not installed.
"""

import math
import operator
from collections.abc import Container, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import richobs
from richobs.classes import Constants, Decoders, Layered, TableLevel
from richobs.core.environment import Episodes
from richobs.core.outcome import Outcome
from richobs.core.randomness import keyed_generator
from richobs.learners.betting import survivors_product
from richobs.learners.betting.survivors_product import Pairs, ProductSurvivors
from richobs.learners.betting.values import Ranges, Rows, Samples, names, samples_of
from richobs.stats import bets
from richobs.stats.grouping import row_bytes
from richobs.stats.shares import Share

HAS_TORCH = richobs.device.has_device("cpu")
with_torch = pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
on_a_gpu = pytest.mark.skipif(not richobs.device.has_device("cuda"), reason="PyTorch finds no GPU")


def named(x: NDArray[Any], actions: NDArray[Any]) -> list[bytes]:
    """Names of what was seen and done."""
    return names(row_bytes(x), actions)


# How far rounding may move a wealth.


@pytest.mark.parametrize("n", [1, 8, 9, 64])
def test_rounding_of_a_batch_is_within_its_bound(n: int) -> None:
    """Factors near 0.1 and sums near 3.9 n are the worst that bets can do; the reference has 11 bits more."""
    rng = np.random.default_rng(n)
    f, y = rng.random((40, n)), rng.random((30, n)).round()
    expected, variance = rng.random((30, n)), np.full((30, n), 1e-6)
    computed = bets._product(f, y, expected, variance, [[(k, 1)] for k in range(n)])
    stake = bets.stakes(expected[None], variance[None], f[:, None])  # the bets are what was computed
    exact = np.log1p(stake.astype(np.longdouble) * (y[None].astype(np.longdouble) - f[:, None])).sum(axis=2)
    exact -= np.longdouble(bets.ZETA) * np.abs(stake).astype(np.longdouble).sum(axis=2)
    error = float(np.abs(computed - exact).max())
    assert 0 < error <= bets.growth_rounding(n)
    assert bets.growth_rounding(n) <= 1e-12


def test_a_wealth_must_exceed_its_limit_by_what_rounding_may_add() -> None:
    assert bets.surely(100.0, 0.01) == pytest.approx(101.0050167)
    assert bets.surely(100.0, 0.0) == 100.0


def test_pairs_that_came_back_from_a_device_still_die_only_above_their_limit_by_more_than_rounding() -> None:
    f, y = Rows(np.array([[0.2] * 8]), np.zeros(1, dtype=np.int64)), Rows(np.ones((1, 8)), np.zeros(1, dtype=np.int64))
    x, actions = np.zeros((8, 1)), np.zeros(8, dtype=np.int64)
    free = Pairs(1, 1, math.inf)
    free.update(f, y, 1, named(x, actions))
    for below, dies in ((0.5, 0), (1.5, 1)):  # how many times the rounding the limit lies below the wealth
        pairs = Pairs(1, 1, free.wealth_of(0, 0) * math.exp(-below * 0.01))
        pairs.rounding = 0.01
        assert pairs.update(f, y, 1, named(x, actions)) == dies


# One member of each row speaks for all.


class Named(Constants):
    """Constants with an == of their own."""

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named)


def test_levels_that_say_they_are_equal_have_twins_of_their_own() -> None:
    one, other = Named([[0.5, 0.5], [0.5, 0.5]]), Named([[0.5, 0.1], [0.4, 0.2]])
    functions = Layered([one, other, one])
    space = ProductSurvivors(functions, Share(0.1), Ranges.plain(functions))
    assert [space.living(h).tolist() for h in range(3)] == [[0], [0, 1], [0]]


def decoders() -> Layered:
    return Layered([Decoders(4, [[0.5, 0.0], [0.0, 0.5]])] * 3)


def batches(rng: np.random.Generator, sizes: tuple[int, ...], kinds: int) -> Iterator[list[Samples]]:
    """Yields batches in which few observations come again and again; the last level pays 0 or 0.5."""
    book = rng.integers(2, size=(kinds, 4)).astype(np.int8)
    for n in sizes:
        yield samples_of(
            Episodes(
                [book[rng.integers(kinds, size=n)] for _ in range(3)],
                [rng.integers(2, size=n) for _ in range(3)],
                [np.zeros(n), np.zeros(n), rng.integers(2, size=n) * 0.5],
            )
        )


@pytest.mark.parametrize(("kinds", "share"), [(2, 1e-14), (6, 1e-16)])
def test_members_told_apart_before_need_not_be_read_again(
    kinds: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same arrays, bit for bit, as where all members are read on every batch."""
    answers: list[bool] = []

    def survivors(uses_it: bool) -> ProductSurvivors:
        def all_known(keys: list[bytes], known: Container[bytes]) -> bool:
            answers.append(original(keys, known))
            return answers[-1] and uses_it

        monkeypatch.setattr(survivors_product, "_all_known", all_known)
        space = ProductSurvivors(decoders(), Share(share), Ranges.plain(decoders()))
        for t, steps in enumerate(batches(np.random.default_rng(3), (2, 3, 5, 8, 8, 8), kinds), 1):
            space.absorb(steps, t)
        return space

    original = survivors_product._all_known
    spaces = [survivors(False), survivors(True)]
    half = len(answers) // 2
    assert answers[:half] == answers[half:]
    assert 0 < sum(answers[:half]) < half  # some batches were known and some were not
    assert min(len(spaces[0].living(h)) for h in range(3)) < 24 == len(np.unique(spaces[0]._twin[0]))
    for h, (one, other) in enumerate(zip(*(space._pairs for space in spaces), strict=True)):
        np.testing.assert_array_equal(spaces[0].living(h), spaces[1].living(h))
        for name in ("rows.of", "columns.of", "held.wealth", "held.alive", "held.loss", "missed", "constant_loss"):
            np.testing.assert_array_equal(*map(operator.attrgetter(name), (one, other)))


def test_an_action_that_is_new_at_an_observation_is_no_known_sample() -> None:
    x = np.array([[1, 2], [3, 4]])
    known, is_known = named(x, np.array([0, 1])), survivors_product._all_known
    assert is_known(named(x[::-1], np.array([1, 0])), known)
    assert not is_known(named(x, np.array([1, 1])), known)
    assert not is_known(named(np.array([[1, 2], [5, 6]]), np.array([0, 0])), known)
    assert not is_known(names(row_bytes(x)), set())


# The device.


@pytest.fixture
def always_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a single pair is held on the device."""
    monkeypatch.setattr("richobs.device.pairs.FEWEST_PAIRS", 0)


def both(rows: int, columns: int, limit: float, tolerance: float = 0.0) -> tuple[Pairs, Pairs]:
    return Pairs(rows, columns, limit, None, tolerance), Pairs(rows, columns, limit, "cpu", tolerance)


def there(tensor) -> np.ndarray:
    return tensor.cpu().numpy()


def some_values(rng: np.random.Generator, members: int, n: int, distinct: int) -> Rows:
    """Values of which several members share a row."""
    return Rows(rng.random((distinct, n)), np.sort(rng.integers(distinct, size=members)))


def check_equal(host: Pairs, device: Pairs) -> None:
    # The host computes few bets one by one, with log(1 + s ZETA) where the device has s ZETA, larger by 4e-11 at most.
    np.testing.assert_array_equal(host.rows.of, device.rows.of)
    np.testing.assert_array_equal(host.columns.of, device.columns.of)
    np.testing.assert_array_equal(host.held.alive, there(device.held.alive))
    np.testing.assert_allclose(there(device.held.wealth), host.held.wealth, rtol=1e-9)
    np.testing.assert_allclose(there(device.held.loss), host.held.loss, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(host.held.living_rows(), device.held.living_rows())
    np.testing.assert_array_equal(host.held.living_columns(), device.held.living_columns())
    by_row = np.arange(host.rows.count) - 2.0
    by_row[0] = -np.inf
    some = np.arange(host.rows.count) + 0.5
    np.testing.assert_allclose(device.held.sums_over_living(some), host.held.sums_over_living(some))
    one, other = host.weights(), device.weights()
    np.testing.assert_allclose(other.largest(by_row), one.largest(by_row), rtol=1e-9)
    np.testing.assert_allclose(other.log_sums(by_row), one.log_sums(by_row), rtol=1e-9)
    np.testing.assert_allclose(other.column(1), one.column(1), rtol=1e-9)
    for i, j in ((0, 0), (host.rows.count - 1, 1)):
        assert other.at(i, j) == pytest.approx(one.at(i, j), rel=1e-9)
        assert device.lives(i, j) == host.lives(i, j)
        assert device.wealth_of(i, j) == pytest.approx(host.wealth_of(i, j), rel=1e-9)


@with_torch
@pytest.mark.usefixtures("always_away")
@pytest.mark.parametrize(("at_once", "tolerance"), [(1 << 25, 0.0), (17, 0.0), (17, 0.03)])
def test_pairs_on_a_device_are_those_of_numpy(at_once: int, tolerance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wealth, losses, deaths, forecasts and weights; also where blocks of rows are small, and members are dropped."""
    monkeypatch.setattr("richobs.device.pairs.AT_ONCE_PAIRS", at_once)
    rng = np.random.default_rng(5)
    pairs, died = both(12, 9, 1e4, tolerance), []
    for t, n in enumerate((1, 4, 9, 16, 5), 1):
        f, y = some_values(rng, len(pairs[0].rows.of), n, 5), some_values(rng, len(pairs[0].columns.of), n, 4)
        x, actions = rng.integers(3, size=(n, 2)), rng.integers(2, size=n)
        died.append([p.update(f, y, t, named(x, actions)) for p in pairs])
        if t == 3:
            keep = np.arange(len(pairs[0].rows.of)) != 2, np.arange(len(pairs[0].columns.of)) != 0
            for p in pairs:
                p.keep_rows(keep[0])
                p.keep_columns(keep[1])
                p.kill(1, 1)
        check_equal(*pairs)
    assert [one for one, _ in died] == [other for _, other in died]
    assert sum(one for one, _ in died) > 5
    assert pairs[0].held.alive.any()
    rounding = sum(bets.growth_rounding(n) for n in (1, 4, 9, 16, 5))
    assert pairs[1].rounding == pytest.approx((2 if tolerance else 1) * rounding)


@with_torch
@pytest.mark.usefixtures("always_away")
def test_on_a_device_a_pair_dies_only_above_its_limit_by_more_than_rounding() -> None:
    f, y = Rows(np.array([[0.2] * 8]), np.zeros(1, dtype=np.int64)), Rows(np.ones((1, 8)), np.zeros(1, dtype=np.int64))
    x, actions = np.zeros((8, 1)), np.zeros(8, dtype=np.int64)
    free = Pairs(1, 1, math.inf, "cpu")
    assert free.update(f, y, 1, named(x, actions)) == 0
    reached = free.wealth_of(0, 0)
    assert reached > 0.5
    for below, dies in ((0.0, 0), (0.5, 0), (1.5, 1)):  # how many times the bound the limit lies below the wealth
        pairs = Pairs(1, 1, reached * math.exp(-below * free.rounding), "cpu")
        assert pairs.update(f, y, 1, named(x, actions)) == dies
        assert pairs.lives(0, 0) == (not dies)


@with_torch
@pytest.mark.usefixtures("always_away")
def test_a_wealth_that_is_no_number_refutes_nothing() -> None:
    pairs = Pairs(1, 1, 10.0, "cpu")
    pairs.held.wealth.fill_(math.nan)
    one = Rows(np.array([[0.2]]), np.zeros(1, dtype=np.int64))
    assert pairs.update(one, one, 1, named(np.zeros((1, 1)), np.zeros(1))) == 0
    assert pairs.lives(0, 0)


def decided(outcome: Outcome) -> object:
    found = outcome.constants
    return found.batches, outcome.reason, outcome.policy.member, outcome.upper, outcome.lower


@with_torch
@pytest.mark.usefixtures("always_away")
@pytest.mark.parametrize("world", ["lock/3,noise_bits=3", "random/4", "diabolical/3"])
def test_a_search_on_a_device_decides_what_numpy_decides(world: str) -> None:
    problem = richobs.make(world)
    here = richobs.learn(problem, engine="stream", seed=1)
    device = richobs.learn(problem, engine="stream", seed=1, device="cpu")
    assert decided(here) == decided(device)
    assert device.log_size == pytest.approx(here.log_size)
    assert here.rounding == 0.0 < device.rounding < 1e-9


@with_torch
@pytest.mark.usefixtures("always_away")
def test_draws_on_a_device_are_those_of_numpy() -> None:
    rng = np.random.default_rng(6)
    functions = Layered([TableLevel(rng.random((7, 3, 2)) / 2) for _ in range(3)])
    x = [rng.integers(3, size=6) for _ in range(3)]
    steps = samples_of(Episodes(x, [rng.integers(2, size=6) for _ in range(3)], [rng.random(6) / 6 for _ in range(3)]))
    fits = []
    for device in (None, "cpu"):
        space = ProductSurvivors(functions, Share(0.5), Ranges.plain(functions), device)
        space.absorb(steps, 1)
        fits.append(space.fit(np.arange(len(space.living(0))) != 1))
    drawn = [[fit.draw(keyed_generator(i, "test")) for i in range(40)] for fit in fits]
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) > 10
    assert fits[1].behind(drawn[0][0]) == pytest.approx(fits[0].behind(drawn[0][0]), rel=1e-9)


@with_torch
def test_few_pairs_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """They go to the device when they are 40, and come back when they are fewer than 10, with all that they hold."""
    monkeypatch.setattr("richobs.device.pairs.FEWEST_PAIRS", 40)
    rng = np.random.default_rng(7)
    host, device = both(8, 6, 1e9)
    for t, distinct in enumerate((2, 8, 8), 1):
        assert device.is_away == (t == 3)
        f, y = Rows(rng.random((distinct, 3)), np.arange(8) % distinct), some_values(rng, 6, 3, 5)
        for p in (host, device):
            p.update(f, y, t, named(np.zeros((3, 1)), np.zeros(3)))
    check_equal(host, device)
    for p in (host, device):
        p.keep_rows(np.arange(8) < 2)
        p.keep_columns(np.arange(6) < 3)
    assert not device.is_away
    assert device.rounding == pytest.approx(2 * bets.growth_rounding(3))
    np.testing.assert_allclose(device.held.wealth, host.held.wealth, rtol=1e-9)
    np.testing.assert_allclose(device.held.loss, host.held.loss, rtol=1e-12)


@pytest.mark.gpu
@on_a_gpu
@pytest.mark.usefixtures("always_away")
@pytest.mark.parametrize("tolerance", [0.0, 0.03])
@pytest.mark.parametrize(("rows", "columns", "n"), [(1, 1, 1), (5, 1, 3), (700, 300, 8), (33, 1025, 21)])
def test_the_kernel_does_what_pytorchs_own_operations_do(rows: int, columns: int, n: int, tolerance: float) -> None:
    rng = np.random.default_rng(rows)
    device, host = Pairs(rows, columns, 3.0, "cuda", tolerance), Pairs(rows, columns, 3.0, None, tolerance)
    for t in (1, 2, 3):
        f, y = some_values(rng, rows, n, rows), some_values(rng, columns, n, columns)
        x, actions = rng.integers(3, size=(n, 2)), rng.integers(2, size=n)
        assert device.update(f, y, t, named(x, actions)) == host.update(f, y, t, named(x, actions))
        check = (host.held.wealth, there(device.held.wealth)), (host.held.loss, there(device.held.loss))
        for expected, found in check:
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(host.held.alive, there(device.held.alive))
    assert rows == 1 or not host.held.alive.all()

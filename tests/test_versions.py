"""Version spaces: by hand, against each other, and at the edges of precision and memory."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from richobs.errors import InvalidInput, PrecisionError
from richobs.functions import Layered, TableLevel, listed_product
from richobs.versions import ActionRisk, LayeredSpace, ListedSpace, NodeRisk, value_range, version_space


def risk(level, noise, gain, future=None, share=(1.0,)):
    gain = np.asarray(gain, dtype=float).reshape(len(noise), len(share))
    future = None if future is None else np.asarray(future, dtype=float).reshape(-1, len(share))
    return NodeRisk(level, np.asarray(noise, dtype=float), gain, future, np.asarray(share))


def test_listed_elimination_by_hand():
    space = ListedSpace(3)
    done = space.eliminate(risk(0, [0, 0, 0], [0.3, 0.0, 0.4]), 0.1)
    assert (done.least, done.cutoff) == (0.0, pytest.approx(0.1))
    np.testing.assert_array_equal(space.alive(0), [True, True, False])  # risks 0.09, 0, 0.16
    assert (done.log_size_before, done.log_size_after) == (math.log(3), math.log(2))


def test_the_dead_neither_return_nor_set_the_bar():
    space = ListedSpace(3)
    space.eliminate(risk(0, [0, 1, 0], [0.0, 0.0, 0.0]), 0.5)  # the second dies
    done = space.eliminate(risk(0, [0.09, 0.00, 0.16], [0, 0, 0]), 0.05)
    assert done.cutoff == pytest.approx(0.14)
    np.testing.assert_array_equal(space.alive(0), [True, False, False])


def test_layered_elimination_by_hand():
    """Gains (0.6, 0.2) at level 0 against futures (0.6, 0.5, 0.2): only pairs within 0.01 of each other's square stay."""
    space = LayeredSpace([2, 3])
    done = space.eliminate(risk(0, [0, 0], [0.6, 0.2], [0.6, 0.5, 0.2]), 0.011)
    assert done.least == pytest.approx(0, abs=1e-15)
    pairs = {p for p in itertools.product(range(2), range(3)) if p in space}
    assert pairs == {(0, 0), (0, 1), (1, 2)}
    assert space.log_size == pytest.approx(math.log(3))
    space.eliminate(risk(1, [0, 0, 1], [0, 0, 0]), 0.5)  # the last member of level 1 dies, and with it (1, 2)
    np.testing.assert_array_equal(space.alive(0), [True, False])
    assert space.log_size == pytest.approx(math.log(2))
    assert space.pick() == (0, 0)
    assert space.pick({(0, 0)}) == (0, 1)
    assert space.pick({(0, 0), (0, 1)}) is None
    assert value_range(space, 1, np.array([0.3, 0.4, 0.9])) == (0.3, 0.4)


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 10**9), horizon=st.integers(1, 4), steps=st.integers(1, 8))
def test_layered_and_listed_spaces_agree(seed, horizon, steps):
    """Random eliminations at random levels: the same survivors, thresholds, counts, ranges and picks."""
    rng = np.random.default_rng(seed)
    sizes = [int(s) for s in rng.integers(1, 5, size=horizon)]
    chains = np.indices(sizes).reshape(horizon, -1)
    layered, listed = LayeredSpace(sizes), ListedSpace(chains.shape[1])
    K = int(rng.integers(1, 4))
    for _ in range(steps):
        h = int(rng.integers(horizon))
        share = rng.dirichlet(np.ones(K))
        noise, gain = rng.random(sizes[h]), rng.random((sizes[h], K))
        future = rng.random((sizes[h + 1], K)) if h < horizon - 1 else None
        slack = float(rng.choice([0.05, 0.3, 1.0]))
        one = layered.eliminate(NodeRisk(h, noise, gain, future, share), slack)
        wide = None if future is None else future[chains[h + 1]]
        other = listed.eliminate(NodeRisk(h, noise[chains[h]], gain[chains[h]], wide, share), slack)
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
        alive = listed.alive(0)
        survivors = [tuple(c) for c in chains.T[alive].tolist()]
        assert [tuple(c) for c in chains.T.tolist() if tuple(c) in layered] == survivors
        for level in range(horizon):
            expected = np.isin(np.arange(sizes[level]), chains[level][alive])
            np.testing.assert_array_equal(layered.alive(level), expected)
        assert layered.pick() == survivors[0]
        excluded = set(survivors[:3])
        assert layered.pick(excluded) == (survivors[3] if len(survivors) > 3 else None)


def test_a_class_of_ten_to_the_74_keeps_exact_count():
    space = LayeredSpace([5000] * 20)
    assert space.log_size == pytest.approx(20 * math.log(5000))
    rng = np.random.default_rng(0)
    gain, future = rng.random((5000, 1)), rng.random((5000, 1))
    space.eliminate(NodeRisk(10, np.zeros(5000), gain, future, np.ones(1)), 1e-4)
    kept = (np.abs(gain - future.T) ** 2 <= 1e-4 + (np.abs(gain - future.T) ** 2).min()).sum()
    assert space.log_size == pytest.approx(18 * math.log(5000) + math.log(kept), abs=1e-9)
    edges = [e for e in space._edges if e is not None]
    assert len(edges) == 1
    assert edges[0].words.nbytes < 4e6  # a bit per pair


def test_a_long_chain_is_walked_without_recursion():
    assert LayeredSpace([2] * 3000).pick() == (0,) * 3000


def test_the_form_fits_the_class():
    level = TableLevel(np.zeros((2, 1, 1)))
    assert isinstance(version_space(Layered([level, level])), LayeredSpace)
    assert isinstance(version_space(listed_product(Layered([level, level]))), ListedSpace)


def test_equal_functions_are_never_parted_by_rounding():
    """Twins of the best function survive at a threshold of 100 ulp of the risk."""
    rng = np.random.default_rng(1)
    gain = np.repeat(rng.random((1, 4)), 7, axis=0)
    future = np.repeat(gain[:1], 9, axis=0) + 1e-9
    space = LayeredSpace([7, 9])
    space.eliminate(NodeRisk(0, np.full(7, 0.1), gain, future, np.full(4, 0.25)), 100 * np.spacing(0.1))
    assert space.log_size == pytest.approx(math.log(63))


@pytest.mark.parametrize("make", [lambda: LayeredSpace([2, 2]), lambda: ListedSpace(2)])
def test_a_threshold_lost_in_rounding_is_refused(make):
    with pytest.raises(PrecisionError, match=r"a risk of 0.1 is only known to about 1e-17"):
        make().eliminate(risk(0, [0.1, 0.2], [0, 0], [0, 0]), 50 * np.spacing(0.1))


def test_members_of_the_wrong_shape_are_refused():
    with pytest.raises(InvalidInput, match="one index per level, 2 in all"):
        assert (0,) not in LayeredSpace([2, 2])
    with pytest.raises(InvalidInput, match="level 0 has members 0 to 1; got -1"):
        assert (-1, 0) not in LayeredSpace([2, 2])
    with pytest.raises(InvalidInput, match="an index from 0 to 1"):
        assert (0, 1) not in ListedSpace(2)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**9), horizon=st.integers(1, 4), steps=st.integers(1, 8), few=st.booleans())
def test_restricting_layered_and_listed_spaces_agrees(seed, horizon, steps, few):
    """Random tests under one action: pairs told apart give the listed survivors; members alone never give fewer."""
    rng = np.random.default_rng(seed)
    sizes = [int(s) for s in rng.integers(1, 6, size=horizon)]
    chains = np.indices(sizes).reshape(horizon, -1)
    layered, listed = LayeredSpace(sizes), ListedSpace(chains.shape[1])
    values = np.array([0.0, 0.25, 0.5])  # few values, so that members are alike
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("richobs.versions.MOST_PAIRS", 0 if few else 10**6)
        for _ in range(steps):
            h = int(rng.integers(horizon))
            last = h == horizon - 1
            noise, gain = rng.choice(values, sizes[h]) / 4, rng.choice(values, sizes[h])
            future = np.zeros(1) if last else rng.choice(values, sizes[h + 1])
            cutoff, reach = rng.uniform(0.1, 0.5, len(future)), rng.uniform(0.3, 0.6, len(future))
            ours, theirs = layered.alive(h), np.ones(1, dtype=bool) if last else layered.alive(h + 1)
            if not ours.any():
                break
            column = np.zeros(0, dtype=int) if last else np.flatnonzero(theirs)
            risk = ActionRisk(h, noise, gain, future, np.flatnonzero(ours), column)
            least, i, j = layered.least(risk)
            assert least == pytest.approx(risk.noise[i] + (risk.gain[i] - risk.future[j]) ** 2)
            assert least == pytest.approx((risk.noise[:, None] + (risk.gain[:, None] - risk.future) ** 2).min())
            before = {tuple(c) for c in chains.T.tolist() if tuple(c) in layered}
            dropped = layered.restrict(risk, cutoff, reach)
            alive = listed.alive(0)
            mine = chains[h][alive]
            next_ = np.zeros(alive.sum(), dtype=int) if last else chains[h + 1][alive]
            if not alive.any():
                break
            some = listed.restrict(ActionRisk(h, noise, gain, future, mine, next_), cutoff, reach)
            survivors = {tuple(c) for c in chains.T[listed.alive(0)].tolist()}
            kept = {tuple(c) for c in chains.T.tolist() if tuple(c) in layered}
            assert kept >= survivors
            assert dropped == (kept < before)
            if not few:
                assert kept == survivors
                assert dropped == some
                assert layered.log_size == pytest.approx(listed.log_size)
                assert layered.log_bound >= layered.log_size - 1e-9
        if layered.alive(0).any():
            assert layered.draw(layered.alive(0), rng) in layered

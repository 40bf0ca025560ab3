"""Version spaces: by hand, against each other, and at the edges of precision and memory."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from richobs.core.errors import InvalidInput, PrecisionError
from richobs.learners.version_space import PairError
from richobs_lab.certified.survivors import ActionRisk, LayeredSurvivors, ListedSurvivors
from richobs_lab.lsvee.spaces import LayeredTdSpace, ListedTdSpace, NodeRisk


def risk(level, noise, gain, future=None, share=(1.0,)):
    gain = np.asarray(gain, dtype=float).reshape(len(noise), len(share))
    future = None if future is None else np.asarray(future, dtype=float).reshape(-1, len(share))
    return NodeRisk(level, np.asarray(noise, dtype=float), gain, future, np.asarray(share))


def test_the_dead_neither_return_nor_set_the_bar():
    space = ListedTdSpace(3)
    space.eliminate(risk(0, [0, 1, 0], [0.0, 0.0, 0.0]), 0.5)  # the second dies
    done = space.eliminate(risk(0, [0.09, 0.00, 0.16], [0, 0, 0]), 0.05)
    assert done.cutoff == pytest.approx(0.14)
    np.testing.assert_array_equal(space.alive(0), [True, False, False])


def test_layered_elimination_by_hand():
    """Gains (0.6, 0.2) at level 0 against futures (0.6, 0.5, 0.2): only pairs within 0.01 of each other's square stay."""
    space = LayeredTdSpace([2, 3])
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


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10**9), horizon=st.integers(1, 4), steps=st.integers(1, 8))
def test_layered_and_listed_spaces_agree(seed, horizon, steps):
    """Random eliminations at random levels: the same survivors, thresholds, counts, ranges and picks."""
    rng = np.random.default_rng(seed)
    sizes = [int(s) for s in rng.integers(1, 5, size=horizon)]
    chains = np.indices(sizes).reshape(horizon, -1)
    layered, listed = LayeredTdSpace(sizes), ListedTdSpace(chains.shape[1])
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


def test_a_class_of_ten_to_the_75_keeps_exact_count():
    space = LayeredTdSpace([1000] * 25)
    assert space.log_size == pytest.approx(25 * math.log(1000))
    rng = np.random.default_rng(0)
    gain, future = rng.random((1000, 1)), rng.random((1000, 1))
    space.eliminate(NodeRisk(10, np.zeros(1000), gain, future, np.ones(1)), 1e-4)
    kept = (np.abs(gain - future.T) ** 2 <= 1e-4 + (np.abs(gain - future.T) ** 2).min()).sum()
    assert space.log_size == pytest.approx(23 * math.log(1000) + math.log(kept), abs=1e-9)
    (edges,) = (e for e in space._edges if e is not None)
    assert edges.words.nbytes < 2e5  # a bit per pair


def test_a_long_chain_is_walked_without_recursion():
    assert LayeredTdSpace([2] * 3000).pick() == (0,) * 3000


def test_equal_functions_are_never_parted_by_rounding():
    """Twins of the best function survive at a threshold of 100 ulp of the risk."""
    rng = np.random.default_rng(1)
    gain = np.repeat(rng.random((1, 4)), 7, axis=0)
    future = np.repeat(gain[:1], 9, axis=0) + 1e-9
    space = LayeredTdSpace([7, 9])
    space.eliminate(NodeRisk(0, np.full(7, 0.1), gain, future, np.full(4, 0.25)), 100 * np.spacing(0.1))
    assert space.log_size == pytest.approx(math.log(63))


@pytest.mark.parametrize("make", [lambda: LayeredTdSpace([2, 2]), lambda: ListedTdSpace(2)])
def test_a_threshold_lost_in_rounding_is_refused(make):
    with pytest.raises(PrecisionError, match=r"a risk of 0.1 is only known to about 1e-17"):
        make().eliminate(risk(0, [0.1, 0.2], [0, 0], [0, 0]), 50 * np.spacing(0.1))


def test_members_of_the_wrong_shape_are_refused():
    with pytest.raises(InvalidInput, match="one index per level, 2 in all"):
        assert (0,) not in LayeredTdSpace([2, 2])
    with pytest.raises(InvalidInput, match="level 0 has members 0 to 1; got -1"):
        assert (-1, 0) not in LayeredTdSpace([2, 2])
    with pytest.raises(InvalidInput, match="an index from 0 to 1"):
        assert (0, 1) not in ListedTdSpace(2)


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10**9), horizon=st.integers(1, 4), steps=st.integers(1, 8), few=st.booleans())
def test_restricting_layered_and_listed_spaces_agrees(seed, horizon, steps, few):
    """Random tests under one action: pairs told apart give the listed survivors; members alone never give fewer."""
    rng = np.random.default_rng(seed)
    sizes = [int(s) for s in rng.integers(1, 6, size=horizon)]
    chains = np.indices(sizes).reshape(horizon, -1)
    layered, listed = LayeredSurvivors(sizes), ListedSurvivors(chains.shape[1])
    values = np.array([0.0, 0.25, 0.5])  # few values, so that members are alike
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("richobs_lab.certified.survivors.MOST_PAIRS", 0 if few else 10**6)
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


@pytest.mark.parametrize("form", ["listed", "layered"])
def test_both_tests_drop_on_their_own(form):
    """Risks 0.01, 0.31, 0.25 and 0.1936 at cutoff 0.3; errors 0.1, 0.1, 0.5 and 0.44 at reach 0.45.

    The second fails the relative test alone, the third the absolute one alone. The fourth passes both.
    """
    space = ListedSurvivors(4) if form == "listed" else LayeredSurvivors([4])
    column = np.zeros(4, dtype=int) if form == "listed" else np.zeros(0, dtype=int)
    noise, gain = np.array([0.0, 0.3, 0.0, 0.0]), np.array([0.1, 0.1, 0.5, 0.44])
    tested = ActionRisk(0, noise, gain, np.zeros(1), np.arange(4), column)
    assert space.restrict(tested, np.array([0.3]), np.array([0.45]))
    np.testing.assert_array_equal(space.alive(0), [True, False, False, True])


def alike(level):
    """The risk under which member i of a level of two goes with member i of the next alone."""
    values = np.array([0.0, 1.0])
    return ActionRisk(level, np.zeros(2), values, values, np.arange(2), np.arange(2))


@pytest.mark.parametrize("level", [0, 1])
def test_whoever_has_no_partner_left_goes_in_both_directions(level, monkeypatch):
    """Two chains, (0, 0, 0) and (1, 1, 1): with one member of the second the whole chain goes."""
    space = LayeredSurvivors([2, 2, 2])
    for h in (0, 1):
        space.restrict(alike(h), np.full(2, 0.5), np.full(2, 0.5))
    assert space.log_size == pytest.approx(math.log(2))
    monkeypatch.setattr("richobs_lab.certified.survivors.MOST_PAIRS", 0)  # members are dropped, not pairs
    lonely = ActionRisk(level, np.zeros(2), np.array([0.0, 5.0]), np.zeros(2), np.arange(2), np.arange(2))
    assert space.restrict(lonely, np.full(2, 0.5), np.full(2, 0.5))
    for h in range(3):
        np.testing.assert_array_equal(space.alive(h), [True, False])


def test_pairs_that_were_parted_set_no_bar_and_stay_apart():
    """Gains (0.2, 0.8, 0.2, 0.2) against futures (0.2, 0.8): (0, 0), (1, 1), (2, 0) and (3, 0) stay.

    With gains (0.8, 0.2, 0.8, 0.8) these have risk 0.36 and more, and only pairs that were parted before have risk 0. Noise
    of 0.2 then drops member 2, and noise of 1 drops member 3.
    """
    space, future, gain = LayeredSurvivors([4, 2]), [0.2, 0.8], [0.8, 0.2, 0.8, 0.8]
    pairs = list(itertools.product(range(4), range(2)))
    space.eliminate(risk(0, [0, 0, 0, 0], [0.2, 0.8, 0.2, 0.2], future), 0.1)
    done = space.eliminate(risk(0, [0, 0, 0.2, 0], gain, future), 0.1)
    assert (done.least, done.cutoff) == (pytest.approx(0.36), pytest.approx(0.46))
    assert {p for p in pairs if p in space} == {(0, 0), (1, 1), (3, 0)}
    noisy = ActionRisk(0, np.array([0, 0, 0, 1.0]), np.array(gain), np.array(future), np.array([0, 1, 3]), np.arange(2))
    assert space.restrict(noisy, np.full(2, 0.5), np.full(2, 0.7))
    assert {p for p in pairs if p in space} == {(0, 0), (1, 1)}


@pytest.mark.parametrize("space", [LayeredSurvivors([4, 2]), ListedSurvivors(4)])
def test_a_draw_keeps_to_what_was_asked_for(space):
    rng = np.random.default_rng(0)
    first = np.array([False, False, True, False])
    assert {np.ravel(space.draw(first, rng))[0] for _ in range(20)} == {2}


def pair_error(level, gain, row=None, reach=None, future=None):
    row = np.zeros(len(gain), dtype=int) if row is None else np.asarray(row)
    reach = np.zeros((1, 0)) if reach is None else np.asarray(reach, dtype=float)
    return PairError(level, np.asarray(gain, dtype=float), row, reach, None if future is None else np.asarray(future))


class TestErrorsOfPairs:
    """Members 0 and 1 reach next observations with weights (0.5, 0.5), member 2 with (0, 1)."""

    REACH = ((0.5, 0.5), (0.0, 1.0))
    FUTURE = ((0.2, 0.4), (1.0, 0.0))  # ahead lies 0.3 or 0.5 for members 0 and 1, 0.4 or 0 for member 2

    def test_layered_by_hand(self):
        """Errors: 0.1 and -0.1 of member 0, 0.25 and 0.05 of member 1, -0.4 and 0 of member 2."""
        space = LayeredTdSpace([3, 2])
        done = space.keep_within(pair_error(0, [0.4, 0.55, 0.0], [0, 0, 1], self.REACH, self.FUTURE), 0.11)
        assert {p for p in itertools.product(range(3), range(2)) if p in space} == {(0, 0), (0, 1), (1, 1), (2, 1)}
        assert (done.least, done.cutoff) == (0.0, 0.11)
        assert (done.log_size_before, done.log_size_after) == (math.log(6), math.log(4))
        done = space.keep_within(pair_error(1, [0.5, -0.05]), 0.1)  # |-0.05| is the smaller one
        assert done.least == 0.05
        assert {p for p in itertools.product(range(3), range(2)) if p in space} == {(0, 1), (1, 1), (2, 1)}

    def test_listed_by_hand(self):
        space = ListedTdSpace(3)
        future = [self.FUTURE[0], self.FUTURE[1], self.FUTURE[1]]
        done = space.keep_within(pair_error(0, [0.4, 0.75, 0.02], [0, 0, 1], self.REACH, future), 0.11)
        assert done.least == pytest.approx(0.02)  # errors 0.1, 0.25, 0.02
        np.testing.assert_array_equal(space.alive(0), [True, False, True])
        space.keep_within(pair_error(1, [-0.2, 0.0, 0.1]), 0.11)
        np.testing.assert_array_equal(space.alive(0), [False, False, True])  # the dead do not return

    @pytest.mark.parametrize("space", [LayeredTdSpace([2, 2]), ListedTdSpace(2)])
    def test_nobody_may_survive(self, space):
        done = space.keep_within(pair_error(1, [0.5, -0.5]), 0.1)
        assert done.log_size_after == -math.inf
        assert space.optimistic(np.array([0.1, 0.2])) is None
        assert space.pick() is None

    @pytest.mark.parametrize("space", [LayeredTdSpace([2]), ListedTdSpace(2)])
    def test_rounding_does_not_decide(self, space):
        with pytest.raises(PrecisionError, match="Rounding would decide"):
            space.keep_within(pair_error(0, [0.5, 0.1]), 1e-15)

    def test_the_optimist_by_hand(self):
        space = LayeredTdSpace([3, 2])
        value = np.array([0.3, 0.9, 0.9])
        assert space.optimistic(value) == (1, 0)  # the first of two equal ones
        space.keep_within(pair_error(0, [0.4, 0.55, 0.0], [0, 0, 1], self.REACH, self.FUTURE), 0.11)
        assert space.optimistic(value) == (1, 1)  # (1, 0) was dropped
        space.keep_within(pair_error(1, [0.0, 0.5]), 0.1)
        assert space.optimistic(value) == (0, 0)  # nothing else is left
        listed = ListedTdSpace(3)
        assert listed.optimistic(value) == 1
        listed.keep_within(pair_error(0, [0.0, 0.5, 0.5]), 0.1)
        assert listed.optimistic(value) == 0

    @settings(max_examples=80, deadline=None)
    @given(seed=st.integers(0, 10**9), horizon=st.integers(1, 4), steps=st.integers(1, 8))
    def test_layered_and_listed_spaces_agree(self, seed, horizon, steps):
        rng = np.random.default_rng(seed)
        sizes = [int(s) for s in rng.integers(1, 6, size=horizon)]
        chains = np.indices(sizes).reshape(horizon, -1)
        layered, listed = LayeredTdSpace(sizes), ListedTdSpace(chains.shape[1])
        value = rng.integers(3, size=sizes[0]).astype(float)  # few values, so that there are ties
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("richobs.learners.version_space.BLOCK", 7)  # several blocks
            for _ in range(steps):
                h, bound = int(rng.integers(horizon)), float(rng.choice([0.2, 0.5, 1.0]))
                gain, row, reach = rng.normal(size=sizes[h]), rng.integers(2, size=sizes[h]), rng.random((2, 3))
                future = rng.random((sizes[h + 1], 3)) if h < horizon - 1 else None
                one = layered.keep_within(PairError(h, gain, row, reach, future), bound)
                wide = None if future is None else future[chains[h + 1]]
                other = listed.keep_within(PairError(h, gain[chains[h]], row[chains[h]], reach, wide), bound)
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
                survivors = [tuple(c) for c in chains.T[listed.alive(0)].tolist()]
                assert [tuple(c) for c in chains.T.tolist() if tuple(c) in layered] == survivors
                if not survivors:
                    assert layered.optimistic(value) is None
                    break
                best = listed.optimistic(value[chains[0]])
                assert layered.optimistic(value) == tuple(chains.T[best].tolist())

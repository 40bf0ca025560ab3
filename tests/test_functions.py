"""Function classes, with values worked out by hand."""

import itertools
import math

import numpy as np
import pytest

from richobs.errors import InvalidInput
from richobs.functions import Decoders, Layered, Prototypes, TableLevel, copies_around
from richobs.moments import Batch, Moments


def test_a_decoder_worked_out_by_hand():
    decoders = Decoders(3, [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]])
    assert decoders.size == 3 * 2 * 9
    member = decoders.index(2, 0, 1, 2)  # coordinate 2 means first (actions 1, 2), coordinate 0 second (actions 2, 0)
    x = np.array([[0, 1, 1], [1, 1, 0], [0, 1, 0], [1, 0, 1]])
    expected = [[0, 0.5, 0.5], [0.5, 0, 0.5], [0, 0, 0], [0.5, 0.5, 0.5]]
    np.testing.assert_array_equal(decoders.values(x, np.array([member]))[0], expected)
    assert decoders.reads(member, None) == (2, 0)


def test_decoders_list_every_pair_of_coordinates_once():
    decoders = Decoders(4, np.eye(2))
    first, second, a, b = decoders.parameters()
    assert len({*zip(first, second, a, b, strict=True)}) == decoders.size == 48
    assert (first != second).all()
    again = [decoders.index(*map(int, p)) for p in zip(first, second, a, b, strict=True)]
    assert again == list(range(48))


@pytest.mark.parametrize("seed", range(5))
def test_decoders_that_are_alike_share_values_and_others_do_not(seed):
    """Same group: equal values of the action and equal maxima at every x; different group: some x tells them apart."""
    rng = np.random.default_rng(seed)
    decoders = Decoders(3, rng.choice([0.0, 0.25, 0.5], (3, 2)))
    members = np.sort(rng.choice(decoders.size, 40, replace=False))
    every = np.array(list(itertools.product([0, 1], repeat=3)))
    for action in range(2):
        some, group = decoders.alike(members, action)
        values = decoders.values(every, members)
        seen = np.concatenate([values[:, :, action], values.max(axis=2)], axis=1)
        np.testing.assert_array_equal(seen, seen[np.searchsorted(members, some)][group])
        assert len(np.unique(seen, axis=0)) <= len(some) <= decoders.size
        same = decoders.alike(np.array([decoders.index(0, 2, 1, 0), decoders.index(2, 0, 0, 1)]), action)[1]
        assert same.tolist() == [0, 0]  # the same function, written the other way round


@pytest.mark.parametrize("seed", range(10))
def test_moments_of_decoders_from_pairs_of_coordinates(seed):
    """The quick way agrees with values written out, for repeated rows, missing actions and random rewards."""
    rng = np.random.default_rng(seed)
    decoders = Decoders(4, rng.random((3, 3)), rotation=np.eye(4)[[1, 0, 3, 2]] if seed % 2 else None)
    n = int(rng.integers(1, 30))
    x, actions = rng.integers(0, 2, (n, 4)), rng.integers(0, 3 if seed % 3 else 1, n)
    batch = Batch.of_steps(x, actions, rng.random(n), 3)
    members = rng.choice(decoders.size, 25)
    quick, plain = decoders.moments(batch, members), Moments.of(decoders.values(batch.x, members), batch)
    assert (quick.n, quick.actions) == (plain.n, plain.actions)
    for name in ("v_mean", "v_var", "u_mean", "u_var"):
        np.testing.assert_allclose(getattr(quick, name), getattr(plain, name), atol=1e-14)


def test_a_rotation_is_undone_before_decoding():
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    x = np.array([[1.0, 0.0], [0.0, 1.0]])
    plain, turned = Decoders(2, np.eye(2)), Decoders(2, np.eye(2), rotation=turn)
    np.testing.assert_array_equal(turned.values(x @ turn.T), plain.values(x))


def test_tables_look_rows_up():
    tables = TableLevel([[[0.1, 0.2], [0.3, 0.4]], [[0.5, 0.6], [0.7, 0.8]]])
    np.testing.assert_array_equal(tables.values(np.array([1, 0, 1]))[1], [[0.7, 0.8], [0.5, 0.6], [0.7, 0.8]])
    np.testing.assert_array_equal(tables.values(np.array([0]), np.array([1])), [[[0.5, 0.6]]])


def test_prototypes_use_the_nearest_centre():
    centres = np.array([[[0.0, 0.0], [1.0, 1.0]], [[1.0, 1.0], [0.0, 0.0]]])
    table = np.array([[0.1], [0.9]])
    functions = Prototypes(centres, np.array([0, 1]), np.stack([table, table]))
    x = np.array([[0.2, 0.1], [0.9, 0.7]])
    np.testing.assert_array_equal(functions.values(x)[:, :, 0], [[0.1, 0.9], [0.9, 0.1]])
    np.testing.assert_array_equal(functions.values(x, np.array([1]))[:, :, 0], [[0.9, 0.1]])


def test_a_layered_class_is_a_product():
    level = TableLevel(np.arange(6).reshape(3, 1, 2) / 10)
    functions = Layered([level, level])
    assert functions.log_size == pytest.approx(math.log(9))
    f = functions.member((2, 0))
    np.testing.assert_array_equal(f.values(0, np.array([0])), [[0.4, 0.5]])
    np.testing.assert_array_equal(f.values(1, np.array([0])), [[0.0, 0.1]])
    assert f.reads(0, None) is None


def test_the_truth_is_hidden_among_copies():
    truth = np.array([[0.1, 0.9, 0.4], [0.8, 0.2, 0.0]])
    places = set()
    for seed in range(20):
        tables, place = copies_around(truth, 30, np.random.default_rng(seed))
        np.testing.assert_array_equal(tables[place], truth)
        assert tables.min() >= 0
        assert tables.max() <= 1
        assert (np.abs(tables - truth).max(axis=(1, 2)) > 0.01).sum() >= 15
        places.add(place)
    assert len(places) > 5


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: TableLevel([[[0.1, 1.2]]]), "function 0 has value 1.2 at observation 0, action 1"),
        (lambda: TableLevel([[[math.nan]]]), "function 0 has value nan"),
        (lambda: TableLevel(np.zeros((0, 2, 2))), r"got shape \(0, 2, 2\)"),
        (lambda: TableLevel([[0.1]]), r"must be \[N, X, K\]"),
        (lambda: TableLevel([[[0.1]]]).values(np.array([1])), "observation 1 is not known: there are 0 to 0"),
        (lambda: Layered([]), "the list is empty"),
        (
            lambda: Layered([TableLevel([[[0.1]]]), TableLevel([[[0.1, 0.2]]])]),
            "level 1 has 2 actions and that of level 0 has 1",
        ),
        (lambda: Layered([TableLevel([[[0.1]]])]).member((0, 0)), "1 in all; got 2"),
        (lambda: Layered([TableLevel([[[0.1]]])]).member((1,)), "functions 0 to 0; got 1"),
        (lambda: TableLevel([[[0.1]]]).values(np.array([0]), np.array([-1])), "functions 0 to 0; asked for -1"),
        (lambda: TableLevel([[[0.1]], [[0.2]]]).values(np.array([0.5])), "observation 0.5 is not known"),
        (lambda: Prototypes(np.zeros((1, 2, 3)), np.array([1]), np.zeros((1, 2, 2))), "centre sets 0 to 0"),
        (
            lambda: Prototypes(np.zeros((1, 2, 3)), np.zeros(1, int), np.zeros((1, 2, 2))).values(np.zeros((4, 1))),
            "vectors of length 3",
        ),
        (lambda: Decoders(1, np.eye(2)), "at least two coordinates"),
        (lambda: Decoders(3, [[2.0]]), "values in"),
        (lambda: Decoders(3, np.eye(2)).index(1, 1, 0, 0), "is not a decoder"),
        (lambda: Decoders(3, np.eye(2)).parameters(np.array([24])), "functions 0 to 23"),
        (lambda: Decoders(3, np.eye(2)).values(np.zeros((4, 2))), "at least 3 coordinates"),
        (lambda: copies_around(np.zeros((1, 1)), 0, np.random.default_rng(0)), "at least one function"),
        (lambda: Prototypes(np.zeros((1, 2, 3)), np.zeros(1, int), np.zeros((1, 3, 2))), "prototypes need"),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(InvalidInput, match=words):
        call()

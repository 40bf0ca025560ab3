"""Groups of equal keys and rows, against NumPy's own."""

import numpy as np
import pytest

from richobs.stats import grouping
from richobs.stats.grouping import MOST_FLAGS, equal_rows, kinds, numbered


@pytest.mark.parametrize("below", [50, MOST_FLAGS + 1])
def test_keys_are_numbered_as_numpy_does(below):
    keys = np.random.default_rng(0).integers(0, 50, 400)
    distinct, place = numbered(keys, below)
    expected, inverse = np.unique(keys, return_inverse=True)
    np.testing.assert_array_equal(distinct, expected)
    np.testing.assert_array_equal(place, inverse)


def test_rows_are_one_kind_where_every_column_agrees():
    a, b = np.array([0.1, 0.1, 0.2, 0.1, 0.2]), np.array([1.0, 2.0, 1.0, 1.0, 1.0])
    places, group = kinds(a, b)
    assert [np.flatnonzero(group == group[p]).tolist() for p in sorted(places)] in ([[0, 3], [1], [2, 4]],)
    assert len(places) == 3
    assert group[0] == group[3] != group[1]


@pytest.mark.parametrize("collide", [False, True])
@pytest.mark.parametrize(
    "rows", [np.array([[0.0, 1.0], [0.5, 1.0], [-0.0, 1.0], [0.5, 0.5]]), np.eye(8, dtype=np.uint8)]
)
def test_equal_rows_are_one_group_also_where_different_ones_have_one_hash(rows, collide, monkeypatch):
    if collide:
        monkeypatch.setattr(grouping, "_weights", lambda n: np.zeros(n, dtype=np.uint64))
    rows = np.concatenate([rows, rows[::-1]])
    place, group = equal_rows(rows)
    np.testing.assert_array_equal(rows[place][group], rows)
    assert len(place) == len(np.unique(rows + 0.0, axis=0)) == len(set(group.tolist()))

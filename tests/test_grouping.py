"""Groups of equal keys and rows, against NumPy's own."""

import numpy as np
import pytest

from richobs.stats.grouping import MOST_FLAGS, kinds, numbered


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

"""Groups of equal keys and rows, against NumPy's own."""

import numpy as np
import pytest

from richobs.stats import grouping
from richobs.stats.grouping import MANY_ROWS, MOST_FLAGS, equal_keys, equal_rows, kinds, numbered


@pytest.mark.parametrize("below", [50, MOST_FLAGS + 1])
def test_keys_are_numbered_as_numpy_does(below):
    keys = np.random.default_rng(0).integers(0, 50, 400)
    distinct, place = numbered(keys, below)
    expected, inverse = np.unique(keys, return_inverse=True)
    np.testing.assert_array_equal(distinct, expected)
    np.testing.assert_array_equal(place, inverse)


@pytest.mark.parametrize("slots", [8, 0])  # with two slots in all most hashes share theirs with others
def test_many_keys_and_rows_are_grouped_by_a_table_of_their_hashes(slots, monkeypatch):
    monkeypatch.setattr(grouping, "SLOTS_A_ROW", slots)
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 3, (400, 16)).astype(np.uint8)[rng.integers(0, 400, 2 * MANY_ROWS)]
    keys = rows[:, :8].copy().view(np.int64)[:, 0]
    for whole, (place, group) in ((keys[:, None], equal_keys(keys)), (rows, equal_rows(rows))):
        np.testing.assert_array_equal(whole[place][group], whole)
        assert len(place) == len(np.unique(whole, axis=0)) == len(set(group.tolist()))


def test_rows_are_one_kind_where_every_column_agrees():
    a, b = np.array([0.1, 0.1, 0.2, 0.1, 0.2]), np.array([1.0, 2.0, 1.0, 1.0, 1.0])
    places, group = kinds(a, b)
    assert [np.flatnonzero(group == group[p]).tolist() for p in sorted(places)] in ([[0, 3], [1], [2, 4]],)
    assert len(places) == 3
    assert group[0] == group[3] != group[1]


@pytest.mark.parametrize("copies", [1, MANY_ROWS])
@pytest.mark.parametrize("collide", [False, True])
@pytest.mark.parametrize(
    "rows", [np.array([[0.0, 1.0], [0.5, 1.0], [-0.0, 1.0], [0.5, 0.5]]), np.eye(8, dtype=np.uint8)]
)
def test_equal_rows_are_one_group_also_where_different_ones_have_one_hash(rows, collide, copies, monkeypatch):
    if collide:
        monkeypatch.setattr(grouping, "_weights", lambda n: np.zeros(n, dtype=np.uint64))
    rows = np.concatenate([rows, rows[::-1]] * copies)
    place, group = equal_rows(rows)
    np.testing.assert_array_equal(rows[place][group], rows)
    assert len(place) == len(np.unique(rows + 0.0, axis=0)) == len(set(group.tolist()))


def test_rows_of_ever_new_lengths_fill_no_memory() -> None:
    """Numbers that hashes need were once kept for every length that came: megabytes for each long run."""
    for n in range(1, 200):
        grouping.equal_rows(np.arange(3.0)[:, None].repeat(n, axis=1))
    assert grouping._weights.cache_info().currsize <= 32

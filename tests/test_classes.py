"""Function classes, with values worked out by hand."""

import math

import numpy as np
import pytest

import richobs
from richobs.classes import (
    CODECS,
    CallableLevel,
    Callables,
    Chosen,
    Constants,
    Decoders,
    Layered,
    LevelClass,
    Listed,
    TableLevel,
    Tables,
    codec,
    copies_around,
    listed_product,
)
from richobs.classes.base import digest_of, from_arrays, to_arrays
from richobs.core.errors import InvalidFile, InvalidInput
from richobs.core.functions import SHORT, reduced
from richobs.core.moments import Batch
from richobs.core.process import Codebook
from richobs.learners.betting.values import top_values
from richobs_lab.prototypes import Prototypes


@pytest.mark.parametrize("k", [1, 4, SHORT, SHORT + 1])
@pytest.mark.parametrize("m", [1, 40, 1000])
def test_short_rows_are_reduced_as_numpy_does(k: int, m: int) -> None:
    values = np.random.default_rng(0).normal(size=(2, m, k))
    np.testing.assert_array_equal(reduced(np.maximum, values), values.max(axis=2))
    np.testing.assert_array_equal(reduced(np.minimum, values.swapaxes(0, 1)), values.swapaxes(0, 1).min(axis=2))


def test_a_decoder_worked_out_by_hand():
    decoders = Decoders(3, [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]])
    assert decoders.size == 3 * 2 * 9
    member = decoders.index(2, 0, 1, 2)  # coordinate 2 means first (actions 1, 2), coordinate 0 second (actions 2, 0)
    x = np.array([[0, 1, 1], [1, 1, 0], [0, 1, 0], [1, 0, 1]])
    expected = [[0, 0.5, 0.5], [0.5, 0, 0.5], [0, 0, 0], [0.5, 0.5, 0.5]]
    for asked in ([member], [member, member]):  # one function has a way of its own
        np.testing.assert_array_equal(decoders.values(x, np.array(asked)), [expected] * len(asked))
    assert decoders.reads(member, None) == (2, 0)


def test_decoders_list_every_pair_of_coordinates_once():
    decoders = Decoders(4, np.eye(2))
    first, second, a, b = decoders.parameters()
    assert len({*zip(first, second, a, b, strict=True)}) == decoders.size == 48
    assert (first != second).all()
    again = [decoders.index(*map(int, p)) for p in zip(first, second, a, b, strict=True)]
    assert again == list(range(48))
    twice = np.array([decoders.index(0, 2, 1, 0), decoders.index(2, 0, 0, 1)])  # one function, written both ways round
    assert [decoders.kinds(twice, action)[1].tolist() for action in range(2)] == [[0, 0], [0, 0]]


def test_a_rotation_is_undone_before_decoding():
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    x = np.array([[1.0, 0.0], [0.0, 1.0]])
    plain, turned = Decoders(2, np.eye(2)), Decoders(2, np.eye(2), rotation=turn)
    np.testing.assert_array_equal(turned.values(x @ turn.T), plain.values(x))


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


class Steps(LevelClass):
    """Two functions of a number, with nothing but what must be written."""

    @property
    def size(self):
        return 2

    @property
    def n_actions(self):
        return 2

    def values(self, x, members=None, /):
        tables = np.array([[0.1, 0.9], [0.7, 0.3]])
        rows = tables if members is None else tables[members]
        return np.repeat(rows[:, None, :], len(x), axis=1)


def test_the_defaults_claim_nothing():
    steps, members = Steps(), np.array([1, 0, 1])
    assert steps.code is None
    assert steps.observation_ndim is None
    assert steps.reads(0, None) is None
    low, high = steps.value_bounds()
    assert (low.tolist(), high.tolist()) == ([0, 0], [1, 1])
    some, group = steps.kinds(members, 0)
    assert (some.tolist(), group.tolist()) == ([1, 0, 1], [0, 1, 2])
    one = steps.singleton(1)
    assert isinstance(one, Chosen)
    np.testing.assert_array_equal(one.values(np.zeros(1)), [[[0.7, 0.3]]])
    with pytest.raises(TypeError, match="abstract"):
        LevelClass()


def test_a_class_with_other_values_inherits_no_promise_about_them():
    class Lifted(Constants):
        def values(self, x, members=None, /):
            return np.minimum(super().values(x, members) + x[None, :, None], 1.0)

    lifted = Lifted([[0.5, 0.2], [0.5, 0.2]])
    assert lifted.code is None
    assert lifted.reads(0, None) is None
    assert lifted.value_bounds()[1].tolist() == [1, 1]
    assert lifted.kinds(np.arange(2), 0)[1].tolist() == [0, 1]
    assert lifted.singleton(1).values(np.array([0.25])).tolist() == [[[0.75, 0.45]]]
    assert Layered([lifted]).digest is None

    class Dimmed(Decoders):
        def values(self, x, members=None, /):
            return super().values(x, members) / 2

    assert Dimmed(2, [[1.0, 0.0]]).rows(np.eye(2), np.arange(2)) is None

    class Named(Constants):  # the same values, made in another way: what is true of them stays, the file does not
        def __init__(self, action):
            super().__init__(np.eye(2)[[action, action]])

    assert Named(1).code is None
    assert Named(1).kinds(np.arange(2), 0)[1].tolist() == [0, 0]
    assert Named(1).reads(0, None) == ()
    with pytest.raises(InvalidInput, match="Named are Python code"):
        to_arrays(Named(1))


def test_some_of_some_functions():
    tables = TableLevel(np.arange(4).reshape(4, 1, 1) / 10)
    chosen = Chosen(Chosen(tables, np.array([3, 1, 2])), np.array([2, 0]))
    assert chosen.level_class is tables
    np.testing.assert_array_equal(chosen.values(np.array([0])).ravel(), [0.2, 0.3])
    kind, arrays = to_arrays(chosen)
    assert (kind, arrays["members"].tolist()) == ("chosen table", [2, 3])
    assert from_arrays(kind, arrays).value_bounds()[0].tolist() == [0.2, 0.3]
    with pytest.raises(InvalidInput, match="functions 0 to 3; asked for 4"):
        Chosen(tables, np.array([4]))


def test_a_product_listed_function_by_function():
    first = TableLevel([[[0.1, 0.2]], [[0.3, 0.4]]])
    second = Constants([[0.5, 0.5], [0.6, 0.6], [0.7, 0.7]])
    listed = listed_product(Layered([first, second]))
    assert [listed.level_size(h) for h in (0, 1)] == [6, 6]
    np.testing.assert_array_equal(listed.member(4).values(0, np.array([0])), [[0.3, 0.4]])
    np.testing.assert_array_equal(listed.member(4).values(1, np.array([0])), [[0.6, 0.6]])
    assert listed.value_bounds(1)[0].tolist() == [0.5, 0.6, 0.7] * 2
    with pytest.raises(InvalidInput, match="6 functions, too many to list; at most 5"):
        listed_product(Layered([first, second]), at_most=5)


FIRST = np.array([[[0.1, 0.2], [0.3, 0.4]], [[0.5, 0.6], [0.7, 0.8]]])
CENTRES = np.array([[[0.0, 0.0], [1.0, 1.0]], [[1.0, 1.0], [0.0, 0.5]]])
COIN = [[0.5, 0.25], [0.0, 1.0]]


@pytest.mark.parametrize(
    ("functions", "digest"),
    [
        (Layered([TableLevel(FIRST)] * 2), "a60f86ad02d10019"),
        (Listed([TableLevel(FIRST)] * 2), "91fefd9386b8e063"),
        (Layered([TableLevel(FIRST, Codebook(np.array([[1, 0], [0, 1]])))]), "a0f5303c98fac77f"),
        (Layered([Decoders(3, COIN)] * 2), "fdea23735b43df51"),
        (Layered([Decoders(3, COIN, rotation=np.eye(3)[[1, 0, 2]])]), "8437435fe0a22edb"),
        (Layered([Prototypes(CENTRES, np.array([0, 1]), FIRST)]), "b1bafa7580e7dacc"),
        (listed_product(Layered([Decoders(3, COIN), TableLevel(FIRST)])), "61299d67697dc12f"),
    ],
)
def test_digests_stay_what_they_were(functions, digest):
    """Certificates that were written name classes by these."""
    assert functions.digest.startswith(digest)


def test_digests_depend_on_content_not_on_order():
    a, b = np.array([0.5]), np.array([1, 2])
    digest = digest_of([("table", {"a": a, "b": b})])
    assert digest_of([("table", {"b": b, "a": a})]) == digest
    others = [{"a": a, "c": b}, {"a": a + 0.1, "b": b}, {"a": a, "b": b.astype(float)}, {"a": a, "b": b[:, None]}]
    assert len({digest, digest_of([("list", {"a": a, "b": b})]), *(digest_of([("table", o)]) for o in others)}) == 6


def class_with(code, *methods):
    """A class like `Steps` that claims a code and has some of the methods that a registered class needs."""
    return type("Mine", (Steps,), {"code": code, **dict.fromkeys(methods, classmethod(lambda cls, arrays=None: {}))})


@pytest.mark.parametrize(
    ("mine", "words"),
    [
        (Steps, "Steps needs a `code`"),
        (class_with("half", "to_arrays"), "code 'half' but no `from_arrays`"),
        (class_with("table", "to_arrays", "from_arrays"), "'table', which belongs to TableLevel"),
    ],
)
def test_what_a_registered_class_must_have(mine, words):
    with pytest.raises(InvalidInput, match=words):
        codec(mine)
    assert CODECS["table"] is TableLevel


@pytest.mark.parametrize(
    ("kind", "arrays", "words"),
    [
        ("wavelets", {}, "no kind of function class called 'wavelets'; there are .*table.*Import the module"),
        ("chosen chosen table", {}, "no kind of function class called 'chosen table'"),
        ("table", {}, "arrays of a table class are damaged: 'tables'"),
        ("table", {"tables": np.full((1, 1, 1), 2.0)}, "damaged: function 0 has value 2.0"),
        ("chosen table", {"tables": np.zeros((1, 1, 1)), "members": np.array([1])}, "functions 0 to 0; asked for 1"),
        ("constant", {"values": np.zeros(3)}, "constants must be"),
        ("table", {"tables": np.zeros((1, 1, 1)), "value_range": np.array([1.0, 0.0])}, "damaged"),
    ],
)
def test_damaged_arrays_are_refused(kind, arrays, words):
    with pytest.raises(InvalidFile, match=words):
        from_arrays(kind, arrays)


NO_RANGES = [(1.0, 0.0), (0.0, math.inf), (math.nan, 1.0), (0.0,)]
ONE, NAMED = TableLevel([[[0.1]]]), TableLevel([[[0.1]]], Codebook(np.array(["a"])))  # of one function, one observation
SETS, FIRSTS = np.zeros((1, 2, 3)), np.zeros(1, int)  # a set of two centres, and the set of the only function


class Huge(LevelClass):
    size, n_actions = 10**12, 2

    def values(self, x, members=None, /):
        return np.zeros((self.size, len(x), 2))


def shifted(h, x):
    return np.zeros((len(x), 2)) - 0.5


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda h, x: np.zeros(len(x)), r"<lambda> must return \[n, K\] = \(3, 2\) values at level 1; .* shape \(3,\)"),
        (lambda h, x: None, r"it returned shape \(\)"),
        (lambda h, x: np.full((3, 2), math.nan), "returned nan at level 1 for action 0 and observation 5"),
        (shifted, "shifted returned -0.5 at level 1"),
        (lambda h, x: [["a", "b"]] * 3, "must return an array of numbers at level 1"),
        (lambda h, x: [[0.1, 0.2], [0.3]], "must return an array of numbers at level 1"),
        (lambda h, x: np.full((3, 2), 0.5j), "must return an array of numbers at level 1.*complex128"),
    ],
)
def test_a_function_that_returns_something_else_is_named(f, words):
    functions = Callables([f], horizon=2, n_actions=2)
    for call in (
        lambda: functions.values(1, np.array([5, 6, 7])),
        lambda: functions.moments(1, Batch.of_observations(np.array([5, 6, 7]), 2)),
        lambda: functions.member(0).values(1, np.array([5, 6, 7])),
    ):
        with pytest.raises(InvalidInput, match=words):
            call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        *((lambda r=r: TableLevel([[[0.5]]], value_range=r), "value_range must be") for r in NO_RANGES),
        (lambda: TableLevel([[[-3.0, 8.0]]], value_range=(-2.0, 8.0)), r"has value -3.0 .* must lie in \[-2, 8\]"),
        (lambda: Tables([[[[100.1]]]], value_range=(0.0, 101.0), single_precision=True), "by 1.5e-06, more than 1e-07"),
        (lambda: Huge().value_bounds(), "a Huge of 1,000,000,000,000 functions needs a `value_bounds` of its own"),
        (lambda: TableLevel([[[0.1, 1.2]]]), "function 0 has value 1.2 at observation 0, action 1"),
        (lambda: TableLevel([[[math.nan]]]), "function 0 has value nan"),
        (lambda: TableLevel(np.zeros((0, 2, 2))), r"got shape \(0, 2, 2\)"),
        (lambda: TableLevel([[0.1]]), r"must be \[N, X, K\]"),
        (lambda: ONE.values(np.array([1])), "observation 1 is not known: there are 0 to 0"),
        (lambda: Layered([]), "the list is empty"),
        (lambda: Layered([ONE, TableLevel([[[0.1, 0.2]]])]), "level 1 has 2 actions and that of level 0 has 1"),
        (lambda: Layered([ONE]).member((0, 0)), "1 in all; got 2"),
        (lambda: Layered([ONE]).member((1,)), "functions 0 to 0; got 1"),
        (lambda: ONE.values(np.array([0]), np.array([-1])), "functions 0 to 0; asked for -1"),
        (lambda: TableLevel([[[0.1]], [[0.2]]]).values(np.array([0.5])), "observation 0.5 is not known"),
        (lambda: Prototypes(SETS, np.array([1]), np.zeros((1, 2, 2))), "centre sets 0 to 0"),
        (lambda: Prototypes(SETS, FIRSTS, np.zeros((1, 2, 2))).values(np.zeros((4, 1))), "vectors of length 3"),
        (lambda: Decoders(1, np.eye(2)), "at least two coordinates"),
        (lambda: Decoders(3, [[2.0]]), "values in"),
        (lambda: Decoders(3, np.eye(2)).index(1, 1, 0, 0), "is not a decoder"),
        (lambda: Decoders(3, np.eye(2)).parameters(np.array([24])), "functions 0 to 23"),
        (lambda: Decoders(3, np.eye(2)).values(np.zeros((4, 2))), "at least 3 coordinates"),
        (lambda: copies_around(np.zeros((1, 1)), 0, np.random.default_rng(0)), "at least one function"),
        (lambda: Prototypes(SETS, FIRSTS, np.zeros((1, 3, 2))), "prototypes need"),
        (lambda: Constants([0.1]), r"must be \[N, K\]"),
        (lambda: Constants([[0.1, -0.1]]), "function 0 has value -0.1 at action 1"),
        (lambda: Layered([np.zeros((1, 1, 1))]), "level 0 is a ndarray; .*LevelClass"),
        (lambda: Layered([ONE]).member((0.0,)), "functions 0 to 0; got 0.0"),
        (lambda: Listed([Constants([[0.1]]), Constants([[0.1], [0.2]])]), r"as many members at every level; got \[1"),
        (lambda: Listed([Constants([[0.1]])]).member(0.0), "functions 0 to 0; got 0.0"),
        (lambda: Listed([Constants([[0.1]])]).member((0,)), r"functions 0 to 0; got \(0,\)"),
        (lambda: Callables([], 2, 2), "the list is empty"),
        (lambda: Callables([np.zeros], 0, 2), "horizon must be a whole number, at least 1, at most 1,000,000; got 0"),
        (lambda: CallableLevel([np.zeros], 0, 0), "n_actions must be at least 1; got 0"),
        (lambda: CallableLevel([0.5], 0, 2), "function 0 cannot be called: it is a float"),
        (lambda: Codebook(np.array([1, 1])), "two rows of a codebook are equal"),
        (lambda: ONE.values(np.array(["a"])), "of type int64; got <U1"),
        (lambda: ONE.values(np.array([math.nan])), "observation nan is not known"),
        (lambda: Codebook(np.array([[1, 0], [0, 1]])).encode(np.array([[0, 1], [1, 1]])), r"\[1 1\] is not among the"),
        (lambda: ONE.values(np.array(0)), r"got shape \(\)"),
        (lambda: NAMED.values(np.array(["ab"])), "observation ab is not among"),
        (lambda: NAMED.values(np.array([0])), "of type <U1; got int64"),
        (lambda: TableLevel([[[0.1 + 1j]]]), "real numbers; an array of complex128 arrived"),
        (lambda: richobs.Tables([np.full((1, 1, 1), 0.1j)], single_precision=True), "real numbers"),
        (lambda: Constants([[0.1 + 0j]]), "real numbers"),
        (lambda: Decoders(3, np.eye(2) + 1j), "real numbers"),
        (lambda: Prototypes(SETS, FIRSTS, np.full((1, 2, 2), 0.5j)), "real numbers"),
        (lambda: Prototypes(np.full((1, 2, 3), 1j), np.zeros(1, int), np.zeros((1, 2, 2))), "real numbers"),
        (lambda: richobs.Linear("identity", [[[0.1j]]], 1), "real numbers"),
        (lambda: richobs.Rewards.deterministic([[[0.5j]]]), "real numbers"),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(InvalidInput, match=words):
        call()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda v: v - 1.0, r"returned -0.25 to -0.25; values must lie in \[0, 1\]"),
        (lambda v: 2 * v, r"Own.values returned .* to 1.\d+; values must lie in \[0, 1\]"),
        (lambda v: v * np.nan, r"values must lie in \[0, 1\]"),
        (lambda v: v.swapaxes(0, 1), r"\[N, n, K\] = \(2, 3, 2\); it returned float64 of shape \(3, 2, 2\)"),
        (lambda v: v[:1], r"of shape \(1, 3, 2\)"),
    ],
)
def test_values_of_a_class_of_ones_own_are_checked(change, sentence):
    class Own(LevelClass):
        size, n_actions = 2, 2

        def values(self, x, members=None, /):
            every = np.full((2, len(x), 2), 0.75)
            return change(every if members is None else every[members])

    functions, x = Listed([Own()]), np.arange(3)
    for ask in (lambda: functions.values(0, x), lambda: functions.moments(0, Batch.of_observations(x, 2))):
        with pytest.raises(InvalidInput, match=sentence):
            ask()


def test_tables_in_single_precision_are_kept_so_and_not_copied():
    level = Tables([np.array([[[0.5, 0.1]]])], single_precision=True).levels[0]
    assert level.tables.dtype == np.float32
    assert TableLevel(level.tables).tables is level.tables


def test_whole_classes_come_back(tmp_path):
    for functions in (
        Layered([TableLevel(FIRST), Chosen(Constants(FIRST[0]), np.array([1]))]),
        Listed([TableLevel(FIRST), TableLevel(FIRST, Codebook(np.array(["a", "b"])))]),
    ):
        functions.save(tmp_path / "class.npz")
        again = type(functions).load(tmp_path / "class.npz")
        assert again.digest == functions.digest
    with pytest.raises(InvalidFile, match=r"not hold a richobs.Layered class; richobs.Listed.load reads"):
        Layered.load(tmp_path / "class.npz")
    with pytest.raises(InvalidInput, match="Python code"):
        Callables([lambda h, x: x], 1, 2).save(tmp_path / "class.npz")
    (tmp_path / "class.npz").write_bytes(b"PK")
    with pytest.raises(InvalidFile, match="not a richobs-functions file"):
        Listed.load(tmp_path / "class.npz")


@pytest.mark.parametrize("kind", [Layered, Listed])
def test_values_of_ones_own_are_what_is_bet_on(kind):
    """Decoders know rows of their values; a class that changes the values must be read by these."""

    class Halved(kind):
        def values(self, level, x, members=None, /):
            return super().values(level, x, members) / 2

    levels, x = [Decoders(2, [[0.2, 0.4], [0.6, 0.0]])], np.array([[1.0, 0.0]])
    assert kind(levels).rows(0, x, np.arange(8)) is not None
    assert Halved(levels).rows(0, x, np.arange(8)) is None
    np.testing.assert_array_equal(Halved(levels).values(0, x), kind(levels).values(0, x) / 2)


def test_what_a_decoder_is_worth_stays_as_it_was_given():
    given = np.array([[0.2, 0.4], [0.6, 0.0]])
    decoders = Decoders(2, given)
    given[0] = 1.0
    assert decoders.worth[0].tolist() == [0.2, 0.4]
    with pytest.raises(ValueError, match="read-only"):
        decoders.worth[0] = 1.0
    with pytest.raises(AttributeError):
        decoders.worth = given


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 0, 1)])  # the second is not contiguous
def test_tables_are_read_where_they_say_whatever_their_memory(kind, axes):
    tables = np.random.default_rng(0).random((5, 6, 4)).astype(kind).transpose(axes)
    level, rng = TableLevel(tables), np.random.default_rng(1)
    for n, size in ((1, 1), (7, 3), (2, 40)):
        x, members = rng.integers(tables.shape[1], size=n), rng.integers(len(tables), size=size)
        expected = np.array([[[float(v) for v in tables[i, k]] for k in x] for i in members])
        np.testing.assert_array_equal(level.values(x, members), expected)
        values, row = level.rows(x, members)
        np.testing.assert_array_equal(values[row], expected.max(axis=2))


def test_tables_that_were_changed_are_noticed():
    level = TableLevel(np.full((2, 3, 2), 0.5))
    level.tables[1, 2] = np.nan
    assert level.rows(np.array([0, 1]), np.arange(2)) is not None
    assert level.rows(np.array([2]), np.arange(2)) is None
    with pytest.raises(InvalidInput, match="not a number"):
        top_values(richobs.Layered([level]), 0, np.arange(2), np.array([2]))

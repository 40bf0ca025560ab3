"""Bodies of a record: they come back as they were, and bytes from anybody cannot take more memory than they may declare."""

import json
import tracemalloc
import zlib

import numpy as np
import pytest

from richobs.core.errors import InvalidFile, InvalidInput
from richobs.core.files import LARGEST_HEAD, MOST_ARRAYS, NESTED, SIZES, fold, pack, parse_json, unfold, unpack


def forged(content, arrays=b"", *, head_size=None, size=None):
    """Returns a body as somebody would make it who knows the format."""
    line = content if isinstance(content, bytes) else json.dumps(content).encode()
    sizes = SIZES.pack(len(line) if head_size is None else head_size, len(arrays) if size is None else size)
    return sizes + zlib.compress(line + arrays)


@pytest.mark.parametrize(
    "arrays",
    [
        [],
        [np.zeros((0, 3))],
        [np.arange(6).reshape(2, 3).T, np.array([True]), np.array(["a", "bcd"]), np.array([b"x"])],
        [np.array(2.5), np.zeros((2, 0, 4), "<f4"), np.array(["2020-01-31"], "M8[D]"), np.array([1j])],
    ],
)
def test_what_is_packed_comes_back(arrays):
    head, back = unpack(pack({"a": [1, None, "x"]}, arrays))
    assert head == {"a": [1, None, "x"]}
    assert [(a.dtype, a.shape, a.tolist()) for a in back] == [(a.dtype, a.shape, a.tolist()) for a in arrays]
    assert all(a.flags.writeable for a in back)


def test_a_bomb_is_refused_before_it_expands():
    zeros = zlib.compress(bytes(2**26), 9)
    honest = SIZES.pack(2, 2**33) + zeros
    line = json.dumps([None, [["<f8", [1]]]]).encode()
    stream = zlib.compressobj()
    understated = SIZES.pack(len(line), 8) + stream.compress(line) + stream.compress(bytes(2**26)) + stream.flush()
    tracemalloc.start()
    with pytest.raises(InvalidFile, match=r"declares 2 bytes of plain values and 8,589,934,592 of arrays"):
        unpack(honest)
    with pytest.raises(InvalidFile, match="does not expand to exactly that"):
        unpack(understated)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**22


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"short", "too few to declare"),
        (forged([None, []], b"x"), "lists others"),
        (forged([None, [["<f8", [2]]]], bytes(8)), "lists others"),
        (forged([None, [["<f8", [1]]]], bytes(8))[:-1], "damaged|exactly"),
        (forged([None, [["<f8", [1]]]], bytes(8)) + b"more", "exactly"),
        (forged([None, [["<f8", [1]]]], bytes(8), size=16), "exactly"),
        (forged([None, []], head_size=LARGEST_HEAD + 1), "are allowed"),
        (forged([None, [["|O", [1]]]], bytes(8)), "not one of numbers"),
        (forged([None, [["(1000000000,)f8", [1]]]], bytes(8)), "not one of numbers"),
        (forged([None, [["f8,f8", [1]]]], bytes(16)), "not one of numbers"),
        (forged([None, [[3, [1]]]], bytes(8)), "not one of numbers"),
        (forged([None, [["<f8", [-1, -1]]]], bytes(8)), "not the shape"),
        (forged([None, [["<f8", [True]]]], bytes(8)), "not the shape"),
        (forged([None, [["<f8", [1] * 33]]], bytes(8)), "not the shape"),
        (forged([None, [["<f8", [0, 2**70]]]]), "damaged"),
        (forged([None, [["<f8", [2**62, 4]]]]), "lists others"),
        (forged([None, [["<U0", [2**40]]]]), "not the shape"),
        (forged([None, [["<f8", [0]]] * (MOST_ARRAYS + 1)]), "131,073 arrays"),
        (forged(b"[" * 200_000), "nested too deeply"),
        (forged([None]), "damaged"),
        (forged(b"nonsense"), "damaged"),
        (forged(b"\xff\xfe"), "damaged"),
    ],
)
def test_what_nobody_packed_is_refused(body, sentence):
    with pytest.raises(InvalidFile, match=sentence):
        unpack(body)


@pytest.mark.parametrize("array", [np.array([None]), np.zeros(2, "f8,f8"), np.zeros(2, "V3")])
def test_arrays_that_are_not_kept(array):
    with pytest.raises(InvalidInput, match="arrays of numbers, bits or characters"):
        pack(None, [array])


def test_nesting_is_bounded():
    assert parse_json("[" * NESTED + "]" * NESTED) is not None
    with pytest.raises(ValueError, match="more than 32 lists and objects"):
        parse_json("[" * (NESTED + 1) + "1" + "]" * (NESTED + 1))
    with pytest.raises(ValueError, match="a key is given twice"):
        parse_json('{"a": 1, "a": 2}')


def test_json_of_very_many_values_is_refused_before_it_takes_memory(monkeypatch):
    monkeypatch.setattr("richobs.core.files.MOST_VALUES", 3)
    assert parse_json("[1, 2, 3]") == parse_json(b"[1, 2, 3]") == [1, 2, 3]
    for text in ("[1, 2, 3, 4]", b'{"a": 1, "b": 2, "c": 3, "d": 4}'):
        with pytest.raises(ValueError, match="more than 3 values"):
            parse_json(text)


class TestFoldedTexts:
    first, second = json.dumps(list(range(500))), json.dumps([*range(500), 7])

    def test_only_what_is_new_is_kept(self):
        body = fold(self.second, self.first)
        assert unfold(body, self.first, 10_000) == self.second
        assert len(body) < 60 < len(fold(self.second, "")) // 10

    @pytest.mark.parametrize("longest", [100, len(second) - 1])
    def test_a_longer_text_is_refused(self, longest):
        with pytest.raises(InvalidFile, match=f"more than {longest:,} bytes"):
            unfold(fold(self.second, ""), "", longest)

    @pytest.mark.parametrize(
        "body", ["text", 3, None, b"", b"junk", fold("x", "")[:-1], fold("x", "") + b"y", fold("x", "z")]
    )
    def test_what_nobody_folded_is_refused(self, body):
        with pytest.raises(InvalidFile, match="a folded text is damaged"):
            unfold(body, "", 1000)


def test_whole_numbers_of_json_fit_a_float():
    assert parse_json(f"[-{'9' * 299}]") == [-int("9" * 299)]
    with pytest.raises(ValueError, match="more than 300 digits"):
        parse_json('{"a": [1' + "0" * 300 + "]}")


def test_what_expands_too_much_is_written_so_that_it_can_be_read(monkeypatch):
    monkeypatch.setattr("richobs.core.files.EXPANDED", 20_000)
    body = pack(None, [np.zeros(10_000)])
    assert len(body) > 80_000
    assert unpack(body)[1][0].shape == (10_000,)

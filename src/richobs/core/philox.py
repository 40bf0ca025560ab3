"""Philox4x32-10, a counter-based generator, for NumPy arrays and PyTorch tensors alike, bit for bit the same.

Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3". Four 32-bit words are a pure function of a
128-bit counter and a 64-bit key, so every element of a batch is drawn on its own, on any device and in any order. Words are
held in 64-bit integers, which both libraries have; a product that passes 2^63 wraps around, and its words stay right.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

ROUNDS = 10
WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)  # golden ratio and sqrt(3) - 1: added to the key from round to round

Words = Any  # int64 array of NumPy or PyTorch, each element a 32-bit word


def philox4x32(counter: tuple[Words, Words, Words, Words], key: tuple[int, int]) -> tuple[Words, Words, Words, Words]:
    """Returns four words for each counter.

    Args:
        counter: four arrays of one shape, the low word first.
        key: two words.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        first, second = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            ((second >> 32) & WORD) ^ c1 ^ k0,
            second & WORD,
            ((first >> 32) & WORD) ^ c3 ^ k1,
            first & WORD,
        )
        k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    return c0, c1, c2, c3


def doubles(high: Words, low: Words) -> Any:
    """Returns uniform numbers in [0, 1) with 53 random bits, float64, from two words each."""
    return _as_double((high >> 5) * 2**26 + (low >> 6)) * 2.0**-53


def floats(word: Words) -> Any:
    """Returns uniform numbers in [0, 1) with 24 random bits, float32, from one word each."""
    whole = word >> 8
    return (
        whole.astype(np.float32) * np.float32(2.0**-24) if isinstance(whole, np.ndarray) else whole.float() * 2.0**-24
    )


def _as_double(whole: Words) -> Any:
    """Returns whole numbers as float64; both libraries do that exactly below 2^53."""
    return whole.astype(np.float64) if isinstance(whole, np.ndarray) else whole.double()


class CounterStream:
    """Random words of one key for n rows: draw number i of row j depends on key, i and j alone."""

    def __init__(self, key: tuple[int, int], arange: Callable[[int, int], Any]):
        """Describes the stream; nothing is drawn.

        Args:
            key: from `richobs.core.randomness.counter_key`.
            arange: returns the integers from its first argument up to its second, as int64 on the device that draws.
        """
        self._key = key
        self._arange = arange
        self._draws = 0

    @classmethod
    def of_numpy(cls, key: tuple[int, int]) -> "CounterStream":
        """Returns the stream of a key as NumPy arrays."""
        return cls(key, lambda first, end: np.arange(first, end, dtype=np.int64))

    @classmethod
    def of_torch(cls, key: tuple[int, int], torch: Any, device: Any) -> "CounterStream":
        """Returns the same stream as tensors on a device."""
        return cls(key, lambda first, end: torch.arange(first, end, dtype=torch.int64, device=device))

    def words(self, n: int, width: int, first: int = 0) -> Words:
        """Returns `[n, width]` 32-bit words for rows `first` to `first + n - 1`; the next call draws others."""
        blocks = -(-width // 4)
        row = self._arange(first, first + n)[:, None]
        block = self._arange(0, blocks)[None, :]
        draw = self._draws
        self._draws += 1
        shape = row * 0 + block * 0
        counter = ((row & WORD) + shape, (row >> 32) + shape, block + shape, shape + draw)
        parts = philox4x32(counter, self._key)
        result = self._arange(0, n * blocks * 4).reshape(n, blocks, 4)
        for i, part in enumerate(parts):
            result[:, :, i] = part
        return result.reshape(n, blocks * 4)[:, :width]

    def uniform(self, n: int, first: int = 0) -> Any:
        """Returns `[n]` uniform float64 numbers in [0, 1)."""
        words = self.words(n, 2, first)
        return doubles(words[:, 0], words[:, 1])

    def bits(self, n: int, width: int, first: int = 0) -> Any:
        """Returns `[n, width]` fair bits, as int64."""
        words = self.words(n, -(-width // 32), first)
        place = self._arange(0, 32)[None, None, :]
        return ((words[:, :, None] >> place) & 1).reshape(n, -1)[:, :width]

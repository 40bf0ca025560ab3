"""Generators keyed by what they are for.

A draw is a pure function of its key, so results do not depend on order, worker count or interruption, and no
generator that a user seeds with the same number gives the same sequence as one of these.
"""

import hashlib
import operator

import numpy as np

Key = int | str | tuple["Key", ...]


def keyed_generator(seed: int, *key: Key) -> np.random.Generator:
    """Returns the generator that belongs to `(seed, *key)`: Philox, its 128-bit key a hash of all of them.

    Equal arguments give equal streams on every machine; arguments that differ anywhere give unrelated streams, also
    unrelated to `np.random.default_rng(seed)` and to a Gymnasium space or environment seeded with `seed`.
    """
    return np.random.Generator(np.random.Philox(key=int.from_bytes(_digest(seed, key, 16), "little")))


def derived_seed(seed: int, *key: Key) -> int:
    """Returns the seed that belongs to `(seed, *key)`, a hash of all of them: its draws are unrelated to those of `seed`."""
    return int.from_bytes(_digest(seed, ("seed", key), 16), "little")


def _digest(seed: int, key: Key, size: int) -> bytes:
    """Returns a hash of seed and key, `size` bytes."""
    text = repr(("richobs", operator.index(seed), _plain(key)))
    return hashlib.blake2b(text.encode(), digest_size=size).digest()


def _plain(key: Key) -> Key:
    """Turns NumPy integers into Python's, so that equal numbers are equal keys whatever their type."""
    if isinstance(key, str):
        return key
    if isinstance(key, tuple):
        return tuple(_plain(part) for part in key)
    return operator.index(key)

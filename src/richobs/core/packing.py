"""Plain values and arrays as bytes, and back; bytes from anybody cannot take more memory than they may declare.

A body begins with two numbers: how many bytes of JSON follow, and how many bytes of arrays after them, once expanded. Both
are checked before anything is expanded. The JSON is `[head, [[dtype, shape], ...]]`.
"""

import json
import math
import re
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from richobs.core.errors import InvalidFile, InvalidInput
from richobs.core.files import expanded_limit, parse_json

SIZES = struct.Struct(">IQ")  # bytes of JSON and of arrays
LARGEST_HEAD = 16 * 2**20  # bytes of JSON
MOST_ARRAYS = 2**17
MOST_AXES = 32
KIND = re.compile(r"[<>|]([biufcSU]\d{1,9}|[mM]8(\[\w{1,12}\])?)")  # numbers, bits, characters, dates

Arrays = list[np.ndarray[Any, Any]]


def pack(head: Any, arrays: Sequence[np.ndarray[Any, Any]]) -> bytes:
    """Returns plain values and arrays as bytes.

    Raises:
        InvalidInput: an array holds something other than numbers, bits or characters, or there are too many.
    """
    plain = [np.asarray(a, order="C") for a in arrays]
    for a in plain:
        if not KIND.fullmatch(a.dtype.str) or a.dtype.names or not a.dtype.itemsize:
            raise InvalidInput(f"a run can keep arrays of numbers, bits or characters; got one of dtype {a.dtype}.")
    line = json.dumps([head, [(a.dtype.str, a.shape) for a in plain]], separators=(",", ":")).encode()
    if len(plain) > MOST_ARRAYS or len(line) > LARGEST_HEAD:
        raise InvalidInput(
            f"a run can keep {MOST_ARRAYS:,} arrays and {LARGEST_HEAD:,} bytes of plain values at once; got {len(plain):,} "
            f"arrays and {len(line):,} bytes. Use fewer levels or actions."
        )
    content = b"".join([line, *(a.tobytes() for a in plain)])
    sizes = SIZES.pack(len(line), len(content) - len(line))
    body = sizes + zlib.compress(content, 1)
    if len(content) > expanded_limit(len(body)):  # it would be refused by `unpack`
        body = sizes + zlib.compress(content, 0)
    return body


def unpack(body: bytes) -> tuple[Any, Arrays]:
    """Returns what `pack` was given.

    Raises:
        InvalidFile: the body declares too much, or something that `pack` does not write, or expands to something else.
    """
    if len(body) < SIZES.size:
        raise InvalidFile(f"a packed body has {len(body)} bytes, too few to declare its size.")
    head_size, size = SIZES.unpack_from(body)
    allowed = expanded_limit(len(body))
    if head_size > LARGEST_HEAD or head_size + size > allowed:
        raise InvalidFile(
            f"a packed body of {len(body):,} bytes declares {head_size:,} bytes of plain values and {size:,} of arrays; "
            f"{LARGEST_HEAD:,} and {allowed:,} are allowed."
        )
    try:
        content = memoryview(_expanded(memoryview(body)[SIZES.size :], head_size + size))
        head, described = parse_json(bytes(content[:head_size]))
        if len(described) > MOST_ARRAYS:
            raise InvalidFile(f"a packed body has {len(described):,} arrays; {MOST_ARRAYS:,} are allowed.")
        layout = [_declared(kind, shape) for kind, shape in described]
        if sum(nbytes for *_, nbytes in layout) != size:
            raise InvalidFile(f"a packed body declares {size:,} bytes of arrays, and lists others.")
        arrays, place = [], head_size
        for kind, shape, nbytes in layout:
            arrays.append(np.frombuffer(content[place : place + nbytes], kind).reshape(shape).copy())
            place += nbytes
    except (ValueError, TypeError, OverflowError, zlib.error) as error:
        raise InvalidFile(f"a packed body is damaged: {error}.") from error
    return head, arrays


def _declared(kind: Any, shape: Any) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Returns dtype, shape and bytes of an array that a head describes."""
    if not isinstance(kind, str) or not KIND.fullmatch(kind):
        raise InvalidFile(
            f"a packed array has dtype {str(kind)[:40]!r}, which is not one of numbers, bits or characters."
        )
    dtype = np.dtype(kind)
    fits = isinstance(shape, list) and len(shape) <= MOST_AXES and all(type(d) is int and d >= 0 for d in shape)
    if not fits or not dtype.itemsize:
        raise InvalidFile(
            f"a packed array of dtype {dtype} has shape {str(shape)[:80]}, which is not the shape of one."
        )
    return dtype, tuple(shape), math.prod(shape) * dtype.itemsize


def _expanded(compressed: memoryview, size: int) -> bytes:
    """Returns what some bytes expand to, which is `size` bytes; never holds more than one byte more."""
    stream = zlib.decompressobj()
    data = stream.decompress(compressed, size + 1)
    if len(data) != size or not stream.eof or stream.unused_data or stream.unconsumed_tail:
        raise InvalidFile(f"a packed body declares {size:,} bytes and does not expand to exactly that.")
    return data


def fold(text: str, before: str) -> bytes:
    """Returns what is new in a text that resembles the one before it, as bytes."""
    stream = zlib.compressobj(6, zdict=before.encode())
    return stream.compress(text.encode()) + stream.flush()


def unfold(body: bytes, before: str, longest: int) -> str:
    """Returns the text that `fold` was given.

    Args:
        body: what `fold` returned.
        before: the text before it.
        longest: bytes that the text may have.

    Raises:
        InvalidFile: it does not follow that text, or is longer.
    """
    stream = zlib.decompressobj(zdict=before.encode())
    try:
        text = stream.decompress(body, longest + 1)
        if len(text) <= longest and stream.eof and not stream.unused_data:
            return text.decode()
    except (TypeError, ValueError, zlib.error) as error:
        raise InvalidFile(f"a folded text is damaged: {error}.") from error
    raise InvalidFile(f"a folded text is damaged: it has more than {longest:,} bytes, or does not end.")

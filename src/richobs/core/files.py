"""Files that are either whole or not there, and archives of arrays that cannot take more memory than they declare."""

import math
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from richobs.core.errors import InvalidFile

ARRAY = ".npy"  # how the name of an array ends in an archive


@contextmanager
def write_atomically(target: Path) -> Iterator[BinaryIO]:
    """Opens a stream that becomes `target` when the block ends well; a reader never sees half a file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp is for secrets; this file is for others too
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


class ArrayFile:
    """An open `.npz` file, read one array at a time; its declared sizes are checked before anything is expanded."""

    def __init__(self, archive: zipfile.ZipFile, sizes: dict[str, int]):
        """Takes the open archive, and how many bytes each of its arrays declares."""
        self._archive = archive
        self.sizes = sizes

    def read(self, name: str) -> Any:
        """Returns one array.

        Raises:
            InvalidFile: there is none of that name, or it is not what the archive declares, or holds Python objects.
        """
        if name not in self.sizes:
            raise InvalidFile(f"it holds no array {name[:40]!r}")
        with self._archive.open(name + ARRAY) as stream:
            declared = _declared_bytes(stream)
        if declared != self.sizes[name]:
            raise InvalidFile(f"the array {name[:40]!r} declares {declared:,} bytes and has {self.sizes[name]:,}")
        with self._archive.open(name + ARRAY) as stream:
            return npy.read_array(stream, allow_pickle=False)


@contextmanager
def open_arrays(file: str | os.PathLike[str], *, largest: int | None = None) -> Iterator[ArrayFile]:
    """Opens a `.npz` file from anybody.

    Args:
        file: which one.
        largest: bytes that its arrays may take once they are expanded. By default as many as the file has: then nothing in
            it may be compressed.

    Raises:
        InvalidFile: it declares more, or names an array twice, or holds something else.
    """
    allowed = os.path.getsize(file) if largest is None else largest
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        total = sum(member.file_size for member in members)
        if total > allowed:
            raise InvalidFile(f"its arrays would take {total:,} bytes once expanded; {allowed:,} are allowed")
        sizes = {member.filename.removesuffix(ARRAY): member.file_size for member in members}
        if len(sizes) < len(members) or not all(member.filename.endswith(ARRAY) for member in members):
            raise InvalidFile("it holds an array twice, or something that is no array")
        yield ArrayFile(archive, sizes)


def _declared_bytes(stream: IO[bytes]) -> int:
    """Returns how many bytes an array takes in a file, its own header included, from that header alone."""
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    version = npy.read_magic(stream)
    if version not in readers:
        raise InvalidFile(f"an array has format {version}; arrays of numbers and text have another")
    shape, _, dtype = readers[version](stream)
    if dtype.hasobject or not dtype.itemsize:
        raise InvalidFile(f"an array holds {dtype}, not numbers or text")
    return stream.tell() + math.prod(shape) * np.dtype(dtype).itemsize

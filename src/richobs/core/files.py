"""Files that are either whole or not there, and content from anybody that cannot take more memory than it declares."""

import contextlib
import json
import math
import os
import sqlite3
import stat
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from richobs.core.errors import InvalidFile, RichObsError

if sys.platform != "win32":
    import fcntl

ARRAY = ".npy"  # how the name of an array ends in an archive
EXPANDED = 256 * 2**20  # bytes that something small may expand to; more is written, and read, without compression
COMPRESSION = 20  # times its own size that something larger may expand to
NESTED = 32  # lists and objects of JSON within each other
LARGEST_JSON = 64 * 2**20  # bytes of a JSON file
MOST_DIGITS = 300  # of a whole number of JSON: any such number fits a float
MOST_VALUES = 2_000_000  # of JSON: a value takes up to 200 bytes of memory, and two bytes of a file
DAMAGE = (sqlite3.Error, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, OSError)  # leads to these
ABANDONED = 3600  # seconds without a change after which a file counts as left behind, where locks are not known


def expanded_limit(size: int) -> int:
    """Returns how many bytes may come out of `size` compressed bytes from anybody."""
    return max(EXPANDED, COMPRESSION * size)


def is_regular(file: Path) -> bool:
    """Whether something is a file and not, for instance, a pipe, whose reader would wait for ever.

    Raises:
        OSError: it is not there, or may not be looked at.
    """
    return stat.S_ISREG(file.stat().st_mode)


def is_there(file: Path) -> bool:
    """Whether a folder has a file of its own: what a link names may lie anywhere, and is not ours to read or write.

    Raises:
        InvalidFile: a link, a folder, a pipe or a device stands in its place.
        OSError: it may not be looked at.
    """
    try:
        mode = os.lstat(file).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    if not stat.S_ISREG(mode):
        raise InvalidFile(f"{file} is damaged: it is a link, a folder or a pipe, not a file. Nothing was overwritten.")
    return True


@contextmanager
def reading(
    what: object, advice: str = "Nothing was overwritten.", passes: type[RichObsError] = InvalidFile
) -> Iterator[None]:
    """Turns whatever a damaged file leads to into a sentence.

    Args:
        what: is read, such as the path of a file.
        advice: last sentence of the message.
        passes: errors that are sentences already; values that a file holds may be invalid input.

    Raises:
        InvalidFile: it cannot be read, or is not what it should be.
    """
    try:
        yield
    except passes:
        raise
    except DAMAGE as error:
        words = repr(error)  # a damaged file may put anything into one
        short = words if len(words) <= 300 else f"{words[:300]}..."
        raise InvalidFile(f"{what} is damaged or cannot be read ({short}). {advice}") from error


def read_json(file: Path, largest: int = LARGEST_JSON) -> Any:
    """Returns the content of a JSON file from anybody, in which no object has a key twice.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not JSON, or larger than `largest` bytes, or nested too deeply, or has too many values, or gives
            a key twice.
    """
    if not is_regular(file):
        raise ValueError("it is not a file")
    with open(file, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size  # as much memory as the file has bytes, not as it may have
        body = stream.read(min(size, largest) + 1)
    if len(body) > largest:
        raise ValueError(f"it has more than {largest:,} bytes")
    return parse_json(body.decode())


def json_fault(text: str) -> str | None:
    """Returns why a file with this JSON could not be read again, in words; None where it could."""
    if len(text.encode(errors="replace")) > LARGEST_JSON:
        return f"it has more than {LARGEST_JSON:,} bytes"
    return f"its JSON has more than {MOST_VALUES:,} values" if text.count(",") >= MOST_VALUES else None


def parse_json(text: str | bytes) -> Any:
    """Returns the content of JSON from anybody, in which no object has a key twice.

    Raises:
        ValueError: it is not JSON, or it has more than 32 lists and objects within each other, or more than two million
            values, or a whole number of more than 300 digits, or gives a key twice.
    """
    commas = text.count(",") if isinstance(text, str) else text.count(b",")  # those within texts count too
    if commas >= MOST_VALUES:
        raise ValueError(f"its JSON has more than {MOST_VALUES:,} values")
    try:
        content = json.loads(text, object_pairs_hook=_without_repeats, parse_int=_whole)
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    level = [content]
    for _ in range(NESTED + 1):
        inside: list[Any] = []
        for part in level:
            if isinstance(part, dict | list):
                inside.extend(part.values() if isinstance(part, dict) else part)
        if not inside:
            return content
        level = inside
    raise ValueError(f"its JSON has more than {NESTED} lists and objects within each other")


def _whole(digits: str) -> int:
    """Refuses a whole number that no float can hold: arithmetic with it would end in an error of its own."""
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a whole number has more than {MOST_DIGITS} digits")
    return int(digits)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuses an object that names a key twice: a reader sees the first, a parser keeps the last."""
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a key is given twice")
    return result


@contextmanager
def write_atomically(target: Path) -> Iterator[BinaryIO]:
    """Opens a stream that becomes `target` when the block ends well; a reader never sees half a file."""
    make_folder(target.parent)
    descriptor, temporary = _temporary(target)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)  # mkstemp is for secrets; this file is for others too
            if sys.platform == "win32":
                stream.close()  # Windows renames no open files; elsewhere the lock is held until the end
            os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Waits until the entries of a folder are on disk, so that a power cut does not undo what was made or renamed in it."""
    with contextlib.suppress(OSError):  # Windows opens no folders, and some file systems cannot wait
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it, where they are missing, so that a power cut does not undo it."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for place in missing:
        sync_folder(place.parent)


def _temporary(target: Path) -> tuple[int, str]:
    """Opens a new file beside another; it is locked as long as its writer lives, so that nobody takes it for left behind."""
    while True:
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        if sys.platform != "win32":
            with contextlib.suppress(OSError):  # a file system without locks; then the age of a file counts
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.path.exists(temporary):
            return descriptor, temporary
        os.close(descriptor)  # it was removed before it was locked


def remove_abandoned(temporary: Path) -> None:
    """Removes a half-written file that has no writer any more.

    Nobody holds its lock, or, where locks are not known, it has not changed for an hour.
    """
    with contextlib.suppress(OSError):  # somebody else removed it, or may write here and we may not
        if sys.platform != "win32" and is_regular(temporary):
            try:
                with open(temporary, "rb") as stream:
                    fcntl.flock(stream.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
                    temporary.unlink()
                    return
            except BlockingIOError:
                return
            except OSError:  # there are no locks here, or the file is somebody else's
                pass
        if time.time() - temporary.stat().st_mtime > ABANDONED:
            temporary.unlink()


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
    if not stat.S_ISREG(os.stat(file).st_mode):
        raise InvalidFile("it is not a file: a folder, a pipe or a device")
    allowed = os.path.getsize(file) if largest is None else largest
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        total = sum(member.file_size for member in members)
        if total > allowed:
            raise InvalidFile(f"its arrays would take {total:,} bytes once expanded; {allowed:,} are allowed")
        sizes = {member.filename.removesuffix(ARRAY): member.file_size for member in members}
        if len(sizes) < len(members) or not all(member.filename.endswith(ARRAY) for member in members):
            raise InvalidFile("it holds an array twice, or something that is no array")
        if any(member.header_offset < 0 for member in members):
            raise InvalidFile("bytes are missing before the list of its arrays")
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

"""Files that are either whole or not there, content from anybody that cannot take more memory than it declares, and locks.

A packed body (`pack`) begins with two numbers: how many bytes of JSON follow, and how many bytes of arrays after them, once
expanded. Both are checked before anything is expanded. The JSON is `[head, [[dtype, shape], ...]]`.

One process at a time holds a lock (`held`): of a file whose content nobody reads, so a stranger's file cannot do harm. The
lock belongs to the open file (`flock`; on Windows a locked byte), not to the process as locks of `fcntl` do: those end as
soon as the process closes *any* descriptor of the file, which a copy of the folder from a callback does. It ends when its
holder ends, also where that is killed: forked children close what they inherit, and started programs do not inherit it.
"""

import contextlib
import json
import math
import os
import re
import sqlite3
import stat
import struct
import sys
import tempfile
import time
import weakref
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from richobs.core.errors import InvalidFile, InvalidInput, RichObsError, StoreError

if sys.platform == "win32":
    import msvcrt
else:
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
WAIT = 2.0  # seconds: who looks whether a lock is held, holds it for an instant
PAUSE = 0.01  # seconds between two attempts
SIZES = struct.Struct(">IQ")  # bytes of JSON and of arrays
LARGEST_HEAD = 16 * 2**20  # bytes of JSON
MOST_ARRAYS = 2**17
MOST_AXES = 32
KIND = re.compile(r"[<>|]([biufcSU]\d{1,9}|[mM]8(\[\w{1,12}\])?)")  # numbers, bits, characters, dates
Arrays = list[np.ndarray[Any, Any]]
FAR = 2**30  # the byte that is locked on Windows: nobody can read a locked byte, and no file is so long


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


_held_here: "weakref.WeakSet[FileIO]" = weakref.WeakSet()


@contextlib.contextmanager
def held(file: Path) -> Iterator[None]:
    """Holds the lock of a file, which is made where it is not there.

    Raises:
        StoreError: another process, or another part of this one, holds it, or it cannot be opened or locked.
        InvalidFile: a link, a folder or a pipe stands in its place.
    """
    with contextlib.ExitStack() as stack:
        try:
            stream = stack.enter_context(_opened(file, os.O_RDWR | os.O_CREAT))
            _held_here.add(stream)
            until = time.monotonic() + WAIT
            while not _take(stream, shared=False):
                if time.monotonic() > until:
                    raise StoreError(
                        f"another process is running in {file.parent}. Wait for it, or choose another folder."
                    )
                time.sleep(PAUSE)
        except OSError as error:
            raise StoreError(
                f"the folder {file.parent} cannot be written or locked ({error}). Choose one that you may write, on a disk "
                "that has locks."
            ) from error
        try:
            yield
        finally:
            if sys.platform != "win32" and not stream.closed:  # a child, forked a moment ago, may have it open too
                fcntl.flock(stream.fileno(), fcntl.LOCK_UN)


def is_held(file: Path) -> bool:
    """Whether somebody holds the lock of a file.

    Raises:
        InvalidFile: a link, a folder or a pipe stands in its place, or it cannot be opened.
    """
    try:
        with _opened(file, os.O_RDONLY) as stream:
            try:
                return not _take(stream, shared=True)
            except OSError:  # no locks are known here, so nobody holds one
                return False
    except FileNotFoundError:
        return False
    except OSError as error:
        raise InvalidFile(
            f"{file} cannot be opened ({error}), so whether a process is running there cannot be known."
        ) from error


def _opened(file: Path, flags: int) -> FileIO:
    """Opens a file that is no link, pipe, device or folder; whoever is started does not inherit it."""
    is_there(file)
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    writes = flags & os.O_RDWR
    return FileIO(os.open(file, flags, 0o666), "r+b" if writes else "rb")


def _take(stream: FileIO, *, shared: bool) -> bool:
    """Takes the lock of an open file at once, and returns whether that was possible; closing the file gives it back."""
    if sys.platform == "win32":
        try:
            stream.seek(FAR)
            msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True
    try:
        fcntl.flock(stream.fileno(), (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _let_go_in_child() -> None:
    """Closes what a fork inherited: it would hold the lock for as long as it lives, also where its parent is killed."""
    for stream in list(_held_here):
        stream.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)


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

"""A lock that one process at a time holds: of a file whose content nobody reads, so a stranger's file cannot do harm.

The lock belongs to the open file (`flock`; on Windows a locked byte), not to the process as locks of `fcntl` do: those end
as soon as the process closes *any* descriptor of the file, which a copy of the folder from a callback does. It ends when its
holder ends, also where that is killed: forked children close what they inherit, and started programs do not inherit it.
"""

import contextlib
import os
import sys
import time
import weakref
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from richobs.core.errors import InvalidFile, StoreError
from richobs.core.files import is_there

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

WAIT = 2.0  # seconds: who looks whether a lock is held, holds it for an instant
PAUSE = 0.01  # seconds between two attempts
FAR = (
    2**30
)  # the byte that is locked on Windows; others cannot read a locked byte, and there is nothing so far in the file
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

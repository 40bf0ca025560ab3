"""The file-system shim: compiled with the machine's C compiler, preloaded into this process, armed in forked children."""

import ctypes
import enum
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("shim.c")
PRELOADED = "RICHOBS_ATTACK_SHIM"  # names the library that this process was started with
HEAD = struct.Struct("=c4Q")


class Call(NamedTuple):
    """One logged call."""

    kind: str  # c create, w write, t truncate, s fsync of a file, d of a folder, r rename, u remove, m make a folder
    file: int  # the file's inode
    number: int  # offset of a write, length after a truncation
    path: str  # at and below the folder; of a rename both, with a line break between them
    data: bytes


def preload(module: str, arguments: Sequence[str]) -> str:
    """Starts this program again with the shim in it, unless it is there already.

    Args:
        module: what `python -m` runs.
        arguments: of the command line.

    Returns:
        "" once the shim is there, else why it cannot be.
    """
    library = os.environ.get(PRELOADED)
    if library is not None:
        shutil.rmtree(Path(library).parent, ignore_errors=True)  # it is loaded
        os.environ.pop("LD_PRELOAD", None)  # children that are started anew do without
        return ""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if sys.platform != "linux" or compiler is None:
        return "system calls and power cuts need Linux and a C compiler (cc, gcc or clang); there is none here."
    place = Path(tempfile.mkdtemp(prefix="richobs-shim-")) / "shim.so"
    built = subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", "-o", str(place), str(SOURCE)],
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        shutil.rmtree(place.parent)
        return f"the shim cannot be compiled here: {built.stderr.strip()[:300]}"
    environment = {**os.environ, "LD_PRELOAD": str(place), PRELOADED: str(place)}
    os.execve(sys.executable, [sys.executable, "-m", module, *arguments], environment)
    raise AssertionError("execve does not return")


class How(enum.IntEnum):
    """What happens at a call that was chosen, in the numbers of shim.c."""

    KILLED = 0
    FAILS_ONCE = 1  # with ENOSPC
    FULL = 2  # it fails with ENOSPC, and so do all later calls that need room


def arm(folder: Path, *, kill_at: int = 0, torn: bool = False, log: Path | None = None, how: How = How.KILLED) -> None:
    """Counts this process's calls at and below a folder from now on.

    Args:
        folder: which one; its path holds no symbolic links.
        kill_at: the process dies in place of this call, or it fails; 0 for none.
        torn: whether half of it is done before, where it is a write.
        log: file outside the folder that calls are appended to.
        how: what happens at that call.
    """
    place = None if log is None else os.fsencode(log)
    ctypes.CDLL(None).shim_arm(
        os.fsencode(folder), ctypes.c_long(kill_at), ctypes.c_int(torn), place, ctypes.c_int(how)
    )


def counted() -> int:
    """Returns how many calls were counted since the shim was armed."""
    counter = ctypes.CDLL(None).shim_counted
    counter.restype = ctypes.c_long
    return int(counter())


def read_log(file: Path) -> list[Call]:
    """Returns the calls of a log."""
    body, place, calls = file.read_bytes(), 0, []
    while place < len(body):
        kind, inode, number, text, length = HEAD.unpack_from(body, place)
        place += HEAD.size
        path = os.fsdecode(body[place : place + text])
        data = body[place + text : place + text + length]
        place += text + length
        calls.append(Call(kind.decode(), inode, number, path, data))
    return calls

"""What a power cut may leave of a folder, from the log of the calls that wrote it.

A file's writes and truncations since its last fsync may be lost, kept, or torn at sectors of 512 bytes, each by itself; so
may the entries of a folder (files made, renamed, removed) since the folder's last fsync. What was synced stays. This is what
POSIX promises; file systems with a journal keep more.
"""

import dataclasses
import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from attack.shim import Call

SECTOR = 512
SHARED = "-shm"  # ending of SQLite's shared memory, which is written through mmap and not logged
FEW = 3  # so many calls that are not synced are tried in every combination


@dataclasses.dataclass
class Stored:
    """A file: its writes and truncations, and how many of them are on disk for good."""

    calls: list[Call] = dataclasses.field(default_factory=list)
    synced: int = 0


@dataclasses.dataclass(frozen=True)
class Entry:
    """A change of a folder's entries."""

    folders: tuple[str, ...]  # whose entries change; an fsync of one of them makes it stay
    removed: str  # path that is gone, or ""
    path: str = ""  # path that is there now, or ""
    file: Stored | None = None  # what it names; None for a folder


@dataclasses.dataclass
class Disk:
    """What a process had written when the power was cut."""

    root: str
    files: list[Stored] = dataclasses.field(default_factory=list)
    entries: list[Entry] = dataclasses.field(default_factory=list)
    kept: list[bool] = dataclasses.field(default_factory=list)  # whether each entry is on disk for good
    _by_inode: dict[int, Stored] = dataclasses.field(default_factory=dict)
    _by_path: dict[str, Stored | None] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> "Disk":
        """Returns what is below a folder, all of it on disk for good."""
        disk = cls(str(root))
        for path in sorted(root.rglob("*")):
            if path.is_dir():
                disk.do(Call("m", 0, 0, str(path), b""))
            else:
                inode = path.stat().st_ino
                disk.do(Call("c", inode, 0, str(path), b""))
                disk.do(Call("w", inode, 0, str(path), path.read_bytes()))
                disk.do(Call("s", inode, 0, str(path), b""))
            disk.do(Call("d", 0, 0, str(path.parent), b""))
        return disk

    def do(self, call: Call) -> None:
        """Takes the next call of the log."""
        if call.kind == "c":
            file = Stored()
            self.files.append(file)
            self._by_inode[call.file] = self._by_path[call.path] = file
            self._change(Entry((os.path.dirname(call.path),), "", call.path, file))
        elif call.kind in "wt":
            self._by_inode[call.file].calls.append(call)
        elif call.kind == "s":
            file = self._by_inode[call.file]
            file.synced = len(file.calls)
        elif call.kind == "d":
            self.kept = [k or call.path in e.folders for k, e in zip(self.kept, self.entries, strict=True)]
        elif call.kind == "m":
            self._by_path[call.path] = None
            self._change(Entry((os.path.dirname(call.path),), "", call.path))
        elif call.kind == "u":
            self._by_path.pop(call.path, None)
            self._change(Entry((os.path.dirname(call.path),), call.path))
        else:
            old, new = call.path.split("\n")
            named = self._by_path[new] = self._by_path.pop(old)
            self._change(Entry((os.path.dirname(old), os.path.dirname(new)), old, new, named))

    def _change(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.kept.append(False)

    @property
    def loose(self) -> int:
        """How many changes are not on disk for good."""
        return self.kept.count(False) + sum(len(f.calls) - f.synced for f in self.files)

    def left(self, choose: Sequence[float], rng: np.random.Generator | None = None) -> dict[str, bytes | None]:
        """Returns what is there after the power cut: path below the root to content, or to None for a folder.

        Args:
            choose: `[loose]` for each change that is not on disk for good, entries first: which share of it is kept.
            rng: chooses the sectors of a write that is kept in part.
        """
        shares = iter(choose)
        tree: dict[str, Stored | None] = {}
        for entry, kept in zip(self.entries, self.kept, strict=True):
            if kept or next(shares) > 0:
                if entry.removed:
                    tree.pop(entry.removed, None)
                if entry.path:
                    tree[entry.path] = entry.file
        content: dict[int, bytes] = {}
        for file in self.files:
            chosen = [1.0] * file.synced + [next(shares) for _ in file.calls[file.synced :]]
            content[id(file)] = _content(file.calls, chosen, rng)
        folders = {self.root, *(path for path, file in tree.items() if file is None)}
        reached = {path: file for path, file in sorted(tree.items()) if _is_reached(path, folders, self.root)}
        return {
            os.path.relpath(path, self.root): None if file is None else content[id(file)]
            for path, file in reached.items()
            if not path.endswith(SHARED)
        }


def _is_reached(path: str, folders: set[str], root: str) -> bool:
    """Whether all folders that a path leads through are there."""
    while path != root:
        path = os.path.dirname(path)
        if path not in folders:
            return False
    return True


def _content(calls: Sequence[Call], shares: Sequence[float], rng: np.random.Generator | None) -> bytes:
    """Returns what a file holds after some of its writes and truncations, in part or as a whole."""
    body = bytearray()
    for call, share in zip(calls, shares, strict=True):
        if share <= 0:
            continue
        if call.kind == "t":
            del body[call.number :]
            body.extend(bytes(call.number - len(body)))
            continue
        begin, end = call.number, call.number + len(call.data)
        body.extend(bytes(max(0, end - len(body))))
        first = begin // SECTOR * SECTOR
        for sector in range(first, end, SECTOR):
            if share >= 1 or rng is None or rng.random() < share:
                low, high = max(begin, sector), min(end, sector + SECTOR)
                body[low:high] = call.data[low - begin : high - begin]
    return bytes(body)


def states(disk: Disk, orders: int, rng: np.random.Generator) -> Iterator[dict[str, bytes | None]]:
    """Yields what may be left when the power is cut now: all that is possible where that is little, else a sample.

    Args:
        disk: what was written.
        orders: size of the sample; nothing kept and everything kept are always in it.
        rng: chooses.
    """
    loose = disk.loose
    if loose <= FEW:
        for chosen in itertools.product((0.0, 1.0), repeat=loose):
            yield disk.left(chosen)
        return
    yield disk.left([0.0] * loose)
    yield disk.left([1.0] * loose)
    entries = disk.kept.count(False)
    for i in range(orders - 2):
        shares = (rng.random(loose) < rng.random()).astype(float)
        shares[rng.random(loose) < 0.1] = 0.5  # torn
        if i % 3 == 1:  # all of the first writes are kept: a database then has something to recover
            shares[entries : int(rng.integers(entries, loose + 1))] = 1.0
        elif i % 3 == 2:  # one change alone is lost
            shares[:] = 1.0
            shares[int(rng.integers(entries or loose))] = 0.0
        yield disk.left(shares.tolist(), rng)


def digest(left: dict[str, bytes | None]) -> str:
    """Returns a digest of what is left, for telling equal states."""
    found = hashlib.sha256()
    for path, content in left.items():
        found.update(repr((path, None if content is None else hashlib.sha256(content).hexdigest())).encode())
    return found.hexdigest()


def build(left: dict[str, bytes | None], place: Path) -> None:
    """Makes the files and folders that are left, below a folder that is empty."""
    for path, content in left.items():
        if content is None:
            (place / path).mkdir()
        else:
            (place / path).write_bytes(content)
            if (
                path.endswith(".sqlite-wal") and len(content) % 3 == 0
            ):  # shared memory may be left too, and is worthless
                (place / path.replace("-wal", SHARED)).write_bytes(content[:32_768].ljust(32_768, b"\7"))


def is_built(left: dict[str, bytes | None], place: Path) -> bool:
    """Whether a folder holds exactly this."""
    found = {str(p.relative_to(place)): None if p.is_dir() else p.read_bytes() for p in place.rglob("*")}
    return found == left

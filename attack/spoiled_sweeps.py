"""Folders of sweeps and arenas whose files are torn, forged, or something else than files.

A small sweep and a small arena are made once. A case lays one of them out, spoils one file, and asks for the same sweep
again. The answer must be what the sweep had found, or a refusal; a file beside the folder must stay as it was.
"""

import functools
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

import richobs
from attack.calls import Call, in_short
from attack.damage import json_changes
from attack.isolation import Changed
from attack.strategies import SMALL
from richobs_lab.arena.contest import ARENA, plan_arena, run_arena
from richobs_lab.sweep import sweep
from richobs_lab.sweep.runs import RESULTS, SWEEP, SWEEP_LOCK

FAST: dict[str, Any] = {"epsilon": 0.3, "max_episodes": 200, "progress": False}
OUTSIDE = "outside"  # a file of the user beside the folder
HUGE = 2**34  # bytes of a file without content

Files = dict[str, bytes]
Spoil = Callable[[Path], None]


class Here(Executor):
    """Does what is submitted at once, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> "Future[Any]":
        """Does one task."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(fn(*args, **options))
        except Exception as error:
            future.set_exception(error)
        return future


def _sweep(folder: Path) -> object:
    done = sweep(SMALL, out=folder, seeds="0:2", workers=Here(), **FAST)
    for result in done.results.values():
        if result.state == "failed":  # a row with its sentence: what is stored of this run was spoiled
            raise richobs.RichObsError(result.message)
    return {run: (r.episodes, r.epsilon, r.lower, r.upper) for run, r in sorted(done.results.items())}


def _arena(folder: Path) -> object:
    contest = plan_arena([SMALL], ["betting"], seeds=range(2), budget=200, epsilon=0.3)
    done = run_arena(contest, folder, executor=Here())
    return [(r.world, r.seed, r.fate, r.episodes, r.gap) for r in done.runs]


ASKED: dict[str, Callable[[Path], object]] = {"sweep": _sweep, "arena": _arena}


@functools.cache
def _made(kind: str) -> tuple[Files, object]:
    """Returns the files of a finished sweep or arena, and what came of it."""
    with tempfile.TemporaryDirectory() as around:
        folder = Path(around) / kind
        found = ASKED[kind](folder)
        files = {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}
    return {name: body for name, body in files.items() if not name.endswith((".html", ".png", ".svg"))}, found


def _written(name: str, change: Callable[[bytes], bytes]) -> Spoil:
    """Changes the bytes of a file."""

    def spoil(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return spoil


def _instead(name: str, make: Callable[[Path], object]) -> Spoil:
    """Puts something else into the place of a file."""

    def spoil(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        make(folder / name)

    return spoil


def _linked(file: Path) -> None:
    """Puts a link into the place of a file, to one of the user."""
    file.symlink_to(os.path.relpath(next(p for p in file.parents if (p / OUTSIDE).exists()) / OUTSIDE, file.parent))


def _linked_run(folder: Path) -> None:
    run = next(f for f in sorted(folder.iterdir()) if f.is_dir())
    run.rename(folder.parent / "run")
    run.symlink_to(folder.parent / "run")


def _huge(file: Path) -> None:
    file.touch()
    os.truncate(file, HUGE)


KINDS: dict[str, Callable[[Path], object]] = {
    "a link": _linked,
    "a link to nothing": lambda file: file.symlink_to("nothing"),
    "a link to itself": lambda file: file.symlink_to(file.name),
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "nothing": lambda file: None,
    "a huge file": _huge,
    "a file that may not be read": lambda file: file.touch(0),
}


def _json_spoiled(body: bytes, line: int | None, which: int) -> bytes:
    """Returns JSON with one value changed; of a file of lines in one of them."""
    lines = body.splitlines(keepends=True) if line is not None else [body]
    at = 0 if line is None else line % len(lines)
    changes = json_changes(lines[at])
    changed = changes[which % len(changes)][1]()
    lines[at] = b" ".join(changed.split()) + b"\n" if line is not None else changed
    return b"".join(lines)


def _tried(kind: str, about: str, spoil: Spoil) -> Call:
    def act() -> object:
        files, true = _made(kind)
        folder = Path.cwd() / kind
        (Path.cwd() / OUTSIDE).write_bytes(b"of the user")
        for name, body in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(body)
        spoil(folder)
        try:
            found = ASKED[kind](folder)
            again = ASKED[kind](folder)
        finally:
            if (Path.cwd() / OUTSIDE).read_bytes() != b"of the user":
                raise Changed("a file beside the folder was written")
        if found != true or again != true:
            raise Changed(f"{in_short(found)} instead of {in_short(true)}")
        return found

    return Call("spoiled sweeps", f"{kind} with {about}", act)


def _names(kind: str) -> Sequence[str]:
    return sorted({*_made(kind)[0], SWEEP_LOCK})


def sweep_calls() -> SearchStrategy[Call]:
    """Returns sweeps and arenas that are asked for again after a file of theirs was spoiled."""
    bytes_of = st.sampled_from(["flipped", "cut", "doubled", "removed"])

    @st.composite
    def spoiled(draw: st.DrawFn) -> Call:
        kind = draw(st.sampled_from(sorted(ASKED)))
        how = draw(st.sampled_from(["kind", "bytes", "json", "torn", "run"]))
        texts = [name for name in _names(kind) if name.endswith((".json", ".jsonl"))]
        if how == "run":
            return _tried(kind, "a run behind a link", _linked_run)
        if how == "kind":
            name, made = draw(st.sampled_from(_names(kind))), draw(st.sampled_from(sorted(KINDS)))
            return _tried(kind, f"{made} for {name}", _instead(name, KINDS[made]))
        if how == "torn":
            at = draw(st.integers(0, 3000))
            more = draw(st.sampled_from([b"", b"\n", b"\0" * 40, b"{", b"\xff\n"]))
            return _tried(
                kind, f"results torn at {at} + {more!r}", _written(RESULTS, lambda b: b[: at % len(b)] + more)
            )
        name = draw(st.sampled_from(texts if how == "json" else [SWEEP, RESULTS, ARENA] if kind == "arena" else texts))
        which, line = draw(st.integers(0, 10**6)), draw(st.integers(0, 3))
        if how == "json":
            row = line if name == RESULTS else None
            return _tried(kind, f"{name} changed, {which}", _written(name, lambda b: _json_spoiled(b, row, which)))
        change = draw(bytes_of)
        return _tried(kind, f"a byte of {name} {change}, {which}", _written(name, lambda b: _bytes(b, change, which)))

    return spoiled()


def _bytes(body: bytes, how: str, which: int) -> bytes:
    at = which % max(1, len(body))
    if how == "cut":
        return body[:at]
    middle = {"flipped": bytes([body[at] ^ (1 << which % 8)]), "doubled": body[at : at + 1] * 2, "removed": b""}[how]
    return body[:at] + middle + body[at + 1 :]

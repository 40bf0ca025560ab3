"""How large the library is, against the limits that were decided: `python -m release.size`.

Prints a table and exits with 1 where a limit is passed. A limit is raised here, in `LIMITS`, or not at all. With `--list`
it prints instead which functions one run passes, file by file, and which files the default learner imports.
"""

import ast
import contextlib
import inspect
import io
import sys
import tempfile
import threading
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import richobs
from richobs.cli import main as run_command
from richobs.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "src" / "richobs"
DEFAULT_LEARNER = "learners/betting"
LIMITS = {  # what is measured -> the most that it may be
    "lines of code of the library": 20_000,
    "files of the library": 150,
    "public names": 60,
    "parameters of learn()": 14,
    "commands of the library": 12,
    "functions that one `richobs learn lock` passes": 350,
    "files that one `richobs learn lock` passes": 50,
    "files of the default learner": 9,
    "files that the default learner imports, itself included": 45,
    "lines of tests": 20_000,
    "pages of the documentation": 30,
}
SILENT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def measured() -> dict[str, int]:
    """Returns what `LIMITS` names, as it is now."""
    functions = passed("learn", "lock")
    values = (
        sum(map(lines_of_code, LIBRARY.rglob("*.py"))),
        len(list(LIBRARY.rglob("*.py"))),
        len(richobs.__all__),
        len(inspect.signature(richobs.learn).parameters),
        sum(COMMANDS.is_own(name) for name in COMMANDS),
        len(functions),
        len({code.co_filename for code in functions}),
        len(list((LIBRARY / DEFAULT_LEARNER).glob("*.py"))),
        len(imported_by(LIBRARY / DEFAULT_LEARNER / "__init__.py")),
        sum(len(file.read_text(encoding="utf-8").splitlines()) for file in (ROOT / "tests").rglob("*.py")),
        sum("_build" not in file.parts for file in (ROOT / "docs").rglob("*.md")),
    )
    return dict(zip(LIMITS, values, strict=True))


def lines_of_code(file: Path) -> int:
    """Returns how many lines of a file hold code: no blanks, comments or docstrings, also those of fields."""
    text = file.read_text(encoding="utf-8")
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documented |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    with file.open("rb") as stream:
        tokens = [
            token for token in tokenize.tokenize(stream.readline) if token.type not in (*SILENT, tokenize.ENCODING)
        ]
    return len({line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - documented)


def imported_by(start: Path) -> set[Path]:
    """Returns the files of the library that one file imports, directly or not, itself included."""
    found: set[Path] = set()
    left = [start]
    while left:
        file = left.pop()
        if file not in found:
            found.add(file)
            left += _imports(file)
    return found


def _imports(file: Path) -> Iterator[Path]:
    """Yields the files of the library that a file names in its imports, the package itself excepted."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("richobs."):
            for alias in node.names:
                yield from (found for found in (_file(f"{node.module}.{alias.name}") or _file(node.module),) if found)
        elif isinstance(node, ast.Import):
            yield from (found for alias in node.names if alias.name != "richobs" and (found := _file(alias.name)))


def _file(module: str) -> Path | None:
    place = LIBRARY.parent.joinpath(*module.split("."))
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


def passed(*arguments: str) -> set[CodeType]:
    """Runs a command twice, and returns the functions of the library that the second run calls."""
    called: set[CodeType] = set()

    def note(frame: FrameType, what: str, _: Any) -> None:
        if what == "call":
            called.add(frame.f_code)

    silent = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(silent),
        contextlib.redirect_stderr(silent),
    ):
        run_command([*arguments, "--out", f"{folder}/first", "--quiet"])  # imports everything
        _profiled(note, lambda: run_command([*arguments, "--out", f"{folder}/second", "--quiet"]))
    own = (code for code in called if Path(code.co_filename).is_relative_to(LIBRARY))
    return {code for code in own if not code.co_name.startswith("<")}


def _profiled(note: Callable[[FrameType, str, Any], None], act: Callable[[], object]) -> None:
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def listed() -> Iterator[str]:
    """Yields what is counted: functions that one run passes, file by file, and files that the default learner imports."""
    by_file: dict[str, list[str]] = {}
    for code in passed("learn", "lock"):
        by_file.setdefault(str(Path(code.co_filename).relative_to(LIBRARY)), []).append(code.co_qualname)
    for file, names in sorted(by_file.items(), key=lambda one: -len(one[1])):
        yield f"{len(names):>4} {file}: {', '.join(sorted(names))}"
    imported = sorted(str(file.relative_to(LIBRARY)) for file in imported_by(LIBRARY / DEFAULT_LEARNER / "__init__.py"))
    yield f"the default learner imports {', '.join(imported)}"


def main() -> int:
    """Prints the table; the exit status is 1 where a limit is passed."""
    if "--list" in sys.argv[1:]:
        print(*listed(), sep="\n")
        return 0
    found = measured()
    width = max(map(len, LIMITS))
    print(f"{'':{width}}  {'now':>7} {'limit':>7}")
    for name, limit in LIMITS.items():
        print(f"{name:{width}}  {found[name]:>7,} {limit:>7,}{'  above the limit' if found[name] > limit else ''}")
    return int(any(found[name] > limit for name, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())

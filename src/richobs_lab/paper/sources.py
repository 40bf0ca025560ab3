"""Which source a statement runs, as one digest: its module, the modules of both packages that it imports, NumPy's version.

A module is imported by another where an import statement of it says so, at any depth. A name that an `__init__.py` takes
from another module counts as taken from there; else the `__init__.py` counts where a name is taken from it, not where a
module below it is imported. A learner or a world that only a registry or an entry point names counts where the statement, or
a module of the laboratory that it imports, writes its id at the beginning of a text, as "lock/3" does: a registry loads what
is asked for by id, and nothing else. What is imported for type checkers only does not count, nor do docstrings, comments,
the version and colours, which change no result. A test runs pieces of statements and compares with the files whose functions
were called.
"""

import ast
import functools
import hashlib
import importlib.util
import io
import re
import tokenize
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

import numpy as np

from richobs import InvalidInput

SOURCE = Path(__file__).resolve().parents[2]  # where both packages lie
PACKAGES = ("richobs", "richobs_lab")
NAMED = re.compile(r"richobs(_lab)?(\.\w+)+(:\w+)?")
ID = re.compile(r"([a-z][a-z0-9-]*)(?=[/,]|$)")  # of a learner or a world, at the beginning of a text


NO_RESULT = {"richobs.core.version", "richobs.show.palette"}  # texts and colours: no result depends on them


class Read(NamedTuple):
    """What a file says about other modules."""

    imports: frozenset[str]  # dotted names; some are names inside modules
    offers: frozenset[tuple[str, str]]  # (id, module) of what a registry or an entry point names
    ids: frozenset[str]  # what texts begin with


def source_digest(module: str) -> str:
    """Returns the digest of what a statement's module runs."""
    digest = hashlib.blake2b(f"numpy {np.__version__}".encode(), digest_size=16)
    for name, file in sorted(source_files(module).items()):
        code = _code(file.read_bytes()).encode()
        digest.update(f"\n{name} {len(code)}\n".encode() + code)
    return digest.hexdigest()


def source_files(module: str) -> dict[str, Path]:
    """Returns a module and every module of both packages that it runs, directly or not, with their files."""
    first = module_file(module)
    if first is None:
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise InvalidInput(f"there is no module {module}.")
        first = Path(spec.origin)
    found, waiting = {module: first}, [module]
    offers: set[tuple[str, str]] = set()
    ids: set[str] = set()
    while waiting:
        name = waiting.pop()
        read = _read(found[name], found[name].read_bytes())
        offers |= read.offers
        ids |= read.ids if name == module or name.startswith("richobs_lab.") else set()
        for other in {*read.imports, *(where for id_, where in offers if id_ in ids)}:
            path = module_file(other)
            if path is not None and other not in found and other not in NO_RESULT:
                found[other] = path
                waiting.append(other)
    return found


def module_file(name: str) -> Path | None:
    """Returns the file of a module of one of both packages, or None where there is none of that name."""
    first, *rest = name.split(".")
    if first not in PACKAGES:
        return None
    path = SOURCE.joinpath(first, *rest)
    return next((f for f in (path.with_suffix(".py"), path / "__init__.py") if f.is_file()), None)


def _defined_in(module: str, name: str) -> str:
    """Returns the module that defines a name of `module`: an `__init__.py` may import it from another."""
    if module_file(f"{module}.{name}") is not None:
        return f"{module}.{name}"
    file = module_file(module)
    taken = _taken(file.read_bytes()) if file is not None and file.name == "__init__.py" else {}
    return _defined_in(taken[name], name) if name in taken else module


@functools.cache
def _taken(content: bytes) -> dict[str, str]:
    """Returns the names that a file imports, each with the module that it takes it from."""
    taken = [node for node in ast.parse(content).body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in taken for alias in node.names if node.module and alias.asname is None}


@functools.cache
def _read(file: Path, content: bytes) -> Read:
    """Returns what a file says about other modules. Its content is part of the cache's key."""
    imports: set[str] = set()
    offers: set[tuple[str, str]] = set()
    ids: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(content, str(file))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            imports.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] in PACKAGES:
            imports.update(_defined_in(node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Dict):
            pairs = [(k, v) for k, v in zip(node.keys, node.values, strict=True) if isinstance(k, ast.Constant)]
            offers.update((str(k.value), _module(v.value)) for k, v in pairs if isinstance(v, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            points = entry_points(group=node.value) if _module(node.value) else ()
            offers.update((point.name, point.module) for point in points)
            ids.update(found[1] for found in [ID.match(node.value)] if found)
        waiting.extend(ast.iter_child_nodes(node))
    ours = {name for name in imports if name.split(".")[0] in PACKAGES}
    return Read(frozenset(ours), frozenset(offer for offer in offers if offer[1]), frozenset(ids))


def _module(text: object) -> str:
    """Returns the module of a text such as "richobs_lab.lsvee:Lsvee", or "" where it names none."""
    return text.partition(":")[0] if isinstance(text, str) and NAMED.fullmatch(text) else ""


@functools.cache
def _code(content: bytes) -> str:
    """Returns a file without statements that are a text alone, comments and blank lines."""
    text = content.decode()
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = lines[token.start[0] - 1][: token.start[1]]
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            lines[first:last] = [""] * (last - first)
    return "\n".join(line.rstrip() for line in lines if line.strip())

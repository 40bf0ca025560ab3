"""Which source a statement runs, as one digest: its module, the modules of both packages that it imports, NumPy's version.

A module is imported by another where an import statement of it says so, at any depth, or where a text names it in full, as
the registries of worlds, engines and learners do; a text that names a group of entry points names their modules. What is
imported for type checkers only does not count. The `__init__.py` of a package counts where a name is taken from it, not
where a module below it is imported.
"""

import ast
import functools
import hashlib
import importlib.util
import re
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np

from richobs import InvalidInput

SOURCE = Path(__file__).resolve().parents[2]  # where both packages lie
PACKAGES = ("richobs", "richobs_lab")
NAMED = re.compile(r"richobs(_lab)?(\.\w+)+(:\w+)?")


def source_digest(module: str) -> str:
    """Returns the digest of what a statement's module runs."""
    digest = hashlib.blake2b(f"numpy {np.__version__}".encode(), digest_size=16)
    for name, file in sorted(source_files(module).items()):
        content = file.read_bytes()
        digest.update(f"\n{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def source_files(module: str) -> dict[str, Path]:
    """Returns a module and every module of both packages that it imports, directly or not, with their files."""
    first = module_file(module)
    if first is None:
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise InvalidInput(f"there is no module {module}.")
        first = Path(spec.origin)
    found = {module: first}
    waiting = [first]
    while waiting:
        file = waiting.pop()
        for name in _imports(file, file.read_bytes()):
            path = module_file(name)
            if path is not None and name not in found:
                found[name] = path
                waiting.append(path)
    return found


def module_file(name: str) -> Path | None:
    """Returns the file of a module of one of both packages, or None where there is none of that name."""
    first, *rest = name.split(".")
    if first not in PACKAGES:
        return None
    path = SOURCE.joinpath(first, *rest)
    return next((f for f in (path.with_suffix(".py"), path / "__init__.py") if f.is_file()), None)


def _public_names() -> dict[str, str]:
    """Returns the module that defines each name which richobs itself offers."""
    tree = ast.parse((SOURCE / "richobs" / "__init__.py").read_bytes())
    taken = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module is not None]
    return {alias.name: str(node.module) for node in taken for alias in node.names}


@functools.cache
def _imports(file: Path, content: bytes) -> frozenset[str]:
    """Returns dotted names that a file may import; some are names inside modules. Its content is part of the cache's key."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(content, str(file))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "richobs":
            found.update(_public_names()[alias.name] for alias in node.names if alias.name in _public_names())
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and NAMED.fullmatch(node.value):
            found.add(node.value.partition(":")[0])
            found.update(point.module for point in entry_points(group=node.value))
        waiting.extend(ast.iter_child_nodes(node))
    return frozenset(name for name in found if name.split(".")[0] in PACKAGES)

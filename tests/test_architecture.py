"""Which way arrows point, what importing costs, and that every public name says what it is."""

import ast
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import richobs

SOURCE = Path(richobs.__file__).parent
LABORATORY = SOURCE.parent / "richobs_lab"

ROOT = Path(__file__).parents[1]
GUIDES = ("README.md", "docs/your-own-problem.md")

# A room may import from its own files and from rooms before it; the one list of rooms is in docs/architecture.md.
ROOMS = re.findall(r"^\d+\. `(\w+)`: ", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)
RANK = {room: rank for rank, room in enumerate(ROOMS)}


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "the package"


def imports_of(path: Path) -> set[str]:
    """Modules of richobs that a file imports, also inside functions and under TYPE_CHECKING."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            if node.module == "richobs":
                found |= {f"richobs.{a.name}" for a in node.names}
            else:
                found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(f"relative import in {path.name}")
    return {m for m in found if m.split(".")[0] in ("richobs", "relative")}


def arrows_up(files: dict[str, set[str]]) -> list[str]:
    """Import arrows that point against the design, given what each module imports."""
    wrong = []
    for module, imported in files.items():
        here = room_of(module)
        for target in imported:
            there = room_of(target)
            if module == "richobs" or there == here:
                continue
            if there == "the package":
                if here != "cli":
                    wrong.append(f"{module} imports the package itself")
            elif there not in RANK or RANK[there] >= RANK[here]:
                wrong.append(f"{module} imports {target}")
    return wrong


def all_modules() -> dict[str, set[str]]:
    modules = {}
    for path in SOURCE.rglob("*.py"):
        parts = ("richobs", *path.relative_to(SOURCE).with_suffix("").parts)
        modules[".".join(p for p in parts if p != "__init__")] = imports_of(path)
    return modules


def test_every_room_is_on_the_plan():
    assert ROOMS[0] == "core"
    assert len(ROOMS) == len(RANK)
    assert {room_of(m) for m in all_modules()} - {"the package"} == set(RANK)


def test_arrows_point_one_way():
    assert arrows_up(all_modules()) == []


def test_the_betting_search_knows_no_other_learner_but_by_name():
    own, shared = "richobs.learners.betting", {"richobs.learners.base", "richobs.learners.stopping"}
    others = {
        (module.removeprefix(f"{own}."), target.split(".")[2])
        for module, imported in all_modules().items()
        for target in imported
        if module.startswith(own) and target.startswith("richobs.learners.") and not target.startswith(own)
        if target not in shared
    }
    assert others == set()


def modules_used(path: Path) -> set[str]:
    """Modules of richobs that a file of another package imports; `from room import module` counts as the module."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "richobs":
            for alias in node.names:
                is_module = SOURCE.parent.joinpath(*node.module.split("."), f"{alias.name}.py").exists()
                found.add(f"{node.module}.{alias.name}" if is_module else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "richobs"}
    return found - {"richobs"}


def test_the_laboratory_uses_what_is_listed_for_extensions_and_nothing_of_it_is_named_by_the_library():
    page = (ROOT / "docs/reference/extending.md").read_text().partition("## Modules for extensions")[2]
    listed = {f"richobs.{name}" for name in re.findall(r"`([a-z_.0-9]+)`", page.partition("| for |")[2])}
    used = set().union(*(modules_used(path) for path in LABORATORY.rglob("*.py")))
    assert used - listed == set(), "list them in docs/reference/extending.md, or do without"
    assert listed - used == set(), "nobody needs these"
    learners = {path.stem.replace("_", "-") for path in (LABORATORY / "rivals").glob("*.py")} & set(richobs.LEARNERS)
    assert len(learners) > 10
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        assert "richobs_lab" not in text, path
        assert not re.search(rf"['\"]({'|'.join(learners)})['\"]", text), path


def test_importing_loads_only_what_it_must():
    code = "import sys, richobs; print(sorted(m for m in sys.modules if '.' not in m))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("matplotlib", "tyro", "rich", "jinja2", "scipy", "torch", "pandas"):
        assert f"'{heavy}'" not in loaded


def test_importing_registers_the_worlds():
    code = "import richobs, gymnasium; print(gymnasium.make('richobs/Lock-v0', horizon=3).reset(seed=0)[0].shape)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(8,)"


def test_public_names_exist_and_are_sorted():
    assert all(hasattr(richobs, name) for name in richobs.__all__)

    def place(name):  # constants, classes, functions, as ruff sorts them
        return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)

    assert sorted(richobs.__all__, key=place) == list(richobs.__all__)


@pytest.mark.parametrize("guide", GUIDES)
def test_every_name_that_a_guide_mentions_is_public(guide):
    modules = {info.name for info in pkgutil.iter_modules(richobs.__path__)}
    mentioned = set(re.findall(r"\brichobs\.([A-Za-z_]\w*)", (ROOT / guide).read_text())) - modules
    assert sorted(mentioned - set(richobs.__all__)) == []

"""What the documents say is what happens."""

import re
import sys
from importlib import util
from pathlib import Path

import numpy as np
import pytest

import richobs
from richobs.assumptions import check_assumptions
from richobs.cli import main
from richobs.envs import WORLDS
from richobs.envs.gym import WorldEnv
from richobs.paper import STATEMENTS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_readme_examples_run(code, capsys):
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    for promised in re.findall(r"^print\([^#\n]*\)\s+# (.*)$", code, re.MULTILINE):
        assert promised in printed


def test_the_guide_to_ones_own_problem_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / "docs/your-own-problem.md").read_text(), re.DOTALL))
    exec(compile(code, "your-own-problem.md", "exec"), {"__name__": "guide"})
    printed = capsys.readouterr().out.splitlines()
    promised = re.findall(r"^print\([^#\n]*\)\s+# (.*)$", code, re.MULTILINE)
    assert len(promised) == 2
    assert set(promised) <= set(printed)


def test_the_output_that_the_readme_shows_is_what_is_printed(capsys, tmp_path, monkeypatch):
    """Word for word; digits are left out, because another NumPy may draw other numbers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["learn", "lock"]) == 0

    def words(text):
        return [re.sub(r"[\d.,]+(e\+\d+)?", "#", line).split() for line in text.strip().splitlines()]

    (shown,) = re.findall(r"```text\n(.*?)```", README, re.DOTALL)
    assert words(capsys.readouterr().out) == words(shown)


def test_ci_runs_the_readmes_test_command():
    commands = re.findall(r"```sh\n(.*?)\n```", README, re.DOTALL)
    assert [c for c in commands if c.endswith("-m pytest")] == [
        "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/python -m pytest"
    ]
    assert any(c.endswith("richobs learn lock") for c in commands)
    assert "README.md" in (ROOT / ".ci/run").read_text()


def test_the_readme_lists_every_world():
    assert set(re.findall(r"`([a-z-]+)`", README.partition("## Worlds")[2].partition("`richobs worlds`")[0])) == set(
        WORLDS
    )


def test_links_lead_somewhere():
    for document in [ROOT / "README.md", *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_the_paper_map_names_tests_that_exist():
    text = (ROOT / "docs/paper-map.md").read_text()
    current = ""
    names = re.findall(r"`((?:\w+/)?test_\w+\.py)?((?:::\w+)+)`", text)
    assert len(names) > 10
    for file, parts in names:
        current = file or current
        source = (ROOT / "tests" / current).read_text()
        for part in parts.strip(":").split("::"):
            assert re.search(rf"\b(def|class) {part}\b", source), f"{current}{parts}"


def test_the_paper_map_has_every_statement_that_can_be_run():
    text = (ROOT / "docs/paper-map.md").read_text()
    named = re.findall(
        r"^\|[^|]*\| `richobs paper ([a-z0-9-]+)` \| `([\w.]+)` \|.*\[figure\]\(figures/paper/([a-z0-9-]+)\.png\)",
        text,
        re.M,
    )
    assert {name: module for name, module, _ in named} == STATEMENTS
    assert all(name == figure for name, _, figure in named)


def test_the_paper_map_names_code_that_exists():
    import importlib

    for name in re.findall(r"`(richobs\.[\w.]+)`", (ROOT / "docs/paper-map.md").read_text()):
        parts = name.split(".")
        for cut in range(len(parts), 0, -1):
            try:
                thing = importlib.import_module(".".join(parts[:cut]))
            except ModuleNotFoundError:
                continue
            for attribute in parts[cut:]:
                thing = getattr(thing, attribute)
            break


@pytest.fixture
def corridor(monkeypatch):
    """The skeleton, registered as the documentation says."""
    spec = util.spec_from_file_location("corridor_skeleton", ROOT / "docs/skeletons/world.py")
    module = util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "corridor_skeleton", module)
    spec.loader.exec_module(module)
    monkeypatch.setitem(WORLDS, "corridor", "corridor_skeleton")
    return module


def test_the_skeleton_is_a_world(corridor):
    problem = richobs.make("corridor/3", n_actions=2)
    assert problem.id == "corridor/3,n_actions=2"
    assert problem.optimal_value == pytest.approx(0.8)
    assert check_assumptions(problem.process, problem.functions).holds
    paths, _ = problem.process.path_distribution(problem.optimal_policy())
    paid = problem.env.play(tuple(paths[0]), 2000, np.random.default_rng(0)).rewards.sum(axis=1)
    assert paid.mean() == pytest.approx(0.8, abs=0.05)
    env = WorldEnv("corridor")
    env.reset(seed=0)
    assert env.step(0)[0] in (0, 1, 2, 3)


def test_worlds_lists_the_skeleton_once_it_is_registered(corridor, capsys):
    assert main(["worlds"]) == 0
    said = capsys.readouterr().out
    assert "corridor: One door per level is open" in said
    assert "Number of doors in a row." in said

"""What the documents say is what happens."""

import pkgutil
import re
from pathlib import Path

import pytest

from richobs.cli import main
from richobs.learners import LEARNERS
from richobs.worlds import WORLDS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
DOCUMENTS = [ROOT / "README.md", *(file for file in sorted(ROOT.glob("docs/**/*.md")) if "_build" not in file.parts)]

ALONE = ("laboratory", "linear", "paper-notes", "reference/problems")
EACH_ALONE = ("README.md", *(f"docs/{page}.md" for page in ALONE))
GUIDES = {  # one program from the first example to the last -> how many lines it promises to print, at least
    "docs/index.md": 1,
    "docs/your-own-problem.md": 6,
    "docs/gymnasium.md": 3,
    "docs/policy-value.md": 7,
    "docs/classes.md": 6,
}


def python_of(document):
    """The Python examples of a document."""
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def assert_prints(code, printed):
    """Every `print(...)  # words` printed these words, in that order; returns how many there are."""
    promised = re.findall(r"^print\([^#\n]*\)\s+# (.*)$", code, re.MULTILINE)
    lines = iter(printed.splitlines())
    for words in promised:
        assert words in lines, f"{words!r} was not printed in its place"  # goes on behind the line that was found
    return len(promised)


@pytest.mark.parametrize("document", EACH_ALONE)
def test_examples_run(document, capsys):
    examples = python_of(document)
    assert examples
    for code in examples:
        exec(compile(code, document, "exec"), {})
        assert_prints(code, capsys.readouterr().out)


@pytest.mark.parametrize(("guide", "promised"), GUIDES.items())
def test_guides_run_from_their_first_example_to_the_last(guide, promised, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = "\n".join(python_of(guide))
    exec(compile(code, guide, "exec"), {"__name__": "guide"})
    assert assert_prints(code, capsys.readouterr().out) >= promised


def test_the_corridor_is_short():
    """Three facts and one method."""
    code = "\n".join(python_of("docs/your-own-problem.md"))
    (corridor,) = re.findall(r"^class Corridor:\n((?:    .*\n|\n)*)", code, re.M)
    assert re.findall(r"    def (\w+)", corridor) == ["play"]
    assert len(corridor.strip().splitlines()) < 20


def test_the_output_that_the_readme_shows_is_what_is_printed(capsys, tmp_path, monkeypatch):
    """Word for word, but for what `...` leaves out; digits are left out, because another NumPy may draw other numbers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["learn", "lock"]) == 0

    def words(text):
        return [re.sub(r"[\d.,]+(e\+\d+)?", "#", line).split() for line in text.strip().splitlines()]

    (shown,) = re.findall(r"```text\n(.*?)```", README, re.DOTALL)
    printed, parts = words(capsys.readouterr().out), shown.split("...\n")
    assert len(parts) == 3
    first, *_, last = parts = [words(part) for part in parts]
    assert printed[: len(first)] == first
    assert printed[-len(last) :] == last
    rest = iter(printed)
    assert [line for part in parts for line in part if line not in rest] == []  # each behind the one before


def test_the_readme_is_one_screen():
    assert len(README.splitlines()) <= 65


def test_ci_runs_the_readmes_test_command():
    commands = re.findall(r"```sh\n(.*?)\n```", README, re.DOTALL)
    assert [c for c in commands if c.endswith("-m pytest")] == [
        "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/python -m pytest"
    ]
    assert any(c.endswith("richobs learn lock") for c in commands)
    assert "README.md" in (ROOT / ".ci/run").read_text()


def test_the_reference_lists_every_world():
    table = (ROOT / "docs/reference/problems.md").read_text().partition("| id |")[2].partition("`richobs worlds`")[0]
    assert set(re.findall(r"`([a-z-]+)`", table)) == set(WORLDS)


def test_the_reference_lists_every_learner():
    table = (ROOT / "docs/reference/learning.md").read_text().partition("\n## Learners")[2]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`([a-z0-9-]+)`", row)} == set(LEARNERS)


def test_links_lead_somewhere():
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_the_glossary_explains_the_terms_of_art():
    entries = re.findall(r"^- \*\*(.*?)\*\*", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    explained = {term for entry in entries for term in entry.split(", ")}
    wanted = (
        "version space, survivor, kind, member, level class, codec, share, seal, claim, certificate, candidate, trial, "
        "pilot, batch, look, stage, fallback, purpose, phase, query, answer, engine, ledger, record, visit, learner, "
        "world, problem, truth, process, event, mark"
    )
    assert set(wanted.split(", ")) - explained == set()


def test_documents_name_modules_that_exist():
    """Every path of a source file or a test, wherever a document gives one."""
    places = [ROOT, ROOT / "src", ROOT / "src/richobs", ROOT / "docs", ROOT / "tests"]
    for document in DOCUMENTS:
        for name in re.findall(r"`((?:\w+/)+\w+\.py)\b", document.read_text()):
            assert any((place / name).exists() for place in places), f"{document.name} names {name}"


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


def test_the_paper_map_names_code_that_exists():
    for name in re.findall(r"`(richobs\.[\w.]+)`", (ROOT / "docs/paper-map.md").read_text()):
        pkgutil.resolve_name(name)  # raises where there is no such name

"""Guides that are executed: they are well formed, and what they print reads as they say. The site's build executes them."""

import ast
import re
from pathlib import Path

import pytest

import richobs
from richobs.learners import Finding

DOCS = Path(__file__).parents[1] / "docs"
NAMES = ("classes", "gymnasium", "honesty", "models", "policy-value", "scale")
NAMES += ("tutorials/first-certificate", "tutorials/reading-a-certificate")
WIDEST = 88  # characters of code that fit beside the site's menus


def text_of(name):
    return (DOCS / f"{name}.md").read_text()


def cells_of(name):
    """Pairs (options, code) of the cells of a tutorial; a magic that writes a file is left out of its code."""
    cells = []
    for cell in re.findall(r"^```\{code-cell\} ipython3\n(.*?)^```$", text_of(name), re.MULTILINE | re.DOTALL):
        options = re.match(r"(---\n.*?\n---\n)?(?::[^\n]*\n)*", cell, re.DOTALL).group(0)
        cells.append((options, cell[len(options) :].removeprefix("%%writefile corridor.py\n")))
    return cells


def test_all_are_listed():
    """A page with cells of another kind is an explanation, with tests of its own."""
    pages = [page for page in DOCS.rglob("*.md") if "_build" not in page.parts]
    executed = [page for page in pages if "```{code-cell} ipython3" in page.read_text()]
    assert sorted(page.relative_to(DOCS).with_suffix("").as_posix() for page in executed) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
class TestEach:
    def test_it_is_a_notebook_that_says_what_is_learned(self, name):
        text = text_of(name)
        assert text.startswith("---\njupytext:\n")
        assert "\n  name: python3\n---\n\n# " in text
        assert text.count("\n**You will learn** ") == 1

    def test_its_code_is_python_and_fits_the_page(self, name):
        cells = cells_of(name)
        assert len(cells) >= 6
        for _, code in cells:
            assert max(map(len, code.splitlines())) <= WIDEST
            if not code.startswith("%%bash\n"):
                ast.parse(code)

    def test_every_figure_has_a_text_for_those_who_do_not_see_it(self, name):
        drawn = [options for options, code in cells_of(name) if "plt.show()" in code]
        assert drawn or name == "honesty"
        assert all(re.search(r"\n    alt: \w.{20,}", options) for options in drawn)

    def test_only_the_first_cell_is_hidden_and_it_leaves_the_documents_folder(self, name):
        (options, code), *others = cells_of(name)
        assert "remove-cell" in options
        assert "os.chdir(folder.name)" in code
        assert not [options for options, _ in others if "remove" in options]


def test_a_verification_prints_its_verdict_and_every_finding():
    right, wrong = Finding("ledger", True, "64 of 64 episodes"), Finding("run", False, "another bound")
    assert str(richobs.Verification((right,))) == "everything agrees\n  agrees   ledger: 64 of 64 episodes"
    assert str(richobs.Verification((right, wrong))).splitlines() == [
        "1 of 2 differ: do not rely on the claim",
        "  agrees   ledger: 64 of 64 episodes",
        "  DIFFERS  run: another bound",
    ]

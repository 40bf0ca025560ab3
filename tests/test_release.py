"""What a release says of itself: version, day, citation, licences, packages; and how all of that is checked."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import richobs
from richobs.cli.main import COMMANDS

sys.path.insert(0, str(Path(__file__).parents[1]))

from release import check, licences, smoke

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
CITATION = (ROOT / "CITATION.cff").read_text()
PAGE = (ROOT / "release/licences.md").read_text()


def tables_of(page):
    """The tables of the page of licences: heading -> package -> licence."""
    parts = re.split(r"^## (.*)$", page, flags=re.MULTILINE)[1:]
    rows = [dict(re.findall(r"^\| ([\w.-]+) \| (.*) \|$", body, re.MULTILINE)) for body in parts[1::2]]
    return {
        heading: {k: v for k, v in row.items() if k != "package"} for heading, row in zip(parts[::2], rows, strict=True)
    }


def test_changelog_and_citation_name_the_last_release_and_its_day():
    """What came after it has another version: files say which richobs made them."""
    version, day = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", CHANGELOG, re.MULTILINE).groups()
    is_released = "\n## Unreleased\n" not in CHANGELOG
    assert (version == richobs.__version__) == is_released
    assert richobs.__version__.endswith(".dev0") != is_released
    assert f"\nversion: {version}\n" in CITATION
    assert f'\ndate-released: "{day}"\n' in CITATION
    assert "### Moving from 0.1\n" in CHANGELOG


def test_the_citation_has_what_the_format_asks_for():
    title = "title: PAC Reinforcement Learning with Rich Observations"
    for line in ("cff-version: 1.2.0", "type: software", "license: MIT", title):
        assert re.search(rf"^ *{re.escape(line)}$", CITATION, re.MULTILINE), line
    assert PROJECT["project"]["license"] == "MIT"
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")


class TestLicences:
    def test_nothing_that_the_core_needs_is_under_the_gpl(self):
        core = licences.everything_for()
        assert {"numpy", "gymnasium", "matplotlib", "pillow"} <= set(core)  # the last one is needed by matplotlib
        assert [name for name, licence in core.items() if licences.is_gpl(licence)] == []

    def test_the_page_lists_what_the_core_needs(self):
        listed = tables_of(PAGE)["The package itself"]
        assert set(licences.everything_for()) - set(listed) <= {
            "colorama",
            "exceptiongroup",
        }  # other platforms need them
        assert set(listed) >= {re.match(r"[\w-]+", each)[0] for each in PROJECT["project"]["dependencies"]}

    def test_extras_that_need_the_gpl_say_so(self):
        tables = tables_of(PAGE)
        warned = {"atari": "Extra `atari` (GPL)", "docs": "Extra `docs` (GPL)"}
        extras = PROJECT["project"]["optional-dependencies"]
        assert set(tables) == {"The package itself", *(warned.get(extra, f"Extra `{extra}`") for extra in extras)}
        gpl = {(h, name) for h, rows in tables.items() for name, licence in rows.items() if licences.is_gpl(licence)}
        assert gpl == {("Extra `atari` (GPL)", "ale-py"), ("Extra `docs` (GPL)", "docutils")}
        assert re.search(r"^atari = .*# GPL$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)

    @pytest.mark.parametrize(
        ("licence", "gpl"),
        [
            ("GPLv2", True),
            ("GPL-3.0-or-later", True),
            ("AGPL-3.0", True),
            ("GNU General Public License v3 (GPLv3)", True),
            ("LGPL-2.1-or-later", False),
            ("GNU Lesser General Public License v2 or later (LGPLv2+)", False),
            ("GNU Library or Lesser General Public License (LGPL)", False),
            ("BSD-3-Clause AND GPL-3.0-or-later WITH GCC-exception-3.1", False),
            ("MIT", False),
        ],
    )
    def test_which_licence_is_the_gpl(self, licence, gpl):
        assert licences.is_gpl(licence) == gpl

    def test_a_package_that_is_not_installed_is_named(self):
        with pytest.raises(LookupError, match="richobs-nothing is not installed"):
            licences.licence_of("richobs-nothing")


class TestPackages:
    def test_what_a_wheel_lacks_is_noticed(self, tmp_path):
        files = [f.relative_to(ROOT / "src").as_posix() for f in (ROOT / "src").rglob("*") if f.is_file()]
        with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
            for name in files:
                if not name.endswith("certified/measured.json"):
                    wheel.writestr(name, "")
        assert check.missing_from_wheel(tmp_path / "a.whl") == ["richobs_lab/certified/measured.json"]

    def test_what_an_sdist_lacks_is_noticed(self, tmp_path, monkeypatch):
        done = subprocess.CompletedProcess([], 0, stdout="README.md\npyproject.toml\n.gitignore\n")
        monkeypatch.setattr("subprocess.run", lambda *_, **__: done)
        with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as sdist:
            sdist.add(ROOT / "pyproject.toml", "richobs-1/pyproject.toml")
        assert check.missing_from_sdist(tmp_path / "a.tar.gz") == ["README.md"]

    def test_a_step_that_fails_ends_it(self, tmp_path, capfd):
        with pytest.raises(check.Failed, match="exit status 3"):
            check.call(sys.executable, "-c", "raise SystemExit(3)", cwd=tmp_path)

    def test_a_package_without_its_page_fails_the_smoke_test(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        Path("page.html").write_text("<html><style></style>lock</html>\n")
        smoke.check_page("page.html", "lock")
        with pytest.raises(smoke.Wrong, match="does not hold 'key'"):
            smoke.check_page("page.html", "key")
        Path("page.html").write_text("<html>lock")
        with pytest.raises(smoke.Wrong, match="not a whole page"):
            smoke.check_page("page.html", "lock")

    def test_the_smoke_test_uses_most_commands(self):
        used = set(re.findall(r'command\(\s*"([a-z]+)"', (ROOT / "release/smoke.py").read_text()))
        assert set(COMMANDS) - used == {"audit", "compare", "resume", "show"}

    def test_tests_that_are_run_from_the_sdist_exist(self):
        assert all((ROOT / name).exists() for name in check.TESTS)
        assert "-m release.check" in (ROOT / ".ci/run").read_text()


def test_contributing_names_what_exists():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", text) + re.findall(r"^\| `([a-z/]+)` \|", text, re.MULTILINE):
        assert (ROOT / target).exists(), target
    for module in re.findall(r"\b((?:tests|attack|release)\.[a-z]+)\b", text):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module
    assert "pip install -e '.[dev]'" in text

"""The site: pages name every public name, command and file, their examples run, and what is built leads somewhere.

Tests with the mark `site` look at the built pages in docs/_build/html; `make -C docs html` makes them.
"""

import doctest
import html.parser
import itertools
import pkgutil
import re
import shlex
import shutil
import typing
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import tyro

import richobs
from richobs.cli.main import COMMANDS, _command_type, _options, in_order
from richobs.cli.options import world_options
from richobs.learners import LEARNERS
from richobs.runs import certificate, store
from richobs.runs.database import ROWS
from richobs_lab.arena import contest as arena
from richobs_lab.sweep import runs as sweep
from test_docs import EACH_ALONE, GUIDES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(file for file in DOCS.rglob("*.md") if "_build" not in file.parts)
REFERENCE = sorted((DOCS / "reference").glob("*.md"))
SUBMODULES = {"richobs.ray.RayExecutor", "richobs.ray.WorkerLost", "richobs.sb3.CertifyCallback"}
SUBMODULES |= {"richobs.worlds.World"}
FENCE = re.compile(
    r"^(?P<fence>`{3,}|:{3,})(?P<words>[^\n`]*)\n(?P<code>.*?)^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL
)
RUN_ELSEWHERE = {*EACH_ALONE, *GUIDES}  # documents whose Python blocks test_docs.py runs


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def examples(text):
    """Returns the examples of a reference page as one session."""
    return "\n\n".join(found["code"] for found in FENCE.finditer(text) if found["words"].strip() == "pycon")


class TestReference:
    @pytest.mark.parametrize("page", [page for page in REFERENCE if examples(page.read_text())], ids=name_of)
    def test_examples_print_what_is_shown(self, page, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        session = doctest.DocTestParser().get_doctest(examples(page.read_text()), {}, page.name, str(page), 0)
        assert session.examples
        told = []
        doctest.DocTestRunner(verbose=False).run(session, out=told.append)
        assert "".join(told) == ""

    def test_every_public_name_has_one_entry(self):
        """Names of modules that the reference also lists, such as `richobs.core.events.Event`, have one at most."""
        text = "\n".join(page.read_text() for page in REFERENCE)
        entries = re.findall(r"^\.\. (?:auto\w+|py:data|py:module):: (richobs\w*\.[\w.]+)$", text, re.MULTILINE)
        assert sorted(entries) == sorted(set(entries))
        assert sorted(({f"richobs.{name}" for name in richobs.__all__} | SUBMODULES) - set(entries)) == []
        for entry in entries:
            pkgutil.resolve_name(entry)  # raises where there is no such name

    def test_every_name_that_is_no_error_is_used_by_an_example(self):
        texts = [examples(page.read_text()) for page in REFERENCE]
        texts += [(ROOT / name).read_text() for name in RUN_ELSEWHERE]
        used = set(re.findall(r"\brichobs\.(\w+)", "\n".join(texts)))
        errors = {name for name in richobs.__all__ if name[0].isupper() and is_error(getattr(richobs, name))}
        alone = {"Networks", "NetworkLevel", "LevelClass", "codec", "TensorBoard", "Settings"}  # extras, and skeletons
        assert sorted(set(richobs.__all__) - used - errors - alone - {"errors"}) == []


def is_error(thing):
    return isinstance(thing, type) and issubclass(thing, Exception)


class TestFiles:
    """docs/reference/files.md says what the code writes."""

    TEXT = (DOCS / "reference/files.md").read_text()

    def test_versions(self):
        assert f"| `richobs-certificate` | {certificate.VERSION} |" in self.TEXT
        assert f"| `richobs-run` | {store.VERSION} |" in self.TEXT
        assert f"| `richobs-sweep` | {sweep.VERSION} |" in self.TEXT
        assert f"| `richobs-arena` | {arena.VERSION} |" in self.TEXT
        assert [certificate.FORMAT, store.FORMAT] == ["richobs-certificate", "richobs-run"]

    def test_every_field_of_a_certificate(self):
        named = set(re.findall(r"`([\w.]+)`", self.TEXT.partition("## Certificate")[2].partition("\n## ")[0]))
        assert sorted(certificate.PARTS.keys() - named) == []
        content = richobs.Certificate.of(richobs.learn(richobs.make("bandit")), richobs.make("bandit")).content
        whole = {"settings", "constants", "recorded", "versions"}  # described as one
        fields = {
            f"{part}.{name}" if isinstance(value, dict) and part not in whole else part
            for part, value in content.items()
            for name in (value if isinstance(value, dict) else [""])
        }
        assert sorted(fields - named) == []

    def test_every_file_and_table_of_a_run(self):
        folder = self.TEXT.partition("## A run's folder")[2].partition("\n## ")[0]
        named = set(re.findall(r"`([\w.]+)`", folder))
        files = {store.CONFIG, store.DATABASE, store.LOCK, store.CERTIFICATE, store.POLICY, store.RECORDED}
        files |= {store.VERIFICATION, store.REPORT}
        assert sorted((files | set(re.findall(r"CREATE TABLE (\w+)", ROWS))) - named) == []


class TestPages:
    def test_every_page_is_in_the_contents(self):
        """The menu has at most four doors of at most seven entries; some pages have pages of their own."""

        def trees(page):
            found = [one["code"] for one in FENCE.finditer(page.read_text()) if one["words"].strip() == "{toctree}"]
            return [[line for line in tree.splitlines() if line and not line.startswith(":")] for tree in found]

        doors = trees(DOCS / "index.md")
        assert len(doors) <= 4
        listed = [line for page in PAGES for tree in trees(page) for line in tree]
        assert max(map(len, doors)) <= 7
        assert len(listed) == len(set(listed))
        there = {page.relative_to(DOCS).with_suffix("").as_posix() for page in PAGES} - {"index"}
        assert sorted(listed) == sorted(there)

    @pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=name_of)
    def test_every_block_of_python_runs_or_says_why_not(self, page):
        """A block runs in a test, when the site is built ({code-cell}), or stands behind `<!-- not run: reason -->`."""
        text = page.read_text()
        if name_of(page) in RUN_ELSEWHERE:
            return
        for block in FENCE.finditer(text):
            if block["words"].strip().split()[:1] in (["python"], ["py"]):
                before = text[: block.start()].rstrip()
                assert re.search(r"<!-- not run: \S[^>]* -->\Z", before), f"{name_of(page)}:\n{block[0]}"

    @pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=name_of)
    def test_every_command_can_be_parsed(self, page):
        for block in FENCE.finditer(page.read_text()):
            if block["words"].strip() in ("sh", "bash", "text", "console"):
                for command in re.split(r"\n|&&|\|", re.sub(r"\s#.*", "", block["code"])):
                    found = re.match(r"\s*(?:\$ )?(?:\.venv/bin/)?richobs ([a-z].*)", command)
                    if found and found[1].split()[0] in COMMANDS and "WORLD" not in found[1] and "..." not in found[1]:
                        parsed(shlex.split(found[1]), name_of(page))


def parsed(arguments, where):
    """Parses a command line and runs nothing."""
    try:
        tyro.cli(
            _command_type(),
            prog="richobs",
            args=in_order(arguments, COMMANDS),
            config=(tyro.conf.CascadeSubcommandArgs, tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
            console_outputs=False,
        )
    except SystemExit as ended:
        if ended.code != 0:
            pytest.fail(f"{where} has a command that does not parse: richobs {' '.join(arguments)}")


BUILT = DOCS / "_build/html"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NO_LINKS = ("genindex.html", "search.html", "py-modindex.html")


def positional(kind):
    """Returns arguments of a command that have no name, as options would be called."""
    hints = typing.get_type_hints(kind, include_extras=True)
    marked = [name for name, hint in hints.items() if tyro.conf.Positional in getattr(hint, "__metadata__", ())]
    return {f"--{name.replace('_', '-')}" for name in marked}


class Read(html.parser.HTMLParser):
    """What a built page holds: ids, links, what it loads, pictures, headings."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads, self.headings, self.wordless = set(), [], [], [], []
        self.language = None
        self._hidden = 0
        self.feed(text)

    def handle_starttag(self, tag, given):
        values = dict(given)
        self.ids |= {values[key] for key in ("id", "name") if values.get(key)}
        if tag == "html":
            self.language = values.get("lang")
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag in ("script", "img", "iframe", "source") and values.get("src"):
            self.loads.append(values["src"])
        if tag == "link" and {"stylesheet", "icon", "preload"} & set((values.get("rel") or "").split()):
            self.loads.append(values["href"])
        if tag == "img" and not (values.get("alt") or "").strip():
            self.wordless.append(values.get("src"))
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))


@pytest.fixture(scope="module")
def built():
    """Every built page, by its path."""
    assert (BUILT / "index.html").exists(), "the site is not built: make -C docs html"
    return {file.relative_to(BUILT).as_posix(): Read(file.read_text()) for file in BUILT.rglob("*.html")}


@pytest.mark.site
class TestBuilt:
    def test_pages_files_words_names_and_commands_are_linked(self, built):
        assert "glossary.html#term-version-space" in built["architecture.html"].links
        assert {"term-version-space", "term-survivor", "term-wealth"} <= built["glossary.html"].ids
        assert "reference/learning.html#richobs.Outcome" in built["glossary.html"].links
        assert "reference/command-line.html#richobs-verify" in built["glossary.html"].links
        assert "files/examples/taxi.py.html" in built["gallery.html"].links
        assert "from_gymnasium" in (BUILT / "files/examples/taxi.py.html").read_text()

    def test_every_link_and_anchor_resolves(self, built):
        broken = []
        for page, content in built.items():
            for link in (*content.links, *content.loads):
                parts = urlsplit(link)
                if parts.scheme in ("http", "https", "mailto", "data"):
                    continue
                target = ((BUILT / page).parent / unquote(parts.path)).resolve() if parts.path else BUILT / page
                if not target.is_relative_to(BUILT) or not target.exists():
                    broken.append(f"{page}: {link}")
                elif parts.fragment and target.suffix == ".html":
                    name = target.relative_to(BUILT).as_posix()
                    if unquote(parts.fragment) not in built[name].ids:
                        broken.append(f"{page}: {link} (no such anchor)")
        assert broken == []

    def test_nothing_is_loaded_from_elsewhere(self, built):
        loads = [f"{page}: {source}" for page, content in built.items() for source in content.loads]
        assert [load for load in loads if re.search(r": (https?:)?//", load)] == []
        for file in [*BUILT.rglob("*.css"), *BUILT.rglob("*.js")]:
            text = file.read_text(errors="replace")
            assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", text) == [], file
            assert re.findall(r"\b(?:import|importScripts|fetch)\(\s*[\"'](?:https?:)?//", text) == [], file

    def test_headings_and_pictures(self, built):
        wrong = []
        for page, content in built.items():
            steps = itertools.pairwise(content.headings)
            if page in NO_LINKS:
                continue
            if content.headings.count(1) != 1 or any(after > before + 1 for before, after in steps):
                wrong.append(f"{page}: headings {content.headings}")
            wrong += [f"{page}: {source} has no alternative text" for source in content.wordless]
            wrong += [] if content.language == "en" else [f"{page}: language {content.language}"]
        assert wrong == []

    def test_every_option_is_on_the_page_of_the_commands(self):
        text = (BUILT / "reference/command-line.html").read_text()
        for command, kind in COMMANDS.loadable():
            for option in set(_options([kind])) - {"-h", "--help", "--world", *positional(kind)}:
                assert f'id="cmdoption-richobs-{command}-{option.removeprefix("--")}"' in text, (command, option)
        for world, options in world_options().items():
            for option in set(_options([options])) - {"-h", "--help", *positional(options)}:
                assert f'id="cmdoption-richobs-{world}-{option.removeprefix("--")}"' in text, (world, option)

    def test_every_learner_is_on_its_page(self):
        text = (BUILT / "reference/learning.html").read_text()
        assert [name for name in LEARNERS if f'<section id="{name}">' not in text] == []

    def test_formulas_are_mathml(self, built):
        pages = [file for file in BUILT.rglob("*.html") if "<math " in file.read_text()]
        assert pages
        for file in pages:
            assert re.findall(r"MathJax|\\\(", file.read_text()) == [], file


@pytest.mark.site
@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (400, "dark"), (1400, "light"), (1400, "dark")])
def test_no_page_is_wider_than_the_window(built, width, scheme):
    if CHROMIUM is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on the PATH (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    wide, loaded = [], []
    pages = ["index.html", "betting.html", "reference/learning.html"]
    if (width, scheme) == (400, "light"):
        pages = sorted(built)
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        tab = context.new_page()
        tab.on("request", lambda request: loaded.append(request.url))
        for page in pages:
            tab.goto((BUILT / page).as_uri())
            over = tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            wide += [f"{page}: {over} pixels too wide"] if over > 0 else []
        browser.close()
    assert wide == []
    assert [address for address in loaded if not address.startswith(("file:", "data:"))] == []

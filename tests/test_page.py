"""The report in a real browser: what is shown, what answers to mouse, touch and keys, and that nothing is loaded."""

import re
import shutil
from types import SimpleNamespace

import pytest

from richobs.core import words
from richobs.show import write_report
from richobs.show.chart import labels_apart
from richobs.show.page import _gymnasium_name
from richobs_lab.certified.events import CandidateTried
from runs import cut_short, large, stored

pytestmark = pytest.mark.browser
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (360, 1920)


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is missing (pip install playwright)")
    if CHROMIUM is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on the PATH (apt-get install chromium)")
    with playwright.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def certified():
    return stored("lock/5", learner="certified", verify=True)


@pytest.fixture(scope="module")
def pages(certified, tmp_path_factory):
    """The address of each page, written once."""
    folder = tmp_path_factory.mktemp("pages")
    paper = stored("lock/3", learner="lsvee")
    runs = {
        "certified": [certified],
        "large": [large(tests=10_000)],
        "several": [*(stored("lock/3", learner="certified", seed=s) for s in range(3)), paper, cut_short(certified, 9)],
        "betting": [stored("mdp/4", learner="betting", seed=2)],
    }
    return {name: write_report(r, folder / f"{name}.html", figures=False)[0].as_uri() for name, r in runs.items()}


@pytest.fixture(scope="module")
def tab(browser):
    """A page that visits without options share, because a new one takes half a second."""
    with browser.new_context() as context:
        yield context.new_page()


@pytest.fixture
def visit(browser, pages, tab):
    """Opens a page; in the end nothing may have gone wrong, and nothing been asked of the network."""
    opened, trouble = [], []
    told = {
        "console": lambda m: trouble.append(m.text) if m.type in ("error", "warning") else None,
        "pageerror": lambda e: trouble.append(str(e)),
        "request": lambda r: trouble.append(r.url) if not r.url.startswith(("file:", "data:", "about:")) else None,
    }

    def go(name, width=1280, height=900, fragment="", before="", **options):
        page = tab
        if before or options or tab in opened:
            page = browser.new_context(**options).new_page()
            page.context.add_init_script(before)
        opened.append(page)
        for event, listen in told.items():
            page.on(event, listen)
        page.set_viewport_size({"width": width, "height": height})
        page.goto(pages[name] + fragment)
        if name not in ("several", "betting"):  # there trees are folded away at first, or there is none
            page.wait_for_selector("svg.tree[data-zoom]", state="attached")
        return page

    yield go
    for page in opened:
        if page is not tab:
            page.context.close()
            continue
        page.evaluate("localStorage.clear()")
        page.emulate_media(media="null")
        page.goto("about:blank")
        for event, listen in told.items():
            page.remove_listener(event, listen)
    assert trouble == []


def node(page, path):
    return page.locator(f'.node[aria-label^="path {path}:"]').first


def details(page):
    return page.locator(".details").first


def settle(page):
    """Waits until what was asked for has been drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def centre(locator):
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


class TestClaim:
    def test_it_is_the_first_thing_said(self, visit, certified):
        page = visit("certified")
        claim = page.locator(".statement")
        assert claim.inner_text() == certified.certificate.claim
        assert claim.bounding_box()["y"] < 400
        assert page.get_by_text("The file verification.json, made on").is_visible()
        page.get_by_text("10 findings").click()
        for finding in certified.verification.findings:
            assert page.locator(".findings", has_text=finding.detail).is_visible()


class TestTree:
    def test_hovering_tells_what_happened(self, visit, certified):
        page = visit("certified")
        node(page, "1").scroll_into_view_if_needed()
        page.mouse.move(*centre(node(page, "1")))
        said = details(page).inner_text()
        last = [s.event for s in certified.steps if s.event.path == (1,)][-1]
        assert "Path 1" in said
        assert f"elimination: {last.said().verdict}" in said
        assert last.question in said
        assert f"{last.threshold_name}\n{words.value(last.said().threshold)}" in said
        assert "shared with its path" in said or f"episodes (n)\n{last.n:,}" in said
        assert "survivors\n" in said
        through = sum(e.episodes for e in certified.ledger if e.path[:1] == (1,))
        assert f"episodes through here\n{through:,}" in said

    def test_a_click_stays_and_a_hover_does_not(self, visit):
        page = visit("certified")
        node(page, "1").scroll_into_view_if_needed()
        page.mouse.click(*centre(node(page, "1")))
        assert node(page, "1").get_attribute("aria-selected") == "true"
        page.mouse.move(*centre(node(page, "2")))
        assert "Path 2" in details(page).inner_text()
        page.locator("h1").hover()
        assert "Path 1" in details(page).inner_text()

    def test_keys_walk_along_the_tree(self, visit):
        page = visit("certified")
        page.locator(".node[tabindex='0']").focus()
        walked = []
        for key in ("ArrowRight", "ArrowDown", "ArrowRight", "ArrowLeft", "ArrowUp", "ArrowLeft", "End", "Home"):
            page.keyboard.press(key)
            walked.append(details(page).locator(".where").inner_text())
            assert page.locator(".node[tabindex='0']").count() == 1
        assert walked[:6] == ["Path 0", "Path 1", "Path 1 0", "Path 1", "Path 0", "The root"]
        assert walked[7] == "The root"
        assert page.evaluate("document.activeElement.classList.contains('node')")

    def test_buttons_keys_and_wheel_zoom(self, visit):
        page = visit("certified")
        svg = page.locator("svg.tree")
        svg.scroll_into_view_if_needed()

        def zoom():
            settle(page)
            return float(svg.get_attribute("data-zoom"))

        def gap():
            return centre(node(page, "2"))[1] - centre(node(page, "1"))[1]

        assert zoom() == 1
        whole = gap()
        page.get_by_role("button", name="Zoom in").click()
        assert zoom() == 1.6
        assert gap() == pytest.approx(1.6 * whole, rel=0.02)
        page.get_by_role("button", name="Zoom out").click()
        assert zoom() == 1
        node(page, "1").focus()
        page.keyboard.press("+")
        assert zoom() == 1.5
        page.keyboard.press("0")
        assert zoom() == 1
        page.mouse.move(*centre(svg))
        before = page.evaluate("scrollY")
        page.keyboard.down("Control")
        page.mouse.wheel(0, -100)
        page.keyboard.up("Control")
        assert zoom() > 1.2
        assert page.evaluate("scrollY") == before
        page.get_by_role("button", name="Show the whole tree").click()
        assert zoom() == 1

    def test_two_thousand_nodes(self, visit):
        """One element for a node, one for all edges; levels and labels are few, however far one zooms."""
        page = visit("large")
        svg = page.locator("svg.tree")
        assert svg.locator(".node").count() == 2000
        for _ in range(8):
            assert svg.locator("*").count() <= 2000 + 4 + 2 + 20 + 300
            page.get_by_role("button", name="Zoom in").click()
            settle(page)
        frame = svg.bounding_box()
        labels = [label.bounding_box() for label in svg.locator(".labels text").all()]
        assert labels
        assert all(frame["y"] - 40 < at["y"] < frame["y"] + frame["height"] + 40 for at in labels)
        changed = page.evaluate(
            """async () => {
                let n = 0;
                const watch = new MutationObserver((all) => { n += all.length; });
                watch.observe(document.querySelector('svg.tree'), { subtree: true, childList: true, attributes: true });
                document.querySelector('[data-zoom=out]').click();
                await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
                watch.disconnect();
                return n;
            }"""
        )
        assert 0 < changed < 400  # zooming changes a few attributes and labels, not two thousand nodes


class TestTables:
    def cells(self, page, column, table="tests"):
        return page.locator(f"[data-table={table}] tbody tr > :nth-child({column})").all_inner_texts()

    def test_sorting(self, visit, certified):
        page = visit("certified")
        head = page.locator("[data-table=tests] th", has=page.get_by_role("button", name="threshold"))
        assert head.get_attribute("aria-sort") == "none"
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == "ascending"
        thresholds = sorted(float(f"{s.event.said().threshold:.6g}") for s in certified.steps)  # as the page has them
        assert self.cells(page, 7) == [words.value(x) for x in thresholds[:15]]
        head.get_by_role("button").press("Enter")
        assert head.get_attribute("aria-sort") == "descending"
        assert self.cells(page, 7) == [words.value(x) for x in thresholds[:-16:-1]]
        assert page.locator("[data-table=tests] th[aria-sort=none]").count() == 10

    def test_search(self, visit, certified):
        page = visit("certified")
        box = page.locator("[data-table=tests]")
        search, shown = box.get_by_role("searchbox"), box.locator(".shown")
        total = len(certified.steps)
        search.fill("trial")
        trials = [i + 1 for i, s in enumerate(certified.steps) if isinstance(s.event, CandidateTried)]
        assert self.cells(page, 1) == [str(i) for i in trials]
        assert shown.inner_text() == f"1 to {len(trials)} of {len(trials)} found of {total}"
        search.fill("elimination 1 0 0 1 0")
        deep = [i + 1 for i, s in enumerate(certified.steps) if s.event.path == (1, 0, 0, 1, 0)]
        assert self.cells(page, 1) == [str(i) for i in deep]
        search.fill("nothing like this")
        assert shown.inner_text() == f"none found of {total}"
        search.fill("")
        assert len(self.cells(page, 1)) == 15


class TestThemes:
    def ground(self, page):
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    def test_the_button_turns_light_to_dark_and_back(self, visit):
        page = visit("certified", color_scheme="light")
        button = page.get_by_role("button", name="Dark theme")
        light = self.ground(page)
        assert button.get_attribute("aria-pressed") == "false"
        button.click()
        assert button.get_attribute("aria-pressed") == "true"
        dark = self.ground(page)
        assert sum(map(int, re.findall(r"\d+", dark))) < 150 < 600 < sum(map(int, re.findall(r"\d+", light)))
        assert page.evaluate("localStorage.getItem('richobs-theme')") == "dark"
        button.click()
        assert self.ground(page) == light
        assert page.evaluate("localStorage.getItem('richobs-theme')") == "light"

    @pytest.mark.parametrize(("kept", "pressed"), [("dark", "true"), ("light", "false"), ("plaid", "false")])
    def test_what_was_chosen_before_counts(self, visit, kept, pressed):
        # Put there by hand: on a busy machine Chromium now and then forgets on reload what a page from disk stored.
        before = f"localStorage.setItem('richobs-theme', '{kept}')"
        page = visit("certified", color_scheme="light", before=before)
        assert page.get_by_role("button", name="Dark theme").get_attribute("aria-pressed") == pressed
        assert (self.ground(page) == "rgb(19, 21, 24)") == (pressed == "true")


class TestSeveral:
    def test_a_link_opens_its_run(self, visit):
        page = visit("several")
        assert page.locator("details.run[open]").count() == 0
        page.get_by_role("link", name="4. lock/3").click()
        opened = page.locator("details.run[open]")
        assert opened.get_attribute("id") == "run-4"
        opened.locator(".tree .node").first.wait_for(state="visible")
        settle(page)
        opened.locator(".tree .node").nth(1).focus()
        assert "Path" in opened.locator(".details").inner_text()
        assert float(opened.locator("svg.tree").get_attribute("data-zoom")) == 1


class TestEverywhere:
    @pytest.mark.parametrize("width", WIDTHS)
    @pytest.mark.parametrize("name", ["certified", "large", "several", "betting"])
    def test_nothing_sticks_out_sideways(self, visit, name, width):
        page = visit(name, width, 800)
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        outside = page.evaluate(
            """(width) => [...document.querySelectorAll('main *, header *, footer *')].filter((e) => {
                if (e.closest('.scroll') || e.closest('svg') || e.closest('.hidden')) return false;
                const r = e.getBoundingClientRect();
                return r.width && (r.right > width + 1 || r.left < -1);
            }).map((e) => e.outerHTML.slice(0, 120))""",
            width,
        )
        assert outside == []

    @pytest.mark.parametrize("name", ["certified", "several", "betting"])
    def test_everything_that_acts_has_a_name_and_takes_the_focus(self, visit, name):
        page = visit(name)
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        wrong = page.evaluate(
            """() => [...document.querySelectorAll('a, button, input, summary, .node, .scroll')].filter((e) => {
                if (e.disabled || !e.checkVisibility()) return false;
                const label = e.closest('label');
                const name = e.getAttribute('aria-label') || (label || e).textContent.trim();
                e.focus({ preventScroll: true });
                return !name || document.activeElement !== e;
            }).map((e) => e.outerHTML.slice(0, 120))"""
        )
        assert wrong == []
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
        assert len(ids) == len(set(ids))

    def test_the_focus_can_be_seen(self, visit):
        page = visit("certified")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        assert page.locator(".skip").bounding_box()["y"] >= 0
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        node(page, "1").focus()
        page.keyboard.press("ArrowRight")
        assert page.evaluate("parseFloat(getComputedStyle(document.activeElement).strokeWidth)") == 4

    def test_on_paper_every_run_is_open(self, visit):
        page = visit("several")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        assert page.locator("details:not([open])").count() == 0
        assert not page.locator("nav").is_visible()


class TestCandidates:
    def test_they_can_be_sorted_and_searched(self, visit):
        page = visit("betting")
        table = page.locator('[data-table="candidates"]')
        assert table.locator("tbody tr").first.locator("th").inner_text() == "1"
        table.get_by_role("button", name="episodes").click()
        table.get_by_role("button", name="episodes").click()
        at = [name.strip(" ▲▼") for name in table.locator("thead th").all_inner_texts()].index("episodes")
        rows = [row.locator("th, td").all_inner_texts() for row in table.locator("tbody tr").all()]
        episodes = [int(row[at].replace(",", "")) for row in rows]
        assert episodes == sorted(episodes, reverse=True) != sorted(episodes)
        table.locator("input").fill("certified")
        assert table.locator("tbody tr").count() == 1


@pytest.mark.parametrize(
    ("places", "found"),
    [
        *(([50.0, 50.0], [50.0, 58.0]), ([99.0, 20.0, 98.0], [100.0, 20.0, 92.0])),
        *(([0.0, 1.0, 2.0], [0.0, 8.0, 16.0]), ([], [])),
    ],
)
def test_labels_are_apart(places, found):
    assert labels_apart(places) == found


@pytest.mark.parametrize(
    ("identity", "name"),
    [
        ("gym:<TimeLimit<OrderEnforcing<FrozenLakeEnv<FrozenLake-v1>>>>, horizon=6", "FrozenLake-v1 of Gymnasium"),
        ("Warehouse, horizon=10", ""),
    ],
)
def test_a_gymnasium_environment_is_called_by_its_id(identity, name):
    stored = SimpleNamespace(certificate=SimpleNamespace(content={"environment": {"identity": identity}}))
    assert _gymnasium_name(stored) == name
    assert _gymnasium_name(SimpleNamespace(certificate=None)) == ""

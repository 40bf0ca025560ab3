"""The report: what it says, and that it says it safely. How it looks in a browser is in test_page.py."""

import dataclasses
import itertools
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from richobs.core import words
from richobs.core.errors import InvalidInput
from richobs.core.events import Event, Mark, Progress, Said, event
from richobs.core.ledger import Ledger
from richobs.learners import Finding
from richobs.runs.certificate import Certificate, Verification
from richobs.show import chart, page, palette, write_report
from richobs.show.groups import groups, median
from richobs.show.page import RunView
from richobs.show.tree import search_tree
from richobs_lab.certified.events import StageDoubled
from richobs_lab.lsvee.demand import PolicyPlayed
from richobs_lab.lsvee.dfs import ConsensusTested, NodeEliminated
from runs import cut_short, large, stored

VOID = {"meta", "link", "br", "input"}
BLOCKS = {"p", "div", "td", "th", "dt", "dd", "li", "small", "a"}


class Page(HTMLParser):
    """A page taken apart; raises where tags do not close in the order in which they opened."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.text = [], [], ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in BLOCKS:
            self.text += " "
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.text += data

    @property
    def said(self):
        return " ".join(self.text.split())

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def data_of(html, run=1):
    return json.loads(re.search(rf'id="run-{run}-data">(.*?)</script>', html, re.DOTALL).group(1))


@pytest.fixture(scope="module")
def certified():
    return stored("lock/5", learner="certified", verify=True)


@pytest.fixture(scope="module")
def paper():
    return stored("lock/3", learner="lsvee")


def sized(before=10.0, after=10.0, phase="search"):
    """What every event here has in common."""
    return {"phase": phase, "n": 100, "log_size_before": before, "log_size_after": after}


def consensus(path, agree):
    return ConsensusTested(path=path, agree=agree, spread=0.25, eps_test=0.5, **sized())


def elimination(path, after=10.0, phase="search"):
    return NodeEliminated(path=path, least=0.25, cutoff=0.5, **sized(after=after, phase=phase))


@event("test", "guess", "is it this one?")
class Guessed(Event):
    """An event of a learner that keeps neither functions nor bounds, with a mark of its own."""

    result: str = "maybe"

    def said(self):
        return Said(self.result, mark=Mark("guessed", "somebody guessed here", 9))


class TestWords:
    @pytest.mark.parametrize(
        ("n", "said"),
        [(0, "0"), (3149, "3,149"), (10**9, "10^9"), (533503441679264, "5.34·10^14"), (9999 * 10**400, "10^404")],
    )
    def test_counts(self, n, said):
        assert words.count(n) == said

    @pytest.mark.parametrize(
        ("x", "said"),
        [
            *((0.0, "0"), (0.42818, "0.4282"), (1.23e-32, "1.23·10^-32"), (14792.3, "14790")),
            *((1e6, "10^6"), (math.inf, "∞"), (math.nan, "\u2013"), (0.5, "0.5")),
        ],
    )
    def test_values(self, x, said):
        assert words.value(x) == said

    @pytest.mark.parametrize(
        ("log_size", "said"),
        [(0.0, "1"), (math.log(1234), "1,234"), (14.76 * math.log(10), "10^14.8"), (-math.inf, "0")],
    )
    def test_sizes_of_classes(self, log_size, said):
        assert words.functions(log_size) == said


class TestTree:
    def test_what_happened_where(self):
        ledger = Ledger()
        for path, n in (((0,), 10), ((1,), 20), ((1, 2), 30)):
            ledger.charge("search", "consensus", path, n)
        ledger.charge("demand", "rollout", (), 5)
        events = [
            consensus((0,), agree=True),
            consensus((1,), agree=False),
            consensus((1, 2), agree=False),
            elimination((1,), after=8.0),
            PolicyPlayed(gap=0.25, eps_demand=0.5, **sized(phase="demand")),
            StageDoubled(batch=512, largest=1024, **sized()),
        ]
        tree = search_tree(events, ledger, horizon=3, n_actions=3)
        first, second = [((), "policies", 65), ((0,), "agreed", 10)], [((1,), "eliminated", 50), ((1, 2), "open", 30)]
        assert [(n.path, n.mark.name, n.through) for n in tree.nodes] == first + second
        assert [(n.x, n.y) for n in tree.nodes] == [(0, 10.0), (100, 0), (100, 20), (200, 20)]
        assert [n.unvisited for n in tree.nodes] == [(2,), (), (0, 1), ()]
        assert [n.tests for n in tree.nodes] == [(4,), (0,), (1, 3), (2,)]
        assert tree.edges.startswith("M0 10C50 10 50 0 100 0")
        assert tree.nodes[2].label == "path 1: functions eliminated, 2 tests, 50 episodes"
        assert tree.visited() == [1, 2, 1]

    def test_the_mark_of_the_highest_rank_is_shown_and_of_equal_ones_the_latest(self):
        for events, mark in (
            ([elimination((0,), 9.0), elimination((0,)), consensus((0,), True)], "eliminated"),
            ([elimination((0,), 9.0, "demand"), elimination((0,))], "demand"),
            ([elimination((0,), 10.0, "demand"), elimination((0,))], "tested"),
            ([consensus((0,), False), consensus((0,), True)], "agreed"),
            ([consensus((0,), True), consensus((0,), False)], "open"),
        ):
            assert search_tree(events, [], 2, 2).nodes[1].mark.name == mark

    def test_a_mark_that_nobody_knows_has_a_look_and_its_own_words(self):
        tree = search_tree([Guessed(phase="search", path=(1,))], [], 2, 2)
        assert (tree.nodes[1].look.name, tree.nodes[1].mark.words) == ("other", "somebody guessed here")
        legend = [(mark.name, look.name, n) for mark, look, n in tree.legend]
        assert legend == [("guessed", "other", 1), ("passed", "passed", 1)]

    def test_looks_differ_by_more_than_colour(self):
        drawn = [(look.shape, look.hollow) for look in (*palette.LOOKS.values(), palette.OTHER)]
        assert len(set(drawn)) == len(drawn) == 9


class TestSeeds:
    def test_intervals_for_the_median(self):
        # 7 values: 1 - 2/2^7 for the range, 1 - 2 (1 + 7)/2^7 = 0.875 one step inside.
        assert median([7, 1, 6, 2, 5, 3, 4]) == (4, 1, 7, 1 - 2 / 128)
        # 9 values: one step inside still covers, with 1 - 2 (1 + 9)/2^9.
        assert median(range(1, 10)) == (5, 2, 8, 1 - 20 / 512)
        assert median([3.0, 1.0]) == (2.0, 1.0, 3.0, 0.5)
        assert median([8]) == (8, 8, 8, 0.0)

    def test_runs_that_differ_by_seed_stand_together(self, certified):
        def other(world=certified.world, **settings):
            changed = dataclasses.replace(certified.settings, **settings)
            return dataclasses.replace(certified, world=world, settings=changed)

        runs = [certified, other(seed=1), other(epsilon=0.2), other("lock/5,seed=3"), other("lock/6"), other(workers=2)]
        assert [g.runs for g in groups(runs)] == [(0, 1, 3), (2,), (4,)]  # the last is the first again
        assert groups(runs)[0].name == "lock/5; certified, epsilon 0.1, delta 0.05"
        tuned = other(tuning=("pilot=64",), max_episodes=9)
        assert groups([tuned])[0].name == "lock/5; certified, epsilon 0.1, delta 0.05; pilot=64; max_episodes 9"


class TestCharts:
    @pytest.mark.parametrize(
        ("low", "high", "expected"),
        [(0, 10, [0, 2.5, 5, 7.5, 10]), (0, 0.53, [0, 0.2, 0.4]), (0, 3149, [0, 1000, 2000, 3000]), (2, 2, [2])],
    )
    def test_ticks_are_round(self, low, high, expected):
        assert chart.ticks(low, high) == pytest.approx(expected)

    def test_a_step_curve_holds_its_value(self):
        drawn = chart.step_chart("t", "x", [("", "a", [(0, 4), (5, 2), (10, 1)])], "", show_x=str, top=4)
        expected = "M0.0 0.0L500.0 0.0L500.0 500.0L1000.0 500.0L1000.0 750.0L1000.0 750.0"
        assert drawn.lines[0].path == expected
        assert drawn.lines[0].start == 100

    def test_long_curves_are_thinned_and_keep_their_ends(self):
        points = [(float(i), float(10_000 - i)) for i in range(10_001)]
        thin = chart.thinned(points, 0, 10_000)
        assert len(thin) <= chart.MOST_POINTS + 2
        assert (thin[0], thin[-1]) == (points[0], points[-1])


class TestPage:
    def test_the_claim_and_the_numbers_behind_it(self, certified):
        html = page.page([certified])
        said = Page(html).said
        result = certified.certificate.content["result"]
        assert html == page.page([certified])  # the same bytes
        assert certified.certificate.claim in said
        assert f"U ≥ V* {words.value(result['upper'])}" in said
        assert f"W ≤ V(policy) {words.value(result['lower'])}" in said
        assert f"episodes {result['episodes']:,} in {result['tests']} tests" in said
        made = certified.verification.made
        assert f"The file verification.json, made {made}, says that everything agreed." in said
        assert "Verified" not in said
        assert all(f.detail in said for f in certified.verification.findings)

    @pytest.mark.parametrize(
        ("state", "message", "expected"),
        [
            ("running", "", "No claim yet: this run has not ended."),
            ("unfinished", "", "No claim: this run was interrupted before it ended."),
            ("stopped", "no function is consistent.", "No claim: an error ended this run. no function is consistent."),
            ("odd", "", "No claim: this run is odd."),
        ],
    )
    def test_runs_without_an_end_say_so(self, certified, state, message, expected):
        said = Page(page.page([cut_short(certified, 12, state, message)])).said
        assert expected in said
        assert "in 12 tests until then" in said
        assert "Nothing to verify." in said
        assert "With probability at least" not in said

    def test_a_failed_verification_names_what_differs(self, certified):
        findings = (Finding("ledger", True, "sums up"), Finding("run", False, "U is 0.5 <b> in the file"))
        found = Verification(findings, at="2026-01-31", version="0.2.0")
        html = page.page([dataclasses.replace(certified, verification=found)])
        assert "verification.json, made on 2026-01-31 by richobs 0.2.0, says that run did not agree." in Page(html).said
        assert "run differs: U is 0.5 <b> in the file" in Page(html).said
        assert "ledger agrees: sums up" in Page(html).said

    def test_odd_numbers_are_shown(self, certified):
        odd = ConsensusTested(path=(3, 3), agree=False, spread=math.nan, eps_test=math.inf, **sized(3.0, -math.inf))
        html = page.page([dataclasses.replace(certified, steps=(*certified.steps, Progress(odd, 10**30)))])
        row = data_of(html)["tests"][-1]
        assert row[1:9] == ["consensus", "search", "3 3", "disagree", None, 1e308, 100, 10**30]
        assert row[10:12] == [-1e308, "100"]
        said = ["do survivors agree on the value here?", "widest disagreement", "still counts as agreement"]
        assert data_of(html)["texts"][row[12]] == said

    def test_hostile_names_stay_text(self, certified):
        nasty = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{ 7*7 }}\u2028"
        shifty = Guessed(phase=nasty, result=nasty)
        content = {**certified.certificate.content, "claim": nasty, "claims": [[nasty, [0], 1, 0.01, 0.5]]}
        found = {"certificate": Certificate(content), "verification": Verification((Finding(nasty, False, nasty),))}
        steps = (Progress(shifty, 1, 0.5, 0.0), *certified.steps)
        run = dataclasses.replace(certified, world=nasty, folder=Path(nasty), steps=steps, **found)
        for runs in ([run], [run, run]):
            html = page.page(runs)
            taken = Page(html)
            assert len(taken.all("script")) == len(runs) + 1
            assert taken.all("img") == []
            assert not any(name.startswith("on") for _, attrs in taken.tags for name in attrs)
            assert "49" not in taken.all("title")
            assert data_of(html)["tests"][0][2] == nasty
            assert data_of(html)["tests"][0][4] == nasty
            assert nasty.replace("\u2028", " ") in taken.said

    @pytest.mark.parametrize("several", [False, True])
    def test_nothing_is_loaded_from_anywhere(self, certified, paper, several):
        html = page.page([certified, paper] if several else [certified], ["report-run-1.png"])
        assert re.findall(r"(?:https?:)?//[a-z0-9-]+\.[a-z]", html) == []
        taken = Page(html)
        targets = [a[k] for _, a in taken.tags for k in ("href", "src", "action", "srcset", "data", "poster") if k in a]
        assert {t for t in targets if not t.startswith("#")} == {"data:,", "report-run-1.png"}
        (policy,) = [a["content"] for a in taken.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
        assert policy.startswith("default-src 'none';")
        assert "http" not in policy
        assert "url(" not in html
        assert "@import" not in html
        assert "fetch(" not in html

    @pytest.mark.parametrize("several", [False, True])
    def test_structure_for_those_who_listen(self, certified, paper, several):
        taken = Page(page.page([certified, paper, cut_short(certified, 5)] if several else [certified]))
        ids = [a["id"] for _, a in taken.tags if "id" in a]
        assert len(ids) == len(set(ids))
        for attrs in (a for _, a in taken.tags):
            for key in ("aria-labelledby", "aria-controls", "for"):
                assert attrs.get(key, ids[0]) in ids
            if attrs.get("href", "").startswith("#"):
                assert attrs["href"][1:] in ids
        levels = [int(tag[1]) for tag, _ in taken.tags if re.fullmatch(r"h\d", tag)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
        assert {"header", "nav", "main", "footer"} <= {tag for tag, _ in taken.tags}
        assert all(a.get("scope") in ("col", "row") for a in taken.all("th"))
        assert taken.all("html")[0]["lang"] == "en"
        for _, attrs in taken.tags:  # what can be seen as an image has words
            if attrs.get("role") in ("img", "region", "tree", "treeitem", "group"):
                assert attrs["aria-label"].strip()
        for attrs in taken.all("svg"):
            assert attrs.get("aria-hidden") == "true" or attrs.get("aria-label")
        assert sum(a.get("role") == "treeitem" and a["tabindex"] == "0" for _, a in taken.tags) == (3 if several else 1)


def contrast(a, b):
    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_colours_can_be_told_from_their_ground():
    assert contrast("#ffffff", "#767676") == pytest.approx(4.54, abs=0.01)  # the textbook's example
    assert palette.LIGHT.keys() == palette.DARK.keys()
    for theme in (palette.LIGHT, palette.DARK):
        for ground in ("bg", "surface", "soft"):
            for text in ("ink", "muted", "accent", "good", "bad"):  # WCAG AA: 4.5 for text
                assert contrast(theme[text], theme[ground]) >= 4.5, (text, ground)
        for ground in ("bg", "surface"):
            for mark in ("focus", *(look.colour for look in (*palette.LOOKS.values(), palette.OTHER))):  # 3 for marks
                assert contrast(theme[mark], theme[ground]) >= 3, (mark, ground)


class TestFiles:
    def test_page_and_figures(self, certified, paper, tmp_path):
        files = write_report([certified, paper], tmp_path / "out" / "mine.html")
        names = ["mine.html"]
        for figure in ("run-1", "tree-1", "run-2", "tree-2", "comparison"):
            names += [f"mine-{figure}.png", f"mine-{figure}.svg"]
        assert [f.name for f in files] == names
        assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(names)
        for file in files[1:]:
            begin = file.read_bytes()[:200]
            assert begin.startswith(b"\x89PNG") if file.suffix == ".png" else b"<?xml" in begin
        linked = {a["href"] for a in Page(files[0].read_text()).all("a") if not a["href"].startswith("#")}
        assert linked == set(names[1:])

    def test_figures_of_runs_without_an_end_and_with_odd_names(self, certified, tmp_path):
        odd = dataclasses.replace(cut_short(certified, 0), world="$x_{$ </svg>", ledger=Ledger())
        files = write_report([odd, cut_short(certified, 7)], tmp_path / "r.html")
        assert all(f.stat().st_size > 500 for f in files)

    def test_no_runs_no_report(self, tmp_path):
        with pytest.raises(InvalidInput, match="at least one run"):
            write_report([], tmp_path / "r.html")


class TestLongPaths:
    """What repeats along a path is written once, so that pages grow with the number of nodes and not with its square."""

    def test_rows_name_the_node_of_a_long_path(self):
        path = (0, 1, 0, 1, 0, 1, 0, 1)
        run = large(tests=1)
        view = RunView(dataclasses.replace(run, steps=(Progress(elimination(path, 9.0), 100),), horizon=8), 1)
        data = view.data
        place = data["tests"][0][3]
        assert view.tree.nodes[place].path == path
        actions = []
        while data["nodes"][place][6] >= 0:  # as the page's script does it: the last action, then the parent
            actions.append(data["nodes"][place][0])
            place = data["nodes"][place][6]
        assert tuple(reversed(actions)) == path

    def test_labels_leave_the_middle_of_a_long_path_out(self):
        tree = search_tree([elimination((1,) * 500, 9.0)], [], 500, 2)
        assert tree.nodes[-1].label.startswith(f"path {'1 ' * 12}... (500 actions) ...")
        assert max(len(node.label) for node in tree.nodes) < 150

    def test_a_tree_that_is_too_large_is_cut(self, monkeypatch):
        monkeypatch.setattr("richobs.show.tree.MOST_ACTIONS", 1000)
        tree = search_tree([elimination((0,) * 90, 9.0), elimination((1,) * 60, 9.0)], [], 90, 2)
        assert (tree.depth, tree.is_cut) == (26, True)
        assert len(tree.nodes) == 1 + 26 + 26
        assert tree.nodes[26].tests == (0,)
        assert tree.nodes[-1].mark.name == "eliminated"
        assert not search_tree([elimination((0,) * 40, 9.0)], [], 90, 2).is_cut

"""Explanations: cells are Python, every figure has words and both themes, and the pump is what its pages say."""

import ast
import base64
import re
from importlib import util
from pathlib import Path

import numpy as np
import pytest

import richobs
import richobs_lab.assumptions

FOLDER = Path(__file__).parents[1] / "docs" / "explanations"


def module(name):
    """A module that stands beside the pages."""
    spec = util.spec_from_file_location(name, FOLDER / f"{name}.py")
    loaded = util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


drawing, pump = module("drawing"), module("pump")
PAGES = ("lsvee", "the-betting-search", "the-guarantee")


def cells_of(page):
    """The code of a page's cells, without their tags."""
    text = (FOLDER / f"{page}.md").read_text()
    return re.findall(r"^```\{code-cell\} python3\n(?::tags: [^\n]*\n\n)?(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_all_pages_are_there():
    assert sorted(file.stem for file in FOLDER.glob("*.md")) == sorted(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_every_panel_has_words(page):
    panels = [
        call
        for code in cells_of(page)
        for call in ast.walk(ast.parse(code))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Panel"
    ]
    assert panels
    for panel in panels:
        assert not isinstance(panel.args[1], ast.Constant) or len(panel.args[1].value) > 20


class TestDrawing:
    STRIP = drawing.Strip(drawing.Panel(lambda axes, colours: axes.plot([0, 1], color=colours["agreed"]), 'a "line"'))

    def test_a_panel_is_drawn_once_for_each_theme(self):
        images = re.findall(
            r'<img class="(\S+)" alt="(.*?)" src="data:image/svg\+xml;base64,(.*?)"', self.STRIP._repr_html_()
        )
        alt = "a &quot;line&quot;"
        assert [image[:2] for image in images] == [("only-light", alt), ("only-dark", alt)]
        light, dark = (base64.b64decode(data).decode() for _, _, data in images)
        assert "#0072b2" in light
        assert "#0072b2" not in dark
        assert "#56b4e9" in dark

    def test_a_table_has_its_cells_as_text(self):
        shown = drawing.Table(["a"], [["1 < 2"]])._repr_html_()
        assert "<td>1 &lt; 2</td>" in shown
        assert '<th class="head">a</th>' in shown


class TestPump:
    def test_there_are_243_candidates_and_one_is_the_truth(self):
        assert len(set(pump.grid())) == 243
        assert pump.TRUE in pump.grid()

    def test_its_optimum_by_hand(self):
        """In the last shift a clean pump is run at full speed; before it a fouled one is not worth a flush."""
        q = pump.pump().optimum.q
        np.testing.assert_allclose(q[5][0, 0], [0.95 / 6, 0.7 / 6, 0.0])
        np.testing.assert_allclose(q[5][1, 4], [0.6 / 6, 0.5 / 6, 0.0])
        np.testing.assert_allclose(q[4][1, 4, 2], 0.95 / 6)
        np.testing.assert_allclose(q[4][1, 4, 0], 0.6 / 6 + 0.4 * 0.6 / 6 + 0.6 * 0.1 / 6)

    def test_the_assumptions_are_as_its_page_says(self):
        few = pump.twins([pump.TRUE, pump.Physics(flushes=0.0)])
        report = richobs_lab.assumptions.check_assumptions(pump.pump(), few)
        assert [check.name for check in report.checks if not check.holds] == ["deterministic"]
        coarse = richobs_lab.assumptions.check_assumptions(pump.pump(pump.Physics(sees_wear=False)))
        assert coarse["reactive"].holds is False

    def test_a_class_that_does_not_believe_in_flushing_is_silently_wrong(self):
        real = pump.playable(pump.pump())
        outcome = richobs.learn(real, pump.twins(pump.grid(full=(0.5,), reading=(0,), flushes=0.0)), epsilon=0.05)
        best, worth = pump.pump().optimum.value, pump.pump().value(outcome.policy)
        assert outcome.upper < best  # false, and nothing says so
        assert outcome.lower <= worth < best - 0.05  # true all the same

"""Formulas that pages write as plain text: `x_{h+1}` and `10^-7` in running text become subscripts and superscripts.

The sources stay readable as they are. Code is left alone, and so are longer names with underscores.
"""

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

CODE = (
    nodes.literal,
    nodes.literal_block,
    nodes.doctest_block,
    nodes.raw,
    nodes.Invisible,
    nodes.math,
    nodes.math_block,
    addnodes.desc_signature,
)
WORDS = "max|min|sum|prod|eps|pi|xi|phi|tau|rho|sigma|theta|lambda|zeta|loss|slack|Delta|Gamma"
BRACES = r"\{(?:[^{}]|\{[^{}]*\})*\}"
POWER = rf"{BRACES}|\([^()]*\)|-?\d+(?:\.\d+)?|[A-Za-z](?:_\d+|\b\*?)"  # as in 10^-7, K^H, V^f, T^(2/3)
BASE = rf"(?:[A-Za-z]|{WORDS})[*']?"
INDEX = rf"{BRACES}|[A-Za-z0-9]{{1,5}}(?![A-Za-z0-9_]|\.[A-Za-z0-9_])"  # as in x_{h+1}, f*_h, n_test, max_a
RAISED = re.compile(rf"(?<=[\w)\]*}}~])\^({POWER})|(?<![\w/.`-])({BASE})_({INDEX})")


def pieces(text: str) -> list[nodes.Node]:
    """Returns a text with its subscripts and superscripts as nodes."""
    found: list[nodes.Node] = []
    done = 0
    for match in RAISED.finditer(text):
        power, base, index = match.groups()
        found.append(nodes.Text(text[done : match.start()] + (base or "")))
        inner = power or index
        inner = inner[1:-1] if inner[0] == "{" else inner
        kind = nodes.superscript if power else nodes.subscript
        found.append(kind("", "", *pieces(inner)))
        done = match.end()
    return [*found, nodes.Text(text[done:])]


class RaiseAndLower(SphinxPostTransform):
    """Replaces formulas in running text."""

    default_priority = 650

    def run(self, **options: Any) -> None:
        """Replaces texts by texts with subscripts and superscripts."""
        for text in list(self.document.findall(nodes.Text)):
            above = text.parent
            while above is not None and not isinstance(above, CODE):
                above = above.parent
            if above is None and RAISED.search(text.astext()):
                text.parent.replace(text, pieces(text.astext()))


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the transform."""
    app.add_post_transform(RaiseAndLower)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

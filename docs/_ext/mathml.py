"""Formulas as MathML, made when the site is built: pages need no script and no font from elsewhere."""

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError


def _mathml(node: nodes.Element, display: str) -> str:
    """Returns a formula as MathML, with its TeX as alternative text."""
    tex = node.astext()
    try:
        formula = convert(tex, display=display)
    except Exception as error:  # whatever the converter raises for a formula that it cannot read
        raise ExtensionError(f"the formula {tex!r} cannot be made into MathML: {error!r}") from error
    said = " ".join(tex.split()).replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return formula.replace("<math ", f'<math alttext="{said}" ', 1)


def visit_inline(translator: Any, node: nodes.math) -> None:
    """Writes a formula within a line."""
    translator.body.append(_mathml(node, "inline"))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> None:
    """Writes a formula of its own, in a box that scrolls where the page is narrow."""
    translator.body.append(translator.starttag(node, "div", CLASS="formula"))
    translator.body.append(_mathml(node, "block"))
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the renderer `mathml`."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

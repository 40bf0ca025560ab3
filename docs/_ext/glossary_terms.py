"""The words of the glossary: `- **word, other word**: meaning` gets an anchor, and each page links the first use of a word.

The glossary stays plain Markdown, and so do the pages that use its words. `{term}` works as well.
"""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

GLOSSARY = "glossary"
# Words that are also plain English, or that every page uses: they are linked by {term} only.
COMMON = frozenset(
    re.findall(
        r"\w+",
        "path class value world problem policy episodes observation environment process truth need promise plan batch look "
        "stage trial event mark learner answer query steps phase purpose record node member kind claim finding outcome "
        "reference statement progress account u w share visit agreement partner secret trace verification refute eliminate "
        "elimination",
    )
)
UNLINKED = (
    nodes.title,
    nodes.reference,
    nodes.literal,
    nodes.literal_block,
    nodes.doctest_block,
    nodes.Invisible,
    nodes.raw,
    nodes.math,
    nodes.strong,
    nodes.caption,
    nodes.thead,
    nodes.term,
)


def note_terms(app: Sphinx, doctree: nodes.document) -> None:
    """Registers every word of the glossary, with an anchor at its entry."""
    if app.env.docname != GLOSSARY:
        return
    standard = app.env.domains.standard_domain
    for item in doctree.findall(nodes.list_item):
        for word in item.findall(nodes.strong):
            for term in word.astext().split(", "):
                anchor = f"term-{re.sub(r'[^a-z0-9]+', '-', term.lower()).strip('-')}"
                item["ids"].append(anchor)
                standard._note_term(term, anchor, location=item)
        if item["ids"]:
            doctree.note_explicit_target(item)


class LinkTerms(SphinxPostTransform):
    """Links the first use of each word on a page to its entry."""

    default_priority = 700

    def run(self, **options: Any) -> None:
        """Replaces texts by texts with links."""
        docname = self.env.docname
        if docname == GLOSSARY:
            return
        objects = self.env.domains.standard_domain.objects
        entries = {name.lower(): (page, anchor) for (kind, name), (page, anchor) in objects.items() if kind == "term"}
        left = {name: place for name, place in entries.items() if name not in COMMON}
        for text in list(self.document.findall(nodes.Text)):
            if not left or self._within(text):
                continue
            self._link(text, left)

    @staticmethod
    def _within(text: nodes.Text) -> bool:
        """Whether a text stands where no link belongs."""
        above = text.parent
        paragraph = False
        while above is not None:
            if isinstance(above, UNLINKED):
                return True
            paragraph = paragraph or isinstance(above, nodes.paragraph)
            above = above.parent
        return not paragraph

    def _link(self, text: nodes.Text, left: dict[str, tuple[str, str]]) -> None:
        """Links words of one text, each once; removes them from those that are left."""
        words = "|".join(re.escape(name) for name in sorted(left, key=len, reverse=True))
        parts: list[nodes.Node] = []
        done, plain = 0, text.astext()
        for found in re.finditer(rf"(?<![\w`-])({words})(s?)(?![\w-])", plain, re.IGNORECASE):
            name = found[1].lower()
            if name not in left:
                continue
            page, anchor = left.pop(name)
            parts.append(nodes.Text(plain[done : found.start()]))
            address = self.app.builder.get_relative_uri(self.env.docname, page)
            parts.append(nodes.reference("", found[0], internal=True, refuri=f"{address}#{anchor}", classes=["term"]))
            done = found.end()
        if parts:
            text.parent.replace(text, [*parts, nodes.Text(plain[done:])])


def setup(app: Sphinx) -> dict[str, Any]:
    """Connects what is above."""
    app.connect("doctree-read", note_terms)
    app.add_post_transform(LinkTerms)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

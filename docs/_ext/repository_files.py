"""Links from pages to files of the repository: text becomes a page with the file's lines, pictures and data are copied.

`[the example](../examples/taxi.py)` then works on the site as it does in the repository.
"""

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.osutil import relative_uri

ROOT = Path(__file__).parents[2]
FOLDER = "files"  # of the pages with files
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".sh": "bash", ".cff": "yaml", ".md": "markdown"}
TEXTS = {*LANGUAGES, ".txt", ""}
PAGES = {  # files that have a page of their own, written for readers of the site
    "README.md": "index",
    "CHANGELOG.md": "project",
    "CONTRIBUTING.md": "project",
}


def _place(app: Sphinx, docname: str, target: str) -> str | None:
    """Returns the path of a file in the repository, as text with slashes; None where there is no such file."""
    here = Path(app.env.doc2path(docname)).parent if not target.startswith("/") else Path(app.srcdir)
    file = (here / target.lstrip("/")).resolve()
    if not file.is_relative_to(ROOT) or not file.exists():
        return None
    return file.relative_to(ROOT).as_posix()


def _linked(env: BuildEnvironment) -> dict[str, set[str]]:
    """Returns the files that each page links to; kept between builds."""
    kept: dict[str, set[str]] = vars(env).setdefault("repository_files", {})
    return kept


def note_links(app: Sphinx, doctree: nodes.document) -> None:
    """Replaces links to files whose text is shown, and notes which files these are."""
    docname = app.env.docname
    files: set[str] = set()
    for node in list(doctree.findall(addnodes.download_reference)):
        place = _place(app, docname, node["reftarget"])
        if place is None:
            continue
        link = nodes.reference("", "", *node.children, internal=True, classes=["file"])
        if place in PAGES and PAGES[place] in app.env.found_docs:
            link["page"] = PAGES[place]
        elif Path(place).suffix in TEXTS:
            link["page"] = f"{FOLDER}/{place}"
            files.add(place)
        else:
            continue
        node.replace_self(link)
    _linked(app.env)[docname] = files


def resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Gives links their addresses."""
    here = app.builder.get_target_uri(docname)
    for node in doctree.findall(nodes.reference):
        if "page" in node:
            node["refuri"] = relative_uri(here, app.builder.get_target_uri(node["page"]))


def forget(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    """Forgets the links of a page that is read again."""
    _linked(env).pop(docname, None)


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yields a page for each file that is linked."""
    highlighter = getattr(app.builder, "highlighter", None)
    if highlighter is None:
        return
    for place in sorted(set().union(*_linked(app.env).values())):
        language = LANGUAGES.get(Path(place).suffix, "text")
        text = highlighter.highlight_block((ROOT / place).read_text(), language, linenos=False)
        body = f"<h1>{escape(place)}</h1>\n<p>A file of the repository, as it is.</p>\n{text}"
        yield f"{FOLDER}/{place}", {"title": place, "body": body, "parents": []}, "page.html"


def setup(app: Sphinx) -> dict[str, Any]:
    """Connects what is above."""
    app.connect("env-purge-doc", forget)
    app.connect("doctree-read", note_links)
    app.connect("doctree-resolved", resolve)
    app.connect("html-collect-pages", pages)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True, "env_version": 1}

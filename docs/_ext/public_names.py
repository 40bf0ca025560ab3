"""The reference of the public names: docstrings as they are written here, fields with their comments, links between names.

- Docstrings are plain text with names between single backticks. A name that has an entry is linked.
- Fields of dataclasses, named tuples and enumerations are listed with their type and the comment behind them.
- A public name without an entry, or without words, is a warning, and warnings are errors.
"""

import ast
import dataclasses
import enum
import inspect
import re
import textwrap
import tokenize
from collections.abc import Iterator
from io import StringIO
from typing import Any, NamedTuple

from docutils import nodes
from docutils.parsers.rst.states import Inliner
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

import richobs

LOGGER = logging.getLogger(__name__)
SUBMODULES = {  # public names outside of the package itself, which guides name
    "richobs.ray": ("RayExecutor", "WorkerLost"),
    "richobs.sb3": ("CertifyCallback", "SelectCallback", "checkpoints"),
    "richobs.worlds": ("World",),
}
COMMANDS_PAGE = "reference/command-line"
COMMAND = re.compile(r"(?:\.venv/bin/)?richobs ([a-z]+)\b")
COMMON = {"plan", "codec", "compare", "select"}  # public names that docstrings also use for something else
HOMES = {  # where a public name is written -> what it is called
    f"{thing.__module__}.{thing.__qualname__}": f"richobs.{name}"
    for name in richobs.__all__
    if inspect.isclass(thing := getattr(richobs, name)) or inspect.isfunction(thing)
}


def expected() -> set[str]:
    """Returns every name that the reference must have."""
    names = {f"richobs.{name}" for name in richobs.__all__}
    return names | {f"{module}.{name}" for module, members in SUBMODULES.items() for name in members}


def name_role(
    name: str, rawtext: str, text: str, lineno: int, inliner: Inliner, options: Any = None, content: Any = None
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """Returns a name between single backticks: a link where it has an entry, and the name itself where it has none."""
    shown = nodes.literal(rawtext, text.replace("\x00", "\\"))
    target = shown.astext().removesuffix("()")
    if not re.fullmatch(r"[A-Za-z_][\w.]*", target) or target in COMMON:
        return [shown], []
    link = addnodes.pending_xref("", shown, refdomain="", reftype="name", reftarget=target, refexplicit=False)
    return [link], []


class Field(NamedTuple):
    """A field of a class, as its source shows it."""

    name: str
    type: str
    comment: str
    documented: bool  # whether a docstring follows it


def fields_of(kind: type[Any]) -> list[Field]:
    """Returns the annotated fields in the body of a class, each with the comment that stands behind or above it."""
    try:
        source = textwrap.dedent(inspect.getsource(kind))
    except (OSError, TypeError):
        return []
    body = ast.parse(source).body[0]
    if not isinstance(body, ast.ClassDef):
        return []
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    found = []
    for node, after in zip(body.body, [*body.body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        name, kind_words = node.target.id, ast.unparse(node.annotation)
        if name.startswith("_") or kind_words.startswith(("ClassVar", "InitVar")):
            continue
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        comment = " ".join(comments[line] for line in lines if line in comments)
        documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        found.append(Field(name, kind_words.strip("'\""), comment, documented))
    return found


def plain_to_rst(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Escapes in a docstring what reStructuredText would read as marks: stars and bars stand for themselves here."""
    for i, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "...")):
            continue
        parts = re.split(r"(`[^`]*`)", line)
        for k in range(0, len(parts), 2):
            parts[k] = re.sub(r"(?<!^)(?<![\\*])\*(?!\w+: )|\|", lambda found: f"\\{found[0]}", parts[k])
            parts[k] = re.sub(r"(\w)_(?=\W|$)", r"\1\\_", parts[k])
            parts[k] = _links(parts[k])
        lines[i] = "".join(parts)


def _links(text: str) -> str:
    """Returns a text in which pages of the documentation are linked."""
    return re.sub(r"docs/([\w-]+)\.md", r":doc:`docs/\1.md </\1>`", text)


def add_fields(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Lists the fields of a class below its docstring."""
    if what not in ("class", "exception") or not inspect.isclass(thing):
        return
    if lines and lines[0].startswith("Create new instance of"):  # of a named tuple, beside its own docstring
        lines.clear()
        return
    if issubclass(thing, enum.Enum):
        for member in thing:
            lines += [
                "",
                f".. py:attribute:: {member.name}",
                "   :no-contents-entry:",
                f"   :value: {member.value!r}",
                "",
            ]
        return
    listed = dataclasses.is_dataclass(thing) or hasattr(thing, "_fields") or getattr(thing, "_is_protocol", False)
    if not listed:
        return
    for field in fields_of(thing):
        if field.documented:
            continue  # autodoc lists it, with its docstring
        comment = [field.comment[:1].upper() + field.comment[1:]] if field.comment else [""]
        plain_to_rst(app, "attribute", field.name, None, options, comment)
        ending = "" if not comment[0] or comment[0].endswith((".", ":")) else "."
        lines += ["", f".. py:attribute:: {field.name}", "   :no-contents-entry:", f"   :type: {field.type}", ""]
        lines += [f"   {comment[0]}{ending}", ""]


def skip(app: Sphinx, what: str, name: str, thing: Any, skipped: bool, options: Any) -> bool | None:
    """Leaves out the fields of named tuples, which `add_fields` lists with their comments."""
    return True if type(thing).__name__ == "_tuplegetter" else None


def signature(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, arguments: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Returns a signature as the source writes it; protocols and enumerations have none, and fields are typed below."""
    if inspect.isclass(thing):
        if arguments is None or issubclass(thing, BaseException):
            return arguments, None
        if getattr(thing, "_is_protocol", False) or issubclass(thing, enum.Enum):
            return "", None
        if dataclasses.is_dataclass(thing) or hasattr(thing, "_fields"):
            return _names_only(thing), None
        thing = thing.__init__
        written = _as_written(thing)
        return (written[0], None) if written else (arguments, None)
    return _as_written(thing) or (arguments, returned)


def _names_only(kind: type[Any]) -> str:
    """Returns the arguments of a class that has fields, with defaults that can be written."""
    said = []
    keyword = False
    for parameter in inspect.signature(kind).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword:
            said.append("*")
            keyword = True
        plain = isinstance(parameter.default, bool | int | float | str | tuple | None)
        default = repr(parameter.default) if plain else "..."
        said.append(parameter.name if parameter.default is parameter.empty else f"{parameter.name}={default}")
    return f"({', '.join(said)})"


def _as_written(function: Any) -> tuple[str, str | None] | None:
    """Returns arguments and result of a function as its source writes them; None where there is no source."""
    try:
        node = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body[0]
    except (OSError, TypeError, SyntaxError, IndentationError):
        return None
    if not isinstance(node, ast.FunctionDef):
        return None
    for listed in (node.args.posonlyargs, node.args.args):
        if listed and listed[0].arg in ("self", "cls"):
            del listed[0]
    return f"({ast.unparse(node.args)})", ast.unparse(node.returns).strip("'\"") if node.returns else None


def find_name(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, contnode: nodes.TextElement
) -> nodes.Node | None:
    """Links what is called by another of its names; names of other packages, and of rooms of ours, stay unlinked."""
    domain, target = node.get("refdomain"), str(node["reftarget"])
    if domain != "py" and node["reftype"] != "name":
        return None
    known = env.domains.python_domain.objects
    for candidate in (target, HOMES.get(target), f"richobs.{target}"):
        if candidate in known:
            entry = known[candidate]
            address = app.builder.get_relative_uri(node.get("refdoc", env.docname), entry.docname)
            link = nodes.reference("", "", contnode, internal=True, refuri=f"{address}#{entry.node_id}")
            link["reftitle"] = candidate
            return link
    if node["reftype"] == "name" or not target.startswith("richobs.") or _exists(target):
        return contnode
    return None


def _exists(target: str) -> bool:
    """Whether a dotted name is something in the package."""
    from importlib import import_module

    parts = target.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing: Any = import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            if not hasattr(thing, part):
                return False
            thing = getattr(thing, part)
        return True
    return False


class LinkNames(SphinxPostTransform):
    """Links the first use of a public name, or of a command, in the code of a page's running text."""

    default_priority = 690

    def run(self, **options: Any) -> None:
        """Puts links around names such as `richobs.learn` and `Outcome`, and commands such as `richobs learn`."""
        known = self.env.domains.python_domain.objects
        here, seen, commands = self.env.docname, set(), self._commands()
        for literal in list(self.document.findall(nodes.literal)):
            text = literal.astext()
            command = COMMAND.match(text)
            name = text if text.startswith("richobs.") else f"richobs.{text}" if text[:1].isupper() else ""
            if command and f"richobs-{command[1]}" in commands:
                page, anchor = COMMANDS_PAGE, f"richobs-{command[1]}"
            elif name in known:
                page, anchor = known[name].docname, known[name].node_id
            else:
                continue
            if page == here or anchor in seen or _is_within(literal, nodes.reference, nodes.title):
                continue
            seen.add(anchor)
            address = f"{self.app.builder.get_relative_uri(here, page)}#{anchor}"
            link = nodes.reference("", "", internal=True, refuri=address, classes=["name"])
            literal.replace_self(link)
            link += literal

    def _commands(self) -> set[str]:
        """Returns the anchors of the page with the commands."""
        contents = self.env.tocs.get(COMMANDS_PAGE)
        links = [] if contents is None else contents.findall(nodes.reference)
        return {str(link["anchorname"]).removeprefix("#") for link in links}


def _is_within(node: nodes.Node, *kinds: type[nodes.Element]) -> bool:
    """Whether a node stands in another of some kind."""
    above = node.parent
    while above is not None and not isinstance(above, kinds):
        above = above.parent
    return above is not None


def undocumented(entries: set[str]) -> Iterator[str]:
    """Yields a sentence for each public name that has no entry, or no words."""
    for name in sorted(expected()):
        if name not in entries:
            yield f"{name} is public and has no entry in docs/reference."
        module, _, last = name.rpartition(".")
        home = richobs if module == "richobs" else __import__(module, fromlist=[last])
        thing = getattr(home, last)
        if (inspect.isclass(thing) or inspect.isroutine(thing)) and not (inspect.getdoc(thing) or "").strip():
            yield f"{name} is public and has no docstring."


def check(app: Sphinx, env: BuildEnvironment) -> None:
    """Warns of public names that the reference lacks."""
    for sentence in undocumented(set(env.domains.python_domain.objects)):
        LOGGER.warning(sentence)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connects what is above; napoleon reads docstrings at priority 500, between escaping and fields."""
    app.add_role("name", name_role)
    app.add_post_transform(LinkNames)
    app.connect("autodoc-process-docstring", plain_to_rst, priority=400)
    app.connect("autodoc-process-docstring", add_fields, priority=600)
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-skip-member", skip)
    app.connect("missing-reference", find_name)
    app.connect("env-check-consistency", check)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

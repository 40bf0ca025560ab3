"""The reference of the command line, made from what the parser itself prints for `--help`.

The page holds the line `<!-- commands of the parser -->`, which is replaced before the page is read: by a section for each
command and each world.
"""

import contextlib
import io
import os
import re
from typing import Any, NamedTuple

from sphinx.application import Sphinx

PAGE = "reference/command-line"
MARK = "<!-- commands of the parser -->"
WIDTH = "3000"  # columns: no sentence is broken
WIDEST = ("plan",)  # a command that takes a world; its help shows a world's own options


class Option(NamedTuple):
    """One option, or one argument without a name."""

    name: str  # such as "--seed INT" or "PATH"
    words: str
    default: str  # "" where it has none


class Box(NamedTuple):
    """Options that belong together."""

    title: str
    about: str
    options: list[Option]


class Help(NamedTuple):
    """What the parser says of one command."""

    usage: str
    about: str  # a paragraph or several
    boxes: list[Box]
    choices: list[str]  # worlds, or commands


def printed(*arguments: str) -> str:
    """Returns what `richobs ... --help` prints on a wide terminal."""
    from richobs.cli import main

    text = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # boxes are drawn where they can be written
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            main([*arguments, "--help"])
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    text.seek(0)
    return text.read()


def _one_below_the_other(boxes: str) -> str:
    """Returns boxes in one column: the parser draws several columns of equal width where there are many lines."""
    lines = boxes.splitlines()
    columns = max(1, lines[0].count("╭"))
    width = max(map(len, lines)) // columns
    return "\n".join(line[i * width : (i + 1) * width].rstrip() for i in range(columns) for line in lines)


def read(text: str) -> Help:
    """Returns the parts of a help text: boxes with titles, in which a line that begins at the margin begins an option."""
    head, _, rest = text.partition("╭")
    usage, _, about = head.removeprefix("usage: ").partition("\n\n")
    boxes, choices = [], []
    for box in _one_below_the_other(f"╭{rest}").split("╭")[1:]:
        title = re.sub(r"[─╮]", "", box.partition("\n")[0]).strip()
        lines = [line[2:].rstrip("│ ") for line in box.splitlines() if line.startswith("│")]
        if title == "subcommands":
            choices = [found[1] for line in lines if (found := re.match(r"\s+• (\S+)", line))]
            continue
        rule = next((i for i, line in enumerate(lines) if set(line) == {"─"}), -1)
        boxes.append(Box(title, " ".join(lines[: max(rule, 0)]), _options(lines[rule + 1 :])))
    return Help(" ".join(usage.split()), about.strip(), boxes, choices)


def _options(lines: list[str]) -> list[Option]:
    """Returns the options of a box but for `--help`."""
    found: list[list[str]] = []
    for line in lines:
        if line and not line.startswith(" "):
            name, _, words = line.partition("  ")
            found.append([name.strip(), words.strip()])
        elif found:
            found[-1][1] = f"{found[-1][1]} {line.strip()}".strip()
    options = []
    for name, words in found:
        ending = re.search(r"\s*\((?:default: (.*)|required|repeatable)\)$", words)
        default = (ending[1] or "").strip() if ending else ""
        options.append(Option(name, words[: ending.start()] if ending else words, default))
    return [option for option in options if not option.name.startswith("-h,")]


def escaped(words: str) -> str:
    """Returns a sentence as Markdown, with links to the pages that it names."""
    parts = re.split(r"(`[^`]*`)", words)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"([*_<\[\]])", r"\\\1", parts[i])
        parts[i] = re.sub(r"docs/([\w-]+)\.md", r"[docs/\1.md](../\1.md)", parts[i])
    return "".join(parts)


def _listed(program: str, boxes: list[Box]) -> list[str]:
    """Returns boxes as Markdown: one `{option}` for each option."""
    lines = [f"```{{program}} richobs {program}", "```", ""]
    for box in boxes:
        if box.about:
            lines += [f"*{box.title.removesuffix(' options').capitalize()}*: {escaped(box.about)}", ""]
        for option in box.options:
            shown = "" if option.default in ("", "None", "False") else f" By default `{option.default}`."
            name = re.sub(r"\[+(\w+) \[\1 \.\.\.\]+", r"\1 ...", option.name.replace("{None}|", ""))
            name = re.sub(r"\{(\w+ \w+)\}", r"\1", name)
            lines += [f"`````{{option}} {name}", "", f"{escaped(option.words)}{shown}", "`````", ""]
    return lines


def _paragraphs(about: str) -> list[str]:
    """Returns a description as Markdown; lines that are set in columns stay as they are."""
    lines = []
    for paragraph in about.split("\n\n"):
        if re.search(r"\n  ", paragraph):
            title, _, rows = paragraph.partition("\n")
            lines += [escaped(title), "", "```text", *(row.strip() for row in rows.splitlines()), "```", ""]
        else:
            lines += [escaped(" ".join(paragraph.split())), ""]
    return lines


def made() -> str:
    """Returns the part of the page that the parser writes."""
    top = read(printed())
    lines: list[str] = []
    for command in top.choices:
        said = read(printed(command))
        usage = said.usage
        if said.choices:
            usage = re.sub(r"\{[\w,-]+\}$", "WORLD", usage)
        lines += [f"## richobs {command}", "", "```text", usage, "```", "", *_paragraphs(said.about)]
        if said.choices:
            lines += ["WORLD is one of the [worlds](#worlds) below, and takes the world's options too.", ""]
        lines += _listed(command, said.boxes)
    lines += ["## Worlds", "", f"{escaped(_hint())}", ""]
    (command,) = WIDEST
    own = {option.name for box in read(printed(command)).boxes for option in box.options}
    for world in read(printed(command)).choices:
        said = read(printed(command, world))
        boxes = [Box("", "", [option for box in said.boxes for option in box.options if option.name not in own])]
        lines += [f"### {world}", "", *_paragraphs(said.about), *_listed(world, boxes)]
    return "\n".join(lines)


def _hint() -> str:
    """Returns the sentence that says how a world is given."""
    from richobs.cli.main import HINT

    return HINT


def write_in(app: Sphinx, docname: str, source: list[str]) -> None:
    """Puts the commands where the page has its mark."""
    if docname == PAGE:
        before, mark, after = source[0].partition(MARK)
        assert mark, f"{PAGE}.md has lost the line {MARK}"
        source[0] = f"{before}{made()}{after}"


def read_again(app: Sphinx, env: Any, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Has the page read again in every build: the parser may have changed."""
    return [PAGE] if PAGE in env.found_docs else []


def setup(app: Sphinx) -> dict[str, Any]:
    """Connects what is above."""
    app.connect("source-read", write_in)
    app.connect("env-get-outdated", read_again)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

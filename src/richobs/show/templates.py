"""What pages are made with: one way to load a template, in which everything is escaped and nothing may be missing."""

import functools
import pathlib
import re
from typing import TYPE_CHECKING

from richobs.show import words

if TYPE_CHECKING:
    import jinja2
    import markupsafe


@functools.cache  # compiling a template takes longer than filling it in
def environment(folder: pathlib.Path) -> "jinja2.Environment":
    """Returns what loads the templates of a folder, and those beside this file, with filters for numbers and bounds."""
    import jinja2  # slow to load, and needed only where a page is written

    loaded = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, pathlib.Path(__file__).parent]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    loaded.filters.update(
        raised=raised, count=words.count, value=words.value, at_least=words.at_least, at_most=words.at_most
    )
    loaded.policies["json.dumps_kwargs"] = {"sort_keys": True, "separators": (",", ":")}
    return loaded


def raised(text: str) -> "markupsafe.Markup":
    """Returns a text as HTML, with what stands behind `10^` raised."""
    import markupsafe

    return markupsafe.Markup(re.sub(r"10\^(-?[\d.]*\d)", r"10<sup>\1</sup>", str(markupsafe.escape(text))))

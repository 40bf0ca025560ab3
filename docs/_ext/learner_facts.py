"""What each learner says of itself, under Learners: made from the registry when the site is built.

The page holds the line `<!-- facts of the learners -->`, which is replaced before the page is read.
"""

from typing import Any

from command_line import escaped
from sphinx.application import Sphinx

from richobs.learners import LEARNERS, learner, tuning_fields

PAGE = "reference/learning"
MARK = "<!-- facts of the learners -->"


def made() -> str:
    """Returns a section for each learner."""
    lines: list[str] = []
    for name in LEARNERS:
        each = learner(name)
        lines += [f"### {name}", "", escaped(each.about), ""]
        facts = [
            ("Follows", [each.cites] if each.cites else []),
            ("Is given", [", ".join(each.given)] if each.given else []),
            ("Needs", [need.words for need in each.needs]),
            ("Promises", [each.promises.words]),
            ("Assumes", list(each.promises.assumptions)),
            ("Costs", [each.costs]),
        ]
        for title, words in facts:
            if words:
                lines += [title, f": {'; '.join(map(escaped, words))}", ""]
        tuned = [
            f"`{tuned_name}={default}`: {escaped(meaning)}" for tuned_name, default, meaning in tuning_fields(each)
        ]
        if tuned:
            lines += ["Tuning (`--tuning name=value`)", f": - {tuned[0]}", *(f"  - {words}" for words in tuned[1:]), ""]
    return "\n".join(lines)


def write_in(app: Sphinx, docname: str, source: list[str]) -> None:
    """Puts the facts where the page has its mark."""
    if docname == PAGE:
        before, mark, after = source[0].partition(MARK)
        assert mark, f"{PAGE}.md has lost the line {MARK}"
        source[0] = f"{before}{made()}{after}"


def setup(app: Sphinx) -> dict[str, Any]:
    """Connects what is above."""
    app.connect("source-read", write_in)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

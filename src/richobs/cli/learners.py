"""`richobs learners`: which learners there are."""

import dataclasses
import json
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from richobs.cli.printing import Trimmed, widened
from richobs.learners import LEARNERS, Learner, learner, tuning_fields


@dataclasses.dataclass(frozen=True)
class LearnersCommand:
    """List the learners: what each is, is given, needs, promises and costs, and what can be tuned."""

    json: bool = False
    """Print JSON instead of tables."""

    def run(self, console: Console) -> int:
        """Prints every learner."""
        all_learners = [learner(name) for name in LEARNERS]
        if self.json:
            console.print_json(json.dumps({each.name: _as_plain(each) for each in all_learners}))
            return 0
        for each in all_learners:
            console.print(Text.assemble((each.name, "bold"), f": {each.about}"))
            table = Table(box=None, pad_edge=False, show_header=False)
            for title, lines in _facts(each):
                for i, line in enumerate(lines):
                    table.add_row(Text(f"  {title}" if i == 0 else "", style="dim"), Text(line))
            widened(console).print(Trimmed(table))
            console.print()
        return 0


def _facts(each: Learner) -> list[tuple[str, list[str]]]:
    """Returns what is printed of a learner: titles, and lines under each."""
    tuned = [f"--tuning {name}={default}  {meaning}" for name, default, meaning in tuning_fields(each)]
    return [
        ("follows", [each.cites] if each.cites else []),
        ("given", [", ".join(each.given)] if each.given else []),
        ("needs", [need.words for need in each.needs]),
        ("promises", [each.promises.words]),
        ("assumes", list(each.promises.assumptions)),
        ("costs", [each.costs]),
        ("tuning", tuned),
    ]


def _as_plain(each: Learner) -> dict[str, Any]:
    """Returns a learner's facts in plain values."""
    return {
        "about": each.about,
        "cites": each.cites,
        "given": list(each.given),
        "needs": [need.words for need in each.needs],
        "promises": each.promises.words,
        "assumptions": list(each.promises.assumptions),
        "costs": each.costs,
        "tuning": {name: {"default": default, "meaning": meaning} for name, default, meaning in tuning_fields(each)},
    }

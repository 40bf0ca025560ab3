"""`richobs learners`: which learners there are, and what one of them needs, promises and costs."""

import dataclasses
import json
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from richobs.cli.printing import Trimmed, widened
from richobs.learners import LEARNERS, Learner, learner, tuning_fields


@dataclasses.dataclass(frozen=True)
class LearnersCommand:
    """List the learners, or print what some are given, need, promise and cost, and what of them can be tuned."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME ...]")] = ()
    """Learners to print everything of; without any, all are listed with a line each."""
    json: bool = False
    """Print JSON instead of tables, with everything also where all are listed."""

    def run(self, console: Console) -> int:
        """Prints a line for every learner, or all facts about those that were named."""
        chosen = [learner(name) for name in self.names or (name for name, _ in LEARNERS.loadable())]
        if self.json:
            console.print_json(json.dumps({each.name: _as_plain(each) for each in chosen}))
        elif self.names:
            for each in chosen:
                _print_facts(console, each)
        else:
            _print_list(console, chosen)
        return 0


def _print_list(console: Console, chosen: list[Learner]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for each in chosen:
        table.add_row(Text(each.name, style="bold"), Text(each.about))
    widened(console).print(Trimmed(table))
    console.print(
        "\n`richobs learners NAME` prints what one is given, needs, promises and costs, and what can be tuned."
    )


def _print_facts(console: Console, each: Learner) -> None:
    console.print(Text.assemble((each.name, "bold"), f": {each.about}"))
    table = Table(box=None, pad_edge=False, show_header=False)
    for title, lines in _facts(each):
        for i, line in enumerate(lines):
            table.add_row(Text(f"  {title}" if i == 0 else "", style="dim"), Text(line))
    widened(console).print(Trimmed(table))
    console.print()


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

"""`richobs worlds`, `richobs learners` and `richobs plan`: what there is to choose from, and what a run would ask for."""

import dataclasses
import inspect
import json
from collections.abc import Sequence
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from richobs.cli.options import GymnasiumOptions, Trimmed, World, about, build, headline, option, widened
from richobs.core import words
from richobs.core.settings import Settings, field_docs
from richobs.learners import LEARNERS, Learner, Plan, learner, tuning_fields
from richobs.learning import plan
from richobs.worlds.gymnasium_in.spec import PREFIX
from richobs.worlds.registry import WORLDS, config_class


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
    plain = _as_plain(each)
    named = {"follows": "cites", "needs": "needs", "promises": "promises", "assumes": "assumptions", "costs": "costs"}
    facts = [(title, plain[name] if isinstance(plain[name], list) else [plain[name]]) for title, name in named.items()]
    facts.insert(1, ("given", [", ".join(each.given)]))
    facts.append(("tuning", [f"--tuning {n}={default}  {meaning}" for n, default, meaning in tuning_fields(each)]))
    return [(title, [line for line in lines if line]) for title, lines in facts]


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


@dataclasses.dataclass(frozen=True)
class WorldsCommand:
    """List the worlds and their parameters."""

    json: bool = False
    """Print JSON instead of tables."""

    def run(self, console: Console) -> int:
        """Prints every world with its parameters, their defaults and what they mean."""
        if self.json:
            content = {
                w: {"about": about(w), "parameters": {f.name: f.default for f in dataclasses.fields(config_class(w))}}
                for w, _ in WORLDS.loadable()
            }
            console.print_json(json.dumps(content))
            return 0
        for world, _ in WORLDS.loadable():
            console.print(Text.assemble((world, "bold"), f": {about(world)}"))
            table = Table(box=None, pad_edge=False)
            for heading in ("  parameter", "default", "meaning"):
                table.add_column(heading, style="dim" if heading == "default" else "")
            meanings = field_docs(config_class(world))
            for f in dataclasses.fields(config_class(world)):
                table.add_row(f"  {option(f.name)}", Text(str(f.default)), Text(meanings.get(f.name, "")))
            widened(console).print(Trimmed(table))
            console.print()
        console.print(Text.assemble((f"{PREFIX}ID", "bold"), f": {inspect.getdoc(GymnasiumOptions)}"))
        return 0


@dataclasses.dataclass(frozen=True)
class PlanCommand:
    """Print what a run will ask for, and the worst case, before anything is played."""

    world: World
    """Which world."""
    epsilon: float = Settings.epsilon
    """Largest allowed gap between the policy's value and the optimal value V*."""
    delta: float = Settings.delta
    """Probability that the claim is false."""
    learner: str = Settings.learner
    """Whose plan to print. `richobs learners` lists all."""
    n_states: int | None = None
    """Bound M on the latent states per level; by default what the world says."""
    max_episodes: int | None = None
    """Episodes that the run may play."""
    tolerance: tuple[float, ...] = ()
    """How far the truth may be from the class, as for `richobs learn`."""
    tuning: tuple[str, ...] = ()
    """Numbers of the learner's own, as name=value."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self, console: Console) -> int:
        """Prints the plan."""
        problem = build(self.world)
        names = ("epsilon", "delta", "learner", "n_states", "max_episodes", "tolerance", "tuning")
        asked = {name: getattr(self, name) for name in names}
        found = plan(problem, **asked)
        if self.json:
            console.print_json(json.dumps({"id": problem.id, self.learner: found.as_json()}))
            return 0
        console.print(headline(problem))
        console.print(f"\n[bold]{escape(found.title)}[/]")
        widened(console).print(Trimmed(_table(found)))
        return 0


def _table(plan: Plan) -> Table:
    """Returns a plan line by line, under the titles of its sections."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for style in ("", "", "", "dim"):
        table.add_column(style=style)
    rows: Sequence[tuple[str, str, float, str, str]] = list(plan.rows())
    if plan.max_episodes is not None and all(row[2] != plan.max_episodes for row in rows):
        rows = [*rows, ("worst case", "in all", plan.max_episodes, "episodes", "")]
    last = ""
    for section, name, value, unit, where in rows:
        if section != last:
            last = section
            table.add_row(Text(section, style="bold"))
        table.add_row(Text(f"  {name}"), Text(words.number(value)), Text(unit), Text(where))
    return table

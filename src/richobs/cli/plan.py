"""`richobs plan`: what runs would ask for."""

import dataclasses
import json
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from richobs.cli.options import World, build
from richobs.cli.printing import Trimmed, headline, widened
from richobs.core.errors import InvalidInput
from richobs.core.settings import Settings
from richobs.learners import Plan, learner
from richobs.runs.prepare import in_units_of
from richobs.show import words

USUAL = (Settings.learner, "lsvee")  # the learners whose plans are printed unless one is named


@dataclasses.dataclass(frozen=True)
class PlanCommand:
    """Print what a run will ask for, and the worst case, before anything is played."""

    world: World
    """Which world."""
    epsilon: float = Settings.epsilon
    """Largest allowed gap between the policy's value and the optimal value V*."""
    delta: float = Settings.delta
    """Probability that the claim is false."""
    learner: str | None = None
    """Whose plan to print; by default those of `betting` and `lsvee`. `richobs learners` lists all."""
    n_states: int | None = None
    """Bound M on the latent states per level; by default what the world says."""
    max_episodes: int | None = None
    """Episodes that the run may play."""
    tuning: tuple[str, ...] = ()
    """Numbers of the learner's own, as name=value (only with --learner)."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self, console: Console) -> int:
        """Prints one plan after the other."""
        problem = build(self.world)
        if self.tuning and self.learner is None:
            raise InvalidInput("--tuning belongs to one learner; say which with --learner.")
        plans: dict[str, Plan] = {}
        left_out: list[InvalidInput] = []  # why learners that nobody named cannot serve here
        for name in USUAL if self.learner is None else (self.learner,):
            chosen = learner(name)
            settings = Settings(
                epsilon=self.epsilon,
                delta=self.delta,
                learner=chosen.name,
                n_states=self.n_states,
                max_episodes=self.max_episodes,
                tuning=self.tuning,
            )
            settings.check()
            try:
                chosen.check_needs(problem, settings)
                served = in_units_of(chosen, problem, settings)
                plans[chosen.name] = chosen.plan(served.problem, served.settings)
            except InvalidInput as error:
                left_out.append(error)
        if not plans:
            raise left_out[0]
        if self.json:
            content = {"id": problem.id, **{name: plan.as_json() for name, plan in plans.items()}}
            console.print_json(json.dumps(content))
            return 0
        console.print(headline(problem))
        for plan in plans.values():
            console.print(f"\n[bold]{escape(plan.title)}[/]")
            widened(console).print(Trimmed(_table(plan)))
        for why in left_out:
            console.print(Text(f"\nleft out: {why}"), style="dim")
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

"""`richobs plan`: what a run would ask for."""

import dataclasses
import json
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from richobs.cli.options import World, build
from richobs.cli.printing import Trimmed, headline, widened
from richobs.core import words
from richobs.core.settings import Settings
from richobs.learners import Plan
from richobs.learning import plan


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
    """Whose plan to print. `richobs learners` lists all; `lsvee` has the paper's own sample sizes."""
    n_states: int | None = None
    """Bound M on the latent states per level; by default what the world says."""
    max_episodes: int | None = None
    """Episodes that the run may play."""
    tuning: tuple[str, ...] = ()
    """Numbers of the learner's own, as name=value."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self, console: Console) -> int:
        """Prints the plan."""
        problem = build(self.world)
        asked = {
            name: getattr(self, name) for name in ("epsilon", "delta", "learner", "n_states", "max_episodes", "tuning")
        }
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

"""`richobs check`: the paper's assumptions, judged exactly."""

import dataclasses

from rich.console import Console

from richobs.cli.gymnasium_options import GymnasiumOptions
from richobs.cli.printing import print_assumptions
from richobs.cli.world_options import World, build
from richobs.core.errors import InvalidInput
from richobs.worlds.assumptions import check_assumptions


@dataclasses.dataclass(frozen=True)
class CheckCommand:
    """Judge the paper's assumptions exactly, with a counterexample for each that fails."""

    world: World
    """Which world."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self, console: Console) -> int:
        """Prints what was found; the exit status is 1 if anything fails."""
        if isinstance(self.world, GymnasiumOptions):
            raise InvalidInput(
                f"gym:{self.world.environment} is not written down, so its assumptions cannot be checked exactly. `richobs "
                "audit` tests what can be tested from outside."
            )
        problem = build(self.world)
        if problem.process is None:
            raise InvalidInput(
                f"{problem.name} has too many observations to list, so its assumptions cannot be checked exactly. "
                "`richobs audit` tests what can be tested from outside."
            )
        report = check_assumptions(problem.process, problem.functions)
        return print_assumptions(console, problem, report, self.json)

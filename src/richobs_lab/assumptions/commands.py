"""`richobs check` and `richobs audit`: the paper's assumptions, judged exactly or tested from outside."""

import dataclasses
import json

from rich.console import Console
from rich.text import Text

from richobs.cli.options import GymnasiumOptions, World, build, build_playable, headline, print_findings
from richobs.core.environment import Environment, environment_identity
from richobs.core.errors import InvalidInput
from richobs.core.problem import Problem
from richobs.show.summary import plain_console
from richobs_lab.assumptions.exact import AssumptionReport, check_assumptions
from richobs_lab.assumptions.statistical import audit


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
        return _print_report(console, problem, report, self.json)


@dataclasses.dataclass(frozen=True)
class AuditCommand:
    """Test from outside whether a world is consistent with deterministic transitions and fresh noise."""

    world: World
    """Which world."""
    sequences: int = 32
    """How many random action sequences to replay."""
    episodes: int = 256
    """How often to replay each."""
    error_rate: float = 0.01
    """Probability of reporting a failure where there is none, over the whole report."""
    audit_seed: int = 0
    """Seed of the plays (a world's own seed chooses its secret)."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self, console: Console) -> int:
        """Prints what was found; the exit status is 1 if anything fails."""
        given = build_playable(self.world)
        with plain_console(stderr=True).status(f"playing {self.sequences * self.episodes:,} episodes and testing them"):
            report = audit(
                given,
                sequences=self.sequences,
                episodes=self.episodes,
                error_rate=self.error_rate,
                seed=self.audit_seed,
            )
        return _print_report(console, given, report, self.json)


def _print_report(console: Console, given: Problem | Environment, report: AssumptionReport, as_json: bool) -> int:
    """Prints what was found for each assumption; returns the exit status, 1 if anything fails."""
    name = given.id if isinstance(given, Problem) else environment_identity(given)
    if as_json:
        checks = {c.name: {"holds": c.holds, "finding": c.finding} for c in report.checks}
        console.print_json(json.dumps({"id": name, "holds": report.holds, "checks": checks}))
    else:
        console.print(
            headline(given) if isinstance(given, Problem) else Text(environment_identity(given), style="bold")
        )
        marks = {True: "[green]holds[/]", False: "[bold red]fails[/]", None: "[yellow]not judged[/]"}
        print_findings(console, [(c.name, marks[c.holds], c.finding) for c in report.checks])
    return 0 if report.holds else 1

"""`richobs audit`: the paper's assumptions, tested from outside."""

import dataclasses

from rich.console import Console

from richobs.cli.printing import print_assumptions
from richobs.cli.world_options import World, build_playable
from richobs.show.summary import plain_console
from richobs.worlds.audit import audit


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
        return print_assumptions(console, given, report, self.json)

"""`richobs value`: what a policy earns in a world, with an interval that holds whenever one stops."""

import dataclasses
import json
import pathlib

from rich.console import Console
from rich.text import Text

from richobs.certifying import PolicyReport, Verdict, certify_policy
from richobs.classes.learned_policy import LearnedPolicy
from richobs.cli.world_options import World, build_playable
from richobs.show import words
from richobs.show.summary import named_rows, plain_console


@dataclasses.dataclass(frozen=True)
class ValueCommand:
    """Play a saved policy until it is certain what it is worth."""

    world: World
    """Which world."""
    policy: pathlib.Path
    """The policy, a file `policy.npz` that a run or `save` wrote."""
    threshold: float | None = None
    """Stop as soon as it is certain that the value is at least this, or that it is less."""
    epsilon: float | None = None
    """Stop as soon as the interval for the value is at most this wide."""
    delta: float = 0.05
    """Probability that the claim is false."""
    max_episodes: int | None = None
    """Play at most this many episodes; by default as many as epsilon surely needs, or 100,000."""
    seed: int = 0
    """Seed of every draw."""
    out: pathlib.Path | None = None
    """Also write the report to this JSON file."""
    json: bool = False
    """Print JSON instead of a summary."""
    quiet: bool = False
    """Print nothing while it plays, and only the claim at the end."""

    def run(self, console: Console) -> int:
        """Prints what is certain; the exit status is 1 where there is a threshold and it is not certainly reached."""
        given = build_playable(self.world)
        policy = LearnedPolicy.load(self.policy)
        looks: list[PolicyReport] = []
        try:
            report = certify_policy(
                given,
                policy,
                threshold=self.threshold,
                epsilon=self.epsilon,
                delta=self.delta,
                max_episodes=self.max_episodes,
                seed=self.seed,
                callback=lambda look: looks.__setitem__(slice(None), [look]),
                progress=False if self.quiet or self.json else None,
            )
        except KeyboardInterrupt:
            if looks:  # an interval that holds at all times may be stopped at any time
                plain_console(stderr=True).print(Text(f"stopped. {looks[-1]}"), soft_wrap=True)
            raise
        if self.out is not None:
            report.save(self.out)
        if self.json:
            console.print_json(json.dumps(report.as_json()))
        else:
            console.print(Text(report.claim), soft_wrap=True)
            if not self.quiet:
                console.print(named_rows(_rows(report)))
        return 0 if self.threshold is None or report.verdict is Verdict.AT_LEAST else 1


def _rows(report: PolicyReport) -> list[tuple[str, str]]:
    """Returns the numbers of a report by name."""
    return [
        ("verdict", report.verdict.value),
        ("mean", f"{words.value(report.mean)}, an estimate"),
        ("episodes", words.count(report.episodes)),
        ("units", report.units),
    ]

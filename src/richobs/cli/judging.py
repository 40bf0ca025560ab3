"""`richobs value` measures a policy; `richobs compare` says which of two is better, or which of many is best.

Both are gates for a build: the exit status is 0 where what was asked is certain, 1 where the opposite is certain, and 3
where the episodes did not suffice.
"""

import dataclasses
import json
import pathlib
from collections.abc import Callable
from typing import Any

import tyro
from rich.console import Console
from rich.text import Text

from richobs.classes.learned_policy import LearnedPolicy
from richobs.cli.options import World, build_playable, import_from_here
from richobs.core.errors import InvalidInput
from richobs.judging.compare import compare, compare_returns
from richobs.judging.logs import read_returns
from richobs.judging.select import select
from richobs.judging.value import PolicyReport, certify_policy
from richobs.show.summary import named_rows, plain_console
from richobs.worlds.gymnasium_in import GymnasiumSpec, environment_from_spec
from richobs.worlds.registry import is_gymnasium_id, make

RETURNS = (".csv", ".json")  # how files of returns are called


@dataclasses.dataclass(frozen=True)
class _Printed:
    """Options about what is written and printed."""

    out: pathlib.Path | None = None
    """Keep every draw and the certificate in this folder, and go on there; or write the report to this JSON file."""
    json: bool = False
    """Print JSON instead of a summary."""
    quiet: bool = False
    """Print nothing while it plays, and only the claim at the end."""

    def judged(self, console: Console, judge: Callable[..., PolicyReport]) -> int:
        """Calls a judgement, prints its report, and returns the exit status."""
        looks: list[PolicyReport] = []
        is_file = self.out is not None and self.out.suffix == ".json"
        try:
            report = judge(
                out=None if is_file else self.out,
                callback=lambda look: looks.__setitem__(slice(None), [look]),
                progress=False if self.quiet or self.json else None,
            )
        except KeyboardInterrupt:
            if looks:  # an interval that holds at all times may be stopped at any time
                plain_console(stderr=True).print(Text(f"stopped. {looks[-1]}"), soft_wrap=True)
            raise
        if self.out is not None and is_file:
            report.save(self.out)
        if self.json:
            console.print_json(json.dumps(report.as_json()))
        else:
            console.print(Text(report.claim), soft_wrap=True)
            if not self.quiet:
                console.print(named_rows(report.rows()))
        return report.status


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
    printed: _Printed = dataclasses.field(default_factory=_Printed)

    def run(self, console: Console) -> int:
        """Prints what is certain; the exit status is that of a gate."""
        given, policy = build_playable(self.world), LearnedPolicy.load(self.policy)
        question = {n: getattr(self, n) for n in ("threshold", "epsilon", "delta", "max_episodes", "seed")}
        return self.printed.judged(console, lambda **how: certify_policy(given, policy, **question, **how))


@dataclasses.dataclass(frozen=True)
class CompareCommand:
    """Say which of two policies is better, or find one that is within epsilon of the best of more than two."""

    given: tyro.conf.Positional[tuple[str, ...]]
    """A world and the files of two or more policies (lock/5 a.npz b.npz); or two files of returns (a.csv b.json)."""
    epsilon: float | None = None
    """Stop also when two policies differ by at most this; of more than two, how far from the best the chosen one may be."""
    delta: float = 0.05
    """Probability that the claim is false."""
    max_episodes: int | None = None
    """Play at most this many episodes, all policies together."""
    seed: int = 0
    """Seed of every draw."""
    range: tuple[float, float] | None = None
    """Smallest and largest possible total of an episode; needed for files of returns."""
    unpaired: bool = False
    """Give each policy random numbers of its own; of files of returns, that lines do not belong together."""
    printed: _Printed = dataclasses.field(default_factory=_Printed)

    def run(self, console: Console) -> int:
        """Prints what is certain; the exit status is that of a gate: 1 where the second policy is better."""
        files = [pathlib.Path(one) for one in self.given]
        if len(files) >= 2 and all(file.suffix in RETURNS for file in files):
            return self.printed.judged(console, lambda **how: self._returns(files, how.get("out")))
        if len(files) < 3:
            raise InvalidInput(
                "compare needs a world and the files of at least two policies (`richobs compare lock/5 a.npz b.npz`), "
                f"or two files of returns (.csv, .json); got {' '.join(self.given) or 'nothing'}."
            )
        env = _world(self.given[0])
        policies = [LearnedPolicy.load(file) for file in files[1:]]
        common: dict[str, Any] = {"delta": self.delta, "max_episodes": self.max_episodes, "seed": self.seed}
        common |= {"reward_range": self.range, "paired": not self.unpaired}
        names = _names(files[1:])
        if len(policies) == 2:
            a, b = policies
            return self.printed.judged(
                console, lambda **how: compare(env, a, b, names=names, epsilon=self.epsilon, **common, **how)
            )
        if self.epsilon is None:
            raise InvalidInput("of more than two policies one is chosen that is within --epsilon of the best: give it.")
        epsilon = self.epsilon
        return self.printed.judged(
            console,
            lambda **how: select(env, dict(zip(names, policies, strict=True)), epsilon=epsilon, **common, **how),
        )

    def _returns(self, files: list[pathlib.Path], out: pathlib.Path | None) -> PolicyReport:
        """Compares two files of returns."""
        if len(files) != 2 or self.range is None:
            raise InvalidInput(
                "files of returns are compared in pairs, with --range LOW HIGH of what an episode can earn."
            )
        if out is not None:
            raise InvalidInput("returns in files are a record already: --out takes the name of a .json file here.")
        a, b = map(read_returns, files)
        if self.max_episodes is not None:
            a, b = a[: self.max_episodes // 2], b[: self.max_episodes // 2]
        return compare_returns(
            a, b, *self.range, paired=not self.unpaired, epsilon=self.epsilon, delta=self.delta, names=_names(files)
        )


def _names(files: list[pathlib.Path]) -> list[str]:
    """Returns what files are called: their names without ending, numbered where they repeat."""
    stems = [file.stem for file in files]
    return [stem if stems.count(stem) == 1 else f"{stem} ({k})" for k, stem in enumerate(stems, start=1)]


def _world(id: str) -> Any:
    """Returns what an id names."""
    if not is_gymnasium_id(id):
        return make(id)
    import_from_here()
    return environment_from_spec(GymnasiumSpec.read(id))

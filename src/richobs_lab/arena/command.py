"""`richobs arena`: learners against each other on the same worlds."""

import dataclasses
import hashlib
import json
import pathlib
from typing import Annotated

import tyro
from rich.console import Console
from rich.text import Text

from richobs import InvalidInput
from richobs.cli.options import Trimmed, widened
from richobs.core.words import several
from richobs_lab.arena.contest import BUDGET, SEEDS, families_of, plan_arena, run_arena
from richobs_lab.arena.page import PAGE, arena_plain, arena_table, write_arena
from richobs_lab.sweep.command import ManyRunsOptions
from richobs_lab.sweep.runs import seed_list


@dataclasses.dataclass(frozen=True)
class ArenaCommand:
    """Run learners against each other on the same worlds, and write one page about all of them."""

    many: ManyRunsOptions
    worlds: Annotated[str, tyro.conf.arg(metavar="WORLDS", help_behavior_hint="")] = ""
    """Families of worlds or ids such as `lock/5,noise_bits=4`, with spaces between them; by default all families."""
    learners: Annotated[str, tyro.conf.arg(metavar="LEARNERS", help_behavior_hint="")] = ""
    """Learners with commas between them, tuning after spaces: `betting,pcid,pcid samples=40`; by default all."""
    seeds: str = str(SEEDS)
    """Seeds, each of which also chooses the secret of its world: `20` and `0:20` are those from 0 to 19, `3,7` are two;
    `100:110` are those of the stored results."""
    budget: int = BUDGET
    """Episodes that a run may play. Runs whose episodes are drawn as counts have no limit."""
    epsilon: float = 0.1
    """Largest allowed gap between the policy's value and the optimal value V*."""
    delta: float = 0.05
    """Probability that a claim is false."""
    seconds: float | None = None
    """CPU seconds that a run may take. One that takes more is stopped and counts as not solved, unless its learner has no
    stopping rule: then the policy of that moment counts."""
    list: bool = False
    """Print the worlds that are asked for, by family, and who cannot play where; run nothing."""

    def run(self, console: Console) -> int:
        """Runs what is missing and prints a line for each learner on each world."""
        entered = [text.strip() for text in self.learners.split(",") if text.strip()]
        contest = plan_arena(
            self.worlds.split(),
            entered,
            seeds=seed_list(self.seeds),
            budget=self.budget,
            epsilon=self.epsilon,
            delta=self.delta,
            max_runs=self.many.max_runs,
        )
        if self.list:
            for family, worlds in families_of(self.worlds.split()).items():
                console.print(Text(f"{family}: {' '.join(worlds)}"))
            console.print(Text(f"\n{several(len(contest.cells), 'run')}"))
            for family, horizon, name, why in contest.arena.absent:
                console.print(Text(f"{name} is not on {family}, H = {horizon}: {why}", style="dim"))
            return 0 if contest.cells else 2
        if not contest.cells:
            reasons = list(dict.fromkeys(why for *_, why in contest.arena.absent))[:3]
            raise InvalidInput(
                f"no learner can play any of these worlds: {' '.join(reasons)} Worlds are separated by spaces, learners by "
                "commas; --list shows both."
            )
        folder = self.many.out or self._folder()
        with self.many.running("arena", folder) as how:
            done = run_arena(contest, folder, seconds=self.seconds, **how)
        write_arena(done, folder)
        if self.many.json:
            console.print_json(json.dumps(arena_plain(done)))
        else:
            widened(console).print(Trimmed(arena_table(done)))
            console.print(
                Text("* the episodes of the whole run: the learner only has a policy at the end", style="dim")
            )
            if contest.arena.absent:
                console.print(
                    Text(
                        f"not run: {several(len(contest.arena.absent), 'pair')} of learner and world; --list says why",
                        style="dim",
                    )
                )
            console.print(Text(f"\nwrote {folder / PAGE}"))
        return 0

    def _folder(self) -> pathlib.Path:
        """Returns a folder under `runs/` named after what is asked."""
        asked = (
            self.worlds,
            self.learners,
            self.seeds,
            self.budget,
            self.epsilon,
            self.delta,
            self.seconds,
        )
        return pathlib.Path("runs") / f"arena-{hashlib.sha256(repr(asked).encode()).hexdigest()[:12]}"

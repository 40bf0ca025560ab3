"""`richobs resume`: a stored run goes on."""

import dataclasses
import pathlib

import tyro
from rich.console import Console

from richobs.cli.gymnasium_options import make_stored
from richobs.cli.running import Output, learn_in
from richobs.cli.work_options import WorkOptions
from richobs.core.errors import InvalidInput
from richobs.runs.prepare import prepare
from richobs.runs.store import CONFIG, StoredRun, recorded_beside


@dataclasses.dataclass(frozen=True)
class ResumeCommand:
    """Go on with a run that was killed or interrupted, or that spent the episodes it was allowed."""

    folder: tyro.conf.Positional[pathlib.Path]
    """The run's folder."""
    output: Output
    work: WorkOptions
    max_episodes: int | None = None
    """Allow this many episodes in all; by default as many as before."""
    workers: int | None = None
    """Threads or processes that share the episodes; by default as many as before."""
    timeout: float | None = None
    """Stop where one call of an environment takes more seconds than this; by default it may take any time."""
    trust: bool = False
    """Import the modules that the folder names, where the run plays an environment of Gymnasium."""

    def run(self, console: Console) -> int:
        """Goes on and prints the claim."""
        stored = StoredRun.read(self.folder)
        if stored.world is None:
            raise InvalidInput(
                f"the run in {self.folder} plays an environment that is not one of richobs's worlds, so it cannot be built "
                "here. Call richobs.learn(env, functions, ..., out=folder) from Python again."
            )
        settings = stored.settings
        if self.max_episodes is not None:
            settings = dataclasses.replace(settings, max_episodes=self.max_episodes)
        if self.workers is not None:
            settings = dataclasses.replace(settings, workers=self.workers)
        settings = dataclasses.replace(settings, timeout=self.timeout)
        problem = make_stored(stored.world, self.folder / CONFIG, self.trust)
        problem = dataclasses.replace(problem, recorded=recorded_beside(self.folder / CONFIG))
        with self.work.executor() as executor:
            return learn_in(console, self.folder, prepare(problem, settings), self.output, executor)

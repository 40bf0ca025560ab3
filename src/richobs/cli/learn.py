"""`richobs learn`: a run, kept in a folder."""

import dataclasses
import hashlib
import pathlib
import re

from rich.console import Console

from richobs.cli.running import Output, learn_in
from richobs.cli.work_options import WorkOptions
from richobs.cli.world_options import World, build
from richobs.core.problem import Problem
from richobs.core.recorded import load_episodes
from richobs.core.settings import MAY_CHANGE, Settings
from richobs.runs.prepare import prepare
from richobs.runs.store import discard
from richobs.worlds.gymnasium_ids import is_gymnasium_id

LONGEST = 180  # characters of a folder's name


@dataclasses.dataclass(frozen=True)
class LearnCommand:
    """Learn a near-optimal policy, with a certificate."""

    world: World
    """Which world."""
    settings: Settings
    output: Output
    work: WorkOptions
    out: pathlib.Path | None = None
    """Folder that keeps the run; by default one under `runs/` named after it. An unfinished run there goes on."""
    overwrite: bool = False
    """Start anew where the folder holds a run already."""
    episodes: pathlib.Path | None = None
    """Episodes that were played before (a file of richobs.save_episodes): free evidence for elimination."""

    def run(self, console: Console) -> int:
        """Learns, writes certificate and policy, prints the claim."""
        problem = build(self.world)
        if self.episodes is not None:
            problem = dataclasses.replace(problem, recorded=load_episodes(self.episodes))
        prepared = prepare(problem, self.settings)  # before anything is removed
        folder = self.out or default_folder(problem, prepared.asked)
        if self.overwrite and folder.exists():
            discard(folder)
        with self.work.executor() as executor:
            return learn_in(console, folder, prepared, self.output, executor)


def default_folder(problem: Problem, settings: Settings) -> pathlib.Path:
    """Returns a folder under `runs/` named after the world and every setting that is not the usual one."""
    asked, plain = settings.as_plain(), Settings().as_plain()
    named = [
        f"{'run_seed' if name == 'seed' else name}={asked[name]}"  # a world may have a seed too
        for name in asked
        if name not in {*MAY_CHANGE, "tuning"} and asked[name] != plain.get(name)
    ]
    name = problem.name
    if is_gymnasium_id(name):  # its marks are not for folders
        name = re.sub(r"[^A-Za-z0-9._=,-]+", "-", name.replace("&", ",").replace("?", ","))
    whole = ",".join([name, *named, *settings.tuning]).replace("/", "-")
    if len(whole) > LONGEST:
        whole = f"{whole[:LONGEST]}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}"
    return pathlib.Path("runs") / whole

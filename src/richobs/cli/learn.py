"""`richobs learn` and `richobs resume`: a run that is shown while it goes, kept in a folder, and summed up."""

import contextlib
import dataclasses
import pathlib
from concurrent.futures import Executor

import tyro
from rich.console import Console
from rich.text import Text

from richobs.cli.options import (
    WorkOptions,
    World,
    build,
    folder_name,
    make_stored,
    print_claim,
    print_summary,
    trusting,
)
from richobs.core.environment import Episodes
from richobs.core.errors import InvalidInput, RichObsError, StoreError
from richobs.core.events import Callback, Progress
from richobs.core.outcome import Outcome
from richobs.core.problem import Problem
from richobs.core.settings import MAY_CHANGE, Settings
from richobs.learning import Assume, chosen_learner
from richobs.runs import session
from richobs.runs.prepare import Prepared, prepare
from richobs.runs.store import CERTIFICATE, CONFIG, POLICY, REPORT, StoredRun, recorded_beside
from richobs.show import write_report
from richobs.show.summary import claim_text, coloured, gives_what_was_asked, plain_console
from richobs.show.terminal import TensorBoard, watched


@dataclasses.dataclass(frozen=True)
class Output:
    """What a run prints and writes besides certificate and policy."""

    json: bool = False
    """Print the certificate instead of a summary."""
    quiet: bool = False
    """Print nothing while it runs, and only the claim at the end."""
    report: bool = False
    """Also write the page `report.html`; `richobs report` writes it later."""
    tolerance_curve: bool = False
    """Also say what the same episodes show where the class holds Q* only nearly."""
    tensorboard: pathlib.Path | None = None
    """Also write what happens to this folder for TensorBoard (needs the extra `tensorboard`)."""


def learn_in(
    console: Console, folder: pathlib.Path, prepared: Prepared, output: Output, executor: Executor | None = None
) -> int:
    """Learns in a folder, going on where it stopped, and says what was found."""
    was_finished = not output.quiet and _holds_finished(folder, prepared.asked)
    outcome = _run(folder, prepared, output, executor)
    curve = outcome.tolerance_curve if output.tolerance_curve else None  # kept in the folder, where the page finds it
    if output.quiet and not output.json:
        console.print(coloured(outcome.claim, outcome.guaranteed and outcome.epsilon <= prepared.asked.epsilon))
        if not output.report:
            return 0
    stored = StoredRun.read(folder)
    if stored.certificate is None:
        raise StoreError(
            f"the run in {folder} has ended, and another process has begun to change it since: it is {stored.state}."
        )
    written = [folder / CERTIFICATE, folder / POLICY]
    if output.report:
        written += write_report([stored], folder / REPORT, figures=False)
    if output.json:
        console.file.write(stored.certificate.to_json())
        return 0
    if output.quiet:
        return 0
    print_claim(console, claim_text(stored))
    print_summary(console, stored)
    if curve is not None:
        console.print(Text(f"\n{curve}"))
    if outcome.ledger.checks:
        checks = f"{outcome.ledger.checks:,} more episodes were played, to compare workers with this process"
        console.print(f"\n{checks}", style="dim")
    if was_finished:
        console.print("\nnothing was played: the folder held this run already", style="dim")
    console.print(Text(f"\nwrote {', '.join(map(str, written[:-1]))} and {written[-1]}"))
    if stored.certificate.content["result"]["guaranteed"] and not gives_what_was_asked(stored):
        again = f"richobs resume {folder} --max-episodes N{trusting(stored.world)}"
        console.print(Text(f"asked for was {prepared.asked.epsilon:g}; go on: {again}"))
    console.print(Text(f"check it again: richobs verify {folder / CERTIFICATE}{trusting(stored.world)}"), style="dim")
    if not output.report:
        console.print(Text(f"a page about it: richobs report {folder}"), style="dim")
    return 0


def _run(folder: pathlib.Path, prepared: Prepared, output: Output, executor: Executor | None) -> Outcome:
    """Runs, shows how it goes, and says how to go on where it is interrupted."""
    problem, expected = prepared.own, prepared.asked.max_episodes
    with contextlib.ExitStack() as stack:
        listeners: list[Callback] = []
        if not (output.quiet or output.json):
            listeners.append(stack.enter_context(watched(problem.name, problem.functions.log_size, expected)))
        if output.tensorboard is not None:
            listeners.append(stack.enter_context(TensorBoard(output.tensorboard)))

        def tell(progress: Progress) -> None:
            for listener in listeners:
                listener(progress)

        try:
            return session.run_prepared(prepared, callback=tell if listeners else None, out=folder, executor=executor)
        except KeyboardInterrupt:
            stack.close()
            plain_console(stderr=True).print(
                Text(f"stopped; what was drawn is kept. Go on: richobs resume {folder}{trusting(problem.id)}")
            )
            raise


def _holds_finished(folder: pathlib.Path, settings: Settings) -> bool:
    """Whether a folder holds this run, finished: running it again then plays nothing."""
    try:
        stored = StoredRun.read(folder)
    except (RichObsError, OSError):
        return False
    return stored.state == "finished" and dataclasses.replace(stored.settings, workers=settings.workers) == settings


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
    assume: Assume | None = None
    """What the class is trusted for where it is a list of models: "model" means that the real system is one of them."""
    episodes: pathlib.Path | None = None
    """Episodes that were played before (a file of Episodes.save): free evidence for elimination."""

    def run(self, console: Console) -> int:
        """Learns, writes certificate and policy, prints the claim."""
        problem = build(self.world)
        if self.episodes is not None:
            problem = dataclasses.replace(problem, recorded=Episodes.load(self.episodes))
        settings = self.settings
        if self.assume is not None:
            named = None if settings.learner == Settings.learner else settings.learner
            settings = dataclasses.replace(settings, learner=chosen_learner(problem.functions, named, self.assume))
        prepared = prepare(problem, settings)  # before anything is removed
        folder = self.out or default_folder(problem, prepared.asked)
        if self.overwrite and folder.exists():
            StoredRun.discard(folder)
        with self.work.executor() as executor:
            return learn_in(console, folder, prepared, self.output, executor)


def default_folder(problem: Problem, settings: Settings) -> pathlib.Path:
    """Returns a folder under `runs/` named after the world and every setting that is not the usual one."""
    asked, plain = settings.as_plain(), Settings().as_plain()
    named = [
        f"{'run_seed' if name == 'seed' else name}={_text(asked[name])}"  # a world may have a seed too
        for name in asked
        if name not in {*MAY_CHANGE, "tuning"} and asked[name] != plain.get(name)
    ]
    return pathlib.Path("runs") / folder_name("-".join([problem.name, *named, *settings.tuning]))


def _text(value: object) -> str:
    return "-".join(map(str, value)) if isinstance(value, list) else str(value)


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

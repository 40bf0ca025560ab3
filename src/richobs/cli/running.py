"""What `learn` and `resume` share: a run that is shown while it goes, kept in a folder, and summed up."""

import contextlib
import dataclasses
import pathlib
from concurrent.futures import Executor

from rich.console import Console
from rich.text import Text

from richobs.cli.gymnasium_options import trusting
from richobs.cli.printing import print_claim, print_summary
from richobs.core.errors import RichObsError, StoreError
from richobs.core.events import Callback, Progress
from richobs.core.outcome import Outcome
from richobs.core.settings import Settings
from richobs.runs import session
from richobs.runs.prepare import Prepared
from richobs.runs.store import CERTIFICATE, POLICY, REPORT, StoredRun
from richobs.show import write_report
from richobs.show.summary import claim_text, gives_what_was_asked, plain_console
from richobs.show.tensorboard import TensorBoard
from richobs.show.terminal import watched


@dataclasses.dataclass(frozen=True)
class Output:
    """What a run prints and writes besides certificate and policy."""

    json: bool = False
    """Print the certificate instead of a summary."""
    quiet: bool = False
    """Print nothing while it runs, and only the claim at the end."""
    no_report: bool = False
    """Leave the page `report.html` out."""
    tensorboard: pathlib.Path | None = None
    """Also write what happens to this folder for TensorBoard (needs the extra `tensorboard`)."""


def learn_in(
    console: Console,
    folder: pathlib.Path,
    prepared: Prepared,
    output: Output,
    executor: Executor | None = None,
) -> int:
    """Learns in a folder, going on where it stopped, and says what was found."""
    was_finished = _holds_finished(folder, prepared.asked)
    checks = _run(folder, prepared, output, executor).ledger.checks
    stored = StoredRun.read(folder)
    if stored.certificate is None:
        raise StoreError(
            f"the run in {folder} has ended, and another process has begun to change it since: it is {stored.state}."
        )
    written = [folder / CERTIFICATE, folder / POLICY]
    if not output.no_report:
        written += write_report([stored], folder / REPORT, figures=False)
    if output.json:
        console.file.write(stored.certificate.to_json())
        return 0
    if output.quiet:
        console.print(claim_text(stored))
        return 0
    print_claim(console, claim_text(stored))
    print_summary(console, stored)
    if checks:
        console.print(f"\n{checks:,} more episodes were played, to compare workers with this process", style="dim")
    if was_finished:
        console.print("\nnothing was played: the folder held this run already", style="dim")
    console.print(Text(f"\nwrote {', '.join(map(str, written[:-1]))} and {written[-1]}"))
    if stored.certificate.content["result"]["guaranteed"] and not gives_what_was_asked(stored):
        again = f"richobs resume {folder} --max-episodes N{trusting(stored.world)}"
        console.print(Text(f"asked for was {prepared.asked.epsilon:g}; go on: {again}"))
    console.print(Text(f"check it again: richobs verify {folder / CERTIFICATE}{trusting(stored.world)}"), style="dim")
    return 0


def _run(folder: pathlib.Path, prepared: Prepared, output: Output, executor: Executor | None) -> Outcome:
    """Runs, shows how it goes, and says how to go on where it is interrupted."""
    problem, expected = prepared.own, prepared.asked.max_episodes
    if expected is None:
        expected = prepared.learner.plan(prepared.problem, prepared.settings).max_episodes
    with contextlib.ExitStack() as stack:
        quiet = output.quiet or output.json
        shown = watched(problem.name, problem.functions.log_size, expected, quiet=quiet)
        listeners: list[Callback] = [stack.enter_context(shown)]
        if output.tensorboard is not None:
            listeners.append(stack.enter_context(TensorBoard(output.tensorboard)))

        def tell(progress: Progress) -> None:
            for listener in listeners:
                listener(progress)

        try:
            return session.run_prepared(prepared, callback=tell, out=folder, executor=executor)
        except KeyboardInterrupt:
            stack.close()
            plain_console(stderr=True).print(
                Text(f"stopped; what was drawn is kept. Go on: richobs resume {folder}{trusting(problem.id)}"),
            )
            raise


def _holds_finished(folder: pathlib.Path, settings: Settings) -> bool:
    """Whether a folder holds this run, finished: running it again then plays nothing."""
    try:
        stored = StoredRun.read(folder)
    except (RichObsError, OSError):
        return False
    return stored.state == "finished" and dataclasses.replace(stored.settings, workers=settings.workers) == settings

"""Commands about stored runs and judgements: `richobs show`, `richobs report` and `richobs verify`."""

import dataclasses
import json
import pathlib
import sys
from typing import Any

import tyro
from rich.console import Console
from rich.prompt import Confirm
from rich.text import Text

from richobs.classes.learned_policy import LearnedPolicy
from richobs.cli.options import Trimmed, make_stored, print_claim, print_findings, print_summary, trusting, widened
from richobs.core.errors import InvalidFile, InvalidInput, RichObsError, StoreError
from richobs.core.files import read_json, reading
from richobs.judging.record import QUESTION
from richobs.judging.stored import in_toto, model_card, verify_judgement
from richobs.runs.certificate import Certificate, Verification
from richobs.runs.store import (
    CERTIFICATE,
    CONFIG,
    DATABASE,
    POLICY,
    REPORT,
    StoredRun,
    find_runs,
    keep_verification,
    recorded_beside,
)
from richobs.runs.verify import BUDGET, Work, verify, work_of
from richobs.show import write_report
from richobs.show.summary import claim_text, named_rows, plain_console, runs_table
from richobs.show.terminal import is_interactive, watched


def readable(place: pathlib.Path) -> StoredRun | str:
    """Returns the run in a folder, or why it cannot be read, so that one bad folder is one line among the others."""
    try:
        return StoredRun.read(place)
    except RichObsError as error:
        return str(error)
    except RecursionError:
        return "a file in it is nested too deeply; richobs did not write it."


def as_plain(name: str, run: StoredRun | str) -> dict[str, Any]:
    """Returns a stored run, or why it cannot be read, in plain values."""
    if isinstance(run, str):
        return {"folder": name, "error": run}
    return {
        "folder": name,
        "world": run.world,
        "settings": run.settings.as_plain(),
        "state": run.state,
        "message": run.message,
        "episodes": run.ledger.total,
        "tests": len(run.steps),
    }


@dataclasses.dataclass(frozen=True)
class ShowCommand:
    """Print the summary of a stored run or judgement again, or list the runs in a folder with their state."""

    folder: tyro.conf.Positional[pathlib.Path] = pathlib.Path("runs")
    """The folder of a run or a judgement; or one that holds runs, sub-folders included."""
    json: bool = False
    """Print JSON instead of a table."""
    in_toto: bool = False
    """Print the certificate as an in-toto statement."""
    model_card: bool = False
    """Print the certificate as the evaluation of a Hugging Face model card."""

    def run(self, console: Console) -> int:
        """Prints the claim and what it rests on, or how far the run is, or one line per run."""
        if self.in_toto or self.model_card:
            console.print(Text(in_toto(self.folder) if self.in_toto else model_card(self.folder)), soft_wrap=True)
            return 0
        if (self.folder / QUESTION).exists():
            return self._judgement(console)
        if not self.folder.is_dir():
            raise InvalidInput(f"there is no folder {self.folder}; `richobs learn` makes one.")
        if (self.folder / CONFIG).exists() or (self.folder / DATABASE).exists():
            return self._run(console)
        found = [(str(place), readable(place)) for place in find_runs(self.folder)]
        if self.json:
            console.print_json(json.dumps([as_plain(name, run) for name, run in found]))
        elif found:
            widened(console).print(Trimmed(runs_table(found)))
            last = max(found, key=lambda row: row[1].last if isinstance(row[1], StoredRun) else 0.0)[0]
            console.print(Text(f"the last one: richobs show {last}"), style="dim")
        else:
            console.print(Text(f"no runs in {self.folder}"))
        return 0

    def _judgement(self, console: Console) -> int:
        """Prints what a judgement found."""
        file = self.folder / CERTIFICATE
        if not file.exists():
            raise InvalidInput(
                f"the judgement in {self.folder} has not ended: make the same call again, and it goes on."
            )
        with reading(file):
            content = read_json(file)
            claim, reason, episodes = str(content["claim"]), str(content["reason"]), int(content["episodes"])
        if self.json:
            console.print_json(json.dumps(content))
        else:
            print_claim(console, Text(claim, style="bold"))
            console.print(named_rows([("verdict", reason), ("episodes", f"{episodes:,}")]))
        return 0

    def _run(self, console: Console) -> int:
        """Prints what is known of a run."""
        stored = StoredRun.read(self.folder)
        if self.json:
            certificate = None if stored.certificate is None else stored.certificate.content
            console.print_json(json.dumps({**as_plain(str(self.folder), stored), "certificate": certificate}))
            return 0
        if stored.certificate is not None:
            print_claim(console, claim_text(stored))
        print_summary(console, stored)
        limited = stored.state == "stopped" and "--max-episodes" in stored.message
        if (stored.state == "unfinished" or limited) and stored.world is not None:
            console.print(Text(f"go on: richobs resume {self.folder}{trusting(stored.world)}"), style="dim")
        return 0


@dataclasses.dataclass(frozen=True)
class ReportCommand:
    """Write one page about one or several stored runs, with figures beside it; a run that cannot be read is left out."""

    folders: tyro.conf.Positional[tuple[pathlib.Path, ...]] = (pathlib.Path("runs"),)
    """Run folders, or folders that hold some."""
    out: pathlib.Path | None = None
    """The page; by default report.html in the run's folder, or in the first folder given."""
    no_figures: bool = False
    """Write the page alone: figures, as PNG and SVG beside it, take most of the time, a second or two for each run."""

    def run(self, console: Console) -> int:
        """Writes the page."""
        places = [place for folder in self.folders for place in (find_runs(folder) if folder.is_dir() else [folder])]
        if not places:
            raise InvalidInput(f"no runs in {', '.join(map(str, self.folders))}.")
        if len(places) == 1:
            runs = [StoredRun.read(places[0])]
        else:
            runs = []
            for place in dict.fromkeys(places):
                run = readable(place)
                if isinstance(run, StoredRun):
                    runs.append(run)
                else:
                    plain_console(stderr=True).print(Text(f"left out {place}: {run}"))
        page, *figures = write_report(runs, self.out or self.folders[0] / REPORT, figures=not self.no_figures)
        beside = f" and {len(figures)} figures beside it" if figures else ""
        console.print(Text(f"wrote {page}{beside}"))
        return 0


@dataclasses.dataclass(frozen=True)
class VerifyCommand:
    """Derive a certificate's constants again, run its draws again, and say whether everything agrees."""

    file: tyro.conf.Positional[pathlib.Path | None] = None
    """The certificate, or its folder; by default the last one below `runs`. A policy.npz beside it is checked too."""
    json: bool = False
    """Print JSON instead of a table."""
    quiet: bool = False
    """Print nothing while it runs."""
    budget: int = BUDGET
    """Work that may be done without being asked, in microseconds by a rough estimate that is said before it begins."""
    trust: bool = False
    """Import the modules that the certificate names, where it is about an environment of Gymnasium."""

    def run(self, console: Console) -> int:
        """Prints what agrees; the exit status is 1 if anything does not."""
        given = self.file or _last_certificate()
        file = given / CERTIFICATE if given.is_dir() else given
        if file.with_name(QUESTION).exists():
            claim = str(read_json(file).get("claim")) if file.exists() else ""
            checked = verify_judgement(file.parent, lambda world: make_stored(world, file, self.trust))
            return self._print(console, claim, checked, [])
        if not file.exists():
            raise InvalidInput(_no_certificate(file))
        certificate = Certificate.load(file)
        if certificate.environment is None:
            raise InvalidInput(
                f"{file} is about an environment that is not one of richobs's worlds, so it cannot be built again "
                "here. Call richobs.verify(certificate, problem) from Python."
            )
        problem = make_stored(certificate.environment, file, self.trust)
        problem = dataclasses.replace(problem, recorded=recorded_beside(file))
        beside = file.with_name(POLICY)
        policy = _load_policy(beside) if beside.exists() else None
        work = work_of(certificate, problem)
        if not (self.quiet or self.json):
            plain_console(stderr=True).print(Text(f"to verify it: {work.words}"), style="dim")
        budget = self._allowed(work)
        with watched(problem.name, problem.functions.log_size, quiet=self.quiet or self.json) as callback:
            checked = verify(certificate, problem, policy=policy, callback=callback, budget=budget)
        notes = []
        if policy is None and certificate.content["policy"]["digest"] is not None:
            notes.append(f"there is no {POLICY} beside the certificate, so the policy itself was not compared")
        if file.name == CERTIFICATE and file.with_name(CONFIG).exists():
            notes += _keep(file, checked)
        return self._print(console, certificate.claim, checked, notes)

    def _print(self, console: Console, claim: str, checked: Verification, notes: list[str]) -> int:
        """Prints what was found; returns the exit status."""
        if self.json:
            findings = [dataclasses.asdict(f) for f in checked.findings]
            console.print_json(json.dumps({"agrees": checked.agrees, "findings": findings, "notes": notes}))
        else:
            print_claim(console, Text(claim, style="bold"))
            marks = {True: "[green]agrees[/]", False: "[bold red]differs[/]"}
            print_findings(console, [(f.what, marks[f.agrees], f.detail) for f in checked.findings])
            for note in notes:
                console.print(Text(f"note: {note}"), style="yellow")
            wrong = sum(not f.agrees for f in checked.findings)
            if wrong:
                verdict = f"{wrong} of {len(checked.findings)} differ: do not rely on the claim above"
                console.print(Text(verdict, style="bold red"))
            else:
                console.print(Text("everything agrees", style="green"))
        return 0 if checked.agrees else 1

    def _allowed(self, work: Work) -> int:
        """Returns the budget; a person at a terminal is asked where the work is more than that."""
        if self.budget < 1:
            raise InvalidInput(f"--budget must be at least 1; got {self.budget}.")
        if work.cost <= self.budget or self.json or not (is_interactive() and sys.stdin.isatty()):
            return self.budget
        asked = plain_console(stderr=True)
        asked.print(Text(f"That is more than the budget of {self.budget:,}: {work.words}."))
        return work.cost if Confirm.ask("Go on?", console=asked, default=False) else self.budget


def _last_certificate() -> pathlib.Path:
    """Returns the certificate below `runs` that was written last, and says which.

    Raises:
        InvalidInput: there is none.
    """
    found = pathlib.Path("runs").glob(f"**/{CERTIFICATE}")
    last = max(found, key=lambda file: file.stat().st_mtime, default=None)
    if last is None:
        raise InvalidInput("there is no certificate below runs: give a certificate, or the folder of a run.")
    plain_console(stderr=True).print(Text(f"the last certificate here: {last}"), style="dim")
    return last


def _keep(file: pathlib.Path, checked: Verification) -> list[str]:
    """Keeps a verdict beside its certificate, and shows it in the page there; returns why not, where it cannot."""
    try:
        keep_verification(file.parent, checked)
        if file.with_name(REPORT).exists():
            write_report([StoredRun.read(file.parent)], file.with_name(REPORT), figures=False)
    except (OSError, StoreError) as error:
        return [f"the verdict is not kept, because {file.parent} cannot be written: {error}"]
    except RichObsError as error:
        return [f"the page is not written again: {error}"]
    return []


def _no_certificate(file: pathlib.Path) -> str:
    """Returns why there is no such certificate, in a sentence: a run beside it may not have ended."""
    folder = file.parent
    if file.name != CERTIFICATE or not (folder / CONFIG).exists():
        return f"there is no certificate {file}; `richobs learn` writes one."
    stored = StoredRun.read(folder)
    so_far = f"the run in {folder} has no certificate: it is {stored.state} after {stored.ledger.total:,} episodes"
    if stored.state == "running":
        return f"{so_far}. Wait until it has ended."
    if stored.state == "stopped":
        return f"{so_far}. It said: {stored.message}"
    again = (
        f"`richobs resume {folder}{trusting(stored.world)}`"
        if stored.world is not None
        else "the same call of richobs.learn"
    )
    return f"{so_far}. Let it end first: {again}."


def _load_policy(file: pathlib.Path) -> LearnedPolicy:
    """Returns the policy beside a certificate; the error says what can be done about a damaged one."""
    try:
        return LearnedPolicy.load(file)
    except InvalidFile as error:
        raise InvalidFile(
            f"{error}. The file is damaged, or not the one that the run wrote. Copy the right one back, or move this one "
            "away: then the certificate is checked without it."
        ) from error

"""`richobs verify` checks a certificate again: that of a run, or that of a judgement."""

import dataclasses
import json
import pathlib
import sys

import tyro
from rich.console import Console
from rich.prompt import Confirm
from rich.text import Text

from richobs.classes.learned_policy import LearnedPolicy
from richobs.cli.options import make_stored, trusting
from richobs.cli.printing import print_claim, print_findings
from richobs.core.errors import InvalidFile, InvalidInput, RichObsError, StoreError
from richobs.core.files import read_json
from richobs.judging.record import QUESTION
from richobs.judging.verify import verify_judgement
from richobs.runs.certificate import Certificate, Verification
from richobs.runs.store import CERTIFICATE, CONFIG, POLICY, REPORT, StoredRun, keep_verification, recorded_beside
from richobs.runs.verify import BUDGET, Work, verify, work_of
from richobs.show import write_report
from richobs.show.summary import plain_console
from richobs.show.terminal import is_interactive, watched


@dataclasses.dataclass(frozen=True)
class VerifyCommand:
    """Derive a certificate's constants again, run its draws again, and say whether everything agrees."""

    file: tyro.conf.Positional[pathlib.Path]
    """The certificate, or the folder it is in; a policy.npz beside it is checked too."""
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
        file = self.file / CERTIFICATE if self.file.is_dir() else self.file
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

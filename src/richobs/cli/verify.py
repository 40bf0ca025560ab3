"""`richobs verify`: a certificate, checked again."""

import dataclasses
import json
import pathlib

import tyro
from rich.console import Console
from rich.text import Text

from richobs.classes.learned_policy import LearnedPolicy
from richobs.cli.printing import print_findings
from richobs.core.errors import InvalidInput
from richobs.runs.certificate import Certificate
from richobs.runs.store import CERTIFICATE, CONFIG, POLICY, REPORT, StoredRun, keep_verification
from richobs.runs.verify import verify
from richobs.show import write_report
from richobs.show.terminal import watched
from richobs.worlds.registry import make


@dataclasses.dataclass(frozen=True)
class VerifyCommand:
    """Derive a certificate's constants again, run its draws again, and say whether every byte agrees."""

    file: tyro.conf.Positional[pathlib.Path]
    """The certificate, or the folder it is in; a policy.npz beside it is checked too."""
    json: bool = False
    """Print JSON instead of a table."""
    quiet: bool = False
    """Print nothing while it runs."""

    def run(self, console: Console) -> int:
        """Prints what agrees; the exit status is 1 if anything does not."""
        file = self.file / CERTIFICATE if self.file.is_dir() else self.file
        if not file.exists():
            raise InvalidInput(f"there is no certificate {file}; `richobs learn` writes one.")
        certificate = Certificate.load(file)
        if certificate.environment is None:
            raise InvalidInput(
                f"{file} is about an environment that is not one of richobs's worlds, so it cannot be built again "
                "here. Call richobs.verify(certificate, problem) from Python."
            )
        problem = make(certificate.environment)
        beside = file.with_name(POLICY)
        policy = LearnedPolicy.load(beside) if beside.exists() else None
        with watched(problem.name, problem.functions.log_size, quiet=self.quiet or self.json) as callback:
            checked = verify(certificate, problem, policy=policy, callback=callback)
        if file.name == CERTIFICATE and file.with_name(CONFIG).exists():
            keep_verification(file.parent, checked)
            if file.with_name(REPORT).exists():
                write_report([StoredRun.read(file.parent)], file.with_name(REPORT), figures=False)
        if self.json:
            findings = [dataclasses.asdict(f) for f in checked.findings]
            console.print_json(json.dumps({"agrees": checked.agrees, "findings": findings}))
        else:
            console.print(Text(certificate.claim, style="bold"))
            marks = {True: "[green]agrees[/]", False: "[bold red]differs[/]"}
            print_findings(console, [(f.what, marks[f.agrees], f.detail) for f in checked.findings])
        return 0 if checked.agrees else 1

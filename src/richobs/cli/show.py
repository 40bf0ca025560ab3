"""`richobs show`: a stored run, summed up."""

import dataclasses
import json
import pathlib

import tyro
from rich.console import Console
from rich.text import Text

from richobs.cli.gymnasium_options import trusting
from richobs.cli.printing import print_claim, print_summary
from richobs.cli.runs import as_plain
from richobs.runs.store import StoredRun
from richobs.show.summary import claim_text


@dataclasses.dataclass(frozen=True)
class ShowCommand:
    """Print the summary of a stored run again, finished or not."""

    folder: tyro.conf.Positional[pathlib.Path]
    """The run's folder."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self, console: Console) -> int:
        """Prints the claim and what it rests on, or how far the run is."""
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

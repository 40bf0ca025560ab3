"""Commands about stored runs and judgements: `richobs show` and `richobs report`."""

import dataclasses
import json
import pathlib
from typing import Any

import tyro
from rich.console import Console
from rich.text import Text

from richobs.cli.options import trusting
from richobs.cli.printing import Trimmed, print_claim, print_summary, widened
from richobs.core.errors import InvalidInput, RichObsError
from richobs.core.files import read_json, reading
from richobs.judging.export import in_toto, model_card
from richobs.judging.record import QUESTION
from richobs.runs.store import CERTIFICATE, CONFIG, DATABASE, REPORT, StoredRun, find_runs
from richobs.show import write_report
from richobs.show.summary import claim_text, named_rows, plain_console, runs_table


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

"""`richobs report`: a page about stored runs."""

import dataclasses
import pathlib

import tyro
from rich.console import Console
from rich.text import Text

from richobs.cli.runs import readable
from richobs.core.errors import InvalidInput
from richobs.runs.store import REPORT, StoredRun, find_runs
from richobs.show import write_report
from richobs.show.summary import plain_console


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

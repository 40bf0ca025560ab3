"""`richobs report`: a page about stored runs."""

import dataclasses
import pathlib

import tyro
from rich.console import Console
from rich.text import Text

from richobs.core.errors import InvalidInput, RichObsError
from richobs.runs.store import REPORT, StoredRun, find_runs
from richobs.show import write_report
from richobs.show.summary import plain_console


@dataclasses.dataclass(frozen=True)
class ReportCommand:
    """Write one page about one or several stored runs, with figures beside it."""

    folders: tyro.conf.Positional[tuple[pathlib.Path, ...]] = (pathlib.Path("runs"),)
    """Run folders, or folders that hold some."""
    out: pathlib.Path | None = None
    """The page; by default report.html in the run's folder, or in the first folder given."""

    def run(self, console: Console) -> int:
        """Writes the page."""
        places = [place for folder in self.folders for place in (find_runs(folder) if folder.is_dir() else [folder])]
        if not places:
            raise InvalidInput(f"no runs in {', '.join(map(str, self.folders))}.")
        runs = []
        for place in dict.fromkeys(places):
            try:
                runs.append(StoredRun.read(place))
            except RichObsError as error:
                if len(places) == 1:
                    raise
                plain_console(stderr=True).print(Text(f"left out {place}: {error}"))
        page, *figures = write_report(runs, self.out or self.folders[0] / REPORT)
        beside = f" and {len(figures)} figures beside it" if figures else ""
        console.print(Text(f"wrote {page}{beside}"))
        return 0

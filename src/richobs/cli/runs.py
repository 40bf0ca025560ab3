"""`richobs runs`: which runs there are."""

import dataclasses
import json
import pathlib
from typing import Any

import tyro
from rich.console import Console
from rich.text import Text

from richobs.cli.printing import Trimmed, widened
from richobs.core.errors import InvalidInput, RichObsError
from richobs.runs.store import StoredRun, find_runs
from richobs.show.summary import runs_table


@dataclasses.dataclass(frozen=True)
class RunsCommand:
    """List stored runs with their state."""

    folder: tyro.conf.Positional[pathlib.Path] = pathlib.Path("runs")
    """Where to look, sub-folders included."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self, console: Console) -> int:
        """Prints one line per run."""
        if not self.folder.is_dir():
            raise InvalidInput(f"there is no folder {self.folder}; `richobs learn` makes one.")
        found = [(str(place), readable(place)) for place in find_runs(self.folder)]
        if self.json:
            console.print_json(json.dumps([as_plain(name, run) for name, run in found]))
        elif found:
            widened(console).print(Trimmed(runs_table(found)))
        else:
            console.print(Text(f"no runs in {self.folder}"))
        return 0


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

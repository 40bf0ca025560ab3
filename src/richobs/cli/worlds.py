"""`richobs worlds`: which worlds there are."""

import dataclasses
import inspect
import json

from rich.console import Console
from rich.table import Table
from rich.text import Text

from richobs.cli.gymnasium_options import GymnasiumOptions
from richobs.cli.printing import Trimmed, widened
from richobs.cli.world_options import about, option
from richobs.core.settings import field_docs
from richobs.worlds.gymnasium_ids import PREFIX
from richobs.worlds.registry import WORLDS, config_class


@dataclasses.dataclass(frozen=True)
class WorldsCommand:
    """List the worlds and their parameters."""

    json: bool = False
    """Print JSON instead of tables."""

    def run(self, console: Console) -> int:
        """Prints every world with its parameters, their defaults and what they mean."""
        if self.json:
            content = {
                w: {"about": about(w), "parameters": {f.name: f.default for f in dataclasses.fields(config_class(w))}}
                for w, _ in WORLDS.loadable()
            }
            console.print_json(json.dumps(content))
            return 0
        for world, _ in WORLDS.loadable():
            console.print(Text.assemble((world, "bold"), f": {about(world)}"))
            table = Table(box=None, pad_edge=False)
            for heading in ("  parameter", "default", "meaning"):
                table.add_column(heading, style="dim" if heading == "default" else "")
            meanings = field_docs(config_class(world))
            for f in dataclasses.fields(config_class(world)):
                table.add_row(f"  {option(f.name)}", Text(str(f.default)), Text(meanings.get(f.name, "")))
            widened(console).print(Trimmed(table))
            console.print()
        console.print(Text.assemble((f"{PREFIX}ID", "bold"), f": {inspect.getdoc(GymnasiumOptions)}"))
        return 0

"""`richobs sweep`: settings times seeds, each a run in its own folder."""

import contextlib
import dataclasses
import json
import pathlib
import types
import typing
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.text import Text

from richobs.cli.options import Trimmed, WorkOptions, folder_name, option_name, widened
from richobs.core.errors import InvalidInput
from richobs.core.settings import Settings, field_docs
from richobs.show.summary import plain_console
from richobs.worlds.registry import WORLDS, config_class
from richobs_lab.sweep import sweep_cells
from richobs_lab.sweep.page import PAGE, sweep_plain, sweep_table, sweep_watched
from richobs_lab.sweep.runs import FIXED, MAX_RUNS, RESULTS, plan_cells, seed_list


@dataclasses.dataclass(frozen=True)
class ManyRunsOptions(WorkOptions):
    """Who does the runs, how many there may be, where they are kept, and what is printed."""

    workers: int | None = None
    """Processes, one run each at a time; by default as many as there are CPUs."""
    max_runs: int = MAX_RUNS
    """Refuse more runs than this."""
    out: pathlib.Path | None = None
    """Folder of all runs; by default one under `runs/` named after them. What is finished there is not run again."""
    quiet: bool = False
    """Print nothing while it runs, and only the table at the end."""
    json: bool = False
    """Print JSON instead of a table."""

    @contextlib.contextmanager
    def running(self, name: str, folder: pathlib.Path) -> Iterator[dict[str, Any]]:
        """Yields what `run_cells` is given to do the runs; says where they are kept if they are interrupted."""
        try:
            with self.executor() as executor, sweep_watched(name, quiet=self.quiet or self.json) as watch:
                yield {"workers": self.workers, "executor": executor, "watch": watch}
        except KeyboardInterrupt:
            stopped = f"stopped; what was done is kept in {folder}, and the same command goes on."
            plain_console(stderr=True).print(Text(stopped))
            raise


def _parameters() -> type[Any]:
    """Returns what can be varied as a dataclass of texts: settings of a run, then parameters of all worlds."""
    told = {name: text for name, text in field_docs(Settings).items() if name not in FIXED}
    worlds: dict[str, list[str]] = {}  # which have a parameter
    for world in WORLDS:
        for name, text in field_docs(config_class(world)).items():
            told.setdefault(option_name(name), text)
            worlds.setdefault(option_name(name), []).append(world)
    fields = [
        (
            name,
            Annotated[
                str | None,
                tyro.conf.arg(
                    help=f"{text} Worlds: {', '.join(worlds[name])}." if name in worlds else text,
                    metavar="VALUES",
                    help_behavior_hint="",
                ),
            ],
            dataclasses.field(default=None),
        )
        for name, text in told.items()
    ]
    names = {"__doc__": "What is varied: one value, or several with commas between them."}
    return dataclasses.make_dataclass("Parameters", fields, frozen=True, namespace=names)


if TYPE_CHECKING:
    Parameters = Any
else:
    Parameters = _parameters()


@dataclasses.dataclass(frozen=True)
class SweepCommand:
    """Run every combination of settings with every seed, and write one page about all runs."""

    where: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WORLD")]
    """The world, as `lock` or as `lock/5,noise_bits=4`."""
    parameters: Parameters
    many: ManyRunsOptions
    seeds: str = "0:10"
    """Seeds of the runs: `20` and `0:20` are those from 0 to 19, `3,7` are two."""

    def run(self, console: Console) -> int:
        """Runs what is missing and prints a line per setting; the exit status is 1 if a run failed."""
        given = {name: text for name, text in vars(self.parameters).items() if text is not None}
        varied = {name: _values(name, text) for name, text in given.items()}
        cells = plan_cells(self.where, seed_list(self.seeds), varied, max_runs=self.many.max_runs)
        folder = self.many.out or self._folder(given)
        with self.many.running(self.where, folder) as how:
            done = sweep_cells(cells, folder, **how)
        failed = [result for result in done.results.values() if result.state == "failed"]
        if self.many.json:
            console.print_json(json.dumps(sweep_plain(done)))
        else:
            widened(console).print(Trimmed(sweep_table(done)))
            for result in failed[:5]:
                console.print(Text(f"{result.run} failed: {result.message}", style="red"))
            if len(failed) > 5:
                console.print(Text(f"and {len(failed) - 5:,} more; see {folder / RESULTS}", style="red"))
            console.print(Text(f"\nwrote {folder / PAGE}"))
        return 1 if failed else 0

    def _folder(self, given: Mapping[str, str]) -> pathlib.Path:
        """Returns a folder under `runs/` named after what is varied."""
        whole = "-".join(["sweep", self.where, *map("=".join, given.items()), f"seeds={self.seeds}"])
        return pathlib.Path("runs") / folder_name(whole)


def _values(name: str, text: str) -> list[Any]:
    """Returns the values that a text names, converted where it is a setting of a run; worlds convert their own."""
    parts = [part.strip() for part in text.split(",")]
    hints = typing.get_type_hints(Settings)
    if name == "tuning":
        return [tuple(part.split()) for part in parts]
    if name not in hints:
        return list(parts)
    kinds = typing.get_args(hints[name]) or (hints[name],)
    return [_value(name, part, kinds) for part in parts]


def _value(name: str, text: str, kinds: tuple[Any, ...]) -> Any:
    """Returns one value of a setting."""
    if text.lower() == "none" and types.NoneType in kinds:
        return None
    kind = next(k for k in kinds if k is not types.NoneType)
    try:
        return kind(text)
    except ValueError:
        option = "--" + name.replace("_", "-")
        raise InvalidInput(f"{option}: {text!r} is not {'a whole number' if kind is int else 'a number'}.") from None

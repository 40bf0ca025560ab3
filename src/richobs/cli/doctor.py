"""`richobs doctor`: what is installed and what the machine offers, for bug reports."""

import dataclasses
import importlib.util
import json
import os
import pathlib
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Any

import tyro
from rich.console import Console

import richobs
from richobs.cli.options import print_findings, widened
from richobs.core.arguments import absolute_path
from richobs.core.errors import RichObsError
from richobs.core.executors import usable_cpus
from richobs.runs.store import find_runs

if TYPE_CHECKING:
    from packaging.requirements import Requirement

PACKAGE = "richobs"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")  # one of them tests the pages
PATIENCE = 30.0  # seconds that PyTorch gets to say which GPUs it finds
ASK_TORCH = """
import json, torch
there = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
gpus = [(torch.cuda.get_device_name(i), torch.cuda.get_device_properties(i).total_memory) for i in there]
print(json.dumps({"torch": torch.__version__, "gpus": gpus}))
"""

Rows = list[tuple[str, str, str]]
WRONG = "[bold red]problem[/]"


@dataclasses.dataclass(frozen=True)
class DoctorCommand:
    """Print versions, extras, devices and where runs are kept, for bug reports."""

    folder: tyro.conf.Positional[pathlib.Path] = pathlib.Path("runs")
    """Where runs are kept, sub-folders included."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self, console: Console) -> int:
        """Prints what was found; the exit status is 1 if something that richobs always needs is missing or too old."""
        found = examined(self.folder)
        if self.json:
            console.print_json(json.dumps(found))
        else:
            for title, rows in _told(found):
                console.print(f"[bold]{title}[/]")
                print_findings(widened(console), rows)
        return 1 if any(package["problem"] for package in found["packages"].values()) else 0


def examined(folder: pathlib.Path) -> dict[str, Any]:
    """Returns what `richobs doctor` prints, in plain values.

    Nothing is imported that richobs does not import anyway. PyTorch, where it is installed, is asked for GPUs in a process
    of its own, which gets 30 seconds.

    Args:
        folder: where runs are looked for.
    """
    return {
        "richobs": {"version": richobs.__version__, "folder": _without_home(pathlib.Path(richobs.__file__).parent)},
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "executable": _without_home(pathlib.Path(sys.executable)),
        },
        "sqlite": sqlite3.sqlite_version,
        "packages": _packages(),
        "extras": _extras(),
        "platform": platform.platform(),
        "cores": {"machine": os.cpu_count(), "usable": usable_cpus()},
        "devices": devices(),
        "browser": next(filter(None, map(shutil.which, BROWSERS)), None),
        "temporary": _temporary_space(),
        "runs": _runs(folder),
    }


def devices(patience: float = PATIENCE) -> dict[str, Any]:
    """Returns PyTorch's version and the GPUs that it finds, or why it cannot say.

    Args:
        patience: seconds that it gets; importing PyTorch and starting CUDA takes some.
    """
    found: dict[str, Any] = {"torch": None, "gpus": [], "problem": None}
    if importlib.util.find_spec("torch") is None:
        return found | {"problem": "PyTorch is not installed: pip install 'richobs[gpu]'"}
    command = [sys.executable, "-P", "-c", ASK_TORCH]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)
    except subprocess.TimeoutExpired:
        return found | {"problem": f"PyTorch did not say within {patience:g} seconds which GPUs there are"}
    if said.returncode:
        reason = (said.stderr.strip().splitlines() or [f"exit status {said.returncode}"])[-1]
        return found | {"problem": f"PyTorch cannot be asked: {reason}"}
    told = json.loads(said.stdout.strip().splitlines()[-1])
    return found | {"torch": told["torch"], "gpus": [{"name": name, "bytes": size} for name, size in told["gpus"]]}


def _packages() -> dict[str, dict[str, Any]]:
    """Returns what richobs always needs: version, and what is wrong with it."""
    needed = {each.name: problem_of(each) for each in requirements(PACKAGE)}
    if not needed:  # richobs was not installed as a package
        needed = {"numpy": None, "gymnasium": None}
    return {name: {"version": installed(name), "problem": problem} for name, problem in needed.items()}


def _extras() -> dict[str, dict[str, Any]] | None:
    """Returns what each extra adds, and what is missing; None where richobs was not installed as a package."""
    extras = extra_requirements()
    if extras is None:
        return None
    return {
        name: {
            "packages": {each.name: installed(each.name) for each in needed if each.name != PACKAGE},
            "problem": "; ".join(filter(None, map(problem_of, needed))) or None,
            "install": f"pip install '{PACKAGE}[{name}]'",
        }
        for name, needed in extras.items()
    }


def _temporary_space() -> dict[str, Any]:
    try:
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return {"folder": None, "free_bytes": None, "problem": str(error)}
    return {"folder": _without_home(pathlib.Path(folder)), "free_bytes": free, "problem": None}


def _runs(folder: pathlib.Path) -> dict[str, Any]:
    found: dict[str, Any] = {"folder": str(folder), "there": False, "count": 0, "problem": None}
    try:
        found["folder"] = _without_home(absolute_path(folder))
        return found | {"there": folder.is_dir(), "count": len(find_runs(folder))}
    except (RichObsError, OSError) as error:
        return found | {"count": None, "problem": str(error)}


def _without_home(path: pathlib.Path) -> str:
    """Returns a path with `~` for the home folder, whose name is often that of a person."""
    try:
        return str(pathlib.Path("~") / path.relative_to(pathlib.Path.home()))
    except (ValueError, RuntimeError):  # it lies elsewhere, or there is no home
        return str(path)


def _told(found: dict[str, Any]) -> Iterator[tuple[str, Rows]]:
    """Yields titles, and rows of (name, mark as markup, words) under each."""
    python, cores, space = found["python"], found["cores"], found["temporary"]
    yield (
        "versions",
        [
            ("richobs", "", f"{found['richobs']['version']}, in {found['richobs']['folder']}"),
            ("Python", "", f"{python['version']} ({python['implementation']}), {python['executable']}"),
            ("SQLite", "", found["sqlite"]),
            *(
                (name, WRONG if package["problem"] else "", package["problem"] or str(package["version"]))
                for name, package in found["packages"].items()
            ),
        ],
    )
    yield "extras", _extra_rows(found["extras"])
    yield (
        "machine",
        [
            ("platform", "", found["platform"]),
            ("cores", "", f"{cores['machine']}, of which this process may use {cores['usable']}"),
            *_device_rows(found["devices"]),
            ("browser", "", found["browser"] or f"none of {', '.join(BROWSERS)}"),
            (
                "temporary space",
                WRONG if space["problem"] else "",
                space["problem"] or f"{_size(space['free_bytes'])} free in {space['folder']}",
            ),
            ("runs", WRONG if found["runs"]["problem"] else "", _kept(found["runs"])),
        ],
    )


def _extra_rows(extras: dict[str, Any] | None) -> Rows:
    if extras is None:
        return [("", "", "not known: richobs is imported from a folder and was not installed with pip")]
    return [
        (name, "[yellow]missing[/]", f"{extra['install']} ({extra['problem']})")
        if extra["problem"]
        else (name, "[green]installed[/]", ", ".join(f"{p} {version}" for p, version in extra["packages"].items()))
        for name, extra in extras.items()
    ]


def _device_rows(found: dict[str, Any]) -> Rows:
    if found["problem"] or not found["gpus"]:
        return [("GPU", "", found["problem"] or f"PyTorch {found['torch']} finds none")]
    names = (f"cuda:{i} is {gpu['name']} with {_size(gpu['bytes'])}" for i, gpu in enumerate(found["gpus"]))
    return [("GPU", "", f"{name} (PyTorch {found['torch']})") for name in names]


def _kept(runs: dict[str, Any]) -> str:
    if runs["problem"]:
        return f"{runs['folder']}: {runs['problem']}"
    if not runs["there"]:
        return f"{runs['folder']}: not there yet; `richobs learn` makes it"
    return f"{runs['folder']}: {runs['count']:,} run{'' if runs['count'] == 1 else 's'}"


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.3g} GiB"


def installed(name: str) -> str | None:
    """Returns the version of an installed package, or None; the package is not imported."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def requirements(name: str, extra: str = "") -> list["Requirement"]:
    """Returns what an installed package needs here, with an extra or without any.

    Args:
        name: of the package; one that is not installed needs nothing.
        extra: its requirements are added to those that the package always has.
    """
    try:
        lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []
    needed = [each for each in map(_requirement, lines) if each is not None]
    return [each for each in needed if each.marker is None or each.marker.evaluate({"extra": extra})]


def extra_requirements() -> "dict[str, list[Requirement]] | None":
    """Returns what each extra of richobs adds; None where richobs was not installed as a package."""
    from packaging.utils import canonicalize_name  # needed here only

    try:
        names = metadata.metadata(PACKAGE).get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        return None
    always = {str(each) for each in requirements(PACKAGE)}
    return {
        name: [each for each in requirements(PACKAGE, name) if str(each) not in always]
        for name in sorted(names, key=canonicalize_name)
    }


def problem_of(needed: "Requirement", seen: frozenset[str] = frozenset()) -> str | None:
    """Returns why a requirement is not met, or None; extras that it names are looked at too."""
    version = installed(needed.name)
    if version is None:
        return f"{needed.name} is not installed"
    if not needed.specifier.contains(version, prereleases=True):
        return f"{needed.name} {version} is installed, {needed.specifier} is needed"
    if str(needed) in seen:
        return None
    inner = {str(each): each for extra in needed.extras for each in requirements(needed.name, extra)}
    problems = (problem_of(each, seen | {str(needed)}) for each in inner.values())
    return next((problem for problem in problems if problem is not None), None)


def _requirement(line: str) -> "Requirement | None":
    from packaging.requirements import InvalidRequirement, Requirement  # needed here only

    try:
        return Requirement(line)
    except InvalidRequirement:  # of somebody else's package
        return None

"""Tries an installed richobs from outside of any checkout; `release.check` runs it in fresh environments.

    python smoke.py VERSION

Every command writes into the folder that it is run in. What must be installed with the package is used at least once:
templates of all pages, what similar worlds needed, and the formulas of the paper.
"""

import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

NEEDED_ELSEWHERE = ("richobs.__main__",)  # modules that do something when they are imported
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
    "OMP_NUM_THREADS": "1",
    "COLUMNS": "200",
}


class Wrong(Exception):
    """Something that was promised is not so."""


def command(*arguments: str, script: bool = False) -> str:
    """Runs one command of richobs and returns what it printed.

    Args:
        *arguments: of the command.
        script: run the script `richobs`, not `python -m richobs`.
    """
    programs = [sys.executable, "-m", "richobs"]
    if script:
        programs = [str(Path(sys.executable).with_name("richobs.exe" if sys.platform == "win32" else "richobs"))]
    done = subprocess.run([*programs, *arguments], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    print(f"  richobs {' '.join(arguments)}: exit status {done.returncode}", flush=True)
    if done.returncode:
        raise Wrong(f"richobs {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def check(fact: bool, what: str) -> None:
    """Raises where something is not so."""
    if not fact:
        raise Wrong(what)


def check_page(file: str, *words: str) -> None:
    """Looks at a page: it must be whole, with its style inside, and hold some words."""
    text = Path(file).read_text(encoding="utf-8")
    check(text.rstrip().endswith("</html>") and "<style>" in text, f"{file} is not a whole page")
    for word in words:
        check(word in text, f"{file} does not hold {word!r}")


def check_package(version: str) -> None:
    """Imports every module of the package from this environment."""
    richobs = importlib.import_module("richobs")
    folder = Path(richobs.__file__ or "").resolve().parent
    check(
        folder.is_relative_to(Path(sys.prefix).resolve()), f"richobs is imported from {folder}, not from {sys.prefix}"
    )
    check(richobs.__version__ == version, f"version {richobs.__version__} is installed, {version} was built")
    check((folder / "py.typed").exists(), "py.typed is missing")
    names = [each.name for each in pkgutil.walk_packages(richobs.__path__, "richobs.")]
    for name in names:
        if name not in NEEDED_ELSEWHERE:
            importlib.import_module(name)
    print(f"  {len(names)} modules import", flush=True)


def check_commands(version: str) -> None:
    """Runs commands as a user would."""
    check(command("--version", script=True) == f"richobs {version}\n", "the script says another version")
    check("lock" in json.loads(command("worlds", "--json")), "there is no lock")
    check("Q* is in the class" in command("learners", "betting"), "betting does not say what it assumes")
    check("similar worlds needed" in command("plan", "lock", "--learner", "certified"), "measured.json is missing")

    said = command("learn", "lock", "--report", "--out", "runs/lock", script=True)
    check(said.startswith("With probability at least 0.95"), "learn prints no claim")
    check_page("runs/lock/report.html", "lock/5", "With probability at least 0.95")
    command("learn", "lock/3", "--learner", "lsvee", "--quiet", "--out", "runs/printed")
    for run in ("lock", "printed"):
        command("verify", f"runs/{run}/certificate.json")
    command("report", "runs", "--out", "all.html")
    check_page("all.html", "lock/5", "lock/3")
    command("value", "lock/5", "--policy", "runs/lock/policy.npz", "--threshold", "0.1")
    command("check", "lock/5")

    command("sweep", "bandit", "--seeds", "0:2", "--workers", "1", "--out", "sweep")
    check_page("sweep/sweep.html", "bandit")
    command("arena", "--learners", "betting,uniform-allocation", "--worlds", "bandit", "--seeds", "1", "--out", "arena")
    check_page("arena/arena.html", "uniform-allocation")
    command("paper", "bias-accumulation", "--fast", "--out", "paper")
    check_page("paper/index.html", "<math")

    found = json.loads(command("doctor", "--json"))
    check(found["runs"]["count"] == 2, f"doctor finds {found['runs']['count']} runs, not 2")
    check(all(package["problem"] is None for package in found["packages"].values()), "a package has a problem")
    check("ray" in found["extras"], "the extras are not in the metadata")


def main() -> int:
    """Tries everything; returns 1 where something is wrong."""
    try:
        check_package(sys.argv[1])
        check_commands(sys.argv[1])
    except Wrong as wrong:
        print(wrong, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

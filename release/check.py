"""Builds the sdist and the wheel, installs each into a fresh environment, and tries it outside of the checkout.

    python -m release.check [--python PYTHON ...] [--out FOLDER] [--tests]

Needs `build`, `uv` and `pipx` (extra `dev`) and an index that pip can reach. With several Pythons, each gets its own
environments. `--tests` also unpacks the sdist and runs tests of it there, with the extra `test`. The packages are left in
the folder.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = (".json", ".html", ".css", ".js", ".typed", ".png")  # files that are no code and must be installed
NOT_PACKED = (".gitignore", ".git", ".github")  # what a packer leaves out or adds by itself
TESTS = ("tests/test_architecture.py", "tests/test_bounds.py", "tests/test_docs.py", "tests/test_release.py")


class Failed(Exception):
    """A step that did not end well."""


def call(*words: str | Path, cwd: Path) -> None:
    """Runs a program that sees nothing of this environment's Python settings.

    Raises:
        Failed: its exit status is not 0.
    """
    print("+", *words, flush=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    status = subprocess.run([str(word) for word in words], cwd=cwd, env=env, check=False).returncode
    if status:
        raise Failed(f"exit status {status}: {' '.join(str(word) for word in words)}")


def build(folder: Path) -> tuple[Path, Path]:
    """Builds the sdist from the checkout and the wheel from the sdist; returns both."""
    call(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=ROOT)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def missing_from_wheel(wheel: Path) -> list[str]:
    """Returns files of the package that a wheel lacks."""
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    source = ROOT / "src"
    files = [f.relative_to(source).as_posix() for f in source.rglob("*") if f.suffix in (".py", *DATA)]
    return sorted(set(files) - packed)


def missing_from_sdist(sdist: Path) -> list[str]:
    """Returns files of the repository that an sdist lacks; none where git does not know them."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    files = {name for name in listed.splitlines() if (ROOT / name).exists() and not name.startswith(NOT_PACKED)}
    return sorted(files - packed)


def environment(python: str, folder: Path, *packages: str | Path) -> Path:
    """Makes a fresh environment with packages and returns its Python."""
    call(python, "-m", "venv", folder, cwd=folder.parent)
    inside = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    call(inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages, cwd=folder.parent)
    return inside


def try_package(python: str, package: Path, version: str) -> None:
    """Installs a package into a fresh environment and runs `smoke.py` there, in an empty folder."""
    with tempfile.TemporaryDirectory(prefix="richobs-release-") as name:
        folder = Path(name)
        inside = environment(python, folder / "env", package)
        (folder / "work").mkdir()
        shutil.copy2(ROOT / "release" / "smoke.py", folder)
        call(inside, folder / "smoke.py", version, cwd=folder / "work")


def try_without_installing(package: Path) -> None:
    """Runs the README's first command as `uvx` and `pipx run` do, with nothing installed before."""
    with tempfile.TemporaryDirectory(prefix="richobs-release-") as name:
        folder = Path(name)
        uvx = ("-m", "uv", "--quiet", "tool", "run", "--python", sys.executable, "--from", package)
        pipx = ("-m", "pipx", "run", "--quiet", "--python", sys.executable, "--spec", package)
        for runner, out in ((uvx, "uvx"), (pipx, "pipx")):
            call(sys.executable, *runner, "richobs", "learn", "lock", "--quiet", "--out", out, cwd=folder)


def try_tests(python: str, sdist: Path, tests: Sequence[str]) -> None:
    """Unpacks an sdist, installs it from there with the extra `test`, and runs tests of it."""
    with tempfile.TemporaryDirectory(prefix="richobs-release-") as name:
        folder = Path(name)
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        unpacked = folder / sdist.name.removesuffix(".tar.gz")
        inside = environment(python, folder / "env", f"{unpacked}[test]")
        call(inside, "-m", "pytest", "-p", "no:cacheprovider", *tests, cwd=unpacked)


def main(arguments: Sequence[str] | None = None) -> int:
    """Does all of it; returns 1 where something failed."""
    parser = argparse.ArgumentParser(prog="python -m release.check", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="Pythons to try, by name or path")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "dist", help="folder for the packages; older ones there are removed"
    )
    parser.add_argument("--tests", action="store_true", help="also run tests from the unpacked sdist")
    asked = parser.parse_args(arguments)
    out: Path = asked.out.resolve()
    for old in (*out.glob("richobs-*.tar.gz"), *out.glob("richobs-*.whl")):
        old.unlink()
    try:
        sdist, wheel = build(out)
        version = sdist.name.removeprefix("richobs-").removesuffix(".tar.gz")
        for package, missing in ((wheel, missing_from_wheel(wheel)), (sdist, missing_from_sdist(sdist))):
            if missing:
                raise Failed(f"{package.name} lacks {', '.join(missing[:20])}")
        for python in asked.python:
            for package in (wheel, sdist):
                try_package(python, package, version)
            if asked.tests:
                try_tests(python, sdist, TESTS)
        try_without_installing(wheel)
    except Failed as failed:
        print(failed, file=sys.stderr)
        return 1
    print(f"{sdist.name} and {wheel.name} install and work with {', '.join(asked.python)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Writes release/licences.md: the licences of everything that richobs needs, read from the metadata of what is installed.

    python -m release.licences

Needs all extras in the environment. What an extra needs is followed to the end, so the table of an extra holds more than
pyproject.toml names. Licences are as packages declare them: an expression, else a classifier, else the words of the field.
"""

import re
import sys
from importlib import metadata
from pathlib import Path

from packaging.utils import canonicalize_name

from richobs.cli.doctor import PACKAGE, extra_requirements, requirements

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "release" / "licences.md"
GPL = re.compile(r"GPL|General Public Licen[cs]e", re.IGNORECASE)
LESSER = re.compile(
    r"LGPL\S*|(GNU )?Lesser General Public Licen[cs]e|GNU Library or Lesser General Public License[^,]*", re.IGNORECASE
)
LINKING = re.compile(r"GPL-3\.0\S* WITH GCC-exception-3\.1", re.IGNORECASE)  # of libraries that a compiler adds
LONGEST = 60  # characters of a field that count as the name of a licence; more is its text
BEGIN = """# Licences

richobs is under the MIT licence (`LICENSE`). It contains no code of the packages below; installing it installs
them. Licences are those that the packages declare. `python -m release.licences` writes this page from what is installed,
here with Python {python} on {platform}. What a package needs is followed to the end. On other platforms, and with other
versions, a package may need others.

**Nothing that richobs itself needs is under the GPL.** Two extras name it. `atari` needs ale-py, the Arcade Learning
Environment, which is under the GPL. `docs` needs docutils, most of which is in the public domain or under the BSD licence;
the part under the GPL is an Emacs mode, which is not installed. A PyTorch built for CUDA also installs libraries of NVIDIA
under licences of their own.
"""


def everything_for(extra: str = "") -> dict[str, str]:
    """Returns all packages that richobs needs, with one extra or without any, and their licences.

    Raises:
        LookupError: a package is not installed.
    """
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(PACKAGE, extra)]
    while waiting:
        name, with_extra = waiting.pop()
        if (name, with_extra) in seen:
            continue
        seen.add((name, with_extra))
        if name != PACKAGE:
            found[name] = licence_of(name)
        for needed in requirements(name, with_extra):
            waiting += [(canonicalize_name(needed.name), each) for each in ("", *needed.extras)]
    return dict(sorted(found.items()))


def licence_of(name: str) -> str:
    """Returns the licence that a package declares.

    Raises:
        LookupError: it is not installed.
    """
    try:
        told = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        raise LookupError(f"{name} is not installed.") from None
    if expression := told.get_all("License-Expression"):
        return str(expression[0])
    classifiers = [
        each.rpartition(" :: ")[2] for each in told.get_all("Classifier") or [] if each.startswith("License")
    ]
    if named := [each for each in classifiers if each != "OSI Approved"]:
        return ", ".join(named)
    first = str((told.get_all("License") or [""])[0]).strip().partition("\n")[0]
    return first if 0 < len(first) <= LONGEST else "not declared; see its files"


def is_gpl(licence: str) -> bool:
    """Whether a licence is the GPL or the AGPL; the LGPL is neither, nor what GCC adds to every program."""
    return bool(GPL.search(LESSER.sub("", LINKING.sub("", licence))))


def page() -> str:
    """Returns the page.

    Raises:
        LookupError: something is not installed.
    """
    core = everything_for()
    extras = extra_requirements()
    if extras is None:
        raise LookupError(f"{PACKAGE} is not installed.")
    parts = [
        BEGIN.format(python=".".join(map(str, sys.version_info[:2])), platform=sys.platform),
        "## The package itself\n",
        _table(core),
    ]
    for extra in extras:
        more = {name: licence for name, licence in everything_for(extra).items() if name not in core}
        warning = " (GPL)" if any(map(is_gpl, more.values())) else ""
        parts += [f"\n## Extra `{extra}`{warning}\n", _table(more) if more else "Nothing besides."]
    return "\n".join(parts) + "\n"


def _table(packages: dict[str, str]) -> str:
    rows = [f"| {name} | {licence.replace('|', '/')} |" for name, licence in packages.items()]
    return "\n".join(["| package | licence |", "|---|---|", *rows])


def main() -> int:
    """Writes the page; returns 1 where something is not installed."""
    try:
        text = page()
    except LookupError as missing:
        print(f"{missing.args[0]} Install all extras first; pyproject.toml lists them.", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What an installed package needs, read from its metadata; nothing is imported to find out."""

from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

PACKAGE = "richobs"


def installed(name: str) -> str | None:
    """Returns the version of an installed package, or None; the package is not imported."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def requirements(name: str, extra: str = "") -> list[Requirement]:
    """Returns what an installed package needs here, with an extra or without any.

    Args:
        name: of the package; one that is not installed needs nothing.
        extra: its requirements are added to those that the package always has.
    """
    try:
        lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []
    return [each for each in map(_requirement, lines) if each is not None and _applies(each, extra)]


def extra_requirements() -> dict[str, list[Requirement]] | None:
    """Returns what each extra of richobs adds; None where richobs was not installed as a package."""
    try:
        names = metadata.metadata(PACKAGE).get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        return None
    always = {str(each) for each in requirements(PACKAGE)}
    return {
        name: [each for each in requirements(PACKAGE, name) if str(each) not in always]
        for name in sorted(names, key=canonicalize_name)
    }


def problem_of(needed: Requirement, seen: frozenset[str] = frozenset()) -> str | None:
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


def _requirement(line: str) -> Requirement | None:
    try:
        return Requirement(line)
    except InvalidRequirement:  # of somebody else's package
        return None


def _applies(needed: Requirement, extra: str) -> bool:
    return needed.marker is None or needed.marker.evaluate({"extra": extra})

"""Names that lead to code: learners, worlds, commands and views, those of this package and those that other packages add.

A package adds a name by an entry point, for instance under `[project.entry-points."richobs.learners"]` in its
pyproject.toml. Entry points are looked up when a name is not one of ours, or when all names are listed. What a name leads
to is imported when it is loaded, never before.
"""

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager
from importlib.metadata import entry_points
from typing import Any, ClassVar, cast

from richobs.core.errors import InvalidInput


class Registry(MutableMapping[str, str]):
    """Where each name is defined, as `module` or `module:attribute`; our names come first, others by alphabet.

    A name of ours cannot be taken by another package: its entry point of that name is passed over.
    """

    def __init__(self, group: str, own: Mapping[str, str]):
        """Takes our names.

        Args:
            group: of the entry points, such as `richobs.learners`.
            own: where each of our names is defined.
        """
        self.group = group
        self._own = dict(own)

    @functools.cached_property
    def _added(self) -> dict[str, str]:
        """What other packages add."""
        return {point.name: point.value for point in sorted(entry_points(group=self.group))}

    def __getitem__(self, name: str) -> str:
        return self._own[name] if name in self._own else self._added[name]

    def __setitem__(self, name: str, where: str) -> None:
        self._own[name] = where

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in self._added if name not in self._own)

    def __len__(self) -> int:
        return len(self._own.keys() | self._added.keys())

    def is_own(self, name: str) -> bool:
        """Returns whether a name is one of ours; no entry point is looked up."""
        return name in self._own

    def load(self, name: str) -> Any:
        """Returns what a name leads to: the attribute that its entry names, or the module.

        Raises:
            InvalidInput: another package adds the name, and importing what it names fails.
        """
        module, _, attribute = self[name].partition(":")
        try:
            found = importlib.import_module(module)
            return getattr(found, attribute) if attribute else found
        except Exception as error:
            if self.is_own(name):
                raise
            where = f"{self[name]} (entry point {name!r} in the group {self.group!r})"
            raise InvalidInput(f"another package adds {where}, which cannot be loaded: {error!r:.300}") from error

    def loadable(self, *, own: bool = False) -> Iterator[tuple[str, Any]]:
        """Yields each name and what it leads to; what another package adds and cannot be loaded is passed over.

        Args:
            own: our names alone.
        """
        for name in tuple(self._own if own else self):
            try:
                yield name, self.load(name)
            except InvalidInput:
                continue


VIEWS = Registry(
    "richobs.views",
    {
        "outcome": "richobs.show.summary:outcome_html",
        "certificate": "richobs.show.summary:certificate_html",
        "plan": "richobs.show.summary:plan_html",
        "waiting": "richobs.show.terminal:waiting",
    },
)
Told = Callable[[int, int], None]  # called with how much is done, and how much there is


def waiting(what: str) -> AbstractContextManager[Told]:
    """Returns a context whose function shows, on a terminal or in a notebook, how far something is that takes long."""
    return cast("AbstractContextManager[Told]", VIEWS.load("waiting")(what))


class InNotebook:
    """Gives a class the HTML that a notebook shows."""

    view: ClassVar[str]  # a name of VIEWS

    def _repr_html_(self) -> str:
        return str(VIEWS.load(self.view)(self))

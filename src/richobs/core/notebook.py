"""What people see of answers, and while they wait: the room `show` draws it, and is loaded when it is needed."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import ClassVar, cast

from richobs.core.registry import Registry

VIEWS = Registry(
    "richobs.views",
    {
        "outcome": "richobs.show.notebook:outcome_html",
        "certificate": "richobs.show.notebook:certificate_html",
        "plan": "richobs.show.notebook:plan_html",
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

"""Answers that show themselves in a notebook: the room `show` draws them, and is loaded when a notebook asks."""

from typing import ClassVar

from richobs.core.registry import Registry

VIEWS = Registry(
    "richobs.views",
    {
        "outcome": "richobs.show.notebook:outcome_html",
        "certificate": "richobs.show.notebook:certificate_html",
        "plan": "richobs.show.notebook:plan_html",
    },
)


class InNotebook:
    """Gives a class the HTML that a notebook shows."""

    view: ClassVar[str]  # a name of VIEWS

    def _repr_html_(self) -> str:
        return str(VIEWS.load(self.view)(self))

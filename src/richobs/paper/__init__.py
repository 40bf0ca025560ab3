"""Every numbered statement of [KAL16] as something to run: one module per statement."""

import importlib
from typing import cast

from richobs.errors import InvalidInput
from richobs.paper.base import Check, Conclusion, Plain, Scale, Statement

__all__ = ["STATEMENTS", "Check", "Conclusion", "Plain", "Scale", "Statement", "load"]

STATEMENTS: dict[str, str] = {  # name -> module, in the paper's order
}


def load(name: str) -> Statement:
    """Returns the module of a statement; only then is it imported."""
    if name not in STATEMENTS:
        raise InvalidInput(f"there is no statement {name!r}. There are: {', '.join(STATEMENTS)}.")
    return cast("Statement", importlib.import_module(STATEMENTS[name]))

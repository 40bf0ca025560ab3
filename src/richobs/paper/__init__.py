"""Every numbered statement of [KAL16] as something to run: one module per statement."""

import importlib
from typing import cast

from richobs.errors import InvalidInput
from richobs.paper.base import Check, Conclusion, Plain, Scale, Statement

__all__ = ["STATEMENTS", "Check", "Conclusion", "Plain", "Scale", "Statement", "load"]

STATEMENTS: dict[str, str] = {  # name -> module, in the paper's order
    "lower-bounds": "richobs.paper.lower_bounds",
    "pac": "richobs.paper.pac",
    "special-cases": "richobs.paper.special_cases",
    "undirected-exploration": "richobs.paper.undirected_exploration",
    "td-loss": "richobs.paper.td_loss",
    "squared-loss-deviation": "richobs.paper.deviation",
    "estimation-error": "richobs.paper.estimation",
    "bias-accumulation": "richobs.paper.bias",
    "instantaneous-risk": "richobs.paper.risk",
    "td-elim": "richobs.paper.td_elim",
    "consensus": "richobs.paper.consensus",
    "dfs-learn": "richobs.paper.dfs_learn",
    "v-star": "richobs.paper.v_star",
    "on-demand": "richobs.paper.on_demand",
}


def load(name: str) -> Statement:
    """Returns the module of a statement; only then is it imported."""
    if name not in STATEMENTS:
        raise InvalidInput(f"there is no statement {name!r}. There are: {', '.join(STATEMENTS)}.")
    return cast("Statement", importlib.import_module(STATEMENTS[name]))

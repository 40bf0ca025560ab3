"""Every numbered statement of [KAL16] as something to run: one module per statement."""

import importlib
from typing import cast

from richobs.core.errors import InvalidInput
from richobs.paper.base import Check, Conclusion, Judgement, Plain, Scale, Statement, Verdict

__all__ = ["STATEMENTS", "Check", "Conclusion", "Judgement", "Plain", "Scale", "Statement", "Verdict", "load"]

STATEMENTS: dict[str, str] = {  # name -> module, in the paper's order
    "lower-bounds": "richobs.paper.statements.lower_bounds",
    "pac": "richobs.paper.statements.pac",
    "special-cases": "richobs.paper.statements.special_cases",
    "undirected-exploration": "richobs.paper.statements.undirected_exploration",
    "td-loss": "richobs.paper.statements.td_loss",
    "squared-loss-deviation": "richobs.paper.statements.deviation",
    "estimation-error": "richobs.paper.statements.estimation",
    "bias-accumulation": "richobs.paper.statements.bias",
    "instantaneous-risk": "richobs.paper.statements.risk",
    "td-elim": "richobs.paper.statements.td_elim",
    "consensus": "richobs.paper.statements.consensus",
    "dfs-learn": "richobs.paper.statements.dfs_learn",
    "v-star": "richobs.paper.statements.v_star",
    "on-demand": "richobs.paper.statements.on_demand",
}


def load(name: str) -> Statement:
    """Returns the module of a statement; only then is it imported."""
    if name not in STATEMENTS:
        raise InvalidInput(f"there is no statement {name!r}. There are: {', '.join(STATEMENTS)}.")
    return cast("Statement", importlib.import_module(STATEMENTS[name]))

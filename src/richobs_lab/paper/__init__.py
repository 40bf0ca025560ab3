"""Every numbered statement of [KAL16] as something to run: one module per statement."""

import importlib
from typing import cast

from richobs import InvalidInput
from richobs_lab.paper.base import Check, Conclusion, Judgement, Plain, Scale, Statement, Verdict

__all__ = ["STATEMENTS", "Check", "Conclusion", "Judgement", "Plain", "Scale", "Statement", "Verdict", "load"]

STATEMENTS: dict[str, str] = {  # name -> module, in the paper's order
    "lower-bounds": "richobs_lab.paper.statements.lower_bounds",
    "pac": "richobs_lab.paper.statements.pac",
    "special-cases": "richobs_lab.paper.statements.special_cases",
    "undirected-exploration": "richobs_lab.paper.statements.undirected_exploration",
    "remarks": "richobs_lab.paper.statements.remarks",
    "td-loss": "richobs_lab.paper.statements.td_loss",
    "squared-loss-deviation": "richobs_lab.paper.statements.deviation",
    "estimation-error": "richobs_lab.paper.statements.estimation",
    "bias-accumulation": "richobs_lab.paper.statements.bias",
    "instantaneous-risk": "richobs_lab.paper.statements.risk",
    "td-elim": "richobs_lab.paper.statements.td_elim",
    "consensus": "richobs_lab.paper.statements.consensus",
    "dfs-learn": "richobs_lab.paper.statements.dfs_learn",
    "v-star": "richobs_lab.paper.statements.v_star",
    "on-demand": "richobs_lab.paper.statements.on_demand",
}


def load(name: str) -> Statement:
    """Returns the module of a statement; only then is it imported."""
    if name not in STATEMENTS:
        raise InvalidInput(f"there is no statement {name!r}. There are: {', '.join(STATEMENTS)}.")
    return cast("Statement", importlib.import_module(STATEMENTS[name]))

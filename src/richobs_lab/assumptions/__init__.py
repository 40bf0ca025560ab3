"""Whether the paper's assumptions hold: judged exactly where the process is known, tested from outside where it is not."""

from richobs_lab.assumptions.exact import AssumptionCheck, AssumptionReport, check_assumptions
from richobs_lab.assumptions.statistical import audit

__all__ = ["AssumptionCheck", "AssumptionReport", "audit", "check_assumptions"]

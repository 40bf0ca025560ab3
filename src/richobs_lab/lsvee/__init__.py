"""LSVEE, one algorithm box of [KAL16] per file; `Departs from [KAL16]` marks what is not as printed."""

from richobs_lab.lsvee.algorithm import lsvee
from richobs_lab.lsvee.constants import PaperConstants, SearchConstants
from richobs_lab.lsvee.learner import Lsvee, LsveeTuning, SamplePlan

__all__ = ["Lsvee", "LsveeTuning", "PaperConstants", "SamplePlan", "SearchConstants", "lsvee"]

"""LSVEE, one algorithm box of [KAL16] per file; `Departs from [KAL16]` marks what is not as printed."""

from richobs.learners.lsvee.algorithm import lsvee
from richobs.learners.lsvee.constants import PaperConstants, SearchConstants
from richobs.learners.lsvee.learner import Lsvee, LsveeTuning, SamplePlan

__all__ = ["Lsvee", "LsveeTuning", "PaperConstants", "SamplePlan", "SearchConstants", "lsvee"]

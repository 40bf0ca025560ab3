"""LSVEE as printed, one algorithm box of [KAL16] per file."""

from richobs.lsvee.algorithm import lsvee
from richobs.lsvee.constants import PaperConstants, SearchConstants

__all__ = ["PaperConstants", "SearchConstants", "lsvee"]

"""OLIVE as printed: optimism, average Bellman errors, elimination; transitions may be random."""

from richobs.learners.olive.algorithm import Olive, olive
from richobs.learners.olive.constants import OliveConstants

__all__ = ["Olive", "OliveConstants", "olive"]

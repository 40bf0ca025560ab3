"""OLIVE as printed: optimism, average Bellman errors, elimination; transitions may be random."""

from richobs.learners.olive.algorithm import olive
from richobs.learners.olive.constants import OliveConstants
from richobs.learners.olive.learner import Olive

__all__ = ["Olive", "OliveConstants", "olive"]

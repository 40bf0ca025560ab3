"""Learning in a family with unknown parameters: likelihood over the box, regret over cells (docs/models.md)."""

from richobs.learners.families.learner import Families
from richobs.learners.families.search import Tuning, families

__all__ = ["Families", "Tuning", "families"]

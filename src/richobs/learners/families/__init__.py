"""Learning in a family with unknown parameters: likelihood over the box, regret over cells (docs/models.md)."""

from richobs.learners.families.learner import Families

__all__ = ["Families"]

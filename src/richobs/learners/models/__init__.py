"""Learning in a family of models: elimination by likelihood, certificates by planning (docs/models.md)."""

from richobs.learners.models.learner import Models
from richobs.learners.models.search import Tuning, models

__all__ = ["Models", "Tuning", "models"]

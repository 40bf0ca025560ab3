"""Learning in a family of models: elimination by likelihood, certificates by planning (docs/models.md)."""

from richobs.learners.models.learner import Models
from richobs.learners.models.search import models
from richobs.learners.models.state import Tuning

__all__ = ["Models", "Tuning", "models"]

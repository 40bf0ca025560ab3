"""Learning in a family of models: elimination by likelihood, certificates by planning (docs/models.md)."""

from richobs.learners.models.learner import Models

__all__ = ["Models"]

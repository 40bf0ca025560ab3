"""Linear values, certified without a list of weights (docs/linear.md)."""

from richobs.learners.linear.learner import LinearValues

__all__ = ["LinearValues"]

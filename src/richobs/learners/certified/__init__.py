"""Certified LSVEE: the same promise at any sample size (docs/certified.md)."""

from richobs.learners.certified.learner import Certified
from richobs.learners.certified.search import certified
from richobs.learners.certified.state import Bounds, Tuning

__all__ = ["Bounds", "Certified", "Tuning", "certified"]

"""Certified LSVEE: the same promise at any sample size (docs/certified.md)."""

from richobs_lab.certified.learner import Certified
from richobs_lab.certified.search import certified
from richobs_lab.certified.state import Bounds, Tuning

__all__ = ["Bounds", "Certified", "Tuning", "certified"]

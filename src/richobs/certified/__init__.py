"""Certified LSVEE: the same promise at any sample size (docs/certified.md)."""

from richobs.certified.search import Tuning, certified

__all__ = ["Tuning", "certified"]

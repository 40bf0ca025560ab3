"""Certified LSVEE: the same promise at any sample size (docs/certified.md)."""

from richobs.certified.search import RESERVE, Fallback, Tuning, certified

__all__ = ["RESERVE", "Fallback", "Tuning", "certified"]

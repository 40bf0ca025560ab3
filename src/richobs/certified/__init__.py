"""Certified LSVEE: the same promise at any sample size (docs/certified.md)."""

from richobs.certified.search import NARROWER, RESERVE, Fallback, Tuning, certified

__all__ = ["NARROWER", "RESERVE", "Fallback", "Tuning", "certified"]

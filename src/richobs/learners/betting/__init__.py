"""The betting search: bets that Q* cannot win, on every level of every episode (docs/betting.md)."""

from richobs.learners.betting.learner import Betting
from richobs.learners.betting.search import Tuning, betting

__all__ = ["Betting", "Tuning", "betting"]

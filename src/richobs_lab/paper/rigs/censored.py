"""Episodes of runs, some of which were not done when they were stopped."""

import math
import statistics
from collections.abc import Sequence


def median(episodes: Sequence[int | None]) -> float:
    """Returns the median, None standing for a run that was not done; infinite where half of them or more were not."""
    return float(statistics.median(math.inf if e is None else e for e in episodes))


def median_words(episodes: Sequence[int | None]) -> str:
    """Returns the median in words."""
    middle = median(episodes)
    return f"{middle:.4g}" if math.isfinite(middle) else "not within the cap"

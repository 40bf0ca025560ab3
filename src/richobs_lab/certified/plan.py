"""What a certified search may need: what surely suffices, and what similar worlds needed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from richobs.learners.base import Measured, PlanRow, similar_rows


@dataclass(frozen=True)
class CertifiedPlan:
    """What surely suffices, and what similar worlds needed."""

    max_episodes: int | None  # with probability 1 - delta; None where n_states is unknown or nothing is guaranteed
    similar: tuple[Measured, ...]  # the nearest first
    title = "certified: a search that fixes no size in advance"

    def rows(self) -> Iterator[PlanRow]:
        """Yields the plan line by line."""
        yield from similar_rows(self.similar)
        if self.max_episodes is not None:
            yield PlanRow("worst case", "surely enough", self.max_episodes, "episodes", "docs/certified.md, Theorem 2")

    def as_json(self) -> dict[str, Any]:
        """Returns the plan as plain values."""
        return {"max_episodes": self.max_episodes, "similar": [m._asdict() for m in self.similar]}

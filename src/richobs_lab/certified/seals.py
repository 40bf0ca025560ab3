"""Sealed batches: data that serve a claim, and what had to be fixed before they were seen."""

from typing import Generic, NamedTuple, TypeVar

from richobs.core.errors import Overspent
from richobs.core.queries import Answer, Engine, Query

Fixed = TypeVar("Fixed")


class Opened(NamedTuple, Generic[Fixed]):
    """A batch that was drawn, with what was fixed before."""

    fixed: Fixed
    answer: Answer


class Sealed(Generic[Fixed]):
    """A batch that serves claims.

    It is a query that was not asked yet. The draw is made when everything that must not depend on it is handed over,
    so a reference, a size or a choice of levels that looked at the batch cannot be written.
    """

    def __init__(self, query: Query):
        self._query: Query | None = query

    def open(self, engine: Engine, fixed: Fixed) -> Opened[Fixed]:
        """Fixes what was handed over, then draws.

        Raises:
            Overspent: the batch was opened before.
        """
        if self._query is None:
            raise Overspent(
                "a sealed batch opens once; claims about the same data need their shares from that opening."
            )
        query, self._query = self._query, None
        return Opened(fixed, engine.ask(query))

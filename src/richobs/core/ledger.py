"""Where the episodes went: every one is charged to (phase, purpose, path)."""

from collections.abc import Iterator
from typing import NamedTuple

from richobs.core.errors import EpisodeLimit, RunStopped
from richobs.core.types import Path


class Entry(NamedTuple):
    """Episodes of one kind at one path."""

    phase: str  # what the search was doing: "search" or "demand"
    purpose: str  # what the episodes were for: "consensus", "elimination" or "rollout"
    path: Path
    requests: int
    episodes: int


class Spent(NamedTuple):
    """What a run spent in all."""

    requests: int
    episodes: int


class Ledger:
    """Counts episodes, and refuses those beyond the limit before they are played."""

    def __init__(self, max_episodes: int | None = None, assumes: tuple[str, ...] = (), repeats: Spent | None = None):
        """Takes the limit, and what the episodes rest on.

        Args:
            max_episodes: no more are allowed; None: as many as anybody asks for.
            assumes: what has to be true of the environment so that its answers count as episodes, each in words that can
                follow "that". Every claim rests on it.
            repeats: what the run that is repeated spent. A repeat that asks for more is another run, and is stopped.
        """
        self.max_episodes, self.assumes, self._repeats = max_episodes, assumes, repeats
        self._requests = 0
        self.real_episodes: int | None = None  # that a deterministic environment really played; None: all of them
        self.checks = 0  # episodes that this process played a second time, to compare workers; no claim rests on them
        self._entries: dict[tuple[str, str, Path], list[int]] = {}
        self._visits: dict[tuple[str, Path], int] = {}
        self.total = 0
        self.skipped = 0  # episodes that the printed algorithm would have spent in addition, at least

    @property
    def played(self) -> int:
        """Episodes that were really played in all, those that were played a second time to compare workers included."""
        return (self.total if self.real_episodes is None else self.real_episodes) + self.checks

    def charge(self, phase: str, purpose: str, path: Path, n: int) -> int:
        """Charges n episodes and returns how often this purpose was charged at this path before.

        Raises:
            EpisodeLimit: they are more than remain; nothing is charged.
            RunStopped: the run that is repeated did not ask for that many.
        """
        if self.max_episodes is not None and self.total + n > self.max_episodes:
            raise EpisodeLimit(
                f"{purpose} at path {path} asks for {n:,} episodes; {self.max_episodes - self.total:,} remain of the "
                f"{self.max_episodes:,} allowed. Raise the limit (--max-episodes); `richobs plan` says what is needed."
            )
        self._requests += 1
        known = self._repeats
        if known is not None and (self._requests > known.requests or self.total + n > known.episodes):
            raise RunStopped(
                f"request {self._requests:,} asks for {n:,} episodes after {self.total:,}; the run that is repeated spent "
                f"{known.episodes:,} in {known.requests:,} requests."
            )
        entry = self._entries.setdefault((phase, purpose, path), [0, 0])
        entry[0] += 1
        entry[1] += n
        self.total += n
        visit = self._visits.get((purpose, path), 0)
        self._visits[purpose, path] = visit + 1
        return visit

    def skip(self, n: int) -> None:
        """Notes n episodes that were left out because what they would show is known."""
        self.skipped += n

    def __iter__(self) -> Iterator[Entry]:
        for (phase, purpose, path), (requests, episodes) in self._entries.items():
            yield Entry(phase, purpose, path, requests, episodes)

    def by(self, *columns: str) -> dict[tuple[str, ...], tuple[int, int]]:
        """Returns (requests, episodes) summed by the given columns of `Entry`, in order of first use."""
        sums: dict[tuple[str, ...], tuple[int, int]] = {}
        for entry in self:
            key = tuple(str(getattr(entry, c)) for c in columns)
            requests, episodes = sums.get(key, (0, 0))
            sums[key] = (requests + entry.requests, episodes + entry.episodes)
        return sums

"""Samples of a level that are bet on later, so that its pairs stay few [B1].

The pairs of a level are its members times the kinds of max_a f of the next level. In a large class most of them would be
refuted through the next level anyway. So such a level waits: its samples are kept, and their bets are settled when the next
level has few kinds left. The wealth of a pair is a function of the samples in their order, so it does not matter when it is
computed. docs/betting.md, Waiting, says why no claim depends on it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from richobs.core.types import Ints
from richobs.learners.betting.pairs import Pairs
from richobs.learners.betting.reading import Steps

LARGE_CLASS = 1 << 21  # members times kinds of the next level above which a level may wait
MOST_PAIRS = 1 << 12  # pairs at which such a level begins to wait
BLOCK = 32  # samples from which on batches that waited make one
# While fewer samples wait than this: members times kinds at which waiting ends.
DUE: tuple[tuple[int, float], ...] = ((256, 1 << 20), (1024, 1 << 26))


def may_wait(members: int, kinds: int) -> bool:
    """Whether a level may wait: members of the level, and kinds of the next, are many."""
    return members * kinds > LARGE_CLASS


def begins(pairs: int) -> bool:
    """Whether a level that may wait begins to: a batch would tell so many pairs apart."""
    return pairs > MOST_PAIRS


@dataclass
class Waiting:
    """The samples that wait at a level, and its pairs as they were before them."""

    pairs: Pairs
    rows: Ints  # [m] members of the level that the pairs have rows for
    columns: Ints  # [m'] members of the next level that they have columns for
    first: int  # number of the first batch that waits
    steps: list[Steps]  # batches, in their order
    refuted: set[tuple[int, int]] = field(default_factory=set)  # pairs of members that averages refuted [B2]

    def is_due(self, kinds: int) -> bool:
        """Whether the bets are to be settled now: the next level has so few kinds left, or many samples wait."""
        n = sum(len(step.actions) for step in self.steps)
        return all(len(self.rows) * kinds <= pairs for samples, pairs in DUE if n < samples)

    def blocks(self) -> Iterator[tuple[int, Steps]]:
        """Yields numbers and samples of blocks: batches put together until there are at least `BLOCK` samples.

        Blocks are numbered on from the first batch that waits, so no number is used twice. What belongs to a block depends
        on the sizes of its batches alone; the last one may be smaller.
        """
        block: list[Steps] = []
        number = self.first
        for step in self.steps:
            block.append(step)
            if sum(len(part.actions) for part in block) >= BLOCK:
                yield number, _joined(block)
                number, block = number + 1, []
        if block:
            yield number, _joined(block)


def _joined(block: list[Steps]) -> Steps:
    """Returns several batches as one."""
    return Steps(*(np.concatenate(parts) for parts in zip(*block, strict=True)))

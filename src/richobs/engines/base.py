"""What an engine is: it plays the episodes that an algorithm asks for and hands back moments."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from richobs.engines.ledger import Ledger
from richobs.moments import Batch, Moments
from richobs.problem import FunctionClass, Ints, Path, Policy

AT_ONCE = 8_000_000  # values of functions held at once


class Outcomes(NamedTuple):
    """What n rollouts of a policy came to."""

    n: int
    mean: float  # of the returns
    variance: float  # of the returns (divisor n)
    paths: Ints  # [first, H] the paths of the first rollouts


class Engine(Protocol):
    """Draws samples and charges every episode to its ledger.

    A draw depends on (seed, path, purpose, how often that was asked before) and on nothing else.
    """

    name: str
    ledger: Ledger

    def observe(self, path: Path, n: int, *, phase: str, purpose: str) -> Moments:
        """Returns the moments of n observations at `path`, without actions."""
        ...

    def step(self, path: Path, n: int, *, phase: str, purpose: str) -> Moments:
        """Returns the moments of n samples (x, a, r) at `path` with actions drawn uniformly."""
        ...

    def play(self, path: Path, n: int, members: Sequence[Ints], *, phase: str, purpose: str) -> list[Moments]:
        """Plays the action sequence `path` n times; returns per level the moments of the listed members.

        Samples at different levels of one episode are independent where transitions are deterministic, so each level's are a
        batch of their own, all of its actions being the path's.
        """
        ...

    def rollout(self, policy: Policy, n: int, first: int, *, phase: str, purpose: str) -> Outcomes:
        """Plays `policy` n times; also returns the paths of the first `first` of them."""
        ...


def quick_moments_of(functions: FunctionClass, level: int, batch: Batch, members: Ints) -> Moments:
    """Returns the moments of the listed members in a way of the class's own, where it has one; else as `moments_of` does."""
    levels = getattr(functions, "levels", None)
    quick = None if levels is None else getattr(levels[level], "moments", None)
    return quick(batch, members) if quick is not None else moments_of(functions, level, batch, members)


def moments_of(functions: FunctionClass, level: int, batch: Batch, members: Ints | None = None) -> Moments:
    """Returns the moments of a batch at `level`, of all or the listed members, a part at a time where they are many."""
    size = functions.level_size(level) if members is None else len(members)
    step = max(1, AT_ONCE // max(1, len(batch.x) * functions.n_actions))
    if step >= size:
        return Moments.of(functions.values(level, batch.x, members), batch)
    members = np.arange(size) if members is None else members
    parts = [members[i : i + step] for i in range(0, size, step)]
    return Moments.concatenate([Moments.of(functions.values(level, batch.x, part), batch) for part in parts])

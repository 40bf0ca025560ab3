"""What an engine is: it plays the episodes that an algorithm asks for and hands back moments."""

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

    def rollout(self, policy: Policy, n: int, first: int, *, phase: str, purpose: str) -> Outcomes:
        """Plays `policy` n times; also returns the paths of the first `first` of them."""
        ...


def moments_of(functions: FunctionClass, level: int, batch: Batch) -> Moments:
    """Returns the moments of a batch at `level`, a part of the class at a time where it is large."""
    size, row = functions.level_size(level), max(1, len(batch.x) * functions.n_actions)
    step = max(1, AT_ONCE // row)
    if step >= size:
        return Moments.of(functions.values(level, batch.x), batch)
    members = np.arange(size)
    parts = [members[i : i + step] for i in range(0, size, step)]
    return Moments.concatenate([Moments.of(functions.values(level, batch.x, part), batch) for part in parts])

"""A process whose states are seen, and n episodes of a fixed policy played as counts.

Tabular methods such as R-max change their policy rarely. What n episodes of one policy see in total is multinomial, level
by level, so it is drawn at once: the law of n separate episodes at a cost that does not depend on n.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from richobs.engines.counts import as_counts, multinomial
from richobs.errors import InvalidInput
from richobs.problem import Floats, Ints
from richobs.tabular import TabularProcess


class Tally(NamedTuple):
    """What n episodes of a policy saw, per level; counts are whole numbers, kept as floats beyond 2^53."""

    visits: tuple[Floats, ...]  # [S, K]
    rewards: tuple[Floats, ...]  # [S, K] sums
    moves: tuple[Floats, ...]  # [S, K, S'] none at the last level


class Learned(NamedTuple):
    """What a tabular method answers."""

    policy: tuple[Ints, ...]  # per level [S] the action
    values: tuple[Floats, ...]  # per level [S, K] what it believes, optimism included
    episodes: int
    finished: bool  # by its own rule, rather than because `max_rounds` were played


def greedy(values: Sequence[Floats]) -> tuple[Ints, ...]:
    """Returns per level `[S]` the best action of tables `[S, K]`; ties go to the smallest."""
    return tuple(q.argmax(axis=1) for q in values)


class ObservedStates:
    """A process whose observation is its state ([KAL16] Section 2.3, Markov decision processes)."""

    def __init__(self, process: TabularProcess):
        if any(e.shape[0] != e.shape[1] or not np.array_equal(e, np.eye(len(e))) for e in process.emissions):
            raise InvalidInput("tabular methods need a process that shows its states: every emission a unit matrix.")
        self._process = process
        self.horizon, self.n_actions = process.horizon, process.n_actions
        self.sizes = tuple(len(e) for e in process.emissions)  # states per level
        self.episodes = 0

    def play(self, policy: tuple[Ints, ...], n: int, rng: np.random.Generator) -> Tally:
        """Plays n episodes of `policy`, per level `[S]` the action in each state."""
        self.episodes += n
        process, K = self._process, self.n_actions
        here = multinomial(as_counts(n), process.start, rng)
        visits, rewards, moves = [], [], []
        for level, size in enumerate(self.sizes):
            seen, earned = np.zeros((size, K)), np.zeros((size, K))
            last = level == self.horizon - 1
            there = np.zeros(0 if last else self.sizes[level + 1], dtype=object)
            moved = np.zeros((size, K, len(there)))
            for state in np.flatnonzero(here > 0):
                action = int(policy[level][state])
                count = int(here[state])
                seen[state, action] = count
                law = process.rewards[level]
                paid = multinomial(as_counts(count), law.probs[state, state, action], rng)
                earned[state, action] = float(np.dot(paid.astype(np.float64), law.values[state, state, action]))
                if not last:
                    went = multinomial(as_counts(count), process.transitions[level][state, action], rng)
                    moved[state, action] = went.astype(np.float64)
                    there = there + went
            visits.append(seen)
            rewards.append(earned)
            if not last:
                moves.append(moved)
            here = there
        return Tally(tuple(visits), tuple(rewards), tuple(moves))


class Counts:
    """What was seen so far, per level: visits and reward sums `[S, K]`, moves `[S, K, S']`."""

    def __init__(self, sizes: Sequence[int], n_actions: int):
        self.visits = [np.zeros((s, n_actions)) for s in sizes]
        self.rewards = [np.zeros((s, n_actions)) for s in sizes]
        self.moves = [np.zeros((s, n_actions, t)) for s, t in itertools.pairwise(sizes)]

    def add(self, tally: Tally) -> None:
        """Adds what more episodes saw."""
        for name in Tally._fields:
            for total, new in zip(getattr(self, name), getattr(tally, name), strict=True):
                total += new

    def values(self, visits: int, unknown: float) -> list[Floats]:
        """Returns per level `[S, K]` Q* if pairs seen `visits` times are as they were so far, and others worth `unknown`."""
        values: list[Floats] = []
        for level in reversed(range(len(self.visits))):
            q = self.rewards[level] + (self.moves[level] @ values[0].max(axis=1) if values else 0.0)
            values.insert(0, np.where(self.visits[level] >= visits, q / np.maximum(self.visits[level], 1), unknown))
        return values

    def next_batch(self, policy: tuple[Ints, ...], wanted: Sequence[Floats]) -> int:
        """Returns how many episodes of `policy` can be played before a pair on its way has had the visits it wants.

        Args:
            policy: per level `[S]` the action.
            wanted: per level `[S, K]` visits each pair still wants.

        Returns:
            1 while a pair on the way was never visited, since nobody knows where it leads; 0 where no pair wants visits.
        """
        here = np.flatnonzero(self.visits[0].sum(axis=1) > 0)  # the starts that were seen
        least = math.inf if len(here) else 1
        for level, actions in enumerate(policy):
            a = actions[here]
            if (self.visits[level][here, a] == 0).any():
                return 1
            wants = wanted[level][here, a]
            least = min([least, *wants[wants > 0].tolist()])
            if level < len(policy) - 1:
                here = np.flatnonzero(self.moves[level][here, a].sum(axis=0) > 0)
        return 0 if math.isinf(least) else int(least)

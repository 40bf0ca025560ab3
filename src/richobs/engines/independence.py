"""What is noticed of the episodes that a claim rests on: are they independent, and do they have one law?

Every claim needs that each episode starts anew and that the environment stays the same. Three checks look at the episodes
that are played anyway. They change nothing: they only stop a run, with `BrokenPromise`. Together they stop a run whose
episodes are independent and of one law with probability at most FALSE_ALARM, which is not part of delta.

- Returns of one candidate have one law, and so have first observations, whatever is played. `OneLaw` bets on the ranks of
  new numbers among the earlier ones (conformal test martingales: Vovk, Gammerman and Shafer 2005): that they drift, and
  that numbers of one batch are alike, as they are where an environment draws something once per call of `play`.
- Episodes of one batch can come in any order. `Repeats` bets that a batch repeats the one before it, episode by episode, as
  an environment does that seeds its generator anew in every call.

A learner with a watch of its own (`Traits.looks_at_episodes`) looks at each batch that it gets (`Watch.look`). For all other
learners the calls of somebody's environment are looked at as they are made (`look_at_calls`). docs/honesty.md has the
proofs, and says what is noticed.
"""

import bisect
import functools
import math
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from richobs.core.environment import Episodes
from richobs.core.errors import BrokenPromise
from richobs.core.policies import Policy
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Observations
from richobs.stats.bets import death
from richobs.stats.grouping import row_bytes
from richobs.stats.shares import Series, Share

FALSE_ALARM = 1e-3  # probability that a run is stopped though its episodes are independent and of one law
NOTICED = "Every claim needs independent episodes of one law"  # in every message; a folder stopped with it stays so
TILTS = (-1.8, -0.9, 0.0, 0.9, 1.8)  # bets on a rank p are 1 + tilt (p - 1/2)
LIKE = (
    1.0,
    8.0,
)  # bets that a batch is alike: tilts follow the mean of its ranks, with so many ranks of 1/2 among them
PER_SHIFT = 12.0  # the tilt that wins most where the mean of ranks is 1/2 plus a shift, divided by the shift
JUMP = 0.01  # part of the wealth that is spread over all tilts again after every number
ALL = 4_096  # numbers of one sequence that are all looked at; of later ones every 2nd, from twice as many on every 4th, ...
COORDINATES = 64  # of an observation that are looked at, at most
GRID = 1e-5  # numbers that differ by less than about this are equal: rounding may depend on the size of a batch
LARGEST = 1e300  # numbers beyond it count as it
COMPARED = 64  # first episodes of a batch that are compared with the batch before
OF_A_CALL = 64  # first episodes of a call that are looked at
ALL_CALLS = 4_096  # calls that are all looked at; of later ones every 2nd, from twice as many on every 4th, ...
CHANGES = (
    "The environment changes from episode to episode, or draws something once per call of `play` and not per episode."
)
REPEAT_BET = 0.5  # on the number of repeated episodes, relative to the number expected


class OneLaw:
    """An account against "these numbers are independent and have one law"; their order within a batch does not matter."""

    def __init__(self, share: Share, rng: np.random.Generator):
        """Starts without numbers.

        Args:
            share: probability with which the account may ever reach its limit though the numbers have one law.
            rng: breaks ties between equal numbers, and chooses where the grid begins.
        """
        self.limit = death(share)
        self.numbers: list[int] = []  # in the order in which they came
        self._sorted: list[int] = []
        self.wealth = 0.0  # what the bets are worth
        self._wealth = [0.0] * (len(TILTS) + len(LIKE))  # by tilt
        self._came = 0
        self._batch = (0, 0.0)  # ranks of this batch so far, and the sum of their distances from 1/2
        self._rng = rng
        self._offset = float(rng.random())

    @property
    def is_refuted(self) -> bool:
        """Whether the numbers are not of one law."""
        return self.wealth >= self.limit

    def add(self, numbers: Floats) -> None:
        """Bets on a further batch of numbers `[n]`, in random order; nothing is added once the account is refuted."""
        self._batch = (0, 0.0)
        first, self._came = self._came, self._came + len(numbers)
        shuffled = np.floor(self._rng.permutation(np.clip(numbers, -LARGEST, LARGEST)) / GRID + self._offset)
        ties = self._rng.random(len(numbers))
        if self._came > ALL:
            shuffled = shuffled[_looked_at(np.arange(first, self._came))]
        for number, tie in zip(shuffled.tolist(), ties.tolist(), strict=False):
            if self.is_refuted:
                return
            self.bet(self.rank(int(number), tie))

    def rank(self, number: int, tie: float) -> float:
        """Adds a number, and returns its rank from above among all numbers so far: uniform on [0, 1] under one law.

        Args:
            number: the next number.
            tie: a random number in [0, 1) that places it among its equals.
        """
        first, last = bisect.bisect_left(self._sorted, number), bisect.bisect_right(self._sorted, number)
        above, equal = len(self._sorted) - last, last - first + 1
        self._sorted.insert(last, number)
        self.numbers.append(number)
        return (above + tie * equal) / len(self._sorted)

    def bet(self, rank: float) -> None:
        """Settles the bets on a rank. New money comes with the numbers 1, 2, 4, 8, ...; in all it is at most 1."""
        n = len(self.numbers)
        k = n.bit_length()
        money = 1 / (k * (k + 1)) if n & (n - 1) == 0 else 0.0
        spread = (JUMP * self.wealth + money) / len(self._wealth)
        count, shift = self._batch
        like = (min(max(PER_SHIFT * shift / (count + prior), TILTS[0]), TILTS[-1]) for prior in LIKE)
        self._wealth = [
            ((1 - JUMP) * wealth + spread) * (1 + tilt * (rank - 0.5))
            for tilt, wealth in zip((*TILTS, *like), self._wealth, strict=True)
        ]
        self.wealth = math.fsum(self._wealth)
        self._batch = (count + 1, shift + rank - 0.5)

    def returns_words(self, least: float, span: float) -> str:
        """Returns what was noticed of numbers that are returns of a policy, less the smallest total, divided by the span."""
        early, late = (least + span * mean for mean in self.halves())
        return (
            f"the same policy earned {early:.4g} on average in the first half of its {len(self.numbers):,} episodes and "
            f"{late:.4g} in the second half; these episodes differ more in time, or are more alike within one batch, than "
            f"chance allows. {CHANGES}"
        )

    def halves(self) -> tuple[float, float]:
        """Returns the means of the earlier and the later half of the numbers."""
        middle = len(self.numbers) // 2
        early, late = (GRID * float(np.mean(part)) for part in (self.numbers[:middle], self.numbers[middle:]))
        return early, late


class Repeats:
    """An account against "the episodes of a batch could have come in any order": do they repeat the batch before?"""

    def __init__(self, share: Share):
        """Takes the probability with which the account may ever reach its limit though the order is random."""
        self.limit = death(share)
        self.wealth = 1.0
        self.repeated, self.compared, self.expected = 0, 0, 0.0  # episodes of all batches
        self._before: Sequence[bytes] = ()

    @property
    def is_refuted(self) -> bool:
        """Whether batches repeat each other."""
        return self.wealth >= self.limit

    def add(self, keys: Sequence[bytes]) -> None:
        """Bets on a batch of episodes, each given by what it is compared by; given the batch, its order is random."""
        counts = Counter(keys)
        expected = sum(counts[key] for key in self._before[: len(keys)]) / len(keys)
        repeated = sum(a == b for a, b in zip(keys, self._before, strict=False))
        if expected > 0:
            self.wealth *= 1 + REPEAT_BET * (repeated / expected - 1)
        self.repeated += repeated
        self.expected += expected
        self.compared += min(len(keys), len(self._before))
        self._before = keys


class Watch:
    """All checks of one run."""

    def __init__(self, seed: int, reward_range: tuple[float, float]):
        """Splits the probability of a false alarm.

        Args:
            seed: of the ties between equal numbers.
            reward_range: smallest and largest possible total of an episode.
        """
        starts, returns, first, whole = Share(FALSE_ALARM).split(0.4, 0.4, 0.1, 0.1)
        self._rng = keyed_generator(seed, "checks")
        self._least, self._span = reward_range[0], reward_range[1] - reward_range[0]
        self._starts = OneLaw(starts, self._rng)
        self._series = Series(returns)
        self._returns: dict[int, OneLaw] = {}  # by the number of the candidate
        self._repeats = (Repeats(first), Repeats(whole))
        self.sees_calls = False  # whether calls are looked at: the learner does not get their episodes
        self._policy: Policy | None = None  # of the last call, and how many policies calls had so far
        self._policies = self._calls = 0

    def look(self, candidate: int, played: Episodes) -> None:
        """Looks at a batch.

        Args:
            candidate: number of the candidate whose policy was played; it is always played in the same way.
            played: its episodes.

        Raises:
            BrokenPromise: the episodes are not independent, or not of one law.
        """
        self._starts.add(observation_numbers(played.observations[0]))
        if self._starts.is_refuted:
            stop_for(
                f"first observations changed in the course of {len(self._starts.numbers):,} episodes, though they have one "
                f"law whatever is played. {CHANGES}"
            )
        if candidate not in self._returns:
            self._returns[candidate] = OneLaw(self._series.next(), self._rng)
        own = self._returns[candidate]
        own.add(np.clip((played.returns - self._least) / self._span, 0.0, 1.0))
        if own.is_refuted:
            stop_for(own.returns_words(self._least, self._span))
        some = played.part(0, COMPARED)
        columns = [_keys(column) for column in (*some.observations, *some.actions, *some.rewards)]
        whole = [b"".join(parts) for parts in zip(*columns, strict=True)]
        for account, key in zip(self._repeats, (columns[0], whole), strict=True):
            account.add(key)
            if account.is_refuted:
                stop_for(
                    f"batches repeat each other: of {account.compared:,} episodes that were compared, {account.repeated:,} "
                    f"are those of the batch before, in the same places, where chance gives {account.expected:.4g}. The "
                    "environment does not draw its episodes anew; `play` must take all randomness from the generator that "
                    "it is given."
                )

    def look_at_calls(self, policy: Policy, calls: Sequence[Episodes]) -> None:
        """Looks at calls of one policy, where the learner does not look at their episodes itself.

        A learner that asks for counts may play millions of episodes, so the first ones of a call stand for it, and of many
        calls some are looked at. Which ones does not depend on what they show.

        Args:
            policy: what was played; a policy that comes again after another one counts as new.
            calls: their episodes, in the order of the calls.

        Raises:
            BrokenPromise: the episodes are not independent, or not of one law.
        """
        if not self.sees_calls:
            return
        if policy is not self._policy:
            self._returns.pop(self._policies, None)
            self._policy, self._policies = policy, self._policies + 1
        for played in calls:
            self._calls += 1
            if self._calls % (1 << (self._calls // ALL_CALLS).bit_length()) == 0:
                self.look(self._policies, played.part(0, OF_A_CALL))


def stop_for(what: str, chance: float = FALSE_ALARM) -> NoReturn:
    """Stops a run for what was noticed; with independent episodes of one law that happens with at most this probability."""
    raise BrokenPromise(
        f"{what} {NOTICED}; with those such a check stops a run with "
        f"probability at most {chance:g}, which is not part of delta (docs/honesty.md)."
    )


def observation_numbers(x: Observations) -> Floats:
    """Returns `[n]` one number for each observation `[n, ...]`, the same whatever else is in the batch."""
    rows = np.asarray(x).reshape(len(x), -1)
    if rows.dtype.kind not in "fiub":  # what is written, not how: a longer text pads the bytes of all others
        return GRID * np.array([zlib.crc32(repr(row).encode()) for row in rows.tolist()], dtype=np.float64)
    some, weights = _direction(rows.shape[1])
    numbers = rows[:, some].astype(np.float64)
    squeezed = np.arcsinh(
        np.nan_to_num(numbers) if rows.dtype.kind == "f" else numbers
    )  # a relative grid for large ones
    return np.array([math.fsum(row) for row in (squeezed * weights).tolist()])  # exact: sums may not depend on n


def _keys(column: NDArray[Any]) -> list[bytes]:
    """Returns `[n]` the bytes of each row of an array `[n, ...]`, the same whatever else is in the batch."""
    if column.dtype.kind in "SU":  # a longer text pads the bytes of all others
        return [repr(row).encode() for row in column.tolist()]
    return row_bytes(column)


@functools.lru_cache(maxsize=64)
def _direction(size: int) -> tuple[Ints, Floats]:
    """Returns which coordinates of an observation of so many are looked at, and with which weights they are added."""
    rng = keyed_generator(0, "checks", "coordinates", size)
    some = rng.permutation(size)[:COORDINATES]
    return some, rng.uniform(0.5, 1.5, len(some)) * rng.choice([-1.0, 1.0], len(some))


def _looked_at(index: Ints) -> Ints:
    """Returns the places of the numbers that are looked at: all of the first, then ALL / 2 in every doubling."""
    step = np.left_shift(1, np.maximum(np.log2(np.maximum(index, 1) / ALL).astype(np.int64) + 1, 0))
    return np.flatnonzero((index < ALL) | (index % step == 0))

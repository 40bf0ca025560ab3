"""Looks at a candidate's value with fresh rollouts, until the bounds are close enough or more rollouts cannot help."""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from richobs import BrokenPromise, Policy
from richobs.core.moments import Moments
from richobs.core.outcome import LOWER, UPPER
from richobs.core.queries import Query
from richobs.core.types import Member
from richobs.stats.shares import Share, Supposed
from richobs_lab.certified.events import CandidateVerified
from richobs_lab.certified.seals import Sealed
from richobs_lab.certified.state import LARGEST, PHASE, Candidate, CertifiedSearch

GROWTH = 4 / 3  # of the rollouts from look to look


class Looks:
    """Parts of one share for looks at one growing sample, at sizes fixed in advance: look k gets 2^-k of it."""

    def __init__(self, share: Share):
        self._share = share
        self._taken = 0

    def next(self) -> Share:
        """Returns the share of the next look."""
        part = self._share.part(self.suppose().amount)
        self._taken += 1
        return part

    def suppose(self) -> Supposed:
        """Returns what the next look would get; nothing is spent."""
        return Supposed(self._share.amount / 2 ** (self._taken + 1))


class Look(NamedTuple):
    """What is fixed before a look's rollouts are drawn."""

    member: Member  # whose policy is played
    number: int  # of the look, from 1: its share of delta follows from it
    n: int  # rollouts in all once it is drawn


def is_settled(search: CertifiedSearch) -> bool:
    """Returns whether the bounds are close enough.

    Raises:
        BrokenPromise: they contradict each other.
    """
    if search.best is None:
        return False
    if search.upper < search.best.lower:
        raise BrokenPromise(
            f"a policy's value is at least {search.best.lower:.6g}, but no surviving function promises more than "
            f"{search.upper:.6g}: Q* is not in the class, values depend on what was seen before, or transitions are random. "
            f"{search.chance}"
        )
    return search.upper - search.best.lower <= search.epsilon


def look_sizes(search: CertifiedSearch, share: float) -> Iterator[int]:
    """Yields the numbers of rollouts after which a candidate's value is looked at; nothing is drawn.

    Args:
        search: what survivors promise, and the bounds.
        share: of delta, for one bound of the first look.
    """
    goal = min(search.guess, search.upper)
    low, high = np.array([search.low[0].min()]), np.array([search.high[0].max()])

    def is_close(n: int) -> bool:
        upper = float(search.bounds.mean_upper_bound(np.array([goal]), n, low, high, Supposed(share))[0])
        lower = search.bounds.return_lower_bound(goal, n, Supposed(share))
        return min(upper, search.upper) - lower <= search.epsilon

    n = search.tuning.verification
    while n < LARGEST and not is_close(n):
        n = min(math.ceil(GROWTH * n), LARGEST)
    while True:
        yield n
        n = max(n + 1, math.ceil(GROWTH * n))


def verify_candidate(search: CertifiedSearch, member: Member, policy: Policy) -> bool:
    """Looks at a candidate's value from fresh rollouts, more of them from look to look; returns whether it is certified.

    One claim with a share d for all looks: look k spends d / 2^k, half for W [E3] and half for U [E2]. Sizes are fixed
    before the first rollout: the first look comes where the bounds should be close enough if the candidate earns what
    survivors promise, every later one after a third more rollouts.
    """
    looks = Looks(search.verifications.next())
    sizes = look_sizes(search, looks.suppose().amount / 2)
    total, n, look = 0.0, 0, 0
    root: Moments | None = None
    while True:
        look += 1
        for_lower, for_upper = looks.next().split(0.5, 0.5)
        size = search.space.log_bound
        more = next(sizes) - n
        n += more
        batch: Sealed[Look] = Sealed(Query.rollout(policy, more, purpose="verification", phase=PHASE))
        total += more * batch.open(search.engine, Look(member, look, n)).answer.returns.mean
        mean = total / n
        lower = search.bounds.return_lower_bound(mean, n, for_lower)
        for_lower.claim(LOWER, (), n, lower)
        if search.best is None or lower > search.best.lower:
            search.best = Candidate(member, lower, mean, n)
        if search.upper - lower > search.epsilon and search.guess < search.upper - search.epsilon / 16:
            missing = n - (root.n if root else 0)
            values: Sealed[Look] = Sealed(Query.observe((), missing, purpose="root value", phase=PHASE))
            seen = values.open(search.engine, Look(member, look, n)).answer.moments[0]
            root = seen if root is None else root + seen
            largest = root.v_mean + root.rounding  # the bound grows with the mean
            upper = search.bounds.mean_upper_bound(largest, root.n, search.low[0], search.high[0], for_upper)
            search.root_upper = np.minimum(search.root_upper, upper)
            search.root_guess = root.v_mean.copy()
            for_upper.claim(UPPER, (), root.n, search.upper)
        done = is_settled(search)
        # Where survivors promise more than the policy earns, more rollouts cannot help: functions have to be eliminated.
        hopeless = mean + 3 * math.sqrt(0.25 / n) < search.guess - search.epsilon
        hopeless |= look >= 3 and search.guess - mean > 0.6 * search.epsilon + math.sqrt(1 / n)
        hopeless |= n > 32 * math.log(1 / for_lower.amount) / search.epsilon**2
        result: Literal["certified", "failed", "open"] = "certified" if done else "failed" if hopeless else "open"
        search.tell(
            CandidateVerified(
                phase=PHASE,
                n=more,
                log_size_before=size,
                log_size_after=search.space.log_bound,
                result=result,
                width=search.upper - lower,
                epsilon=search.epsilon,
            )
        )
        if done or hopeless:
            search.disappointed += not done
            return done

"""Candidates: policies that are played, with everything that belongs to each of them alone.

A candidate's greedy policy is played, with random actions where it promises nothing (`IdleExploration`). A candidate that
survives its first batch opens accounts before its second, and goes on with them whenever it is played again: averages of its
Bellman errors [B2], interval [B3.1] and agreement [B3.2]. Episodes enter them as far as they follow its policy: its own, and
those of candidates whose ally it is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.environment import Episodes
from richobs.core.functions import FunctionClass
from richobs.core.outcome import LOWER
from richobs.core.policies import greedy_actions
from richobs.core.types import Floats, Ints, Mask, Member, Observations
from richobs.learners.betting.values import SURELY, Ranges, best_and_gap, distinct
from richobs.stats import bets
from richobs.stats.shares import Share

AVERAGES = "Q* keeps its pairs where a candidate's average errors are tested"
MERGED_FROM = 4_096  # rows of a candidate's trail from which on equal ones are merged
AGREED, NOT_AGREED = "V* - V(policy) is at most", "agreement was looked at and claims nothing"


class IdleExploration:
    """A candidate's greedy policy, but with random actions at observations that the candidate holds to be worthless.

    Nothing is lost there if the candidate is right, and members that disagree are tested with every action at once. Claims
    are about the greedy policy alone: an episode serves them up to the first action that differs from it [B3].
    """

    def __init__(self, policy: LearnedPolicy, worthless: Floats, n_actions: int):
        """Takes the greedy policy.

        Args:
            policy: the candidate's greedy policy; ties go to the smallest action.
            worthless: `[H]` largest value at which actions are random; -inf for never.
            n_actions: number of actions K.
        """
        self.policy, self.worthless, self.n_actions = policy, worthless, n_actions

    def actions(self, level: int, x: Observations, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` the greedy actions, some replaced by random ones."""
        values = self.policy.f.values(level, x)
        anything = rng.integers(self.n_actions, size=len(x))
        return np.where(values.max(axis=1) <= self.worthless[level], anything, greedy_actions(values))

    def never_takes(self, level: int, x: Observations, actions: Ints, /) -> Mask:
        """Returns `[n]` where an action is worse than the greedy one, by more than rounding, and actions are not random."""
        values = self.policy.f.values(level, x)
        top = values.max(axis=1)
        rounding = SURELY * np.maximum(1.0, np.abs(values).max(axis=1))
        return (values[np.arange(len(x)), actions] < top - rounding) & (top > self.worthless[level] + rounding)


class Followed(NamedTuple):
    """How far episodes followed a greedy policy at one level: those that did so at all levels before."""

    x: Observations  # [n, ...]
    actions: Ints  # [n] the greedy action, or -1 where another one was taken
    errors: Floats  # [k] y - f of the policy's function, where the greedy action was taken; none once merged
    counts: Ints | None = None  # [n] how often this was seen; None for once each


def merged(trail: Sequence[Sequence[Followed]]) -> list[Followed]:
    """Returns, level by level, the distinct observations and actions of several batches, and how often each was seen."""
    levels = []
    for parts in zip(*trail, strict=True):
        x, actions, counts = joined(parts)
        place = distinct(x)[1]
        _, first, same = np.unique(np.stack([place, actions]), axis=1, return_index=True, return_inverse=True)
        times = np.bincount(same.ravel(), weights=counts, minlength=len(first)).astype(np.int64)
        levels.append(Followed(x[first], actions[first], np.zeros(0), times))
    return levels


def joined(parts: Sequence[Followed]) -> tuple[Observations, Ints, Ints]:
    """Returns observations, actions and counts of several batches at one level."""
    counts = [np.ones(len(part.x), dtype=np.int64) if part.counts is None else part.counts for part in parts]
    return (
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.actions for part in parts]),
        np.concatenate(counts),
    )


def same_actions(policy: LearnedPolicy, trail: Sequence[Sequence[Followed]]) -> bool:
    """Returns whether a policy takes the actions of another one wherever that one was followed."""
    for level, parts in enumerate(zip(*trail, strict=True)):
        x, actions, _ = joined(parts)
        x, actions = x[actions >= 0], actions[actions >= 0]
        some, _ = distinct(x)
        if len(some) and (greedy_actions(policy.f.values(level, x[some])) != actions[some]).any():
            return False
    return True


def followed(played: Episodes, policy: LearnedPolicy, ranges: Ranges) -> tuple[list[Followed], Floats]:
    """Returns, level by level, where episodes followed a policy, and `[n]` what each surely would have earned with it.

    What an episode earned before its first other action, plus the least that any policy earns from there, is at most what
    the policy would have earned, in expectation. Errors are on the scale of bets.
    """
    H, n = played.levels, played.n
    over = np.stack(played.ended) if played.ended else np.zeros((H, n), dtype=bool)
    values = np.stack([_live_values(policy, h, x, over[h]) for h, x in enumerate(played.observations)])  # [H, n, K]
    greedy, rewards = greedy_actions(values), np.stack(played.rewards).astype(np.float64)
    same = greedy == played.actions
    here = ~over
    here[1:] &= np.logical_and.accumulate(same | over)[:-1]
    y = rewards.copy()
    y[:-1] += values[1:].max(axis=2)  # 0 where the episode is over
    f = np.take_along_axis(values, greedy[:, :, None], axis=2)[:, :, 0]
    errors = ranges.unit(None, y) - ranges.unit(None, f)
    earned = np.where(here, np.where(same, rewards, ranges.rest[:H, None]), 0.0).cumsum(axis=0)[-1]
    taken, kept = np.where(same, greedy, -1), here & same
    columns = zip(played.observations, here, taken, errors, kept, strict=True)
    return [Followed(x[h], a[h], error[k]) for x, h, a, error, k in columns], earned


def _live_values(policy: LearnedPolicy, level: int, x: Observations, over: Mask) -> Floats:
    """Returns `[n, K]` the values of the policy's function, and 0 where the episode is over: padding is not evaluated."""
    if not over.any():
        return policy.f.values(level, x)
    values = np.zeros((len(x), policy.functions.n_actions))
    if not over.all():
        values[~over] = policy.f.values(level, x[~over])
    return values


@dataclass
class Accounts:
    """The accounts of one candidate. Shares, thresholds and bets are fixed before the first episode that enters them."""

    number: int  # from 1, in the order of opening
    averages: Share
    interval: Share
    agreement: Share
    average_bets: Floats  # [L] constant bets
    average_limit: float  # wealth at which a pair of the candidate dies
    average_wealth: Floats  # [H, L] logarithms
    residual: Floats  # [H] mean errors that the tolerance allows
    errors: Floats  # [H, 3] sums of y - f of the candidate, how many, and sums of their squares
    trail: list[list[Followed]] = field(default_factory=list)  # per batch, per level; old batches are merged
    returns: Floats = field(default_factory=lambda: np.zeros((2, 0)))  # [2, k] distinct returns, and how often each
    kept: int = 0  # rows of the trail, all levels together
    kept_by_merging: int = 0  # those of them that the last merging left
    n: int = 0  # episodes
    lower: float = 0.0  # W; the smallest total until the first look
    looked_at: int = 0  # episodes at the last look at W
    interval_threshold: float | None = None  # once its share is spent
    agreement_threshold: float | None = None
    hardest: int = 0  # the level at which agreement failed last
    taken: Floats | None = None  # [A] what survivors then took from the logarithms of its wealth
    promises: Floats = field(default_factory=lambda: np.zeros((0, 0)))  # [N_0, A] logarithms of wealth [T7]

    @classmethod
    def opened(
        cls,
        number: int,
        epsilon: float,
        ranges: Ranges,
        averages: Share,
        interval: Share,
        agreement: Share,
    ) -> "Accounts":
        """Opens accounts with nothing in them."""
        horizon, epsilon = len(ranges.width), epsilon / float(ranges.width.max())
        constant = bets.average_bets(epsilon / (4 * horizon))
        limit = max(bets.death(part) for part in averages.split(*[1 / horizon] * horizon))
        wealth = np.zeros((horizon, len(constant)))
        errors = np.zeros((horizon, 3))
        return cls(
            number, averages, interval, agreement, constant, limit, wealth, ranges.residual, errors, lower=ranges.least
        )

    def add(self, trail: list[Followed], returns: Floats) -> None:
        """Adds a batch.

        Rows that are equal are merged once there are twice as many as the last merging left: memory grows with the distinct
        observations, not with the episodes.

        Args:
            trail: per level, where the policy was followed.
            returns: `[n]` what was earned while it was.
        """
        self.n += len(returns)
        values, same = np.unique(np.concatenate([self.returns[0], returns]), return_inverse=True)
        times = np.concatenate([self.returns[1], np.ones(len(returns))])
        self.returns = np.stack([values, np.bincount(same, weights=times)])
        for h, level in enumerate(trail):
            self.average_wealth[h] += bets.average_growth(level.errors, self.average_bets, float(self.residual[h]))
            self.errors[h] += level.errors.sum(), len(level.errors), (level.errors**2).sum()
        self.trail.append(trail)
        self.kept += sum(len(level.x) for level in trail)
        if self.kept > max(MERGED_FROM, 2 * self.kept_by_merging):
            self.trail = [merged(self.trail)]
            self.kept = self.kept_by_merging = sum(len(level.x) for level in self.trail[0])

    @property
    def mean(self) -> float:
        """Mean of what was earned."""
        values, times = self.returns
        return float(values @ times) / self.n if self.n else 0.0

    def look(self, smallest: float, ranges: Ranges) -> float:
        """Returns W for the returns so far [B3.1]; `smallest` is the smallest mean above the least that can be shown."""
        if self.looked_at < self.n:
            self.looked_at = self.n
            if self.interval_threshold is None:
                self.interval_threshold = bets.death(self.interval)
            totals = ranges.unit_totals(self.returns[0])
            found = bets.lower_bound_of_mean(totals, smallest / ranges.span, self.interval_threshold, self.returns[1])
            self.lower = max(self.lower, ranges.least + ranges.span * found)
        return self.lower

    def write_claims(self, agreed: float | None) -> None:
        """Writes down what the shares were spent on.

        Args:
            agreed: epsilon, where agreement certified this candidate.
        """
        self.averages.claim(AVERAGES, (), self.n, self.average_limit)
        if self.interval_threshold is not None:
            self.interval.claim(LOWER, (), self.looked_at, self.lower)
        if self.agreement_threshold is not None:
            words = NOT_AGREED if agreed is None else AGREED
            self.agreement.claim(words, (), self.n, 1.0 if agreed is None else agreed)


@dataclass
class Candidate:
    """A function and its greedy policy."""

    number: int  # from 1, in the order in which candidates were first drawn
    member: Member
    policy: LearnedPolicy
    batches: int = 0  # in all
    accounts: Accounts | None = None  # from the second batch on
    claimable: int = 0  # episodes of the search when a claim about its policy was tested first

    @property
    def lacks_accounts(self) -> bool:
        """Whether accounts are opened before the next batch."""
        return self.batches > 0 and self.accounts is None

    @property
    def tested(self) -> int:
        """Episodes in its accounts."""
        return 0 if self.accounts is None else self.accounts.n

    def absorb(self, trail: list[Followed], returns: Floats) -> list[int]:
        """Adds episodes to the candidate's accounts, and returns the levels at which its pair is refuted [B2]."""
        self.batches += 1
        own = self.accounts
        if own is None:
            return []
        own.add(trail, returns)
        needed = math.log(own.average_limit)
        return [h for h, log in enumerate(bets.mixed(own.average_wealth)) if log >= needed]

    def mean_error(self, level: int) -> float:
        """Returns the mean of y - f at a level, in the episodes of its accounts."""
        return self.error(level)[0]

    def error(self, level: int) -> tuple[float, float]:
        """Returns the mean of y - f at a level, and its standard error."""
        total, n, squares = (0.0, 0.0, 0.0) if self.accounts is None else self.accounts.errors[level].tolist()
        mean = total / max(n, 1.0)
        return mean, math.sqrt(max(squares - n * mean**2, 0.0)) / max(n, 1.0)


def lost_sums(
    functions: FunctionClass,
    level: int,
    members: Ints,
    trail: Sequence[Sequence[Followed]],
    thetas: Floats,
    rest: float,
) -> tuple[Floats, Floats]:
    """Returns `[T, m]` sums of gaps and `[T, m]` sums of values at stops, of members at one level [B3.2].

    At an observation where the policy was followed, a member's gap is its best value less that of the policy's action; above
    theta it counts as a stop at the member's best value, less what is surely earned from there on. Where another action was
    taken every member stops.

    Args:
        functions: the class.
        level: where.
        members: `[m]` which members.
        trail: per batch and level, where the policy was followed.
        thetas: `[T]` thresholds.
        rest: the least that any policy earns from this level on.
    """
    gaps, jumps = np.zeros((2, len(thetas), len(members)))
    x, actions, times = joined([batch[level] for batch in trail])
    some, place = distinct(x)
    for action in np.unique(actions):
        taken = actions == action
        counts = np.bincount(place[taken], weights=times[taken], minlength=len(some))
        seen = np.flatnonzero(counts)
        reps, rep = functions.kinds(level, members, max(int(action), 0))
        best, gap = best_and_gap(functions, level, reps, x[some[seen]], max(int(action), 0))
        best = np.maximum(best - rest, 0.0)
        for k, theta in enumerate(thetas):
            stops = gap > theta if action >= 0 else np.ones_like(gap, dtype=bool)
            gaps[k] += (np.where(stops, 0.0, gap) @ counts[seen])[rep]
            jumps[k] += (np.where(stops, best, 0.0) @ counts[seen])[rep]
    return gaps, jumps

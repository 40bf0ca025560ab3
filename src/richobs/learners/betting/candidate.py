"""Candidates: policies that are played, with everything that belongs to each of them alone.

A candidate's greedy policy is played, with random actions where it promises nothing (`IdleExploration`). A candidate that
survives its first batch opens accounts before its second, and goes on with them whenever it is played again: averages of its
Bellman errors [B2], interval [B3.1] and agreement [B3.2]. Only its own episodes enter them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.environment import Episodes
from richobs.core.functions import FunctionClass
from richobs.core.outcome import LOWER
from richobs.core.policies import greedy_actions
from richobs.core.types import Floats, Ints, Mask, Member, Observations
from richobs.learners.betting.values import SURELY, Ranges, distinct, read
from richobs.stats import bets
from richobs.stats.shares import Share

AVERAGES = "Q* keeps its pairs where a candidate's average errors are tested"
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
    errors: Floats  # [k] y - f of the policy's function, where the greedy action was taken


def followed(played: Episodes, policy: LearnedPolicy, ranges: Ranges) -> tuple[list[Followed], Floats]:
    """Returns, level by level, where episodes followed a policy, and `[n]` what each surely would have earned with it.

    What an episode earned before its first other action, plus the least that any policy earns from there, is at most what
    the policy would have earned, in expectation. Errors are on the scale of bets.
    """
    H = played.levels
    over = list(played.ended) if played.ended else [np.zeros(played.n, dtype=bool)] * H
    values = [_live_values(policy, h, played.observations[h], over[h]) for h in range(H)]  # [n, K] each
    earned = np.zeros(played.n)
    follows = np.ones(played.n, dtype=bool)
    levels = []
    for h in range(H):
        here = np.flatnonzero(follows & ~over[h])
        greedy = greedy_actions(values[h][here])
        same = played.actions[h][here] == greedy
        rows = here[same]
        y = played.rewards[h][rows]
        if h < H - 1:
            y = y + values[h + 1][rows].max(axis=1)  # 0 where the episode is over
        errors = ranges.unit(h, y) - ranges.unit(h, values[h][rows, greedy[same]])
        levels.append(Followed(played.observations[h][here], np.where(same, greedy, -1), errors))
        earned[rows] += played.rewards[h][rows]
        follows[here[~same]] = False
        earned[here[~same]] += ranges.rest[h]
    return levels, earned


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
    trail: list[list[Followed]] = field(default_factory=list)  # per batch, per level
    returns: list[Floats] = field(default_factory=list)  # per batch [n], what was earned while the policy was followed
    n: int = 0  # episodes
    lower: float = 0.0  # W; the smallest total until the first look
    looked_at: int = 0  # episodes at the last look at W
    interval_threshold: float | None = None  # once its share is spent
    agreement_threshold: float | None = None
    hardest: int = 0  # the level at which agreement failed last

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
        return cls(number, averages, interval, agreement, constant, limit, wealth, ranges.residual, lower=ranges.least)

    @property
    def mean(self) -> float:
        """Mean of what was earned."""
        return float(np.concatenate(self.returns).mean()) if self.returns else 0.0

    def look(self, smallest: float, ranges: Ranges) -> float:
        """Returns W for the returns so far [B3.1]; `smallest` is the smallest mean above the least that can be shown."""
        if self.looked_at < self.n:
            self.looked_at = self.n
            if self.interval_threshold is None:
                self.interval_threshold = bets.death(self.interval)
            totals = ranges.unit_totals(np.concatenate(self.returns))
            found = bets.lower_bound_of_mean(totals, smallest / ranges.span, self.interval_threshold)
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

    def absorb(self, trail: list[Followed], returns: Floats) -> list[int]:
        """Adds the candidate's own episodes to its accounts, and returns the levels at which its pair is refuted [B2]."""
        self.batches += 1
        own = self.accounts
        if own is None:
            return []
        own.trail.append(trail)
        own.returns.append(returns)
        own.n += len(returns)
        for h, level in enumerate(trail):
            own.average_wealth[h] += bets.average_growth(level.errors, own.average_bets, float(own.residual[h]))
        needed = math.log(own.average_limit)
        return [h for h, log in enumerate(bets.mixed(own.average_wealth)) if log >= needed]

    def mean_error(self, level: int) -> float:
        """Returns the mean of y - f at a level, in the episodes of its accounts."""
        if self.accounts is None:
            return 0.0
        errors = np.concatenate([batch[level].errors for batch in self.accounts.trail])
        return float(errors.mean()) if len(errors) else 0.0


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
    x: Observations = np.concatenate([batch[level].x for batch in trail])
    actions = np.concatenate([batch[level].actions for batch in trail])
    some, place = distinct(x)
    for action in np.unique(actions):
        counts = np.bincount(place[actions == action], minlength=len(some)).astype(np.float64)
        seen = np.flatnonzero(counts)
        reps, rep = functions.kinds(level, members, max(int(action), 0))
        both = read(functions, level, x[some[seen]], reps, partial(_best_and_gap, int(action)))  # [reps, 2 n]
        best, gap = np.maximum(both[:, : len(seen)] - rest, 0.0), both[:, len(seen) :]
        for k, theta in enumerate(thetas):
            stops = gap > theta if action >= 0 else np.ones_like(gap, dtype=bool)
            gaps[k] += (np.where(stops, 0.0, gap) @ counts[seen])[rep]
            jumps[k] += (np.where(stops, best, 0.0) @ counts[seen])[rep]
    return gaps, jumps


def _best_and_gap(action: int, values: Floats) -> Floats:
    """Returns `[m, 2 n]` the best values, then the gaps of an action, out of values `[m, n, K]`."""
    best = values.max(axis=2)
    return np.concatenate([best, best - values[:, :, max(action, 0)]], axis=1)

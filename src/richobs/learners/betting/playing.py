"""What is played for a candidate: its greedy policy, and random actions where it promises nothing."""

from typing import NamedTuple

import numpy as np

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.environment import Episodes
from richobs.core.policies import greedy_actions
from richobs.core.types import Floats, Ints, Mask, Observations
from richobs.learners.betting.ranges import SURELY, Ranges


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

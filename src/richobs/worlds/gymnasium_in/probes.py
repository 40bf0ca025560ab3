"""A few episodes of random actions, played to make a message useful or to notice a mistake before a run begins."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from richobs.core.randomness import keyed_generator
from richobs.core.types import Ints
from richobs.worlds.gymnasium_in.arrays import Rows
from richobs.worlds.gymnasium_in.copies import Copies

EPISODES = 20  # played to suggest a range of rewards
SEQUENCES = 8  # of actions, each played with two seeds
LEVELS = 64  # of an episode that are compared


class RewardsSeen(NamedTuple):
    """What episodes of random actions paid."""

    step: tuple[float, float]  # smallest and largest reward
    total: tuple[float, float]  # smallest and largest total of an episode


def rewards_seen(copies: Copies, n_actions: int, horizon: int) -> RewardsSeen:
    """Plays `EPISODES` episodes of random actions."""
    rng = keyed_generator(0, "gymnasium", "rewards seen")
    steps: list[float] = []
    totals: list[float] = []
    while len(totals) < EPISODES:
        m = min(copies.size, EPISODES - len(totals))
        copies.reset([int(seed) for seed in rng.integers(2**31, size=m)])
        over, total = np.zeros(m, dtype=bool), np.zeros(m)
        for _ in range(horizon):
            if over.all():
                break
            stepped = copies.step(rng.integers(n_actions, size=m), over)
            steps += stepped.rewards[~over].tolist()
            total[~over] += stepped.rewards[~over]
            over = over | stepped.over
        totals += total.tolist()
    return RewardsSeen((min(steps), max(steps)), (min(totals), max(totals)))


def noise_behind_a_start(copies: Copies, rows: Rows, n_actions: int, horizon: int) -> Sequence[int] | None:
    """Returns actions that led from the same first observation to different ones with two seeds; None where none did."""
    rng = keyed_generator(0, "gymnasium", "frozen noise")
    for _ in range(SEQUENCES):
        actions = rng.integers(n_actions, size=min(horizon, LEVELS))
        one, other = (_shown(copies, rows, [int(seed)], [actions])[0] for seed in rng.integers(2**31, size=2))
        if one[0] == other[0] and one != other:
            first = next(
                (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
            )
            return [int(a) for a in actions[:first]]
    return None


def _shown(copies: Copies, rows: Rows, seeds: Sequence[int], actions: Sequence[Ints] | Ints) -> list[list[Any]]:
    """Returns what an episode in each of some copies shows and pays, up to its end.

    Args:
        copies: of the environment; the first ones play.
        rows: turns observations into rows.
        seeds: `[m]` of the episodes.
        actions: `[m, levels]` what each episode does.
    """
    shown: list[list[Any]] = [[rows.row(raw).tobytes()] for raw in copies.reset(seeds)]
    over = np.zeros(len(seeds), dtype=bool)
    for taken in np.asarray(actions).T:
        if over.all():
            break
        stepped = copies.step(taken, over)
        for i in np.flatnonzero(~over).tolist():
            seen = None if stepped.over[i] else rows.row(stepped.seen[i]).tobytes()
            shown[i].append((float(stepped.rewards[i]), seen))
        over = over | stepped.over
    return shown

"""The counted engine: finite observations, n episodes drawn as counts at a cost that does not depend on n.

Along a fixed action sequence the n visits to a node are independent draws of (state, x, a, r), so how often each
combination occurs is multinomial: the same law as n separate episodes. See `counts` for what is exact.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from richobs.engines.base import Outcomes, moments_of
from richobs.engines.counts import Counts, as_counts, multinomial
from richobs.engines.ledger import Ledger
from richobs.errors import InvalidInput
from richobs.moments import Batch, Moments
from richobs.problem import Floats, FunctionClass, Ints, Path, Policy, checked_path
from richobs.randomness import keyed_generator
from richobs.tabular import TabularProcess

KEPT = 4_000_000  # values of functions at one level that are kept between requests


class CountedEngine:
    """Draws counts from a process written down in full."""

    name = "counted"

    def __init__(self, process: TabularProcess, functions: FunctionClass, *, seed: int, ledger: Ledger):
        self._process = process
        self._functions = functions
        self._seed = seed
        self.ledger = ledger
        self._table = cache(lambda level: functions.values(level, process.observations[level]))
        self._belief = cache(self._belief_at)

    def observe(self, path: Path, n: int, *, phase: str, purpose: str) -> Moments:
        """Returns the moments of n observations at `path`, without actions."""
        path, rng = self._begin(path, n, phase, purpose)
        law = self._belief(path) @ self._process.emissions[len(path)]  # [X]
        shown = np.flatnonzero(law)
        counts = multinomial(as_counts(n), law[shown], rng)
        none = np.zeros((len(shown), self._process.n_actions))
        return self._moments(path, n, (0,) * self._process.n_actions, shown, counts, none, none, none)

    def step(self, path: Path, n: int, *, phase: str, purpose: str) -> Moments:
        """Returns the moments of n samples (x, a, r) at `path` with actions drawn uniformly."""
        path, rng = self._begin(path, n, phase, purpose)
        K = self._process.n_actions
        return self._sample(path, n, np.full(K, 1 / K), rng)

    def play(self, path: Path, n: int, members: Sequence[Ints], *, phase: str, purpose: str) -> list[Moments]:
        """Plays the action sequence `path` n times; returns per level the moments of the listed members."""
        if not self._process.is_deterministic:
            raise InvalidInput(
                "counts of whole episodes are drawn level by level, which needs deterministic transitions. Use "
                "engine='stream'."
            )
        full = checked_path(path, self._process.horizon, self._process.n_actions)
        visit = self.ledger.charge(phase, purpose, full, n)
        result = []
        for h, a in enumerate(full):
            rng = keyed_generator(self._seed, "draw", full, purpose, visit, h)
            result.append(self._sample(full[:h], n, np.eye(self._process.n_actions)[a], rng, members[h]))
        return result

    def _sample(
        self, path: Path, n: int, action_law: Floats, rng: np.random.Generator, members: Ints | None = None
    ) -> Moments:
        """Draws n samples (x, a, r) at `path` as counts, actions from `action_law` `[K]`."""
        K, rewards = self._process.n_actions, self._process.rewards[len(path)]
        law = self._belief(path)[:, None] * self._process.emissions[len(path)]  # [S, X]
        states, shown = np.nonzero(law)  # cells
        counts = multinomial(as_counts(n), law[states, shown], rng)  # [cells]
        taken = multinomial(counts, np.broadcast_to(action_law, (len(counts), K)), rng)  # [cells, K]
        points, probs = rewards.values[states, shown], rewards.probs[states, shown]  # [cells, K, R]
        paid = multinomial(taken, probs, rng) if probs.shape[-1] > 1 else taken[..., None]
        actions = tuple(int(c) for c in taken.sum(axis=0))
        pair = np.stack([_shares(taken[:, a], actions[a]) for a in range(K)], axis=1)
        whole = taken.astype(np.float64)[..., None]
        odds = np.divide(paid.astype(np.float64), whole, out=np.zeros(paid.shape), where=whole > 0)
        r_mean = (odds * points).sum(axis=-1)
        r_var = (odds * (points - r_mean[..., None]) ** 2).sum(axis=-1)
        return self._moments(path, n, actions, shown, counts, pair, r_mean, r_var, members)

    def rollout(self, policy: Policy, n: int, first: int, *, phase: str, purpose: str) -> Outcomes:
        """Plays `policy` n times, as counts of equal episodes: the first ones by their paths, the rest by returns alone."""
        _, rng = self._begin((), n, phase, purpose)
        first = min(first, n)
        returns, count, paths = self._roll(policy, first, rng, remember=True)
        others, rest, _ = self._roll(policy, n - first, rng, remember=False)
        share = _shares(np.concatenate([count, rest]), n)
        returns = np.concatenate([returns, others])
        mean = float(share @ returns)
        order = rng.permutation(np.repeat(np.arange(len(count)), count))  # which of the first came when
        return Outcomes(n, mean, float(share @ (returns - mean) ** 2), paths[order])

    def _roll(self, policy: Policy, n: int, rng: np.random.Generator, *, remember: bool) -> tuple[Floats, Counts, Ints]:
        """Plays `policy` n times; returns groups of equal episodes: returns, counts and, if remembered, paths."""
        process = self._process
        start = np.flatnonzero(process.start)
        count = multinomial(as_counts(n), process.start[start], rng)
        states, count = start[count > 0], count[count > 0]
        returns, paths = np.zeros(len(states)), np.zeros((len(states), 0), dtype=np.int64)
        for level in range(process.horizon):
            parts = []
            for s in np.unique(states):
                actions, rewards, odds = _outcomes_in(process, policy, level, int(s))
                mine = np.flatnonzero(states == s)
                split = multinomial(count[mine], np.broadcast_to(odds, (len(mine), len(odds))), rng)
                group, outcome = np.nonzero(split)
                parts.append((mine[group], actions[outcome], rewards[outcome], split[split > 0]))
            if not parts:
                return returns, count, np.zeros((0, process.horizon), dtype=np.int64)
            group, taken, paid, count = (np.concatenate(part) for part in zip(*parts, strict=True))
            returns, states = returns[group] + paid, states[group]
            paths = np.column_stack([paths[group], taken]) if remember else paths
            if level < process.horizon - 1:
                split = multinomial(count, process.transitions[level][states, taken], rng)  # [groups, S']
                group, states = np.nonzero(split)
                returns, count = returns[group], split[group, states]
                paths = paths[group] if remember else paths
            if not remember:
                keys, place = np.unique(np.column_stack([states, returns]), axis=0, return_inverse=True)
                merged = np.zeros(len(keys), dtype=count.dtype)
                np.add.at(merged, place.ravel(), count)
                states, returns, count = keys[:, 0].astype(np.int64), keys[:, 1], merged
        return returns, count, paths

    def _begin(self, path: Path, n: int, phase: str, purpose: str) -> tuple[Path, np.random.Generator]:
        """Charges the request and returns the generator that belongs to it."""
        path = checked_path(path, self._process.horizon, self._process.n_actions, room=1)
        visit = self.ledger.charge(phase, purpose, path, n)
        return path, keyed_generator(self._seed, "draw", path, purpose, visit)

    def _belief_at(self, path: Path) -> Floats:
        """Returns `[S]` the law of the state that `path` leads to."""
        if not path:
            return self._process.start
        return self._belief(path[:-1]) @ self._process.transitions[len(path) - 1][:, path[-1]]

    def _moments(
        self,
        path: Path,
        n: int,
        actions: tuple[int, ...],
        shown: Ints,
        counts: Counts,
        pair: Floats,
        r_mean: Floats,
        r_var: Floats,
        members: Ints | None = None,
    ) -> Moments:
        level = len(path)
        x = self._process.observations[level][shown]
        batch = Batch(n, actions, x, _shares(counts, n), pair, r_mean, r_var)
        size = self._functions.level_size(level) * len(self._process.observations[level]) * self._functions.n_actions
        if size > KEPT:
            return moments_of(self._functions, level, batch, members)
        table = self._table(level) if members is None else self._table(level)[members]
        return Moments.of(table[:, shown], batch)


def _shares(counts: Counts, total: int) -> Floats:
    """Returns counts / total in float64, for integers of any size; 0 where the total is."""
    if total == 0:
        return np.zeros(len(counts))
    if counts.dtype == object:
        return np.array([c / total for c in counts])
    return counts / float(total)


def _outcomes_in(process: TabularProcess, policy: Policy, level: int, state: int) -> tuple[Ints, Floats, Floats]:
    """Returns what `policy` can do and earn in one state: actions, rewards and probabilities, `[outcomes]` each."""
    emission = process.emissions[level][state]
    shown = np.flatnonzero(emission)
    chosen = process.actions_of(policy, level)[shown]
    rewards = process.rewards[level]
    points, probs = rewards.values[state, shown, chosen], rewards.probs[state, shown, chosen]  # [shown, R]
    weights = emission[shown, None] * probs
    keys = np.column_stack([np.repeat(chosen, points.shape[1]), points.ravel()])
    keys, inverse = np.unique(keys[weights.ravel() > 0], axis=0, return_inverse=True)
    odds = np.bincount(inverse.ravel(), weights=weights.ravel()[weights.ravel() > 0])
    return keys[:, 0].astype(np.int64), keys[:, 1], odds / odds.sum()

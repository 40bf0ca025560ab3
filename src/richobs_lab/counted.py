"""The counted engine: finite observations, n episodes drawn as counts at a cost that does not depend on n.

Along a fixed action sequence the n visits to a node are independent draws of (state, x, a, r), so how often each
combination occurs is multinomial: the same law as n separate episodes.

NumPy's binomial sampler accepts or rejects with terms of size n rounded in float64: it is right to about 2e-7 at n = 2^31
and useless beyond 2^53. Larger n are split exactly. Of n uniform numbers, the i-th smallest is Beta(i, n + 1 - i); once it
is drawn, those below and those above it are uniform again. Taking i = np brings it so close to p that about sqrt(n)
numbers are left in doubt, and three or four such steps leave few enough for a direct draw.

What is exact: the law of the counts, up to 1e-9 in total variation per draw (a Poisson count stands in for a binomial one
whose success probability is below 1e-9) and up to the rounding of probabilities to float64, which at n = 10^21 moves a
count by a few millionths of its standard deviation. Sums of counts are exact integers.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from richobs import (
    Environment,
    FunctionClass,
    InvalidInput,
    OpenLoop,
    Policy,
    Problem,
    Settings,
    Switch,
    TabularProcess,
    Uniform,
)
from richobs.core.executors import Workers
from richobs.core.ledger import Ledger
from richobs.core.moments import Batch, Moments, Steps, counted_pairs, no_moves
from richobs.core.policies import action_law
from richobs.core.queries import Answer, LevelMoments, LevelSteps, Query, Returns, Tally
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Ints, Path
from richobs.engines import Play

KEPT = 4_000_000  # values of functions at one level that are kept between requests
Counts = NDArray[Any]  # integers: int64, or Python's own (dtype object) where they may exceed it

DIRECT = 2**31  # trials that NumPy's own sampler handles
RARE = 1e-9  # success probability below which a Poisson count is as good
MANY = 1e6  # expected successes up to which NumPy's Poisson sampler is right to 1e-9


class CountedEngine(Play):
    """Draws counts from a process written down in full."""

    name = "counted"
    _process: TabularProcess  # never None here

    def __init__(self, process: TabularProcess, functions: FunctionClass, *, seed: int, ledger: Ledger):
        """Prepares to draw.

        Args:
            process: what is drawn from.
            functions: the class whose moments are wanted.
            seed: of every draw.
            ledger: where episodes are charged.
        """
        super().__init__(process, functions, seed=seed, ledger=ledger, process=process)
        self._table = cache(lambda level: functions.values(level, process.observations[level]))
        self._belief = cache(self._belief_at)

    @classmethod
    def missing(cls, problem: Problem, /) -> str | None:
        """Returns in a sentence why it cannot play a problem: there is no process to draw from."""
        if problem.process is not None:
            return None
        return (
            "the counted engine draws from a process written down in full, and there is none here (too many "
            "observations, or none was given). Use engine='stream'."
        )

    @classmethod
    def build(
        cls, problem: Problem, env: Environment, settings: Settings, ledger: Ledger, workers: Workers, /
    ) -> "CountedEngine":
        """Returns the engine of one run; the environment is not played, and counts are drawn by this process alone."""
        assert problem.process is not None, "missing() said so"
        return cls(problem.process, problem.functions, seed=settings.seed, ledger=ledger)

    def draw(self, query: Query, visit: int, /) -> Answer:
        """Draws what the query asks for and returns what it wants."""
        key = (self._seed, "draw", *query.key, visit)
        if query.steps:
            return Answer(
                query.n, steps=steps(self._process, query.policy, query.n, query.steps, keyed_generator(*key))
            )
        moments = self._moments(query, key)
        if query.tally:
            return Answer(
                query.n, moments=moments, tally=tally(self._process, query.policy, query.n, keyed_generator(*key))
            )
        if not (query.returns or query.paths):
            return Answer(query.n, moments=moments)
        returns, paths = rollout(self._process, query.policy, query.n, query.paths, keyed_generator(*key))
        return Answer(query.n, returns, paths, moments)

    def check(self, query: Query, /) -> None:
        """Refuses what cannot be computed from counts, before anything is charged."""
        super().check(query)
        if query.episodes:
            raise InvalidInput(
                f"{query.purpose} wants episodes one by one, and the counted engine only draws how often each occurs. Use "
                "engine='stream'."
            )
        if query.steps and (query.moments or query.returns or query.paths or query.tally):
            raise InvalidInput(
                "the counted engine draws steps apart from all else; ask for them in a query of their own."
            )
        if query.moments and (query.returns or query.paths or query.tally):
            raise InvalidInput(
                "the counted engine draws moments and whole episodes apart; ask for them in two queries."
            )
        if len(query.moments) > 1 and not self._process.is_deterministic:
            raise InvalidInput(
                "counts of whole episodes are drawn level by level, which needs deterministic transitions. Use "
                "engine='stream'."
            )
        for wanted in query.moments:
            _roll_in(query.policy, wanted.level)
            if wanted.rewards:
                _actions_at(query.policy, wanted.level, self._process)

    def _moments(self, query: Query, key: tuple[int, str, Path, str, int]) -> tuple[Moments, ...]:
        """Returns the moments that are wanted; several levels have a generator each."""
        if len(query.moments) == 1:
            return (self._level(query, query.moments[0], keyed_generator(*key)),)
        return tuple(self._level(query, wanted, keyed_generator(*key, wanted.level)) for wanted in query.moments)

    def _level(self, query: Query, wanted: LevelMoments, rng: np.random.Generator) -> Moments:
        """Draws n observations at a node as counts; with actions and rewards where these are wanted."""
        path, process, K = _roll_in(query.policy, wanted.level), self._process, self._process.n_actions
        if not wanted.rewards:
            law = self._belief(path) @ process.emissions[wanted.level]  # [X]
            shown = np.flatnonzero(law)
            counts = multinomial(as_counts(query.n), law[shown], rng)
            none = np.zeros((len(shown), K))
            return self._moments_of(wanted, query.n, (0,) * K, shown, counts, none, none, none)
        law, rewards = (
            self._belief(path)[:, None] * process.emissions[wanted.level],
            process.rewards[wanted.level],
        )  # [S, X]
        states, shown = np.nonzero(law)  # cells
        counts = multinomial(as_counts(query.n), law[states, shown], rng)  # [cells]
        chances = _actions_at(query.policy, wanted.level, process)
        taken = multinomial(counts, np.broadcast_to(chances, (len(counts), K)), rng)  # [cells, K]
        points, probs = rewards.values[states, shown], rewards.probs[states, shown]  # [cells, K, R]
        paid = multinomial(taken, probs, rng) if probs.shape[-1] > 1 else taken[..., None]
        actions = tuple(int(c) for c in taken.sum(axis=0))
        pair = np.stack([_shares(taken[:, a], actions[a]) for a in range(K)], axis=1)
        whole = taken.astype(np.float64)[..., None]
        odds = np.divide(paid.astype(np.float64), whole, out=np.zeros(paid.shape), where=whole > 0)
        r_mean = (odds * points).sum(axis=-1)
        r_var = (odds * (points - r_mean[..., None]) ** 2).sum(axis=-1)
        return self._moments_of(wanted, query.n, actions, shown, counts, pair, r_mean, r_var)

    def _belief_at(self, path: Path) -> Floats:
        """Returns `[S]` the law of the state that `path` leads to."""
        if not path:
            return self._process.start
        return self._belief(path[:-1]) @ self._process.transitions[len(path) - 1][:, path[-1]]

    def _moments_of(
        self, wanted: LevelMoments, n: int, actions: tuple[int, ...], shown: Ints, counts: Counts, *columns: Floats
    ) -> Moments:
        """Returns the moments of n samples.

        Args:
            wanted: which level, and which members.
            n: how many there are.
            actions: `[K]` how often each action was taken.
            shown: `[cells]` which observation was made in each cell.
            counts: `[cells]` how often.
            *columns: `[cells, K]` shares of the action's samples, mean and variance of the reward.
        """
        level, functions = wanted.level, self._functions
        observations = self._process.observations[level]
        batch = Batch(n, actions, observations[shown], _shares(counts, n), *columns)
        if functions.level_size(level) * len(observations) * functions.n_actions > KEPT:
            return functions.moments(level, batch, wanted.members)
        table = self._table(level) if wanted.members is None else self._table(level)[wanted.members]
        return Moments.of(table[:, shown], batch)


def _roll_in(policy: Policy, level: int) -> Path:
    """Returns the actions that lead to `level`; refuses a policy whose actions before it depend on observations."""
    if isinstance(policy, Switch) and level <= policy.level:
        return _roll_in(policy.first, level)
    if isinstance(policy, OpenLoop) and level <= len(policy.path):
        return policy.path[:level]
    if level == 0:
        return ()
    raise InvalidInput(
        f"the counted engine draws moments at nodes that a fixed action sequence leads to; {type(policy).__name__} does not "
        f"fix its actions before level {level}. Use engine='stream'."
    )


def _actions_at(policy: Policy, level: int, process: TabularProcess) -> Floats:
    """Returns `[K]` how likely each action is at `level`, which must not depend on the observation."""
    acting = policy.at(level) if isinstance(policy, Switch) else policy
    if not isinstance(acting, OpenLoop | Uniform):
        raise InvalidInput(
            f"the counted engine draws (x, a, r) where actions do not depend on x; {type(acting).__name__} looks at it. Use "
            "engine='stream'."
        )
    return action_law(acting, level, process.observations[level][:1], process.n_actions)[0]


def rollout(
    process: TabularProcess, policy: Policy, n: int, first: int, rng: np.random.Generator
) -> tuple[Returns, Ints]:
    """Plays `policy` n times, as counts of equal episodes.

    Returns:
        Mean and variance of the returns, and `[first, H]` the paths of the first episodes.
    """
    first = min(first, n)
    returns, count, paths = _roll(process, policy, first, rng, remember=True)
    others, rest, _ = _roll(process, policy, n - first, rng, remember=False)
    share = _shares(np.concatenate([count, rest]), n)
    returns = np.concatenate([returns, others])
    mean = float(share @ returns)
    order = rng.permutation(np.repeat(np.arange(len(count)), count))  # a random order of the first episodes
    return Returns(mean, float(share @ (returns - mean) ** 2)), paths[order]


def _roll(
    process: TabularProcess, policy: Policy, n: int, rng: np.random.Generator, *, remember: bool
) -> tuple[Floats, Counts, Ints]:
    """Plays `policy` n times; returns groups of equal episodes: returns, counts and, if remembered, paths."""
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


def _outcomes_in(process: TabularProcess, policy: Policy, level: int, state: int) -> tuple[Ints, Floats, Floats]:
    """Returns what `policy` can do and earn in one state: actions, rewards and probabilities, `[outcomes]` each."""
    emission = process.emissions[level][state]
    chances = process.action_law(policy, level)  # [X, K]
    shown, chosen = np.nonzero((emission > 0)[:, None] & (chances > 0))
    rewards = process.rewards[level]
    points, probs = rewards.values[state, shown, chosen], rewards.probs[state, shown, chosen]  # [cells, R]
    weights = (emission[shown] * chances[shown, chosen])[:, None] * probs
    keys = np.column_stack([np.repeat(chosen, points.shape[1]), points.ravel()])
    keys, inverse = np.unique(keys[weights.ravel() > 0], axis=0, return_inverse=True)
    odds = np.bincount(inverse.ravel(), weights=weights.ravel()[weights.ravel() > 0])
    return keys[:, 0].astype(np.int64), keys[:, 1], odds / odds.sum()


def tally(process: TabularProcess, policy: Policy, n: int, rng: np.random.Generator) -> Tally:
    """Plays `policy` n times and counts what happened by (level, observation, action).

    Counts are drawn cell by cell over (state, observation), so the number of episodes does not matter.
    """
    K = process.n_actions
    # [S, X] how many episodes are in state s and see x, level by level
    here = multinomial(as_counts(n), (process.start[:, None] * process.emissions[0]).ravel(), rng)
    here = here.reshape(len(process.start), -1)
    visits, rewards, moves = [], [], []
    for level in range(process.horizon):
        chances, law = process.action_law(policy, level), process.rewards[level]
        last = level == process.horizon - 1
        X = here.shape[1]
        seen, earned = np.zeros((X, K)), np.zeros((X, K))
        shape = (0, 0) if last else (len(process.emissions[level + 1]), process.emissions[level + 1].shape[1])
        there = np.zeros(shape, dtype=object)
        moved = np.zeros((X, K, shape[1]))
        for s, x in zip(*np.nonzero(here > 0), strict=True):
            taken = multinomial(as_counts(int(here[s, x])), chances[x], rng)
            for a in np.flatnonzero(taken > 0):
                count = int(taken[a])
                seen[x, a] += count
                paid = multinomial(as_counts(count), law.probs[s, x, a], rng)
                earned[x, a] += float(np.dot(paid.astype(np.float64), law.values[s, x, a]))
                if not last:
                    next_law = process.transitions[level][s, a][:, None] * process.emissions[level + 1]
                    went = multinomial(as_counts(count), next_law.ravel(), rng).reshape(shape)
                    moved[x, a] += went.sum(axis=0).astype(np.float64)
                    there = there + went
        visits.append(seen)
        rewards.append(earned)
        if not last:
            moves.append(moved)
        here = there.reshape(shape)
    return Tally(tuple(visits), tuple(rewards), tuple(moves))


def steps(
    process: TabularProcess, policy: Policy, n: int, wanted: tuple[LevelSteps, ...], rng: np.random.Generator
) -> tuple[Steps, ...]:
    """Plays `policy` n times, as counts of (state, observation, action), and returns the steps of some levels.

    The law of the state at the first level that is wanted is computed, so nothing is drawn before that level. From there on
    counts are drawn forwards, so that steps of several levels belong to the same episodes.
    """
    moves_at = {w.level: w.moves for w in wanted}
    first, last = wanted[0].level, wanted[-1].level
    law = state_law(process, policy, first)[:, None] * process.emissions[first]  # [S, X]
    here = multinomial(as_counts(n), law.ravel(), rng).reshape(law.shape)
    found = []
    for level in range(first, last + 1):
        states, shown = np.nonzero(here)
        taken = multinomial(here[states, shown], process.action_law(policy, level)[shown], rng)  # [cells, K]
        cell, action = np.nonzero(taken)
        groups = _Groups(states[cell], shown[cell], action, taken[cell, action])
        moves = moves_at.get(level, False)
        entries = no_moves()
        earned = _earned(process, level, groups, rng) if level in moves_at else np.zeros(0)
        if moves or level < last:
            here, entries = _moved(process, level, groups, moves, rng)
        if level in moves_at:
            found.append(_steps_of(process, level, n, groups, earned, entries))
    return tuple(found)


def state_law(process: TabularProcess, policy: Policy, level: int) -> Floats:
    """Returns `[S]` the law of the state at `level` that a policy leads to, exactly, also where it looks at observations."""
    law = process.start
    for h in range(level):
        taken = process.emissions[h] @ process.action_law(policy, h)  # [S, K]
        law = np.einsum("s,sk,skt->t", law, taken, process.transitions[h])
    return law


class _Groups(NamedTuple):
    """Episodes at one level that are in the same state, saw the same and did the same, `[groups]` of each."""

    states: Ints
    shown: Ints  # number of the observation
    action: Ints
    number: Counts  # of episodes


def _earned(process: TabularProcess, level: int, groups: _Groups, rng: np.random.Generator) -> Floats:
    """Returns `[groups]` what each group earns in sum."""
    rewards = process.rewards[level]
    place = groups.states, groups.shown, groups.action
    paid = multinomial(groups.number, rewards.probs[place], rng)  # [groups, R]
    return (paid.astype(np.float64) * rewards.values[place]).sum(axis=1)


def _moved(
    process: TabularProcess, level: int, groups: _Groups, moves: bool, rng: np.random.Generator
) -> tuple[Counts, tuple[Ints, Ints, Floats]]:
    """Draws the next state and observation of every group.

    Returns:
        `[S', X']` how many episodes are where at the next level; and, where `moves` are wanted, how often which
        (observation, action) led to which observation.
    """
    emission = process.emissions[level + 1]
    went = multinomial(groups.number, process.transitions[level][groups.states, groups.action], rng)  # [groups, S']
    if not moves:
        return multinomial(went.sum(axis=0), emission, rng), no_moves()
    there = np.zeros(emission.shape, dtype=groups.number.dtype)
    pairs, columns, counts = [], [], []
    for state in np.flatnonzero(went.sum(axis=0)):
        group = np.flatnonzero(went[:, state])
        support = np.flatnonzero(emission[state])
        law = np.broadcast_to(emission[state, support], (len(group), len(support)))
        seen = multinomial(went[group, state], law, rng)  # [group, support]
        there[state, support] = seen.sum(axis=0)
        i, j = np.nonzero(seen)
        pairs.append(groups.shown[group[i]] * process.n_actions + groups.action[group[i]])
        columns.append(support[j])
        counts.append(seen[i, j].astype(np.float64))
    joined = (np.concatenate(pairs), np.concatenate(columns), np.concatenate(counts))
    return there, counted_pairs(*joined, emission.shape[1])


def _steps_of(
    process: TabularProcess, level: int, n: int, groups: _Groups, earned: Floats, entries: tuple[Ints, Ints, Floats]
) -> Steps:
    """Returns the steps of a level; observations that did not occur are left out."""
    K, size = process.n_actions, len(process.observations[level])
    pair = groups.shown * K + groups.action
    visits, rewards = (
        np.bincount(pair, weights=w, minlength=size * K).astype(np.float64).reshape(size, K)
        for w in (groups.number.astype(np.float64), earned)
    )
    shown, row = np.unique(groups.shown), np.zeros(size, dtype=np.int64)
    row[shown] = np.arange(len(shown))
    pairs, columns, moves = entries
    followed, column = np.unique(columns, return_inverse=True)
    next_x = process.observations[level + 1][followed] if len(followed) else process.observations[level][:0]
    return Steps(
        n,
        process.observations[level][shown],
        visits[shown],
        rewards[shown],
        next_x,
        row[pairs // K] * K + pairs % K,
        column,
        moves,
    )


def _shares(counts: Counts, total: int) -> Floats:
    """Returns counts / total in float64, for integers of any size; 0 where the total is."""
    if total == 0:
        return np.zeros(len(counts))
    if counts.dtype == object:
        return np.array([c / total for c in counts])
    return counts / float(total)


def binomial(n: Counts, p: Floats, rng: np.random.Generator) -> Counts:
    """Returns successes among `n` trials of probability `p`, elementwise for equal shapes."""
    n, p = np.asarray(n), np.asarray(p, dtype=np.float64)
    if n.dtype != object and (n.size == 0 or n.max() <= DIRECT):
        return rng.binomial(n.astype(np.int64), p)
    shape = n.shape
    n, p = n.ravel().copy(), np.clip(p, 0.0, 1.0).ravel().copy()
    result = np.zeros_like(n)
    sign = np.ones(len(n), dtype=np.int64)  # -1 where failures are being counted instead
    open_ = np.arange(len(n))
    while len(open_):
        flip = p[open_] > 0.5
        turned = open_[flip]
        result[turned] += sign[turned] * n[turned]
        sign[turned] *= -1
        p[turned] = 1 - p[turned]
        trials, chance = n[open_].astype(np.float64), p[open_]
        direct = trials <= DIRECT
        rare = ~direct & (chance <= RARE) & (trials * chance <= MANY)
        for mine, draw in ((direct, _direct), (rare, _poisson)):
            which = open_[mine]
            if len(which):
                result[which] += sign[which] * draw(n[which], p[which], rng)
        open_ = open_[~(direct | rare)]
        if len(open_):
            _split(open_, n, p, sign, result, rng)
    return result.reshape(shape)


def _direct(n: Counts, p: Floats, rng: np.random.Generator) -> Counts:
    return rng.binomial(n.astype(np.int64), p)


def _poisson(n: Counts, p: Floats, rng: np.random.Generator) -> Counts:
    return rng.poisson(n.astype(np.float64) * p)


def _split(
    open_: NDArray[np.int64], n: Counts, p: Floats, sign: Counts, result: Counts, rng: np.random.Generator
) -> None:
    """Draws the i-th smallest of n uniform numbers, i about np, and keeps only the trials it leaves in doubt."""
    trials = n[open_]
    i = np.array(
        [min(max(int(q * t), 1), int(t)) for q, t in zip(p[open_].tolist(), trials, strict=True)], dtype=n.dtype
    )
    pivot = rng.beta(i.astype(np.float64), (trials + 1 - i).astype(np.float64))
    below = pivot <= p[open_]
    low, high = open_[below], open_[~below]
    result[low] += sign[low] * i[below]
    n[low] = trials[below] - i[below]
    p[low] = (p[low] - pivot[below]) / (1 - pivot[below])
    n[high] = i[~below] - 1
    p[high] = p[high] / pivot[~below]


def multinomial(n: Counts, probs: Floats, rng: np.random.Generator) -> Counts:
    """Returns counts `[..., C]` of `n` `[...]` trials over the last axis of `probs` `[..., C]`, by halving the cells."""
    n, probs = np.asarray(n), np.asarray(probs, dtype=np.float64)
    if n.dtype != object and (n.size == 0 or n.max() <= DIRECT):
        return rng.multinomial(n.astype(np.int64), np.minimum(probs, 1))  # products of laws may round to 1 + 2e-16
    cells = probs.shape[-1]
    depth = max(cells - 1, 0).bit_length()
    padded = np.zeros((*n.shape, 2**depth))
    padded[..., :cells] = probs
    sums = [padded]
    for _ in range(depth):
        sums.append(sums[-1].reshape(*n.shape, -1, 2).sum(axis=-1))
    counts = n[..., None]
    for below, whole in zip(sums[-2::-1], sums[::-1], strict=False):
        left, right = below[..., ::2], below[..., 1::2]
        rarer = np.minimum(left, right)  # of two halves the rarer is drawn: 1 - 1e-17 would round to 1
        drawn = binomial(counts, np.divide(rarer, whole, out=np.zeros_like(left), where=whole > 0), rng)
        first = np.where(left <= right, drawn, counts - drawn)
        counts = np.stack([first, counts - first], axis=-1).reshape(*n.shape, -1)
    return counts[..., :cells]


def as_counts(n: int) -> Counts:
    """Returns `n` as an array that sums of it fit into."""
    return np.array(n, dtype=np.int64 if n < 2**62 else object)

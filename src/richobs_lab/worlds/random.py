"""Random processes: all of the paper's assumptions by construction, or all but one by request."""

import itertools
from dataclasses import dataclass
from typing import Literal

import numpy as np

from richobs.core.errors import InvalidInput
from richobs.core.problem import Problem
from richobs.core.process import Rewards, TabularProcess
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Mask
from richobs.worlds.simulator import hidden_tables, require_range, require_size, table_problem

Violation = Literal["none", "layered", "reactive", "realizable", "deterministic", "reward range"]


@dataclass(frozen=True)
class Config:
    """A random process with rewards at every level and observations that several states share (with equal Q*).

    Rewards are what makes Q* equal: a state s that shows x pays q(x, a) - E[V*(next state) | s, a] on average, where
    q(x, a) is the same for all states that show x. This works for random transitions too.
    """

    horizon: int = 4
    """Number of levels."""
    n_states: int = 3
    """Most states a level may have, the number differing from level to level (a random start has two)."""
    n_actions: int = 2
    """Number of actions."""
    n_observations: int = 4
    """Most observations a level may have beyond one per state."""
    overlap: float = 0.5
    """Probability that a further state shows an observation too, where equal Q* is possible."""
    stochastic: bool = False
    """Draw the first state and every next state at random (this breaks Assumption 3, not Assumption 1)."""
    violate: Violation = "none"
    """The one assumption to break, besides the one that `stochastic` breaks."""
    class_size: int = 20
    """Number of functions per level, Q* among them unless realizability is to be broken."""
    near: float = 0.0
    """Above 0: the other functions lie within this of Q* everywhere, instead of being permuted and perturbed copies."""
    centred: bool = False
    """With `near`: the other functions are uniform around Q* itself, so that their mean tells it."""
    rewards: Literal["mixed", "bernoulli"] = "mixed"
    """Laws of rewards: constant, two-point or three-point at random, or all on 0 and the most that the level pays."""
    twin_gap: float = 0.0
    """Above 0: actions 2k and 2k + 1 lead to the same states, and 2k + 1 is worth less by at most this."""
    seed: int = 0
    """Chooses everything."""

    def __post_init__(self) -> None:
        for name in ("horizon", "n_states", "n_actions", "class_size"):
            require_range(self, name, low=1, high=1_000_000)
        require_range(self, "n_observations", low=0, high=1_000_000)
        S, K = self.n_states, self.n_actions
        seen = S + self.n_observations
        require_size(self, self.horizon, S * S * K + S * seen * (3 * K + 1) + seen * K * (self.class_size + 4))
        for name in ("overlap", "near", "twin_gap"):
            require_range(self, name, low=0.0, high=1.0)
        if self.twin_gap and self.n_actions % 2:
            raise InvalidInput(f"random: twin_gap pairs the actions, so n_actions must be even; got {self.n_actions}.")
        if self.twin_gap and self.violate != "none":
            raise InvalidInput(
                f"random: twin_gap is for processes that keep all assumptions; violate={self.violate} breaks one. "
                "Give one of the two."
            )
        if self.stochastic and self.violate == "deterministic":
            raise InvalidInput(
                "random: stochastic=True already makes transitions random; violate=deterministic asks for one random "
                "transition alone. Give one of the two."
            )
        if self.stochastic and self.n_states < 2:
            raise InvalidInput(f"random: stochastic=True needs n_states of at least 2; got {self.n_states}.")
        if self.violate == "reactive" and not self.stochastic and min(self.horizon, self.n_states, self.n_actions) < 2:
            raise InvalidInput(
                "random: to break reactivity two states must be reachable at one level without chance, so horizon, "
                f"n_states and n_actions must be at least 2; got {self.horizon}, {self.n_states} and {self.n_actions}."
            )
        if self.violate == "layered" and self.horizon < 2:
            raise InvalidInput("random: a state recurs at two levels only if horizon is at least 2; got 1.")


def build(config: Config) -> Problem:
    """Returns the process with a class around its Q*."""
    rng = keyed_generator(config.seed, "random", "secret", config.violate)
    process = _recurring(config, rng) if config.violate == "layered" else _layered(config, rng)
    if config.near:
        levels, places = _near_tables(process, config, rng)
    else:
        levels, places = hidden_tables(process, config.class_size, rng)
    if config.violate == "realizable":
        _spoil(levels, process.q_tables, process.seen, rng)
    return table_problem(process, levels, None if config.violate in ("realizable", "reactive") else places)


def _layered(config: Config, rng: np.random.Generator) -> TabularProcess:
    """Draws transitions forwards, then observations and rewards backwards so that shared observations agree on Q*."""
    H, K = config.horizon, config.n_actions
    twins = 2 if config.twin_gap else 1
    draw = _stochastic_transitions if config.stochastic else _transitions
    start, moves = draw(config, K // twins, rng)
    moves = [np.repeat(move, twins, axis=1) for move in moves]
    sizes = [len(start)] + [t.shape[2] for t in moves]
    budgets = 0.5 / H + 0.5 * rng.dirichlet([1.0] * H)  # the most a level may pay; they sum to 1
    broken = None
    if config.violate == "reactive":
        broken = int(rng.choice([h for h in range(H) if sizes[h] >= 2]))
    emissions: list[Floats] = []
    rewards: list[Rewards] = []
    value = np.zeros(0)
    for h in reversed(range(H)):
        future = moves[h] @ value if h < H - 1 else np.zeros((sizes[h], K))  # [S, K]
        support, q = _observations(future, budgets[h], config, rng)
        mean = q[None] - future[:, None, :]  # [S, X, K]; only where the state shows x
        if h == broken:
            _disagree(support, mean, future, budgets[h], rng)
        mean = np.where(support[:, :, None], np.clip(mean, 0, budgets[h]), 0)
        law = np.where(support, rng.gamma(2.0, size=support.shape), 0)
        emissions.insert(0, law / law.sum(axis=1, keepdims=True))
        rewards.insert(0, _laws(mean, budgets[h], config, rng))
        value = np.einsum("sx,sx->s", emissions[0], (mean + future[:, None, :]).max(axis=2))
    if config.violate == "reward range":
        _overpay(start, moves, emissions, rewards, rng)
    return TabularProcess(
        start=start,
        transitions=tuple(moves),
        emissions=tuple(emissions),
        rewards=tuple(rewards),
        check_rewards=config.violate != "reward range",
    )


def _transitions(config: Config, n_actions: int, rng: np.random.Generator) -> tuple[Floats, list[Floats]]:
    """Returns the start distribution and the transitions; every state of every level is reached."""
    H, K = config.horizon, n_actions
    needs_two = config.violate in ("reactive", "deterministic")
    roll_the_start = config.violate == "deterministic" and (min(H, K, config.n_states) < 2 or rng.random() < 0.5)
    start = rng.dirichlet([5.0, 5.0]) if roll_the_start else np.ones(1)
    wide = int(rng.integers(1, H)) if needs_two and not roll_the_start else 0  # a level that gets two states at least
    moves: list[Floats] = []
    here = len(start)
    for level in range(1, H):
        there = min(int(rng.integers(1 + (level == wide), config.n_states + 1)), here * K)
        targets = np.concatenate([np.arange(there), rng.integers(there, size=here * K - there)])
        moves.append(np.eye(there)[rng.permutation(targets).reshape(here, K)])
        here = there
    if config.violate == "deterministic" and not roll_the_start:
        t = moves[int(rng.choice([i for i, t in enumerate(moves) if t.shape[2] >= 2]))]
        s, a = rng.integers(t.shape[0]), rng.integers(K)
        other = (t[s, a].argmax() + rng.integers(1, t.shape[2])) % t.shape[2]
        stay = rng.uniform(0.3, 0.7)
        t[s, a] *= stay
        t[s, a, other] = 1 - stay
    return start, moves


def _stochastic_transitions(config: Config, n_actions: int, rng: np.random.Generator) -> tuple[Floats, list[Floats]]:
    """Returns a random start and random transitions, all probabilities positive; one level at least has two states."""
    sizes = rng.integers(1, config.n_states + 1, size=config.horizon)
    wide = rng.integers(config.horizon)
    sizes[wide] = max(2, sizes[wide])
    moves = [rng.dirichlet(np.ones(b), (a, n_actions)) for a, b in itertools.pairwise(sizes)]
    return rng.dirichlet(np.ones(sizes[0])), moves


def _observations(future: Floats, budget: float, config: Config, rng: np.random.Generator) -> tuple[Mask, Floats]:
    """Chooses who shows what, and Q* of every observation.

    States may share x only if one q(x, a) is within reach of all of them: at least their future values `[S, K]`, and at
    most the level's budget above.

    Returns:
        `[S, X]` which state shows which observation, and `[X, K]` Q*.
    """
    n_states = len(future)
    n_observations = n_states + int(rng.integers(config.n_observations + 1))
    owners = np.concatenate([np.arange(n_states), rng.integers(n_states, size=n_observations - n_states)])
    support = np.zeros((n_states, n_observations), dtype=bool)
    q = np.empty((n_observations, future.shape[1]))
    for x, owner in enumerate(rng.permutation(owners)):
        support[owner, x] = True
        for s in rng.permutation(n_states):
            together = future[support[:, x] | (np.arange(n_states) == s)]
            if rng.random() < config.overlap and np.ptp(together, axis=0).max() <= budget:
                support[s, x] = True
        shown = future[support[:, x]]
        least = shown.max(axis=0)
        q[x] = rng.uniform(least, shown.min(axis=0) + budget)
        if config.twin_gap:
            q[x, 1::2] = np.maximum(q[x, ::2] - rng.uniform(0, config.twin_gap, q[x, ::2].shape), least[::2])
    return support, q


def _disagree(support: Mask, mean: Floats, future: Floats, budget: float, rng: np.random.Generator) -> None:
    """Makes two states share an observation and disagree on Q* of one action there by at least the budget."""
    one, other = rng.permutation(len(support))[:2]
    x = rng.choice(np.flatnonzero(support[one]))
    a = rng.integers(mean.shape[2])
    support[other, x] = True
    raise_one = future[one, a] >= future[other, a]
    mean[one, x, a], mean[other, x, a] = (budget, 0.0) if raise_one else (0.0, budget)


def _laws(mean: Floats, top: float, config: Config, rng: np.random.Generator) -> Rewards:
    """Returns laws on [0, top] with the given means `[S, X, K]`: constant, two-point or three-point, or all two-point."""
    kind = rng.integers(3, size=mean.shape) if config.rewards == "mixed" else np.ones(mean.shape, dtype=np.int64)
    middle = rng.uniform(0.2 * top, 0.8 * top, mean.shape)
    most = np.minimum(mean / middle, (top - mean) / (top - middle))  # what the middle point may weigh
    weight = np.select([kind == 0, kind == 1], [np.ones_like(mean), np.zeros_like(mean)], most * rng.random(mean.shape))
    middle = np.where(kind == 0, mean, middle)
    high = np.where(kind == 0, 0.0, (mean - weight * middle) / top)
    values = np.stack([np.zeros_like(mean), middle, np.full_like(mean, top)], axis=-1)
    return Rewards.finite(values, np.clip(np.stack([1 - weight - high, weight, high], axis=-1), 0, 1))


def _overpay(
    start: Floats, moves: list[Floats], emissions: list[Floats], rewards: list[Rewards], rng: np.random.Generator
) -> None:
    """Lets one reward exceed 1, or two along one path exceed 1 together, with every mean (and so Q*) left as it was."""
    twice = len(emissions) > 1 and rng.random() < 0.5
    peak = 0.8 if twice else 1.5
    state = int(start.argmax())
    for level in range(2 if twice else 1):
        law = rewards[level]
        mean = np.where(emissions[level][state][:, None] > 0, law.mean[state], 0)  # [X, K]
        x, a = np.unravel_index(int(mean.argmax()), mean.shape)
        law.values[state, x, a] = [0, 0, peak]
        law.probs[state, x, a] = [1 - mean[x, a] / peak, 0, mean[x, a] / peak]
        if level < len(moves):
            state = int(moves[level][state, a].argmax())


def _near_tables(
    process: TabularProcess, config: Config, rng: np.random.Generator
) -> tuple[list[Floats], tuple[int, ...]]:
    """Hides Q* among tables that lie within `near` of it at every observation and action.

    The tables of a level are uniform around one centre, within near/2 of it, and so is Q*: the tables alone do not tell
    which one it is (but for values that are cut to [0, 1]). With `centred` Q* is the centre, and they are within near of it.

    Returns:
        Per level `[N, X, K]` the tables, and per level the place of Q* among them.
    """
    off, reach = (0.0, config.near) if config.centred else (config.near / 2, config.near / 2)
    levels, places = [], []
    for q in process.q_tables:
        truth = np.clip(q, 0, 1)
        centre = truth + rng.uniform(-off, off, truth.shape)
        tables = np.clip(centre + rng.uniform(-reach, reach, (config.class_size, *truth.shape)), 0, 1)
        place = int(rng.integers(config.class_size))
        tables[place] = truth
        levels.append(tables)
        places.append(place)
    return levels, tuple(places)


def _spoil(levels: list[Floats], tables: tuple[Floats, ...], seen: tuple[Mask, ...], rng: np.random.Generator) -> None:
    """Moves every function of one level that equals Q* on what can be seen, so that none is left."""
    h = int(rng.integers(len(levels)))
    visible = np.flatnonzero(seen[h].any(axis=0))
    far = np.abs(levels[h][:, visible] - tables[h][visible]).max(axis=(1, 2))
    x, a = rng.choice(visible), rng.integers(tables[h].shape[1])
    shift = 0.3 if tables[h][x, a] < 0.5 else -0.3
    levels[h][far < 0.05, x, a] += shift


def _recurring(config: Config, rng: np.random.Generator) -> TabularProcess:
    """Draws a process with a loop, so that state 0 stands at several levels; each state owns its observations."""
    S, K, H = config.n_states, config.n_actions, config.horizon
    owned = 1 + config.n_observations // 2
    if config.stochastic:
        moves = rng.dirichlet(np.ones(S), (S, K))
    else:
        targets = rng.integers(S, size=(S, K))
        targets[0, 0] = 0
        moves = np.eye(S)[targets]
    emission = np.zeros((S, S * owned))
    for s, block in enumerate(np.split(rng.permutation(S * owned), S)):
        emission[s, block] = rng.dirichlet([2.0] * owned)
    rewards = Rewards.bernoulli(rng.random((S, 1, K)), 1 / H)
    return TabularProcess.from_flat(H, np.eye(S)[0], moves, emission, rewards)

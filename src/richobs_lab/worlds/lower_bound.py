"""The lower-bound family of [KAL16] Appendix A: one secret action sequence among K^H, which no observation reveals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from richobs import OpenLoop, Problem, Rewards, TabularProcess
from richobs.core.environment import checked_path
from richobs.core.errors import InvalidPath
from richobs.core.randomness import keyed_generator
from richobs.core.types import Floats, Path
from richobs.worlds.simulator import require_range, require_size, table_problem

GOOD, BAD = 0, 1


@dataclass(frozen=True)
class Config:
    """States g and b look alike; only the secret path p* ends in Bernoulli(1/2 + epsilon), all others in Bernoulli(1/2).

    Assumption 1 fails on purpose: the same observation comes from g and from b, whose values differ.
    """

    horizon: int = 4
    """Number of levels."""
    n_actions: int = 2
    """Number of actions."""
    epsilon: float = 0.1
    """How much better the secret path is."""
    seed: int = 0
    """Chooses the secret path."""

    def __post_init__(self) -> None:
        require_range(self, "horizon", low=1, high=1_000_000)
        require_range(self, "n_actions", low=2, high=1_000_000)
        require_size(self, self.horizon, self.n_actions**2)  # the class has K functions of K values
        require_range(self, "epsilon", low=0.0, high=0.5)


class HistoryPredictor:
    """f_p of Proposition 2: predicts 1/2 + epsilon on histories that follow p and 1/2 on all others.

    A history is a sequence of actions, the proposed one last: observations carry no information here.
    """

    def __init__(self, path: Path, n_actions: int, epsilon: float):
        self.path = path
        self.n_actions = n_actions
        self.epsilon = epsilon

    def __call__(self, history: Sequence[int]) -> float:
        """Returns f_p(history)."""
        history = checked_path(history, len(self.path), self.n_actions)
        return 0.5 + self.epsilon * (self.path[: len(history)] == history)

    def values(self, history: Sequence[int]) -> Floats:
        """Returns `[K]` the predictions for each next action after `history`."""
        return np.array([self((*history, a)) for a in range(self.n_actions)])

    def action(self, history: Sequence[int]) -> int:
        """Returns the greedy next action; ties go to the smallest."""
        return int(self.values(history).argmax())


class AllPaths(Sequence[Path]):
    """The K^H action sequences in lexicographic order, none of them stored."""

    def __init__(self, horizon: int, n_actions: int):
        self.horizon = horizon
        self.n_actions = n_actions

    @property
    def size(self) -> int:
        """Number of sequences, which `len` can only tell up to 2^63."""
        return self.n_actions**self.horizon

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> Path: ...
    @overload
    def __getitem__(self, index: slice) -> list[Path]: ...
    def __getitem__(self, index: int | slice) -> Path | list[Path]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.size))]
        if not -self.size <= index < self.size:
            raise IndexError(index)
        index %= self.size
        digits = []
        for _ in range(self.horizon):
            index, digit = divmod(index, self.n_actions)
            digits.append(digit)
        return tuple(reversed(digits))


def policies(config: Config) -> list[OpenLoop]:
    """Returns the K^H reactive policies of Proposition 1: pi_p plays the actions of p whatever it sees."""
    return [OpenLoop(p) for p in AllPaths(config.horizon, config.n_actions)]


def predictors(config: Config) -> list[HistoryPredictor]:
    """Returns the K^H history-dependent predictors of Proposition 2; Q* is the one of the secret path."""
    return [HistoryPredictor(p, config.n_actions, config.epsilon) for p in AllPaths(config.horizon, config.n_actions)]


def member(config: Config, secret: Path) -> TabularProcess:
    """Returns the process of the family whose secret path is `secret` ([KAL16] Appendix A, "The construction")."""
    H, K = config.horizon, config.n_actions
    secret = checked_path(secret, H, K)
    if len(secret) != H:
        raise InvalidPath(f"the secret path needs {H} actions, one per level; got {len(secret)}: {secret}.")
    moves = np.full((H, 2, K), BAD)
    moves[np.arange(H), GOOD, list(secret)] = GOOD
    chance = np.full((2, 1, K), 0.5)
    chance[GOOD, 0, secret[-1]] += config.epsilon
    nothing = Rewards.deterministic(np.zeros((1, 1, K)))
    return TabularProcess(
        start=np.eye(2)[GOOD],
        transitions=tuple(moves[:-1]),
        emissions=(np.ones((2, 1)),) * H,
        rewards=(nothing,) * (H - 1) + (Rewards.bernoulli(chance),),
        labels=tuple((f"g{level}", f"b{level}") for level in range(H)),
    )


def build(config: Config) -> Problem:
    """Returns one member of the family, with the reactive class that predicts "follow p" for every p.

    No class of functions of the observation can hold Q*: `optimal_function` is None.
    """
    rng = keyed_generator(config.seed, "lower-bound", "secret")
    H, K = config.horizon, config.n_actions
    process = member(config, tuple(int(a) for a in rng.integers(K, size=H)))
    follow = 0.5 + config.epsilon * np.eye(K)[:, None, :]  # [K, 1, K]
    return table_problem(process, [follow] * H, None)

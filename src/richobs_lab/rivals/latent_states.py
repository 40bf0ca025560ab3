"""Latent states for rivals that are told about them: which state was passed, and where actions lead.

No learner of rich observations sees this. A rival that uses it says so in `given`. Shapes: S states of a level, K actions,
X observations of a level, n episodes.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from richobs import (
    Episodes,
    InvalidInput,
    LearnedPolicy,
    OpenLoop,
    Policy,
    Problem,
    Settings,
    TabularProcess,
)
from richobs.core.randomness import keyed_generator
from richobs.core.types import Ints, Observations, Path
from richobs.learners.base import Need
from richobs.worlds.simulator import World


class Moves(NamedTuple):
    """Deterministic transitions between latent states."""

    start: int
    sizes: tuple[int, ...]  # S of every level
    next: tuple[Ints, ...]  # H-1 of them, [S, K] the state that an action leads to

    def path(self, actions: Sequence[Ints]) -> Path:
        """Returns the action sequence of a policy that lists per level `[S]` the action of each state."""
        state, path = self.start, []
        for level, chosen in enumerate(actions):
            path.append(int(chosen[state]))
            if level < len(self.next):
                state = int(self.next[level][state, path[-1]])
        return tuple(path)

    def states(self, path: Sequence[int]) -> list[int]:
        """Returns the states at which the actions of a sequence are taken, the start first."""
        passed = [self.start]
        for level, action in enumerate(path[: len(self.next)]):
            passed.append(int(self.next[level][passed[-1], action]))
        return passed[: len(path)]


def known_moves(problem: Problem) -> Moves | None:
    """Returns the transitions of a problem's latent states; None where they are random or not written down."""
    if problem.process is not None:
        return _moves_of_process(problem.process) if problem.process.is_deterministic else None
    world: World | None = None if problem.truth is None else problem.truth.world
    if world is None or not world.is_deterministic:
        return None
    rng = keyed_generator(0, "latent moves")  # a deterministic world draws nothing that matters
    H, K = problem.horizon, problem.n_actions
    sizes = tuple(len(world.labels(level)) for level in range(H))
    moves = []
    for level in range(H - 1):
        states, actions = np.divmod(np.arange(sizes[level] * K), K)
        moves.append(np.asarray(world.move(level, states, actions, rng), dtype=np.int64).reshape(sizes[level], K))
    return Moves(int(world.start(1, rng)[0]), sizes, tuple(moves))


def _moves_of_process(process: TabularProcess) -> Moves:
    sizes = tuple(len(e) for e in process.emissions)
    return Moves(int(process.start.argmax()), sizes, tuple(t.argmax(axis=2) for t in process.transitions))


def _moves_missing(problem: Problem, settings: Settings) -> str | None:
    if known_moves(problem) is not None:
        return None
    return f"those of {problem.name} are random, or nobody wrote them down."


KNOWN_MOVES = Need("deterministic transitions that it can be told", _moves_missing)


def moves_of(problem: Problem) -> Moves:
    """Returns the transitions of a problem, which `KNOWN_MOVES` made sure of."""
    moves = known_moves(problem)
    if moves is None:
        raise InvalidInput(f"{problem.name} has no deterministic transitions that are written down.")
    return moves


class StateReader(Protocol):
    """Tells the latent states of episodes, and plays policies that look at states."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """S of every level."""
        ...

    def states(self, played: Episodes, /) -> list[Ints]:
        """Returns per level `[n]` the states that episodes passed."""
        ...

    def acting(self, actions: Sequence[Ints], /) -> Policy:
        """Returns the policy that takes the listed action in each state, per level `[S]`."""
        ...

    def saved(self, actions: Sequence[Ints], /) -> LearnedPolicy:
        """Returns the same policy as one that can be saved and that needs no states."""
        ...


class ShownStates:
    """Reads the state off the observation, in a process whose states show different observations."""

    def __init__(self, process: TabularProcess):
        self.process = process
        self.sizes = tuple(len(e) for e in process.emissions)
        self.state_of = [seen.argmax(axis=0) for seen in process.seen]  # per level [X]

    def states(self, played: Episodes, /) -> list[Ints]:
        """Returns per level `[n]` the states that showed the observations."""
        return [self._read(level, x) for level, x in enumerate(played.observations)]

    def acting(self, actions: Sequence[Ints], /) -> Policy:
        """Returns the policy that reads the state and takes its action."""
        return _ByState(self, actions)

    def saved(self, actions: Sequence[Ints], /) -> LearnedPolicy:
        """Returns the table of the action of each observation."""
        tables = [chosen[state] for chosen, state in zip(actions, self.state_of, strict=True)]
        return LearnedPolicy.from_table(self.process.codebooks, tables, n_actions=self.process.n_actions)

    def _read(self, level: int, x: Observations) -> Ints:
        return self.state_of[level][self.process.encode(level, x)]


class _ByState:
    """Takes the action of the state that an observation shows."""

    def __init__(self, reader: ShownStates, actions: Sequence[Ints]):
        self._reader, self._actions = reader, actions

    def actions(self, level: int, x: Observations, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` the actions."""
        return self._actions[level][self._reader._read(level, x)]


class ReplayedStates:
    """Derives the state from the actions so far, where the same actions lead to the same state."""

    def __init__(self, moves: Moves, n_actions: int):
        self.moves, self.n_actions, self.sizes = moves, n_actions, moves.sizes

    def states(self, played: Episodes, /) -> list[Ints]:
        """Returns per level `[n]` the states that the actions led to."""
        here = np.full(played.n, self.moves.start, dtype=np.int64)
        passed = [here]
        for level in range(played.levels - 1):
            here = self.moves.next[level][here, played.actions[level]]
            passed.append(here)
        return passed

    def acting(self, actions: Sequence[Ints], /) -> Policy:
        """Returns the action sequence that the policy comes to."""
        return OpenLoop(self.moves.path(actions))

    def saved(self, actions: Sequence[Ints], /) -> LearnedPolicy:
        """Returns the action sequence that the policy comes to."""
        return LearnedPolicy.open_loop(self.moves.path(actions), self.n_actions)


def find_reader(problem: Problem) -> StateReader | None:
    """Returns what tells the latent states of a problem; None where nothing does."""
    process = problem.process
    if process is not None and all((seen.sum(axis=0) <= 1).all() for seen in process.seen):
        return ShownStates(process)
    moves = known_moves(problem)
    return None if moves is None else ReplayedStates(moves, problem.n_actions)


def _reader_missing(problem: Problem, settings: Settings) -> str | None:
    if find_reader(problem) is not None:
        return None
    return (
        f"those of {problem.name} cannot be told. They can where observations are listed and tell the state, and where "
        "transitions are deterministic and written down."
    )


LATENT_STATES = Need("latent states that it can be told", _reader_missing)


def reader_of(problem: Problem) -> StateReader:
    """Returns what tells the latent states of a problem, which `LATENT_STATES` made sure of."""
    reader = find_reader(problem)
    if reader is None:
        raise InvalidInput(f"the latent states of {problem.name} cannot be told.")
    return reader

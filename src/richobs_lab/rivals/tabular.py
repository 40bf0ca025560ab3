"""What tabular rivals share: tables over (level, observation), the model that counts make, and what they need.

Shapes: X observations of a level, K actions, R tables side by side.
"""

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from richobs import (
    Episodes,
    InvalidInput,
    LearnedPolicy,
    Outcome,
    Policy,
    Problem,
    Settings,
    TabularProcess,
)
from richobs.core.errors import EpisodeLimit
from richobs.core.events import Callback
from richobs.core.queries import Engine, Query, Tally
from richobs.core.types import Floats, Ints, Observations
from richobs.learners.base import Need, Promise, Traits, unit_rewards
from richobs_lab.rivals.base import Rival, near_optimal
from richobs_lab.rivals.rival_events import Rounds

MOST_BATCHES = 1_000_000
HIDDEN = "some state shows other observations than its own, so what is seen does not tell the state."


def _no_process(problem: Problem, settings: Settings) -> str | None:
    if problem.process is None:
        return f"{problem.name} has none (too many observations, or none was given)."
    return None


def _hidden_states(problem: Problem, settings: Settings) -> str | None:
    return HIDDEN if problem.process is not None and not shows_states(problem.process) else None


PROCESS = Need("a process that is written down, which lists the observations", _no_process)
STATES_SEEN = Need("observations that are the states", _hidden_states)


def shows_states(process: TabularProcess) -> bool:
    """Returns whether what is seen is the state ([KAL16] Section 2.3, Markov decision processes)."""
    return all(e.shape[0] == e.shape[1] and np.array_equal(e, np.eye(len(e))) for e in process.emissions)


def require_states(process: TabularProcess) -> None:
    """Raises `InvalidInput` unless what is seen is the state."""
    if not shows_states(process):
        raise InvalidInput(f"tabular methods need a process that shows its states: {HIDDEN}")


def process_of(problem: Problem) -> TabularProcess:
    """Returns the process of a problem, which `PROCESS` made sure of."""
    if problem.process is None:
        raise InvalidInput(f"{problem.name} has no process that is written down.")
    return problem.process


def n_pairs(process: TabularProcess) -> int:
    """Returns the number of (level, observation, action) triples."""
    return sum(len(rows) for rows in process.observations) * process.n_actions


class Learned(NamedTuple):
    """What a tabular method answers."""

    policy: tuple[Ints, ...]  # per level [X] the action
    values: tuple[Floats, ...]  # per level [X, K] what it believes, optimism included
    episodes: int
    finished: bool  # by its own rule, rather than because episodes or rounds were spent
    value_hat: float | None = None  # estimate of the policy's value, where the method has one
    remarks: tuple[str, ...] = ()  # why it stopped, where that was not its own rule


def best_actions(values: Sequence[Floats]) -> tuple[Ints, ...]:
    """Returns per level `[X]` the best action of tables `[X, K]`; ties go to the smallest."""
    return tuple(q.argmax(axis=1) for q in values)


def greedy_policy(process: TabularProcess, values: Sequence[Floats]) -> LearnedPolicy:
    """Returns the policy that is greedy in tables `[X, K]`, as one that can be saved; ties go to the smallest action."""
    return LearnedPolicy.from_table(process.codebooks, best_actions(values), n_actions=process.n_actions)


class TabularRival(Rival):
    """A method that counts what it sees in every state, and whose policy is near-optimal when it stops by its own rule."""

    given = ("list of observations", "observations that are the states", "horizon")
    needs = (unit_rewards, PROCESS, STATES_SEEN)
    promises = Promise(
        "When it stops by its own rule: with probability 1 - delta the policy's value is within epsilon of V*.",
        ("what is seen is the state",),
    )
    traits = Traits(counts=True)
    unfinished: ClassVar[str]  # why nothing is claimed where the episodes were spent first, in a sentence

    @abstractmethod
    def learn(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Learned:
        """Returns what the method found; the policy is greedy in its values."""

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Learns."""
        learned = self.learn(problem, engine, settings, notify)
        return self.answer(
            greedy_policy(process_of(problem), learned.values),
            settings,
            self.unfinished,
            finished=learned.finished,
            wording=near_optimal(settings, engine.ledger, "optimal", "what is seen is the state"),
            value_hat=learned.value_hat,
            remarks=learned.remarks,
        )


def random_argmax(values: Floats, rng: np.random.Generator) -> Ints:
    """Returns `[n]` where each row of `values` `[n, K]` is largest; ties are broken at random."""
    best = values == values.max(axis=1, keepdims=True)
    return (best * (rng.random(values.shape) + 1)).argmax(axis=1)


def tied_law(values: Floats) -> Floats:
    """Returns `[..., K]` the law of an action that is best in `values` `[..., K]`, ties broken at random."""
    best = values == values.max(axis=-1, keepdims=True)
    return np.asarray(best / best.sum(axis=-1, keepdims=True))


class GreedyTables:
    """Greedy in tables, ties broken at random.

    Of R tables the i-th acts in episode i, so R episodes are played at once; a single table serves any number of episodes.
    """

    def __init__(self, process: TabularProcess, q: Sequence[Floats]):
        """Takes the tables; it follows them as they change.

        Args:
            process: numbers the observations.
            q: per level `[R, X, K]`.
        """
        self.process, self.q = process, q

    def actions(self, level: int, x: Observations, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` the best actions."""
        return random_argmax(self._values(level, x), rng)

    def probabilities(self, level: int, x: Observations, /) -> Floats:
        """Returns `[n, K]` the probability of each action."""
        return tied_law(self._values(level, x))

    def _values(self, level: int, x: Observations) -> Floats:
        """Returns `[n, K]` the values at the observations, each in the table that acts there."""
        tables = self.q[level]
        rows = np.arange(len(tables)) if len(tables) > 1 else 0
        return np.asarray(tables[rows, self.process.encode(level, x)])


class TableLaw:
    """Draws actions from laws that are listed, one for each observation."""

    def __init__(self, process: TabularProcess, laws: Sequence[Floats]):
        """Takes the laws.

        Args:
            process: numbers the observations.
            laws: per level `[X, K]` the probability of each action.
        """
        self.process, self.laws = process, laws

    def actions(self, level: int, x: Observations, rng: np.random.Generator, /) -> Ints:
        """Returns `[n]` random actions."""
        steps = self.probabilities(level, x).cumsum(axis=1)
        return (steps[:, :-1] <= rng.random(len(steps))[:, None]).sum(axis=1)

    def probabilities(self, level: int, x: Observations, /) -> Floats:
        """Returns `[n, K]` the probability of each action."""
        return np.asarray(self.laws[level][self.process.encode(level, x)])


class TableLearner(Protocol):
    """R tables side by side that change after every episode."""

    @property
    def q(self) -> list[Floats]:
        """Per level `[R, X, K]`."""
        ...

    @property
    def policy(self) -> Policy:
        """How they act: the i-th table in episode i."""
        ...

    @property
    def tried(self) -> int:
        """How many (level, observation, action) triples the first table has seen."""
        ...

    def learn(self, played: Episodes, /) -> None:
        """Takes in R episodes, one for each table."""
        ...


def learn_by_episodes(tables: TableLearner, engine: Engine, episodes: int, rounds: Rounds) -> None:
    """Plays one episode after the other and learns from each, until `episodes` or those allowed are spent."""
    pairs = sum(q[0].size for q in tables.q)

    def words() -> str:
        return f"tried {tables.tried:,} of {pairs:,} pairs of observation and action"

    for _ in range(episodes):
        try:
            answer = engine.ask(Query(tables.policy, 1, "episode", episodes=True))
        except EpisodeLimit:
            return
        assert answer.episodes is not None
        tables.learn(answer.episodes)
        rounds.add(1, float(answer.episodes.returns[0]), words)
    rounds.close(words())


def ask_tally(engine: Engine, process: TabularProcess, values: Sequence[Floats], n: int) -> Tally:
    """Plays n episodes of the policy that is greedy in `values`, per level `[X, K]`, and counts what happened."""
    sure = [np.eye(process.n_actions)[actions] for actions in best_actions(values)]
    return counted(engine, TableLaw(process, sure), n)


def counted(engine: Engine, policy: Policy, n: int) -> Tally:
    """Plays n episodes of a policy and counts what happened."""
    tally = engine.ask(Query(policy, n, "batch", tally=True)).tally
    assert tally is not None
    return tally


def earned_in(tally: Tally) -> float:
    """Returns the sum of all rewards in a tally."""
    return math.fsum(float(rewards.sum()) for rewards in tally.rewards)


class Batches(NamedTuple):
    """How `play_batches` ended."""

    episodes: int
    finished: bool  # because no batch was wanted any more
    remarks: tuple[str, ...]  # why it ended, where that was not so


def play_batches(
    engine: Engine,
    process: TabularProcess,
    rounds: Rounds,
    size: Callable[[int], int],
    tables: Callable[[], Sequence[Floats]],
    take: Callable[[Tally, int], None],
    words: Callable[[], str],
) -> Batches:
    """Plays batch after batch of a greedy policy that is fixed meanwhile, until no batch is wanted.

    Args:
        engine: plays the process; where its ledger allows no more episodes, it ends.
        process: numbers the states, all of which are seen.
        rounds: told about every batch.
        size: returns the episodes of the next batch, given those played so far; 0 where none is wanted.
        tables: returns per level `[X, K]` what the next batch is greedy in.
        take: takes in what a batch showed, and the episodes played so far, the batch included.
        words: says what is known after a batch.
    """
    require_states(process)
    played = 0
    for _ in range(MOST_BATCHES):
        n = size(played)
        if n == 0:
            rounds.close(words())
            return Batches(played, True, ())
        try:
            tally = ask_tally(engine, process, tables(), n)
        except EpisodeLimit as limit:
            return Batches(played, False, (str(limit),))
        played += n
        take(tally, played)
        rounds.add(n, earned_in(tally), words)
    return Batches(played, False, ("The most batches that are played were reached.",))


class EmpiricalModel:
    """What was seen so far, per level: visits and reward sums `[X, K]`, moves `[X, K, X']`."""

    def __init__(self, process: TabularProcess):
        sizes, K = [len(rows) for rows in process.observations], process.n_actions
        self.visits = [np.zeros((size, K)) for size in sizes]
        self.rewards = [np.zeros((size, K)) for size in sizes]
        self.moves = [np.zeros((here, K, there)) for here, there in itertools.pairwise(sizes)]

    def add(self, tally: Tally) -> None:
        """Adds what more episodes saw."""
        columns = ((self.visits, tally.visits), (self.rewards, tally.rewards), (self.moves, tally.moves))
        for totals, news in columns:
            for total, new in zip(totals, news, strict=True):
                total += new

    def values(self, visits: int, unknown: float) -> tuple[Floats, ...]:
        """Returns per level `[X, K]` Q* of the model: pairs seen `visits` times are as they were, others worth `unknown`."""
        values: list[Floats] = []
        for level in reversed(range(len(self.visits))):
            q = self.rewards[level] + (self.moves[level] @ values[0].max(axis=1) if values else 0.0)
            values.insert(0, np.where(self.visits[level] >= visits, q / np.maximum(self.visits[level], 1), unknown))
        return tuple(values)

    def start_value(self, values: Sequence[Floats]) -> float:
        """Returns the largest values of the first level, averaged over the starts that were seen."""
        seen = self.visits[0].sum(axis=1)
        return float(seen @ values[0].max(axis=1) / seen.sum())

    def next_batch(self, policy: tuple[Ints, ...], wanted: Sequence[Floats]) -> int:
        """Returns how many episodes of `policy` can be played before a pair on its way has had the visits it wants.

        Args:
            policy: per level `[X]` the action.
            wanted: per level `[X, K]` visits each pair still wants.

        Returns:
            1 while a pair on the way was never visited, because where it leads is not known; 0 where no pair wants visits.
        """
        here = np.flatnonzero(self.visits[0].sum(axis=1) > 0)  # the starts that were seen
        least = math.inf if len(here) else 1
        for level, actions in enumerate(policy):
            a = actions[here]
            if (self.visits[level][here, a] == 0).any():
                return 1
            wants = wanted[level][here, a]
            least = min([least, *wants[wants > 0].tolist()])
            if level < len(policy) - 1:
                here = np.flatnonzero(self.moves[level][here, a].sum(axis=0) > 0)
        return 0 if math.isinf(least) else int(least)

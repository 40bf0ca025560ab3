"""What tabular rivals share: tables over (level, observation), the model that counts make, and what they need.

Shapes: X observations of a level, K actions, R tables side by side.
"""

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

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
    table_policy,
)
from richobs.core.errors import EpisodeLimit
from richobs.core.ledger import Ledger
from richobs.core.outcome import StopReason, Wording, probability_words
from richobs.core.queries import Engine, Query, Tally
from richobs.core.types import Floats, Ints, Observations
from richobs.learners.base import Need
from richobs_lab.rivals.rival_events import Rounds

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
    return table_policy(process.codebooks, best_actions(values), n_actions=process.n_actions)


def near_optimal(settings: Settings, ledger: Ledger, best: str, provided: str = "") -> Wording:
    """Returns the claim of a method that proves its policy near-optimal, without epsilon.

    Args:
        settings: with delta.
        ledger: of the run, which knows what its episodes rest on.
        best: what the policy's value is compared with.
        provided: what the claim rests on, beside independent episodes and rewards whose totals lie in the declared range.
    """
    needed = " and ".join([*ledger.assumes, "episodes are independent", *([provided] if provided else [])])
    return partial(_near_optimal_words, settings.delta, best, needed)


def _near_optimal_words(
    delta: float, best: str, needed: str, *, epsilon: float, lower: float | None, upper: float | None
) -> str:
    return (
        f"With probability at least {probability_words(delta)} the policy's value is within {epsilon!r} of "
        f"{best}, provided {needed}."
    )


def tabular_outcome(
    name: str, process: TabularProcess, learned: Learned, settings: Settings, ledger: Ledger, unfinished: str
) -> Outcome:
    """Returns the answer of a method whose policy is near-optimal when it stops by its own rule.

    Args:
        name: of the learner.
        process: numbers the states, all of which are seen.
        learned: what the method found; its policy is greedy in the values.
        settings: with epsilon and delta.
        ledger: of the run.
        unfinished: why nothing is claimed where the episodes were spent first, with a full stop.
    """
    wording = near_optimal(settings, ledger, "optimal", "what is seen is the state")
    sure = wording(epsilon=settings.epsilon, lower=None, upper=None)
    return Outcome(
        policy=greedy_policy(process, learned.values),
        claim=sure if learned.finished else f"No guarantee: {unfinished}",
        wording=wording,
        learner=name,
        epsilon=settings.epsilon,
        delta=settings.delta,
        reason=StopReason.OWN_RULE if learned.finished else StopReason.BUDGET_SPENT,
        guaranteed=learned.finished,
        remarks=learned.remarks,
        value_hat=learned.value_hat,
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


def refuse_counts(name: str, engine: str) -> None:
    """Raises `InvalidInput` where a learner that learns after every episode is to be played as counts."""
    if engine == "counted":
        raise InvalidInput(
            f"the learner {name!r} learns after every episode, and the counted engine only draws how often each occurs. Use "
            "engine='stream'."
        )


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

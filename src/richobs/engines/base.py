"""What engines share: how a run builds one, and the step from episodes to what a query wants of them."""

from typing import NamedTuple, Protocol

import numpy as np

from richobs.classes.layered import ByLevel
from richobs.core.environment import Environment, Episodes
from richobs.core.errors import InvalidInput, Rejected
from richobs.core.executors import Workers
from richobs.core.functions import FunctionClass
from richobs.core.ledger import Ledger
from richobs.core.moments import Batch, Moments, check_answers
from richobs.core.problem import Problem
from richobs.core.process import TabularProcess
from richobs.core.queries import Answer, Engine, Query, Returns, Tally
from richobs.core.settings import Settings
from richobs.core.steps import Steps
from richobs.core.types import Ints
from richobs.core.units import UnitFunctions
from richobs.device.classes import OnDevice


class EngineKind(Protocol):
    """What `richobs.engines.ENGINES` names: a class whose objects are engines, and that a run can build."""

    def missing(self, problem: Problem, /) -> str | None:
        """Returns in a sentence why this engine cannot play a problem; None where it can."""
        ...

    def build(
        self, problem: Problem, env: Environment, settings: Settings, ledger: Ledger, workers: Workers, /
    ) -> Engine:
        """Returns the engine of one run.

        Args:
            problem: what is played.
            env: its environment, or what stands in for it: the same, played a few episodes at a time and recorded.
            settings: what the run is asked to do.
            ledger: where episodes are charged.
            workers: who may share the work. An environment that is not simulated here is played by one thread, and shares
                its calls with workers itself; then this process works alone here.
        """
        ...


class RoundingWatch:
    """An engine that keeps the largest rounding of the moments it answers, drawn now or taken from a record.

    It refuses moments that are too rough for the epsilon of the run.
    """

    def __init__(self, engine: Engine, epsilon: float):
        """Takes the engine, and what the learner is asked for, in the units of its moments."""
        self._engine, self._epsilon = engine, epsilon
        self.rounding = 0.0

    @property
    def name(self) -> str:
        """What the engine is called."""
        return self._engine.name

    @property
    def ledger(self) -> Ledger:
        """Where every episode is charged."""
        return self._engine.ledger

    def ask(self, query: Query, /) -> Answer:
        """Asks the engine.

        Raises:
            PrecisionError: the moments are known up to too much.
        """
        answer = self._engine.ask(query)
        self.rounding = max([self.rounding, *(m.rounding for m in answer.moments)])
        check_answers(self.rounding, self._epsilon)
        return answer


class Partial(NamedTuple):
    """What some of a query's episodes contribute to its answer; contributions are added in the order of chunks."""

    n: int
    total: float  # of the returns
    squares: float  # of the returns
    paths: Ints  # [first, levels]
    moments: tuple[Moments, ...]
    tally: Tally | None
    episodes: Episodes | None
    steps: tuple[Steps, ...] = ()


def parts_of(functions: FunctionClass) -> dict[str, object]:
    """Returns a class of functions, and the parts of it that policies refer to, by name: what workers get once."""
    own = functions.own if isinstance(functions, OnDevice) else functions
    own = own.own if isinstance(own, UnitFunctions) else own
    levels = own.levels if isinstance(own, ByLevel) else ()
    return {"functions": functions, "own": own, **{f"level {h}": level for h, level in enumerate(levels)}}


def check_tally(query: Query, process: TabularProcess | None) -> None:
    """Refuses, before anything is played, a tally of observations without a process that lists them."""
    if query.tally and process is None:
        raise InvalidInput("a tally counts observations by their number, which needs a process that lists them.")


def check_steps(query: Query, horizon: int) -> None:
    """Refuses, before anything is played, steps of levels that the query does not reach."""
    played = horizon if query.levels is None else query.levels
    for wanted in query.steps:
        if wanted.level + wanted.moves >= played:
            next_ = " and what is seen next" if wanted.moves else ""
            raise InvalidInput(
                f"{query.purpose} wants the steps of level {wanted.level}{next_}, and plays levels 0 to {played - 1} only."
            )


def partial_of(
    query: Query, played: Episodes, first: int, functions: FunctionClass, process: TabularProcess | None
) -> Partial:
    """Returns what a query wants of some of its episodes.

    Args:
        query: what is wanted.
        played: the episodes.
        first: how many of them are among the first whose paths are wanted.
        functions: the class whose moments are wanted.
        process: numbers the observations, where a tally is wanted.
    """
    if (query.moments or query.tally) and played.ended and played.ended[-1].any():
        raise Rejected(
            f"the environment ended an episode early, and {query.phase} ({query.purpose}) averages values over episodes of "
            "full length. Use learner='betting' or learner='olive', which know ends; or let the environment go on, without "
            "rewards, at an observation of its own for the end."
        )
    returns = played.returns if query.returns else np.zeros(0)
    moments = []
    for wanted in query.moments:
        x = played.observations[wanted.level]
        if wanted.rewards:
            actions, rewards = played.actions[wanted.level], played.rewards[wanted.level]
            batch = Batch.of_steps(x, actions, rewards, functions.n_actions)
        else:
            batch = Batch.of_observations(x, functions.n_actions)
        moments.append(functions.moments(wanted.level, batch, wanted.members))
    return Partial(
        n=played.n,
        total=float(returns.sum()),
        squares=float((returns**2).sum()),
        paths=played.paths[:first],
        moments=tuple(moments),
        tally=_tally(played, process) if query.tally and process is not None else None,
        episodes=played if query.episodes else None,
        steps=tuple(
            Steps.of(
                played.observations[level],
                played.actions[level],
                played.rewards[level],
                played.observations[level + 1] if moves else None,
                functions.n_actions,
                (played.ended[level], played.ended[level + moves]) if played.ended else None,
            )
            for level, moves in query.steps
        ),
    )


def _tally(played: Episodes, process: TabularProcess) -> Tally:
    """Counts episodes by (level, observation, action)."""
    x = [process.encode(h, seen) for h, seen in enumerate(played.observations)]
    sizes, K = [len(rows) for rows in process.observations], process.n_actions
    visits, rewards, moves = [], [], []
    for h in range(played.levels):
        cell = x[h] * K + played.actions[h]
        visits.append(np.bincount(cell, minlength=sizes[h] * K).reshape(sizes[h], K).astype(np.float64))
        earned = np.bincount(cell, weights=played.rewards[h], minlength=sizes[h] * K).astype(np.float64)
        rewards.append(earned.reshape(sizes[h], K))
        if h < played.levels - 1:
            shape = (sizes[h], K, sizes[h + 1])
            pairs = np.bincount(cell * sizes[h + 1] + x[h + 1], minlength=int(np.prod(shape)))
            moves.append(pairs.reshape(shape).astype(np.float64))
    return Tally(tuple(visits), tuple(rewards), tuple(moves))


class Sum:
    """Adds up what chunks contribute, one after the other."""

    def __init__(self, query: Query):
        self._query = query
        self._total, self._squares = 0.0, 0.0
        self._paths: list[Ints] = []
        self._moments: tuple[Moments, ...] = ()
        self._tally: Tally | None = None
        self._episodes: list[Episodes] = []
        self._steps = [_SumOfSteps() for _ in query.steps]

    def add(self, part: Partial) -> None:
        """Adds the contribution of the next chunk."""
        self._total += part.total
        self._squares += part.squares
        if len(part.paths):
            self._paths.append(part.paths)
        if self._moments:
            self._moments = tuple(a + b for a, b in zip(self._moments, part.moments, strict=True))
        else:
            self._moments = part.moments
        self._tally = part.tally if self._tally is None or part.tally is None else _added(self._tally, part.tally)
        if part.episodes is not None:
            self._episodes.append(part.episodes)
        for total, steps in zip(self._steps, part.steps, strict=True):
            total.add(steps)

    def answer(self) -> Answer:
        """Returns the answer once all chunks were added."""
        n = self._query.n
        mean = self._total / n
        returns = Returns(mean, max(0.0, self._squares / n - mean**2))
        plain = Answer(n, moments=self._moments, tally=self._tally)
        return Answer(
            n,
            returns if self._query.returns else plain.returns,
            np.concatenate(self._paths) if self._paths else plain.paths,
            self._moments,
            self._tally,
            Episodes.concatenate(self._episodes) if self._episodes else None,
            tuple(steps.total() for steps in self._steps),
        )


class _SumOfSteps:
    """Adds up steps in order: parts of about equal size are added first, so that large ones are added rarely."""

    def __init__(self) -> None:
        self._parts: list[Steps] = []

    def add(self, part: Steps) -> None:
        """Adds the steps of the next chunk."""
        self._parts.append(part)
        while len(self._parts) > 1 and len(self._parts[-2].x) <= 2 * len(self._parts[-1].x):
            last = self._parts.pop()
            self._parts[-1] += last

    def total(self) -> Steps:
        """Returns the sum of all that were added."""
        while len(self._parts) > 1:
            last = self._parts.pop()
            self._parts[-1] += last
        return self._parts[0]


def _added(a: Tally, b: Tally) -> Tally:
    return Tally(*(tuple(x + y for x, y in zip(one, other, strict=True)) for one, other in zip(a, b, strict=True)))

"""Who answers the queries of a learner: one `Play` per run, whose stages are check, log, charge, draw and append.

A learner is a function of what its play answers, so a run that was interrupted goes on by asking the same questions: those
answered before are answered from the log, and the rest by drawing. Every draw is written down before it is used, and never
made twice.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, Self

from richobs.core.environment import Environment, checked_path
from richobs.core.errors import InvalidFile, InvalidInput
from richobs.core.executors import Workers
from richobs.core.functions import FunctionClass
from richobs.core.ledger import Ledger
from richobs.core.moments import check_answers
from richobs.core.problem import Problem
from richobs.core.process import TabularProcess
from richobs.core.queries import Answer, Query
from richobs.core.settings import Settings
from richobs.engines.answers import pack_answer, unpack_answer
from richobs.engines.independence import Watch
from richobs.engines.probes import Probes, pack_probes

Words = list[Any]  # a query in plain values
Listing = TabularProcess | Callable[[], TabularProcess | None] | None  # what lists the observations, or returns it


class Log(Protocol):
    """Where draws are kept, in order."""

    def draw(self, k: int, /) -> tuple[Words, bytes] | None:
        """Returns the k-th query and its answer, or None where there is none yet."""

    def keep_draw(self, k: int, query: Words, answer: bytes, /) -> None:
        """Writes the k-th draw down for good, with its probes, and forgets the calls that it was made of."""

    def keep_probes(self, probes: bytes, /) -> None:
        """Takes the probes of the draw that is kept next, where the class is Python code."""

    def call(self, key: str, /) -> bytes | None:
        """Returns what a call of the draw in progress gave; None where it was not made yet."""

    def check_calls(self, calls: int, /) -> None:
        """Refuses more calls of one draw than can be kept, before any is made."""

    def keep_call(self, key: str, answer: bytes, /) -> None:
        """Writes a call of the draw in progress down."""


class Play(ABC):
    """Answers the queries of one run, and charges every episode to its ledger.

    A subclass draws: it writes `build` and `draw`, and `missing` and `check` where there is something that it cannot do. One
    line in `richobs.engines.ENGINES` makes it known.
    """

    name: ClassVar[str]  # what it is called in settings

    log: Log | None = None  # where draws are kept
    probes: Probes | None = None  # where they are gathered, if the class is Python code
    watch: Watch | None = None  # looks at calls of an environment of one's own
    learner_looks: bool = False  # whether the learner itself looks at the episodes that it gets
    per_call: int | None = None  # episodes that one call in the log plays at most; None where calls are not in it
    epsilon: float = math.inf  # of the learner: moments that are too rough for it are refused
    rounding: float = 0.0  # the largest of all moments so far

    def __init__(
        self,
        played: Environment | TabularProcess,
        functions: FunctionClass,
        *,
        seed: int,
        ledger: Ledger,
        process: Listing = None,
    ):
        """Prepares to answer.

        Args:
            played: what is drawn from.
            functions: the class whose moments are wanted.
            seed: of every draw.
            ledger: where episodes are charged.
            process: lists the observations, where tallies are wanted; or a function that returns it then.
        """
        self.ledger = ledger
        self._horizon, self._n_actions = played.horizon, played.n_actions
        self._functions, self._process, self._seed = functions, process, seed
        self._asked = 0

    @classmethod
    def missing(cls, problem: Problem, /) -> str | None:
        """Returns in a sentence why it cannot play a problem; None where it can."""
        return None

    @classmethod
    @abstractmethod
    def build(cls, problem: Problem, env: Environment, settings: Settings, ledger: Ledger, workers: Workers, /) -> Self:
        """Returns the play of one run.

        Args:
            problem: what is played, in the units of the learner.
            env: its environment, or what stands in for it: the same, played a few episodes at a time and recorded.
            settings: what the run is asked to do.
            ledger: where episodes are charged.
            workers: who may share the work. An environment that is not simulated here is played by one thread, and shares
                its calls with workers itself; then this process works alone here.
        """

    def check(self, query: Query, /) -> None:
        """Refuses what cannot be answered, in a sentence, before anything is charged."""
        checked_path(query.path, self._horizon, self._n_actions)
        if query.tally and self._listing() is None:
            raise InvalidInput("a tally counts observations by their number, which needs a process that lists them.")
        played = self._horizon if query.levels is None else query.levels
        for wanted in query.steps:
            if wanted.level + wanted.moves >= played:
                next_ = " and what is seen next" if wanted.moves else ""
                raise InvalidInput(
                    f"{query.purpose} wants the steps of level {wanted.level}{next_}, and plays levels 0 to {played - 1} "
                    "only."
                )

    def _listing(self) -> TabularProcess | None:
        """Returns what lists the observations; where it was given as a function, that is called now."""
        return self._process() if callable(self._process) else self._process

    @abstractmethod
    def draw(self, query: Query, visit: int, /) -> Answer:
        """Draws what a query asks for: a pure function of the seed, the query's key and `visit`.

        Args:
            query: what is asked for; it was checked and charged.
            visit: how often its key was asked before.
        """

    def ask(self, query: Query, /) -> Answer:
        """Returns the answer from the log, or draws it and appends it there.

        Raises:
            EpisodeLimit: the episodes allowed do not suffice; nothing was played.
            PrecisionError: the moments are known up to too much.
        """
        known = None if self.log is None else self.log.draw(self._asked)
        if known is None:
            if self.log is not None and self.per_call is not None:
                self.log.check_calls(-(-query.n // self.per_call))
            self.check(query)
        elif known[0] != query.words:
            raise InvalidFile(
                f"draw {self._asked} of the record was {known[0]}, and the same run now asks for {query.words}: it was made "
                "by other code or on another machine. Start anew in another folder."
            )
        visit = self.ledger.charge(query.phase, query.purpose, query.path, query.n)
        if known is not None:
            answer = unpack_answer(known[1])
        else:
            if self.watch is not None:
                self.watch.sees_calls = not (query.episodes and self.learner_looks)
            answer = self.draw(query, visit)
            if self.log is not None:
                if self.probes is not None:
                    self.log.keep_probes(pack_probes(self.probes))
                self.log.keep_draw(self._asked, query.words, pack_answer(answer))
        self._asked += 1  # not before: a query that the ledger refused is no draw
        self.rounding = max([self.rounding, *(m.rounding for m in answer.moments)])
        if self.rounding:
            check_answers(self.rounding, self.epsilon)
        return answer

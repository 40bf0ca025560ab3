"""A direct engine that counts what it was asked: an engine to copy when you write your own.

Copy this file to `src/richobs/engines/`, change it, and add one line to `ENGINES` in `__init__.py` there. The conformance
suite (`tests/conformance/test_engines.py`), `richobs.learn(problem, engine="direct")` and `--engine direct` then know your
engine. `missing` and `build` are called once, before a learner starts. `check` and `draw` are called for every query that
the log of the run does not answer. `Play` charges the ledger and writes the log.
"""

from richobs.core.environment import Environment
from richobs.core.errors import InvalidInput
from richobs.core.executors import Workers
from richobs.core.functions import FunctionClass
from richobs.core.ledger import Ledger
from richobs.core.problem import Problem
from richobs.core.process import TabularProcess
from richobs.core.queries import Answer, Query
from richobs.core.randomness import keyed_generator
from richobs.core.settings import Settings
from richobs.engines.answers import answer_of, partial_of
from richobs.engines.play import Play
from richobs.engines.stream import play_checked

MOST = 1_000_000  # episodes of one query: all of them are held at once


class DirectEngine(Play):
    """Plays all episodes of a query in one call of the environment, and lists what was asked."""

    name = "direct"

    def __init__(
        self,
        env: Environment,
        functions: FunctionClass,
        *,
        seed: int,
        ledger: Ledger,
        process: TabularProcess | None = None,
    ):
        """Takes what to play, the class whose moments are wanted, the seed of every draw, and where episodes are charged."""
        super().__init__(env, functions, seed=seed, ledger=ledger, process=process)
        self.lines: list[str] = []
        self._env = env

    @classmethod
    def missing(cls, problem: Problem, /) -> str | None:
        """Returns in a sentence why this engine cannot play a problem; None where it can. This one plays everything."""
        return None

    @classmethod
    def build(
        cls, problem: Problem, env: Environment, settings: Settings, ledger: Ledger, workers: Workers, /
    ) -> "DirectEngine":
        """Returns the engine of one run. Play `env`, not `problem.env`: it may be recorded as it is played.

        `workers` may share work that this engine does itself; this one does all in one place.
        """
        return cls(env, problem.functions, seed=settings.seed, ledger=ledger, process=problem.process)

    def check(self, query: Query, /) -> None:
        """Refuses what this engine cannot do, in a sentence with a way out. A refused query costs nothing."""
        super().check(query)
        if query.n > MOST:
            raise InvalidInput(
                f"{query.purpose} asks for {query.n:,} episodes, and the direct engine holds at most {MOST:,} at once. Use "
                "engine='stream'."
            )

    def draw(self, query: Query, visit: int, /) -> Answer:
        """Plays what the query asks for and returns what it wants."""
        # A draw depends on the seed, the query's key and how often that key was asked before, and on nothing else.
        rng = keyed_generator(self._seed, "draw", *query.key, visit)
        # `play_checked` refuses episodes that are not what was asked for.
        played = play_checked(self._env, query.policy, query.n, rng, query.levels)
        self.lines.append(f"{query.n} episodes for {query.purpose}, mean return {played.returns.mean():.4f}")
        # `partial_of` computes what the query wants of some of its episodes; `answer_of` adds such parts up, here only one.
        return answer_of(
            query, [partial_of(query, played, min(query.paths, query.n), self._functions, self._listing())]
        )

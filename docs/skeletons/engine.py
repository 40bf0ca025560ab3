"""A direct engine with a log: an engine to copy when you write your own.

Copy this file to `src/richobs/engines/`, change it, and add one line to `ENGINES` in `__init__.py` there. The conformance
suite (`tests/conformance/test_engines.py`), `richobs.learn(problem, engine="direct")` and `--engine direct` then know your
engine. Only `ask` is called while a learner runs; `missing` and `build` are called once, before it starts.
"""

from richobs.core.environment import Environment, checked_episodes, checked_path
from richobs.core.errors import InvalidInput
from richobs.core.executors import Workers
from richobs.core.functions import FunctionClass
from richobs.core.ledger import Ledger
from richobs.core.problem import Problem
from richobs.core.process import TabularProcess
from richobs.core.queries import Answer, Query
from richobs.core.randomness import keyed_generator
from richobs.core.settings import Settings
from richobs.engines.base import Sum, check_tally, partial_of

MOST = 1_000_000  # episodes of one query: all of them are held at once


class DirectEngine:
    """Plays all episodes of a query in one call of the environment, and keeps a log of what was asked."""

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
        self.ledger = ledger
        self.log: list[str] = []
        self._env, self._functions, self._seed, self._process = env, functions, seed, process

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

    def ask(self, query: Query, /) -> Answer:
        """Plays what the query asks for and returns what it wants."""
        # First refuse what this engine cannot do, in a sentence with a way out. A refused query costs nothing.
        if query.n > MOST:
            raise InvalidInput(
                f"{query.purpose} asks for {query.n:,} episodes, and the direct engine holds at most {MOST:,} at once. Use "
                "engine='stream'."
            )
        check_tally(query, self._process)
        path = checked_path(query.path, self._env.horizon, self._env.n_actions)
        # Then charge the ledger, which refuses what the limit does not allow: nothing is played that was not charged.
        visit = self.ledger.charge(query.phase, query.purpose, path, query.n)
        # A draw depends on the seed, the query's key and how often that key was asked before, and on nothing else.
        rng = keyed_generator(self._seed, "draw", *query.key, visit)
        levels = self._env.horizon if query.levels is None else query.levels
        played = checked_episodes(
            self._env.play(query.policy, query.n, rng, levels), self._env, query.policy, query.n, levels
        )
        self.log.append(f"{query.n} episodes for {query.purpose} at {path}, mean return {played.returns.mean():.4f}")
        # `partial_of` computes what the query wants of some of its episodes; `Sum` adds such parts up, here a single one.
        total = Sum(query)
        total.add(partial_of(query, played, min(query.paths, query.n), self._functions, self._process))
        return total.answer()

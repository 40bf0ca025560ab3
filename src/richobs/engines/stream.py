"""The streaming engine: any environment, episodes played chunk by chunk.

Chunks have a fixed size and a generator of their own, keyed by (seed, path, purpose, visit, chunk), and contributions are
added in chunk order: results do not depend on who computes the chunks.
"""

from functools import partial

import numpy as np

from richobs.core.environment import Environment, Episodes, check_rewards, checked_episodes
from richobs.core.errors import InvalidInput
from richobs.core.executors import Spec, Workers
from richobs.core.functions import FunctionClass
from richobs.core.ledger import Ledger
from richobs.core.policies import Policy
from richobs.core.problem import Problem
from richobs.core.process import TabularProcess
from richobs.core.queries import Answer, Query
from richobs.core.randomness import keyed_generator
from richobs.core.settings import Settings
from richobs.core.units import UnitEnvironment
from richobs.engines.answers import Partial, answer_of, partial_of
from richobs.engines.calls import Calls, parts_of
from richobs.engines.play import Listing, Play
from richobs.engines.probes import trial_digests
from richobs.worlds.simulator import WorldEnvironment

CHUNK = 16_384  # episodes per chunk at most
CHUNK_LEVELS = 81_920  # levels of all episodes of a chunk: what they see is held at once


class StreamEngine(Play):
    """Plays an environment."""

    name = "stream"

    def __init__(
        self,
        env: Environment,
        functions: FunctionClass,
        *,
        seed: int,
        ledger: Ledger,
        process: Listing = None,
        chunk: int = CHUNK,
        workers: Workers | int = 1,
    ):
        """Prepares to play.

        Args:
            env: what to play.
            functions: the class whose moments are wanted.
            seed: of every draw.
            ledger: where episodes are charged.
            process: as for `Play`.
            chunk: episodes per chunk at most, fewer where many levels are played; it belongs to the result, the number of
                workers does not.
            workers: who shares the chunks: so many threads, or the executor of `Workers`.
        """
        if chunk < 1:
            raise InvalidInput(f"chunk must be at least 1; got {chunk}.")
        super().__init__(env, functions, seed=seed, ledger=ledger, process=process)
        self._env = env
        self._chunk = chunk
        self._workers = workers if isinstance(workers, Workers) else Workers(workers)
        self._spec: Spec | None = None

    @classmethod
    def build(
        cls, problem: Problem, env: Environment, settings: Settings, ledger: Ledger, workers: Workers, /
    ) -> "StreamEngine":
        """Returns the engine of one run."""
        return cls(
            env,
            problem.functions,
            seed=settings.seed,
            ledger=ledger,
            process=lambda: problem.process,
            workers=workers,
        )

    def draw(self, query: Query, visit: int, /) -> Answer:
        """Plays what the query asks for, chunk by chunk, and adds up what the chunks contribute, whoever computes them."""
        levels = self._env.horizon if query.levels is None else query.levels
        size = min(self._chunk, max(1, CHUNK_LEVELS // levels))
        process = self._listing() if query.tally else None
        given = (self._env, self._functions, process, query, (self._seed, visit), size)
        one, chunks = partial(play_chunk, *given), range(-(-query.n // size))
        here = (one(chunk) for chunk in chunks)  # `map` would take a StopIteration of a policy or a class for the end
        if not self._workers.are_many or len(chunks) == 1:
            return answer_of(query, here)
        if self._workers.executor is None:  # what NumPy computes without the interpreter lock
            return answer_of(query, self._workers.in_threads(one, chunks))
        shared = {**parts_of(self._functions), "process": self._listing()}
        try:
            spec = Spec({"env": self._env}, shared) if self._spec is None else self._spec
            body = spec.task(play_chunk, *given)
        except Exception as error:
            self._workers.say(
                f"the executor is not used: what is played cannot be sent to it ({type(error).__name__}: {error}), so "
                "this process plays it. See docs/scale.md."
            )
            return answer_of(query, here)
        if self._spec is None:
            spec.expect(trial_digests)
            self._spec = spec
        return answer_of(query, self._workers.send(spec, body, chunks))


def play_chunk(
    env: Environment,
    functions: FunctionClass,
    process: TabularProcess | None,
    query: Query,
    key: tuple[int, int],
    size: int,
    chunk: int,
) -> Partial:
    """Plays one chunk of a query: a pure function of its arguments, wherever it runs.

    Args:
        env: what to play.
        functions: the class whose moments are wanted.
        process: lists the observations, where tallies are wanted.
        query: what is asked for.
        key: seed, and how often the query's key was asked before.
        size: episodes per chunk.
        chunk: number of the chunk.
    """
    first = chunk * size
    n = min(size, query.n - first)
    levels = env.horizon if query.levels is None else query.levels
    seed, visit = key
    rng = keyed_generator(seed, "draw", *query.key, visit, chunk)
    played = play_checked(env, query.policy, n, rng, levels)
    return partial_of(query, played, max(0, min(n, query.paths - first)), functions, process)


def play_checked(
    env: Environment, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None
) -> Episodes:
    """Plays n episodes of any environment, and checks them: the one place where a run does so, once for every answer.

    Raises:
        Rejected: the environment answered something else than it was asked; or an episode ended early, and its rewards are
            shifted to other units.
        RewardOutOfRange: a reward that is not a number, or a total outside `env.reward_range`.
    """
    depth = env.horizon if levels is None else levels
    if isinstance(env, UnitEnvironment):  # what the environment inside plays, in other units
        played = env.units.episodes(play_checked(env.env, policy, n, rng, depth))
        check_rewards(np.stack(played.rewards), np.stack(played.ended) if played.ended else None, env, policy)
        return played
    played = env.play(policy, n, rng, depth)
    if isinstance(env, Calls):  # it has checked every call
        return played
    if isinstance(
        env, WorldEnvironment
    ):  # it returns arrays of the right shapes, and checks the policy's actions itself
        check_rewards(np.stack(played.rewards), None, env, policy)
        return played
    return checked_episodes(played, env, policy, n, depth)

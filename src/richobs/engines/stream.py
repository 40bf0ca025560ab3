"""The streaming engine: any environment, episodes played chunk by chunk.

Chunks have a fixed size and a generator of their own, keyed by (seed, path, purpose, visit, chunk), and moments are added
in chunk order: results do not depend on how many workers share the chunks.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from richobs.engines.base import Outcomes, moments_of, quick_moments_of
from richobs.engines.ledger import Ledger
from richobs.errors import InvalidInput, RewardOutOfRange
from richobs.moments import Batch, Moments
from richobs.problem import Environment, Floats, FunctionClass, Ints, Path, Policy, Rollouts
from richobs.randomness import keyed_generator

CHUNK = 16_384  # episodes per chunk
TOLERANCE = 1e-9  # how far rounding may push a total past 1
Part = TypeVar("Part")


class StreamEngine:
    """Plays an environment."""

    name = "stream"

    def __init__(
        self,
        env: Environment,
        functions: FunctionClass,
        *,
        seed: int,
        ledger: Ledger,
        chunk: int = CHUNK,
        workers: int = 1,
    ):
        """Prepares to play.

        Args:
            env: what to play.
            functions: the class whose moments are wanted.
            seed: of every draw.
            ledger: where episodes are charged.
            chunk: episodes per chunk; it belongs to the result, the number of workers does not.
            workers: threads that share the chunks.
        """
        if chunk < 1 or workers < 1:
            raise InvalidInput(f"chunk and workers must be at least 1; got {chunk} and {workers}.")
        self._env = env
        self._functions = functions
        self._seed = seed
        self.ledger = ledger
        self._chunk = chunk
        self._workers = workers

    def observe(self, path: Path, n: int, *, phase: str, purpose: str) -> Moments:
        """Returns the moments of n observations at `path`, without actions."""

        def part(size: int, rng: np.random.Generator) -> Moments:
            x = self._env.draw(path, size, rng)
            return moments_of(self._functions, len(path), Batch.of_observations(x, self._env.n_actions))

        return self._sum(path, n, phase, purpose, part)

    def step(self, path: Path, n: int, *, phase: str, purpose: str) -> Moments:
        """Returns the moments of n samples (x, a, r) at `path` with actions drawn uniformly."""

        def part(size: int, rng: np.random.Generator) -> Moments:
            asked = rng.integers(self._env.n_actions, size=size)
            x, actions, rewards = self._env.step(path, asked, rng)
            _check_rewards(rewards[:, None], len(path), f"path {path}")
            return moments_of(self._functions, len(path), Batch.of_steps(x, actions, rewards, self._env.n_actions))

        return self._sum(path, n, phase, purpose, part)

    def play(self, path: Path, n: int, members: Sequence[Ints], *, phase: str, purpose: str) -> list[Moments]:
        """Plays the action sequence `path` n times; returns per level the moments of the listed members."""
        K = self._env.n_actions

        def part(size: int, rng: np.random.Generator) -> list[Moments]:
            seen, rewards = self._env.play(path, size, rng)
            _check_rewards(rewards, 0, f"path {path}")
            _check_rewards(rewards.sum(axis=1, keepdims=True), None, f"path {path}")
            batches = [Batch.of_steps(x, np.full(size, a), r, K) for x, a, r in zip(seen, path, rewards.T, strict=True)]
            return [quick_moments_of(self._functions, h, batch, members[h]) for h, batch in enumerate(batches)]

        chunks = self._chunks(path, n, phase, purpose, part)
        totals = next(chunks)
        for chunk in chunks:
            totals = [total + moments for total, moments in zip(totals, chunk, strict=True)]
        return totals

    def rollout(self, policy: Policy, n: int, first: int, *, phase: str, purpose: str) -> Outcomes:
        """Plays `policy` n times; also returns the paths of the first `first` of them."""

        def part(size: int, rng: np.random.Generator) -> Rollouts:
            played = Rollouts(*self._env.rollout(policy, size, rng))
            _check_rewards(played.returns[:, None], None, "a rollout")
            return played

        total, squares, paths, missing = 0.0, 0.0, [], first
        for played in self._chunks((), n, phase, purpose, part):
            total += float(played.returns.sum())
            squares += float((played.returns**2).sum())
            if missing > 0:
                paths.append(played.paths[:missing])
                missing -= len(paths[-1])
        mean = total / n
        found = np.concatenate(paths) if paths else np.zeros((0, self._env.horizon), dtype=np.int64)
        return Outcomes(n, mean, max(0.0, squares / n - mean**2), found)

    def _sum(
        self, path: Path, n: int, phase: str, purpose: str, part: Callable[[int, np.random.Generator], Moments]
    ) -> Moments:
        total = Moments.empty(self._functions.level_size(len(path)), self._env.n_actions)
        for moments in self._chunks(path, n, phase, purpose, part):
            total = total + moments
        return total

    def _chunks(
        self, path: Path, n: int, phase: str, purpose: str, part: Callable[[int, np.random.Generator], Part]
    ) -> Iterator[Part]:
        """Yields `part(size, generator)` of every chunk in order, whoever computes it."""
        visit = self.ledger.charge(phase, purpose, path, n)

        def one(chunk: int) -> Part:
            size = min(self._chunk, n - chunk * self._chunk)
            return part(size, keyed_generator(self._seed, "draw", path, purpose, visit, chunk))

        chunks = range(-(-n // self._chunk))
        if self._workers == 1:
            yield from map(one, chunks)
            return
        with ThreadPoolExecutor(self._workers) as pool:
            for first in range(0, len(chunks), 4 * self._workers):  # a few at a time: n may be astronomical
                yield from pool.map(one, chunks[first : first + 4 * self._workers])


def _check_rewards(rewards: Floats, level: int | None, where: str) -> None:
    """Refuses rewards `[n, levels]` (or totals, where `level` is None) that are not numbers in [0, 1]."""
    wrong = np.argwhere(~((rewards >= -TOLERANCE) & (rewards <= 1 + TOLERANCE)))  # NaN included
    if len(wrong):
        episode, column = wrong[0]
        what = "its rewards in total" if level is None else f"level {level + column}"
        raise RewardOutOfRange(
            f"{where}, episode {episode} of a chunk: {what} paid {rewards[episode, column]}; rewards and their totals must "
            "lie in [0, 1]. Rescale them, and declare the range."
        )

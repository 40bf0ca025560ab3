"""Answers: from episodes to what a query wants of them, added up chunk by chunk, and as bytes for a log."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from richobs.core.environment import Episodes
from richobs.core.errors import InvalidFile, Rejected
from richobs.core.files import expanded_limit, pack, unpack
from richobs.core.functions import FunctionClass
from richobs.core.moments import Batch, Moments, Steps
from richobs.core.process import TabularProcess
from richobs.core.queries import NO_RETURNS, Answer, Query, Returns, Tally
from richobs.core.types import Ints

NO_PATHS = np.zeros((0, 0), dtype=np.int64)


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
        paths=played.paths[:first] if first else NO_PATHS,
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


def answer_of(query: Query, parts: Iterable[Partial]) -> Answer:
    """Returns the answer to a query: what chunks contribute, added up one after the other."""
    total, squares = 0.0, 0.0
    paths: list[Ints] = []
    moments: tuple[Moments, ...] = ()
    tally: Tally | None = None
    episodes: list[Episodes] = []
    steps: list[list[Steps]] = [[] for _ in query.steps]
    for part in parts:
        total += part.total
        squares += part.squares
        if len(part.paths):
            paths.append(part.paths)
        moments = tuple(a + b for a, b in zip(moments, part.moments, strict=True)) if moments else part.moments
        tally = part.tally if tally is None or part.tally is None else _added(tally, part.tally)
        if part.episodes is not None:
            episodes.append(part.episodes)
        for sums, more in zip(steps, part.steps, strict=True):
            sums.append(more)
            while len(sums) > 1 and len(sums[-2].x) <= 2 * len(sums[-1].x):  # so that large sums are added to rarely
                _add_last(sums)
    for sums in steps:
        while len(sums) > 1:
            _add_last(sums)
    mean = total / query.n
    answer = Answer(
        query.n,
        Returns(mean, max(0.0, squares / query.n - mean**2)) if query.returns else NO_RETURNS,
        moments=moments,
        tally=tally,
        episodes=Episodes.concatenate(episodes) if episodes else None,
        steps=tuple(sums[0] for sums in steps),
    )
    return dataclasses.replace(answer, paths=np.concatenate(paths)) if paths else answer


def _add_last(sums: list[Steps]) -> None:
    last = sums.pop()
    sums[-1] += last


def _added(a: Tally, b: Tally) -> Tally:
    return Tally(*(tuple(x + y for x, y in zip(one, other, strict=True)) for one, other in zip(a, b, strict=True)))


def _columns(played: Episodes) -> list[np.ndarray[Any, Any]]:
    """Returns the arrays that episodes consist of."""
    return [*played.observations, *played.actions, *played.rewards, *played.ended]


def _episodes(arrays: Sequence[np.ndarray[Any, Any]], levels: int) -> Episodes:
    """Returns the episodes that `_columns` took apart."""
    return Episodes(*(tuple(arrays[i : i + levels]) for i in range(0, len(arrays), levels)))


def pack_episodes(played: Episodes) -> bytes:
    """Returns the episodes of a call as bytes."""
    return pack(None, _columns(played))


def unpack_episodes(body: bytes, levels: int) -> Episodes:
    """Returns the episodes that `pack_episodes` wrote; they are not checked."""
    return _episodes(unpack(body)[1], levels)


def pack_answer(answer: Answer) -> bytes:
    """Returns an answer as bytes; actions that were not taken have no columns of moments to keep."""
    arrays: list[np.ndarray[Any, Any]] = [answer.paths]
    levels = []
    for m in answer.moments:
        taken = np.flatnonzero(m.actions)
        levels.append([m.n, m.actions, m.rounding] if m.rounding else [m.n, m.actions])
        arrays += [m.v_mean, m.v_var, m.u_mean[:, taken], m.u_var[:, taken]]
    head: dict[str, Any] = {"n": answer.n, "returns": answer.returns, "moments": levels, "tally": 0, "episodes": 0}
    if answer.tally is not None:
        head["tally"] = len(answer.tally.visits)
        arrays += [a for column in answer.tally for a in column]
    if answer.episodes is not None:
        head["episodes"] = answer.episodes.levels
        arrays += _columns(answer.episodes)
    if answer.steps:
        head["steps"] = [s.n for s in answer.steps]
        arrays += [a for s in answer.steps for a in _step_columns(s)]
    return pack(head, arrays)


def _step_columns(s: Steps) -> list[np.ndarray[Any, Any]]:
    """Returns the arrays that steps consist of, in the order in which `Steps` takes them."""
    return [s.x, s.visits, s.rewards, s.next_x, s.pair, s.next, s.moves]


def unpack_answer(body: bytes) -> Answer:
    """Returns the answer that `pack_answer` wrote.

    Raises:
        InvalidFile: it did not write that.
    """
    head, arrays = unpack(body)
    try:
        return _answer(head, arrays, 2 * expanded_limit(len(body)))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise InvalidFile(f"a stored answer is damaged ({error!r}). Nothing was overwritten.") from error


def _rounding(known: Any = 0.0) -> float:
    """Returns the rounding of moments as an answer keeps it; none where NumPy computed them."""
    if type(known) is not float or not 0.0 <= known < math.inf:
        raise ValueError(f"moments with a rounding of {known!r}")
    return known


def _answer(head: Any, arrays: Sequence[np.ndarray[Any, Any]], largest: int) -> Answer:
    """Returns the answer of which `pack_answer` kept these values and arrays; moments take at most `largest` bytes."""
    paths, *rest = arrays
    moments = []
    for n, actions, *rounding in head["moments"]:
        v_mean, v_var, u_means, u_vars = (rest.pop(0) for _ in range(4))
        largest -= 16 * len(v_mean) * len(actions)
        if largest < 0:
            raise ValueError(f"moments of {len(v_mean):,} functions and {len(actions):,} actions")
        u_mean, u_var = np.zeros((2, len(v_mean), len(actions)))
        taken = np.flatnonzero(actions)
        u_mean[:, taken], u_var[:, taken] = u_means, u_vars
        moments.append(Moments(n, tuple(actions), v_mean, v_var, u_mean, u_var, _rounding(*rounding)))
    tally = None
    if levels := head["tally"]:
        counted, rest = rest[: 3 * levels - 1], rest[3 * levels - 1 :]
        tally = Tally(tuple(counted[:levels]), tuple(counted[levels : 2 * levels]), tuple(counted[2 * levels :]))
    totals = head.get("steps", [])  # the arrays of steps come last, seven of each level
    place = len(rest) - 7 * len(totals)
    rest, columns = rest[:place], rest[place:]
    steps = tuple(Steps(n, *columns[7 * i : 7 * i + 7]) for i, n in enumerate(totals))
    episodes = _episodes(rest, head["episodes"]) if head["episodes"] else None
    return Answer(head["n"], Returns(*head["returns"]), paths, tuple(moments), tally, episodes, steps)

"""An engine with a record: every draw is written down before it is used, and never made twice.

A learner is a function of what its engine answers, so a run that was interrupted goes on by asking the same questions:
those answered before are answered from the record, and the rest by playing.
"""

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from richobs.core.environment import Episodes
from richobs.core.errors import InvalidFile
from richobs.core.files import expanded_limit
from richobs.core.moments import Moments
from richobs.core.packing import pack, unpack
from richobs.core.queries import Answer, Engine, Query, Returns, Tally
from richobs.core.steps import Steps
from richobs.engines.probes import Probe, Probes, refuse_other_class

Words = list[Any]  # a query in plain values


class Record(Protocol):
    """Where draws are kept, in order."""

    def draw(self, k: int, /) -> tuple[Words, bytes] | None:
        """Returns the k-th query and its answer, or None where there is none yet."""
        ...

    def keep_draw(self, k: int, query: Words, answer: bytes, /) -> None:
        """Writes the k-th draw down for good, with its probes, and forgets the calls that it was made of."""
        ...

    def keep_probes(self, probes: bytes, /) -> None:
        """Takes the probes of the draw that is kept next, where the class is Python code."""
        ...

    def call(self, key: str, /) -> bytes | None:
        """Returns what a call of the draw in progress gave; None where it was not made yet."""
        ...

    def check_calls(self, calls: int, /) -> None:
        """Refuses more calls of one draw than can be kept, before any is made."""
        ...

    def keep_call(self, key: str, answer: bytes, /) -> None:
        """Writes a call of the draw in progress down."""
        ...


class RecordedEngine:
    """Answers from a record as far as it goes, then asks another engine and records what that says."""

    def __init__(self, engine: Engine, record: Record, probes: Probes | None = None, per_call: int | None = None):
        """Takes an engine and its record.

        Args:
            engine: answers what the record does not.
            record: where answers are kept.
            probes: where they are gathered, if the class is Python code.
            per_call: episodes that one recorded call of the environment plays at most; None where none is recorded.
        """
        self.name, self.ledger = engine.name, engine.ledger  # answers from the record are charged too
        self._engine = engine
        self._record = record
        self._probes = probes
        self._per_call = per_call
        self._asked = 0

    def ask(self, query: Query, /) -> Answer:
        """Returns the recorded answer, or asks and records."""
        k = self._asked
        known = self._record.draw(k)
        if known is None:
            if self._per_call is not None:
                self._record.check_calls(-(-query.n // self._per_call))
            answer = self._engine.ask(query)
            if self._probes is not None:
                self._record.keep_probes(pack_probes(self._probes))
            self._record.keep_draw(k, query.words, pack_answer(answer))
            self._asked = k + 1  # not before: a query that the ledger refused is no draw
            return answer
        words, body = known
        if words != query.words:
            raise InvalidFile(
                f"draw {k} of the record was {words}, and the same run now asks for {query.words}: it was made by other "
                "code or on another machine. Start anew in another folder."
            )
        self.ledger.charge(query.phase, query.purpose, query.path, query.n)
        self._asked = k + 1
        return unpack_answer(body)


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


def pack_probes(probes: Probes) -> bytes:
    """Returns the probes that are new, and the fingerprint of the class at them, as bytes; none where nothing is new."""
    new = probes.take()
    if not new:
        return b""
    arrays = [a for _, seen, paths in new for a in (seen, paths)]
    return pack([probes.fingerprint(new), [level for level, *_ in new]], arrays)


def restore_probes(probes: Probes, draw: int, body: bytes) -> None:
    """Goes on from the probes of a recorded draw.

    Raises:
        InvalidInput: the class has other values there than it had.
    """
    (known, levels), arrays = unpack(body)
    stored: list[Probe] = list(zip(levels, arrays[::2], arrays[1::2], strict=True))
    if probes.fingerprint(stored) != known:
        raise refuse_other_class(draw)
    probes.restore(stored)


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

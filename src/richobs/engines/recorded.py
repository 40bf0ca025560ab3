"""An engine with a record: every draw is written down before it is used, and never made twice.

A learner is a function of what its engine answers, so a run that was interrupted goes on by asking the same questions:
those answered before are answered from the record, and the rest by playing.
"""

import json
import zlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from richobs.core.environment import Environment, Episodes, at_once, check_obeyed, checked_episodes, step_range
from richobs.core.errors import InvalidFile, InvalidInput, Rejected
from richobs.core.moments import Moments
from richobs.core.policies import Policy
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

    def call(self, key: str, /) -> tuple[bytes, str] | None:
        """Returns what a call of the draw in progress gave, and the generator's state after it."""
        ...

    def keep_call(self, key: str, answer: bytes, state: str, /) -> None:
        """Writes a call of the draw in progress down."""
        ...


class RecordedEngine:
    """Answers from a record as far as it goes, then asks another engine and records what that says."""

    def __init__(self, engine: Engine, record: Record, probes: Probes | None = None):
        """Takes the engine, the record, and where probes are gathered if the class is Python code."""
        self.name, self.ledger = engine.name, engine.ledger  # answers from the record are charged too
        self._engine = engine
        self._record = record
        self._probes = probes
        self._asked = 0

    def ask(self, query: Query, /) -> Answer:
        """Returns the recorded answer, or asks and records."""
        k, self._asked = self._asked, self._asked + 1
        known = self._record.draw(k)
        if known is None:
            answer = self._engine.ask(query)
            if self._probes is not None:
                self._record.keep_probes(pack_probes(self._probes))
            self._record.keep_draw(k, query.words, pack_answer(answer))
            return answer
        words, body = known
        if words != query.words:
            raise InvalidFile(
                f"draw {k} of the record was {words}, and the same run now asks for {query.words}: it was made by other "
                "code or on another machine. Start anew in another folder."
            )
        self.ledger.charge(query.phase, query.purpose, query.path, query.n)
        return unpack_answer(body)


class PacedEnvironment:
    """Plays an environment a few episodes at a time; with a record, none whose call has returned is played again.

    For environments that are not simulated here. The record of a call is dropped once the draw it belongs to is kept.
    """

    def __init__(self, env: Environment, record: Record | None = None, probes: Probes | None = None):
        """Takes the environment; `env.at_once`, where it has that, says how many episodes one call plays.

        Args:
            env: what to play.
            record: where calls are kept.
            probes: looks at what was seen, where the class is Python code.
        """
        self._env = env
        self._record = record
        self._probes = probes
        self._at_once = at_once(env)
        self.horizon, self.n_actions, self.reward_range = env.horizon, env.n_actions, env.reward_range
        self.step_range = step_range(env)

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        """Plays n episodes, a few at a time; `rng` ends as if all had been played now."""
        depth = self.horizon if levels is None else levels
        chunk = "" if self._record is None else _state(rng)  # the generator names the chunk
        parts = []
        for first in range(0, n, self._at_once):
            key = f"{chunk}/{first}"
            known = None if self._record is None else self._record.call(key)
            if known is None:
                size = min(self._at_once, n - first)
                part = checked_episodes(self._env.play(policy, size, rng, depth), self._env, policy, size, depth)
                check_obeyed(part, self._env, policy)
                if self._record is not None:
                    self._record.keep_call(key, _pack(None, _columns(part)), _state(rng))
            else:
                part = _episodes(_unpack(known[0])[1], depth)
                self._check_replayed(part, policy)
                rng.bit_generator.state = _restored(known[1])
            parts.append(part)
        played = Episodes.concatenate(parts)
        if self._probes is not None:
            self._probes.see(played)
        return played

    def _check_replayed(self, part: Episodes, policy: Policy) -> None:
        """Refuses a recorded call whose actions are not those of the policy that is played now."""
        try:
            check_obeyed(part, self._env, policy)
        except Rejected as error:
            raise InvalidFile(
                f"a call of the record was played for another policy: {error} It was made with another class or by other "
                "code. Start anew in another folder."
            ) from error


def _columns(played: Episodes) -> list[np.ndarray[Any, Any]]:
    """Returns the arrays that episodes consist of."""
    return [*played.observations, *played.actions, *played.rewards, *played.ended]


def _episodes(arrays: Sequence[np.ndarray[Any, Any]], levels: int) -> Episodes:
    """Returns the episodes that `_columns` took apart."""
    return Episodes(*(tuple(arrays[i : i + levels]) for i in range(0, len(arrays), levels)))


def _state(rng: np.random.Generator) -> str:
    """Returns the state of a generator as text."""
    return json.dumps(rng.bit_generator.state, default=lambda a: {"array": a.tolist()}, sort_keys=True)


def _restored(text: str) -> dict[str, Any]:
    """Returns the state that `_state` wrote."""

    def array(plain: dict[str, Any]) -> Any:
        return np.array(plain["array"], dtype=np.uint64) if plain.keys() == {"array"} else plain

    return dict(json.loads(text, object_hook=array))


def _pack(head: Any, arrays: Sequence[np.ndarray[Any, Any]]) -> bytes:
    """Returns plain values and arrays as bytes: a line of JSON with the shapes, then the arrays, compressed."""
    plain = [np.ascontiguousarray(a) for a in arrays]
    for a in plain:
        if a.dtype.hasobject or a.dtype.names:
            raise InvalidInput(f"a run can keep arrays of numbers, bits or characters; got one of dtype {a.dtype}.")
    line = json.dumps([head, [(a.dtype.str, a.shape) for a in plain]]).encode()
    return line + b"\n" + zlib.compress(b"".join(a.tobytes() for a in plain), 1)


def _unpack(body: bytes) -> tuple[Any, list[np.ndarray[Any, Any]]]:
    """Returns what `_pack` was given."""
    line, _, rest = body.partition(b"\n")
    head, shapes = json.loads(line)
    data, place, arrays = zlib.decompress(rest), 0, []
    for kind, shape in shapes:
        size = int(np.prod(shape))
        arrays.append(np.frombuffer(data, kind, size, place).reshape(shape).copy())
        place += arrays[-1].nbytes
    return head, arrays


def pack_answer(answer: Answer) -> bytes:
    """Returns an answer as bytes; actions that were not taken have no columns of moments to keep."""
    arrays: list[np.ndarray[Any, Any]] = [answer.paths]
    levels = []
    for m in answer.moments:
        taken = np.flatnonzero(m.actions)
        levels.append([m.n, m.actions])
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
    return _pack(head, arrays)


def pack_probes(probes: Probes) -> bytes:
    """Returns the probes that are new, and the fingerprint of the class at them, as bytes; none where nothing is new."""
    new = probes.take()
    if not new:
        return b""
    arrays = [a for _, seen, paths in new for a in (seen, paths)]
    return _pack([probes.fingerprint(new), [level for level, *_ in new]], arrays)


def restore_probes(probes: Probes, draw: int, body: bytes) -> None:
    """Goes on from the probes of a recorded draw.

    Raises:
        InvalidInput: the class has other values there than it had.
    """
    (known, levels), arrays = _unpack(body)
    stored: list[Probe] = list(zip(levels, arrays[::2], arrays[1::2], strict=True))
    if probes.fingerprint(stored) != known:
        raise refuse_other_class(draw)
    probes.restore(stored)


def _step_columns(s: Steps) -> list[np.ndarray[Any, Any]]:
    """Returns the arrays that steps consist of, in the order in which `Steps` takes them."""
    return [s.x, s.visits, s.rewards, s.next_x, s.pair, s.next, s.moves]


def unpack_answer(body: bytes) -> Answer:
    """Returns the answer that `pack_answer` wrote."""
    head, (paths, *rest) = _unpack(body)
    moments = []
    for n, actions in head["moments"]:
        v_mean, v_var, u_means, u_vars = (rest.pop(0) for _ in range(4))
        u_mean, u_var = np.zeros((2, len(v_mean), len(actions)))
        taken = np.flatnonzero(actions)
        u_mean[:, taken], u_var[:, taken] = u_means, u_vars
        moments.append(Moments(n, tuple(actions), v_mean, v_var, u_mean, u_var))
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

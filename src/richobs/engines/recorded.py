"""An engine that remembers: every draw is written down before it is used, and never made twice.

Algorithms are functions of what their engine answers, so a run that was interrupted goes on by asking the same questions:
those answered before are answered from the record, and the rest by playing.
"""

import json
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from richobs.engines.base import Engine, Outcomes
from richobs.errors import InvalidFile, InvalidInput
from richobs.moments import Moments
from richobs.problem import Environment, Episodes, Ints, Observations, Path, Policy, Rollouts, Steps

Answer = TypeVar("Answer")
Request = list[Any]  # what was asked, in plain values: method, path, n, first, phase, purpose


class Record(Protocol):
    """Where draws are kept, in order."""

    def draw(self, k: int, /) -> tuple[Request, bytes] | None:
        """Returns the k-th request and its answer, or None where there is none yet."""
        ...

    def keep_draw(self, k: int, request: Request, answer: bytes, /) -> None:
        """Writes the k-th draw down for good, and forgets the calls that it was made of."""
        ...

    def call(self, key: str, /) -> tuple[bytes, str] | None:
        """Returns what a call of the draw in progress gave, and the generator's state after it."""
        ...

    def keep_call(self, key: str, answer: bytes, state: str, /) -> None:
        """Writes a call of the draw in progress down."""
        ...


class RecordedEngine:
    """Answers from a record as far as it goes, then asks another engine and records what that says."""

    def __init__(self, engine: Engine, record: Record):
        self.name, self.ledger = engine.name, engine.ledger  # answers from the record are charged too
        self._engine = engine
        self._record = record
        self._asked = 0

    def observe(self, path: Path, n: int, *, phase: str, purpose: str) -> Moments:
        """Returns the moments of n observations at `path`, without actions."""
        ask = partial(self._engine.observe, path, n, phase=phase, purpose=purpose)
        return self._answer(["observe", list(path), n, 0, phase, purpose], ask, _ONE)

    def step(self, path: Path, n: int, *, phase: str, purpose: str) -> Moments:
        """Returns the moments of n samples (x, a, r) at `path` with actions drawn uniformly."""
        ask = partial(self._engine.step, path, n, phase=phase, purpose=purpose)
        return self._answer(["step", list(path), n, 0, phase, purpose], ask, _ONE)

    def play(self, path: Path, n: int, members: Sequence[Ints], *, phase: str, purpose: str) -> list[Moments]:
        """Plays the action sequence `path` n times; returns per level the moments of the listed members."""
        ask = partial(self._engine.play, path, n, members, phase=phase, purpose=purpose)
        return self._answer(["play", list(path), n, 0, phase, purpose], ask, _MANY)

    def rollout(self, policy: Policy, n: int, first: int, *, phase: str, purpose: str) -> Outcomes:
        """Plays `policy` n times; also returns the paths of the first `first` of them."""
        ask = partial(self._engine.rollout, policy, n, first, phase=phase, purpose=purpose)
        return self._answer(["rollout", [], n, first, phase, purpose], ask, _OUTCOMES)

    def _answer(self, request: Request, ask: Callable[[], Answer], form: "_Form[Answer]") -> Answer:
        k, self._asked = self._asked, self._asked + 1
        known = self._record.draw(k)
        if known is None:
            answer = ask()
            self._record.keep_draw(k, request, form.pack(answer))
            return answer
        if known[0] != request:
            raise InvalidFile(
                f"draw {k} of the record was {known[0]}, and the same run now asks for {request}: it was made by other code "
                "or on another machine. Start anew in another folder."
            )
        _, path, n, _, phase, purpose = request
        self.ledger.charge(phase, purpose, tuple(path), n)
        return form.unpack(known[1])


AT_ONCE = 32  # episodes of somebody else's environment per call, unless it says otherwise


class PacedEnvironment:
    """Plays an environment a few episodes at a time; with a record, none whose call has returned is played again.

    For environments that are not simulated here. The record of a call is dropped once the draw it belongs to is kept.
    """

    def __init__(self, env: Environment, record: Record | None = None):
        """Takes the environment; `env.at_once`, where it has that, says how many episodes one call plays."""
        self._env = env
        self._record = record
        self._at_once = at_once(env)
        self.horizon, self.n_actions, self.reward_range = env.horizon, env.n_actions, env.reward_range
        self.episodes = env.episodes  # that it really played

    def draw(self, path: Path, n: int, rng: np.random.Generator) -> Observations:
        """Returns `[n, ...]` observations at the node at `path`."""
        return self._calls(n, rng, lambda part: [self._env.draw(path, part.stop - part.start, rng)])[0]

    def step(self, path: Path, actions: Ints, rng: np.random.Generator) -> Steps:
        """Goes to the node at `path` once per entry of `actions` `[n]` and takes that action there."""
        return Steps(*self._calls(len(actions), rng, lambda part: list(self._env.step(path, actions[part], rng))))

    def rollout(self, policy: Policy, n: int, rng: np.random.Generator) -> Rollouts:
        """Plays `policy` from start to end, n times."""
        return Rollouts(*self._calls(n, rng, lambda part: list(self._env.rollout(policy, part.stop - part.start, rng))))

    def play(self, path: Path, n: int, rng: np.random.Generator) -> Episodes:
        """Plays the action sequence `path` n times and returns what was seen at each level on the way."""

        def part_of(part: slice) -> list[np.ndarray[Any, Any]]:
            seen, rewards = self._env.play(path, part.stop - part.start, rng)
            return [*seen, rewards]

        *seen, rewards = self._calls(n, rng, part_of)
        return Episodes(tuple(seen), rewards)

    def _calls(
        self, n: int, rng: np.random.Generator, call: Callable[[slice], list[np.ndarray[Any, Any]]]
    ) -> list[np.ndarray[Any, Any]]:
        """Returns the arrays of all calls, one after the other; `rng` ends as if all had been made now."""
        chunk = "" if self._record is None else _state(rng)  # the generator names the chunk
        parts = []
        for first in range(0, n, self._at_once):
            key = f"{chunk}/{first}"
            known = None if self._record is None else self._record.call(key)
            if known is None:
                arrays = call(slice(first, min(first + self._at_once, n)))
                if self._record is not None:
                    self._record.keep_call(key, _pack(None, arrays), _state(rng))
                self.episodes = self._env.episodes
            else:
                _, arrays = _unpack(known[0])
                rng.bit_generator.state = _restored(known[1])
            parts.append(arrays)
        return [np.concatenate(column) for column in zip(*parts, strict=True)]


def at_once(env: Environment) -> int:
    """Returns how many episodes one call of somebody else's environment plays."""
    number = getattr(env, "at_once", AT_ONCE)
    if not isinstance(number, int) or number < 1:
        raise InvalidInput(f"an environment's at_once is a number of episodes, at least 1; got {number!r}.")
    return number


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


def _pack_moments(parts: Sequence[Moments]) -> bytes:
    """Returns moments as bytes; actions that were not taken have no columns to keep."""
    head, arrays = [], []
    for m in parts:
        taken = np.flatnonzero(m.actions)
        head.append([m.n, m.actions])
        arrays += [m.v_mean, m.v_var, m.u_mean[:, taken], m.u_var[:, taken]]
    return _pack(head, arrays)


def _unpack_moments(body: bytes) -> list[Moments]:
    head, arrays = _unpack(body)
    result = []
    for i, (n, actions) in enumerate(head):
        v_mean, v_var, *columns = arrays[4 * i : 4 * i + 4]
        u_mean, u_var = np.zeros((2, len(v_mean), len(actions)))
        taken = np.flatnonzero(actions)
        u_mean[:, taken], u_var[:, taken] = columns
        result.append(Moments(n, tuple(actions), v_mean, v_var, u_mean, u_var))
    return result


class _Form(NamedTuple, Generic[Answer]):
    """How answers of one kind are written and read."""

    pack: Callable[[Answer], bytes]
    unpack: Callable[[bytes], Answer]


def _pack_outcomes(o: Outcomes) -> bytes:
    return _pack([o.n, o.mean, o.variance], [o.paths])


def _unpack_outcomes(body: bytes) -> Outcomes:
    (n, mean, variance), (paths,) = _unpack(body)
    return Outcomes(n, mean, variance, paths)


_ONE: _Form[Moments] = _Form(lambda m: _pack_moments([m]), lambda body: _unpack_moments(body)[0])
_MANY: _Form[list[Moments]] = _Form(_pack_moments, _unpack_moments)
_OUTCOMES: _Form[Outcomes] = _Form(_pack_outcomes, _unpack_outcomes)

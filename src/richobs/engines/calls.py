"""An environment that is not simulated here: played a few episodes at a time, recorded, and shared by workers if it may be.

One call of `play` plays a few episodes with a generator of its own, keyed by the draw and the number of the call. So it
does not matter who makes a call, and in which order calls are made. With a record, every call is written down before its
episodes are used, and none that was written down is made again.

Workers are compared with this process by calls of the run: some are made twice, here and by a worker, and must give the
same episodes. At most one episode in `AGAIN` is played a second time. A request that cannot be compared within that is
played here. So is every policy of an environment that nobody has declared replayable (Gymnasium environments), until calls
with different returns were made twice with the same result: then its returns are known to follow from the generator.
"""

import contextlib
import functools
import os
import sys
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from richobs.classes.layered import ByLevel
from richobs.core.environment import Environment, Episodes, check_obeyed, checked_episodes, declared_by
from richobs.core.errors import InvalidFile, Rejected, WorkerFailed
from richobs.core.executors import Spec, Workers, can_limit, time_limit
from richobs.core.functions import FunctionClass, FunctionsAround
from richobs.core.ledger import Ledger
from richobs.core.policies import Policy
from richobs.core.problem import episodes_digest
from richobs.core.randomness import keyed_generator
from richobs.engines.answers import pack_episodes, unpack_episodes
from richobs.engines.independence import Watch
from richobs.engines.play import Log
from richobs.engines.probes import TRIED, Probes, class_digests

COPIES = 4  # that say whether an environment or its workers are to blame for a difference
AGAIN = 10  # one episode of so many is played a second time, at most


@dataclass
class _Agreed:
    """Calls of one policy that were made twice, here and by a worker."""

    times: int = 0
    last: bytes = b""  # returns of the last one; the next one must have others


@dataclass(frozen=True)
class Request:
    """Calls of one request."""

    policy: Policy
    n: int  # episodes of all calls, those of the record included
    levels: int
    size: int  # episodes per call
    draw: int  # names the request

    def episodes(self, call: int) -> int:
        """Returns how many episodes a call plays."""
        return min(self.size, self.n - call * self.size)


class Calls:
    """Plays an environment a few episodes at a time; with a record, none whose call has returned is played again.

    For environments that are not simulated here. The record of a call is dropped once the draw it belongs to is kept.
    """

    def __init__(
        self,
        env: Environment,
        log: Log | None = None,
        probes: Probes | None = None,
        *,
        functions: FunctionClass | None = None,
        workers: Workers | None = None,
        ledger: Ledger | None = None,
        watch: Watch | None = None,
    ):
        """Takes the environment; `Declared.call_size` says how many episodes one call plays.

        Args:
            env: what to play.
            log: where calls are kept.
            probes: looks at what was seen, where the class is Python code.
            functions: the class whose functions policies are greedy in; workers get it once.
            workers: who shares the calls, where the environment is replayable, and how long one may take; by default
                nobody, and any time.
            ledger: where episodes are counted that are played a second time.
            watch: looks at whether episodes are independent, where the learner does not.
        """
        self._env = env
        self._log, self._watch = log, watch
        self._probes = probes
        self._functions = functions
        self._workers = Workers() if workers is None else workers
        self._ledger = Ledger() if ledger is None else ledger
        self._played = 0  # episodes that were played, here or by workers, but for those played again
        self._seen: list[Episodes] = []  # the first that were played here
        self._agreed: dict[bytes, _Agreed] = {}  # by policy
        self._spec: Spec | None = None
        self._stays = ""  # why the environment is not sent, in a sentence, once that is known
        self.declared = declared_by(env)
        self.horizon, self.n_actions, self.reward_range = env.horizon, env.n_actions, env.reward_range

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        """Plays n episodes, a few at a time; `rng` names the draw, and each call has a generator of its own."""
        depth = self.horizon if levels is None else levels
        draw = int.from_bytes(rng.bytes(16), "little")
        calls = list(self._calls(Request(policy, n, depth, self.declared.call_size(n), draw)))
        if self._watch is not None:
            self._watch.look_at_calls(policy, calls)
        played = Episodes.concatenate(calls)
        if self._probes is not None:
            self._probes.see(played)
        return played

    def _calls(self, asked: Request) -> Iterator[Episodes]:
        """Yields the episodes of each call in order: from the record, or played and recorded."""
        calls = range(-(-asked.n // asked.size))
        keys = [f"{asked.draw:032x}/{asked.n}/{asked.levels}/{asked.size}/{call}" for call in calls]
        known = {call: self._known(keys[call]) for call in calls}
        missing = [call for call in calls if known[call] is None]
        with contextlib.closing(self._played_by_anyone(asked, missing)) as new:
            for call in calls:
                body = known[call]
                if body is not None:
                    yield self._replayed(body, asked.policy, asked.episodes(call), asked.levels)
                    continue
                part = next(new)
                if self._log is not None:
                    self._log.keep_call(keys[call], pack_episodes(part))
                yield part

    def _known(self, key: str) -> bytes | None:
        return None if self._log is None else self._log.call(key)

    def _played_by_anyone(self, asked: Request, calls: Sequence[int]) -> Generator[Episodes]:
        """Yields what the environment answers to some calls, in order, whoever makes them; every answer is checked."""
        spec = self._sendable() if self._workers.are_many else None
        body = None if spec is None else self._task(spec, asked)
        if spec is not None and body is not None and self._may_share(spec, asked, calls):
            if not self._seen:  # a copy that keeps something between calls would agree with a worker that begins too
                yield self._here(asked, calls[0])
                calls = calls[1:]
            self._expect(spec)
            self._ledger.checks += asked.episodes(calls[0])
            timeout = self._workers.timeout
            own = self._workers.beside(play_call, timeout, self._env, asked, calls[0])
            answers = self._workers.send(spec, body, calls, threads=self.declared.releases_gil)
            for call, part in zip(calls, answers, strict=True):
                if call == calls[0]:
                    self._compare(spec, asked, call, part, self._workers.awaited(own))
                yield self._checked(part, asked, call)
            return
        for call in calls:
            part = self._here(asked, call)
            if spec is not None and body is not None and self.declared.replays_first:
                self._try_again(spec, body, asked, call, part)
            yield part

    def _here(self, asked: Request, call: int) -> Episodes:
        """Makes a call in this process."""
        timeout = self._workers.timeout
        if timeout is not None and not can_limit():
            self._workers.say(
                "timeout is not kept for calls that this process makes: that takes alarms, and the main thread of a process."
            )
        part = self._checked(play_call(timeout, self._env, asked, call), asked, call)
        if self._workers.are_many and sum(seen.n for seen in self._seen) < TRIED:
            self._seen.append(part)
        return part

    def _checked(self, part: Any, asked: Request, call: int) -> Episodes:
        """Returns the episodes of a call that was made, after checking them."""
        played = checked_episodes(part, self._env, asked.policy, asked.episodes(call), asked.levels)
        check_obeyed(played, self._env, asked.policy)
        self._played += played.n
        return played

    def _task(self, spec: Spec, asked: Request) -> bytes | None:
        """Returns what workers are sent for a request; None where the policy cannot be sent, which is said once."""
        try:
            return spec.task(play_call, self._workers.timeout, self._env, asked)
        except Exception as error:
            self._workers.say(
                f"a policy of type {type(asked.policy).__name__} cannot be sent to workers ({type(error).__name__}: "
                f"{error}); episodes that follow it are played in this process."
            )
            return None

    def _may_share(self, spec: Spec, asked: Request, calls: Sequence[int]) -> bool:
        """Whether workers may make the calls of a request: one of them is made here too, and that must be affordable."""
        coming = sum(map(asked.episodes, calls))
        return (
            len(calls) > 2
            and self._affords(asked.size, coming)
            and self._agreed_of(spec, asked.policy).times >= self.declared.replays_first
        )

    def _affords(self, n: int, coming: int = 0) -> bool:
        """Whether n more episodes may be played a second time, where so many are played now for the first time."""
        return AGAIN * (self._ledger.checks + n) <= self._played + coming

    def _agreed_of(self, spec: Spec, policy: Policy) -> _Agreed:
        return self._agreed.setdefault(spec.task(type, policy), _Agreed())

    def _try_again(self, spec: Spec, body: bytes, asked: Request, call: int, part: Episodes) -> None:
        """Has a worker make a call that was made here, where that is affordable and may show something new.

        If returns do not follow from the generator, they are those of this process with some probability p. Returns are
        different from one such call to the next, so both of two calls agree with probability at most p (1 - p) <= 1/4.
        """
        agreed, returns = self._agreed_of(spec, asked.policy), part.returns.tobytes()
        if agreed.last == returns or not self._affords(part.n):
            return
        self._expect(spec)
        self._ledger.checks += part.n
        (again,) = self._workers.send(spec, body, [call], threads=self.declared.releases_gil)
        if _same(part, again):
            agreed.times, agreed.last = agreed.times + 1, returns
            return
        self._spec = None
        self._stays = (
            f"{type(self._env).__name__} does not take all its randomness from the seed of its reset: the same seeds and "
            "actions showed or paid something else in another copy. Copies could play the same episodes, which must not "
            "count as independent"
        )
        self._workers.say(f"{self._stays}, so it is played in this process, by one thread. See docs/gymnasium.md.")

    def _compare(self, spec: Spec, asked: Request, call: int, part: Any, own: Any) -> None:
        """Refuses workers whose environment plays otherwise than the one in this process.

        Raises:
            Rejected: nor does a copy here play the same with the same generator.
            WorkerFailed: a copy here does.
        """
        if _same(part, own):
            return
        copies = (spec.copy("env") for _ in range(COPIES))
        if any(not _same(own, play_call(self._workers.timeout, env, asked, call)) for env in copies):
            raise Rejected(
                f"{type(self._env).__name__} is replayable, as it says, and copies of it do not play the same episodes with "
                "the same generator: it has randomness that does not come from `rng` (of a Gymnasium environment: from the "
                "seed of its reset), or keeps something between calls. Copies in several workers could all play the same "
                "episodes, which must not count as independent. Take all randomness from `rng`, or do not declare "
                "`replayable`; then it is played in this process (docs/scale.md)."
            )
        raise WorkerFailed(
            f"a worker's {type(self._env).__name__} plays other episodes than the one in this process, with the same "
            "policy and generator. Perhaps something that it reads (a module's variable, a file) was changed here and "
            "not there. Nothing of this call was used."
        )

    def _expect(self, spec: Spec) -> None:
        """Lets workers compare values of the class with those here, at what was seen here first."""
        if not spec.expects:
            spec.expect(functools.partial(class_digests, tuple(self._seen)))

    def _sendable(self) -> Spec | None:
        """Returns what workers need to share calls; None where the environment stays in this process, which is said once.

        It is made before the first call: so a copy that keeps something between calls is not where this process is.
        """
        if not self.declared.may_be_copied:
            why = "is declared deterministic" if self.declared.deterministic else "does not declare `replayable`"
            self._stays = f"{type(self._env).__name__} {why}"
        elif type(self._env).__module__ == "__main__" and not os.path.isfile(
            getattr(sys.modules["__main__"], "__file__", "")
        ):
            self._stays = (
                f"workers cannot import {type(self._env).__name__} from a notebook or a console (write it to a file beside, "
                f"such as my_env.py, and use `from my_env import {type(self._env).__name__}`)"
            )
        elif self._spec is None and not self._stays:
            try:
                spec = sendable_spec(self._env, self._functions)
                spec.copy("env")
                self._spec = spec
            except Exception as error:
                self._stays = f"{type(self._env).__name__} cannot be copied ({type(error).__name__}: {error})"
        if self._stays:
            self._workers.say(f"{self._stays}, so it is played in this process, by one thread. See docs/scale.md.")
        return self._spec

    def _replayed(self, body: bytes, policy: Policy, n: int, levels: int) -> Episodes:
        """Returns the episodes of a recorded call; refuses those that are not of the policy that is played now."""
        try:
            part = checked_episodes(unpack_episodes(body, levels), self._env, policy, n, levels)
            check_obeyed(part, self._env, policy)
        except (Rejected, TypeError, ValueError) as error:
            raise InvalidFile(
                f"a call of the record was played for another policy, or is damaged: {error} It was made with another class "
                "or by other code. Start anew in another folder."
            ) from error
        return part


def _same(one: Any, other: Any) -> bool:
    """Whether two answers to a call are the same episodes."""
    are_episodes = isinstance(one, Episodes) and isinstance(other, Episodes)
    return are_episodes and episodes_digest(one) == episodes_digest(other)


def play_call(timeout: float | None, env: Environment, asked: Request, call: int) -> Episodes:
    """Makes one call of an environment: a pure function of its arguments where the environment is replayable.

    Args:
        timeout: seconds that it may take.
        env: what to play.
        asked: what is asked for.
        call: number of the call.
    """
    with time_limit(timeout):
        return env.play(asked.policy, asked.episodes(call), keyed_generator(asked.draw, "call", call), asked.levels)


def sendable_spec(env: Environment, functions: FunctionClass | None) -> Spec:
    """Returns what workers need to play an environment; a class that cannot be pickled is left out."""
    parts = {} if functions is None else parts_of(functions)
    try:
        return Spec({"env": env}, parts)
    except Exception:  # a class of Python code; policies that do not need it can still be sent
        return Spec({"env": env}, {})


def parts_of(functions: FunctionClass) -> dict[str, object]:
    """Returns a class of functions, and the parts of it that policies refer to, by name: what workers get once."""
    own = functions
    while isinstance(own, FunctionsAround):
        own = own.own
    levels = own.levels if isinstance(own, ByLevel) else ()
    return {"functions": functions, "own": own, **{f"level {h}": level for h, level in enumerate(levels)}}

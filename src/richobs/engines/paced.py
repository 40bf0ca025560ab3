"""An environment that is not simulated here: played a few episodes at a time, recorded, and shared by workers if it may be.

One call of `play` plays a few episodes with a generator of its own, keyed by the draw and the number of the call. So it
does not matter who makes a call, and in which order calls are made. With a record, every call is written down before its
episodes are used, and none that was written down is made again.
"""

import contextlib
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from richobs.core.environment import (
    Environment,
    Episodes,
    at_once,
    call_size,
    check_obeyed,
    checked_episodes,
    declares_deterministic,
    is_replayable,
    releases_gil,
    step_range,
)
from richobs.core.errors import InvalidFile, Rejected, WorkerFailed
from richobs.core.executors import Spec, Workers
from richobs.core.functions import FunctionClass
from richobs.core.policies import Policy
from richobs.core.randomness import keyed_generator
from richobs.core.recorded import episodes_digest
from richobs.engines.base import parts_of
from richobs.engines.probes import Probes
from richobs.engines.recorded import Record, pack_episodes, unpack_episodes
from richobs.engines.trials import check_replays, trial_digests


class PacedEnvironment:
    """Plays an environment a few episodes at a time; with a record, none whose call has returned is played again.

    For environments that are not simulated here. The record of a call is dropped once the draw it belongs to is kept.
    """

    def __init__(
        self,
        env: Environment,
        record: Record | None = None,
        probes: Probes | None = None,
        *,
        functions: FunctionClass | None = None,
        workers: Workers | None = None,
    ):
        """Takes the environment; `call_size` says how many episodes one call plays.

        Args:
            env: what to play.
            record: where calls are kept.
            probes: looks at what was seen, where the class is Python code.
            functions: the class whose functions policies are greedy in; workers get it once.
            workers: who shares the calls, where the environment is replayable; by default nobody.
        """
        self._env = env
        self._record = record
        self._probes = probes
        self._functions = functions
        self._workers = Workers() if workers is None else workers
        self._spec: Spec | None = None
        self._stays = ""  # why the environment is not sent, in a sentence, once that is known
        at_once(env)  # refuses one that is no number
        self.horizon, self.n_actions, self.reward_range = env.horizon, env.n_actions, env.reward_range
        self.step_range = step_range(env)

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> Episodes:
        """Plays n episodes, a few at a time; `rng` names the draw, and each call has a generator of its own."""
        depth = self.horizon if levels is None else levels
        draw = int.from_bytes(rng.bytes(16), "little")
        played = Episodes.concatenate(list(self._calls(policy, n, depth, draw)))
        if self._probes is not None:
            self._probes.see(played)
        return played

    def _calls(self, policy: Policy, n: int, levels: int, draw: int) -> Iterator[Episodes]:
        """Yields the episodes of each call in order: from the record, or played and recorded."""
        size = call_size(self._env, n)
        calls = range(-(-n // size))
        keys = [f"{draw:032x}/{n}/{levels}/{size}/{call}" for call in calls]
        known = {call: self._known(keys[call]) for call in calls}
        missing = [call for call in calls if known[call] is None]
        with contextlib.closing(self._played(policy, n, levels, size, draw, missing)) as new:
            for call in calls:
                body, wanted = known[call], min(size, n - call * size)
                if body is not None:
                    yield self._replayed(body, policy, wanted, levels)
                    continue
                part = checked_episodes(next(new), self._env, policy, wanted, levels)
                check_obeyed(part, self._env, policy)
                if self._record is not None:
                    self._record.keep_call(keys[call], pack_episodes(part))
                yield part

    def _known(self, key: str) -> bytes | None:
        return None if self._record is None else self._record.call(key)

    def _played(
        self, policy: Policy, n: int, levels: int, size: int, draw: int, calls: Sequence[int]
    ) -> Generator[Episodes]:
        """Yields what the environment answers to some calls, in order, whoever makes them."""
        spec = self._sendable(len(calls)) if self._workers.are_many else None
        if spec is not None:
            try:
                body = spec.task(play_call, self._env, policy, n, levels, size, draw)
            except Exception as error:
                self._workers.say(
                    f"a policy of type {type(policy).__name__} cannot be sent to workers ({type(error).__name__}: {error}); "
                    "episodes that follow it are played in this process."
                )
            else:
                with ThreadPoolExecutor(1) as here:  # the first call is made here too, while workers make all of them
                    own = here.submit(play_call, self._env, policy, n, levels, size, draw, calls[0])
                    for call, part in zip(
                        calls, self._workers.send(spec, body, calls, threads=releases_gil(self._env)), strict=True
                    ):
                        if call == calls[0]:
                            self._compare(part, own.result())
                        yield part
                return
        for call in calls:
            yield play_call(self._env, policy, n, levels, size, draw, call)

    def _compare(self, part: Any, own: Any) -> None:
        """Refuses workers whose environment plays otherwise than the one in this process.

        Raises:
            WorkerFailed: the same call with the same generator gave other episodes.
        """
        same = (
            isinstance(part, Episodes) and isinstance(own, Episodes) and episodes_digest(part) == episodes_digest(own)
        )
        if not same:
            raise WorkerFailed(
                f"a worker's {type(self._env).__name__} plays other episodes than the one in this process, with the same "
                "policy and generator. Perhaps something that it reads (a module's variable, a file) was changed here and "
                "not there, or its randomness does not all come from `rng`. Nothing of this call was used."
            )

    def _sendable(self, calls: int) -> Spec | None:
        """Returns what workers need to share so many calls; None where the environment stays in this process.

        Where it always stays, that is said once.

        Raises:
            Rejected: copies of the environment do not play the same, although it is declared replayable.
        """
        if not is_replayable(self._env):
            why = (
                "is declared deterministic"
                if declares_deterministic(self._env)
                else "does not declare `replayable = True`"
            )
            self._stays = f"{type(self._env).__name__} {why}"
        elif self._spec is None and not self._stays and calls > 1:
            try:
                spec = sendable_spec(self._env, self._functions)
                copies = [spec.copy("env") for _ in range(2)]
            except Exception as error:
                self._stays = f"{type(self._env).__name__} cannot be copied ({type(error).__name__}: {error})"
            else:
                check_replays(self._env, copies)
                spec.expect(trial_digests)
                self._spec = spec
        if self._stays:
            self._workers.say(f"{self._stays}, so it is played in this process, by one thread. See docs/scale.md.")
        return self._spec if calls > 1 else None

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


def play_call(env: Environment, policy: Policy, n: int, levels: int, size: int, draw: int, call: int) -> Episodes:
    """Makes one call of an environment: a pure function of its arguments where the environment is replayable.

    Args:
        env: what to play.
        policy: what to do.
        n: episodes of the whole draw.
        levels: how many levels are played.
        size: episodes per call.
        draw: names the draw.
        call: number of the call.
    """
    return env.play(policy, min(size, n - call * size), keyed_generator(draw, "call", call), levels)


def sendable_spec(env: Environment, functions: FunctionClass | None) -> Spec:
    """Returns what workers need to play an environment; a class that cannot be pickled is left out."""
    parts = {} if functions is None else parts_of(functions)
    try:
        return Spec({"env": env}, parts)
    except Exception:  # a class of Python code; policies that do not need it can still be sent
        return Spec({"env": env}, {})

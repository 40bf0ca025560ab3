"""Draws on a device: a large batch is drawn, evaluated and reduced where the functions lie, and only moments come back.

This is for worlds that can be drawn there (`richobs.worlds.simulator.DeviceWorld`), and for what needs no policy of a
function: moments behind a fixed action sequence. Everything else is asked of the engine behind it.
"""

from typing import Any

from richobs.classes.device import DeviceBatch
from richobs.classes.on_device import OnDevice
from richobs.core.environment import checked_path
from richobs.core.ledger import Ledger
from richobs.core.moments import Moments, check_answers
from richobs.core.philox import CounterStream
from richobs.core.policies import OpenLoop, Policy, Switch, Uniform
from richobs.core.queries import Answer, Engine, Query
from richobs.core.randomness import counter_key
from richobs.worlds.simulator import DeviceWorld

CHUNK = 65_536  # episodes that are drawn at once; it belongs to the result


class DeviceEngine:
    """Draws moments on a device where it can, and asks another engine for the rest."""

    def __init__(self, engine: Engine, functions: OnDevice, world: DeviceWorld, horizon: int, seed: int):
        """Prepares to draw.

        Args:
            engine: what plays everything else; its ledger counts all.
            functions: the class, on the device.
            world: what is drawn there.
            horizon: number of levels H.
            seed: of every draw.
        """
        self._engine, self._functions, self._world = engine, functions, world
        self._horizon, self._seed = horizon, seed

    @property
    def name(self) -> str:
        """What the engine behind it is called."""
        return self._engine.name

    @property
    def ledger(self) -> Ledger:
        """Where every episode is charged."""
        return self._engine.ledger

    def ask(self, query: Query, /) -> Answer:
        """Draws what the query asks for and returns what it wants."""
        if not self._is_drawn_there(query):
            return self._engine.ask(query)
        path = checked_path(query.path, self._horizon, self._functions.n_actions)
        visit = self.ledger.charge(query.phase, query.purpose, path, query.n)
        total: list[Moments] = []
        for chunk in range(-(-query.n // CHUNK)):
            part = self._drawn(query, min(CHUNK, query.n - chunk * CHUNK), visit, chunk)
            total = [a + b for a, b in zip(total, part, strict=True)] if total else part
        return Answer(query.n, moments=tuple(total))

    def _is_drawn_there(self, query: Query) -> bool:
        """Whether a query wants moments alone, of levels that are on the device, behind a fixed action sequence."""
        more = query.returns or query.paths or query.tally or query.episodes or query.steps
        if more or not query.moments or not _is_fixed(query.policy):
            return False
        return all(self._functions.level(wanted.level) is not None for wanted in query.moments)

    def _drawn(self, query: Query, n: int, visit: int, chunk: int) -> list[Moments]:
        """Returns the moments of one chunk, level by level as the query lists them."""
        memory, K = self._functions.memory, self._functions.n_actions
        key = counter_key(self._seed, "draw", *query.key, visit, chunk)
        draws = CounterStream.of_torch(key, memory.torch, memory.device)
        found: dict[int, Moments] = {}  # by their place in the query, which may name a level twice
        states = self._world.start_there(n, draws, memory)
        levels = self._horizon if query.levels is None else query.levels
        for level in range(levels):
            x = self._world.observe_there(level, states, draws, memory)
            actions = _actions(query.policy, level, n, K, draws, memory.torch, memory.device)
            rewards = self._world.reward_there(level, states, actions, draws, memory)
            for place, asked in enumerate(query.moments):
                if asked.level != level:
                    continue
                taken, paid = (actions, rewards) if asked.rewards else (None, None)
                batch = DeviceBatch.of_samples(x, taken, paid, K, memory)
                moments = self._functions.moments_there(level, batch, asked.members)
                assert moments is not None, "the level is on the device"
                found[place] = moments
            if level < levels - 1:
                states = self._world.move_there(level, states, actions, draws, memory)
        return [found[place] for place in range(len(query.moments))]


class RoundingWatch:
    """An engine that keeps the largest rounding of the moments it answers, drawn now or taken from a record.

    It refuses moments that are too rough for the epsilon of the run.
    """

    def __init__(self, engine: Engine, epsilon: float):
        """Takes the engine, and what the learner is asked for, in the units of its moments."""
        self._engine, self._epsilon = engine, epsilon
        self.rounding = 0.0

    @property
    def name(self) -> str:
        """What the engine is called."""
        return self._engine.name

    @property
    def ledger(self) -> Ledger:
        """Where every episode is charged."""
        return self._engine.ledger

    def ask(self, query: Query, /) -> Answer:
        """Asks the engine.

        Raises:
            PrecisionError: the moments are known up to too much.
        """
        answer = self._engine.ask(query)
        self.rounding = max([self.rounding, *(m.rounding for m in answer.moments)])
        check_answers(self.rounding, self._epsilon)
        return answer


def _is_fixed(policy: Policy) -> bool:
    """Whether a policy is a fixed action sequence, perhaps with uniform actions after it; subclasses may act otherwise."""
    if type(policy) is Switch:
        return type(policy.first) is OpenLoop and type(policy.then) is Uniform
    return type(policy) is OpenLoop


def _actions(policy: Policy, level: int, n: int, K: int, draws: CounterStream, torch: Any, device: Any) -> Any:
    """Returns `[n]` the actions of a level, a tensor."""
    if isinstance(policy, Switch):
        if level >= policy.level:
            return (draws.uniform(n) * K).long().clamp(max=K - 1)
        policy = policy.first
    assert isinstance(policy, OpenLoop), "other policies are not drawn here"
    action = policy.path[level] if level < len(policy.path) else 0
    return torch.full((n,), action, dtype=torch.int64, device=device)

"""What a run is asked to do, and doing it: settings, engine, schedule."""

import dataclasses
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from richobs.certified import NARROWER, RESERVE, Fallback, certified
from richobs.engines import CountedEngine, Engine, Ledger, PacedEnvironment, Record, RecordedEngine, StreamEngine
from richobs.envs.world import PathEnvironment
from richobs.errors import InvalidInput, RunStopped
from richobs.lsvee import PaperConstants, lsvee
from richobs.outcome import Callback, Event, Outcome, Progress
from richobs.problem import SMALLEST, Environment, FunctionClass, check_accuracy
from richobs.tabular import TabularProcess

Schedule = Literal["certified", "paper"]
Repeats = Literal["skip", "verbatim"]
EngineName = Literal["auto", "counted", "stream"]
MOST_DIGITS = 120  # of K^H, beyond which float64 cannot hold the shares of delta that the fallback would need


@dataclass(frozen=True)
class Settings:
    """What a run is asked to do, apart from the problem; it is part of the certificate."""

    epsilon: float = 0.1
    """How far from optimal the policy may be."""
    delta: float = 0.05
    """How often it may be farther."""
    schedule: Schedule = "certified"
    """How to search: `certified` needs few episodes and no n_states, `paper` takes every size as printed."""
    repeats: Repeats = "skip"
    """What on-demand exploration does with paths that were learned: skip them, or learn them again as printed."""
    engine: EngineName = "auto"
    """Who plays: `counted` draws all episodes at once as counts, `stream` plays them one by one."""
    seed: int = 0
    """Seed of every draw."""
    n_states: int | None = None
    """Bound M on the latent states per level; by default what the world says."""
    max_episodes: int | None = None
    """Play no more episodes: the certified schedule then claims what it can, the paper's stops; both can go on later."""
    workers: int = 1
    """Threads that share the episodes of the streaming engine; they do not change the result."""

    def __post_init__(self) -> None:
        for name in ("seed", "n_states", "max_episodes", "workers"):
            value = getattr(self, name)
            if value is not None:
                try:
                    object.__setattr__(self, name, operator.index(value))  # NumPy's integers become Python's
                except TypeError:
                    raise InvalidInput(f"{name} must be a whole number; got {value!r}.") from None


class Learnable(Protocol):
    """What `richobs.make` returns, as far as learning needs it."""

    @property
    def env(self) -> Environment:
        """What to play."""
        ...

    @property
    def functions(self) -> FunctionClass:
        """The class F."""
        ...

    @property
    def process(self) -> TabularProcess | None:
        """The process written down, from which the counted engine draws."""
        ...

    @property
    def n_states(self) -> int:
        """Bound M on the latent states per level."""
        ...


def run(
    problem: Learnable,
    settings: Settings,
    callback: Callback | None = None,
    record: Record | None = None,
) -> Outcome:
    """Runs what `settings` ask for on a problem.

    Args:
        problem: what to play, and the class.
        settings: what is asked for.
        callback: told about every test.
        record: where every draw is kept, and answered from where it was made before.
    """
    ledger = Ledger(settings.max_episodes)
    check(problem, settings)
    trace: list[Event] = []

    def note(progress: Progress) -> None:
        trace.append(progress.event)
        if callback is not None:
            callback(progress)

    try:
        engine = engine_for(problem, settings, ledger, record)
        if settings.schedule == "certified":
            outcome = certified(
                engine,
                problem.functions,
                epsilon=settings.epsilon,
                delta=settings.delta,
                seed=settings.seed,
                callback=note,
                fallback=_fallback(problem, settings, engine, note),
            )
        else:
            constants = constants_for(problem, settings)
            verbatim = settings.repeats == "verbatim"
            outcome = lsvee(engine, problem.functions, constants, verbatim=verbatim, callback=note)
        return dataclasses.replace(outcome, settings=settings, trace=tuple(trace))
    except RunStopped as stopped:
        stopped.ledger, stopped.trace = ledger, tuple(trace)
        raise


def fallback_constants(problem: Learnable, settings: Settings) -> PaperConstants | None:
    """Returns the numbers of the paper's algorithm where it takes over from a certified search; None where it cannot.

    No bound on the latent states is assumed: there are at most as many as paths, K^(H-1), and they enter by a logarithm.
    """
    H, K = problem.env.horizon, problem.env.n_actions
    epsilon, delta = NARROWER * settings.epsilon, RESERVE * settings.delta
    if H * math.log10(K) > MOST_DIGITS or min(epsilon, delta) < SMALLEST:
        return None
    log_size = problem.functions.log_size
    return PaperConstants.of(
        horizon=H, n_actions=K, n_states=K ** (H - 1), log_size=log_size, epsilon=epsilon, delta=delta
    )


def _fallback(problem: Learnable, settings: Settings, engine: Engine, callback: Callback) -> Fallback | None:
    """Returns the paper's algorithm, which takes over after as many episodes as one path of its own would cost."""
    constants = fallback_constants(problem, settings)
    if constants is None:
        return None
    return Fallback(constants.one_path, lambda: lsvee(engine, problem.functions, constants, callback=callback))


def check(problem: Learnable, settings: Settings) -> None:
    """Refuses settings and problems that no schedule can use; nothing is played."""
    if settings.schedule not in ("certified", "paper"):
        raise InvalidInput(f"there is no schedule {settings.schedule!r}; there are 'certified' and 'paper'.")
    check_accuracy(settings.epsilon, settings.delta)
    if settings.repeats not in ("skip", "verbatim"):
        raise InvalidInput(f"repeats must be 'skip' or 'verbatim'; got {settings.repeats!r}.")
    env, functions = problem.env, problem.functions
    _require(
        "an environment", env, ("horizon", "n_actions", "reward_range", "episodes", "draw", "step", "rollout", "play")
    )
    _require("a function class", functions, ("horizon", "n_actions", "is_product", "log_size", "level_size", "values"))
    if (functions.horizon, functions.n_actions) != (env.horizon, env.n_actions):
        raise InvalidInput(
            f"the class has {functions.horizon} levels and {functions.n_actions} actions; the environment has "
            f"{env.horizon} and {env.n_actions}."
        )
    if tuple(problem.env.reward_range) != (0.0, 1.0):
        raise InvalidInput(
            f"learning needs rewards whose totals lie in [0, 1]; this environment declares {problem.env.reward_range}. "
            "Rescale its rewards by that range."
        )
    if settings.workers < 1:
        raise InvalidInput(f"workers must be at least 1; got {settings.workers}.")
    if settings.max_episodes is not None and settings.max_episodes < 1:
        raise InvalidInput(f"max_episodes must be at least 1; got {settings.max_episodes}.")
    process = problem.process
    if process is not None and (process.horizon, process.n_actions) != (problem.env.horizon, problem.env.n_actions):
        raise InvalidInput(
            f"the process has {process.horizon} levels and {process.n_actions} actions; the environment has "
            f"{problem.env.horizon} and {problem.env.n_actions}."
        )
    engine_for(problem, settings, Ledger())  # refuses an engine that does not fit


def _require(what: str, thing: object, names: Sequence[str]) -> None:
    """Refuses something that lacks what `richobs.problem` asks of it."""
    missing = [name for name in names if not hasattr(thing, name)]
    if missing:
        raise InvalidInput(
            f"{what} needs {', '.join(names)}; a {type(thing).__name__} arrived, which has no {', '.join(missing)}. See "
            "docs/your-own-problem.md."
        )


def constants_for(problem: Learnable, settings: Settings) -> PaperConstants:
    """Returns the sample sizes and thresholds of the paper's schedule."""
    check(problem, settings)
    env, functions = problem.env, problem.functions
    n_states = settings.n_states if settings.n_states is not None else problem.n_states
    if n_states is None:
        raise InvalidInput("the paper's schedule needs n_states, a bound on the latent states per level.")
    return PaperConstants.of(
        horizon=env.horizon,
        n_actions=env.n_actions,
        n_states=n_states,
        log_size=functions.log_size,
        epsilon=settings.epsilon,
        delta=settings.delta,
    )


def engine_for(problem: Learnable, settings: Settings, ledger: Ledger, record: Record | None = None) -> Engine:
    """Returns the engine that `settings` name; "auto" counts where the process is written down.

    Args:
        problem: what to play.
        settings: what is asked for.
        ledger: where episodes are charged.
        record: where every draw is kept.
    """
    name = settings.engine
    if name == "auto":
        name = "counted" if problem.process is not None and settings.schedule == "paper" else "stream"
    if name == "counted":
        if problem.process is None:
            raise InvalidInput(
                "the counted engine draws from a process written down in full, and there is none here (too many "
                "observations, or none was given). Use engine='stream'."
            )
        engine: Engine = CountedEngine(problem.process, problem.functions, seed=settings.seed, ledger=ledger)
    elif name == "stream":
        env = problem.env if is_simulated(problem) else PacedEnvironment(problem.env, record)
        engine = StreamEngine(env, problem.functions, seed=settings.seed, ledger=ledger, workers=settings.workers)
    else:
        raise InvalidInput(f"there is no engine {name!r}; there are 'auto', 'counted' and 'stream'.")
    return engine if record is None else RecordedEngine(engine, record)


def is_simulated(problem: Learnable) -> bool:
    """Whether an environment is one that richobs simulates, so that playing it again costs nothing but time."""
    return getattr(problem, "id", None) is not None or isinstance(problem.env, PathEnvironment)

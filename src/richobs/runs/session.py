"""One run from settings to outcome, and the only place where its parts are put together.

Settings are checked once, one engine is built, one trace is collected. With a folder, every draw and decision is kept in
it, and a run that was killed goes on there.
"""

import dataclasses
import os
from concurrent.futures import Executor

from richobs.classes.learned_policy import LearnedPolicy
from richobs.classes.on_device import OnDevice
from richobs.core.device import torch_device
from richobs.core.environment import (
    at_once,
    declares_deterministic,
    environment_identity,
    is_replayable,
    processes_of,
    real_episodes,
    releases_gil,
    step_range,
)
from richobs.core.errors import CallTooLong, EpisodeLimit, InvalidInput, Rejected, RunStopped, WorkerFailed
from richobs.core.events import Callback, Event, Progress
from richobs.core.executors import Workers
from richobs.core.ledger import Ledger, Spent
from richobs.core.outcome import Outcome, sampling_assumptions
from richobs.core.problem import Problem
from richobs.core.queries import Engine
from richobs.core.randomness import derived_seed
from richobs.core.recorded import episodes_digest
from richobs.core.settings import Settings
from richobs.core.units import LABEL, UnitsChosen
from richobs.engines import PacedEnvironment, Probes, Record, RecordedEngine, engine_kind, fixed_fingerprint
from richobs.engines.device import DeviceEngine, RoundingWatch
from richobs.engines.probes import check_alone, fixed_probes
from richobs.learners import Learner, learner
from richobs.runs.certificate import certify
from richobs.runs.rescaling import Rescaling, as_served, rescaling
from richobs.runs.store import RunFolder, describe
from richobs.worlds.gymnasium_in.spec import is_gymnasium_id
from richobs.worlds.simulator import WorldEnvironment


def run(
    problem: Problem,
    settings: Settings,
    *,
    callback: Callback | None = None,
    out: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    repeats: Spent | None = None,
) -> Outcome:
    """Runs what `settings` ask for on a problem.

    Args:
        problem: what to learn.
        settings: what is asked for.
        callback: called with a `Progress` after every event.
        out: a folder to keep the run in. A folder that holds the same run goes on with it; where that is finished, its
            outcome is given again and nothing is played. The number of workers may differ from call to call, and so may
            `max_episodes`: a run that spent what it was allowed goes on with more.
        executor: who shares the work, instead of a pool of `settings.workers`; it does not change the result, and is not
            shut down.
        repeats: what the run that is repeated spent; a repeat that asks for more is stopped.

    Raises:
        InvalidInput: the settings or the problem cannot be used, or the folder holds a run with another configuration, or
            one that has spent more episodes than are allowed now; nothing in it was changed.
        InvalidFile: something in the folder is damaged, or was made by another version; nothing in it was changed.
        StoreError: the folder cannot be written (read-only, disk full), or another process is running in it.
        RunStopped: the run cannot go on.
        CallTooLong: a call of the environment took longer than `settings.timeout`; likewise.
        WorkerFailed: a worker was lost; a run in a folder goes on from what it has when it is called again.
    """
    chosen, asked = check(problem, settings)
    with Workers(max(asked.workers, processes_of(problem.env)), executor, asked.timeout) as workers:
        return _run(problem, chosen, asked, callback, out, workers, repeats)


def _run(
    problem: Problem,
    chosen: Learner,
    asked: Settings,
    callback: Callback | None,
    out: str | os.PathLike[str] | None,
    workers: Workers,
    repeats: Spent | None,
) -> Outcome:
    """Runs what was checked, in a folder where one is given."""
    identity = _identity(problem)
    if out is None:
        return _learn(problem, chosen, asked, callback, identity, workers, repeats=repeats)
    fixed = identity if isinstance(identity, str) else None
    config = describe(problem, asked, None if is_simulated(problem) else at_once(problem.env), fixed)
    with RunFolder.opened(out, config, identity if isinstance(identity, Probes) else None) as folder:
        try:
            if problem.recorded is not None:
                folder.keep_recorded(problem.recorded)
            folder.count_real_episodes(problem.env)
            outcome = _learn(problem, chosen, asked, folder.listener(callback), identity, workers, folder)
        except RunStopped as stopped:
            folder.end("stopped", str(stopped))
            raise
        outcome.ledger.real_episodes = folder.real_episodes()  # those of earlier calls included
        folder.finish(outcome.policy, certify(outcome, problem))
        return outcome


def check(problem: Problem, settings: Settings) -> tuple[Learner, Settings]:
    """Refuses settings and problems that cannot be used; nothing is played.

    Returns:
        The learner, and the settings with its own name in them.
    """
    settings.check()
    _ = problem.identity  # refuses one that no certificate can hold
    low, high = problem.env.reward_range
    if not settings.epsilon < high - low:
        raise InvalidInput(
            f"epsilon is in the units of the rewards, whose totals lie in [{low:g}, {high:g}] here; it must be below "
            f"{high - low:g}, and {settings.epsilon:g} arrived."
        )
    if settings.device is not None:
        torch_device(settings.device)
    chosen = learner(settings.learner)
    asked = dataclasses.replace(settings, learner=chosen.name)
    engine = engine_name(problem, chosen, asked)
    missing = engine_kind(engine).missing(problem)
    if missing is not None:
        raise InvalidInput(missing)
    if not is_simulated(problem):
        for declared in (at_once, is_replayable, releases_gil, declares_deterministic, step_range, real_episodes):
            declared(problem.env)  # refuses what it cannot use
    environment_identity(problem.env, problem.id)  # likewise
    chosen.check(*as_served(chosen, problem, asked), engine)
    return chosen, asked


def engine_name(problem: Problem, chosen: Learner, settings: Settings) -> str:
    """Returns who plays: "auto" counts where the process is written down and the learner prefers that."""
    if settings.engine != "auto":
        return settings.engine
    return "counted" if problem.process is not None and chosen.counts else "stream"


def is_simulated(problem: Problem) -> bool:
    """Whether an environment is one that richobs simulates, so that playing it again costs nothing but time."""
    if is_gymnasium_id(problem.id):  # it can be built again, but what it plays is somebody else's
        return False
    return problem.id is not None or isinstance(problem.env, WorldEnvironment)


def _identity(problem: Problem) -> Probes | str | None:
    """Returns what identifies a class that is Python code: its fingerprint, or where one is gathered as episodes are played.

    None where the class has a digest.
    """
    if problem.functions.digest is not None:
        return None
    fixed = fixed_fingerprint(problem, simulated=is_simulated(problem))
    return Probes(problem.functions) if fixed is None else fixed


def _learn(
    problem: Problem,
    chosen: Learner,
    settings: Settings,
    callback: Callback | None,
    identity: Probes | str | None,
    workers: Workers,
    record: Record | None = None,
    repeats: Spent | None = None,
) -> Outcome:
    """Builds the engine, lets the learner run, and adds trace and ledger to what it answers.

    Where the learner needs rewards in [0, 1] and the problem has others, it gets the problem rescaled.
    """
    rescaled = rescaling(chosen, problem, settings)
    ledger = Ledger(settings.max_episodes, sampling_assumptions(problem.env), repeats)
    played_before = real_episodes(problem.env)
    trace: list[Event] = []

    def notify(progress: Progress) -> None:
        trace.append(progress.event)
        if callback is not None:
            callback(progress if rescaled is None else rescaled.progress(progress))

    probes = identity if isinstance(identity, Probes) else None
    played_by = _engine(problem, chosen, settings, ledger, workers, record, rescaled, probes)
    engine = RoundingWatch(played_by, (settings if rescaled is None else rescaled.settings).epsilon)
    try:
        if rescaled is None:
            outcome = chosen.run(problem, engine, settings, notify)
        else:
            shift, scale = rescaled.units.shift, rescaled.units.scale
            notify(Progress(UnitsChosen(phase="start", shift=shift, scale=scale), 0))
            answer = chosen.run(rescaled.problem, engine, rescaled.settings, notify)
            outcome = rescaled.outcome(answer, ledger.assumes)
    except RunStopped as stopped:
        stopped.ledger, stopped.trace = ledger, tuple(trace)
        if rescaled is not None and not isinstance(stopped, CallTooLong | EpisodeLimit | Rejected | WorkerFailed):
            stopped.args = (f"{stopped} Values in this message are {LABEL}: {rescaled.units.words}.",)
        raise
    except RuntimeError as error:
        if isinstance(error.__cause__, StopIteration):  # of somebody's code: a generator on its way changed it
            raise error.__cause__ from None
        raise
    policy = outcome.policy
    if identity is not None and isinstance(policy, LearnedPolicy) and policy.functions is problem.functions:
        seen = identity.seen if isinstance(identity, Probes) else fixed_probes(problem)  # the class is Python code
        check_alone(problem.functions, policy.f, seen)
    played = real_episodes(problem.env)
    if played is not None and played_before is not None:
        ledger.real_episodes = played - played_before
    found = identity.fingerprint() if isinstance(identity, Probes) else identity
    return dataclasses.replace(
        outcome,
        settings=settings,
        ledger=ledger,
        trace=tuple(trace),
        fingerprint=found,
        rounding=max(engine.rounding, outcome.rounding),
    )


def _engine(
    problem: Problem,
    chosen: Learner,
    settings: Settings,
    ledger: Ledger,
    workers: Workers,
    record: Record | None,
    rescaled: Rescaling | None,
    probes: Probes | None,
) -> Engine:
    env = problem.env
    if problem.recorded is not None:  # perhaps by a run with the same seed, whose draws would come again as fresh ones
        seed = derived_seed(settings.seed, "recorded", episodes_digest(problem.recorded))
        settings = dataclasses.replace(settings, seed=seed)
    world = env.device_world if isinstance(env, WorldEnvironment) and rescaled is None else None
    if not is_simulated(problem):  # somebody's object: a few episodes at a time, and never from two threads at once
        env = PacedEnvironment(problem.env, record, probes, functions=problem.functions, workers=workers, ledger=ledger)
        workers = Workers()  # calls are shared where they are made
    kind = engine_kind(engine_name(problem, chosen, settings))
    asked = problem if rescaled is None else rescaled.problem
    there = None if settings.device is None else OnDevice(asked.functions, settings.device)
    asked = asked if there is None else dataclasses.replace(asked, functions=there)
    # Calls are checked and recorded in the problem's own units, answers to the learner are in unit scale.
    env = env if rescaled is None else rescaled.environment(env)
    engine = kind.build(asked, env, settings, ledger, workers)
    if there is not None and world is not None and engine.name == "stream":
        engine = DeviceEngine(engine, there, world, problem.horizon, settings.seed)
    if record is None:
        return engine
    recorded = engine.name == "stream" and not is_simulated(problem)  # calls of somebody's environment
    return RecordedEngine(engine, record, probes, at_once(problem.env) if recorded else None)

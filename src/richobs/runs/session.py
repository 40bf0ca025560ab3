"""One run from settings to outcome, and the only place where its parts are put together.

Settings are checked once, one engine is built, one trace is collected. With a folder, every draw and decision is kept in
it, and a run that was killed goes on there.
"""

import dataclasses
import os

from richobs.core.environment import at_once
from richobs.core.errors import InvalidInput, RunStopped
from richobs.core.events import Callback, Event, Progress
from richobs.core.ledger import Ledger
from richobs.core.outcome import Outcome
from richobs.core.problem import Problem
from richobs.core.queries import Engine
from richobs.core.settings import Settings
from richobs.engines import PacedEnvironment, Record, RecordedEngine, engine_kind
from richobs.learners import Learner, learner
from richobs.runs.certificate import certify
from richobs.runs.store import RunFolder, describe
from richobs.worlds.simulator import WorldEnvironment


def run(
    problem: Problem,
    settings: Settings,
    *,
    callback: Callback | None = None,
    out: str | os.PathLike[str] | None = None,
) -> Outcome:
    """Runs what `settings` ask for on a problem.

    Args:
        problem: what to learn.
        settings: what is asked for.
        callback: called with a `Progress` after every event.
        out: a folder to keep the run in. A folder that holds the same run goes on with it; where that is finished, its
            outcome is given again and nothing is played. The number of workers may differ from call to call, and so may
            `max_episodes`: a run that spent what it was allowed goes on with more.

    Raises:
        InvalidInput: the settings or the problem cannot be used, or the folder holds a run with another configuration, or
            one that has spent more episodes than are allowed now; nothing in it was changed.
        InvalidFile: something in the folder is damaged, or was made by another version; nothing in it was changed.
        StoreError: the folder cannot be written (read-only, disk full), or another process is running in it.
        RunStopped: the run cannot go on.
    """
    chosen, asked = check(problem, settings)
    if out is None:
        return _learn(problem, chosen, asked, callback)
    with RunFolder.opened(
        out, describe(problem, asked, None if is_simulated(problem) else at_once(problem.env))
    ) as folder:
        try:
            outcome = _learn(problem, chosen, asked, folder.listener(callback), folder)
        except RunStopped as stopped:
            folder.end("stopped", str(stopped))
            raise
        folder.finish(outcome.policy, certify(outcome, problem))
        return outcome


def check(problem: Problem, settings: Settings) -> tuple[Learner, Settings]:
    """Refuses settings and problems that cannot be used; nothing is played.

    Returns:
        The learner, and the settings with its own name in them.
    """
    settings.check()
    chosen = learner(settings.learner)
    asked = dataclasses.replace(settings, learner=chosen.name)
    engine = engine_name(problem, chosen, asked)
    missing = engine_kind(engine).missing(problem)
    if missing is not None:
        raise InvalidInput(missing)
    if not is_simulated(problem):
        at_once(problem.env)  # refuses one that is no number
    chosen.check(problem, asked, engine)
    return chosen, asked


def engine_name(problem: Problem, chosen: Learner, settings: Settings) -> str:
    """Returns who plays: "auto" counts where the process is written down and the learner prefers that."""
    if settings.engine != "auto":
        return settings.engine
    return "counted" if problem.process is not None and chosen.counts else "stream"


def is_simulated(problem: Problem) -> bool:
    """Whether an environment is one that richobs simulates, so that playing it again costs nothing but time."""
    return problem.id is not None or isinstance(problem.env, WorldEnvironment)


def _learn(
    problem: Problem, chosen: Learner, settings: Settings, callback: Callback | None, record: Record | None = None
) -> Outcome:
    """Builds the engine, lets the learner run, and adds trace and ledger to what it answers."""
    ledger = Ledger(settings.max_episodes)
    trace: list[Event] = []

    def notify(progress: Progress) -> None:
        trace.append(progress.event)
        if callback is not None:
            callback(progress)

    engine = _engine(problem, chosen, settings, ledger, record)
    try:
        outcome = chosen.run(problem, engine, settings, notify)
    except RunStopped as stopped:
        stopped.ledger, stopped.trace = ledger, tuple(trace)
        raise
    return dataclasses.replace(outcome, settings=settings, ledger=ledger, trace=tuple(trace))


def _engine(problem: Problem, chosen: Learner, settings: Settings, ledger: Ledger, record: Record | None) -> Engine:
    env = problem.env
    if not is_simulated(problem):  # somebody's object: a few episodes at a time, and never from two threads at once
        env, settings = PacedEnvironment(problem.env, record), dataclasses.replace(settings, workers=1)
    engine = engine_kind(engine_name(problem, chosen, settings)).build(problem, env, settings, ledger)
    return engine if record is None else RecordedEngine(engine, record)

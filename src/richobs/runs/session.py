"""One run from settings to outcome, and the only place where its parts are put together.

Problem and settings are checked once (`prepare`), one `Play` answers the learner, one trace is collected. With a folder,
every draw and decision is kept in it, and a run that was killed goes on there.
"""

import dataclasses
import os
from concurrent.futures import Executor

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.environment import declared_by, real_episodes
from richobs.core.errors import CallTooLong, EpisodeLimit, Rejected, RunStopped, WorkerFailed
from richobs.core.events import Callback, Event, Progress
from richobs.core.executors import Workers, one_blas_thread
from richobs.core.ledger import Ledger, Spent
from richobs.core.outcome import Outcome, sampling_assumptions
from richobs.core.problem import Problem, episodes_digest
from richobs.core.randomness import derived_seed
from richobs.core.settings import Settings
from richobs.core.units import LABEL, UnitEnvironment, UnitsChosen
from richobs.engines import ENGINES, Calls, Play
from richobs.engines.independence import Watch
from richobs.engines.play import Log
from richobs.engines.probes import Probes, check_alone
from richobs.runs.certificate import Certificate
from richobs.runs.prepare import Prepared, is_simulated, own_progress, prepare
from richobs.runs.store import RunFolder, describe, keep_curve


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
    return run_prepared(prepare(problem, settings), callback=callback, out=out, executor=executor, repeats=repeats)


@one_blas_thread()
def run_prepared(
    prepared: Prepared,
    *,
    callback: Callback | None = None,
    out: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    repeats: Spent | None = None,
) -> Outcome:
    """Runs what `prepare` has checked; arguments and errors are those of `run`."""
    problem, asked = prepared.own, prepared.asked
    with Workers(max(asked.workers, declared_by(problem.env).processes), executor, asked.timeout) as workers:
        known = problem.functions.digest is not None
        probes = None if known else Probes.of(problem, simulated=is_simulated(problem))
        if out is None:
            return _learn(prepared, callback, probes, workers, repeats=repeats)
        per_call = None if is_simulated(problem) else declared_by(problem.env).at_once
        config = describe(problem, asked, per_call, None if probes is None else probes.fixed)
        with RunFolder.opened(out, config, probes) as folder:
            try:
                if problem.recorded is not None:
                    folder.keep_recorded(problem.recorded)
                is_counted = real_episodes(problem.env) is not None
                if is_counted:
                    folder.count_real_episodes(problem.env)
                outcome = _learn(prepared, folder.listener(callback), probes, workers, folder)
            except RunStopped as stopped:
                folder.end("stopped", str(stopped))
                raise
            if is_counted:
                outcome.ledger.real_episodes = folder.real_episodes()  # those of earlier calls included
            digest, replay = folder.finish(outcome.policy, Certificate.of(outcome, problem)), outcome.replay
            if replay is None:
                return outcome
            place = os.path.abspath(out)
            return dataclasses.replace(outcome, replay=lambda: keep_curve(place, digest, replay()))


def _learn(
    prepared: Prepared,
    callback: Callback | None,
    probes: Probes | None,
    workers: Workers,
    log: Log | None = None,
    repeats: Spent | None = None,
) -> Outcome:
    """Lets the learner run, and adds trace and ledger to what it answers."""
    problem, units = prepared.own, prepared.units
    ledger = Ledger(prepared.asked.max_episodes, sampling_assumptions(problem.env), repeats)
    played_before = real_episodes(problem.env)
    trace: list[Event] = []

    def notify(progress: Progress) -> None:
        trace.append(progress.event)
        if callback is not None:
            callback(progress if units is None else own_progress(progress, units))

    play = _play(prepared, ledger, workers, log, probes)
    try:
        if units is not None:
            notify(Progress(UnitsChosen(phase="start", shift=units.shift, scale=units.scale), 0))
        answer = prepared.learner.run(prepared.problem, play, prepared.settings, notify)
        outcome = answer if units is None else prepared.outcome(answer, units, ledger.assumes)
    except RunStopped as stopped:
        stopped.ledger, stopped.trace = ledger, tuple(trace)
        if units is not None and not isinstance(stopped, CallTooLong | EpisodeLimit | Rejected | WorkerFailed):
            stopped.args = (f"{stopped} Values in this message are {LABEL}: {units.words}.",)
        raise
    except RuntimeError as error:
        if isinstance(error.__cause__, StopIteration):  # of somebody's code: a generator on its way changed it
            raise error.__cause__ from None
        raise
    policy = outcome.policy
    if probes is not None and isinstance(policy, LearnedPolicy) and policy.functions is problem.functions:
        check_alone(problem.functions, policy.f, probes.seen)  # the class is Python code
    played = real_episodes(problem.env)
    if played is not None and played_before is not None:
        ledger.real_episodes = played - played_before
    return dataclasses.replace(
        outcome,
        settings=prepared.asked,
        ledger=ledger,
        trace=tuple(trace),
        reward_range=problem.env.reward_range,
        fingerprint=None if probes is None else probes.fixed or probes.fingerprint(),
        rounding=max(play.rounding, outcome.rounding),
    )


def _play(prepared: Prepared, ledger: Ledger, workers: Workers, log: Log | None, probes: Probes | None) -> Play:
    """Returns who answers the learner. Calls are checked and kept in the problem's own units, answers are in its units."""
    own, asked, settings = prepared.own, prepared.problem, prepared.settings
    if own.recorded is not None:  # perhaps by a run with the same seed, whose draws would come again as fresh ones
        seed = derived_seed(settings.seed, "recorded", episodes_digest(own.recorded))
        settings = dataclasses.replace(settings, seed=seed)
    env, watch = own.env, None
    if not is_simulated(own):  # somebody's object: a few episodes at a time, and never from two threads at once
        watch = Watch(settings.seed, env.reward_range)
        env = Calls(env, log, probes, functions=own.functions, workers=workers, ledger=ledger, watch=watch)
        workers = Workers()  # calls are shared where they are made
    if prepared.units is not None:
        env = UnitEnvironment(env, prepared.units)
    if settings.device is not None:
        asked = dataclasses.replace(asked, functions=prepared.learner.on_device(asked.functions, settings.device))
    play: Play = ENGINES.load(prepared.engine).build(asked, env, settings, ledger, workers)
    play.log, play.probes, play.epsilon = log, probes, settings.epsilon
    play.watch, play.learner_looks = watch, prepared.learner.traits.looks_at_episodes
    if play.name == "stream" and not is_simulated(own):
        play.per_call = declared_by(own.env).at_once
    return play

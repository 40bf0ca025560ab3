"""`learn`: one call from an environment and a class of functions to a policy with a guarantee."""

import os
from typing import Any

from richobs.core.environment import Environment
from richobs.core.errors import InvalidInput
from richobs.core.events import Callback, Progress
from richobs.core.functions import FunctionClass
from richobs.core.outcome import Outcome
from richobs.core.problem import Problem, as_problem
from richobs.core.process import TabularProcess
from richobs.core.settings import Settings, write_tuning
from richobs.runs.session import run
from richobs.show.terminal import is_interactive, watched


def learn(
    env: Environment | Problem,
    functions: FunctionClass | None = None,
    *,
    epsilon: float = 0.1,
    delta: float = 0.05,
    learner: str | None = None,
    tuning: Any = None,
    n_states: int | None = None,
    seed: int = 0,
    engine: str = "auto",
    max_episodes: int | None = None,
    workers: int = 1,
    process: TabularProcess | None = None,
    callback: Callback | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    schedule: str | None = None,
) -> Outcome:
    """Learns a policy that is epsilon-optimal with probability at least 1 - delta ([KAL16] Theorem 1, docs/certified.md).

    Args:
        env: an environment, or a problem such as `richobs.make` returns, which brings class, process and n_states along.
        functions: the class F of value functions; it should hold Q*.
        epsilon: largest allowed gap between the policy's value and V*.
        delta: probability that the claim is false.
        learner: who learns, by default "certified", whose tests hold at any sample size; "lsvee" is the paper as printed.
            `richobs learners` lists all with what they need and promise.
        tuning: numbers of the learner's own: its Tuning, a dictionary, or a list of "name=value".
        n_states: bound M on the latent states per level; only LSVEE as printed needs it.
        seed: of every draw; the same seed gives the same result.
        engine: "counted" draws episodes as counts from `process`, "stream" plays `env`; "auto" counts where the learner
            prefers that and the process is written down.
        max_episodes: no more are played. Some learners then return what they can claim, others raise `EpisodeLimit`; with
            `out`, a later call that allows more goes on from there.
        workers: threads of the streaming engine.
        process: the process written down, for the counted engine.
        callback: called with a `Progress` after every event.
        out: a folder to keep the run in. A run that was killed or interrupted there goes on where it stopped, to the same
            result as if it had not been, and no episode whose result was stored is played again.
        progress: show the run as it goes; by default in a terminal or a notebook.
        schedule: the name that `learner` had before; "paper" means "lsvee".

    Raises:
        BrokenPromise: the data contradict an assumption.
        EpisodeLimit: the next request does not fit into `max_episodes`.
        PrecisionError: epsilon is too small for float64 here.
        Rejected: the environment answered something else than it was asked.
    """
    if learner is not None and schedule is not None:
        raise InvalidInput(f"learner and schedule are two names of one thing; got {learner!r} and {schedule!r}.")
    problem = as_problem(env, functions, process=process)
    settings = Settings(
        epsilon=epsilon,
        delta=delta,
        learner=learner or schedule or "certified",
        engine=engine,
        seed=seed,
        n_states=n_states,
        max_episodes=max_episodes,
        workers=workers,
        tuning=write_tuning(tuning),
    )
    shown = is_interactive() if progress is None else progress
    with watched(problem.name, problem.functions.log_size, max_episodes, quiet=not shown) as watch:

        def listen(step: Progress) -> None:
            watch(step)
            if callback is not None:
                callback(step)

        try:
            return run(problem, settings, callback=listen, out=out)
        except KeyboardInterrupt as stopped:
            if out is not None:
                stopped.add_note(f"What was drawn is kept in {os.fspath(out)}; the same call goes on from there.")
            raise

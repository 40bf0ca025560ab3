"""`learn`: one call from an environment and a class to a policy with a guarantee, kept in a folder if asked."""

import os
from dataclasses import dataclass
from typing import Any, cast

from richobs.errors import InvalidInput
from richobs.learning import EngineName, Learnable, Repeats, Schedule, Settings, run
from richobs.outcome import Callback, Outcome
from richobs.problem import Environment, FunctionClass
from richobs.store import run_in
from richobs.tabular import TabularProcess


def learn(
    env: Environment | Learnable,
    functions: FunctionClass | None = None,
    *,
    epsilon: float = 0.1,
    delta: float = 0.05,
    schedule: Schedule = "certified",
    n_states: int | None = None,
    seed: int = 0,
    engine: EngineName = "auto",
    repeats: Repeats = "skip",
    max_episodes: int | None = None,
    workers: int = 1,
    process: TabularProcess | None = None,
    callback: Callback | None = None,
    out: str | os.PathLike[str] | None = None,
) -> Outcome:
    """Learns a policy that is epsilon-optimal with probability at least 1 - delta ([KAL16] Theorem 1, docs/certified.md).

    Args:
        env: an environment, or a problem from `richobs.make`, which brings class, process and n_states along.
        functions: the class F of value functions; it should hold Q*.
        epsilon: how far from optimal the policy may be.
        delta: how often it may be farther.
        schedule: "certified" searches with tests that hold at any sample size, "paper" takes every size as printed.
        n_states: bound M on the latent states per level; only the paper's schedule needs it.
        seed: of every draw; the same seed gives the same result.
        engine: "counted" draws episodes as counts from `process`, "stream" plays `env`; "auto" counts where the paper's
            schedule can, and streams otherwise.
        repeats: "verbatim" learns every collected prefix again, as printed; "skip" leaves out what was learned.
        max_episodes: no more are played. The certified schedule then returns what it can certify, the paper's raises
            `EpisodeLimit`; with `out`, a later call that allows more goes on from there.
        workers: threads of the streaming engine.
        process: the process written down, for the counted engine.
        callback: called with a `Progress` after every test.
        out: a folder to keep the run in. A run that was killed or interrupted there goes on where it stopped, to the same
            result as if it had not been, and no episode whose result was stored is
            played again.

    Raises:
        BrokenPromise: the data contradict an assumption.
        EpisodeLimit: the next request does not fit into `max_episodes`.
        PrecisionError: epsilon is too small for float64 here.
    """
    settings = Settings(epsilon, delta, schedule, repeats, engine, seed, n_states, max_episodes, workers)
    if functions is None and hasattr(env, "functions") and process is None:
        return _run(cast("Learnable", env), settings, callback, out)
    if hasattr(env, "env"):  # a problem, with a class or a process of the caller's
        problem = cast("Learnable", env)
        env, functions = problem.env, problem.functions if functions is None else functions
        process, n_states = process or problem.process, n_states if n_states is not None else problem.n_states
    if functions is None:
        raise InvalidInput("learn needs a function class: learn(env, functions, ...), or a problem from richobs.make.")
    return _run(_Given(env, functions, process, n_states), settings, callback, out)


@dataclass(frozen=True)
class _Given:
    """A problem put together from its parts."""

    env: Any
    functions: FunctionClass
    process: TabularProcess | None
    n_states: Any  # None where unknown


def _run(
    problem: Learnable, settings: Settings, callback: Callback | None, out: str | os.PathLike[str] | None
) -> Outcome:
    return run(problem, settings, callback) if out is None else run_in(out, problem, settings, callback)

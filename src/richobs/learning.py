"""`learn`: one call from an environment and a class of functions to a policy with a guarantee; and `plan`."""

import dataclasses
import os
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, Literal, cast

import gymnasium

from richobs.core.arguments import did_you_mean
from richobs.core.environment import Environment, Episodes
from richobs.core.errors import InvalidInput, WorkerFailed
from richobs.core.events import Callback, Progress
from richobs.core.functions import FunctionClass
from richobs.core.outcome import Outcome
from richobs.core.problem import Problem, as_problem, check_class, joined_episodes
from richobs.core.settings import Settings, write_tuning
from richobs.learners import Plan, default_learner
from richobs.learners import learner as learner_of
from richobs.runs.prepare import in_units_of
from richobs.runs.session import run
from richobs.show.terminal import is_interactive, watched
from richobs.worlds.gymnasium_in import from_gymnasium

Assume = Literal["values", "model"]


def learn(
    env: Environment | Problem | gymnasium.Env[Any, Any] | str,
    functions: FunctionClass | None = None,
    *,
    epsilon: float = 0.1,
    delta: float = 0.05,
    learner: str | None = None,
    assume: Assume | None = None,
    seed: int = 0,
    max_episodes: int | None = None,
    workers: int | Executor = 1,
    episodes: Episodes | Sequence[Episodes] | None = None,
    callback: Callback | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Outcome:
    """Learns a policy that is epsilon-optimal with probability at least 1 - delta (docs/betting.md).

    Args:
        env: an environment, or a problem such as `richobs.make` returns, which brings class, process and n_states along; or
            an environment of Gymnasium or its id, where the class knows levels and totals, as a `richobs.Family` does.
        functions: the class F of value functions; it should hold Q*.
        epsilon: largest allowed gap between the policy's value and V*.
        delta: probability that the claim is false.
        learner: who learns, by default "betting", which needs few episodes and allows random transitions, "families" for a
            `richobs.Family`, and "linear" for a `richobs.Linear` without parameters.
            `richobs learners` lists all with what they need and promise.
        assume: what the class is trusted for where it is a family of models (`richobs.Simulators`). "values", the weaker
            assumption, is the default: Q* of the real system is among the models' Q functions. "model" means that the real
            system is one of the models; then likelihoods eliminate models and plans certify the policy, which takes far
            fewer episodes. It chooses the learner "models".
        seed: of every draw; the same seed gives the same result. Where the class was chosen by means of a run, choose
            another seed: the same one would draw the same episodes, which are not fresh evidence.
        max_episodes: no more are played. Some learners then return what they can claim, others raise `EpisodeLimit`; with
            `out`, a later call that allows more goes on from there.
        workers: how many share the episodes, or who: any `concurrent.futures.Executor`, such as a standard pool, loky,
            Dask's `client.get_executor()` or `richobs.ray.RayExecutor`, which is not shut down. They do not change the
            result. An environment of your own is shared by so many processes where it declares `replayable=True` (or by
            threads, where it also declares `releases_gil=True`), and stays in this process where it does not. A built-in
            world is shared by threads.
        episodes: episodes that were played before, by any policies, as `play` returns them: free evidence for elimination.
            They must be whole, of this environment, and not selected by what came of them; the claim says so. New episodes
            are drawn from `seed` and a digest of the recorded ones, so a run with the same seed may have recorded them.
        callback: called with a `Progress` after every event.
        out: a folder to keep the run in. A run that was killed or interrupted there goes on where it stopped, to the same
            result as if it had not been, and no episode whose result was stored is played again. A run that was stopped
            because its episodes are not independent stays stopped there; of an interrupted run such checks see the rest
            alone where the learner does not keep its episodes (docs/honesty.md).
        progress: show the run as it goes; by default in a terminal or a notebook.
        **settings: further fields of `richobs.Settings`: `tuning` (numbers of the learner's own: its Tuning, a dictionary,
            or a list of "name=value"), `tolerance` (the class holds the truth only nearly, docs/honesty.md), `threshold`,
            `timeout`, `device`, `engine`, `n_states`.

    Raises:
        BrokenPromise: the data contradict an assumption.
        CallTooLong: a call of the environment took longer than `timeout`.
        EpisodeLimit: the next request does not fit into `max_episodes`.
        PrecisionError: epsilon is too small for float64 here.
        Rejected: the environment answered something else than it was asked, or is not replayable although it says so.
        WorkerFailed: a worker was lost; with `out`, the same call goes on from what was recorded.
    """
    problem = as_problem(playable(env, functions), functions)
    name = chosen_learner(problem.functions, learner, assume)
    if callback is not None and not callable(callback):
        raise InvalidInput(f"callback must be a function that takes a Progress; got {callback!r}.")
    if episodes is not None:
        problem = dataclasses.replace(problem, recorded=joined_episodes(episodes))
    executor = cast("Executor", workers) if hasattr(workers, "submit") else None
    asked = _settings(
        **settings,
        epsilon=epsilon,
        delta=delta,
        learner=name,
        seed=seed,
        max_episodes=max_episodes,
        workers=workers if executor is None else 1,
    )
    shown = is_interactive() if progress is None else progress
    with watched(problem.name, problem.functions.log_size, max_episodes, quiet=not shown) as watch:

        def listen(step: Progress) -> None:
            watch(step)
            if callback is not None:
                callback(step)

        try:
            return run(problem, asked, callback=listen, out=out, executor=executor)
        except KeyboardInterrupt as stopped:
            if out is not None:
                stopped.add_note(f"What was drawn is kept in {os.fspath(out)}; the same call goes on from there.")
            if asked.workers > 1 or executor is not None:  # how this process waited for others is of no use
                raise stopped.with_traceback(None) from None
            raise
        except WorkerFailed as lost:  # its cause is what the reader needs
            raise lost.with_traceback(None) from lost.__cause__


def chosen_learner(functions: FunctionClass, learner: str | None, assume: Assume | None) -> str:
    """Returns who learns: who is named, or whom the class and what it is trusted for prefer.

    Raises:
        InvalidInput: the two contradict each other.
    """
    if assume not in (None, "values", "model"):
        raise InvalidInput(f"assume must be 'values' or 'model'; got {assume!r}.")
    fitting = default_learner(functions)
    name = learner or ("models" if assume == "model" and fitting == Settings.learner else fitting)
    if assume is not None and (assume == "model") != (name in ("models", "families")):
        raise InvalidInput(
            f"the learner {name!r} does not go with assume={assume!r}: the learners 'models' and 'families' trust models, "
            "all others trust values. Give one of the two."
        )
    return name


def playable(env: Any, functions: FunctionClass | None) -> Any:
    """Returns what is learned; an environment of Gymnasium, or its id, has the levels and the totals that the class knows.

    Raises:
        InvalidInput: the class does not know them.
    """
    if not isinstance(env, gymnasium.Env) and not (isinstance(env, str) and env in gymnasium.registry):
        return env
    name = repr(env) if isinstance(env, str) else "env"
    if functions is None:
        raise InvalidInput(
            f"an environment of Gymnasium arrived without a function class: give learn({name}, functions)."
        )
    check_class(functions)
    known = getattr(functions, "reward_range", None)
    if known is None:
        raise InvalidInput(
            f"an environment of Gymnasium does not say what an episode can earn. Give richobs.from_gymnasium({name}, "
            f"horizon={functions.horizon}, reward_range=(smallest total, largest total)): see docs/gymnasium.md."
        )
    return from_gymnasium(env, horizon=functions.horizon, reward_range=known)


def _settings(tuning: Any = None, **given: Any) -> Settings:
    """Returns the settings of a run.

    Raises:
        InvalidInput: there is no such setting.
    """
    known = [field.name for field in dataclasses.fields(Settings)]
    if unknown := [name for name in given if name not in known]:
        raise InvalidInput(
            f"there is no argument and no setting {unknown[0]!r}. Settings are {', '.join(known)}. "
            "What belongs to the problem, such as `process`, is an argument of richobs.Problem; an executor is given as "
            f"`workers`.{did_you_mean(unknown[0], known)}"
        )
    return Settings(tuning=write_tuning(tuning), **given)


def plan(
    env: Environment | Problem | gymnasium.Env[Any, Any] | str,
    functions: FunctionClass | None = None,
    *,
    epsilon: float = 0.1,
    delta: float = 0.05,
    learner: str | None = None,
    **settings: Any,
) -> Plan:
    """Returns what `learn` would ask for with the same arguments, and the worst case; nothing is played.

    A run that asks for more episodes than anybody can play has a plan too.

    Args:
        env: as `learn` takes it.
        functions: the class F of value functions, where an environment is given.
        epsilon: largest allowed gap between the policy's value and V*.
        delta: probability that the claim is false.
        learner: who would learn, by default "betting".
        **settings: further fields of `richobs.Settings`, such as `n_states`, `max_episodes` and `tuning`.

    Returns:
        `title` (whose plan it is), `max_episodes` (the most that a run can need with probability 1 - delta; None where
        nothing is known), `rows()` (line by line) and `as_json()`.

    Raises:
        InvalidInput: the learner cannot serve this problem or these settings.
    """
    problem = as_problem(playable(env, functions), functions)
    name = learner or default_learner(problem.functions)
    asked = _settings(**settings, epsilon=epsilon, delta=delta, learner=name)
    asked.check()
    chosen = learner_of(asked.learner)
    chosen.tuning(asked)
    chosen.check_needs(problem, asked)
    served = in_units_of(chosen, problem, asked)
    if asked.tolerance:
        chosen.check(served.problem, served.settings, "stream")
    return chosen.plan(served.problem, served.settings)

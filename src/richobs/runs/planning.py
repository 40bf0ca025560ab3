"""`plan`: what a run will ask for, before anything is played."""

from richobs.core.environment import Environment
from richobs.core.errors import InvalidInput
from richobs.core.functions import FunctionClass
from richobs.core.problem import Problem, as_problem
from richobs.core.settings import Settings
from richobs.learners.lsvee import Lsvee, PaperConstants, SamplePlan
from richobs.runs.rescaling import as_served


def plan(
    problem: Problem | Environment | None = None,
    functions: FunctionClass | None = None,
    *,
    epsilon: float = 0.1,
    delta: float = 0.05,
    n_states: int | None = None,
    horizon: int | None = None,
    n_actions: int | None = None,
    log_size: float | None = None,
) -> SamplePlan:
    """Returns the paper's sample sizes and the worst case they add up to; nothing is played.

    Args:
        problem: a problem, or an environment; or give the four numbers instead.
        functions: the class, where an environment is given.
        epsilon: largest allowed gap between the policy's value and V*.
        delta: probability that the claim is false.
        n_states: M, a bound on the latent states per level.
        horizon: H.
        n_actions: K.
        log_size: natural logarithm of the number of functions N.
    """
    if problem is not None:
        given = as_problem(problem, functions)
        settings = Settings(epsilon=epsilon, delta=delta, learner=Lsvee.name, n_states=n_states)
        return Lsvee().plan(*as_served(Lsvee(), given, settings))
    if horizon is None or n_actions is None or n_states is None or log_size is None:
        raise InvalidInput("plan needs a problem, or all of horizon, n_actions, n_states and log_size.")
    return SamplePlan(
        PaperConstants.of(
            horizon=horizon, n_actions=n_actions, n_states=n_states, log_size=log_size, epsilon=epsilon, delta=delta
        )
    )

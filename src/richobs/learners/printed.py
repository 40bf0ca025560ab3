"""What learners share that follow a paper as printed: every size is fixed in advance, and depends on a bound n_states."""

import dataclasses
import json
import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from richobs.core.arguments import LARGEST_FACT, real_number, whole_number
from richobs.core.errors import InvalidInput
from richobs.core.problem import Problem, checked_accuracy
from richobs.core.settings import Settings
from richobs.learners.base import Finding, Learner, Need, first_difference

MOST_STREAMED = 10**11  # episodes from which on a streamed run needs max_episodes: it would take hours or more


def bound_on_states(problem: Problem, settings: Settings) -> int | None:
    """Returns M: what the settings say, else what the problem says."""
    return settings.n_states if settings.n_states is not None else problem.n_states


def _n_states_missing(problem: Problem, settings: Settings) -> str | None:
    missing = "neither the problem nor the settings say n_states. Its sample sizes depend on that bound."
    return missing if bound_on_states(problem, settings) is None else None


N_STATES = Need("n_states, a bound on the latent states per level", _n_states_missing)


def checked_inputs(
    horizon: int,
    n_actions: int,
    n_states: int,
    log_size: float,
    epsilon: float,
    delta: float,
    most_states: int | None = None,
) -> dict[str, Any]:
    """Returns what the constants of a paper are computed from, by name, once each is a number that can be used.

    Args:
        horizon: H.
        n_actions: K.
        n_states: M.
        log_size: natural logarithm of N.
        epsilon: largest allowed gap between the policy's value and V*.
        delta: probability that the claim is false.
        most_states: largest M that the formulas take.
    """
    epsilon, delta = checked_accuracy(epsilon, delta)
    inputs = {
        "horizon": whole_number("horizon", horizon, least=1, most=LARGEST_FACT),
        "n_actions": whole_number("n_actions", n_actions, least=1, most=LARGEST_FACT),
        "n_states": whole_number("n_states", n_states, least=1, most=most_states),
        "log_size": real_number("log_size", log_size),
    }
    if not 0 <= inputs["log_size"] < math.inf:
        raise InvalidInput(f"log_size must be a finite number, at least 0; got {inputs['log_size']!r}.")
    return {**inputs, "epsilon": epsilon, "delta": delta}


class PrintedLearner(Learner):
    """A learner whose sample sizes and thresholds are those of a paper. It names `Constants` and writes `least`."""

    bounded: ClassVar[str]  # what n_states is a bound on, in words
    Constants: ClassVar[Any]  # a dataclass whose `of` takes `inputs`

    def constants(self, problem: Problem, settings: Settings) -> Any:
        """Returns the sample sizes and thresholds of the paper."""
        return self.Constants.of(**self.inputs(problem, settings))

    @abstractmethod
    def least(self, problem: Problem, settings: Settings) -> tuple[int, str]:
        """Returns episodes that every run needs, and that it asks for them, in words."""

    def inputs(self, problem: Problem, settings: Settings) -> dict[str, Any]:
        """Returns what the constants are computed from, by name.

        Raises:
            InvalidInput: n_states is not known.
        """
        n_states = bound_on_states(problem, settings)
        if n_states is None:
            raise InvalidInput(f"the learner {self.name!r} needs {N_STATES.words}.")
        return {
            "horizon": problem.horizon,
            "n_actions": problem.n_actions,
            "n_states": n_states,
            "log_size": problem.functions.log_size,
            "epsilon": settings.epsilon,
            "delta": settings.delta,
        }

    def check(self, problem: Problem, settings: Settings, engine: str) -> None:
        """Refuses also to stream so many episodes that the run would take hours or more."""
        super().check(problem, settings, engine)
        least, words = self.least(problem, settings)
        if engine == "stream" and settings.max_episodes is None and least >= MOST_STREAMED:
            raise InvalidInput(
                f"{words}, and the streaming engine plays them one by one, some ten million a second. Ways out: the learner "
                "'betting', which needs far fewer; a process written down (richobs.TabularProcess), from which episodes are "
                "drawn as counts; a larger epsilon; or max_episodes, to start anyway."
            )

    def recheck(self, content: Mapping[str, Any], problem: Problem, settings: Settings) -> list[Finding]:
        """Derives the paper's sample sizes and thresholds again, and adds up what the events of the run spent."""
        bound = content["constants"].get("n_states", 0)
        fits = isinstance(bound, int) and problem.n_states is not None and bound >= problem.n_states
        constants = json.loads(json.dumps(dataclasses.asdict(self.constants(problem, settings))))
        wrong = first_difference(constants, content["constants"], "constants")
        assumed = f"at most {bound} assumed; {problem.n_states} hidden states a level there are"
        return [
            Finding(self.bounded, fits, assumed),
            Finding("constants", wrong is None, wrong or "every sample size and threshold follows from the inputs"),
            *super().recheck(content, problem, settings),
        ]

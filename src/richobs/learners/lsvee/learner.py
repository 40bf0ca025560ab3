"""LSVEE as a learner: what it needs, promises and costs."""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from richobs.core.errors import InvalidInput
from richobs.core.events import Callback
from richobs.core.outcome import DETERMINISTIC, REACTIVE, REALIZABLE, Outcome
from richobs.core.problem import Problem
from richobs.core.queries import Engine
from richobs.core.settings import Settings
from richobs.learners.base import (
    Finding,
    Learner,
    Need,
    Promise,
    deterministic_transitions,
    first_difference,
    unit_rewards,
)
from richobs.learners.lsvee.algorithm import lsvee
from richobs.learners.lsvee.constants import PaperConstants
from richobs.learners.lsvee.plan import SamplePlan

MOST_STREAMED = 10**11  # episodes from which on a streamed run needs max_episodes: it would take hours or more


def bound_on_states(problem: Problem, settings: Settings) -> int | None:
    """Returns M: what the settings say, else what the problem says."""
    return settings.n_states if settings.n_states is not None else problem.n_states


def _n_states_missing(problem: Problem, settings: Settings) -> str | None:
    known = bound_on_states(problem, settings) is not None
    return (
        None if known else "neither the problem nor the settings say n_states. Its sample sizes depend on that bound."
    )


N_STATES = Need("n_states, a bound on the latent states per level", _n_states_missing)


@dataclass(frozen=True)
class LsveeTuning:
    """What may be chosen about LSVEE as printed."""

    repeats: Literal["skip", "verbatim"] = "skip"
    """What on-demand exploration does with paths that were learned: skip them, or learn them again as printed (verbatim)."""
    # "skip" also excludes policies that failed, and stops at M H eliminations in a search, at M H rounds, and where a policy
    # earns more than V*-hat + epsilon/4. "verbatim" does none of this. It stops where it played more episodes than the proof
    # allows, or a hundred times its rounds: as printed a run may never end.


class Lsvee(Learner):
    """LSVEE as printed, at its own constants."""

    name = "lsvee"
    about = "LSVEE as printed, at the paper's own constants: every sample size is fixed in advance."
    cites = "Krishnamurthy, Agarwal and Langford 2016, Algorithms 1 to 3"
    given = ("class of value functions", "horizon", "number of states", "deterministic transitions")
    needs = (unit_rewards, deterministic_transitions, N_STATES)
    promises = Promise(
        "With probability 1 - delta the policy's value is within epsilon of V*.",
        (
            REACTIVE,
            REALIZABLE,
            DETERMINISTIC,
            "there are at most n_states hidden states a level",
        ),
    )
    costs = "10^11 to 10^20 episodes, drawn as counts where the process is written down: M H^6 K^2 / epsilon^3 log N."
    Tuning = LsveeTuning
    counts = True
    level_work = 200

    def constants(self, problem: Problem, settings: Settings) -> PaperConstants:
        """Returns the sample sizes and thresholds of the paper."""
        n_states = bound_on_states(problem, settings)
        if n_states is None:
            raise InvalidInput(f"the learner {self.name!r} needs {N_STATES.words}.")
        return PaperConstants.of(
            horizon=problem.horizon,
            n_actions=problem.n_actions,
            n_states=n_states,
            log_size=problem.functions.log_size,
            epsilon=settings.epsilon,
            delta=settings.delta,
        )

    def check(self, problem: Problem, settings: Settings, engine: str) -> None:
        """Refuses also to stream so many episodes that the run would take hours or more."""
        super().check(problem, settings, engine)
        least = self.constants(problem, settings).one_path
        if engine == "stream" and settings.max_episodes is None and least >= MOST_STREAMED:
            raise InvalidInput(
                f"LSVEE as printed asks for at least {least:.3g} episodes here (H (n_train + K n_test)), and the streaming "
                "engine plays them one by one, some ten million a second. Ways out: the learner 'betting', which needs "
                "far fewer; a process written down (richobs.TabularProcess), from which episodes are drawn as counts; a "
                "larger epsilon; or max_episodes, to start anyway."
            )

    def plan(self, problem: Problem, settings: Settings) -> SamplePlan:
        """Returns every sample size, and the worst case they add up to."""
        return SamplePlan(self.constants(problem, settings))

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Runs Algorithm 1."""
        verbatim = self.tuning(settings).repeats == "verbatim"
        constants = self.constants(problem, settings)
        return lsvee(engine, problem.functions, constants, verbatim=verbatim, notify=notify)

    def recheck(self, content: Mapping[str, Any], problem: Problem, settings: Settings) -> list[Finding]:
        """Derives the paper's sample sizes and thresholds again, and adds up what the events of the run spent."""
        bound = content["constants"].get("n_states", 0)
        fits = isinstance(bound, int) and problem.n_states is not None and bound >= problem.n_states
        constants = json.loads(json.dumps(dataclasses.asdict(self.constants(problem, settings))))
        wrong = first_difference(constants, content["constants"], "constants")
        spent = math.fsum(row[3] for row in content["claims"])
        return [
            Finding("hidden states", fits, f"at most {bound} a level assumed; {problem.n_states} there are"),
            Finding("constants", wrong is None, wrong or "every sample size and threshold follows from the inputs"),
            Finding("delta", spent <= settings.delta, f"{len(content['claims'])} claims spend {spent:.6g} of it"),
        ]

"""OLIVE as a learner: what it needs, promises and costs."""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from richobs.core.errors import InvalidInput
from richobs.core.events import Callback
from richobs.core.outcome import Outcome
from richobs.core.problem import Problem
from richobs.core.queries import Engine
from richobs.core.settings import Settings
from richobs.learners.base import Finding, Learner, Promise, ShortPlan, first_difference, unit_rewards
from richobs.learners.lsvee.learner import MOST_STREAMED, N_STATES, bound_on_states
from richobs.learners.olive.algorithm import olive
from richobs.learners.olive.constants import OliveConstants
from richobs.learners.olive.plan import olive_plan


class Olive(Learner):
    """OLIVE as printed, at its own constants."""

    name = "olive"
    about = "OLIVE as printed, at its own constants: transitions may be random, every sample size is fixed in advance."
    cites = "Jiang, Krishnamurthy, Agarwal, Langford and Schapire 2017, Algorithm 1"
    given = ("class of value functions", "horizon", "number of states")
    needs = (unit_rewards, N_STATES)
    promises = Promise(
        "With probability 1 - delta the policy's value is within epsilon of V*.",
        (
            "Q* is in the class, so the best value of an action depends on what is seen, not on what was seen before",
            "the Bellman rank is at most n_states, which holds where there are at most n_states hidden states a level",
            "rewards are nonnegative with totals at most 1, and every function's values lie in [0, 1]",
        ),
    )
    costs = "10^8 to 10^15 episodes, drawn as counts where the process is written down: M^2 H^3 K / epsilon^2 log N."
    counts = True
    level_work = 4_000

    def constants(self, problem: Problem, settings: Settings) -> OliveConstants:
        """Returns the sample sizes and thresholds of the paper."""
        n_states = bound_on_states(problem, settings)
        if n_states is None:
            raise InvalidInput(f"the learner {self.name!r} needs {N_STATES.words}.")
        return OliveConstants.of(
            horizon=problem.horizon,
            n_actions=problem.n_actions,
            n_states=n_states,
            log_size=problem.functions.log_size,
            epsilon=settings.epsilon,
            delta=settings.delta,
        )

    def check(self, problem: Problem, settings: Settings, engine: str) -> None:
        """Refuses also to stream more episodes than anybody can wait for."""
        super().check(problem, settings, engine)
        least = self.constants(problem, settings).one_round
        if engine == "stream" and settings.max_episodes is None and least >= MOST_STREAMED:
            raise InvalidInput(
                f"OLIVE as printed asks for {least:.3g} episodes here until its first elimination is done, and the "
                "streaming engine plays them one by one, some ten million a second. Ways out: another learner, which needs "
                "far fewer; a process written down (richobs.TabularProcess), from which episodes are drawn as counts; a "
                "larger epsilon; or max_episodes, to start anyway."
            )

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns every sample size, and the worst case they add up to."""
        return olive_plan(self.constants(problem, settings))

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Runs Algorithm 1."""
        return olive(engine, problem.functions, self.constants(problem, settings), notify=notify)

    def recheck(self, content: Mapping[str, Any], problem: Problem, settings: Settings) -> list[Finding]:
        """Derives the sample sizes and thresholds again, and adds up what the events of the run spent."""
        bound = content["constants"].get("n_states", 0)
        fits = isinstance(bound, int) and problem.n_states is not None and bound >= problem.n_states
        constants = json.loads(json.dumps(dataclasses.asdict(self.constants(problem, settings))))
        wrong = first_difference(constants, content["constants"], "constants")
        spent = math.fsum(row[3] for row in content["claims"])
        return [
            Finding(
                "Bellman rank", fits, f"at most {bound} assumed; {problem.n_states} hidden states a level there are"
            ),
            Finding("constants", wrong is None, wrong or "every sample size and threshold follows from the inputs"),
            Finding("delta", spent <= settings.delta, f"{len(content['claims'])} claims spend {spent:.6g} of it"),
        ]

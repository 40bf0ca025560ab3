"""The search by linear values as a learner: what it needs, promises and costs."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from richobs.classes.linear import Linear
from richobs.core.events import Callback
from richobs.core.outcome import LOWER, UPPER, Outcome
from richobs.core.problem import Problem
from richobs.core.queries import Engine
from richobs.core.settings import Settings
from richobs.core.words import number_words
from richobs.learners.base import WITHIN_EPSILON, Finding, Learner, Need, PlanRow, Promise, ShortPlan, Traits
from richobs.learners.linear.data import Features
from richobs.learners.linear.fits import Fit, Frozen, Mean, Region, certified
from richobs.learners.linear.search import (
    FINAL,
    GAP,
    LINEAR,
    LOSS,
    PER_FEATURE,
    LinearSearch,
    Tuning,
    everywhere,
    outcome,
    run,
)
from richobs.learners.stopping import check_tolerance

EXACT = 1e-7  # relative difference that computing the bound again may show


def _features_missing(problem: Problem, settings: Settings) -> str | None:
    if isinstance(problem.functions, Linear) and not problem.functions.has_list:
        return None
    given = type(problem.functions).__name__
    return f"a {given} lists its functions. Give richobs.Linear(features, ...) without parameters."


def _zeta(problem: Problem, settings: Settings) -> tuple[float, ...]:
    """Returns how far means may be from linear at each level; nothing where they are linear."""
    given = settings.tolerance
    check_tolerance(problem, settings, "how far means of reward plus value may be from linear (docs/linear.md)")
    return given if len(given) != 1 else given * problem.horizon


class LinearValues(Learner):
    """The search by linear values."""

    name = "linear"
    about = (
        "Linear values without a list: a frozen value function is verified on fresh episodes, then what is left over."
    )
    cites = "docs/linear.md; linear MDPs after Jin, Yang, Wang and Jordan 2020"
    given = ("features", "horizon")
    needs = (Need("features of observations and actions", _features_missing),)
    promises = Promise(WITHIN_EPSILON, (LINEAR,))
    costs = "Thousands of episodes: they grow like the number of features and 1/epsilon^2."
    Tuning = Tuning
    traits = Traits(keeps_bounds=True, reads_episodes=True, without_list=True, takes_tolerance=True)

    def check(self, problem: Problem, settings: Settings, engine: str) -> None:
        """Refuses what the base refuses, and a tolerance that is not one of each level."""
        super().check(problem, settings, engine)
        _zeta(problem, settings)

    def plan(self, problem: Problem, settings: Settings) -> ShortPlan:
        """Returns what chance may add to the bound; nothing is known of the number of episodes."""
        self.check_needs(problem, settings)
        needed = math.log(1 / (settings.delta * FINAL * GAP))
        assert isinstance(problem.functions, Linear), "its need was checked"
        start, least = self.tuning(settings).start, 2 * PER_FEATURE * problem.functions.dim
        rows = (
            PlanRow("exploration", "least", start, "episodes", "of the random policy, which a run begins with"),
            PlanRow(
                "attempt", "least", least, "episodes", f"{PER_FEATURE} for each feature in phase B, and as many in C"
            ),
            PlanRow("attempt", "evidence", needed, "nats", "docs/linear.md: log(1/d) of the first attempt at epsilon"),
        )
        return ShortPlan("linear: attempts whose sizes follow from what was seen", None, rows)

    def run(self, problem: Problem, engine: Engine, settings: Settings, notify: Callback) -> Outcome:
        """Searches until a policy is certified, or the episodes are spent."""
        search = LinearSearch.of(self, problem, engine, settings, notify, zeta=_zeta(problem, settings))
        run(search)
        return outcome(search)

    def recheck(self, content: Mapping[str, Any], problem: Problem, settings: Settings) -> list[Finding]:
        """Adds up the shares of delta, and computes the bound again from the sums that the certificate holds.

        W and U also rest on single returns, which it does not hold: they are compared with the mean return and the bound.
        """
        findings = super().recheck(content, problem, settings)
        if content["result"]["guaranteed"]:
            assert isinstance(problem.functions, Linear), "its need was checked"
            findings.append(_again(content, content["constants"], Features(problem.functions), problem, settings))
        return findings


def _again(
    content: Mapping[str, Any], constants: Mapping[str, Any], features: Features, problem: Problem, settings: Settings
) -> Finding:
    """Computes the bound again from the sums of the phases."""

    def fits(name: str) -> tuple[Fit, ...]:
        return tuple(Fit(*(np.array(part, dtype=np.float64) for part in level)) for level in constants[name])

    H, low_high = features.horizon, constants["cut"]
    frozen = Frozen(
        [np.array(w) for w in constants["w"]],
        [(-math.inf, math.inf)] * H if low_high is None else [(low, high) for low, high in low_high],
        constants["rate"],
        fits("first"),
        tuple(np.array(f) for f in constants["f"]),
        tuple(np.array(bonus) for bonus in constants["bonus"]),
        tuple(constants["zeta"]),
    )
    contexts = everywhere(features)
    low, high = problem.env.reward_range
    earned, start = Mean(*constants["earned"]), Mean(*constants["start"])
    if features.tables is not None:  # F_0 rests on phase B
        starts = np.array(constants["starts"], dtype=np.float64)
        mean = float(starts @ frozen.left_over(0, features.tables[0])) / float(starts.sum())
        start = start._replace(mean=mean)
    bound = certified(frozen, fits("second"), earned, start, contexts, constants["share"], high - low)
    total = min(bound.total, high - low)
    stated, result = constants["bound"][0], content["result"]
    paid = [row for row in content["claims"] if row[0] == LOSS and abs(row[4] - stated) <= EXACT * (high - low)]
    same = abs(total - stated) <= EXACT * (high - low) and len(fits("second")) == len(fits("first")) == H
    same &= frozen.zeta == _zeta(problem, settings)
    same &= any(row[3] >= constants["share"] for row in paid)
    for name, ends in (("v_range", frozen.value_ends), ("f_range", frozen.left_over_ends)):
        again = [ends(h, contexts if isinstance(contexts, Region) else contexts[h]) for h in range(H)]
        same &= np.allclose(constants[name], again, rtol=EXACT, atol=EXACT * (high - low))
    same &= result["epsilon"] == (settings.epsilon if stated <= settings.epsilon else stated)
    for words, side in ((LOWER, "lower"), (UPPER, "upper")):
        same &= any(row[0] == words and row[4] == result[side] for row in content["claims"])
    value, slack = result["value_hat"], EXACT * (high - low)
    same &= result["lower"] <= value + slack and result["upper"] >= min(high, value + total) - slack
    return Finding(
        "bound", bool(same), f"from the sums of its phases the policy loses at most {number_words(total, up=True)}"
    )

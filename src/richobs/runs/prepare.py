"""`prepare`: the only check of problem and settings before a run; and the units in which the learner works.

For learners that need rewards in [0, 1] a problem with others is rescaled, and the answer scaled back. What a person sees
of a run is in the problem's own units: epsilon, bounds, estimates, the claim, and the bounds of every `Progress`. What only
the learner sees is in unit scale and labelled: its constants, the numbers of its events, and claims of other kinds than
bounds.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from richobs.classes.learned_policy import LearnedPolicy
from richobs.core.environment import real_episodes
from richobs.core.errors import InvalidInput
from richobs.core.events import Progress
from richobs.core.outcome import LOWER, UPPER, Claim, InUnits, Outcome, claim_words
from richobs.core.policies import SavablePolicy
from richobs.core.problem import SMALLEST, Problem
from richobs.core.settings import Settings
from richobs.core.units import LABEL, UnitFunctions, Units, has_unit_rewards, units_missing, units_of
from richobs.device import torch_device
from richobs.engines import ENGINES
from richobs.learners import Finding, Learner, learner
from richobs.learners.base import unit_rewards
from richobs.worlds.registry import is_gymnasium_id
from richobs.worlds.simulator import WorldEnvironment

NUMBERS = ("epsilon", "v_star_hat", "value_hat", "upper", "lower")  # of a result, which depend on units


@dataclass(frozen=True, eq=False)
class Prepared:
    """A run that may begin: who learns, and problem and settings as they were given and as the learner gets them."""

    learner: Learner
    own: Problem
    asked: Settings  # epsilon in the problem's own units
    units: Units | None  # of the learner; None: those of the problem
    problem: Problem  # in the units of the learner
    settings: Settings  # likewise

    @property
    def engine(self) -> str:
        """The engine that plays: "auto" counts where the process is written down and the learner prefers that."""
        if self.asked.engine != "auto":
            return self.asked.engine
        return "counted" if self.learner.traits.counts and self.own.process is not None else "stream"

    def outcome(self, answer: Outcome, units: Units, sampling: tuple[str, ...]) -> Outcome:
        """Returns a learner's answer in the problem's own units.

        Args:
            answer: in the units of the learner.
            units: of the learner.
            sampling: what the episodes themselves rest on, for learners that do not word their claim for other numbers.
        """
        numbers = self._own_numbers(units, {name: getattr(answer, name) for name in NUMBERS})
        return dataclasses.replace(
            answer,
            policy=_own_policy(answer.policy),
            claim=self._claim(answer, numbers, sampling) if answer.guaranteed else answer.claim,
            claims=tuple(_own_claim(units, claim) for claim in answer.claims),
            remarks=tuple(f"{remark.rstrip('.')} (values here are {LABEL})" for remark in answer.remarks),
            in_units=InUnits(units, answer),
            **numbers,
        )

    def _claim(self, answer: Outcome, numbers: Mapping[str, Any], sampling: tuple[str, ...]) -> str:
        given = {name: numbers[name] for name in ("epsilon", "lower", "upper")}
        given["reward_range"] = self.own.env.reward_range
        if answer.wording is not None:
            return answer.wording(**given)
        assumptions = self.learner.promises.assumptions or (f"the learner {answer.learner!r} may be used here",)
        return claim_words(answer.delta, assumptions=assumptions, sampling=sampling, **given)

    def _own_numbers(self, units: Units, numbers: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the numbers of a result in the problem's own units; bounds are rounded to the safe side."""
        ways = {"epsilon": units.own_width, "upper": units.own_above, "lower": units.own_below}
        found = {name: None if numbers[name] is None else ways.get(name, units.own)(numbers[name]) for name in NUMBERS}
        return {**found, "epsilon": self.asked.epsilon} if numbers["epsilon"] == self.settings.epsilon else found

    def recheck(self, content: Mapping[str, Any]) -> list[Finding]:
        """Checks that a certificate's numbers follow from those in unit scale, and lets the learner check these."""
        units = self.units
        if units is None:
            return self.learner.recheck(content, self.own, self.asked)
        stated = content.get("units")
        if stated is None:
            return [Finding("units", False, f"the certificate has no numbers {LABEL}, and this learner works there")]
        same = (stated["shift"], stated["scale"]) == (units.shift, units.scale)
        numbers = self._own_numbers(units, stated["result"])
        same &= all(content["result"][name] == value for name, value in numbers.items())
        claims = [_own_claim(units, Claim(row[0], tuple(row[1]), *row[2:])) for row in stated["claims"]]
        same &= content["claims"] == [claim_row(claim) for claim in claims]
        unit_content = {
            **content,
            "settings": self.settings.as_plain(),
            "result": {**content["result"], **stated["result"]},
            "claims": stated["claims"],
        }
        detail = f"{units.words}; bounds and estimates follow from those {LABEL}"
        return [
            Finding("units", same, detail if same else f"not what {units.words} makes of the numbers {LABEL}"),
            *self.learner.recheck(unit_content, self.problem, self.settings),
        ]


def prepare(problem: Problem, settings: Settings) -> Prepared:
    """Refuses settings and problems that cannot be used; nothing is played.

    Returns:
        What `richobs.runs.session.run_prepared` takes; its settings have the learner's own name in them.
    """
    settings.check()
    _ = problem.identity  # refuses one that no certificate can hold
    low, high = problem.env.reward_range
    if not settings.epsilon < high - low:
        raise InvalidInput(
            f"epsilon is in the units of the rewards, whose totals lie in [{low:g}, {high:g}] here; it must be below "
            f"{high - low:g}, and {settings.epsilon:g} arrived."
        )
    if settings.device is not None:
        torch_device(settings.device)
    chosen = learner(settings.learner)
    prepared = in_units_of(chosen, problem, dataclasses.replace(settings, learner=chosen.name))
    if prepared.engine not in ENGINES:
        raise InvalidInput(
            f"there is no engine {prepared.engine!r}; there are 'auto', {', '.join(map(repr, ENGINES))}."
        )
    missing = ENGINES.load(prepared.engine).missing(problem)
    if missing is not None:
        raise InvalidInput(missing)
    if not is_simulated(problem):
        real_episodes(problem.env)  # refuses what it cannot use
    chosen.check(prepared.problem, prepared.settings, prepared.engine)
    return prepared


def in_units_of(learner: Learner, problem: Problem, settings: Settings) -> Prepared:
    """Returns problem and settings as a learner gets them: rescaled where it needs rewards in [0, 1], else as they are.

    Where it needs that and it is not possible, `learner.check_needs` says why.

    Args:
        learner: who learns.
        problem: in its own units.
        settings: what is asked for, in the problem's own units.

    Raises:
        InvalidInput: epsilon is too small once it is rescaled, or there is a tolerance, whose units only the learner knows.
    """
    if unit_rewards not in learner.needs or has_unit_rewards(problem) or units_missing(problem) is not None:
        return Prepared(learner, problem, settings, None, problem, settings)
    units = units_of(problem.env)
    if settings.tolerance and learner.traits.takes_tolerance:
        raise InvalidInput(
            f"the learner {learner.name!r} works {LABEL}, and a tolerance is not rescaled. Give it a problem in these units "
            f"({units.words}) and a tolerance that fits, or leave `tolerance` out."
        )
    epsilon = units.width(settings.epsilon)
    if epsilon < SMALLEST:
        raise InvalidInput(
            f"the learner {learner.name!r} works {LABEL}. There epsilon = {settings.epsilon:g} is {epsilon:.3g}, and at "
            f"least {SMALLEST:g} is needed."
        )
    threshold = None if settings.threshold is None else units.value(settings.threshold)
    inner = dataclasses.replace(settings, epsilon=epsilon, threshold=threshold)
    return Prepared(learner, problem, settings, units, units.problem(problem), inner)


def is_simulated(problem: Problem) -> bool:
    """Whether an environment is one that richobs simulates, so that playing it again costs nothing but time."""
    if is_gymnasium_id(problem.id):  # it can be built again, but what it plays is somebody else's
        return False
    return problem.id is not None or isinstance(problem.env, WorldEnvironment)


def own_progress(progress: Progress, units: Units) -> Progress:
    """Returns where a run stands, with its bounds in the problem's own units."""
    upper, lower = progress.upper, progress.lower
    return dataclasses.replace(
        progress,
        upper=None if upper is None else units.own_above(upper),
        lower=None if lower is None else units.own_below(lower),
    )


def units_part(units: Units, answer: Outcome) -> dict[str, Any]:
    """Returns what a certificate says of a rescaling, with the learner's own numbers."""
    return {
        "shift": units.shift,
        "scale": units.scale,
        "words": f"{units.words}; constants and the numbers of tests are {LABEL}",
        "result": {name: getattr(answer, name) for name in NUMBERS},
        "claims": [claim_row(claim) for claim in answer.claims],
    }


def claim_row(claim: Claim) -> list[Any]:
    """Returns a claim as a certificate writes it."""
    return [claim.kind, list(claim.path), claim.n, claim.share, claim.value]


def _own_policy(policy: SavablePolicy) -> SavablePolicy:
    """Returns the policy of the same member of the class in its own units, whose actions are the same."""
    if isinstance(policy, LearnedPolicy) and isinstance(policy.functions, UnitFunctions):
        return LearnedPolicy(policy.functions.own, policy.member)
    return policy


def _own_claim(units: Units, claim: Claim) -> Claim:
    """Returns a claim in the problem's own units where it is a bound on a value; others are labelled."""
    if claim.kind in (LOWER, UPPER):
        value = (units.own_below if claim.kind == LOWER else units.own_above)(claim.value)
        return dataclasses.replace(claim, value=value)
    return dataclasses.replace(claim, kind=f"{claim.kind} ({LABEL})")

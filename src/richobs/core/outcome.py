"""What a run answers: policy, claim, and what the claim rests on."""

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from richobs.core.environment import Environment, declared_by
from richobs.core.events import Event
from richobs.core.executors import one_blas_thread
from richobs.core.ledger import Ledger
from richobs.core.policies import SavablePolicy
from richobs.core.registry import InNotebook
from richobs.core.settings import Settings
from richobs.core.types import Path
from richobs.core.units import Units
from richobs.core.words import at_least, at_most, number_words, probability_words

REACTIVE = "Q*, the best value of each action, depends only on the observation and the step"  # assumption 1
REALIZABLE = "Q* is in the class"  # assumption 2
DETERMINISTIC = "the same actions lead to the same hidden state"  # assumption 3
DETERMINISTIC_ENVIRONMENT = "the environment is deterministic"  # what answers from memory rest on
FROZEN_SEED = "every episode is reset with the seed {seed}, so that its random numbers are the same each time"
ALWAYS = ("episodes are independent", "rewards and their totals lie in the declared ranges")  # what every claim needs
LOWER, UPPER = "V(policy) is at least", "V* is at most"  # kinds of claims that hold the bounds


class StopReason(enum.Enum):
    """Why a run ended; the value is the sentence a person reads."""

    NEAR_OPTIMAL = "the policy earns what the surviving functions predict for the best one"
    CERTIFIED = "the bounds on V* and on the policy's value are within epsilon"
    AGREEMENT = "all surviving functions agree that the policy loses at most epsilon"
    ONE_SURVIVOR = "one function is left, and the policy is optimal under it"
    WORTH_IT = "the policy is certified to be worth the threshold"
    NOT_WORTH_IT = "no policy is worth the threshold"
    EVERY_MODEL = "the policy loses at most epsilon in every model that is left"
    TOLERANCE = "the bounds hold, and with this tolerance more episodes need not bring them nearer"
    STALLED = "many more episodes have brought the bounds no nearer"
    DOUBTED = "the bounds hold, and what the policy earned speaks against a nearer claim"
    EPISODES_SPENT = "the episodes allowed were spent; the bounds hold, but are farther apart than asked"
    OWN_RULE = "the learner's own rule says that nothing is left to learn"
    BUDGET_SPENT = "the episodes allowed were spent"


SHARPER: dict[StopReason | None, str] = {  # why a loss was shown to be less than the distance of the bounds
    StopReason.AGREEMENT: "all surviving functions agree about this policy",
    StopReason.ONE_SURVIVOR: StopReason.ONE_SURVIVOR.value,
    StopReason.EVERY_MODEL: "the policy loses at most this in every system that is left",
}


@dataclass(frozen=True)
class Claim:
    """One statement that a certified answer rests on, with its share of delta."""

    kind: str  # what is claimed, in words
    path: Path  # where
    n: int  # episodes it rests on
    share: float  # probability that it is false, at most
    value: float  # the number in it: a bound, a radius, or the reference's risk


class Wording(Protocol):
    """A claim without its numbers, so that it can be stated in other units."""

    def __call__(
        self, *, epsilon: float, lower: float | None, upper: float | None, reward_range: tuple[float, float]
    ) -> str:
        """Returns the claim in words, for these numbers and this range of totals."""


class InUnits(NamedTuple):
    """What a learner answered to the problem with rewards rescaled to [0, 1]."""

    units: Units
    answer: "Outcome"  # every number in that scale


class ToleranceRow(NamedTuple):
    """What the episodes of a run say of its policy if the truth is this near the class, as its learner measures that."""

    tolerance: float  # of every level
    epsilon: float  # how far the policy's value may be below V*
    upper: float  # U with V* <= U
    log_size: float  # of the surviving functions, as a natural logarithm


class ToleranceCurve(NamedTuple):
    """What is claimed for wider and wider tolerances. Each row holds with probability 1 - delta."""

    rows: tuple[ToleranceRow, ...]  # the run's own tolerance, then powers of two of the range of totals
    claimed: float  # epsilon of the run
    why_none: str = ""  # in words, where there are no rows
    together: bool = False  # whether all rows hold at once with probability 1 - delta

    @property
    def holds_up_to(self) -> float | None:
        """The largest tolerance of a row at which the claim of the run stands; None where there is none."""
        return max((row.tolerance for row in self.rows if row.epsilon <= self.claimed), default=None)

    def __str__(self) -> str:
        """One sentence: up to which tolerance the claim holds, and what is left of it beyond."""
        if not self.rows:
            return f"there is no tolerance curve: {self.why_none}"
        beyond = [row for row in self.rows if row.epsilon > self.claimed][::4]
        facts = [f"the claim holds up to tolerance {number_words(self.holds_up_to or 0.0, up=False)}"]
        facts += [f"at {number_words(t, up=False)} it is {number_words(e, up=True)}" for t, e, *_ in beyond]
        if self.together:
            return f"{'; '.join(facts)} (all of them at once with probability at least 1 - delta)"
        return f"{'; '.join(facts)} (each with probability at least 1 - delta)"


@dataclass(frozen=True, repr=False)
class Outcome(InNotebook):
    """The answer of a run."""

    view = "outcome"
    policy: SavablePolicy
    claim: str  # what is guaranteed, in words; or that nothing is
    learner: str  # who learned
    epsilon: float  # what is claimed; wider than asked where the episodes ran out
    delta: float
    reason: StopReason
    guaranteed: bool = True  # whether anything is claimed of the policy
    value_hat: float | None = None  # estimate of V(policy)
    v_star_hat: float | None = None  # estimate of V*
    upper: float | None = None  # U with V* <= U, where the learner certifies one
    lower: float | None = None  # W with V(policy) >= W
    log_size: float | None = None  # of the surviving functions, as a natural logarithm
    rounds: int = 0  # candidates tried
    claims: tuple[Claim, ...] = ()  # what U and W rest on
    remarks: tuple[str, ...] = ()  # what the search struggled with, in words
    constants: Any = None  # a dataclass: the numbers that the learner began with
    wording: Wording | None = None  # makes `claim` of other numbers; None: it holds none
    theta: dict[str, tuple[float, float, float]] | None = None  # of a family: name -> low, high, most likely
    replay: Callable[[], ToleranceCurve] | None = field(default=None, compare=False)  # makes the curve
    # What the run adds to the learner's answer:
    settings: Settings = field(default_factory=Settings)
    ledger: Ledger = field(default_factory=Ledger)
    trace: tuple[Event, ...] = ()  # everything that happened, in order
    in_units: InUnits | None = None  # where rewards were rescaled for the learner
    fingerprint: str | None = None  # of the class, by its values, where it is Python code
    reward_range: tuple[float, float] | None = None  # of totals
    rounding: float = 0.0  # largest of moments, or logarithms of wealth, on a device; bounds allow for it

    @property
    def episodes(self) -> int:
        """Episodes spent in all."""
        return self.ledger.total

    @cached_property
    def tolerance_curve(self) -> ToleranceCurve:
        """What these episodes say where the class holds Q* less nearly than was assumed.

        Computed when first asked for, and then kept in the run's folder, if it has one.
        """
        if self.replay is None:
            return ToleranceCurve((), self.epsilon, f"{self.learner} computes none, or the outcome was stored")
        with one_blas_thread():
            return self.replay()

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out what only this process can use: the run's episodes."""
        return {**self.__dict__, "replay": None}

    def __repr__(self) -> str:
        return self.claim

    def __str__(self) -> str:
        """The claim, and below it the numbers of the run in one line."""
        more = f", and {self.ledger.checks:,} played again to compare workers" if self.ledger.checks else ""
        facts = [f"{self.learner}: {self.episodes:,} episodes{more}"]
        if self.value_hat is not None:
            facts.append(f"the policy's value is {estimate_words(self.value_hat, self.lower, self.upper)}")
        return "\n".join([self.claim, f"({'; '.join([*facts, self.reason.value])})"])


def estimate_words(value: float, lower: float | None, upper: float | None) -> str:
    """Returns an estimate in words, with a word where it lies outside of the bounds."""
    outside = (lower is not None and value < lower) or (upper is not None and value > upper)
    told = ", beyond the bounds as the mean of a sample may be" if outside else ""
    return f"{value:.4g} by estimate{told}"


def sampling_assumptions(env: Environment) -> tuple[str, ...]:
    """Returns what has to be true of an environment so that its answers count as independent episodes, in words.

    An environment that is declared deterministic answers known actions from memory, and every claim rests on that. Where
    every episode is reset with one seed, a claim is about such episodes alone.
    """
    seed = declared_by(env).frozen_seed
    frozen = () if seed is None else (FROZEN_SEED.format(seed=seed),)
    return (*frozen, DETERMINISTIC_ENVIRONMENT) if declared_by(env).deterministic else frozen


def claim_words(
    delta: float,
    epsilon: float,
    assumptions: Sequence[str],
    *,
    sampling: Sequence[str],
    lower: float | None = None,
    upper: float | None = None,
    reward_range: tuple[float, float] | None = None,
    reason: StopReason | None = None,
    from_models: bool = False,
) -> str:
    """Returns a claim in words.

    What the policy earns and what others could earn are numbered sentences, because they rest on different things. A bound
    at the end of the declared range says nothing, and is left out.

    Args:
        delta: probability that any of it is false.
        epsilon: how far the policy's value may be below V*.
        assumptions: what is needed beside `ALWAYS`, each in words that can follow "that".
        sampling: what else is needed because the episodes themselves rest on it: `ledger.assumes` of the run.
        lower: W, the policy's value from its own episodes; None where the learner has no such bound.
        upper: U, what no policy exceeds; None where the learner has no such bound.
        reward_range: of totals.
        reason: why epsilon was shown, where U and W are farther apart.
        from_models: W rests on the assumptions too.
    """
    low, high = reward_range or (-math.inf, math.inf)
    least = None if lower is None or lower <= low else at_least(lower, reward_range)
    most = "" if upper is None or upper >= high else f", and no policy earns more than {at_most(upper, reward_range)}"
    loses, always = f"loses at most {number_words(epsilon, up=True)} to the best policy", (*ALWAYS, *sampling)
    if least is None and not most and epsilon >= high - low:
        return "Nothing is shown: the episodes say no more of the policy than the declared range does."
    sure, earns = f"With probability at least {probability_words(delta)}", f"earns at least {least} in expectation"
    if least is None or from_models:
        finds = f"{loses} in expectation" if least is None else f"{earns}, {loses}"
        return f"{sure} the policy {finds}{most}. This needs: {'; '.join((*always, *assumptions))}."
    sharper = ""
    if lower is not None and upper is not None and epsilon < upper - lower:
        sharper = f" (2) is sharper than (1) because {SHARPER.get(reason, 'the loss was bounded as a whole')}."
    return (
        f"{sure}: (1) the policy {earns}. This needs: {'; '.join(always)}. (2) It {loses}{most}. This also needs: "
        f"{'; '.join(assumptions)}.{sharper}"
    )

"""What a run answers: policy, claim, and what the claim rests on."""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from richobs.core.environment import Environment, declared_by
from richobs.core.events import Event
from richobs.core.ledger import Ledger
from richobs.core.policies import SavablePolicy
from richobs.core.settings import Settings
from richobs.core.types import Path
from richobs.core.units import Units
from richobs.core.words import number_words, probability_words

REACTIVE = "the best value of an action depends on what is seen, not on what was seen before"  # assumption 1
REALIZABLE = "Q* is in the class"  # assumption 2
DETERMINISTIC = "the same actions lead to the same hidden state"  # assumption 3
DETERMINISTIC_ENVIRONMENT = "the environment is deterministic"  # what answers from memory rest on
FROZEN_SEED = "every episode is reset with the seed {seed}, so that its random numbers are the same each time"
UNIT_TOTALS = "rewards are nonnegative with totals of at most 1"
DECLARED_TOTALS = "rewards and their totals lie in the declared ranges"  # UNIT_TOTALS in a problem's own units
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

    def __call__(self, *, epsilon: float, lower: float | None, upper: float | None) -> str:
        """Returns the claim in words, for these numbers."""


class InUnits(NamedTuple):
    """What a learner answered to the problem with rewards rescaled to [0, 1]."""

    units: Units
    answer: "Outcome"  # every number in that scale


class ToleranceRow(NamedTuple):
    """What the episodes of a run say of its policy if some function of the class is this near Q*."""

    tolerance: float  # the largest of a level
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
        return f"{'; '.join(facts)} (each with probability at least 1 - delta, not all of them at once)"


@dataclass(frozen=True)
class Outcome:
    """The answer of a run."""

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
    claims: tuple[Claim, ...] = field(default=(), repr=False)  # what U and W rest on
    remarks: tuple[str, ...] = ()  # what the search struggled with, in words
    constants: Any = field(default=None, repr=False)  # a dataclass: the numbers that the learner began with
    wording: Wording | None = field(default=None, repr=False)  # makes `claim` of other numbers; None: it holds none
    theta: dict[str, tuple[float, float, float]] | None = None  # of a family: name -> low, high, most likely
    replay: Callable[[], ToleranceCurve] | None = field(default=None, repr=False, compare=False)  # makes the curve
    # What the run adds to the learner's answer:
    settings: Settings = field(default_factory=Settings, repr=False)
    ledger: Ledger = field(default_factory=Ledger, repr=False)
    trace: tuple[Event, ...] = field(default=(), repr=False)  # everything that happened, in order
    in_units: InUnits | None = field(default=None, repr=False)  # where rewards were rescaled for the learner
    fingerprint: str | None = field(default=None, repr=False)  # of the class, by its values, where it is Python code
    rounding: float = 0.0  # largest of moments, or logarithms of wealth, on a device; bounds allow for it

    @property
    def episodes(self) -> int:
        """Episodes spent in all."""
        return self.ledger.total

    @cached_property
    def tolerance_curve(self) -> ToleranceCurve:
        """What these episodes say where the class holds Q* less nearly than was assumed; computed when first asked for."""
        if self.replay is None:
            return ToleranceCurve((), self.epsilon, f"{self.learner} computes none, or the outcome was stored")
        return self.replay()

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out what only this process can use: the run's episodes."""
        return {**self.__dict__, "replay": None}

    def __str__(self) -> str:
        """The claim, and below it the numbers of the run in one line."""
        more = f", and {self.ledger.checks:,} played again to compare workers" if self.ledger.checks else ""
        facts = [f"{self.learner}: {self.episodes:,} episodes{more}"]
        if self.upper is not None:
            facts.append(f"V* is at most {number_words(self.upper, up=True)}")
        known = [] if self.lower is None else [f"at least {number_words(self.lower, up=False)}"]
        known += [] if self.value_hat is None else [estimate_words(self.value_hat, self.lower, self.upper)]
        if known:
            facts.append(f"the policy's value is {', '.join(known)}")
        return "\n".join([self.claim, f"({'; '.join([*facts, self.reason.value])})"])


def estimate_words(value: float, lower: float | None, upper: float | None) -> str:
    """Returns an estimate in words, with a word where it lies outside of the bounds."""
    outside = (lower is not None and value < lower) or (upper is not None and value > upper)
    told = ", which lies outside of these bounds: by chance, or because an assumption is false" if outside else ""
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
) -> str:
    """Returns a claim in words.

    What the policy earns and what others could earn are two sentences, because they rest on different things.

    Args:
        delta: probability that any of it is false.
        epsilon: how far the policy's value may be below V*.
        assumptions: what the second sentence rests on, each in words that can follow "that".
        sampling: what both sentences rest on, because the episodes themselves do: `ledger.assumes` of the run.
        lower: W, the policy's value from its own episodes; None where the learner has no such bound.
        upper: U, what no policy exceeds; None where the learner has no such bound.
    """
    sure, near = f"With probability at least {probability_words(delta)}", number_words(epsilon, up=True)
    if lower is None or upper is None:
        provided = _listed_words((*sampling, "episodes are independent", *assumptions))
        return f"{sure} the policy's value is at most {near} below V*, provided {provided}."
    sampled = "".join(f"that {words}, " for words in sampling)
    return (
        f"{sure} two things hold. The policy's value is at least {number_words(lower, up=False)}: this assumes only "
        f"{sampled}that episodes are independent and rewards in the declared ranges. And V* is at most "
        f"{number_words(upper, up=True)} and at most {near} above the policy's value, provided also "
        f"{_listed_words((*sampling, *assumptions))}."
    )


def _listed_words(assumptions: Sequence[str]) -> str:
    """Returns assumptions as one text: that a, that b, and that c."""
    *most, last = (f"that {words}" for words in assumptions)
    return ", ".join([*most, f"and {last}" if most else last])
